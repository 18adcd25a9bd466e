"""ADR-0020 D2, D4 and D9, as somebody would rely on them who has the record alone.

D2: an op's record is made by hooks around ``run``. D4: a message says itself whether
it is an op. D9: a component can be replaced; times change, and results do not.
"""

from dataclasses import dataclass
from types import SimpleNamespace
from typing import ClassVar

import numpy as np
import pytest

from kernbench.ccl.install import install_ipcq
from kernbench.common.messages import COMMANDS, MsgBase, register_command
from kernbench.common.pe_commands import DmaReadCmd, MathCmd
from kernbench.components.builtin.pe_dma import PeDma
from kernbench.components.builtin.pe_gemm import PeGemm
from kernbench.components.builtin.pe_math import PeMath
from kernbench.errors import KernbenchError, KernelError
from kernbench.runtime_api.torch import DPPolicy, Torch
from kernbench.sim_engine.data_executor import DataExecutor
from kernbench.sim_engine.engine import GraphEngine
from kernbench.topology import load_topology

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


def names(run):
    return sorted(record.op_name for record in run.log)


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


def test_d4_a_kernel_issues_a_new_command(run, registered):
    registered(IpcqMsg)

    def k(ptr, tl):
        tl.issue(IpcqMsg(ns=50.0))
        tl.issue(IpcqMsg(ns=70.0), wait=False)

    def bench(torch):
        torch.launch("k", k, torch.zeros((2,), dp=DPPolicy(num_cubes=1, num_pes=1)))

    theirs = run(bench, pe_math=f"{__name__}:Talker")
    ops = [r for r in theirs.log if r.op_name == "IpcqMsg"]
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
