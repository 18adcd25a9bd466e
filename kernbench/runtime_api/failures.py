"""What to say of an output that is not as the bench expects: where, by how much, whose
copy, and which command says why.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path

import numpy as np

from kernbench.common.dtypes import Tolerance, itemsize, nbytes_of
from kernbench.errors import KernbenchError
from kernbench.sim_engine.accesses import regions
from kernbench.sim_engine.engine import GraphEngine
from kernbench.sim_engine.event_log import index_in_three_axes
from kernbench.sim_engine.memory_store import MemoryStore
from kernbench.sim_engine.verify import (
    Expectation,
    VerifyReport,
    VerifyRow,
    mismatches,
)

_PES_NAMED = 4
_STEPS = {"bf16": 2.0**-8, "f16": 2.0**-11}
"""Narrow floats, and how much of a number one rounding to them may take."""

_ROUNDINGS = 4
"""Roundings whose errors may have added up."""

_NEAR = 50
"""An error of so many times the tolerance may be one of rounding."""


def explained(
    engine: GraphEngine,
    report: VerifyReport,
    expected: Mapping[str, Expectation],
    store: MemoryStore,
    trace: Path | None,
) -> tuple[str, ...]:
    """Some lines for each tensor that fails; ``store`` is memory at the end."""
    lines: list[str] = []
    for row in report.by_tensor():
        mine = [each for each in report.rows if each.tensor == row.tensor]
        bad = [each for each in mine if not each.ok]
        places = [(_first_bad(each, expected[each.name], store), each) for each in bad]
        known = [(at, each) for at, each in places if at is not None]
        if row.ok or not known:
            continue
        index, first = min(known, key=lambda found: found[0])
        expectation = expected[first.name]
        element = f"{row.tensor}[{', '.join(map(str, index))}]"
        is_newer = _is_written_later(engine, expectation, index)
        values = _values(expectation, index, store, is_newer)
        cpu = _pe_cpu(engine, expectation)
        place = _pe(engine, expectation)
        lines.append(f"{element} on {place} {values}; {_tolerance(row.tolerance)}")
        if engine.place_of(expectation.addr) not in engine.launched:
            lines.append(
                f"  no kernel ran on {place}: a launch runs where there is a part of "
                "each of its tensors"
            )
        origin = expectation.origin
        copies = [each for each in mine if expected[each.name].origin == origin]
        lines += _of_copies(engine, row.tensor, copies, expected)
        narrow = ""
        if not row.note:  # else some were never written, which no rounding explains
            narrow = _narrow_rounding(engine, row, bad, expected)
        if narrow:
            lines.append(
                f"  it is off by what rounding to {narrow} leaves: some op makes "
                f"{narrow} (tl.dot does of such inputs; out_dtype= or a cast before it "
                "helps), or give torch.expect(…, rtol=, atol=) what that needs"
            )
        elif row.mismatches and not row.note and _is_near(row, bad, expected, store):
            lines.append(
                "  it is off by little: --debug says whether rounding explains that; "
                "if so, give torch.expect(…, rtol=, atol=) what its sums need"
            )
        owner = "" if copies[0].name == first.name else f"@{cpu}"
        named = index_in_three_axes(index, expectation.array.shape)
        asked = f"'{row.tensor}{owner}[{','.join(map(str, named))}]'"
        if is_newer:
            asked += f" --op {expectation.after - 1}"
        lines.append(f"  why: {_command(trace, asked)}")
    return tuple(lines)


def _first_bad(
    row: VerifyRow, expectation: Expectation, store: MemoryStore
) -> tuple[int, ...] | None:
    """The first wrong element of a shard, by the whole tensor's indices: one that
    differs, or one that was never written; None if neither is known.
    """
    if row.first_bad is not None:
        return row.first_bad
    wanted = expectation.array
    nbytes = nbytes_of(wanted.shape, expectation.dtype)
    gap = store.gap(expectation.space, expectation.addr, nbytes)
    if gap is None:
        return None
    number = (gap - expectation.addr) // itemsize(expectation.dtype)
    within = np.unravel_index(number, wanted.shape)
    origin = expectation.origin or (0,) * wanted.ndim
    return tuple(int(at) + low for at, low in zip(within, origin, strict=True))


def _address(expectation: Expectation, index: tuple[int, ...]) -> int:
    """Where an element is, by the whole tensor's indices."""
    within = _within(expectation, index)
    number = int(np.ravel_multi_index(within, expectation.array.shape))
    return expectation.addr + number * itemsize(expectation.dtype)


def _within(expectation: Expectation, index: tuple[int, ...]) -> tuple[int, ...]:
    """The indices of an element in its shard, by those in the whole tensor."""
    origin = expectation.origin or (0,) * len(index)
    return tuple(at - low for at, low in zip(index, origin, strict=True))


def _is_written_later(
    engine: GraphEngine, expectation: Expectation, index: tuple[int, ...]
) -> bool:
    """Whether an op has written an element since the bench looked at it."""
    addr = np.array([_address(expectation, index)])
    for record in islice(engine.op_log, expectation.after, None):
        try:
            write = regions(record).write
        except KernbenchError:  # one that cannot be executed
            continue
        if write is None or write.space != expectation.space:
            continue
        if write.where.offsets(addr)[0] >= 0:
            return True
    return False


def _values(
    expectation: Expectation,
    index: tuple[int, ...],
    store: MemoryStore,
    is_newer: bool,
) -> str:
    """What the element is, and what it is to be.

    Where ``store`` has a newer one than the bench has looked at, the latter is gone.
    """
    e = expectation
    expected = e.array[_within(e, index)]
    wanted = f"is to be {_number(expected)}"
    try:
        held = store.view(e.space, _address(e, index), (1,), e.dtype)[0]
    except KernbenchError:
        return f"{wanted}, and was never written"
    if is_newer or np.array_equal(held, expected, equal_nan=True):
        return f"{wanted}, and was not when the bench looked"
    if _number(held) == _number(expected):
        return f"is to be {expected}, and is {held}"  # with all digits
    return f"{wanted}, and is {_number(held)}"


def _number(value: object) -> str:
    """A number in seven digits, by which an f32 is told from most of its neighbours."""
    return f"{np.asarray(value).astype(np.float64).item():.7g}"


def _is_near(
    row: VerifyRow,
    bad: Sequence[VerifyRow],
    expected: Mapping[str, Expectation],
    store: MemoryStore,
) -> bool:
    """Whether no element is off by much more than it may be: neither when the bench
    looked, as far as the maxima of ``row`` tell, nor in any ``bad`` part now.
    """
    apart, relative, _ = row.worst
    near = Tolerance(_NEAR * row.tolerance.rtol, _NEAR * row.tolerance.atol)
    if apart > near.atol and relative > near.rtol:
        return False
    for each in bad:
        e = expected[each.name]
        held = store.view(e.space, e.addr, e.array.shape, e.dtype)
        if mismatches(held, e.array, near).any():
            return False  # the relative maximum knows nothing of what is to be 0
    return True


def _narrow_rounding(
    engine: GraphEngine,
    row: VerifyRow,
    bad: Sequence[VerifyRow],
    expected: Mapping[str, Expectation],
) -> str:
    """The narrower float that explains how far a tensor is off, if one took part.

    A rounding to it is off by that much of the largest number that the tensor holds.
    """
    largest = max(float(np.abs(expected[each.name].array).max()) for each in bad)
    if not row.mismatches or not np.isfinite(largest):
        return ""
    taken = {str(op.params.get("dtype")) for op in engine.op_log}
    for name, step in _STEPS.items():
        if name in taken and row.dtype not in _STEPS:
            return name if row.worst[0] <= _ROUNDINGS * step * largest else ""
    return ""


def _tolerance(tolerance: Tolerance) -> str:
    """How far it might have been."""
    if not tolerance.rtol and not tolerance.atol:
        return "it has to be equal"
    return f"{tolerance.atol:g} + {tolerance.rtol:g} |expected| off would do"


def _pe_cpu(engine: GraphEngine, expectation: Expectation) -> str:
    """The CPU of the PE in whose memory a shard lies; it owns the shard."""
    place = engine.place_of(expectation.addr)
    return engine.graph.at(*place, "pe_cpu")


def _pe(engine: GraphEngine, expectation: Expectation) -> str:
    """That PE."""
    return _pe_cpu(engine, expectation).rpartition(".")[0]


def _of_copies(
    engine: GraphEngine,
    tensor: str,
    copies: Sequence[VerifyRow],
    expected: Mapping[str, Expectation],
) -> list[str]:
    """Which copies of one part of a tensor are wrong, if there are several."""
    if len(copies) < 2:
        return []
    bad = [_pe(engine, expected[row.name]) for row in copies if not row.ok]
    named = ", ".join(bad[:_PES_NAMED])
    if len(bad) > _PES_NAMED:
        named += f" and {len(bad) - _PES_NAMED} more"
    if len(bad) == len(copies):
        return [
            f"  {tensor} is replicated, and all {len(copies)} copies of that part are "
            "wrong"
        ]
    return [
        f"  {tensor} is replicated on {len(copies)} PEs, and a PE writes its own copy: "
        f"wrong are {named}"
    ]


def _command(trace: Path | None, asked: str) -> str:
    """The command that says what made an element: ``asked`` is how that is named."""
    file = trace or "t.msgpack"
    blame = f"kernbench trace blame {file} {asked}"
    return blame if trace else f"run it with --trace {file}, then {blame}"
