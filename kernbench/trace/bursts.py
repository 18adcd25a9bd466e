"""How many bytes the first and the last burst of a transaction have.

A trace says in how many bursts a transaction went, and not how many bytes each has.
Contiguous bytes fill all bursts but the last one. Of rows with gaps between them a
burst has as many whole ones as fit, and which rows those are the op says.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from math import prod
from typing import NamedTuple

import numpy as np

from kernbench.common.arrays import (
    Array,
    Floats,
    Ints,
    distinct_rows,
    places_in_runs,
)
from kernbench.common.progress import Progress, computed_beside, no_progress, stage
from kernbench.trace.hops import integers
from kernbench.trace.params import ParamBlock
from kernbench.trace.reader import Trace
from kernbench.trace.spec_values import spec_number


class BurstBytes(NamedTuple):
    """The bytes of the first and the last burst, by row of ``Trace.transfers``.

    Of one burst both are all bytes of the transaction.
    """

    first: Floats
    last: Floats


class _Cut(NamedTuple):
    """Bytes that are moved at once, and the bursts in which they go."""

    nbytes: int
    bursts: int
    first: int
    last: int


class _Pieces(NamedTuple):
    """What ops move in rows, a row for each transaction: the fields of its ``_Cut``.

    ``op`` is a row of the log of ops. Those of one op are in the order of its params.
    """

    op: Ints
    nbytes: Floats
    bursts: Floats
    first: Floats
    last: Floats


def usual_burst(trace: Trace) -> float:
    """The bytes of a burst by the machine of a trace; 1 where it does not say."""
    return spec_number(trace.spec, "pe.dma.burst_bytes") or 1.0


def burst_bytes(
    trace: Trace, usual: float, progress: Progress = no_progress
) -> BurstBytes:
    """Those of all transactions; ``usual`` is the bytes of a burst by the spec.

    Where neither that nor the rows of an op make up the number of bursts that was
    recorded, all of them are taken as equal.
    """
    pieces = _all_pieces(trace, usual, stage(progress, 0.0, 0.4))
    found = computed_beside(lambda: _of_contiguous(trace, usual), progress, 0.4)
    if len(pieces.op):
        computed_beside(lambda: _put_rows(trace, pieces, found), progress, 0.6)
    return found


def _of_contiguous(trace: Trace, usual: float) -> BurstBytes:
    """Those of all transactions, if none were of rows."""
    nbytes = trace.transfers.nbytes[:].astype(np.float64)
    bursts = trace.transfers.bursts[:].astype(np.int64)
    mean = nbytes / np.maximum(bursts, 1)
    fits = np.ceil(nbytes / usual) == bursts
    size = np.where(fits, usual, mean)
    several = bursts > 1
    return BurstBytes(
        np.where(several, size, nbytes),
        np.where(several, nbytes - (bursts - 1) * size, nbytes),
    )


# -- rows --


def _all_pieces(trace: Trace, usual: float, progress: Progress) -> _Pieces:
    """All that ops move in rows and in several bursts."""
    most = max(int(usual), 1)
    count = max(len(trace.order), 1)
    none = np.empty(0)
    found = [_Pieces(np.empty(0, np.int64), none, none, none, none)]
    done = 0.0
    for block in trace.param_blocks():
        progress(done)
        done = float(block.rows[-1] + 1) / count
        if "rows" in dict(block.schema.fields):
            found += computed_beside(partial(_pieces, block, most), progress, done)
    return _Pieces(*[np.concatenate(column) for column in zip(*found, strict=True)])


def _pieces(block: ParamBlock, most: int) -> list[_Pieces]:
    """Those of a block of params; ``most`` bytes fit into a burst."""
    found = []
    op = block.rows.astype(np.int64)
    for axes in _axes(integers(block)):
        forms, which = distinct_rows([axis.astype(np.int64) for axis in axes])
        cuts = [_cut(tuple(counts), size, most) for *counts, size in forms.tolist()]
        columns = np.array(cuts, np.float64)[which]
        several = columns[:, 1] > 1
        found.append(_Pieces(op[several], *columns[several].T))
    return found


def _axes(columns: Mapping[str, Array]) -> Iterator[list[Array]]:
    """The rows of each piece: counts of its axes, outermost first, and bytes a row.

    A DMA of a kernel has one piece, and a stage of a tile one for each of its blocks.
    """
    if {"rows", "row_bytes"} <= columns.keys():
        planes = [path for path in columns if path.startswith("planes.")]
        counts = [columns[path] for path in sorted(planes) if path.endswith(".0")]
        yield [*counts, columns["rows"], columns["row_bytes"]]
    number = 0
    while {f"rows.{number}", f"row_bytes.{number}"} <= columns.keys():
        yield [columns[f"rows.{number}"], columns[f"row_bytes.{number}"]]
        number += 1


def _cut(counts: tuple[int, ...], row_bytes: int, most: int) -> _Cut:
    """How rows are cut (``Rows.cut``), of which a damaged trace may have any number.

    ``counts`` are those of their axes, outermost first.
    """
    nbytes = prod(counts) * row_bytes
    if min(*counts, row_bytes) < 1 or nbytes <= most:
        return _Cut(nbytes, 1, nbytes, nbytes)
    outer, *inner = counts
    each = nbytes // outer
    if each <= most:
        at_once = most // each
        bursts = -(-outer // at_once)
        rest = outer - (bursts - 1) * at_once
        return _Cut(nbytes, bursts, at_once * each, rest * each)
    if inner:
        one = _cut(tuple(inner), row_bytes, most)
        return one._replace(nbytes=nbytes, bursts=outer * one.bursts)
    bursts = -(-row_bytes // most)
    rest = row_bytes - (bursts - 1) * most
    return _Cut(nbytes, outer * bursts, most, rest)


def _put_rows(trace: Trace, pieces: _Pieces, found: BurstBytes) -> None:
    """Put the bytes of bursts of rows in the place of others.

    A transaction is that piece of its op which has as many bytes and bursts. Of several
    alike the first that was sent is the first in the op's params.
    """
    log = trace.transfers
    has_rows = np.zeros(len(trace.order) + 1, np.bool_)  # the last is of no op: -1
    has_rows[pieces.op] = True
    row = log.row[:]
    mine = np.flatnonzero(has_rows[row] & (log.bursts[:] > 1))
    mine = mine[np.argsort(log.t0[mine], kind="stable")]
    moved = np.stack([row[mine], log.nbytes[mine], log.bursts[mine]]).astype(np.float64)
    wanted = np.stack([pieces.op, pieces.nbytes, pieces.bursts])
    keys = np.concatenate([_numbered(wanted), _numbered(moved)], 1)
    # A transaction, where it has a piece, comes right behind that.
    order = np.lexsort(keys[::-1])
    same = (np.diff(keys[:, order]) == 0).all(0)
    at = np.flatnonzero(same)
    piece = order[at]
    transaction = mine[order[at + 1] - len(pieces.op)]
    found.first[transaction] = pieces.first[piece]
    found.last[transaction] = pieces.last[piece]


def _numbered(keys: Array) -> Array:
    """Some columns, and below them the number of each among its equals, from 0 on."""
    order = np.lexsort(keys[::-1])
    is_new = np.ones(len(order), np.bool_)
    is_new[1:] = (np.diff(keys[:, order]) != 0).any(0)
    number = np.empty(len(order))
    number[order] = places_in_runs(is_new)
    return np.concatenate([keys, number[None]])
