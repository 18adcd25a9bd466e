"""Comparing data with their reference (ADR-0020 D11). Knows no op and no executor."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass, fields, replace
from itertools import repeat
from math import inf
from operator import attrgetter
from typing import Any

import numpy as np

from kernbench.common.arrays import Array
from kernbench.common.dtypes import Tolerance, is_float, name_of
from kernbench.errors import MemoryStoreError, VerificationError
from kernbench.sim_engine.memory_store import MemoryStore

_WIDTH = 100


@dataclass(frozen=True, slots=True, eq=False)
class Expectation:
    """What ``dtype`` bytes at (space, addr) must hold once the first ``after`` ops have run.

    ``array`` has the shard's shape; ``origin`` is where that lies in the whole ``tensor``.
    """

    space: str
    addr: int
    array: Array
    dtype: str
    tolerance: Tolerance
    after: int
    tensor: str = ""
    shard: int = 0
    origin: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class VerifyRow:
    """One comparison; ``note`` says why there was nothing to compare.

    The maxima are over elements finite on both sides; ``max_rel`` over references other than 0,
    ``max_ulp`` in steps of the actual's float dtype. ``nans``, ``infs``: of (actual, expected).
    """

    name: str
    tensor: str
    dtype: str
    elements: int
    tolerance: Tolerance
    ok: bool = False
    mismatches: int = 0
    max_abs: float = 0.0
    max_rel: float = 0.0
    max_ulp: int = 0
    nans: tuple[int, int] = (0, 0)
    infs: tuple[int, int] = (0, 0)
    first_bad: tuple[int, ...] | None = None
    note: str = ""

    @property
    def worst(self) -> tuple[float, float, float]:
        """The maxima; inf where a side holds a NaN or infinity that the other does not."""
        same = len({*self.nans}) == len({*self.infs}) == 1
        return (self.max_abs, self.max_rel, self.max_ulp) if same else (inf, inf, inf)

    @property
    def left_out(self) -> str:
        """What is to be said before the maxima: how many elements they leave out, if any."""
        odd = max(map(sum, zip(self.nans, self.infs, strict=True)))
        return f"{odd:,} not finite, else " * bool(odd)


def ulp_distance(a: Array, b: Array) -> Array:
    """How many values of their float dtype two arrays are apart; +0 and -0 are one."""
    bits = np.dtype(f"u{a.dtype.itemsize}")
    sign = bits.type(1 << (8 * bits.itemsize - 1))
    ua, ub = a.view(bits), b.view(bits)
    ma, mb = (ua & ~sign).astype(np.uint64), (ub & ~sign).astype(np.uint64)
    return np.asarray(
        np.where((ua ^ ub) & sign, ma + mb, np.maximum(ma, mb) - np.minimum(ma, mb))
    )


def _distance(actual: Array, expected: Array) -> Array:
    """|actual - expected| in f64; of integers of one dtype taken exactly first."""
    if actual.dtype == expected.dtype and actual.dtype.kind in "iu":
        high, low = np.maximum(actual, expected), np.minimum(actual, expected)
        return (high.astype(np.uint64) - low.astype(np.uint64)).astype(np.float64)
    return np.abs(actual.astype(np.float64) - expected.astype(np.float64))


@np.errstate(all="ignore")
def mismatches(actual: Array, expected: Array, tolerance: Tolerance) -> Array:
    """Which elements are bad, as ``compare`` says."""
    a, r = actual.astype(np.float64), expected.astype(np.float64)
    near = _distance(actual, expected) <= tolerance.atol + tolerance.rtol * np.abs(r)
    same = (a == r) | (np.isnan(a) & np.isnan(r))
    return np.asarray(~np.where(np.isfinite(a) & np.isfinite(r), near, same))


def first_index(bad: Array, origin: tuple[int, ...] = ()) -> tuple[int, ...] | None:
    """The index of the first bad element in the whole tensor; None if there is none."""
    if not bad.any():
        return None
    index = np.unravel_index(int(np.argmax(bad)), bad.shape)
    offsets = origin if len(origin) == len(index) else repeat(0)
    return tuple(int(i) + o for i, o in zip(index, offsets, strict=False))


def compare(
    actual: Array,
    expected: Array,
    tolerance: Tolerance,
    name: str = "",
    tensor: str = "",
    origin: tuple[int, ...] = (),
) -> VerifyRow:
    """How ``actual`` differs from ``expected``: same shape, any dtypes; compared by value in f64.

    An element is good if |a - r| <= atol + rtol * |r|, or if both are NaN or the same infinity.
    ``first_bad`` is relative to ``origin``. VerificationError if the shapes differ.
    """
    if actual.shape != expected.shape:
        raise VerificationError(
            f"{name or 'actual'}: shape {actual.shape} cannot be compared with a reference of "
            f"shape {expected.shape}; give a reference of the tensor's own shape"
        )
    dtype, shape = name_of(actual.dtype), actual.shape
    actual, expected = actual.reshape(-1), expected.reshape(-1)
    with np.errstate(all="ignore"):
        a, r = actual.astype(np.float64), expected.astype(np.float64)
        if np.array_equal(
            *((actual, expected) if actual.dtype == expected.dtype else (a, r))
        ):
            infs = (
                int(np.isinf(a).sum()),
            ) * 2  # as of copies; no NaN is equal to itself
            return VerifyRow(
                name, tensor or name, dtype, actual.size, tolerance, ok=True, infs=infs
            )
        apart, finite = _distance(actual, expected), np.isfinite(a) & np.isfinite(r)
        bad = mismatches(actual, expected, tolerance)
        relative = (apart / np.abs(r))[finite & (r != 0)]
        steps = np.zeros(1, np.uint64)
        if is_float(dtype):
            nearest = expected.astype(actual.dtype)
            steps = ulp_distance(actual, nearest)[finite & np.isfinite(nearest)]
    first, wrong = first_index(bad.reshape(shape), origin), int(np.count_nonzero(bad))
    max_abs, max_rel = (
        float(np.max(x, initial=0.0)) for x in (apart[finite], relative)
    )
    nans, infs = (
        (int(is_so(a).sum()), int(is_so(r).sum())) for is_so in (np.isnan, np.isinf)
    )
    found = (
        first is None,
        wrong,
        max_abs,
        max_rel,
        int(np.max(steps, initial=0)),
        nans,
        infs,
        first,
    )
    return VerifyRow(name, tensor or name, dtype, actual.size, tolerance, *found)


def missing(name: str, e: Expectation, note: str) -> VerifyRow:
    """The row of an expectation that has nothing to be compared with; never ok."""
    return VerifyRow(
        name, e.tensor or name, e.dtype, e.array.size, e.tolerance, note=note
    )


def judge(name: str, e: Expectation, store: MemoryStore) -> VerifyRow:
    """The row of one expectation against ``store``; bytes never written make it not ok."""
    try:
        actual = store.view(e.space, e.addr, e.array.shape, e.dtype)
    except MemoryStoreError as error:
        return missing(name, e, str(error))
    return compare(actual, e.array, e.tolerance, name, e.tensor, e.origin)


def _merged(tensor: str, rows: list[VerifyRow]) -> VerifyRow:
    names = [f.name for f in fields(VerifyRow)]
    columns = dict(
        zip(names, zip(*map(attrgetter(*names), rows), strict=True), strict=True)
    )
    merged: dict[str, Any] = {
        name: sum(columns[name]) for name in ("elements", "mismatches")
    }
    merged |= {name: max(columns[name]) for name in ("max_abs", "max_rel", "max_ulp")}
    merged |= {
        name: tuple(map(sum, zip(*columns[name], strict=True)))
        for name in ("nans", "infs")
    }
    bad = [index for index in columns["first_bad"] if index is not None]
    note = next((f"{row.name}: {row.note}" for row in rows if row.note), "")
    merged |= {
        "first_bad": min(bad, default=None),
        "note": note,
        "ok": all(columns["ok"]),
    }
    return replace(rows[0], name=tensor, **merged)


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """The verdict: one row an expectation, in the order in which they were given."""

    rows: tuple[VerifyRow, ...]

    @property
    def ok(self) -> bool:
        """Whether every row is."""
        return all(row.ok for row in self.rows)

    def by_tensor(self) -> tuple[VerifyRow, ...]:
        """One row a tensor: sums and maxima over its shards and copies, the lowest bad index."""
        groups: dict[str, list[VerifyRow]] = {}
        for row in self.rows:
            groups.setdefault(row.tensor, []).append(row)
        return tuple(_merged(tensor, rows) for tensor, rows in groups.items())

    def as_text(self) -> str:
        """A table of ``by_tensor`` with its notes below, at most 100 columns wide."""
        rows = self.by_tensor()
        table = [_HEADER, *map(_cells, rows)]
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        widths[0] = max(min(widths[0], _WIDTH - sum(widths[1:]) - len(widths) + 1), 8)
        lines = []
        for name, *rest in table:
            clipped = name if len(name) <= widths[0] else name[: widths[0] - 1] + "…"
            sides = zip((clipped, *rest), "<<" + ">" * 9, widths, strict=True)
            lines.append(
                " ".join(f"{c:{side}{w}}" for c, side, w in sides)[:_WIDTH].rstrip()
            )
        for row in rows:
            lines += textwrap.wrap(row.note, _WIDTH, subsequent_indent="  ")
        return "\n".join(lines)


_HEADER = (
    "tensor",
    "dtype",
    "elements",
    "ok?",
    "bad",
    "abs",
    "rel",
    "ulp",
    "nan",
    "inf",
    "first",
)


def _cells(row: VerifyRow) -> tuple[str, ...]:
    apart, relative, steps = row.worst
    return (
        row.tensor,
        row.dtype,
        str(row.elements),
        "ok" if row.ok else "FAIL",
        str(row.mismatches),
        f"{apart:.1e}",
        f"{relative:.1e}",
        str(steps) if steps < 10**6 else f"{steps:.0e}",
        *(f"{actual}/{reference}" for actual, reference in (row.nans, row.infs)),
        "" if row.first_bad is None else ",".join(map(str, row.first_bad)),
    )
