"""What holds for every entry of COMPONENTS, and how ``impl:`` puts another in its place."""

from dataclasses import replace

import pytest

from kernbench.common.messages import MsgBase
from kernbench.components.base import ComponentBase
from kernbench.components.builtin.pe_gemm import PeGemm
from kernbench.components.registry import COMPONENTS, component_class
from kernbench.errors import KernbenchError, UsageError
from kernbench.sim_engine.engine import GraphEngine
from kernbench.topology import TopologySpec, build_topology
from kernbench.topology.spec import ComponentSpec, ComponentsSpec, CubeMeshSpec, SipSpec


class Stranger(MsgBase):
    pass


class SlowGemm(PeGemm):
    """Takes 1000 ns for anything."""

    def run(self, env, msg):
        yield env.timeout(1000.0)


@pytest.fixture(scope="module")
def engine(small):
    return GraphEngine(small)


@pytest.fixture(params=COMPONENTS)
def component(request, engine, small):
    """One component of each kind, where the machine has it."""
    node = next(n for n in small.nodes.values() if n.impl == request.param)
    return engine.sim.component(node.id)


def test_is_what_the_registry_says_and_documented(component):
    kind = COMPONENTS[component.node.impl]
    assert type(component) is kind
    assert issubclass(kind, ComponentBase)
    assert kind.__doc__


def test_overrides_neither_the_hooks_nor_the_service_loop(component):
    ours = {"_forward_txn", "_on_process_start", "_on_process_end"}
    assert not ours & set(type(component).__dict__)


def test_refuses_a_message_that_it_does_not_know(component, engine):
    with pytest.raises(KernbenchError, match=rf"{component.node.id}.* serves no Stranger"):
        next(component._forward_txn(engine.env, Stranger()))


def test_pays_the_overhead_of_its_node(component):
    assert component.overhead_ns == component.node.overhead_ns


def machine(cache, **impls):
    components = replace(ComponentsSpec(), **{k: ComponentSpec(v) for k, v in impls.items()})
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
        ("no.such.module:Class", "No module named 'no'"),
        ("kernbench.components.base:Nothing", "has no attribute 'Nothing'"),
        ("kernbench.components.base:", "cannot be imported"),
        (":Class", "cannot be imported"),
        (".relative:Class", "cannot be imported"),
        ("kernbench.components.base:Sim", "no subclass of ComponentBase"),
        ("math:pi", "no subclass of ComponentBase"),
    ],
)
def test_an_impl_that_is_no_component_is_a_clear_error(impl, message):
    with pytest.raises(UsageError, match=message):
        component_class(impl)


@pytest.mark.parametrize("engine_name", ["pe_mmu", "pe_scheduler", "pe_tcm"])
def test_a_part_that_others_rely_on_must_subclass_ours(layout_cache, simulate, engine_name):
    def kernel(ptr, out, tl):
        a = tl.load(ptr, (8, 8))
        tl.wait(tl.composite(a=a, b=a, out_ptr=out))

    def bench(torch):
        torch.launch("k", kernel, torch.zeros((8, 8)), torch.empty((8, 8)))

    graph = machine(layout_cache, **{engine_name: "transit"})
    with pytest.raises(KernbenchError, match="must subclass the built-in one"):
        simulate(bench, graph=graph)
