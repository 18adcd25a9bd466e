"""What a recorded run has spent: energy by class, by op, by tensor; bytes by memory.

Computed of whole columns: no op is decoded. Costs are those of ``common/energy.py``.

- A product and its epilogue are counted at the op that has all of it: a composite, not
  its tiles. What never ended has computed nothing.
- Bytes are counted where they move: of a composite at the stages of its tiles.
- What transactions pass on their way is their op's; of a credit or a launch, which have
  none, it is the call's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from kernbench.common.arrays import Array, Bools, Floats, Ints
from kernbench.common.dtypes import DTYPES
from kernbench.common.energy import (
    EnergyRates,
    Spent,
    cost_dtype,
    passed,
)
from kernbench.common.progress import (
    Progress,
    computed_beside,
    no_progress,
    parts,
    stage,
)
from kernbench.sim_engine.access_columns import AccessColumns
from kernbench.sim_engine.op_log import KIND_RANK
from kernbench.topology.spec import TopologySpec
from kernbench.trace.groups import Groups
from kernbench.trace.hops import named
from kernbench.trace.params import ParamBlock
from kernbench.trace.reader import Trace
from kernbench.trace.spec_values import spec_number

_TILE = "TileToken/"
_DMA_STAGES = (f"{_TILE}DMA_READ", f"{_TILE}DMA_WRITE")
_TCM_STAGES = (f"{_TILE}FETCH", f"{_TILE}STORE")
_COMPOSITE = "composite_"
_BLOCK_PARAMS = ("sizes", "spaces", "addrs")
_HOST = "host_"
_OPERAND = ("addrs", "spaces", "dtypes")
_GEMM_PARAMS = {"m", "n", "k", "dtype_in", "dtype_out"}
_PATHS = 64
"""Paths that are looked at between two calls of progress."""
_NUMBERS = "is"
"""The letters of params that are whole numbers, or numbers of strings."""


_Piece: TypeAlias = tuple[Ints, Ints, Ints, Floats]
"""Row, memory as one of our ids, address and weight, as columns; see ``Pieces``."""


class RatesOfTrace(NamedTuple):
    """The rates that a trace is to be counted by; ``own``: it has them itself."""

    rates: EnergyRates
    own: bool


def rates_of(spec: Any) -> RatesOfTrace:
    """The rates of the spec of a trace; without ``energy:`` those of the shipped one.

    A field of it that no file could have, as a negative one, costs nothing.
    """
    own = isinstance(spec, dict) and isinstance(spec.get("energy"), dict)
    known = spec if own else {"energy": asdict(TopologySpec().energy)}
    return RatesOfTrace(EnergyRates.of(partial(spec_number, known)), own)


@dataclass(frozen=True, slots=True)
class Pieces:
    """Which bytes an op's energy is spent on: a row each, with a weight.

    ``row`` is that of the op, ``addr`` the physical address of the first byte in
    memory ``space``, an index of ``spaces``.
    """

    row: Ints
    space: Ints
    addr: Ints
    weight: Floats
    spaces: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class EnergyColumns:
    """What a trace has spent.

    ``op_pj`` has the pJ of each op by row, those of its transactions with them.
    ``loose_pj`` has those of transactions of no op, and ``loose_cmd`` their calls.
    ``pieces`` say on which bytes. ``arithmetic`` counts arithmetic operations: two a
    multiply-add, one an element op.
    """

    spent: Spent
    op_pj: Floats
    loose_pj: Floats
    loose_cmd: Array
    pieces: Pieces
    arithmetic: float


def energy_columns(
    trace: Trace,
    touched: AccessColumns,
    rates: EnergyRates,
    progress: Progress = no_progress,
) -> EnergyColumns:
    """All that the run has spent but its static power.

    ``touched`` are the accesses of all ops, by row of the log.
    """
    maker = _Maker(trace, rates)
    maker.add_params(stage(progress, 0.0, 0.5))
    maker.add_accesses(touched, stage(progress, 0.5, 0.7))
    maker.add_transfers(stage(progress, 0.7, 0.9))
    pieces = computed_beside(maker.joined, progress, 0.9)
    return EnergyColumns(
        maker.spent,
        maker.op_pj,
        maker.loose_pj,
        maker.loose_cmd,
        pieces,
        maker.arithmetic,
    )


class _Tiles(NamedTuple):
    """FETCH and STORE stages of tiles, by row, which name no address.

    ``extent`` has m, n and k of each of some FETCH stages; None of all others.
    """

    row: Ints
    extent: tuple[Floats, Floats, Floats] | None


class _Operand(NamedTuple):
    """One operand of each of some elementwise composites, as a matrix.

    ``is_tall`` and ``is_wide`` say whether it has more than one row, and column: a tile
    takes its own part of those.
    """

    row: Ints
    space: Ints
    addr: Ints
    is_tall: Bools
    is_wide: Bools
    itemsize: Floats


class _Maker:
    """Adds up what a trace has spent, log by log."""

    def __init__(self, trace: Trace, rates: EnergyRates) -> None:
        self._trace = trace
        self._rates = rates
        self.spent = Spent()
        self.op_pj = np.zeros(len(trace.op_columns.component))
        self.loose_pj: Floats = np.empty(0)
        self.loose_cmd: Array = np.empty(0, np.int64)
        self.arithmetic = 0.0
        self._space_ids: dict[str, int] = {}
        self._pieces: list[_Piece] = []
        self._tiles: list[_Tiles] = []
        self._operands: dict[int, list[_Operand]] = {}  # by their place in the call
        self._composites: AccessColumns | None = None

    # -- params --

    def add_params(self, progress: Progress) -> None:
        """What ops compute, and what the stages of tiles move."""
        count = max(len(self.op_pj), 1)
        for block in self._trace.param_blocks():
            name = block.schema.name
            if name in _DMA_STAGES:
                self._add_dma_stage(block)
            elif name.startswith(_TILE):
                self._add_stage(block)
            else:
                self._add_work(block)
            progress(float(block.rows[-1] + 1) / count)

    def _add_dma_stage(self, block: ParamBlock) -> None:
        """Blocks between the TCM and other memories; sizes are those of all rows."""
        values = block.columns(_NUMBERS)
        rows = block.rows.astype(np.int64)
        number = 0
        while {f"{name}.{number}" for name in _BLOCK_PARAMS} <= values.keys():
            nbytes = values[f"sizes.{number}"].astype(np.float64)
            space = values[f"spaces.{number}"].astype(np.int64)
            addr = values[f"addrs.{number}"].astype(np.int64)
            memory = self._add_bytes(rows, space, nbytes)
            self._add_tcm(rows, nbytes)
            self._pieces.append((rows, memory, addr, nbytes))
            number += 1

    def _add_stage(self, block: ParamBlock) -> None:
        """FETCH and STORE between TCM and array; others cost at their composite."""
        values = block.columns(_NUMBERS)
        rows = block.rows.astype(np.int64)
        if block.schema.name not in _TCM_STAGES or "nbytes" not in values:
            return
        self._add_tcm(rows, values["nbytes"].astype(np.float64))
        extent = None
        if block.schema.name.endswith("FETCH") and "extent.2" in values:
            m, n, k = (values[f"extent.{axis}"].astype(np.float64) for axis in range(3))
            extent = (m, n, k)
        self._tiles.append(_Tiles(rows, extent))

    def _add_work(self, block: ParamBlock) -> None:
        """What products and math compute."""
        values = block.columns(_NUMBERS)
        schema = block.schema
        rows = block.rows.astype(np.int64)
        if schema.kind == "gemm" and values.keys() >= _GEMM_PARAMS:
            m, n, k = (values[axis].astype(np.float64) for axis in "mnk")
            macs = m * n * k
            dtype = values["dtype_in"]
            self._spend("array", rows, macs * self._costs(dtype, self._rates.mac))
            self.arithmetic += 2 * float(macs.sum())
            steps = self._epilogue_steps(values, k)
            if np.any(steps):
                self._add_elements(rows, m * n * steps, values["dtype_out"])
        elif schema.kind == "math" and "dtype" in values:
            self._add_elements(rows, _elements(values), values["dtype"])
            if schema.name.startswith(_COMPOSITE):
                self._add_operands(rows, values)

    def _add_operands(self, rows: Ints, values: dict[str, Array]) -> None:
        """What elementwise composites work on, of which their tiles fetch parts."""
        number = 0
        while {f"input_{name}.{number}" for name in _OPERAND} <= values.keys():
            shape = [
                sizes
                for path, sizes in values.items()
                if path.startswith(f"input_shapes.{number}.")
            ]
            one = np.ones(len(rows), np.int64)
            tall, wide = [one, one, *shape][-2:]
            operand = _Operand(
                rows,
                self._ids(values[f"input_spaces.{number}"]),
                values[f"input_addrs.{number}"].astype(np.int64),
                tall > 1,
                wide > 1,
                self._by_text(values[f"input_dtypes.{number}"], _itemsize),
            )
            self._operands.setdefault(number, []).append(operand)
            number += 1

    def _epilogue_steps(self, values: dict[str, Array], k: Floats) -> Any:
        """How often an epilogue works on each element of the output."""
        steps: Any = 0.0
        per_tile: Any = 1.0
        if "tile.2" in values:
            per_tile = np.ceil(k / np.maximum(values["tile.2"], 1))
        for path, numbers in values.items():
            if path.startswith("epilogue_scopes."):
                is_k_tile = self._is(numbers, "k_tile")
                steps = steps + np.where(is_k_tile, per_tile, 1.0)
        return steps

    def _add_elements(self, rows: Ints, elements: Floats, dtype: Array) -> None:
        self._spend("math", rows, elements * self._costs(dtype, self._rates.element))
        self.arithmetic += float(elements.sum())

    def _costs(self, dtype: Array, costs: Any) -> Floats:
        """The cost of each of some element types, which are numbers of strings."""
        return self._by_text(dtype, lambda name: costs[cost_dtype(name)])

    def _is(self, numbers: Array, text: str) -> Bools:
        """Where a column of strings' numbers has a text."""
        return self._by_text(numbers, lambda name: name == text)

    def _ids(self, numbers: Array) -> Ints:
        """Our numbers of memories, which are numbers of strings."""
        return self._by_text(numbers, self._space_id)

    def _by_text(self, numbers: Array, of: Callable[[str], Any]) -> Array:
        """What ``of`` says of each text of a column of strings' numbers."""
        used, which = np.unique(numbers, return_inverse=True)
        found = [of(self._trace.strings[number]) for number in used.tolist()]
        return np.array(found)[which.ravel()]

    # -- bytes --

    def _spend(self, kind: str, rows: Ints, pj: Floats) -> None:
        self.spent.pj[kind] += float(pj.sum())
        self.op_pj[rows] += pj  # a row is in a block once

    def _add_tcm(self, rows: Ints, nbytes: Floats) -> None:
        memory = self._rates.memory["tcm"]
        self.spent.add_memory(self._rates, "tcm", int(nbytes.sum()))
        self.op_pj[rows] += nbytes * memory

    def _add_bytes(self, rows: Ints, space: Ints, nbytes: Floats) -> Ints:
        """Bytes of memories, which are numbers of strings; gives them as our ids."""
        for number in np.unique(space).tolist():
            name = self._trace.strings[number]
            mine = space == number
            self.spent.add_memory(self._rates, name, int(nbytes[mine].sum()))
            self.op_pj[rows[mine]] += nbytes[mine] * self._rates.memory.get(name, 0.0)
        return self._ids(space)

    def _space_id(self, name: str) -> int:
        """The number that we give a memory."""
        return self._space_ids.setdefault(name, len(self._space_ids))

    def add_accesses(self, touched: AccessColumns, progress: Progress) -> None:
        """What ops without tiles read and write, and what the host moves."""
        is_composite = computed_beside(
            lambda: named(self._trace, _COMPOSITE), progress, 0.0
        )
        is_host = computed_beside(lambda: named(self._trace, _HOST), progress, 0.1)
        outside = np.array([name != "tcm" for name in touched.spaces], bool)
        costs = np.array([self._rates.memory.get(name, 0.0) for name in touched.spaces])
        ids = np.array([self._space_id(name) for name in touched.spaces], np.int64)
        bytes_of = np.zeros(len(touched.spaces))
        of_composites = [np.empty(0, np.int64)]
        for part in parts(len(touched.row), stage(progress, 0.2, 0.8)):
            row = touched.row[part].astype(np.int64)
            whole = is_composite[row]
            of_composites.append(part.start + np.flatnonzero(whole))
            moving = np.flatnonzero(~whole)
            row = row[moving]
            space = touched.space[part][moving]
            nbytes = touched.nbytes[part][moving].astype(np.float64)
            bytes_of += np.bincount(space, nbytes, len(bytes_of))
            np.add.at(self.op_pj, row, nbytes * costs[space])
            mine = np.flatnonzero(outside[space])
            addr = touched.addr[part][moving][mine].astype(np.int64)
            self._pieces.append((row[mine], ids[space[mine]], addr, nbytes[mine]))
        self._composites = touched.take(np.concatenate(of_composites))
        for name, total in zip(touched.spaces, bytes_of.tolist(), strict=True):
            self.spent.add_memory(self._rates, name, int(total))
        for part in parts(len(is_host), stage(progress, 0.8, 1.0)):
            hosts = part.start + np.flatnonzero(is_host[part])
            moved = self._trace.op_columns.nbytes[hosts].astype(np.float64)
            self._spend("pcie", hosts, moved * self._rates.pcie)

    # -- transactions --

    def add_transfers(self, progress: Progress) -> None:
        """What transactions pass on their way."""
        trace = self._trace
        log = computed_beside(lambda: trace.transfers, progress, 0.0)
        costs = self._costs_of_paths(stage(progress, 0.1, 0.4))
        by_path = np.zeros(len(trace.paths))
        a_byte = sum(costs.values(), np.zeros(len(trace.paths)))
        loose_pj = [np.empty(0)]
        loose_cmd = [np.empty(0, np.int64)]
        for part in parts(len(log.t0), stage(progress, 0.4, 1.0)):
            path = log.path[part]
            nbytes = log.nbytes[part].astype(np.float64)
            by_path += np.bincount(path, nbytes, len(by_path))
            pj = nbytes * a_byte[path]
            row = log.row[part]
            own = np.flatnonzero(row >= 0)
            np.add.at(self.op_pj, row[own], pj[own])
            loose = np.flatnonzero(row < 0)
            loose_pj.append(pj[loose])
            loose_cmd.append(log.cmd[part][loose].astype(np.int64))
        self.loose_pj = np.concatenate(loose_pj)
        self.loose_cmd = np.concatenate(loose_cmd)
        for kind, cost in costs.items():
            self.spent.pj[kind] += float(by_path @ cost)

    def _costs_of_paths(self, progress: Progress) -> dict[str, Floats]:
        """What a byte costs on each path, in pJ by class."""
        trace = self._trace
        links = computed_beside(lambda: _links(trace), progress, 0.0)
        types = trace.nodes.type
        costs: dict[str, Floats] = {}
        count = len(trace.paths)
        for number in range(count):
            if number % _PATHS == 0:
                progress(number / count)
            nodes = list(trace.paths[number])
            hops = pairwise(nodes)
            way = passed(
                [types[node] for node in nodes],
                [links[hop] for hop in hops if hop in links],
            )
            for kind, cost in self._rates.way_pj(way).items():
                costs.setdefault(kind, np.zeros(count))[number] = cost
        return costs

    # -- which bytes --

    def joined(self) -> Pieces:
        """All pieces; those of tiles without an address are their composite's."""
        pieces = [*self._pieces, *self._pieces_of_composites()]
        none = np.empty(0, np.int64)
        pieces.append((none, none, none, np.empty(0)))
        columns = [np.concatenate(column) for column in zip(*pieces, strict=True)]
        row, space, addr, weight = columns
        return Pieces(row, space, addr, weight, tuple(self._space_ids))

    def _pieces_of_composites(self) -> list[_Piece]:
        """The outputs of composites and of their tiles; of a FETCH its operands."""
        found = self._composites
        assert found is not None
        if not len(found.row):
            return []
        ids = np.array([self._space_id(name) for name in found.spaces], np.int64)
        order = np.lexsort((found.mode, found.row))
        row = found.row[order].astype(np.int64)
        space = ids[found.space[order]]
        addr = found.addr[order].astype(np.int64)
        composites, first = np.unique(row, return_index=True)
        last = np.append(first[1:], len(row)) - 1
        pieces = [(composites, space[last], addr[last], np.ones(len(composites)))]
        second = np.minimum(first + 1, last)
        cmd = self._trace.op_columns.cmd
        kind = self._trace.op_columns.kind[composites]
        by_call = Groups(cmd[composites])
        operands = [_joined(parts) for parts in self._operands.values()]
        for tiles in self._tiles:
            parent = by_call.first(cmd[tiles.row])
            known = np.flatnonzero(parent >= 0)
            at = parent[known]
            if tiles.extent is None:
                ways = [(last, np.ones(len(at)))]
            else:
                m, n, k = (extent[known] for extent in tiles.extent)
                is_product = kind[at] == KIND_RANK["gemm"]
                ways = [(first, m * k * is_product), (second, k * n * is_product)]
                for operand in operands:
                    pieces.append(self._fetched(operand, tiles))
            for access, weight in ways:
                mine = np.flatnonzero(weight)
                places = access[at[mine]]
                pieces.append(
                    (tiles.row[known[mine]], space[places], addr[places], weight[mine])
                )
        return pieces

    def _fetched(self, operand: _Operand, tiles: _Tiles) -> _Piece:
        """What FETCH stages fetch of an operand of elementwise composites, by bytes."""
        assert tiles.extent is not None
        cmd = self._trace.op_columns.cmd
        of_call = Groups(cmd[operand.row]).first(cmd[tiles.row])
        known = np.flatnonzero(of_call >= 0)
        at = of_call[known]
        m, n, _ = (extent[known] for extent in tiles.extent)
        rows = np.where(operand.is_tall[at], m, 1.0)
        cols = np.where(operand.is_wide[at], n, 1.0)
        nbytes = rows * cols * operand.itemsize[at]
        return tiles.row[known], operand.space[at], operand.addr[at], nbytes


def _links(trace: Trace) -> dict[tuple[int, int], tuple[str, float]]:
    """By its two nodes the kind of each link, and how long it is, mm."""
    edges = trace.edges
    ends = zip(edges.src.tolist(), edges.dst.tolist(), strict=True)
    kinds = zip(edges.kind, edges.distance_mm.tolist(), strict=True)
    return dict(zip(ends, kinds, strict=True))


def _joined(parts: list[_Operand]) -> _Operand:
    """Those of several blocks of params."""
    return _Operand._make(map(np.concatenate, zip(*parts, strict=True)))


def _itemsize(dtype: str) -> float:
    """Bytes an element; 0 of a type that there is not."""
    known = DTYPES.get(dtype)
    if known is None:
        return 0.0
    return float(known.itemsize)


def _elements(values: dict[str, Array]) -> Floats:
    """The elements that MATH works on: as many as its largest operand or its result.

    So a reduction counts what it reads.
    """
    boxes: dict[str, Any] = {}
    for path, sizes in values.items():
        shape = path.rpartition(".")[0]
        if shape == "shape_out" or shape.startswith("input_shapes."):
            boxes[shape] = boxes.get(shape, 1.0) * sizes.astype(np.float64)
    count = len(next(iter(values.values())))
    most = np.ones(count)
    for box in boxes.values():
        most = np.maximum(most, box)
    return most
