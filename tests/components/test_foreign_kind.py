"""A kind of component that a program adds: a class, a registry row, a row of kinds."""

from dataclasses import dataclass
from typing import ClassVar

import pytest
from message_examples import data_ops

from kernbench.common.messages import MsgBase, Region, Transaction
from kernbench.common.rows import Rows
from kernbench.components.base import ComponentBase, MemoryEndpoint
from kernbench.components.builtin.pe_scheduler import PeScheduler
from kernbench.components.registry import COMPONENTS
from kernbench.errors import KernelError, TopologyError
from kernbench.sim_engine.engine import GraphEngine
from kernbench.topology import TopologySpec, build_topology, load_spec, load_topology
from kernbench.topology.kinds import NODE_KINDS, CubeUnit, IoUnit, PeEngine
from kernbench.topology.spec import ComponentSpec, CubeMeshSpec, SipSpec
from kernbench.topology.views import project

ONE_CUBE = {"system.sips.count": 1, "sip.cube_mesh.w": 1, "sip.cube_mesh.h": 1}


@dataclass(slots=True, eq=False, kw_only=True)
class SortCmd(MsgBase):
    """A tensor into order."""

    data_op: ClassVar[bool] = True
    served_by: ClassVar[str] = "pe_sort"
    src: Region
    dst: Region
    n: int


class PeSort(ComponentBase):
    """A sorting network: a ns an element."""

    serves = (SortCmd,)

    def run(self, env, msg):
        yield env.timeout(msg.n)


class L2(MemoryEndpoint):
    """A memory that answers in 7 ns."""

    def burst(self, now, rows, owner):
        return now, 7.0, 0.0


@pytest.fixture
def pe_sort(monkeypatch):
    """Every PE has an engine that sorts."""
    row = PeEngine("pe_sort", "pe_sort", cell=(3, 1), links=("pe_tcm",))
    monkeypatch.setitem(NODE_KINDS, "pe_sort", row)
    monkeypatch.setitem(COMPONENTS, "pe_sort", PeSort)


@pytest.fixture
def l2(monkeypatch):
    """Every cube has an L2, in the middle of its north."""
    row = CubeUnit(
        "l2",
        "l2",
        "cube.router.overhead_ns",
        at=(0.5, 0.1),
        edge="l2",
        to_router="cube.sram.to_router_bw_gbs",
    )
    monkeypatch.setitem(NODE_KINDS, "l2", row)
    monkeypatch.setitem(COMPONENTS, "l2", L2)


@pytest.fixture
def machine(tmp_path):
    """machine(**overrides): one cube."""
    return lambda **overrides: load_topology(None, ONE_CUBE | overrides, tmp_path)


def test_an_engine_is_in_every_pe_and_linked_as_its_row_says(pe_sort, machine):
    graph = machine()
    own = [node for node in graph.nodes.values() if node.type == "pe_sort"]
    assert [node.place for node in own] == [(0, 0, pe) for pe in range(8)]
    for node in own:
        tcm = graph.at(*node.place, "pe_tcm")
        there = graph.edge_by_ends[node.id, tcm]
        back = graph.edge_by_ends[tcm, node.id]
        assert (there.kind, back.kind) == ("pe_internal", "pe_internal")


def test_an_engine_serves_the_commands_that_name_it(pe_sort, machine, events):
    engine = GraphEngine(machine(), recorder=events)
    scheduler = engine.sim.component(engine.graph.at(0, 0, 3, "pe_scheduler"))
    here = Region("tcm", 0, (16,), "f16", 32)
    scheduler.dispatch(SortCmd(src=here, dst=here, n=16))
    engine.env.run()
    (record,) = engine.op_log
    assert record.component_id == "sip0.cube0.pe3.pe_sort"
    assert (record.op_kind, record.op_name) == ("unknown", "SortCmd")
    assert record.t_end - record.t_start == 16


def test_a_command_that_names_no_engine_lists_those_that_do(machine):
    engine = GraphEngine(machine())
    scheduler = engine.sim.component(engine.graph.at(0, 0, 0, "pe_scheduler"))
    assert isinstance(scheduler, PeScheduler)
    with pytest.raises(KernelError, match="no engine serves MsgBase; valid: DmaReadCm"):
        scheduler.dispatch(MsgBase())


def test_the_contract_tests_make_its_messages_themselves():
    (make,) = data_ops("pe_sort", PeSort).values()
    assert isinstance(make(), SortCmd)


def test_its_model_is_chosen_in_the_spec(pe_sort, machine, tmp_path):
    graph = machine(**{"pe_sort.impl": "transit"})
    assert {n.impl for n in graph.nodes.values() if n.type == "pe_sort"} == {"transit"}
    file = tmp_path / "machine.yaml"
    file.write_text("components: {pe_sort: {impl: 'mine:Sort'}}\n")
    assert load_spec(file).components.pe_sort == ComponentSpec("mine:Sort")


def test_without_its_row_the_spec_does_not_know_it(tmp_path):
    file = tmp_path / "machine.yaml"
    file.write_text("components: {pe_sort: {impl: 'mine:Sort'}}\n")
    with pytest.raises(TopologyError, match=r"components\.pe_sort: unknown field"):
        load_spec(file)


def test_an_engine_is_drawn_in_its_pe(pe_sort, machine):
    graph = machine()
    view = project(graph.nodes.values(), graph.edges, (0, 0, 0))
    labels = {box.label: box for box in view.boxes}
    assert labels["pe_sort"].y > labels["pe_gemm"].y


def test_a_unit_of_a_cube_lies_at_its_place_and_is_attached_to_a_router(l2, machine):
    graph = machine()
    node = graph.nodes["sip0.cube0.l2"]
    others = [n for n in graph.nodes.values() if n.type == "router"]
    west = min(router.x_mm for router in others)
    east = max(router.x_mm for router in others)
    assert node.x_mm == pytest.approx((west + east) / 2)
    (edge,) = [e for e in graph.edges if e.src == node.id]
    assert (edge.kind, graph.nodes[edge.dst].type) == ("l2_to_router", "router")
    assert edge.bandwidth_gbs == graph.spec.cube.sram.to_router_bw_gbs
    assert node.overhead_ns == graph.spec.cube.router.overhead_ns


def test_a_memory_of_a_cube_can_be_read_over_the_network(l2, machine):
    engine = GraphEngine(machine())
    graph = engine.graph
    path = engine.sim.router.route("pe", graph.at(0, 0, 0, "pe_dma"), "sip0.cube0.l2")
    owner = MsgBase()
    request = Transaction(path, 32, owner)
    data = Transaction(path[::-1], 256, owner, src=Rows.one(0, 256))
    engine.env.run(until=engine.sim.read(request, data))
    assert engine.env.now > 7


def test_a_unit_of_an_io_chiplet_is_linked_to_the_units_of_its_row(
    monkeypatch, machine
):
    row = IoUnit("io_dma", "transit", at_mm=(-2.0, 2.0), links=("io_noc",))
    monkeypatch.setitem(NODE_KINDS, "io_dma", row)
    graph = machine()
    edge = graph.edge_by_ends["sip0.io0.io_dma", "sip0.io0.io_noc"]
    assert (edge.kind, edge.distance_mm) == ("io_internal", 2.0)


def test_a_kind_adds_its_nodes_and_nothing_else(pe_sort, tmp_path, monkeypatch):
    small = SipSpec(cube_mesh=CubeMeshSpec(1, 1))
    with_it = build_topology(TopologySpec(sip=small), tmp_path)
    monkeypatch.delitem(NODE_KINDS, "pe_sort")
    without = build_topology(TopologySpec(sip=small), tmp_path)
    added = with_it.nodes.keys() - without.nodes.keys()
    assert {with_it.nodes[node].type for node in added} == {"pe_sort"}
    assert without.nodes.keys() <= with_it.nodes.keys()
    assert with_it.hash != without.hash
