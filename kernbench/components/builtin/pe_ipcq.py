"""The queues of a PE to its neighbours: rings of slots, credits, back-pressure.

A payload goes slot by slot, as slots of the peer's ring come free; PE_DMA moves the bytes. Data and
their arrival become visible in one step. A slot is given back, by a credit over the real path, when
its bytes have been copied to scratch.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial

import simpy

from kernbench.common.messages import MsgBase, Region, Transaction
from kernbench.common.pe_commands import PushCmd, RecvCmd, SendCmd, SlotCopy
from kernbench.components.base import ComponentBase, Process, Sim
from kernbench.components.builtin.pe_dma import PeDma
from kernbench.components.builtin.pe_tcm import PeTcm
from kernbench.errors import KernelError
from kernbench.topology.graph import Node
from kernbench.triton_emu.issuer import part

DIRECTIONS = ("N", "S", "E", "W", "global_N", "global_S", "global_E", "global_W")


@dataclass(frozen=True, slots=True)
class Ring:
    """Where what a neighbour sends lands: ``slots`` of ``slot_bytes`` each from ``base`` on."""

    space: str
    base: int
    slots: int
    slot_bytes: int
    credit_bytes: int


@dataclass(slots=True, eq=False)
class Queue:
    """One direction: our ``ring``, and the neighbour whose queue ``back`` is its other end.

    ``head`` slots were sent, of which it has given back ``peer_tail``; it has sent ``peer_head``,
    of which ``tail`` were taken. ``landed`` are those in between, by number. ``credit`` and
    ``arrival`` are events, where somebody waits for one.
    """

    ring: Ring
    peer: "PeIpcq"
    back: str
    head: int = 0
    peer_tail: int = 0
    tail: int = 0
    peer_head: int = 0
    landed: dict[int, SlotCopy] = field(default_factory=dict)
    credit: simpy.Event | None = None
    arrival: simpy.Event | None = None


class PeIpcq(ComponentBase):
    """Serves sends and recvs, those of each direction one after the other."""

    serves = (SendCmd, RecvCmd)
    channels = 2 * len(DIRECTIONS)

    def __init__(self, node: Node, sim: Sim) -> None:
        super().__init__(node, sim)
        self.queues: dict[str, Queue] = {}

    @property
    def peers(self) -> dict[str, str]:
        """The pe_cpu of the neighbour in each wired direction."""
        at = self.sim.graph.at
        return {
            d: at(*queue.peer.node.place, "pe_cpu") for d, queue in self.queues.items()
        }

    def connect(self, direction: str, ring: Ring, peer: "PeIpcq", back: str) -> None:
        """Wire a direction: ``peer`` sends into ``ring`` from its direction ``back``."""
        self.queues[direction] = Queue(ring, peer, back)

    def channel(self, msg: SendCmd | RecvCmd) -> int:
        """Sends and recvs of each direction have one each."""
        return 2 * DIRECTIONS.index(msg.direction) + isinstance(msg, RecvCmd)

    def run(self, env: simpy.Environment, msg: SendCmd | RecvCmd) -> Process:
        """All slots of a payload; for program order it has not started until ``_starts``."""
        msg.t_start = -1.0
        yield from (
            self._send(env, msg) if isinstance(msg, SendCmd) else self._recv(env, msg)
        )

    def _starts(self, env: simpy.Environment, msg: MsgBase) -> None:
        """Ops that the PE issued later may now write what is sent, or use what is received."""
        msg.t_start = env.now
        self._on_process_start(env, msg)

    def _send(self, env: simpy.Environment, msg: SendCmd) -> Process:
        queue, dma = self.queues[msg.direction], self.sibling("pe_dma", PeDma)
        ring, reads = queue.peer.queues[queue.back].ring, list[simpy.Event]()
        for piece in _pieces(msg.src, ring.slot_bytes):
            addr = ring.base + queue.head % ring.slots * ring.slot_bytes
            copy = _copy(msg, piece, replace(piece, space=ring.space, addr=addr))
            if queue.head - queue.peer_tail == ring.slots:
                t0, queue.credit = env.now, env.event()
                holder = yield queue.credit
                copy.wait(self.node.id, "credit", t0, env.now, holder)
            reads.append(read := env.event())
            landed = partial(queue.peer.arrive, queue.back, queue.head, copy)
            push = PushCmd(
                cmd=msg.cmd, waits=copy.waits, copy=copy, read=read, on_landed=landed
            )
            env.process(dma._forward_txn(env, push))
            queue.head += 1
        for read in reads:
            yield read
        self._starts(env, msg)

    def arrive(self, direction: str, number: int, copy: SlotCopy) -> None:
        """Slot ``number`` of those sent to us in ``direction`` has landed, and can be taken."""
        queue = self.queues[direction]
        self.sim.put(copy.dst, copy.data)
        self._record(copy, self.sibling("pe_dma", PeDma).node.id, "ipcq_copy")
        queue.peer_head += 1
        queue.landed[number] = copy
        if queue.arrival is not None and number == queue.tail:
            queue.arrival.succeed()
            queue.arrival = None

    def _recv(self, env: simpy.Environment, msg: RecvCmd) -> Process:
        queue = self.queues[msg.direction]
        for piece in _pieces(msg.dst, queue.ring.slot_bytes):
            copy = _copy(msg, piece, piece)
            if queue.tail not in queue.landed:
                t0, queue.arrival = env.now, env.event()
                yield queue.arrival
                copy.wait(
                    self.node.id, "arrival", t0, env.now, queue.landed[queue.tail]
                )
            sent = queue.landed.pop(queue.tail).dst
            queue.tail += 1
            if sent.nbytes != piece.nbytes:
                raise KernelError(
                    f"{self.node.id}: {msg.call} expects {piece.nbytes} bytes in the next slot "
                    f"from {msg.direction}, but {sent.nbytes} were sent; send and recv one shape"
                )
            copy.src, copy.t_start = (
                replace(piece, space=sent.space, addr=sent.addr),
                env.now,
            )
            if piece.addr + piece.nbytes == msg.dst.addr + msg.dst.nbytes:
                self._starts(env, msg)
            copy.data = self.sim.peek(copy.src)
            yield from self._take(env, copy)
            msg.land(piece, copy.data)
            self._record(copy, self.node.id, "ipcq_recv")
            msg.row = copy.row
            self.give_back(queue, copy)

    def _take(self, env: simpy.Environment, copy: SlotCopy) -> Process:
        """Copy a slot to scratch: over the channels of the TCM, or as a DMA read of its memory."""
        if copy.src.space != "tcm":
            yield self.sibling("pe_dma", PeDma).read(
                copy, copy.src.addr, copy.src.nbytes
            )
            return
        tcm = self.sibling("pe_tcm", PeTcm)
        wires = (tcm.read_channel, tcm.write_channel)
        for wire in wires:
            wire.enter(env.now, copy.src.nbytes)
        yield env.timeout(max(wire.free_at for wire in wires) - env.now)

    def give_back(self, queue: Queue, copy: SlotCopy) -> None:
        """Return the slot that ``copy`` has emptied."""
        self.sim.env.process(self._credit(queue, copy))

    def _credit(self, queue: Queue, copy: SlotCopy) -> Process:
        path = self.sim.router.route("pe", self.node.id, queue.peer.node.id)
        credit = Transaction(path, queue.ring.credit_bytes, MsgBase(cmd=copy.cmd))
        yield from self.sim.transfer(credit)
        there = queue.peer.queues[queue.back]
        there.peer_tail += 1
        if there.credit is not None:
            there.credit.succeed(copy)
            there.credit = None

    def _record(self, copy: SlotCopy, node: str, name: str) -> None:
        if self._op_logger is not None:
            src, dst, now = copy.src, copy.dst, self.sim.env.now
            from_to = (
                copy.t_start,
                now,
                node,
                src.space,
                src.addr,
                dst.space,
                dst.addr,
            )
            what = (dst.shape, dst.dtype, dst.nbytes, copy.data)
            self._op_logger.record_copy(*(from_to + what), msg=copy, op_name=name)
        copy.resumed_by = copy.data = (
            None  # a chain of them would keep every message alive
        )


def _copy(msg: SendCmd | RecvCmd, src: Region, dst: Region) -> SlotCopy:
    """The next copy of ``msg``, which hands over what it has waited for."""
    waits, msg.waits = msg.waits, []
    return SlotCopy(
        cmd=msg.cmd, resumed_by=msg.resumed_by, waits=waits, src=src, dst=dst
    )


def _pieces(whole: Region, slot_bytes: int) -> Iterator[Region]:
    """A tensor cut into what a slot holds."""
    for at in range(0, whole.nbytes, slot_bytes):
        yield part(
            whole, whole.space, whole.addr + at, min(slot_bytes, whole.nbytes - at)
        )
