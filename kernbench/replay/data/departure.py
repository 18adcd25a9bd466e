"""Where outputs went wrong though rounding explains every op: the op of departure.

Errors that add up have no op that is wrong by itself, and neither has a NaN that was
made of what an op may well be given.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import NamedTuple

from kernbench.common.dtypes import Tolerance
from kernbench.common.progress import (
    Progress,
    beside_if_many,
    no_progress,
    stage,
)
from kernbench.replay.data.diff import DiffIndex, OpDiff
from kernbench.replay.data.history import History
from kernbench.replay.data.outputs import OutputIndex
from kernbench.replay.data.slices import ops_behind
from kernbench.sim_engine.op_check import Written, born
from kernbench.sim_engine.verify import mismatches
from kernbench.trace import Trace


class _Behind(NamedTuple):
    """An output that fails: its tolerance, and the ops that it was made by."""

    tensor: str
    tolerance: Tolerance
    ops: set[int]


class DepartureIndex:
    """Finds where failing outputs went wrong, on the walk of a DiffIndex.

    All of it belongs to the thread of lane "memory": it executes ops.
    """

    def __init__(
        self, trace: Trace, history: History, outputs: OutputIndex, diffs: DiffIndex
    ) -> None:
        self._trace = trace
        self._history = history
        self._outputs = outputs
        self._diffs = diffs

    def first(self, progress: Progress = no_progress) -> OpDiff | None:
        """Where the outputs that fail went wrong, though no op did by itself.

        Of the ops that they were made by it is the first that made a NaN of operands
        that have none, or at which the error of all ops before it, together, exceeds
        the tolerance of the output. None if no output fails, or none of its ops is one.
        Executes the whole trace beside the oracle; KernbenchError if that cannot be.
        """
        behind = self._behind(stage(progress, 0.0, 0.4))
        if not behind:
            return None
        run = self._diffs.oracle_run(stage(progress, 0.4, 0.6))
        walked = stage(progress, 0.6, 0.9)
        steps = max(self._history.steps, 1)
        while True:
            check = run.next_check(walked)
            if check is None or run.last is None:
                return None
            op = int(self._trace.executable_positions[check.position])
            for output in behind:
                if op not in output.ops:
                    continue
                why = beside_if_many(
                    run.last.actual.size,
                    partial(_departs, run.last, output.tolerance),
                    walked,
                    check.position / steps,
                )
                if why:
                    note = f"no op is wrong by itself; of those behind {output.tensor} "
                    last = stage(progress, 0.9, 1.0)
                    diff = self._diffs.checked(op, self._history.steps, last)
                    return replace(diff, note=f"{note}this is the first {why}")

    def _behind(self, progress: Progress) -> list[_Behind]:
        """The outputs that are wrong when they are due, with the ops behind each."""
        failing = self._outputs.failing(stage(progress, 0.0, 0.5))
        sliced = stage(progress, 0.5, 1.0)
        behind: list[_Behind] = []
        for count, output in enumerate(failing):
            own = stage(sliced, count / len(failing), (count + 1) / len(failing))
            touched = self._history.touched
            ops = ops_behind(touched, output.places, output.after, own)
            behind.append(_Behind(output.tensor, output.tolerance, ops))
        return behind


def _departs(written: Written, tolerance: Tolerance) -> str:
    """What sets an op apart that an output went wrong at; empty if nothing does."""
    nans = born(written.record, written.operands, written.actual).nans
    if nans:
        return f"that makes NaN of operands that have none: {nans:,} elements"
    beyond = mismatches(written.actual, written.wide, tolerance)
    if not beyond.any():
        return ""
    limits = f"rtol {tolerance.rtol:g} atol {tolerance.atol:g}"
    return (
        "at which the errors of all ops before add up to more than the tolerance of "
        f"the output ({limits}): {int(beyond.sum()):,} of {beyond.size:,} elements"
    )
