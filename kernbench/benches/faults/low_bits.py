"""Fault: a table of ops whose exp loses the low half of its mantissa.

The kernel is right, and so is the table that ``kernbench run`` executes it with, unless
``table=coarse``. What is wrong is OPS. To be found by the debug check of an executor
that uses it, which names the exp as the first op over its bound, and by verification. A
debugger executes with the right table: it finds nothing wrong with what the run
(``--debug``) says is.
"""

from dataclasses import replace
from typing import Any

import numpy as np

from kernbench.common.arrays import Array
from kernbench.runtime_api.registry import bench, one_of
from kernbench.sim_engine.numpy_ops import NUMPY_OPS


def coarse_exp(x: Array) -> Array:
    """exp(x) with 12 of its 23 bits of mantissa."""
    bits = np.exp(x, dtype=np.float32).view(np.uint32)
    return (bits & 0xFFFF_F800).view(np.float32)


OPS = NUMPY_OPS | {"exp": replace(NUMPY_OPS["exp"], function=coarse_exp)}


def kernel(x_ptr: Any, y_ptr: Any, tl: Any) -> None:
    """y = exp(x + x) + 1."""
    x = tl.load(x_ptr)
    e = tl.exp(x + x)  # fault: if OPS executes it
    tl.store(y_ptr, e + 1.0)


@bench(
    name="fault_low_bits",
    description="fault: an op table whose exp drops mantissa bits",
)
def run(torch: Any, n: int = 256, table: str = "right") -> None:
    """``n`` elements on one PE; ``table``, right or coarse, is that of Phase 2."""
    one_of(("right", "coarse"), table=table)
    if table == "coarse":
        torch.ops.update(OPS)
    data = torch.rng.standard_normal(n).astype("f4")
    x = torch.tensor(data, name="x")
    y = torch.empty((n,), "f32", name="y")
    torch.launch("low_bits", kernel, x, y)
    torch.expect(y, np.exp(2 * data.astype("f8")) + 1)
