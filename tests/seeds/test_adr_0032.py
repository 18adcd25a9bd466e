"""ADR-0032, all-reduce between cubes: one test a clause, as somebody writes it who has
only the record.
"""

import functools
import importlib
import re
import sys
import sysconfig
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import yaml
from click.testing import CliRunner

from kernbench.ccl import sfr_config, topologies
from kernbench.ccl.algorithms import intercube_allreduce
from kernbench.ccl.config import load_ccl
from kernbench.ccl.install import _OPPOSITE_DIR
from kernbench.ccl.sfr_config import configure_sfr_intercube_multisip
from kernbench.cli import main
from kernbench.errors import KernbenchError, KernelError, TopologyError, UsageError
from kernbench.runtime_api import DPPolicy, run_bench
from kernbench.runtime_api.torch import Torch
from kernbench.sim_engine.data_executor import DataExecutor
from kernbench.sim_engine.engine import GraphEngine
from kernbench.topology import load_topology

TOPOLOGIES = ["ring_1d", "torus_2d", "mesh_2d_no_wrap"]

# D6's files, word for word
CCL_YAML = """
defaults:
  algorithm: intercube_allreduce
  buffer_kind: tcm

algorithms:
  intercube_allreduce:
    module: kernbench.ccl.algorithms.intercube_allreduce
    topology: none
    buffer_kind: tcm
    n_elem: 8
    root_cube: 15
"""
TOPOLOGY_YAML = """
system:
  sips:
    count: 2
    topology: ring_1d
sip:
  cube_mesh: { w: 4, h: 4 }
"""
MINE_YAML = """
defaults: {algorithm: mine}
algorithms:
  mine: {module: my_algo}
"""

# D7's six symbols and D1's five phases on a ring, for 2 x 2 cubes; nothing of ours.
MY_ALGO = """
SIP_TOPO_RING = 0
SIP_TOPO_TORUS = 1
SIP_TOPO_MESH = 2
TOPO_NAME_TO_KIND = {"ring_1d": 0, "torus_2d": 1, "mesh_2d_no_wrap": 2}


def kernel_args(world_size, n_elem):
    return n_elem, 2, 2, world_size


def kernel(t_ptr, n_elem, cube_w, cube_h, n_sips, sip_rank, sip_topo_kind,
           sip_topo_w, sip_topo_h, tl):
    if tl.program_id(0) != 0:
        return
    cube_id = tl.program_id(1)
    row, col = divmod(cube_id, cube_w)
    last_row = row == cube_h - 1
    last_col = col == cube_w - 1
    pe_addr = t_ptr + cube_id * n_elem * 2
    acc = tl.load(pe_addr, (n_elem,), "f16")
    if col > 0:
        acc = acc + tl.recv("W", (n_elem,), "f16")
    if not last_col:
        tl.send("E", acc)
    if last_col:
        if row > 0:
            acc = acc + tl.recv("N", (n_elem,), "f16")
        if not last_row:
            tl.send("S", acc)
        if last_row:
            moving = acc
            for _ in range(n_sips - 1):
                tl.send("global_E", moving, wait=False)
                moving = tl.recv("global_W", (n_elem,), "f16")
                acc = acc + moving
        if not last_row:
            acc = tl.recv("S", (n_elem,), "f16")
        if row > 0:
            tl.send("N", acc)
    if not last_col:
        acc = tl.recv("E", (n_elem,), "f16")
    if col > 0:
        tl.send("W", acc)
    tl.store(pe_addr, acc)
"""
SIGNATURE_END = "sip_topo_h, tl):"
RETURNED = "return n_elem, 2, 2, world_size"
LAST_LINE = "    tl.store(pe_addr, acc)\n"


def machine(w=2, h=2, sips=2, topology="ring_1d"):
    """The machine of topology.yaml, with these cubes and SIPs."""
    return load_topology(
        None,
        {
            "sip.cube_mesh.w": w,
            "sip.cube_mesh.h": h,
            "system.sips.count": sips,
            "system.sips.topology": topology,
        },
    )


def rows_a_cube(cubes):
    """D2's placement."""
    return DPPolicy(cube="row_wise", pe="replicate", num_cubes=cubes, num_pes=1)


class Reduced:
    """One all-reduce of f16 rows on a machine: what it gave, and its op log."""

    def __init__(self, graph, n_elem=8, ccl=None, op="sum"):
        self.graph = graph
        self.engine = GraphEngine(graph)
        sips = graph.spec.system.sips.count
        mesh = graph.spec.sip.cube_mesh
        cubes = mesh.w * mesh.h
        rng = np.random.default_rng(0)
        self.rows = rng.integers(-4, 5, (sips, cubes, n_elem)).astype(np.float16)
        torch = Torch(self.engine, ccl=ccl)

        def worker(rank):
            torch.distributed.init_process_group(backend="ahbm")
            tensor = torch.tensor(self.rows[rank], "f16", dp=rows_a_cube(cubes))
            torch.distributed.all_reduce(tensor, op)
            torch.expect(tensor, np.tile(self.rows.sum(axis=(0, 1)), (cubes, 1)))

        self.engine.run(lambda _: torch.multiprocessing.spawn(worker, ()))
        log = self.engine.op_log
        self.report = DataExecutor(log).verify(torch.expectations)

    def copies(self):
        """Each message: (sender, receiver, start, end), places as (sip, cube, pe)."""
        found = []
        for op in self.engine.op_log:
            if op.op_name == "ipcq_copy":
                sender = self.engine.place_of(op.params["src_addr"])
                receiver = self.engine.place_of(op.params["dst_addr"])
                found.append((sender, receiver, op.t_start, op.t_end))
        return found

    def inside(self, sip):
        """The messages between cubes of a SIP: (from, to) -> (start, end)."""
        found = {}
        for sender, receiver, start, end in self.copies():
            if sender[0] == receiver[0] == sip:
                found[sender[1], receiver[1]] = (start, end)
        return found

    def across(self):
        """The messages between SIPs, by start: (from, to, cube)."""
        found = []
        for sender, receiver, start, _ in self.copies():
            if sender[0] != receiver[0]:
                assert sender[1] == receiver[1]
                found.append((start, sender[0], receiver[0], sender[1]))
        return [message[1:] for message in sorted(found)]


@pytest.fixture(scope="module")
def reduced():
    """An all-reduce over 2 SIPs of 3 x 2 cubes by the algorithm of the record."""
    return Reduced(machine(3, 2))


@pytest.fixture(scope="module")
def over_four():
    """Four SIPs of 2 cubes, a topology each."""
    return {name: Reduced(machine(2, 1, 4, name)) for name in TOPOLOGIES}


@pytest.fixture
def my_algo():
    """my_algo(text, name): a module of that text, which the process has imported."""
    loaded = []

    def my_algo(text=MY_ALGO, name="my_algo"):
        module = ModuleType(name)
        exec(text, vars(module))
        sys.modules[name] = module
        loaded.append(name)
        return module

    yield my_algo
    for name in loaded:
        sys.modules.pop(name, None)


@pytest.fixture
def ccl(tmp_path):
    """ccl(text): a ccl.yaml of that text, loaded."""

    def ccl(text=MINE_YAML):
        path = tmp_path / "ccl.yaml"
        path.write_text(text)
        return load_ccl(path)

    return ccl


@pytest.fixture
def by_plugin(tmp_path):
    """by_plugin(text): `kernbench run ccl_allreduce` by that module, on 2 x 2 cubes."""

    def by_plugin(text=MY_ALGO, ccl_text=MINE_YAML):
        plugin = tmp_path / "my_algo.py"
        plugin.write_text(text)
        ccl = tmp_path / "ccl.yaml"
        ccl.write_text(ccl_text)
        return kernbench(
            *("run", "ccl_allreduce", "--verify"),
            *("--spec", "cube_mesh.w=2", "cube_mesh.h=2"),
            *("--ccl", str(ccl), "--plugin", str(plugin)),
        )

    return by_plugin


def assert_matches(line, pattern):
    """The pattern is somewhere in the line, and the line has no place "?:0"."""
    assert re.search(pattern, line), line
    assert "?:0" not in line


def kernbench(*args):
    """What the program prints and its exit code."""
    return CliRunner().invoke(main, list(args))


# D1: five phases


def test_d1_phase_1_rows_reduce_from_west_to_east(reduced):
    for sip in (0, 1):
        inside = reduced.inside(sip)
        for row in (0, 3):
            first = inside[row, row + 1]
            second = inside[row + 1, row + 2]
            assert first[1] <= second[0]


def test_d1_phase_2_the_last_column_reduces_from_north_to_south(reduced):
    for sip in (0, 1):
        inside = reduced.inside(sip)
        assert inside[1, 2][1] <= inside[2, 5][0]


def test_d1_phase_3_only_the_pe0_of_the_root_cubes_exchange_between_sips(reduced):
    assert sorted(reduced.across()) == [(0, 1, 5), (1, 0, 5)]
    starts = [copy[2] for copy in reduced.copies() if copy[0][0] != copy[1][0]]
    for sip in (0, 1):
        for ways in ((0, 1), (1, 2), (3, 4), (4, 5), (2, 5)):
            assert reduced.inside(sip)[ways][1] <= min(starts)


def test_d1_phases_4_and_5_spread_the_result_north_then_west(reduced):
    ends = [copy[3] for copy in reduced.copies() if copy[0][0] != copy[1][0]]
    for sip in (0, 1):
        inside = reduced.inside(sip)
        assert inside[5, 2][0] >= max(ends)
        assert inside[5, 2][1] <= inside[2, 1][0]
        for row in (0, 3):
            assert inside[row + 2, row + 1][1] <= inside[row + 1, row][0]


def test_d1_nothing_else_is_sent_and_pe0_alone_takes_part(reduced):
    up = {(0, 1), (1, 2), (3, 4), (4, 5), (2, 5)}
    down = {(receiver, sender) for sender, receiver in up}
    for sip in (0, 1):
        assert set(reduced.inside(sip)) == up | down
    assert len(reduced.copies()) == 2 * len(up | down) + 2
    for sender, receiver, _, _ in reduced.copies():
        assert (sender[2], receiver[2]) == (0, 0)


def test_d1_in_the_end_the_pe0_of_every_cube_holds_the_global_sum(reduced):
    assert len(reduced.report.rows) == 2 * 6
    assert reduced.report.ok


@pytest.mark.slow
def test_d1_one_kernel_of_three_kinds_that_differ_in_phase_3_alone(over_four):
    assert len({frozenset(run.inside(0)) for run in over_four.values()}) == 1
    assert len({tuple(run.across()) for run in over_four.values()}) == 3
    for run in over_four.values():
        assert run.report.ok


def test_d1_the_three_exchanges_are_functions_of_these_names():
    for name in ("ring", "torus_2d", "mesh_2d"):
        assert callable(getattr(intercube_allreduce, f"_inter_sip_{name}"))


# D2: how the tensor lies


def test_d2_a_tensor_is_a_row_a_cube_on_its_pe0():
    engine = GraphEngine(machine(4, 4))
    torch = Torch(engine)
    held = {}

    def worker(rank):
        dp = DPPolicy(cube="row_wise", pe="replicate", num_cubes=16, num_pes=1)
        tensor = torch.zeros((16, 8), dtype="f16", dp=dp)
        held[rank] = [engine.place_of(shard.addr) for shard in tensor.shards]

    engine.run(lambda _: torch.multiprocessing.spawn(worker, ()))
    for sip in (0, 1):
        assert held[sip] == [(sip, cube, 0) for cube in range(16)]


def test_d2_a_cubes_row_is_at_cube_id_times_n_elem_times_2():
    engine = GraphEngine(machine())
    torch = Torch(engine)
    seen = {}

    def kernel(t_ptr, n_elem, tl):
        cube_id = tl.program_id(1)
        pe_addr = t_ptr + cube_id * n_elem * 2
        row = tl.load(pe_addr, (n_elem,), "f16")
        seen[tl.program_id(2), cube_id] = list(row.data)

    def worker(rank):
        rows = 10 * rank + np.arange(4)[:, None] + np.zeros((4, 3))
        tensor = torch.tensor(rows, "f16", dp=rows_a_cube(4))
        torch.launch("rows", kernel, tensor, 3)

    engine.run(lambda _: torch.multiprocessing.spawn(worker, ()))
    assert seen == {
        (sip, cube): [10 * sip + cube] * 3 for sip in (0, 1) for cube in range(4)
    }


# D3: the wiring


def wired(graph, cfg):
    """(sip, cube, pe) -> direction -> (sip, cube, pe), for PEs 0 and 1."""
    engine = GraphEngine(graph)
    configure_sfr_intercube_multisip(engine, graph.spec, cfg)
    mesh = graph.spec.sip.cube_mesh
    tables = {}
    for sip in range(graph.spec.system.sips.count):
        for cube in range(mesh.w * mesh.h):
            for pe in (0, 1):
                ipcq = engine.sim.component(graph.at(sip, cube, pe, "pe_ipcq"))
                table = {}
                for way, name in ipcq.peers.items():
                    node = graph.nodes[name]
                    table[way] = (node.sip, node.cube, node.pe)
                tables[sip, cube, pe] = table
    return tables


def entry(**fields):
    """The mapping of D6's ccl.yaml: an algorithm's entry over the defaults."""
    read = yaml.safe_load(CCL_YAML)
    merged = read["defaults"] | read["algorithms"]["intercube_allreduce"]
    return merged | fields


def test_d3_every_cube_has_its_mesh_neighbours_without_wraparound():
    tables = wired(machine(3, 2), entry())
    ways = {"E": 1, "W": -1, "S": 3, "N": -3}
    expected = ["ES", "EWS", "WS", "EN", "EWN", "WN"]
    for sip in (0, 1):
        for cube, there in enumerate(expected):
            inside = {way: (sip, cube + ways[way], 0) for way in there}
            table = tables[sip, cube, 0]
            plain = {way: peer for way, peer in table.items() if way in ways}
            assert plain == inside


@pytest.mark.parametrize(
    ("topology", "peers"),
    [
        ("ring_1d", {"global_E": 1, "global_W": 3}),
        ("torus_2d", {"global_E": 1, "global_W": 1, "global_N": 2, "global_S": 2}),
        ("mesh_2d_no_wrap", {"global_E": 1, "global_S": 2}),
    ],
)
def test_d3_every_cube_has_the_same_cube_of_the_peer_sips(topology, peers):
    tables = wired(machine(2, 1, 4, topology), entry())
    for cube in (0, 1):
        table = tables[0, cube, 0]
        across = {way: peer for way, peer in table.items() if way.startswith("global")}
        assert across == {way: (sip, cube, 0) for way, sip in peers.items()}


def test_d3_only_pe0_is_wired():
    tables = wired(machine(), entry())
    for (_, _, pe), table in tables.items():
        assert bool(table) == (pe == 0)


@pytest.mark.parametrize("root_cube", [0, 2, 3])
def test_d3_the_wiring_is_the_same_whichever_cube_is_the_root(root_cube):
    graph = machine()
    assert wired(graph, entry(root_cube=root_cube)) == wired(graph, load_ccl().of())


def test_d3_opposites_cover_the_global_directions_and_a_ring_of_two_works_both_ways():
    assert _OPPOSITE_DIR["global_E"] == "global_W"
    assert _OPPOSITE_DIR["global_W"] == "global_E"
    assert _OPPOSITE_DIR["global_N"] == "global_S"
    assert _OPPOSITE_DIR["global_S"] == "global_N"
    graph = machine(1, 1)
    engine = GraphEngine(graph)
    configure_sfr_intercube_multisip(engine, graph.spec, entry())
    torch = Torch(engine)
    came = {}

    def kernel(t_ptr, tl):
        sip = tl.program_id(2)
        for way, value in (("global_E", 1), ("global_W", 2)):
            tl.send(way, tl.full((1,), 10 * sip + value, "i32"), wait=False)
        for way in ("global_W", "global_E"):
            came[sip, way] = tl.recv(way, (1,), "i32")

    def bench(_):
        rows = torch.zeros((2, 1), "i32", DPPolicy(cube="row_wise", num_pes=1))
        torch.launch("both_ways", kernel, rows)

    engine.run(bench)
    executor = DataExecutor(engine.op_log)
    executor.run()
    got = {}
    for key, handle in came.items():
        got[key] = int(executor.store.read("tcm", handle.addr, (1,), "i32")[0])
    assert got == {
        (0, "global_W"): 11,
        (0, "global_E"): 12,
        (1, "global_W"): 1,
        (1, "global_E"): 2,
    }


def test_d3_install_ipcq_gets_a_rank_a_cube_of_every_sip(monkeypatch):
    calls = []
    monkeypatch.setattr(
        sfr_config, "install_ipcq", lambda engine, **kwargs: calls.append(kwargs)
    )
    graph = machine(2, 2, 3)
    configure_sfr_intercube_multisip(GraphEngine(graph), graph.spec, entry())
    (call,) = calls
    assert call["world_size"] == 3 * 4
    assert call["rank_to_pe"] == [
        (sip, cube, 0) for sip in range(3) for cube in range(4)
    ]
    assert call["neighbors"](4) == {"S": 6, "E": 5, "global_E": 8, "global_W": 0}


def test_d3_that_world_size_is_not_the_one_of_the_process_group():
    engine = GraphEngine(machine())
    torch = Torch(engine)
    seen = []

    def worker(rank):
        torch.distributed.init_process_group(backend="ahbm")
        seen.append((torch.distributed.get_rank(), torch.distributed.get_world_size()))

    engine.run(lambda _: torch.multiprocessing.spawn(worker, ()))
    assert seen == [(0, 2), (1, 2)]


def test_d3_cfg_is_a_plain_mapping_or_an_entry_of_load_ccl():
    graph = machine()
    tables = wired(graph, {"buffer_kind": "sram", "slots": 2})
    assert tables == wired(graph, entry()) == wired(graph, load_ccl().of())


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"slot": 2}, "cfg: unknown field 'slot'; valid: .*slots"),
        ({"slots": 0}, "cfg.slots: must be a whole number from 1 .*, not 0"),
        ({"buffer_kind": "l2"}, "cfg.buffer_kind: must be one of tcm, sram, hbm"),
    ],
)
def test_d3_a_wrong_field_of_cfg_is_named_with_what_is_valid(fields, problem):
    graph = machine()
    with pytest.raises(TopologyError, match=problem):
        configure_sfr_intercube_multisip(GraphEngine(graph), graph.spec, fields)


# D4: topologies of SIPs


def test_d4_a_ring_sends_east_n_sips_minus_1_times():
    ring = Reduced(machine(1, 1, 3))
    assert ring.report.ok
    assert sorted(ring.across()) == sorted(2 * [(0, 1, 0), (1, 2, 0), (2, 0, 0)])


def test_d4_a_torus_goes_round_rows_then_round_columns(over_four):
    across = over_four["torus_2d"].across()
    assert sorted(across[:4]) == [(0, 1, 1), (1, 0, 1), (2, 3, 1), (3, 2, 1)]
    assert sorted(across[4:]) == [(0, 2, 1), (1, 3, 1), (2, 0, 1), (3, 1, 1)]


def test_d4_a_mesh_reduces_and_broadcasts_along_each_dimension(over_four):
    across = over_four["mesh_2d_no_wrap"].across()
    rows = [(0, 1, 1), (2, 3, 1), (1, 0, 1), (3, 2, 1)]
    columns = [(0, 2, 1), (1, 3, 1), (2, 0, 1), (3, 1, 1)]
    assert sorted(across) == sorted(rows + columns)
    for there, back in ((0, 1), (2, 3), (0, 2), (1, 3)):
        assert across.index((there, back, 1)) < across.index((back, there, 1))


@pytest.mark.parametrize("topology", ["torus_2d", "mesh_2d_no_wrap"])
@pytest.mark.parametrize("sips", [2, 3])
def test_d4_a_2d_topology_needs_a_square_number_of_sips(topology, sips):
    with pytest.raises(TopologyError, match=rf"{topology} needs a square .* is {sips}"):
        Reduced(machine(1, 1, sips, topology))


# D5: the process group


@pytest.mark.parametrize(
    ("topology", "sips", "kind"),
    [
        ("ring_1d", 3, (0, 3, 1)),
        ("torus_2d", 4, (1, 2, 2)),
        ("mesh_2d_no_wrap", 4, (2, 2, 2)),
    ],
)
def test_d5_a_kernel_gets_its_scalars_its_rank_and_the_topology_of_the_sips(
    my_algo, ccl, topology, sips, kind
):
    module = my_algo()
    seen = set()

    def kernel(
        t_ptr,
        n_elem,
        cube_w,
        cube_h,
        n_sips,
        sip_rank,
        sip_topo_kind,
        sip_topo_w,
        sip_topo_h,
        tl,
    ):
        scalars = (n_elem, cube_w, cube_h, n_sips)
        of_sips = (sip_topo_kind, sip_topo_w, sip_topo_h)
        seen.add((scalars, sip_rank, tl.program_id(2), of_sips))

    module.kernel = kernel
    Reduced(machine(2, 2, sips, topology), n_elem=5, ccl=ccl())
    assert seen == {((5, 2, 2, sips), rank, rank, kind) for rank in range(sips)}


def test_d5_kinds_are_those_that_the_module_gives(my_algo, ccl):
    module = my_algo()
    module.TOPO_NAME_TO_KIND = {"ring_1d": 7}
    kinds = []
    module.kernel = lambda t, n, w, h, s, r, sip_topo_kind, tw, th, tl: kinds.append(
        sip_topo_kind
    )
    Reduced(machine(), ccl=ccl())
    assert set(kinds) == {7}


def test_d5_the_group_is_wired_once_when_the_first_rank_joins(monkeypatch):
    wirings = []
    distributed = importlib.import_module("kernbench.runtime_api.distributed")

    def wire(engine, spec, cfg):
        wirings.append((spec, cfg.name))
        configure_sfr_intercube_multisip(engine, spec, cfg)

    monkeypatch.setattr(distributed, "configure_sfr_intercube_multisip", wire)
    graph = machine()
    Reduced(graph)
    assert wirings == [(graph.spec, "intercube_allreduce")]


def test_d5_all_reduce_returns_before_it_is_done_and_is_drained_for_all_ranks():
    engine = GraphEngine(machine())
    torch = Torch(engine)
    log = []

    def worker(rank):
        torch.distributed.init_process_group(backend="ahbm")
        tensor = torch.zeros((4, 8), "f16", dp=rows_a_cube(4))
        torch.distributed.all_reduce(tensor)
        log.append(f"{rank} has asked")
        tensor.numpy()
        log.append(f"{rank} has the result")

    engine.run(lambda _: torch.multiprocessing.spawn(worker, ()))
    assert log == ["0 has asked", "1 has asked", "0 has the result", "1 has the result"]


# D6: configuration


@pytest.mark.slow
def test_d6_the_files_of_the_record_run(tmp_path):
    ccl = tmp_path / "ccl.yaml"
    ccl.write_text(CCL_YAML)
    topology = tmp_path / "topology.yaml"
    topology.write_text(TOPOLOGY_YAML)
    result = run_bench("ccl_allreduce", topology=topology, ccl=ccl)
    assert result.ok
    assert len(result.report.rows) == 2 * 16


@pytest.mark.parametrize("bench", ["ccl_allreduce", "mlp_tp"])
@pytest.mark.parametrize(("w", "h"), [(2, 2), (3, 2), (1, 4), (1, 1)])
@pytest.mark.slow
def test_d6_on_every_mesh_the_root_is_derived_with_what_ships(bench, w, h):
    mesh = (f"cube_mesh.w={w}", f"cube_mesh.h={h}")
    ran = kernbench("run", bench, "--verify", "--spec", *mesh)
    assert ran.exit_code == 0, ran.output


def test_d6_a_root_cube_that_is_the_corner_is_fine(ccl):
    yaml_3 = CCL_YAML.replace("root_cube: 15", "root_cube: 3")
    assert Reduced(machine(), ccl=ccl(yaml_3)).report.ok


@pytest.mark.parametrize(
    ("root_cube", "problem"),
    [
        (15, "root_cube is 15, but the 2 x 2 mesh has cubes 0 to 3; leave it out"),
        (1, "root_cube is 1, but .* the SE corner, cube 3 of the 2 x 2 .*leave it out"),
    ],
)
def test_d6_another_root_cube_is_an_error_that_says_what_to_do(ccl, root_cube, problem):
    text = CCL_YAML.replace("root_cube: 15", f"root_cube: {root_cube}")
    with pytest.raises(
        TopologyError, match=rf"algorithms\.intercube_allreduce\.{problem}"
    ):
        Reduced(machine(), ccl=ccl(text))


@pytest.mark.parametrize(("given", "root"), [("", 3), (", root_cube: 0", 0)])
def test_d6_a_kernel_that_names_root_cube_gets_the_derived_or_the_given_one(
    my_algo, ccl, given, root
):
    checks = f"sip_topo_h, tl, *, root_cube):\n    assert root_cube == {root}"
    my_algo(MY_ALGO.replace(SIGNATURE_END, checks))
    text = MINE_YAML.replace("my_algo}", f"my_algo{given}}}")
    assert Reduced(machine(), ccl=ccl(text)).report.ok


# D7: the module of an algorithm


def test_d7_a_module_with_the_six_symbols_runs_as_an_all_reduce(by_plugin):
    ran = by_plugin()
    assert ran.exit_code == 0, ran.output
    assert "rank1.x" in ran.output


def test_d7_a_module_that_the_process_has_imported_needs_no_plugin(my_algo, tmp_path):
    my_algo()
    (tmp_path / "ccl.yaml").write_text(MINE_YAML)
    mesh = {"sip.cube_mesh.w": 2, "sip.cube_mesh.h": 2}
    result = run_bench("ccl_allreduce", ccl=tmp_path / "ccl.yaml", spec=mesh)
    assert result.ok


def test_d7_a_yaml_imports_nothing(ccl, tmp_path, monkeypatch):
    (tmp_path / "my_algo.py").write_text(MY_ALGO)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(
        TopologyError, match=r"my_algo is not loaded.*--plugin FILE\.py"
    ):
        Reduced(machine(), ccl=ccl())


def test_d7_the_shipped_module_exports_the_six_symbols():
    kinds = {"ring_1d": 0, "torus_2d": 1, "mesh_2d_no_wrap": 2}
    assert kinds == intercube_allreduce.TOPO_NAME_TO_KIND
    assert intercube_allreduce.SIP_TOPO_RING == 0
    assert intercube_allreduce.SIP_TOPO_TORUS == 1
    assert intercube_allreduce.SIP_TOPO_MESH == 2
    assert intercube_allreduce.kernel_args(2, 8) == (8, 4, 4, 2)
    assert callable(intercube_allreduce.kernel)


@pytest.mark.parametrize(
    "kernel_args",
    [
        "def kernel_args(world_size, n_elem, cube_w, cube_h):\n"
        "    return n_elem, cube_w, cube_h, world_size\n",
        "def kernel_args(world_size, n_elem, *, cube_h, cube_w=4):\n"
        "    return n_elem, cube_w, cube_h, world_size\n",
        "def kernel_args(world_size, n_elem, first=2, second=2):\n"
        "    return n_elem, first, second, world_size\n",
    ],
)
def test_d7_kernel_args_gets_the_mesh_if_it_names_it(my_algo, ccl, kernel_args):
    my_algo(MY_ALGO + kernel_args)
    assert Reduced(machine(2, 2), ccl=ccl()).report.ok


@pytest.mark.parametrize(
    "end", ["sip_topo_h, tl, op):", "sip_topo_h, tl, *, op='min'):"]
)
def test_d7_a_kernel_gets_op_if_it_names_it(my_algo, ccl, end):
    module = my_algo(MY_ALGO.replace(SIGNATURE_END, f"{end}\n    ops.append(op)"))
    module.ops = []
    Reduced(machine(), ccl=ccl(), op="max")
    assert set(module.ops) == {"max"}


def test_d7_a_kernel_keeps_the_defaults_of_other_parameters(my_algo, ccl):
    end = "sip_topo_h, tl, chunks=1):\n    assert chunks == 1"
    my_algo(MY_ALGO.replace(SIGNATURE_END, end))
    assert Reduced(machine(), ccl=ccl()).report.ok


def test_d7_a_kernel_behind_a_decorator_gets_what_it_takes_itself(my_algo, ccl):
    wrapped = "_own = kernel\ndef kernel(*args, **kwargs):\n    _own(*args, **kwargs)\n"
    my_algo(MY_ALGO + wrapped)
    assert Reduced(machine(), ccl=ccl()).report.ok


def test_d7_a_kernel_without_op_refuses_another_than_the_sum(my_algo, ccl):
    my_algo()
    with pytest.raises(UsageError, match=r"'mine' takes no op; valid: sum"):
        Reduced(machine(), ccl=ccl(), op="max")


@pytest.mark.parametrize(
    "symbol",
    [
        "kernel",
        "kernel_args",
        "TOPO_NAME_TO_KIND",
        "SIP_TOPO_RING",
        "SIP_TOPO_TORUS",
        "SIP_TOPO_MESH",
    ],
)
def test_d7_a_module_that_lacks_a_symbol_is_refused_with_all_six(my_algo, ccl, symbol):
    my_algo(f"{MY_ALGO}\ndel {symbol}\n")
    with pytest.raises(
        TopologyError,
        match=rf"algorithms\.mine\.module: my_algo lacks {symbol}; .* kernel, .*_MESH",
    ):
        Reduced(machine(), ccl=ccl())


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        (
            SIGNATURE_END,
            "sip_topo_h, chunks, tl):",
            r"kernel at .*my_algo\.py:12: .*'chunks'; it is called with \(t_ptr,",
        ),
        (
            SIGNATURE_END,
            "sip_topo_h):",
            r"kernel at .*my_algo\.py:12: .*'tl'; it is called",
        ),
        (
            "sip_rank, sip_topo_kind,",
            "sip_topo_kind,",
            r"kernel at .*my_algo\.py:12: multiple values for argument 'tl'",
        ),
        (
            "(world_size, n_elem)",
            "(world_size, n_elem, mesh)",
            r"kernel_args at .*my_algo\.py:8: .*'mesh'; it is called with "
            r"\(world_size, n_elem\), and also with cube_w and cube_h",
        ),
        (
            "(world_size, n_elem)",
            "(world_size)",
            r"kernel_args at .*my_algo\.py:8: too many positional arguments",
        ),
        (
            "\n\ndef kernel(",
            "\n\nkernel = 3\n\n\ndef _kernel(",
            r"kernel at .*my_algo\.py: 3 is not a callable object",
        ),
    ],
)
def test_d7_a_function_of_another_signature_is_refused_with_its_file_and_line(
    by_plugin, old, new, problem
):
    ran = by_plugin(MY_ALGO.replace(old, new))
    assert ran.exit_code != 0
    (line,) = ran.stderr.splitlines()
    assert_matches(line, rf"algorithms\.mine\.module: my_algo cannot .*: {problem}")


@pytest.mark.parametrize(
    "given",
    ["n_elem, 2, world_size", "n_elem, 2, 2, world_size, 0", "n_elem", "(), 2, 2, 2"],
)
def test_d7_kernel_args_that_gives_no_four_numbers_is_an_error_with_its_place(
    by_plugin, given
):
    ran = by_plugin(MY_ALGO.replace(RETURNED, f"return {given}"))
    assert ran.exit_code != 0
    (line,) = ran.stderr.splitlines()
    assert_matches(
        line,
        r"'mine': kernel_args at .*my_algo\.py:8 gives .*; it must give four whole "
        r"numbers, \(n_elem, cube_w, cube_h, n_sips\)",
    )


@pytest.mark.parametrize("kinds", ['{"torus_2d": 1}', '{"ring_1d": "0"}', "[0, 1, 2]"])
def test_d7_kinds_without_a_number_for_the_topology_are_an_error_that_names_it(
    my_algo, ccl, kinds
):
    my_algo(f"{MY_ALGO}\nTOPO_NAME_TO_KIND = {kinds}\n")
    with pytest.raises(
        TopologyError,
        match=r"algorithms\.mine: TOPO_NAME_TO_KIND of my_algo is .*no number for "
        r"system\.sips\.topology ring_1d; add it",
    ):
        Reduced(machine(), ccl=ccl())


@pytest.mark.parametrize("decorated", [False, True])
def test_d7_an_error_of_a_foreign_kernel_names_its_file_and_line(by_plugin, decorated):
    text = MY_ALGO.replace(LAST_LINE, "    tl.store(pe_addr, acc) / 0\n")
    if decorated:
        text += "\nimport functools\nkernel = functools.lru_cache(kernel)\n"
    number = 1 + text.splitlines().index("    tl.store(pe_addr, acc) / 0")
    ran = by_plugin(text)
    assert ran.exit_code != 0
    (line,) = ran.stderr.splitlines()
    assert_matches(line, rf"kernel all_reduce at \S*my_algo\.py:{number}: TypeError")


def test_d7_so_does_one_of_a_package_that_is_installed(my_algo, ccl):
    file = Path(sysconfig.get_path("purelib"), "their_package", "my_algo.py")
    text = MY_ALGO.replace(LAST_LINE, "    tl.store(pe_addr, acc) / 0\n")
    number = 1 + text.splitlines().index("    tl.store(pe_addr, acc) / 0")
    my_algo(compile(text, str(file), "exec"))
    with pytest.raises(KernelError, match=rf"their_package/my_algo\.py:{number}: Type"):
        Reduced(machine(), ccl=ccl())


def test_d7_a_kernel_behind_what_has_no_code_is_named_by_its_own_line():
    engine = GraphEngine(machine(1, 1))
    torch = Torch(engine)

    @functools.lru_cache
    def kernel(ptr):
        """It takes no tl."""

    def bench(_):
        rows = torch.zeros((2, 1), "f16", DPPolicy(cube="row_wise", num_pes=1))
        torch.launch("cached", kernel, rows)

    with pytest.raises(KernbenchError, match=r"at \S*test_adr_0032\.py:\d+: TypeError"):
        engine.run(bench)


# Affected files


def test_affected_files_torus_2d_and_mesh_2d_no_wrap_are_topologies():
    assert topologies.torus_2d(0, 9) == {"E": 1, "W": 2, "S": 3, "N": 6}
    assert topologies.mesh_2d_no_wrap(0, 9) == {"E": 1, "S": 3}
    assert topologies.mesh_2d_no_wrap(8, 9) == {"W": 7, "N": 5}
    for topology in (topologies.torus_2d, topologies.mesh_2d_no_wrap):
        with pytest.raises(TopologyError, match="needs a square number of SIPs"):
            topology(0, 6)


@pytest.mark.parametrize(
    "name",
    [
        "algorithms.ring_allreduce",
        "algorithms.mesh_allreduce",
        "algorithms.tree_allreduce",
        "algorithms.hierarchical_allreduce",
        "algorithms.hello_send",
        "testing",
    ],
)
def test_affected_files_what_it_replaces_is_gone(name):
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module(f"kernbench.ccl.{name}")
