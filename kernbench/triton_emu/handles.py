"""What tl calls give back: handles on tensors in scratch or HBM (ADR-0020 D3).

Their data are ready or pending. Knows of ``tl`` only what ``DataOwner`` says, and the
ops of ``NUMPY_OPS`` that Python has operators for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import prod
from operator import index as whole_number
from typing import Any, NoReturn, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from kernbench.common.arrays import Array
from kernbench.common.dtypes import is_float
from kernbench.common.from_triton import instead_of
from kernbench.common.messages import Region
from kernbench.errors import KernbenchError, KernelError, PendingDataError
from kernbench.sim_engine.event_log import Site
from kernbench.sim_engine.numpy_ops import NUMPY_OPS
from kernbench.sim_engine.op_dtypes import SCALARS, TRUTH, Scalar
from kernbench.triton_emu.calls import Call

Operand: TypeAlias = "TensorHandle | Scalar"
Out: TypeAlias = "TensorHandle | None"
Shape: TypeAlias = Sequence[int]


class DataOwner(Protocol):
    """The ``tl`` that made a handle, as the handle knows it.

    The Python operators of a handle are calls of it too, by their names.
    """

    def bytes_of(self, handle: TensorHandle) -> Array | str:
        """The bytes of ``handle`` as they are stored, or why they are pending.

        Raises KernelError if the handle was released.
        """

    def truth_of(self, handle: TensorHandle) -> bool | None:
        """Whether the comparison of ready data that fills ``handle`` is true.

        None if no such comparison does. It takes the PE's CPU one issue. Raises
        ValueError for more than one element.
        """


@dataclass(slots=True, eq=False, repr=False)
class TensorHandle:
    """A tensor of known place, shape and dtype. Its data are the bytes there.

    It is row-major in ``region``, or the transpose of that. ``call`` is the latest to
    fill it, ``scope`` that of its scratch; a view leaves both to its ``base``.
    ``awaited`` says that what fills it has been waited for.
    """

    tl: DataOwner
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
        if self.transposed:
            return self.region.shape[::-1]
        return self.region.shape

    @property
    def dtype(self) -> str:
        """Our dtype name."""
        return self.region.dtype

    @property
    def size(self) -> int:
        """Elements of the tensor."""
        return prod(self.region.shape)

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
        """The data, read-only.

        Raises PendingDataError, which says what they wait for and what to do.
        """
        made = f"{self.id} (made at {self.site.file}:{self.site.line})"
        if not self.root.awaited:
            raise PendingDataError(
                f"{made} was loaded with wait=False and is not awaited yet; call "
                "tl.wait(handle) before looking at its data"
            )
        data = self.tl.bytes_of(self)
        if isinstance(data, str):
            raise PendingDataError(
                f"the data of {made} are pending: {data}; Phase 1 has no values of "
                "compute results. Use it as an operand, or read it with tensor.numpy() "
                "between launches; to branch on or address by loaded data, take them "
                "as numbers: int(handle) * 4, handle.numpy().max()"
            )
        return data.T if self.transposed else data

    def __array__(
        self, dtype: Any = None, copy: bool | None = None
    ) -> npt.NDArray[Any]:
        return np.asarray(self.data, dtype=dtype)

    def numpy(self) -> npt.NDArray[Any]:
        """The data, read-only, as ``data``."""
        return self.data

    def item(self, *index: Any) -> Any:
        """The one element as a Python number, or the one at an index, as in numpy."""
        return self.data.item(*index)

    def tolist(self) -> Any:
        """The data as lists of Python numbers, nested by axis."""
        return self.data.tolist()

    def __getattr__(self, name: str) -> NoReturn:
        problem = f"{type(self).__name__!r} object has no attribute {name!r}"
        problem += instead_of(name)
        if hasattr(np.ndarray, name) and not name.startswith("__"):
            problem += f"; an array has: use handle.numpy().{name} of what was loaded"
            if hasattr(type(self.tl), name):
                problem += f", or tl.{name}(handle)"
        raise AttributeError(problem, name=name, obj=self)

    def __getitem__(self, index: Any) -> Any:
        items = index if isinstance(index, tuple) else (index,)
        if any(item is None for item in items) and not self.ready:
            raise KernelError(
                f"{self!r} with None as an index: a new axis is tl.reshape(x, shape), "
                "as (rows, 1)"
            )
        if isinstance(index, tuple):
            return self.data[tuple(map(_as_index, index))]
        return self.data[_as_index(index)]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.data)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError(f"len() of {self!r}, which has no axes; see handle.size")
        return self.shape[0]

    def __bool__(self) -> bool:
        known = self.tl.truth_of(self)
        if known is not None:
            return known
        data = self.data
        if data.size > 1:
            raise ambiguous(self)
        return bool(data)

    def __float__(self) -> float:
        return float(self._number())

    def __int__(self) -> int:
        return int(self._number())

    def __index__(self) -> int:
        number = self._number()
        if is_float(self.dtype):
            raise TypeError(
                f"{self!r} is no whole number, as an index, a count or an address has "
                "to be; use int(handle)"
            )
        return whole_number(number)

    def _number(self) -> Any:
        """Its element as a Python number; TypeError if there are more."""
        data = self.data
        if data.size > 1:
            raise TypeError(
                f"{self!r} has {data.size} elements, so it is no number; take one of "
                "them, as handle[0], or all as handle.numpy()"
            )
        return data.item()

    def __matmul__(self, other: Any) -> Any:
        if not isinstance(other, (TensorHandle, *SCALARS)):
            return NotImplemented
        return _tl_call(self, "dot")(self, other)

    # == makes a tensor; identity stays the key of sets and dicts
    __hash__ = object.__hash__

    def __repr__(self) -> str:
        state = "ready" if self.ready else "pending"
        place = self.region.space
        return f"<{self.id} {self.dtype}{list(self.shape)} in {place}, {state}>"


def ambiguous(handle: TensorHandle) -> ValueError:
    """What to raise where more than one element is asked for its truth."""
    return ValueError(
        f"the truth value of {handle!r} is ambiguous, as it has {handle.size} "
        "elements; compare one, as in handle[0] > 0.5, or all that was loaded, as in "
        "(handle.numpy() > 0.5).all()"
    )


def _as_index(index: Any) -> Any:
    """What numpy is given for an item of an index; of a handle its number, or data."""
    if not isinstance(index, TensorHandle):
        return index
    if index.size == 1 and index.dtype != "bool":
        return whole_number(index)
    return index.data  # elements, or a mask


class CompletionHandle(TensorHandle):
    """A composite under way, and a reference to its result in HBM, which is pending."""

    __slots__ = ()


def _tl_call(handle: TensorHandle, name: str) -> Callable[..., Any]:
    """The call ``tl.<name>`` of the kernel that the handle belongs to."""
    call: Callable[..., Any] = getattr(handle.tl, name)
    return call


_OPERANDS = (TensorHandle, *SCALARS, np.ndarray, list, tuple)
"""What an operator hands to its call, which refuses arrays and lists.

Python would take them for unequal to every handle.
"""


def _operator(op: str) -> Callable[..., Any]:
    """The Python operator that is the tl call ``op`` of a handle, and of another."""

    def operator(self: TensorHandle, *other: Any) -> Any:
        if not all(isinstance(x, _OPERANDS) for x in other):
            return NotImplemented
        return _tl_call(self, op)(self, *other)

    return operator


def _reflected_operator(op: str) -> Callable[..., Any]:
    """The same with the handle on the right side, as in ``2 - handle``."""

    def operator(self: TensorHandle, other: Any) -> Any:
        if not isinstance(other, _OPERANDS):
            return NotImplemented
        return _tl_call(self, op)(other, self)

    return operator


def _add_operators() -> None:
    """Give handles the Python operators that rows of ``NUMPY_OPS`` name."""
    for spec in NUMPY_OPS.values():
        if not spec.operator:
            continue
        setattr(TensorHandle, f"__{spec.operator}__", _operator(spec.name))
        if spec.arity == 2 and spec.dtype is not TRUTH:  # Python mirrors a < b itself
            mirrored = f"__r{spec.operator}__"
            setattr(TensorHandle, mirrored, _reflected_operator(spec.name))


_add_operators()
