"""The calls of ``tl`` that PE_MATH serves, as the documents show them."""

from __future__ import annotations

from collections.abc import Iterator
from inspect import signature

from kernbench.sim_engine.numpy_ops import NUMPY_OPS
from kernbench.triton_emu.tl_context import TLContext


def math_calls_as_markdown() -> Iterator[str]:
    """Each call with its arguments, its cycles for an element in a lane, its meaning."""
    calls = {name: _call(name) for name in NUMPY_OPS if hasattr(TLContext, name)}
    columns = max(len(call) for call in calls.values())
    yield f"    {'call':<{columns}}  cycles  result"
    for name, call in calls.items():
        cycles = NUMPY_OPS[name].cost_cycles
        meaning = (getattr(TLContext, name).__doc__ or "").partition("\n")[0]
        yield f"    {call:<{columns}}  {cycles:>6}  {meaning.replace('``', '')}"


def _call(name: str) -> str:
    """The call as a kernel writes it, with the names of its arguments."""
    arguments = [*signature(getattr(TLContext, name)).parameters.values()][1:]
    shown = []
    for argument in arguments:
        if argument.default is argument.empty:
            shown.append(argument.name)
        else:
            shown.append(f"{argument.name}={argument.default!r}")
    return f"{name}({', '.join(shown)})"
