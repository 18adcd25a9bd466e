"""What a kernel is given of a tensor: its virtual address, and slices of it.

A pointer that the kernel was given knows the whole tensor and where each box of it
lies. One that was moved by some bytes knows no more than its dtype.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from operator import index as whole_number
from types import EllipsisType
from typing import Any, NamedTuple

from kernbench.common.dtypes import itemsize
from kernbench.errors import AddressError, KernelError


class Box(NamedTuple):
    """A block of a tensor that lies in one piece, row-major, at virtual ``va``.

    ``origin`` is the index of its first element; ``owners`` are the pe_cpus of the PEs
    that have a copy of it.
    """

    origin: tuple[int, ...]
    shape: tuple[int, ...]
    va: int
    owners: frozenset[str]


@dataclass(frozen=True, slots=True)
class Layout:
    """A whole tensor: its name, its shape in elements, and the boxes that make it."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    boxes: tuple[Box, ...]

    def __str__(self) -> str:
        return f"{self.name}, {self.dtype}{list(self.shape)}"


class TensorPtr(int):
    """A virtual address that knows its element type; both survive ``+`` and ``-``.

    That is how an all-reduce kernel, whose arguments ADR-0032 D7 fixes, learns the
    dtype of its tensor. ``layout`` is None once it was moved.
    """

    dtype: str
    itemsize: int
    layout: Layout | None

    def __new__(cls, value: int, dtype: str, layout: Layout | None = None) -> TensorPtr:
        """A pointer to elements of ``dtype`` at virtual address ``value``."""
        pointer = super().__new__(cls, value)
        pointer.dtype = dtype
        pointer.itemsize = itemsize(dtype)
        pointer.layout = layout
        return pointer

    def __add__(self, other: int) -> TensorPtr:
        return TensorPtr(int(self) + _bytes(other), self.dtype)

    __radd__ = __add__

    def __sub__(self, other: int) -> Any:
        """Moved back by some bytes; of another pointer the bytes between the two."""
        if isinstance(other, TensorPtr):
            return int(self) - int(other)
        return TensorPtr(int(self) - _bytes(other), self.dtype)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the whole tensor; KernelError if the pointer was moved."""
        return self._whole("shape").shape

    def __getitem__(self, index: Any) -> TensorSlice:
        """A slice by the indices of the whole tensor, as in numpy.

        Raises KernelError for one that is not inside it, for a step below 1, and if the
        pointer was moved.
        """
        return sliced(self._whole("slice"), index)

    def _whole(self, what: str) -> Layout:
        """The tensor that it points to; KernelError if it was moved."""
        if self.layout is None:
            raise KernelError(
                f"a pointer that was moved by bytes has no {what}: take the "
                f"{what} of the tensor that the kernel was given, as in x[i0:i1, j0:j1]"
            )
        return self.layout


def _bytes(by: Any) -> int:
    """By how many bytes a pointer is to be moved; KernelError for several numbers."""
    if _is_block(by):
        raise KernelError(
            f"a pointer is moved by one number of bytes, and {by!r} has {by.size}; a "
            "block is a slice: tl.load(x[i0:i1, j0:j1]), with bounds by min()"
        )
    return whole_number(by)


def _is_block(given: Any) -> bool:
    """Whether a handle or an array has several elements."""
    return getattr(given, "size", 1) != 1


class Range(NamedTuple):
    """The indices of one axis: ``extent`` of them from ``low`` on, ``step`` apart."""

    low: int
    extent: int
    step: int


class Run(NamedTuple):
    """The part of a slice that lies in one box.

    In memory it starts at virtual ``va``, and within the slice, which is row-major, at
    element ``offset``. ``strides`` and ``within`` say how many elements lie from one
    index of each axis of ``shape`` to the next, in memory and within the slice.
    """

    va: int
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    within: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TensorSlice:
    """Some elements of a tensor, as ``x[i0:i1, j0:j1]``.

    ``ranges`` has those of each axis of the tensor, ``text`` is what the kernel wrote;
    axes with a plain number as their index are not ``kept``.
    """

    layout: Layout
    ranges: tuple[Range, ...]
    kept: tuple[bool, ...]
    text: str

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of what it holds."""
        both = zip(self.ranges, self.kept, strict=True)
        return tuple(along.extent for along, is_kept in both if is_kept)

    @property
    def dtype(self) -> str:
        """The dtype of the tensor."""
        return self.layout.dtype

    def __repr__(self) -> str:
        return f"{self.layout.name}{self.text}"

    def __add__(self, other: Any) -> Any:
        raise KernelError(
            f"{self!r} is a slice, to which no bytes can be added; add to its indices"
        )

    __radd__ = __add__
    __sub__ = __add__
    __rsub__ = __add__

    def __getitem__(self, index: Any) -> Any:
        raise KernelError(
            f"{self!r} is a slice already; take one slice of {self.layout.name}"
        )

    def runs(self) -> Iterator[Run]:
        """What lies in each box; AddressError if boxes do not hold all of it."""
        found = 0
        for box in self.layout.boxes:
            run = self._run_in(box)
            if run is not None:
                found += prod(run.shape)
                yield run
        if found != prod(along.extent for along in self.ranges):
            raise AddressError(f"{self!r}: the shards do not hold all of it")

    def _run_in(self, box: Box) -> Run | None:
        """The part that lies in a box; None if there is none."""
        shape: list[int] = []
        strides: list[int] = []
        within: list[int] = []
        at = 0
        offset = 0
        box_stride = 1
        slice_stride = 1
        axes = zip(self.ranges, box.origin, box.shape, strict=True)
        for along, origin, extent in reversed([*axes]):
            # the first index of the slice in the box, and the first behind it
            first = max(-(-(origin - along.low) // along.step), 0)
            end = min(-(-(origin + extent - along.low) // along.step), along.extent)
            if end <= first:
                return None
            at += (along.low + first * along.step - origin) * box_stride
            offset += first * slice_stride
            shape.insert(0, end - first)
            strides.insert(0, along.step * box_stride)
            within.insert(0, slice_stride)
            box_stride *= extent
            slice_stride *= along.extent
        va = box.va + itemsize(self.layout.dtype) * at
        return Run(va, offset, tuple(shape), tuple(strides), tuple(within))


def boxes_of(layout: Layout, owner: str) -> list[Box]:
    """The boxes of a tensor that a PE holds."""
    return [box for box in layout.boxes if owner in box.owners]


def own_box(layout: Layout, owner: str) -> TensorSlice:
    """What a PE holds of a tensor; KernelError if that is not one box."""
    boxes = boxes_of(layout, owner)
    if len(boxes) != 1:
        raise KernelError(
            f"{owner} holds {len(boxes)} boxes of {layout}, so a pointer alone does "
            f"not say what is meant: write a slice, as {layout.name}[i0:i1, …]"
        )
    (box,) = boxes
    ranges = tuple(map(Range, box.origin, box.shape, [1] * len(box.shape)))
    shown = (f"{low}:{low + extent}" for low, extent, _ in ranges)
    return TensorSlice(layout, ranges, (True,) * len(ranges), f"[{', '.join(shown)}]")


def sliced(layout: Layout, index: Any) -> TensorSlice:
    """The slice of a whole tensor that an index means; raises as ``TensorPtr``."""
    given = index if isinstance(index, tuple) else (index,)
    shown = f"[{', '.join(map(_shown, given))}]"
    what = f"{layout.name}{shown}"
    items = _for_each_axis(what, layout, given)
    ranges = []
    kept = []
    for axis, (item, extent) in enumerate(zip(items, layout.shape, strict=True)):
        where = f"{what}: axis {axis} of {layout}"
        if isinstance(item, slice):
            ranges.append(_range_of(where, item, extent))
        else:
            ranges.append(Range(_element(where, item, extent), 1, 1))
        kept.append(isinstance(item, slice))
    return TensorSlice(layout, tuple(ranges), tuple(kept), shown)


def _for_each_axis(what: str, layout: Layout, given: tuple[Any, ...]) -> list[Any]:
    """An index with an item for each axis of the tensor."""
    axes = len(layout.shape)
    items = [*given]
    dots = [at for at, item in enumerate(items) if isinstance(item, EllipsisType)]
    named = len(items) - len(dots)
    if len(dots) > 1 or named > axes:
        raise KernelError(
            f"{what}: {layout} has {axes} axes; give an index or a slice for each at "
            "most"
        )
    at = dots[0] if dots else len(items)
    return [*items[:at], *[slice(None)] * (axes - named), *items[at + 1 :]]


def _range_of(where: str, item: slice, extent: int) -> Range:
    """The indices of a slice; KernelError unless they all are inside."""
    low = 0 if item.start is None else _whole(where, item.start)
    high = extent if item.stop is None else _whole(where, item.stop)
    step = 1 if item.step is None else _whole(where, item.step)
    if step < 1:
        raise KernelError(
            f"{where}: a step of {step}; a DMA goes upwards, by a step of at least 1"
        )
    if low < 0 or high > extent:
        raise KernelError(
            f"{where}: {low}:{high} is not inside it, which is 0:{extent}; mask the "
            f"rest: load up to min(…, {extent}) only"
        )
    if high <= low:
        raise KernelError(f"{where}: {low}:{high} has no element; skip it")
    return Range(low, -(-(high - low) // step), step)


def _element(where: str, item: Any, extent: int) -> int:
    """A single index; KernelError unless it is inside."""
    at = _whole(where, item)
    if not 0 <= at < extent:
        raise KernelError(f"{where}: {at} is not inside it, which is 0:{extent}")
    return at


def _whole(where: str, item: Any) -> int:
    """A number of an index; KernelError for what is none."""
    why: Exception | None = None
    if not _is_block(item) and not isinstance(item, bool):
        try:
            return whole_number(item)
        except TypeError as error:
            why = error
    raise KernelError(
        f"{where}: {item!r} is no whole number; a slice of a pointer is by numbers, as "
        "x[i0:i1, j0:j1] or x[int(handle)]"
    ) from why


def _shown(item: Any) -> str:
    """An item of an index as it was written."""
    if isinstance(item, EllipsisType):
        return "..."
    if not isinstance(item, slice):
        return str(item)
    ends = ["" if end is None else str(end) for end in (item.start, item.stop)]
    step = "" if item.step is None else f":{item.step}"
    return ":".join(ends) + step
