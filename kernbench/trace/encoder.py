"""Makes frames of the rows that a writer has buffered.

Owns the numbers of all that a file stores once: names, texts, paths, arrays, schemas.
Knows neither the file nor when something is written.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from kernbench.common.arrays import Array
from kernbench.common.texts import cut_text
from kernbench.sim_engine.event_log import Transfers, Waits
from kernbench.trace.numbering import REMEMBERED, NewEntries, Numbers, TensorStore
from kernbench.trace.params import ParamsEncoder, TensorId
from kernbench.trace.schema import FIXED_TABLES, NONE, Body, pack, plain
from kernbench.trace.stream import NewFrame

Buffered: TypeAlias = dict[str, list[tuple[Any, ...]]]
"""Rows by the log that they are of."""

BUFFERED = (
    "alloc",
    "commands",
    "callers",
    "ops",
    "transfers",
    "waits",
    "launches",
    "text",
)
"""The logs whose rows are buffered, in the order in which they are written."""


class _BufferedOps(NamedTuple):
    """The columns of buffered ops: a row has these cells in this order.

    ``param_names`` and ``param_values`` are the keys and values of its params, arrays
    among them replaced by numbers. ``deps`` are rows, as ``row`` is.
    """

    t_start: Sequence[float]
    t_end: Sequence[float]
    component: Sequence[str]
    kind: Sequence[str]
    name: Sequence[str]
    nbytes: Sequence[int]
    param_names: Sequence[tuple[str, ...]]
    param_values: Sequence[tuple[Any, ...]]
    slot: Sequence[int]
    deps: Sequence[list[int]]
    cmd: tuple[int, ...]
    row: tuple[int, ...]
    waits: tuple[Waits, ...]
    transfers: tuple[Transfers, ...]


class RowEncoder:
    """Makes frames of rows, and gives them to ``write`` in the order of the file.

    ``counts`` has the number of rows so far of each log.
    """

    def __init__(self, write: Callable[[Iterable[NewFrame]], None]) -> None:
        self.counts = dict.fromkeys(BUFFERED, 0)
        self._write = write
        self._texts = NewEntries()
        self._paths = NewEntries()
        # Names are kept for good, node ids first; texts are forgotten when they are
        # too many.
        self._names = Numbers(self._texts)
        self._values = Numbers(self._texts)
        self._new_spaces = NewEntries()  # written with the rows that have them
        self._spaces = Numbers(self._new_spaces)
        self._tables: dict[str, Mapping[Any, int]] = {
            "node": self._names,
            "string": self._names,
            "text": self._values,
            "path": Numbers(self._paths),
            "space": self._spaces,
        }
        for name, entries in FIXED_TABLES.items():
            self._tables[name] = {entry: n for n, entry in enumerate(entries)}
        self._tensors = TensorStore(self._tables, lambda frame: write([frame]))
        self._params = ParamsEncoder(self._values, self._tensors.number)

    def copy(self, write: Callable[[Iterable[NewFrame]], None]) -> RowEncoder:
        """One that goes on from here, and leaves this one as it is.

        It knows the names and schemas so far. A text, path or array that it meets again
        it stores again, which costs less than to copy all of them.
        """
        other = RowEncoder(write)
        other.counts.update(self.counts)
        other._texts.go_on_from(self._texts)
        other._paths.go_on_from(self._paths)
        other._new_spaces.go_on_from(self._new_spaces)
        other._names.update(self._names)
        other._spaces.update(self._spaces)
        other._tensors.go_on_from(self._tensors)
        other._params.go_on_from(self._params)
        return other

    # -- arrays --------------------------------------------------------------------

    @property
    def keeps_data(self) -> bool:
        """Whether arrays are stored; if not, each has the number of none."""
        return self._tensors.keeps_data

    @keeps_data.setter
    def keeps_data(self, keeps_data: bool) -> None:
        self._tensors.keeps_data = keeps_data

    def number(self, array: Array) -> TensorId:
        """The number of the array's content, which is stored as it is now."""
        return self._tensors.number(array)

    # -- frames --------------------------------------------------------------------

    def write_machine(
        self,
        node_ids: Iterable[str],
        nodes: list[list[Any]],
        edges: list[list[Any]],
        spec: Any,
    ) -> None:
        """Write the machine, of which ``nodes`` and ``edges`` are the columns."""
        for node in node_ids:
            _ = self._names[node]  # ids of nodes are the first strings
        body = Body()
        head = {
            "nodes": body.add_log("nodes", nodes, self._tables),
            "edges": body.add_log("edges", edges, self._tables),
            "spec": plain(spec),
        }
        self._write_strings()
        self.write_deflated("topology", head, body)

    def write_rows(self, rows_by_log: Buffered, expects: Sequence[NewFrame]) -> None:
        """Write rows, and references behind them.

        Strings, tensors and paths go first: a frame refers to earlier frames only, so a
        file that is cut off anywhere has all that its frames refer to.
        """
        columns: dict[str, Sequence[Any]] = {}
        for tag, rows in rows_by_log.items():
            if rows:
                columns[tag] = list(zip(*rows, strict=True))
        if "ops" in columns:
            _add_events_of_ops(columns, _BufferedOps(*columns["ops"]))
        frames: list[NewFrame] = []
        for tag in BUFFERED:
            if tag in columns:
                frames.append(self._log_frame(tag, columns[tag]))
        head, paths = self._paths.take()
        if paths:
            frames.insert(0, self._frame("paths", [paths], head, Body()))
        self._write_strings()
        self._tensors.flush()
        self._write([*frames, *expects])
        if len(self._values) > REMEMBERED:
            self._values.clear()

    def _log_frame(self, tag: str, columns: Sequence[Any]) -> NewFrame:
        """The frame of a log whose buffered columns are these.

        They become the columns of the file: of ops the params go to blocks of their
        own, and events that came in lists get a row each.
        """
        body = Body()
        head: dict[str, Any] = {}
        if tag == "ops":
            ops = _BufferedOps(*columns)
            schema, place, head = self._params.add(
                ops.kind, ops.name, ops.param_names, ops.param_values, body
            )
            head["first"] = self.counts["ops"]
            columns = [
                ops.t_start,
                ops.t_end,
                ops.component,
                ops.name,
                ops.slot,
                ops.cmd,
                ops.nbytes,
                schema,
                place,
                ops.deps,
            ]
        elif tag in ("transfers", "waits"):
            columns = _one_event_a_row(columns)
            if tag == "waits":
                columns[-1] = np.bitwise_and(columns[-1], NONE)  # no holder: -1
        elif tag == "alloc":
            spaces = [*self._tables["space"], *columns[2]]
            head["spaces"] = list(dict.fromkeys(spaces))
        self.counts[tag] += len(columns[0])
        return self._frame(tag, columns, head, body)

    def _frame(
        self, tag: str, columns: Sequence[Any], head: dict[str, Any], body: Body
    ) -> NewFrame:
        return tag, body.add_log(tag, columns, self._tables) | head, body

    def _write_strings(self) -> None:
        head, new = self._texts.take()
        texts = list(map(cut_text, new))
        if texts:
            self.write_deflated("strings", head | {"n": len(texts)}, pack(texts))

    def write_deflated(
        self, tag: str, head: dict[str, Any], raw: bytes | bytearray
    ) -> None:
        """Write a frame whose body is ``raw``, deflated."""
        self._write([(tag, head | {"raw": len(raw)}, zlib.compress(raw, 6))])


def _add_events_of_ops(columns: dict[str, Sequence[Any]], ops: _BufferedOps) -> None:
    """Put the transfers and waits of ops among the columns of the logs.

    Each row of these is a call, a row of ops, and a list of events.
    """
    if any(ops.transfers):
        alone = columns.get("transfers", [(), (), ()])
        columns["transfers"] = [
            ops.cmd + alone[0],
            ops.row + alone[1],
            ops.transfers + alone[2],
        ]
    if any(ops.waits):
        columns["waits"] = [ops.cmd, ops.row, ops.waits]


def _one_event_a_row(columns: Sequence[Any]) -> list[Any]:
    """The columns of calls, rows and lists of events, with a row for each event."""
    calls, rows, lists = columns
    lengths = list(map(len, lists))
    events = zip(*chain.from_iterable(lists), strict=True)
    return [np.repeat(calls, lengths), np.repeat(rows, lengths), *events]
