"""Comparing data with their reference (ADR-0020 D11). Knows no op and no executor."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any

import numpy as np

from kernbench.common.arrays import Array, Bools, Floats, as_f64
from kernbench.common.dtypes import Tolerance, is_float, name_of, nbytes_of, np_dtype
from kernbench.common.progress import Progress, computed_beside, no_progress
from kernbench.errors import MemoryStoreError, VerificationError
from kernbench.sim_engine.memory_store import MemoryStore

_WIDTH = 100
"""Columns of a report at most."""

_LONG = 1 << 16
"""Elements from which on comparing may take some ms."""


@dataclass(frozen=True, slots=True, eq=False)
class Expectation:
    """What ``dtype`` bytes at (space, addr) must hold once ``after`` ops have run.

    ``array`` has the shard's shape; ``origin`` is where that lies in the whole
    ``tensor``.
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

    The maxima are over elements that are finite on both sides: ``max_rel`` over those
    whose reference is not 0, ``max_ulp`` in steps of the actual's float dtype. ``nans``
    and ``infs`` are counts (of the actual, of the expected). ``first_bad`` is an index
    in the whole tensor.
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
        """The maxima; inf if one side has a NaN or infinity that the other lacks."""
        same_nans = self.nans[0] == self.nans[1]
        same_infs = self.infs[0] == self.infs[1]
        if same_nans and same_infs:
            return (self.max_abs, self.max_rel, self.max_ulp)
        return (inf, inf, inf)

    @property
    def left_out(self) -> str:
        """What to say before the maxima: how many elements they leave out, if any."""
        odd = max(self.nans[0] + self.infs[0], self.nans[1] + self.infs[1])
        if not odd:
            return ""
        return f"{odd:,} not finite, else "

    @property
    def not_finite(self) -> str:
        """What to say of a reference that is NaN or infinite somewhere."""
        nans = self.nans[1]
        infs = self.infs[1]
        if not nans + infs:
            return ""
        return (
            f"{self.tensor}: the reference itself is not finite at {nans + infs:,} of "
            f"{self.elements:,} elements ({nans:,} NaN, {infs:,} infinite), and the "
            "same there counts as right"
        )


def ulp_distance(a: Array, b: Array) -> Array:
    """How many values of their float dtype two arrays are apart; +0 and -0 are one."""
    bits = np.dtype(f"u{a.dtype.itemsize}")
    sign = bits.type(1 << (8 * bits.itemsize - 1))
    bits_a = a.view(bits)
    bits_b = b.view(bits)
    size_a = (bits_a & ~sign).astype(np.uint64)
    size_b = (bits_b & ~sign).astype(np.uint64)
    apart = np.maximum(size_a, size_b) - np.minimum(size_a, size_b)
    other_sign = (bits_a ^ bits_b) & sign
    return np.asarray(np.where(other_sign, size_a + size_b, apart))


def fits(values: Array, dtype: str) -> Bools:
    """Which numbers ``dtype`` has, when they are rounded to it.

    Of an integer those are the ones in its range, and NaN is not; a float has all, as
    what is too large for it rounds to infinity. bool has all, too.
    """
    as_stored: np.dtype[Any] = np_dtype(dtype)
    if as_stored.kind not in "iu":
        return np.ones(values.shape, np.bool_)
    lowest = int(np.iinfo(as_stored).min)
    highest = int(np.iinfo(as_stored).max)
    if values.dtype.kind in "iub":
        return np.asarray((values >= lowest) & (values <= highest))
    whole = np.trunc(as_f64(values, copy=False))
    # f64 has the number behind the highest, but not always the highest itself
    return np.asarray((whole >= float(lowest)) & (whole < float(highest + 1)))


def as_stored(name: str, reference: Array, dtype: str) -> Array:
    """A reference rounded to the dtype in which the tensor ``name`` is stored.

    VerificationError for a number that the dtype has not. Wrapped it would be another
    one, and the same as that of a kernel that wraps where it should not.
    """
    first = first_index(np.asarray(~fits(reference, dtype)))
    if first is not None:
        raise VerificationError(
            f"expect {name!r}: the reference has {reference[first]} at {list(first)}, "
            f"and {dtype} has no such number; give the tensor a wider dtype or, if it "
            f"is to wrap, the reference as .astype({np_dtype(dtype).name!r})"
        )
    return rounded(reference, dtype)


def rounded(values: Array, dtype: str) -> Array:
    """A copy of some numbers in another dtype, row-major; see ``lost_numbers``."""
    with np.errstate(over="ignore", invalid="ignore"):
        return np.array(values, np_dtype(dtype), order="C")


def lost_numbers(what: str, given: Array, stored: Array, dtype: str) -> str:
    """Which of some numbers ``dtype`` has not, even rounded, in words.

    Of a float those are finite ones that are too large for it. ``stored`` is what
    ``rounded`` made of the ``given`` ones. Nothing if all are there.
    """
    if given.dtype == stored.dtype:
        return ""
    if is_float(dtype):
        odd: Bools = np.asarray(~np.isfinite(stored))
        lost = odd & np.isfinite(as_f64(given)) if odd.any() else odd
    else:
        lost = np.asarray(~fits(given, dtype))
    first = first_index(lost)
    if first is None:
        return ""
    return (
        f"{what}: {dtype} has no such number as {int(lost.sum()):,} of the "
        f"{lost.size:,} given, the first of them {given[first]} at {list(first)}, "
        f"which is taken as {stored[first]}"
    )


def _distance(actual: Array, expected: Array, a: Floats, r: Floats) -> Floats:
    """|actual - expected| in f64, in which they are ``a`` and ``r``; of integers of one
    dtype it is exact.
    """
    if actual.dtype == expected.dtype and actual.dtype.kind in "iu":
        high = np.maximum(actual, expected).astype(np.uint64)
        low = np.minimum(actual, expected).astype(np.uint64)
        return as_f64(high - low)
    return np.abs(a - r)


def _as_actual(actual: Array, expected: Array) -> Array:
    """The expected numbers, rounded if they are floats and the actual ones are not.

    What the dtype of the actual ones has not, as 300 of an i8, is not wrapped.
    """
    if expected.dtype.kind in "iub":
        return expected
    if actual.dtype.kind in "iu":
        return np.asarray(np.trunc(as_f64(expected, copy=False)))
    if actual.dtype.kind == "b":
        return np.asarray(expected != 0)
    return expected


@np.errstate(all="ignore")
def mismatches(actual: Array, expected: Array, tolerance: Tolerance) -> Bools:
    """Which elements are bad, as ``compare`` says."""
    expected = _as_actual(actual, expected)
    a = as_f64(actual, copy=False)
    r = as_f64(expected, copy=False)
    both_finite: Bools = np.isfinite(a) & np.isfinite(r)
    return _bad(a, r, _distance(actual, expected, a, r), both_finite, tolerance)


def _bad(
    a: Floats, r: Floats, apart: Floats, both_finite: Bools, tolerance: Tolerance
) -> Bools:
    """Which elements are bad, of what is so far ``apart``."""
    near = apart <= tolerance.atol + tolerance.rtol * np.abs(r)
    if both_finite.all():
        return np.asarray(~near)
    same = (a == r) | (np.isnan(a) & np.isnan(r))
    return np.asarray(~np.where(both_finite, near, same))


def first_index(bad: Bools, origin: tuple[int, ...] = ()) -> tuple[int, ...] | None:
    """The index of the first bad element in the whole tensor; None if there is none."""
    if not bad.any():
        return None
    index = np.unravel_index(int(np.argmax(bad)), bad.shape)
    offsets = origin
    if len(origin) != len(index):
        offsets = (0,) * len(index)
    return tuple(int(i) + o for i, o in zip(index, offsets, strict=True))


@np.errstate(all="ignore")
def compare(
    actual: Array,
    expected: Array,
    tolerance: Tolerance,
    name: str = "",
    tensor: str = "",
    origin: tuple[int, ...] = (),
) -> VerifyRow:
    """How ``actual`` differs from ``expected``, by value in f64.

    Both have the same shape, and any dtypes. An element is good if |a - r| <= atol +
    rtol * |r|, or if both are NaN or the same infinity. Integers are compared with the
    whole part of a float, and truths with whether it is 0. ``first_bad`` is relative to
    ``origin``. Raises VerificationError if the shapes differ.
    """
    if actual.shape != expected.shape:
        raise VerificationError(
            f"{name or 'actual'}: shape {actual.shape} cannot be compared with a "
            f"reference of shape {expected.shape}; give a reference of the tensor's "
            "own shape"
        )
    dtype = name_of(actual.dtype)
    shape = actual.shape
    row = VerifyRow(name, tensor or name, dtype, actual.size, tolerance)
    actual = actual.reshape(-1)
    expected = _as_actual(actual, expected.reshape(-1))
    a = as_f64(actual, copy=False)
    r = as_f64(expected, copy=False)
    if _are_equal(actual, expected, a, r):
        infs = int(np.isinf(a).sum())  # there is no NaN, which is equal to nothing
        return replace(row, ok=True, infs=(infs, infs))
    finite: Bools = np.isfinite(a) & np.isfinite(r)
    apart = _distance(actual, expected, a, r)
    bad = _bad(a, r, apart, finite, tolerance)
    first = first_index(bad.reshape(shape), origin)
    row = replace(
        row,
        ok=first is None,
        mismatches=int(np.count_nonzero(bad)),
        max_abs=float(np.max(apart, initial=0.0, where=finite)),
        max_rel=float(np.max(apart / np.abs(r), initial=0.0, where=finite & (r != 0))),
        max_ulp=_most_ulps(actual, expected, finite) if is_float(dtype) else 0,
        first_bad=first,
    )
    if finite.all():
        return row
    return replace(
        row,
        nans=(int(np.isnan(a).sum()), int(np.isnan(r).sum())),
        infs=(int(np.isinf(a).sum()), int(np.isinf(r).sum())),
    )


def _most_ulps(actual: Array, expected: Array, finite: Bools) -> int:
    """How far elements that are ``finite`` are apart at most, in steps of the actual's
    dtype; but for those whose reference is infinite in that.
    """
    nearest = expected.astype(actual.dtype, copy=False)
    ulps = ulp_distance(actual, nearest)
    return int(np.max(ulps, initial=0, where=finite & np.isfinite(nearest)))


def _are_equal(actual: Array, expected: Array, a: Floats, r: Floats) -> bool:
    """Whether all values are the same; ``a`` and ``r`` are the two sides in f64."""
    if actual.dtype == expected.dtype:
        return np.array_equal(actual, expected)
    return np.array_equal(a, r)


def missing(name: str, e: Expectation, note: str) -> VerifyRow:
    """The row of an expectation that has nothing to be compared with; never ok."""
    return VerifyRow(
        name, e.tensor or name, e.dtype, e.array.size, e.tolerance, note=note
    )


def judge_part(name: str, e: Expectation, values: Array, written: Bools) -> VerifyRow:
    """The row of an expectation of which some bytes were never ``written``.

    ``values`` are its bytes. An element of which any is missing is bad. The first bad
    one is one that was written, if there is such a one: there an op made a mistake.
    """
    dtype = np_dtype(e.dtype)
    actual = np.ascontiguousarray(values).view(dtype).reshape(e.array.shape).copy()
    is_whole = written.reshape(-1, dtype.itemsize).all(axis=1)
    lost: Bools = np.asarray(~is_whole.reshape(e.array.shape))
    with np.errstate(all="ignore"):
        actual[lost] = e.array[lost].astype(dtype)
        wanted = e.array.copy()
        wanted[lost] = actual[lost]
    row = compare(actual, wanted, e.tolerance, name, e.tensor, e.origin)
    count = int(lost.sum())
    return replace(
        row,
        ok=False,
        mismatches=row.mismatches + count,
        first_bad=row.first_bad or first_index(lost, e.origin),
        note=f"{count:,} of the {row.elements:,} elements were never written",
    )


def _bytes_of(e: Expectation, store: MemoryStore) -> tuple[Array, Bools]:
    """The bytes that an expectation is about, and which of them were ever written."""
    nbytes = nbytes_of(e.array.shape, e.dtype)
    values = np.zeros(nbytes, np.uint8)
    written = np.zeros(nbytes, np.bool_)
    for low, high, part in store.parts(e.space, e.addr, e.addr + nbytes):
        if part is not None:
            here = slice(low - e.addr, high - e.addr)
            values[here] = part.reshape(-1).view(np.uint8)
            written[here] = True
    return values, written


def judge(
    name: str, e: Expectation, store: MemoryStore, progress: Progress = no_progress
) -> VerifyRow:
    """The row of one expectation against ``store``.

    Bytes never written make it not ok, see ``judge_part``. As long as it takes
    ``progress(1.0)`` is called.
    """

    def judged() -> VerifyRow:
        try:
            actual = store.view(e.space, e.addr, e.array.shape, e.dtype)
        except MemoryStoreError:
            return judge_part(name, e, *_bytes_of(e, store))
        return compare(actual, e.array, e.tolerance, name, e.tensor, e.origin)

    if e.array.size < _LONG:
        return judged()
    return computed_beside(judged, progress, 1.0)


def _merged(tensor: str, rows: Sequence[VerifyRow]) -> VerifyRow:
    """One row for all shards and copies of a tensor."""
    bad = [row.first_bad for row in rows if row.first_bad is not None]
    notes = [f"{row.name}: {row.note}" for row in rows if row.note]
    return replace(
        rows[0],
        name=tensor,
        elements=sum(row.elements for row in rows),
        ok=all(row.ok for row in rows),
        mismatches=sum(row.mismatches for row in rows),
        max_abs=max(row.max_abs for row in rows),
        max_rel=max(row.max_rel for row in rows),
        max_ulp=max(row.max_ulp for row in rows),
        nans=_sums([row.nans for row in rows]),
        infs=_sums([row.infs for row in rows]),
        first_bad=min(bad, default=None),
        note=next(iter(notes), ""),
    )


def _sums(counts: Sequence[tuple[int, int]]) -> tuple[int, int]:
    """The sums of (actual, expected) counts."""
    return sum(actual for actual, _ in counts), sum(expected for _, expected in counts)


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """The verdict: one row an expectation, in the order in which they were given."""

    rows: tuple[VerifyRow, ...]

    @property
    def ok(self) -> bool:
        """Whether every row is."""
        return all(row.ok for row in self.rows)

    def by_tensor(self) -> tuple[VerifyRow, ...]:
        """One row a tensor.

        It has sums and maxima over the tensor's shards and copies, and the lowest bad
        index.
        """
        groups: dict[str, list[VerifyRow]] = {}
        for row in self.rows:
            groups.setdefault(row.tensor, []).append(row)
        return tuple(_merged(tensor, rows) for tensor, rows in groups.items())

    def as_text(self) -> str:
        """A table of ``by_tensor`` with its notes below, at most 100 columns wide."""
        rows = self.by_tensor()
        table = [_HEADER, *map(_cells, rows)]
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        separators = len(widths) - 1
        room = _WIDTH - sum(widths[1:]) - separators
        widths[0] = max(min(widths[0], room), 8)
        lines = []
        for cells in table:
            lines.append(_table_line(cells, widths)[:_WIDTH].rstrip())
        for row in rows:
            for text in (row.note, row.not_finite):
                lines += textwrap.wrap(text, _WIDTH, subsequent_indent="  ")
        return "\n".join(lines)


_HEADER = (
    *("tensor", "dtype", "elements", "ok?", "bad"),
    *("abs", "rel", "ulp", "nan", "inf", "first"),
)
_LEFT = 2
"""How many columns of the table are aligned to the left; the others hold numbers."""


def _cells(row: VerifyRow) -> tuple[str, ...]:
    """The cells of one row of the table."""
    apart, relative, ulps = row.worst
    steps = f"{ulps:.0e}"
    if ulps < 10**6:
        steps = str(ulps)
    first = ""
    if row.first_bad is not None:
        first = ",".join(map(str, row.first_bad))
    return (
        row.tensor,
        row.dtype,
        str(row.elements),
        "ok" if row.ok else "FAIL",
        str(row.mismatches),
        f"{apart:.1e}",
        f"{relative:.1e}",
        steps,
        f"{row.nans[0]}/{row.nans[1]}",
        f"{row.infs[0]}/{row.infs[1]}",
        first,
    )


def _table_line(cells: Sequence[str], widths: Sequence[int]) -> str:
    """Cells side by side, the first cut off to its width."""
    name = cells[0]
    if len(name) > widths[0]:
        name = name[: widths[0] - 1] + "…"
    padded = []
    for i, (cell, width) in enumerate(zip((name, *cells[1:]), widths, strict=True)):
        if i < _LEFT:
            padded.append(cell.ljust(width))
        else:
            padded.append(cell.rjust(width))
    return " ".join(padded)
