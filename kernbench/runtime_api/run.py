"""``run_bench``: one bench on one machine, recorded and verified."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

from kernbench.ccl.config import load_ccl
from kernbench.errors import KernbenchError, UsageError
from kernbench.runtime_api.registry import Bench, bind_params, find_bench
from kernbench.runtime_api.torch import Torch
from kernbench.sim_engine import op_check
from kernbench.sim_engine.data_executor import DataExecutor, SnapshotFinding
from kernbench.sim_engine.engine import GraphEngine, TimingResult
from kernbench.sim_engine.memory_store import MemoryStore
from kernbench.sim_engine.op_log import OpRecord
from kernbench.sim_engine.verify import VerifyReport
from kernbench.topology import load_topology
from kernbench.trace.writer import TraceWriter

PHASE2_OPS, DEBUG_OPS = 10_000, 500  # between two calls of progress
Progress: TypeAlias = Callable[[str, int, str], object]


@dataclass(frozen=True, slots=True)
class RunResult:
    """What a run left: simulated end in ns, the op log by t_start, memory, and the verdict.

    Of a recorded run the op log is read back from the trace, each time that it is asked for.
    ``store`` is Phase 2's memory at the end if it ran (``report`` is then its verdict), else Phase
    1's. ``findings`` are Phase 1 snapshots that differ from Phase 2's own bytes, ``warnings`` what
    ``warn_memory`` let pass. With ``debug``, ``checked`` ops were compared with the float64 oracle,
    of which ``first_over`` is the first to be off. ``notes`` is what the bench itself measured,
    ``trace_error`` why not all of the run is in its trace (None: it is).
    """

    end_ns: float
    ops: int
    tile_stages: int
    read_log: Callable[[], Sequence[OpRecord]]
    store: MemoryStore
    report: VerifyReport | None
    findings: tuple[SnapshotFinding, ...]
    trace_path: Path | None
    timing: TimingResult
    params: dict[str, Any]
    warnings: tuple[str, ...] | None
    checked: int | None
    first_over: op_check.OpCheck | None
    notes: tuple[str, ...]
    trace_error: str | None = None

    @property
    def ok(self) -> bool:
        """Whether nothing was found wrong."""
        return self.error is None

    @property
    def error(self) -> str | None:
        """What is wrong with the data, as the end of the trace has it."""
        wrong = (
            [row.tensor for row in self.report.by_tensor() if not row.ok]
            if self.report
            else []
        )
        found = [f"{', '.join(wrong)} differ from their references"] if wrong else []
        found += [self.first_over.as_text()] if self.first_over else []
        return f"VerificationError: {'; '.join(found)}" if found else None

    @property
    def op_log(self) -> Sequence[OpRecord]:
        """All ops; ``ops`` is their number, ``tile_stages`` that of those Phase 2 leaves out."""
        return self.read_log()

    def summary(self) -> dict[str, Any]:
        """What a sweep needs, by stable names."""
        return {
            "end_ns": self.end_ns,
            "ops": self.ops,
            "ops_by_kind": self.timing.ops_by_kind,
            "tile_stages": self.tile_stages,
            "verified": self.report is not None,
            "verify": self.report.by_tensor() if self.report else (),
            "findings": self.findings,
            "checked": self.checked,
            "first_over": self.first_over,
            "warnings": len(self.warnings or ()),
            "first_warning": next(iter(self.warnings or ()), None),
            "notes": self.notes,
            "ok": self.ok,
            "trace": str(self.trace_path) if self.trace_path else None,
        }

    def as_text(self) -> str:
        """Time and ops, the verdict, findings, the command that opens the trace, and warnings."""
        kinds = self.timing.ops_by_kind | {"tile stages": self.tile_stages}
        kinds["unknown"] = kinds.get("unknown", 0) - self.tile_stages
        counts = ", ".join(
            f"{count:,} {kind}" for kind, count in kinds.items() if count
        )
        lines = [f"{self.end_ns:,.3f} ns simulated, {self.ops:,} ops ({counts})"]
        lines += self.notes
        if self.report is not None:
            nothing = "nothing to verify: the bench expects nothing"
            lines.append(self.report.as_text() if self.report.rows else nothing)
        lines += [
            f"finding: operand {found.which} of op {found.position} differs between Phase 1 and "
            f"Phase 2 by up to {found.max_error:g}"
            for found in self.findings
        ]
        if self.first_over is not None:
            lines.append(f"debug: {self.first_over.as_text()}")
        elif self.checked is not None:
            lines.append(
                f"debug: {self.checked:,} ops checked, none off by more than rounding"
            )
        if self.trace_path is not None:
            lines.append(f"trace: kernbench-tui {self.trace_path}")
        if self.warnings is not None:
            count = f"warnings: {len(self.warnings):,}"
            lines.append(", the first: ".join([count, *self.warnings[:1]]))
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
    debug: bool = False,
    seed: int = 0,
    data: bool = True,
    warn_memory: bool = False,
    progress: Progress | None = None,
) -> RunResult:
    """Simulate a bench, record it to ``trace``, and ``verify``: run Phase 2 and compare.

    ``debug`` checks every op beside the float64 oracle, ``spec`` overrides fields of the topology,
    ``data=False`` leaves data out of the trace, ``warn_memory`` makes memory errors warnings,
    ``progress`` is told (what was reached, a count, its unit). Raises what the topology, bench or
    kernel raises; a note of it names the trace, complete up to there, unless nothing had run yet.
    """
    if verify and not data:
        raise UsageError(
            "--no-data and --verify: verifying needs the data; leave one of them out"
        )
    entry = find_bench(name_or_path)
    bound = bind_params(entry, params or {})
    graph = load_topology(topology, {**entry.machine(**bound), **(spec or {})})
    writer = TraceWriter(trace) if trace is not None else None
    engine = GraphEngine(
        graph, recorder=writer, warn_memory=warn_memory, keep=writer is None
    )
    torch, tell = Torch(engine, seed, load_ccl(ccl)), progress or (lambda *_: None)
    said = "{:,.0f} ns simulated, {:,} ops"
    engine.progress = lambda ns, ops, events: tell(
        said.format(ns, ops), events, "events"
    )
    head = {"bench": entry.name, "arguments": bound, "seed": seed}
    try:
        if writer is not None:
            writer.begin(head | {"data": data, "warn_memory": warn_memory}, graph)
        engine.run(lambda _: _call(entry, torch, bound))
        store, report, findings = (
            _phase2(torch, tell) if verify else (engine.store, None, ())
        )
        checked, first_over = _debug(torch, tell) if debug else (None, None)
    except BaseException as error:
        engine.give_up()
        _keep_what_there_is(writer, engine.env.now, error)
        raise
    path, timing = writer.path if writer else None, engine.get_timing_result()
    past = tuple(engine.sim.warnings) if warn_memory else None
    more = (
        findings,
        path,
        timing,
        bound,
        past,
        checked,
        first_over,
        tuple(torch.notes),
    )
    logger = engine.op_logger
    assert logger is not None
    ops, stages = logger.rows, logger.tile_stages
    result = RunResult(
        engine.env.now, ops, stages, lambda: engine.op_log, store, report, *more
    )
    if writer is not None:
        result = replace(result, trace_error=_end(writer, result))
    return result


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


def _end(writer: TraceWriter, result: RunResult) -> str | None:
    """End the trace of a whole run; what went wrong if it could not be written."""
    if result.report is not None:
        writer.verify(result.report)
    writer.end(result.end_ns, error=result.error)
    return (
        f"the run has ended, but its trace is cut: {writer.error}"
        if writer.error
        else None
    )


def _keep_what_there_is(
    writer: TraceWriter | None, now: float, error: BaseException
) -> None:
    """End the trace of a run that ``error`` ended, and say where it is; no file if none began."""
    if writer is not None and now == 0:
        writer.abandon()
    elif writer is not None:
        writer.end(now, error=f"{type(error).__name__}: {error}".removesuffix(": "))
        error.add_note(
            writer.error or f"trace up to {now:,.0f} ns: kernbench-tui {writer.path}"
        )


def _phase2(
    torch: Torch, tell: Progress
) -> tuple[MemoryStore, VerifyReport, tuple[SnapshotFinding, ...]]:
    """Execute the whole op log: memory at the end, the verdict, and what was found on the way."""
    log, expected = list(torch.engine.op_log), torch.expectations
    executor = DataExecutor(log, torch.blank.snapshot(), torch.ops)
    judged = min((e.after for e in expected.values()), default=len(log))
    for position in range(0, judged, PHASE2_OPS):
        executor.run_until(position)
        tell(f"Phase 2: {position:,} of {len(log):,} ops", position, "ops")
    report = executor.verify(expected)
    executor.run()
    return executor.store, report, tuple(executor.findings)


def _debug(torch: Torch, tell: Progress) -> tuple[int, op_check.OpCheck | None]:
    """Check every op beside the float64 oracle: how many there were, and the first that is off."""
    checks: list[op_check.OpCheck] = []
    log = list(torch.engine.op_log)
    for check in op_check.debug_check(
        DataExecutor(log, torch.blank.snapshot(), torch.ops)
    ):
        checks.append(check)
        if len(checks) % DEBUG_OPS == 0:
            tell(f"debug: {len(checks):,} ops checked", len(checks), "checks")
    return len(checks), op_check.first_over(checks)
