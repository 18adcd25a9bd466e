"""The op log (ADR-0052): ``OpRecord``, ``OpLogger`` and the one canonical order.

Owns what a record holds and when it is made. It tells commands apart by their type; it
knows no component, and no clock: the times come with the calls.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import singledispatch
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from kernbench.common.arrays import Array
from kernbench.common.messages import (
    HostReadCmd,
    HostWriteCmd,
    MsgBase,
    Region,
    StageType,
    TileToken,
    Transfer,
    Wait,
)
from kernbench.common.pe_commands import (
    CompositeCmd,
    CompositeMathCmd,
    DmaReadCmd,
    DmaWriteCmd,
    GemmCmd,
    MathCmd,
    ProductCmd,
)
from kernbench.common.rows import Rows
from kernbench.errors import KernbenchError
from kernbench.sim_engine.memory_store import MemoryStore

Params: TypeAlias = dict[str, Any]
OpInfo: TypeAlias = tuple[str, str, Params]
Names: TypeAlias = tuple[str, ...]
Waits: TypeAlias = list[Wait]
Transfers: TypeAlias = list[Transfer]

KIND_RANK = {"memory": 0, "gemm": 1, "math": 2, "unknown": 3}
"""The kinds of op in the order in which they run when they start at the same time."""

_TILE_NAMES = {stage.name: f"TileToken/{stage.name}" for stage in StageType}

_BLOCK = 1 << 16
"""Ops that ``canonical_order`` looks at together, so that they stay in the cache."""


@dataclass(slots=True)
class OpRecord:
    """One op (ADR-0052 D1).

    Times are in ns. ``component_id`` is the node that served the op, ``params`` depend
    on its kind (D3). ``dependency_ids`` are positions in the sequence that holds the
    record.
    """

    t_start: float
    t_end: float
    component_id: str
    op_kind: str
    op_name: str
    params: Params
    dependency_ids: list[int] = field(default_factory=list)


class OpSink(Protocol):
    """Whoever is given each record as it ends; a ``Recorder`` is one."""

    def op(
        self,
        row: int,
        record: OpRecord,
        cmd: int,
        slot: int,
        waits: Waits,
        transfers: Transfers,
        /,
    ) -> None:
        """Take one finished op.

        ``row`` counts from 0 in the order in which ops end, and the record's
        ``dependency_ids`` are rows. ``cmd`` is the number of the tl call that caused
        it, ``slot`` the slot of the component that served it.
        """


def canonical_order(
    t_start: npt.NDArray[np.float64], kind_rank: npt.NDArray[np.integer[Any]]
) -> npt.NDArray[np.intp]:
    """Return row numbers in the one order of executor, reader, cursor and panes.

    Stable by t_start, then memory < gemm < math < unknown (ADR-0052 A4), then row,
    which is the order of completion. Sorting by t_start alone nearly gives that order,
    so it is done first; then only the ops of those instants are sorted again whose
    kinds are out of order.
    """
    order = np.argsort(t_start, kind="stable")
    instants = [t_start[:0]]
    for first in range(0, len(order), _BLOCK):
        rows = order[first : first + _BLOCK + 1]
        times = t_start[rows]
        ranks = kind_rank[rows]
        misplaced = (ranks[1:] < ranks[:-1]) & (times[1:] == times[:-1])
        instants.append(times[1:][misplaced])
    if sum(map(len, instants)) > len(order) // 1000:
        return np.lexsort((kind_rank, t_start))
    for instant in np.unique(np.concatenate(instants)):
        low = np.searchsorted(t_start, instant, "left", order)
        high = np.searchsorted(t_start, instant, "right", order)
        rows = order[low:high]
        order[low:high] = rows[np.argsort(kind_rank[rows], kind="stable")]
    return order


def canonical_rows(records: Sequence[OpRecord]) -> list[int]:
    """``canonical_order`` of records given in completion or t_start order."""
    t_start = np.array([r.t_start for r in records], np.float64)
    unknown = KIND_RANK["unknown"]
    ranks = [KIND_RANK.get(r.op_kind, unknown) for r in records]
    rows: list[int] = canonical_order(t_start, np.array(ranks, np.uint8)).tolist()
    return rows


class OpLogger:
    """Makes a record of every data op from the hooks of the component base (D2 to D5).

    Records are kept here and given to ``sink``; with ``keep=False`` only the sink has
    them. ``rows`` counts the records, ``kinds`` those of each kind, ``tile_stages``
    those of tiles. ``is_pending(space, addr, nbytes)`` says whether bytes of the store
    are still to be computed (docs/machine.md, "Pending bytes"); no snapshot is taken of
    such bytes.
    """

    def __init__(
        self,
        memory_store: MemoryStore | None = None,
        sink: OpSink | None = None,
        keep: bool = True,
        is_pending: Callable[[str, int, int], bool] | None = None,
    ) -> None:
        self._records: list[OpRecord] = []
        self._calls: list[int] = []  # the number of the call of each of _records
        self._pending: dict[int, dict[str, Any]] = {}
        self._memory_store = memory_store
        self._is_pending = is_pending
        self._sink = sink
        self._keep = keep
        self._position: list[int] = []  # where the record of each row is in _records
        self._sorted = 0  # how many of _records are in order
        self.rows = 0
        self.tile_stages = 0
        self.kinds: Counter[str] = Counter()

    @property
    def records(self) -> list[OpRecord]:
        """All records so far, stable by t_start (D2).

        Their dependency_ids are positions in this very list.
        """
        count = len(self._records)
        if self._sorted < count:
            self._sorted = count
            order = sorted(range(count), key=lambda i: self._records[i].t_start)
            moved = dict(zip(order, range(count), strict=True))
            self._records[:] = [self._records[i] for i in order]
            self._calls = [self._calls[i] for i in order]
            self._position = [moved[p] for p in self._position]
            for record in self._records:
                record.dependency_ids = [moved[d] for d in record.dependency_ids]
        return self._records

    @property
    def calls(self) -> Sequence[int]:
        """The number of the call that issued each of ``records``, or NO_CMD."""
        return self._calls

    def record_start(self, t: float, component_id: str, msg: object) -> None:
        """Note that the service of ``msg`` starts at ``t`` ns.

        It may be of any class; one that is no ``MsgBase`` has neither waits nor
        transfers. A tile's stage is read now, since the tile may have moved on at the
        end (D5). The source of a store from HBM is looked at now and again at the end:
        only bytes that were the same all the while are a snapshot of what was stored.
        """
        pending: dict[str, Any] = {"t_start": t}
        if isinstance(msg, TileToken):
            stage = msg.stage
            # plain attribute; the property ``name`` costs a Python call
            stage_type = stage.stage_type._name_
            own = {"tile_index": msg.index, "stage_type": stage_type}
            pending["stage_type"] = stage_type
            # the first ``own`` says which keys come first, the second which values win
            pending["params"] = {**own, **stage.params, **own}
        elif isinstance(msg, DmaWriteCmd) and msg.src.space == "hbm":
            pending["source"] = (self._is_ready(msg.src), self._view(msg.src))
        self._pending[id(msg)] = pending

    def record_end(self, t: float, component_id: str, msg: object) -> None:
        """Make the record of ``msg``, whose service ends at ``t`` ns.

        Snapshots (D4) are taken of the inputs of a math op and of the HBM source of a
        dma_write, but never of a TCM source: Phase 2 computes what is there. Raises
        KernbenchError if the service never started.
        """
        pending = self._pending.pop(id(msg), None)
        if pending is None:
            raise KernbenchError(
                f"{component_id}: record_end of {msg!r} without a record_start"
            )
        if isinstance(msg, TileToken):
            kind = "unknown"
            name = _TILE_NAMES[pending["stage_type"]]
            params = pending["params"]
            self.tile_stages += 1
        else:
            kind, name, params = _extract_op_info(msg)
            if isinstance(msg, MathCmd):
                params["input_snapshots"] = [self._snapshot(r) for r in msg.inputs]
            elif isinstance(msg, DmaWriteCmd) and "source" in pending:
                params["snapshot"] = self._stored(msg.src, *pending["source"])
        served = msg if isinstance(msg, MsgBase) else MsgBase()
        self._append(served, pending["t_start"], t, component_id, kind, name, params)

    def record_copy(
        self,
        t_start: float,
        t_end: float,
        component_id: str,
        src_space: str,
        src_addr: int,
        dst_space: str,
        dst_addr: int,
        shape: tuple[int, ...],
        dtype: str,
        nbytes: int,
        snapshot: Array | str | None = None,
        *,
        msg: MsgBase | None = None,
        op_name: str = "ipcq_copy",
    ) -> None:
        """Record a copy that no component serves (D3.6).

        The record has a copy of ``snapshot``. Without one the store is read now. A str
        says why there is none, and then the record has none.
        """
        taken: Array | None = None
        if snapshot is None:
            taken = self._snapshot(Region(src_space, src_addr, shape, dtype, nbytes))
        elif not isinstance(snapshot, str):
            taken = snapshot.copy()
        params: Params = {
            "src_space": src_space,
            "src_addr": src_addr,
            "dst_space": dst_space,
            "dst_addr": dst_addr,
            "shape": shape,
            "dtype": dtype,
            "nbytes": nbytes,
            "snapshot": taken,
        }
        if msg is None:
            msg = MsgBase()
        self._append(msg, t_start, t_end, component_id, "memory", op_name, params)

    def _append(
        self,
        msg: MsgBase,
        t_start: float,
        t_end: float,
        node: str,
        kind: str,
        name: str,
        params: Params,
    ) -> None:
        """Give the record its row, its waits and its dependencies, and pass it on."""
        msg.row = self.rows
        self.rows += 1
        self.kinds[kind] += 1
        waits: Waits = []
        holders: set[int] = set()
        for at, reason, t0, t1, holder in msg.waits:
            if not isinstance(holder, MsgBase):  # of another class: it has no row
                waits.append((at, reason, t0, t1, -1))
                continue
            waits.append((at, reason, t0, t1, holder.row))
            # one that started later only shared a wire or channel: that orders no data
            if holder.t_start <= t_start:
                holders.add(holder.row)
        if msg.resumed_by is not None:
            holders.add(msg.resumed_by.row)
        holders.discard(-1)
        record = OpRecord(t_start, t_end, node, kind, name, params, sorted(holders))
        if self._sink is not None:
            self._sink.op(msg.row, record, msg.cmd, msg.slot, waits, msg.transfers)
        msg.waits = []
        msg.transfers = []
        if self._keep:
            record.dependency_ids = [self._position[d] for d in record.dependency_ids]
            self._position.append(msg.row)
            self._records.append(record)
            self._calls.append(msg.cmd)

    def _stored(
        self, src: Region, was_ready: bool, before: Array | None
    ) -> Array | None:
        """The snapshot of the source of a store that saw ``before`` when it started.

        Bytes that were pending then, or were others, are by now a later store's.
        """
        now = self._snapshot(src)
        if not was_ready or now is None:
            return None
        if before is not None and before.tobytes() != now.tobytes():
            return None
        return now

    def _is_ready(self, region: Region) -> bool:
        """Whether no byte of ``region`` is still to be computed."""
        if self._is_pending is None:
            return True
        where = region.where
        return not self._is_pending(region.space, where.addr, where.span)

    def _view(self, region: Region) -> Array | None:
        """The bytes there, ready or not; None where some were never written."""
        store = self._memory_store
        if store is None:
            return None
        try:
            if region.strided is None:
                return store.view(region.space, region.addr, region.shape, region.dtype)
            return store.view_rows(
                region.space, region.where, region.shape, region.dtype
            )
        except (KernbenchError, ValueError):
            return None

    def _snapshot(self, region: Region) -> Array | None:
        """A copy of the bytes there, if they are ready."""
        if not self._is_ready(region):
            return None
        seen = self._view(region)
        return None if seen is None else seen.copy()


# -- what the record of a command holds (ADR-0052 D3) ----------------------------------

PLACES: dict[str, dict[str, Names]] = {
    "memory": {
        "src": ("src_space", "src_addr", "shape", "dtype", "nbytes"),
        "dst": ("dst_space", "dst_addr", "shape", "dtype", "nbytes"),
    },
    "gemm": {
        "out": ("dst_space", "dst_addr", "shape_out", "dtype_out"),
        "a": ("src_a_space", "src_a_addr", "shape_a", "dtype_in"),
        "b": ("src_b_space", "src_b_addr", "shape_b", "dtype_in"),
        "acc": ("src_acc_space", "src_acc_addr", "shape_out", "dtype_out"),
    },
    "math": {"out": ("dst_space", "dst_addr", "shape_out", "dtype")},
}
"""By kind of op and region of its commands: the params that describe the region.

They are its space, addr, shape, dtype and, of a copy, nbytes. "out" and "dst" are
written. A param that two regions share is that of the first which a command has.
"""

_MEMORY_PARAMS: dict[type[MsgBase], tuple[str, Names]] = {
    DmaReadCmd: (
        "dma_read",
        (
            *("src_addr", "nbytes", "handle_id"),
            *("src_space", "dst_space", "dst_addr", "shape", "dtype"),
        ),
    ),
    DmaWriteCmd: (
        "dma_write",
        (
            *("src_space", "src_addr", "shape", "dtype"),
            *("dst_space", "dst_addr", "nbytes", "handle_id"),
        ),
    ),
    HostWriteCmd: (
        "host_write",
        ("dst_space", "dst_addr", "shape", "dtype", "nbytes"),
    ),
    HostReadCmd: (
        "host_read",
        ("src_space", "src_addr", "shape", "dtype", "nbytes"),
    ),
}
_GEMM_PARAMS: Names = (
    *("src_a_addr", "src_b_addr", "dst_addr", "shape_a", "shape_b", "shape_out"),
    *("dtype_in", "dtype_out", "m", "k", "n"),
    *("src_a_space", "src_b_space", "dst_space"),
    *("dtype_acc", "transpose_a", "transpose_b"),
)
_LAYOUTS = dict.fromkeys(("layout_a", "layout_b", "layout_out"), "row_major")
_ACC_PARAMS: Names = ("src_acc_addr", "src_acc_space")
_MATH_PARAMS: Names = (
    *("dst_addr", "dst_space", "shape_out", "dtype"),
    *("axis", "keepdims"),
)


def rows_key(space: str) -> str:
    """The param of the rows of a region, or of each of several, by that of its space:
    "src_a_rows" by "src_a_space", "input_rows" by "input_spaces".
    """
    return space.removesuffix("s").removesuffix("space") + "rows"


def rows_list(region: Region) -> list[int]:
    """The rows in which a region lies: their number, their bytes, their pitch.

    Count and pitch of each plane follow, the outermost first.
    """
    where = region.where
    planes = [x for plane in where.planes for x in plane]
    return [where.rows, where.row_bytes, where.pitch, *planes]


def rows_params(rows: Rows) -> Params:
    """The params that say in which rows a DMA moves: a copy op of ADR-0020 D7.

    They are of the source of a dma_read, and of the destination of a dma_write.
    """
    params: Params = {
        "rows": rows.rows,
        "row_bytes": rows.row_bytes,
        "pitch": rows.pitch,
    }
    if rows.planes:
        params["planes"] = rows.planes
    return params


def _params(kind: str, msg: MsgBase, names: Names) -> Params:
    """The named params of a command.

    Each is a field of one of its regions, as PLACES says, or an attribute of its own.
    """
    found: Params = {}
    in_rows: Params = {}
    for attribute, keys in PLACES[kind].items():
        r = getattr(msg, attribute, None)
        if r is not None:
            fields = (r.space, r.addr, r.shape, r.dtype, r.nbytes)
            found = dict(zip(keys, fields, strict=False)) | found
            if r.strided is not None and kind != "memory":
                in_rows[rows_key(keys[0])] = rows_list(r)
    for name in names:
        if name not in found:
            found[name] = getattr(msg, name)
    return {name: found[name] for name in names} | in_rows


def _lists(prefix: str, regions: Iterable[Region], fields: Names) -> Params:
    """One list for each field of several regions: "addr" as <prefix>_addrs.

    One of rows, too, if some of them have gaps between their rows.
    """
    held = tuple(regions)
    made: Params = {
        f"{prefix}_{name}s": [getattr(r, name) for r in held] for name in fields
    }
    if any(r.strided is not None for r in held):
        made[f"{prefix}_rows"] = [*map(rows_list, held)]
    return made


@singledispatch
def _extract_op_info(msg: object) -> OpInfo:
    """Return (op_kind, op_name, params) of a message (ADR-0052 D3).

    A type that is registered nowhere is of kind "unknown" and has no params (D3.7).
    """
    return "unknown", type(msg).__name__, {}


@_extract_op_info.register
def _memory_info(
    msg: DmaReadCmd | DmaWriteCmd | HostWriteCmd | HostReadCmd,
) -> OpInfo:
    """A copy (D3.1, D3.2); a subclass of a command is recorded as that command."""
    recorded_as = next(cls for cls in type(msg).__mro__ if cls in _MEMORY_PARAMS)
    name, names = _MEMORY_PARAMS[recorded_as]
    params = _params("memory", msg, names)
    if isinstance(msg, HostWriteCmd):
        params["snapshot"] = msg.data
    elif isinstance(msg, DmaReadCmd):
        params |= _rows_of_dma(msg.src, "dst_rows", msg.dst)
    elif isinstance(msg, DmaWriteCmd):
        params |= _rows_of_dma(msg.dst, "src_rows", msg.src)
    return "memory", name, params


def _rows_of_dma(memory: Region, key: str, scratch: Region) -> Params:
    """The rows of both ends of a DMA that are not contiguous."""
    params: Params = {}
    if memory.strided is not None:
        params |= rows_params(memory.strided)
    if scratch.strided is not None:
        params[key] = rows_list(scratch)
    return params


def _dataflow(msg: ProductCmd) -> Params:
    """The dataflow of a product, where it is not the machine's."""
    return {"dataflow": msg.dataflow} if msg.dataflow else {}


@_extract_op_info.register
def _gemm_info(msg: GemmCmd) -> OpInfo:
    """A dot (D3.3); the accumulator's place is there only if it has one.

    So is the dataflow, if the call gave one.
    """
    params = _params("gemm", msg, _GEMM_PARAMS) | _LAYOUTS | _dataflow(msg)
    if msg.acc is not None:
        params |= _params("gemm", msg, _ACC_PARAMS)
    return "gemm", f"gemm_{msg.a.dtype}", params


@_extract_op_info.register
def _math_info(msg: MathCmd) -> OpInfo:
    """An op of MATH (D3.4), named by its row in ``NUMPY_OPS``."""
    return "math", msg.op, {"op": msg.op} | _operands_of_math(msg)


@_extract_op_info.register
def _composite_math_info(msg: CompositeMathCmd) -> OpInfo:
    """A composite of MATH (D3.5): the params of its op, and its tiling.

    Its ``op`` says that it is math, so the row in ``NUMPY_OPS`` is its ``math_op``.
    """
    params: Params = {
        "op": "math",
        "out_addr": msg.out.addr,
        "out_nbytes": msg.out.nbytes,
        "math_op": msg.op,
    }
    params |= _operands_of_math(msg)
    params["tile"] = msg.tile
    return "math", "composite_math", params


def _operands_of_math(msg: MathCmd | CompositeMathCmd) -> Params:
    """What an op of MATH is applied to, and what it writes."""
    params = _lists("input", msg.inputs, ("addr", "shape", "space", "dtype"))
    params |= _params("math", msg, _MATH_PARAMS)
    params["scalars"] = list(msg.scalars)
    params["scalar_positions"] = list(msg.scalar_positions)
    return params


@_extract_op_info.register
def _composite_info(msg: CompositeCmd) -> OpInfo:
    """A composite gemm (D3.5): the params of a gemm, its tiling and its epilogue.

    An epilogue step without a scalar has NaN in its place, so that the list is one of
    numbers.
    """
    params: Params = {
        "op": msg.op,
        "out_addr": msg.out.addr,
        "out_nbytes": msg.out.nbytes,
    }
    params |= _params("gemm", msg, _GEMM_PARAMS) | _LAYOUTS | _dataflow(msg)
    scalars = []
    operands = []
    for step in msg.epilogue:
        scalars.append(math.nan if step.scalar is None else step.scalar)
        if step.operand is not None:
            operands.append(step.operand)
    params["tile"] = msg.tile
    params["epilogue"] = [step.op for step in msg.epilogue]
    params["epilogue_scopes"] = [step.scope for step in msg.epilogue]
    params["epilogue_scalars"] = scalars
    params["epilogue_has_operand"] = [s.operand is not None for s in msg.epilogue]
    params |= _lists("epilogue", operands, ("addr", "space", "shape", "dtype"))
    return "gemm", f"composite_{msg.op}", params
