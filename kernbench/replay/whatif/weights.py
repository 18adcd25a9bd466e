"""Weights of edges: what the model says that a step takes on an idle machine.

A weight is one of a class: a kind of step with its numbers, such as the product of a
shape or bytes along a path. Of a million ops there are some thousand classes, so that a
changed machine costs nothing by op. Each kind is a function of the machine and of
columns of those numbers; the result is in exact ns.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from kernbench.common.arrays import Array, Floats, Ints, distinct_rows
from kernbench.common.dtypes import DTYPES
from kernbench.common.exact_time import exact_ns, exact_times
from kernbench.replay.whatif.launch_ways import LAUNCH_BYTES
from kernbench.replay.whatif.machine import Machine, message_ns

REQUEST_BYTES = 32
"""Of the message that asks for data (docs/machine.md, "DMA")."""

RATES = sorted({row.rate for row in DTYPES.values()})
"""The fields of ``pe.gemm.rate`` and ``pe.math.rate``; classes have places in it."""

DATAFLOWS = ("ws", "os", "is")

Formula: TypeAlias = Callable[..., Floats]
"""What a kind of step takes, from the machine and a column for each of its numbers."""


# -- commands ----------------------------------------------------------------------


def nothing(machine: Machine) -> Floats:
    """What follows at once."""
    return np.zeros(1)


def constant(machine: Machine, ticks: Ints) -> Floats:
    """What no field of the machine changes, in ticks of 2^-10 ns."""
    return ticks / 1024


def issue(machine: Machine) -> Floats:
    """A PE_CPU issues a call."""
    return np.array([machine.issue_ns])


def set_up(machine: Machine) -> Floats:
    """A DMA prepares a command; of a push that is over when its record begins."""
    return np.array([exact_ns(machine.spec.pe.dma.setup_ns)])


def issued_push(machine: Machine) -> Floats:
    """A send is issued, and its push set up."""
    return issue(machine) + set_up(machine)


def cycle(machine: Machine) -> Floats:
    """An op is held behind one that it conflicts with."""
    return np.array([machine.cycle_ns])


def launch(machine: Machine, first: Ints, second: Ints, third: Ints) -> Floats:
    """A launch goes from the host's end point to the PE that gets it last."""
    nbytes = np.full(len(first), LAUNCH_BYTES)
    ways = [message(machine, path, nbytes) for path in (first, second, third)]
    known = (first >= 0) & (second >= 0) & (third >= 0)
    begun = exact_ns(machine.spec.sip.io.pcie_ep_overhead_ns)
    return np.where(known, begun + sum(ways), 0.0)


def credit(machine: Machine, path: Ints, nbytes: Ints) -> Floats:
    """A slot that was emptied is given back, and the next push is set up."""
    return message(machine, path, nbytes) + exact_ns(machine.spec.pe.dma.setup_ns)


def message(machine: Machine, path: Ints, nbytes: Ints) -> Floats:
    """A message goes along a path, whole at its end; path -1 is no way at all."""
    known = np.maximum(path, 0)
    time = machine.way(known) + message_ns(nbytes, machine.slowest[known])
    return np.where(path >= 0, time, 0.0)


# -- engines -----------------------------------------------------------------------


def _folds(
    machine: Machine, m: Ints, n: Ints, k: Ints, dataflow: Ints
) -> tuple[Ints, Ints]:
    """How often the array is filled, and the vectors that stream through each time."""
    gemm = machine.spec.pe.gemm
    flow = np.where(dataflow < 0, DATAFLOWS.index(gemm.dataflow), dataflow)
    rows = np.choose(flow, [k, m, k])
    cols = np.choose(flow, [n, n, m])
    vectors = np.choose(flow, [m, k, n])
    return -(-rows // gemm.rows) * -(-cols // gemm.cols), vectors


def _gemm_ns(machine: Machine, cycles: Array, rate: Ints) -> Floats:
    """How long so many cycles of the array take in a dtype."""
    rates = machine.spec.pe.gemm.rate
    by_rate = np.array([getattr(rates, name) for name in RATES])
    return exact_times(cycles / (machine.spec.pe.clock_ghz * by_rate[rate]))


def dot(
    machine: Machine,
    m: Ints,
    n: Ints,
    k: Ints,
    dataflow: Ints,
    rate: Ints,
    read: Ints,
    written: Ints,
) -> Floats:
    """A product on a cold array, or as long as its operands take from the TCM."""
    gemm = machine.spec.pe.gemm
    number, vectors = _folds(machine, m, n, k, dataflow)
    cycles = number * (2 * gemm.rows + gemm.cols + vectors - 2)
    work = _gemm_ns(machine, cycles, rate)
    return _streamed(machine, work, read, written) + exact_ns(gemm.overhead_ns)


def _streamed(machine: Machine, work: Floats, read: Ints, written: Ints) -> Floats:
    """Work during which operands stream from the TCM and a result goes there."""
    tcm = machine.spec.pe.tcm
    moved = np.maximum(
        message_ns(read, tcm.read_bw_gbs), message_ns(written, tcm.write_bw_gbs)
    )
    return np.maximum(work, moved)


def cold_tile(
    machine: Machine,
    m: Ints,
    n: Ints,
    k: Ints,
    dataflow: Ints,
    rate: Ints,
    is_first: Ints,
) -> Floats:
    """A tile that finds the array idle."""
    gemm = machine.spec.pe.gemm
    number, vectors = _folds(machine, m, n, k, dataflow)
    cycles = 2 * gemm.rows + gemm.cols + vectors - 2
    cycles = cycles + (number - 1) * np.maximum(vectors, gemm.rows)
    work = _gemm_ns(machine, cycles, rate)
    return work + exact_ns(gemm.overhead_ns) * is_first


def streaming_tile(
    machine: Machine,
    m: Ints,
    n: Ints,
    k: Ints,
    dataflow: Ints,
    rate: Ints,
    is_first: Ints,
) -> Floats:
    """A tile behind another one of its composite, in the same instant."""
    gemm = machine.spec.pe.gemm
    number, vectors = _folds(machine, m, n, k, dataflow)
    work = _gemm_ns(machine, number * np.maximum(vectors, gemm.rows), rate)
    return work + exact_ns(gemm.overhead_ns) * is_first


def math(
    machine: Machine,
    elements: Ints,
    cost: Ints,
    ops: Ints,
    rates: Ints,
    read: Ints,
    written: Ints,
) -> Floats:
    """``ops`` ops one after the other on so many elements, which cost ``cost`` in all.

    ``rates`` has a bit for each rate of its dtypes, of which the least counts; ``read``
    and ``written`` are bytes of the TCM. Several ops are rounded together.
    """
    pe = machine.spec.pe
    speed = np.full(len(elements), np.inf)
    for number, name in enumerate(RATES):
        has_it = rates >> number & 1 > 0
        speed[has_it] = np.minimum(speed[has_it], getattr(pe.math.rate, name))
    passes = -(-elements // pe.math.lanes)
    cycles = passes * cost / speed + ops * pe.math.latency_cycles
    work = exact_times(cycles / pe.clock_ghz)
    return _streamed(machine, work, read, written)


def fetch(machine: Machine, nbytes: Ints) -> Floats:
    """A tile's operands go from the TCM to the array."""
    return message_ns(nbytes, machine.spec.pe.tcm.read_bw_gbs)


def store(machine: Machine, nbytes: Ints) -> Floats:
    """A tile's result goes to the TCM."""
    return message_ns(nbytes, machine.spec.pe.tcm.write_bw_gbs)


def stored_by_dot(machine: Machine, nbytes: Ints) -> Floats:
    """The result of a dot goes to the TCM, and the dot ends."""
    return store(machine, nbytes) + exact_ns(machine.spec.pe.gemm.overhead_ns)


def taken_slot(machine: Machine, nbytes: Ints) -> Floats:
    """A slot of a ring is copied within the TCM."""
    return np.maximum(fetch(machine, nbytes), store(machine, nbytes))


def sent(machine: Machine, nbytes: Ints) -> Floats:
    """The bytes of a push have left the PE."""
    return message_ns(nbytes, machine.spec.pe.dma.to_router_bw_gbs)


def sent_and_cycle(machine: Machine, nbytes: Ints) -> Floats:
    """An op is held behind a push until a cycle after its bytes have left."""
    return sent(machine, nbytes) + cycle(machine)


def sent_and_set_up(machine: Machine, nbytes: Ints) -> Floats:
    """The bytes of a push have left, and the push of the next send is set up."""
    return sent(machine, nbytes) + set_up(machine)


# -- memories and links ------------------------------------------------------------

IN_TCM = 0
IN_SRAM = 1
IN_OPEN_ROW = 2
IN_CLOSED_ROW = 3


def _access(machine: Machine, memory: Ints, lead: float) -> Floats:
    """From a request to the first byte."""
    sram = exact_ns(machine.spec.cube.sram.access_ns)
    return np.array([0.0, sram, lead, lead + machine.dram.open_row])[memory]


def set_up_by(machine: Machine, by: Ints) -> Floats:
    """What a DMA, or the host's end point, takes before it begins; ``by`` is as of
    ``read_begins``.
    """
    ours = exact_ns(machine.spec.pe.dma.setup_ns)
    host = exact_ns(machine.spec.sip.io.pcie_ep_overhead_ns)
    return np.array([ours, host, 0.0])[by]


def read_begins(machine: Machine, request: Ints, by: Ints, memory: Ints) -> Floats:
    """Set-up, the way of a request, and the access until data leave the memory.

    ``by`` is 0 for a DMA, 1 for the host, 2 where the set-up was before.
    """
    asked = message(machine, request, np.full(len(request), REQUEST_BYTES))
    access = _access(machine, memory, machine.dram.read_lead)
    return set_up_by(machine, by) + asked + access


def write_begins(machine: Machine, by: Ints) -> Floats:
    """Set-up until the first bytes leave."""
    return set_up_by(machine, by)


def _bus_ns(machine: Machine, nbytes: Ints, memory: Ints) -> Floats:
    """How long the channels of a memory take for bytes that are spread over them.

    What is less than a chunk for each channel lies in few of them.
    """
    hbm = machine.spec.cube.hbm
    in_one = np.maximum(nbytes / hbm.channels, np.minimum(nbytes, hbm.interleave_bytes))
    accesses = np.ceil(in_one / hbm.access_bytes)
    of_hbm = accesses * machine.dram.access
    of_sram = message_ns(nbytes, machine.spec.cube.sram.to_router_bw_gbs)
    zeros = np.zeros(len(of_hbm))
    return np.asarray(np.choose(memory, [zeros, of_sram, of_hbm, of_hbm]))


def _rate(machine: Machine, by: Ints) -> Floats:
    """The bytes a ns that a transaction is bounded by beside its path."""
    return np.where(by == 1, machine.spec.system.pcie_bw_gbs, np.inf)


def bursts_follow(
    machine: Machine, path: Ints, nbytes: Ints, by: Ints, memory: Ints
) -> Floats:
    """From the first burst to the last one, ``nbytes`` behind it, on the first link."""
    speed = np.minimum(machine.speed_at(path, 0), _rate(machine, by))
    return np.maximum(message_ns(nbytes, speed), _bus_ns(machine, nbytes, memory))


def reaches(
    machine: Machine, path: Ints, hop: Ints, nbytes: Ints, since: Ints
) -> Floats:
    """From hop ``since`` to ``hop``, ``nbytes`` behind a burst that went before."""
    way = machine.way_to(path, hop) - machine.way_to(path, since)
    return way + message_ns(nbytes, machine.speed_at(path, hop))


def lands(
    machine: Machine, path: Ints, hop: Ints, nbytes: Ints, by: Ints, memory: Ints
) -> Floats:
    """From the start on the link of a hop until the bytes of a read are all there."""
    speed = np.minimum(machine.slowest[path], _rate(machine, by))
    tail = np.maximum(message_ns(nbytes, speed), _bus_ns(machine, nbytes, memory))
    return machine.way(path, hop) + tail


def is_written(
    machine: Machine, path: Ints, hop: Ints, nbytes: Ints, by: Ints, memory: Ints
) -> Floats:
    """From the start on the link of a hop until the bytes of a write are all there."""
    access = _access(machine, memory, machine.dram.write_lead)
    return lands(machine, path, hop, nbytes, by, memory) + access


def arrives(machine: Machine, path: Ints, hop: Ints) -> Floats:
    """From the start on the link of a hop until a header is at the end of the path."""
    return machine.way(path, hop)


def in_sram(machine: Machine) -> Floats:
    """From when a burst has the port of an SRAM until its first byte leaves."""
    return np.array([exact_ns(machine.spec.cube.sram.access_ns)])


def is_in_sram(machine: Machine, path: Ints, nbytes: Ints, by: Ints) -> Floats:
    """From when the last burst of a write has the port until all bytes are there."""
    memory = np.full(len(path), IN_SRAM)
    at_end = machine.ways.counts[path]
    return is_written(machine, path, at_end, nbytes, by, memory)


def through_port(machine: Machine, nbytes: Ints) -> Floats:
    """Bytes pass the port of an SRAM that is not idle in between."""
    return message_ns(nbytes, machine.spec.cube.sram.to_router_bw_gbs)


def on_link(machine: Machine, edge: Ints, nbytes: Ints) -> Floats:
    """Bytes pass a link that is not idle in between."""
    return message_ns(nbytes, machine.links.speed[edge])


def in_channels(machine: Machine, nbytes: Ints, rows: Ints) -> Floats:
    """A controller is at work: bytes of each of its buses, in 1/64, and its rows.

    ``rows`` is what it was seen to take beyond its buses, in 1/1024 of the time that a
    row of one bank takes.
    """
    dram = machine.dram
    bus_ns = nbytes * (dram.access / machine.spec.cube.hbm.access_bytes) / 64
    return exact_times(bus_ns + rows * dram.row / 1024)


class Weights:
    """The classes of weights of a graph, each with the machine's answer.

    Class 0 is ``nothing``.
    """

    def __init__(self) -> None:
        self._kinds: list[tuple[Formula, Array]] = []
        self._count = 0
        self._gathered: dict[Formula, tuple[Ints, Array]] | None = None
        self.of(nothing)

    def __len__(self) -> int:
        return self._count

    def of(self, formula: Formula, *columns: Ints) -> Ints:
        """The class of each row of numbers; of a kind without numbers one class."""
        if not columns:
            return self._added(formula, np.empty((1, 0), np.int64))
        table, which = distinct_rows([np.asarray(c, np.int64) for c in columns])
        return np.asarray(self._added(formula, table)[which])

    def without_result(self) -> Ints:
        """By class that of the same dot or op of MATH if it writes nothing; others are
        themselves. What is written is the last number of a class.
        """
        found = np.arange(self._count)
        for formula in (dot, math):
            if formula in self._by_formula():
                numbers, table = self._by_formula()[formula]
                nothing_written = np.zeros(len(table), np.int64)
                found[numbers] = self.of(formula, *table.T[:-1], nothing_written)
        return found

    def _added(self, formula: Formula, table: Array) -> Ints:
        self._kinds.append((formula, table))
        self._gathered = None
        first = self._count
        self._count += len(table)
        return np.arange(first, self._count)

    def on(self, machine: Machine) -> Floats:
        """By class its weight on a machine, ns."""
        found = np.empty(self._count)
        for formula, (numbers, table) in self._by_formula().items():
            found[numbers] = formula(machine, *table.T)
        return found

    def _by_formula(self) -> dict[Formula, tuple[Ints, Array]]:
        """The classes of each formula, and the numbers of each of them, a row each."""
        if self._gathered is None:
            numbers: dict[Formula, list[Ints]] = {}
            tables: dict[Formula, list[Array]] = {}
            first = 0
            for formula, table in self._kinds:
                classes = np.arange(first, first + len(table))
                numbers.setdefault(formula, []).append(classes)
                tables.setdefault(formula, []).append(table)
                first += len(table)
            self._gathered = {
                formula: (np.concatenate(some), np.concatenate(tables[formula]))
                for formula, some in numbers.items()
            }
        return self._gathered
