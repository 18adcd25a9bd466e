"""Memory byte by byte: what every byte held, who wrote it, and what it was made of."""

from bisect import bisect_right
from collections import defaultdict

import numpy as np
import plain_ops
from plain_frames import DTYPES


class Memory:
    """All writes into every byte of a recording, by executing its ops one by one.

    ``operands`` are by position the arrays that an op computed with: the snapshot where
    there is one, else the bytes of memory. ``stale`` are the positions of ops of which
    a snapshot was not what memory held, ``stale_operands`` counts these snapshots.
    """

    def __init__(self, recording):
        self.recording = recording
        self.bytes = defaultdict(list)
        self.operands = {}
        self.outputs = {}
        self.stale = set()
        self.stale_operands = 0
        for op in recording.ops:
            if op.kind != "unknown":
                self._execute(op)

    def _execute(self, op):
        operands = []
        seen = plain_ops.snapshots(op)
        regions = plain_ops.reads(op)
        for region, snapshot in zip(regions, seen, strict=False):
            held, _ = self.at(region.space, region.addresses, op.position)
            value = held.view(DTYPES[region.dtype]).reshape(region.shape)
            if snapshot is not None:
                if snapshot.tobytes() != value.tobytes():
                    self.stale.add(op.position)
                    self.stale_operands += 1
                value = snapshot.reshape(region.shape)
            operands.append(value)
        if op.kind == "memory" and not regions:
            operands = seen  # what the host writes
        out = plain_ops.write(op)
        if out is None:
            return
        result = plain_ops.compute(op, operands)
        self.operands[op.position] = operands
        self.outputs[op.position] = result
        assert result.nbytes == out.nbytes
        for addr, byte in zip(out.addresses, result.tobytes(), strict=True):
            self.bytes[out.space, addr].append((op.position, byte))

    def last(self, space, addr, position):
        """The last write (position, byte) into a byte by op ``position``, or None."""
        writes = self.bytes.get((space, addr), [])
        count = bisect_right(writes, (position, 256))
        return writes[count - 1] if count else None

    def at(self, space, addresses, position):
        """The bytes after op ``position`` has run, and which of them were written."""
        values = np.zeros(len(addresses), np.uint8)
        written = np.zeros(len(addresses), np.bool_)
        for i, addr in enumerate(addresses):
            last = self.last(space, addr, position)
            if last is not None:
                values[i] = last[1]
                written[i] = True
        return values, written

    def writer(self, space, addr, position):
        """Who wrote a byte last by op ``position``; None if nobody has."""
        last = self.last(space, addr, position)
        return None if last is None else last[0]

    def view(self, region, position):
        """A tensor as it is after op ``position``, and which elements are whole."""
        values, written = self.at(region.space, region.addresses, position)
        whole = written.reshape(-1, region.itemsize).all(axis=1)
        array = values.view(DTYPES[region.dtype]).reshape(region.shape)
        return array, whole.reshape(region.shape)


def slice_of(memory, addresses, position):
    """The ops behind some bytes (space, addr) as they are after op ``position``.

    A dict by op: the elements of its output that went in. And by op how many ops it is
    away from the bytes, by the shortest way from op to op.
    """
    ops = memory.recording.ops
    elements = defaultdict(set)
    made_of = defaultdict(set)
    wanted = defaultdict(set)
    for space, addr in addresses:
        _want(memory, wanted, space, addr, position)
    nearest = set(wanted)
    while wanted:
        number = max(wanted)  # nothing that comes later in the log is asked of it
        elements[number] = wanted.pop(number)
        op = ops[number]
        before = defaultdict(set)
        for element in elements[number]:
            needed = plain_ops.needed(op, element)
            for region, places in zip(plain_ops.reads(op), needed, strict=True):
                for place in places:
                    for addr in region.element(place):
                        _want(memory, before, region.space, addr, number - 1)
        for other, mine in before.items():
            made_of[number].add(other)
            wanted[other] |= mine
    distance = {}
    depth = 0
    while nearest:
        distance |= dict.fromkeys(nearest, depth)
        following = set().union(*(made_of[number] for number in nearest))
        nearest = following - distance.keys()
        depth += 1
    return dict(elements), distance


def _want(memory, level, space, addr, position):
    """Add the element of the op that wrote a byte."""
    writer = memory.writer(space, addr, position)
    if writer is not None:
        out = plain_ops.write(memory.recording.ops[writer])
        level[writer].add(out.addresses.index(addr) // out.itemsize)
