"""``run_bench``: one bench on one machine, recorded and verified."""

import math
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any, TypeAlias

from kernbench.ccl.config import CclSpec, load_ccl
from kernbench.common.delays import Delay
from kernbench.common.interrupts import Uninterrupted
from kernbench.common.kernel_texts import KernelText
from kernbench.common.source_names import shown_name, working_folder
from kernbench.common.user_code import called, described, end_if_forked, located
from kernbench.errors import KernbenchError, UsageError
from kernbench.runtime_api.energy import RunEnergy, energy_of_run
from kernbench.runtime_api.failures import explained
from kernbench.runtime_api.own_code import code_sha
from kernbench.runtime_api.registry import Bench, bind_params, find_bench, source_of
from kernbench.runtime_api.torch import Torch
from kernbench.runtime_api.user_files import Plugin, load_plugins
from kernbench.sim_engine import op_check
from kernbench.sim_engine.data_executor import DataExecutor, SnapshotFinding
from kernbench.sim_engine.engine import GraphEngine, TimingResult
from kernbench.sim_engine.event_log import Site
from kernbench.sim_engine.memory_store import MemoryStore
from kernbench.sim_engine.op_log import OpRecord
from kernbench.sim_engine.verify import VerifyReport
from kernbench.topology import TopologyGraph, load_topology
from kernbench.trace import Trace
from kernbench.trace.changed import Changed
from kernbench.trace.writer import TraceWriter

PHASE2_OPS = 10_000
"""Ops between two calls of progress while Phase 2 runs."""

DEBUG_OPS = 500
"""Checks between two calls of progress while ops are checked."""

OnText: TypeAlias = Callable[[KernelText], None]
RunProgress: TypeAlias = Callable[[str, int, str], object]
"""Called with what was reached, in words, a count of what was done, and its unit."""


@dataclass(frozen=True, slots=True)
class RunResult:
    """What a run left: how long it took, what it did, its memory, and the verdict."""

    params: dict[str, Any]
    """The bench's parameters, with their defaults filled in."""

    timing: TimingResult
    """What Phase 1 measured."""

    end_ns: float
    """The simulated time at the end."""

    ops: int
    """How many ops the log has."""

    tile_stages: int
    """How many of these are stages of tiles, which Phase 2 leaves out."""

    read_log: Callable[[], Sequence[OpRecord]]
    """Gives the op log; that of a recorded run is read back from its trace."""

    store: MemoryStore
    """Memory at the end: that of Phase 2 if it ran, else that of Phase 1."""

    report: VerifyReport | None
    """The verdict on what the bench expects; None if nothing was verified."""

    findings: tuple[SnapshotFinding, ...]
    """Snapshots of Phase 1 that differ from Phase 2's own bytes."""

    checked: int | None
    """How many ops were compared with the float64 oracle; None without ``debug``."""

    first_over: op_check.OpCheck | None
    """The first of these ops that is off by more than rounding; None if none is."""

    warnings: tuple[str, ...] | None
    """The memory errors that were let pass; None if they end a run."""

    notes: tuple[str, ...]
    """What the bench itself measured, and what to know of it, a line each."""

    failures: tuple[str, ...]
    """What is wrong with outputs, in words, and which command says why."""

    texts: tuple[KernelText, ...]
    """What kernels printed and asserted, the first 10,000."""

    text_count: int
    """How often they did."""

    trace_path: Path | None
    """The trace that was recorded; None if none was."""

    launch_ns: float
    """For how long at least one launch ran, of those that have ended."""

    find_energy: Callable[[], RunEnergy | None]
    """Adds up the energy of the run, each time anew."""

    sites: Mapping[int, Site]
    """Where the ops were issued of ``findings`` and ``first_over``, as far as known."""

    trace_error: str | None = None
    """Why not all of the run is in its trace; None if it is."""

    @property
    def ok(self) -> bool:
        """Whether nothing was found wrong."""
        return self.error is None

    @property
    def error(self) -> str | None:
        """What is wrong with the data, as the end of the trace has it."""
        wrong = []
        if self.report is not None:
            wrong = [row.tensor for row in self.report.by_tensor() if not row.ok]
        found = []
        if wrong:
            found.append(f"{', '.join(wrong)} differ from their references")
        if self.first_over is not None:
            found.append(self._first_over_text(self.first_over))
        return f"VerificationError: {'; '.join(found)}" if found else None

    @property
    def op_log(self) -> Sequence[OpRecord]:
        """All ops, by t_start."""
        return self.read_log()

    def energy(self) -> RunEnergy | None:
        """The energy of all of the run; None if its trace cannot be read.

        Of a million ops it takes a second or two, without a trace some more.
        """
        return self.find_energy()

    def summary(self) -> dict[str, Any]:
        """What a sweep needs, by stable names.

        ``launch_ns`` is the time in which at least one launch ran: what is left of
        ``end_ns`` without transfers of the host. ``energy_j`` is of all of the run,
        ``energy_static_j`` what of it the machine takes at rest. ``bytes_moved`` are
        those that were read from HBM or written to it, by kernels and the host.
        """
        warnings = self.warnings or ()
        energy = self.energy()
        return {
            "end_ns": self.end_ns,
            "launch_ns": self.launch_ns,
            "energy_j": energy and energy.joules,
            "energy_static_j": energy and energy.static_joules,
            "bytes_moved": energy and energy.hbm_bytes,
            "ops": self.ops,
            "ops_by_kind": self.timing.ops_by_kind,
            "tile_stages": self.tile_stages,
            "verified": self.report is not None,
            "verify": self.report.by_tensor() if self.report else (),
            "failures": self.failures,
            "findings": self.findings,
            "checked": self.checked,
            "first_over": self.first_over,
            "warnings": len(warnings),
            "first_warning": next(iter(warnings), None),
            "notes": self.notes,
            "texts": self.texts,
            "ok": self.ok,
            "trace": str(self.trace_path) if self.trace_path else None,
        }

    def as_text(self) -> str:
        """Time and ops, the verdict, findings, how to open the trace, and warnings."""
        lines = [self._counts()]
        energy = self.energy()
        if energy is not None:
            lines.append(energy.as_text(self.end_ns))
        lines += self.notes
        if self.report is not None:
            nothing = "nothing to verify: the bench expects nothing"
            lines.append(self.report.as_text() if self.report.rows else nothing)
        lines += self.failures
        for found in self.findings:
            issued = self._issued(found.position)
            lines.append(
                f"finding: operand {found.which} of op {found.position}{issued} "
                f"differs between Phase 1 and Phase 2 by up to {found.max_error:g}"
            )
        if self.first_over is not None:
            lines.append(f"debug: {self._first_over_text(self.first_over)}")
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

    def _first_over_text(self, over: op_check.OpCheck) -> str:
        """The first op that is off by more than rounding, with its kernel line."""
        return f"{over.as_text()}{self._issued(over.position)}"

    def _issued(self, op: int) -> str:
        """Where an op was issued that is wrong, as a text goes on."""
        site = self.sites.get(op)
        return f" at {site.file}:{site.line}" if site else ""

    def _counts(self) -> str:
        """The simulated time, and how many ops of each kind there were."""
        kinds = self.timing.ops_by_kind | {"tile stages": self.tile_stages}
        kinds["unknown"] = kinds.get("unknown", 0) - self.tile_stages
        counts = [f"{count:,} {kind}" for kind, count in kinds.items() if count]
        of_kinds = f" ({', '.join(counts)})" if counts else ""
        return f"{self.end_ns:,.3f} ns simulated, {self.ops:,} ops{of_kinds}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSetup:
    """All that a run depends on, looked up and checked.

    The fields are those of ``run_bench``; ``arguments`` are the parameters of the bench
    with their defaults. ``changed`` is what a re-run does otherwise than the run that
    it repeats; None of a run that repeats none.
    """

    entry: Bench
    arguments: dict[str, Any]
    graph: TopologyGraph
    ccl: CclSpec
    seed: int
    data: bool
    verify: bool
    debug: bool = False
    warn_memory: bool = False
    max_ns: float | None = None
    max_ops: int | None = None
    plugins: tuple[Plugin, ...] = ()
    changed: Changed | None = None

    def header(self) -> dict[str, Any]:
        """What the first frame of a trace says of the run."""
        source = source_of(self.entry)
        file = None
        if source is not None:
            file = shown_name(source.path, working_folder())
        head = {
            "bench": self.entry.name,
            "bench_file": file,
            "bench_sha": source.sha if source is not None else None,
            "arguments": self.arguments,
            "seed": self.seed,
            "data": self.data,
            "warn_memory": self.warn_memory,
            "ccl": self.ccl,
            "code_sha": code_sha(),
        }
        optional = {
            "debug": self.debug,
            "max_ns": self.max_ns,
            "max_ops": self.max_ops,
            "plugins": self.plugins,
            "changed": self.changed,
        }
        return head | {name: value for name, value in optional.items() if value}


@dataclass(frozen=True, slots=True)
class _Phase2:
    """What executing the op log gave; without a verification it was not executed."""

    store: MemoryStore
    """Memory at the end; without an execution that of Phase 1."""

    report: VerifyReport | None = None
    """The verdict on what the bench expects."""

    findings: tuple[SnapshotFinding, ...] = ()
    """Snapshots of Phase 1 that differ from Phase 2's own bytes."""


@dataclass(frozen=True, slots=True)
class _DebugChecks:
    """What the float64 oracle says of the ops; without ``debug`` it was not asked."""

    checked: int | None = None
    """How many ops were compared."""

    first_over: op_check.OpCheck | None = None
    """The first of them that is off by more than rounding."""


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
    plugins: Sequence[str | Path] = (),
    max_ns: float | None = None,
    max_ops: int | None = None,
    progress: RunProgress | None = None,
    on_text: OnText | None = None,
) -> RunResult:
    """Simulate a bench, record it to ``trace``, and ``verify``: run Phase 2, compare.

    ``topology`` and ``ccl`` are files, by default the shipped ones; ``spec`` overrides
    fields of the topology. ``debug`` checks every op beside the float64 oracle.
    ``data=False`` leaves data out of the trace. ``warn_memory`` makes memory errors
    warnings. ``plugins`` are files whose classes and modules ``topology`` and ``ccl``
    may name. LimitError ends a run after ``max_ns`` of simulated time, or with more
    than ``max_ops`` ops. ``on_text`` is called with what kernels print as they do.

    Raises what the topology, the bench or a kernel raises. A note of it names the
    trace, complete up to there, unless nothing had run yet.
    """
    if verify and not data:
        raise UsageError(
            "--no-data and --verify: verifying needs the data; leave one of them out"
        )
    if debug and not data and trace is not None:
        raise UsageError(
            "--no-data and --debug: checking ops needs the data, which a trace would "
            "hold; leave one of them or --trace out"
        )
    check_numbers(seed, max_ns, max_ops)
    loaded = load_plugins(plugins)
    entry = find_bench(name_or_path)
    bound = bind_params(entry, params or {})
    fields = {**machine_of(entry, bound), **(spec or {})}
    setup = RunSetup(
        entry=entry,
        arguments=bound,
        graph=load_topology(topology, fields),
        ccl=load_ccl(ccl),
        seed=seed,
        data=data,
        verify=verify,
        debug=debug,
        warn_memory=warn_memory,
        max_ns=max_ns,
        max_ops=max_ops,
        plugins=tuple(loaded),
    )
    return simulate(setup, trace, progress, on_text)


def simulate(
    setup: RunSetup,
    trace: str | Path | None,
    progress: RunProgress | None = None,
    on_text: OnText | None = None,
) -> RunResult:
    """Simulate what is set up, record and verify it; raises as ``run_bench``.

    KernbenchError if an op that was to be held back has not occurred.
    """
    notify = progress or _no_run_progress
    writer: TraceWriter | None = None
    engine: GraphEngine | None = None
    try:
        if trace is not None:
            with Uninterrupted():  # until it is known whose the new file is
                writer = TraceWriter(trace)
        engine = GraphEngine(
            setup.graph,
            recorder=writer,
            warn_memory=setup.warn_memory,
            keep=writer is None,
            max_ns=math.inf if setup.max_ns is None else setup.max_ns,
            max_ops=setup.max_ops,
            delays=setup.changed.delays if setup.changed else (),
        )
        has_data = setup.data or writer is None
        torch = Torch(engine, setup.seed, setup.ccl, has_data)
        if on_text is not None:
            engine.sim.texts.on_text = on_text
        engine.progress = _simulation_progress(notify, engine)
        if writer is not None:
            writer.begin(setup.header(), setup.graph)
        _run_phase1(setup, torch)
        phase2 = _Phase2(engine.store)
        if setup.verify:
            phase2 = _run_phase2(torch, notify)
        checks = _DebugChecks()
        if setup.debug:
            checks = _check_ops(torch, notify)
        path = writer.path if writer is not None else None
        result = _result(torch, setup.arguments, phase2, checks, path)
        if setup.warn_memory:
            result = replace(result, warnings=tuple(engine.sim.warnings))
        if writer is not None:
            with Uninterrupted():
                result = replace(result, trace_error=_end(writer, result))
    except BaseException as error:
        # The one that ends it is raised, not another that comes meanwhile.
        with suppress(KeyboardInterrupt), Uninterrupted():
            _keep_what_there_is(writer, engine, error)
        if isinstance(error, KernbenchError):
            error.params = setup.arguments
        raise
    return result


def _run_phase1(setup: RunSetup, torch: Torch) -> None:
    """Simulate; KernbenchError if an op that was to be held back has not occurred.

    Of a run that ends with an error, a note of it says so.
    """
    engine = torch.engine
    try:
        engine.run(lambda _: _call(setup.entry, torch, setup.arguments))
    except KernbenchError as error:
        if engine.unmet:
            error.add_note(_not_delayed(engine.unmet))
        raise
    if engine.unmet:
        raise KernbenchError(
            f"{_not_delayed(engine.unmet)}; delay an op that does, or change less"
        )


def _not_delayed(unmet: Sequence[Delay]) -> str:
    """Which ops were to be held back and have not occurred."""
    names = "; ".join(str(delay.op) for delay in unmet)
    return f"not delayed, as it does not occur in this run: {names}"


def check_numbers(seed: int, max_ns: float | None, max_ops: int | None) -> None:
    """UsageError for a seed or a limit that no run can have."""
    if not 0 <= seed < 1 << 64:
        raise UsageError(f"seed {seed}: must be from 0 to 2^64 - 1")
    if max_ns is not None and not max_ns > 0:
        raise UsageError(f"--max-ns {max_ns}: must be more than 0")
    if max_ops is not None and max_ops < 1:
        raise UsageError(f"--max-ops {max_ops}: must be 1 or more")


def _result(
    torch: Torch,
    params: dict[str, Any],
    phase2: _Phase2,
    checks: _DebugChecks,
    trace_path: Path | None,
) -> RunResult:
    """What a run left that has ended, unless its memory errors were let pass."""
    engine = torch.engine
    logger = engine.op_logger
    assert logger is not None
    failures: tuple[str, ...] = ()
    if phase2.report is not None:
        failures = explained(
            engine, phase2.report, torch.expectations, phase2.store, trace_path
        )
    named = [found.position for found in phase2.findings]
    if checks.first_over is not None:
        named.append(checks.first_over.position)
    return RunResult(
        params=params,
        timing=engine.get_timing_result(),
        end_ns=engine.env.now,
        ops=logger.rows,
        tile_stages=logger.tile_stages,
        read_log=lambda: engine.op_log,
        store=phase2.store,
        report=phase2.report,
        findings=phase2.findings,
        checked=checks.checked,
        first_over=checks.first_over,
        warnings=None,
        notes=(*torch.notes, *torch.engine.notes),
        failures=failures,
        texts=tuple(engine.sim.texts.rows),
        text_count=engine.sim.texts.count,
        trace_path=trace_path,
        launch_ns=_launch_ns(engine),
        find_energy=partial(_energy, engine, trace_path),
        sites=engine.sites_of(named) if named else {},
    )


def _launch_ns(engine: GraphEngine) -> float:
    """For how long at least one launch ran."""
    total = 0.0
    reached = 0.0
    for launch in sorted(engine.launches, key=attrgetter("t_start")):
        total += max(launch.t_end - max(launch.t_start, reached), 0.0)
        reached = max(reached, launch.t_end)
    return total


def _energy(engine: GraphEngine, trace_path: Path | None) -> RunEnergy | None:
    """The energy of a run; None if it was recorded, and is to be read nowhere.

    A trace that was cut off has a part of the run, so all of it is asked of the engine.
    """
    if trace_path is None:
        return energy_of_run(engine, None)
    try:
        trace = Trace.open(trace_path)
        if trace.complete:
            return energy_of_run(engine, trace)
        return energy_of_run(engine, None)
    except (OSError, KernbenchError):
        return None


def _no_run_progress(text: str, count: int, unit: str) -> None:
    """A ``RunProgress`` for callers who just wait."""


def _simulation_progress(
    notify: RunProgress, engine: GraphEngine
) -> Callable[[float, int, int], object]:
    """What an engine is to call while it simulates."""

    def simulated(now_ns: float, ops: int, events: int) -> None:
        tiles = engine.sim.tiles
        text = f"{now_ns:,.0f} ns simulated, {ops:,} ops"
        if tiles.known:
            share = tiles.begun / tiles.known
            text += f", {share:.1%} of {tiles.known:,} tiles"
        notify(text, events, "events")

    return simulated


def _call(entry: Bench, torch: Torch, params: dict[str, Any]) -> None:
    """Run the bench; what it raises itself becomes a KernbenchError with its line.

    A process that the bench forked ends here.
    """
    pid = os.getpid()
    try:
        called(entry.run, torch, **params)
    except (KernbenchError, KeyboardInterrupt):
        raise
    except BaseException as error:
        site = torch.engine.sim.sites.of(error.__traceback__, entry.run)
        where = f"bench {entry.name} at {site.file}:{site.line}"
        raise located(where, error, KernbenchError) from error
    finally:
        end_if_forked(pid)


def machine_of(entry: Bench, params: dict[str, Any]) -> dict[str, Any]:
    """The fields of the topology that a bench asks for.

    What the bench raises becomes a KernbenchError.
    """
    try:
        return entry.machine(**params)
    except (KernbenchError, KeyboardInterrupt):
        raise
    except BaseException as error:
        where = f"bench {entry.name}, its machine"
        raise located(where, error, KernbenchError) from error


def _end(writer: TraceWriter, result: RunResult) -> str | None:
    """End the trace of a whole run; what went wrong if it could not be written."""
    if result.report is not None:
        writer.verify(result.report)
    writer.end(result.end_ns, error=result.error)
    if writer.error is None:
        return None
    return f"the run has ended, but its trace is cut: {writer.error}"


def _keep_what_there_is(
    writer: TraceWriter | None, engine: GraphEngine | None, error: BaseException
) -> None:
    """End the trace of a run that ``error`` ended, and say where it is.

    No file is left if nothing had run.
    """
    if engine is not None:
        engine.give_up()
    if writer is None:
        return
    now = 0.0 if engine is None else engine.env.now
    if now == 0:
        writer.abandon()
        return
    writer.end(now, error=described(error))
    whole = f"trace up to {now:,.0f} ns: kernbench-tui {writer.path}"
    error.add_note(writer.error or whole)


def _executor(torch: Torch, log: Sequence[OpRecord]) -> DataExecutor:
    """An executor of the op log of a run, which says of an op that fails its line."""
    return DataExecutor(
        log,
        torch.blank.snapshot(),
        torch.ops,
        as_logged=False,
        issued_at=torch.engine.line_of,
    )


def _run_phase2(torch: Torch, notify: RunProgress) -> _Phase2:
    """Execute the whole op log, and judge what the bench expects on the way."""
    log = list(torch.engine.op_log)
    expected = torch.expectations
    executor = _executor(torch, log)
    first_judged = min((e.after for e in expected.values()), default=len(log))
    for position in range(0, first_judged, PHASE2_OPS):
        executor.run_until(position)
        notify(f"Phase 2: {position:,} of {len(log):,} ops", position, "ops")
    verdict = executor.verify(expected)
    executor.run()
    return _Phase2(executor.store, verdict, tuple(executor.findings))


def _check_ops(torch: Torch, notify: RunProgress) -> _DebugChecks:
    """Check every op beside the float64 oracle."""
    executor = _executor(torch, list(torch.engine.op_log))
    checks: list[op_check.OpCheck] = []
    for check in op_check.debug_check(executor):
        checks.append(check)
        if len(checks) % DEBUG_OPS == 0:
            notify(f"debug: {len(checks):,} ops checked", len(checks), "checks")
    return _DebugChecks(len(checks), op_check.first_over(checks))
