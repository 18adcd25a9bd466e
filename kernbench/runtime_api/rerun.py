"""``rerun``: a recorded run again, with nothing or something changed.

A run is deterministic and a trace says what it depends on, so without a change the same
bytes have to come out. What a change does is then an experiment, not a prediction.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from kernbench.ccl.config import CclSpec, load_ccl, recorded_ccl
from kernbench.common.delays import CallName, Delay, OpName, checked_delay, memory_name
from kernbench.common.source_names import shown_name, working_folder
from kernbench.common.user_code import described
from kernbench.errors import KernbenchError, RefusedError, UsageError
from kernbench.runtime_api.own_code import code_sha
from kernbench.runtime_api.registry import (
    Bench,
    bind_params,
    find_bench,
    registered,
    source_of,
)
from kernbench.runtime_api.run import (
    RunProgress,
    RunResult,
    RunSetup,
    check_numbers,
    machine_of,
    simulate,
)
from kernbench.runtime_api.user_files import Plugin, load_plugins, sha_of
from kernbench.sim_engine.op_log import OpRecord
from kernbench.topology import (
    TopologySpec,
    build_topology,
    differing_fields,
    load_spec,
    recorded_spec,
)
from kernbench.trace import Trace
from kernbench.trace.changed import Changed, First, changed_of
from kernbench.trace.first_apart import Parting, first_apart
from kernbench.version import __version__

_BY_CODE = ("version", "kernbench", "code_sha")
"""What the first frame says of the code that recorded it."""

_SINCE_1_1 = ("bench_file", "bench_sha", "ccl")
"""What the first frame of an older trace does not say."""

_MOVED_BY = {
    "dma_read": "dst_addr",
    "dma_write": "src_addr",
    "ipcq_copy": "src_addr",
    "ipcq_recv": "dst_addr",
    "host_write": "dst_addr",
    "host_read": "src_addr",
}
"""The ops of which a call issues one for each piece of a tensor, and the address by
which the pieces are in the order of issue."""


@dataclass(frozen=True, slots=True)
class Change:
    """What a re-run is to do otherwise.

    ``delays`` are pairs of the position of an op and the ns that it is held back.
    ``spec`` and ``params`` are as those of ``run_bench``; ``seed`` is None to leave it.
    ``plugins`` are the files of those that the run had, and of further ones. With
    ``any_source`` the bench and the plugins may have another text than was recorded.
    """

    delays: Sequence[tuple[int, float]] = ()
    spec: Mapping[str, Any] = field(default_factory=dict)
    params: Mapping[str, Any] = field(default_factory=dict)
    seed: int | None = None
    plugins: Sequence[str | Path] = ()
    any_source: bool = False


@dataclass(frozen=True, slots=True)
class Rerun:
    """What a re-run left.

    ``result`` is None where ``error`` ended the run, as it may have ended the recorded
    one. ``path`` is the new trace and ``changed`` what it does otherwise, None for
    nothing. ``other_code`` says what recorded the old trace if that was not this code.
    ``parting`` is where an unchanged run does not do what was recorded; of a recording
    that ``is_cut_off`` that is asked up to there.
    """

    path: Path
    changed: Changed | None
    result: RunResult | None
    error: KernbenchError | None
    other_code: str
    parting: Parting | None
    recorded_end_ns: float
    end_ns: float
    is_cut_off: bool = False

    @property
    def ok(self) -> bool:
        """Whether an unchanged run did the same, or a changed one went well."""
        if self.changed is None:
            return self.parting is None
        return self.result is not None and self.result.ok

    def as_text(self) -> str:
        """What was changed, or whether it is the same; then what the run says.

        What has ended a run that was changed is in ``error`` alone.
        """
        lines = self.verdict()
        later = self.end_ns - self.recorded_end_ns
        lines.append(
            f"end: {self.recorded_end_ns:,.3f} -> {self.end_ns:,.3f} ns ({later:+,.3f})"
        )
        if self.result is not None:
            lines.append(self.result.as_text())
        elif self.error is not None and self.changed is None:
            lines.append(f"ended as recorded, with {described(self.error)}")
        return "\n".join(lines)

    def verdict(self) -> list[str]:
        """What was changed, or whether it is the same and why not; a line each."""
        lines = []
        if self.other_code:
            lines.append(f"recorded by other code: {self.other_code}")
        if self.changed is not None:
            lines += [f"changed: {what}" for what in self.changed.lines()]
        elif self.parting is not None:
            lines.append(f"NOT the recorded run: {self.parting}")
            lines.append(self._why_not())
        elif self.is_cut_off:
            lines.append(
                "the recorded run again, up to where the recorded file breaks off: "
                "that run was killed, or still goes on"
            )
        elif self.other_code:
            lines.append("the recorded run again: all but the first frame is equal")
        else:
            lines.append("the recorded run again: equal byte for byte")
        return lines

    def summary(self) -> dict[str, Any]:
        """What a script needs, by stable names; that of the run, and what is changed.

        ``same`` is None of a run that was changed.
        """
        found: dict[str, Any] = {}
        if self.result is not None:
            found = self.result.summary()
        same = None
        if self.changed is None:
            same = self.parting is None
        return found | {
            "trace": str(self.path),
            "changed": self.changed.lines() if self.changed else (),
            "same": same,
            "parting": None if self.parting is None else str(self.parting),
            "other_code": self.other_code,
            "cut_off": self.is_cut_off,
            "recorded_end_ns": self.recorded_end_ns,
            "end_ns": self.end_ns,
            "error": None if self.error is None else described(self.error),
            "ok": self.ok,
        }

    def _why_not(self) -> str:
        """What an unchanged run that does something else can come from."""
        if self.other_code:
            return (
                "the other code may be why, or that numpy rounds otherwise on this "
                "machine; record it anew with this code"
            )
        return (
            "the bench depends on more than its seed (time, random numbers that are "
            "not torch.rng's, the order of a set), a file that it imports has changed, "
            "or numpy rounds otherwise on this machine"
        )


def rerun(
    trace: Trace | str | Path,
    out: str | Path,
    change: Change | None = None,
    progress: RunProgress | None = None,
) -> Rerun:
    """Run again what ``trace`` has recorded, with ``change``, and record it to ``out``.

    Raises UsageError for a change that there cannot be, KernbenchError for a trace that
    cannot be run again, TopologyError for a wrong field of the machine. What ends the
    run is not raised but returned, if there is a trace of it.
    """
    if not isinstance(trace, Trace):
        trace = Trace.open(trace)
    path = Path(out)
    _refuse_same_file(trace.path, path)
    plan = _plan(trace, change or Change())
    before = _file_number(path)
    result: RunResult | None = None
    ended: KernbenchError | None = None
    try:
        result = simulate(plan.setup, path, progress)
    except KernbenchError as error:
        if _file_number(path) == before:  # nothing had run, and no trace was left
            raise
        ended = error
    if result is not None and result.trace_error is not None:
        raise KernbenchError(result.trace_error)
    new = Trace.open(path)
    other_code = _other_code(trace)
    parting = None
    if not plan.change:
        parting = first_apart(trace, new, _ignored(trace) if other_code else ())
    return Rerun(
        path=path,
        changed=plan.change or None,
        result=result,
        error=ended,
        other_code=other_code,
        parting=parting,
        recorded_end_ns=trace.end_ns,
        end_ns=new.end_ns,
        is_cut_off=not trace.complete,
    )


def _refuse_same_file(path: Path, out: Path) -> None:
    """UsageError if the new trace would replace the one that is run again."""
    if out.exists() and out.samefile(path):
        raise UsageError(
            f"{out} is the trace that is run again; name another file for the new one"
        )


def _file_number(path: Path) -> int:
    """By what a file is told from one that replaces it; -1 if there is none."""
    try:
        return os.stat(path).st_ino
    except OSError:
        return -1


# -- what is to be run -----------------------------------------------------------------


class _Plan(NamedTuple):
    """The run, and what it does otherwise than the recorded one, if anything."""

    setup: RunSetup
    change: Changed


def _plan(trace: Trace, change: Change) -> _Plan:
    """The recorded run with ``change``; raises as ``rerun``."""
    if trace.cut:
        raise RefusedError(
            f"{trace.path} was cut from a trace and holds some of its ops only, so "
            "there is no run to compare with; run the whole trace again"
        )
    header = trace.header
    plugins = _plugins(trace, change)
    entry = _bench(trace, change)
    shas = _shas(entry, plugins)
    recorded_shas = _recorded_shas(trace, entry, shas)
    sources = [name for name, sha in shas.items() if recorded_shas.get(name) != sha]
    recorded = bind_params(entry, _recorded_arguments(trace, entry))
    arguments = bind_params(entry, {**recorded, **change.params})
    old_spec = _recorded_machine(trace)
    fields = _asked(entry, recorded, arguments)
    spec = load_spec(None, {**fields, **change.spec}, old_spec)
    old_seed = _stated(trace, "seed", int)
    seed = old_seed if change.seed is None else change.seed
    max_ns = None
    max_ops = None
    if "max_ns" in header:
        max_ns = _stated(trace, "max_ns", int | float)
    if "max_ops" in header:
        max_ops = _stated(trace, "max_ops", int)
    check_numbers(seed, max_ns, max_ops)
    others = [name for name, value in arguments.items() if value != recorded[name]]
    is_seed_same = seed == old_seed
    made = Changed(
        of=trace.fingerprint(),
        delays=tuple(_delay(trace, op, ns) for op, ns in change.delays),
        spec=differing_fields(old_spec, spec),
        arguments={name: arguments[name] for name in others},
        seed=None if is_seed_same else seed,
        sources=tuple(sources),
        first=First(
            spec=differing_fields(spec, old_spec),
            arguments={name: recorded[name] for name in others},
            seed=None if is_seed_same else old_seed,
            sources={name: recorded_shas.get(name) for name in sources},
        ),
    )
    if trace.damaged:
        raise RefusedError(
            f"{trace.path} has {len(trace.damaged)} damaged frames, so what ran is not "
            "known for certain; record it anew"
        )
    changed = changed_of(header)
    if made:
        changed = made.after(changed or Changed(made.of), shas)
    data = header.get("data") is not False
    setup = RunSetup(
        entry=entry,
        arguments=arguments,
        graph=build_topology(spec),
        ccl=_collectives(trace),
        seed=seed,
        data=data,
        verify=data and _was_verified(trace),
        debug=header.get("debug") is True,
        warn_memory=header.get("warn_memory") is True,
        max_ns=max_ns,
        max_ops=max_ops,
        plugins=plugins,
        changed=changed,
    )
    return _Plan(setup, made)


def _stated(trace: Trace, name: str, kind: Any) -> Any:
    """What the first frame says by a name; RefusedError if that is no ``kind``."""
    value = trace.header.get(name)
    if not isinstance(value, kind):
        raise RefusedError(
            f"{trace.path} does not say which {name} it was recorded with; run again "
            "what `kernbench run BENCH --trace FILE` has recorded"
        )
    return value


def _was_verified(trace: Trace) -> bool:
    """Whether Phase 2 ran, or would have if the run had not ended with an error."""
    if trace.end is None or trace.end.get("error") is not None:
        return True
    return trace.verify_report is not None


def _plugins(trace: Trace, change: Change) -> tuple[Plugin, ...]:
    """The plugins of the run and the further ones, loaded in that order.

    RefusedError if one is missing, or has another text.
    """
    recorded = {row["name"]: row["sha"] for row in trace.header.get("plugins", [])}
    files = {Path(given).stem: Path(given) for given in change.plugins}
    for name, sha in recorded.items():
        if name not in files:
            raise RefusedError(
                f"{trace.path} was recorded with the plugin {name!r} (SHA-256 {sha}); "
                f"give its file as --plugin {name}.py"
            )
        if files[name].is_file():
            _check_source(f"plugin {name}", sha, sha_of(files[name]), change)
    names = [*recorded, *(name for name in files if name not in recorded)]
    return tuple(load_plugins([files[name] for name in names]))


def _shas(entry: Bench, plugins: Sequence[Plugin]) -> dict[str, str]:
    """The SHA-256 of what runs now: plugins, and the bench if it is in a file."""
    found = {f"plugin {plugin.name}": plugin.sha for plugin in plugins}
    source = source_of(entry)
    if source is not None:
        found[f"bench {entry.name}"] = source.sha
    return found


def _recorded_shas(
    trace: Trace, entry: Bench, shas: Mapping[str, str]
) -> dict[str, str | None]:
    """The same of what was recorded; an older trace does not say that of its bench,
    whose text was compared.
    """
    found = {
        f"plugin {row['name']}": row["sha"] for row in trace.header.get("plugins", [])
    }
    bench = f"bench {entry.name}"
    found[bench] = trace.header.get("bench_sha", shas.get(bench))
    return found


def _check_source(what: str, recorded: str, present: str, change: Change) -> None:
    """RefusedError if a file has another text than was recorded, unless it may."""
    if recorded != present and not change.any_source:
        raise RefusedError(
            f"{what}: its source is another than was recorded (SHA-256 {recorded}, now "
            f"{present}); bring that source back, or run this one with --any-source"
        )


def _bench(trace: Trace, change: Change) -> Bench:
    """The bench that was recorded, if its source is the same or may be another."""
    name = _stated(trace, "bench", str)
    shipped = registered(name)
    shipped_file = _shown_file(shipped)
    if "bench_file" in trace.header:
        file = trace.header["bench_file"]
        sha = trace.header.get("bench_sha")
    else:
        file = shipped_file
        sha = _sha_of_source(trace, file)
    if not isinstance(file, str) or not isinstance(sha, str):
        raise RefusedError(
            f"{trace.path} does not say which file its bench {name!r} is in: it is of "
            "an older format, or was recorded from no file; record it anew with "
            "`kernbench run FILE.py --trace FILE`"
        )
    if shipped is not None and file == shipped_file:
        source = source_of(shipped)
        assert source is not None
        _check_source(f"bench {file}", sha, source.sha, change)
        return shipped
    path = Path(file)
    shown = shown_name(str(path.absolute()), working_folder())
    if not path.is_file() or shown != file:
        raise RefusedError(
            f"bench file {file!r} is not found by that name; run it again in the "
            "folder in which it was recorded"
        )
    _check_source(f"bench {file}", sha, sha_of(path), change)
    return find_bench(file)


def _shown_file(entry: Bench | None) -> str | None:
    """The file of a bench as traces name it; None if there is none."""
    source = None
    if entry is not None:
        source = source_of(entry)
    if source is None:
        return None
    return shown_name(source.path, working_folder())


def _sha_of_source(trace: Trace, file: str | None) -> str | None:
    """The SHA-256 of a file whose text is in a trace; None if it is not."""
    source = trace.sources.get(file or "")
    if source is None:
        return None
    return hashlib.sha256(source.text.encode()).hexdigest()


def _recorded_arguments(trace: Trace, entry: Bench) -> dict[str, Any]:
    """The parameters of the bench; a trace has a tuple as a list."""
    found = dict(_stated(trace, "arguments", dict))
    for name, value in found.items():
        if isinstance(entry.params.get(name), tuple) and isinstance(value, list):
            found[name] = tuple(value)
    return found


def _asked(
    entry: Bench, recorded: dict[str, Any], arguments: dict[str, Any]
) -> dict[str, Any]:
    """The fields of the machine that a bench asks for since its parameters are others.

    The recorded machine has what it asked for before.
    """
    if arguments == recorded:
        return {}
    before = machine_of(entry, recorded)
    return {
        field_path: value
        for field_path, value in machine_of(entry, arguments).items()
        if before.get(field_path) != value
    }


def _recorded_machine(trace: Trace) -> TopologySpec:
    """The spec of the machine that the trace holds, whatever ships today."""
    if not trace.spec:
        raise RefusedError(
            f"{trace.path} does not hold the machine that it was recorded on; run "
            "again what `kernbench run BENCH --trace FILE` has recorded"
        )
    return recorded_spec(trace.spec)


def _collectives(trace: Trace) -> CclSpec:
    """The ccl of the trace; that of today for one that does not say it."""
    if "ccl" not in trace.header:
        return load_ccl()
    return recorded_ccl(_stated(trace, "ccl", dict))


# -- which op is held back -------------------------------------------------------------


def _delay(trace: Trace, op: int, ns: float) -> Delay:
    """An op of the trace by a name that survives, and for how long to hold it back."""
    return Delay(name_of(trace, op), checked_delay(ns))


def name_of(trace: Trace, op: int) -> OpName:
    """The name of the op at a position, by which another run has it, too.

    UsageError if there is no such op, RefusedError if its call was not recorded.
    """
    count = len(trace.order)
    if not 0 <= op < count:
        raise UsageError(f"op {op}: {trace.path} has {count} ops, counted from 0")
    row = int(trace.order[op])
    record = trace.ops[op]
    cmd = int(trace.op_columns.cmd[row])
    call = trace.command(cmd)
    if call is None:
        raise KernbenchError(
            f"op {op} ({record.op_name}) belongs to no recorded call, so it has no "
            "name in another run; delay an op of a call"
        )
    name = CallName(
        pe=call.pe,
        call=call.call,
        file=call.site.file,
        line=call.site.line,
        nth=_calls_before(trace, cmd),
    )
    if "tile_index" in record.params:
        return OpName(record.op_name, name, tile=tuple(record.params["tile_index"]))
    memory = ""
    if record.op_name in ("host_write", "host_read"):
        memory = _memory_of(trace, record)
    piece = _pieces_before(trace, row, memory)
    return OpName(record.op_name, name, piece=piece, memory=memory)


def _calls_before(trace: Trace, cmd: int) -> int:
    """How many calls of its name a PE has made at a line before call ``cmd``."""
    log = trace.commands
    cmds = log.cmd[:]
    (mine,) = np.flatnonzero(cmds == cmd)[:1]
    is_alike = cmds < cmd
    for column in (log.pe, log.call, log.file, log.line):
        is_alike &= column[:] == column[mine]
    return int(np.count_nonzero(is_alike))


def _pieces_before(trace: Trace, row: int, memory: str) -> int:
    """How many ops of its call were issued before an op that is no stage of a tile.

    Of an op of the host that is of those for the same ``memory``.
    """
    cmd = int(trace.op_columns.cmd[row])
    places: list[tuple[float, int]] = []
    for other in np.flatnonzero(trace.op_columns.cmd[:] == cmd).tolist():
        record = trace.ops[int(trace.position[other])]
        if "tile_index" in record.params:
            continue
        if memory and _memory_of(trace, record) != memory:
            continue
        address = _MOVED_BY.get(record.op_name)
        at = record.t_start
        if address is not None:
            at = record.params[address]
        places.append((at, other))
    return [number for _, number in sorted(places)].index(row)


def _memory_of(trace: Trace, record: OpRecord) -> str:
    """Which memory an op of the host writes or reads, on the machine of the trace."""
    slice_bytes = _recorded_machine(trace).cube.memory_map.slice_bytes
    return memory_name(record.params[_MOVED_BY[record.op_name]], slice_bytes)


# -- who recorded it -------------------------------------------------------------------


def _other_code(trace: Trace) -> str:
    """What recorded a trace, if that was other code than this; else ""."""
    header = trace.header
    version = header.get("kernbench")
    sha = header.get("code_sha")
    if (version, sha) == (__version__, code_sha()):
        return ""
    if not isinstance(sha, str):
        sha = "older"
    return (
        f"kernbench {version} ({sha:.16}), and this is kernbench {__version__} "
        f"({code_sha():.16})"
    )


def _ignored(trace: Trace) -> list[str]:
    """What the first frame need not say alike, as other code has written it."""
    return [*_BY_CODE, *(name for name in _SINCE_1_1 if name not in trace.header)]
