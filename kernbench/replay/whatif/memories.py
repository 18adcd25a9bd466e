"""Controllers of HBM at work: who asks which channel for what, and who is served when.

A re-timing in turns (turns.py) needs to know what a controller does when it is asked at
other times than it was. Each channel is the model of the machine (topology/dram.py) and
serves the oldest command first; what that comes to, burst by burst, is restated from
docs/machine.md, "HBM", as are the bursts that a read has under way at once. Times are
in ns.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Callable
from functools import partial
from heapq import heappop, heappush
from math import inf
from typing import NamedTuple, TypeAlias

import numpy as np

from kernbench.common.arrays import Floats, Ints
from kernbench.common.exact_time import SAME_NS
from kernbench.common.phys_addr import PhysAddr
from kernbench.common.rows import Rows
from kernbench.errors import AddressError, KernbenchError
from kernbench.policy.routing.router import hbm_node
from kernbench.replay.whatif import weights
from kernbench.replay.whatif.machine import Machine, message_ns
from kernbench.replay.whatif.moves import BY_HOST, Moves
from kernbench.replay.whatif.weights import IN_OPEN_ROW
from kernbench.sim_engine.accesses import blocks_of, regions
from kernbench.sim_engine.op_log import OpRecord
from kernbench.topology.dram import ChannelModel, Layout, Share, layout_of, new_channel
from kernbench.topology.spec import HbmSpec
from kernbench.trace import Trace
from kernbench.trace.groups import Groups
from kernbench.trace.hops import tile_columns

Age: TypeAlias = tuple[float, int, int, bool]
"""When a command was issued (ns), its number, the tile of it, and whether that is
written: less is older."""

Action: TypeAlias = Callable[[float], None]
"""What is done at a time, which it is given."""


class MemoryMoves(NamedTuple):
    """The moves of a graph: the nodes at which the first and the last burst leave."""

    moves: Moves
    first: Ints
    last: Ints


class Piece(NamedTuple):
    """A burst's bytes in a memory: what each channel is asked, and from which row."""

    shares: tuple[tuple[int, Share], ...]
    base: int


class Asked(NamedTuple):
    """What a move asks of a controller.

    ``op`` is a row of the log, ``node`` the controller, ``came`` when it was asked
    first, ``turn`` that of who asks. A read asks for the first of its ``pieces`` when
    its request has come, and has ``at_once`` of them under way. The pieces of a write
    ask when they have come, ``apart`` ns after each other. ``first`` and ``left`` are
    the graph's nodes at which the first and the last burst leave. Memory lets these of
    a read come, and of a write the end of the op; ``last`` is what it lets come last.
    ``link_ns`` is how long each piece keeps the first link, or takes to come in.
    ``written_ns`` is what the graph says that passes from a write's coming to its end.
    """

    op: int
    node: int
    turn: int
    is_write: bool
    came: float
    pieces: tuple[Piece, ...]
    first: int
    left: int
    last: int
    at_once: int
    apart: float
    link_ns: tuple[float, ...]
    written_ns: float


# -- what is asked ---------------------------------------------------------------------


class Known(NamedTuple):
    """What was asked of controllers, how old each command is, and by node when memory
    lets it come, ns."""

    asked: list[Asked]
    ages: list[Age]
    served: dict[int, float]


def known_of(
    trace: Trace, machine: Machine, found: MemoryMoves, times: Floats
) -> Known:
    """What is known of the controllers that the model explains; ``times`` is by node.

    A controller is left out that has served somebody sooner than the model does, as one
    of somebody's own may.
    """
    hbm = machine.spec.cube.hbm
    turns = turns_of(trace)
    asked = asked_of(trace, machine, found)
    ages = ages_of(trace, asked)
    served = served_as_recorded(hbm, turns, asked, ages)
    too_late = {
        one.node
        for one in asked
        for node in {one.first, one.last}
        if node in served and times[node] < served[node] - SAME_NS
    }
    if not too_late:
        return Known(asked, ages, served)
    kept = [at for at, one in enumerate(asked) if one.node not in too_late]
    asked = [asked[at] for at in kept]
    ages = [ages[at] for at in kept]
    return Known(asked, ages, served_as_recorded(hbm, turns, asked, ages))


def asked_of(trace: Trace, machine: Machine, found: MemoryMoves) -> list[Asked]:
    """All that is asked of the controllers of which the trace tells all of it.

    A controller is left out if it has served something of which the bytes, or when they
    came, are not known.
    """
    finder = _Finder(trace, machine, found)
    known: dict[int, list[Asked]] = {}
    lost: set[int] = set()
    in_hbm = np.flatnonzero(found.moves.memory >= IN_OPEN_ROW)
    for move in in_hbm.tolist():
        node = int(found.moves.node[move])
        asked = finder.asked(move)
        if asked is None:
            lost.add(node)
        else:
            known.setdefault(node, []).append(asked)
    return [one for node, some in known.items() if node not in lost for one in some]


def turns_of(trace: Trace) -> Ints:
    """By node its turn: of what happens at one time, that of the least is first.

    They are by SIP, cube and PE; the host's comes behind all.
    """
    nodes = trace.nodes
    places = np.stack([nodes.sip[:], nodes.cube[:], nodes.pe[:]], 1)
    _, turn = np.unique(places, axis=0, return_inverse=True)
    return np.asarray(turn.reshape(-1), np.int64)


class _Finder:
    """Finds what moves ask, one by one."""

    def __init__(self, trace: Trace, machine: Machine, found: MemoryMoves) -> None:
        self._trace = trace
        self._found = found
        self._moves = found.moves
        spec = machine.spec
        self._hbm = spec.cube.hbm
        self._layout: Layout = layout_of(self._hbm)
        self._burst_bytes = spec.pe.dma.burst_bytes
        self._slice_bytes = spec.cube.memory_map.slice_bytes
        self._turns = turns_of(trace)
        self._pieces_of: dict[int, list[Rows]] = {}
        moves = found.moves
        zeros = np.zeros(len(moves.op), np.int64)
        whole = weights.is_written(
            machine, moves.path, zeros, moves.last_bytes, moves.by, moves.memory
        )
        self._written_ns: Floats = whole - machine.way(moves.path)
        rate = np.where(moves.by == BY_HOST, spec.system.pcie_bw_gbs, np.inf)
        self._first_link = np.minimum(machine.speed_at(moves.path, 0), rate)
        self._slowest = np.minimum(machine.slowest[moves.path], rate)
        hops = machine.ways.counts[moves.path]
        header = machine.way(moves.path, hops - 1)
        starts = trace.transfers.start
        self._came: Floats = starts[moves.starts + hops - 1] + header
        self._came_last: Floats = starts[moves.last_starts + hops - 1] + header
        of_op = np.bincount(moves.op, minlength=len(trace.order))
        self._is_alone = of_op[moves.op] == 1

    def asked(self, move: int) -> Asked | None:
        """What a move asks; None if that is not known."""
        moves = self._moves
        rows = self._rows(move)
        if rows is None:
            return None
        pieces, sizes = rows.cut(self._burst_bytes if moves.several[move] else 0)
        bursts = int(self._trace.transfers.bursts[moves.transfer[move]])
        is_write = not moves.is_read[move]
        if len(sizes) != bursts or (is_write and not self._is_alone[move]):
            return None
        op = int(moves.op[move])
        node = int(moves.node[move])
        link = self._slowest if is_write else self._first_link
        parallel = self._hbm.interleave_bytes * self._hbm.channels
        came = float(moves.t0[move])
        last = int(self._found.last[move])
        apart = 0.0
        if is_write:
            came = float(self._came[move])
            apart = float(self._came_last[move] - came) / max(bursts - 1, 1)
            last = op
        link_ns = message_ns(np.array(sizes), float(link[move]))
        return Asked(
            op=op,
            node=node,
            turn=self._turn(move),
            is_write=is_write,
            came=came,
            pieces=tuple(self._piece(piece) for piece in pieces),
            first=int(self._found.first[move]),
            left=int(self._found.last[move]),
            last=last,
            at_once=-(-parallel // sizes[0]),
            apart=apart,
            link_ns=tuple(link_ns.tolist()),
            written_ns=float(self._written_ns[move]),
        )

    def _turn(self, move: int) -> int:
        """The turn of who asks for a move."""
        if self._moves.by[move] == BY_HOST:
            return len(self._turns)
        component = self._trace.op_columns.component[self._moves.op[move]]
        return int(self._turns[component])

    def _piece(self, rows: Rows) -> Piece:
        pattern, base = self._layout.find(rows)
        return Piece(pattern.shares, base)

    def _rows(self, move: int) -> Rows | None:
        """The bytes of a move in its memory; None if the op does not say."""
        op = int(self._moves.op[move])
        pieces = self._pieces_of.get(op)
        if pieces is None:
            record = self._trace.ops[int(self._trace.position[op])]
            pieces = _rows_of(record, bool(self._moves.is_read[move]))
            self._pieces_of[op] = pieces
        node = self._trace.node_ids[int(self._moves.node[move])]
        nbytes = int(self._moves.nbytes[move])
        for at, rows in enumerate(pieces):
            if rows.nbytes == nbytes and self._memory_of(rows) == node:
                return pieces.pop(at)
        return None

    def _memory_of(self, rows: Rows) -> str:
        """The controller of HBM that an address is of; "" of none."""
        try:
            addr = PhysAddr.decode(rows.addr)
        except AddressError:
            return ""
        if addr.kind != "hbm":
            return ""
        pe = addr.hbm_offset // self._slice_bytes
        return hbm_node(addr.sip_id, addr.die_id, pe)


def _rows_of(record: OpRecord, is_read: bool) -> list[Rows]:
    """What an op reads from memories, or writes; nothing if its params do not say."""
    try:
        if "addrs" in record.params:
            return [rows for _, rows in blocks_of(record.params)]
        reads, write = regions(record)
    except (KernbenchError, LookupError, TypeError, ValueError):
        return []
    if is_read:
        return [region.where for region in reads]
    return [] if write is None else [write.where]


# -- who is served when ----------------------------------------------------------------


class _Burst:
    """A burst of which some channels have not begun with their shares yet.

    As in the controller: of those that have, ``begin`` is when the last one begins,
    ``end`` when the last one ends, ``busy`` how long the slowest is at work.
    """

    __slots__ = ("base", "begin", "busy", "end", "index", "is_write", "missing", "move")

    def __init__(self, move: _Move, index: int, piece: Piece) -> None:
        self.move = move
        self.index = index
        self.base = piece.base
        self.is_write = move.asked.is_write
        self.missing = len(piece.shares)
        self.begin = -1.0
        self.end = 0.0
        self.busy = 0.0


class _Move:
    """A move that is under way; the names are those of the network's deliveries."""

    __slots__ = (
        "age",
        "asked",
        "emitted",
        "held",
        "landing",
        "leaves_next",
        "next_is_due",
        "reading",
        "ready",
        "served",
        "ungranted",
    )

    def __init__(self, asked: Asked, age: Age) -> None:
        self.asked = asked
        self.age = age
        self.emitted = 0
        self.ungranted = 0
        self.next_is_due = False
        self.leaves_next = 0
        self.ready = 0.0
        self.held: dict[int, float] = {}
        self.reading: deque[float] = deque(maxlen=asked.at_once)
        self.served = 0
        self.landing = 0.0


class _Channel:
    """A channel, and the shares that wait for it, the oldest first."""

    __slots__ = ("model", "turn", "waiting", "wakes_at")

    def __init__(self, model: ChannelModel, turn: int) -> None:
        self.model = model
        self.turn = turn
        self.waiting: list[tuple[Age, int, _Burst, Share]] = []
        self.wakes_at = inf


class Memories:
    """Controllers in one pass over time.

    ``at`` has something done at a time, ``serves`` is told that a node of the graph can
    come by what memory does for it, and when.
    """

    def __init__(
        self,
        hbm: HbmSpec,
        turns: Ints,
        at: Callable[[float, int, Action], None],
        serves: Callable[[int, float], None],
    ) -> None:
        self._hbm = hbm
        self._turns = turns
        self._at = at
        self._serves = serves
        self._channels: dict[int, list[_Channel]] = {}
        self._arrivals = 0

    def ask(self, now: float, asked: Asked, age: Age) -> None:
        """A read asks for its first burst, or the last burst of a write has come."""
        move = _Move(asked, age)
        if not asked.is_write:
            self._emit(now, move)
            return
        self._comes(now, move)

    def _comes(self, now: float, move: _Move) -> None:
        """The next burst of a write has come."""
        index = move.emitted
        piece = move.asked.pieces[index]
        move.emitted += 1
        self._ask_all(now, _Burst(move, index, piece), piece)
        if move.emitted < len(move.asked.pieces):
            when = now + move.asked.apart
            self._at(when, move.asked.turn, lambda when: self._comes(when, move))

    def _emit(self, now: float, move: _Move) -> None:
        """Have the next burst of a read read, and those that may be beside it."""
        index = move.emitted
        piece = move.asked.pieces[index]
        move.emitted += 1
        is_last = move.emitted == len(move.asked.pieces)
        move.ungranted += 1
        move.next_is_due = not is_last
        self._ask_all(now, _Burst(move, index, piece), piece)
        if not is_last:
            self._read_on(now, move, index)

    def _read_on(self, now: float, move: _Move, index: int) -> None:
        """Have the burst behind ``index`` read once the link can take it, if it is due.

        Not while so many wait that all channels will be at work.
        """
        if not move.next_is_due or move.ungranted >= move.asked.at_once:
            return
        move.next_is_due = False
        free_at = now + move.asked.link_ns[index]
        if len(move.reading) == move.reading.maxlen:
            free_at = max(free_at, move.reading[0])
        self._at(free_at, move.asked.turn, lambda when: self._emit(when, move))

    def _ask_all(self, now: float, burst: _Burst, piece: Piece) -> None:
        """Ask every channel for its share of a burst."""
        channels = self._channels_of(burst.move.asked.node)
        self._arrivals += 1
        for at, share in piece.shares:
            channel = channels[at]
            free_at = channel.model.free_at(burst.is_write)
            if free_at <= now and not channel.waiting:
                self._begin(now, channel, burst, share)
                continue
            waits = (burst.move.age, self._arrivals, burst, share)
            insort(channel.waiting, waits)
            if free_at <= now:
                self._grant(now, channel)
            else:
                self._wake_at(channel, free_at)

    def _channels_of(self, node: int) -> list[_Channel]:
        """The channels of a controller, of which nothing was asked at first."""
        channels = self._channels.get(node)
        if channels is None:
            count = self._hbm.channels
            turn = int(self._turns[node])
            channels = [_Channel(new_channel(self._hbm), turn) for _ in range(count)]
            self._channels[node] = channels
        return channels

    def _wake_at(self, channel: _Channel, when: float) -> None:
        """Look at a channel again at a time, if that is not to be done before."""
        if when >= channel.wakes_at:
            return
        channel.wakes_at = when

        def wake(now: float) -> None:
            """The channel is free, if it was not looked at since."""
            if channel.wakes_at == now:
                channel.wakes_at = inf
                self._grant(now, channel)

        self._at(when, channel.turn, wake)

    def _grant(self, now: float, channel: _Channel) -> None:
        """Serve those who wait and can be served, the oldest first."""
        model = channel.model
        at = 0
        next_free = inf
        while at < len(channel.waiting):
            _, _, burst, share = channel.waiting[at]
            free_at = model.free_at(burst.is_write)
            if free_at > now:
                next_free = min(next_free, free_at)
                at += 1
                continue
            del channel.waiting[at]
            self._begin(now, channel, burst, share)
            next_free = inf
            at = 0
        self._wake_at(channel, next_free)

    def _begin(
        self, now: float, channel: _Channel, burst: _Burst, share: Share
    ) -> None:
        """A channel serves its share; the burst is granted with the last of them."""
        served = channel.model.serve(now, burst.is_write, share, burst.base)
        begin, end, busy = served
        burst.begin = max(burst.begin, begin)
        burst.end = max(burst.end, end)
        burst.busy = max(burst.busy, busy)
        burst.missing -= 1
        if burst.missing:
            return
        lasts = burst.end - burst.begin
        busy = min(burst.busy, lasts)
        access = lasts - busy
        if burst.is_write:
            self._written(burst, burst.begin + access, busy)
        else:
            self._read(now, burst, burst.begin + access, busy)

    def _written(self, burst: _Burst, at: float, busy: float) -> None:
        """A burst is written while its bytes come in."""
        move = burst.move
        landing = at + max(busy, move.asked.link_ns[burst.index])
        move.landing = max(move.landing, landing)
        move.served += 1
        if move.served == len(move.asked.pieces):
            self._serves(move.asked.last, move.landing)

    def _read(self, now: float, burst: _Burst, ready: float, busy: float) -> None:
        """A burst can leave the memory, behind those before it."""
        move = burst.move
        asked = move.asked
        move.held[burst.index] = ready
        while move.leaves_next in move.held:
            ready = move.held.pop(move.leaves_next)
            move.ready = max(move.ready, ready, now)
            if move.leaves_next == len(asked.pieces) - 1:
                self._serves(asked.last, move.ready)
            elif move.leaves_next == 0:
                self._serves(asked.first, move.ready)
            move.leaves_next += 1
        move.reading.append(burst.begin + busy)
        move.ungranted -= 1
        self._read_on(now, move, burst.index)


class Agenda:
    """What is to be done at which time, in that order."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, int, Action]] = []
        self._count = 0

    def at(self, when: float, turn: int, action: Action) -> None:
        """Have something done at a time, in a turn."""
        self._count += 1
        heappush(self._heap, (when, turn, self._count, action))

    def run(self) -> None:
        """Do all of it."""
        while self._heap:
            when, _, _, action = heappop(self._heap)
            action(when)


def served_as_recorded(
    hbm: HbmSpec, turns: Ints, asked: list[Asked], ages: list[Age]
) -> dict[int, float]:
    """By node when memory lets it come if all ask when they did, ns."""
    found: dict[int, float] = {}
    agenda = Agenda()
    memories = Memories(hbm, turns, agenda.at, found.__setitem__)
    for one, age in zip(asked, ages, strict=True):
        agenda.at(one.came, one.turn, partial(memories.ask, asked=one, age=age))
    agenda.run()
    return found


def ages_of(trace: Trace, asked: list[Asked]) -> list[Age]:
    """How old the commands of some moves are."""
    log = trace.commands
    _, tile = tile_columns(trace)
    cmd = trace.op_columns.cmd[:].astype(np.int64)
    call = Groups(log.cmd[:]).first(cmd)
    issued = np.append(log.t_issue[:], 0.0)[call]
    ops = [one.op for one in asked]
    rows = zip(
        issued[ops].tolist(), cmd[ops].tolist(), tile[ops].tolist(), asked, strict=True
    )
    return [(when, number, at, one.is_write) for when, number, at, one in rows]
