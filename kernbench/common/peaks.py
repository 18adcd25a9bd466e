"""What a PE can do at most: the one place that has the formulas."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from kernbench.common.dtypes import DTYPES


class Peaks(NamedTuple):
    """The most that one PE can do in a nanosecond.

    ``gemm`` is in floating-point operations of the MAC array (a multiply-add counts
    two), ``math`` in elements of the vector unit, both of a dtype whose rate is 1; the
    rates are by dtype. ``hbm``, ``tcm_read`` and ``tcm_write`` are in bytes: of the
    PE's own HBM slice, and of its TCM.
    """

    gemm: float
    math: float
    gemm_rates: Mapping[str, float]
    math_rates: Mapping[str, float]
    hbm: float
    tcm_read: float
    tcm_write: float


def peaks(number: Callable[[str], float]) -> Peaks:
    """The peaks of a machine; ``number`` gives a field of its spec by dotted path.

    So the machine may be a spec as well as what a trace has kept of one. A rate that is
    0 is one that a trace does not have: when it was recorded, all dtypes were equally
    fast. An HBM slice is as fast as its channels together, or as its link to the router
    if that is slower.
    """
    clock_ghz = number("pe.clock_ghz")
    macs = number("pe.gemm.rows") * number("pe.gemm.cols")
    channels_gbs = number("cube.hbm.channels") * number("cube.hbm.channel_bw_gbs")
    return Peaks(
        gemm=2 * macs * clock_ghz,
        math=number("pe.math.lanes") * clock_ghz,
        gemm_rates=_rates(number, "pe.gemm.rate"),
        math_rates=_rates(number, "pe.math.rate"),
        hbm=min(channels_gbs, number("cube.hbm.to_router_bw_gbs")),
        tcm_read=number("pe.tcm.read_bw_gbs"),
        tcm_write=number("pe.tcm.write_bw_gbs"),
    )


def _rates(number: Callable[[str], float], section: str) -> dict[str, float]:
    """The rate of every dtype, by its name."""
    return {
        name: number(f"{section}.{row.rate}") or 1.0 for name, row in DTYPES.items()
    }
