"""Writes random benches: the text of a Python file, the same for the same seed.

Four PEs in a ring run up to three launches of random kernels: loads and stores that are
waited for or not, views, tensors of up to three axes, f16, bf16 and f32, ops in place,
scopes, products, composites with ``wait=False``, sends and receives, and branches on
what was loaded. What the bench expects is what it read back itself, spoiled in places,
so that some verdicts are bad.

A program always ends, and reads no byte that nobody wrote. It may well be a race.
"""

import random
from dataclasses import dataclass
from math import prod

RANKS = 4
FLOATS = ("f16", "bf16", "f32")
SIZES = {"f16": 2, "bf16": 2, "f32": 4, "bool": 1, "i32": 4}
SHAPES = ((4,), (8,), (6,), (2, 3), (4, 4), (3, 5), (2, 3, 4), (2, 2, 3), (3, 1, 4))

HEADER = '''\
"""Random program {seed}."""

import numpy as np

from kernbench.ccl.install import install_ipcq
from kernbench.common.dtypes import np_dtype
from kernbench.runtime_api.placement import DPPolicy
from kernbench.runtime_api.registry import bench

RANKS = 4


def neighbours(rank):
    return {{"E": (rank + 1) % RANKS, "W": (rank - 1) % RANKS}}


def spoiled(rng, values, count):
    """A copy of which some elements are others."""
    other = np.array(values)
    flat = other.reshape(-1)
    for place in rng.choice(flat.size, min(count, flat.size), replace=False):
        flat[place] = rng.choice([np.nan, np.inf, 7.5, -0.25, float(flat[place]) + 1])
    return other

'''


@dataclass
class Tensor:
    """A tensor of a bench; ``policy`` says how its rows or columns lie on the PEs.

    ``part`` is the shape of the piece of a PE, and ``least`` how many elements the last
    piece has, which may be smaller. Of ``written`` ones results are stored, so nobody
    branches on what is there.
    """

    name: str
    shape: tuple
    dtype: str
    policy: str
    written: bool

    @property
    def part(self):
        if self.policy == "replicate":
            return self.shape
        part = list(self.shape)
        part[self.axis] = -(-part[self.axis] // RANKS)
        return tuple(part)

    @property
    def axis(self):
        return 0 if self.policy == "row_wise" else -1

    @property
    def least(self):
        if self.policy == "replicate":
            return prod(self.shape)
        whole = prod(self.part)
        missing = self.part[self.axis] * RANKS - self.shape[self.axis]
        return whole - missing * whole // self.part[self.axis]

    @property
    def part_bytes(self):
        return prod(self.part) * SIZES[self.dtype]


@dataclass
class Handle:
    """A handle of a kernel; ``ready``: its data may be looked at."""

    name: str
    shape: tuple
    dtype: str
    ready: bool = False
    awaited: bool = True
    scratch: bool = True


class Writer:
    """The lines of one kernel, and the handles that are alive at each of them."""

    def __init__(self, rng, number, tensors):
        self.rng = rng
        self.number = number
        self.tensors = tensors
        self.lines = []
        self.indent = "    "
        self.handles = []
        self.counter = 0
        self.diverged = False

    def line(self, text):
        self.lines.append(self.indent + text)

    def fresh(self):
        self.counter += 1
        return f"h{self.counter}"

    def add(self, shape, dtype, text, **what):
        handle = Handle(self.fresh(), tuple(shape), dtype, **what)
        self.line(f"{handle.name} = {text}")
        self.handles.append(handle)
        return handle

    def pick(self, fits=lambda handle: True):
        """A handle in scratch that fits; a new load where there is none."""
        found = [h for h in self.handles if h.scratch and fits(h)]
        if not found:
            return None
        return self.rng.choice(found[-6:])

    def float_handle(self):
        return self.pick(lambda h: h.dtype in FLOATS) or self.load()

    def statement(self, depth):
        choices = [
            (self.load, 5),
            (self.load_slice, 3),
            (self.binary, 7),
            (self.unary, 4),
            (self.in_place, 4),
            (self.select, 2),
            (self.reduce, 4),
            (self.view, 4),
            (self.dot, 2),
            (self.fill, 2),
            (self.store, 5),
            (self.store_slice, 3),
            (self.wait, 2),
            (self.composite, 2),
        ]
        if not self.diverged:
            choices += [(self.talk, 3), (self.talk_at_length, 1)]
        if depth < 2:
            choices += [
                (lambda: self.scope(depth), 2),
                (lambda: self.branch(depth), 2),
                (lambda: self.loop(depth), 1),
            ]
        actions, weights = zip(*choices, strict=True)
        self.rng.choices(actions, weights)[0]()

    def block(self, depth, count):
        """Statements one level deeper, whose handles nobody sees afterwards."""
        self.indent += "    "
        alive = list(self.handles)
        for _ in range(count):
            self.statement(depth + 1)
        self.line("pass")
        self.handles = alive
        self.indent = self.indent[:-4]

    def place(self, tensor, elements):
        """The text of an address in a tensor with room for so many elements."""
        size = SIZES[tensor.dtype]
        if tensor.policy == "replicate":
            most = prod(tensor.shape) - elements
            return f"{tensor.name} + {size * self.rng.randint(0, most)}"
        most = tensor.least - elements
        offset = size * self.rng.randint(0, most)
        rank = self.rng.choice(["pe", "pe", "pe", "(pe + 1) % 4", "(pe + 2) % 4"])
        return f"{tensor.name} + {rank} * {tensor.part_bytes} + {offset}"

    def load(self):
        tensor = self.rng.choice(self.tensors)
        shapes = [s for s in (*SHAPES, tensor.part) if prod(s) <= tensor.least]
        shape = self.rng.choice(shapes)
        address = self.place(tensor, prod(shape))
        if self.rng.random() < 0.1 and tensor.policy != "replicate":
            # from the end of one piece into the next
            elements = prod(shape)
            before = elements // 2
            at = tensor.part_bytes - before * SIZES[tensor.dtype]
            if before:
                address = f"{tensor.name} + {at}"
        awaited = self.rng.random() < 0.7
        wait = "" if awaited else ", wait=False"
        return self.add(
            shape,
            tensor.dtype,
            f"tl.load({address}, {shape}, {tensor.dtype!r}{wait})",
            ready=awaited and not tensor.written,
            awaited=awaited,
        )

    def strides(self, shape):
        """Distances of the axes of a slice, sometimes turned, and how far it reaches.

        Each axis steps over all that lies within it, and often over a gap too.
        """
        order = list(range(len(shape)))
        if self.rng.random() < 0.2:
            self.rng.shuffle(order)
        strides = [0] * len(shape)
        within = 1
        reach = 1
        for axis in reversed(order):
            strides[axis] = within + self.rng.choice([0, 0, 1, 3])
            reach += (shape[axis] - 1) * strides[axis]
            within = strides[axis] * shape[axis]
        return tuple(strides), reach

    def slice_in(self, tensors, shapes):
        """The place of a slice of a tensor: tensor, shape, address and strides."""
        fitting = []
        for tensor in tensors:
            for shape in shapes:
                strides, reach = self.strides(shape)
                if reach <= tensor.least:
                    fitting.append((tensor, shape, strides, reach))
        if not fitting:
            return None
        tensor, shape, strides, reach = self.rng.choice(fitting)
        address = self.place(tensor, reach)
        if self.rng.random() < 0.15 and tensor.policy != "replicate":
            # from the end of one piece into the next
            at = tensor.part_bytes - reach // 2 * SIZES[tensor.dtype]
            if reach > 1:
                address = f"{tensor.name} + {at}"
        return tensor, shape, address, strides

    def load_slice(self):
        found = self.slice_in(self.tensors, SHAPES)
        if found is None:
            return None
        tensor, shape, address, strides = found
        awaited = self.rng.random() < 0.7
        wait = "" if awaited else ", wait=False"
        return self.add(
            shape,
            tensor.dtype,
            f"tl.load({address}, {shape}, {tensor.dtype!r}{wait}, strides={strides})",
            ready=awaited and not tensor.written,
            awaited=awaited,
        )

    def store_slice(self):
        a = self.pick(lambda h: h.dtype in FLOATS and len(h.shape) <= 4)
        if a is None:
            return
        taken = [t for t in self.tensors if t.written and t.dtype == a.dtype]
        found = self.slice_in(taken, [a.shape])
        if found is None:
            return
        _, _, address, strides = found
        wait = self.rng.choice(["", "", ", wait=False"])
        self.line(f"tl.store({address}, {a.name}{wait}, strides={strides})")

    def binary(self):
        a = self.float_handle()
        op = self.rng.choice(["add", "sub", "mul", "maximum", "minimum", "div", "lt"])
        b = self.pick(lambda h: h.shape == a.shape and h.dtype == a.dtype)
        kind = self.rng.randint(0, 3)
        if kind == 0:
            other = repr(self.rng.choice([0.5, -1.25, 2, 3.0]))
        elif kind == 1:
            lines = self.pick(lambda h: h.dtype == a.dtype and h.shape == a.shape[-1:])
            other = (lines or b).name
        else:
            other = b.name
        dtype = "bool" if op == "lt" else a.dtype
        self.add(a.shape, dtype, f"tl.{op}({a.name}, {other})")

    def unary(self):
        a = self.float_handle()
        op = self.rng.choice(["exp", "neg", "abs", "sqrt", "sigmoid", "cast", "tanh"])
        if op == "cast":
            dtype = self.rng.choice(FLOATS)
            self.add(a.shape, dtype, f"tl.cast({a.name}, {dtype!r})")
        else:
            self.add(a.shape, a.dtype, f"tl.{op}({a.name})")

    def in_place(self):
        a = self.float_handle()
        b = self.pick(lambda h: h.shape == a.shape and h.dtype in FLOATS)
        op = self.rng.choice(["add", "mul", "sub"])
        other = self.rng.choice([b.name, "0.5"])
        self.line(f"tl.{op}({a.name}, {other}, out={a.name})")
        self.nothing_is_ready()

    def select(self):
        a = self.float_handle()
        condition = self.pick(lambda h: h.shape == a.shape)
        b = self.pick(lambda h: h.shape == a.shape and h.dtype == a.dtype)
        kind = self.rng.randint(0, 2)
        if kind == 0:
            text = f"tl.where({condition.name}, {a.name}, {b.name})"
        elif kind == 1:
            text = f"tl.fma({a.name}, {b.name}, {a.name})"
        else:
            text = f"tl.clamp({a.name}, -0.5, 1.5)"
        self.add(a.shape, a.dtype, text)

    def reduce(self):
        a = self.float_handle()
        if self.rng.random() < 0.3:
            axis = self.rng.randrange(len(a.shape))
            self.add(a.shape, a.dtype, f"tl.softmax({a.name}, axis={axis})")
            return
        op = self.rng.choice(["sum", "max", "min"])
        axis = self.rng.randrange(len(a.shape))
        keep = self.rng.random() < 0.5
        shape = list(a.shape)
        shape[axis] = 1
        if not keep:
            del shape[axis]
        if not shape:
            return
        call = f"tl.{op}({a.name}, axis={axis}, keepdims={keep})"
        self.add(shape, a.dtype, call)

    def view(self):
        a = self.pick(lambda h: h.awaited or self.rng.random() < 0.3)
        if a is None:
            return
        kind = self.rng.randint(0, 2)
        if kind == 0:
            shape = self.rng.choice([(prod(a.shape),), (1, prod(a.shape)), a.shape])
            self.add(shape, a.dtype, f"tl.reshape({a.name}, {shape})")
        elif kind == 1 and len(a.shape) > 2:
            self.add(a.shape[::-1], a.dtype, f"tl.transpose({a.name})")
        else:
            starts = []
            shape = []
            for extent in a.shape:
                start = self.rng.randrange(extent)
                starts.append(start)
                shape.append(self.rng.randint(1, extent - start))
            text = f"tl.slice({a.name}, {tuple(starts)}, {tuple(shape)})"
            self.add(shape, a.dtype, text)

    def dot(self):
        a = self.pick(lambda h: len(h.shape) == 2 and h.dtype in FLOATS)
        if a is None:
            return
        if self.rng.random() < 0.5:
            # a @ a.T
            shape = (a.shape[0], a.shape[0])
            text = f"tl.dot({a.name}, tl.transpose({a.name}), out_dtype='f32')"
            self.add(shape, "f32", text)
            return
        b = self.pick(
            lambda h: (
                len(h.shape) == 2 and h.dtype == a.dtype and h.shape[0] == a.shape[1]
            )
        )
        if b is None:
            return
        shape = (a.shape[0], b.shape[1])
        acc = self.pick(
            lambda h: h.shape == shape and h.dtype == "f32" and h not in (a, b)
        )
        text = f"tl.dot({a.name}, {b.name})"
        is_free = acc is not None and a.dtype != "f32"
        if is_free and self.rng.random() < 0.7:
            self.line(f"tl.dot({a.name}, {b.name}, acc={acc.name})")
            self.nothing_is_ready()
            return
        self.add(shape, a.dtype, text)

    def fill(self):
        shape = self.rng.choice(SHAPES)
        dtype = self.rng.choice(FLOATS)
        value = self.rng.choice([0, 1, -2.5])
        self.add(shape, dtype, f"tl.full({shape}, {value}, {dtype!r})")

    def store(self):
        a = self.pick(lambda h: h.dtype in FLOATS)
        if a is None:
            return
        fitting = []
        for tensor in self.tensors:
            has_room = tensor.least >= prod(a.shape)
            if tensor.written and tensor.dtype == a.dtype and has_room:
                fitting.append(tensor)
        if not fitting:
            return
        tensor = self.rng.choice(fitting)
        address = self.place(tensor, prod(a.shape))
        wait = self.rng.choice(["", "", ", wait=False"])
        self.line(f"tl.store({address}, {a.name}{wait})")

    def wait(self):
        waiting = [h for h in self.handles if not h.awaited]
        if waiting:
            handle = self.rng.choice(waiting)
            self.line(f"tl.wait({handle.name})")
            handle.awaited = True

    def composite(self):
        outs = [t for t in self.tensors if t.name.startswith("c")]
        mine = [t for t in self.tensors if t.name.startswith("a")]
        if not outs or not mine:
            return
        out = outs[0]
        a = mine[0]
        m = a.part[0]
        b = next(t for t in self.tensors if t.name.startswith("b"))
        n = b.shape[1]
        tile = self.rng.choice([(4, 4, 4), (8, 8, 4), (64, 64, 64), (4, 8, 8)])
        epilogue = self.rng.choice(
            ["", ", epilogue=['relu']", ", epilogue=[('scale', 0.5), 'relu']"]
        )
        left = f"tl.ref(a + pe * {a.part_bytes}, {a.part}, {a.dtype!r})"
        if self.rng.random() < 0.3:
            left = f"tl.load(a + pe * {a.part_bytes}, {a.part}, {a.dtype!r})"
        text = (
            f"tl.composite(a={left}, b=tl.ref(b, {b.shape}, {b.dtype!r}), "
            f"out_ptr=c + pe * {out.part_bytes}, tile={tile}{epilogue})"
        )
        done = self.add((m, n), a.dtype, text, awaited=False, scratch=False)
        if self.rng.random() < 0.5:
            self.line(f"tl.wait({done.name})")
            done.awaited = True

    def talk(self):
        a = self.pick(lambda h: prod(h.shape) * SIZES[h.dtype] <= 256)
        if a is None:
            return
        there = self.rng.choice(["E", "W"])
        back = {"E": "W", "W": "E"}[there]
        wait = self.rng.choice(["", ", wait=False"])
        self.line(f"tl.send({there!r}, {a.name}{wait})")
        if self.rng.random() < 0.3:
            self.add(
                a.shape,
                a.dtype,
                f"tl.recv_async({back!r}, {a.shape}, {a.dtype!r})",
                awaited=False,
            )
        else:
            self.add(a.shape, a.dtype, f"tl.recv({back!r}, {a.shape}, {a.dtype!r})")

    def talk_at_length(self):
        """Many payloads on their way before the first is received, and that slowly."""
        tensor = self.tensors[0]
        shape = self.rng.choice([(4,), (6,), (2, 3)])
        count = self.rng.randint(5, 9)
        sent = []
        for _ in range(count):
            address = self.place(tensor, prod(shape))
            text = f"tl.load({address}, {shape}, {tensor.dtype!r})"
            sent.append(self.add(shape, tensor.dtype, text, ready=True))
        for handle in sent:
            self.line(f"tl.send('E', {handle.name}, wait=False)")
        for handle in sent:
            text = f"tl.recv('W', {shape}, {handle.dtype!r})"
            self.add(shape, handle.dtype, text)
            self.load()

    def scope(self, depth):
        self.line("with tl.scope():")
        self.block(depth, self.rng.randint(2, 5))

    def branch(self, depth):
        handle = None
        if self.rng.random() < 0.7:
            handle = self.pick(lambda h: h.ready)
        before = self.diverged
        self.diverged = True
        if handle is None:
            self.line(f"if pe == {self.rng.randrange(RANKS)}:")
        else:
            index = ", ".join(str(self.rng.randrange(n)) for n in handle.shape)
            self.line(f"if {handle.name}[{index}] > {self.rng.choice([-0.5, 0, 0.5])}:")
        # what a branch makes pending may or may not be so afterwards
        self.block(depth, self.rng.randint(1, 3))
        self.diverged = before

    def loop(self, depth):
        if any(not h.awaited for h in self.handles):
            return
        before = self.diverged
        self.diverged = True
        self.line(f"for _ in range({self.rng.randint(2, 3)}):")
        self.nothing_is_ready()
        self.block(depth, self.rng.randint(1, 3))
        self.diverged = before

    def nothing_is_ready(self):
        """What was computed in place may be the bytes of any handle: a view of it."""
        for handle in self.handles:
            handle.ready = False


def tensors_of(rng):
    """The tensors of a program: sources, results, and those of a composite."""
    dtypes = [rng.choice(FLOATS) for _ in range(3)]
    found = [
        Tensor("x", (rng.choice([8, 7]), 3, 4), dtypes[0], "row_wise", False),
        Tensor("w", (4, 6), dtypes[1], "replicate", rng.random() < 0.3),
        Tensor("v", (3, 16), dtypes[2], "column_wise", False),
        Tensor("y", (8, 4, 4), dtypes[0], "row_wise", True),
        Tensor("z", (5, rng.choice([16, 15])), dtypes[1], "column_wise", True),
        Tensor("u", (rng.choice([12, 10]), 5), "f32", "row_wise", True),
    ]
    if rng.random() < 0.6:
        dtype = rng.choice(FLOATS)
        m = rng.choice([4, 6])
        k = rng.choice([4, 8, 12])
        n = rng.choice([4, 10])
        found += [
            Tensor("a", (m * RANKS, k), dtype, "row_wise", False),
            Tensor("b", (k, n), dtype, "replicate", False),
            Tensor("c", (m * RANKS, n), dtype, "row_wise", True),
        ]
    return found


def faults(rng):
    """Sometimes a queue gives its slots back too early: then operands are stale."""
    if rng.random() < 0.75:
        return []
    impl = "kernbench.benches.faults.early_credit:EarlyCredit"
    return [f'        "components.pe_ipcq.impl": "{impl}",']


def program(seed):
    """The text of the bench ``random_<seed>``."""
    rng = random.Random(seed)
    tensors = tensors_of(rng)
    kernels = rng.choice([1, 1, 2])
    launches = rng.randint(kernels, 3)
    names = ", ".join(tensor.name for tensor in tensors)
    lines = [HEADER.format(seed=seed)]
    for number in range(kernels):
        writer = Writer(rng, number, tensors)
        for _ in range(rng.randint(8, 20)):
            writer.statement(0)
        writer.store()
        lines += ["", f"def kernel{number}({names}, tl):", "    pe = tl.program_id(0)"]
        lines += writer.lines
        lines += ["", ""]
    outstanding = rng.choice([1, 2, 8])
    lines += [
        "def machine():",
        "    return {",
        '        "system.sips.count": 1,',
        '        "sip.cube_mesh.w": 1,',
        '        "sip.cube_mesh.h": 1,',
        '        "cube.pes": RANKS,',
        '        "cube.memory_map.slices_per_cube": RANKS,',
        f'        "pe.dma.outstanding": {outstanding},',
        f'        "pe.dma.burst_bytes": {rng.choice([32, 64, 4096])},',
        *faults(rng),
        "    }",
        "",
        "",
        f'@bench(name="random_{seed}", description="random", machine=machine)',
        "def run(torch):",
        f"    rng = np.random.default_rng({seed})",
        "    places = [(0, 0, pe) for pe in range(RANKS)]",
        "    install_ipcq(",
        "        torch.engine,",
        "        world_size=RANKS,",
        "        rank_to_pe=places,",
        "        neighbors=neighbours,",
        f"        buffer_kind={rng.choice(['tcm', 'hbm', 'sram'])!r},",
        f"        slots={rng.choice([2, 4])},",
        "        slot_bytes=128,",
        "    )",
    ]
    for tensor in tensors:
        scale = rng.choice([1.0, 1.0, 3.0])
        policy = f'DPPolicy(cube="replicate", pe="{tensor.policy}")'
        lines += [
            f"    data = {scale} * rng.standard_normal({tensor.shape})",
            f"    {tensor.name} = torch.tensor(",
            f"        data.astype(np_dtype({tensor.dtype!r})), {tensor.dtype!r},",
            f"        {policy}, name={tensor.name!r}",
            "    )",
        ]
    written = [tensor for tensor in tensors if tensor.written]
    for number in range(launches):
        kernel = number if number < kernels else rng.randrange(kernels)
        name = f"kernel{kernel}"
        lines.append(f'    torch.launch("{name}", {name}, {names})')
        is_last = number + 1 == launches
        for tensor in written:
            if is_last or rng.random() < 0.3:
                bad = rng.choice([0, 0, 1, 5])
                lines += [
                    f"    found = {tensor.name}.numpy()",
                    f"    torch.expect({tensor.name}, spoiled(rng, found, {bad}),",
                    f'        name="{tensor.name}{number}")',
                ]
    return "\n".join(lines) + "\n"
