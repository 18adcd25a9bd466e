"""``tl``: what a kernel calls. Memory, products and messages; math is in math_calls.py.

Axis 0 is the PE in its cube, 1 the cube in its SIP, 2 the SIP.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isnan
from operator import index as whole_number
from typing import Any, TypeAlias

import numpy as np

from kernbench.common.arrays import Array
from kernbench.common.dtypes import dtype_name, is_float, itemsize
from kernbench.common.messages import NO_CMD, Region, adopt, unserved
from kernbench.common.pe_commands import (
    DATAFLOWS,
    CompositeCmd,
    CompositeMathCmd,
    DmaReadCmd,
    DmaWriteCmd,
    Epilogue,
    GemmCmd,
)
from kernbench.common.pointers import TensorPtr, TensorSlice, own_box
from kernbench.errors import KernelError
from kernbench.sim_engine.numpy_ops import NUMPY_OPS
from kernbench.sim_engine.op_dtypes import SCALARS
from kernbench.sim_engine.op_spec import OpSpec
from kernbench.triton_emu.calls import Call
from kernbench.triton_emu.handles import (
    CompletionHandle,
    Operand,
    Out,
    Shape,
    TensorHandle,
)
from kernbench.triton_emu.ipcq_calls import IpcqCalls
from kernbench.triton_emu.issuer import Address, Strides
from kernbench.triton_emu.math_calls import arguments_of, result_shape

Indices: TypeAlias = range
"""Python's range: as a kernel knows it, ``tl.range`` is that of the class."""

_SCOPES = ("output_tile", "k_tile")
"""When an epilogue step runs: on the finished sum, or on each partial product."""


class TLContext(IpcqCalls):
    """The calls of one kernel on one PE."""

    def program_id(self, axis: int) -> int:
        """Which PE (axis 0), cube (1) or SIP (2) this is."""
        node = self._ctx.node
        return _along((node.pe, node.cube, node.sip), axis)

    def num_programs(self, axis: int) -> int:
        """How many PEs a cube (axis 0), cubes a SIP (1) or SIPs (2) take part."""
        return _along(self._ctx.msg.programs, axis)

    def own(self, ptr: TensorPtr) -> tuple[Indices, ...]:
        """The indices of the box of a tensor that this PE holds, for each axis.

        KernelError for a pointer that was moved, and if it holds several boxes.
        """
        layout = getattr(ptr, "layout", None)
        if layout is None:
            raise KernelError(
                f"own: {ptr!r} is no tensor that the kernel was given, but moved or "
                "sliced"
            )
        box = own_box(layout, self._ctx.node.id)
        return tuple(range(low, low + extent) for low, extent, _ in box.ranges)

    @staticmethod
    def cdiv(a: int, b: int) -> int:
        """Ceiling of a / b."""
        return -(-whole_number(a) // whole_number(b))

    def load(
        self,
        ptr: Address,
        shape: Shape | None = None,
        dtype: object = None,
        wait: bool = True,
        *,
        strides: Strides = None,
    ) -> TensorHandle:
        """DMA to scratch of a slice, of this PE's box, or of a shape at an address.

        It is pending where its bytes are. ``x[i0:i1, j0:j1]`` is a slice, ``x`` alone
        the box of the tensor that this PE holds. At an address ``strides`` say how many
        elements lie from one index of each axis to the next, as those of the matrix
        that this is a part of. The dtype is by default that of the pointer.
        ``wait=True`` reads the memory when the DMA has ended, ``wait=False`` when it is
        issued; then the handle is ready once it is awaited.
        """
        place, extents, element = self._meant("load", ptr, shape, dtype)
        if extents is None:
            raise KernelError(
                f"load: address {ptr!r} needs a shape, as tl.load(ptr, (n,)); of a "
                "tensor take a slice, as tl.load(x[i0:i1])"
            )
        if strides is not None and isinstance(place, TensorSlice):
            raise KernelError(
                f"load: {place!r} has its strides; write them as steps, as x[::2]"
            )
        call = self._new_call("load", blocking=wait)
        handle = self._allocate(call, extents, element)
        handle.awaited = wait
        whole = handle.region
        for move in self._moves(call, place, whole, strides):
            src = move.in_memory(whole)
            dst = move.in_tensor(whole)
            call.messages.append(DmaReadCmd(src=src, dst=dst, handle_id=handle.id))
        under_way = f"the load of {handle.id}, still under way"
        early: dict[int, Array | str] = {}

        def issue(msg: DmaReadCmd) -> None:
            if not wait:
                early[id(msg)] = self._read(call, msg.src)
            self._ctx.put(msg.dst, under_way)

        def land(msg: DmaReadCmd) -> None:
            data = self._read(call, msg.src) if wait else early.pop(id(msg))
            # else it was released, and is another's now
            if self._ctx.peek(msg.dst) is under_way:
                self._ctx.put(msg.dst, data)

        call.on_issue = issue
        call.on_done = land
        self._switch(call)
        return handle

    def ref(
        self, ptr: Address, shape: Shape | None = None, dtype: object = None
    ) -> TensorHandle:
        """An operand in HBM, without a DMA of its own: as ``load`` says where.

        Its rows may have gaps between them. Raises AddressError if it does not lie in
        one shard, and KernelError if there are gaps within a row.
        """
        place, extents, element = self._meant("ref", ptr, shape, dtype)
        if extents is None:
            raise KernelError(
                f"ref: address {ptr!r} needs a shape, as tl.ref(ptr, (m, n)); of a "
                "tensor take a slice, as tl.ref(x[i0:i1])"
            )
        call = Call("ref", NO_CMD, self._ctx.sites.here())
        region = self._one_piece(call, place, extents, element)
        return self._handle(TensorHandle, region, call)

    def store(
        self,
        ptr: Address,
        handle: TensorHandle,
        wait: bool = True,
        *,
        strides: Strides = None,
    ) -> None:
        """DMA of a handle to a slice, or to an address with ``strides`` as of ``load``.

        ``y`` alone is this PE's box of the tensor if the handle has its shape, else the
        address of its first element. It is visible at issue, the data of a pending
        handle in Phase 2.
        """
        self._live(handle, "store")
        if strides is not None and isinstance(ptr, TensorSlice):
            raise KernelError(
                f"store: {ptr!r} has its strides; write them as steps, as y[::2]"
            )
        place = (
            ptr
            if strides is not None
            else self._target("store", ptr, handle.shape, handle.dtype)
        )
        whole = self._contiguous(handle, "store").region
        call = self._new_call("store", blocking=wait)
        for move in self._moves(call, place, whole, strides):
            message = DmaWriteCmd(
                src=move.in_tensor(whole),
                dst_addr=move.addr,
                handle_id=handle.id,
                strided=move.rows,
            )
            if whole.space == "hbm":
                self._refuse_overlap(call, message.dst, [whole])
            call.messages.append(message)

        def issue(msg: DmaWriteCmd) -> None:
            data = self._read(call, msg.src)
            if isinstance(data, str):
                data = f"the store of {handle.id} ({data})"
            self._ctx.put(msg.dst, data)

        call.on_issue = issue
        self._switch(call)

    def dot(
        self,
        a: TensorHandle,
        b: TensorHandle,
        acc: Out = None,
        out_dtype: str | None = None,
        out: Out = None,
        *,
        dataflow: str | None = None,
    ) -> TensorHandle:
        """a[m, k] @ b[k, n] (+ acc) of operands in scratch, accumulated in f32.

        The result is pending. It is written to ``out``, else to ``acc``, else to fresh
        scratch. ``dataflow`` is "ws", "os" or "is", by default the machine's.
        """
        live_a = self._live(a, "dot", "operand a")
        live_b = self._live(b, "dot", "operand b")
        product = _Product.of(live_a, live_b)
        shape = (product.m, product.n)
        dtype = dtype_name(out_dtype or _dot_dtype(a, acc, out))
        call = self._new_call("dot")
        written = acc if out is None else out
        target = self._output(call, shape, dtype, written, exact=True)
        operands = [a.region, b.region]
        added = None
        if acc is not None:
            added = self._output(call, shape, dtype, acc, exact=True).region
            if added != target.region:
                operands.append(added)
        self._refuse_overlap(call, target, operands)
        message = GemmCmd(
            out=target.region,
            acc=added,
            dataflow=_dataflow("dot", dataflow),
            **product.fields(),
        )
        return self._compute(call, target, message)

    def composite(
        self,
        op: str = "gemm",
        a: Operand | None = None,
        b: Operand | None = None,
        out_ptr: Address = 0,
        epilogue: Sequence[Any] = (),
        wait: bool = False,
        *,
        c: Operand | None = None,
        out_dtype: str | None = None,
        tile: tuple[int, int, int] | None = None,
        dataflow: str | None = None,
    ) -> CompletionHandle:
        """A tiled a[m, k] @ b[k, n] or elementwise op into HBM at virtual ``out_ptr``.

        ``tile`` is (m, n, k); what the tiles in flight need of the TCM has to fit.
        ``epilogue`` holds steps "relu", ("scale", number), ("dequant", number) and
        ("bias", handle), each with an optional last item "output_tile" or "k_tile". No
        number may be NaN. ``dataflow`` is "ws", "os" or "is", by default the machine's.
        An elementwise op is op(a), op(a, b) or op(a, b, c), without an epilogue.
        """
        if tile and (len(tile) != 3 or min(tile) < 1):
            raise KernelError(
                f"composite: tile {tile} must be (m, n, k), each at least 1"
            )
        flow = _dataflow("composite", dataflow)
        if op == "gemm":
            return self._composite_gemm(
                a, b, out_ptr, epilogue, wait, out_dtype, tile, flow
            )
        if epilogue:
            raise KernelError(
                f"composite {op}: only a gemm has an epilogue; issue a composite for it"
            )
        if flow:
            raise KernelError(
                f"composite {op}: only a gemm has a dataflow; leave out dataflow="
            )
        given = [x for x in (a, b, c) if x is not None]
        return self._composite_math(op, given, out_ptr, wait, out_dtype, tile)

    def _composite_gemm(
        self,
        a: Operand | None,
        b: Operand | None,
        out_ptr: Address,
        epilogue: Sequence[Any],
        wait: bool,
        out_dtype: str | None,
        tile: tuple[int, int, int] | None,
        dataflow: str,
    ) -> CompletionHandle:
        """A composite whose tiles are products."""
        if a is None or b is None:
            raise KernelError(
                "composite: operands a and b are needed: tl.ref(…) or tl.load(…)"
            )
        live_a = self._live(a, "composite")
        live_b = self._live(b, "composite")
        product = _Product.of(live_a, live_b)
        shape = (product.m, product.n)
        steps = tuple(self._epilogue(step, shape) for step in epilogue)
        element = _output_dtype(out_ptr, out_dtype, live_a.dtype)
        place = self._target("composite", out_ptr, shape, element)
        call = self._new_call("composite", blocking=wait)
        out = self._one_piece(call, place, shape, element)
        fields = product.fields()
        message = CompositeCmd(
            op="gemm",
            out=out,
            tile=tile or self._default_tile(),
            epilogue=steps,
            dataflow=dataflow,
            **fields,
        )
        self._take_tile_buffers(call, message, is_default=not tile)
        reads, _written = message.regions()
        self._refuse_overlap(call, out, reads)
        handle = self._handle(CompletionHandle, out, call)
        return self._compute(call, handle, message)

    def _composite_math(
        self,
        name: str,
        given: Sequence[Any],
        out_ptr: Address,
        wait: bool,
        out_dtype: str | None,
        tile: tuple[int, int, int] | None,
    ) -> CompletionHandle:
        """A composite whose tiles are those of an elementwise op."""
        op = NUMPY_OPS.get(name)
        if op is None or not _is_tiled(op):
            valid = ["gemm", *(op.name for op in NUMPY_OPS.values() if _is_tiled(op))]
            raise KernelError(
                f"composite: unknown op {name!r}; valid: {', '.join(valid)}"
            )
        if len(given) != op.arity:
            raise KernelError(
                f"composite {name}: takes {op.arity} operands, not {len(given)}: "
                "a=, b= and c=, in order"
            )
        what = f"composite {name}"
        operands = []
        for x in given:
            is_number = isinstance(x, SCALARS)
            operands.append(x if is_number else self._row_major(x, what))
        shape = result_shape(op, operands)
        if len(shape) > 2:
            raise KernelError(
                f"{what}: the output has shape {shape}, but tiles are of matrices; "
                "tl.ref(…) or tl.reshape(…) the operands to at most two axes"
            )
        dtype = op.dtype.result(name, operands)
        handles = [x for x in operands if isinstance(x, TensorHandle)]
        has_float = any(is_float(x.dtype) for x in handles)
        if op.dtype.casts_integers and is_float(dtype) and not has_float:
            raise KernelError(
                f"{what}: integers with a number that is none; tl.load(…) and "
                "tl.cast(…) them first"
            )
        element = _output_dtype(out_ptr, out_dtype, dtype)
        place = self._target("composite", out_ptr, shape, element)
        call = self._new_call("composite", blocking=wait)
        out = self._one_piece(call, place, shape, element)
        m, n, _ = tile or self._default_tile()
        message = CompositeMathCmd(
            op=name, out=out, tile=(m, n, 1), **arguments_of("composite", operands)
        )
        self._take_tile_buffers(call, message, is_default=not tile)
        # a tile may be written over what it alone has read
        self._refuse_overlap(call, out, [r for r in message.inputs if r != out])
        handle = self._handle(CompletionHandle, out, call)
        return self._compute(call, handle, message)

    def wait(self, handle: TensorHandle) -> None:
        """Wait until what fills ``handle`` has ended.

        It makes a load ready, but no compute result.
        """
        root = self._live(handle, "wait").root
        call = self._new_call("wait")
        call.waits_for = root.call
        self._switch(call)
        root.awaited = True

    def issue(self, command: Any, wait: bool = True) -> None:
        """Have a command of your own served by the engine that its class names.

        That is set by ``register_command``. With ``wait=False`` the kernel goes on at
        once; it ends when the command has.
        """
        call = self._new_call("issue", blocking=wait)
        adopt(command)
        if not command.served_by:
            raise KernelError(f"issue: {unserved(command)}")
        if isinstance(command, CompositeCmd | CompositeMathCmd):
            self._take_tile_buffers(call, command)
        call.messages.append(command)
        self._switch(call)

    def device_print(self, *args: Any) -> None:
        """Record a line of text with this PE, time and line.

        Of a ready handle it shows the data.
        """
        call = self._new_call("device_print")
        shown = [str(_printed(x)) for x in args]
        self._text(call, "print", " ".join(shown))
        self._switch(call)

    def device_assert(self, cond: Any, message: str = "") -> None:
        """Record and raise (KernelError) that not all of ``cond`` is true."""
        if isinstance(cond, TensorHandle) and cond.size == 1:
            holds = bool(cond)
        else:
            holds = bool(np.all(np.asarray(cond)))
        call = self._new_call("device_assert")
        if not holds:
            self._text(call, "assert", message)
        self._switch(call)
        if not holds:
            raise KernelError(f"device_assert failed: {message or repr(cond)}")

    def _default_tile(self) -> tuple[int, int, int]:
        """The machine's tile, (m, n, k)."""
        tile = self._ctx.spec.tile
        return tile.m, tile.n, tile.k

    def _epilogue(self, step: Any, shape: tuple[int, int]) -> Epilogue:
        """A step as a kernel writes it; KernelError if it is none."""
        name, *rest = (step,) if isinstance(step, str) else tuple(step)
        scope = "output_tile"
        if rest and isinstance(rest[-1], str):
            scope = rest.pop()
        takes = _step_arguments(name)
        if takes is None or len(rest) != takes or scope not in _SCOPES:
            raise KernelError(f"epilogue step {step!r}: valid are {_valid_steps()}")
        if not rest:
            return Epilogue(name, scope)
        (argument,) = rest
        if isinstance(argument, TensorHandle):
            if not _broadcasts(argument.shape, shape):
                raise KernelError(
                    f"epilogue {name}: {argument!r} does not broadcast to {shape}"
                )
            return Epilogue(name, scope, self._row_major(argument, "epilogue").region)
        if isnan(argument):
            raise KernelError(f"epilogue {name}: its scalar is NaN; give a number")
        return Epilogue(name, scope, scalar=float(argument))


def _output_dtype(out_ptr: Address, given: object, default: str) -> str:
    """The dtype of a composite's output: as given, else that of where it goes."""
    if given is None:
        return str(getattr(out_ptr, "dtype", default))
    return dtype_name(given)


def _is_tiled(op: OpSpec) -> bool:
    """Whether a composite can be made of tiles of an op: an elementwise one."""
    return op.form.pointwise and op.call is not None


def _step_arguments(name: Any) -> int | None:
    """How many arguments the epilogue step ``name`` takes; None if there is none."""
    op = NUMPY_OPS.get(name) if isinstance(name, str) else None
    if op is None or not op.epilogue:
        return None
    return op.arity - 1


def _valid_steps() -> str:
    """What an epilogue step may be, in words."""
    steps = [op for op in NUMPY_OPS.values() if op.epilogue]
    names = tuple(op.name for op in steps)
    alone = [op.name for op in steps if op.arity == 1]
    verb = "takes" if len(alone) == 1 else "take"
    without = f"{', '.join(alone)} {verb} no argument"
    return f"{names} with a scope; {without}, every other step one"


def _broadcasts(shape: tuple[int, ...], product: tuple[int, int]) -> bool:
    """Whether each axis of ``shape`` is the product's, or 1."""
    if len(shape) > 2:
        return False
    rows, cols = (1, 1, *shape)[-2:]
    return rows in (1, product[0]) and cols in (1, product[1])


def _along(values: tuple[int, int, int], axis: int) -> int:
    """The value for an axis; KernelError for an axis that there is not."""
    if axis not in (0, 1, 2):
        raise KernelError(f"axis {axis!r}: valid are 0 (PE), 1 (cube), 2 (SIP)")
    return values[axis]


def _printed(x: Any) -> Any:
    """What device_print shows of ``x``."""
    if isinstance(x, TensorHandle) and x.ready:
        return x.data
    return x


def _dataflow(what: str, given: str | None) -> str:
    """The dataflow that a call asks for, "" for the machine's; KernelError if none."""
    if given is None:
        return ""
    if given not in DATAFLOWS:
        raise KernelError(
            f"{what}: dataflow={given!r} must be one of {', '.join(DATAFLOWS)}; leave "
            "it out for that of the machine (pe.gemm.dataflow)"
        )
    return given


def _dot_dtype(a: TensorHandle, acc: Out, out: Out) -> str:
    """The dtype of a dot's result: that of what it is written to, else of ``a``."""
    if acc is not None:
        return acc.dtype
    if out is not None:
        return out.dtype
    return a.dtype


@dataclass(frozen=True, slots=True)
class _Product:
    """What dot and composite have in common: the fields of a ProductCmd but ``out``."""

    a: Region
    b: Region
    m: int
    k: int
    n: int
    dtype_acc: str
    transpose_a: bool
    transpose_b: bool

    @classmethod
    def of(cls, a: TensorHandle, b: TensorHandle) -> _Product:
        """The product of two handles; KernelError if they do not fit."""
        if len(a.shape) != 2 or len(b.shape) != 2 or a.shape[1] != b.shape[0]:
            raise KernelError(
                f"gemm of {a.shape} and {b.shape}: needs (m, k) and (k, n)"
            )
        if a.dtype != b.dtype:
            raise KernelError(
                f"gemm of {a.dtype} and {b.dtype}: both operands need the same dtype"
            )
        m, k = a.shape
        n = b.shape[1]
        return cls(
            a=a.region,
            b=b.region,
            m=m,
            k=k,
            n=n,
            dtype_acc=_accumulator(a.dtype),
            transpose_a=a.transposed,
            transpose_b=b.transposed,
        )

    def fields(self) -> dict[str, Any]:
        """As keywords of a command."""
        return {name: getattr(self, name) for name in self.__slots__}


def _accumulator(dtype: str) -> str:
    """In which dtype products of ``dtype`` are summed: f32 of floats, i32 of integers.

    u32 and dtypes of 8 bytes have 64 bits.
    """
    bits = 64 if dtype == "u32" or itemsize(dtype) == 8 else 32
    return f"f{bits}" if is_float(dtype) else f"i{bits}"
