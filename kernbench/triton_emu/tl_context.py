"""``tl``: what a kernel calls. Memory, products and messages; the math is in math_calls.py.

Axis 0 is the PE in its cube, 1 the cube in its SIP, 2 the SIP.
"""

from collections.abc import Sequence
from math import isnan
from typing import Any

import numpy as np

from kernbench.common.arrays import Array
from kernbench.common.dtypes import is_float, itemsize
from kernbench.common.messages import NO_CMD
from kernbench.common.pe_commands import (
    CompositeCmd,
    DmaReadCmd,
    DmaWriteCmd,
    Epilogue,
    GemmCmd,
)
from kernbench.errors import KernelError
from kernbench.triton_emu.calls import Call
from kernbench.triton_emu.handles import CompletionHandle, Out, Shape, TensorHandle
from kernbench.triton_emu.ipcq_calls import IpcqCalls
from kernbench.triton_emu.issuer import part

EPILOGUES = ("bias", "relu", "scale", "dequant")


class TLContext(IpcqCalls):
    """The calls of one kernel on one PE."""

    def program_id(self, axis: int) -> int:
        """Which PE (axis 0), cube (1) or SIP (2) this is."""
        node = self._ctx.node
        return _along((node.pe, node.cube, node.sip), axis)

    def num_programs(self, axis: int) -> int:
        """How many PEs a cube (axis 0), cubes a SIP (1), SIPs (2) the launch runs on."""
        return _along(self._ctx.msg.programs, axis)

    @staticmethod
    def cdiv(a: int, b: int) -> int:
        """Ceiling of a / b."""
        return -(-a // b)

    def load(
        self, ptr: int, shape: Shape, dtype: str = "f16", wait: bool = True
    ) -> TensorHandle:
        """DMA from virtual ``ptr`` to scratch; pending where its bytes are, ready once awaited.

        ``wait=True`` reads the memory when the DMA has ended, ``wait=False`` when it is issued.
        """
        call = self._new_call("load", blocking=wait)
        handle = self._allocate(call, shape, dtype)
        handle.awaited = wait
        whole = handle.region
        for piece in self._pieces(call, ptr, whole):
            src = part(whole, "hbm", piece.addr, piece.nbytes)
            dst = part(whole, "tcm", whole.addr + piece.offset, piece.nbytes)
            call.messages.append(DmaReadCmd(src=src, dst=dst, handle_id=handle.id))
        under_way = f"the load of {handle.id}, still under way"
        early: dict[int, Array | str] = {}

        def issue(msg: DmaReadCmd) -> None:
            if not wait:
                early[id(msg)] = self._read(call, msg.src)
            self._ctx.put(msg.dst, under_way)

        def land(msg: DmaReadCmd) -> None:
            data = self._read(call, msg.src) if wait else early.pop(id(msg))
            if (
                self._ctx.peek(msg.dst) is under_way
            ):  # else it was released, and is another's now
                self._ctx.put(msg.dst, data)

        call.on_issue, call.on_done = issue, land
        self._switch(call)
        return handle

    def ref(self, ptr: int, shape: Shape, dtype: str = "f16") -> TensorHandle:
        """An operand in HBM at virtual ``ptr``, without a DMA of its own; must lie in one shard."""
        call = Call("ref", NO_CMD, self._ctx.sites.here())
        return self._handle(
            TensorHandle, self._one_piece(call, ptr, shape, dtype), call
        )

    def store(self, ptr: int, handle: TensorHandle, wait: bool = True) -> None:
        """DMA of a handle to virtual ``ptr``; visible at issue, a pending one in Phase 2."""
        whole = self._row_major(handle, "store").region
        call = self._new_call("store", blocking=wait)
        for piece in self._pieces(call, ptr, whole):
            src = part(whole, whole.space, whole.addr + piece.offset, piece.nbytes)
            message = DmaWriteCmd(src=src, dst_addr=piece.addr, handle_id=handle.id)
            if whole.space == "hbm":
                self._refuse_overlap(call, message.dst, [whole])
            call.messages.append(message)

        def issue(msg: DmaWriteCmd) -> None:
            data = self._read(call, msg.src)
            why = f"the store of {handle.id} ({data})" if isinstance(data, str) else ""
            self._ctx.put(msg.dst, why or data)

        call.on_issue = issue
        self._switch(call)

    def dot(
        self,
        a: TensorHandle,
        b: TensorHandle,
        acc: Out = None,
        out_dtype: str | None = None,
        out: Out = None,
    ) -> TensorHandle:
        """a[m, k] @ b[k, n] (+ acc) of operands in scratch, accumulated in f32; pending.

        The result is written to ``out``, else to ``acc``, else to fresh scratch.
        """
        product = _product(
            self._live(a, "dot", "operand a"), self._live(b, "dot", "operand b")
        )
        shape = (product["m"], product["n"])
        dtype = out_dtype or next(
            (h.dtype for h in (acc, out) if h is not None), a.dtype
        )
        call = self._new_call("dot")
        target = self._output(
            call, shape, dtype, acc if out is None else out, exact=True
        )
        operands, added = [a.region, b.region], None
        if acc is not None:
            added = self._output(call, shape, dtype, acc, exact=True).region
            operands += [added] if added != target.region else []
        self._refuse_overlap(call, target, operands)
        return self._compute(
            call, target, GemmCmd(out=target.region, acc=added, **product)
        )

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
        each with an optional last item "output_tile" or "k_tile". No number may be NaN.
        """
        if op != "gemm":
            raise KernelError(f"composite: unknown op {op!r}; valid: 'gemm'")
        if a is None or b is None:
            raise KernelError(
                "composite: operands a and b are needed: tl.ref(…) or tl.load(…)"
            )
        product = _product(self._live(a, "composite"), self._live(b, "composite"))
        shape = (product["m"], product["n"])
        default = self._ctx.spec.tile
        tile = tile or (default.m, default.n, default.k)
        if min(tile) < 1:
            raise KernelError(
                f"composite: tile {tile} must be (m, n, k), each at least 1"
            )
        steps = tuple(self._epilogue(step, shape) for step in epilogue)
        call = self._new_call("composite", blocking=wait)
        out = self._one_piece(call, out_ptr, shape, out_dtype or a.dtype)
        message = CompositeCmd(op=op, out=out, tile=tile, epilogue=steps, **product)
        self._refuse_overlap(call, out, message.regions()[0])
        return self._compute(call, self._handle(CompletionHandle, out, call), message)

    def wait(self, handle: TensorHandle) -> None:
        """Wait until what fills ``handle`` has ended; makes a load ready, no compute result."""
        root = self._live(handle, "wait").root
        call = self._new_call("wait")
        call.waits_for = root.call
        self._switch(call)
        root.awaited = True

    def device_print(self, *args: Any) -> None:
        """Record a line of text with this PE, time and line; ready handles show their data."""
        call = self._new_call("device_print")
        shown = [a.data if isinstance(a, TensorHandle) and a.ready else a for a in args]
        self._text(call, "print", " ".join(str(a) for a in shown))
        self._switch(call)

    def device_assert(self, cond: Any, message: str = "") -> None:
        """Record and raise (KernelError) that ``cond``, or an element of it, does not hold."""
        call = self._new_call("device_assert")
        holds = bool(np.all(np.asarray(cond)))
        if not holds:
            self._text(call, "assert", message)
        self._switch(call)
        if not holds:
            raise KernelError(f"device_assert failed: {message or repr(cond)}")

    def _epilogue(self, step: Any, shape: tuple[int, int]) -> Epilogue:
        name, *rest = (step,) if isinstance(step, str) else tuple(step)
        scope = rest.pop() if rest and isinstance(rest[-1], str) else "output_tile"
        known = name in EPILOGUES and scope in ("output_tile", "k_tile")
        if not known or len(rest) != (name != "relu"):
            valid = f"{EPILOGUES} with a scope; relu takes no argument, every other step one"
            raise KernelError(f"epilogue step {step!r}: valid are {valid}")
        if not rest:
            return Epilogue(name, scope)
        (argument,) = rest
        if isinstance(argument, TensorHandle):
            # each axis is the output's, or 1 and broadcast
            rows, cols = (1, 1, *argument.shape)[-2:]
            if (
                len(argument.shape) > 2
                or rows not in (1, shape[0])
                or cols not in (1, shape[1])
            ):
                raise KernelError(
                    f"epilogue {name}: {argument!r} does not broadcast to {shape}"
                )
            return Epilogue(name, scope, self._row_major(argument, "epilogue").region)
        if isnan(argument):
            raise KernelError(f"epilogue {name}: its scalar is NaN; give a number")
        return Epilogue(name, scope, scalar=float(argument))


def _along(values: tuple[int, int, int], axis: int) -> int:
    if axis not in (0, 1, 2):
        raise KernelError(f"axis {axis!r}: valid are 0 (PE), 1 (cube), 2 (SIP)")
    return values[axis]


def _product(a: TensorHandle, b: TensorHandle) -> dict[str, Any]:
    """What dot and composite say of their operands: the fields of a ProductCmd but ``out``."""
    if len(a.shape) != 2 or len(b.shape) != 2 or a.shape[1] != b.shape[0]:
        raise KernelError(f"gemm of {a.shape} and {b.shape}: needs (m, k) and (k, n)")
    if a.dtype != b.dtype:
        raise KernelError(
            f"gemm of {a.dtype} and {b.dtype}: both operands need the same dtype"
        )
    (m, k), n = a.shape, b.shape[1]
    wide = (
        a.dtype == "u32" or itemsize(a.dtype) == 8
    )  # floats accumulate in f32, integers in i32
    dtype_acc = f"{'f' if is_float(a.dtype) else 'i'}{64 if wide else 32}"
    how = {
        "dtype_acc": dtype_acc,
        "transpose_a": a.transposed,
        "transpose_b": b.transposed,
    }
    return {"a": a.region, "b": b.region, "m": m, "k": k, "n": n, **how}
