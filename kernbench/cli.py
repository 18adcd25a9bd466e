"""The ``kernbench`` command: parsing and printing only. One clear line an error; 1 for
what ran with a bad answer, 2 for what did not run or cannot be read, 130 for Ctrl-C,
143 and 129 for SIGTERM and SIGHUP.
"""

import os
import sys
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kernbench import __version__
from kernbench.common.interrupts import interruptible
from kernbench.common.near import instead_of
from kernbench.common.user_code import described
from kernbench.console import say
from kernbench.errors import KernbenchError, UsageError
from kernbench.shell.commands import (
    ShellGroup,
    bench_names,
    bench_params,
    completes,
    completion_script,
)
from kernbench.shell.options import (
    Texts,
    answered,
    delay_of,
    json_option,
    json_text,
    key_values,
    plugins_option,
    reported_progress,
    shown_progress,
    spec_option,
    spec_values,
    topology_option,
)
from kernbench.shell.trace import trace
from kernbench.sweep.command import sweep
from kernbench.visible import guard_tracebacks

if TYPE_CHECKING:
    from kernbench.common.kernel_texts import KernelText
    from kernbench.perf.sim import PerfRow

_CONFIGS = Path(__file__).parent / "configs"
_SHELLS = ("bash", "zsh", "fish")


@click.group(cls=ShellGroup, context_settings={"help_option_names": ["-h", "--help"]})
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


@main.command(
    examples=(
        "kernbench run matmul --trace out.msgpack",
        "kernbench run matmul --set m=128 pes=8 --spec pe.clock_ghz=2 --json",
        "kernbench run my_bench.py --debug",
    ),
    short_help="Simulate a bench, record it, verify its data.",
)
@click.argument("bench", shell_complete=completes(bench_names, "file"))
@click.option("--trace", type=click.Path(dir_okay=False), help="Record to this file.")
@click.option(
    "--verify/--no-verify", default=None, help="Run Phase 2 and compare (default)."
)
@click.option("--debug", is_flag=True, help="Check every op beside a float64 oracle.")
@topology_option
@click.option("--ccl", type=click.Path(), help="A ccl.yaml.")
@plugins_option
@click.option(
    "--set",
    "params",
    multiple=True,
    metavar="KEY=VALUE …",
    help="Bench parameters.",
    shell_complete=completes(bench_params, suffix="="),
)
@spec_option
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
@json_option
def run(bench: str, no_data: bool, as_json: bool, **options: Any) -> None:
    """Simulate BENCH (a name of `kernbench list`, or the path of a .py file).

    Exit code 1: data are wrong, a kernel or the bench failed, or a limit was passed;
    2: nothing ran.
    """
    from kernbench.common.kernel_texts import KernelTexts
    from kernbench.replay.plain import as_data
    from kernbench.runtime_api import run_bench

    options["params"] = key_values("--set", options["params"])
    options["spec"] = spec_values(options["spec"])
    if options["verify"] is None:
        options["verify"] = not no_data
    texts = KernelTexts()
    if not as_json:
        texts.on_text = _say_text
    given = {
        name: options[name]
        for name in ("spec", "topology", "ccl", "plugins", "seed", "warn_memory")
    }
    try:
        with shown_progress() as progress, interruptible():
            result = run_bench(
                bench,
                data=not no_data,
                progress=progress,
                on_text=texts.add,
                **options,
            )
    except KernbenchError as error:
        if as_json and error.exit_code == 1:
            params = options["params"] if error.params is None else error.params
            ended = {"bench": bench, "params": dict(params), **given}
            ended |= {"ok": False, "error": described(error), "texts": texts.rows}
            say(json_text(as_data(ended)))
        raise
    summary = {"bench": bench, "params": result.params, **given, **result.summary()}
    text = json_text(as_data(summary)) if as_json else f"{bench}: {result.as_text()}"
    if result.trace_error is not None:
        say(text)
        raise KernbenchError(result.trace_error)
    answered(text, result.ok)


def _say_text(text: "KernelText") -> None:
    """Show what a kernel prints, as it does.

    If it cannot be shown the run goes on: the results will say so.
    """
    with suppress(OSError):
        if sys.stderr.isatty():
            click.echo("\r\033[K", err=True, nl=False)  # the line of progress
        say(text.as_text())


main.add_command(sweep)


@main.command(
    examples=(
        "kernbench rerun traces/matmul.msgpack -o fast.msgpack --spec pe.clock_ghz=2",
        "kernbench rerun traces/matmul.msgpack -o late.msgpack --delay 'op 20' 100ns",
    ),
    short_help="Run again what a trace has recorded, with a change.",
)
@click.argument("trace", type=click.Path())
@click.option(
    "-o", "--out", required=True, type=click.Path(dir_okay=False), metavar="NEW",
    help="Record to this file.",
)  # fmt: skip
@click.option(
    "--delay", "delays", multiple=True, type=(str, str), metavar="OP TIME",
    help="Hold the service of an op back, as in 'op 5' 100ns (repeatable).",
)  # fmt: skip
@spec_option
@click.option(
    "--set", "params", multiple=True, metavar="KEY=VALUE …", help="Bench parameters."
)
@click.option("--seed", type=int, help="Another seed of the bench's inputs.")
@plugins_option
@click.option(
    "--any-source", is_flag=True, help="Let the bench's source be another by now."
)
@click.option(
    "--beside", is_flag=True, hidden=True,
    help="For a program that starts this beside itself: lines of JSON on stderr say "
    "how far it is, and it ends when stdin is closed.",
)  # fmt: skip
@json_option
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
        delays=[delay_of(*delay) for delay in delays],
        spec=spec_values(spec),
        params=key_values("--set", params),
        **options,
    )
    shown = reported_progress() if beside else shown_progress()
    with interruptible(), shown as progress:
        done = run_again(trace, out, change, progress)
    if not as_json:
        say(done.as_text())
        if done.changed is not None and done.error is not None:
            raise done.error
        sys.exit(0 if done.ok else 1)
    answered(json_text(as_data({"of": trace, **done.summary()})), done.ok)


@main.command("list", examples=("kernbench list", "kernbench list --json"))
@json_option
def list_benches(as_json: bool) -> None:
    """List the shipped benches and their parameters."""
    from kernbench.benches import FAULTS, SHIPPED, SLOW, TUTORIALS
    from kernbench.replay.plain import as_data
    from kernbench.runtime_api.registry import BENCHES

    parts = {
        "": SHIPPED,
        "As in the tutorials of Triton:": TUTORIALS,
        "Right, but slow on purpose:": SLOW,
        "Wrong on purpose:": FAULTS,
    }
    if as_json:
        rows = [
            {
                "name": name,
                "description": BENCHES[name].description,
                "kind": BENCHES[name].kind,
                "params": dict(BENCHES[name].params),
            }
            for names in parts.values()
            for name in names
        ]
        say(json_text(as_data({"benches": rows})))
        return
    for heading, names in parts.items():
        if heading:
            say(f"\n{heading}")
        for name in names:
            bench = BENCHES[name]
            params = " ".join(
                f"{k}={'all' if v is None else v}" for k, v in bench.params.items()
            )
            say(f"{name:<21} {bench.description}\n{'':<21} {params}")


@main.command(examples=("kernbench new my_kernel.py",))
@click.argument("path", metavar="FILE.py", type=click.Path(path_type=Path))
def new(path: Path) -> None:
    """Write a bench to start from, which runs, to FILE.py."""
    from kernbench.runtime_api.new_bench import write_new

    write_new(path)
    say(f"kernbench run {path}")


def _pages(ctx: click.Context) -> list[str]:
    """The pages of the documents."""
    from kernbench import docs

    return list(docs.pages())


@main.command(
    examples=("kernbench doc", "kernbench doc tutorial"),
    short_help="Show a page of the documents, or list them.",
)
@click.argument("name", required=False, shell_complete=completes(_pages))
def doc(name: str | None) -> None:
    """Show the page NAME of the documents; without a name list the pages."""
    from kernbench import docs

    if name is None:
        for page, about in docs.pages().items():
            say(f"{page:<13} {about}")
    else:
        click.echo_via_pager(docs.page(name))


@main.command(
    examples=("kernbench completion bash >> ~/.bashrc",),
    short_help="Print what makes Tab complete commands in a shell.",
)
@click.argument("shell", type=click.Choice(_SHELLS))
def completion(shell: str) -> None:
    """Print what makes Tab complete benches, parameters, fields and commands in SHELL.

    bash: `kernbench completion bash >> ~/.bashrc`; zsh: `kernbench completion zsh >>
    ~/.zshrc`; fish: `kernbench completion fish >
    ~/.config/fish/completions/kernbench.fish`.
    """
    say(completion_script(main, "kernbench", shell).rstrip("\n"))


@main.command(
    examples=("kernbench record traces",),
    short_help="Record the bundled traces anew.",
)
@click.argument("folder", type=click.Path(file_okay=False))
def record(folder: str) -> None:
    """Record the traces that ship in traces/ anew into FOLDER; what a fault ends with
    is shown.
    """
    from kernbench.benches.recorded import record

    with interruptible():
        for path, error in record(Path(folder)):
            say(f"{path}  {error or 'ok'}")


@main.command(
    examples=("kernbench probe", "kernbench probe --spec sips.count=1 --json"),
    short_help="Measure every kind of path of the machine.",
)
@topology_option
@plugins_option
@spec_option
@json_option
def probe(topology: str | None, plugins: Texts, spec: Texts, as_json: bool) -> None:
    """Measure every kind of path of the machine; exits 1 where formula and simulation
    differ.
    """
    from kernbench.probes import LIMITS, probe
    from kernbench.runtime_api.user_files import load_plugins
    from kernbench.topology import load_topology

    load_plugins(plugins)
    report = probe(load_topology(topology, spec_values(spec)))
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
    answered(json_text(data) if as_json else report.as_text(), report.ok)


@main.command(
    examples=(
        "kernbench info",
        "kernbench info --topology > my_machine.yaml",
        "kernbench info --spec sips.count=1 --json",
    ),
    short_help="Show versions, the machine and its peaks, where files are.",
)
@click.option(
    "--topology", type=click.Path(), flag_value="", is_flag=False,
    help="A topology.yaml to describe; without a name print one to start from.",
)  # fmt: skip
@plugins_option
@spec_option
@json_option
@click.argument("extra", nargs=-1, metavar="")
def info(
    topology: str | None,
    plugins: Texts,
    spec: Texts,
    as_json: bool,
    extra: tuple[str, ...],
) -> None:
    """Show versions, the machine's size and peak numbers, where files are, and the
    benches.
    """
    if extra:
        raise UsageError(
            f"info {extra[0]!r}: this is about kernbench and the machine; of a trace "
            f"it is kernbench trace info {extra[0]}"
        )
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
        **describe(load_topology(topology, spec_values(spec))),
        "configs": str(_CONFIGS),
        "cache": str(platformdirs.user_cache_path("kernbench")),
        "benches": ", ".join(SHIPPED),
    }
    if as_json:
        say(json_text(rows | {"version": __version__, "benches": SHIPPED}))
        return
    for title, text in rows.items():
        say(click.wrap_text(text, 100, f"{title:<10} ", " " * 11))


@main.command(
    examples=(
        "kernbench perf sim",
        "kernbench perf make-trace --ops 5000 -o big.msgpack",
    ),
    short_help="Measure what the programs themselves cost.",
)
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
@json_option
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
    rows = []
    with interruptible():
        if part == "whatif":
            measured = _whatif_rows(cache, as_json)
        else:
            measured = parts[part].measure()
        if not as_json:
            say(sim.HEADER)
        for row in measured:  # the screen's rows come one by one, for 20 minutes
            rows.append(row)
            if not as_json:
                say(sim.row_text(row))
    if as_json:
        say(sim.as_json(rows))
    sys.exit(0 if all(row.met for row in rows) else 1)


def _whatif_rows(cache: str | None, as_json: bool) -> "list[PerfRow]":
    """The figures of ``whatif``; without JSON the tables of errors are printed."""
    from kernbench.perf import whatif

    with shown_progress() as progress:
        path = None if cache is None else Path(cache)
        found = whatif.measure(cache=path, progress=progress)
    if not as_json:
        say("\n".join([*found.tables, ""]))
    return found.rows


def _tables(ctx: click.Context) -> list[str]:
    """The tables of ``validate``."""
    from kernbench.validation import TABLES

    return list(TABLES)


@main.command(
    examples=("kernbench validate", "kernbench validate gemm dram --json"),
    short_help="Hold the model against published numbers.",
)
@click.argument(
    "tables", nargs=-1, metavar="[TABLE]…", shell_complete=completes(_tables)
)
@json_option
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
        hint = instead_of(unknown[0], TABLES)
        raise UsageError(f"validate {unknown[0]}: no such table; {hint}")
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
        answered(json_text({"tables": rows, "ok": ok}), ok)
    verdict = "every row is as near to its reference as it may be"
    if not ok:
        verdict = "NOT MET: a row is farther from its reference than it may be"
    answered(verdict, ok)


main.add_command(trace)


if __name__ == "__main__":
    main()
