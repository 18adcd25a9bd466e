"""``run_bench``: one bench on one machine, recorded and verified."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from kernbench.errors import KernbenchError, UsageError
from kernbench.runtime_api.registry import Bench, bind_params, find_bench
from kernbench.runtime_api.torch import Torch
from kernbench.sim_engine.data_executor import DataExecutor, SnapshotFinding
from kernbench.sim_engine.engine import GraphEngine, TimingResult
from kernbench.sim_engine.memory_store import MemoryStore
from kernbench.sim_engine.op_log import OpRecord
from kernbench.sim_engine.verify import VerifyReport
from kernbench.topology import load_topology
from kernbench.trace.writer import TraceWriter

PHASE2_OPS = 10_000  # between two calls of progress
_AT = "{:,.0f} ns simulated, {:,} ops"
Progress: TypeAlias = Callable[[str, int, str], object]


@dataclass(frozen=True, slots=True)
class RunResult:
    """What a run left: simulated end in ns, the op log by t_start, memory, and the verdict.

    ``store`` is Phase 2's memory at the end if it ran (``report`` is then its verdict), else Phase
    1's. ``findings`` are Phase 1 snapshots that differ from Phase 2's own bytes.
    """

    end_ns: float
    op_log: list[OpRecord]
    store: MemoryStore
    report: VerifyReport | None
    trace_path: Path | None
    timing: TimingResult
    params: dict[str, Any]
    findings: tuple[SnapshotFinding, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether nothing was found wrong."""
        return self.report is None or self.report.ok

    @property
    def tile_stages(self) -> int:
        """How many ops are stages of a composite's tiles, which Phase 2 does not execute."""
        return sum(record.op_name.startswith("TileToken") for record in self.op_log)

    def summary(self) -> dict[str, Any]:
        """What a sweep needs, by stable names."""
        return {
            "end_ns": self.end_ns,
            "ops": len(self.op_log),
            "ops_by_kind": self.timing.ops_by_kind,
            "tile_stages": self.tile_stages,
            "verified": self.report is not None,
            "verify": self.report.by_tensor() if self.report else (),
            "findings": self.findings,
            "ok": self.ok,
            "trace": str(self.trace_path) if self.trace_path else None,
        }

    def as_text(self) -> str:
        """Time and ops, the verdict, findings, and the command that opens the trace."""
        kinds = self.timing.ops_by_kind | {"tile stages": self.tile_stages}
        kinds["unknown"] = kinds.get("unknown", 0) - self.tile_stages
        counts = ", ".join(f"{count:,} {kind}" for kind, count in kinds.items() if count)
        lines = [f"{self.end_ns:,.3f} ns simulated, {len(self.op_log):,} ops ({counts})"]
        if self.report is not None:
            nothing = "nothing to verify: the bench expects nothing"
            lines.append(self.report.as_text() if self.report.rows else nothing)
        lines += [
            f"finding: operand {found.which} of op {found.position} differs between Phase 1 and "
            f"Phase 2 by up to {found.max_error:g}"
            for found in self.findings
        ]
        if self.trace_path is not None:
            lines.append(f"trace: kernbench-tui {self.trace_path}")
        return "\n".join(lines)


def run_bench(
    name_or_path: str,
    *,
    topology: str | Path | None = None,
    ccl: str | Path | None = None,
    params: Mapping[str, Any] | None = None,
    spec: Mapping[str, Any] | None = None,
    trace: str | Path | None = None,
    verify: bool = True,
    seed: int = 0,
    data: bool = True,
    warn_memory: bool = False,
    progress: Progress | None = None,
) -> RunResult:
    """Simulate a bench, record it to ``trace``, and ``verify``: run Phase 2 and compare.

    ``spec`` overrides fields of the topology, ``data=False`` leaves the data out of the trace,
    ``warn_memory`` makes memory errors warnings. ``progress`` is told (what was reached, a count,
    its unit). Raises what the topology, the bench or a kernel raises; a trace is then complete up
    to there, and a note of the error names it, unless nothing had been simulated yet.
    """
    if ccl is not None:
        raise UsageError(f"ccl={str(ccl)!r}: this version has no collectives to configure")
    if verify and not data:
        raise UsageError("--no-data and --verify: verifying needs the data; leave one of them out")
    entry = find_bench(name_or_path)
    bound = bind_params(entry, params or {})
    graph = load_topology(topology, spec)
    writer = TraceWriter(trace) if trace is not None else None
    engine = GraphEngine(graph, recorder=writer, warn_memory=warn_memory)
    torch = Torch(engine, seed)
    if progress is not None:
        engine.progress = lambda ns, ops, events: progress(_AT.format(ns, ops), events, "events")
    head = {"bench": entry.name, "arguments": bound, "seed": seed}
    try:
        if writer is not None:
            writer.begin(head | {"data": data, "warn_memory": warn_memory}, graph)
        engine.run(lambda _: _call(entry, torch, bound))
        report, store, findings = _phase2(torch, progress) if verify else (None, engine.store, ())
        if writer is not None and report is not None:
            writer.verify(report)
    except BaseException as error:
        _keep_what_there_is(writer, engine.env.now, error)
        raise
    if writer is not None:
        writer.end(engine.env.now, error=_what_differs(report))
        if writer.error:
            raise KernbenchError(f"the run has ended, but its trace is cut: {writer.error}")
    path, timing = writer.path if writer else None, engine.get_timing_result()
    return RunResult(engine.env.now, engine.op_log, store, report, path, timing, bound, findings)


def _call(entry: Bench, torch: Torch, params: dict[str, Any]) -> None:
    """Run the bench; what it raises itself becomes a KernbenchError with its line."""
    try:
        entry.run(torch, **params)
    except KernbenchError:
        raise
    except Exception as error:
        site = torch.engine.sim.sites.of(error.__traceback__)
        where = f"bench {entry.name} at {site.file}:{site.line}"
        raise KernbenchError(f"{where}: {type(error).__name__}: {error}") from error


def _keep_what_there_is(writer: TraceWriter | None, now: float, error: BaseException) -> None:
    """End the trace of a run that ``error`` ended, and say where it is; no file if none began."""
    if writer is not None and now == 0:
        writer.abandon()
    elif writer is not None:
        writer.end(now, error=f"{type(error).__name__}: {error}".removesuffix(": "))
        error.add_note(writer.error or f"trace up to {now:,.0f} ns: kernbench-tui {writer.path}")


def _phase2(
    torch: Torch, progress: Progress | None
) -> tuple[VerifyReport, MemoryStore, tuple[SnapshotFinding, ...]]:
    """Execute the whole op log: the verdict, memory at the end, and what was found on the way."""
    log, expected = torch.engine.op_log, torch.expectations
    executor = DataExecutor(log, torch.blank.snapshot())
    judged = min((e.after for e in expected.values()), default=len(log))
    for position in range(0, judged, PHASE2_OPS):
        executor.run_until(position)
        if progress is not None:
            progress(f"Phase 2: {position:,} of {len(log):,} ops", position, "ops")
    report = executor.verify(expected)
    executor.run()
    return report, executor.store, tuple(executor.findings)


def _what_differs(report: VerifyReport | None) -> str | None:
    """The error that a trace of wrong data ends with; None if all is well."""
    wrong = [row.tensor for row in report.by_tensor() if not row.ok] if report else []
    return f"VerificationError: {', '.join(wrong)} differ from their references" if wrong else None
