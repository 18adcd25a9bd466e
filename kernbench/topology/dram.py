"""One channel of DRAM in time: banks with an open row each, and three clocks.

Pure: it knows no SimPy and no machine. The bus, the activations and each bank have a
clock, which is the time from which it is free; a request advances those that it needs,
and ends with the latest of them. What a controller does with the requests that it looks
at (row hits first, reads first, writes drained together) is in which clock a request
has to pay for, so nothing is ever put back. Owns how addresses are laid out over
channels, banks and rows, and what a descriptor asks of each channel. Times are in ns;
docs/machine.md, "HBM", has the rules and their sources.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from functools import lru_cache
from math import lcm
from typing import NamedTuple, Protocol, Self, TypeAlias

import numpy as np

from kernbench.common.arrays import Array
from kernbench.common.exact_time import exact_ns
from kernbench.common.rows import Rows
from kernbench.topology.spec import HbmSpec

MOST_PATTERNS = 1 << 16
"""So many descriptors are remembered by a layout; then it begins anew."""


class BankShare(NamedTuple):
    """What a descriptor asks of one bank of a channel.

    ``first`` and ``last`` are its rows, from the first row of the pattern's period on;
    ``rows`` is how many they are and ``accesses`` how many accesses they get together.
    """

    bank: int
    first: int
    last: int
    rows: int
    accesses: int


class Share(NamedTuple):
    """What a descriptor asks of one channel: bytes, accesses, and where they lie."""

    nbytes: int
    accesses: int
    banks: tuple[BankShare, ...]


class Pattern(NamedTuple):
    """What descriptors that differ by whole periods ask of the channels.

    Equal shares are one object. ``even`` says that all channels have the same one.
    """

    shares: tuple[tuple[int, Share], ...]
    even: bool


Served: TypeAlias = tuple[float, float, float]
"""What a channel answers, in ns: when it begins and ends, and how long it is busy. A
plain tuple, as there is one a burst."""


class Timing:
    """The timings of a banked channel as its clocks use them, in ns.

    All that goes on steadily is slower by the share of time that refreshes take.
    """

    def __init__(self, hbm: HbmSpec) -> None:
        rate = 1.0 - hbm.trfc_ns / hbm.trefi_ns

        def steady(duration: float) -> float:
            return exact_ns(duration / rate)

        access_ns = hbm.access_bytes / hbm.channel_bw_gbs
        self.access = steady(access_ns)
        spread = hbm.tfaw_ns / 4
        self.activate = steady(max(spread, hbm.trrd_s_ns) / hbm.ranks)
        self.activate_in_group = steady(max(spread, hbm.trrd_l_ns) / hbm.ranks)
        self.row_cycle = steady(hbm.tras_ns + hbm.trp_ns)
        self.precharge = exact_ns(hbm.trp_ns)
        self.to_column = exact_ns(hbm.trcd_ns)
        # From the last column of a row until the next row may be opened.
        self.close_read = steady(hbm.trtp_ns - access_ns + hbm.trp_ns)
        self.close_write = steady(hbm.cwl_ns + hbm.twr_ns + hbm.trp_ns)
        # From when a command is on the bus until its data are.
        self.read_lead = exact_ns(hbm.controller_ns + hbm.cl_ns)
        self.write_lead = exact_ns(hbm.controller_ns + hbm.cwl_ns)
        # A drain turns the bus to writing and back to reading.
        turns = hbm.cl_ns + hbm.turn_ns + (hbm.twtr_s_ns + hbm.twtr_l_ns) / 2
        self.turnaround = steady(turns)
        self.banks = hbm.banks * hbm.ranks
        self.banks_in_group = hbm.banks // hbm.bank_groups
        self.queue = hbm.queue
        self.bank_queue = hbm.bank_queue
        self.write_buffer = hbm.write_buffer


class ChannelModel(Protocol):
    """What a controller asks of the model of a channel."""

    def copy(self) -> ChannelModel:
        """A channel in the same state that goes its own way from here."""

    def free_at(self, is_write: bool) -> float:
        """When it can begin with one more descriptor."""

    def serve(self, now: float, is_write: bool, share: Share, base: int) -> Served:
        """Reserve it for a share of a descriptor that comes now.

        ``base`` is the row of each bank that the rows of the share count from.
        """


class IdealChannel:
    """A channel without banks: its bytes one after the other, each after an access."""

    __slots__ = ("bus", "hbm")

    def __init__(self, hbm: HbmSpec) -> None:
        self.hbm = hbm
        self.bus = 0.0

    def copy(self) -> IdealChannel:
        """A channel in the same state that goes its own way from here."""
        other = IdealChannel(self.hbm)
        other.bus = self.bus
        return other

    def free_at(self, is_write: bool) -> float:
        """When all that it was asked for has passed."""
        return self.bus

    def serve(self, now: float, is_write: bool, share: Share, base: int) -> Served:
        """Take the channel for the bytes of the share."""
        begin = max(now, self.bus)
        busy = exact_ns(share.nbytes / self.hbm.channel_bw_gbs)
        self.bus = begin + busy
        return begin, self.bus + exact_ns(self.hbm.access_ns), busy


@lru_cache(maxsize=64)
def timing_of(hbm: HbmSpec) -> Timing:
    """The timings of a machine's channels: one object for all of them."""
    return Timing(hbm)


def new_channel(hbm: HbmSpec) -> ChannelModel:
    """A channel of a machine that has not been asked for anything."""
    if hbm.model == "ideal":
        return IdealChannel(hbm)
    return Channel(timing_of(hbm))


class Window:
    """The accesses that a controller has taken in and that have not left it.

    Writes leave in the order in which they came, as they are drained together: one
    enters when the one that is ``size`` accesses before it has left. Reads leave as
    soon as they are done (``by_end``): one enters when fewer than ``size`` accesses are
    inside. ``room_at`` is when the next one may. Those of one descriptor leave one
    after another, ``access_ns`` apart.
    """

    __slots__ = ("access_ns", "accesses", "by_end", "inside", "room_at", "size")

    def __init__(self, size: int, access_ns: float, by_end: bool) -> None:
        self.size = size
        self.access_ns = access_ns
        self.by_end = by_end
        # When the last access of each descriptor leaves, and how many they are, in the
        # order in which they leave.
        self.inside: deque[tuple[float, int]] = deque()
        self.accesses = 0
        self.room_at = 0.0

    def copy(self) -> Self:
        """One with the same accesses inside."""
        other = type(self)(self.size, self.access_ns, self.by_end)
        other.inside = self.inside.copy()
        other.accesses = self.accesses
        other.room_at = self.room_at
        return other

    def add(self, accesses: int, left: float) -> None:
        """So many more, the last of which leaves at ``left``."""
        inside = self.inside
        those = (left, accesses)
        if self.by_end and inside and those < inside[-1]:
            insort(inside, those)
        else:
            inside.append(those)
        beyond = self.accesses + accesses - self.size
        left, first_out = inside[0]
        while beyond >= first_out:
            beyond -= first_out
            inside.popleft()
            left, first_out = inside[0]
        self.accesses = beyond + self.size
        if beyond >= 0:
            room_at = left - (first_out - 1 - beyond) * self.access_ns
            if room_at > self.room_at:
                self.room_at = room_at


class Channel:
    """The state of one channel.

    ``bus`` and ``activate`` are the clocks of the bus and of activations. By bank,
    ``rows`` is the open row (-1: none of ours), ``bank_free`` when the next one may be
    opened, and ``columns_done`` when the accesses to this one are. ``waiting`` has the
    rows of a bank that wait to be opened, each with how many accesses wait for it: as
    long as they fit the bank's queue, accesses to the open row overtake them.
    ``gathered`` are the rows, by bank, that wait for the writes that have gathered and
    not been drained, ``gathered_at`` the row of the bank that is open for them, and
    ``gathered_until`` is when the bus and the banks would be done with them alone.
    ``turns`` is how often the bus turns to them and back: once, or twice where they
    need other rows of banks that reads are at, which go on meanwhile.
    """

    __slots__ = (
        "activate",
        "bank_free",
        "bus",
        "columns_done",
        "gathered",
        "gathered_accesses",
        "gathered_at",
        "gathered_until",
        "last_group",
        "read_since_drain",
        "reads",
        "rows",
        "timing",
        "turns",
        "waiting",
        "writes",
    )

    def __init__(self, timing: Timing) -> None:
        self.timing = timing
        self.bus = 0.0
        self.activate = 0.0
        self.rows = [-1] * timing.banks
        self.bank_free = [0.0] * timing.banks
        self.columns_done = [0.0] * timing.banks
        self.waiting: dict[int, dict[int, int]] = {}
        self.gathered: dict[int, dict[int, int]] = {}
        self.gathered_at: dict[int, int] = {}
        self.gathered_accesses = 0
        self.gathered_until = 0.0
        self.read_since_drain = False
        self.turns = 1
        self.last_group = -1
        # What is in the queue of a bank is in the queue of all no more.
        reads = timing.queue + timing.bank_queue
        writes = timing.write_buffer + timing.bank_queue
        self.reads = Window(reads, timing.access, by_end=True)
        self.writes = Window(writes, timing.access, by_end=False)

    def copy(self) -> Channel:
        """A channel in the same state that goes its own way from here."""
        other = Channel.__new__(Channel)
        other.timing = self.timing
        other.bus = self.bus
        other.activate = self.activate
        other.rows = self.rows.copy()
        other.bank_free = self.bank_free.copy()
        other.columns_done = self.columns_done.copy()
        other.waiting = {bank: rows.copy() for bank, rows in self.waiting.items()}
        other.gathered = {bank: rows.copy() for bank, rows in self.gathered.items()}
        other.gathered_at = self.gathered_at.copy()
        other.gathered_accesses = self.gathered_accesses
        other.gathered_until = self.gathered_until
        other.read_since_drain = self.read_since_drain
        other.turns = self.turns
        other.last_group = self.last_group
        other.reads = self.reads.copy()
        other.writes = self.writes.copy()
        return other

    def free_at(self, is_write: bool) -> float:
        """When it can begin with one more request."""
        room_at = self.writes.room_at if is_write else self.reads.room_at
        return room_at if room_at > self.bus else self.bus

    def serve(self, now: float, is_write: bool, share: Share, base: int) -> Served:
        """Reserve it for a share of a descriptor that comes now.

        ``base`` is the row of each bank that the rows of the share count from.
        """
        if is_write:
            return self._serve_write(now, share, base)
        return self._serve_read(now, share, base)

    def _serve_read(self, now: float, share: Share, base: int) -> Served:
        """As ``serve``, of reads: writes that have gathered stay behind them."""
        timing = self.timing
        window = self.reads
        enters = window.room_at
        if enters < now:
            enters = now
        if self.gathered_accesses:
            self._drain_when_idle(enters)
        access_ns = timing.access
        lead = timing.read_lead
        accesses = share.accesses
        busy = accesses * access_ns
        begin = self.bus
        if begin < enters:
            begin = enters
        self.bus = begin + busy
        self.read_since_drain = True
        last_done = self.bus
        for part in share.banks:
            bank, first, _, rows, at_bank = part
            if rows > 1 or first + base != self.rows[bank] or bank in self.waiting:
                opened = self._read(part, base, enters)
                if opened:
                    done = self._open(part, opened, enters, False)
                else:
                    done = self._hit(bank, at_bank, enters, timing.close_read)
            else:
                # The row is open, as most often: what ``_hit`` does, without the call.
                done = self.columns_done[bank]
                if done < enters:
                    done = enters
                done += at_bank * access_ns
                self.columns_done[bank] = done
                closed = done + timing.close_read
                if closed > self.bank_free[bank]:
                    self.bank_free[bank] = closed
            if done > last_done:
                last_done = done
        window.add(accesses, last_done)
        return begin, last_done + lead, busy

    def _serve_write(self, now: float, share: Share, base: int) -> Served:
        """As ``serve``, of writes."""
        timing = self.timing
        window = self.writes
        enters = window.room_at
        if enters < now:
            enters = now
        accesses = share.accesses
        begin, end_of_bus = self._write_bus(enters, accesses)
        last_done = end_of_bus
        for part in share.banks:
            opened = self._written(part, base, enters)
            if opened:
                done = self._open(part, opened, enters, True)
            else:
                done = self._hit(part.bank, part.accesses, enters, timing.close_write)
            if done > last_done:
                last_done = done
            if done > self.gathered_until:
                self.gathered_until = done
        if self.gathered_accesses >= timing.write_buffer:
            self.bus = end_of_bus
            self._drained()
        window.add(accesses, last_done)
        return begin, last_done + timing.write_lead, accesses * timing.access

    def _write_bus(self, enters: float, accesses: int) -> tuple[float, float]:
        """Let writes gather; all of them take the bus once their buffer is full.

        A write has ended when it would have been written alone, or with the drain that
        it causes.
        """
        timing = self.timing
        if self.gathered_accesses:
            self._drain_when_idle(enters)
        begin = self.bus
        if begin < enters:
            begin = enters
        if not self.gathered_accesses:
            if begin >= self.bus + timing.turnaround:
                self.read_since_drain = False  # the bus has turned while it was idle
            self.bus = begin
        end = begin + accesses * timing.access
        self.gathered_accesses += accesses
        if end > self.gathered_until:
            self.gathered_until = end
        if self.gathered_accesses >= timing.write_buffer:
            drained = self.bus + self.gathered_accesses * timing.access
            if self.read_since_drain:
                drained += self.turns * timing.turnaround
            end = max(end, drained)
        return begin, end

    def _drain_when_idle(self, enters: float) -> None:
        """Writes that have gathered are drained where the bus was idle long enough."""
        timing = self.timing
        drained = self.bus + self.gathered_accesses * timing.access
        drained = max(drained, self.gathered_until)
        if self.read_since_drain:
            drained += self.turns * timing.turnaround
        if drained <= enters:
            self._drained()

    def _drained(self) -> None:
        """The writes that had gathered are in their rows, which are open now."""
        for bank, waiting in self.gathered.items():
            self.rows[bank] = next(reversed(waiting), self.gathered_at[bank])
            self.waiting.pop(bank, None)
        self.gathered.clear()
        self.gathered_at.clear()
        self.gathered_accesses = 0
        self.gathered_until = 0.0
        self.read_since_drain = False
        self.turns = 1

    def _read(self, part: BankShare, base: int, enters: float) -> int:
        """How many rows of a bank have to be opened for reads.

        A row that waits to be opened is paid for when the first access asks for it.
        """
        bank = part.bank
        first = part.first + base
        waiting = self.waiting.get(bank)
        is_busy = self.columns_done[bank] > enters
        if waiting and not is_busy:
            self.rows[bank] = next(reversed(waiting))
            del self.waiting[bank]
            waiting = None
        reached = self.rows[bank]
        if part.rows > 1:
            self.rows[bank] = part.last + base
            self.waiting.pop(bank, None)
            return part.rows - 1 if first == reached else part.rows
        if waiting is None and first == reached:
            return 0
        if not is_busy:
            self.rows[bank] = first
            return 1
        if waiting is None:
            waiting = self.waiting[bank] = {}
        reached, is_new = self._line_up(waiting, reached, first, part.accesses)
        self.rows[bank] = reached
        if not waiting:
            del self.waiting[bank]
        return 1 if is_new else 0

    def _written(self, part: BankShare, base: int, enters: float) -> int:
        """How many rows of a bank have to be opened for writes when they are drained.

        Those that gather for one row are drained together, as far as the bank's queue
        sees them.
        """
        bank = part.bank
        first = part.first + base
        reached = self.gathered_at.get(bank, self.rows[bank])
        waiting = self.gathered.setdefault(bank, {})
        reached, is_new = self._line_up(waiting, reached, first, part.accesses)
        opened = part.rows if is_new else part.rows - 1
        if part.rows > 1:
            waiting.clear()
            reached = part.last + base
        self.gathered_at[bank] = reached
        if opened and self.columns_done[bank] > enters:
            self.turns = 2
        return opened

    def _line_up(
        self, waiting: dict[int, int], reached: int, row: int, accesses: int
    ) -> tuple[int, bool]:
        """Let accesses to a row of a bank wait with those to other rows of it.

        What does not fit the bank's queue has not been seen while those before it are
        served, so not even accesses to the row that is open overtake a full queue. The
        row that is open when they are seen, and whether theirs has to be opened anew.
        """
        others = sum(waiting.values())
        while waiting and others + accesses > self.timing.bank_queue:
            reached = next(iter(waiting))
            others -= waiting.pop(reached)
        if row == reached:
            return reached, False
        is_new = row not in waiting
        waiting[row] = waiting.get(row, 0) + accesses
        return reached, is_new

    def _open(
        self, part: BankShare, opened: int, enters: float, is_write: bool
    ) -> float:
        """Open rows of a bank, and access them; when the last access is done."""
        timing = self.timing
        bank = part.bank
        columns = timing.to_column + part.accesses * timing.access
        if part.rows > 1:
            each_ns = exact_ns(part.accesses * timing.access / part.rows)
            columns = timing.to_column + each_ns
        close = timing.close_write if is_write else timing.close_read
        row_ns = max(timing.row_cycle, columns + close)
        group = bank // timing.banks_in_group
        step = timing.activate
        slot = self.activate
        if slot < enters:
            slot = enters
        elif group == self.last_group:
            step = timing.activate_in_group
        self.last_group = group
        self.activate = slot + opened * step
        ready = enters + timing.precharge
        if self.bank_free[bank] > ready:
            ready = self.bank_free[bank]
        last_open = max(slot + (opened - 1) * step, ready + (opened - 1) * row_ns)
        self.bank_free[bank] = last_open + row_ns
        done = last_open + columns
        self.columns_done[bank] = done
        return done

    def _hit(self, bank: int, accesses: int, enters: float, close_ns: float) -> float:
        """Access a row that is open; when the last access is done."""
        done = self.columns_done[bank]
        if done < enters:
            done = enters
        done += accesses * self.timing.access
        self.columns_done[bank] = done
        if done + close_ns > self.bank_free[bank]:
            self.bank_free[bank] = done + close_ns
        return done


class Layout:
    """How the addresses of a controller are laid out; patterns once worked out.

    ``period`` bytes on, a descriptor asks the same of every channel, but for the rows
    of each bank, which are ``rows_a_period`` later.
    """

    def __init__(self, hbm: HbmSpec) -> None:
        self.hbm = hbm
        self.is_hashed = hbm.channel_hash == "xor"
        self.is_xor = hbm.channels & (hbm.channels - 1) == 0
        self.stripe = hbm.interleave_bytes * hbm.channels
        self.banks = hbm.banks * hbm.ranks
        self.cycle = hbm.row_bytes * self.banks
        turns = hbm.channels if self.is_hashed else 1
        self.period = lcm(self.stripe * turns, self.cycle * hbm.channels)
        self.rows_a_period = self.period // hbm.channels // self.cycle
        self._patterns: dict[tuple[object, ...], Pattern] = {}

    def find(self, rows: Rows) -> tuple[Pattern, int]:
        """What a descriptor asks of the channels, and the row that it counts from."""
        addr, count, row_bytes, pitch, planes = rows
        period = self.period
        first = addr % period
        periods = addr // period
        key = (first, count, row_bytes, pitch, planes)
        pattern = self._patterns.get(key)
        if pattern is None:
            if len(self._patterns) >= MOST_PATTERNS:
                self._patterns.clear()
            pattern = self._pattern(Rows(*key))
            self._patterns[key] = pattern
        return pattern, periods * self.rows_a_period

    def _channel(self, chunk: Array) -> Array:
        """The channel of each chunk of ``interleave_bytes``, counted from address 0.

        Of any ``channels`` chunks that begin at a whole number of them each channel has
        one. Where they are no power of two, adding keeps it so, and XOR would not.
        """
        channels = self.hbm.channels
        stripe = chunk // channels
        if not self.is_hashed:
            return chunk % channels
        if self.is_xor:
            hashed: Array = (chunk ^ stripe) % channels
            return hashed
        turned: Array = (chunk + stripe) % channels
        return turned

    def _pattern(self, rows: Rows) -> Pattern:
        """Work it out, in numpy: nothing here is done row by row."""
        channel, first, last = self._pieces(rows)
        nbytes = np.bincount(channel, last - first, self.hbm.channels)
        channel, first, last = self._accesses(channel, first, last)
        channel, row, accesses = self._dram_rows(channel, first, last)
        known: dict[Share, Share] = {}
        shares = []
        starts = np.flatnonzero(np.diff(channel, prepend=-1))
        ends = np.append(starts[1:], len(channel))
        for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
            number = int(channel[start])
            parts = self._banks(row[start:end], accesses[start:end])
            total = int(accesses[start:end].sum())
            share = Share(int(nbytes[number]), total, parts)
            shares.append((number, known.setdefault(share, share)))
        is_even = len(shares) == self.hbm.channels and len(known) == 1
        return Pattern(tuple(shares), is_even)

    def _pieces(self, rows: Rows) -> tuple[Array, Array, Array]:
        """The bytes as pieces that each lie in one channel, one after the other there.

        Channel, and first byte and end within it. Chunks at both ends of a row are a
        piece each; whole stripes between them are one piece of each channel.
        """
        step = self.hbm.interleave_bytes
        channels = self.hbm.channels
        begin = rows.starts()
        end = begin + rows.row_bytes
        stripes_from = -(-begin // self.stripe)
        stripes_to = np.maximum(end // self.stripe, stripes_from)
        has_stripes = stripes_to > stripes_from
        head_end = np.where(has_stripes, stripes_from * self.stripe, end)
        tail_begin = np.where(has_stripes, stripes_to * self.stripe, end)
        channel = []
        first = []
        last = []
        for lo, hi in ((begin, head_end), (tail_begin, end)):
            chunk = (lo // step)[:, None] + np.arange(2 * channels)
            here = np.maximum(lo[:, None], chunk * step)
            until = np.minimum(hi[:, None], (chunk + 1) * step)
            covered = until > here
            chunk = chunk[covered]
            within = chunk // channels * step - chunk * step
            channel.append(self._channel(chunk))
            first.append(here[covered] + within)
            last.append(until[covered] + within)
        whole = np.flatnonzero(has_stripes)
        if len(whole):
            channel.append(np.tile(np.arange(channels), len(whole)))
            first.append(np.repeat(stripes_from[whole] * step, channels))
            last.append(np.repeat(stripes_to[whole] * step, channels))
        return np.concatenate(channel), np.concatenate(first), np.concatenate(last)

    def _accesses(
        self, channel: Array, first: Array, last: Array
    ) -> tuple[Array, Array, Array]:
        """Channel, first access and end of every piece, in order; none counts twice."""
        size = self.hbm.access_bytes
        order = np.lexsort((first, channel))
        channel = channel[order]
        begin = first[order] // size
        end = -(-last[order] // size)
        # An access that an earlier piece of the channel has made is not made again.
        room = int(end.max()) + 1
        seen = np.maximum.accumulate(channel * room + end)
        before = np.append(0, seen[:-1]) - channel * room
        begin = np.maximum(begin, before)
        kept = end > begin
        return channel[kept], begin[kept], end[kept]

    def _dram_rows(
        self, channel: Array, first: Array, last: Array
    ) -> tuple[Array, Array, Array]:
        """Channel, row (over all banks) and number of accesses of every row touched."""
        per_row = self.hbm.row_bytes // self.hbm.access_bytes
        row_from = first // per_row
        counts = (last - 1) // per_row - row_from + 1
        piece = np.repeat(np.arange(len(first)), counts)
        within = np.arange(len(piece)) - np.repeat(np.cumsum(counts) - counts, counts)
        row = row_from[piece] + within
        accesses = np.minimum(last[piece], (row + 1) * per_row)
        accesses -= np.maximum(first[piece], row * per_row)
        channel = channel[piece]
        is_new = np.flatnonzero(
            (np.diff(channel, prepend=-1) != 0) | (np.diff(row, prepend=-1) != 0)
        )
        return channel[is_new], row[is_new], np.add.reduceat(accesses, is_new)

    def _banks(self, row: Array, accesses: Array) -> tuple[BankShare, ...]:
        """What the rows of one channel, in order, ask of its banks."""
        bank = row % self.banks
        in_bank = row // self.banks
        order = np.argsort(bank, kind="stable")
        starts = np.flatnonzero(np.diff(bank[order], prepend=-1))
        ends = np.append(starts[1:], len(order))
        parts = []
        for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
            mine = order[start:end]
            part = BankShare(
                bank=int(bank[mine[0]]),
                first=int(in_bank[mine[0]]),
                last=int(in_bank[mine[-1]]),
                rows=len(mine),
                accesses=int(accesses[mine].sum()),
            )
            parts.append((int(mine[0]), part))
        return tuple(part for _, part in sorted(parts))


@lru_cache(maxsize=64)
def layout_of(hbm: HbmSpec) -> Layout:
    """The layout of a machine's controllers: one object for all of them."""
    return Layout(hbm)
