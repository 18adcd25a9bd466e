"""What each op of an engine takes: its class of weights, from its params.

An op that moves data over links has none here (moves.py), and neither has a composite,
whose tiles take the time.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from math import prod
from typing import NamedTuple

import numpy as np

from kernbench.common.arrays import Array, Bools, Ints
from kernbench.common.dtypes import DTYPES
from kernbench.common.progress import Progress, beside_if_many, computed_beside
from kernbench.replay.whatif import weights
from kernbench.replay.whatif.weights import DATAFLOWS, RATES, Weights
from kernbench.sim_engine.numpy_ops import NUMPY_OPS
from kernbench.trace import Trace
from kernbench.trace.hops import tile_composites
from kernbench.trace.params import ParamBlock

_NONE = -1

_NEEDED = {
    "recv": {"src_space", "nbytes"},
    "composite": {"dtype_in", "dtype_acc"},
    "composite_math": {"dtype"},
    "gemm": {"m", "n", "k", "dtype_in", "dtype_out"},
    "math": {"dtype", "op"},
    "FETCH": {"nbytes"},
    "STORE": {"nbytes"},
    "GEMM": {
        *(f"tile_index.{axis}" for axis in range(3)),
        *(f"extent.{axis}" for axis in range(3)),
    },
    "MATH": {"extent.0", "extent.1"},
}
"""The params that a class of weights is made of, by stage of a tile or kind of op.

Of an op that lacks one of them, as somebody's own may, the time stays as recorded.
"""


class Services(NamedTuple):
    """By row of the log the class of what the op's engine takes; -1: none.

    Of a tile in the array ``taken`` is for one that finds it idle, and ``streaming``
    for one behind another of its composite; of others ``streaming`` is -1. ``read`` and
    ``written`` are the bytes that pass the channels of the PE's TCM; ``is_dot`` says
    which ops are dots.
    """

    taken: Ints
    streaming: Ints
    read: Ints
    written: Ints
    is_dot: Bools


def services_of(trace: Trace, table: Weights, progress: Progress) -> Services:
    """What the engines take for each op of a trace."""
    found = computed_beside(partial(_Finder, trace, table), progress, 0.0)
    count = max(len(trace.order), 1)
    for block in trace.param_blocks():
        if not len(block.rows):
            continue
        add = partial(found.add, block)
        beside_if_many(len(block.rows), add, progress, float(block.rows[0]) / count)
    computed_beside(found.add_tiles, progress, 1.0)
    return Services(
        found.taken, found.streaming, found.read, found.written, found.is_dot
    )


class _Finder:
    """Finds the services block by block; those of tiles when all composites are known.

    By row of a composite ``_flow`` and ``_rate`` are its dataflow (-1: the machine's)
    and the rate of what the array works on, ``_math_rates`` those of its epilogue.
    """

    def __init__(self, trace: Trace, table: Weights) -> None:
        self._trace = trace
        self._table = table
        count = len(trace.order)
        self.taken: Ints = np.full(count, _NONE)
        self.streaming: Ints = np.full(count, _NONE)
        self.read: Ints = np.zeros(count, np.int64)
        self.written: Ints = np.zeros(count, np.int64)
        self.is_dot: Bools = np.zeros(count, np.bool_)
        self._flow: Ints = np.full(count, _NONE)
        self._rate: Ints = np.zeros(count, np.int64)
        self._math_rates: Ints = np.zeros(count, np.int64)
        self._tiles: list[ParamBlock] = []
        self._strings = list(trace.strings)
        self._rate_of_string = _places(
            self._strings, {name: RATES.index(row.rate) for name, row in DTYPES.items()}
        )
        self._size_of_string = _places(
            self._strings, {name: row.itemsize for name, row in DTYPES.items()}
        )
        self._flow_of_string = _places(
            self._strings, {name: at for at, name in enumerate(DATAFLOWS)}
        )
        self._is_tcm = np.array([text == "tcm" for text in self._strings])
        costs = {name: row.cost_cycles for name, row in NUMPY_OPS.items()}
        self._cost_of_string = _places(self._strings, costs)

    def add(self, block: ParamBlock) -> None:
        """Find those of a block."""
        name = block.schema.name
        if name.startswith("TileToken/"):
            self._tiles.append(block)
            return
        kind = block.schema.kind
        if name == "ipcq_recv":
            kind = "recv"
        elif name == "composite_math":
            kind = name
        elif name.startswith("composite_"):
            kind = "composite"
        columns = self._numbers(block, kind)
        rows = block.rows.astype(np.int64)
        if not columns:
            return
        if kind == "recv":
            is_tcm = self._is_tcm[columns["src_space"]]
            nbytes = columns["nbytes"][is_tcm]
            self.taken[rows[is_tcm]] = self._table.of(weights.taken_slot, nbytes)
            self.read[rows[is_tcm]] = nbytes
            self.written[rows[is_tcm]] = nbytes
        elif kind in ("composite", "composite_math"):
            self._add_composite(name, rows, columns)
        elif kind == "gemm":
            self._add_dot(rows, columns)
        else:
            self._add_math(rows, columns)

    def _numbers(self, block: ParamBlock, kind: str) -> dict[str, Array]:
        """The params of a block; none if there is no such ``kind``, or one is missing.

        Params that are texts are numbers of strings.
        """
        needed = _NEEDED.get(kind)
        if needed is None or not len(block.rows):
            return {}
        columns = block.columns("is")
        return columns if needed <= columns.keys() else {}

    def _add_composite(
        self, name: str, rows: Ints, columns: Mapping[str, Array]
    ) -> None:
        """Keep what its tiles depend on."""
        if name == "composite_math":
            self._math_rates[rows] = self._rates(_operand_dtypes(columns))
            return
        self._rate[rows] = self._rate_of_string[columns["dtype_in"]]
        if "dataflow" in columns:
            self._flow[rows] = self._flow_of_string[columns["dataflow"]]
        dtypes = [columns["dtype_acc"]]
        dtypes += _listed(columns, "epilogue_dtypes")
        self._math_rates[rows] = self._rates(dtypes)

    def _rates(self, dtypes: list[Array]) -> Ints:
        """The rates of some dtypes by row, each a bit by its place in RATES."""
        found: Ints = np.zeros(len(dtypes[0]), np.int64)
        for dtype in dtypes:
            found |= 1 << self._rate_of_string[dtype]
        return found

    def _add_dot(self, rows: Ints, columns: Mapping[str, Array]) -> None:
        m, n, k = (columns[name].astype(np.int64) for name in "mnk")
        size = self._size_of_string[columns["dtype_in"]]
        out = m * n * self._size_of_string[columns["dtype_out"]]
        read = (m * k + k * n) * size
        if "src_acc_addr" in columns:
            read = read + out
        flow = np.full(len(rows), _NONE)
        if "dataflow" in columns:
            flow = self._flow_of_string[columns["dataflow"]]
        rate = self._rate_of_string[columns["dtype_in"]]
        found = self._table.of(weights.dot, m, n, k, flow, rate, read, out)
        self.taken[rows] = found
        self.read[rows] = read
        self.written[rows] = out
        self.is_dot[rows] = True

    def _add_math(self, rows: Ints, columns: Mapping[str, Array]) -> None:
        shapes = _shapes(columns, "input_shapes")
        spaces = _listed(columns, "input_spaces")
        dtypes = _listed(columns, "input_dtypes")
        if len(spaces) != len(dtypes):
            return
        none = np.zeros(len(rows), np.int64)
        read = none
        elements = _product(columns, "shape_out", len(rows))
        written = elements * self._size_of_string[columns["dtype"]]
        for shape, space, dtype in zip(shapes, spaces, dtypes, strict=True):
            size = none + 1
            for extent in shape:
                size = size * extent.astype(np.int64)
            elements = np.maximum(elements, size)
            in_tcm = self._is_tcm[space]
            read = read + np.where(in_tcm, size * self._size_of_string[dtype], 0)
        rates = self._rates(_operand_dtypes(columns))
        cost = self._cost_of_string[columns["op"]]
        self.taken[rows] = self._table.of(
            weights.math, elements, cost, none + 1, rates, read, written
        )
        self.read[rows] = read
        self.written[rows] = written

    def add_tiles(self) -> None:
        """Find those of all tiles."""
        composite = tile_composites(self._trace)
        for block in self._tiles:
            rows = block.rows.astype(np.int64)
            whole = composite[rows]
            stage = block.schema.name.removeprefix("TileToken/")
            columns = self._numbers(block, stage)
            if not columns:
                continue
            if stage == "FETCH":
                self.taken[rows] = self._table.of(weights.fetch, columns["nbytes"])
                self.read[rows] = columns["nbytes"]
            elif stage == "STORE":
                self.taken[rows] = self._table.of(weights.store, columns["nbytes"])
                self.written[rows] = columns["nbytes"]
            elif stage == "GEMM":
                self._add_product(rows, whole, columns)
            elif stage == "MATH":
                self._add_epilogue(rows, whole, columns)

    def _add_product(
        self, rows: Ints, whole: Ints, columns: Mapping[str, Array]
    ) -> None:
        index = [columns[f"tile_index.{axis}"] for axis in range(3)]
        is_first = (index[0] == 0) & (index[1] == 0) & (index[2] == 0)
        numbers = (
            columns["extent.0"],
            columns["extent.1"],
            columns["extent.2"],
            self._flow[whole],
            self._rate[whole],
            is_first,
        )
        self.taken[rows] = self._table.of(weights.cold_tile, *numbers)
        self.streaming[rows] = self._table.of(weights.streaming_tile, *numbers)

    def _add_epilogue(
        self, rows: Ints, whole: Ints, columns: Mapping[str, Array]
    ) -> None:
        elements = columns["extent.0"].astype(np.int64) * columns["extent.1"]
        ops = _listed(columns, "ops")
        none = np.zeros(len(rows), np.int64)
        cost = none + sum(self._cost_of_string[op] for op in ops)
        self.taken[rows] = self._table.of(
            weights.math,
            elements,
            cost,
            none + len(ops),
            self._math_rates[whole],
            none,
            none,
        )


def _places(strings: list[str], known: Mapping[str, int]) -> Ints:
    """By number of a string what is known of it; 0 of others."""
    return np.array([known.get(text, 0) for text in strings], np.int64)


def _listed(columns: Mapping[str, Array], name: str) -> list[Array]:
    """The columns of the items of a list, in their order."""
    found: list[Array] = []
    while f"{name}.{len(found)}" in columns:
        found.append(columns[f"{name}.{len(found)}"])
    return found


def _shapes(columns: Mapping[str, Array], name: str) -> list[list[Array]]:
    """The columns of the extents of each shape of a list; one of no axis has none."""
    count = len(_listed(columns, "input_dtypes"))
    return [_listed(columns, f"{name}.{number}") for number in range(count)]


def _product(columns: Mapping[str, Array], name: str, count: int) -> Ints:
    extents = [axis.astype(np.int64) for axis in _listed(columns, name)]
    return np.asarray(prod(extents, start=np.ones(count, np.int64)))


def _operand_dtypes(columns: Mapping[str, Array]) -> list[Array]:
    """The dtypes that an op of MATH works on, its result's too."""
    return [*_listed(columns, "input_dtypes"), columns["dtype"]]
