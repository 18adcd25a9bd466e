"""Writes random benches of two ranks that launch on the same two PEs of one cube.

Every launch has a kernel of its own, which writes or reads one row of a tensor that the
bench has made. Launches of one rank follow each other; those of two are ordered by a
barrier between them, and by nothing else. So which of them race is known by
construction.
"""

import random
from itertools import combinations
from typing import NamedTuple

RANKS = 2
ROWS = 3
N = 64

HEADER = """\
from kernbench.benches import bench
from kernbench.runtime_api import DPPolicy

MACHINE = {"system.sips.count": 2, "sip.cube_mesh.w": 1, "sip.cube_mesh.h": 1}


def worker(rank, torch, x, z):
"""

FOOTER = """

@bench(name="ranks", description="two ranks on one cube", machine=lambda **_: MACHINE)
def run(torch):
    torch.distributed.init_process_group(backend="ahbm")
    two = DPPolicy(pe="row_wise", num_cubes=1, num_pes=2)
    x = torch.zeros(({rows}, {n}), "f32", two, name="x")
    z = torch.zeros(({launches}, {n}), "f32", two, name="z")
    torch.multiprocessing.spawn(worker, (torch, x, z), {ranks})
"""


class Launch(NamedTuple):
    """A launch, by its place in its rank: behind so many barriers, on one PE."""

    rank: int
    barriers: int
    pe: int
    row: int
    writes: bool
    idle: int

    def races_with(self, other):
        """Whether nothing orders two launches of which one writes what both use."""
        return (
            self.rank != other.rank
            and self.barriers == other.barriers
            and self.row == other.row
            and (self.writes or other.writes)
        )

    def kernel(self, number):
        """The text of its kernel."""
        at = f"x[{self.row} : {self.row + 1}]"
        access = f"tl.store(z[{number} : {number + 1}], tl.load({at}))"
        if self.writes:
            access = f"tl.store({at}, tl.full((1, {N}), {number}.0, 'f32'))"
        return (
            f"\n\ndef k{number}(x, z, tl):\n"
            f"    if tl.program_id(0) == {self.pe}:\n"
            f"        for _ in range({self.idle}):\n"
            f"            tl.full(({N},), 0.0, 'f32')\n"
            f"        {access}  # {number}\n"
        )


class Program(NamedTuple):
    """The text of a bench, and its launches in the order of their numbers."""

    text: str
    launches: list[Launch]

    def number_of(self, line):
        """The number of the launch whose access is in a line of the text."""
        return int(self.text.splitlines()[line - 1].rpartition("# ")[2])

    def races(self):
        """The pairs of launches that race, by number."""
        found = set()
        for (a, one), (b, other) in combinations(enumerate(self.launches), 2):
            if one.races_with(other):
                found.add((a, b))
        return found


def program(seed):
    """The program of a seed."""
    rng = random.Random(seed)
    phases = rng.randint(1, 3)
    launches = []
    lines = []
    for rank in range(RANKS):
        lines += [f"    if rank == {rank}:\n", "        pass\n"]
        for phase in range(phases):
            if phase:
                lines.append("        torch.distributed.barrier()\n")
            for _ in range(rng.randint(0, 3)):
                number = len(launches)
                lines.append(f"        torch.launch('k{number}', k{number}, x, z)\n")
                launches.append(
                    Launch(
                        rank=rank,
                        barriers=phase,
                        pe=rng.randrange(2),
                        row=rng.randrange(ROWS),
                        writes=rng.random() < 0.5,
                        idle=rng.choice([0, 0, 5, 40]),
                    )
                )
    kernels = [launch.kernel(number) for number, launch in enumerate(launches)]
    rows = max(len(launches), RANKS)
    footer = FOOTER.format(rows=ROWS, n=N, launches=rows, ranks=RANKS)
    return Program("".join([HEADER, *lines, *kernels, footer]), launches)
