"""``tl`` outside of kernels: for annotations of their arguments, and names of dtypes.

A kernel is given the ``tl`` that it calls as its last parameter.
"""

from typing import Any, TypeAlias

from kernbench.common.dtypes import dtype_name, is_dtype_name

constexpr: TypeAlias = Any
"""What an argument is that is known before the kernel runs: here each is."""


def __getattr__(name: str) -> str:
    """Our name of a dtype; AttributeError for a call, which only a kernel can make."""
    if is_dtype_name(name):
        return dtype_name(name)
    raise AttributeError(
        f"tl has no {name!r} outside of kernels; a kernel calls the tl that is its "
        "last parameter"
    )
