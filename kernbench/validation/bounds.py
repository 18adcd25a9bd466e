"""A product against the least that its addresses allow.

One PE multiplies two matrices that lie in its own slice of HBM. Where its tiles lie is
worked out anew, byte by byte, and from that three times that no machine can beat: that
of the array, that of the channel with the most work, and that of the tiles in flight,
which says what of a channel's work there is at any moment. Of the model only the time
is taken, and where it has put the matrices.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from kernbench.benches import matmul
from kernbench.runtime_api.torch import Torch
from kernbench.sim_engine.engine import GraphEngine
from kernbench.sim_engine.op_log import OpRecord
from kernbench.topology import TopologySpec, load_topology
from kernbench.topology.spec import HbmSpec
from kernbench.validation.table import Bound, Row, Table

Shape: TypeAlias = tuple[int, int, int]
"""m, k and n of a product, or of a tile."""

Fields: TypeAlias = Mapping[str, int | float | str]
"""Values of fields of the topology, by any end of their path."""

Floats: TypeAlias = npt.NDArray[np.float64]
Ints: TypeAlias = npt.NDArray[np.int64]

ONE_CUBE: Fields = {"sips.count": 1, "cube_mesh.w": 1, "cube_mesh.h": 1}

ITEM_BYTES = 2
"""All matrices are of f16."""

INTERLEAVES = (256, 1024, 4096)
HASHES = ("xor", "none")

_NOTED_PERCENT = 10
"""A product that takes so much longer than array and channels do is noted."""


class Case(NamedTuple):
    """A product, the side of its tiles, and how near to the bounds it has to be."""

    shape: Shape
    side: int = 64
    within_percent: float = 10

    def __str__(self) -> str:
        text = " x ".join(map(str, self.shape))
        if self.side != 64:
            text += f" in tiles of {self.side}"
        return text


CASES = (
    Case((512, 512, 512)),
    Case((500, 700, 300)),
    Case((500, 300, 700)),
    Case((77, 333, 555)),
    Case((512, 512, 512), side=128),
    Case((1024, 128, 1024), within_percent=35),
)


@dataclass(frozen=True, slots=True)
class Block:
    """A block of a matrix of ``cols`` columns, whose first byte is at ``addr``."""

    addr: int
    height: int
    width: int
    cols: int

    @property
    def nbytes(self) -> int:
        """Its bytes, without those between its rows."""
        return self.height * self.width * ITEM_BYTES

    def starts(self) -> Ints:
        """The address of each of its rows."""
        pitch = self.cols * ITEM_BYTES
        return self.addr + np.arange(self.height, dtype=np.int64) * pitch

    def accesses(self, hbm: HbmSpec) -> Ints:
        """How many accesses it takes of every channel."""
        size = hbm.access_bytes
        first = self.starts()
        last = first + self.width * ITEM_BYTES - 1
        longest = int((last // size - first // size).max()) + 1
        blocks = (first // size)[:, None] + np.arange(longest)
        touched = np.unique(blocks[blocks <= (last // size)[:, None]])
        chunk = touched * size // hbm.interleave_bytes
        number = chunk % hbm.channels
        if hbm.channel_hash == "xor":
            number = (chunk ^ chunk // hbm.channels) % hbm.channels
        return np.bincount(number, minlength=hbm.channels)


@dataclass(frozen=True, slots=True)
class Tile:
    """One tile: its extents, the blocks that it reads, and the one that it writes."""

    extent: Shape
    reads: tuple[Block, Block]
    write: Block | None


def tiles(shape: Shape, side: int, addrs: tuple[int, int, int]) -> Iterator[Tile]:
    """The tiles of a product whose A, B and C begin at ``addrs``, in order m, n, k."""
    m, k, n = shape
    a, b, c = addrs
    corners = product(range(0, m, side), range(0, n, side), range(0, k, side))
    for row, col, depth in corners:
        height = min(side, m - row)
        width = min(side, n - col)
        deep = min(side, k - depth)
        read_a = Block(a + (row * k + depth) * ITEM_BYTES, height, deep, k)
        read_b = Block(b + (depth * n + col) * ITEM_BYTES, deep, width, n)
        write = None
        if depth + deep == k:
            write = Block(c + (row * n + col) * ITEM_BYTES, height, width, n)
        yield Tile((height, deep, width), (read_a, read_b), write)


@dataclass(frozen=True, slots=True)
class Bounds:
    """Three times that a product cannot beat, in ns.

    ``array_ns`` is how long the array works, ``channel_ns`` how long the channel with
    the most work does, and ``window_ns`` what both take with as few tiles in flight as
    there are.
    """

    array_ns: float
    channel_ns: float
    window_ns: float

    @property
    def largest(self) -> tuple[str, float]:
        """What decides, and its time."""
        named = {
            "its array": self.array_ns,
            "its most loaded channel": self.channel_ns,
            "its tiles in flight": self.window_ns,
        }
        return max(named.items(), key=lambda each: each[1])


def bounds(spec: TopologySpec, work: list[Tile]) -> Bounds:
    """What tiles take at least, one after the other on one PE with one slice of HBM."""
    array_ns = np.array([_array_ns(spec, tile.extent) for tile in work])
    channels = Channels.of(spec.cube.hbm, work)
    filled_ns = spec.pe.gemm.rows * 2 + spec.pe.gemm.cols - 2
    return Bounds(
        array_ns=float(array_ns.sum()) + filled_ns / spec.pe.clock_ghz,
        channel_ns=float((channels.read[-1] + channels.written[-1]).max()),
        window_ns=_window_ns(spec, work, array_ns, channels),
    )


def _array_ns(spec: TopologySpec, extent: Shape) -> float:
    """How long the array is at work for a tile that follows another.

    A fold of T vectors takes T cycles, or as many as the next one needs to be loaded
    (SCALE-Sim, with the loading hidden).
    """
    m, k, n = extent
    gemm = spec.pe.gemm
    folds = -(-k // gemm.rows) * -(-n // gemm.cols)
    return folds * max(m, gemm.rows) / spec.pe.clock_ghz


@dataclass(frozen=True, slots=True)
class Channels:
    """How long the bus of each channel is at work, in ns.

    ``read`` and ``written`` are arrays of (tiles + 1) x channels: the reads, and the
    writes, of all tiles before each. ``write_ns`` is the bus time of a tile's write on
    the channel that has most of it.
    """

    read: Floats
    written: Floats
    write_ns: Floats

    @classmethod
    def of(cls, hbm: HbmSpec, work: list[Tile]) -> "Channels":
        """Refreshes take their share; each buffer full of writes turns the bus once."""
        reads = np.zeros((len(work) + 1, hbm.channels))
        writes = np.zeros((len(work) + 1, hbm.channels))
        for at, tile in enumerate(work, 1):
            reads[at] = sum(block.accesses(hbm) for block in tile.reads)
            if tile.write is not None:
                writes[at] = tile.write.accesses(hbm)
        rate = 1 - hbm.trfc_ns / hbm.trefi_ns
        access_ns = hbm.access_bytes / hbm.channel_bw_gbs / rate
        turn_ns = hbm.cl_ns + (hbm.twtr_s_ns + hbm.twtr_l_ns) / 2 + hbm.turn_ns
        written = np.cumsum(writes, 0)
        drains = written // hbm.write_buffer
        return cls(
            read=np.cumsum(reads, 0) * access_ns,
            written=written * access_ns + drains * turn_ns / rate,
            write_ns=writes[1:].max(1) * access_ns,
        )


def _window_ns(
    spec: TopologySpec, work: list[Tile], array_ns: Floats, channels: Channels
) -> float:
    """When the last tile has left at the earliest, with a window of tiles in flight.

    A tile begins when the one a window before it has left. From then until a later one
    has its operands, a channel reads what both of them and those between want, and
    writes for those of them that have left by then, as the later one has begun. Tiles
    go through the array in order. Between memory and PE lies a router.
    """
    pe = spec.pe
    hbm = spec.cube.hbm
    router_ns = spec.cube.router.overhead_ns
    ask_ns = pe.dma.setup_ns + router_ns
    answer_ns = hbm.controller_ns + hbm.cl_ns + router_ns
    read = channels.read
    written = channels.written
    asks = np.zeros(len(work))  # when each tile's reads can come to the memory
    left = np.zeros(len(work))
    array_free = 0.0
    # The latest that a channel can be done, from any tile on that has left by now, less
    # what there is for it before the present one.
    since = np.full(read.shape[1], -np.inf)
    for at, tile in enumerate(work):
        gone = max(at - pe.tile.window + 1, 0)  # have left when this one has begun
        asks[at] = left[:gone].max(initial=0.0) + ask_ns
        if gone > 0:
            earlier = asks[gone - 1] - read[gone - 1] - written[gone - 1]
            since = np.maximum(since, earlier)
        there = since + read[at + 1] + written[gone]
        for first in range(gone, at + 1):
            there = np.maximum(there, asks[first] + read[at + 1] - read[first])
        fetch_ns = sum(block.nbytes for block in tile.reads) / pe.tcm.read_bw_gbs
        operands = float(there.max()) + answer_ns + fetch_ns
        array_free = max(array_free, operands) + array_ns[at]
        left[at] = array_free
        if tile.write is not None:
            store_ns = tile.write.nbytes / pe.tcm.write_bw_gbs
            write_ns = hbm.controller_ns + hbm.cwl_ns + channels.write_ns[at]
            left[at] += store_ns + ask_ns + write_ns
    return float(left.max())


def product_on_one_pe(
    case: Case, fields: Fields
) -> tuple[TopologySpec, list[Tile], float]:
    """A product on one PE of one cube: the machine, the tiles, and the launch in ns.

    The tiles are those that it has by hand, from where its matrices lie.
    """
    graph = load_topology(overrides={**ONE_CUBE, **fields})
    engine = GraphEngine(graph)
    m, k, n = case.shape
    engine.run(
        lambda _: matmul.run(Torch(engine), m=m, k=k, n=n, pes=1, tile=case.side)
    )
    work = list(tiles(case.shape, case.side, _matrices(engine.op_log)))
    launch_ns = sum(span.t_end - span.t_start for span in engine.launches)
    return graph.spec, work, launch_ns


def _matrices(op_log: Sequence[OpRecord]) -> tuple[int, int, int]:
    """Where A, B and C begin: where the first tiles that read and write do so."""
    first: dict[str, list[int]] = {}
    for record in op_log:
        if "DMA_" in record.op_name:
            first.setdefault(record.op_name, record.params["addrs"])
    a, b = first["TileToken/DMA_READ"]
    (c,) = first["TileToken/DMA_WRITE"]
    return a, b, c


def bounds_table(cases: Iterable[Case] = CASES) -> Table:
    """Products with their rows spread over the channels in several ways.

    The notes say which of them take longer than by array and channels alone.
    """
    rows = []
    notes = []
    for case, hashed, interleave in product(cases, HASHES, INTERLEAVES):
        fields: Fields = {"channel_hash": hashed, "interleave_bytes": interleave}
        spec, work, launch_ns = product_on_one_pe(case, fields)
        found = bounds(spec, work)
        decides, least_ns = found.largest
        spread = "hash" if hashed == "xor" else "no hash"
        what = f"{case}; {spread}, {interleave:,} B"
        rows.append(
            Row(
                what=what,
                source=decides,
                reference=least_ns / 1000,
                model=launch_ns / 1000,
                unit="us",
                bound=Bound(case.within_percent),
            )
        )
        busy_ns = max(found.array_ns, found.channel_ns)
        over = 100 * (launch_ns / busy_ns - 1)
        if over > _NOTED_PERCENT:
            notes.append(
                f"{what}: {over:.0f} % more than the {busy_ns / 1000:.1f} us of its "
                "most loaded channel, or of its array"
            )
    return Table("A product and its addresses", rows, notes)
