"""Where the energy of a run went: by hand, hop by hop; sums; traces without costs."""

import json
import textwrap
from itertools import pairwise

import pytest
from bench_sizes import UNEVEN
from click.testing import CliRunner

from kernbench.cli import main
from kernbench.errors import TopologyError
from kernbench.replay import ReplaySession
from kernbench.runtime_api import run_bench
from kernbench.topology import load_topology
from kernbench.trace import Trace
from kernbench.trace.cut import cut
from kernbench.trace.frames import FrameFile

ONE_CUBE = {"sips.count": 1, "cube_mesh.w": 1, "cube_mesh.h": 1}
ONE_DOT = """
    import numpy as np

    from kernbench.benches import bench
    from kernbench.runtime_api import DPPolicy

    ONE = DPPolicy(cube="row_wise", pe="row_wise", num_cubes=1, num_pes=1)


    def kernel(x_ptr, y_ptr, z_ptr, tl):
        x = tl.load(x_ptr, (8, 16), "f16")
        y = tl.load(y_ptr, (16, 4), "f16")
        tl.store(z_ptr, tl.dot(x, y))


    @bench(name="one_dot", description="one product")
    def run(torch):
        x = torch.tensor(np.ones((8, 16)), "f16", dp=ONE, name="x")
        y = torch.tensor(np.ones((16, 4)), "f16", dp=ONE, name="y")
        z = torch.empty((8, 4), "f16", dp=ONE, name="z")
        torch.launch("one_dot", kernel, x, y, z)
"""
X, Y, Z = 8 * 16 * 2, 16 * 4 * 2, 8 * 4 * 2  # bytes
REQUEST = 32
LAUNCH = 64
MACS = 8 * 16 * 4

# What lies on the way, read off the picture in docs/machine.md and the lengths of
# `kernbench info --topology`: PE 0 is beside r0c1 (0.7 mm), its HBM slice too (0.6 mm).
OWN_ROUTERS = 1
OWN_MM = 0.7 + 0.6
# The end point, the NoC (1.5 mm), a connection, the cube's northern port (two ports),
# its connection 0, r0c0 and r0c1, the slice.
HOST_ROUTERS = 1 + 2
HOST_MM = 1.5 + 2.0 + 4.5 + 1.5 + 2.0 + 0.6
# The message of a launch goes to the io_cpu, the m_cpu and the pe_cpu.
LAUNCH_MM = 3.5 + 14.0 + 5.8


@pytest.fixture
def run(tmp_path):
    """run(bench, spec, **params): the result, and a session of its trace."""

    def run(name, spec=None, **params):
        path = tmp_path / "run.msgpack"
        result = run_bench(name, params=params, spec=spec, trace=path, verify=False)
        return result, ReplaySession(Trace.open(path))

    return run


@pytest.fixture
def one_dot(run, tmp_path):
    """one_dot(**costs): the energy of a kernel of one product, fields of energy:."""
    path = tmp_path / "one_dot.py"
    path.write_text(textwrap.dedent(ONE_DOT))

    def one_dot(**costs):
        fields = {f"energy.{name}": cost for name, cost in costs.items()}
        _, session = run(str(path), {**ONE_CUBE, **fields})
        return session.energy()

    return one_dot


def joules(rows):
    return {row.name: row.joules for row in rows}


def test_the_joules_of_one_product_are_those_worked_out_by_hand(one_dot):
    """Every cost is a number of its own, so that no two can be taken for each other."""
    found = one_dot(
        **{"mac_pj.f16": 3, "tcm_pj_byte": 5, "hbm_pj_byte": 7, "router_pj_byte": 11},
        **{"ucie_port_pj_byte": 13, "pcie_pj_byte": 17, "wire_pj_byte_mm": 19},
        **{"pe_static_w": 0.25, "cube_static_w": 0.5},
    )
    loaded = X + Y
    own_bytes = loaded + Z + 2 * REQUEST  # on the wires of the PE; two loads ask first
    own_w = 8 * 0.25 + 0.5
    by_hand = {
        "array": MACS * 3,
        # loads write it, the product reads and writes it, the store reads it
        "tcm": (loaded + loaded + Z + Z) * 5,
        # the host and the store write it, loads read it
        "hbm": (loaded + loaded + Z) * 7,
        "routers": (own_bytes * OWN_ROUTERS + loaded * HOST_ROUTERS) * 11,
        "ucie": loaded * 2 * 13,
        "pcie": loaded * 17,
        "wires": (own_bytes * OWN_MM + loaded * HOST_MM + LAUNCH * LAUNCH_MM) * 19,
        "static": own_w * found.ns * 1e3,  # 1 W is 1000 pJ a ns
    }
    pj = {name: amount * 1e12 for name, amount in joules(found.classes).items()}
    assert pj == pytest.approx(by_hand, rel=1e-12)
    assert found.joules == pytest.approx(sum(by_hand.values()) * 1e-12, rel=1e-12)
    assert found.watts == pytest.approx(found.joules / found.ns * 1e9)
    assert found.arithmetic == 2 * MACS
    assert found.pj_op == pytest.approx(sum(by_hand.values()) / (2 * MACS))
    assert found.hbm_bytes == 2 * loaded + Z
    assert found.own_rates


def test_lines_and_tensors_of_one_product_are_those_worked_out_by_hand(one_dot):
    found = one_dot(
        **{"mac_pj.f16": 3, "tcm_pj_byte": 5, "hbm_pj_byte": 7, "router_pj_byte": 11},
        **{"ucie_port_pj_byte": 0, "pcie_pj_byte": 0, "wire_pj_byte_mm": 0},
        **{"pe_static_w": 0, "cube_static_w": 0},
    )

    def load(nbytes):
        return nbytes * (7 + 11 + 5) + REQUEST * 11

    def host(nbytes):
        return nbytes * (7 + HOST_ROUTERS * 11)

    product = MACS * 3 + (X + Y + Z) * 5
    store = Z * (5 + 11 + 7)
    tensors = {name: pj * 1e12 for name, pj in joules(found.tensors).items()}
    assert tensors == pytest.approx(
        {
            "x": load(X) + host(X),
            "y": load(Y) + host(Y),
            "z": store,
            "(scratch)": product,
        }
    )
    lines = {}
    for name, amount in joules(found.lines_).items():
        lines[int(name.rpartition(":")[2])] = amount * 1e12
    assert lines == pytest.approx(
        {
            11: load(X),
            12: load(Y),
            13: product + store,
            18: host(X),
            19: host(Y),
        }
    )


BENCHES = [*UNEVEN, "mlp_tp", "ccl_allreduce"]
SMALL = {"cube_mesh.w": 2, "cube_mesh.h": 2, "pes": 2, "slices_per_cube": 2}


@pytest.mark.parametrize("name", BENCHES)
def test_classes_lines_and_tensors_add_up_to_the_whole(benches, name):
    found = benches(name).energy()
    for rows in (found.classes, found.lines_, found.tensors):
        assert sum(row.joules for row in rows) == pytest.approx(found.joules, rel=1e-9)
        assert sum(row.share for row in rows) == pytest.approx(1, rel=1e-9)
        assert sum(row.watts for row in rows) == pytest.approx(found.watts, rel=1e-9)
        if found.arithmetic:
            pj_op = sum(row.pj_op for row in rows)
            assert pj_op == pytest.approx(found.pj_op, rel=1e-9)
        else:
            assert {row.pj_op for row in (*rows, found)} == {None}


@pytest.mark.slow
@pytest.mark.parametrize("name", BENCHES)
def test_a_run_says_the_same_with_a_trace_and_without(bench_run, benches, name):
    """The one adds up records and the bytes of paths, the other columns of a trace."""
    recorded = bench_run(name)
    bare = run_bench(name, params=recorded.params, verify=False)
    found = benches(name).energy()
    for summary in (recorded.summary, bare.summary()):
        assert summary["energy_j"] == pytest.approx(found.joules, rel=1e-12)
        assert summary["bytes_moved"] == found.hbm_bytes


@pytest.mark.slow
def test_a_tile_of_a_composite_moves_its_bytes_once_through_each_memory(run):
    free = {f"energy.{name}": 0 for name in ("pe_static_w", "cube_static_w")}
    _, session = run("matmul", free, m=64, k=128, n=32, tile=32, pes=1)
    found = joules(session.energy().classes)
    tiles = 2 * 4
    block = 32 * 32 * 2
    moved = 2 * tiles * block + 2 * block  # by tiles
    from_host = (64 * 128 + 128 * 32) * 2
    assert found["array"] == pytest.approx(64 * 128 * 32 * 2.0e-12)
    assert found["hbm"] == pytest.approx((moved + from_host) * 31.2e-12)
    assert found["tcm"] == pytest.approx(2 * moved * 2.5e-12)  # DMA and array


@pytest.fixture(scope="module")
def on_one_pe(tmp_path_factory):
    """The path of a trace of a matmul on one PE of the whole machine."""
    path = tmp_path_factory.mktemp("energy") / "run.msgpack"
    params = {"m": 64, "k": 64, "n": 32, "pes": 1}
    run_bench("matmul", params=params, trace=path, verify=False)
    return path


def test_a_trace_without_costs_takes_the_shipped_ones_and_says_so(on_one_pe):
    own = ReplaySession(Trace.open(on_one_pe)).energy()
    old = ReplaySession(Trace.open(on_one_pe))
    del old.trace.spec["energy"]
    shipped = old.energy()
    assert own.own_rates
    assert not shipped.own_rates
    assert shipped.joules == own.joules
    text = "shipped machine"
    assert text in "\n".join(shipped.lines(100))
    assert text not in "\n".join(own.lines(100))


@pytest.mark.parametrize("cost", [-1.0, float("nan"), float("inf"), "much", None, [1]])
def test_a_cost_that_no_machine_could_have_is_nothing(on_one_pe, cost):
    session = ReplaySession(Trace.open(on_one_pe))
    session.trace.spec["energy"]["hbm_pj_byte"] = cost
    assert "hbm" not in joules(session.energy().classes)


def test_the_command_prints_three_tables_and_as_json(on_one_pe):
    path = str(on_one_pe)
    text = CliRunner().invoke(main, ["trace", "energy", path]).output
    for title in ("component class", "line ", "tensor "):
        assert f"\n{title}" in text
    assert "matmul.py:22" in text
    as_json = CliRunner().invoke(main, ["trace", "energy", path, "--json"])
    data = json.loads(as_json.output)
    session = ReplaySession(Trace.open(on_one_pe))
    assert data["joules"] == session.energy().joules


@pytest.mark.parametrize(
    ("field", "value", "problem"),
    [
        ("energy.hbm_pj_byte", -1, "must be a number from 0 to 1e.15, not -1"),
        (
            "energy.mac_pj.f16",
            float("nan"),
            "must be a number from 0 to .*, not nan",
        ),
        ("energy.mac_pj.f12", 1, "unknown field; valid are: .*energy.mac_pj.f16"),
        ("energy.wire_pj_byte_mm", "long", "must be a number"),
        ("energy.pe_static_w", True, "must be a number"),
    ],
)
def test_a_cost_that_makes_no_sense_is_refused_with_its_path(field, value, problem):
    with pytest.raises(TopologyError, match=f"--spec {field}: {problem}"):
        load_topology(overrides={field: value})


# -- as text ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def product(tmp_path_factory):
    """The energy of a small matmul on the whole machine, and its session."""
    path = tmp_path_factory.mktemp("energy") / "run.msgpack"
    params = {"m": 64, "k": 64, "n": 64}
    run_bench("matmul", params=params, trace=path, verify=False)
    session = ReplaySession(Trace.open(path))
    return session.energy(), session


@pytest.mark.slow
@pytest.mark.parametrize("width", [40, 60, 72, 80, 100, 200])
def test_no_line_is_wider_than_it_may_be(product, width):
    found, _ = product
    assert max(map(len, found.lines(width))) <= width


def test_a_name_is_whole_where_there_is_room_and_else_ends_behind_an_ellipsis(product):
    found, _ = product
    path = "kernbench/benches/matmul.py:22"
    for width in (80, 100):
        assert any(line.startswith(f"{path} ") for line in found.lines(width))
    narrow = [line for line in found.lines(60) if "matmul.py:22" in line]
    assert len(narrow) == 1
    assert narrow[0].startswith("…")


def test_heads_of_the_tables_stand_above_their_columns(product):
    found, _ = product
    for width in (40, 60, 100):
        lines = found.lines(width)
        at = next(i for i, line in enumerate(lines) if line.startswith("component"))
        assert len(lines[at]) == len(lines[at + 1])
        assert lines[at + 1].endswith("%")


def test_static_power_is_told_apart_with_what_it_is_made_of(product):
    found, session = product
    assert (found.pes, found.cubes) == (256, 32)
    assert found.static_joules == pytest.approx((256 * 0.5 + 32 * 2) * found.ns * 1e-9)
    (launch,) = session.trace.launches
    assert found.launch_ns == launch.t_end - launch.t_start
    text = " ".join(found.lines(1000))
    assert "static: " in text
    assert "192 W of 256 PEs and 32 cubes" in text


def test_what_the_host_moves_is_told_apart(one_dot):
    found = one_dot(
        **{"mac_pj.f16": 3, "tcm_pj_byte": 5, "hbm_pj_byte": 7, "router_pj_byte": 11},
        **{"ucie_port_pj_byte": 13, "pcie_pj_byte": 17, "wire_pj_byte_mm": 19},
    )
    moved = X + Y
    a_byte = 7 + HOST_ROUTERS * 11 + 2 * 13 + 17 + HOST_MM * 19
    assert found.host_hbm_bytes == moved
    assert found.host_joules == pytest.approx(moved * a_byte * 1e-12)


def test_launches_that_overlap_are_counted_once(run):
    _, session = run("mlp_tp", SMALL)
    spans = [(launch.t_start, launch.t_end) for launch in session.trace.launches]
    instants = sorted({instant for span in spans for instant in span})
    by_hand = sum(
        t1 - t0
        for t0, t1 in pairwise(instants)
        if any(start <= t0 and t1 <= end for start, end in spans)
    )
    assert session.energy().launch_ns == pytest.approx(by_hand)


# -- traces that have not all of the run ---------------------------------------------


def test_launches_that_have_not_ended_ran_until_the_trace_ends(one_dot, tmp_path):
    one_dot()
    (path,) = tmp_path.rglob("*.msgpack")
    (launch,) = Trace.open(path).launches
    (frame,) = FrameFile(path).by_tag["launches"]
    killed = tmp_path / "killed.msgpack"
    killed.write_bytes(path.read_bytes()[: frame.offset])
    session = ReplaySession(Trace.open(killed))
    assert not session.trace.launches
    found = session.energy()
    assert found.launch_ns == session.trace.end_ns - launch.t_start
    assert found.launch_ns > 0
    text = " ".join(found.lines(1000))
    assert "the run was killed, or still goes on" in text


def test_a_launch_that_an_error_ended_ran_until_then(failed):
    found = failed.energy()
    (first,) = failed.trace.launches
    log = failed.trace.commands
    begun = log.t_issue[:][log.launch[:] == 1].min()
    wanted = first.t_end - first.t_start + failed.trace.end_ns - begun
    assert found.launch_ns == pytest.approx(wanted)
    assert "an error ended the run: this is up to there" in found.lines(100)


def test_the_energy_of_a_part_is_that_of_its_time(run, tmp_path):
    _, session = run("matmul", ONE_CUBE, **UNEVEN["matmul"])
    (launch,) = session.trace.launches
    t0 = launch.t_start + 100.5
    path = tmp_path / "part.msgpack"
    cut(session.trace.path, path, t0, t0 + 200, "*")
    found = ReplaySession(Trace.open(path)).energy()
    assert (found.ns, found.launch_ns) == (200, 200)
    assert found.static_joules == pytest.approx((8 * 0.5 + 2) * 200e-9)
    assert found.lines(100)[0].split(":")[0].endswith("in 200.00ns")
    assert any("a part of a run, " in line for line in found.lines(100))


def test_composites_without_an_end_are_counted(run, tmp_path):
    _, session = run("matmul", ONE_CUBE, **UNEVEN["matmul"])
    assert session.energy().unfinished == 0
    path = tmp_path / "part.msgpack"
    tiles = "*.pe0.pe_dma"
    cut(session.trace.path, path, 0.0, session.trace.end_ns, tiles)
    found = ReplaySession(Trace.open(path)).energy()
    assert (found.unfinished, found.arithmetic) == (1, 0)
    text = " ".join(found.lines(1000))
    assert "of 1 composite the end is not there: bytes are counted, arithm" in text


@pytest.mark.slow
def test_a_run_says_how_much_of_its_energy_is_static_and_how_long_launches_took(run):
    for spec in (SMALL, ONE_CUBE):
        result, session = run("matmul", spec, **UNEVEN["matmul"])
        found = session.energy()
        summary = result.summary()
        assert summary["energy_static_j"] == pytest.approx(found.static_joules)
        assert summary["launch_ns"] == found.launch_ns
        assert f"{found.static_joules:.4g} J of it static" in result.as_text()


ELEMENTWISE = """
    import numpy as np

    from kernbench.benches import bench
    from kernbench.runtime_api import DPPolicy

    ONE = DPPolicy(cube="row_wise", pe="row_wise", num_cubes=1, num_pes=1)


    def kernel(pick_ptr, x_ptr, row_ptr, y_ptr, tl):
        pick = tl.ref(pick_ptr, (32, 16), "bool")
        x = tl.ref(x_ptr, (32, 16), "f16")
        row = tl.load(row_ptr, (1, 16), "f16")
        tl.composite("where", pick, x, y_ptr, c=row, tile=(8, 4, 1), wait=True)


    @bench(name="elementwise", description="a composite of three operands")
    def run(torch):
        pick = torch.tensor(np.ones((32, 16)), "bool", dp=ONE, name="pick")
        x = torch.tensor(np.ones((32, 16)), "f16", dp=ONE, name="x")
        row = torch.tensor(np.ones((1, 16)), "f16", dp=ONE, name="row")
        y = torch.empty((32, 16), "f16", dp=ONE, name="y")
        torch.launch("elementwise", kernel, pick, x, row, y)
"""


def test_each_operand_of_an_elementwise_composite_takes_its_own_bytes(run, tmp_path):
    path = tmp_path / "elementwise.py"
    path.write_text(textwrap.dedent(ELEMENTWISE))
    costs = ("router", "ucie_port", "pcie", "hbm")
    fields = {f"energy.{name}_pj_byte": 0 for name in costs}
    fields |= {"energy.wire_pj_byte_mm": 0, "energy.element_pj.f16": 0}
    fields |= {"energy.pe_static_w": 0, "energy.cube_static_w": 0}
    _, session = run(str(path), {**ONE_CUBE, **fields, "energy.tcm_pj_byte": 1})
    tensors = {n: pj * 1e12 for n, pj in joules(session.energy().tensors).items()}
    # into the TCM and to MATH; of the row a part for each tile, from the scratch
    elements = 32 * 16
    tiles_of_a_column = 4
    assert tensors == pytest.approx(
        {
            "pick": 2 * elements,
            "x": 2 * elements * 2,
            "row": 16 * 2,
            "(scratch)": tiles_of_a_column * 16 * 2,
            "y": 2 * elements * 2,
        }
    )
