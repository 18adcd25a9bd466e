"""What an op of a trace reads, writes and computes, from its params alone.

Written anew from docs/decisions.md, "ADR-0052 D3: parameters by op", and from
docs/machine.md, "Arithmetic", so that a mistake of kernbench is not repeated here. Only
ops that random kernels use are known; another is a KeyError.
"""

from itertools import pairwise
from math import isnan, prod
from typing import NamedTuple

import numpy as np
from plain_frames import DTYPES


class Layout(NamedTuple):
    """How bytes lie: ``nbytes`` from ``addr`` on, in ``rows`` with gaps between them.

    ``row_bytes`` is 0 where rows differ in size, and ``pitch``, the distance of their
    beginnings, where that differs or there is one row only.
    """

    addr: int
    nbytes: int
    rows: int
    row_bytes: int
    pitch: int


def layout(addresses):
    """How the bytes at some addresses lie; an address may be given twice."""
    mine = set(addresses)
    starts = sorted(addr for addr in mine if addr - 1 not in mine)
    ends = sorted(addr + 1 for addr in mine if addr + 1 not in mine)
    sizes = [end - start for start, end in zip(starts, ends, strict=True)]
    apart = [after - before for before, after in pairwise(starts)]
    return Layout(starts[0], len(mine), len(starts), _same(sizes), _same(apart))


def _same(numbers):
    """The number that all of them are; 0 of none, or of different ones."""
    found = set(numbers)
    return found.pop() if len(found) == 1 else 0


class Bytes(NamedTuple):
    """A tensor in memory: contiguous bytes at a physical address.

    Or pieces of ``row_bytes`` each, which begin at the addresses ``rows``: its bytes in
    order.
    """

    space: str
    addr: int
    shape: tuple
    dtype: str
    rows: tuple = ()
    row_bytes: int = 0

    @property
    def addresses(self):
        """The address of each byte, in order."""
        if not self.rows:
            return list(range(self.addr, self.addr + self.nbytes))
        found = []
        for row in self.rows:
            found += range(row, row + self.row_bytes)
        return found

    @property
    def end(self):
        """The address behind the last byte."""
        if not self.rows:
            return self.addr + self.nbytes
        return max(self.rows) + self.row_bytes

    @property
    def layout(self):
        """How its bytes lie."""
        if not self.rows:
            return Layout(self.addr, self.nbytes, 1, self.nbytes, 0)
        return layout(self.addresses)

    @property
    def pieces(self):
        """The tensor, or each of its rows as one of bytes."""
        if not self.rows:
            return [self]
        return [Bytes(self.space, row, (self.row_bytes,), "u8") for row in self.rows]

    def element(self, number):
        """The addresses of the bytes of one element."""
        size = self.itemsize
        return self.addresses[number * size : (number + 1) * size]

    @property
    def itemsize(self):
        return np.dtype(DTYPES[self.dtype]).itemsize

    @property
    def nbytes(self):
        return prod(self.shape) * self.itemsize


# -- where ------------------------------------------------------------------------


def reads(op):
    """The operands of an op, in order."""
    p = op.params
    if op.kind == "memory":
        if "src_addr" not in p:
            return []
        rows = _gaps(p["src_addr"], p.get("src_rows"))
        if op.name == "dma_read":
            rows = _rows(p, p["src_addr"])
        shape = tuple(p["shape"])
        return [Bytes(p["src_space"], p["src_addr"], shape, p["dtype"], *rows)]
    if op.kind == "gemm":
        found = [_of_gemm(p, "a"), _of_gemm(p, "b")]
        if "src_acc_addr" in p:
            found.append(
                Bytes(
                    p["src_acc_space"],
                    p["src_acc_addr"],
                    tuple(p["shape_out"]),
                    p["dtype_out"],
                )
            )
        return found + _listed(p, "epilogue")
    if op.kind == "math":
        return _listed(p, "input")
    return []


def _rows(p, addr):
    """The first byte of each row of a DMA, and its length; nothing of one row."""
    if "rows" not in p:
        return ()
    steps = [*p.get("planes", ()), (p["rows"], p["pitch"])]
    return _starts(addr, steps), p["row_bytes"]


def _gaps(addr, listed):
    """The same of a list: rows, their bytes, their pitch, then count and pitch of each
    further axis, the outermost first.
    """
    if not listed:
        return ()
    count, row_bytes, pitch, *planes = listed
    steps = [*zip(planes[::2], planes[1::2], strict=True), (count, pitch)]
    return _starts(addr, steps), row_bytes


def _starts(addr, steps):
    """Where each row begins; a step is a count and a distance."""
    starts = [addr]
    for count, pitch in steps:
        starts = [start + i * pitch for start in starts for i in range(count)]
    return tuple(starts)


def _of_gemm(p, which):
    addr = p[f"src_{which}_addr"]
    return Bytes(
        p[f"src_{which}_space"],
        addr,
        tuple(p[f"shape_{which}"]),
        p["dtype_in"],
        *_gaps(addr, p.get(f"src_{which}_rows")),
    )


def _listed(p, prefix):
    names = ("spaces", "addrs", "shapes", "dtypes")
    columns = [p.get(f"{prefix}_{name}", []) for name in names]
    rows = p.get(f"{prefix}_rows") or [None] * len(columns[0])
    found = []
    for space, addr, shape, dtype, listed in zip(*columns, rows, strict=True):
        found.append(Bytes(space, addr, tuple(shape), dtype, *_gaps(addr, listed)))
    return found


def write(op):
    """What an op writes, None for nothing."""
    p = op.params
    if op.kind == "memory" and "dst_addr" in p:
        rows = _gaps(p["dst_addr"], p.get("dst_rows"))
        if op.name == "dma_write":
            rows = _rows(p, p["dst_addr"])
        shape = tuple(p["shape"])
        return Bytes(p["dst_space"], p["dst_addr"], shape, p["dtype"], *rows)
    if op.kind == "gemm":
        shape = tuple(p["shape_out"])
        rows = _gaps(p["dst_addr"], p.get("dst_rows"))
        return Bytes(p["dst_space"], p["dst_addr"], shape, p["dtype_out"], *rows)
    if op.kind == "math":
        shape = tuple(p["shape_out"])
        rows = _gaps(p["dst_addr"], p.get("dst_rows"))
        return Bytes(p["dst_space"], p["dst_addr"], shape, p["dtype"], *rows)
    return None


def stored(op):
    """(space, address, bytes) of what an op stores; of a tile its block."""
    p = op.params
    if op.name == "TileToken/DMA_WRITE":
        found = []
        for i, space in enumerate(p["spaces"]):
            if "rows" not in p:
                found.append((space, p["addrs"][i], p["sizes"][i]))
                continue
            for row in range(p["rows"][i]):
                start = p["addrs"][i] + row * p["pitch"][i]
                found.append((space, start, p["row_bytes"][i]))
        return found
    out = write(op)
    if out is None:
        return []
    return [(out.space, piece.addr, piece.nbytes) for piece in out.pieces]


def touched(op):
    """(mode, Bytes) of all that an op touches, as ``accesses``; rows are one."""
    found = [("r", region) for region in reads(op)]
    if write(op) is not None:
        found.append(("w", write(op)))
    return [(mode, region) for mode, region in found if region.nbytes]


def shared(one, other):
    """How the bytes lie that are in two tensors; None if there is none."""
    if one.space != other.space:
        return None
    low = max(one.addr, other.addr)
    high = min(one.end, other.end)
    if low >= high:
        return None
    if not one.rows and not other.rows:
        return Layout(low, high - low, 1, high - low, 0)
    both = set(one.addresses).intersection(other.addresses)
    return layout(both) if both else None


def accesses(op):
    """(mode, Bytes) of all that an op touches, reads first, without empty ones.

    Of rows each is one.
    """
    found = [("r", piece) for region in reads(op) for piece in region.pieces]
    if write(op) is not None:
        found += [("w", piece) for piece in write(op).pieces]
    return [(mode, region) for mode, region in found if region.nbytes]


def snapshots(op):
    """What Phase 1 saw of each operand; None where it did not know."""
    if op.kind == "memory":
        return [op.params.get("snapshot")]
    count = len(reads(op))
    if op.kind == "math":
        return op.params.get("input_snapshots") or [None] * count
    return [None] * count


# -- what -------------------------------------------------------------------------


def _sigmoid(x):
    return 1 / (1 + np.exp(-x))


def _where(condition, a, b):
    return np.where(condition != 0, a, b)


def _fma(a, b, c):
    # a product of f32 is exact in f64; the sum is rounded once
    return a.astype(np.float64) * b.astype(np.float64) + c


def _clamp(x, low, high):
    return np.minimum(np.maximum(x, low), high)


def _relu(x):
    return np.maximum(x, 0)


POINTWISE = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "scale": np.multiply,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "lt": np.less,
    "exp": np.exp,
    "neg": np.negative,
    "abs": np.abs,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "tanh": np.tanh,
    "sigmoid": _sigmoid,
    "relu": _relu,
    "cast": lambda x: x,
    "where": _where,
    "fma": _fma,
    "clamp": _clamp,
}
LINES = {"sum": np.sum, "max": np.max, "min": np.min}


def compute(op, operands, wide=False):
    """The output of an op as an array of its dtype, of arrays of its operands.

    Floats are computed in f32 and rounded once; ``wide``: in f64, not rounded.
    """
    out = write(op)
    p = op.params
    work = np.float64 if wide else np.float32
    with np.errstate(all="ignore"):
        if op.kind == "memory":
            result = operands[0]
        elif op.kind == "gemm":
            result = _product(p, operands, work)
        elif p["op"] == "copy":
            result = operands[0].reshape(-1)[_places(p, out.shape, reads(op))]
        elif p["op"] == "full":
            result = np.full(out.shape, p["scalars"][0])
        else:
            result = _math(p, operands, work)
        if wide:
            return np.asarray(result, np.float64).reshape(out.shape)
        return np.asarray(result).reshape(out.shape).astype(DTYPES[out.dtype])


def _math(p, operands, work):
    slots = [x.astype(work) for x in operands]
    for at, scalar in sorted(zip(p["scalar_positions"], p["scalars"], strict=True)):
        slots.insert(at, np.asarray(scalar, np.float32).astype(work))
    name = p["op"]
    if name in POINTWISE:
        return POINTWISE[name](*slots)
    axis = p["axis"]
    (x,) = slots
    if name == "softmax":
        along = -1 if axis is None else axis
        powers = np.exp(x - x.max(axis=along, keepdims=True))
        return powers / powers.sum(axis=along, keepdims=True)
    return LINES[name](x, axis=axis, keepdims=bool(p["keepdims"]))


def _product(p, operands, work):
    a, b, *rest = operands
    a = a.astype(work)
    b = b.astype(work)
    if p["transpose_a"]:
        a = a.T
    if p["transpose_b"]:
        b = b.T
    total = a @ b
    if "src_acc_addr" in p:
        total = total + rest.pop(0).astype(work)
    steps = zip(p.get("epilogue", []), p.get("epilogue_scalars", []), strict=True)
    for name, scalar in steps:
        extra = [] if isnan(scalar) else [work(np.float32(scalar))]
        total = POINTWISE[name](total, *extra)
    return total


def _places(p, shape, operands):
    """The element of the operand that a copy puts at each place of its output."""
    scalars = [int(number) for number in p["scalars"]]
    offset = scalars[0] if scalars else 0
    strides = scalars[1:]
    if not strides:
        return offset + np.arange(prod(shape)).reshape(shape)
    found = np.full(shape, offset)
    for axis, stride in enumerate(strides):
        steps = np.arange(shape[axis]) * stride
        outline = [1] * len(shape)
        outline[axis] = -1
        found = found + steps.reshape(outline)
    return found


def needed(op, element):
    """Of each operand the elements that one element of the output is made of."""
    out = write(op)
    p = op.params
    if op.kind == "memory":
        return [{element} for _ in reads(op)]
    shapes = [region.shape for region in reads(op)]
    if op.kind == "gemm":
        return _needed_of_product(p, shapes, element)
    if p["op"] == "copy":
        return [{int(_places(p, out.shape, reads(op)).reshape(-1)[element])}]
    if p["op"] == "full":
        return []
    if p["op"] in POINTWISE:
        whole = np.broadcast_shapes(*shapes)
        return [{_behind(shape, whole, element)} for shape in shapes]
    # lines along an axis
    (shape,) = shapes
    numbers = np.arange(prod(shape)).reshape(shape)
    axis = p["axis"]
    if p["op"] == "softmax":
        axis = -1 if axis is None else axis
        index = list(np.unravel_index(element, shape))
        index[axis] = slice(None)
        return [set(numbers[tuple(index)].reshape(-1).tolist())]
    if axis is None:
        return [set(numbers.reshape(-1).tolist())]
    lines = np.moveaxis(numbers, axis, -1).reshape(-1, shape[axis])
    return [set(lines[element].tolist())]


def _behind(shape, whole, element):
    """The element of a tensor that broadcasting puts at one of the whole."""
    numbers = np.arange(prod(shape)).reshape(shape)
    return int(np.broadcast_to(numbers, whole).reshape(-1)[element])


def _needed_of_product(p, shapes, element):
    a = np.arange(prod(shapes[0])).reshape(shapes[0])
    b = np.arange(prod(shapes[1])).reshape(shapes[1])
    if p["transpose_a"]:
        a = a.T
    if p["transpose_b"]:
        b = b.T
    row, column = divmod(element, b.shape[1])
    found = [set(a[row].tolist()), set(b[:, column].tolist())]
    whole = (a.shape[0], b.shape[1])
    for shape in shapes[2:]:
        found.append({_behind(shape, whole, element)})
    return found
