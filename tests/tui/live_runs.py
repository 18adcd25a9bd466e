"""A run that goes on as far as a test lets it: the bundled matmul, recorded again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from kernbench.topology import load_topology
from kernbench.trace import Trace, TraceWriter
from kernbench.trace.stream import OutputFile, claim

SOURCE = Path(__file__).parents[2] / "traces" / "matmul.msgpack"


class LiveRun:
    """Writes ``path``, step by step. ``trace`` is the run that it repeats."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.partial = path.with_name(f"{path.name}.partial")
        self.trace = Trace.open(SOURCE)
        self.recorded = 0  # ops
        self._files: list[OutputFile] = []
        self.writer = TraceWriter(path, self._opened)
        head = {name: self.trace.header[name] for name in ("bench", "arguments")}
        self.writer.begin(head, load_topology(None))
        for shard in self.trace.allocs:
            self.writer.alloc(shard)

    def _opened(self, path: Path, partial: Path) -> OutputFile:
        self._files.append(claim(path, partial))
        return self._files[-1]

    def record(self, ops: int) -> None:
        """Record so many ops more, and let the file's tail have them."""
        trace = self.trace
        for row in range(self.recorded, self.recorded + ops):
            record = trace.ops[int(trace.position[row])]
            self.writer.op(
                row,
                replace(record, dependency_ids=trace.deps(row).tolist()),
                int(trace.op_columns.cmd[row]),
                int(trace.op_columns.slot[row]),
                trace.waits_of(row),
                trace.transfers_of(row),
            )
        self.recorded += ops
        self.writer.write_tail()

    def end(self) -> None:
        """End as a run does: the file is named."""
        self.writer.end(self.trace.end_ns)

    def be_killed(self) -> None:
        """Leave all as it is, and let go of the lock."""
        self.writer.write_tail()
        self._files[-1].close()
