"""FLOPs and HBM bytes of every PE against what the machine can do, and the ideal time of every op.

A gemm of m, n, k is 2mnk FLOPs; an op of MATH, and a step of an epilogue, one an element.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import partial, reduce
from math import log10
from typing import Any

import numpy as np

from kernbench.common.peaks import peaks
from kernbench.common.progress import Progress
from kernbench.errors import TraceFormatError
from kernbench.replay.answers import OpRow
from kernbench.replay.text import wrapped
from kernbench.replay.time.routes import spec_number
from kernbench.replay.time.timeline import CLASSES, Timelines
from kernbench.sim_engine.accesses import AccessColumns
from kernbench.sim_engine.op_log import KIND_RANK
from kernbench.trace import Trace
from kernbench.trace.hops import integers, named
from kernbench.trace.params import Schema

_PLOT, _SHOWN = 10, 8  # rows of the plot; PEs in the text


@dataclass(frozen=True, slots=True)
class Roof:
    """One PE: FLOPs, bytes to and from HBM, FLOPs a byte, FLOPs a ns, and ``share`` of its roof."""

    pe: str
    flops: int
    nbytes: int
    intensity: float
    gflops: float
    bound: str
    share: float


@dataclass(frozen=True, slots=True)
class Roofline:
    """All PEs over [t0, t1) ns, the furthest from their roof first; peaks are of one PE."""

    t0: float
    t1: float
    peak_gflops: float
    peak_gbs: float
    total: Roof
    pes: tuple[Roof, ...]

    def lines(self, width: int) -> list[str]:
        """As text for ``width`` columns."""
        ridge = self.peak_gflops / self.peak_gbs
        head = f"a PE: {self.peak_gflops:,g} GFLOP/s, {self.peak_gbs:g} GB/s of HBM"
        lines = [f"{head}; memory bound below {ridge:g} FLOPs a byte"]
        lines += [
            f"{r.share:>6.1%} {r.pe:<16} {r.bound:<7}{r.gflops:>9,.1f} GFLOP/s"
            f"{r.intensity:>8.2f} FLOP/B {r.flops:>14,} FLOP {r.nbytes:>12,} B"
            for r in (self.total, *self.pes[:_SHOWN])
        ]
        more = len(self.pes) - _SHOWN
        lines += [f"({more:,} closer to their roof)"] if more > 0 else []
        return lines + self._plot(min(max(width - 12, 8), 60))

    def _plot(self, columns: int) -> list[str]:
        """The roof over the intensity, both on log scales; * is a PE, T their mean."""
        n = max(len(self.pes), 1)
        dots = [("*", p.intensity, p.gflops) for p in self.pes]
        dots.append(("T", self.total.intensity, self.total.gflops / n))
        dots = [d for d in dots if 0 < d[1] < np.inf and d[2] > 0]
        ridge, top = self.peak_gflops / self.peak_gbs, log10(self.peak_gflops)
        left = log10(min([ridge, *(x for _, x, _ in dots)]) / 4)
        wide = log10(max([ridge, *(x for _, x, _ in dots)]) * 4) - left
        low = min([top - 1, *(log10(y) for *_, y in dots)])
        roof = [10 ** (left + wide * (c + 0.5) / columns) for c in range(columns)]
        dots = [
            ("-" if x > ridge else "/", x, min(self.peak_gflops, x * self.peak_gbs))
            for x in roof
        ] + dots
        grid = [[" "] * columns for _ in range(_PLOT)]
        for mark, x, y in dots:
            row = round((top - log10(y)) / (top - low) * (_PLOT - 1))
            column = min(int((log10(x) - left) / wide * columns), columns - 1)
            if row < _PLOT:
                grid[row][column] = mark
        lines = [
            f"{10 ** (top - (top - low) * r / (_PLOT - 1)):>10.4g} |" + "".join(grid[r])
            for r in range(_PLOT)
        ]
        return [
            *lines,
            f"{'GFLOP/s':>10} +{10**left:.2g} … {10 ** (left + wide):.3g} FLOPs a byte",
        ]


@dataclass(frozen=True, slots=True)
class Bound:
    """The time of an op, what it would take alone at peak rates, and how much later it might end
    without moving the end; ns.
    """

    op: OpRow
    real: float
    ideal: float
    slack: float

    def lines(self, width: int) -> list[str]:
        """As text for ``width`` columns."""
        where = f"op {self.op.op:,} {self.op.name} on {self.op.component} took {self.real:.2f} ns"
        ideal = f"{where}, ideal {self.ideal:.2f} ns, slack {self.slack:.2f} ns"
        return wrapped(ideal, width, 2)


class Work:
    """What each row does: ``gemm`` FLOPs, MATH ``elements``, bytes ``moved`` of HBM; ``ideal`` is
    the ns that it would take alone at the machine's peak rates (a composite: its slowest engine).
    """

    def __init__(
        self,
        trace: Trace,
        touched: AccessColumns,
        timelines: Timelines,
        progress: Progress,
    ) -> None:
        ops, self._trace, n = trace.op_columns, trace, len(trace.order)
        self.gemm, self.elements, tile = (
            np.zeros(n),
            np.zeros(n),
            named(trace, "TileToken/"),
        )
        for block in trace.param_blocks():
            sizes = {path: n.astype(np.float64) for path, n in integers(block).items()}
            self.gemm[block.rows], self.elements[block.rows] = _work(
                block.schema, sizes
            )
            progress(0.8 * float(block.rows[-1] + 1) / n)
        self.peaks = peaks(partial(spec_number, trace.spec))
        hbm = np.isin(
            touched.space, [i for i, x in enumerate(touched.spaces) if x == "hbm"]
        )
        nbytes = np.bincount(trace.order[touched.row[hbm]], touched.nbytes[hbm], n)
        letter = np.array([*CLASSES])[timelines.codes(np.arange(n))]
        nbytes = np.where(tile & np.isin(letter, ("R", "W")), ops.nbytes, nbytes)
        # what is counted once: a composite computes, its tiles move
        self.moved = np.where(tile | (ops.kind == KIND_RANK["memory"]), nbytes, 0.0)
        copied = named(
            trace, "ipcq_"
        )  # from TCM to TCM; what it reads of HBM it reads before
        own, rates = (trace.nodes.pe[ops.component] >= 0) & ~copied, self.peaks
        parts = [
            (self.gemm, rates.gemm),
            (self.elements, rates.math),
            (nbytes * own, rates.hbm),
            (nbytes * ~(own | copied), spec_number(trace.spec, "system.pcie_bw_gbs")),
            (ops.nbytes * (letter == "F"), rates.tcm_read),
            (ops.nbytes * (copied | (letter == "S")), rates.tcm_write),
        ]
        self.ideal = np.max(
            [amount / (rate or np.inf) for amount, rate in parts], axis=0
        )
        self.flops = np.where(tile, 0.0, self.gemm + self.elements)

    def roofline(self, t0: float, t1: float) -> Roofline:
        """Of the PEs that did something, over [t0, t1) ns."""
        ops, nodes, best = self._trace.op_columns, self._trace.nodes, self.peaks
        if not (best.gemm > 0 and best.hbm > 0):
            what = f"{self._trace.path}: its topology says no peaks, or is damaged"
            raise TraceFormatError(f"{what}; record it again")
        some = np.flatnonzero(nodes.pe[ops.component] >= 0)
        node = ops.component[some]
        place = np.stack([nodes.sip[node], nodes.cube[node], nodes.pe[node]])
        places, which = np.unique(place, axis=1, return_inverse=True)
        sums = [np.bincount(which.ravel(), x[some]) for x in (self.flops, self.moved)]
        names = [f"sip{s}.cube{c}.pe{p}" for s, c, p in places.T.tolist()]
        rows = [
            self._roof(names[i], sums[0][i], sums[1][i], t1 - t0)
            for i in range(len(names))
        ]
        total = self._roof("all", sums[0].sum(), sums[1].sum(), t1 - t0, len(names))
        rows.sort(key=lambda r: r.share)
        return Roofline(t0, t1, best.gemm, best.hbm, total, tuple(rows))

    def _roof(
        self, name: str, flops: float, nbytes: float, ns: float, pes: int = 1
    ) -> Roof:
        best, attained = self.peaks, flops / ns
        intensity = flops / nbytes if nbytes else float("inf")
        roof = min(best.gemm, intensity * best.hbm)
        share = attained / roof / pes if flops else nbytes / ns / best.hbm / max(pes, 1)
        bound = "compute" if intensity * best.hbm >= best.gemm else "memory"
        return Roof(
            name, round(flops), round(nbytes), intensity, attained, bound, share
        )


def _work(schema: Schema, sizes: dict[str, Any]) -> tuple[Any, Any]:
    """FLOPs of the array and elements of MATH, of ops of one schema."""
    listed = [path.split(".")[0] for path, _ in schema.leaves]
    boxes = defaultdict[str, Any](lambda: 1.0)
    for path, size in sizes.items():
        boxes[path.rpartition(".")[0]] = boxes[path.rpartition(".")[0]] * size
    if schema.name == "TileToken/GEMM":
        return 2 * boxes["extent"], 0
    m, k, n = (sizes.get(axis, 0) for axis in "mkn")
    if schema.name == "TileToken/MATH":
        return 0, sizes.get("extent.0", 0) * sizes.get("extent.1", 0) * listed.count(
            "ops"
        )
    if schema.kind == "gemm" or "m" in sizes:
        return 2 * m * n * k, m * n * listed.count("epilogue")
    shapes = [
        boxes["shape_out"],
        *(boxes[x] for x in [*boxes] if x.startswith("input_shapes.")),
    ]
    return 0, reduce(np.maximum, shapes) if schema.kind == "math" else 0
