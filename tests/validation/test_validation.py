"""The model against published numbers: the tables of ``kernbench validate``."""

import json
import re
from collections import defaultdict
from itertools import pairwise, product
from operator import attrgetter

import pytest
from click.testing import CliRunner

from kernbench import docs
from kernbench.cli import main
from kernbench.topology import TopologySpec, build_topology
from kernbench.topology.spec import HbmSpec
from kernbench.validation import TABLES
from kernbench.validation.bounds import CASES, bounds_table
from kernbench.validation.gemm import BY_HAND, scale_sim_cycles
from kernbench.validation.laws import (
    IMPROVEMENTS,
    improvement,
    launch_ns,
    slower_launches,
)
from kernbench.validation.links import channel_ends, mesh_link_ends, ucie_ends
from kernbench.validation.machines import one_sip
from kernbench.validation.mesh import (
    LOADED,
    load_table,
    loaded_latency,
    lone_latencies,
)
from kernbench.validation.table import EXACT, Bound, Row, Table


@pytest.fixture(scope="module")
def table_of():
    """A table by its name, made once."""
    made = {}

    def make(name):
        if name not in made:
            made[name] = TABLES[name]()
        return made[name]

    return make


# -- every table -----------------------------------------------------------------------


def section():
    """What the page on the machine says of its validation."""
    _, _, section = docs.page("machine").partition("\n## Validation\n")
    return section


LONG = ("load", "bounds", "laws")
"""Tables that take ten seconds and more; CI makes a part of each."""


def tables_made_whole():
    """Cases for ``parametrize``: all tables, the long ones with the soak."""
    for name in TABLES:
        if name in LONG:
            yield pytest.param(name, marks=pytest.mark.soak)
        else:
            yield name


# One test, so that no other worker makes the same table.
@pytest.mark.slow
@pytest.mark.parametrize("name", tables_made_whole())
def test_a_table_is_as_near_to_its_reference_as_it_says_and_on_the_page(table_of, name):
    assert [row for row in table_of(name).rows if not row.ok] == []
    assert table_of(name).as_markdown() in section()


@pytest.mark.parametrize("name", TABLES)
def test_the_page_names_the_command_of_each_table(name):
    assert f"`kernbench validate {name}`" in section()


@pytest.mark.slow
@pytest.mark.parametrize(
    "make",
    [
        lambda: load_table(LOADED[1:5:3]),
        lambda: bounds_table(case for case in CASES if case.shape == (77, 333, 555)),
    ],
    ids=["load", "bounds"],
)
def test_rows_of_a_long_table_are_as_near_as_they_say_and_on_the_page(make):
    table = make()
    assert table.rows
    assert [row for row in table.rows if not row.ok] == []
    for line in table.as_markdown().splitlines():
        assert line in section()


@pytest.mark.slow
def test_every_tenth_improvement_is_slower_where_the_page_says_so():
    slower = [str(each) for each in slower_launches(range(7, IMPROVEMENTS, 10))]
    noted = re.findall(r"^- (seed \d*7, .*)$", section(), re.MULTILINE)
    assert noted  # of those that are tried here one is slower
    assert slower == noted


def kernbench(*args):
    return CliRunner().invoke(main, ["validate", *args])


@pytest.mark.slow
def test_the_command_prints_the_tables_that_are_named(table_of):
    result = kernbench("mesh")
    assert result.exit_code == 0
    assert result.output.startswith("A packet alone\n\n| what | compared with |")
    assert table_of("mesh").as_markdown() in result.output
    assert "GEMM" not in result.output


@pytest.mark.slow
def test_the_command_gives_json():
    rows = json.loads(kernbench("mesh", "--json").output)["tables"]["mesh"]
    assert rows[0]["what"] == "4 x 4 mesh, 1 flit, mean"
    assert (rows[0]["reference"], rows[0]["model"]) == (19.5, 19.5)
    assert rows[0]["ok"] is True


def test_an_unknown_table_is_named_with_those_that_there_are():
    result = kernbench("gem")
    assert result.exit_code == 2
    message = str(result.exception) + result.output
    assert "gem: no such table; valid: gemm, mesh" in message


def test_the_help_names_all_tables():
    words = " ".join(kernbench("--help").output.split())
    assert f"The tables are {', '.join(TABLES)}." in words


def test_a_row_beyond_its_bound_is_shown_and_fails_the_command(monkeypatch):
    row = Row("a link", "its bandwidth", 100, 94, "GB/s", Bound(5))
    monkeypatch.setitem(TABLES, "mesh", lambda: Table("Wrong", [row]))
    result = kernbench("mesh")
    assert result.exit_code == 1
    line = "| a link | its bandwidth | 100 GB/s | 94 GB/s | -6.00 % | 5 %, NOT MET |"
    assert line in result.output


@pytest.mark.parametrize(
    ("reference", "model", "unit", "bound", "ok"),
    [
        (254, 254, "cycles", EXACT, True),
        (254, 254.001, "cycles", EXACT, False),
        (20, 21, "cycles", Bound(5), True),
        (20, 21.01, "cycles", Bound(5), False),
        (16, 25, "%", Bound(10), True),  # nine points, though it is 56 % more
        (16, 27, "%", Bound(10), False),
        (256, 250, "GB/s", Bound(5, never_above=True), True),
        (256, 256, "GB/s", Bound(5, never_above=True), True),
        (256, 257, "GB/s", Bound(5, never_above=True), False),
    ],
)
def test_a_bound_is_of_the_reference_or_in_points(reference, model, unit, bound, ok):
    assert Row("x", "y", reference, model, unit, bound).ok is ok


# -- the array -------------------------------------------------------------------------


def test_gemm_takes_the_cycles_that_were_worked_out_by_hand(table_of):
    by_hand = [cycles for _, _, _, cycles in BY_HAND]
    assert [row.model for row in table_of("gemm").rows[: len(BY_HAND)]] == by_hand


@pytest.mark.parametrize(
    ("dataflow", "cycles"),
    [
        # rows are k, columns n, time is m: 4 x 3 folds of 32 + 64 - 2 + 100
        ("ws", 12 * 194),
        # rows are m, columns n, time is k: 7 x 3 folds of 32 + 64 - 2 + 50
        ("os", 21 * 144),
        # rows are k, columns m, time is n: 4 x 2 folds of 32 + 64 - 2 + 130
        ("is", 8 * 224),
    ],
)
def test_the_formula_is_that_of_each_dataflow(dataflow, cycles):
    assert scale_sim_cycles((16, 64), (100, 50, 130), dataflow) == cycles


# -- the mesh --------------------------------------------------------------------------


@pytest.mark.parametrize(("size", "farthest"), [(4, 7), (8, 15)])
def test_a_packet_alone_takes_booksims_cycles_whatever_its_way(size, farthest):
    flits = 3
    seen = list(lone_latencies(size, flits))
    assert len(seen) == size**4
    assert {routers for routers, _ in seen} == set(range(1, farthest + 1))
    for routers, cycles in seen:
        assert cycles == 5 * routers + 2 + flits - 1


def waits_of_output_queues(size, load):
    """The mean wait of a packet where each output has a queue of any length.

    A link that takes a packet a cycle, from inputs that each have one with their own
    probability p, independently: (sum(p)^2 - sum(p^2)) / (2 (1 - sum(p))) packets wait
    for it (Karol, Hluchyj and Morgan, 1987). Packets go along the row first.
    """
    nodes = list(product(range(size), repeat=2))
    inputs = defaultdict(lambda: defaultdict(float))
    for (row, col), (last_row, last_col) in product(nodes, repeat=2):
        step = 1 if last_col > col else -1
        across = [(row, each) for each in range(col, last_col, step)]
        step = 1 if last_row > row else -1
        down = [(each, last_col) for each in range(row, last_row, step)]
        way = ["source", *across, *down, (last_row, last_col), "sink"]
        for before, link in zip(way, pairwise(way[1:]), strict=False):
            inputs[link][before] += load / size**2
    queued = 0.0
    for shares in inputs.values():
        rho = sum(shares.values())
        alike = sum(share**2 for share in shares.values())
        queued += (rho**2 - alike) / (2 * (1 - rho))
    return queued / (load * size**2)


@pytest.mark.slow
def test_waits_under_random_traffic_are_those_of_output_queues():
    seen = loaded_latency(4, 0.3, warm_up=200, measured=2000)
    wait = seen.mean - 19.5
    assert wait == pytest.approx(waits_of_output_queues(4, 0.3), rel=0.15)
    assert seen.packets == pytest.approx(0.3 * 16 * 2000, rel=0.05)


def test_the_page_has_what_output_queues_of_any_length_give():
    assert f"{19.5 + waits_of_output_queues(4, 0.4):.2f}" == "19.98"
    said = "give the model's waits: 19.98 cycles at a load of 0.4"
    assert said in " ".join(docs.page("machine").split())


def test_a_seed_gives_the_same_traffic_again():
    first, again, other = (
        loaded_latency(4, 0.2, seed, warm_up=20, measured=200) for seed in (7, 7, 8)
    )
    assert first == again
    assert first != other


@pytest.mark.slow
def test_a_longer_run_has_a_smaller_error():
    short, long = (
        loaded_latency(4, 0.3, warm_up=100, measured=each) for each in (200, 3200)
    )
    assert long.standard_error < short.standard_error / 2


# -- shared links ----------------------------------------------------------------------


def test_what_leaves_a_saturated_link_later_approaches_its_bandwidth_further():
    graph = build_topology(one_sip(hbm=HbmSpec(model="ideal")))
    sizes = (4096, 65536, 262144)
    rates = [16 * nbytes / max(mesh_link_ends(graph, nbytes)[0]) for nbytes in sizes]
    assert rates == sorted(rates)
    assert 0.995 * 256 <= rates[-1] <= 256


def test_readers_of_one_channel_end_within_a_round_of_bursts():
    graph = build_topology(one_sip(hbm=HbmSpec(model="ideal", channels=1)))
    ends = channel_ends(graph, 1, 65536, 65536)
    assert max(ends) - min(ends) < 8 * 4096 / 32


@pytest.mark.parametrize("op", ["read", "write"])
def test_two_streams_over_one_ucie_connection_get_half_each(op):
    nbytes = 1 << 20
    burst_ns = 4096 / 128
    first, second = ucie_ends(op, nbytes)
    assert abs(first - second) <= 2 * burst_ns
    assert 0.98 * 128 <= 2 * nbytes / max(first, second) <= 128


# -- laws ------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(40))
def test_an_improvement_makes_every_field_better(seed):
    shipped = TopologySpec()
    fields = improvement(seed)
    assert fields == improvement(seed)
    for path, value in fields.items():
        before = attrgetter(path)(shipped)
        if path.endswith(("_ns", "_per_mm")):
            assert 0 <= value < before
        else:
            assert value > before


def test_a_worse_machine_is_seen_to_be_slower():
    shipped = launch_ns("softmax", {})
    slow_links = launch_ns("softmax", {"cube.hbm.to_router_bw_gbs": 32.0})
    # each of 16 PEs reads 32 KiB, and writes as much
    assert slow_links - shipped > 32768 / 32 - 32768 / 256
