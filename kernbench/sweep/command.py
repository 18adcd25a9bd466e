"""``kernbench sweep``: parsing and printing only."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, cast

import click

from kernbench.common.interrupts import interruptible
from kernbench.console import say
from kernbench.errors import UsageError
from kernbench.shell.commands import ShellCommand
from kernbench.shell.options import json_text
from kernbench.visible import visible

if TYPE_CHECKING:
    from kernbench.sweep.draw import Draw, Kind
    from kernbench.sweep.executors import OpenWorkers
    from kernbench.sweep.screening import Screening
    from kernbench.sweep.show import Results
    from kernbench.sweep.space import Space
    from kernbench.sweep.store import Row, Store
    from kernbench.sweep.sweeping import Source, Swept


_PLOT_COLUMNS = 100
_PLOT_LINES = 16
"""The scatter in a terminal is no wider than that, and so high."""


class _Sweep(click.Group):
    """Runs a sweep where the first word is not the name of another command."""

    command_class = ShellCommand

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0] not in (*self.commands, *ctx.help_option_names):
            args = ["run", *args]
        return super().parse_args(ctx, args)


@click.group(cls=_Sweep)
def sweep() -> None:
    """Run a bench at many points of parameters, machines and seeds.

    `kernbench sweep SPACE.yaml -o FOLDER` runs what SPACE.yaml describes and is not in
    FOLDER yet; `kernbench sweep run --help` has its options, `kernbench doc sweep` the
    fields of SPACE.yaml. `kernbench sweep show FOLDER` shows what came of it.
    """


@sweep.command(examples=("kernbench sweep run space.yaml -o results --jobs 2",))
@click.argument("space", type=click.Path(dir_okay=False))
@click.option(
    "-o", "--out", required=True, type=click.Path(file_okay=False), metavar="FOLDER",
    help="Where the results are, and what is missing of them is added.",
)  # fmt: skip
@click.option(
    "--jobs", type=click.IntRange(1), help="Processes (default: one a processor)."
)
@click.option(
    "--scheduler", metavar="ADDRESS", help="Run on the Dask cluster that is there."
)
@click.option("--random", type=click.IntRange(1), metavar="N", help="N random points.")
@click.option(
    "--latin", type=click.IntRange(1), metavar="N", help="A Latin hypercube of N."
)
@click.option(
    "--optuna", type=click.IntRange(1), metavar="N", help="N points by Optuna's search."
)
@click.option(
    "--screen", type=click.IntRange(1), metavar="N",
    help="Predict all points by what-if, and run the N that end soonest.",
)  # fmt: skip
@click.option("--draw-seed", default=0, show_default=True, help="Seed of such a draw.")
@click.option("--retry-failed", is_flag=True, help="Run again what has failed before.")
@click.option("--yes", is_flag=True, help="Run more than a million points.")
def run(
    space: str,
    out: str,
    jobs: int | None,
    scheduler: str | None,
    screen: int | None,
    draw_seed: int,
    retry_failed: bool,
    yes: bool,
    **counts: int | None,
) -> None:
    """Run the points of SPACE that FOLDER does not have yet."""
    from kernbench.sweep.draw import check_draw
    from kernbench.sweep.screening import Screening
    from kernbench.sweep.space import read_space
    from kernbench.sweep.sweeping import sweep as sweep_all
    from kernbench.sweep.watching import Watcher

    draw = _draw(counts, draw_seed)
    if screen is not None and draw.kind == "optuna":
        raise UsageError("--screen and --optuna: give one of them")
    folder = Path(out)
    with interruptible():
        tried = read_space(space)
        check_draw(tried, draw, yes)
        watcher = Watcher()
        screening = None
        if screen is not None:
            screening = Screening(tried, folder, screen, watcher.note)
        make_source, total = _points(tried, draw, retry_failed, screening)
        try:
            swept = sweep_all(
                tried,
                folder,
                make_source,
                total,
                _open_workers(folder, jobs, scheduler),
                watcher,
            )
        finally:
            watcher.close()
        lines = [] if screening is None else screening.report(swept.rows)
    _say_end(swept, folder)
    for line in lines:
        say(line)


def _points(
    space: Space, draw: Draw, retry_failed: bool, screening: Screening | None
) -> tuple[Callable[[Store], Source], int]:
    """What makes the source of the points of a draw, and how many it has."""
    from kernbench.sweep.asking import Asked
    from kernbench.sweep.sweeping import Listed, plan

    def done(store: Store) -> Mapping[str, Row]:
        """The rows of what is not run again."""
        return store.right() if retry_failed else store.rows

    if draw.kind == "optuna":
        return lambda store: Asked(space, draw, done(store)), draw.points
    points = plan(space, draw)
    if screening is not None:
        total = min(screening.count, len(points))
        return lambda store: Listed(screening.best(points), done(store)), total
    return lambda store: Listed(points, done(store)), len(points)


def _open_workers(folder: Path, jobs: int | None, scheduler: str | None) -> OpenWorkers:
    """What makes the workers that the options ask for."""
    from kernbench.sweep.executors import cluster_workers, local_workers
    from kernbench.sweep.store import WORKERS_LOG

    if scheduler is None:
        count = jobs or os.cpu_count() or 1
        return lambda: local_workers(count, folder / WORKERS_LOG)
    if jobs is not None:
        raise UsageError("--jobs and --scheduler: a cluster has its own workers")
    return lambda: cluster_workers(scheduler)


def _say_end(swept: Swept, folder: Path) -> None:
    """What a whole sweep has left."""
    from kernbench.sweep.store import PARQUET, POINTS
    from kernbench.sweep.watching import duration

    tally = swept.tally
    for number in swept.damaged:
        say(f"line {number} of {folder / POINTS} was damaged; its point was run again")
    parts = [
        f"{len(swept.rows):,} points",
        f"{tally.found:,} of them were there before",
    ]
    parts.append(f"{tally.failed:,} failed, {tally.wrong:,} with wrong data")
    say(f"{'; '.join(parts)}; {duration(tally.seconds)}")
    files = [str(folder / POINTS)]
    if swept.has_parquet:
        files.append(str(folder / PARQUET))
    say(f"{' and '.join(files)}; kernbench sweep show {folder}")
    if not swept.has_parquet:
        say("no Parquet table: pip install 'kernbench[parquet]'")


def _draw(counts: dict[str, int | None], seed: int) -> Draw:
    """How points are picked; UsageError if that is said twice."""
    from kernbench.sweep.draw import Draw

    given = {kind: count for kind, count in counts.items() if count is not None}
    if len(given) > 1:
        names = " and ".join(f"--{kind}" for kind in given)
        raise UsageError(f"{names}: give one of them")
    for kind, count in given.items():
        return Draw(cast("Kind", kind), count, seed)
    return Draw()


@sweep.command(
    examples=(
        "kernbench sweep show results",
        "kernbench sweep show results --sort end_ns",
    )
)
@click.argument("folder", type=click.Path())
@click.option("--sort", metavar="COLUMN", help="All points, by this column.")
@click.option("--reverse", is_flag=True, help="The most of it first.")
@click.option(
    "--limit", default=20, show_default=True, type=click.IntRange(1), help="Rows."
)
@click.option("--x", metavar="COLUMN", help="What the scatter has along.")
@click.option("--y", metavar="COLUMN", help="What the scatter has upwards.")
@click.option(
    "--svg", type=click.Path(dir_okay=False), help="Write the scatter to this file."
)
@click.option(
    "--open", "opened", type=int, metavar="ROW", help="Record and open a row."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def show(
    folder: str,
    sort: str | None,
    reverse: bool,
    limit: int,
    x: str | None,
    y: str | None,
    svg: str | None,
    opened: int | None,
    as_json: bool,
) -> None:
    """Show the Pareto front of the results in FOLDER, and a scatter of all of them.

    Below each row is the command that records its trace.
    """
    from kernbench.replay.plain import as_data
    from kernbench.sweep.plot import plot_of
    from kernbench.sweep.show import read_results, table_lines
    from kernbench.sweep.store import replace_file

    results = read_results(Path(folder))
    if opened is not None:
        _open(results, opened)
        return
    plot = plot_of(results, x, y)
    if svg is not None:
        if plot is None:
            raise UsageError("--svg: nothing to draw: no two columns of numbers")
        replace_file(Path(svg), plot.as_svg().encode())
    if sort is None:
        indices = results.front()
    else:
        indices = results.sorted_by(sort, reverse)
    shown = indices[:limit]
    if as_json:
        text = json_text(as_data(results.records(shown)))
        say(text)
        return
    say(visible(results.title()))
    for line in table_lines(results, shown, [] if sort is None else [sort]):
        say(visible(line))
    if len(shown) < len(indices):
        say(f"{len(indices) - len(shown):,} more; --limit N shows N")
    if plot is not None:
        width = min(shutil.get_terminal_size().columns, _PLOT_COLUMNS)
        is_ascii = "utf" not in (sys.stdout.encoding or "").lower()
        say("")
        for line in plot.as_text(width, _PLOT_LINES, is_ascii):
            say(visible(line))


def _open(results: Results, number: int) -> None:
    """Record the trace of a row, unless it is there, and open it on a terminal."""
    import subprocess

    from kernbench.sweep.recording import record

    with interruptible():
        path, differing = record(results, results.row(number))
    for line in differing:
        say(visible(line))
    if sys.stdout.isatty():
        command = [sys.executable, "-m", "kernbench.debugger", str(path)]
        sys.exit(subprocess.run(command).returncode)
    say(f"trace: kernbench-tui {path}")
