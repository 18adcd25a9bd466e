"""Data under way: every burst at every link, at controllers of HBM and ports of SRAMs.

A re-timing in turns (turns.py) needs to know what these do when they are asked at other
times than they were. This restates from docs/machine.md ("Time on the wires", "HBM",
"SRAM and TCM") how bursts leave, pass and land; a channel is the model of the machine
(topology/dram.py). It is used where it says just what was recorded. Times are in ns.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Callable
from functools import lru_cache, partial
from heapq import heappop, heappush
from math import inf
from typing import NamedTuple, TypeAlias

import numpy as np

from kernbench.common.arrays import Floats, Ints
from kernbench.common.exact_time import SAME_NS, bytes_ns, exact_ns
from kernbench.common.phys_addr import PhysAddr
from kernbench.common.rows import Rows
from kernbench.errors import AddressError, KernbenchError
from kernbench.policy.routing.router import hbm_node
from kernbench.replay.whatif.machine import Machine
from kernbench.replay.whatif.moves import BY_HOST, SET_UP_BEFORE, Moves
from kernbench.replay.whatif.weights import (
    IN_OPEN_ROW,
    IN_SRAM,
    IN_TCM,
    REQUEST_BYTES,
)
from kernbench.sim_engine.accesses import blocks_of, regions
from kernbench.sim_engine.op_log import OpRecord
from kernbench.topology.dram import ChannelModel, Layout, Share, layout_of, new_channel
from kernbench.topology.spec import HbmSpec
from kernbench.trace import Trace
from kernbench.trace.hops import named, rows_of_calls, tile_numbers

_NONE = -1

Age: TypeAlias = tuple[float, int, int, bool]
"""When a command was issued (ns), its number, the tile of it, and whether that is
written: less is older."""

Action: TypeAlias = Callable[[float], None]
"""What is done at a time, which it is given."""

Hop: TypeAlias = tuple[int, float, float]
"""A link, how long a burst keeps it, and from its start there to the next node."""


class Piece(NamedTuple):
    """A burst: its hops, what it asks of each channel, and from which row on.

    ``pause_ns`` is how long after it the next one may follow, ``whole_ns`` how long its
    bytes take at the slowest link. It asks nothing of channels where no HBM is at its
    end. ``port_ns`` is how long it keeps the port of an SRAM; 0 where none is.
    """

    hops: tuple[Hop, ...]
    pause_ns: float
    whole_ns: float
    shares: tuple[tuple[int, Share], ...]
    base: int
    port_ns: float


class Sent(NamedTuple):
    """What a move sends, or a credit, which gives back the slot that ``op`` has
    emptied, and begins as that ends.

    ``op`` is a row of the log, ``place`` which of its moves this is, ``by`` who sends
    it (weights.py), ``turn`` that of who asks, ``node`` a controller of HBM or an SRAM,
    as ``in_sram`` says (-1: the data go to a TCM). It began at ``begins``, and its
    first header left at ``leaves``: a read with a request along ``request``, whose tail
    takes ``request_ns``; then it has ``at_once`` of the ``pieces`` under way in the
    memory. ``access_ns`` is the latency of an SRAM.
    """

    op: int
    is_credit: bool
    place: int
    by: int
    turn: int
    node: int
    in_sram: bool
    is_read: bool
    begins: float
    leaves: float
    request: tuple[Hop, ...]
    request_ns: float
    pieces: tuple[Piece, ...]
    at_once: int
    access_ns: float

    @property
    def is_pushed(self) -> bool:
        """Whether it begins on behalf of a queue between PEs: a slot, or a credit."""
        return self.by == SET_UP_BEFORE and not self.is_read


# -- what is sent ----------------------------------------------------------------------


class Known(NamedTuple):
    """All that is sent, how old each command is, and by op when it has landed, ns.

    ``given_back`` is by op that has emptied a slot when the credit for it has come.
    """

    sent: list[Sent]
    ages: list[Age]
    landed: dict[int, float]
    given_back: dict[int, float]


def known_of(trace: Trace, machine: Machine, moves: Moves) -> Known | None:
    """What is sent, if that explains when all of it landed; else None.

    It does not if memories are at work of which this knows nothing, or components of
    somebody's own, or if the trace does not say what was moved.
    """
    turns = turns_of(trace)
    sent = sent_on(trace, machine, moves)
    if sent is None:
        return None
    ages = ages_of(trace, sent)
    landed, given_back = landed_as_recorded(machine.spec.cube.hbm, turns, sent, ages)
    ops = np.array([*landed], np.int64)
    told = np.array([*landed.values()])
    if (np.abs(trace.op_columns.t_end[ops] - told) > SAME_NS).any():
        return None
    return Known(sent, ages, landed, given_back)


def sent_on(trace: Trace, machine: Machine, moves: Moves) -> list[Sent] | None:
    """What all moves send on a machine, and all credits, in the order in which they
    began; None if that is not known of one. Of those that began at one time that is who
    left first.
    """
    finder = MoveFinder(trace, machine, moves, turns_of(trace))
    sent = [finder.credit(transfer, op) for transfer, op in credits_of(trace)]
    for move in np.argsort(moves.t0, kind="stable").tolist():
        one = finder.sent(move)
        if one is None:
            return None
        sent.append(one)
    sent.sort(key=lambda one: (one.begins, one.leaves, one.op, one.place))
    return sent


def credits_of(trace: Trace) -> list[tuple[int, int]]:
    """The credits of a trace, rows of its transfers, each with the op that has emptied
    the slot; it begins as that ends.
    """
    log = trace.transfers
    ops = trace.op_columns
    emptied = np.flatnonzero(named(trace, "ipcq_recv"))
    whens = zip(ops.cmd[emptied].tolist(), ops.t_end[emptied].tolist(), strict=True)
    op_of = dict(zip(whens, emptied.tolist(), strict=True))
    free = np.flatnonzero((log.row[:] < 0) & (np.diff(log.start_ptr[:]) > 0))
    whens = zip(log.cmd[free].tolist(), log.t0[free].tolist(), strict=True)
    each = zip(whens, free.tolist(), strict=True)
    return [(transfer, op_of[when]) for when, transfer in each if when in op_of]


def turns_of(trace: Trace) -> Ints:
    """By node its turn: of what happens at one time, that of the least is first.

    They are by SIP, cube and PE; the host's comes behind all.
    """
    nodes = trace.nodes
    places = np.stack([nodes.sip[:], nodes.cube[:], nodes.pe[:]], 1)
    _, turn = np.unique(places, axis=0, return_inverse=True)
    return np.asarray(turn.reshape(-1), np.int64)


class MoveFinder:
    """Finds what moves send, one by one; ``turns`` are those of ``turns_of``."""

    def __init__(
        self, trace: Trace, machine: Machine, moves: Moves, turns: Ints
    ) -> None:
        self._trace = trace
        self._moves = moves
        self._machine = machine
        spec = machine.spec
        self._hbm = spec.cube.hbm
        self._sram = spec.cube.sram
        self._layout: Layout = layout_of(self._hbm)
        self._burst_bytes = spec.pe.dma.burst_bytes
        self._slice_bytes = spec.cube.memory_map.slice_bytes
        self._turns = turns
        self._pieces_of: dict[int, list[tuple[int, Rows]]] = {}
        rate = np.where(moves.by == BY_HOST, spec.system.pcie_bw_gbs, np.inf)
        self._first_link: Floats = np.minimum(machine.speed_at(moves.path, 0), rate)
        self._slowest: Floats = np.minimum(machine.slowest[moves.path], rate)
        self._hops = lru_cache(maxsize=None)(self._hops_of)

    def forget(self) -> None:
        """Look for the moves of an op anew: each that is found is left out then."""
        self._pieces_of.clear()

    def sent(self, move: int) -> Sent | None:
        """What a move sends; None if that is not known."""
        moves = self._moves
        is_read = bool(moves.is_read[move])
        memory = int(moves.memory[move])
        in_hbm = memory >= IN_OPEN_ROW
        in_sram = memory == IN_SRAM
        if is_read and memory == IN_TCM:
            return None
        place = 0
        rows: Rows | None = Rows.one(0, int(moves.nbytes[move]))
        if in_hbm:
            place, rows = self._rows(move)
        if rows is None:
            return None
        pieces, sizes = rows.cut(self._burst_bytes if moves.several[move] else 0)
        if len(sizes) != self._trace.transfers.bursts[moves.transfer[move]]:
            return None
        begins = float(moves.t0[move])
        leaves = float(moves.first[move])
        request: tuple[Hop, ...] = ()
        request_ns = 0.0
        if is_read:
            asked = int(moves.asked[move])
            if asked < 0:
                return None
            log = self._trace.transfers
            begins = float(log.t0[asked])
            leaves = float(log.start[log.start_ptr[asked]])
            path = int(moves.request[move])
            request = self._hops(path, REQUEST_BYTES)
            slowest = float(self._machine.slowest[path])
            request_ns = bytes_ns(REQUEST_BYTES, slowest)
        parallel = 1
        if in_hbm:
            parallel = self._hbm.interleave_bytes * self._hbm.channels
        return Sent(
            op=int(moves.op[move]),
            is_credit=False,
            place=place,
            by=int(moves.by[move]),
            turn=self._turn(move),
            node=int(moves.node[move]) if in_hbm or in_sram else _NONE,
            in_sram=in_sram,
            is_read=is_read,
            begins=begins,
            leaves=leaves,
            request=request,
            request_ns=request_ns,
            pieces=tuple(self._piece(move, piece, memory) for piece in pieces),
            at_once=-(-parallel // sizes[0]),
            access_ns=exact_ns(self._sram.access_ns),
        )

    def credit(self, transfer: int, op: int) -> Sent:
        """What gives back the slot that an op has emptied."""
        log = self._trace.transfers
        path = int(log.path[transfer])
        nbytes = int(log.nbytes[transfer])
        piece = Piece(
            hops=self._hops(path, nbytes),
            pause_ns=0.0,
            whole_ns=bytes_ns(nbytes, float(self._machine.slowest[path])),
            shares=(),
            base=0,
            port_ns=0.0,
        )
        return Sent(
            op=op,
            is_credit=True,
            place=0,
            by=SET_UP_BEFORE,
            turn=int(self._turns[self._machine.ways.first_node[path]]),
            node=_NONE,
            in_sram=False,
            is_read=False,
            begins=float(log.t0[transfer]),
            leaves=float(log.start[log.start_ptr[transfer]]),
            request=(),
            request_ns=0.0,
            pieces=(piece,),
            at_once=1,
            access_ns=0.0,
        )

    def _piece(self, move: int, rows: Rows, memory: int) -> Piece:
        """A burst of a move from or to a kind of memory (weights.py)."""
        nbytes = rows.nbytes
        shares: tuple[tuple[int, Share], ...] = ()
        base = 0
        port_ns = 0.0
        if memory >= IN_OPEN_ROW:
            pattern, base = self._layout.find(rows)
            shares = pattern.shares
        elif memory == IN_SRAM:
            port_ns = bytes_ns(nbytes, self._sram.to_router_bw_gbs)
        return Piece(
            hops=self._hops(int(self._moves.path[move]), nbytes),
            pause_ns=bytes_ns(nbytes, float(self._first_link[move])),
            whole_ns=bytes_ns(nbytes, float(self._slowest[move])),
            shares=shares,
            base=base,
            port_ns=port_ns,
        )

    def _hops_of(self, path: int, nbytes: int) -> tuple[Hop, ...]:
        """The hops of so many bytes along a path."""
        ways = self._machine.ways
        links = self._machine.links
        first = int(ways.firsts[path])
        edges = ways.hop_edges[first : first + int(ways.counts[path])]
        rows = zip(
            edges.tolist(),
            links.speed[edges].tolist(),
            links.header[edges].tolist(),
            strict=True,
        )
        return tuple((edge, bytes_ns(nbytes, speed), ns) for edge, speed, ns in rows)

    def _turn(self, move: int) -> int:
        """The turn of who asks for a move: the DMA that reads, or that writes.

        A push is in the log as an op of the PE that it comes to.
        """
        moves = self._moves
        if moves.by[move] == BY_HOST:
            return len(self._turns)
        ways = self._machine.ways
        ends = ways.last_node if moves.is_read[move] else ways.first_node
        return int(self._turns[ends[moves.path[move]]])

    def _rows(self, move: int) -> tuple[int, Rows | None]:
        """The bytes of a move in its memory, and which those of its op they are.

        None if the op does not say.
        """
        op = int(self._moves.op[move])
        pieces = self._pieces_of.get(op)
        if pieces is None:
            record = self._trace.ops[int(self._trace.position[op])]
            pieces = [*enumerate(_rows_of(record, bool(self._moves.is_read[move])))]
            self._pieces_of[op] = pieces
        node = self._trace.node_ids[int(self._moves.node[move])]
        nbytes = int(self._moves.nbytes[move])
        for at, (place, rows) in enumerate(pieces):
            if rows.nbytes == nbytes and self._memory_of(rows) == node:
                del pieces[at]
                return place, rows
        return 0, None

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


# -- when it lands ---------------------------------------------------------------------


class _Move:
    """A move that is under way; the names are those of the network's deliveries."""

    __slots__ = (
        "age",
        "arrived",
        "emitted",
        "held",
        "landing",
        "leaves_next",
        "next_is_due",
        "reading",
        "ready",
        "sent",
        "ungranted",
    )

    def __init__(self, sent: Sent, age: Age) -> None:
        self.sent = sent
        self.age = age
        self.emitted = 0
        self.ungranted = 0
        self.next_is_due = False
        self.leaves_next = 0
        self.ready = 0.0
        self.held: dict[int, tuple[_Burst, float]] = {}
        self.reading: deque[float] = deque(maxlen=sent.at_once)
        self.arrived = 0
        self.landing = 0.0


class _Burst:
    """A burst under way, and what its channels have granted so far.

    Of those that have begun ``begin`` is when the last one begins, ``end`` when the
    last one ends, ``busy`` how long the slowest is at work. ``service`` is how long a
    memory that it comes from was busy with it.
    """

    __slots__ = (
        "begin",
        "busy",
        "end",
        "index",
        "missing",
        "move",
        "piece",
        "service",
    )

    def __init__(self, move: _Move, index: int) -> None:
        self.move = move
        self.index = index
        self.piece = move.sent.pieces[index]
        self.missing = len(self.piece.shares)
        self.begin = -1.0
        self.end = 0.0
        self.busy = 0.0
        self.service = 0.0


class _Channel:
    """A channel, and the shares that wait for it, the oldest first."""

    __slots__ = ("model", "turn", "waiting", "wakes_at")

    def __init__(self, model: ChannelModel, turn: int) -> None:
        self.model = model
        self.turn = turn
        self.waiting: list[tuple[Age, int, _Burst, Share]] = []
        self.wakes_at = inf


class Deliveries:
    """Links, controllers and ports of SRAMs in one pass over time.

    ``at`` has something done at a time, ``lands`` is told of a move, or of a credit,
    that all of it will have landed, and when.
    """

    def __init__(
        self,
        hbm: HbmSpec,
        turns: Ints,
        at: Callable[[float, int, Action], None],
        lands: Callable[[Sent, float], None],
    ) -> None:
        self._hbm = hbm
        self._turns = turns
        self._at = at
        self._lands = lands
        self._channels: dict[int, list[_Channel]] = {}
        self._free_at: dict[int, float] = {}
        self._port_free_at: dict[int, float] = {}
        self._arrivals = 0

    def begin(self, now: float, sent: Sent, age: Age) -> None:
        """Send the request of a read, or the first burst of a write."""
        move = _Move(sent, age)
        if sent.is_read:
            self._request(now, move, 0)
        else:
            self._emit(now, move)

    # -- on the wires --

    def _start(self, now: float, hop: Hop) -> float:
        """When a link lets a header start that comes now; it is taken then."""
        edge, taken_ns, _ = hop
        start = max(now, self._free_at.get(edge, 0.0))
        self._free_at[edge] = start + taken_ns
        return start

    def _request(self, now: float, move: _Move, at: int) -> None:
        """A request is at a hop; at its end the first burst is read."""
        sent = move.sent
        hop = sent.request[at]
        when = self._start(now, hop) + hop[2]
        if at + 1 < len(sent.request):
            then = partial(self._request, move=move, at=at + 1)
            self._at(when, sent.turn, then)
        else:
            self._at(when + sent.request_ns, sent.turn, partial(self._emit, move=move))

    def _step(self, now: float, burst: _Burst, at: int) -> float:
        """A burst is at a hop; when it started on that link."""
        move = burst.move
        hop = burst.piece.hops[at]
        start = self._start(now, hop)
        when = start + hop[2]
        turn = move.sent.turn
        if at + 1 < len(burst.piece.hops):
            self._at(when, turn, lambda now: self._pass(now, burst, at + 1))
        elif move.sent.is_read or move.sent.node < 0:
            self._arrive(move, when + max(burst.service, burst.piece.whole_ns))
        else:
            self._at(when, turn, partial(self._ask, burst=burst))
        return start

    def _pass(self, now: float, burst: _Burst, at: int) -> None:
        self._step(now, burst, at)

    def _emit(self, now: float, move: _Move) -> None:
        """Send the next burst off, and the one after it once it may follow."""
        burst = _Burst(move, move.emitted)
        move.emitted += 1
        is_last = move.emitted == len(move.sent.pieces)
        if not move.sent.is_read:
            start = self._step(now, burst, 0)
            if not is_last:
                follows = start + burst.piece.pause_ns
                self._at(follows, move.sent.turn, partial(self._emit, move=move))
            return
        move.ungranted += 1
        move.next_is_due = not is_last
        self._ask(now, burst)
        if not is_last:
            self._read_on(now, burst)

    def _arrive(self, move: _Move, landing: float) -> None:
        """One more burst will have landed; with the last all of the move has."""
        move.arrived += 1
        move.landing = max(move.landing, landing)
        if move.arrived == len(move.sent.pieces):
            self._lands(move.sent, move.landing)

    # -- at memories --

    def _ask(self, now: float, burst: _Burst) -> None:
        """Ask the memory of a burst for it."""
        if burst.move.sent.in_sram:
            self._take_port(now, burst)
        else:
            self._ask_all(now, burst)

    def _take_port(self, now: float, burst: _Burst) -> None:
        """A burst has the port of an SRAM behind those that came before it."""
        sent = burst.move.sent
        port_ns = burst.piece.port_ns
        burst.begin = max(now, self._port_free_at.get(sent.node, 0.0))
        self._port_free_at[sent.node] = burst.begin + port_ns
        self._granted(now, burst, burst.begin + sent.access_ns, port_ns)

    def _read_on(self, now: float, burst: _Burst) -> None:
        """Have the next burst read once the link can take it, if it is due.

        Not while so many wait that all channels will be at work.
        """
        move = burst.move
        if not move.next_is_due or move.ungranted >= move.sent.at_once:
            return
        move.next_is_due = False
        free_at = now + burst.piece.pause_ns
        if len(move.reading) == move.reading.maxlen:
            free_at = max(free_at, move.reading[0])
        self._at(free_at, move.sent.turn, partial(self._emit, move=move))

    def _ask_all(self, now: float, burst: _Burst) -> None:
        """Ask every channel for its share of a burst."""
        channels = self._channels_of(burst.move.sent.node)
        is_write = not burst.move.sent.is_read
        self._arrivals += 1
        for at, share in burst.piece.shares:
            channel = channels[at]
            free_at = channel.model.free_at(is_write)
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
        at = 0
        next_free = inf
        while at < len(channel.waiting):
            _, _, burst, share = channel.waiting[at]
            free_at = channel.model.free_at(not burst.move.sent.is_read)
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
        is_write = not burst.move.sent.is_read
        begin, end, busy = channel.model.serve(now, is_write, share, burst.piece.base)
        burst.begin = max(burst.begin, begin)
        burst.end = max(burst.end, end)
        burst.busy = max(burst.busy, busy)
        burst.missing -= 1
        if burst.missing:
            return
        lasts = burst.end - burst.begin
        busy = min(burst.busy, lasts)
        self._granted(now, burst, burst.begin + lasts - busy, busy)

    def _granted(self, now: float, burst: _Burst, ready: float, busy: float) -> None:
        """A memory has a burst from ``ready`` on, and is ``busy`` ns with it: a read
        leaves it, and a write lands.
        """
        if burst.move.sent.is_read:
            burst.service = busy
            self._leave(now, burst, ready)
        else:
            self._arrive(burst.move, ready + max(busy, burst.piece.whole_ns))

    def _leave(self, now: float, burst: _Burst, ready: float) -> None:
        """A burst can leave the memory, behind those before it."""
        move = burst.move
        move.held[burst.index] = (burst, ready)
        while move.leaves_next in move.held:
            next_one, ready = move.held.pop(move.leaves_next)
            move.leaves_next += 1
            move.ready = max(move.ready, ready, now)
            step = partial(self._pass, burst=next_one, at=0)
            self._at(move.ready, move.sent.turn, step)
        move.reading.append(burst.begin + burst.service)
        move.ungranted -= 1
        self._read_on(now, burst)


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


def landed_as_recorded(
    hbm: HbmSpec, turns: Ints, sent: list[Sent], ages: list[Age]
) -> tuple[dict[int, float], dict[int, float]]:
    """By op when all of it has landed if each move begins when it did, ns; and when
    the credit has come for the slot that it has emptied.
    """
    landed: dict[int, float] = {}
    given_back: dict[int, float] = {}
    agenda = Agenda()

    def lands(one: Sent, when: float) -> None:
        found = given_back if one.is_credit else landed
        found[one.op] = max(found.get(one.op, 0.0), when)

    deliveries = Deliveries(hbm, turns, agenda.at, lands)
    for one, age in zip(sent, ages, strict=True):
        agenda.at(one.begins, one.turn, partial(deliveries.begin, sent=one, age=age))
    agenda.run()
    return landed, given_back


def ages_of(trace: Trace, sent: list[Sent]) -> list[Age]:
    """How old the commands of some moves are."""
    log = trace.commands
    tile = tile_numbers(trace)
    cmd = trace.op_columns.cmd[:].astype(np.int64)
    call = rows_of_calls(trace, cmd)
    issued = np.append(log.t_issue[:], 0.0)[call]
    ops = [one.op for one in sent]
    columns = (issued[ops].tolist(), cmd[ops].tolist(), tile[ops].tolist(), sent)
    rows = zip(*columns, strict=True)
    return [(when, number, at, not one.is_read) for when, number, at, one in rows]
