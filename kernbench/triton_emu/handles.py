"""What tl calls give back: handles on tensors in scratch or HBM, ready or pending (ADR-0020 D3)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from kernbench.common.messages import Region
from kernbench.errors import KernbenchError, PendingDataError
from kernbench.sim_engine.event_log import Site

if TYPE_CHECKING:
    from kernbench.triton_emu.calls import Call
    from kernbench.triton_emu.issuer import Issuer

Scalar: TypeAlias = "int | float | np.number[Any] | np.bool_"
SCALARS = (int, float, np.number, np.bool_)
Operand: TypeAlias = "TensorHandle | Scalar"
Out: TypeAlias = "TensorHandle | None"
Shape: TypeAlias = Sequence[int]
_ARITHMETIC = ("add", "sub", "mul", "div")


def _operator(op: str, swapped: bool = False) -> Callable[..., TensorHandle]:
    """The operator that makes the tl call ``op``; ``swapped``: the handle is its right side."""

    def call(self: TensorHandle, *other: Any) -> Any:
        if not all(isinstance(x, (TensorHandle, *SCALARS)) for x in other):
            return NotImplemented
        return getattr(self.tl, op)(*((*other, self) if swapped else (self, *other)))

    return call


@dataclass(slots=True, eq=False, repr=False)
class TensorHandle:
    """A tensor of known place, shape and dtype. Its data are the bytes there, ready or pending.

    Row-major in ``region``, or the transpose of that. ``call`` is the latest to fill it, ``scope``
    that of its scratch; a view leaves both to its ``base``.
    """

    tl: Issuer
    id: str
    region: Region
    site: Site
    call: Call | None = None
    base: TensorHandle | None = None
    transposed: bool = False
    scope: object = None
    awaited: bool = True

    __array_priority__ = 1000.0  # a numpy scalar leaves its operators to the handle

    @property
    def root(self) -> TensorHandle:
        """Itself, or the handle that it is a view of."""
        return self if self.base is None else self.base

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents of the tensor."""
        return self.region.shape[::-1] if self.transposed else self.region.shape

    @property
    def dtype(self) -> str:
        """Our dtype name."""
        return self.region.dtype

    @property
    def addr(self) -> int:
        """Physical address of its first byte."""
        return self.region.addr

    @property
    def ready(self) -> bool:
        """Whether its data may be looked at now."""
        try:
            return self.data is not None
        except KernbenchError:
            return False

    @property
    def data(self) -> npt.NDArray[Any]:
        """The data, read-only; PendingDataError says what they wait for and what to do."""
        made = f"{self.id} (made at {self.site.file}:{self.site.line})"
        if not self.root.awaited:
            raise PendingDataError(
                f"{made} was loaded with wait=False and is not awaited yet; call tl.wait(handle) "
                "before looking at its data"
            )
        data = self.tl._ctx.peek(self.tl._live(self, "data").region)
        if isinstance(data, str):
            raise PendingDataError(
                f"the data of {made} are pending: {data}; Phase 1 has no values of compute "
                "results. Use it as an operand, or read it with tensor.numpy() between launches"
            )
        return data.T if self.transposed else data

    def __array__(
        self, dtype: Any = None, copy: bool | None = None
    ) -> npt.NDArray[Any]:
        return np.asarray(self.data, dtype=dtype)

    def __getitem__(self, index: Any) -> Any:
        return self.data[index]

    def __len__(self) -> int:
        return self.shape[0] if self.shape else 0

    def __bool__(self) -> bool:
        return bool(self.data)

    def __float__(self) -> float:
        return float(self.data.item())

    def __int__(self) -> int:
        return int(self.data.item())

    __neg__, __abs__ = _operator("neg"), _operator("abs")
    __add__, __sub__, __mul__, __truediv__ = map(_operator, _ARITHMETIC)
    __radd__, __rsub__, __rmul__, __rtruediv__ = (
        _operator(op, True) for op in _ARITHMETIC
    )
    __matmul__ = _operator("dot")
    __lt__, __le__, __gt__, __ge__ = map(_operator, ("lt", "le", "gt", "ge"))
    __eq__, __ne__ = _operator("eq"), _operator("ne")  # type: ignore[assignment]
    __hash__ = (
        object.__hash__
    )  # == makes a tensor; identity stays the key of sets and dicts

    def __repr__(self) -> str:
        state = "ready" if self.ready else "pending"
        return f"<{self.id} {self.dtype}{list(self.shape)} in {self.region.space}, {state}>"


class CompletionHandle(TensorHandle):
    """A composite under way, and a reference to its result in HBM, which is always pending."""

    __slots__ = ()
