"""The ``kernbench`` command: parsing and printing only. One clear line an error; 1 for
wrong data or input, 2 for usage, 130 for Ctrl-C, 143 and 129 for SIGTERM and SIGHUP.
"""

import json
import math
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict
from functools import cache
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

import click

from kernbench import IS_PROGRAM, __version__
from kernbench.common.interrupts import interruptible, raised_signal
from kernbench.common.user_code import end_beside_threads, text_of
from kernbench.console import Program, drop_stdout, say, shown_share
from kernbench.errors import KernbenchError, UsageError
from kernbench.sweep.command import sweep
from kernbench.visible import guard_tracebacks, visible

if TYPE_CHECKING:
    from kernbench.common.kernel_texts import KernelText
    from kernbench.perf.sim import PerfRow
    from kernbench.replay.whatif.proof import Rerun
    from kernbench.runtime_api.proofs import Proofs
    from kernbench.trace import Trace

Texts: TypeAlias = tuple[str, ...]
_CONFIGS = Path(__file__).parent / "configs"
_REPORT_S = 0.1
"""Between two lines of JSON that say how far a run is."""
_topology = click.option(
    "--topology", type=click.Path(), help="A topology.yaml (default: ours)."
)
_plugins = click.option(
    "--plugin",
    "plugins",
    multiple=True,
    type=click.Path(),
    metavar="FILE.py",
    help="A file whose classes and modules YAML files may name (repeatable).",
)
_spec = click.option(
    "--spec", multiple=True, metavar="FIELD=VALUE …", help="Fields of the topology."
)
_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


class _Group(Program, click.Group):
    """Turns our errors into one line on stderr; ``--traceback`` shows the rest."""

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """As of any program; no thread of users' code keeps it from ending."""
        try:
            return super().main(*args, **kwargs)
        except SystemExit as ended:
            if IS_PROGRAM and isinstance(ended.code, int):
                end_beside_threads(ended.code)
            raise

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (KernbenchError, KeyboardInterrupt) as error:
            if ctx.params.get("traceback"):
                raise
            code = 1
            what = f"error: {text_of(error)}"
            number = raised_signal()
            if number not in (None, signal.SIGINT):
                code = 128 + number
                what = f"ended by {signal.Signals(number).name}"
            elif number is not None or isinstance(error, KeyboardInterrupt):
                code = 130
                what = "interrupted"
            elif isinstance(error, UsageError):
                code = 2
            line = "; ".join([what, *getattr(error, "__notes__", [])])
            try:
                say(" ".join(line.splitlines()), err=True)
            except OSError:  # the terminal is gone
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())
            sys.exit(code)
        except click.UsageError as error:
            help_ = f"{(error.ctx or ctx).command_path} --help"
            say(f"error: {error.format_message().rstrip('.')}; see {help_}", err=True)
            sys.exit(2)
        except (
            BrokenPipeError
        ):  # the reader has enough; the flush at exit shall find no pipe
            drop_stdout()
            sys.exit(0)


class _Run(click.Command):
    """``--set a=1 b=2`` is ``--set a=1 --set b=2``; ``--spec`` likewise."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        spread, option = [], ""
        for before, arg in pairwise(["", *args]):
            if arg.startswith("-"):
                option = arg if arg in ("--set", "--spec") else ""
            elif option and before != option and "=" in arg:
                spread.append(option)
            spread.append(arg)
        return super().parse_args(ctx, spread)


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="kernbench")
@click.option(
    "--traceback", is_flag=True, help="Show the Python traceback of an error."
)
def main(traceback: bool) -> None:
    """Simulate kernels on a multi-chiplet accelerator, record everything, verify the
    data.
    """
    guard_tracebacks()
    # Read when numpy is imported, later. More threads gain nothing on small matrices
    # and keep others waiting: `outputs` took 36 ms with them instead of 4.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


@main.command(cls=_Run)
@click.argument("bench")
@click.option("--trace", type=click.Path(dir_okay=False), help="Record to this file.")
@click.option(
    "--verify/--no-verify", default=None, help="Run Phase 2 and compare (default)."
)
@click.option("--debug", is_flag=True, help="Check every op beside a float64 oracle.")
@_topology
@click.option("--ccl", type=click.Path(), help="A ccl.yaml.")
@_plugins
@click.option(
    "--set", "params", multiple=True, metavar="KEY=VALUE …", help="Bench parameters."
)
@_spec
@click.option(
    "--seed", default=0, show_default=True, help="Seed of the bench's inputs."
)
@click.option(
    "--no-data", is_flag=True, help="Leave the data out of the trace; no verification."
)
@click.option(
    "--warn-memory", is_flag=True, help="Memory errors of kernels are warnings."
)
@click.option("--max-ns", type=float, help="End after so much simulated time.")
@click.option("--max-ops", type=int, help="End with more ops than so many.")
@_json
def run(bench: str, no_data: bool, as_json: bool, **options: Any) -> None:
    """Simulate BENCH (a name of `kernbench list`, or the path of a .py file)."""
    from kernbench.replay.plain import as_data
    from kernbench.runtime_api import run_bench

    options["params"] = _pairs("--set", options["params"])
    options["spec"] = _fields(options["spec"])
    if options["verify"] is None:
        options["verify"] = not no_data
    on_text = None if as_json else _say_text
    with _shown_progress() as progress, interruptible():
        result = run_bench(
            bench, data=not no_data, progress=progress, on_text=on_text, **options
        )
    given = {
        name: options[name]
        for name in ("spec", "topology", "ccl", "plugins", "seed", "warn_memory")
    }
    summary = {"bench": bench, "params": result.params, **given, **result.summary()}
    text = _json_text(as_data(summary)) if as_json else f"{bench}: {result.as_text()}"
    if result.trace_error is not None:
        say(text)
        raise KernbenchError(result.trace_error)
    _answer(text, result.ok)


def _say_text(text: "KernelText") -> None:
    """Show what a kernel prints, as it does.

    If it cannot be shown the run goes on: the results will say so.
    """
    with suppress(OSError):
        if sys.stderr.isatty():
            click.echo("\r\033[K", err=True, nl=False)  # the line of progress
        say(text.as_text())


main.add_command(sweep)


@main.command(cls=_Run)
@click.argument("trace", type=click.Path())
@click.option(
    "-o", "--out", required=True, type=click.Path(dir_okay=False), metavar="NEW",
    help="Record to this file.",
)  # fmt: skip
@click.option(
    "--delay", "delays", multiple=True, type=(str, str), metavar="OP TIME",
    help="Hold the service of an op back, as in 'op 5' 100ns (repeatable).",
)  # fmt: skip
@_spec
@click.option(
    "--set", "params", multiple=True, metavar="KEY=VALUE …", help="Bench parameters."
)
@click.option("--seed", type=int, help="Another seed of the bench's inputs.")
@_plugins
@click.option(
    "--any-source", is_flag=True, help="Let the bench's source be another by now."
)
@click.option(
    "--beside", is_flag=True, hidden=True,
    help="For a program that starts this beside itself: lines of JSON on stderr say "
    "how far it is, and it ends when stdin is closed.",
)  # fmt: skip
@_json
def rerun(
    trace: str,
    out: str,
    delays: tuple[tuple[str, str], ...],
    spec: Texts,
    params: Texts,
    beside: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Run again what TRACE has recorded, with something changed, into the trace NEW.

    The bench, its parameters, the seed and the whole machine are those of TRACE.
    Without a change NEW has to be equal to TRACE byte for byte; exit code 1 says that
    it is not, or that a changed run failed.
    """
    from kernbench.replay.plain import as_data
    from kernbench.runtime_api import Change
    from kernbench.runtime_api import rerun as run_again

    change = Change(
        delays=[_delay(*delay) for delay in delays],
        spec=_fields(spec),
        params=_pairs("--set", params),
        **options,
    )
    shown = _reported_progress() if beside else _shown_progress()
    with interruptible(), shown as progress:
        done = run_again(trace, out, change, progress)
    if not as_json:
        say(done.as_text())
        if done.changed is not None and done.error is not None:
            raise done.error
        sys.exit(0 if done.ok else 1)
    _answer(_json_text(as_data({"of": trace, **done.summary()})), done.ok)


@main.command("list")
def list_benches() -> None:
    """List the shipped benches and their parameters."""
    from kernbench.benches import FAULTS, SHIPPED
    from kernbench.runtime_api.registry import BENCHES

    for name in (*SHIPPED, *FAULTS):
        bench = BENCHES[name]
        params = " ".join(
            f"{k}={'all' if v is None else v}" for k, v in bench.params.items()
        )
        say(f"{name:<21} {bench.description}\n{'':<21} {params}")


@main.command()
@click.argument("path", metavar="FILE.py", type=click.Path(path_type=Path))
def new(path: Path) -> None:
    """Write a bench to start from, which runs, to FILE.py."""
    from kernbench.runtime_api.new_bench import write_new

    write_new(path)
    say(f"kernbench run {path}")


@main.command()
@click.argument("name", required=False)
def doc(name: str | None) -> None:
    """Show the page NAME of the documents; without a name list the pages."""
    from kernbench import docs

    if name is None:
        for page, about in docs.pages().items():
            say(f"{page:<13} {about}")
    else:
        click.echo_via_pager(docs.page(name))


@main.command()
@click.argument("folder", type=click.Path(file_okay=False))
def record(folder: str) -> None:
    """Record the traces that ship in traces/ anew into FOLDER; what a fault ends with
    is shown.
    """
    from kernbench.benches.recorded import record

    with interruptible():
        for path, error in record(Path(folder)):
            say(f"{path}  {error or 'ok'}")


@main.command(cls=_Run)
@_topology
@_plugins
@_spec
@_json
def probe(topology: str | None, plugins: Texts, spec: Texts, as_json: bool) -> None:
    """Measure every kind of path of the machine; exits 1 where formula and simulation
    differ.
    """
    from kernbench.probes import LIMITS, probe
    from kernbench.runtime_api.user_files import load_plugins
    from kernbench.topology import load_topology

    load_plugins(plugins)
    report = probe(load_topology(topology, _fields(spec)))
    rows = [{**asdict(row), "ok": row.ok} for row in report.rows]
    channels = report.channels
    cycles = [{"length": c.length, **asdict(c)} for c in channels.shortest]
    data = {
        "rows": rows,
        "omitted": report.omitted,
        "channels": asdict(channels) | {"shortest": cycles},
        "limits": LIMITS,
        "ok": report.ok,
    }
    _answer(_json_text(data) if as_json else report.as_text(), report.ok)


@main.command(cls=_Run)
@click.option(
    "--topology", type=click.Path(), flag_value="", is_flag=False,
    help="A topology.yaml to describe; without a name print one to start from.",
)  # fmt: skip
@_plugins
@_spec
def info(topology: str | None, plugins: Texts, spec: Texts) -> None:
    """Show versions, the machine's size and peak numbers, where files are, and the
    benches.
    """
    from importlib.metadata import version

    import platformdirs

    from kernbench.benches import SHIPPED
    from kernbench.probes import describe
    from kernbench.runtime_api.user_files import load_plugins
    from kernbench.topology import TopologySpec, load_topology
    from kernbench.topology.provenance import as_yaml

    if topology == "" and spec:
        raise UsageError("info --topology: without a file it takes no --spec")
    if topology == "":
        say(as_yaml(TopologySpec()).rstrip("\n"))
        return
    load_plugins(plugins)
    python = ".".join(map(str, sys.version_info[:3]))
    libraries = ", ".join(f"{name} {version(name)}" for name in ("numpy", "simpy"))
    rows = {
        "kernbench": f"{__version__} (python {python}, {libraries})",
        **describe(load_topology(topology, _fields(spec))),
        "configs": str(_CONFIGS),
        "cache": str(platformdirs.user_cache_path("kernbench")),
        "benches": ", ".join(SHIPPED),
    }
    for title, text in rows.items():
        say(click.wrap_text(text, 100, f"{title:<10} ", " " * 11))


@main.command()
@click.argument(
    "part",
    type=click.Choice(
        ["sim", "phase2", "replay", "trace", "tui", "whatif", "sweep", "make-trace"]
    ),
)
@click.option(
    "--ops",
    type=click.IntRange(1),
    default=1_000_000,
    help="How many make-trace makes.",
)
@click.option(
    "-o", "out", type=click.Path(dir_okay=False), help="What make-trace writes."
)
@click.option(
    "--cache",
    type=click.Path(dir_okay=False),
    help="Where whatif keeps what its runs did, for the next time.",
)
@_json
def perf(
    part: str, ops: int, out: str | None, cache: str | None, as_json: bool
) -> None:
    """Measure what PART costs against its goals; exits 1 where one is not met.

    whatif holds predictions against re-runs, prints how their errors are distributed,
    and takes half an hour. make-trace measures nothing: it writes a large trace to try
    things on.
    """
    from kernbench.perf import make_trace, phase2, replay, sim, trace, tui
    from kernbench.perf import sweep as sweep_perf

    if part == "make-trace":
        if out is None:
            raise UsageError("make-trace: say with -o FILE what to write")
        with interruptible():
            make_trace.make_trace(out, ops)
        return
    parts = {"sim": sim, "phase2": phase2, "replay": replay, "trace": trace, "tui": tui}
    parts["sweep"] = sweep_perf
    with interruptible():
        if part == "whatif":
            rows = _whatif_rows(cache, as_json)
        else:
            rows = parts[part].measure()
    _answer(
        sim.as_json(rows) if as_json else sim.as_text(rows),
        all(row.met for row in rows),
    )


def _whatif_rows(cache: str | None, as_json: bool) -> "list[PerfRow]":
    """The figures of ``whatif``; without JSON the tables of errors are printed."""
    from kernbench.perf import whatif

    with _shown_progress() as progress:
        path = None if cache is None else Path(cache)
        found = whatif.measure(cache=path, progress=progress)
    if not as_json:
        say("\n".join([*found.tables, ""]))
    return found.rows


@main.command()
@click.argument("tables", nargs=-1, metavar="[TABLE]…")
@_json
def validate(tables: Texts, as_json: bool) -> None:
    """Hold the model against published numbers and sums done by hand.

    Prints each TABLE of them, all without one; exits 1 where a row is farther from its
    reference than it may be. `kernbench doc machine` says what is compared with what.
    The tables are gemm, mesh, load, queue, links, dram, bounds, ring, energy, laws,
    matmul.
    """
    from kernbench.validation import TABLES

    unknown = [name for name in tables if name not in TABLES]
    if unknown:
        valid = ", ".join(TABLES)
        raise UsageError(f"validate {unknown[0]}: no such table; there are: {valid}")
    made = {}
    with interruptible():
        for name in tables or TABLES:
            table = TABLES[name]()
            made[name] = table
            if not as_json:
                say(f"{table.title}\n\n{table.as_markdown()}\n")
    ok = all(table.ok for table in made.values())
    if as_json:
        rows = {
            name: [
                {**asdict(row), "difference": row.difference, "ok": row.ok}
                for row in table.rows
            ]
            for name, table in made.items()
        }
        _answer(_json_text({"tables": rows, "ok": ok}), ok)
    verdict = "every row is as near to its reference as it may be"
    if not ok:
        verdict = "NOT MET: a row is farther from its reference than it may be"
    _answer(verdict, ok)


class _Trace(click.Command):
    """Its help lists the commands; ``trace NAME --help`` shows one, with an example."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.obj = next((arg for arg in args if not arg.startswith("-")), None)
        return super().parse_args(ctx, args)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        from kernbench.replay.commands import help_of

        formatter.write("\n" + "\n".join(help_of(ctx.obj).lines(100)) + "\n")


@main.command(cls=_Trace, context_settings={"ignore_unknown_options": True})
@click.argument("name")
@click.argument("file", type=click.Path())
@click.argument("args", nargs=-1)
@click.option(
    "--op", type=int, help="Position in the op log to answer for (default: the last)."
)
@click.option(
    "-o",
    "--out",
    help="The last argument: what `cut` and `export` write; "
    "`export` takes - for the standard output.",
)
@_json
@click.option("--width", default=100, show_default=True, help="Columns of the text.")
@_plugins
@click.option(
    "--any-source", is_flag=True,
    help="--prove: let the bench's source be another by now.",
)  # fmt: skip
def trace(
    name: str,
    file: str,
    args: Texts,
    op: int | None,
    out: str | None,
    as_json: bool,
    width: int,
    plugins: Texts,
    any_source: bool,
) -> None:
    """Answer a debugger command (info, ops, memory, route, tiles, diff …) on a trace
    FILE.

    ``--name VALUE`` gives the argument NAME. `ops` without COUNT and --op prints all
    ops as it finds them, with --json an object a line. `whatif`, `bound` and `hazards`
    take --prove, which runs the trace again. Exit code 1: a verdict is bad (verify,
    outputs, check, compare, bound --prove) or hazards were found.
    """
    from kernbench.replay import ReplaySession
    from kernbench.replay.commands import EXPORT, parse
    from kernbench.replay.plain import as_data
    from kernbench.replay.text import as_text
    from kernbench.trace import Trace
    from kernbench.trace.export import export_to_stream

    session = ReplaySession(Trace.open(file))
    session.goto(len(session) - 1 if op is None else op)
    words = [name, *args]
    if out is not None:
        words.append(out)
    call = parse(words)
    if call.command is EXPORT and call.args.out == "-":
        with shown_share(name) as progress, interruptible():
            stdout = sys.stdout.buffer
            export_to_stream(session.trace, call.args.format, stdout, progress)
        return
    pages = None
    if op is None and call.command.pages is not None:
        pages = call.command.pages(session.index, call.args)
    if pages is None:
        with interruptible(), ExitStack() as stack:  # it may write a file
            session.index.rerun = _rerun_of(
                session.trace, stack, plugins=plugins, any_source=any_source
            )
            progress = stack.enter_context(shown_share(name))
            answer = session.call(call, progress)
        text = _json_text(as_data(answer)) if as_json else as_text(answer, width)
        _answer(text, getattr(answer, "ok", True))
    for number, page in enumerate(pages):
        if as_json:
            lines = [_json_text(as_data(row)) for row in page.rows]
        else:
            whole = as_text(page, width).splitlines()
            heads = 2 if number else 1
            lines = whole[heads:] or whole
        if lines:
            say("\n".join(lines))


def _rerun_of(trace: "Trace", stack: ExitStack, **options: Any) -> "Rerun":
    """What runs a trace again to prove something; the new traces last as ``stack``.

    The simulator is imported when it is first called.
    """

    @cache
    def proofs() -> "Proofs":
        from kernbench.runtime_api.proofs import Proofs

        folder = stack.enter_context(TemporaryDirectory())
        progress = stack.enter_context(_shown_progress())
        return Proofs(trace, Path(folder), progress, **options)

    return lambda spec, delays: proofs().run(_fields(tuple(spec)), delays)


def _json_text(data: Any) -> str:
    """Data as JSON of visible characters: json itself lets DEL pass as it is."""
    return json.dumps(data).replace("\x7f", "\\u007f")


def _answer(text: str, ok: bool) -> NoReturn:
    """Print an answer; exit 1 where data differ or a goal is not met."""
    say(text)
    sys.exit(0 if ok else 1)


def _pairs(option: str, texts: Texts) -> dict[str, str]:
    for text in texts:
        if text.find("=") < 1:
            raise UsageError(f"{option} {text!r}: must be KEY=VALUE")
    return dict(text.split("=", 1) for text in texts)


def _fields(texts: Texts) -> dict[str, Any]:
    """What ``--spec`` sets, by field."""
    return {key: _scalar(key, text) for key, text in _pairs("--spec", texts).items()}


def _scalar(key: str, text: str) -> Any:
    """The value of a field as a YAML file has it."""
    import yaml

    value: Any = []
    with suppress(yaml.YAMLError, ValueError, RecursionError):
        value = yaml.safe_load(text)
    if isinstance(value, list | dict):
        raise UsageError(
            f"--spec {key}={text}: must be one YAML value, as 2, 1.5 or ring_1d"
        )
    return value


def _delay(op: str, time_text: str) -> tuple[int, float]:
    """The position and the ns of ``--delay 'op 5' 100ns``."""
    from kernbench.replay.expr import parse_count, parse_time

    try:
        return parse_count(op.removeprefix("op").strip()), parse_time(time_text)
    except UsageError as error:
        raise UsageError(f"--delay {op!r} {time_text}: {error}") from None


@contextmanager
def _shown_progress() -> Iterator[Callable[[str, int, str], None] | None]:
    """How far a run is, on a line of stderr that is wiped when it has ended."""
    progress = _progress()
    try:
        yield progress
    finally:
        if progress is not None:
            with suppress(OSError):
                click.echo("\r\033[K", err=True, nl=False)


@contextmanager
def _reported_progress() -> Iterator[Callable[[str, int, str], None]]:
    """How far a run is, ten lines of JSON a second on stderr, for who has started it.

    When that has closed stdin, or is no more, this process gets a SIGTERM.
    """
    Thread(target=_end_with_stdin, daemon=True).start()
    last = -math.inf

    def report(text: str, count: int, unit: str) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= _REPORT_S:
            last = now
            line = {"progress": text, "count": count, "unit": unit}
            with suppress(OSError):  # nobody listens any more
                click.echo(_json_text(line), err=True)

    yield report


def _end_with_stdin() -> None:
    """Wait until stdin is closed; then end as on SIGTERM. Runs in a thread."""
    with suppress(OSError):  # it was closed from the beginning
        while os.read(0, 1 << 12):
            pass
    os.kill(os.getpid(), signal.SIGTERM)


def _progress() -> Callable[[str, int, str], None] | None:
    """Rewrites one line on stderr once a second; None where stderr is no terminal."""
    if not sys.stderr.isatty():
        return None
    shown = last = time.monotonic()
    since: dict[str, float] = {}

    def show(text: str, count: int, unit: str) -> None:
        nonlocal shown, last
        before, last = last, time.monotonic()
        passed = last - since.setdefault(unit, before)
        if last - shown >= 1:
            shown = last
            rate = count / max(passed, 1e-9)
            line = visible(f"{text}, {rate:,.0f} {unit}/s")
            with suppress(OSError):  # a terminal that is gone ends no run
                click.echo(f"\r{line}\033[K\r", err=True, nl=False)

    return show


if __name__ == "__main__":
    main()
