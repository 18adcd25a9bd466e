"""A DRAM controller clock by clock: the oracle of the closed form of one channel.

It shares no code with the model. It has the queues, the commands and the timings of a
channel: requests of 64 B wait in a queue for reads or a buffer for writes, go one a
clock into the queue of their bank, and there the first that is ready is served, round
robin over the banks. A clock is 1 ns. Timings are those of DRAMsim3's
HBM2_8Gb_x128.ini; what a timing forbids is checked command by command.
"""

from collections import deque
from dataclasses import dataclass, field

GROUPS = 4
BANKS = 16
ROW_BYTES = 2048
ACCESS_BYTES = 64
BURST = 2
CL = 14
CWL = 4
RCD = 14
RP = 14
RAS = 34
RRD_S = 4
RRD_L = 6
FAW = 30
WTR_S = 6
WTR_L = 8
RTP = 6
WR = 16
RFC = 260
REFI = 3900
TURN = 2
QUEUE = 32
BANK_QUEUE = 8
ROW_HITS = 4
LOW_WATER = 8


@dataclass(eq=False)
class Column:
    """64 B that are read or written, on behalf of request ``index``."""

    index: int
    is_write: bool
    bank: int
    row: int


@dataclass
class Bank:
    """A bank: its open row, what waits for it, and when commands may come."""

    group: int
    row: int | None = None
    hits: int = 0
    queue: list[Column] = field(default_factory=list)
    activate_at: int = 0
    column_at: int = 0
    precharge_at: int = 0


class Channel:
    """One channel, clock by clock."""

    def __init__(self, refreshes: bool = True) -> None:
        per_group = BANKS // GROUPS
        self.banks = [Bank(each // per_group) for each in range(BANKS)]
        self.reads: list[Column] = []
        self.writes: list[Column] = []
        self.draining = 0
        self.turn = 0
        self.clock = 0
        self.activations: deque[tuple[int, int]] = deque(maxlen=4)
        self.last_column: tuple[int, bool, int] | None = None  # clock, write, group
        self.refresh_at = REFI if refreshes else None
        self.ends: dict[int, int] = {}

    def run(self, requests):
        """When each of ``(t, "r" | "w", addr, nbytes)`` has its last data, in ns."""
        columns = deque()
        for index, (t, op, addr, nbytes) in enumerate(requests):
            first = addr // ACCESS_BYTES
            last = (addr + nbytes - 1) // ACCESS_BYTES
            for block in range(first, last + 1):
                row_at, _ = divmod(block * ACCESS_BYTES, ROW_BYTES)
                row, bank = divmod(row_at, BANKS)
                columns.append((t, Column(index, op == "w", bank, row)))
        left = len(columns)
        while left:
            if columns and columns[0][0] <= self.clock:
                queue = self.writes if columns[0][1].is_write else self.reads
                if len(queue) < QUEUE:
                    queue.append(columns.popleft()[1])
            left -= self.tick(flush=not columns)
            idle = not (self.reads or self.writes or any(b.queue for b in self.banks))
            if idle and columns and columns[0][0] > self.clock:
                self.skip_to(int(columns[0][0]))
            self.clock += 1
        return [self.ends[index] for index in range(len(requests))]

    def skip_to(self, clock):
        """Nothing is under way: the clock may run, and refreshes are done meanwhile."""
        while self.refresh_at is not None and self.refresh_at + RFC + RP < clock:
            for bank in self.banks:
                bank.row = None
            self.refresh_at += REFI
        self.clock = max(self.clock, clock - 1)

    def tick(self, flush):
        """One clock: at most one command; then one request goes on to its bank."""
        served = 0
        if self.refresh_at is not None and self.clock >= self.refresh_at:
            self.refresh()
        else:
            served = self.command()
        self.to_bank(flush)
        return served

    def refresh(self):
        """Close a bank; once all are closed, refresh."""
        now = self.clock
        for bank in self.banks:
            if bank.row is not None and now >= bank.precharge_at:
                self.precharge(bank)
                return
        if any(bank.row is not None for bank in self.banks):
            return
        if all(now >= bank.activate_at for bank in self.banks):
            for bank in self.banks:
                bank.activate_at = now + RFC
            self.refresh_at += REFI

    def precharge(self, bank):
        bank.row = None
        bank.activate_at = max(bank.activate_at, self.clock + RP)

    def command(self):
        """The first command that is ready, round robin over the banks."""
        for step in range(BANKS):
            at = (self.turn + 1 + step) % BANKS
            bank = self.banks[at]
            done = self.from_queue(bank)
            if done is not None:
                self.turn = at
                return done
        return 0

    def from_queue(self, bank):
        """A command of a bank: 1 for a column, 0 for another, None for none."""
        now = self.clock
        for at, column in enumerate(bank.queue):
            if bank.row is None:
                if self.may_activate(bank):
                    bank.row = column.row
                    bank.hits = 0
                    bank.column_at = now + RCD
                    bank.precharge_at = now + RAS
                    bank.activate_at = now + RAS + RP
                    self.activations.append((now, bank.group))
                    return 0
                return None
            if bank.row == column.row:
                if now >= bank.column_at and self.bus_free(bank, column):
                    self.serve(bank, column)
                    return 1
            elif at == 0 and now >= bank.precharge_at:
                pending = any(each.row == bank.row for each in bank.queue)
                if not pending or bank.hits >= ROW_HITS:
                    self.precharge(bank)
                    return 0
        return None

    def may_activate(self, bank):
        now = self.clock
        if now < bank.activate_at:
            return False
        if len(self.activations) == 4 and now < self.activations[0][0] + FAW:
            return False
        for clock, group in self.activations:
            gap = RRD_L if group == bank.group else RRD_S
            if now < clock + gap:
                return False
        return True

    def bus_free(self, bank, column):
        if self.last_column is None:
            return True
        clock, was_write, group = self.last_column
        gap = BURST
        if column.is_write and not was_write:
            gap = CL + BURST - CWL + TURN
        elif was_write and not column.is_write:
            gap = CWL + BURST + (WTR_L if group == bank.group else WTR_S)
        return self.clock >= clock + gap

    def serve(self, bank, column):
        now = self.clock
        bank.queue.remove(column)
        bank.hits += 1
        self.last_column = (now, column.is_write, bank.group)
        if column.is_write:
            delay = CWL + BURST
            bank.precharge_at = max(bank.precharge_at, now + delay + WR)
        else:
            delay = CL + BURST
            bank.precharge_at = max(bank.precharge_at, now + RTP)
        self.ends[column.index] = max(self.ends.get(column.index, 0), now + delay)

    def to_bank(self, flush):
        """Reads go on first; writes when their buffer is full, and then all of it."""
        if self.draining == 0:
            full = len(self.writes) >= QUEUE
            spare = not any(bank.queue for bank in self.banks) and not self.reads
            if full or (spare and (len(self.writes) > LOW_WATER or flush)):
                self.draining = len(self.writes)
        queue = self.writes if self.draining else self.reads
        for column in queue:
            bank = self.banks[column.bank]
            if len(bank.queue) < BANK_QUEUE:
                bank.queue.append(column)
                queue.remove(column)
                if column.is_write:
                    self.draining -= 1
                return
