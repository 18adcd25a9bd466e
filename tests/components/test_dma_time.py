"""Zero-load time of a transfer: set-up + overheads and wires + bytes / bottleneck +
access.

The sums are made here from the shipped numbers; only the path comes from the router.
"""

from dataclasses import replace
from itertools import pairwise

import pytest
from exact_times import header_ns, rounded

from kernbench.common.messages import HostReadCmd, HostWriteCmd, MsgBase, Region
from kernbench.common.pe_commands import DmaReadCmd, DmaWriteCmd
from kernbench.common.phys_addr import PhysAddr
from kernbench.common.rows import Rows
from kernbench.policy.routing.router import AddressResolver, PathRouter
from kernbench.sim_engine.engine import GraphEngine


@pytest.fixture(scope="module")
def small(small):
    """Its channels are ideal and not hashed, so that sums can be made by hand."""
    hbm = replace(small.spec.cube.hbm, model="ideal", channel_hash="none")
    spec = replace(small.spec, cube=replace(small.spec.cube, hbm=hbm))
    return replace(small, spec=spec)


OVERHEAD = {"router": 2, "ucie": 8, "io_noc": 2, "pcie_ep": 150, "switch": 100}
SETUP = 20
ACCESS = 30
CHANNELS = 8
CHANNEL_BW = 32
INTERLEAVE = 256
BURST = 4096
PCIE = 63
SLICE = 48 * 2**30 // 8
PLACES = {
    "own slice": (0, 0, 0),
    "other slice of the cube": (0, 0, 7),
    "other cube": (0, 1, 3),
    "other SIP": (1, 1, 5),
}
SIZES = [2, 64, 256, 4096, 4096 + 300, 8 * 4096, 50_000]


def hbm(place, offset=0):
    return PhysAddr.pe_hbm_addr(*place, offset, SLICE).encode()


def region(space, addr, nbytes):
    return Region(space, addr, (nbytes,), "u8", nbytes)


def path_of(graph, addr, source=(0, 0, 0)):
    target = AddressResolver(graph).resolve(PhysAddr.decode(addr))
    return PathRouter(graph).route("pe", graph.at(*source, "pe_dma"), target)


def header(graph, path):
    """ns until a header that left path[0] is at path[-1]."""
    return header_ns(graph, path, OVERHEAD)


def bottleneck(graph, path):
    return min(graph.edge_by_ends[ends].bandwidth_gbs for ends in pairwise(path))


def channel_ns(nbytes):
    """ns that the busiest channel works on a burst that begins at an interleave
    boundary.
    """
    shares = [0] * CHANNELS
    for byte in range(0, nbytes, INTERLEAVE):
        shares[byte // INTERLEAVE % CHANNELS] += min(INTERLEAVE, nbytes - byte)
    return rounded(max(shares) / CHANNEL_BW)


def data_ns(graph, path, nbytes):
    """Serialisation: the links' bottleneck, or the memory channels where they take
    longer.

    The last burst is timed on its own: a short one may leave channels unused.
    """
    *whole, last = [min(BURST, nbytes - at) for at in range(0, nbytes, BURST)]
    slowest = bottleneck(graph, path)
    return sum(max(rounded(n / slowest), channel_ns(n)) for n in whole) + max(
        rounded(last / slowest), channel_ns(last)
    )


def serve(graph, *commands):
    """Records of commands, (place, command) each, all given to their pe_dma at once."""
    engine = GraphEngine(graph)
    for place, command in commands:
        dma = engine.sim.component(graph.at(*place, "pe_dma"))
        engine.env.process(dma._forward_txn(engine.env, command))
    engine.env.run()
    return engine.op_log


def read(addr, nbytes):
    return DmaReadCmd(
        src=region("hbm", addr, nbytes), dst=region("tcm", 0, nbytes), handle_id="h"
    )


def write(addr, nbytes):
    return DmaWriteCmd(src=region("tcm", 0, nbytes), dst_addr=addr, handle_id="h")


@pytest.mark.parametrize("nbytes", SIZES)
@pytest.mark.parametrize("where", PLACES)
def test_a_lone_read_takes_request_access_and_data(small, where, nbytes):
    addr = hbm(PLACES[where])
    there = path_of(small, addr)
    back = there[::-1]
    request = header(small, there) + rounded(32 / bottleneck(small, there))
    data = header(small, back) + data_ns(small, back, nbytes)
    (record,) = serve(small, ((0, 0, 0), read(addr, nbytes)))
    assert record.t_end - record.t_start == SETUP + request + ACCESS + data


@pytest.mark.parametrize("nbytes", SIZES)
@pytest.mark.parametrize("where", PLACES)
def test_a_lone_write_is_counted_to_its_landing(small, where, nbytes):
    addr = hbm(PLACES[where])
    path = path_of(small, addr)
    expected = SETUP + header(small, path) + ACCESS + data_ns(small, path, nbytes)
    (record,) = serve(small, ((0, 0, 0), write(addr, nbytes)))
    assert record.t_end - record.t_start == expected


@pytest.mark.parametrize("nbytes", [2, 4096, 100_000, 1 << 20])
def test_a_host_write_is_one_piece_from_the_end_point(small, nbytes):
    engine = GraphEngine(small)
    addr = hbm((0, 1, 2))
    end_point = AddressResolver(small).find_pcie_ep(0)
    target = AddressResolver(small).resolve(PhysAddr.decode(addr))
    path = PathRouter(small).route("memory", end_point, target)
    command = HostWriteCmd(dst=region("hbm", addr, nbytes), data=None)
    engine.env.process(
        engine.sim.component(end_point)._forward_txn(engine.env, command)
    )
    engine.env.run()
    (record,) = engine.op_log
    piece = max(
        rounded(nbytes / PCIE), channel_ns(nbytes)
    )  # the slowest, though not on the path
    expected = OVERHEAD["pcie_ep"] + header(small, path) + ACCESS + piece
    assert record.t_end - record.t_start == expected


def test_a_host_read_asks_and_is_answered(small):
    engine = GraphEngine(small)
    addr = hbm((0, 1, 2))
    nbytes = 10_000
    end_point = AddressResolver(small).find_pcie_ep(0)
    target = AddressResolver(small).resolve(PhysAddr.decode(addr))
    there = PathRouter(small).route("memory", end_point, target)
    command = HostReadCmd(src=region("hbm", addr, nbytes))
    engine.env.process(
        engine.sim.component(end_point)._forward_txn(engine.env, command)
    )
    engine.env.run()
    (record,) = engine.op_log
    back = there[::-1]
    piece = max(rounded(nbytes / PCIE), channel_ns(nbytes))
    request = header(small, there) + rounded(32 / bottleneck(small, there))
    # the end point is where the data land: their header pays its overhead once more
    expected = OVERHEAD["pcie_ep"] + request + ACCESS + header(small, back) + piece
    assert record.t_end - record.t_start == expected


def test_a_path_slower_than_pcie_sets_the_pace_of_the_host(small):
    system = replace(small.spec.system, pcie_bw_gbs=1000.0)
    engine = GraphEngine(replace(small, spec=replace(small.spec, system=system)))
    addr = hbm((0, 1, 2))
    nbytes = 1 << 20
    end_point = AddressResolver(small).find_pcie_ep(0)
    path = PathRouter(small).route("memory", end_point, "sip0.cube1.hbm_ctrl.pe2")
    command = HostWriteCmd(dst=region("hbm", addr, nbytes), data=None)
    engine.env.process(
        engine.sim.component(end_point)._forward_txn(engine.env, command)
    )
    engine.env.run()
    landed = (
        OVERHEAD["pcie_ep"]
        + header(small, path)
        + ACCESS
        + rounded(nbytes / bottleneck(small, path))
    )
    assert engine.env.now == landed


def interleaved(graph, nbytes):
    cube = replace(
        graph.spec.cube, hbm=replace(graph.spec.cube.hbm, interleave_bytes=nbytes)
    )
    return replace(graph, spec=replace(graph.spec, cube=cube))


@pytest.mark.parametrize("make", [read, write])
@pytest.mark.parametrize("interleave", [2048, 8192])
def test_a_stream_of_bursts_that_cover_few_channels_keeps_all_at_work(
    small, make, interleave
):
    nbytes = 1 << 20
    graph = interleaved(small, interleave)
    coarse, fine = (
        serve(g, ((0, 0, 0), make(hbm((0, 0, 0)), nbytes))) for g in (graph, small)
    )
    assert coarse[0].t_end < fine[0].t_end + 2 * interleave / CHANNEL_BW


def test_a_short_read_behind_a_long_one_waits_for_what_all_channels_are_at_only(small):
    graph = interleaved(small, 2048)
    start = 1000.0
    engine = GraphEngine(graph)
    long = read(hbm((0, 0, 0)), 1 << 20)
    short = read(hbm((0, 0, 0), 1 << 21), 64)

    def late(dma):
        yield engine.env.timeout(start)
        yield from dma._forward_txn(engine.env, short)

    first, second = (
        engine.sim.component(graph.at(0, 0, pe, "pe_dma")) for pe in (0, 1)
    )
    engine.env.process(first._forward_txn(engine.env, long))
    engine.env.process(late(second))
    engine.env.run()
    taken = {id(msg): msg.row for msg in (long, short)}
    assert taken[id(short)] < taken[id(long)]
    (record,) = (r for r in engine.op_log if r.params["nbytes"] == 64)
    period = 8 * 2048 / (CHANNELS * CHANNEL_BW)
    assert record.t_end - start < serve(small, ((0, 0, 1), short))[0].t_end + 2 * period


def test_bursts_of_a_read_leave_the_memory_in_order(small, events):
    engine = GraphEngine(interleaved(small, 2048), recorder=events)
    owner = engine.sim.component("sip0.cube0.hbm_ctrl.pe0")
    owner.burst(
        0.0, Rows.one(hbm((0, 0, 0)), 2048), MsgBase()
    )  # the first channel is busy for 64 ns
    dma = engine.sim.component(small.at(0, 0, 0, "pe_dma"))
    engine.env.process(dma._forward_txn(engine.env, read(hbm((0, 0, 0)), 2 * BURST)))
    engine.env.run()
    ((*_, transfers),) = events.of("op")
    (_, _, _, bursts, starts) = transfers[-1]
    hops = len(starts) // 2
    assert bursts == 2
    assert all(a < b for a, b in zip(starts[:hops], starts[hops:], strict=True))


def test_a_store_from_hbm_reads_and_then_writes(small):
    src = hbm((0, 0, 0))
    dst = hbm((0, 0, 5))
    nbytes = 4096
    copy = DmaWriteCmd(src=region("hbm", src, nbytes), dst_addr=dst, handle_id="h")
    (record,) = serve(small, ((0, 0, 0), copy))
    (first,) = serve(small, ((0, 0, 0), read(src, nbytes)))
    (second,) = serve(small, ((0, 0, 0), write(dst, nbytes)))
    expected = first.t_end + second.t_end - SETUP
    assert record.t_end == expected


def test_reads_on_disjoint_paths_do_not_disturb_each_other(small):
    alone = [
        serve(small, (p, read(hbm(p), 8192)))[0].t_end for p in ((0, 0, 0), (0, 0, 7))
    ]
    both = serve(small, *((p, read(hbm(p), 8192)) for p in ((0, 0, 0), (0, 0, 7))))
    assert sorted(r.t_end for r in both) == sorted(alone)


def test_readers_of_one_slice_share_it_fairly_and_lose_no_bandwidth(small):
    nbytes = 16 * BURST
    readers = [(0, 0, pe) for pe in range(4)]
    slice_addr = hbm((0, 0, 0))
    log = serve(
        small,
        *((p, read(slice_addr + i * nbytes, nbytes)) for i, p in enumerate(readers)),
    )
    ends = [r.t_end for r in log]
    alone = serve(small, (readers[-1], read(slice_addr, BURST)))[0].t_end
    total = 4 * nbytes / (CHANNELS * CHANNEL_BW)
    burst_ns = BURST / (CHANNELS * CHANNEL_BW)
    assert max(ends) == pytest.approx(total + alone, abs=4 * burst_ns)
    assert max(ends) - min(ends) < 4 * burst_ns


def test_the_ninth_outstanding_read_waits_for_a_slot(small, events):
    engine = GraphEngine(small, recorder=events)
    dma = engine.sim.component(small.at(0, 0, 0, "pe_dma"))
    for i in range(9):
        command = read(hbm((0, 0, 0), i * 64), 64)
        engine.env.process(dma._forward_txn(engine.env, command))
    engine.env.run()
    rows = {row: (record, waits) for row, record, _, _, waits, _ in events.of("op")}
    assert len({slot for _, _, _, slot, _, _ in events.of("op")}) == 8
    (late,) = (r for r in rows.values() if r[0].t_start > 0)
    ((_, _, t0, t1, holder),) = [w for w in late[1] if w[1] == "dma_slot"]
    assert (t0, t1) == (0, late[0].t_start)
    assert rows[holder][0].t_end == t1


def test_a_write_does_not_wait_for_the_slots_of_reads(small):
    many = [((0, 0, 0), read(hbm((0, 0, 0), i * 64), 64)) for i in range(8)]
    log = serve(small, *many, ((0, 0, 0), write(hbm((0, 0, 1)), 64)))
    assert [r.t_start for r in log] == [0] * 9


# -- rows of a matrix ------------------------------------------------------------------


def strided_read(addr, rows, row_bytes, pitch):
    src = region("hbm", addr, rows * row_bytes)
    where = Rows(addr, rows, row_bytes, pitch)
    dst = region("tcm", 0, rows * row_bytes)
    return DmaReadCmd(src=replace(src, strided=where), dst=dst, handle_id="h")


def strided_write(addr, rows, row_bytes, pitch):
    command = write(addr, rows * row_bytes)
    command.strided = Rows(addr, rows, row_bytes, pitch)
    return command


@pytest.mark.parametrize(
    ("rows", "data_ns"),
    [
        # 32 rows a burst, 16 each on channels 0 and 4: 2048 B at 32 GB/s, twice
        ((64, 128, 1024), 128.0),
        # one row a channel: 2 bursts of 8 rows, of which 1 KiB lies on each channel
        ((16, 256, 256 * 9), 16.0),
    ],
)
def test_rows_of_a_matrix_take_what_the_channels_of_its_rows_take(small, rows, data_ns):
    addr = hbm((0, 0, 0))
    there = path_of(small, addr)
    request = header(small, there) + 32 / bottleneck(small, there)
    (record,) = serve(small, ((0, 0, 0), strided_read(addr, *rows)))
    expected = SETUP + request + ACCESS + header(small, there[::-1]) + data_ns
    assert record.t_end - record.t_start == pytest.approx(expected)
    (record,) = serve(small, ((0, 0, 0), strided_write(addr, *rows)))
    expected = SETUP + header(small, there) + ACCESS + data_ns
    assert record.t_end - record.t_start == pytest.approx(expected)


@pytest.mark.parametrize("make", [strided_read, strided_write])
@pytest.mark.parametrize("rows", [(5, 640, 640), (1, 5000, 0), (9, 4096, 4096)])
def test_rows_that_touch_take_what_contiguous_bytes_take(small, make, rows):
    addr = hbm((0, 0, 0))
    count, row_bytes, pitch = rows
    joined = make(addr, 1, count * row_bytes, 0)
    where = Rows.of(addr, ((count, pitch or 1),), row_bytes)
    assert where == Rows.one(addr, count * row_bytes)
    (record,) = serve(small, ((0, 0, 0), joined))
    plain = read if make is strided_read else write
    (expected,) = serve(small, ((0, 0, 0), plain(addr, count * row_bytes)))
    assert record.t_end == expected.t_end
