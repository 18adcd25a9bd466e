"""Names and bytes: which allocation holds what, and where the elements of one lie."""

from itertools import product
from typing import NamedTuple

import numpy as np
from plain_frames import DTYPES


class Place(NamedTuple):
    """A text that names elements, and the address of each of their bytes, ascending."""

    text: str
    space: str
    addresses: list
    dtype: str


def itemsize(dtype):
    return np.dtype(DTYPES[dtype]).itemsize


def tensors(recording):
    """The allocations of each tensor of the host by name, all copies."""
    found = {}
    for alloc in recording.allocs:
        if alloc["va"]:
            found.setdefault(alloc["tensor"], []).append(alloc)
    return found


def copies(recording):
    """The allocations by the name to ask for them: those of one owner if copied."""
    found = {}
    for name, allocs in tensors(recording).items():
        boxes = [(alloc["origin"], alloc["shape"]) for alloc in allocs]
        if len(set(boxes)) == len(boxes):
            found[name] = allocs
            continue
        for alloc in allocs:
            found.setdefault(f"{name}@{alloc['owner']}", []).append(alloc)
    return found


def whole_shape(allocs):
    """The shape of the tensor that allocations are parts of."""
    ends = []
    for alloc in allocs:
        pairs = zip(alloc["origin"], alloc["shape"], strict=True)
        ends.append([origin + extent for origin, extent in pairs])
    return tuple(max(axis) for axis in zip(*ends, strict=True))


def address_of(allocs, index):
    """Where an element lies, by its index in the whole tensor."""
    for alloc in allocs:
        inside = [i - o for i, o in zip(index, alloc["origin"], strict=True)]
        pairs = zip(inside, alloc["shape"], strict=True)
        if all(0 <= i < extent for i, extent in pairs):
            flat = 0
            for i, extent in zip(inside, alloc["shape"], strict=True):
                flat = flat * extent + i
            return alloc["addr"] + flat * itemsize(alloc["dtype"])
    return None


def random_place(rng, name, allocs):
    """A random box of a tensor as a text, with the bytes of its elements."""
    shape = whole_shape(allocs)
    spans = []
    words = []
    for extent in shape:
        low = rng.randrange(extent)
        kind = rng.randrange(4)
        if kind == 0:
            low, high = 0, extent
            words.append(":")
        elif kind == 1:
            high = rng.randint(low + 1, extent)
            words.append(f"{low}:{high}")
        elif kind == 2:
            high = low + 1
            words.append(str(low - extent))
        else:
            high = low + 1
            words.append(str(low))
        spans.append(range(low, high))
    return place_of(f"{name}[{', '.join(words)}]", allocs, spans)


def place_of(text, allocs, spans):
    """A place: the elements at all indices of ``spans``."""
    dtype = allocs[0]["dtype"]
    size = itemsize(dtype)
    addresses = []
    for index in product(*spans):
        low = address_of(allocs, index)
        addresses += range(low, low + size)
    return Place(text, allocs[0]["space"], sorted(addresses), dtype)


def bytes_place(space, addr, nbytes):
    """A place by address."""
    addresses = list(range(addr, addr + nbytes))
    return Place(f"{space} {addr:#x}:{nbytes}", space, addresses, "u8")


def holder(recording, space, addr, op):
    """The allocation that an op meant by an address; None if there is none.

    Of those that hold the address it is the last that was made by the op's call.
    """
    found = None
    for alloc in recording.allocs:
        inside = alloc["addr"] <= addr < alloc["addr"] + alloc["nbytes"]
        if alloc["space"] == space and inside and alloc["cmd"] <= op.cmd:
            found = alloc
    return found


def made_at(recording, alloc):
    """The position from which on an allocation is there: the first op of its call.

    Of a call that has no op the first op of any later one.
    """
    later = [op for op in recording.ops if op.cmd >= alloc["cmd"]]
    own = [op.position for op in later if op.cmd == alloc["cmd"]]
    return min(own or [op.position for op in later], default=len(recording.ops))


def losers(recording, position):
    """The numbers of the scratch allocations that another has a byte of by a position.

    Byte by byte: each belongs to who was made last.
    """
    there = []
    for number, alloc in enumerate(recording.allocs):
        made = made_at(recording, alloc)
        if made <= position:
            there.append((made, number))
    owners = {}
    lost = set()
    for made, number in sorted(there):
        alloc = recording.allocs[number]
        for addr in range(alloc["addr"], alloc["addr"] + alloc["nbytes"]):
            before = owners.get((alloc["space"], addr))
            if before is not None and before[0] < made:
                lost.add(before[1])
            owners[alloc["space"], addr] = (made, number)
    return {number for number in lost if not recording.allocs[number]["va"]}


def name_to_ask(recording, alloc):
    """The name to ask for an allocation by: the owner of another copy than the first
    is said.
    """
    for other in recording.allocs:
        alike = (other["tensor"], other["origin"]) == (alloc["tensor"], alloc["origin"])
        if alloc["va"] and other["va"] and alike:
            is_first = other["addr"] == alloc["addr"]
            return (
                alloc["tensor"] if is_first else f"{alloc['tensor']}@{alloc['owner']}"
            )
    return name_of(alloc)


def name_of(alloc):
    """The name of an allocation: that of scratch has its owner."""
    return alloc["tensor"] if alloc["va"] else f"{alloc['tensor']}@{alloc['owner']}"
