"""Writes random benches that are no race, by the way they are made.

Four PEs in a ring run in phases, between which all of them meet. In a phase a PE writes
its own part of some tensors, each place once, and reads what is written in no part of
that phase: its own parts, inputs, and other parts of the other tensors. What goes on at
once is awaited before it is used and before its scratch is released.

So whatever reports two unordered accesses of such a program is wrong.
"""

import random

PES = 4
ROWS = 4
"""Rows that each PE has of a tensor."""
COLUMNS = 8
WRITTEN = ("t", "u", "v")

HEADER = '''\
"""Ordered program {seed}."""

from kernbench.ccl.install import install_ipcq
from kernbench.runtime_api.placement import DPPolicy
from kernbench.runtime_api.registry import bench

PES = 4
ROWS = DPPolicy(num_cubes=1, pe="row_wise", num_pes=PES)


def meet(token, tl):
    """Wait until all have come: what one tells goes round the ring."""
    for _ in range(PES - 1):
        tl.send("E", token)
        tl.recv("W", (1,), "f32")


def part(ptr, pe, row):
    """The address of a row of what a PE has."""
    return ptr + ((pe % PES) * {rows} + row) * {columns} * 4


def kernel(x, t, u, v, tl):
    pe = tl.program_id(0)
    token = tl.full((1,), 1.0, "f32")
'''

FOOTER = """

@bench(name="ordered_{seed}", description="ordered")
def run(torch):
    install_ipcq(
        torch.engine,
        world_size=PES,
        rank_to_pe=[(0, 0, pe) for pe in range(PES)],
        neighbors=lambda pe: {{"E": (pe + 1) % PES, "W": (pe - 1) % PES}},
        slots={slots},
        slot_bytes={slot_bytes},
    )
    shape = (PES * {rows}, {columns})
    data = torch.rng.integers(-8, 9, (4, *shape)).astype("f4")
    names = ("x", "t", "u", "v")
    tensors = [
        torch.tensor(values, dp=ROWS, name=name)
        for name, values in zip(names, data, strict=True)
    ]
    for _ in range({launches}):
        torch.launch("ordered", kernel, *tensors)
"""


class Writer:
    """The lines of a kernel, and what is known of its handles at each of them."""

    def __init__(self, rng):
        self.rng = rng
        self.lines = []
        self.indent = "    "
        self.count = 0
        # handles of (rows, COLUMNS) that are at hand: name and rows
        self.ready = []
        # what has to be awaited before it is at hand
        self.coming = []
        # what a payload that nobody has awaited is read from
        self.sent = set()
        self.written_now = set()
        # rows of the PE's own part that are still free to be written in this phase
        self.free = {}

    def line(self, text):
        self.lines.append(self.indent + text)

    def fresh(self):
        self.count += 1
        return f"h{self.count}"

    def phase(self, is_last):
        """Some statements, after which nothing is under way, and a meeting."""
        names = [name for name in WRITTEN if self.rng.random() < 0.6]
        self.written_now = set(names)
        self.free = {name: set(range(ROWS)) for name in names}
        for _ in range(self.rng.randint(4, 9)):
            self.statement()
        self.settle(0)
        if is_last:
            self.store_at_the_end()
        self.line("meet(token, tl)")

    def statement(self):
        actions = [
            self.load, self.load, self.compute, self.compute, self.in_place,
            self.store, self.store, self.wait, self.talk, self.scope, self.composite,
            self.slice,
        ]  # fmt: skip
        self.rng.choice(actions)()

    def load(self):
        """From an input, from our own part, or from what nobody writes now."""
        rows = self.rng.randint(1, ROWS)
        row = self.rng.randint(0, ROWS - rows)
        steady = [name for name in ("x", *WRITTEN) if name not in self.written_now]
        name = self.rng.choice(steady)
        whose = self.rng.choice(["pe", "pe + 1", "pe + 2", "pe + 3"])
        strides = ""
        shape = f"({rows}, {COLUMNS})"
        columns = COLUMNS
        if self.rng.random() < 0.3:
            columns = COLUMNS // 2
            shape = f"({rows}, {columns})"
            strides = f", strides=({COLUMNS}, 1)"
        handle = self.fresh()
        call = f'tl.load(part({name}, {whose}, {row}), {shape}, "f32"'
        entry = (handle, rows, columns)
        if self.rng.random() < 0.5:
            self.line(f"{handle} = {call}, wait=False{strides})")
            self.coming.append(entry)
        else:
            self.line(f"{handle} = {call}{strides})")
            self.ready.append(entry)

    def pick(self):
        """A handle that is at hand; it is loaded if there is none."""
        if not self.ready:
            handle = self.fresh()
            self.line(f'{handle} = tl.load(part(x, pe, 0), (1, {COLUMNS}), "f32")')
            self.ready.append((handle, 1, COLUMNS))
        return self.rng.choice(self.ready)

    def compute(self):
        name, rows, columns = self.pick()
        other = "0.5"
        same = [h for h, *shape in self.ready if tuple(shape) == (rows, columns)]
        if self.rng.random() < 0.6:
            other = self.rng.choice(same)
        handle = self.fresh()
        op = self.rng.choice(["add", "sub", "mul", "maximum"])
        self.line(f"{handle} = tl.{op}({name}, {other})")
        self.ready.append((handle, rows, columns))

    def in_place(self):
        name, *_ = self.pick()
        if name not in self.sent:
            self.line(f"tl.mul({name}, 0.5, out={name})")

    def slice(self):
        name, rows, columns = self.pick()
        if rows > 1 and name not in self.sent:
            handle = self.fresh()
            first = self.rng.randint(0, rows - 1)
            self.line(f"{handle} = tl.slice({name}, ({first}, 0), (1, {columns}))")
            doubled = self.fresh()
            self.line(f"{doubled} = tl.add({handle}, {handle})")
            self.ready.append((doubled, 1, columns))

    def place(self, rows):
        """A tensor that is written now, and so many rows of it that are free."""
        for name in self.rng.sample(sorted(self.free), len(self.free)):
            for row in range(ROWS - rows + 1):
                wanted = set(range(row, row + rows))
                if wanted <= self.free[name]:
                    self.free[name] -= wanted
                    return name, row
        return None

    def store(self):
        handle, rows, columns = self.pick()
        place = self.place(rows)
        if place is None:
            return
        name, row = place
        strides = ""
        if columns < COLUMNS:
            strides = f", strides=({COLUMNS}, 1)"
        self.line(f"tl.store(part({name}, pe, {row}), {handle}{strides})")
        if self.rng.random() < 0.4:
            # what has landed may be read again at once
            again = self.fresh()
            self.line(
                f"{again} = tl.load(part({name}, pe, {row}), ({rows}, {columns}), "
                f'"f32"{strides})'
            )
            self.ready.append((again, rows, columns))

    def store_at_the_end(self):
        """A store that nobody waits for, of what stays as it is, to where nobody is."""
        handle, rows, columns = self.pick()
        place = self.place(rows)
        if place is not None and columns == COLUMNS:
            name, row = place
            self.line(f"tl.store(part({name}, pe, {row}), {handle}, wait=False)")

    def wait(self):
        if self.coming:
            number = self.rng.randrange(len(self.coming))
            entry = self.coming.pop(number)
            self.line(f"tl.wait({entry[0]})")
            if entry[1]:
                self.ready.append(entry)

    def settle(self, level):
        """Wait for all that began since there were ``level`` under way."""
        while len(self.coming) > level:
            entry = self.coming.pop()
            self.line(f"tl.wait({entry[0]})")
            if entry[1]:
                self.ready.append(entry)

    def talk(self):
        """All send one handle E, and take one from the W."""
        name, rows, columns = self.pick()
        wait = self.rng.choice(["", ", wait=False"])
        if wait:
            self.sent.add(name)
        self.line(f'tl.send("E", {name}{wait})')
        handle = self.fresh()
        if self.rng.random() < 0.5:
            call = f'tl.recv_async("W", ({rows}, {columns}), "f32")'
            self.line(f"{handle} = {call}")
            self.coming.append((handle, rows, columns))
        else:
            self.line(f'{handle} = tl.recv("W", ({rows}, {columns}), "f32")')
            self.ready.append((handle, rows, columns))

    def scope(self):
        """Statements whose scratch is released: nothing of them is under way then."""
        if len(self.indent) > 8:
            return
        before = list(self.ready)
        level = len(self.coming)
        sent = set(self.sent)
        outer = self.coming
        self.coming = []
        self.line("with tl.scope():")
        self.indent += "    "
        for _ in range(self.rng.randint(2, 5)):
            action = self.rng.choice([self.load, self.compute, self.store, self.wait])
            action()
        self.settle(0)
        self.line("pass")
        self.indent = self.indent[:-4]
        self.coming = outer
        self.ready = before
        self.sent = sent
        assert len(self.coming) == level

    def composite(self):
        """A product of our own rows, straight into memory."""
        place = self.place(ROWS)
        if place is None:
            return
        name, row = place
        a = f'tl.ref(part(x, pe, 0), ({ROWS}, {COLUMNS}), "f32")'
        b = f'tl.ref(part(x, 0, 0), ({COLUMNS // 2}, {COLUMNS}), "f32")'
        handle = self.fresh()
        self.line(
            f"{handle} = tl.composite(a={a}, b=tl.transpose({b}), "
            f"out_ptr=part({name}, pe, {row}), tile=(4, 4, 4))"
        )
        # its result has other columns than a row: it is awaited, and not used
        self.coming.append((handle, 0, 0))


def program(seed):
    """The text of the bench ``ordered_<seed>``."""
    rng = random.Random(seed)
    writer = Writer(rng)
    phases = rng.randint(1, 4)
    for phase in range(phases):
        writer.phase(phase + 1 == phases)
    text = HEADER.format(seed=seed, rows=ROWS, columns=COLUMNS)
    text += "\n".join(writer.lines) + "\n"
    return text + FOOTER.format(
        seed=seed,
        rows=ROWS,
        columns=COLUMNS,
        slots=rng.choice([2, 4]),
        slot_bytes=rng.choice([64, 128, 512]),
        launches=rng.randint(1, 2),
    )
