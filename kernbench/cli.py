"""The ``kernbench`` command: parsing and printing only. One clear line an error; 1 for wrong data
or input, 2 for usage.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from typing import Any

import click

from kernbench import __version__
from kernbench.errors import KernbenchError, UsageError


class _Group(click.Group):
    """Turns our errors into one line on stderr; ``--traceback`` shows the rest."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except KernbenchError as error:
            if ctx.params.get("traceback"):
                raise
            click.echo(f"error: {error}", err=True)
            sys.exit(2 if isinstance(error, UsageError) else 1)
        except BrokenPipeError:
            sys.exit(0)


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="kernbench")
@click.option("--traceback", is_flag=True, help="Show the Python traceback of an error.")
def main(traceback: bool) -> None:
    """Simulate kernels on a multi-chiplet accelerator, record everything, verify the data."""


@main.command()
@click.argument("bench")
@click.option("--trace", type=click.Path(dir_okay=False), help="Record to this file.")
@click.option("--verify/--no-verify", default=True, help="Run Phase 2 and compare (default).")
@click.option("--topology", type=click.Path(), help="A topology.yaml (default: the shipped one).")
@click.option("--ccl", type=click.Path(), help="A ccl.yaml.")
@click.option(
    "--set", "settings", multiple=True, metavar="KEY=VALUE", help="A parameter of the bench."
)
@click.option("--seed", default=0, show_default=True, help="Seed of the bench's inputs.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def run(
    bench: str,
    trace: str | None,
    verify: bool,
    topology: str | None,
    ccl: str | None,
    settings: tuple[str, ...],
    seed: int,
    as_json: bool,
) -> None:
    """Simulate BENCH (a name of `kernbench list`, or the path of a .py file)."""
    from kernbench.runtime_api import run_bench

    params = dict(_pair(text) for text in settings)
    result = run_bench(
        bench, topology=topology, ccl=ccl, params=params, trace=trace, verify=verify, seed=seed
    )
    rows = result.report.by_tensor() if result.report else ()
    if as_json:
        summary = {
            "bench": bench,
            "end_ns": result.end_ns,
            "ops_by_kind": result.timing.ops_by_kind,
            "verify": [asdict(row) for row in rows],
            "ok": result.ok,
            "trace": str(result.trace_path) if result.trace_path else None,
        }
        click.echo(json.dumps(summary))
    else:
        kinds = ", ".join(f"{count} {kind}" for kind, count in result.timing.ops_by_kind.items())
        click.echo(
            f"{bench}: {result.end_ns:,.3f} ns simulated, {len(result.op_log):,} ops ({kinds})"
        )
        if result.report is not None:
            click.echo(
                result.report.as_text() if rows else "nothing to verify: the bench expects nothing"
            )
        for found in result.findings:
            click.echo(
                f"finding: operand {found.which} of op {found.position} differs between Phase 1 "
                f"and Phase 2 by up to {found.max_error:g}"
            )
        if result.trace_path is not None:
            click.echo(f"trace: kernbench-tui {result.trace_path}")
    sys.exit(0 if result.ok else 1)


@main.command("list")
def list_benches() -> None:
    """List the shipped benches and their parameters."""
    from kernbench.benches import SHIPPED
    from kernbench.runtime_api.registry import BENCHES

    for name in SHIPPED:
        bench = BENCHES[name]
        params = " ".join(f"{k}={'all' if v is None else v}" for k, v in bench.params.items())
        click.echo(f"{name:<12} {bench.description}\n{'':<12} {params}")


@main.command()
@click.option("--topology", type=click.Path(), help="A topology.yaml (default: the shipped one).")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def probe(topology: str | None, as_json: bool) -> None:
    """Measure every kind of path of the empty machine; exits 1 where formula and simulation
    differ.
    """
    from kernbench.probes import probe
    from kernbench.topology import load_topology

    report = probe(load_topology(topology))
    if as_json:
        rows = [{**asdict(row), "ok": row.ok} for row in report.rows]
        click.echo(json.dumps({"rows": rows, "omitted": report.omitted, "ok": report.ok}))
    else:
        click.echo(report.as_text())
    sys.exit(0 if report.ok else 1)


@main.command()
@click.option("--topology", type=click.Path(), help="A topology.yaml (default: the shipped one).")
def info(topology: str | None) -> None:
    """Show versions, the machine's size and peak numbers, where files are, and the benches."""
    from importlib.metadata import version
    from pathlib import Path

    import platformdirs

    from kernbench.benches import SHIPPED
    from kernbench.probes import describe
    from kernbench.topology import load_topology

    python = ".".join(map(str, sys.version_info[:3]))
    libraries = ", ".join(f"{name} {version(name)}" for name in ("numpy", "simpy"))
    rows = {
        "kernbench": f"{__version__} (python {python}, {libraries})",
        **describe(load_topology(topology)),
        "configs": str(Path(__file__).parent / "configs"),
        "cache": str(platformdirs.user_cache_path("kernbench")),
        "benches": ", ".join(SHIPPED),
    }
    for title, text in rows.items():
        click.echo(click.wrap_text(text, 100, f"{title:<10} ", " " * 11))


@main.command()
@click.argument("part", type=click.Choice(["sim"]))
@click.option("--json", "as_json", is_flag=True, help="Print one JSON list.")
def perf(part: str, as_json: bool) -> None:
    """Measure what PART costs against its goals; exits 1 where one is not met."""
    from kernbench.perf import sim

    rows = sim.measure()
    click.echo(sim.as_json(rows) if as_json else sim.as_text(rows))
    sys.exit(0 if all(row.met for row in rows) else 1)


@main.command(context_settings={"ignore_unknown_options": True})
@click.argument("name")
@click.argument("file", type=click.Path())
@click.argument("args", nargs=-1)
@click.option("--op", type=int, help="Position in the op log to answer for (default: the last).")
@click.option("--json", "as_json", is_flag=True, help="Print the answer as JSON.")
@click.option("--width", default=100, show_default=True, help="Columns of the text.")
def trace(
    name: str, file: str, args: tuple[str, ...], op: int | None, as_json: bool, width: int
) -> None:
    """Answer a debugger command (info, ops, memory, route, tiles, diff …) on a trace FILE."""
    from kernbench.replay import ReplaySession
    from kernbench.replay.commands import as_data, run_command
    from kernbench.replay.text import as_text
    from kernbench.trace import Trace

    session = ReplaySession(Trace.open(file))
    session.goto(len(session) - 1 if op is None else op)
    answer = run_command(session, " ".join([name, *args]))
    click.echo(json.dumps(as_data(answer)) if as_json else as_text(answer, width))


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise UsageError(f"--set {text!r}: must be KEY=VALUE")
    return key, value


if __name__ == "__main__":
    main()
