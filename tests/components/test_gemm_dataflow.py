"""Dataflows, rates and overhead of the array, against an array that is clocked."""

from dataclasses import replace
from math import ceil

import numpy as np
import pytest
from test_gemm_time import serve

from kernbench.common.dtypes import DTYPES
from kernbench.common.messages import Region
from kernbench.common.pe_commands import GemmCmd
from kernbench.components.builtin.pe_gemm import cold_cycles, streaming_cycles
from kernbench.topology import TopologySpec, build_topology
from kernbench.topology.spec import CubeMeshSpec, SipsSpec

SEED = 22
SHAPES = [
    (dataflow, *shape)
    for dataflow in ("ws", "os", "is")
    for shape in np.random.default_rng(SEED).integers(1, 13, (20, 5)).tolist()
]


# -- an array, clocked cycle by cycle --------------------------------------------------


def clocked_stationary(kept, streamed):
    """(product, cycles) of streamed[t, r] @ kept[r, c] where ``kept`` stays.

    Each cycle a processing element takes a number from the west and a partial sum from
    the north, and has them and its own product ready for its east and south. Row r gets
    its numbers r cycles late, so that they meet.
    """
    rows, cols = kept.shape
    count = len(streamed)
    held = np.zeros((rows, cols))
    cycles = 0
    for row in kept[::-1]:  # from the north, one row a cycle
        held[1:] = held[:-1].copy()
        held[0] = row
        cycles += 1
    east = np.zeros((rows, cols))
    south = np.zeros((rows, cols))
    out = np.full((count, cols), np.nan)
    t = 0
    while np.isnan(out).any():
        west = np.zeros((rows, cols))
        north = np.zeros((rows, cols))
        west[:, 1:] = east[:, :-1]
        north[1:] = south[:-1]
        for r in range(rows):
            if 0 <= t - r < count:
                west[r, 0] = streamed[t - r, r]
        east = west
        south = north + west * held
        for c in range(cols):
            at = t - (rows - 1) - c
            if 0 <= at < count:
                out[at, c] = south[rows - 1, c]
        t += 1
    return out, cycles + t


def clocked_outputs(a, b):
    """(product, cycles) of a[r, t] @ b[t, c] where each element adds up one output.

    Rows of ``a`` come from the west and columns of ``b`` from the north, each later by
    its number; then the outputs leave to the south, a row a cycle.
    """
    rows, count = a.shape
    cols = b.shape[1]
    east = np.zeros((rows, cols))
    south = np.zeros((rows, cols))
    sums = np.zeros((rows, cols))
    met = np.zeros((rows, cols), int)
    t = 0
    while (met < count).any():
        west = np.zeros((rows, cols))
        north = np.zeros((rows, cols))
        west[:, 1:] = east[:, :-1]
        north[1:] = south[:-1]
        for r in range(rows):
            if 0 <= t - r < count:
                west[r, 0] = a[r, t - r]
        for c in range(cols):
            if 0 <= t - c < count:
                north[0, c] = b[t - c, c]
        sums += west * north
        for r in range(rows):
            for c in range(cols):
                met[r, c] += 0 <= t - r - c < count
        east = west
        south = north
        t += 1
    drained = []
    for _ in range(rows):
        drained.insert(0, sums[-1].copy())
        sums[1:] = sums[:-1].copy()
        t += 1
    return np.array(drained), t


def padded(matrix, rows, cols):
    """A piece of a matrix, at the corner of an array that is filled with zeros."""
    whole = np.zeros((rows, cols))
    whole[: matrix.shape[0], : matrix.shape[1]] = matrix
    return whole


def clocked(dataflow, a, b, rows, cols):
    """(a @ b, cycles) on an array of rows x cols, fold after fold."""
    m, k = a.shape
    n = b.shape[1]
    out = np.zeros((m, n))
    cycles = 0
    tall, wide = {"ws": (k, n), "os": (m, n), "is": (k, m)}[dataflow]
    for r in range(0, tall, rows):
        for c in range(0, wide, cols):
            down = slice(r, min(r + rows, tall))
            across = slice(c, min(c + cols, wide))
            if dataflow == "ws":
                kept = padded(b[down, across], rows, cols)
                piece, took = clocked_stationary(kept, padded(a[:, down], m, rows))
                out[:, across] += piece[:, : across.stop - c]
            elif dataflow == "is":
                kept = padded(a[across, down].T, rows, cols)
                piece, took = clocked_stationary(kept, padded(b[down].T, n, rows))
                out[across] += piece[:, : across.stop - c].T
            else:
                piece, took = clocked_outputs(
                    padded(a[down], rows, k), padded(b[:, across], k, cols)
                )
                out[down, across] = piece[: down.stop - r, : across.stop - c]
            cycles += took
    return out, cycles


@pytest.mark.parametrize(("dataflow", "rows", "cols", "m", "k", "n"), SHAPES)
def test_a_cold_product_takes_the_cycles_of_a_clocked_array(
    dataflow, rows, cols, m, k, n
):
    random = np.random.default_rng(SEED)
    a = random.integers(-9, 9, (m, k))
    b = random.integers(-9, 9, (k, n))
    product, cycles = clocked(dataflow, a, b, rows, cols)
    assert np.array_equal(product, a @ b)
    assert cold_cycles(m, k, n, rows, cols, dataflow) == cycles


# -- on the machine --------------------------------------------------------------------


@pytest.fixture
def machine(layout_cache):
    """machine(pe field, value, …) -> a graph of one cube."""

    def machine(gemm=(), tcm=(), **pe):
        spec = TopologySpec()
        return build_topology(
            replace(
                spec,
                system=replace(spec.system, sips=SipsSpec(count=1)),
                sip=replace(spec.sip, cube_mesh=CubeMeshSpec(1, 1)),
                pe=replace(
                    spec.pe,
                    gemm=replace(spec.pe.gemm, **dict(gemm)),
                    tcm=replace(spec.pe.tcm, **dict(tcm)),
                    **pe,
                ),
            ),
            layout_cache,
        )

    return machine


def dot(m, k, n, dtype="f16", at=0, a_at=None, b_at=None, **more):
    """A product whose operands and result lie one after the other from ``at`` on."""
    size = DTYPES[dtype].itemsize
    a = at if a_at is None else a_at
    b = at + m * k * size if b_at is None else b_at
    out = at + (m * k + k * n) * size
    return GemmCmd(
        a=Region("tcm", a, (m, k), dtype, m * k * size),
        b=Region("tcm", b, (k, n), dtype, k * n * size),
        out=Region("tcm", out, (m, n), dtype, m * n * size),
        m=m,
        k=k,
        n=n,
        **more,
    )


def took(graph, *messages, gap=0.0):
    return [r.t_end - r.t_start for r in serve(graph, *messages, gap=gap)]


# (rows, columns, time) of the issue, and folds x (2R + C + T - 2), by hand for 16 x 32
BY_HAND = {
    "ws": ceil(40 / 16) * ceil(70 / 32) * (32 + 32 + 20 - 2),
    "os": ceil(20 / 16) * ceil(70 / 32) * (32 + 32 + 40 - 2),
    "is": ceil(40 / 16) * ceil(20 / 32) * (32 + 32 + 70 - 2),
}


@pytest.mark.parametrize("dataflow", BY_HAND)
def test_the_dataflow_of_the_machine_and_of_a_call_count_alike(machine, dataflow):
    array = {"rows": 16, "cols": 32}
    by_machine = machine(gemm=array | {"dataflow": dataflow})
    assert took(by_machine, dot(20, 40, 70)) == [BY_HAND[dataflow]]
    by_call = machine(gemm=array)
    assert took(by_call, dot(20, 40, 70, dataflow=dataflow)) == [BY_HAND[dataflow]]


RATES = {
    2: ("fp8_e4m3", "fp8_e5m2", "i8", "u8", "bool"),
    1: ("f16", "bf16", "i16", "u16"),
    0.5: ("f32", "i32", "u32"),
    0.25: ("f64", "i64", "u64"),
}


@pytest.mark.parametrize(
    ("dtype", "rate"), [(name, rate) for rate, names in RATES.items() for name in names]
)
def test_each_dtype_has_its_rate(machine, dtype, rate):
    assert took(machine(), dot(64, 64, 64, dtype)) == [254 / rate]


def test_every_dtype_was_asked_for():
    assert {name for names in RATES.values() for name in names} == set(DTYPES)


def test_a_rate_can_be_set(machine):
    rates = replace(TopologySpec().pe.gemm.rate, f32=1.0)
    assert took(machine(gemm={"rate": rates}), dot(64, 64, 64, "f32")) == [254]


def test_a_duration_is_a_multiple_of_the_tick(machine):
    (ns,) = took(machine(clock_ghz=0.92), dot(64, 64, 64))
    assert ns == round(254 / 0.92 * 1024) / 1024


def test_a_call_costs_the_overhead_once(machine):
    graph = machine(gemm={"overhead_ns": 280.0})
    assert took(graph, dot(64, 64, 64)) == [254 + 280]


def test_a_composite_costs_the_overhead_once(machine, simulate):
    def kernel(a_ptr, b_ptr, c_ptr, tl):
        a = tl.load(a_ptr, (128, 64))
        b = tl.load(b_ptr, (64, 64))
        tl.composite(a=a, b=b, out_ptr=c_ptr)

    def bench(torch):
        a = torch.zeros((128, 64))
        b = torch.zeros((64, 64))
        torch.launch("k", kernel, a, b, torch.empty((128, 64)))

    run = simulate(bench, graph=machine(gemm={"overhead_ns": 280.0}))
    times = [r.t_end - r.t_start for r in run.log if r.op_name == "TileToken/GEMM"]
    assert times == [254 + 280, 64]


# -- behind another --------------------------------------------------------------------


@pytest.mark.parametrize("dataflow", BY_HAND)
def test_a_dot_that_queued_behind_another_has_filled_the_array(machine, dataflow):
    graph = machine(gemm={"rows": 16, "cols": 32, "dataflow": dataflow})
    first = dot(20, 40, 70)
    second = dot(20, 40, 70, at=1 << 16)
    whole = BY_HAND[dataflow]
    assert took(graph, first, second) == [whole, whole - 16]


def test_it_fills_it_only_as_long_as_it_waits(machine):
    first, second = dot(64, 64, 64), dot(64, 64, 64, at=1 << 16)
    assert took(machine(), first, second, gap=244.0) == [254, 254 - 10]


def test_a_dot_after_a_gap_or_at_the_end_of_another_is_cold(machine):
    for gap in (254.0, 255.0):
        first, second = dot(64, 64, 64), dot(64, 64, 64, at=1 << 16)
        assert took(machine(), first, second, gap=gap) == [254, 254]


@pytest.mark.parametrize(
    ("dataflow", "operand", "second"),
    [
        ("ws", "b_at", 254),
        ("ws", "a_at", 190),
        ("is", "a_at", 254),
        ("is", "b_at", 190),
        ("os", "a_at", 254),
        ("os", "b_at", 254),
    ],
)
def test_what_the_array_is_filled_with_must_not_be_the_result_before(
    machine, dataflow, operand, second
):
    first = dot(64, 64, 64, dataflow=dataflow)
    later = dot(64, 64, 64, at=1 << 16, dataflow=dataflow, **{operand: first.out.addr})
    assert took(machine(), first, later) == [254, second]


def composite_of_folds(machine, simulate, **options):
    """GEMM times of a composite of 32 x 48 x 64 on 16 x 16, in two tiles of n."""

    def kernel(a_ptr, b_ptr, c_ptr, tl):
        a = tl.load(a_ptr, (32, 48))
        b = tl.load(b_ptr, (48, 64))
        tl.composite(a=a, b=b, out_ptr=c_ptr, tile=(32, 32, 48), **options)

    def bench(torch):
        a = torch.zeros((32, 48))
        b = torch.zeros((48, 64))
        torch.launch("k", kernel, a, b, torch.empty((32, 64)))

    run = simulate(bench, graph=machine(gemm={"rows": 16, "cols": 16}))
    return [r.t_end - r.t_start for r in run.log if r.op_name == "TileToken/GEMM"]


@pytest.mark.parametrize(
    ("dataflow", "count", "vectors"),
    [("ws", 3 * 2, 32), ("os", 2 * 2, 48), ("is", 3 * 2, 32)],
)
def test_folds_of_a_composite_stream_behind_its_first(
    machine, simulate, dataflow, count, vectors
):
    first, second = composite_of_folds(machine, simulate, dataflow=dataflow)
    cold = 2 * 16 + 16 + vectors - 2
    assert first == cold + (count - 1) * vectors
    assert second == count * vectors
    assert second == streaming_cycles(32, 48, 32, 16, 16, dataflow)


# -- the TCM's channels ----------------------------------------------------------------


def test_a_dot_takes_as_long_as_its_operands_stream(machine):
    each = 64 * 64 * 2
    slow_read = machine(tcm={"read_bw_gbs": 32.0})
    assert took(slow_read, dot(64, 64, 64)) == [2 * each / 32]
    slow_write = machine(tcm={"write_bw_gbs": 16.0})
    assert took(slow_write, dot(64, 64, 64)) == [each / 16]


def test_an_accumulator_is_read_too(machine):
    each = 64 * 64 * 2
    added = dot(64, 64, 64)
    added.acc = added.out
    assert took(machine(tcm={"read_bw_gbs": 32.0}), added) == [3 * each / 32]


def test_at_the_defaults_a_dot_takes_its_cycles(machine):
    assert took(machine(), dot(512, 512, 512)) == [64 * 702]
