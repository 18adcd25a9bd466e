"""Writes random benches of four PEs that share rows of one tensor in HBM.

Their calls are made up one after the other, as of one program; each is then of a PE. A
message leads from PE to PE wherever two of them use one row and one of them writes, and
every call is waited for, so a program is ordered by construction. With ``gaps`` some
messages and some waits are left out.
"""

import random

RANKS = 4
ROWS = 6
N = 16

HEADER = '''\
"""Rows that four PEs share, by seed {seed}."""

import numpy as np

from kernbench.ccl.install import install_ipcq
from kernbench.runtime_api.placement import DPPolicy
from kernbench.runtime_api.registry import bench


def kernel(x, own, tl):
    pe = tl.program_id(0)
    mine = tl.load(own + pe * {part}, ({n},), "f32")
    token = tl.load(own + pe * {part}, (1,), "f32")
'''

FOOTER = """

MACHINE = {{
    "system.sips.count": 1,
    "sip.cube_mesh.w": 1,
    "sip.cube_mesh.h": 1,
    "cube.pes": {ranks},
    "cube.memory_map.slices_per_cube": {ranks},
    "pe.dma.outstanding": {outstanding},
}}


@bench(name="shared_{seed}", description="shared rows", machine=lambda **_: MACHINE)
def run(torch):
    install_ipcq(
        torch.engine,
        world_size={ranks},
        rank_to_pe=[(0, 0, pe) for pe in range({ranks})],
        neighbors=lambda rank: {{
            "E": (rank + 1) % {ranks}, "W": (rank - 1) % {ranks}
        }},
        slots={slots},
        slot_bytes=64,
    )
    data = torch.rng.standard_normal(({rows}, {n})).astype("f4")
    x = torch.tensor(data, "f32", DPPolicy(pe="replicate", num_pes=1), name="x")
    own = torch.tensor(
        torch.rng.standard_normal(({ranks}, {n})).astype("f4"),
        "f32", DPPolicy(pe="row_wise"), name="own",
    )
    torch.launch("shared", kernel, x.ptr, own)
"""


class Program:
    """The lines of each PE, and who has used which row since the last write."""

    def __init__(self, seed, gaps):
        self.rng = random.Random(seed)
        self.gaps = gaps
        self.lines = [[] for _ in range(RANKS)]
        # by row: the PE that wrote it last, and those that have read it since
        self.writer = [None] * ROWS
        self.readers = [set() for _ in range(ROWS)]
        self.late = 0

    def flag(self):
        """Whether to wait, as text."""
        if self.rng.random() < self.gaps:
            return ", wait=False"
        return ""

    def message(self, before, after):
        """From one PE to another, eastwards; sometimes it is left out."""
        if before == after or self.rng.random() < self.gaps:
            return
        while before != after:
            east = (before + 1) % RANKS
            self.lines[before].append('tl.send("E", token)')
            self.lines[east].append('tl.recv("W", (1,), "f32")')
            before = east

    def load(self):
        pe = self.rng.randrange(RANKS)
        row = self.rng.randrange(ROWS)
        if self.writer[row] is not None:
            self.message(self.writer[row], pe)
        self.readers[row].add(pe)
        got = f"tl.load(x + {row * N * 4}, ({N},), 'f32'{self.flag()})"
        self.lines[pe].append(f"got = {got}")
        if self.rng.random() < 0.5:
            self.lines[pe].append("tl.add(mine, got, out=mine)")

    def store(self):
        pe = self.rng.randrange(RANKS)
        row = self.rng.randrange(ROWS)
        before = {*self.readers[row], self.writer[row]} - {None}
        for other in sorted(before):
            self.message(other, pe)
        self.writer[row] = pe
        self.readers[row] = set()
        self.lines[pe].append(f"tl.store(x + {row * N * 4}, mine{self.flag()})")

    def compute(self):
        pe = self.rng.randrange(RANKS)
        self.lines[pe].append("tl.mul(mine, 0.5, out=mine)")

    def text(self, seed):
        for _ in range(self.rng.randint(6, 16)):
            self.rng.choice([self.load, self.store, self.store, self.compute])()
        found = [HEADER.format(seed=seed, part=N * 4, n=N)]
        for pe, lines in enumerate(self.lines):
            found.append(f"    if pe == {pe}:\n")
            found += [f"        {line}\n" for line in lines or ["pass"]]
        found.append("    tl.store(own + pe * " + str(N * 4) + ", mine)\n")
        sizes = {
            "seed": seed,
            "ranks": RANKS,
            "rows": ROWS,
            "n": N,
            "outstanding": self.rng.choice([1, 2, 8]),
            "slots": self.rng.choice([2, 4]),
        }
        found.append(FOOTER.format(**sizes))
        return "".join(found)


def program(seed, gaps=0.0):
    """The text of the bench ``shared_<seed>``."""
    return Program(seed, gaps).text(seed)
