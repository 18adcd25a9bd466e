"""ADR-0020 D2, D4 and D9, as somebody would rely on them who has the record alone.

D2: an op's record is made by hooks around ``run``. D4: a message says itself whether
it is an op. D9: a component can be replaced; times change, and results do not.
"""

import textwrap
from dataclasses import dataclass
from types import SimpleNamespace
from typing import ClassVar

import numpy as np
import pytest

from kernbench import docs
from kernbench.ccl.install import install_ipcq
from kernbench.common.messages import COMMANDS, MsgBase, register_command
from kernbench.common.pe_commands import DmaReadCmd, MathCmd
from kernbench.components.base import ComponentBase, MemoryEndpoint
from kernbench.components.builtin.hbm_ctrl import HbmCtrl
from kernbench.components.builtin.pe_dma import PeDma
from kernbench.components.builtin.pe_gemm import PeGemm
from kernbench.components.builtin.pe_math import PeMath
from kernbench.components.builtin.pe_mmu import PeMmu
from kernbench.components.builtin.transit import Transit
from kernbench.components.registry import COMPONENTS
from kernbench.errors import KernbenchError, KernelError
from kernbench.replay import ReplaySession
from kernbench.runtime_api import run_bench
from kernbench.runtime_api.torch import DPPolicy, Torch
from kernbench.sim_engine.data_executor import DataExecutor
from kernbench.sim_engine.engine import GraphEngine
from kernbench.topology import load_topology
from kernbench.topology.kinds import NODE_KINDS
from kernbench.trace import Trace

MORE_NS = 300.0
TWO_SIPS = {"sip.cube_mesh.w": 1, "sip.cube_mesh.h": 1}
ONE_PE_A_SIP = DPPolicy(cube="row_wise", num_pes=1)
N = 64

x_of = np.linspace(-1, 1, N * N, dtype=np.float32).reshape(N, N)


def kernel(x, out, other, tl):
    """A composite, and math on what the other SIP sends; all lands in its own rows."""
    rank = tl.program_id(2)
    mine = N * N * 4 * rank
    block = tl.load(x + mine, (N, N), "f32")
    done = tl.composite(
        a=block,
        b=tl.ref(x + mine, (N, N), "f32"),
        out_ptr=out + mine,
        epilogue=["relu"],
    )
    tl.wait(done)
    tl.send("E", tl.exp(block), wait=False)
    tl.store(other + mine, tl.dot(tl.recv("W", (N, N), "f32"), block))


def bench(torch):
    both = np.concatenate([x_of, x_of])
    x = torch.tensor(both, "f32", dp=ONE_PE_A_SIP, name="x")
    out = torch.empty(both.shape, "f32", dp=ONE_PE_A_SIP, name="out")
    other = torch.empty(both.shape, "f32", dp=ONE_PE_A_SIP, name="other")
    torch.launch("k", kernel, x, out, other)
    torch.expect(out, np.concatenate([np.maximum(x_of @ x_of, 0)] * 2))
    torch.expect(other, np.concatenate([np.exp(x_of) @ x_of] * 2))


@pytest.fixture
def run(layout_cache):
    """run(bench, ring, **impls): on 2 SIPs of a cube, with queues between the SIPs."""

    def run(bench=bench, ring="tcm", **impls):
        chosen = {f"{kind}.impl": impl for kind, impl in impls.items()}
        graph = load_topology(None, TWO_SIPS | chosen, layout_cache)
        engine = GraphEngine(graph)
        torch = Torch(engine)
        install_ipcq(
            engine,
            world_size=2,
            rank_to_pe=[(0, 0, 0), (1, 0, 0)],
            neighbors=lambda rank: {"E": 1 - rank, "W": 1 - rank},
            buffer_kind=ring,
        )
        engine.run(lambda _: bench(torch))
        executor = DataExecutor(engine.op_log)
        executor.run()
        verdict = DataExecutor(engine.op_log).verify(torch.expectations)
        results = [
            executor.store.view(e.space, e.addr, e.array.shape, e.dtype).tobytes()
            for e in torch.expectations.values()
        ]
        return SimpleNamespace(
            end_ns=engine.env.now,
            ok=verdict.ok,
            results=results,
            log=engine.op_log,
            engine=engine,
        )

    return run


def slower(kind):
    """A subclass of what ships for a kind of node: what it does takes 300 ns more."""
    ours = COMPONENTS[NODE_KINDS[kind].impl]

    class Slower(ours):
        def run(self, env, msg):
            yield env.timeout(MORE_NS)
            yield from super().run(env, msg)

    return Slower


def timed(base):
    """A model that takes 300 ns for anything, and does nothing else."""

    class Timed(base):
        def run(self, env, msg):
            yield env.timeout(MORE_NS)

    return Timed


@pytest.fixture
def impl(monkeypatch):
    """impl(class) -> the name of it for ``impl:``, as of a class in a plugin."""

    def impl(model):
        monkeypatch.setitem(globals(), model.__name__, model)
        return f"{__name__}:{model.__name__}"

    return impl


def names(run):
    return sorted(record.op_name for record in run.log)


RUN_COUNTS = [kind for kind in NODE_KINDS if kind != "pe_mmu"]


@pytest.fixture(scope="module")
def shipped_ends():
    return {}


@pytest.mark.parametrize("kind", RUN_COUNTS)
def test_d9_the_run_of_any_kind_of_node_counts_and_results_stay(
    run, impl, kind, shipped_ends
):
    ring = "sram" if kind == "sram" else "tcm"
    if ring not in shipped_ends:
        shipped_ends[ring] = run(ring=ring)
    ours = shipped_ends[ring]
    theirs = run(ring=ring, **{kind: impl(slower(kind))})
    assert theirs.ok
    assert theirs.results == ours.results
    # a launch has a picosecond of slack
    assert theirs.end_ns > ours.end_ns + MORE_NS - 0.01
    assert names(theirs) == names(ours)


def test_d9_a_run_that_could_never_be_called_is_refused_when_the_machine_is_built(
    run, impl
):
    with pytest.raises(KernbenchError, match=r"pe_mmu: its run is never called.*impl"):
        run(pe_mmu=impl(slower("pe_mmu")))


class OtherView(PeMmu):
    """An MMU that counts."""

    asked = 0

    def translate(self, va, nbytes, past_end=False):
        type(self).asked += 1
        return super().translate(va, nbytes, past_end)


def test_d9_what_the_error_says_to_implement_works(run):
    assert run(pe_mmu=f"{__name__}:OtherView").ok
    assert OtherView.asked > 0


TIME_ONLY = [
    *("router", "ucie", "ucie_conn", "io_noc", "switch", "hbm_ctrl", "sram"),
    *("pcie_ep", "io_cpu", "m_cpu", "pe_dma", "pe_gemm", "pe_math", "pe_fetch_store"),
]


@pytest.mark.parametrize("kind", TIME_ONLY)
def test_d9_a_class_that_knows_no_more_than_the_base_can_replace_ours(run, impl, kind):
    ring = "sram" if kind == "sram" else "tcm"
    theirs = run(ring=ring, **{kind: impl(timed(ComponentBase))})
    assert theirs.ok
    assert theirs.end_ns > MORE_NS


@pytest.mark.parametrize("kind", ["pe_cpu", "pe_scheduler", "pe_tcm", "pe_mmu"])
def test_d9_where_more_than_time_is_needed_the_error_says_what(run, impl, kind):
    ours = COMPONENTS[kind].__name__
    with pytest.raises(
        KernbenchError, match=f"of {kind}: it must subclass the built-in one, {ours}: "
    ):
        run(**{kind: impl(timed(ComponentBase))})


def test_d9_a_memory_without_any_time_is_refused_with_what_to_implement(run):
    for kind in ("hbm_ctrl", "sram"):
        with pytest.raises(KernbenchError, match=r"implement burst\(.*or.*run\(env"):
            run(**{kind: "transit"})


@pytest.mark.parametrize(
    ("kind", "left_out"),
    [
        ("pe_cpu", "without running kernel k"),
        ("pe_ipcq", "its payload was not sent"),
    ],
)
def test_d9_a_run_that_leaves_out_what_it_is_there_for_is_told_so(
    run, impl, kind, left_out
):
    model = impl(timed(COMPONENTS[kind]))
    with pytest.raises(
        KernbenchError, match=rf"{left_out}.*super\(\)\.run\(env, msg\)"
    ):
        run(**{kind: model})


def read_ns(graph, src_sip=0, dst_sip=0, nbytes=512):
    """How long a PE takes to load from HBM, on the idle machine."""
    engine = GraphEngine(graph)
    torch = Torch(engine)

    def load(x, tl):
        if tl.program_id(2) == src_sip:
            tl.load(x + dst_sip * nbytes, (nbytes // 4,), "f32")

    def bench(torch):
        x = torch.zeros((2, nbytes // 4), "f32", dp=ONE_PE_A_SIP)
        torch.launch("k", load, x)

    engine.run(lambda _: bench(torch))
    (record,) = (r for r in engine.op_log if r.op_name == "dma_read")
    return record.t_end - record.t_start


class SlowRouter(Transit):
    def run(self, env, msg):
        yield env.timeout(98.0)
        yield from super().run(env, msg)


class TinyRouter(ComponentBase):
    def run(self, env, msg):
        yield env.timeout(2.0)


class FixedHbm(ComponentBase):
    def run(self, env, msg):
        yield env.timeout(500.0)


class LateHbm(HbmCtrl):
    def run(self, env, msg):
        yield env.timeout(500.0)
        yield from super().run(env, msg)


class BySize(ComponentBase):
    def run(self, env, msg):
        yield env.timeout(msg.nbytes / 4)


class Endless(MemoryEndpoint):
    def burst(self, now, addr, nbytes, owner):
        return now, 500.0, 0.0


@pytest.fixture
def load_ns(layout_cache):
    """load_ns(**impls): of 512 bytes from a PE's own HBM, or ``far``: the other SIP."""

    def load_ns(far=False, nbytes=512, **impls):
        chosen = {f"{k}.impl": f"{__name__}:{v.__name__}" for k, v in impls.items()}
        graph = load_topology(None, TWO_SIPS | chosen, layout_cache)
        return read_ns(graph, dst_sip=int(far), nbytes=nbytes)

    return load_ns


def test_d2_the_time_of_a_router_is_that_of_its_run_for_each_header(load_ns):
    ours = load_ns()
    # a request and its data each pass the one router between a PE and its slice
    assert load_ns(router=SlowRouter) == pytest.approx(ours + 2 * 98)
    assert load_ns(router=TinyRouter) == pytest.approx(ours)


def test_d2_a_run_sees_how_many_bytes_pass(load_ns):
    ours = load_ns() - 2 * 2
    assert load_ns(router=BySize) == pytest.approx(ours + (32 + 512) / 4)


def test_d2_the_time_of_a_memory_is_that_of_its_run(load_ns):
    ours = load_ns()
    assert load_ns(hbm_ctrl=LateHbm) == pytest.approx(ours + 500)
    # instead of 30 ns of access, and 8 ns of two channels for 512 bytes
    assert load_ns(hbm_ctrl=FixedHbm) == pytest.approx(ours - 30 - 8 + 500 + 2)
    assert load_ns(hbm_ctrl=Endless) == load_ns(hbm_ctrl=FixedHbm)


def test_d2_bursts_are_served_side_by_side_and_land_when_all_have(load_ns):
    ours = load_ns(nbytes=1 << 14)
    assert load_ns(nbytes=1 << 14, hbm_ctrl=LateHbm) == pytest.approx(ours + 500)


def test_d9_what_passes_a_pcie_end_point_pays_its_run(load_ns, impl):
    slow = slower("pcie_ep")
    impl(slow)
    ours = load_ns(far=True)
    # two end points there, and two back
    assert load_ns(far=True, pcie_ep=slow) == pytest.approx(ours + 4 * MORE_NS)


PLUGIN = """
from kernbench.components.base import ComponentBase

class Patient(ComponentBase):
    def run(self, env, msg):
        yield env.timeout(1000.0)
"""


def test_d9_the_router_of_a_plugin_is_used_by_kernbench_run(tmp_path):
    plugin = tmp_path / "patient_router.py"
    plugin.write_text(PLUGIN)
    options = {
        "params": {"m": 16, "k": 16, "n": 16, "pes": 1},
        "spec": {"sips.count": 1, "cube_mesh.w": 1, "cube_mesh.h": 1},
    }
    ours = run_bench("matmul", **options)
    options["spec"]["router.impl"] = "patient_router:Patient"
    theirs = run_bench("matmul", plugins=[plugin], **options)
    assert theirs.ok
    assert theirs.end_ns > ours.end_ns + 4 * 998


# -- a data op of no time --------------------------------------------------------------


class Instant(PeMath):
    """Math in no time."""

    def run(self, env, msg):
        yield from ()


class InstantGemm(PeGemm):
    def run(self, env, msg):
        yield env.timeout(0)


def test_d2_a_data_op_may_take_no_time(run, tmp_path):
    theirs = run(pe_math=f"{__name__}:Instant", pe_gemm=f"{__name__}:InstantGemm")
    assert theirs.ok
    served = [
        r for r in theirs.log if r.component_id.endswith((".pe_math", ".pe_gemm"))
    ]
    assert served
    assert all(0 < r.t_end - r.t_start < 0.002 for r in served)


def chain(ptr, out, tl):
    """Each op needs the one before, and the last is stored at once."""
    x = tl.load(ptr, (8, 8), "f32")
    for _ in range(20):
        x = tl.dot(x + 1.0, x * 0.5)
        x = x - x
        x = x + 2.0
    tl.store(out, x)


def test_d2_instant_ops_are_replayed_in_the_order_of_the_kernel(run, tmp_path):
    def bench(torch):
        one = DPPolicy(num_cubes=1, num_pes=1)
        x = torch.full((8, 8), 1.0, "f32", dp=one)
        out = torch.empty((8, 8), "f32", dp=one)
        torch.launch("k", chain, x, out)
        torch.expect(out, np.full((8, 8), 2.0, np.float32))

    assert run(
        bench, pe_math=f"{__name__}:Instant", pe_gemm=f"{__name__}:InstantGemm"
    ).ok


INSTANT_PLUGIN = """
from kernbench.components.builtin.pe_gemm import PeGemm

class Free(PeGemm):
    def run(self, env, msg):
        yield env.timeout(0)
"""


def test_d2_a_trace_of_instant_ops_is_replayed(tmp_path):
    plugin = tmp_path / "free_gemm.py"
    plugin.write_text(INSTANT_PLUGIN)
    trace = tmp_path / "out.msgpack"
    result = run_bench(
        "matmul",
        params={"m": 32, "k": 32, "n": 32, "pes": 1, "tile": 16},
        spec={
            "sips.count": 1,
            "cube_mesh.w": 1,
            "cube_mesh.h": 1,
            "pe_gemm.impl": "free_gemm:Free",
        },
        plugins=[plugin],
        trace=trace,
    )
    assert result.ok
    session = ReplaySession(Trace.open(trace))
    ops = session.trace.ops
    assert all(op.t_end > op.t_start for op in ops)
    # the path to the end goes through them, back to the command
    path = [ops[row].op_name for row in session.run_line("critical").ops]
    assert path[0] == "composite_gemm"
    assert {"TileToken/DMA_READ", "TileToken/GEMM"} <= {*path}
    assert path[-1] == "TileToken/DMA_WRITE"


# -- messages --------------------------------------------------------------------------


@dataclass(slots=True, eq=False, kw_only=True)
class IpcqMsg(MsgBase):
    """D4's example of a new type of message."""

    data_op: ClassVar[bool] = True
    ns: float = 5.0


class QuietMsg(MsgBase):
    """One that is no op unless it is said of an instance."""

    ns = 5.0


class Stranger:
    """Derived from nothing of ours."""

    data_op = True
    ns = 5.0


@dataclass(frozen=True)
class Sealed:
    """Derived from nothing of ours, and takes no attributes."""

    data_op: ClassVar[bool] = True


class Talker(PeMath):
    """A math unit that serves them too."""

    serves = (*PeMath.serves, IpcqMsg, QuietMsg, Stranger, Sealed)

    def run(self, env, msg):
        if isinstance(msg, PeMath.serves):
            yield from super().run(env, msg)
        else:
            yield env.timeout(msg.ns)


@pytest.fixture
def registered(monkeypatch):
    """registered(class, engine): as ``register_command``, for one test."""

    def registered(kind, engine="pe_math"):
        monkeypatch.setattr(kind, "served_by", "", raising=False)
        monkeypatch.setitem(COMMANDS, kind.__name__, "")
        register_command(kind, engine)

    return registered


@pytest.fixture
def talker(layout_cache):
    """A machine whose math units serve messages of a stranger."""
    impl = f"{__name__}:Talker"
    graph = load_topology(None, TWO_SIPS | {"pe_math.impl": impl}, layout_cache)
    return GraphEngine(graph)


def dispatched(engine, *messages):
    """The log of messages that the scheduler of a PE is given."""
    scheduler = engine.sim.component(engine.graph.at(0, 0, 0, "pe_scheduler"))
    for msg in messages:
        scheduler.dispatch(msg)
    engine.simulate()
    return [(r.op_kind, r.op_name, r.t_start, r.t_end) for r in engine.op_log]


def test_d4_a_new_type_of_message_is_dispatched_and_logged_once_registered(
    talker, registered
):
    registered(IpcqMsg)
    log = dispatched(talker, IpcqMsg(), IpcqMsg(ns=2.0))
    assert log == [("unknown", "IpcqMsg", 0, 5), ("unknown", "IpcqMsg", 5, 7)]


@pytest.mark.parametrize("kind", [IpcqMsg, Stranger])
def test_d4_a_kernel_issues_a_new_command(run, registered, kind):
    registered(kind)

    def lasting(ns):
        msg = kind()
        msg.ns = ns
        return msg

    def k(ptr, tl):
        tl.issue(lasting(50.0))
        tl.issue(lasting(70.0), wait=False)

    def bench(torch):
        torch.launch("k", k, torch.zeros((2,), dp=DPPolicy(num_cubes=1, num_pes=1)))

    theirs = run(bench, pe_math=f"{__name__}:Talker")
    ops = [r for r in theirs.log if r.op_name == kind.__name__]
    assert [r.t_end - r.t_start for r in ops] == pytest.approx([50, 70])
    assert ops[1].t_start > ops[0].t_end
    assert theirs.end_ns >= ops[1].t_end


def test_d4_one_that_is_not_registered_is_refused_at_the_line_of_the_kernel(run):
    def k(ptr, tl):
        tl.issue(IpcqMsg())

    def bench(torch):
        torch.launch("k", k, torch.zeros((2,), dp=DPPolicy(num_cubes=1, num_pes=1)))

    line = k.__code__.co_firstlineno + 1
    with pytest.raises(
        KernelError, match=rf":{line}: .*no engine serves IpcqMsg.*register_command"
    ):
        run(bench)


def test_d4_a_command_of_ours_can_be_given_to_another_engine(talker, monkeypatch):
    monkeypatch.setattr(MathCmd, "served_by", MathCmd.served_by)
    monkeypatch.setitem(COMMANDS, "MathCmd", MathCmd.served_by)
    register_command(MathCmd, "pe_nowhere")
    with pytest.raises(KernbenchError, match="no pe_nowhere"):
        dispatched(talker, MathCmd(op="exp", inputs=(), out=None))


@pytest.mark.parametrize("kind", [IpcqMsg, QuietMsg, Stranger])
@pytest.mark.parametrize("logged", [True, False])
def test_d4_data_op_of_an_instance_decides(talker, registered, kind, logged):
    registered(kind)
    msg = kind()
    msg.data_op = logged
    assert len(dispatched(talker, msg)) == int(logged)


def test_d4_data_op_of_an_instance_is_its_own(talker, registered):
    registered(QuietMsg)
    loud = QuietMsg()
    loud.data_op = True
    assert dispatched(talker, QuietMsg(), loud, QuietMsg()) == [
        ("unknown", "QuietMsg", 5, 10)
    ]


class Muted(PeDma):
    """Has its loads left out of the log."""

    def channel(self, msg):
        if isinstance(msg, DmaReadCmd):
            msg.data_op = False
        return super().channel(msg)


def test_d4_a_command_of_ours_can_be_silenced(run):
    def bench(torch):
        x = torch.zeros((2,), dp=DPPolicy(num_cubes=1, num_pes=1))
        torch.launch("k", lambda ptr, tl: tl.load(ptr, (2,)), x)

    ours = run(bench)
    theirs = run(bench, pe_dma=f"{__name__}:Muted")
    assert theirs.end_ns == ours.end_ns
    assert names(ours) == ["dma_read", "host_write"]
    assert names(theirs) == ["host_write"]


def test_d4_a_class_without_our_base_is_logged_as_any_other(talker, registered):
    registered(Stranger)
    log = dispatched(talker, Stranger(), Stranger())
    assert log == [("unknown", "Stranger", 0, 5), ("unknown", "Stranger", 5, 10)]


def test_d4_a_message_that_takes_no_attributes_is_refused_with_what_to_do(
    talker, registered
):
    registered(Sealed)
    with pytest.raises(KernbenchError, match=r"Sealed takes no attributes.*MsgBase"):
        dispatched(talker, Sealed())


def test_d4_the_example_of_the_documents_works(run, registered, impl):
    page = docs.page("architecture")
    example = textwrap.dedent(page[page.index("    class SortCmd") :].partition("`")[0])
    known = {"MsgBase": MsgBase, "PeMath": PeMath, "register_command": registered}
    exec(example, known)
    sort = known["SortCmd"]

    def bench(torch):
        x = torch.zeros((2,), dp=DPPolicy(num_cubes=1, num_pes=1))
        torch.launch("k", lambda ptr, tl: tl.issue(sort(9)), x)

    theirs = run(bench, pe_math=impl(known["Sorting"]))
    (op,) = (record for record in theirs.log if record.op_name == "SortCmd")
    assert op.t_end - op.t_start == pytest.approx(9)


class Announcing(PeGemm):
    """Has its own messages served by itself, before each product."""

    serves = (*PeGemm.serves, IpcqMsg)
    slots = 2

    def run(self, env, msg):
        if isinstance(msg, IpcqMsg):
            yield env.timeout(msg.ns)
            return
        yield from self._forward_txn(env, IpcqMsg())
        yield from super().run(env, msg)


def test_d4_a_component_issues_messages_of_its_own(run):
    theirs = run(pe_gemm=f"{__name__}:Announcing")
    assert theirs.ok
    own = [r for r in theirs.log if r.op_name == "IpcqMsg"]
    assert len(own) >= 4
    assert [r.t_end - r.t_start for r in own] == pytest.approx([5.0] * len(own))
