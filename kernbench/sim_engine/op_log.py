"""The op log (ADR-0052): ``OpRecord``, ``OpLogger`` and the one canonical order.

Owns what a record holds and when it is made. Knows commands by their type; knows no component and
no clock: times come with the calls.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import singledispatch
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from kernbench.common.arrays import Array
from kernbench.common.messages import (
    HostReadCmd,
    HostWriteCmd,
    MsgBase,
    Region,
    TileToken,
    Wait,
)
from kernbench.common.pe_commands import (
    CompositeCmd,
    DmaReadCmd,
    DmaWriteCmd,
    GemmCmd,
    MathCmd,
)
from kernbench.errors import KernbenchError
from kernbench.sim_engine.event_log import Recorder
from kernbench.sim_engine.memory_store import MemoryStore

Params: TypeAlias = dict[str, Any]
OpInfo: TypeAlias = tuple[str, str, Params]

KIND_RANK = {"memory": 0, "gemm": 1, "math": 2, "unknown": 3}
_BLOCK = 1 << 16  # ops looked at together, in the cache


@dataclass(slots=True)
class OpRecord:
    """One op (ADR-0052 D1): times in ns, the node that served it, its kind, name and parameters.

    ``dependency_ids`` count positions in the sequence that holds the record.
    """

    t_start: float
    t_end: float
    component_id: str
    op_kind: str
    op_name: str
    params: Params
    dependency_ids: list[int] = field(default_factory=list)


def canonical_order(
    t_start: npt.NDArray[np.float64], kind_rank: npt.NDArray[np.integer[Any]]
) -> npt.NDArray[np.intp]:
    """Row numbers in the one order of executor, reader, cursor and panes.

    Stable by t_start, then memory < gemm < math < unknown (ADR-0052 A4), then row (completion
    order). As that is nearly the order of t_start, few instants are left whose ops must be moved.
    """
    order, wrong = np.argsort(t_start, kind="stable"), [t_start[:0]]
    for first in range(0, len(order), _BLOCK):
        rows = order[first : first + _BLOCK + 1]
        times, ranks = t_start[rows], kind_rank[rows]
        wrong.append(times[1:][(ranks[1:] < ranks[:-1]) & (times[1:] == times[:-1])])
    if sum(map(len, wrong)) > len(order) // 1000:
        return np.lexsort((kind_rank, t_start))
    for instant in np.unique(np.concatenate(wrong)):
        low, high = (
            np.searchsorted(t_start, instant, side, order) for side in ("left", "right")
        )
        rows = order[low:high]
        order[low:high] = rows[np.argsort(kind_rank[rows], kind="stable")]
    return order


def canonical_rows(records: Sequence[OpRecord]) -> list[int]:
    """``canonical_order`` of records given in completion or t_start order."""
    rows: list[int] = canonical_order(
        np.array([r.t_start for r in records], np.float64),
        np.array([KIND_RANK.get(r.op_kind, 3) for r in records], np.uint8),
    ).tolist()
    return rows


class OpLogger:
    """Makes a record of every data op from the hooks of the component base (ADR-0052 D2-D5).

    ``sink`` is told each record as it ends; with ``keep=False`` it is the only one who is.
    ``kinds`` counts the records of each kind, ``tile_stages`` those of tiles.
    ``is_pending`` says whether bytes of the store are still to come (simulator.md section 7):
    those give no snapshot.
    """

    def __init__(
        self,
        memory_store: MemoryStore | None = None,
        sink: Recorder | None = None,
        keep: bool = True,
        is_pending: Callable[[str, int, int], bool] | None = None,
    ) -> None:
        self._records: list[OpRecord] = []
        self._pending: dict[int, dict[str, Any]] = {}
        self._memory_store, self._is_pending = memory_store, is_pending
        self._sink, self._keep = sink, keep
        self._position: list[int] = []  # of each row, in _records
        self._sorted = 0
        self.rows = self.tile_stages = 0
        self.kinds: Counter[str] = Counter()

    @property
    def records(self) -> list[OpRecord]:
        """All records so far, stable by t_start (D2); their dependency_ids index this very list."""
        count = len(self._records)
        if self._sorted < count:
            self._sorted = count
            order = sorted(range(count), key=lambda i: self._records[i].t_start)
            moved = dict(zip(order, range(count), strict=True))
            self._records[:] = [self._records[i] for i in order]
            self._position = [moved[p] for p in self._position]
            for record in self._records:
                record.dependency_ids = [moved[d] for d in record.dependency_ids]
        return self._records

    def record_start(self, t: float, component_id: str, msg: MsgBase) -> None:
        """Service of ``msg`` starts; a tile's stage is read now, before it moves on (D5)."""
        pending: dict[str, Any] = {"t_start": t}
        if isinstance(msg, TileToken):
            stage = msg.stage
            pending["snap"] = {
                "stage_type": stage.stage_type._name_,  # plain; ``name`` costs a Python call
                "stage_params": dict(stage.params),
            }
        elif isinstance(msg, DmaWriteCmd) and msg.src.space == "hbm":
            pending["source"] = self._is_ready(msg.src), self._view(msg.src)
        self._pending[id(msg)] = pending

    def record_end(self, t: float, component_id: str, msg: MsgBase) -> None:
        """Service of ``msg`` has ended; KernbenchError if it never started.

        Snapshots (D4) are of math inputs and of the HBM source of a dma_write; of a TCM source
        deliberately not.
        """
        pending = self._pending.pop(id(msg), None)
        if pending is None:
            raise KernbenchError(
                f"{component_id}: record_end of {msg!r} without a record_start"
            )
        if snap := pending.get("snap"):
            assert isinstance(msg, TileToken)
            own = {"tile_index": msg.index, "stage_type": snap["stage_type"]}
            params = {**own, **snap["stage_params"], **own}  # keys that exist are kept
            kind, name = "unknown", f"TileToken/{snap['stage_type']}"
            self.tile_stages += 1
        else:
            kind, name, params = _extract_op_info(msg)
        if isinstance(msg, MathCmd):
            params["input_snapshots"] = [
                self._snapshot(region) for region in msg.inputs
            ]
        elif isinstance(msg, DmaWriteCmd) and "source" in pending:
            # what was pending or other bytes at the start is by now a later store's
            (ready, before), now = pending["source"], self._snapshot(msg.src)
            same = before is None or (
                now is not None and before.tobytes() == now.tobytes()
            )
            params["snapshot"] = now if ready and same else None
        self._append(msg, pending["t_start"], t, component_id, kind, name, params)

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
        """A copy that no component serves (D3.6); without ``snapshot`` a fresh read is tried.

        A str says why there is none.
        """
        if snapshot is None:
            snapshot = self._snapshot(Region(src_space, src_addr, shape, dtype, nbytes))
        elif isinstance(snapshot, str):
            snapshot = None
        copied = (
            src_space,
            src_addr,
            dst_space,
            dst_addr,
            shape,
            dtype,
            nbytes,
            snapshot,
        )
        params = dict(zip(_COPIED, copied, strict=True))
        self._append(
            msg or MsgBase(), t_start, t_end, component_id, "memory", op_name, params
        )

    def _append(
        self,
        msg: MsgBase,
        t_start: float,
        t_end: float,
        node: str,
        kind: str,
        name: str,
        p: Params,
    ) -> None:
        msg.row = self.rows
        self.rows += 1
        self.kinds[kind] += 1
        waits: list[Wait] = []
        holders: set[int] = set()
        for at, why, t0, t1, holder in msg.waits:
            waits.append((at, why, t0, t1, -1 if holder is None else holder.row))
            # one that started later only shared a wire or channel with it: that orders no data
            if holder is not None and holder.t_start <= t_start:
                holders.add(holder.row)
        if msg.resumed_by is not None:
            holders.add(msg.resumed_by.row)
        holders.discard(-1)
        record = OpRecord(t_start, t_end, node, kind, name, p, sorted(holders))
        if self._sink is not None:
            self._sink.op(msg.row, record, msg.cmd, msg.slot, waits, msg.transfers)
        msg.waits, msg.transfers = [], []
        if self._keep:
            record.dependency_ids = [self._position[d] for d in record.dependency_ids]
            self._position.append(msg.row)
            self._records.append(record)

    def _is_ready(self, region: Region) -> bool:
        place = (region.space, region.addr, region.nbytes)
        return self._is_pending is None or not self._is_pending(*place)

    def _view(self, region: Region) -> Array | None:
        """The bytes there, ready or not; None where some were never written."""
        if self._memory_store is None:
            return None
        try:
            return self._memory_store.view(
                region.space, region.addr, region.shape, region.dtype
            )
        except (KernbenchError, ValueError):
            return None

    def _snapshot(self, region: Region) -> Array | None:
        """A copy of the bytes there if they are ready."""
        seen = self._view(region) if self._is_ready(region) else None
        return None if seen is None else seen.copy()


# Where the params of a kind hold each region of its commands; "out" and "dst" are written. What
# regions share is that of the first which a command has.
PLACES: dict[str, dict[str, tuple[str, ...]]] = {
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
_COPIED = (*PLACES["memory"]["src"][:2], *PLACES["memory"]["dst"], "snapshot")
_COPIES: dict[type, tuple[str, str]] = {
    DmaReadCmd: (
        "dma_read",
        "src_addr nbytes handle_id src_space dst_space dst_addr shape dtype",
    ),
    DmaWriteCmd: (
        "dma_write",
        "src_space src_addr shape dtype dst_space dst_addr nbytes handle_id",
    ),
    HostWriteCmd: ("host_write", "dst_space dst_addr shape dtype nbytes"),
    HostReadCmd: ("host_read", "src_space src_addr shape dtype nbytes"),
}
_GEMM = (
    "src_a_addr src_b_addr dst_addr shape_a shape_b shape_out dtype_in dtype_out m k n src_a_space "
    "src_b_space dst_space dtype_acc transpose_a transpose_b"
)
_LAYOUTS = dict.fromkeys(("layout_a", "layout_b", "layout_out"), "row_major")


def _params(kind: str, msg: MsgBase, names: str) -> Params:
    """The named params of a command: fields of its regions, as PLACES has them, or its own."""
    found: Params = {}
    for attribute, keys in PLACES[kind].items():
        if (region := getattr(msg, attribute, None)) is not None:
            fields = (
                region.space,
                region.addr,
                region.shape,
                region.dtype,
                region.nbytes,
            )
            found = dict(zip(keys, fields, strict=False)) | found
    return {
        name: found[name] if name in found else getattr(msg, name)
        for name in names.split()
    }


def _lists(prefix: str, regions: Iterable[Region], fields: str) -> Params:
    """One list of each field of several regions: "addr" as <prefix>_addrs."""
    return {
        f"{prefix}_{name}s": [getattr(r, name) for r in regions]
        for name in fields.split()
    }


@singledispatch
def _extract_op_info(msg: MsgBase) -> OpInfo:
    """(op_kind, op_name, params) of a message (ADR-0052 D3); kind "unknown" for any other type."""
    return "unknown", type(msg).__name__, {}


@_extract_op_info.register
def _copy(msg: DmaReadCmd | DmaWriteCmd | HostWriteCmd | HostReadCmd) -> OpInfo:
    name, names = next(_COPIES[kind] for kind in type(msg).__mro__ if kind in _COPIES)
    params = _params("memory", msg, names)
    if isinstance(msg, HostWriteCmd):
        params["snapshot"] = msg.data
    return "memory", name, params


@_extract_op_info.register
def _gemm(msg: GemmCmd) -> OpInfo:
    params = _params("gemm", msg, _GEMM) | _LAYOUTS
    if msg.acc is not None:
        params |= _params("gemm", msg, "src_acc_addr src_acc_space")
    return "gemm", f"gemm_{msg.a.dtype}", params


@_extract_op_info.register
def _math(msg: MathCmd) -> OpInfo:
    params: Params = {"op": msg.op}
    params |= _lists("input", msg.inputs, "addr shape space dtype")
    params |= _params("math", msg, "dst_addr dst_space shape_out dtype axis keepdims")
    params |= {
        "scalars": list(msg.scalars),
        "scalar_positions": list(msg.scalar_positions),
    }
    return "math", msg.op, params


@_extract_op_info.register
def _composite(msg: CompositeCmd) -> OpInfo:
    steps = msg.epilogue
    params = {"op": msg.op, "out_addr": msg.out.addr, "out_nbytes": msg.out.nbytes}
    params |= _params("gemm", msg, _GEMM) | _LAYOUTS
    params |= {
        "tile": msg.tile,
        "epilogue": [s.op for s in steps],
        "epilogue_scopes": [s.scope for s in steps],
        "epilogue_scalars": [math.nan if s.scalar is None else s.scalar for s in steps],
        "epilogue_has_operand": [s.operand is not None for s in steps],
    }
    operands = [s.operand for s in steps if s.operand is not None]
    params |= _lists("epilogue", operands, "addr space shape dtype")
    return "gemm" if msg.op == "gemm" else "math", f"composite_{msg.op}", params
