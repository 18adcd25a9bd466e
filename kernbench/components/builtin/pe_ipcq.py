"""The queues of a PE to its neighbours: rings of slots, credits, back-pressure.

A payload goes slot by slot, as slots of the peer's ring come free; PE_DMA moves the
bytes. Data and their arrival become visible in one step. A slot is given back, by a
credit over the real path, when its bytes have been copied to scratch.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial

import simpy

from kernbench.common.exact_time import TICK_NS
from kernbench.common.messages import Held, MsgBase, Region, Transaction
from kernbench.common.pe_commands import PushCmd, RecvCmd, SendCmd, SlotCopy
from kernbench.components.base import ComponentBase, Process, Sim
from kernbench.components.builtin.pe_dma import REQUEST_BYTES, PeDma
from kernbench.components.builtin.pe_tcm import PeTcm
from kernbench.components.ring_sizes import ShortRing
from kernbench.errors import KernelError
from kernbench.topology.graph import Node
from kernbench.triton_emu.issuer import Move

DIRECTIONS = ("N", "S", "E", "W", "global_N", "global_S", "global_E", "global_W")


@dataclass(frozen=True, slots=True)
class Ring:
    """Where what a neighbour sends lands: ``slots`` of ``slot_bytes`` each.

    They lie in memory ``space`` from physical address ``base`` on. A slot that was read
    is returned with a message of ``credit_bytes``.
    """

    space: str
    base: int
    slots: int
    slot_bytes: int
    credit_bytes: int

    def slot_addr(self, number: int) -> int:
        """The address of the slot that payload ``number`` goes through."""
        return self.base + number % self.slots * self.slot_bytes


@dataclass(slots=True, eq=False)
class Queue:
    """One direction: our ``ring``, and the neighbour whose queue ``back`` is its end.

    ``head`` slots were sent, of which the neighbour has given back ``peer_tail``; it
    has sent ``peer_head``, of which ``tail`` were taken. ``landed`` are those in
    between, by number. ``full_run`` counts the full slots that were sent last, one
    after the other. ``credit`` and ``arrival`` are events, where somebody waits for
    one.
    """

    ring: Ring
    peer: "PeIpcq"
    back: str
    head: int = 0
    peer_tail: int = 0
    tail: int = 0
    peer_head: int = 0
    landed: dict[int, SlotCopy] = field(default_factory=dict)
    full_run: int = 0
    credit: simpy.Event | None = None
    arrival: simpy.Event | None = None

    @property
    def other_end(self) -> "Queue":
        """The neighbour's queue that leads back here."""
        return self.peer.queues[self.back]


class PeIpcq(ComponentBase):
    """Serves sends and recvs, those of each direction one after the other."""

    serves = (SendCmd, RecvCmd)
    channels = 2 * len(DIRECTIONS)
    before_take: Callable[[simpy.Environment, SlotCopy], Process] | None = None
    """What has to pass before a slot is taken; None where nothing has to."""

    def __init__(self, node: Node, sim: Sim) -> None:
        super().__init__(node, sim)
        self.queues: dict[str, Queue] = {}

    @property
    def peers(self) -> dict[str, str]:
        """The pe_cpu of the neighbour in each wired direction."""
        at = self.sim.graph.at
        return {
            direction: at(*queue.peer.node.place, "pe_cpu")
            for direction, queue in self.queues.items()
        }

    @property
    def slot_bytes(self) -> dict[str, int]:
        """The size of a slot of the ring in each wired direction."""
        return {way: queue.ring.slot_bytes for way, queue in self.queues.items()}

    def held(self, direction: str, is_send: bool) -> Held:
        """What the next slot that is sent, or taken, waits for now; nothing if it can
        be.
        """
        queue = self.queues[direction]
        peer = self.peers[direction]
        if is_send:
            slots = queue.other_end.ring.slots
            if queue.head - queue.peer_tail < slots:
                return Held()
            return Held(f"its ring to {peer} is full ({slots} of {slots} slots)", True)
        if queue.tail in queue.landed:
            return Held()
        return Held(f"nothing more has come from {peer}")

    def connect(self, direction: str, ring: Ring, peer: "PeIpcq", back: str) -> None:
        """Wire a direction: ``peer`` sends into ``ring`` from its own ``back``."""
        self.queues[direction] = Queue(ring, peer, back)

    def channel(self, msg: SendCmd | RecvCmd) -> int:
        """Sends and recvs of each direction have one each."""
        pair = 2 * DIRECTIONS.index(msg.direction)
        return pair + 1 if isinstance(msg, RecvCmd) else pair

    def run(self, env: simpy.Environment, msg: SendCmd | RecvCmd) -> Process:
        """Serve all slots of a payload.

        For program order the message has not started until ``_starts``.
        """
        msg.t_start = -1.0
        if isinstance(msg, SendCmd):
            yield from self._send(env, msg)
        else:
            yield from self._recv(env, msg)
        msg.undone = ""  # type: ignore[misc]

    def _starts(self, env: simpy.Environment, msg: MsgBase) -> None:
        """Let later ops of the PE write what is sent, or use what is received."""
        msg.t_start = env.now
        self._on_process_start(env, msg)

    def _send(self, env: simpy.Environment, msg: SendCmd) -> Process:
        """Push a payload slot by slot; ends when all of it has been read."""
        queue = self.queues[msg.direction]
        dma = self.sibling("pe_dma", ComponentBase)
        ring = queue.other_end.ring
        reads: list[simpy.Event] = []
        for piece in _pieces(msg.src, ring.slot_bytes):
            slot = replace(piece, space=ring.space, addr=ring.slot_addr(queue.head))
            copy = _copy(msg, piece, slot)
            if queue.head - queue.peer_tail == ring.slots:
                if queue.full_run >= ring.slots:
                    self._check_size(msg.direction, queue)
                t0 = env.now
                queue.credit = env.event()
                holder = yield queue.credit
                copy.wait(self.node.id, "credit", t0, env.now, holder)
            read = env.event()
            reads.append(read)
            push = PushCmd(
                cmd=msg.cmd,
                waits=copy.waits,
                copy=copy,
                read=read,
                on_landed=partial(queue.peer.arrive, queue.back, queue.head, copy),
            )
            env.process(self._push(env, dma, push))
            queue.head += 1
            queue.full_run += 1
            if piece.nbytes < ring.slot_bytes:
                queue.full_run = 0
        for read in reads:
            yield read
        self._starts(env, msg)

    def _check_size(self, direction: str, queue: Queue) -> None:
        """Remember the neighbour's ring if all its slots are too few for the link."""
        key = (self.node.id, direction)
        if key in self.sim.short_rings:
            return
        ring = queue.other_end.ring
        peer = queue.peer
        dma = self.sibling("pe_dma", PeDma)
        there = self.sim.network.route(dma.path_to(ring.base))
        back = self.sim.network.route(
            self.sim.router.route("pe", peer.node.id, self.node.id)
        )
        spec = self.sim.graph.spec
        round_trip_ns = (
            spec.pe.dma.setup_ns
            + there.zero_load(ring.slot_bytes)
            + self._access_ns(ring)
            + peer.copy_out_ns(ring)
            + back.zero_load(ring.credit_bytes)
        )
        found = ShortRing(ring.slots, ring.slot_bytes, there.slowest, round_trip_ns)
        if found.is_short:
            self.sim.short_rings[key] = found

    def _access_ns(self, ring: Ring) -> float:
        """The access latency of the memory that a ring lies in."""
        cube = self.sim.graph.spec.cube
        latencies = {"sram": cube.sram.access_ns, "hbm": cube.hbm.access_ns}
        return latencies.get(ring.space, 0.0)

    def copy_out_ns(self, ring: Ring) -> float:
        """What taking a full slot of one of our rings costs on the idle machine."""
        if ring.space == "tcm":
            tcm = self.sim.graph.spec.pe.tcm
            return ring.slot_bytes / min(tcm.read_bw_gbs, tcm.write_bw_gbs)
        path = self.sibling("pe_dma", PeDma).path_to(ring.base)
        request_ns = self.sim.network.route(path).zero_load(REQUEST_BYTES)
        data_ns = self.sim.network.route(path[::-1]).zero_load(ring.slot_bytes)
        return request_ns + self._access_ns(ring) + data_ns

    def _push(
        self, env: simpy.Environment, dma: ComponentBase, push: PushCmd
    ) -> Process:
        """Have the DMA push a slot; what only takes time moves it all at its end."""
        yield from dma._forward_txn(env, push)
        if push.read.triggered:
            return
        copy = push.copy
        if env.now <= push.t_start:
            yield env.timeout(TICK_NS)
        copy.t_start = push.t_start
        copy.slot = push.slot
        copy.data = self.sim.peek(copy.src)
        push.read.succeed()
        push.on_landed()

    def arrive(self, direction: str, number: int, copy: SlotCopy) -> None:
        """Slot ``number`` of those sent to us in ``direction`` has landed.

        From now on it can be taken.
        """
        queue = self.queues[direction]
        self.sim.put(copy.dst, copy.data)
        dma = self.sibling("pe_dma", ComponentBase)
        self._record(copy, dma.node.id, "ipcq_copy")
        queue.peer_head += 1
        queue.landed[number] = copy
        if queue.arrival is not None and number == queue.tail:
            queue.arrival.succeed()
            queue.arrival = None

    def _recv(self, env: simpy.Environment, msg: RecvCmd) -> Process:
        """Take a payload slot by slot into scratch, and give each slot back."""
        queue = self.queues[msg.direction]
        end = msg.dst.addr + msg.dst.nbytes
        for piece in _pieces(msg.dst, queue.ring.slot_bytes):
            copy = _copy(msg, piece, piece)
            if queue.tail not in queue.landed:
                t0 = env.now
                queue.arrival = env.event()
                yield queue.arrival
                sender = queue.landed[queue.tail]
                copy.wait(self.node.id, "arrival", t0, env.now, sender)
            sent = queue.landed.pop(queue.tail).dst
            queue.tail += 1
            if sent.nbytes != piece.nbytes:
                raise self._mismatch(msg, piece, sent)
            copy.src = replace(piece, space=sent.space, addr=sent.addr)
            if self.before_take is not None:
                yield from self.before_take(env, copy)
            copy.t_start = env.now
            if piece.addr + piece.nbytes == end:
                self._starts(env, msg)
            copy.data = self.sim.peek(copy.src)
            yield from self._take(env, copy)
            msg.land(piece, copy.data)
            self._record(copy, self.node.id, "ipcq_recv")
            msg.row = copy.row
            self.give_back(queue, copy)

    def _mismatch(self, msg: RecvCmd, piece: Region, sent: Region) -> KernelError:
        """The error for a slot that holds more or less than the recv expects."""
        return KernelError(
            f"{self.node.id}: {msg.call} expects {piece.nbytes} bytes in the next slot "
            f"from {msg.direction}, but {sent.nbytes} were sent; "
            "send and recv one shape"
        )

    def _take(self, env: simpy.Environment, copy: SlotCopy) -> Process:
        """Copy a slot to scratch: by the channels of the TCM, or as a DMA read."""
        if copy.src.space != "tcm":
            dma = self.sibling("pe_dma", PeDma)
            yield dma.read(copy, copy.src.where)
            return
        tcm = self.sibling("pe_tcm", PeTcm)
        tcm.read_channel.enter(env.now, copy.src.nbytes)
        tcm.write_channel.enter(env.now, copy.src.nbytes)
        free_at = max(tcm.read_channel.free_at, tcm.write_channel.free_at)
        yield env.timeout(free_at - env.now)

    def give_back(self, queue: Queue, copy: SlotCopy) -> None:
        """Return the slot that ``copy`` has emptied."""
        self.sim.env.process(self._credit(queue, copy))

    def _credit(self, queue: Queue, copy: SlotCopy) -> Process:
        """Carry a credit to the neighbour, who may then send one slot more."""
        path = self.sim.router.route("pe", self.node.id, queue.peer.node.id)
        credit = Transaction(path, queue.ring.credit_bytes, MsgBase(cmd=copy.cmd))
        yield from self.sim.transfer(credit)
        there = queue.other_end
        there.peer_tail += 1
        if there.credit is not None:
            there.credit.succeed(copy)
            there.credit = None

    def _record(self, copy: SlotCopy, node: str, name: str) -> None:
        """Record a copy that has ended, as an op of ``node`` called ``name``."""
        if self._op_logger is not None:
            self._op_logger.record_copy(
                copy.t_start,
                self.sim.env.now,
                node,
                copy.src.space,
                copy.src.addr,
                copy.dst.space,
                copy.dst.addr,
                copy.dst.shape,
                copy.dst.dtype,
                copy.dst.nbytes,
                copy.data,
                msg=copy,
                op_name=name,
            )
        # A chain of them would keep every message alive.
        copy.resumed_by = None
        copy.data = None


def _copy(msg: SendCmd | RecvCmd, src: Region, dst: Region) -> SlotCopy:
    """The next copy of ``msg``, which hands over what it has waited for."""
    waits = msg.waits
    msg.waits = []
    return SlotCopy(
        cmd=msg.cmd, resumed_by=msg.resumed_by, waits=waits, src=src, dst=dst
    )


def _pieces(whole: Region, slot_bytes: int) -> Iterator[Region]:
    """A tensor cut into what a slot holds."""
    for at in range(0, whole.nbytes, slot_bytes):
        nbytes = min(slot_bytes, whole.nbytes - at)
        yield Move(at, nbytes, None, addr=0).in_tensor(whole)
