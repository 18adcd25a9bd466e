"""Writes random benches of four PEs that share slices of one tensor.

As ``random_races``, but what is shared is a tensor in shards, sliced by its indices and
with steps, so that one slice is several DMAs of rows; and there are several launches.
A message is sent wherever two PEs touch one element and one of them writes.
"""

from itertools import product
from math import prod

import random_races
from random_races import RANKS, N

ROWS = 8
COLUMNS = 12

HEADER = '''\
"""Slices that four PEs share, by seed {seed}."""

from kernbench.ccl.install import install_ipcq
from kernbench.runtime_api.placement import DPPolicy
from kernbench.runtime_api.registry import bench

N = {n}


def part(handle, shape, tl):
    """The first elements of a handle, in a shape of two axes."""
    count = shape[0] * shape[1]
    return tl.reshape(tl.slice(handle, (0,), (count,)), shape)
'''

KERNEL = """

def kernel_{number}(x, own, tl):
    pe = tl.program_id(0) + {pes} * tl.program_id(1)
    mine = tl.load(own + pe * {n} * 4, (N,), "f32")
    token = tl.load(own + pe * {n} * 4, (1,), "f32")
"""

FOOTER = """

MACHINE = {{
    "system.sips.count": 1,
    "sip.cube_mesh.w": {cubes},
    "sip.cube_mesh.h": 1,
    "cube.pes": {pes},
    "cube.memory_map.slices_per_cube": {pes},
    "pe.dma.outstanding": {outstanding},
}}


@bench(name="slices_{seed}", description="shared slices", machine=lambda **_: MACHINE)
def run(torch):
    install_ipcq(
        torch.engine,
        world_size={ranks},
        rank_to_pe=[(0, *divmod(rank, {pes})) for rank in range({ranks})],
        neighbors=lambda rank: {{
            "E": (rank + 1) % {ranks}, "W": (rank - 1) % {ranks}
        }},
        slots={slots},
        slot_bytes=64,
    )
    data = torch.rng.standard_normal(({rows}, {columns})).astype("f4")
    x = torch.tensor(data, "f32", DPPolicy({policy}), name="x")
    rows = DPPolicy(cube="row_wise", pe="row_wise")
    data = torch.rng.standard_normal(({ranks}, N)).astype("f4")
    own = torch.tensor(data, "f32", rows, name="own")
    for kernel in ({kernels}):
        torch.launch("slices", kernel, x, own)
"""

POLICIES = (
    'cube="row_wise", pe="row_wise"',
    'cube="column_wise", pe="column_wise"',
    'cube="row_wise", pe="column_wise"',
)


class Program(random_races.Program):
    """The lines of each PE, and who has used which element since the last write."""

    def __init__(self, seed, gaps):
        super().__init__(seed, gaps)
        self.pes = self.rng.choice([2, 4])
        self.kernels = []
        self.begin()

    def begin(self):
        """Another launch, before which all that is under way has ended."""
        self.lines = [[] for _ in range(RANKS)]
        self.kernels.append(self.lines)
        self.writer = {}
        self.readers = {}

    def axis(self, extent):
        """Some of the indices of an axis: a Python range."""
        step = self.rng.choice([1, 1, 1, 2, 3])
        low = self.rng.randrange(extent)
        most = -(-(extent - low) // step)
        count = self.rng.randint(1, min(most, 5))
        return range(low, min(low + (count - 1) * step + 1, extent), step)

    def slice(self):
        """A slice of at most N elements: its text, its shape, its elements."""
        while True:
            axes = (self.axis(ROWS), self.axis(COLUMNS))
            shape = tuple(map(len, axes))
            if prod(shape) <= N:
                break
        text = ", ".join(f"{axis.start}:{axis.stop}:{axis.step}" for axis in axes)
        return f"x[{text}]", shape, set(product(*axes))

    def told_by(self, users, pe):
        """Messages from all of some PEs to this one."""
        for other in sorted(users - {pe}):
            self.message(other, pe)

    def load(self):
        pe = self.rng.randrange(RANKS)
        text, shape, elements = self.slice()
        self.told_by({self.writer.get(at, pe) for at in elements}, pe)
        for at in elements:
            self.readers.setdefault(at, set()).add(pe)
        self.lines[pe].append(f"got = tl.load({text}{self.flag()})")
        if self.rng.random() < 0.5:
            self.lines[pe].append(f"some = part(mine, {shape}, tl)")
            self.lines[pe].append("tl.add(some, got, out=some)")

    def store(self):
        pe = self.rng.randrange(RANKS)
        text, shape, elements = self.slice()
        before = {self.writer.get(at, pe) for at in elements}
        before = before.union(*(self.readers.get(at, set()) for at in elements))
        self.told_by(before, pe)
        for at in elements:
            self.writer[at] = pe
            self.readers[at] = set()
        self.lines[pe].append(f"tl.store({text}, part(mine, {shape}, tl){self.flag()})")

    def text(self, seed):
        for _ in range(self.rng.randint(6, 16)):
            actions = [self.load, self.store, self.store, self.compute]
            self.rng.choice(actions)()
            if self.rng.random() < 0.1:
                self.begin()
        found = [HEADER.format(seed=seed, n=N)]
        names = []
        for number, ranks in enumerate(self.kernels):
            names.append(f"kernel_{number}")
            found.append(KERNEL.format(number=number, n=N, pes=self.pes))
            for pe, lines in enumerate(ranks):
                found.append(f"    if pe == {pe}:\n")
                found += [f"        {line}\n" for line in lines or ["pass"]]
            found.append(f"    tl.store(own + pe * {N * 4}, mine)\n")
        found.append(
            FOOTER.format(
                seed=seed,
                ranks=RANKS,
                rows=ROWS,
                columns=COLUMNS,
                pes=self.pes,
                cubes=RANKS // self.pes,
                kernels="".join(f"{name}, " for name in names),
                policy=self.rng.choice(POLICIES),
                outstanding=self.rng.choice([1, 2, 8]),
                slots=self.rng.choice([2, 4]),
            )
        )
        return "".join(found)


def program(seed, gaps=0.0):
    """The text of the bench ``slices_<seed>``."""
    return Program(seed, gaps).text(seed)
