"""What a PE can do at most: the one place that has the formulas."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple


class Peaks(NamedTuple):
    """Of one PE and a ns: FLOPs of the array, elements of MATH, bytes of its HBM slice and TCM."""

    gemm: float
    math: float
    hbm: float
    tcm_read: float
    tcm_write: float


def peaks(number: Callable[[str], float]) -> Peaks:
    """``number`` gives a field of the spec by its dotted path."""
    clock, channels = number("pe.clock_ghz"), number("cube.hbm.channels")
    return Peaks(
        2 * number("pe.gemm.rows") * number("pe.gemm.cols") * clock,
        number("pe.math.lanes") * clock,
        min(
            channels * number("cube.hbm.channel_bw_gbs"),
            number("cube.hbm.to_router_bw_gbs"),
        ),
        number("pe.tcm.read_bw_gbs"),
        number("pe.tcm.write_bw_gbs"),
    )
