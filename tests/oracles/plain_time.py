"""Who was busy when, by looking at every op: intervals, brute force."""

from dataclasses import dataclass
from itertools import pairwise
from math import prod

import numpy as np
import plain_ops
from plain_frames import REASONS

KINDS = ("compute", "load", "store", *REASONS, "issue", "unexplained", "idle")
NO_CALL = 4294967295


def in_flight(recording, time):
    """The positions of the ops that were in service at a time."""
    return [op.position for op in recording.ops if op.t_start <= time < op.t_end]


def spec(recording, path):
    """A field of the machine by its dotted path."""
    found = recording.head["spec"]
    for name in path.split("."):
        found = found[name]
    return found


def launch_window(recording):
    """From the first start to the last end of a launch; of none the whole run."""
    if not recording.launches:
        return 0.0, recording.end["end_ns"]
    starts = [launch["t_start"] for launch in recording.launches]
    ends = [launch["t_end"] for launch in recording.launches]
    return min(starts), max(ends)


def letter(op):
    """The class of an op as the page about the timeline says."""
    if op.name.startswith("composite_"):
        return "C"
    if op.name.startswith("host_"):
        return "H"
    stages = {
        "TileToken/DMA_READ": "R",
        "TileToken/DMA_WRITE": "W",
        "TileToken/FETCH": "F",
        "TileToken/STORE": "S",
        "TileToken/GEMM": "G",
        "TileToken/MATH": "M",
        "dma_write": "W",
        "ipcq_copy": "W",
    }
    if op.name in stages:
        return stages[op.name]
    return {"memory": "R", "gemm": "G", "math": "M", "unknown": "?"}[op.kind]


def covered(spans, t0, t1):
    """The time of a window that at least one of some spans covers."""
    total = 0.0
    until = t0
    for low, high in sorted(spans):
        low = max(low, until)
        high = min(high, t1)
        if high > low:
            total += high - low
            until = high
    return total


# -- the time of a PE -------------------------------------------------------------


def place(recording, node):
    """SIP, cube and PE of a node."""
    row = recording.nodes[node]
    return row["sip"], row["cube"], row["pe"]


class Ledger:
    """Where the time of a pe_cpu went: ns by call and kind, and what was waited for."""

    def __init__(self, recording, pe, t0, t1):
        self.by_call = {}
        self.meanwhile = {"load": {}, "store": {}}
        issue_ns = spec(recording, "pe.cpu.issue_cycles") / spec(
            recording, "pe.clock_ghz"
        )
        calls = [c for c in recording.calls if c["pe"] == pe and c["launch"] >= 0]
        calls.sort(key=lambda call: call["t_issue"])
        for number, call in enumerate(calls):
            until = call["t_resume"]
            if number + 1 < len(calls):
                until = min(until, calls[number + 1]["t_issue"])
            low = max(call["t_issue"], t0)
            high = min(until, t1)
            if low >= high:
                continue
            spans = _spans(recording, pe, call)
            spans.append(("issue", call["t_issue"], call["t_issue"] + issue_ns))
            times = self.by_call.setdefault(call["cmd"], dict.fromkeys(KINDS, 0.0))
            self._cut(spans, low, high, times)

    def _cut(self, spans, low, high, times):
        """Add the pieces of one call's time."""
        edges = {low, high}
        for _, t0, t1 in spans:
            edges |= {t for t in (t0, t1) if low < t < high}
        edges = sorted(edges)
        for begin, end in pairwise(edges):
            holds = {kind for kind, t0, t1 in spans if t0 <= begin and end <= t1}
            kind = next((kind for kind in KINDS if kind in holds), "unexplained")
            times[kind] += end - begin
            reason = next((reason for reason in REASONS if reason in holds), None)
            if kind in self.meanwhile and reason is not None:
                waited = self.meanwhile[kind]
                waited[reason] = waited.get(reason, 0.0) + end - begin

    def total(self, kind):
        """The time of one kind in all calls."""
        return sum(times[kind] for times in self.by_call.values())


def _spans(recording, pe, call):
    """(kind, from, to) of what the ops do that a call waits for."""
    awaited = call["awaits"]
    if awaited == NO_CALL:
        awaited = call["cmd"]
    kinds = {"G": "compute", "M": "compute", "R": "load", "F": "load"}
    kinds |= {"W": "store", "S": "store"}
    set_up = spec(recording, "pe.dma.setup_ns")
    spans = []
    for op in recording.ops:
        if op.cmd != awaited:
            continue
        begin = op.t_start
        if place(recording, op.node) != place(recording, pe):
            begin -= set_up  # a push is recorded where it goes to, once it is set up
        if letter(op) in kinds:
            spans.append((kinds[letter(op)], begin, op.t_end))
    for wait in recording.waits:
        if wait["cmd"] == awaited:
            spans.append((REASONS[wait["reason"]], wait["t0"], wait["t1"]))
    return spans


# -- links ------------------------------------------------------------------------


@dataclass
class Hop:
    """A burst of a transaction on one link: its bytes, and when they passed.

    ``came`` is since when it waited for the link; None for one that waits for a memory,
    or that follows its first burst out of where they come from.
    """

    edge: int
    transfer: dict
    start: float
    end: float
    nbytes: float
    came: float | None
    is_first: bool


def burst_sizes(recording, transfer):
    """The bytes of each burst of a transfer, in order.

    A burst has as many whole rows of a DMA as fit, or as many whole planes of rows. Of
    the blocks of a tile that are alike the first that is sent is the first in order.
    """
    most = spec(recording, "pe.dma.burst_bytes")
    if transfer["bursts"] == 1:
        return [transfer["nbytes"]]
    moved = []
    row = transfer["row"]
    if row < len(recording.rows):
        for counts, row_bytes in _shapes(recording.rows[row]):
            moved.append(_sizes(counts, row_bytes, most))
    size = (transfer["nbytes"], transfer["bursts"])
    fitting = [sizes for sizes in moved if (sum(sizes), len(sizes)) == size]
    if not fitting:
        return _sizes((), transfer["nbytes"], most)
    alike = [
        other
        for other in recording.of_row("transfers", row)
        if (other["nbytes"], other["bursts"]) == size
    ]
    alike.sort(key=lambda other: other["t0"])
    return fitting[alike.index(transfer)]


def _shapes(op):
    """What an op moves in rows: how many there are of each axis, and bytes of a row."""
    p = op.params
    if "rows" not in p:
        return
    if op.name.startswith("TileToken"):
        for rows, row_bytes in zip(p["rows"], p["row_bytes"], strict=True):
            yield (rows,), row_bytes
    else:
        planes = [count for count, _ in p.get("planes", ())]
        yield (*planes, p["rows"]), p["row_bytes"]


def _sizes(counts, row_bytes, most):
    """The bytes of each burst of so many rows, of which ``most`` fit into one."""
    whole = prod(counts) * row_bytes
    if whole <= most:
        return [whole]
    if not counts:
        return [min(most, whole - at) for at in range(0, whole, most)]
    each = whole // counts[0]
    if each > most:
        return _sizes(counts[1:], row_bytes, most) * counts[0]
    at_once = most // each
    return [min(at_once, counts[0] - at) * each for at in range(0, counts[0], at_once)]


def hops(recording):
    """The first burst of every transfer on every link, and the last if there are more.

    Of what is between no times are recorded: it is taken as one that fills the gap.
    """
    edges = {}
    for number, edge in enumerate(recording.edges):
        edges[edge["src"], edge["dst"]] = number
    per_mm = spec(recording, "system.ns_per_mm")
    memories = ("hbm_ctrl", "sram")
    for transfer in recording.transfers:
        path = recording.paths[transfer["path"]]
        links = list(pairwise(path))
        bursts = transfer["bursts"]
        every = burst_sizes(recording, transfer)
        sizes = [every[0], every[-1]][:bursts]
        first = recording.strings[recording.nodes[path[0]]["type"]]
        for number, nbytes in enumerate(sizes):
            starts = transfer["start"][number * len(links) :]
            came = transfer["t0"]
            if first in memories or number:
                came = None
            for place, (link, start) in enumerate(zip(links, starts, strict=False)):
                if came is not None and number:
                    came = max(came, transfer["start"][place])
                edge = edges[link]
                end = start + nbytes / recording.edges[edge]["bandwidth_gbs"]
                yield Hop(edge, transfer, start, end, nbytes, came, not number)
                last = transfer["start"][-len(links) :][place]
                if bursts > 2 and not number and last > end:
                    more = sum(every[1:-1])
                    yield Hop(edge, transfer, end, last, more, None, False)
                wire = recording.edges[edge]["distance_mm"] * per_mm
                header_ns = wire + recording.nodes[link[1]]["overhead_ns"]
                # A hop's wire and overhead are rounded together, to 2^-10 ns.
                came = start + round(header_ns * 1024) / 1024


def link_loads(recording, t0, t1):
    """By edge the bytes in a window, the share of it, and the longest queue."""
    moved = {}
    waiting = {}
    for hop in hops(recording):
        inside = max(min(hop.end, t1) - max(hop.start, t0), 0.0)
        nbytes = hop.nbytes * inside / (hop.end - hop.start)
        moved[hop.edge] = moved.get(hop.edge, 0.0) + nbytes
        if hop.came is not None and hop.start > hop.came + 1e-6:
            waiting.setdefault(hop.edge, []).append((hop.came, hop.start - 1e-6))
    found = {}
    for edge, nbytes in moved.items():
        if nbytes > 1e-6:
            busy = nbytes / recording.edges[edge]["bandwidth_gbs"] / (t1 - t0)
            queue = _most(waiting.get(edge, []), t0, t1)
            found[edge] = (nbytes, min(busy, 1.0), queue)
    return found


def _most(spans, t0, t1):
    """How many spans hold at once in a window, at most."""
    best = 0
    for begin in [t0, *(low for low, _ in spans)]:
        if t0 <= begin < t1:
            best = max(best, sum(low <= begin < high for low, high in spans))
    return best


# -- hazards ----------------------------------------------------------------------

CONFLICTS = {
    ("r", "w"): "write over bytes that are being read",
    ("w", "r"): "read of bytes whose writer is in flight",
    ("w", "w"): "overlapping writes in flight",
}
NEVER_WRITTEN = "read of bytes never written"
OUTSIDE = "access outside its allocation"


def conflicts(recording):
    """(kind, space, layout, later op, earlier op) of bytes that are used twice at once.

    One of any two accesses, however many rows of bytes they share. What was in flight
    in this run: a store of a DMA from its issue, other accesses while their op was in
    service; what a queue pushes is read when that begins. Not the host's transfers, and
    not two DMAs of one PE in HBM, which are in order.
    """
    touched = []
    for op in recording.ops:
        if op.name.startswith("host_"):
            continue
        for mode, region in plain_ops.touched(op):
            begin = op.t_start
            end = op.t_end
            call = recording.call_of(op)
            if op.name == "dma_write" and mode == "w" and call is not None:
                begin = min(begin, call["t_issue"])
            if op.name == "ipcq_copy" and mode == "r":
                end = begin
            is_dma = op.name in ("dma_read", "dma_write") and region.space == "hbm"
            lane = place(recording, op.node) if is_dma else None
            touched.append((begin, end, op.position, mode, region, lane))
    found = set()
    begins = np.array([access[0] for access in touched])
    lows = np.array([access[4].addr for access in touched])
    highs = np.array([access[4].end for access in touched])
    for number, (begin, end, op, mode, region, lane) in enumerate(touched):
        spans_meet = (lows < highs[number]) & (lows[number] < highs)
        times_meet = (begins >= begin) & (begins < end)
        for other in np.flatnonzero(spans_meet & times_meet).tolist():
            at, _, later, other_mode, place_there, other_lane = touched[other]
            is_later = at > begin or (at == begin and other > number)
            in_order = lane is not None and lane == other_lane
            kind = CONFLICTS.get((mode, other_mode))
            if is_later and not in_order and kind and later != op:
                both = plain_ops.shared(region, place_there)
                if both is not None:
                    found.add((kind, region.space, both, later, op))
    return found


def never_written(memory):
    """(kind, space, address, op) of reads: the first byte that nobody wrote before."""
    found = set()
    for op in memory.recording.ops:
        for region in plain_ops.reads(op):
            for addr in sorted(region.addresses):
                if memory.writer(region.space, addr, op.position - 1) is None:
                    found.add((NEVER_WRITTEN, region.space, addr, op.position))
                    break
    return found


def outside(recording):
    """(kind, space, address, op) of accesses that no allocation holds whole.

    The address is that of the first row that is not in those which hold the beginning.
    """
    found = set()
    for op in recording.ops:
        for _, region in plain_ops.touched(op):
            pieces = sorted(region.pieces, key=lambda piece: piece.addr)
            end = _held_to(recording, pieces[0])
            for piece in pieces:
                if piece.end > end:
                    found.add((OUTSIDE, region.space, piece.addr, op.position))
                    break
    return found


def _held_to(recording, piece):
    """How far the allocations reach that hold the beginning of a piece."""
    ends = [
        alloc["addr"] + alloc["nbytes"]
        for alloc in recording.allocs
        if alloc["space"] == piece.space and alloc["addr"] <= piece.addr
    ]
    return max(ends, default=0)
