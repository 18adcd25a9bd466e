"""The data commands that PE_CPU issues (ADR-0020 D4, D5).

One served command is one op record.

Addresses are physical: pe_mmu has translated before a command is made. A command names
the engine of its PE that serves it (``served_by``), and PE_SCHEDULER hands it over.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from kernbench.common.messages import MsgBase, Region, as_matrix
from kernbench.common.rows import Rows

DATAFLOWS = ("ws", "os", "is")
"""What may stay in the array while the rest streams: weights, outputs, or inputs."""


@dataclass(slots=True, eq=False, kw_only=True)
class DmaReadCmd(MsgBase):
    """HBM (or another PE's memory) into this PE's TCM scratch."""

    data_op: ClassVar[bool] = True
    served_by: ClassVar[str] = "pe_dma"
    src: Region
    dst: Region
    handle_id: str

    def regions(self) -> tuple[tuple[Region, ...], tuple[Region, ...]]:
        """Reads src, writes dst."""
        return (self.src,), (self.dst,)


@dataclass(slots=True, eq=False, kw_only=True)
class DmaWriteCmd(MsgBase):
    """``src`` to HBM at ``dst_addr``, in the rows of ``strided`` if there are any."""

    data_op: ClassVar[bool] = True
    served_by: ClassVar[str] = "pe_dma"
    src: Region
    dst_addr: int
    handle_id: str
    strided: Rows | None = None

    @property
    def dst(self) -> Region:
        """Where it goes: in HBM, with the shape and dtype of src."""
        return replace(self.src, space="hbm", addr=self.dst_addr, strided=self.strided)

    def regions(self) -> tuple[tuple[Region, ...], tuple[Region, ...]]:
        """Reads src, writes dst."""
        return (self.src,), (self.dst,)


@dataclass(slots=True, eq=False, kw_only=True)
class ProductCmd(MsgBase):
    """out[m, n] = a[m, k] @ b[k, n], accumulated in ``dtype_acc`` and rounded once.

    Shapes of ``a`` and ``b`` are as stored: (k, m) and (n, k) where the transpose flag
    is set. ``dataflow`` is one of ``DATAFLOWS``, or "" for that of the machine.
    """

    data_op: ClassVar[bool] = True
    a: Region
    b: Region
    out: Region
    m: int
    k: int
    n: int
    dtype_acc: str = "f32"
    transpose_a: bool = False
    transpose_b: bool = False
    dataflow: str = ""


@dataclass(slots=True, eq=False, kw_only=True)
class GemmCmd(ProductCmd):
    """A product of tensors in TCM or HBM, added to ``acc`` where there is one."""

    served_by: ClassVar[str] = "pe_gemm"
    acc: Region | None = None

    def regions(self) -> tuple[tuple[Region, ...], tuple[Region, ...]]:
        """Reads a, b and acc, writes out."""
        if self.acc is None:
            return (self.a, self.b), (self.out,)
        return (self.a, self.b, self.acc), (self.out,)


@dataclass(slots=True, eq=False, kw_only=True)
class MathCmd(MsgBase):
    """out = op(inputs, scalars), with numpy broadcasting.

    Arguments of the op are the inputs in order, with the ``scalars`` put in between:
    each stands at its index of ``scalar_positions``. ``axis`` and ``keepdims`` are
    those of a reduction.
    """

    data_op: ClassVar[bool] = True
    served_by: ClassVar[str] = "pe_math"
    op: str
    inputs: tuple[Region, ...]
    out: Region
    axis: int | None = None
    keepdims: bool = False
    scalars: tuple[float, ...] = ()
    scalar_positions: tuple[int, ...] = ()

    def regions(self) -> tuple[tuple[Region, ...], tuple[Region, ...]]:
        """Reads the inputs, writes out."""
        return self.inputs, (self.out,)


@dataclass(slots=True, eq=False, kw_only=True)
class SendCmd(MsgBase):
    """``src`` to the peer in ``direction``.

    It counts as started when all of its source has been read.
    """

    served_by: ClassVar[str] = "pe_ipcq"
    undone: ClassVar[str] = "its payload was not sent"
    direction: str
    src: Region

    def regions(self) -> tuple[tuple[Region, ...], tuple[Region, ...]]:
        """Reads src."""
        return (self.src,), ()


@dataclass(slots=True, eq=False, kw_only=True)
class RecvCmd(MsgBase):
    """The next payload from the peer in ``direction`` into ``dst``.

    It counts as started with its last slot. ``land`` is called with each piece of dst
    and its data, or the reason that they are pending; ``call`` says what and where this
    call is.
    """

    served_by: ClassVar[str] = "pe_ipcq"
    undone: ClassVar[str] = "no payload was taken"
    direction: str
    dst: Region
    call: str
    land: Callable[[Region, Any], None]

    def regions(self) -> tuple[tuple[Region, ...], tuple[Region, ...]]:
        """Writes dst."""
        return (), (self.dst,)


@dataclass(slots=True, eq=False, kw_only=True)
class SlotCopy(MsgBase):
    """A slot's worth of a payload on its way into a slot of a ring, or out of it.

    ``data`` is an array, or the reason that the bytes are pending.
    """

    data_op: ClassVar[bool] = True
    src: Region
    dst: Region
    data: Any = None


@dataclass(slots=True, eq=False, kw_only=True)
class PushCmd(MsgBase):
    """``copy`` to another PE, on the virtual channel that a PE_IPCQ has in its PE_DMA.

    ``read`` is the SimPy event that its source has been read; ``on_landed`` is called
    when all of it is in the slot.
    """

    copy: SlotCopy
    read: Any
    on_landed: Callable[[], None]


@dataclass(frozen=True, slots=True)
class Epilogue:
    """One step on the output of a composite gemm: ``op(acc, operand | scalar)``.

    ``scope`` is "output_tile" (once, on the finished sum) or "k_tile" (on every partial
    product before it is added). ``operand`` broadcasts against the whole (m, n) output.
    """

    op: str
    scope: str = "output_tile"
    operand: Region | None = None
    scalar: float | None = None


@dataclass(slots=True, eq=False, kw_only=True)
class CompositeCmd(ProductCmd):
    """epilogue(a @ b) in tiles of (m, n, k) ``tile`` over whole operands.

    ``out`` lies in HBM; ``op`` is "gemm".
    """

    served_by: ClassVar[str] = "pe_scheduler"
    op: str
    tile: tuple[int, int, int]
    epilogue: tuple[Epilogue, ...] = ()

    def regions(self) -> tuple[tuple[Region, ...], tuple[Region, ...]]:
        """Reads both operands and those of the epilogue, writes out."""
        operands = tuple(
            step.operand for step in self.epilogue if step.operand is not None
        )
        return (self.a, self.b, *operands), (self.out,)


@dataclass(slots=True, eq=False, kw_only=True)
class CompositeMathCmd(MsgBase):
    """out = op(inputs, scalars) in tiles of (m, n, 1) ``tile``, elementwise.

    Arguments of the op are as in a ``MathCmd``. ``out`` lies in HBM and has at most two
    axes, m and n; the inputs broadcast to it.
    """

    data_op: ClassVar[bool] = True
    served_by: ClassVar[str] = "pe_scheduler"
    axis: ClassVar[None] = None
    keepdims: ClassVar[bool] = False
    k: ClassVar[int] = 1
    op: str
    inputs: tuple[Region, ...]
    out: Region
    tile: tuple[int, int, int]
    scalars: tuple[float, ...] = ()
    scalar_positions: tuple[int, ...] = ()

    @property
    def m(self) -> int:
        """Rows of the output."""
        return as_matrix(self.out.shape)[0]

    @property
    def n(self) -> int:
        """Columns of the output."""
        return as_matrix(self.out.shape)[1]

    def regions(self) -> tuple[tuple[Region, ...], tuple[Region, ...]]:
        """Reads the inputs, writes out."""
        return self.inputs, (self.out,)
