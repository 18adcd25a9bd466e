"""Predictions against runs: what a machine with a field changed really does."""

import itertools
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from kernbench.common.progress import no_progress
from kernbench.replay.whatif.graph import build_graph
from kernbench.replay.whatif.index import WhatIfIndex
from kernbench.replay.whatif.links import recorded_links
from kernbench.replay.whatif.machine import Machine, ways_of
from kernbench.replay.whatif.walk import Batches, Late, Scenarios, walk_plain
from kernbench.runtime_api import run_bench
from kernbench.topology import load_spec, recorded_spec
from kernbench.trace import Trace

BUNDLED = sorted(Path(__file__).parents[3].glob("traces/*.msgpack"))
ONE_CUBE = {"sips.count": 1, "cube_mesh.w": 1, "cube_mesh.h": 1}


def spans(path):
    return {row.launch: row.t_end - row.t_start for row in Trace.open(path).launches}


def predicted(index, change):
    answer = index.predict((change,))
    return {row.launch: row.predicted_ns for row in answer.launches}


def graph_of(path):
    trace = Trace.open(path)
    machine = Machine(ways_of(trace), recorded_links(trace), recorded_spec(trace.spec))
    return build_graph(trace, machine, no_progress), machine


@pytest.mark.parametrize("path", BUNDLED, ids=lambda path: path.stem)
def test_nothing_changed_is_what_was_recorded_to_the_last_bit(path):
    graph, machine = graph_of(path)
    times = walk_plain(graph, graph.table.on(machine), no_progress)
    assert np.array_equal(times, graph.times)
    answer = WhatIfIndex(Trace.open(path)).predict(())
    assert answer.predicted_ns == answer.end_ns
    assert answer.sure
    assert [row.predicted_ns for row in answer.launches] == [
        row.recorded_ns for row in answer.launches
    ]


def test_edges_explain_nearly_all_of_a_product():
    graph, _ = graph_of(BUNDLED[[path.stem for path in BUNDLED].index("matmul")])
    moments = graph.moments
    start = graph.times[moments.launch_start(np.array([0]))[0]]
    in_launch = graph.times > start
    assert np.mean(np.abs(graph.rest[in_launch]) < 0.05) > 0.9


@pytest.mark.parametrize("path", BUNDLED, ids=lambda path: path.stem)
def test_the_fast_walk_says_what_the_plain_one_says(path):
    graph, machine = graph_of(path)
    spec = machine.spec
    changes = [
        {},
        {"pe.clock_ghz": 3.0},
        {"cube.hbm.channel_bw_gbs": 7.0},
        {"pe.dma.setup_ns": 0.0},
        {"pe.tcm.read_bw_gbs": 11.0},
    ]
    specs = [load_spec(base=spec, overrides=change) for change in changes]
    machines = [Machine(machine.ways, machine.links, spec) for spec in specs]
    batches = Batches(graph, no_progress)
    weights = np.stack([graph.table.on(machine) for machine in machines], 1)
    none = np.full(len(machines), -1)
    ones = np.ones(len(machines))
    times = batches.walk(Scenarios(weights, none, ones), no_progress)
    for number in range(len(machines)):
        plain = walk_plain(graph, weights[:, number], no_progress)
        assert np.array_equal(times[batches.place, number], plain)
        alone = Scenarios(weights[:, [number]], none[:1], ones[:1])
        assert np.array_equal(batches.walk(alone, no_progress)[batches.place, 0], plain)


@pytest.mark.parametrize("together", [1, 2])
def test_what_is_late_or_left_out_is_so_in_each_walk(together):
    graph, machine = graph_of(BUNDLED[[path.stem for path in BUNDLED].index("matmul")])
    batches = Batches(graph, no_progress)
    weight = graph.table.on(machine)
    some = Scenarios(
        np.repeat(weight[:, None], together, 1),
        np.full(together, -1),
        np.ones(together),
    )
    root = int(graph.roots[0])
    later = batches.walk(some, no_progress, late=Late(root, 8.0))[batches.place, 0]
    assert later[root] == graph.times[root] + 8
    assert later.max() == graph.times.max() + 8
    # Of a node with several edges the one that is left out is as if it never binds.
    several = np.flatnonzero(np.diff(graph.effect) == 0)
    edges = several[graph.weight[several] >= 0]
    times = batches.walk(some, no_progress, without=edges)[batches.place, 0]
    kept = np.setdiff1d(np.arange(len(graph.cause)), edges)
    fewer = replace(
        graph,
        cause=graph.cause[kept],
        effect=graph.effect[kept],
        weight=graph.weight[kept],
    )
    assert np.array_equal(times, walk_plain(fewer, weight, no_progress))


@pytest.mark.slow
def test_predictions_in_a_row_are_what_each_is_alone():
    path = BUNDLED[[path.stem for path in BUNDLED].index("flash_attention")]
    index = WhatIfIndex(Trace.open(path))
    changes = [
        ("router.overhead_ns=4",),
        ("pe.clock_ghz=2",),
        ("router.overhead_ns=1",),
        ("router.overhead_ns=4", "pe.clock_ghz=2"),
    ]
    for change in changes:
        assert index.predict(change) == WhatIfIndex(Trace.open(path)).predict(change)


def test_a_line_that_takes_nothing_is_walked_as_its_weights_say():
    graph, machine = graph_of(
        BUNDLED[[path.stem for path in BUNDLED].index("flash_attention")]
    )
    batches = Batches(graph, no_progress)
    weight = graph.table.on(machine)
    line = int(graph.line.max())
    some = Scenarios(weight[:, None], np.array([line]), np.array([0.25]))
    times = batches.walk(some, no_progress)[batches.place, 0]
    assert not np.array_equal(times, graph.times)
    # Each edge of the line has a class of its own, with a quarter of the weight.
    scaled = graph.line == line
    classes = graph.weight.astype(np.int64)
    assert (classes[scaled] >= 0).all()
    classes[scaled] += len(weight)
    other = replace(graph, weight=classes)
    plain = walk_plain(other, np.append(weight, weight / 4), no_progress)
    assert np.array_equal(times, plain)


CASES = {
    "softmax": (
        {"m": 64, "n": 64, "pes": 4},
        ["pe.clock_ghz=2.0", "pe.math.lanes=16", "pe.dma.setup_ns=90.0"],
    ),
    "matmul": (
        {"m": 128, "k": 256, "n": 64},
        ["cube.hbm.channel_bw_gbs=16.0", "pe.dma.to_router_bw_gbs=64.0"],
    ),
    "ccl_allreduce": (
        {},
        ["cube.ucie.overhead_ns=32.0", "pe.dma.setup_ns=80.0", "pe.clock_ghz=0.5"],
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("bench", "change"),
    [(bench, change) for bench, (_, some) in CASES.items() for change in some],
)
def test_a_run_on_the_changed_machine_takes_as_long_as_predicted(
    bench, change, tmp_path
):
    params, _ = CASES[bench]
    machine = {} if bench == "ccl_allreduce" else ONE_CUBE
    before = tmp_path / "before.msgpack"
    after = tmp_path / "after.msgpack"
    run_bench(bench, params=params, spec=machine, trace=before)
    field, _, value = change.partition("=")
    number = float(value) if "." in value else int(value)
    run_bench(bench, params=params, spec=machine | {field: number}, trace=after)
    real = spans(after)
    was = spans(before)
    found = predicted(WhatIfIndex(Trace.open(before)), change)
    for launch, ns in real.items():
        assert abs(ns / was[launch] - 1) > 0.02
        assert found[launch] == pytest.approx(ns, rel=0.02)


def test_several_changes_are_predicted_together(tmp_path):
    before = tmp_path / "before.msgpack"
    after = tmp_path / "after.msgpack"
    params = {"m": 64, "n": 64, "pes": 4}
    run_bench("softmax", params=params, spec=ONE_CUBE, trace=before)
    changed = {"pe.clock_ghz": 2.0, "pe.dma.setup_ns": 60.0, "pcie_bw_gbs": 20.0}
    run_bench("softmax", params=params, spec=ONE_CUBE | changed, trace=after)
    changes = tuple(f"{field}={value}" for field, value in changed.items())
    answer = WhatIfIndex(Trace.open(before)).predict(changes)
    assert answer.predicted_ns == pytest.approx(Trace.open(after).end_ns, rel=0.01)
    for row, real in itertools.zip_longest(answer.launches, spans(after).values()):
        assert row.predicted_ns == pytest.approx(real, rel=0.01)
