"""What holds for every entry of COMPONENTS and for a foreign class of each kind, and
how ``impl:`` puts another in its place.
"""

import ast
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar

import numpy as np
import pytest
from message_examples import data_ops

import kernbench
from kernbench.benches.matmul import run as matmul
from kernbench.common.messages import MsgBase
from kernbench.components.base import ComponentBase
from kernbench.components.builtin.pe_gemm import PeGemm
from kernbench.components.registry import COMPONENTS, component_class
from kernbench.errors import KernbenchError, UsageError
from kernbench.sim_engine.data_executor import DataExecutor
from kernbench.sim_engine.engine import GraphEngine
from kernbench.topology import TopologySpec, build_topology, load_topology
from kernbench.topology.kinds import NODE_KINDS
from kernbench.topology.spec import ComponentSpec, ComponentsSpec, CubeMeshSpec, SipSpec


class Stranger(MsgBase):
    pass


class Probe(MsgBase):
    """A message that we do not know, and that is a data op."""

    data_op: ClassVar[bool] = True


class ProbingGemm(PeGemm):
    """Serves a Probe of its own before each GEMM."""

    serves = (*PeGemm.serves, Probe)
    slots = 2

    def run(self, env, msg):
        if isinstance(msg, Probe):
            yield env.timeout(7.0)
        else:
            yield env.process(self._forward_txn(env, Probe()))
            yield from super().run(env, msg)


class SlowGemm(PeGemm):
    """Takes 1000 ns for anything."""

    def run(self, env, msg):
        yield env.timeout(1000.0)


def foreign(kind):
    """A class that somebody else has written for a kind of node: 3 ns slower."""
    ours = COMPONENTS[NODE_KINDS[kind].impl]

    class Foreign(ours):
        """Thinks for 3 ns."""

        def run(self, env, msg):
            yield env.timeout(3.0)
            yield from super().run(env, msg)

    Foreign.__name__ = f"Foreign_{kind}"
    return Foreign


# A run of a pe_mmu would never be called, so there can be none.
FOREIGN = {f"{__name__}:Foreign_{kind}": kind for kind in NODE_KINDS}
FOREIGN.pop(f"{__name__}:Foreign_pe_mmu")
for _kind in FOREIGN.values():
    globals()[f"Foreign_{_kind}"] = foreign(_kind)
IMPLS = [*COMPONENTS, *FOREIGN]


@pytest.fixture(scope="module")
def foreign_machine(layout_cache):
    """As ``small``, with the foreign class of each kind."""
    chosen = {f"{kind}.impl": impl for impl, kind in FOREIGN.items()}
    mesh = {"sip.cube_mesh.w": 2, "sip.cube_mesh.h": 1}
    return load_topology(None, mesh | chosen, layout_cache)


@pytest.fixture
def place(small, foreign_machine):
    """place(impl) -> a machine, and the id of a node that has that impl there."""

    def place(impl):
        graph = foreign_machine if impl in FOREIGN else small
        return graph, next(n.id for n in graph.nodes.values() if n.impl == impl)

    return place


@pytest.fixture(scope="module")
def engines():
    return {}


@pytest.fixture(params=IMPLS)
def component(request, engines, place):
    """One component of each kind, where the machine has it."""
    graph, node_id = place(request.param)
    if id(graph) not in engines:
        engines[id(graph)] = GraphEngine(graph)
    return engines[id(graph)].sim.component(node_id)


def test_is_what_the_registry_says_and_documented(component):
    kind = component_class(component.node.impl)
    assert type(component) is kind
    assert issubclass(kind, ComponentBase)
    assert kind.__doc__


def test_overrides_neither_the_hooks_nor_the_service_loop(component):
    ours = {"_forward_txn", "_on_process_start", "_on_process_end"}
    assert not ours & set(type(component).__dict__)


def test_refuses_a_message_that_it_does_not_know(component):
    env = component.sim.env
    served = env.process(component._forward_txn(env, Stranger()))
    with pytest.raises(
        KernbenchError, match=rf"{component.node.id}.* serves no Stranger"
    ):
        env.run(until=served)


def test_pays_the_overhead_of_its_node(component):
    assert component.overhead_ns == component.node.overhead_ns


DATA_OPS = [
    pytest.param((impl, make), id=f"{impl}-{what}")
    for impl in IMPLS
    for what, make in data_ops(FOREIGN.get(impl, impl), component_class(impl)).items()
]


def test_every_data_op_that_an_entry_serves_is_under_contract():
    for name, kind in COMPONENTS.items():
        made = {type(make()) for make in data_ops(name, kind).values()}
        assert made == {type_ for type_ in kind.serves if type_.data_op}, name


@pytest.mark.parametrize("impl", IMPLS)
def test_starts_idle_and_wakes_nobody(impl, place):
    graph, node_id = place(impl)
    engine = GraphEngine(graph)
    engine.sim.component(node_id)
    assert engine.env.peek() == float("inf")
    assert list(engine.sim.components) == [node_id]


@pytest.fixture(params=DATA_OPS)
def crowd(request, place):
    """crowd(**options): three messages more than a channel has slots, all at once."""
    impl, make = request.param
    graph, node = place(impl)

    def crowd(**options):
        engine = GraphEngine(graph, **options)
        component = engine.sim.component(node)
        messages = [make() for _ in range(component.slots + 3)]
        assert len({component.channel(msg) for msg in messages}) == 1
        for msg in messages:
            engine.env.process(component._forward_txn(engine.env, msg))
        engine.env.run()
        log = [record for record in engine.op_log if record.component_id == node]
        return SimpleNamespace(
            engine=engine, served=component, messages=messages, log=log
        )

    return crowd


def test_one_record_a_data_op_from_the_start_of_its_service_to_the_end(crowd):
    run = crowd()
    assert [r.t_start for r in run.log] == sorted(msg.t_start for msg in run.messages)
    assert all(r.t_start < r.t_end for r in run.log)


def test_a_full_component_makes_others_wait_first_come_first_served(crowd, events):
    run = crowd(recorder=events)
    starts = [msg.t_start for msg in run.messages]
    slots = run.served.slots
    assert starts == sorted(starts)
    assert starts[:slots] == [0.0] * slots
    records = {row: record for row, record, *_ in events.of("op")}
    for msg in run.messages[slots:]:
        waits = [
            w for row, *_, waits, _ in events.of("op") if row == msg.row for w in waits
        ]
        node, _, t0, t1, holder = next(
            w for w in waits if w[1] == run.served.queue_reason
        )
        assert (node, t0, t1) == (run.served.node.id, 0.0, msg.t_start)
        assert records[holder].t_end == msg.t_start
    for record in run.log:
        serving = [r for r in run.log if r.t_start <= record.t_start < r.t_end]
        assert len(serving) <= slots


def test_quiesces_with_every_slot_free(crowd):
    run = crowd()
    assert run.engine.env.peek() == float("inf")
    assert run.served.free_slots() == [run.served.slots] * run.served.channels
    assert run.served.queued() == 0


def test_makes_no_record_without_a_logger_and_takes_as_long(crowd):
    silent = crowd(op_logger=None)
    assert silent.engine.op_log == []
    assert silent.engine.env.now == crowd().engine.env.now


@pytest.mark.slow
def test_only_the_hooks_of_the_base_and_record_copy_of_the_ipcq_write_the_op_log():
    writers = set()
    for path in Path(kernbench.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and node.attr.startswith("record_"):
                writers.add((path.name, node.attr))
    allowed = {(file, "record_copy") for file in ("pe_dma.py", "pe_ipcq.py")}
    allowed |= {
        ("phase2.py", f"record_{end}") for end in ("start", "end")
    }  # a log without a run
    assert writers - allowed == {("base.py", "record_start"), ("base.py", "record_end")}


def test_a_data_op_unknown_to_us_is_logged_and_skipped_by_phase_2(
    layout_cache, simulate, phase2
):
    def kernel(ptr, out, tl):
        tl.wait(tl.composite(a=tl.ref(ptr, (8, 8)), b=tl.ref(ptr, (8, 8)), out_ptr=out))

    def bench(torch):
        out = torch.empty((8, 8))
        torch.launch("k", kernel, torch.full((8, 8), 1.0), out)
        torch.expect(out, np.full((8, 8), 8.0))

    run = simulate(
        bench, graph=machine(layout_cache, pe_gemm=f"{__name__}:ProbingGemm")
    )
    (probe,) = (r for r in run.log if r.op_name == "Probe")
    assert (probe.op_kind, probe.params, probe.t_end - probe.t_start) == (
        "unknown",
        {},
        7.0,
    )
    assert phase2(run).ok
    executor = DataExecutor(run.log)
    executor.run()
    assert executor.skipped == {"Probe": 1}


def test_another_timing_leaves_the_data_of_phase_2_as_they_are(layout_cache, simulate):
    def results(**impls):
        graph = machine(layout_cache, **impls)
        run = simulate(
            lambda torch: matmul(torch, m=20, k=33, n=17, tile=16, pes=2), graph=graph
        )
        executor = DataExecutor(run.log)
        assert executor.verify(run.torch.expectations).ok
        executor.run()
        data = [
            executor.store.view(e.space, e.addr, e.array.shape, e.dtype).tobytes()
            for e in run.torch.expectations.values()
        ]
        return run.engine.env.now, data

    ours, data = results()
    slow, same = results(pe_gemm=f"{__name__}:SlowGemm")
    assert slow > ours + 1000
    assert same == data


def machine(cache, **impls):
    components = replace(
        ComponentsSpec(), **{k: ComponentSpec(v) for k, v in impls.items()}
    )
    sip = replace(SipSpec(), cube_mesh=CubeMeshSpec(w=1, h=1))
    return build_topology(TopologySpec(sip=sip, components=components), cache)


def test_a_class_named_by_impl_takes_the_place_of_ours(layout_cache, simulate):
    def kernel(ptr, tl):
        a = tl.load(ptr, (8, 8))
        tl.dot(a, a)

    def bench(torch):
        torch.launch("k", kernel, torch.zeros((8, 8)))

    run = simulate(bench, graph=machine(layout_cache, pe_gemm=f"{__name__}:SlowGemm"))
    (gemm,) = (r for r in run.log if r.op_kind == "gemm")
    assert gemm.t_end - gemm.t_start == pytest.approx(1000)


@pytest.mark.parametrize(
    ("impl", "message"),
    [
        ("nothing", "unknown impl 'nothing'; valid: hbm_ctrl, .*package.module:Class"),
        ("no.such.module:Class", "no module 'no.such.module' is loaded.*--plugin FILE"),
        ("kernbench.components.base:Nothing", "has no class 'Nothing'"),
        ("kernbench.components.base:", "has no class ''"),
        (":Class", "no module '' is loaded"),
        (".relative:Class", "no module '.relative' is loaded"),
        ("kernbench.components.base:Sim", "no subclass of ComponentBase"),
        ("math:pi", "no subclass of ComponentBase"),
    ],
)
def test_an_impl_that_is_no_component_is_a_clear_error(impl, message):
    with pytest.raises(UsageError, match=message):
        component_class(impl)


@pytest.mark.parametrize("engine_name", ["pe_mmu", "pe_scheduler", "pe_tcm"])
def test_a_part_that_others_rely_on_must_subclass_ours(
    layout_cache, simulate, engine_name
):
    def kernel(ptr, out, tl):
        a = tl.load(ptr, (8, 8))
        tl.wait(tl.composite(a=a, b=a, out_ptr=out))

    def bench(torch):
        torch.launch("k", kernel, torch.zeros((8, 8)), torch.empty((8, 8)))

    graph = machine(layout_cache, **{engine_name: "transit"})
    with pytest.raises(KernbenchError, match="must subclass the built-in one"):
        simulate(bench, graph=graph)
