"""What a sweep costs beside its points, and what a second process gains.

That two are to be 1.7 times as fast means that they take 0.588 of the time. All is by
the clock, as it is about who waits for whom: on a machine with other work it
says little. One process and two take turns, and the ratio is the median of these pairs.
"""

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median
from time import perf_counter

from kernbench.perf.sim import PerfRow, seconds
from kernbench.sweep.draw import Draw
from kernbench.sweep.executors import local_workers
from kernbench.sweep.screening import Screening
from kernbench.sweep.space import Point, Space, read_space
from kernbench.sweep.store import TRACES, WALL, WORKERS_LOG
from kernbench.sweep.sweeping import Listed, plan, sweep

POINTS = 200
"""Points of a sweep; as many seeds of one matmul on one cube."""

_SPACE = """
bench: matmul
set: {{m: 256, k: 256, n: 256, pes: 8}}
spec: {{sips.count: 1, cube_mesh.w: 1, cube_mesh.h: 1}}
seed: {{from: 1, to: {points}}}
"""


_SCREENED = """
bench: matmul
set: {{m: 256, k: 256, n: 256, pes: 8}}
spec:
  sips.count: 1
  cube_mesh.w: 1
  cube_mesh.h: 1
  pe.clock_ghz: {{from: 0.5, to: 2.5, count: {clocks}}}
  pcie_bw_gbs: {{from: 16.0, to: 64.0, count: 20}}
"""

SAMPLE = 20
"""So many points are run: the best after screening, and some to know how long all take.
"""


def measure(
    points: int = POINTS, rounds: int = 3, sample: int = SAMPLE
) -> list[PerfRow]:
    """Measure sweeps of so many points; some two minutes at 200.

    Of five times as many ``sample`` are run after screening, and as many to know how
    long all take.
    """
    ratios = []
    beside_ms = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        file = folder / "space.yaml"
        file.write_text(_SPACE.format(points=points), encoding="utf-8")
        space = read_space(file)
        for number in range(rounds):
            alone = folder / f"one{number}"
            one = seconds(_sweeping(space, alone, 1), perf_counter)
            two = seconds(_sweeping(space, folder / f"two{number}", 2), perf_counter)
            ratios.append(two / one)
            beside_ms.append((one - _in_points_s(alone)) / points * 1e3)
    return [
        PerfRow(
            f"{points} points, 2 processes / 1", median(ratios), 0.588, "of the time"
        ),
        PerfRow("a sweep beside its points, a point", median(beside_ms), 20.0, "ms"),
        _screening_row(5 * points, sample),
    ]


def _screening_row(points: int, sample: int) -> PerfRow:
    """So many points screened and the best run, beside running all.

    How long all take is known from a sample of them; all is done by one process.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        file = folder / "space.yaml"
        text = _SCREENED.format(clocks=max(points // 20, 2))
        file.write_text(text, encoding="utf-8")
        space = read_space(file)
        planned = plan(space, Draw())
        drawn = plan(space, Draw("random", sample))
        spent = seconds(_running(space, folder / "some", 1, drawn), perf_counter)
        begin = perf_counter()
        (folder / "best" / TRACES).mkdir(parents=True)
        screening = Screening(space, folder / "best", sample, lambda line: None)
        best = screening.best(planned)
        _running(space, folder / "best", 1, best)()
        screened = perf_counter() - begin
    return PerfRow(
        f"{len(planned):,} points screened, {sample} run / all run",
        screened / (spent / len(drawn) * len(planned)),
        0.1,
        "of the time",
    )


def _sweeping(space: Space, folder: Path, jobs: int) -> Callable[[], object]:
    """What runs a sweep on so many processes, from making its keys to its tables."""
    return lambda: _running(space, folder, jobs, plan(space, Draw()))()


def _running(
    space: Space, folder: Path, jobs: int, points: dict[str, Point]
) -> Callable[[], object]:
    """What runs these points on so many processes."""

    def run() -> None:
        sweep(
            space,
            folder,
            lambda store: Listed(points, store.rows),
            len(points),
            lambda: local_workers(jobs, folder / WORKERS_LOG),
            lambda tally: None,
        )

    return run


def _in_points_s(folder: Path) -> float:
    """How long all points of a sweep took in their workers, in seconds."""
    lines = (folder / WALL).read_text(encoding="utf-8").splitlines()
    return sum(float(json.loads(line)["seconds"]) for line in lines)
