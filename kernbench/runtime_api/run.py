"""``run_bench``: one bench on one machine, recorded and verified."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernbench.errors import KernbenchError, UsageError
from kernbench.runtime_api.registry import bind_params, find_bench
from kernbench.runtime_api.torch import Torch
from kernbench.sim_engine.data_executor import DataExecutor, SnapshotFinding
from kernbench.sim_engine.engine import GraphEngine, TimingResult
from kernbench.sim_engine.memory_store import MemoryStore
from kernbench.sim_engine.op_log import OpRecord
from kernbench.sim_engine.verify import VerifyReport
from kernbench.topology import load_topology
from kernbench.trace.writer import TraceWriter


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
    findings: tuple[SnapshotFinding, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether nothing was found wrong."""
        return self.report is None or self.report.ok


def run_bench(
    name_or_path: str,
    *,
    topology: str | Path | None = None,
    ccl: str | Path | None = None,
    params: Mapping[str, Any] | None = None,
    trace: str | Path | None = None,
    verify: bool = True,
    seed: int = 0,
) -> RunResult:
    """Simulate a bench, record it to ``trace``, and ``verify``: run Phase 2 and compare.

    Raises what the topology, the bench or a kernel raises; a trace is then complete up to there,
    unless nothing had been simulated yet: then nothing is left.
    """
    if ccl is not None:
        raise UsageError(f"ccl={str(ccl)!r}: this version has no collectives to configure")
    entry = find_bench(name_or_path)
    bound = bind_params(entry, params or {})
    graph = load_topology(topology)
    writer = TraceWriter(Path(trace)) if trace is not None else None
    engine = GraphEngine(graph, recorder=writer)
    torch = Torch(engine, seed)
    try:
        if writer is not None:
            writer.begin(
                {"bench": entry.name, "arguments": bound, "seed": seed, "data": True}, graph
            )
        engine.run(lambda _: entry.run(torch, **bound))
        report, store, findings = _phase2(torch) if verify else (None, engine.store, ())
        if writer is not None and report is not None:
            writer.verify(report)
    except BaseException as error:
        if writer is not None and engine.env.now == 0:
            writer.abandon()
        elif writer is not None:
            writer.end(engine.env.now, error=f"{type(error).__name__}: {error}")
        raise
    if writer is not None:
        writer.end(engine.env.now, error=_what_differs(report))
        if writer.error:
            raise KernbenchError(f"the run has ended, but its trace is cut: {writer.error}")
    path = Path(trace) if trace is not None else None
    timing = engine.get_timing_result()
    return RunResult(engine.env.now, engine.op_log, store, report, path, timing, findings)


def _phase2(torch: Torch) -> tuple[VerifyReport, MemoryStore, tuple[SnapshotFinding, ...]]:
    """Execute the whole op log: the verdict, memory at the end, and what was found on the way."""
    executor = DataExecutor(torch.engine.op_log)
    report = executor.verify(torch.expectations)
    executor.run()
    return report, executor.store, tuple(executor.findings)


def _what_differs(report: VerifyReport | None) -> str | None:
    """The error that a trace of wrong data ends with; None if all is well."""
    wrong = [row.tensor for row in report.by_tensor() if not row.ok] if report else []
    return f"VerificationError: {', '.join(wrong)} differ from their references" if wrong else None
