"""The op log (ADR-0052): ``OpRecord``, ``OpLogger`` and the one canonical order.

Owns what a record holds and when it is made. Knows commands by their type; knows no component and
no clock: times come with the calls.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from kernbench.common.messages import (
    NO_CMD,
    HostReadCmd,
    HostWriteCmd,
    MsgBase,
    Region,
    TileToken,
    Transfer,
    Wait,
)
from kernbench.common.pe_commands import CompositeCmd, DmaReadCmd, DmaWriteCmd, GemmCmd, MathCmd
from kernbench.errors import KernbenchError
from kernbench.sim_engine.event_log import Recorder

KIND_RANK = {"memory": 0, "gemm": 1, "math": 2, "unknown": 3}


@dataclass
class OpRecord:
    """One op (ADR-0052 D1): times in ns, the node that served it, its kind, name and parameters.

    ``dependency_ids`` count positions in the sequence that holds the record.
    """

    t_start: float
    t_end: float
    component_id: str
    op_kind: str
    op_name: str
    params: dict[str, Any]
    dependency_ids: list[int] = field(default_factory=list)


def canonical_order(
    t_start: npt.NDArray[np.float64], kind_rank: npt.NDArray[np.integer[Any]]
) -> npt.NDArray[np.intp]:
    """Row numbers in the one order of executor, reader, cursor and panes.

    Stable by t_start, then memory < gemm < math < unknown (ADR-0052 A4), then row (completion
    order).
    """
    return np.lexsort((kind_rank, t_start))


def canonical_records(records: Sequence[OpRecord]) -> list[OpRecord]:
    """``records``, given in completion or t_start order, in canonical order; ids are not
    renumbered.
    """
    t = np.fromiter((r.t_start for r in records), np.float64, len(records))
    kinds = np.fromiter((KIND_RANK.get(r.op_kind, 3) for r in records), np.uint8, len(records))
    return [records[i] for i in canonical_order(t, kinds)]


class ReadableStore(Protocol):
    """The part of a memory store that snapshots need."""

    def view(self, space: str, addr: int, shape: tuple[int, ...], dtype: str) -> npt.NDArray[Any]:
        """The bytes there as an array."""


class OpLogger:
    """Makes a record of every data op from the hooks of the component base (ADR-0052 D2-D5).

    ``sink`` is told each record as it ends; with ``keep=False`` it is the only one who is.
    ``is_pending`` says whether bytes of the store are still to come (simulator.md section 7):
    those give no snapshot.
    """

    def __init__(
        self,
        memory_store: ReadableStore | None = None,
        sink: Recorder | None = None,
        keep: bool = True,
        is_pending: Callable[[str, int, int], bool] | None = None,
    ) -> None:
        self._records: list[OpRecord] = []
        self._pending: dict[int, dict[str, Any]] = {}
        self._memory_store = memory_store
        self._sink = sink
        self._keep = keep
        self._is_pending = is_pending
        self._position: list[int] = []  # of each row, in _records
        self._sorted = 0
        self.rows = 0

    @property
    def records(self) -> list[OpRecord]:
        """All records so far, stable by t_start (D2); their dependency_ids index this very list."""
        if self._sorted < len(self._records):
            self._sort()
        return self._records

    def _sort(self) -> None:
        count = self._sorted = len(self._records)
        order = sorted(range(count), key=lambda i: self._records[i].t_start)
        moved = [0] * count
        for new, old in enumerate(order):
            moved[old] = new
        self._records[:] = [self._records[i] for i in order]
        self._position = [moved[p] for p in self._position]
        for record in self._records:
            if record.dependency_ids:
                record.dependency_ids = [moved[d] for d in record.dependency_ids]

    def record_start(self, t: float, component_id: str, msg: Any) -> None:
        """Service of ``msg`` starts; a tile's stage is read now, as it moves on before the end
        (D5).
        """
        snap: dict[str, Any] = {}
        if isinstance(msg, TileToken):
            stage = msg.stage
            snap = {"stage_type": stage.stage_type.name, "stage_params": dict(stage.params)}
        source = msg.src if isinstance(msg, DmaWriteCmd) and msg.src.space == "hbm" else None
        self._pending[id(msg)] = {
            "t_start": t,
            "component_id": component_id,
            "snap": snap,
            "source": self._look(source) if source is not None else None,
        }

    def record_end(self, t: float, component_id: str, msg: Any) -> None:
        """Service of ``msg`` has ended; KernbenchError if it never started."""
        pending = self._pending.pop(id(msg), None)
        if pending is None:
            raise KernbenchError(f"{component_id}: record_end of {msg!r} without a record_start")
        kind, name, params = _extract_op_info(msg)
        snap = pending["snap"]
        if snap:
            params["stage_type"] = snap["stage_type"]
            for key, value in snap["stage_params"].items():
                params.setdefault(key, value)
            name = f"{name}/{snap['stage_type']}"
        self._add_snapshots(msg, params, pending["source"])
        record = OpRecord(pending["t_start"], t, component_id, kind, name, params)
        self._append(record, msg)

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
        snapshot: npt.NDArray[Any] | None = None,
        *,
        msg: MsgBase | None = None,
        op_name: str = "ipcq_copy",
    ) -> None:
        """A copy that no component serves (D3.6); without ``snapshot`` a fresh read is tried."""
        if snapshot is None:
            snapshot = _copy(self._look(Region(src_space, src_addr, shape, dtype, nbytes)))
        params = {
            "src_space": src_space,
            "src_addr": src_addr,
            "dst_space": dst_space,
            "dst_addr": dst_addr,
            "shape": shape,
            "dtype": dtype,
            "nbytes": nbytes,
            "snapshot": snapshot,
        }
        self._append(OpRecord(t_start, t_end, component_id, "memory", op_name, params), msg)

    def _append(self, record: OpRecord, msg: Any) -> None:
        row = self.rows
        self.rows += 1
        waits: list[Wait] = []
        transfers: list[Transfer] = []
        cmd, slot = NO_CMD, 0
        if isinstance(msg, MsgBase):
            msg.row, cmd, slot, transfers = row, msg.cmd, msg.slot, msg.transfers
            waits = [(n, why, t0, t1, h.row if h else -1) for n, why, t0, t1, h in msg.waits]
            holders = {w[4] for w in waits if w[4] >= 0}
            if msg.resumed_by is not None and msg.resumed_by.row >= 0:
                holders.add(msg.resumed_by.row)
            record.dependency_ids = sorted(holders)
            msg.waits, msg.transfers = [], []
        if self._sink is not None:
            self._sink.op(row, record, cmd, slot, waits, transfers)
        if self._keep:
            record.dependency_ids = [self._position[d] for d in record.dependency_ids]
            self._position.append(row)
            self._records.append(record)

    def _add_snapshots(
        self, msg: Any, params: dict[str, Any], source: npt.NDArray[Any] | str
    ) -> None:
        """D4: math inputs, and the HBM source of a dma_write; a TCM source deliberately not.

        A source that was pending, or held other bytes, when the write started gives none: what lies
        there now is a later store's.
        """
        if isinstance(msg, MathCmd):
            params["input_snapshots"] = [_copy(self._look(region)) for region in msg.inputs]
        elif isinstance(msg, DmaWriteCmd) and msg.src.space == "hbm":
            now = _copy(self._look(msg.src))
            if isinstance(source, str):
                changed = source == "pending"
            else:
                changed = now is None or source.tobytes() != now.tobytes()
            params["snapshot"] = None if changed else now

    def _look(self, region: Region) -> npt.NDArray[Any] | str:
        """The bytes of a region as a view, or why there is none: "pending", "unwritten"."""
        place = (region.space, region.addr, region.nbytes)
        if self._is_pending is not None and self._is_pending(*place):
            return "pending"
        if self._memory_store is None:
            return "unwritten"
        try:
            return self._memory_store.view(region.space, region.addr, region.shape, region.dtype)
        except (KernbenchError, ValueError):
            return "unwritten"


def _copy(seen: npt.NDArray[Any] | str) -> npt.NDArray[Any] | None:
    return None if isinstance(seen, str) else seen.copy()


def _extract_op_info(msg: Any) -> tuple[str, str, dict[str, Any]]:
    """(op_kind, op_name, params) of a message, per ADR-0052 D3; an unknown type is kind
    "unknown".
    """
    for kind in type(msg).__mro__:
        extract = _EXTRACT.get(kind)
        if extract is not None:
            return extract(msg)
    return "unknown", type(msg).__name__, {}


def _tile(msg: TileToken) -> tuple[str, str, dict[str, Any]]:
    return "unknown", "TileToken", {"tile_index": msg.index}


def _dma_read(msg: DmaReadCmd) -> tuple[str, str, dict[str, Any]]:
    src, dst = msg.src, msg.dst
    params = {
        "src_addr": src.addr,
        "nbytes": src.nbytes,
        "handle_id": msg.handle_id,
        "src_space": src.space,
        "dst_space": dst.space,
        "dst_addr": dst.addr,
        "shape": src.shape,
        "dtype": src.dtype,
    }
    return "memory", "dma_read", params


def _dma_write(msg: DmaWriteCmd) -> tuple[str, str, dict[str, Any]]:
    src = msg.src
    params = {
        "src_space": src.space,
        "src_addr": src.addr,
        "shape": src.shape,
        "dtype": src.dtype,
        "dst_space": "hbm",
        "dst_addr": msg.dst_addr,
        "nbytes": src.nbytes,
        "handle_id": msg.handle_id,
    }
    return "memory", "dma_write", params


def _host_write(msg: HostWriteCmd) -> tuple[str, str, dict[str, Any]]:
    dst = msg.dst
    params = {
        "dst_space": dst.space,
        "dst_addr": dst.addr,
        "shape": dst.shape,
        "dtype": dst.dtype,
        "nbytes": dst.nbytes,
        "snapshot": msg.data,
    }
    return "memory", "host_write", params


def _host_read(msg: HostReadCmd) -> tuple[str, str, dict[str, Any]]:
    src = msg.src
    params = {
        "src_space": src.space,
        "src_addr": src.addr,
        "shape": src.shape,
        "dtype": src.dtype,
        "nbytes": src.nbytes,
    }
    return "memory", "host_read", params


def _gemm_params(msg: GemmCmd | CompositeCmd) -> dict[str, Any]:
    return {
        "src_a_addr": msg.a.addr,
        "src_b_addr": msg.b.addr,
        "dst_addr": msg.out.addr,
        "shape_a": msg.a.shape,
        "shape_b": msg.b.shape,
        "shape_out": msg.out.shape,
        "dtype_in": msg.a.dtype,
        "dtype_out": msg.out.dtype,
        "m": msg.m,
        "k": msg.k,
        "n": msg.n,
        "src_a_space": msg.a.space,
        "src_b_space": msg.b.space,
        "dst_space": msg.out.space,
        "dtype_acc": msg.dtype_acc,
        "transpose_a": msg.transpose_a,
        "transpose_b": msg.transpose_b,
        "layout_a": "row_major",
        "layout_b": "row_major",
        "layout_out": "row_major",
    }


def _gemm(msg: GemmCmd) -> tuple[str, str, dict[str, Any]]:
    params = _gemm_params(msg)
    if msg.acc is not None:
        params["src_acc_addr"] = msg.acc.addr
        params["src_acc_space"] = msg.acc.space
    return "gemm", f"gemm_{msg.a.dtype}", params


def _math(msg: MathCmd) -> tuple[str, str, dict[str, Any]]:
    params = {
        "op": msg.op,
        "input_addrs": [r.addr for r in msg.inputs],
        "input_shapes": [r.shape for r in msg.inputs],
        "input_spaces": [r.space for r in msg.inputs],
        "input_dtypes": [r.dtype for r in msg.inputs],
        "dst_addr": msg.out.addr,
        "dst_space": msg.out.space,
        "shape_out": msg.out.shape,
        "dtype": msg.out.dtype,
        "axis": msg.axis,
        "keepdims": msg.keepdims,
        "scalars": list(msg.scalars),
        "scalar_positions": list(msg.scalar_positions),
    }
    return "math", msg.op, params


def _composite(msg: CompositeCmd) -> tuple[str, str, dict[str, Any]]:
    params = {"op": msg.op, "out_addr": msg.out.addr, "out_nbytes": msg.out.nbytes}
    params |= _gemm_params(msg)
    params["tile"] = msg.tile
    steps = msg.epilogue
    operands = [s.operand for s in steps if s.operand is not None]
    params |= {
        "epilogue": [s.op for s in steps],
        "epilogue_scopes": [s.scope for s in steps],
        "epilogue_scalars": [float("nan") if s.scalar is None else s.scalar for s in steps],
        "epilogue_has_operand": [s.operand is not None for s in steps],
        "epilogue_addrs": [r.addr for r in operands],
        "epilogue_spaces": [r.space for r in operands],
        "epilogue_shapes": [r.shape for r in operands],
        "epilogue_dtypes": [r.dtype for r in operands],
    }
    return "gemm" if msg.op == "gemm" else "math", f"composite_{msg.op}", params


_EXTRACT: dict[type, Callable[[Any], tuple[str, str, dict[str, Any]]]] = {
    TileToken: _tile,
    DmaReadCmd: _dma_read,
    DmaWriteCmd: _dma_write,
    HostWriteCmd: _host_write,
    HostReadCmd: _host_read,
    GemmCmd: _gemm,
    MathCmd: _math,
    CompositeCmd: _composite,
}
