"""Which dtype the result of a ``tl`` call has: the rules that an ``OpSpec`` may name.

- Floats with floats give the wider; two of the same width give f32 (of 16 bits) or f16
  (of 8).
- A float with integers or bool gives the float, integers and bool what numpy gives.
- Python and numpy scalars promote nothing, but a float one makes f32 of integer handles
  (which it casts first), and a whole one makes i32 of bool.
- An op that leaves the integers (exp, div, softmax …) makes f32 of them, and a sum
  makes i32 of bool.
- Comparisons give bool, places (argmax …) i32, and what an op selects by does not
  count. What is put in another order keeps its dtype.

A ``dtype=`` of the call, or the tensor that is given as ``out=``, overrules them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np

from kernbench.common.dtypes import is_float, itemsize, name_of, np_dtype
from kernbench.errors import KernelError


class Typed(Protocol):
    """A tensor, as far as these rules know it: a kernel's handle, or a region."""

    @property
    def dtype(self) -> str:
        """Our dtype name."""


Scalar: TypeAlias = "int | float | np.number | np.bool_"
SCALARS = (int, float, np.number, np.bool_)
Operands: TypeAlias = Sequence["Typed | Scalar"]


@dataclass(frozen=True, slots=True)
class DtypeRule:
    """How the dtype of an op's result follows from its operands.

    ``result(name, operands)`` gives our dtype name; ``name`` is that of the op, for
    errors. ``casts_integers`` says that integer operands are cast to the result's dtype
    before the op, if that is a float. ``real`` says that the op leaves the integers, so
    that integer operands are computed in f64.
    """

    result: Callable[[str, Operands], str]
    casts_integers: bool = False
    real: bool = False


def _tensor_dtypes(operands: Operands) -> set[str]:
    """Our names of the dtypes of the operands that are no scalars."""
    return {x.dtype for x in operands if not isinstance(x, SCALARS)}


def _numbers(operands: Operands) -> list[Scalar]:
    """The operands that are scalars, but for bool ones, which promote nothing."""
    scalars = [x for x in operands if isinstance(x, SCALARS)]
    return [x for x in scalars if not isinstance(x, (bool, np.bool_))]


def _widest_float(dtypes: set[str]) -> str | None:
    """The float dtype that holds all floats among ``dtypes``, if there are any."""
    floats = {name for name in dtypes if is_float(name)}
    if not floats:
        return None
    width = max(itemsize(name) for name in floats)
    widest = {name for name in floats if itemsize(name) == width}
    if len(widest) == 1:
        return widest.pop()
    return {1: "f16", 2: "f32"}[width]


def _promoted(name: str, operands: Operands) -> str:
    """What the operands have in common."""
    dtypes = _tensor_dtypes(operands)
    numbers = _numbers(operands)
    wide = _widest_float(dtypes)
    if wide is not None:
        return wide
    if any(isinstance(x, (float, np.floating)) for x in numbers):
        return "f32"
    if dtypes <= {"bool"}:
        return "i32" if numbers else "bool"
    return name_of(np.result_type(*map(np_dtype, dtypes)))


def _real(name: str, operands: Operands) -> str:
    """The widest float; f32 of integers."""
    return _widest_float(_tensor_dtypes(operands)) or "f32"


def _truth(name: str, operands: Operands) -> str:
    """Of a comparison: bool."""
    return "bool"


def _selected(name: str, operands: Operands) -> str:
    """What all but the first operand have in common: the first only selects."""
    return _promoted(name, operands[1:])


def _signed(name: str, operands: Operands) -> str:
    """What the operands have in common; KernelError for bool, which has no minus."""
    result = _promoted(name, operands)
    if result == "bool":
        raise KernelError(
            f"{name} of bool has no meaning; tl.cast the operands to i32 first"
        )
    return result


def _counted(name: str, operands: Operands) -> str:
    """What the operands have in common; i32 of bool, since true ones are counted."""
    result = _promoted(name, operands)
    return "i32" if result == "bool" else result


def _kept(name: str, operands: Operands) -> str:
    """That of the first operand, a tensor."""
    return operands[0].dtype  # type: ignore[union-attr, return-value]


def _index(name: str, operands: Operands) -> str:
    """Of a place in a tensor: i32."""
    return "i32"


PROMOTED = DtypeRule(_promoted, casts_integers=True)
SIGNED = DtypeRule(_signed, casts_integers=True)
COUNTED = DtypeRule(_counted, casts_integers=True)
SELECTED = DtypeRule(_selected)
REAL = DtypeRule(_real, real=True)
TRUTH = DtypeRule(_truth)
INDEX = DtypeRule(_index)
KEPT = DtypeRule(_kept)
