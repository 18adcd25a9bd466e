"""Machines, a recorder that is a list, and a way to run a few lines of bench."""

import atexit
import gc
import os
import shutil
import tempfile
from dataclasses import replace
from types import SimpleNamespace

# Hundreds of tests start programs. Where Python is told to keep nothing that it has
# compiled, each would compile all of its modules again, for a second; so these are kept
# beside the tree, for as long as the tests run. Workers have this from who starts them.
if os.environ.pop("PYTHONDONTWRITEBYTECODE", ""):
    compiled = tempfile.mkdtemp(prefix="kernbench-compiled-")
    os.environ["PYTHONPYCACHEPREFIX"] = compiled
    atexit.register(shutil.rmtree, compiled, ignore_errors=True)
# As both programs have it, and before numpy is imported: tests run side by side, and a
# matrix product that waits for a core is counted as time that a job does not report.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# In which order a product is summed is up to the processor, and so are the last bits
# of a sum, which snapshots show. With these kernels they are alike on all with AVX.
os.environ["OPENBLAS_CORETYPE"] = "Sandybridge"

import pytest
from hypothesis import settings

from kernbench.runtime_api.torch import Torch
from kernbench.sim_engine.data_executor import DataExecutor
from kernbench.sim_engine.engine import GraphEngine
from kernbench.topology import TopologySpec, build_topology
from kernbench.topology.spec import CubeMeshSpec, SipSpec

# the same examples in every run, and none is wrong for being slow
settings.register_profile("kernbench", deadline=None, derandomize=True)
settings.load_profile("kernbench")


@pytest.fixture(scope="session", autouse=True)
def _one_heap():
    """What is imported stays out of collections of garbage, and a run forces none.

    In a process of its own a run collects once. Here hundreds do, and each would look
    at all that every test has imported and kept: two fifths of the time of the tests.
    Collections that Python begins by itself are rarer too, for another tenth.
    """
    unforced = {"collect": lambda: 0, "freeze": lambda: None, "unfreeze": lambda: None}
    thresholds = gc.get_threshold()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "kernbench.sim_engine.engine.gc", SimpleNamespace(**vars(gc) | unforced)
        )
        gc.collect()
        gc.freeze()
        gc.set_threshold(20_000, 10, 100)
        yield
        gc.set_threshold(*thresholds)
        gc.freeze()  # what ends the process collects several times, too


class Events(list):
    """A Recorder: one (kind, arguments) an event."""

    def __getattr__(self, kind):
        if kind.startswith("_"):
            raise AttributeError(kind)
        return lambda *args: self.append((kind, args))

    def of(self, kind):
        return [args for k, args in self if k == kind]


@pytest.fixture(scope="session")
def layout_cache(tmp_path_factory):
    return tmp_path_factory.mktemp("layout")


@pytest.fixture(scope="session")
def shipped(layout_cache):
    """The default machine: 2 SIPs of 16 cubes of 8 PEs."""
    return build_topology(TopologySpec(), layout_cache)


@pytest.fixture(scope="session")
def small(layout_cache):
    """As the default machine, but 2 SIPs of 2 cubes."""
    spec = TopologySpec(sip=replace(SipSpec(), cube_mesh=CubeMeshSpec(w=2, h=1)))
    return build_topology(spec, layout_cache)


@pytest.fixture(scope="session")
def one_cube(layout_cache):
    """As the default machine, but 1 SIP of 1 cube: quickest to make."""
    spec = TopologySpec()
    spec = replace(
        spec,
        sip=replace(spec.sip, cube_mesh=CubeMeshSpec(w=1, h=1)),
        system=replace(spec.system, sips=replace(spec.system.sips, count=1)),
    )
    return build_topology(spec, layout_cache)


@pytest.fixture(scope="session")
def simulate(small):
    """simulate(bench, graph=small, recorder=None, …) -> engine, torch, events."""

    def simulate(bench, graph=small, recorder=None, **options):
        engine = GraphEngine(graph, recorder=recorder, **options)
        torch = Torch(engine)
        engine.run(lambda _: bench(torch))
        return SimpleNamespace(
            engine=engine, torch=torch, events=recorder, log=engine.op_log
        )

    return simulate


@pytest.fixture(scope="session")
def phase2():
    """phase2(run) -> the verdict on all that its bench expects."""

    def phase2(run):
        return DataExecutor(run.log).verify(run.torch.expectations)

    return phase2


@pytest.fixture
def events():
    return Events()
