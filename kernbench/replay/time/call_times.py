"""One tl call over all PEs that made it: the first question of kernels on many PEs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from kernbench.common.arrays import Array, Bools, Floats, Ints, numbered
from kernbench.common.phys_addr import MAX_CUBES
from kernbench.common.progress import Progress, beside_if_many, no_progress
from kernbench.errors import UsageError
from kernbench.replay.text import count_text, time_text
from kernbench.replay.time.kernel_calls import pe_label, rows_by_cmd
from kernbench.replay.time.mapped_logs import map_logs
from kernbench.trace import Trace
from kernbench.trace.spec_values import spec_number

STRAGGLER = 1.2  # times the median


@dataclass(frozen=True, slots=True)
class CallTimes:
    """One tl call on each of its PEs: when it was issued, and how long it lasted.

    It lasts until it has returned and its ops have ended. ``places`` are (sip, cube,
    pe), times are in ns. A straggler takes more than STRAGGLER times the median.
    """

    call: str
    site: str
    mesh_width: int
    pes: tuple[str, ...]
    places: tuple[tuple[int, int, int], ...]
    t_issue: Floats
    duration: Floats
    minimum: float
    median: float
    maximum: float
    stragglers: tuple[str, ...]

    def lines(self, width: int) -> list[str]:
        """As text: the cubes of each SIP as a mesh, a digit a PE (0 min, 9 max)."""
        minimum = time_text(self.minimum)
        median = time_text(self.median)
        maximum = time_text(self.maximum)
        lines = [f"{self.call} at {self.site} on {count_text(len(self.pes), 'PE')}"]
        lines.append(
            f"a digit a PE: 0 is min {minimum}, 9 max {maximum}; median {median}"
        )
        lines += self._mesh()
        if self.stragglers:
            named = ", ".join(self.stragglers)
            lines.append(f"stragglers (over {STRAGGLER} x median): {named}")
        return lines

    def _mesh(self) -> list[str]:
        """A line for each row of cubes that has a PE in it; a dot is a PE without."""
        scale = 9 / max(self.maximum - self.minimum, 1e-12)
        digits = ((self.duration - self.minimum) * scale).astype(int).tolist()
        digit_at = dict(zip(self.places, map(str, digits), strict=True))
        sips, cubes, pes = (range(max(n) + 1) for n in zip(*self.places, strict=True))
        lines = []
        for sip in sips:
            for first in cubes[:: self.mesh_width]:
                cells = []
                for cube in range(first, first + self.mesh_width):
                    found = [digit_at.get((sip, cube, pe), ".") for pe in pes]
                    cells.append("".join(found))
                if any(cell.strip(".") for cell in cells):
                    lines.append(f"sip{sip} cube{first:<3} {' '.join(cells)}")
        return lines


def call_times(trace: Trace, cmd: int, progress: Progress = no_progress) -> CallTimes:
    """The tl call ``cmd`` on all of its PEs.

    That is, on each PE, the call that is equally many calls of the same line into
    an equally late launch of the same kernel. Raises UsageError if ``cmd`` is no
    call of a kernel.
    """
    map_logs(trace, progress, "commands", "launches")
    log = trace.commands
    size = len(log.cmd)
    same = np.flatnonzero((log.cmd == cmd) & (log.launch >= 0))
    if not len(same):
        whose = "is none of this trace"
        if (log.cmd == cmd).any():
            whose = "is the host's"
        raise UsageError(
            f"call {cmd} {whose}, so no PE made it; at an op of a kernel pes without a "
            "number shows its call"
        )
    call = int(same[0])
    alike = beside_if_many(size, partial(_calls_alike, trace, call), progress, 0.0)
    rows = _in_the_same_place(log.pe[alike], log.launch[alike], alike, call)
    cmds = log.cmd[rows]
    ops = beside_if_many(
        len(trace.order), lambda: rows_by_cmd(trace.op_columns.cmd, cmds), progress, 0.5
    )
    which, op_rows = ops.join(cmds)
    ends = log.t_resume[rows].copy()
    np.maximum.at(ends, which, trace.op_columns.t_end[op_rows])
    issued = log.t_issue[rows]
    duration = ends - issued
    median = float(np.median(duration))
    pes = log.pe[rows]
    labels = tuple(pe_label(trace, pe) for pe in pes.tolist())
    late = np.flatnonzero(duration > STRAGGLER * median).tolist()
    nodes = trace.nodes
    places = zip(
        nodes.sip[pes].tolist(),
        nodes.cube[pes].tolist(),
        nodes.pe[pes].tolist(),
        strict=True,
    )
    for array in (issued, duration):
        array.setflags(write=False)
    return CallTimes(
        call=trace.strings[log.call[call]],
        site=f"{trace.strings[log.file[call]]}:{log.line[call]}",
        mesh_width=min(int(spec_number(trace.spec, "sip.cube_mesh.w")), MAX_CUBES) or 1,
        pes=labels,
        places=tuple(places),
        t_issue=issued,
        duration=duration,
        minimum=float(duration.min()),
        median=median,
        maximum=float(duration.max()),
        stragglers=tuple(labels[place] for place in late),
    )


def is_of_kernel(trace: Trace, cmd: int) -> bool:
    """Whether a kernel made a call, and not the host."""
    log = trace.commands
    return bool(((log.cmd == cmd) & (log.launch >= 0)).any())


def nearest_called(
    trace: Trace, position: int, progress: Progress = no_progress
) -> int | None:
    """The next op after a position that a kernel called, else the last before it; None
    if no kernel called any.
    """
    log = trace.commands
    by_kernels = log.cmd[log.launch >= 0]

    def called() -> Ints:
        cmds = trace.op_columns.cmd[trace.order]
        return np.flatnonzero(np.isin(cmds, by_kernels))

    ops = beside_if_many(len(trace.order), called, progress, 0.0)
    if not len(ops):
        return None
    next_one = int(np.searchsorted(ops, position))
    return int(ops[min(next_one, len(ops) - 1)])


def _calls_alike(trace: Trace, call: int) -> Ints:
    """The calls of the same line, in all launches of the same kernel."""
    log = trace.commands
    kernels = {launch.launch: launch.kernel for launch in trace.launches}
    kernel = kernels.get(int(log.launch[call]), "")
    launches = []
    for launch in np.unique(log.launch).tolist():
        if kernels.get(launch, "") == kernel:
            launches.append(launch)
    alike: Bools = np.isin(log.launch, launches)
    for column in (log.call, log.file, log.line, log.function):
        alike &= column == column[call]
    rows = np.flatnonzero(alike)
    order = np.lexsort((log.t_issue[rows], log.launch[rows], log.pe[rows]))
    return rows[order]


def _in_the_same_place(pe: Array, launch: Array, rows: Ints, call: int) -> Ints:
    """Those of ``rows`` that are in the same place of their PE's program as ``call``.

    ``rows`` are calls of one line, sorted by their PE, then their launch, then their
    time. The place is: the n-th of its launch, in the m-th launch on its PE.
    """
    runs = pe.astype(np.int64) << 32 | launch
    each_run, run = numbered(runs)
    nth = np.arange(len(rows)) - np.searchsorted(run, run)
    pe_of_run = each_run >> 32
    mth = np.arange(len(each_run)) - np.searchsorted(pe_of_run, pe_of_run)
    mth = mth[run]
    here = int(np.flatnonzero(rows == call)[0])
    same: Bools = (nth == nth[here]) & (mth == mth[here])
    return rows[same]
