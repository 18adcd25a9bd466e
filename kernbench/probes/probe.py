"""Latency and bandwidth of every kind of path on the empty machine.

Each is computed by formula and simulated. The formula is that of docs/machine.md,
"DMA", made from graph and spec alone: set-up + overheads and wires + access + bytes /
bottleneck. The simulated number is a command that the machine's own components serve.
"""

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, product
from math import inf
from operator import attrgetter

from kernbench.common.exact_time import bytes_ns, exact_ns
from kernbench.common.messages import (
    HostReadCmd,
    HostWriteCmd,
    LaunchMsg,
    MsgBase,
    Region,
)
from kernbench.common.pe_commands import DmaReadCmd, DmaWriteCmd
from kernbench.common.peaks import peaks
from kernbench.common.phys_addr import PhysAddr
from kernbench.common.rows import Rows
from kernbench.components.base import Process
from kernbench.components.builtin.pe_dma import REQUEST_BYTES
from kernbench.components.launches import LAUNCH_BYTES, serve_launch
from kernbench.policy.routing.router import pe_prefix, switch_node
from kernbench.probes.channels import ChannelReport, channel_report
from kernbench.sim_engine.engine import GraphEngine
from kernbench.topology.dram import Share, layout_of, new_channel
from kernbench.topology.graph import Edge, Place, TopologyGraph
from kernbench.topology.spec import HbmSpec

SIZES = (4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20)
"""The bytes of the transfers that are measured."""

_ROUNDING = 1e-3
"""Channels that are slower than the links by less, as a share, only round up."""

_REST_NS = 100_000.0
"""How long the machine rests before a transfer, so that no memory is busy."""

LIMITS = (
    "above 60 % load of a link its waits are too short: links have no flow control "
    "(BookSim, 8x8 mesh, 1 flit: -6 % of the latency at 0.3 flits a node and cycle, "
    "-23 % at 0.4)",
)
"""What no formula shows, and who reads these numbers should know."""

_HOME: Place = (0, 0, 0)
"""The PE that the paths of PEs start from."""

_TITLES = (
    "path          op        bytes   formula ns  simulated ns"
    "    GB/s   util  bottleneck"
)

_UTIL = (
    "util: GB/s as a share of what the bottleneck gives; hbm channels give bytes / the",
    "time that they take for them alone, rows to open included: the fewer, the slower",
)

Link = tuple[str, str]
"""The nodes at the two ends of a link."""


@dataclass(frozen=True, slots=True)
class ProbeRow:
    """One transfer.

    ``bottleneck`` is its slowest link ("src -> dst (kind)") or "hbm channels".
    ``bandwidth_gbs`` is bytes / simulated time, ``utilisation`` that over the
    bottleneck's. ``path`` is the way of the data (of the message, for a launch).
    """

    family: str
    op: str
    nbytes: int
    formula_ns: float
    simulated_ns: float
    bandwidth_gbs: float
    bottleneck: str
    utilisation: float
    path: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Whether formula and simulation agree, to the last bit."""
        return self.simulated_ns == self.formula_ns

    def as_text(self) -> str:
        """A line of the table; one that differs ends with "DIFFERS"."""
        verdict = "" if self.ok else "  DIFFERS"
        return (
            f"{self.family:<14}{self.op:<7}{self.nbytes:>8}{self.formula_ns:>13,.3f}"
            f"{self.simulated_ns:>14,.3f}{self.bandwidth_gbs:>8.2f}"
            f"{self.utilisation:>7.1%}  {self.bottleneck}{verdict}"
        )


@dataclass(frozen=True, slots=True)
class ProbeReport:
    """All rows, and what was left out because this machine does not have it.

    ``channels`` says which links could wait for each other in a circle.
    """

    rows: tuple[ProbeRow, ...]
    omitted: tuple[str, ...]
    channels: ChannelReport

    @property
    def ok(self) -> bool:
        """Whether every row's formula and simulation agree."""
        return all(row.ok for row in self.rows)

    def as_text(self) -> str:
        """A table, whose last line names the rows that differ."""
        lines = [_TITLES]
        lines += [row.as_text() for row in self.rows]
        lines += _UTIL
        lines += [f"left out: {text}" for text in self.omitted]
        wrong = [row for row in self.rows if not row.ok]
        verdict = "agree"
        if wrong:
            names = [f"{row.family} {row.op} of {row.nbytes}" for row in wrong]
            verdict = f"differ in {', '.join(names)}"
        lines.append(self.channels.as_text())
        lines += [f"limit: {text}" for text in LIMITS]
        lines.append(f"formula and simulation {verdict}")
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class _Case:
    """One family and operation.

    ``fixed_ns`` is all of the formula but the memory and bytes / bottleneck. ``addr``
    is where the memory at the end of the path begins; bursts of 0 bytes are one piece.
    ``beyond`` are links that the data pay for and the path leaves out. ``command``
    makes the message that the component at the near end serves, for a number of bytes
    at an address.
    """

    family: str
    op: str
    path: tuple[str, ...]
    fixed_ns: float
    command: Callable[[int, int], MsgBase]
    addr: int = 0
    burst_bytes: int = 0
    beyond: tuple[Link, ...] = ()

    @property
    def is_read(self) -> bool:
        """Whether the data come to the one who asks."""
        return self.op == "read"

    @property
    def near_end(self) -> str:
        """The node that serves the command."""
        return self.path[-1] if self.is_read else self.path[0]

    @property
    def links(self) -> list[Link]:
        """All links that the data pay for."""
        return [*self.beyond, *pairwise(self.path)]


@dataclass(frozen=True, slots=True)
class _Choice:
    """How the slice of a PE family is chosen: the nearest or farthest of some.

    Without candidates the family is left out, and ``lacking`` says why.
    """

    family: str
    candidates: list[Place]
    pick: Callable[..., Place] = min
    lacking: str = ""


def probe(graph: TopologyGraph) -> ProbeReport:
    """Every path family of ``graph`` at every size of SIZES.

    They are measured one at a time on a quiet machine.
    """
    prober = _Prober(graph)
    choices = prober.choices()
    targets = {
        choice.family: choice.pick(choice.candidates, key=prober.distance)
        for choice in choices
        if choice.candidates
    }
    cases = [
        *prober.host_cases(),
        *prober.pe_cases(targets),
        *prober.m_cpu_cases(),
    ]
    rows = [prober.row(case, nbytes) for case in cases for nbytes in SIZES]
    rows.append(prober.row(prober.launch_case(), LAUNCH_BYTES))
    omitted = [
        f"{choice.family} ({choice.lacking})"
        for choice in choices
        if not choice.candidates
    ]
    if not prober.m_cpu_has_dma():
        omitted.append("m_cpu to HBM (its model moves no data)")
    channels = channel_report(graph, prober.router)
    return ProbeReport(tuple(rows), tuple(omitted), channels)


class _Prober:
    """A machine under probe: what is measured on it, and how."""

    def __init__(self, graph: TopologyGraph) -> None:
        self.graph = graph
        self.spec = graph.spec
        self.sim = GraphEngine(graph, op_logger=None).sim
        self.resolver = self.sim.resolver
        self.router = self.sim.router
        self._taken: Counter[int] = Counter()

    def slice_addr(self, place: Place) -> int:
        """The address of the HBM slice of a PE."""
        slice_bytes = self.spec.cube.memory_map.slice_bytes
        return PhysAddr.pe_hbm_addr(*place, 0, slice_bytes).encode()

    def slice_node(self, place: Place) -> str:
        """The node of the HBM slice of a PE."""
        return self.resolver.resolve(PhysAddr.decode(self.slice_addr(place)))

    def distance(self, place: Place) -> tuple[float, Place]:
        """How far the HBM slice of a PE is in mm, and the PE."""
        target = self.slice_node(place)
        _, mm = self.router.find_path_with_distance(pe_prefix(*_HOME), target)
        return mm, place

    def choices(self) -> list[_Choice]:
        """The families of paths from a PE, each with the slices that it may end at."""
        places = self._places()
        sip, cube, _ = _HOME
        beside = [p for p in places if p[:2] == _HOME[:2] and p != _HOME]
        in_sip = [p for p in places if p[0] == sip and p[1] != cube]
        has_far_cubes = len({p[1] for p in in_sip}) > 1
        at_home = self._is_north(_HOME)
        return [
            _Choice("own slice", [_HOME]),
            _Choice(
                "same half",
                [p for p in beside if self._is_north(p) == at_home],
                lacking="one PE in its half",
            ),
            _Choice(
                "cross half",
                [p for p in beside if self._is_north(p) != at_home],
                lacking="all PEs in one half",
            ),
            _Choice("nearest cube", in_sip, lacking="one cube a SIP"),
            _Choice(
                "farthest cube",
                in_sip if has_far_cubes else [],
                pick=max,
                lacking="fewer than three cubes a SIP",
            ),
            _Choice("other SIP", [p for p in places if p[0] != sip], lacking="one SIP"),
        ]

    def _places(self) -> list[Place]:
        """All PEs."""
        grid = self.spec.sip.cube_mesh
        sips = range(self.spec.system.sips.count)
        return list(product(sips, range(grid.w * grid.h), range(self.spec.cube.pes)))

    def _is_north(self, place: Place) -> bool:
        """Whether the slice of a PE of the home cube lies in its northern half.

        The M_CPU lies in the middle.
        """
        middle = self.graph.nodes[self.resolver.find_m_cpu(*_HOME[:2])]
        return self.graph.nodes[self.slice_node(place)].y_mm < middle.y_mm

    def host_cases(self) -> Iterator[_Case]:
        """What the host writes and reads; its data pay for the PCIe link too."""
        end_point = self.resolver.find_pcie_ep(_HOME[0])
        path = self.router.find_memory_path(end_point, self.slice_node(_HOME))
        setup_ns = exact_ns(self.graph.nodes[end_point].overhead_ns)
        addr = self.slice_addr(_HOME)
        pcie = ((end_point, switch_node(0)),)

        def write(nbytes: int, addr: int) -> MsgBase:
            return HostWriteCmd(dst=_hbm(addr, nbytes), data=None)

        def read(nbytes: int, addr: int) -> MsgBase:
            return HostReadCmd(src=_hbm(addr, nbytes))

        yield _Case(
            family="host to HBM",
            op="write",
            path=tuple(path),
            fixed_ns=setup_ns + self.header_ns(path),
            addr=addr,
            beyond=pcie,
            command=write,
        )
        back = path[::-1]
        yield _Case(
            family="HBM to host",
            op="read",
            path=tuple(back),
            fixed_ns=setup_ns + self.request_ns(path) + self.header_ns(back),
            addr=addr,
            beyond=pcie,
            command=read,
        )

    def pe_cases(self, targets: dict[str, Place]) -> Iterator[_Case]:
        """What a PE reads and writes, for the slice of each family."""
        for family, place in targets.items():
            yield from self._dma_cases(family, place)

    def _dma_cases(self, family: str, place: Place) -> Iterator[_Case]:
        """The read and the write of one slice."""
        dma = self.spec.pe.dma
        setup_ns = exact_ns(dma.setup_ns)
        addr = self.slice_addr(place)
        path = self.router.find_path(pe_prefix(*_HOME), self.slice_node(place))
        back = path[::-1]

        def read(nbytes: int, addr: int) -> MsgBase:
            return DmaReadCmd(
                src=_hbm(addr, nbytes), dst=_tcm(nbytes), handle_id="probe"
            )

        def write(nbytes: int, addr: int) -> MsgBase:
            return DmaWriteCmd(src=_tcm(nbytes), dst_addr=addr, handle_id="probe")

        yield _Case(
            family=family,
            op="read",
            path=tuple(back),
            fixed_ns=setup_ns + self.request_ns(path) + self.header_ns(back),
            addr=addr,
            burst_bytes=dma.burst_bytes,
            command=read,
        )
        yield _Case(
            family=family,
            op="write",
            path=tuple(path),
            fixed_ns=setup_ns + self.header_ns(path),
            addr=addr,
            burst_bytes=dma.burst_bytes,
            command=write,
        )

    def m_cpu_has_dma(self) -> bool:
        """Whether the model of the M_CPU writes; one may only hand launches on."""
        m_cpu = self.sim.component(self.resolver.find_m_cpu(*_HOME[:2]))
        return issubclass(DmaWriteCmd, m_cpu.serves)

    def m_cpu_cases(self) -> Iterator[_Case]:
        """What an M_CPU writes, if it does."""
        if not self.m_cpu_has_dma():
            return
        m_cpu = self.resolver.find_m_cpu(*_HOME[:2])
        path = self.router.find_mcpu_dma_path(m_cpu, self.slice_node(_HOME))
        addr = self.slice_addr(_HOME)

        def write(nbytes: int, addr: int) -> MsgBase:
            return DmaWriteCmd(src=_tcm(nbytes), dst_addr=addr, handle_id="probe")

        yield _Case(
            family="m_cpu to HBM",
            op="write",
            path=tuple(path),
            fixed_ns=self.header_ns(path),
            addr=addr,
            burst_bytes=self.spec.pe.dma.burst_bytes,
            command=write,
        )

    def launch_case(self) -> _Case:
        """The host's doorbell to a PE_CPU, by way of io_cpu and m_cpu."""
        sip, cube, _ = _HOME
        start = self.resolver.find_pcie_ep(sip)
        stops = (
            start,
            self.resolver.find_io_cpu(sip),
            self.resolver.find_m_cpu(sip, cube),
            self.graph.at(*_HOME, "pe_cpu"),
        )
        legs = [self.router.find_node_path(*leg) for leg in pairwise(stops)]
        on_the_way_ns = sum(self.message_ns(leg, LAUNCH_BYTES) for leg in legs)
        path = [start]
        for leg in legs:
            path += leg[1:]

        def launch(nbytes: int, addr: int) -> MsgBase:
            # Its start time is 0: the PE starts when the message arrives.
            done = self.sim.env.event()
            return LaunchMsg(name="", kernel=_no_kernel, pes=(_HOME,), done=done)

        return _Case(
            family="launch",
            op="launch",
            path=tuple(path),
            fixed_ns=exact_ns(self.graph.nodes[start].overhead_ns) + on_the_way_ns,
            command=launch,
        )

    def unused_addr(self, case: _Case) -> int:
        """An address in the memory of a case whose rows no other row of ours opened."""
        taken = self._taken[case.addr]
        self._taken[case.addr] += 1
        return case.addr + taken * 2 * max(SIZES)  # a gap as long as the longest

    def serve(self, case: _Case, nbytes: int, addr: int) -> Process:
        """Have the component at the near end serve it."""
        sim = self.sim
        message = case.command(nbytes, addr)
        if isinstance(message, LaunchMsg):
            yield from serve_launch(sim, case.near_end, message)
            yield message.done
        else:
            yield from sim.component(case.near_end)._forward_txn(sim.env, message)

    def row(self, case: _Case, nbytes: int) -> ProbeRow:
        """Simulate one transfer, and compare."""
        env = self.sim.env
        t0 = env.now
        addr = self.unused_addr(case)
        env.run(until=env.process(self.serve(case, nbytes, addr)))
        simulated_ns = env.now - t0
        env.run()
        env.run(until=env.now + _REST_NS)
        slowest = self.slowest(case.links)
        bottleneck = f"{slowest.src} -> {slowest.dst} ({slowest.kind})"
        limit_gbs = slowest.bandwidth_gbs
        formula_ns = case.fixed_ns
        if case.op != "launch":
            hbm = self.spec.cube.hbm
            first_gbs = self.slowest([case.path[:2]]).bandwidth_gbs
            formula_ns += _data_ns(hbm, case, nbytes, addr, first_gbs, limit_gbs)
            channels_gbs = nbytes / _data_ns(hbm, case, nbytes, addr, inf, inf)
            if channels_gbs < limit_gbs * (1 - _ROUNDING):
                bottleneck = "hbm channels"
                limit_gbs = channels_gbs
        bandwidth_gbs = nbytes / simulated_ns
        return ProbeRow(
            family=case.family,
            op=case.op,
            nbytes=nbytes,
            formula_ns=formula_ns,
            simulated_ns=simulated_ns,
            bandwidth_gbs=bandwidth_gbs,
            bottleneck=bottleneck,
            utilisation=bandwidth_gbs / limit_gbs,
            path=case.path,
        )

    def header_ns(self, path: Sequence[str]) -> float:
        """ns until a header that left the first node is at the last.

        That is overheads and wires.
        """
        edges = [self.graph.edge_by_ends[ends] for ends in pairwise(path)]
        ns_per_mm = self.spec.system.ns_per_mm
        hops_ns = 0.0
        for edge in edges:
            overhead_ns = self.graph.nodes[edge.dst].overhead_ns
            hops_ns += exact_ns(edge.distance_mm * ns_per_mm + overhead_ns)
        return hops_ns

    def request_ns(self, path: Sequence[str]) -> float:
        """ns that it takes to ask for data at the end of a path."""
        return self.message_ns(path, REQUEST_BYTES)

    def message_ns(self, path: Sequence[str], nbytes: int) -> float:
        """ns of a message that ends at no memory."""
        slowest = self.slowest(pairwise(path))
        return self.header_ns(path) + bytes_ns(nbytes, slowest.bandwidth_gbs)

    def slowest(self, links: Iterable[tuple[str, ...]]) -> Edge:
        """The first of the slowest links."""
        edges = [self.graph.edge_by_ends[src, dst] for src, dst in links]
        return min(edges, key=lambda edge: edge.bandwidth_gbs)


def _hbm(addr: int, nbytes: int) -> Region:
    return Region("hbm", addr, (nbytes,), "u8", nbytes)


def _tcm(nbytes: int) -> Region:
    return Region("tcm", 0, (nbytes,), "u8", nbytes)


def _no_kernel(tl: object) -> None:
    """A kernel that ends at once."""


def _data_ns(
    hbm: HbmSpec,
    case: _Case,
    nbytes: int,
    addr: int,
    first_gbs: float,
    link_gbs: float,
) -> float:
    """The memory, whose rows are all closed, and bytes / bottleneck.

    It is the longest chain of bursts: each has a channel when that is free, and is
    whole when all of its channels and the link are done.
    """
    burst_bytes = case.burst_bytes or nbytes
    bursts = [
        Rows.one(addr + at, min(burst_bytes, nbytes - at))
        for at in range(0, nbytes, burst_bytes)
    ]
    memory = _Memory(hbm, is_write=not case.is_read)
    if case.is_read:
        return _read_ns(memory, bursts, first_gbs, link_gbs)
    return _write_ns(memory, bursts, link_gbs)


@dataclass(slots=True)
class _Asked:
    """A burst that a memory was asked for, and what its channels have said so far.

    ``missing`` are the channels that have not begun, each with its share. Of those that
    have, the last one begins at ``begin_ns`` and the last one ends at ``end_ns``; the
    slowest is at work for ``busy_ns``.
    """

    nbytes: int
    base: int
    missing: list[tuple[int, Share]]
    begin_ns: float = 0.0
    end_ns: float = 0.0
    busy_ns: float = 0.0

    @property
    def follows_ns(self) -> float:
        """How long it takes from the first byte that leaves to the last."""
        return min(self.busy_ns, self.end_ns - self.begin_ns)

    @property
    def first_ns(self) -> float:
        """When the first byte leaves, so that all of them follow it."""
        return self.end_ns - self.follows_ns


class _Memory:
    """The channels of a controller that nothing has been asked of yet.

    ``waiting`` are the bursts of which a channel has not begun.
    """

    def __init__(self, hbm: HbmSpec, is_write: bool) -> None:
        self.layout = layout_of(hbm)
        self.channels = [new_channel(hbm) for _ in range(hbm.channels)]
        self.is_write = is_write
        self.parallel_bytes = hbm.interleave_bytes * hbm.channels
        self.waiting: list[_Asked] = []

    def ask(self, rows: Rows) -> _Asked:
        """Have a burst wait for its channels."""
        pattern, base = self.layout.find(rows)
        asked = _Asked(rows.nbytes, base, [*pattern.shares])
        self.waiting.append(asked)
        return asked

    def next_ns(self) -> float:
        """When the next channel is free that somebody waits for; inf: nobody does."""
        free_ns = [each.free_at(self.is_write) for each in self.channels]
        return min(
            (free_ns[at] for asked in self.waiting for at, _ in asked.missing),
            default=inf,
        )

    def begin(self, now: float) -> list[_Asked]:
        """Let the channels that are free begin; the bursts that then miss none."""
        for asked in self.waiting:
            missing = []
            for at, share in asked.missing:
                channel = self.channels[at]
                if channel.free_at(self.is_write) > now:
                    missing.append((at, share))
                    continue
                begin, end, busy = channel.serve(now, self.is_write, share, asked.base)
                asked.begin_ns = max(asked.begin_ns, begin)
                asked.end_ns = max(asked.end_ns, end)
                asked.busy_ns = max(asked.busy_ns, busy)
            asked.missing = missing
        begun = [asked for asked in self.waiting if not asked.missing]
        self.waiting = [asked for asked in self.waiting if asked.missing]
        return begun


def _read_ns(
    memory: _Memory, bursts: list[Rows], first_gbs: float, link_gbs: float
) -> float:
    """A memory reads as fast as the first link takes it (``first_gbs``).

    It reads no more bursts at once than cover all channels, lets no more wait, and
    sends them in order.
    """
    at_once = -(-memory.parallel_bytes // bursts[0].nbytes)
    reading: deque[float] = deque(maxlen=at_once)
    coming = deque(bursts)
    unsent: deque[_Asked] = deque()
    now = 0.0
    asks_ns = 0.0  # when the next burst is asked for; inf while it is not due
    sent_ns = 0.0  # when the last burst left the memory
    link_free_ns = 0.0
    done_ns = 0.0

    def next_asks_ns(ungranted: int) -> float:
        """When the next burst is asked for, if so many wait for the memory now."""
        if ungranted == at_once or not coming:
            return inf
        link_takes_ns = now + bytes_ns(bursts[0].nbytes, first_gbs)
        if len(reading) < at_once:
            return link_takes_ns
        return max(link_takes_ns, reading[0])

    while coming or memory.waiting:
        next_ns = memory.next_ns()
        if coming and asks_ns < next_ns:
            next_ns = asks_ns
            asks_ns = inf
            unsent.append(memory.ask(coming.popleft()))
        now = max(now, next_ns)
        begun = memory.begin(now)
        ungranted = len(memory.waiting) + len(begun)
        for burst in begun:
            ungranted -= 1
            reading.append(burst.begin_ns + burst.follows_ns)
            if asks_ns == inf:
                asks_ns = next_asks_ns(ungranted)
        if asks_ns == inf:
            asks_ns = next_asks_ns(ungranted)
        while unsent and not unsent[0].missing:
            burst = unsent.popleft()
            sent_ns = max(sent_ns, burst.first_ns)
            start_ns = max(sent_ns, link_free_ns)
            link_ns = bytes_ns(burst.nbytes, link_gbs)
            link_free_ns = start_ns + link_ns
            done_ns = max(done_ns, start_ns + max(burst.follows_ns, link_ns))
    return done_ns


def _write_ns(memory: _Memory, bursts: list[Rows], link_gbs: float) -> float:
    """Bursts come as fast as the link brings them.

    A channel that is busy serves them one after the other, as they came.
    """
    coming = deque(bursts)
    comes_ns = 0.0
    now = 0.0
    done_ns = 0.0
    while coming or memory.waiting:
        next_ns = memory.next_ns()
        if coming and comes_ns <= next_ns:
            next_ns = comes_ns
            rows = coming.popleft()
            memory.ask(rows)
            comes_ns += bytes_ns(rows.nbytes, link_gbs)
        now = max(now, next_ns)
        for begun in memory.begin(now):
            link_ns = bytes_ns(begun.nbytes, link_gbs)
            done_ns = max(done_ns, begun.first_ns + max(begun.follows_ns, link_ns))
    return done_ns


def describe(graph: TopologyGraph) -> dict[str, str]:
    """What ``kernbench info`` says of a machine: counts and peak numbers, by title."""
    spec = graph.spec
    sips = spec.system.sips.count
    cubes = spec.sip.cube_mesh.w * spec.sip.cube_mesh.h
    pes = sips * cubes * spec.cube.pes
    best = peaks(lambda path: attrgetter(path)(spec))
    flops = best.gemm * best.gemm_rates["f16"] * 1e9
    hbm_gib = sips * cubes * spec.cube.memory_map.hbm_total_gb
    kinds = Counter(edge.kind for edge in graph.edges)
    by_kind = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())
    return {
        "machine": f"{sips} SIPs x {cubes} cubes x {spec.cube.pes} PEs = {pes} PEs",
        "nodes": f"{len(graph.nodes):,}",
        "edges": f"{len(graph.edges):,}: {by_kind}",
        "GEMM": f"{pes * flops / 1e12:,.1f} TFLOP/s ({flops / 1e12:g} a PE)",
        "by dtype": f"{_by_dtype(pes * best.gemm / 1e3, best.gemm_rates)} TFLOP/s",
        "HBM": f"{pes * best.hbm:,.0f} GB/s ({best.hbm:g} a PE), {hbm_gib:,} GiB",
        "PCIe": f"{spec.system.pcie_bw_gbs:g} GB/s a SIP",
    }


def _by_dtype(tflops: float, rates: Mapping[str, float]) -> str:
    """The peak of the array for each dtype, the fastest first, in TFLOP/s.

    ``tflops`` is that of a rate of 1.
    """
    names = defaultdict[float, list[str]](list)
    for name, rate in rates.items():
        names[rate].append(name)
    return "; ".join(
        f"{', '.join(names[rate])} {tflops * rate:,.1f}"
        for rate in sorted(names, reverse=True)
    )
