"""FLOPs and HBM bytes of every PE against the machine's peaks; the ideal time of ops.

A gemm of m, n, k is 2mnk FLOPs: a product and a sum for each. An op of MATH, and each
step of an epilogue, is one for each element. The peaks come from common/peaks.py, for
each dtype its own; of several the peak is what their FLOPs take one after another. What
a PE can attain at an intensity of i FLOPs a byte is the lower of its peak FLOPs and of
i times the peak bytes of its HBM: the roof, with a ridge where the two meet.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial, reduce
from math import ceil, floor, log10
from typing import Any, NamedTuple

import numpy as np

from kernbench.common.arrays import Bools, Floats, Ints
from kernbench.common.peaks import Peaks, peaks
from kernbench.common.progress import (
    Progress,
    computed_beside,
    no_progress,
    parts,
    stage,
)
from kernbench.errors import TraceFormatError
from kernbench.policy.routing.router import pe_prefix
from kernbench.replay.answers import OpRow
from kernbench.replay.text import wrapped
from kernbench.replay.time.op_classes import CLASS_LETTERS, TILE_PREFIX
from kernbench.replay.time.op_index import OpIndex
from kernbench.replay.time.spans import part_of_run
from kernbench.sim_engine.access_columns import AccessColumns
from kernbench.sim_engine.op_log import KIND_RANK
from kernbench.trace import Trace
from kernbench.trace.hops import integers, named, tile_composites
from kernbench.trace.params import Names, ParamBlock, Schema
from kernbench.trace.spec_values import spec_number

_PLOT_ROWS = 9
_SHOWN = 8  # PEs in the text
_READ = CLASS_LETTERS.index("R")
_WRITE = CLASS_LETTERS.index("W")
_FETCH = CLASS_LETTERS.index("F")
_STORE = CLASS_LETTERS.index("S")
_MULTIPLIED = ("dtype_in",)
"""The params with the dtypes that the array works on."""
_WORKED_ON = ("dtype", "input_dtypes", "dtype_acc", "epilogue_dtypes")
"""The params with the dtypes that MATH works on: of an op, or of an epilogue."""


@dataclass(frozen=True, slots=True)
class Roof:
    """One PE, or all together, over a window.

    ``nbytes`` are to and from HBM, ``intensity`` is FLOPs a byte (inf where no byte
    moved), ``gflops`` the rate that was attained, FLOPs a ns; ``bound`` is "compute" or
    "memory". ``share`` is that rate as a share of what is possible at this intensity.
    """

    pe: str
    flops: int
    nbytes: int
    intensity: float
    gflops: float
    bound: str
    share: float


@dataclass(frozen=True, slots=True)
class Roofline:
    """All PEs over [t0, t1) ns, the furthest from their roof first.

    The peaks are of one PE: GFLOP/s of the dtypes that were multiplied (of f16 where
    none were), and GB/s of its HBM. ``part`` says what a trace has that has not all of
    its run.
    """

    t0: float
    t1: float
    peak_gflops: float
    peak_gbs: float
    total: Roof
    pes: tuple[Roof, ...]
    part: str = ""

    def lines(self, width: int) -> list[str]:
        """As text: a table of those furthest from their roof, and the plot."""
        lines = self.head(width)
        for roof in (self.total, *self.pes[:_SHOWN]):
            lines.append(
                f"{roof.share:>6.1%} {roof.pe:<16} {roof.bound:<7}"
                f"{roof.gflops:>9,.1f} GFLOP/s{roof.intensity:>8.2f} FLOP/B "
                f"{roof.flops:>14,} FLOP {roof.nbytes:>12,} B"
            )
        more = len(self.pes) - _SHOWN
        if more > 0:
            lines.append(f"({more:,} closer to their roof)")
        return lines + self.plot(width)

    def head(self, width: int) -> list[str]:
        """As text: the peaks, and what a trace has that has not all of its run."""
        peak = _rounded(self.peak_gflops)
        ridge = _rounded(self.peak_gflops / self.peak_gbs)
        text = f"a PE: {peak} GFLOP/s, {self.peak_gbs:g} GB/s of HBM"
        lines = wrapped(f"{text}; memory bound below {ridge} FLOPs a byte", width, 2)
        if self.part:
            lines += wrapped(self.part, width, 2)
        return lines

    def plot(self, width: int) -> list[str]:
        """The roof and its marks in so many columns, 72 at most."""
        return self._plot(min(max(width - 12, 8), 60))

    def _plot(self, columns: int) -> list[str]:
        """The roof over the intensity, both on log scales, and what its marks are."""
        mean_gflops = self.total.gflops / max(len(self.pes), 1)
        marks = [("*", roof.intensity, roof.gflops) for roof in self.pes]
        marks.append(("T", self.total.intensity, mean_gflops))
        marks = [mark for mark in marks if 0 < mark[1] < np.inf and mark[2] > 0]

        ridge = self.peak_gflops / self.peak_gbs
        intensities = [ridge, *(intensity for _, intensity, _ in marks)]
        left = log10(min(intensities) / 4)
        decades = log10(max(intensities) * 4) - left
        top = log10(self.peak_gflops)
        bottom = min([top - 1, *(log10(gflops) for *_, gflops in marks)])

        dots = []
        for column in range(columns):
            intensity = 10 ** (left + decades * (column + 0.5) / columns)
            gflops = min(self.peak_gflops, intensity * self.peak_gbs)
            dots.append(("-" if intensity > ridge else "/", intensity, gflops))
        grid = [[" "] * columns for _ in range(_PLOT_ROWS)]
        for glyph, intensity, gflops in [*dots, *marks]:
            row = round((top - log10(gflops)) / (top - bottom) * (_PLOT_ROWS - 1))
            row = max(row, 0)  # a trace may say that an op did more than it can
            column = int((log10(intensity) - left) / decades * columns)
            if row < _PLOT_ROWS:
                grid[row][min(column, columns - 1)] = glyph

        ticks = _ticks(top, bottom)
        lines = []
        for row, cells in enumerate(grid):
            lines.append(f"{ticks.get(row, ''):>10} |{''.join(cells)}")
        first = f"{10**left:.2g}"
        last = f"{10 ** (left + decades):.3g}"
        axis = f"{'GFLOP/s':>10} +{first} … {last} FLOPs a byte"
        return [*lines, f"{axis}; * is a PE, T their mean"]


def _ticks(top: float, bottom: float) -> dict[int, str]:
    """By row of the plot a round number that lies in it, 1, 2 or 5 times a power of
    ten; the roof has its own. ``top`` and ``bottom`` are powers of ten.
    """
    ticks = {0: f"{10**top:.4g}"}
    for power in range(floor(bottom), ceil(top) + 1):
        for digit in (1, 2, 5):
            at = (top - power - log10(digit)) / (top - bottom) * (_PLOT_ROWS - 1)
            row = round(at)
            if 0 < row < _PLOT_ROWS and abs(at - row) < _NEAR_ROW:
                ticks.setdefault(row, f"{digit * 10.0**power:.4g}")
    return ticks


_NEAR_ROW = 0.5
"""Rows by which a round number may lie beside its tick."""


@dataclass(frozen=True, slots=True)
class Bound:
    """The time of an op, ns: the ``real`` one, and the ``ideal`` one.

    That is what it would take alone at the machine's peak rates. ``slack`` is how much
    later it could be without moving the end of the launches, inf if that does not wait
    for it; ``why`` says why that is not ``sure``.
    """

    op: OpRow
    real: float
    ideal: float
    slack: float
    sure: bool = True
    why: str = ""

    def lines(self, width: int) -> list[str]:
        """As text."""
        op = self.op
        what = f"op {op.op:,} {op.name} on {op.component} took {self.real:.2f} ns"
        slack = f"slack {self.slack:.2f} ns"
        if self.slack == np.inf:
            slack = "the end does not wait for it"
        times = f"ideal {self.ideal:.2f} ns, {slack}"
        lines = wrapped(f"{what}, {times}", width, 2)
        if not self.sure:
            lines += wrapped(f"slack is unsure: {self.why}", width, 2)
        return lines


class _Work(NamedTuple):
    """What each op does, by row of the log.

    ``flops`` and ``moved`` (bytes of HBM) count everything once: a composite computes,
    its tiles move; see ``_are_counted``. ``at_peak`` are the FLOPs of a rate of 1 in
    the same time. ``ideal`` is in ns.
    """

    flops: Floats
    at_peak: Floats
    moved: Floats
    ideal: Floats


class _Computed(NamedTuple):
    """By row: FLOPs of the GEMM array, elements of MATH, and the rates of both."""

    gemm: Floats
    elements: Floats
    gemm_rate: Floats
    math_rate: Floats


class _Streamed(NamedTuple):
    """By row: the bytes that a dot or an op of MATH reads from TCM, and writes."""

    read: Floats
    written: Floats


class RooflineIndex:
    """Answers about rates, from what every op computes and moves.

    ``touched`` gives the accesses of all ops (sim_engine/accesses.py), rows being
    positions. The table of work is filled by one thread, the worker of lane "columns",
    when it is first asked for; no other thread may ask. A computation that is cancelled
    leaves what was there.
    """

    def __init__(
        self,
        trace: Trace,
        ops: OpIndex,
        touched: Callable[[Progress], AccessColumns],
    ) -> None:
        self._trace = trace
        self._ops = ops
        self._touched = touched
        self._peaks = peaks(partial(spec_number, trace.spec))
        self._work: _Work | None = None

    def ideal_ns(self, position: int, progress: Progress = no_progress) -> float:
        """What the op at a position would take alone at peak rates, ns.

        Of a composite that is the time of its slowest engine.
        """
        return float(self._all_work(progress).ideal[self._trace.order[position]])

    def roofline(
        self, t0: float, t1: float, progress: Progress = no_progress
    ) -> Roofline:
        """The PEs that did something, by the time from t0 to t1 (ns).

        Raises TraceFormatError if the trace's topology says no peaks.
        """
        work = self._all_work(stage(progress, 0.0, 0.9))
        best = self._peaks
        if not (best.gemm > 0 and best.hbm > 0):
            what = f"{self._trace.path}: its topology says no peaks, or is damaged"
            raise TraceFormatError(f"{what}; record it again")

        nodes = self._trace.nodes
        served = self._ops.components
        served = served[nodes.pe[served] >= 0]
        place = np.stack([nodes.sip[served], nodes.cube[served], nodes.pe[served]])
        places, which = np.unique(place, axis=1, return_inverse=True)
        pe_of_node = np.full(len(nodes.pe), -1, np.int64)
        pe_of_node[served] = which.ravel()
        flops, at_peak, moved = self._sums(
            work, pe_of_node, places.shape[1], stage(progress, 0.9, 1.0)
        )

        rows = []
        for number, (sip, cube, pe) in enumerate(places.T.tolist()):
            name = pe_prefix(sip, cube, pe)
            peak = _peak_gflops(flops[number], at_peak[number], best)
            done = (flops[number], moved[number], t1 - t0)
            rows.append(_roof(name, *done, 1, peak, best.hbm))
        peak = _peak_gflops(flops.sum(), at_peak.sum(), best)
        done = (flops.sum(), moved.sum(), t1 - t0)
        total = _roof("all", *done, len(rows), peak, best.hbm)
        rows.sort(key=lambda roof: roof.share)
        part = part_of_run(self._trace)
        return Roofline(t0, t1, peak, best.hbm, total, tuple(rows), part)

    def _sums(
        self, work: _Work, pe_of_node: Ints, pes: int, progress: Progress
    ) -> tuple[Floats, Floats, Floats]:
        """The FLOPs, those of a rate of 1, and the bytes of HBM, of each PE."""
        component = self._trace.op_columns.component
        flops = np.zeros(pes)
        at_peak = np.zeros(pes)
        moved = np.zeros(pes)
        for part in parts(len(component), progress):
            pe = pe_of_node[component[part]]
            mine = pe >= 0
            flops += np.bincount(pe[mine], work.flops[part][mine], pes)
            at_peak += np.bincount(pe[mine], work.at_peak[part][mine], pes)
            moved += np.bincount(pe[mine], work.moved[part][mine], pes)
        return flops, at_peak, moved

    # -- what every op does --

    def _all_work(self, progress: Progress) -> _Work:
        """The table of work; making it takes half a second for a million ops."""
        if self._work is None:
            touched = self._touched(stage(progress, 0.0, 0.4))
            trace = self._trace
            computed = _computed(trace, self._peaks, stage(progress, 0.4, 0.8))
            hbm_bytes = _hbm_bytes(trace, touched, stage(progress, 0.8, 0.85))
            streamed = _streamed(trace, touched, stage(progress, 0.85, 0.9))
            self._work = self._worked(
                computed, hbm_bytes, streamed, stage(progress, 0.9, 1.0)
            )
        return self._work

    def _worked(
        self,
        computed: _Computed,
        hbm_bytes: Floats,
        streamed: _Streamed,
        progress: Progress,
    ) -> _Work:
        """What every op does, from what it computes and its bytes of HBM, by row.

        The ideal time is that of the engine that would take longest, each at its peak:
        the array, MATH, HBM or PCIe, and what goes from TCM or to it.
        """
        trace = self._trace
        ops = trace.op_columns
        rates = self._peaks
        pcie = spec_number(trace.spec, "system.pcie_bw_gbs")
        tile = computed_beside(lambda: named(trace, TILE_PREFIX), progress, 0.0)
        # From TCM to TCM: what it sends of HBM is read from there before.
        copied = computed_beside(lambda: named(trace, "ipcq_"), progress, 0.0)
        codes = self._ops.class_codes(progress=stage(progress, 0.0, 0.5))

        counted = computed_beside(lambda: _are_counted(trace), progress, 0.0)
        flops = np.where(counted, computed.gemm + computed.elements, 0.0)
        gemm_ones = computed.gemm / computed.gemm_rate
        math_ones = computed.elements / computed.math_rate
        at_peak = np.where(counted, gemm_ones + computed.elements, 0.0)
        moved = np.empty(len(flops))
        ideal = np.empty(len(flops))
        for part in parts(len(flops), stage(progress, 0.5, 1.0)):
            is_tile = tile[part]
            is_copy = copied[part]
            code = codes[part]
            nbytes = ops.nbytes[part]
            from_hbm = hbm_bytes[part]
            moves = is_tile & ((code == _READ) | (code == _WRITE))
            from_hbm = np.where(moves, nbytes, from_hbm)
            by_memory = is_tile | (ops.kind[part] == KIND_RANK["memory"])
            moved[part] = np.where(by_memory, from_hbm, 0.0)

            in_pe = trace.nodes.pe[ops.component[part]] >= 0
            by_dma = in_pe & ~is_copy
            by_host = ~in_pe & ~is_copy
            amounts = (
                (gemm_ones[part], rates.gemm),
                (math_ones[part], rates.math),
                (from_hbm * by_dma, rates.hbm),
                (from_hbm * by_host, pcie),
                (nbytes * (code == _FETCH), rates.tcm_read),
                (nbytes * (is_copy | (code == _STORE)), rates.tcm_write),
                (streamed.read[part], rates.tcm_read),
                (streamed.written[part], rates.tcm_write),
            )
            times = [amount / (rate or np.inf) for amount, rate in amounts]
            ideal[part] = np.max(times, axis=0)
        return _Work(flops, at_peak, moved, ideal)


def _rounded(rate: float) -> str:
    """A rate or a ratio as a title has it: whole from 100 on, else three digits."""
    if rate >= 100:
        return f"{rate:,.0f}"
    return f"{rate:.3g}"


def _are_counted(trace: Trace) -> Bools:
    """Which ops count for what they compute: composites, and not their tiles.

    Of a composite that has not ended, or is not there, its tiles do instead; and all
    tiles in a part of a trace, which may have few of those of a composite.
    """
    composites = tile_composites(trace)
    if trace.window is None:
        return composites < 0
    with_tiles = np.zeros(len(composites), np.bool_)
    with_tiles[composites[composites >= 0]] = True
    return ~with_tiles


def _computed(trace: Trace, best: Peaks, progress: Progress) -> _Computed:
    """What every op computes, from the sizes and dtypes among its params.

    The dtypes of a tile are those of its composite.
    """
    count = len(trace.order)
    gemm = np.zeros(count)
    elements = np.zeros(count)
    gemm_rate = np.ones(count)
    math_rate = np.ones(count)
    for block in trace.param_blocks():
        sizes = {}
        for path, numbers in integers(block).items():
            sizes[path] = numbers.astype(np.float64)
        gemm[block.rows] = _gemm_flops(block.schema, sizes)
        elements[block.rows] = _math_elements(block.schema, sizes)
        gemm_rate[block.rows] = _slowest(trace, block, _MULTIPLIED, best.gemm_rates)
        math_rate[block.rows] = _slowest(trace, block, _WORKED_ON, best.math_rates)
        progress(0.8 * float(block.rows[-1] + 1) / count)
    parent = computed_beside(lambda: tile_composites(trace), progress, 0.8)
    tiles = np.flatnonzero(parent >= 0)
    gemm_rate[tiles] = gemm_rate[parent[tiles]]
    math_rate[tiles] = math_rate[parent[tiles]]
    return _Computed(gemm, elements, gemm_rate, math_rate)


def _slowest(
    trace: Trace, block: ParamBlock, params: Names, rates: Mapping[str, float]
) -> Floats:
    """The rate of the slowest dtype among some params, by row of a block; else 1."""
    slowest = np.full(len(block.rows), np.inf)
    for number, (path, letter) in enumerate(block.schema.leaves):
        if letter != "s" or path.partition(".")[0] not in params:
            continue
        texts, which = np.unique(block.values[f"f{number}"], return_inverse=True)
        found = [rates.get(trace.strings[text], 1.0) for text in texts.tolist()]
        slowest = np.minimum(slowest, np.array(found)[which])
    return np.where(np.isinf(slowest), 1.0, slowest)


def _streamed(trace: Trace, touched: AccessColumns, progress: Progress) -> _Streamed:
    """What dots and ops of MATH read from TCM and write to it, bytes by row.

    Nothing in a trace that has no rates: those ops did not stream yet.
    """
    count = len(trace.order)
    read = np.zeros(count)
    written = np.zeros(count)
    if not spec_number(trace.spec, "pe.gemm.rate.f16"):
        return _Streamed(read, written)
    is_tcm: Bools = np.array([space == "tcm" for space in touched.spaces], bool)
    kind = trace.op_columns.kind[:]
    streams = (kind == KIND_RANK["gemm"]) | (kind == KIND_RANK["math"])
    streams &= ~computed_beside(lambda: named(trace, "composite_"), progress, 0.0)
    for part in parts(len(touched.row), progress):
        rows = trace.order[touched.row[part]]
        mine = is_tcm[touched.space[part]] & streams[rows]
        nbytes = np.where(mine, touched.nbytes[part], 0)
        is_write = touched.mode[part] == 1
        np.add.at(read, rows, np.where(is_write, 0, nbytes))
        np.add.at(written, rows, np.where(is_write, nbytes, 0))
    return _Streamed(read, written)


def _hbm_bytes(trace: Trace, touched: AccessColumns, progress: Progress) -> Floats:
    """How many bytes of HBM each op reads and writes, by row."""
    is_hbm: Bools = np.array([space == "hbm" for space in touched.spaces], bool)
    nbytes = np.zeros(len(trace.order))
    for part in parts(len(touched.row), progress):
        mine = is_hbm[touched.space[part]]
        rows = trace.order[touched.row[part][mine]]
        np.add.at(nbytes, rows, touched.nbytes[part][mine])
    return nbytes


def _peak_gflops(flops: float, at_peak: float, best: Peaks) -> float:
    """The peak of a PE for the mix of dtypes of some FLOPs; of f16 if there are none.

    In the time of these FLOPs ``at_peak`` are done at a rate of 1.
    """
    if at_peak:
        return best.gemm * flops / at_peak
    return best.gemm * best.gemm_rates["f16"]


def _roof(
    name: str,
    flops: float,
    nbytes: float,
    ns: float,
    pes: int,
    peak_gflops: float,
    peak_gbs: float,
) -> Roof:
    """What so many PEs did together in ``ns``, against the peaks of each.

    Where nothing was computed the share is that of the peak bytes of HBM.
    """
    attained = flops / ns
    intensity = flops / nbytes if nbytes else float("inf")
    if flops:
        share = attained / min(peak_gflops, intensity * peak_gbs) / pes
    else:
        share = nbytes / ns / peak_gbs / max(pes, 1)
    bound = "compute" if intensity * peak_gbs >= peak_gflops else "memory"
    return Roof(name, round(flops), round(nbytes), intensity, attained, bound, share)


def _gemm_flops(schema: Schema, sizes: dict[str, Any]) -> Any:
    """The FLOPs of the array, of ops of one schema whose numbers are ``sizes``.

    A number may be a column: then so is the answer. A tile counts what it multiplies;
    so does its composite, of which ``_Work`` counts only one.
    """
    if schema.name == "TileToken/GEMM":
        return 2 * _boxes(sizes)["extent"]
    if schema.name == "TileToken/MATH":
        return 0
    if schema.kind == "gemm" or "m" in sizes:
        return 2 * _size(sizes, "m") * _size(sizes, "n") * _size(sizes, "k")
    return 0


def _math_elements(schema: Schema, sizes: dict[str, Any]) -> Any:
    """The elements of MATH, of ops of one schema whose numbers are ``sizes``.

    An op of MATH works on as many as its largest operand or its result has, so that a
    reduction counts what it reads. An epilogue works on the m x n of its gemm.
    """
    listed = [path.split(".")[0] for path, _ in schema.leaves]
    if schema.name == "TileToken/GEMM":
        return 0
    if schema.name == "TileToken/MATH":
        elements = _size(sizes, "extent.0") * _size(sizes, "extent.1")
        return elements * listed.count("ops")
    if schema.kind == "gemm" or "m" in sizes:
        return _size(sizes, "m") * _size(sizes, "n") * listed.count("epilogue")
    if schema.kind == "math":
        boxes = _boxes(sizes)
        inputs = [boxes[path] for path in [*boxes] if path.startswith("input_shapes.")]
        return reduce(np.maximum, [boxes["shape_out"], *inputs])
    return 0


def _size(sizes: dict[str, Any], path: str) -> Any:
    """A number among the params; 0 where there is none."""
    return sizes.get(path, 0)


def _boxes(sizes: dict[str, Any]) -> dict[str, Any]:
    """The product of the extents of each shape, by its path; 1 where there is none."""
    boxes = defaultdict[str, Any](lambda: 1.0)
    for path, size in sizes.items():
        shape = path.rpartition(".")[0]
        boxes[shape] = boxes[shape] * size
    return boxes
