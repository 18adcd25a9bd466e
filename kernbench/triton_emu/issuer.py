"""How tl calls are made: numbers and sites, scratch, physical addresses, pending bytes, faults.

A call that takes time switches to the runner's greenlet; the kernel stays a plain function.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypeVar

import greenlet

from kernbench.common.arrays import Array
from kernbench.common.dtypes import itemsize, nbytes_of
from kernbench.common.messages import MsgBase, Region
from kernbench.common.phys_addr import PhysAddr
from kernbench.errors import (
    AddressError,
    KernbenchError,
    KernelError,
    MemoryStoreError,
    TcmOverflowError,
)
from kernbench.sim_engine.event_log import Shard
from kernbench.sim_engine.memory_store import MemoryStore
from kernbench.triton_emu.calls import Call, KernelContext, Piece, overlap
from kernbench.triton_emu.handles import Out, Shape, TensorHandle

_ALIGN = 64
H = TypeVar("H", bound=TensorHandle)


class Issuer:
    """What every tl call of one kernel on one PE needs; scratch is a bump allocator in its TCM."""

    def __init__(self, ctx: KernelContext, store: MemoryStore) -> None:
        self._ctx, self._store = ctx, store
        self._scratch = PhysAddr.pe_tcm_addr(*ctx.node.place, 0).encode()
        self._scratch_end = self._scratch + ctx.scratch_bytes
        self._handles = 0
        self._scopes: list[object] = [None]

    @contextmanager
    def scope(self) -> Iterator[None]:
        """Scratch that is allocated inside is released at its end, which waits for nobody."""
        start = self._scratch
        self._scopes.append(object())
        try:
            yield
        finally:
            self._scopes.pop()
            self._scratch = start

    def _new_call(self, name: str, blocking: bool = True) -> Call:
        return Call(
            name, next(self._ctx.commands), self._ctx.sites.here(), blocking=blocking
        )

    def _switch(self, call: Call) -> None:
        runner = greenlet.getcurrent().parent
        assert runner is not None
        runner.switch(call)

    def _compute(self, call: Call, out: H, message: MsgBase) -> H:
        """Issue a compute call: its output is pending from now on."""
        why = f"{call.name} at {call.site.file}:{call.site.line} computes it in Phase 2"

        def issue(_: MsgBase) -> None:
            for region in message.regions()[0]:
                self._check_written(call, region)
            self._ctx.put(out.region, why)

        call.messages.append(message)
        call.on_issue = issue
        out.root.call = call
        self._switch(call)
        return out

    def _fault(self, call: Call, error: KernbenchError) -> None:
        """Raise what is wrong with memory; where that is to be a warning, record it and go on."""
        if self._store.fill is None:
            raise error
        text = f"{self._ctx.node.id}: {call.site.file}:{call.site.line}: {error}"
        self._ctx.warnings.append(text)
        self._text(call, "warning", text)

    def _text(self, call: Call, level: str, message: str) -> None:
        if self._ctx.events is not None:
            self._ctx.events.text(self._ctx.env.now, call.cmd, level, message)

    def _handle(self, kind: type[H], region: Region, call: Call) -> H:
        self._handles += 1
        name = f"h{self._ctx.msg.launch}.{self._handles}"
        return kind(self, name, region, call.site, call)

    def _allocate(self, call: Call, shape: Shape, dtype: str) -> TensorHandle:
        r = _checked(call, "tcm", self._scratch, shape, dtype)
        left, size = self._scratch_end - self._scratch, self._ctx.scratch_bytes
        if r.nbytes > left:
            raise TcmOverflowError(
                f"{call.name} needs {r.nbytes} bytes of scratch for {dtype}{list(r.shape)}, but "
                f"{left} of {size} are left: use smaller tiles, out= or tl.scope()"
            )
        self._scratch += -(-r.nbytes // _ALIGN) * _ALIGN
        handle = self._handle(TensorHandle, r, call)
        handle.scope = self._scopes[-1]
        if self._ctx.events is not None:
            place, origin = (
                ("tcm", r.addr, 0, r.nbytes, self._ctx.node.id),
                (0,) * len(r.shape),
            )
            self._ctx.events.alloc(
                Shard(handle.id, dtype, *place, origin, r.shape, call.cmd)
            )
        return handle

    def _output(
        self,
        call: Call,
        shape: tuple[int, ...],
        dtype: str,
        out: Out,
        exact: bool = False,
    ) -> TensorHandle:
        """Fresh scratch for a result, or ``out`` if it can take it; ``exact``: as this dtype."""
        if out is None:
            return self._allocate(call, shape, dtype)
        seen = (
            self._live(out, call.name).region.space,
            out.shape,
            out.dtype,
            out.transposed,
        )
        if seen != ("tcm", shape, dtype if exact else out.dtype, False):
            raise KernelError(
                f"{call.name}: {out!r} cannot take the result: it must lie in scratch with shape "
                f"{shape}, {f'have out_dtype={dtype} ' if exact else ''}and be no transpose"
            )
        return out

    def _refuse_overlap(
        self, call: Call, out: TensorHandle | Region, operands: Sequence[Region]
    ) -> None:
        """No op may write what it still reads, which the replay of a whole op would hide."""
        region = out if isinstance(out, Region) else out.region
        for operand in (r for r in operands if overlap(r, region)):
            where = self._ctx.describe(region.addr)
            if isinstance(out, TensorHandle):
                whole = out.root.region
                where = f"in {out.id} [{whole.addr:#x}, {whole.addr + whole.nbytes:#x})"
            what = f"{call.name}: the output at {region.addr:#x} overlaps an operand"
            why = "what is still to be read would be overwritten; use another tensor for the output"
            self._fault(
                call, KernelError(f"{what} at {operand.addr:#x} ({where}): {why}")
            )

    def _live(self, handle: Any, what: str, in_scratch: str = "") -> TensorHandle:
        """``handle``, if it is one that was not released; ``in_scratch`` names one to lie there."""
        if not isinstance(handle, TensorHandle):
            raise KernelError(
                f"{what}: {handle!r} is no handle; tl.load or compute one"
            )
        if handle.root.scope not in self._scopes:
            raise KernelError(
                f"{what}: {handle.id} (made at {handle.site.file}:{handle.site.line}) was released "
                "at the end of its tl.scope(); make it before the scope and write it with out="
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
        """Fault bytes of HBM that were never written and that no compute result will fill."""
        at, end = region.addr, region.addr + region.nbytes
        if region.space != "hbm":
            return
        while (gap := self._store.gap("hbm", at, end - at)) is not None:
            pending_to = self._ctx.pending.end_of("hbm", gap)
            if pending_to is None:
                error = MemoryStoreError(
                    f"{call.name} reads {region.dtype}{list(region.shape)} at {region.addr:#x}, "
                    f"but byte {gap:#x} was never written ({self._ctx.describe(gap)}); write it "
                    "first, with torch.tensor, torch.zeros or tl.store"
                )
                self._fault(call, error)
                return
            at = pending_to

    def _pieces(self, call: Call, ptr: int, whole: Region) -> Sequence[Piece]:
        """Where a tensor at virtual ``ptr`` lies; faults what is unmapped or splits elements."""

        def fault(problem: object) -> None:
            tensor = f"{call.name} of {whole.dtype}{list(whole.shape)} at {ptr:#x}"
            self._fault(call, AddressError(f"{tensor}: {problem}"))

        try:
            pieces = self._ctx.translate(ptr, whole.nbytes, False)
        except AddressError as unmapped:
            fault(unmapped)
            pieces = self._ctx.translate(ptr, whole.nbytes, True)
        size = itemsize(whole.dtype)
        for _, nbytes, addr in pieces:
            if nbytes % size or addr % size:
                piece = f"its piece of {nbytes} bytes at {addr:#x} ({self._ctx.describe(addr)})"
                fault(
                    f"{piece} is not aligned to its {size}-byte elements; address whole elements"
                )
        return pieces

    def _one_piece(self, call: Call, ptr: int, shape: Shape, dtype: str) -> Region:
        region = _checked(call, "hbm", 0, shape, dtype)
        pieces = self._pieces(call, ptr, region)
        if len(pieces) != 1:
            spans = ", ".join(f"{p.nbytes} bytes at {p.addr:#x}" for p in pieces)
            raise AddressError(
                f"{call.name} of {dtype}{list(region.shape)} at {ptr:#x} covers {len(pieces)} "
                f"shards ({spans}); it must lie in one: use the shard's own size, or tl.load"
            )
        return replace(region, addr=pieces[0].addr)


def _checked(call: Call, space: str, addr: int, shape: Shape, dtype: str) -> Region:
    extents = tuple(int(extent) for extent in shape)
    if min(extents, default=1) < 1:
        raise KernelError(f"{call.name}: shape {extents} has an extent below 1")
    return Region(space, addr, extents, dtype, nbytes_of(extents, dtype))


def part(whole: Region, space: str, addr: int, nbytes: int) -> Region:
    """A piece of a tensor: the whole keeps its shape, less is flat, bytes where it must be."""
    if nbytes == whole.nbytes:
        return replace(whole, space=space, addr=addr)
    dtype = "u8" if nbytes % itemsize(whole.dtype) else whole.dtype
    return Region(space, addr, (nbytes // itemsize(dtype),), dtype, nbytes)
