"""The array against SCALE-Sim (Samajdar et al., ISPASS 2020, equation 3).

A dot on a cold array takes 2R + C + T - 2 cycles a fold on R x C units, where T is the
dimension that streams.
"""

from collections.abc import Iterator
from dataclasses import replace
from math import ceil
from random import Random

from kernbench.common.messages import Region
from kernbench.common.pe_commands import GemmCmd
from kernbench.topology import TopologyGraph, build_topology
from kernbench.topology.spec import GemmSpec, TcmSpec
from kernbench.validation.machines import one_sip, served
from kernbench.validation.table import Row, Table

Shape = tuple[int, int, int]
"""m, k and n of a product."""

Array = tuple[int, int]
"""Rows and columns of the array."""

DATAFLOWS = ("ws", "os", "is")
"""What stays in the array: weights, outputs or inputs."""

BY_HAND: tuple[tuple[str, Array, Shape, int], ...] = (
    ("ws", (64, 64), (64, 64, 64), 254),  # 1 fold x (128 + 64 + 64 - 2)
    ("ws", (64, 64), (1, 1, 1), 191),  # 1 x (128 + 64 + 1 - 2): it loads all of it
    ("ws", (64, 64), (17, 64, 64), 207),  # 1 x 207
    ("ws", (64, 64), (64, 65, 64), 508),  # 2 x 254: one row of k more is a fold more
    ("ws", (64, 64), (64, 64, 65), 508),  # 2 x 254: the same for a column of n
    ("ws", (64, 64), (256, 256, 256), 7136),  # 4 x 4 folds x 446
    ("ws", (64, 64), (200, 130, 257), 5850),  # 3 x 5 folds x 390
    ("ws", (64, 64), (100, 1000, 10), 4640),  # 16 x 1 folds x 290
    ("ws", (64, 64), (1, 4096, 4096), 782336),  # 64 x 64 folds x 191
    ("ws", (64, 64), (512, 768, 3072), 404352),  # 12 x 48 folds x 702
    ("ws", (32, 32), (64, 64, 64), 632),  # 2 x 2 folds x (64 + 32 + 64 - 2)
    ("ws", (128, 128), (256, 512, 512), 10208),  # 4 x 4 folds x (256 + 128 + 256 - 2)
    ("ws", (16, 64), (100, 50, 130), 2328),  # 4 x 3 folds x (32 + 64 + 100 - 2)
    ("ws", (32, 32), (12544, 147, 64), 126380),  # ResNet-50 conv1: 5 x 2 x (94 + 12544)
    ("os", (16, 64), (100, 50, 130), 3024),  # 7 x 3 folds x (32 + 64 + 50 - 2)
    ("os", (64, 64), (1, 4096, 4096), 274304),  # 1 x 64 folds x (192 + 4096 - 2)
    ("is", (16, 64), (100, 50, 130), 1792),  # 4 x 2 folds x (32 + 64 + 130 - 2)
    ("is", (64, 64), (1, 4096, 4096), 274304),  # 64 x 1 folds: as os, turned round
)
"""Dataflow, array, product, and the cycles that were worked out by hand."""

RANDOM_SHAPES = 60


def scale_sim_cycles(array: Array, shape: Shape, dataflow: str) -> int:
    """SCALE-Sim's cycles of a product, for "ws", "os" or "is"."""
    m, k, n = shape
    rows, cols, streamed = {"ws": (k, n, m), "os": (m, n, k), "is": (k, m, n)}[dataflow]
    folds = ceil(rows / array[0]) * ceil(cols / array[1])
    return folds * (2 * array[0] + array[1] + streamed - 2)


def gemm_table() -> Table:
    """Dots worked out by hand, and random ones in one row a dataflow."""
    return Table("One dot on a cold array", [*_by_hand(), *_random()])


def _by_hand() -> Iterator[Row]:
    for dataflow, array, shape, cycles in BY_HAND:
        m, k, n = shape
        rows, cols = array
        what = f"GEMM {m} x {k} x {n}, {rows} x {cols} array, {dataflow}"
        model = model_cycles(array, shape, dataflow)
        yield Row(what, "SCALE-Sim", cycles, model, "cycles")


def _random() -> Iterator[Row]:
    """How many of RANDOM_SHAPES take SCALE-Sim's cycles, by dataflow."""
    random = Random(22)
    for dataflow in DATAFLOWS:
        equal = 0
        for _ in range(RANDOM_SHAPES):
            array = (random.randint(1, 128), random.randint(1, 128))
            m = random.randint(1, 1024)
            k = random.randint(1, 1024)
            n = random.randint(1, 1024)
            shape = (m, k, n)
            cycles = model_cycles(array, shape, dataflow)
            equal += cycles == scale_sim_cycles(array, shape, dataflow)
        what = f"random products on random arrays, {dataflow}: equal"
        unit = f"of {RANDOM_SHAPES}"
        yield Row(what, "SCALE-Sim's formula", RANDOM_SHAPES, equal, unit)


def model_cycles(array: Array, shape: Shape, dataflow: str) -> float:
    """The cycles of a dot that ``pe_gemm`` serves, with operands at hand."""
    m, k, n = shape
    graph = _machine(array, dataflow)
    a = Region("tcm", 0, (m, k), "f16", 2 * m * k)
    b = Region("tcm", 1 << 30, (k, n), "f16", 2 * k * n)
    out = Region("tcm", 2 << 30, (m, n), "f16", 2 * m * n)
    dot = GemmCmd(a=a, b=b, out=out, m=m, k=k, n=n)
    (end,) = served(graph, "pe_gemm", [((0, 0, 0), dot)])
    return end * graph.spec.pe.clock_ghz


def _machine(array: Array, dataflow: str) -> TopologyGraph:
    """A machine with such an array, and a TCM that never holds it up."""
    spec = one_sip()
    gemm = GemmSpec(*array, dataflow=dataflow)
    tcm = TcmSpec(read_bw_gbs=1e9, write_bw_gbs=1e9)
    return build_topology(replace(spec, pe=replace(spec.pe, gemm=gemm, tcm=tcm)))
