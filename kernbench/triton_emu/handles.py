"""What tl calls give back: handles on tensors in scratch or HBM, ready or pending (ADR-0020 D3)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from kernbench.common.messages import Region
from kernbench.errors import PendingDataError
from kernbench.sim_engine.event_log import Site

if TYPE_CHECKING:
    from kernbench.triton_emu.calls import Call
    from kernbench.triton_emu.tl_context import TLContext

Scalar = int | float


class TensorHandle:
    """A contiguous tensor of known place, shape and dtype; its data only if they are ready in
    Phase 1.

    ``call`` is the tl call that fills it (None for a ref), ``why`` says what a pending one waits
    for.
    """

    __slots__ = ("awaited", "call", "data_or_none", "id", "region", "site", "tl", "why")

    def __init__(
        self,
        tl: TLContext,
        id: str,
        region: Region,
        site: Site,
        call: Call | None = None,
        why: str = "",
    ) -> None:
        self.tl = tl
        self.id = id
        self.region = region
        self.site = site
        self.call = call
        self.why = why
        self.awaited = call is None
        self.data_or_none: npt.NDArray[Any] | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents of the tensor."""
        return self.region.shape

    @property
    def dtype(self) -> str:
        """Our dtype name."""
        return self.region.dtype

    @property
    def space(self) -> str:
        """The memory that it lies in: "tcm" or "hbm"."""
        return self.region.space

    @property
    def addr(self) -> int:
        """Physical address of its first byte."""
        return self.region.addr

    @property
    def ready(self) -> bool:
        """Whether its data may be looked at now."""
        return self.awaited and self.data_or_none is not None

    @property
    def data(self) -> npt.NDArray[Any]:
        """The data, read-only; PendingDataError says what they wait for and what to do."""
        if not self.awaited and not self.why:
            raise PendingDataError(
                f"{self.id} (made at {self.site.file}:{self.site.line}) was loaded with wait=False "
                "and is not awaited yet; call tl.wait(handle) before looking at its data"
            )
        if self.data_or_none is None:
            raise PendingDataError(
                f"the data of {self.id} (made at {self.site.file}:{self.site.line}) are pending: "
                f"{self.why or 'a compute result'}; Phase 1 has no values of compute results. Use "
                "it as an operand, or read it with tensor.numpy() between launches"
            )
        return self.data_or_none

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
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

    def __add__(self, other: TensorHandle | Scalar) -> TensorHandle:
        return self.tl.add(self, other)

    def __radd__(self, other: Scalar) -> TensorHandle:
        return self.tl.add(other, self)

    def __sub__(self, other: TensorHandle | Scalar) -> TensorHandle:
        return self.tl.sub(self, other)

    def __rsub__(self, other: Scalar) -> TensorHandle:
        return self.tl.sub(other, self)

    def __mul__(self, other: TensorHandle | Scalar) -> TensorHandle:
        return self.tl.mul(self, other)

    def __rmul__(self, other: Scalar) -> TensorHandle:
        return self.tl.mul(other, self)

    def __truediv__(self, other: TensorHandle | Scalar) -> TensorHandle:
        return self.tl.div(self, other)

    def __rtruediv__(self, other: Scalar) -> TensorHandle:
        return self.tl.div(other, self)

    def __repr__(self) -> str:
        state = "ready" if self.ready else "pending"
        return f"<{self.id} {self.dtype}{list(self.shape)} in {self.space}, {state}>"


class CompletionHandle(TensorHandle):
    """A composite under way, and a reference to its result in HBM, which is always pending."""

    __slots__ = ()
