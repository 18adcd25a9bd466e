"""What an op of MATH, or a step of an epilogue, is: one ``OpSpec``.

Everything that the rest of the house asks about an op is a field of its row: ``tl``
asks for the call, the dtype and the shape of the result, the MATH unit for the cost,
Phase 2 for the function, the oracle for its error, and blame for what each element
reads. Knows no record, no memory and no machine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from kernbench.common.arrays import Array
from kernbench.errors import UsageError
from kernbench.sim_engine.arithmetic import NumpyDtype, oracle_dtype, work_dtype
from kernbench.sim_engine.op_calls import CallForm
from kernbench.sim_engine.op_dtypes import PROMOTED, SIGNED, DtypeRule
from kernbench.sim_engine.op_forms import ELEMENTWISE, Form

Slots: TypeAlias = Sequence[NumpyDtype | float]
"""The operands of an op in order: the dtype of an array, or the value of a scalar."""

Bound: TypeAlias = Callable[[Sequence[Array], tuple[int, ...]], Array]
"""f(arrays, shape of the output): the result, not yet rounded."""


@dataclass(frozen=True, slots=True)
class OpSpec:
    """One op.

    ``function`` is its numpy function, called with ``arity`` operands as ``form`` says;
    a form that places elements may be given more scalars than that.

    ``call`` is how a kernel calls it as ``tl.<name>``; None if it has no call of its
    own. ``operator`` is the Python operator that means the same on handles, without its
    underscores. With ``epilogue`` it may be a step of a composite's epilogue.

    ``dtype`` is the rule for the dtype of its result, and says whether it leaves the
    integers.

    ``cost_cycles`` is the time of MATH for one element in one lane (docs/machine.md,
    "MATH"): 1 for an add, 4 for special functions, as GPUs have 64 FP32 lanes and 16 of
    those in a multiprocessor, and for a softmax the sum of its steps.

    ``ulps`` bound the error of the function as computed; 0 if it is exact. IEEE 754
    rounds + - * / and sqrt correctly (0.5); numpy's SIMD functions are held to 4 (its
    SVML builds and the validation sets of its tests); an op of several steps has their
    sum. Where terms may cancel, ``sums`` says that the error is relative to the op of
    the operands' magnitudes. A reduction with an error has 0.5 ulp more for each
    element that it adds.
    """

    name: str
    function: Callable[..., Any]
    arity: int
    call: CallForm | None = None
    help: str = ""
    form: Form = ELEMENTWISE
    operator: str = ""
    epilogue: bool = False
    dtype: DtypeRule = PROMOTED
    cost_cycles: int = 1
    ulps: float = 0.0
    sums: bool = False

    def bind(
        self,
        slots: Slots,
        axis: int | None = None,
        keepdims: bool = False,
        wide: bool = False,
    ) -> Bound:
        """Return the op as f(arrays, shape), not yet rounded.

        ``wide`` computes every float in f64, as the oracle does. Scalars are values of
        the dtype in which the op is computed, in the oracle too. An op of a pointwise
        form may be called with arrays and a shape of one more axis in front. Whoever
        calls f mutes numpy's warnings. Raises UsageError for too few or too many
        operands, or for the minus of bool; f raises ValueError if they do not
        broadcast.
        """
        self.check_arity(len(slots))
        function = self.function
        dtypes = [x for x in slots if isinstance(x, np.dtype)]
        scalars = {i: x for i, x in enumerate(slots) if not isinstance(x, np.dtype)}
        values = list(scalars.values())
        options = self.form.options(axis, keepdims)
        if not self.form.computes:

            def place(arrays: Sequence[Array], shape: tuple[int, ...]) -> Array:
                placed = function(shape, *arrays, *values, **options)
                return np.asarray(placed).reshape(shape)

            return place

        narrow = work_dtype(dtypes, values, self.dtype.real)
        if self.dtype is SIGNED and narrow.kind == "b":
            raise UsageError(f"{self.name} of bool has no meaning; cast it to i32")
        work = oracle_dtype(narrow) if wide else narrow
        with np.errstate(all="ignore"):
            fixed = [(i, _as_value(x, narrow, work)) for i, x in scalars.items()]

        def compute(arrays: Sequence[Array], shape: tuple[int, ...]) -> Array:
            operands = [x.astype(work, copy=False) for x in arrays]
            for i, scalar in fixed:
                operands.insert(i, scalar)
            return np.asarray(function(*operands, **options)).reshape(shape)

        return compute

    def check_arity(self, given: int) -> None:
        """Raise UsageError unless the op takes so many operands."""
        more_is_fine = not self.form.computes
        if given < self.arity or (given > self.arity and not more_is_fine):
            raise UsageError(f"op takes {self.arity} operands, not {given}")


def _as_value(scalar: float, narrow: NumpyDtype, work: NumpyDtype) -> Array:
    """``scalar`` as a value of ``narrow``, held in ``work``."""
    return np.asarray(scalar).astype(narrow).astype(work)
