"""ADR-0051, clause by clause: routing and its helpers, as the record alone has them."""

import ast
import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise, product
from pathlib import Path
from types import SimpleNamespace

import pytest

from kernbench.ccl.install import install_ipcq
from kernbench.common.messages import LaunchMsg, Region
from kernbench.common.pe_commands import DmaReadCmd, DmaWriteCmd
from kernbench.common.phys_addr import PhysAddr, UnitType
from kernbench.components.builtin.m_cpu import MCpu
from kernbench.errors import RoutingError
from kernbench.policy.routing.router import AddressResolver, PathRouter
from kernbench.probes import probe
from kernbench.runtime_api.placement import DPPolicy
from kernbench.sim_engine.engine import GraphEngine
from kernbench.topology import TopologyGraph, TopologySpec, build_topology
from kernbench.topology.kinds import NODE_KINDS
from kernbench.topology.spec import CubeMeshSpec

ROOT = Path(__file__).parents[2]
GIB = 1 << 30
UCIE_KINDS = {
    *("ucie_internal", "ucie_conn_to_router", "router_to_ucie_conn"),
    *("ucie_conn_to_noc", "noc_to_ucie_conn", "ucie_mesh"),
    *("io_to_cube", "cube_to_io"),
}
PE_KINDS = {"pe_internal", "pe_to_router"}


def edge(src, dst, kind="router_mesh", distance=1.0, weight=0.0):
    return SimpleNamespace(
        src=src, dst=dst, kind=kind, distance_mm=distance, routing_weight_mm=weight
    )


def graph_of(nodes=(), edges=(), slices=8, hbm_gb=48):
    """A graph that has what the record asks of one, and nothing else."""
    memory_map = SimpleNamespace(hbm_total_gb=hbm_gb, slices_per_cube=slices)
    spec = SimpleNamespace(cube=SimpleNamespace(memory_map=memory_map))
    return SimpleNamespace(nodes=dict.fromkeys(nodes), edges=list(edges), spec=spec)


def router_of(*edges):
    return PathRouter(graph_of(edges=edges))


@pytest.fixture(scope="module")
def resolver(shipped):
    return AddressResolver(shipped)


@pytest.fixture(scope="module")
def router(shipped):
    return PathRouter(shipped)


def kinds_of(graph, path):
    """The kinds of the edges that a path takes."""
    return [graph.edge_by_ends[ends].kind for ends in pairwise(path)]


def weight_of(graph, path):
    """The length of a path in mm, as routing counts it."""
    edges = [graph.edge_by_ends[ends] for ends in pairwise(path)]
    return sum(e.routing_weight_mm or e.distance_mm for e in edges)


# -- First action ----------------------------------------------------------------------


def test_first_action_a_resolver_keeps_node_ids_and_slice_bytes_and_no_graph():
    graph = graph_of(["sip0.io0.pcie_ep", "fabric.switch0"])
    resolver = AddressResolver(graph)
    assert resolver._node_ids == {"sip0.io0.pcie_ep", "fabric.switch0"}
    assert resolver._hbm_slice_bytes == 6 * GIB
    assert graph not in vars(resolver).values()


def test_first_action_the_bytes_of_a_slice_follow_the_memory_map():
    graph = graph_of(["sip0.cube0.hbm_ctrl.pe1"], slices=3, hbm_gb=16)
    resolver = AddressResolver(graph)
    assert resolver._hbm_slice_bytes == 16 * GIB // 3
    found = resolver.resolve(PhysAddr.hbm_addr(0, 0, 16 * GIB // 3))
    assert found == "sip0.cube0.hbm_ctrl.pe1"


def test_first_action_a_router_has_its_four_graphs_at_once():
    made = router_of(edge("a", "b", distance=3.0), edge("a", "c", weight=7.0))
    for graph in (made._adj_all, made._adj, made._adj_mcpu_dma, made._adj_local):
        assert graph["a"] == [("b", 3.0), ("c", 7.0)]
        assert graph["nobody"] == []


# -- D1: AddressResolver ---------------------------------------------------------------


@pytest.mark.parametrize("pe", range(8))
def test_d1_1_resolve_finds_the_slice_of_an_address_in_hbm(resolver, pe):
    for offset in (6 * GIB * pe, 6 * GIB * (pe + 1) - 1):
        addr = PhysAddr.hbm_addr(1, 15, offset)
        assert resolver.resolve(addr) == f"sip1.cube15.hbm_ctrl.pe{pe}"


@pytest.mark.parametrize(
    ("addr", "node"),
    [
        (PhysAddr.pe_tcm_addr(1, 3, 5, 64), "sip1.cube3.pe5.pe_tcm"),
        (PhysAddr.sram_addr(0, 2, 64), "sip0.cube2.sram"),
        (PhysAddr.mcpu_addr(1, 0, 64), "sip1.cube0.m_cpu"),
    ],
)
def test_d1_1_resolve_finds_the_unit_of_a_pe_resource(resolver, addr, node):
    assert resolver.resolve(addr) == node


@pytest.mark.parametrize(
    ("addr", "why"),
    [
        (PhysAddr(0, 0, "pe_resource", unit_type=UnitType.IO), "unsupported unit_type"),
        (PhysAddr(0, 0, "pe_resource"), "unsupported unit_type"),
        (PhysAddr(0, 16, "io"), "unsupported address kind"),
        (PhysAddr.sram_addr(7, 0, 0), "node sip7.cube0.sram not found in topology"),
        (PhysAddr.hbm_addr(0, 0, 48 * GIB), "node sip0.cube0.hbm_ctrl.pe8 not found"),
    ],
)
def test_d1_1_resolve_fails_loudly(resolver, addr, why):
    with pytest.raises(RoutingError, match=f"^{re.escape(why)}"):
        resolver.resolve(addr)


def test_d1_2_find_m_cpu(resolver):
    assert resolver.find_m_cpu(1, 15) == "sip1.cube15.m_cpu"
    with pytest.raises(RoutingError, match=r"^node sip1\.cube16\.m_cpu not found"):
        resolver.find_m_cpu(1, 16)


def test_d1_3_find_pcie_ep(resolver):
    assert resolver.find_pcie_ep(1) == "sip1.io0.pcie_ep"
    assert resolver.find_pcie_ep(sip=0, io_id="io0") == "sip0.io0.pcie_ep"
    with pytest.raises(RoutingError, match=r"^node sip0\.io9\.pcie_ep not found"):
        resolver.find_pcie_ep(0, "io9")


def test_d1_4_find_io_cpu(resolver):
    assert resolver.find_io_cpu(1) == "sip1.io0.io_cpu"
    assert resolver.find_io_cpu(sip=0, io_id="io0") == "sip0.io0.io_cpu"
    with pytest.raises(RoutingError, match=r"^node sip2\.io0\.io_cpu not found"):
        resolver.find_io_cpu(2)


def test_d1_5_find_all_pcie_eps_lists_those_of_all_sips_sorted(resolver):
    assert resolver.find_all_pcie_eps() == ["sip0.io0.pcie_ep", "sip1.io0.pcie_ep"]
    nodes = ["sip1.io0.pcie_ep", "sip0.io1.pcie_ep", "sip0.io0.pcie_ep", "sip0.io0.x"]
    found = AddressResolver(graph_of(nodes)).find_all_pcie_eps()
    assert found == ["sip0.io0.pcie_ep", "sip0.io1.pcie_ep", "sip1.io0.pcie_ep"]


NAME = re.compile(
    r"""
    sip\d+\.cube\d+\.(m_cpu|sram|hbm_ctrl\.pe\d+|pe\d+\.\w+|r\d+c\d+)
    | sip\d+\.cube\d+\.ucie_[NSEW](\.conn\d+)?
    | sip\d+\.io\d+\.(\w+|ucie\.conn\d+)
    | fabric\.switch\d+
    """,
    re.VERBOSE,
)


def test_d1_5_the_builder_names_its_nodes_by_the_same_rule(shipped):
    assert [node for node in shipped.nodes if not NAME.fullmatch(node)] == []
    for node in shipped.nodes.values():
        place = (("sip", node.sip), ("cube", node.cube), ("pe", node.pe))
        for level, number in place:
            named = re.search(rf"(?:^|\.){level}(\d+)(?:\.|$)", node.id)
            assert number == (int(named[1]) if named else -1), node


# -- D2: four graphs -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "excluded"),
    [
        ("_adj_all", set()),
        ("_adj", {"command"}),
        ("_adj_mcpu_dma", PE_KINDS),
        ("_adj_local", UCIE_KINDS),
    ],
)
def test_d2_a_graph_has_all_edges_but_those_of_its_kinds(
    shipped, router, name, excluded
):
    held = {
        (src, dst, weight)
        for src, row in getattr(router, name).items()
        for dst, weight in row
    }
    wanted = {
        (e.src, e.dst, e.routing_weight_mm or e.distance_mm)
        for e in shipped.edges
        if e.kind not in excluded
    }
    assert held == wanted
    assert excluded <= {e.kind for e in shipped.edges}


# -- D3: PathRouter --------------------------------------------------------------------

HOME = "sip0.cube0.pe0"


def test_d3_1_find_path_begins_at_the_dma_of_the_pe(router):
    path = router.find_path(HOME, "sip0.cube0.hbm_ctrl.pe0")
    assert path[0] == "sip0.cube0.pe0.pe_dma"
    assert path[-1] == "sip0.cube0.hbm_ctrl.pe0"


def test_d3_1_find_path_within_a_cube_pays_the_mesh(shipped, router):
    for pe in range(8):
        path = router.find_path(HOME, f"sip0.cube0.hbm_ctrl.pe{pe}")
        assert not UCIE_KINDS & {*kinds_of(shipped, path)}
        assert all(node.startswith("sip0.cube0.") for node in path)


def test_d3_1_find_path_within_a_cube_leaves_a_shorter_bus_aside():
    dma, mesh, port, end = (
        f"sip0.cube0.{name}" for name in ("pe0.pe_dma", "r0c0", "ucie_N", "sram")
    )
    made = router_of(
        edge(dma, mesh, distance=9.0),
        edge(mesh, end, distance=9.0),
        edge(dma, port, "router_to_ucie_conn", 0.1),
        edge(port, end, "ucie_conn_to_router", 0.1),
    )
    assert made.find_path(HOME, end) == [dma, mesh, end]


def test_d3_1_find_path_between_cubes_goes_by_ucie_and_no_command(shipped, router):
    path = router.find_path(HOME, "sip0.cube5.hbm_ctrl.pe0")
    kinds = kinds_of(shipped, path)
    assert "ucie_mesh" in kinds
    assert "command" not in kinds


@pytest.mark.parametrize("end", ["sip0.cube0.hbm_ctrl.pe7", "sip1.cube9.hbm_ctrl.pe2"])
def test_d3_2_find_path_with_distance_is_that_path_and_its_length(shipped, router, end):
    path, distance = router.find_path_with_distance(HOME, end)
    assert path == router.find_path(HOME, end)
    assert distance == pytest.approx(weight_of(shipped, path))


@pytest.mark.parametrize("cube", [0, 6])
def test_d3_3_find_mcpu_dma_path_passes_no_pe(shipped, router, cube):
    for pe in range(8):
        end = f"sip0.cube{cube}.hbm_ctrl.pe{pe}"
        path = router.find_mcpu_dma_path("sip0.cube0.m_cpu", end)
        assert (path[0], path[-1]) == ("sip0.cube0.m_cpu", end)
        assert not [n for n in path if re.search(r"\.pe\d+\.pe_", n)]
        goes_by_ucie = bool(UCIE_KINDS & {*kinds_of(shipped, path)})
        assert goes_by_ucie == (cube != 0)


def test_d3_4_find_memory_path_goes_from_an_end_point_to_a_memory(shipped, router):
    start = "sip0.io0.pcie_ep"
    for cube, pe in product((0, 15), (0, 7)):
        path = router.find_memory_path(start, f"sip0.cube{cube}.hbm_ctrl.pe{pe}")
        assert path[:2] == [start, "sip0.io0.io_noc"]
        assert not PE_KINDS & {*kinds_of(shipped, path)}


def test_d3_5_find_node_path_takes_command_edges(shipped, router):
    path = router.find_node_path("sip0.io0.io_cpu", "sip0.cube3.m_cpu")
    assert kinds_of(shipped, path) == ["command"]
    back = router.find_node_path("sip0.cube3.m_cpu", "sip0.io0.io_cpu")
    assert back == path[::-1]


def test_d3_6_the_shims_search_the_graph_of_data():
    made = router_of(
        edge("a", "b", "command", 1.0), edge("a", "c", distance=2.0), edge("c", "b")
    )
    assert made._dijkstra("a", "b") == ["a", "c", "b"]
    assert made._dijkstra_with_dist("a", "b") == (["a", "c", "b"], 3.0)


# -- D4: Dijkstra ----------------------------------------------------------------------


def test_d4_a_graph_is_searched_by_its_weights():
    adj = {"a": [("b", 9.0), ("c", 4.0)], "c": [("b", 1.0)]}
    assert PathRouter._run_dijkstra(adj, "a", "b") == ["a", "c", "b"]
    made = router_of()
    assert made._run_dijkstra_with_dist(adj, "a", "b") == (["a", "c", "b"], 5.0)


def test_d4_a_routing_weight_stands_in_for_the_distance():
    made = router_of(
        edge("a", "b", distance=1.0, weight=9.0),
        edge("a", "c", distance=4.0, weight=None),
        edge("c", "b", distance=4.0),
    )
    assert made._dijkstra_with_dist("a", "b") == (["a", "c", "b"], 8.0)


def test_d4_a_node_is_at_no_distance_from_itself():
    made = router_of()
    assert made._dijkstra_with_dist("a", "a") == (["a"], 0.0)
    assert made.find_node_path("a", "a") == ["a"]


def test_d4_no_path_is_a_routing_error():
    made = router_of(edge("b", "a"))
    with pytest.raises(RoutingError, match=r"^no path from a to b$"):
        made._dijkstra("a", "b")
    with pytest.raises(RoutingError, match=r"^no path from a to b$"):
        made.find_node_path("a", "b")


@pytest.mark.slow
def test_d4_equal_graphs_have_equal_paths(layout_cache, shipped, router):
    again = PathRouter(build_topology(TopologySpec(), layout_cache))
    for end in ("sip0.cube0.sram", "sip0.cube10.hbm_ctrl.pe3", "sip1.cube4.sram"):
        assert again.find_path(HOME, end) == router.find_path(HOME, end)


# -- D5: one owner ---------------------------------------------------------------------

ROUTER = ROOT / "kernbench" / "policy" / "routing" / "router.py"
_UNITS = "|".join(sorted(NODE_KINDS))
_MADE = re.compile(
    rf"""
    (^|\.)sip[{{%\d][^.\s]*\.            # sip{{}}.  sip%d.  sip0.
    | \.(cube|pe)(\d|%|{{|$)             # .cube{{}}  .pe%d, or .pe to be added to
    | (^|[}}\d]|%s)\.({_UNITS})(\.|$)   # {{}}.pe_dma  %s.pe_dma  .pcie_ep
    | ^fabric\.
    """,
    re.VERBOSE,
)


def texts_of(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """The texts that code makes: line and text, with {} for what is put in.

    Docstrings are none of them.
    """
    inner = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            inner.add(node.value)
        if isinstance(node, ast.JoinedStr):
            inner |= {part for part in node.values if isinstance(part, ast.Constant)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            parts = []
            for part in node.values:
                is_text = isinstance(part, ast.Constant)
                parts.append(str(part.value) if is_text else "{}")
            yield node.lineno, "".join(parts)
        elif isinstance(node, ast.Constant) and node not in inner:
            yield node.lineno, str(node.value)


def names_made(source: str) -> list[tuple[int, str]]:
    """Where code puts the name of a node together; words of a sentence are none."""
    found = []
    for line, text in texts_of(ast.parse(source)):
        if _MADE.search(text) and not re.search(r"[\s*]", text):
            found.append((line, text))
    return found


@pytest.mark.parametrize(
    "code",
    [
        'f"sip{sip}.cube{cube}.pe{pe}"',
        'f"sip{sip}.io0.pcie_ep"',
        'f"{cube}.hbm_ctrl.pe{pe}"',
        'f"{prefix}.pe_dma"',
        'prefix + ".pe_cpu"',
        '"sip%d.cube%d.m_cpu" % (sip, cube)',
        '"sip{}.cube{}".format(sip, cube)',
        '"%s.sram" % cube',
        'name.endswith(".pcie_ep")',
        'sip + ".cube" + str(cube)',
        'start = "sip0.cube0.pe0.pe_dma"',
        'f"fabric.switch{i}"',
    ],
)
def test_d5_a_name_that_is_put_together_is_found(code):
    assert len(names_made(code)) == 1


@pytest.mark.parametrize(
    "code",
    [
        '"sip.cube_mesh.w"',
        '"components.pe_ipcq.impl"',
        'graph.at(sip, cube, pe, "pe_cpu")',
        'f"sip{sip} cube{cube}"',
        'f"{edge}_to_router"',
        '"""The nodes sip0.cube0.pe0.pe_dma and others."""',
        "\"find comp ~ '*.pe_gemm'\"",
    ],
)
def test_d5_other_texts_are_no_names(code):
    assert names_made(code) == []


@pytest.mark.slow
def test_d5_names_of_nodes_are_made_in_the_router_only():
    made = []
    for folder in ("kernbench", "tui"):
        for file in sorted((ROOT / folder).rglob("*.py")):
            if file == ROUTER:
                continue
            for line, text in names_made(file.read_text(encoding="utf-8")):
                made.append(f"{file.relative_to(ROOT)}:{line}: {text}")
    assert made == []
    assert names_made(ROUTER.read_text(encoding="utf-8"))


def test_d5_what_weighs_and_what_is_excluded_is_said_in_the_router_only():
    said = []
    for file in sorted((ROOT / "kernbench").rglob("*.py")):
        text = file.read_text(encoding="utf-8")
        if re.search(r"routing_weight_mm or|_hbm_slice_bytes\b|\b_adj_\w+", text):
            said.append(file)
    assert said == [ROUTER]


# -- D6: who asks ----------------------------------------------------------------------

ASKS = {
    "probes/probe.py": (
        "find_pcie_ep find_io_cpu find_m_cpu find_node_path find_mcpu_dma_path "
        "find_memory_path find_path resolve"
    ),
    "ccl/install.py": "find_all_pcie_eps resolve",
    "components/launches.py": "find_node_path",
    "components/builtin/m_cpu.py": "find_mcpu_dma_path",
}


@pytest.mark.parametrize("module", ASKS)
def test_d6_the_consumers_call_the_helpers(module):
    tree = ast.parse((ROOT / "kernbench" / module).read_text(encoding="utf-8"))
    called = {
        node.func.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    }
    assert set(ASKS[module].split()) - called == set()


def without(graph, node):
    """A machine that has lost a node, and the links to it."""
    nodes = {id_: each for id_, each in graph.nodes.items() if id_ != node}
    edges = [e for e in graph.edges if node not in (e.src, e.dst)]
    return TopologyGraph(nodes, tuple(edges), graph.spec)


def wire(graph, places, **options):
    """A ring of two PEs."""
    engine = GraphEngine(graph)
    install_ipcq(
        engine,
        world_size=2,
        rank_to_pe=places,
        neighbors=lambda rank: {"E": 1 - rank, "W": 1 - rank},
        **options,
    )
    return engine


def test_d6_a_queue_between_sips_needs_an_end_point_in_both(small):
    cut_off = without(small, "sip1.io0.pcie_ep")
    with pytest.raises(RoutingError, match=r"SIP 1 .*; there are sip0\.io0\.pcie_ep$"):
        wire(cut_off, [(0, 0, 0), (1, 0, 0)])
    wire(cut_off, [(1, 0, 0), (1, 1, 0)])


def test_d6_a_ring_lies_in_a_memory_that_the_machine_has(small):
    no_sram = without(small, "sip0.cube1.sram")
    with pytest.raises(RoutingError, match=r"^node sip0\.cube1\.sram not found"):
        wire(no_sram, [(0, 0, 0), (0, 1, 0)], buffer_kind="sram")


def test_d6_rings_in_the_sram_of_a_cube_are_counted_together(small):
    options = {"buffer_kind": "sram", "slots": 4, "slot_bytes": 1 << 10}
    one = wire(small, [(0, 0, 0), (0, 1, 0)], **options)
    both = wire(small, [(0, 0, 0), (0, 0, 1)], **options)
    assert both.sim.reserved["sram", 0, 0, -1] == 16 << 10
    assert one.sim.reserved["sram", 0, 0, -1] == 8 << 10


def test_d6_a_launch_goes_where_find_node_path_says(simulate, monkeypatch):
    asked = []
    real = PathRouter.find_node_path

    def find_node_path(self, src, dst):
        asked.append((src, dst))
        return real(self, src, dst)

    monkeypatch.setattr(PathRouter, "find_node_path", find_node_path)

    def bench(torch):
        x = torch.zeros((2,), dp=DPPolicy(num_cubes=1, num_pes=1))
        torch.launch("k", lambda x_ptr, tl: None, x)

    simulate(bench)
    assert asked == [
        ("sip0.io0.pcie_ep", "sip0.io0.io_cpu"),
        ("sip0.io0.io_cpu", "sip0.cube0.m_cpu"),
        ("sip0.cube0.m_cpu", "sip0.cube0.pe0.pe_cpu"),
    ]


def moved_by_m_cpu(graph, command):
    """The ns that a command takes which the M_CPU of cube 0 serves."""
    engine = GraphEngine(graph)
    m_cpu = engine.sim.component(engine.sim.resolver.find_m_cpu(0, 0))
    engine.env.process(m_cpu._forward_txn(engine.env, command))
    engine.simulate()
    return engine.env.now


def hbm(pe, offset=0, cube=0):
    return PhysAddr.pe_hbm_addr(0, cube, pe, offset, 6 * GIB).encode()


@pytest.mark.parametrize("cube", [0, 1])
def test_d6_what_an_m_cpu_moves_goes_where_find_mcpu_dma_path_says(
    small, monkeypatch, cube
):
    asked = []
    real = PathRouter.find_mcpu_dma_path

    def find_mcpu_dma_path(self, m_cpu_id, dst_hbm_id):
        asked.append((m_cpu_id, dst_hbm_id))
        return real(self, m_cpu_id, dst_hbm_id)

    monkeypatch.setattr(PathRouter, "find_mcpu_dma_path", find_mcpu_dma_path)
    source = Region("tcm", 0, (1024,), "u8", 1024)
    write = DmaWriteCmd(src=source, dst_addr=hbm(3, cube=cube), handle_id="h")
    wrote_ns = moved_by_m_cpu(small, write)
    assert asked == [("sip0.cube0.m_cpu", f"sip0.cube{cube}.hbm_ctrl.pe3")]
    far = Region("hbm", hbm(5, cube=cube), (1024,), "u8", 1024)
    read_ns = moved_by_m_cpu(small, DmaReadCmd(src=far, dst=source, handle_id="h"))
    assert asked[1:] == [("sip0.cube0.m_cpu", f"sip0.cube{cube}.hbm_ctrl.pe5")]
    both_ns = moved_by_m_cpu(small, replace(write, src=far))
    assert both_ns == pytest.approx(read_ns + wrote_ns)


class LateMCpu(MCpu):
    """A model of an M_CPU whose DMA takes 7 ns more."""

    def run(self, env, msg):
        if isinstance(msg, DmaWriteCmd):
            yield env.timeout(7.0)
        yield from super().run(env, msg)


def one_cube_with_m_cpu(layout_cache, model):
    """A machine of one cube a SIP whose M_CPU is of this class."""
    spec = TopologySpec()
    mine = replace(spec.components.m_cpu, impl=f"{__name__}:{model.__name__}")
    spec = replace(
        spec,
        sip=replace(spec.sip, cube_mesh=CubeMeshSpec(1, 1)),
        components=replace(spec.components, m_cpu=mine),
    )
    return build_topology(spec, layout_cache)


@pytest.mark.slow
def test_d6_the_probe_has_the_m_cpu_itself_move_bytes(layout_cache):
    report = probe(one_cube_with_m_cpu(layout_cache, LateMCpu))
    rows = [row for row in report.rows if row.family == "m_cpu to HBM"]
    assert rows
    for row in rows:
        assert row.simulated_ns == pytest.approx(row.formula_ns + 7.0)
    assert {row.family for row in report.rows if not row.ok} == {"m_cpu to HBM"}


class OnlyLaunches(MCpu):
    """A model of an M_CPU that has no DMA."""

    serves = (LaunchMsg,)


@pytest.mark.slow
def test_d6_the_probe_leaves_out_what_an_m_cpu_does_not_serve(layout_cache):
    report = probe(one_cube_with_m_cpu(layout_cache, OnlyLaunches))
    assert "m_cpu to HBM" not in {row.family for row in report.rows}
    assert [text for text in report.omitted if text.startswith("m_cpu to HBM")]
    assert report.ok


def test_d6_recorded_transfers_took_the_paths_that_the_helpers_give(
    simulate, events, small
):
    def bench(torch):
        torch.tensor([1.0, 2.0], "f32", DPPolicy(num_cubes=1, num_pes=1))

    simulate(bench, recorder=events)
    ((*_, transfers),) = events.of("op")
    ((path, *_),) = transfers
    end_point = AddressResolver(small).find_pcie_ep(0)
    wanted = PathRouter(small).find_memory_path(end_point, "sip0.cube0.hbm_ctrl.pe0")
    assert list(path) == wanted
