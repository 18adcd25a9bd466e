"""Which ops are before which: every edge of docs/memory-model.md, and reachability.

A node is the issue or the return of a call, or the start or the end of an op; a push
into a slot has a third, when its source has been read. All pairs of accesses are
compared, byte by byte. For recordings of some hundred ops without ranks.
"""

from collections import defaultdict
from itertools import combinations, pairwise
from typing import NamedTuple

import plain_ops

NO_CALL = 4294967295
IN_TURN = "Sends and recvs in turn"
IN_ORDER = ("pe_gemm", "pe_math", "pe_scheduler")


class _Caused(NamedTuple):
    """What a call has caused."""

    cmd: int


class Order:
    """The graph of a recording, and what is reached from each node."""

    def __init__(self, recording):
        self.recording = recording
        self.edges = defaultdict(set)
        self.by_kind = defaultdict(set)
        self.calls = sorted(
            (call for call in recording.calls if call["launch"] >= 0),
            key=lambda call: call["cmd"],
        )
        self.by_pe = defaultdict(list)
        for call in self.calls:
            self.by_pe[call["pe"]].append(call["cmd"])
        self.ops_of = defaultdict(list)
        for op in recording.ops:
            if self.is_kernels(op):
                self.ops_of[op.cmd].append(op)
        self._program_order()
        self._engines()
        self._queues()
        self._launches()
        self.reached = self._closure()

    def is_kernels(self, op):
        """Whether a call of a kernel has issued an op."""
        call = self.recording.call_of(op)
        return call is not None and call["launch"] >= 0

    def edge(self, kind, before, after):
        """``kind`` is a heading of the page."""
        self.edges[before].add(after)
        self.by_kind[kind].add((before, after))

    def _program_order(self):
        """Calls of a PE in turn, ops behind their issue, waits behind what ended."""
        exits = {}
        for call in self.calls:
            cmd = call["cmd"]
            self.edge("Program order", ("issue", cmd), ("return", cmd))
            for op in self.ops_of[cmd]:
                self.edge("Program order", ("issue", cmd), ("start", op.row))
                steps = ["start", *dict.fromkeys([self.ended(op), "end"])]
                for before, after in pairwise(steps):
                    self.edge("Program order", (before, op.row), (after, op.row))
            if call["awaits"] != NO_CALL:
                for op in self.ops_of[call["awaits"]]:
                    self.edge("Wait", (self.ended(op), op.row), ("return", cmd))
            if self.recording.strings[call["call"]] == "exit":
                exits[call["pe"], call["launch"]] = cmd
        for mine in self.by_pe.values():
            for before, after in pairwise(mine):
                self.edge("Program order", ("return", before), ("issue", after))
        for call in self.calls:
            end = exits.get((call["pe"], call["launch"]))
            for op in self.ops_of[call["cmd"]]:
                if end is not None:
                    ended = self.ended(op), op.row
                    self.edge("End of a kernel", ended, ("return", end))
        self.exits = exits

    @staticmethod
    def ended(op):
        """What whoever waits for an op waits for; of a push that it has been read."""
        return "read" if op.name == "ipcq_copy" else "end"

    def _engines(self):
        """Engines that serve one op after the other, as they were issued."""
        served = defaultdict(list)
        for op in sorted(self.recording.ops, key=lambda op: (op.cmd, op.position)):
            engine = op.component.rpartition(".")[2]
            is_tile = op.name.startswith("TileToken")
            if engine in IN_ORDER and not is_tile and self.is_kernels(op):
                served[op.component].append(op)
        for ops in served.values():
            for before, after in pairwise(ops):
                ended = "end", before.row
                self.edge("In-order engines", ended, ("start", after.row))

    def ring(self, space, addr):
        """The name of the ring that a slot lies in."""
        for alloc in self.recording.allocs:
            begin = alloc["addr"]
            is_in = begin <= addr < begin + alloc["nbytes"]
            if (
                alloc["tensor"].startswith("ipcq.")
                and alloc["space"] == space
                and is_in
            ):
                return alloc["tensor"]
        raise AssertionError(f"no ring at {space} {addr:#x}")

    def _queues(self):
        """What is pushed is taken in turn, sends and recvs of a ring one by one."""
        pushed = defaultdict(list)
        taken = defaultdict(list)
        sends = defaultdict(list)
        recvs = defaultdict(list)
        self.slots = {}
        for op in self.recording.ops:
            if op.name == "ipcq_copy":
                slot = op.params["dst_space"], op.params["dst_addr"]
                pushed[slot].append(op)
                sends[self.ring(*slot)].append(op)
            elif op.name == "ipcq_recv":
                slot = op.params["src_space"], op.params["src_addr"]
                taken[slot].append(op)
                recvs[self.ring(*slot)].append(op)
            else:
                continue
            self.slots[op.row] = self.ring(*slot)
        self.early = set()
        for slot, copies in pushed.items():
            recvs_here = taken[slot]
            for copy, recv in zip(copies, recvs_here, strict=False):
                self.edge("Message", ("end", copy.row), ("start", recv.row))
            for recv, again in zip(recvs_here, copies[1:], strict=False):
                if not self._is_given_back_in_time(recv):
                    self.early.add(frozenset((recv.row, again.row)))
        for ops in recvs.values():
            for before, after in pairwise(sorted(ops, key=lambda op: op.t_start)):
                self.edge(IN_TURN, ("end", before.row), ("start", after.row))
        for ops in sends.values():
            for one in ops:
                for other in ops:
                    if one.cmd < other.cmd:
                        self.edge(IN_TURN, ("read", one.row), ("start", other.row))

    def _is_given_back_in_time(self, recv):
        """Whether the credit of a slot was sent when the slot had been read.

        A credit is a transaction of the recv's call and of no op; the k-th is that of
        the k-th slot that the call took.
        """
        credits = []
        for sent in self.recording.of_row("transfers", NO_CALL):
            path = self.recording.paths[sent["path"]]
            ends = {self.recording.strings[path[at]] for at in (0, -1)}
            is_credit = all(end.endswith("pe_ipcq") for end in ends)
            if sent["cmd"] == recv.cmd and is_credit:
                credits.append(sent["t0"])
        mine = sorted(
            op.t_end
            for op in self.recording.ops
            if op.cmd == recv.cmd and op.name == "ipcq_recv"
        )
        at = mine.index(recv.t_end)
        return at < len(credits) and sorted(credits)[at] >= recv.t_end

    def _launches(self):
        """All kernels of a launch have ended before those of the next one begin."""
        firsts = {}
        for call in self.calls:
            firsts.setdefault((call["pe"], call["launch"]), call["cmd"])
        for (_, launch), end in self.exits.items():
            for (_, later), first in firsts.items():
                if launch < later:
                    self.edge("Launch", ("return", end), ("issue", first))

    def _closure(self):
        """By node a number whose bits are the nodes that can be reached from it."""
        order = []
        state = {}
        for root in [*self.edges]:
            stack = [(root, iter(self.edges[root]))]
            if root in state:
                continue
            state[root] = 1
            while stack:
                node, after = stack[-1]
                for other in after:
                    assert state.get(other) != 1, f"a circle: {[n for n, _ in stack]}"
                    if other not in state:
                        state[other] = 1
                        stack.append((other, iter(self.edges.get(other, ()))))
                        break
                else:
                    state[node] = 2
                    order.append(node)
                    stack.pop()
        self.bit = {node: i for i, node in enumerate(order)}
        reached = {}
        for node in order:
            bits = 1 << self.bit[node]
            for other in self.edges.get(node, ()):
                bits |= reached[other]
            reached[node] = bits
        return reached

    def reaches(self, before, after):
        if before not in self.reached or after not in self.bit:
            return False
        return bool(self.reached[before] >> self.bit[after] & 1)

    def is_before(self, a, b):
        """Whether access ``a`` (op, mode, region) is before access ``b``.

        Beside the graph two ops are in order for the bytes that they share where both
        go through one slot, are DMAs of one PE in HBM, or where the second writes what
        the first, of the same PE, sends.
        """
        if self.kind_of_pair(a, b):
            return True
        one, mode, _ = a
        other = b[0]
        if one.name == "ipcq_copy" and mode == "r":
            return self.reaches(("read", one.row), ("issue", other.cmd)) or (
                self.reaches(("end", one.row), ("issue", other.cmd))
            )
        if self.reaches(("end", one.row), ("issue", other.cmd)):
            return True
        in_turn = self.is_served_in_turn(one, other)
        return in_turn and self.reaches(("end", one.row), ("start", other.row))

    def kind_of_pair(self, a, b):
        """By which heading two accesses are in order, for the bytes that both have."""
        one, mode, region = a
        other, other_mode, there = b
        ring = self.slots.get(one.row)
        is_ring = ring is not None and self.slots.get(other.row) == ring
        if is_ring and self._is_slot(one, mode) and self._is_slot(other, other_mode):
            is_early = frozenset((one.row, other.row)) in self.early
            return "" if is_early else "Slot"
        if self.pe(one) != self.pe(other):
            return ""
        dmas = ("dma_read", "dma_write")
        both = region.space == there.space == "hbm"
        if both and one.name in dmas and other.name in dmas:
            return "DMAs of one PE in HBM"
        if (one.name, mode) == ("ipcq_copy", "r") and one.cmd < other.cmd:
            return "Source of a send"
        return ""

    def is_served_in_turn(self, one, other):
        """Whether one engine, or the recvs of one ring, serve both."""
        engine = one.component.rpartition(".")[2]
        if engine in IN_ORDER:
            return one.component == other.component
        recvs = {one.name, other.name} == {"ipcq_recv"}
        return recvs and self.slots[one.row] == self.slots[other.row]

    def time(self, node):
        """When a node was, ns; of a push the start for when its source was read."""
        step, number = node
        if step in ("issue", "return"):
            column = "t_issue" if step == "issue" else "t_resume"
            return self.recording.call_of(_Caused(number))[column]
        op = self.recording.rows[number]
        return op.t_end if step == "end" else op.t_start

    @staticmethod
    def _is_slot(op, mode):
        return (op.name, mode) in (("ipcq_copy", "w"), ("ipcq_recv", "r"))

    def pe(self, op):
        return self.recording.call_of(op)["pe"]


def has_ranks(recording):
    """Whether kernels of two launches ran at a time, as only those of ranks do."""
    spans = defaultdict(list)
    for call in recording.calls:
        if call["launch"] >= 0:
            spans[call["launch"]] += [call["t_issue"], call["t_resume"]]
    by_start = sorted((min(times), max(times)) for times in spans.values())
    return any(end > start for (_, end), (start, _) in pairwise(by_start))


def races(recording, order=None):
    """(earlier op, later op) of accesses to one byte, one a write, in no order."""
    order = order or Order(recording)
    touched = defaultdict(list)
    for op in recording.ops:
        if not order.is_kernels(op):
            continue
        for mode, region in plain_ops.touched(op):
            for addr in set(region.addresses):
                touched[region.space, addr].append((op, mode, region))
    found = set()
    known = {}
    for accesses in touched.values():
        for one, other in combinations(accesses, 2):
            if one[0].row == other[0].row or "w" not in (one[1], other[1]):
                continue
            key = one[0].row, one[1], other[0].row, other[1], one[2].space
            if key not in known:
                known[key] = order.is_before(one, other)
            if not known[key]:
                found.add((one[0].position, other[0].position))
    return found
