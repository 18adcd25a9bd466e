"""What a run may leave if bytes move when they move, and not all at once at the start.

An op reads its operands at some moment between its start and its end and writes its
result at a later one. Phase 2 executes each op whole as it starts, so a use of what is
still on its way comes out right there. On a machine it would not. What a program leaves
that waits for all it uses does not depend on those moments.

Nothing of the debugger is used, and nothing here knows what orders two ops: the times
of a recording say when each has run, and its params what it does.
"""

import random
import sys
from bisect import bisect_right
from math import inf
from pathlib import Path
from typing import NamedTuple

import msgpack
import numpy as np

sys.path.append(str(Path(__file__).parents[1] / "oracles"))

import plain_frames
import plain_ops

UNWRITTEN = 0x7E
"""Each byte that nobody has written: not a number as f16, a large one as f32."""

_SKIPPED = ("transfers", "waits")
"""Frames that are not needed, and take most of the time to read."""

_HELD_WHOLE = ("ipcq_copy", "ipcq_recv")
"""What is sent is read as it leaves, and received when all of it has landed."""


def read(path):
    """The recording in a file, without transfers and waits."""
    with open(path, "rb") as file:
        frames = [*msgpack.Unpacker(file, max_buffer_size=0)]
    return plain_frames.from_frames(
        frame for frame in frames if frame[0] not in _SKIPPED
    )


class Step(NamedTuple):
    """An op, and where its operands and its result are kept."""

    op: plain_frames.Op
    operands: list
    result: object


class Execution:
    """A recording that can be executed more than once, at other moments each time."""

    def __init__(self, recording):
        executed = [op for op in recording.ops if op.kind != "unknown"]
        regions = []
        for op in executed:
            regions += plain_ops.reads(op)
            if plain_ops.write(op) is not None:
                regions.append(plain_ops.write(op))
        shards = {}
        for alloc in recording.allocs:
            if alloc["space"] == "hbm" and alloc["va"]:
                where = (alloc["tensor"], alloc["addr"])
                shards[where] = plain_ops.Bytes(
                    "hbm", alloc["addr"], (alloc["nbytes"],), "u8"
                )
        self._lay_out([*regions, *shards.values()])
        self._shards = {where: self._places(shard) for where, shard in shards.items()}
        self._steps = [self._step(op) for op in executed]
        self._taken_by = self._first_takers()

    def _first_takers(self):
        """By when each DMA has to have read or written memory; inf: by its end.

        What a PE stores is visible to its own later loads and stores when it is issued
        (docs/tl.md), so a DMA takes effect before a later one of its PE there begins.
        """
        found = [inf] * len(self._steps)
        under_way = {}
        for number, step in enumerate(self._steps):
            op = step.op
            if op.name not in ("dma_read", "dma_write"):
                continue
            earlier = under_way.setdefault(op.component, [])
            earlier[:] = [n for n in earlier if self._steps[n].op.t_end > op.t_start]
            for other in earlier:
                if _meet_in_memory(self._steps[other].op, op):
                    found[other] = min(found[other], op.t_start)
            earlier.append(number)
        return found

    def _step(self, op):
        """An op with the places of what it touches."""
        written = plain_ops.write(op)
        result = None
        if written is not None:
            result = self._places(written)
        operands = [(region, self._places(region)) for region in plain_ops.reads(op)]
        return Step(op, operands, result)

    def _lay_out(self, regions):
        """Find the memory that is touched, and where each part of it is kept."""
        spans = {}
        for region in regions:
            spans.setdefault(region.space, []).append((region.addr, region.end))
        self._starts = {}
        self._offsets = {}
        size = 0
        for space, mine in spans.items():
            merged = []
            for low, high in sorted(mine):
                if merged and low <= merged[-1][1]:
                    merged[-1][1] = max(high, merged[-1][1])
                else:
                    merged.append([low, high])
            self._starts[space] = [low for low, _ in merged]
            self._offsets[space] = []
            for low, high in merged:
                self._offsets[space].append(size)
                size += high - low
        self._size = size

    def _places(self, region):
        """Where the bytes of a region are, in order: a slice, or an index of each."""
        part = bisect_right(self._starts[region.space], region.addr) - 1
        first = self._starts[region.space][part]
        offset = self._offsets[region.space][part]
        if not region.rows:
            low = offset + region.addr - first
            return slice(low, low + region.nbytes)
        rows = np.array(region.rows) - first + offset
        return (rows[:, None] + np.arange(region.row_bytes)).reshape(-1)

    def in_order(self):
        """The bytes of each tensor if each op reads and writes as it starts."""
        memory = np.full(self._size, UNWRITTEN, np.uint8)
        for step in self._steps:
            self._write(memory, step, self._read(memory, step))
        return self._left(memory)

    def late(self, seed):
        """The bytes of each tensor if each op reads and writes while it runs.

        At an instant what is written is written before anything is read.
        """
        rng = random.Random(seed)
        moments = []
        for number, step in enumerate(self._steps):
            reads, writes = moments_of(step.op, rng)
            until = self._taken_by[number]
            if step.op.name == "dma_write":
                writes = min(writes, until)
            moments.append((min(reads, until), 1, number))
            moments.append((writes, 0, number))
        memory = np.full(self._size, UNWRITTEN, np.uint8)
        under_way = {}
        for _, is_read, number in sorted(moments):
            step = self._steps[number]
            if number not in under_way:
                under_way[number] = self._read(memory, step)
            if not is_read:
                self._write(memory, step, under_way[number])
        return self._left(memory)

    def _read(self, memory, step):
        """The operands of an op, as they are now."""
        if step.op.kind == "memory" and not step.operands:
            return plain_ops.snapshots(step.op)  # what the host writes
        operands = []
        for region, places in step.operands:
            held = memory[places].copy()
            dtype = plain_frames.DTYPES[region.dtype]
            operands.append(held.view(dtype).reshape(region.shape))
        return operands

    def _write(self, memory, step, operands):
        """Put the result of an op where it belongs."""
        if step.result is not None:
            result = plain_ops.compute(step.op, operands)
            flat = np.ascontiguousarray(result).reshape(-1)
            memory[step.result] = flat.view(np.uint8)

    def _left(self, memory):
        """The bytes of each piece of a tensor of the host, by its name and address."""
        return {
            where: memory[places].tobytes() for where, places in self._shards.items()
        }


def _meet_in_memory(one, other):
    """Whether two DMAs touch the same bytes of HBM, and one of them writes there."""
    if one.name == other.name == "dma_read":
        return False
    sides = []
    for op in (one, other):
        side = plain_ops.write(op)
        if op.name == "dma_read":
            (side,) = plain_ops.reads(op)
        sides.append(side)
    return plain_ops.shared(*sides) is not None


def moments_of(op, rng):
    """When an op reads, and when it writes: while it runs, in that order."""
    if op.name in _HELD_WHOLE:
        return op.t_start, op.t_end
    first = rng.choice([0.0, rng.random(), 1.0])
    second = rng.choice([rng.random(), 1.0])
    reads = op.t_start + first * (op.t_end - op.t_start)
    writes = reads + second * (op.t_end - reads)
    return reads, writes
