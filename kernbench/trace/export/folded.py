"""Folded stacks: where the time of kernels went, for speedscope and flame graphs."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np

from kernbench.common.progress import Progress
from kernbench.trace.export.tables import TABLES, length_of, rows_of
from kernbench.trace.export.timeline import to_ps
from kernbench.trace.reader import Trace

_HOST = "host"


def export_folded(trace: Trace, path: Path, progress: Progress) -> dict[str, int]:
    """Write a line for each stack, with its time in ps; how many stacks there are.

    A stack is the kernel, its function, the line, and the call that it made. Its time
    is the sum of all PEs that ran it: as their calls cover the life of a kernel without
    gaps, that of a kernel is how long it ran, by PE. The host has stacks of its own.
    """
    kernels = {row.launch: row.kernel for row in trace.launches}
    table = TABLES["commands"].make(trace)
    names = ("launch", "function", "file", "line", "call")
    picked = {name: table[name] for name in names}
    picked["ps"] = np.maximum(to_ps(table["t_end"]) - to_ps(table["t_start"]), 0)
    stacks = Counter[str]()
    for launch, function, file, line, call, ps in rows_of(picked, 0, length_of(table)):
        root = _HOST
        if launch is not None:
            root = kernels.get(launch, f"launch {launch}")
        frames = (root, function, f"{file}:{line}", call)
        stacks[";".join(map(_frame, frames))] += ps
    written = 0
    with open(path, "w", encoding="utf-8") as lines:
        for stack, ps in sorted(stacks.items()):
            if ps > 0:
                lines.write(f"{stack} {ps}\n")
                written += 1
    progress(1.0)
    return {"stacks": written}


def _frame(text: str | None) -> str:
    """A name as a frame of a stack, of which a semicolon or a line's end is none."""
    return " ".join((text or "?").replace(";", ",").split())
