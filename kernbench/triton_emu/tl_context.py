"""``tl``: what a kernel calls. Makes commands with physical addresses and hands them to the
KernelRunner.

Axis 0 is the PE in its cube, 1 the cube in its SIP, 2 the SIP. A call that takes time switches to
the runner's greenlet; the kernel stays a plain function.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isnan, prod
from typing import Any

import greenlet
import numpy as np

from kernbench.common.dtypes import dtype as dtype_row
from kernbench.common.dtypes import is_float, itemsize, nbytes_of
from kernbench.common.messages import MsgBase, Region
from kernbench.common.pe_commands import (
    CompositeCmd,
    DmaReadCmd,
    DmaWriteCmd,
    Epilogue,
    GemmCmd,
    MathCmd,
)
from kernbench.errors import AddressError, KernelError, TcmOverflowError
from kernbench.sim_engine.event_log import Shard
from kernbench.triton_emu.calls import Call, KernelContext, PhysicalPiece, Store
from kernbench.triton_emu.handles import CompletionHandle, Scalar, TensorHandle

_ALIGN = 64
EPILOGUES = ("bias", "relu", "scale", "dequant")


class TLContext:
    """The calls of one kernel on one PE; scratch is a bump allocator in its TCM."""

    def __init__(self, ctx: KernelContext, store: Store) -> None:
        self._ctx = ctx
        self._store = store
        self._scratch = 0
        self._handles = 0

    def program_id(self, axis: int) -> int:
        """Which PE (axis 0), cube (1) or SIP (2) this is."""
        return self._axis(self._ctx.place[::-1], axis)

    def num_programs(self, axis: int) -> int:
        """How many PEs a cube (axis 0), cubes a SIP (1), SIPs (2) the launch runs on."""
        return self._axis(self._ctx.programs, axis)

    @staticmethod
    def _axis(values: tuple[int, int, int], axis: int) -> int:
        if axis not in (0, 1, 2):
            raise KernelError(f"axis {axis!r}: valid are 0 (PE), 1 (cube), 2 (SIP)")
        return values[axis]

    @staticmethod
    def cdiv(a: int, b: int) -> int:
        """Ceiling of a / b."""
        return -(-a // b)

    def load(
        self, ptr: int, shape: Sequence[int], dtype: str = "f16", wait: bool = True
    ) -> TensorHandle:
        """DMA of a tensor at virtual ``ptr`` into scratch; ready once awaited, pending where its
        bytes are.

        ``wait=True`` reads the memory when the DMA has ended, ``wait=False`` when it is issued.
        """
        call = self._new_call("load", blocking=wait)
        handle = self._allocate(call, shape, dtype)
        whole = handle.region
        messages = call.messages
        for piece in self._pieces(ptr, whole, "load"):
            src = _part(whole, "hbm", piece.addr, piece.nbytes)
            dst = _part(whole, "tcm", whole.addr + piece.offset, piece.nbytes)
            messages.append(DmaReadCmd(src=src, dst=dst, handle_id=handle.id))
        early: dict[int, Any] = {}
        landed: list[MsgBase] = []

        def issue(msg: MsgBase) -> None:
            assert isinstance(msg, DmaReadCmd)
            if not wait:
                early[id(msg)] = self._read(msg.src, handle)
            self._mark(msg.dst, f"the load of {handle.id}, still under way")

        def land(msg: MsgBase) -> None:
            assert isinstance(msg, DmaReadCmd)
            data = self._read(msg.src, handle) if wait else early.pop(id(msg))
            landed.append(msg)
            if data is None:
                self._mark(msg.dst, handle.why)
                return
            self._store.patch("tcm", msg.dst.addr, data)
            self._ctx.pending.clear("tcm", msg.dst.addr, msg.dst.nbytes)
            if len(landed) == len(messages) and not handle.why:  # pieces land in any order
                handle.data_or_none = self._store.view("tcm", whole.addr, whole.shape, whole.dtype)

        call.on_issue, call.on_done = issue, land
        self._switch(call)
        handle.awaited = wait
        return handle

    def ref(self, ptr: int, shape: Sequence[int], dtype: str = "f16") -> TensorHandle:
        """An operand in HBM at virtual ``ptr``, without a DMA of its own; must lie in one shard."""
        site = self._ctx.sites.here()
        region = self._one_piece(ptr, tuple(shape), dtype, "ref")
        handle = TensorHandle(self, self._next_id(), region, site)
        why = self._ctx.pending.find("hbm", region.addr, region.nbytes)
        if why is None:
            handle.data_or_none = self._view_if_written(region)
        handle.why = str(why or "its bytes were never written")
        return handle

    def store(self, ptr: int, handle: TensorHandle, wait: bool = True) -> None:
        """DMA of a handle to virtual ``ptr``; a ready payload is visible at issue, a pending one
        in Phase 2.
        """
        self._need_handle(handle, "store")
        call = self._new_call("store", blocking=wait)
        whole = handle.region
        for piece in self._pieces(ptr, whole, "store"):
            src = _part(whole, whole.space, whole.addr + piece.offset, piece.nbytes)
            call.messages.append(DmaWriteCmd(src=src, dst_addr=piece.addr, handle_id=handle.id))

        def issue(msg: MsgBase) -> None:
            assert isinstance(msg, DmaWriteCmd)
            src = msg.src
            why = self._ctx.pending.find(src.space, src.addr, src.nbytes)
            if why is not None:
                self._mark(msg.dst, f"the store of {handle.id} ({why})")
                return
            data = self._store.view(src.space, src.addr, src.shape, src.dtype)
            self._store.patch("hbm", msg.dst_addr, data)
            self._ctx.pending.clear("hbm", msg.dst_addr, src.nbytes)

        call.on_issue = issue
        self._switch(call)

    def dot(
        self,
        a: TensorHandle,
        b: TensorHandle,
        acc: TensorHandle | None = None,
        out_dtype: str | None = None,
    ) -> TensorHandle:
        """a[m, k] @ b[k, n] (+ acc) of operands in scratch; accumulates in f32, the result is
        pending.
        """
        m, k, n = self._gemm_shape(a, b)
        for name, operand in (("a", a), ("b", b)):
            if operand.space != "tcm":
                raise KernelError(
                    f"dot: operand {name} {operand!r} is not in scratch; tl.load it first"
                )
        call = self._new_call("dot")
        dtype = out_dtype or a.dtype
        if acc is None:
            out = self._allocate(call, (m, n), dtype)
        elif acc.shape != (m, n) or acc.space != "tcm" or out_dtype not in (None, acc.dtype):
            raise KernelError(
                f"dot: acc {acc!r} must lie in scratch with shape {(m, n)}, and out_dtype="
                f"{out_dtype} be None or its dtype"
            )
        else:
            out, acc.data_or_none, acc.call = acc, None, call
        call.messages.append(
            GemmCmd(
                a=a.region,
                b=b.region,
                out=out.region,
                m=m,
                k=k,
                n=n,
                acc=acc.region if acc is not None else None,
                dtype_acc=_accumulator(a.dtype),
            )
        )
        return self._compute(call, out)

    def composite(
        self,
        op: str = "gemm",
        a: TensorHandle | None = None,
        b: TensorHandle | None = None,
        out_ptr: int = 0,
        epilogue: Sequence[Any] = (),
        wait: bool = False,
        *,
        out_dtype: str | None = None,
        tile: tuple[int, int, int] | None = None,
    ) -> CompletionHandle:
        """A tiled a[m, k] @ b[k, n] into HBM at virtual ``out_ptr``; ``tile`` is (m, n, k).

        ``epilogue`` holds steps "relu", ("scale", number), ("dequant", number), ("bias", handle),
        each with an optional last item "output_tile" or "k_tile".
        """
        if op != "gemm":
            raise KernelError(f"composite: unknown op {op!r}; valid: 'gemm'")
        if a is None or b is None:
            raise KernelError("composite: operands a and b are needed: tl.ref(…) or tl.load(…)")
        m, k, n = self._gemm_shape(a, b)
        tile = tile or self._ctx.default_tile
        if min(tile) < 1:
            raise KernelError(f"composite: tile {tile} must be (m, n, k), each at least 1")
        call = self._new_call("composite", blocking=wait)
        out = self._one_piece(out_ptr, (m, n), out_dtype or a.dtype, "composite output")
        steps = tuple(_epilogue(step, (m, n)) for step in epilogue)
        message = CompositeCmd(
            op=op,
            a=a.region,
            b=b.region,
            out=out,
            m=m,
            k=k,
            n=n,
            tile=tile,
            dtype_acc=_accumulator(a.dtype),
            epilogue=steps,
        )
        _refuse_overlap(message)
        call.messages.append(message)
        handle = CompletionHandle(self, self._next_id(), out, call.site, call)
        self._compute(call, handle)
        return handle

    def wait(self, handle: TensorHandle) -> None:
        """Wait until the call that fills ``handle`` has ended; makes a load usable, no compute
        result ready.
        """
        self._need_handle(handle, "wait")
        call = self._new_call("wait")
        call.waits_for = handle.call
        self._switch(call)
        handle.awaited = True

    def exp(self, x: TensorHandle) -> TensorHandle:
        """e ** x."""
        return self._math("exp", x)

    def relu(self, x: TensorHandle) -> TensorHandle:
        """max(x, 0)."""
        return self._math("relu", x)

    def add(self, a: TensorHandle | Scalar, b: TensorHandle | Scalar) -> TensorHandle:
        """a + b."""
        return self._math("add", a, b)

    def sub(self, a: TensorHandle | Scalar, b: TensorHandle | Scalar) -> TensorHandle:
        """a - b."""
        return self._math("sub", a, b)

    def mul(self, a: TensorHandle | Scalar, b: TensorHandle | Scalar) -> TensorHandle:
        """a * b."""
        return self._math("mul", a, b)

    def div(self, a: TensorHandle | Scalar, b: TensorHandle | Scalar) -> TensorHandle:
        """a / b."""
        return self._math("div", a, b)

    def maximum(self, a: TensorHandle | Scalar, b: TensorHandle | Scalar) -> TensorHandle:
        """The larger of a and b."""
        return self._math("maximum", a, b)

    def cast(self, x: TensorHandle, dtype: str) -> TensorHandle:
        """X rounded to another dtype."""
        return self._math("cast", x, dtype=dtype)

    def sum(self, x: TensorHandle, axis: int | None = None, keepdims: bool = False) -> TensorHandle:
        """Sum over ``axis`` (all axes if None)."""
        return self._math("sum", x, axis=axis, keepdims=keepdims, reduces=True)

    def max(self, x: TensorHandle, axis: int | None = None, keepdims: bool = False) -> TensorHandle:
        """Maximum over ``axis`` (all axes if None)."""
        return self._math("max", x, axis=axis, keepdims=keepdims, reduces=True)

    def _math(
        self,
        op: str,
        *operands: TensorHandle | Scalar,
        dtype: str | None = None,
        axis: int | None = None,
        keepdims: bool = False,
        reduces: bool = False,
    ) -> TensorHandle:
        call = self._new_call(op)
        handles = [x for x in operands if isinstance(x, TensorHandle)]
        scalars = [(i, float(x)) for i, x in enumerate(operands) if not isinstance(x, TensorHandle)]
        if not handles:
            raise KernelError(f"{op}: at least one operand must be a handle, got {operands!r}")
        for handle in handles:
            if handle.space != "tcm":
                raise KernelError(f"{op}: {handle!r} is not in scratch; tl.load it first")
        try:
            shape = np.broadcast_shapes(*(h.shape for h in handles))
            if reduces:
                shape = np.empty(shape, np.bool_).sum(axis=axis, keepdims=keepdims).shape
        except ValueError as error:
            raise KernelError(
                f"{op} of {[h.shape for h in handles]}, axis={axis}: {error}"
            ) from error
        out = self._allocate(call, shape, dtype or handles[0].dtype)
        call.messages.append(
            MathCmd(
                op=op,
                inputs=tuple(h.region for h in handles),
                out=out.region,
                axis=axis,
                keepdims=keepdims,
                scalars=tuple(value for _, value in scalars),
                scalar_positions=tuple(i for i, _ in scalars),
            )
        )
        return self._compute(call, out)

    def device_print(self, *args: Any) -> None:
        """Record a line of text with this PE, time and line."""
        call = self._new_call("device_print")
        if self._ctx.events is not None:
            text = " ".join(str(a) for a in args)
            self._ctx.events.text(self._ctx.env.now, call.cmd, "print", text)
        self._switch(call)

    # -- from here on: how calls are made
    # ----------------------------------------------------------------------

    def _new_call(self, name: str, blocking: bool = True) -> Call:
        cmd = next(self._ctx.commands)
        return Call(name, cmd, self._ctx.sites.here(), blocking=blocking)

    def _switch(self, call: Call) -> None:
        runner = greenlet.getcurrent().parent
        assert runner is not None
        runner.switch(call)

    def _compute(self, call: Call, out: TensorHandle) -> TensorHandle:
        """Issue a compute call: its output is pending from now on."""
        out.why = f"{call.name} at {call.site.file}:{call.site.line} computes it in Phase 2"
        call.on_issue = lambda _: self._mark(out.region, out.why)
        self._switch(call)
        return out

    def _mark(self, region: Region, why: str) -> None:
        self._ctx.pending.mark(region.space, region.addr, region.nbytes, why)

    def _next_id(self) -> str:
        self._handles += 1
        return f"h{self._ctx.launch}.{self._handles}"

    def _allocate(self, call: Call, shape: Sequence[int], dtype: str) -> TensorHandle:
        extents = tuple(int(extent) for extent in shape)
        if min(extents, default=1) < 1:
            raise KernelError(f"{call.name}: shape {extents} has an extent below 1")
        nbytes = nbytes_of(extents, dtype_row(dtype).name)
        ctx, start = self._ctx, self._scratch
        if start + nbytes > ctx.scratch_bytes:
            raise TcmOverflowError(
                f"{call.name} needs {nbytes} bytes of scratch for {dtype}{list(extents)}, but "
                f"{ctx.scratch_bytes - start} of {ctx.scratch_bytes} are left: use smaller tiles"
            )
        self._scratch = start + -(-nbytes // _ALIGN) * _ALIGN
        region = Region("tcm", ctx.scratch_addr + start, extents, dtype, nbytes)
        return self._handle_on(call, region)

    def _handle_on(self, call: Call, region: Region) -> TensorHandle:
        handle = TensorHandle(self, self._next_id(), region, call.site, call)
        if self._ctx.events is not None:
            shape, origin = region.shape, (0,) * len(region.shape)
            place = (region.space, region.addr, 0, region.nbytes, self._ctx.pe)
            self._ctx.events.alloc(Shard(handle.id, region.dtype, *place, origin, shape, call.cmd))
        return handle

    def _pieces(self, ptr: int, whole: Region, what: str) -> Sequence[PhysicalPiece]:
        pieces = self._ctx.translate(ptr, whole.nbytes)
        size = itemsize(whole.dtype)
        for piece in pieces:
            if piece.nbytes % size or piece.addr % size:
                raise AddressError(
                    f"{what} of {whole.dtype}{list(whole.shape)} at {ptr:#x}: the shard at "
                    f"{piece.addr:#x} "
                    f"is not aligned to its {size}-byte elements"
                )
        return pieces

    def _one_piece(self, ptr: int, shape: tuple[int, ...], dtype: str, what: str) -> Region:
        region = Region("hbm", 0, shape, dtype, nbytes_of(shape, dtype))
        pieces = self._pieces(ptr, region, what)
        if len(pieces) != 1:
            spans = ", ".join(f"{p.nbytes} bytes at {p.addr:#x}" for p in pieces)
            raise AddressError(
                f"{what} of {dtype}{list(shape)} at {ptr:#x} covers {len(pieces)} shards "
                f"({spans}); it must lie in one: use the shard's own size, or tl.load"
            )
        return Region("hbm", pieces[0].addr, shape, dtype, region.nbytes)

    def _read(self, region: Region, handle: TensorHandle) -> Any:
        """The bytes of a region now; None if they are pending, which makes ``handle`` so."""
        why = self._ctx.pending.find(region.space, region.addr, region.nbytes)
        if why is not None:
            handle.why = str(why)
            return None
        return self._store.view(region.space, region.addr, region.shape, region.dtype)

    def _view_if_written(self, region: Region) -> Any:
        try:
            return self._store.view(region.space, region.addr, region.shape, region.dtype)
        except ValueError:
            return None

    @staticmethod
    def _need_handle(handle: Any, what: str) -> None:
        if not isinstance(handle, TensorHandle):
            raise KernelError(f"{what}: {handle!r} is no handle; tl.load or compute one")

    @staticmethod
    def _gemm_shape(a: TensorHandle, b: TensorHandle) -> tuple[int, int, int]:
        if len(a.shape) != 2 or len(b.shape) != 2 or a.shape[1] != b.shape[0]:
            raise KernelError(f"gemm of {a.shape} and {b.shape}: needs (m, k) and (k, n)")
        if a.dtype != b.dtype:
            raise KernelError(f"gemm of {a.dtype} and {b.dtype}: both operands need the same dtype")
        if prod(a.shape) * prod(b.shape) == 0:
            raise KernelError(f"gemm of {a.shape} and {b.shape}: an extent is 0")
        return a.shape[0], a.shape[1], b.shape[1]


def _part(whole: Region, space: str, addr: int, nbytes: int) -> Region:
    """A piece of a tensor: the whole keeps its shape, less than that is flat."""
    if nbytes == whole.nbytes:
        return Region(space, addr, whole.shape, whole.dtype, nbytes)
    return Region(space, addr, (nbytes // itemsize(whole.dtype),), whole.dtype, nbytes)


def _accumulator(dtype: str) -> str:
    """What a gemm of ``dtype`` accumulates in: f32, f64 of f64, i64 of 8-byte and u4 ints, else
    i32.
    """
    if dtype == "f64" or is_float(dtype):
        return "f64" if dtype == "f64" else "f32"
    return "i64" if itemsize(dtype) == 8 or dtype == "u32" else "i32"


def _epilogue(step: Any, shape: tuple[int, int]) -> Epilogue:
    name, *rest = (step,) if isinstance(step, str) else tuple(step)
    scope = rest.pop() if rest and isinstance(rest[-1], str) else "output_tile"
    if name not in EPILOGUES or scope not in ("output_tile", "k_tile") or len(rest) > 1:
        raise KernelError(
            f"epilogue step {step!r}: valid are {EPILOGUES} with one argument and a scope"
        )
    argument = rest[0] if rest else None
    if (name == "relu") != (argument is None):
        raise KernelError(f"epilogue step {step!r}: relu takes no argument, every other step one")
    if isinstance(argument, TensorHandle):
        # each axis is the output's, or 1 and broadcast
        rows, cols = (1, 1, *argument.shape)[-2:]
        if len(argument.shape) > 2 or rows not in (1, shape[0]) or cols not in (1, shape[1]):
            raise KernelError(f"epilogue {name}: {argument!r} does not broadcast to {shape}")
        return Epilogue(name, scope, operand=argument.region)
    scalar = None if argument is None else float(argument)
    if scalar is not None and isnan(scalar):
        raise KernelError(f"epilogue {name}: its scalar is NaN; give a number")
    return Epilogue(name, scope, scalar=scalar)


def _overlaps(a: Region, b: Region) -> bool:
    return a.addr < b.addr + b.nbytes and b.addr < a.addr + a.nbytes


def _refuse_overlap(message: CompositeCmd) -> None:
    out = message.out
    for operand in message.regions()[0]:
        if operand.space == "hbm" and _overlaps(operand, out):
            raise KernelError(
                f"composite: the output at {out.addr:#x} overlaps an operand at "
                f"{operand.addr:#x}; "
                "tiles would read what earlier ones wrote: use another tensor for the output"
            )
