"""How tl calls are made: numbers and sites, scratch, addresses, pending bytes, faults.

A call that takes time switches to the runner's greenlet; the kernel stays a plain
function.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from operator import index as whole_number
from typing import Any, NamedTuple, SupportsIndex, TypeAlias, TypeVar

import greenlet

from kernbench.common.arrays import Array
from kernbench.common.dtypes import dtype_name, itemsize, nbytes_of
from kernbench.common.kernel_texts import KernelText
from kernbench.common.messages import MsgBase, Region, as_matrix
from kernbench.common.phys_addr import PhysAddr
from kernbench.common.pointers import TensorPtr, TensorSlice, boxes_of, own_box
from kernbench.common.rows import MAX_ROWS, Rows
from kernbench.errors import (
    AddressError,
    KernbenchError,
    KernelError,
    MemoryStoreError,
    TcmOverflowError,
)
from kernbench.sim_engine.event_log import Shard
from kernbench.sim_engine.memory_store import MemoryStore
from kernbench.sim_engine.pending import Comparison, Holds
from kernbench.triton_emu.calls import Call, KernelContext, Piece, overlap
from kernbench.triton_emu.handles import Out, Shape, TensorHandle, ambiguous
from kernbench.triton_emu.tile_buffers import (
    Composite,
    Tile,
    buffer_bytes,
    fitting_tile,
)

_ALIGN = 64
"""Bytes to which each allocation of scratch is rounded up."""

H = TypeVar("H", bound=TensorHandle)

Address: TypeAlias = "TensorSlice | SupportsIndex"
"""Where a call reads or writes: a slice, or the virtual address of the first byte."""

_PLAIN = "f16"
"""The dtype at an address that says none."""

Strides: TypeAlias = "Sequence[int] | None"
"""How many elements lie from one index of each axis to the next; None: row-major."""


class Issuer:
    """What every tl call of one kernel on one PE needs.

    Owns the PE's scratch, which is a bump allocator in its TCM, its open scopes, and
    how many bytes of the TCM the tiles of composites under way take. It is made in the
    greenlet of the kernel, in which all of its calls have to be made.
    """

    def __init__(self, ctx: KernelContext, store: MemoryStore) -> None:
        self._ctx = ctx
        self._store = store
        self._scratch = PhysAddr.pe_tcm_addr(*ctx.node.place, 0).encode()
        self._scratch_end = self._scratch + ctx.scratch_bytes
        self._handles = 0
        self._scopes: list[object] = [None]
        self._kernel = greenlet.getcurrent()
        self._tile_buffers: list[tuple[Call, int]] = []
        self._noted: list[str] = []
        """What is to be noted of the call that is made next."""

    @contextmanager
    def scope(self) -> Iterator[None]:
        """Release at its end what scratch is allocated inside; it waits for nobody."""
        start = self._scratch
        self._scopes.append(object())
        try:
            yield
        finally:
            self._scopes.pop()
            self._scratch = start

    def bytes_of(self, handle: TensorHandle) -> Array | str:
        """The bytes of ``handle`` as they are stored, or why they are pending.

        Raises KernelError if it was released.
        """
        return self._ctx.peek(self._live(handle, "data").region)

    def truth_of(self, handle: TensorHandle) -> bool | None:
        """Whether the comparison of ready data that fills ``handle`` is true.

        None if no such comparison does. It is recorded as a call "bool", which takes
        one issue. Raises ValueError for more than one element.
        """
        region = self._live(handle, "bool").region
        op = self._ctx.pending.find(region.space, region.addr, region.nbytes)
        if not isinstance(op, Comparison):
            return None
        if handle.size > 1:
            raise ambiguous(handle)
        self._switch(self._new_call("bool"))
        return op.holds()

    def _new_call(self, name: str, blocking: bool = True) -> Call:
        """A call with a number of its own, and the kernel line that makes it."""
        ctx = self._ctx
        site, caller = ctx.sites.with_caller()
        number = ctx.numbers.take(ctx.node.id, name, site)
        if caller is not None and ctx.events is not None:
            ctx.events.caller(number, caller)
        call = Call(name, number, site, caller, blocking=blocking)
        for problem in self._noted:
            self._text(call, "warning", problem)
        self._noted.clear()
        return call

    def _switch(self, call: Call) -> None:
        """Hand ``call`` to the runner; it comes back when the kernel may go on.

        KernelError in a thread or greenlet that is not the kernel's own: the runner
        would take its calls for those of another.
        """
        runner = self._kernel.parent
        if greenlet.getcurrent() is not self._kernel or runner is None:
            raise KernelError(
                f"{call.name} of {self._ctx.node.id} in another thread, greenlet or "
                "kernel than its own; make all calls of tl in the kernel that got it"
            )
        runner.switch(call)

    def _compute(
        self, call: Call, out: H, message: MsgBase, holds: Holds | None = None
    ) -> H:
        """Issue a compute call: its output is pending from now on.

        ``holds`` is that of a ``Comparison``.
        """
        place = out.region
        why = f"{call.name} at {call.site.file}:{call.site.line} computes it in Phase 2"
        op: object = why if holds is None else Comparison(why, holds)

        def issue(_: MsgBase) -> None:
            reads, _written = message.regions()
            for region in reads:
                self._check_written(call, region)
            self._ctx.pending.mark_rows(place.space, place.where, op)

        call.messages.append(message)
        call.on_issue = issue
        out.root.call = call
        self._switch(call)
        return out

    def _fault(self, call: Call, error: KernbenchError) -> None:
        """Raise what is wrong with memory.

        Where that is to be a warning, record it and go on.
        """
        if self._store.fill is None:
            raise error
        text = f"{self._ctx.node.id}: {call.site.file}:{call.site.line}: {error}"
        self._ctx.warnings.append(text)
        self._text(call, "warning", text)

    def _text(self, call: Call, level: str, message: str) -> None:
        """Record a line of text of ``call``, and show what is no warning."""
        ctx = self._ctx
        if level != "warning":
            at = f"{call.site.file}:{call.site.line}"
            ctx.texts.add(KernelText(ctx.env.now, ctx.node.id, at, level, message))
        if ctx.events is not None:
            ctx.events.text(ctx.env.now, call.cmd, level, message)

    def _handle(self, kind: type[H], region: Region, call: Call) -> H:
        """A new handle on ``region``, named by its launch and its number."""
        self._handles += 1
        name = f"h{self._ctx.msg.launch}.{self._handles}"
        return kind(self, name, region, call.site, call)

    def _allocate(self, call: Call, shape: Shape, dtype: str) -> TensorHandle:
        """Fresh scratch; TcmOverflowError if there is not enough left."""
        r = _checked(call, "tcm", self._scratch, shape, dtype)
        left = self._scratch_end - self._scratch
        in_tiles = self._bytes_in_tiles()
        if r.nbytes > left - in_tiles:
            remedy = "use smaller tiles, out= or tl.scope()"
            if in_tiles:
                held = f"a composite under way holds {in_tiles} of them for its tiles"
                remedy = f"{held}; tl.wait for it, or {remedy}"
            raise TcmOverflowError(
                f"{call.name} needs {r.nbytes} bytes of scratch for "
                f"{dtype}{list(r.shape)}, but {left} of {self._ctx.scratch_bytes} are "
                f"left: {remedy}"
            )
        blocks = -(-r.nbytes // _ALIGN)
        self._scratch += blocks * _ALIGN
        handle = self._handle(TensorHandle, r, call)
        handle.scope = self._scopes[-1]
        if self._ctx.events is not None:
            shard = Shard(
                tensor=handle.id,
                dtype=dtype,
                space="tcm",
                addr=r.addr,
                va=0,
                nbytes=r.nbytes,
                owner=self._ctx.node.id,
                origin=(0,) * len(r.shape),
                shape=r.shape,
                cmd=call.cmd,
            )
            self._ctx.events.alloc(shard)
        return handle

    def _take_tile_buffers(
        self, call: Call, composite: Composite, is_default: bool = False
    ) -> None:
        """Have the tiles of a composite take what they need of the TCM while it runs.

        A tile that is the default is made smaller if it does not fit. Raises
        TcmOverflowError, with a tile that fits, for another.
        """
        window = self._ctx.spec.tile.window
        room = self._scratch_end - self._scratch
        needed = buffer_bytes(composite, composite.tile, window)
        if needed > room:
            fits = fitting_tile(composite, composite.tile, window, room)
            if fits is None or not is_default:
                raise self._no_room_for_tiles(composite, needed, room, fits)
            composite.tile = fits
            needed = buffer_bytes(composite, fits, window)
        self._tile_buffers.append((call, needed))

    def _no_room_for_tiles(
        self, composite: Composite, needed: int, room: int, fits: Tile | None
    ) -> TcmOverflowError:
        """The error for a composite whose tiles need more bytes than there are."""
        pe = self._ctx.spec
        remedy = f"tile={fits} fits"
        if fits is None:
            remedy = "no tile fits; release scratch (tl.scope()), or use a larger TCM"
        return TcmOverflowError(
            f"composite {composite.op}: tile {composite.tile} needs {needed} bytes of "
            f"TCM with pe.tile.window={pe.tile.window} tiles in flight, but {room} of "
            f"pe.tcm.size_kib={pe.tcm.size_kib} KiB are left beside scratch and "
            f"receive rings: {remedy}"
        )

    def _bytes_in_tiles(self) -> int:
        """The bytes that composites under way take of the TCM.

        A PE serves one composite at a time: the one whose tiles need most counts.
        """
        if not self._tile_buffers:
            return 0
        under_way = [held for held in self._tile_buffers if held[0].is_under_way]
        self._tile_buffers = under_way
        return max((nbytes for _, nbytes in under_way), default=0)

    def _output(
        self,
        call: Call,
        shape: tuple[int, ...],
        dtype: str,
        out: Out,
        exact: bool = False,
    ) -> TensorHandle:
        """Fresh scratch for a result, or ``out`` if it can take it.

        ``exact``: only if it has this dtype. Raises KernelError if it cannot.
        """
        if out is None:
            return self._allocate(call, shape, dtype)
        live = self._live(out, call.name)
        in_scratch = live.region.space == "tcm" and not out.transposed
        wrong_dtype = exact and out.dtype != dtype
        if not in_scratch or out.shape != shape or wrong_dtype:
            needed = f"have out_dtype={dtype} " if exact else ""
            raise KernelError(
                f"{call.name}: {out!r} cannot take the result: it must lie in scratch "
                f"with shape {shape}, {needed}and be no transpose"
            )
        return out

    def _refuse_overlap(
        self, call: Call, out: TensorHandle | Region, operands: Sequence[Region]
    ) -> None:
        """Fault an output that overlaps an operand.

        No op may write what it still reads: the replay of a whole op would hide it.
        """
        region = out if isinstance(out, Region) else out.region
        for operand in operands:
            if not overlap(operand, region):
                continue
            where = self._ctx.describe(region.addr)
            if isinstance(out, TensorHandle):
                whole = out.root.region
                end = whole.addr + whole.nbytes
                where = f"in {out.id} [{whole.addr:#x}, {end:#x})"
            error = KernelError(
                f"{call.name}: the output at {region.addr:#x} overlaps an operand at "
                f"{operand.addr:#x} ({where}): what is still to be read would be "
                "overwritten; use another tensor for the output"
            )
            self._fault(call, error)

    def _live(self, handle: Any, what: str, in_scratch: str = "") -> TensorHandle:
        """``handle``, if it is one that was not released; else a KernelError.

        ``in_scratch`` names an operand that has to lie there.
        """
        if not isinstance(handle, TensorHandle):
            raise KernelError(
                f"{what}: {handle!r} is no handle; tl.load or compute one (of a "
                "number tl.full(shape, number, dtype))"
            )
        if handle.root.scope not in self._scopes:
            raise KernelError(
                f"{what}: {handle.id} (made at {handle.site.file}:{handle.site.line}) "
                "was released at the end of its tl.scope(); make it before the scope "
                "and write it with out="
            )
        if in_scratch and handle.region.space != "tcm":
            problem = f"{in_scratch} {handle!r} is not in scratch; tl.load it first"
            raise KernelError(f"{what}: {problem}")
        return handle

    def _read(self, call: Call, region: Region) -> Array | str:
        """The bytes there, or why they are pending."""
        self._check_written(call, region)
        return self._ctx.peek(region)

    def _check_written(self, call: Call, region: Region) -> None:
        """Fault bytes of HBM that were never written and that are not pending."""
        if region.space != "hbm":
            return
        rows = region.where
        if self._store.gap("hbm", rows.addr, rows.span) is None:
            return
        for addr, nbytes in rows.each():
            if not self._is_written(call, region, addr, addr + nbytes):
                return

    def _is_written(self, call: Call, region: Region, at: int, end: int) -> bool:
        """Whether bytes of ``region`` were written or are pending; else a fault."""
        while True:
            gap = self._store.gap("hbm", at, end - at)
            if gap is None:
                return True
            pending_to = self._ctx.pending.end_of("hbm", gap)
            if pending_to is None:
                error = MemoryStoreError(
                    f"{call.name} reads {region.dtype}{list(region.shape)} at "
                    f"{region.addr:#x}, but byte {gap:#x} was never written "
                    f"({self._ctx.describe(gap)}); write it first, with torch.tensor, "
                    "torch.zeros or tl.store"
                )
                self._fault(call, error)
                return False
            at = pending_to

    def _meant(
        self, what: str, ptr: Address, shape: Shape | None, dtype: object
    ) -> tuple[Address, Shape | None, str]:
        """Where a call is to read or write, the shape if that is known, and the dtype.

        A slice, and a pointer to a whole tensor without a ``shape``, which is the box
        that this PE holds, have both; a dtype beside theirs reads the same bytes
        otherwise, which is noted once. KernelError for a slice with a shape beside it,
        and for a dtype of another size than its own.
        """
        if isinstance(ptr, TensorPtr) and ptr.layout is not None and shape is None:
            ptr = own_box(ptr.layout, self._ctx.node.id)
        elif isinstance(ptr, TensorSlice) and shape is not None:
            raise KernelError(
                f"{what}: {ptr!r} says its shape, {list(ptr.shape)}; leave out shape= "
                "and strides="
            )
        own = getattr(ptr, "dtype", None)
        name = dtype_name(own or _PLAIN if dtype is None else dtype)
        if isinstance(ptr, TensorSlice):
            shape = ptr.shape
            if itemsize(name) != itemsize(ptr.dtype):
                raise KernelError(
                    f"{what}: {ptr!r} has elements of {ptr.dtype}, and {name} has "
                    f"another size; leave out dtype= and tl.cast what was loaded, or "
                    f"cast to {ptr.dtype} before storing"
                )
        if own is not None and name != own:
            self._note_once(_other_bytes(what, own, name))
        return ptr, shape, name

    def _target(
        self, what: str, ptr: Address, shape: tuple[int, ...], dtype: str
    ) -> Address:
        """Where a call is to write a result of that shape and dtype.

        A pointer to a whole tensor is this PE's box of it, if the result fills that;
        else its address. KernelError for a slice of another shape, or of elements of
        another size.
        """
        if isinstance(ptr, TensorPtr) and ptr.layout is not None:
            mine = boxes_of(ptr.layout, self._ctx.node.id)
            if [box.shape for box in mine] == [shape]:
                ptr = own_box(ptr.layout, self._ctx.node.id)
        own = str(getattr(ptr, "dtype", dtype))
        if isinstance(ptr, TensorSlice):
            if ptr.shape != shape:
                raise KernelError(
                    f"{what}: {ptr!r} has shape {list(ptr.shape)}, and what goes there "
                    f"{dtype}{list(shape)}; slice or tl.reshape one to fit the other"
                )
            if itemsize(own) != itemsize(dtype):
                raise KernelError(
                    f"{what}: {ptr!r} has elements of {own}, and what goes there of "
                    f"{dtype}, of another size; tl.cast it to {own} first"
                )
        if own != dtype:
            self._note_once(_other_bytes(what, own, dtype))
        return ptr

    def _note_once(self, problem: str) -> None:
        """Have the run's results say something about this line, once, and its trace
        as a text of the call that is made next.
        """
        site = self._ctx.sites.here()
        note = f"{site.file}:{site.line}: {problem}"
        if note not in self._ctx.notes:
            self._ctx.notes.append(note)
            self._noted.append(problem)

    def _moves(
        self, call: Call, ptr: Address, whole: Region, strides: Strides
    ) -> list[Move]:
        """How a DMA moves a tensor from or to ``ptr``, command by command.

        A slice is a command for each of its boxes, else it is as ``_moves_at`` says.
        """
        if not isinstance(ptr, TensorSlice):
            return self._moves_at(call, ptr, whole, strides)
        size = itemsize(whole.dtype)
        found = []
        for run in ptr.runs():
            nbytes = nbytes_of(run.shape, whole.dtype)
            part = Region(whole.space, 0, run.shape, whole.dtype, nbytes)
            within = _descriptor(call, part, run.within)
            for move in self._moves_at(call, run.va, part, run.strides):
                offset = run.offset * size + move.offset
                if not within.is_one:  # a box is one piece
                    move = move._replace(within=within.at(offset))
                found.append(move._replace(offset=offset))
        return found

    def _moves_at(
        self, call: Call, ptr: SupportsIndex, whole: Region, strides: Strides
    ) -> list[Move]:
        """How a DMA moves a tensor from or to virtual ``ptr``: a command for each piece
        of memory.

        ``strides`` count elements, one for each axis; None is row-major without gaps.
        Raises as ``_pieces``, and KernelError for strides that make no descriptor.
        """
        rows = Rows.one(0, whole.nbytes)
        if strides is not None:
            rows = _descriptor(call, whole, strides)
        pieces = self._pieces(call, ptr, whole, rows.span)
        shape = whole.shape
        if rows.is_one:
            if len(pieces) == 1:
                return [Move(0, whole.nbytes, shape, pieces[0].addr)]
            return [Move(offset, held, None, addr) for offset, held, addr in pieces]
        found = []
        offset = 0
        ends = [piece.offset + piece.nbytes for piece in pieces]
        for part in rows.parts(ends):
            piece = pieces[bisect_right(ends, part.addr)]
            addr = piece.addr + part.addr - piece.offset
            strided = None if part.is_one else part.at(addr)
            own = shape if part.nbytes == whole.nbytes else None
            found.append(Move(offset, part.nbytes, own, addr, strided))
            offset += part.nbytes
        return found

    def _pieces(
        self, call: Call, ptr: SupportsIndex, whole: Region, nbytes: int
    ) -> Sequence[Piece]:
        """Where ``nbytes`` from virtual ``ptr`` on lie, which hold ``whole``.

        Faults what is unmapped, and pieces that cut elements.
        """
        va = _address(call, ptr)

        def fault(problem: object) -> None:
            tensor = f"{call.name} of {whole.dtype}{list(whole.shape)} at {va:#x}"
            if nbytes != whole.nbytes:
                tensor += f", whose rows span {nbytes} bytes"
            self._fault(call, AddressError(f"{tensor}: {problem}"))

        try:
            pieces = self._ctx.translate(va, nbytes, False)
        except AddressError as unmapped:
            fault(unmapped)
            pieces = self._ctx.translate(va, nbytes, True)
        size = itemsize(whole.dtype)
        for _, held, addr in pieces:
            if held % size or addr % size:
                place = f"at {addr:#x} ({self._ctx.describe(addr)})"
                fault(
                    f"its piece of {held} bytes {place} is not aligned to its "
                    f"{size}-byte elements; address whole elements"
                )
        return pieces

    def _one_piece(self, call: Call, ptr: Address, shape: Shape, dtype: str) -> Region:
        """The region at ``ptr``, whose rows may have gaps between them.

        AddressError if it lies in several pieces, KernelError if its rows have gaps
        within them.
        """
        region = _checked(call, "hbm", 0, shape, dtype)
        moves = self._moves(call, ptr, region, None)
        if len(moves) != 1:
            spans = ", ".join(f"{m.nbytes} bytes at {m.addr:#x}" for m in moves)
            where = repr(ptr)
            if not isinstance(ptr, TensorSlice):
                where = f"{_address(call, ptr):#x}"
            raise AddressError(
                f"{call.name} of {dtype}{list(region.shape)} at {where} covers "
                f"{len(moves)} shards ({spans}); it must lie in one: use the shard's "
                "own size, or tl.load"
            )
        (move,) = moves
        rows = move.rows
        if rows is not None and not _is_matrix(rows, region):
            raise KernelError(
                f"{call.name}: the elements of a row of {ptr!r} do not touch, and "
                "tiles are of matrices of whole rows; leave out the step of its last "
                "axis, or tl.load it"
            )
        return replace(region, addr=move.addr, strided=rows)


def _address(call: Call, ptr: SupportsIndex) -> int:
    """A virtual address; KernelError if it is no whole number."""
    try:
        return whole_number(ptr)
    except TypeError as error:
        raise KernelError(
            f"{call.name}: address {ptr!r} is no whole number; use a pointer that "
            "the kernel was given, and whole offsets"
        ) from error


def _checked(call: Call, space: str, addr: int, shape: Shape, dtype: str) -> Region:
    """A region of that shape; KernelError as ``extents_of``."""
    extents = extents_of(call.name, shape)
    return Region(space, addr, extents, dtype, nbytes_of(extents, dtype))


def extents_of(what: str, shape: Any) -> tuple[int, ...]:
    """The extents of a shape; KernelError for one below 1, and for what is none."""
    try:
        extents = tuple(map(whole_number, shape))
    except TypeError as error:
        raise KernelError(
            f"{what}: shape {shape!r} has to be a tuple of whole numbers, as (n,)"
        ) from error
    if min(extents, default=1) < 1:
        raise KernelError(f"{what}: shape {extents} has an extent below 1")
    return extents


def _descriptor(call: Call, whole: Region, strides: Sequence[int]) -> Rows:
    """The rows of a tensor of these strides, in elements, from address 0 on.

    KernelError, which says what would do, for strides that make no descriptor.
    """
    what = f"{call.name} of {whole.dtype}{list(whole.shape)}"
    try:
        given = [*map(whole_number, strides)]
    except TypeError as error:
        shown = strides
        if isinstance(strides, Iterable):
            shown = [*strides]
        raise KernelError(
            f"{what} with strides {shown}: they have to be whole numbers of elements, "
            f"one for each of its {len(whole.shape)} axes"
        ) from error
    what += f" with strides {given}"
    if len(given) != len(whole.shape):
        raise KernelError(
            f"{what}: give one stride for each of its {len(whole.shape)} axes, in "
            "elements"
        )
    if min(given, default=1) < 1:
        raise KernelError(
            f"{what}: a stride below 1 is no distance between rows; give how many "
            "elements lie from one index of the axis to the next"
        )
    size = itemsize(whole.dtype)
    axes = tuple(
        (extent, stride * size)
        for extent, stride in zip(whole.shape, given, strict=True)
    )
    try:
        rows = Rows.of(0, axes, size)
    except ValueError as error:
        raise KernelError(
            f"{what}: a DMA descriptor cannot have {error}; move it in several calls"
        ) from error
    if rows.total_rows > MAX_ROWS:
        raise KernelError(
            f"{what}: {rows.total_rows} rows, and a DMA descriptor has at most "
            f"{MAX_ROWS}; move it in several calls"
        )
    if rows.overlap():
        raise KernelError(
            f"{what}: its rows overlap, as one begins before the one before it has "
            "ended; the stride of an axis has to be at least what lies within it"
        )
    return rows


def _is_matrix(rows: Rows, region: Region) -> bool:
    """Whether rows are those of the matrix that a region is, one after another."""
    number, columns = as_matrix(region.shape)
    row_bytes = columns * itemsize(region.dtype)
    has_two_axes = len(region.shape) <= 2 and not rows.planes
    return has_two_axes and (rows.rows, rows.row_bytes) == (number, row_bytes)


class Move(NamedTuple):
    """What one command of a DMA moves: ``nbytes`` of a tensor, and where they lie.

    In memory they are at physical ``addr``, in ``rows`` if there are gaps between them.
    Of the tensor they are those from byte ``offset`` on, or in the rows ``within``,
    which begin there. ``shape`` is theirs; None of what is no block of the tensor.
    """

    offset: int
    nbytes: int
    shape: tuple[int, ...] | None
    addr: int
    rows: Rows | None = None
    within: Rows | None = None

    def in_memory(self, whole: Region) -> Region:
        """The bytes of ``whole`` as they lie in memory."""
        moved = self._of(whole)
        return replace(moved, space="hbm", addr=self.addr, strided=self.rows)

    def in_tensor(self, whole: Region) -> Region:
        """The bytes of ``whole`` as they lie in it."""
        within = self.within
        if within is not None:
            within = within.at(whole.addr + self.offset)
        return replace(self._of(whole), addr=whole.addr + self.offset, strided=within)

    def _of(self, whole: Region) -> Region:
        """They are bytes where elements would be cut."""
        if self.nbytes == whole.nbytes:
            return whole
        dtype = "u8" if self.nbytes % itemsize(whole.dtype) else whole.dtype
        shape = self.shape
        if shape is None:
            shape = (self.nbytes // itemsize(dtype),)
        return replace(whole, shape=shape, dtype=dtype, nbytes=self.nbytes)


def _other_bytes(what: str, held: str, dtype: str) -> str:
    """That a call takes what lies in memory for another dtype than was declared."""
    return f"{what} takes bytes of {held} for {dtype}; tl.cast converts"
