"""A channel of DRAM against DRAMsim3's figures, and against a controller that is
simulated clock by clock; the layout of addresses against a count of every byte.
"""

import random
from collections import Counter
from dataclasses import replace

import dram_cycles
import numpy as np
import pytest

from kernbench.common.rows import Rows
from kernbench.errors import KernbenchError, TopologyError
from kernbench.probes import channel
from kernbench.topology.dram import Layout, new_channel
from kernbench.topology.spec import HbmSpec

PEAK_GBS = 32
SPAN = 1 << 28
MIB = 1 << 20
SAME_BANK = 32 << 10


def in_turn(ops, count, nbytes, step=None):
    """``ops`` over and over, at addresses ``step`` apart (next to each other)."""
    step = step or nbytes
    return [(0, ops[i % len(ops)], i * step, nbytes) for i in range(count)]


def at_random(ops, count, nbytes, seed=1):
    chance = random.Random(seed)
    return [
        (0, chance.choice(ops), chance.randrange(SPAN // nbytes) * nbytes, nbytes)
        for _ in range(count)
    ]


def streams(number, count, nbytes, apart, op="r"):
    """Requests of several streams in turn, each next to what it has asked before."""
    return [
        (0, op, i % number * apart + i // number * nbytes, nbytes) for i in range(count)
    ]


def two_regions(ops, count, nbytes, apart):
    """Reads from here on, and writes from ``apart`` on, in turn."""
    at = {"r": 0, "w": apart}
    requests = []
    for i in range(count):
        op = ops[i % len(ops)]
        requests.append((0, op, at[op], nbytes))
        at[op] += nbytes
    return requests


def with_gaps(count, size, gap_ns):
    """Groups of random reads with nothing to do between them."""
    chance = random.Random(5)
    return [
        (i // size * gap_ns, "r", chance.randrange(SPAN // 256) * 256, 256)
        for i in range(count)
    ]


def percent(requests, ends):
    nbytes = sum(request[3] for request in requests)
    return 100 * nbytes / max(ends) / PEAK_GBS


DRAMSIM3 = {
    "sequential reads": (in_turn("r", 4000, 64), 93),
    "random 64 B": (at_random("r", 3000, 64), 25),
    "random 256 B": (at_random("r", 2000, 256), 92),
    "reads and writes in turn": (in_turn("rw", 2000, 256), 80),
    "256 B every MiB": (in_turn("r", 500, 256, MIB), 16),
}

PATTERNS = {
    "sequential writes": in_turn("w", 2000, 64),
    "reads of 2 KiB": in_turn("r", 150, 2048),
    "random writes of 64 B": at_random("w", 1000, 64),
    "random reads of 128 B": at_random("r", 1000, 128),
    "random reads of 256 B": at_random("r", 1000, 256),
    "random writes of 256 B": at_random("w", 1000, 256),
    "random reads of 512 B": at_random("r", 500, 512),
    "64 B each, in turn": in_turn("rw", 2000, 64),
    "two reads a write": in_turn("rrw", 1500, 256),
    "2 KiB each, in turn": in_turn("rw", 150, 2048),
    "copy within the banks": two_regions("rw", 1500, 256, MIB),
    "copy of 64 B within the banks": two_regions("rw", 2000, 64, MIB),
    "copy between banks": two_regions("rw", 1500, 256, MIB + 8192),
    "two reads here, a write there": two_regions("rrw", 1500, 256, MIB),
    "64 B every 1 KiB": in_turn("r", 1000, 64, 1024),
    "64 B every 2 KiB": in_turn("r", 1000, 64, 2048),
    "64 B every 8 KiB": in_turn("r", 1000, 64, 8192),
    "64 B every 32 KiB": in_turn("r", 500, 64, SAME_BANK),
    "64 B written every 32 KiB": in_turn("w", 500, 64, SAME_BANK),
    "256 B written every 32 KiB": in_turn("w", 400, 256, SAME_BANK),
    "1 KiB every 32 KiB": in_turn("r", 200, 1024, SAME_BANK),
    "2 KiB every 32 KiB": in_turn("r", 150, 2048, SAME_BANK),
    "128 B every 1 KiB": in_turn("r", 1000, 128, 1024),
    "256 B every 2 KiB": in_turn("r", 1000, 256, 2048),
    "two streams in one bank": streams(2, 2000, 64, MIB),
    "two streams of 256 B in one bank": streams(2, 1000, 256, MIB),
    "four streams in one bank": streams(4, 2000, 64, MIB),
    "eight streams of 256 B in one bank": streams(8, 1000, 256, MIB),
    "three streams in one bank": streams(3, 2000, 64, MIB),
    "three streams of 128 B in one bank": streams(3, 1500, 128, MIB),
    "three streams of 256 B in one bank": streams(3, 1000, 256, MIB),
    "four streams of 256 B in one bank": streams(4, 1000, 256, MIB),
    "two streams of 512 B in one bank": streams(2, 800, 512, MIB),
    "two streams written in one bank": streams(2, 2000, 64, MIB, "w"),
    "two streams of 1 KiB written in one bank": streams(2, 300, 1024, MIB, "w"),
    "three streams written in one bank": streams(3, 2000, 64, MIB, "w"),
    "three streams of 256 B written in one bank": streams(3, 1000, 256, MIB, "w"),
    "three streams of 1 KiB written in one bank": streams(3, 300, 1024, MIB, "w"),
    "four streams written in one bank": streams(4, 2000, 64, MIB, "w"),
    "eight streams written in one bank": streams(8, 2000, 64, MIB, "w"),
    "four streams in four banks": streams(4, 2000, 64, MIB + 8192),
    "random reads and writes of 64 B": at_random("rw", 1500, 64),
    "random reads and writes of 256 B": at_random("rw", 1000, 256),
    "two random reads a write": at_random("rrw", 1000, 256),
    "many random reads a write": at_random("rrrrrrrrrw", 1000, 256),
    "groups with gaps": with_gaps(800, 16, 250),
}


@pytest.mark.parametrize("name", DRAMSIM3)
def test_the_share_of_its_peak_is_dramsim3s_within_10_points(name):
    requests, share = DRAMSIM3[name]
    assert percent(requests, channel(HbmSpec(), requests)) == pytest.approx(
        share, abs=10
    )


@pytest.mark.parametrize("name", DRAMSIM3)
@pytest.mark.slow
def test_the_oracle_itself_is_within_5_points_of_dramsim3(name):
    requests, share = DRAMSIM3[name]
    assert percent(requests, dram_cycles.Channel().run(requests)) == pytest.approx(
        share, abs=5
    )


@pytest.mark.parametrize("name", PATTERNS)
@pytest.mark.slow
def test_the_closed_form_is_a_controller_clock_by_clock_within_10_points(name):
    requests = PATTERNS[name]
    ends = dram_cycles.Channel().run(requests)
    assert percent(requests, channel(HbmSpec(), requests)) == pytest.approx(
        percent(requests, ends), abs=10
    )


def test_an_idle_random_read_takes_47_ns_and_one_of_an_open_row_28_less():
    first, other_row, same_row = channel(
        HbmSpec(), [(0, "r", 0, 64), (1000, "r", MIB, 64), (2000, "r", MIB + 64, 64)]
    )
    assert first == pytest.approx(47, abs=0.5)
    assert other_row - 1000 == first
    assert same_row - 2000 == pytest.approx(first - 14 - 14)


def test_refreshes_take_their_share_of_the_rate():
    requests = in_turn("r", 4000, 64)
    often = channel(replace(HbmSpec(), trefi_ns=520.0), requests)
    never = channel(replace(HbmSpec(), trfc_ns=0.0), requests)
    assert percent(requests, never) == pytest.approx(100, abs=1)
    assert percent(requests, often) == pytest.approx(50, abs=1)


def test_an_ideal_channel_has_its_access_time_and_its_bandwidth_only():
    ideal = HbmSpec(model="ideal", access_ns=30)
    requests = at_random("rw", 100, 64)
    ends = channel(ideal, requests)
    assert ends == pytest.approx([30 + (i + 1) * 2 for i in range(100)])


def test_ends_are_in_the_order_of_the_requests_whatever_their_times():
    early, late = (0, "r", 0, 64), (500, "w", 64, 64)
    assert channel(HbmSpec(), [late, early]) == channel(HbmSpec(), [early, late])[::-1]
    assert channel(HbmSpec(), []) == []


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        ((0, "x", 0, 64), "neither read nor write: 'x'"),
        ((-1, "r", 0, 64), "comes at -1"),
        ((float("nan"), "r", 0, 64), "comes at nan"),
        ((0, "r", -64, 64), "64 bytes at -64"),
        ((0, "r", 0, 0), "0 bytes at 0"),
        ((0, "r", 0), "has 3 values"),
    ],
)
def test_a_request_that_makes_no_sense_is_named(request_, said):
    with pytest.raises(KernbenchError, match=f"request 1 .*{said}"):
        channel(HbmSpec(), [(0, "r", 0, 64), request_])


def test_a_channel_that_makes_no_sense_is_refused():
    with pytest.raises(TopologyError, match=r"cube\.hbm\.bank_groups: 3 groups for 16"):
        channel(HbmSpec(bank_groups=3), [(0, "r", 0, 64)])


def test_a_copy_goes_its_own_way():
    hbm = HbmSpec(channels=1)
    pattern, base = Layout(hbm).find(Rows.one(0, 512))
    share = pattern.shares[0][1]
    model = new_channel(hbm)
    other = model.copy()
    first = model.serve(0.0, True, share, base)
    model.serve(0.0, False, share, base + 1)
    assert other.serve(0.0, True, share, base) == first


def channel_of(hbm, chunk):
    stripe = chunk // hbm.channels
    if hbm.channel_hash == "none":
        return chunk % hbm.channels
    if hbm.channels in (1, 2, 4, 8, 16):
        return (chunk ^ stripe) % hbm.channels
    return (chunk + stripe) % hbm.channels


def counted(hbm, rows):
    """By channel: its bytes, and by bank and row the accesses. Byte by byte."""
    addresses = rows.starts()[:, None] + np.arange(rows.row_bytes)
    chunk, within = np.divmod(addresses.reshape(-1), hbm.interleave_bytes)
    at = channel_of(hbm, chunk)
    local = chunk // hbm.channels * hbm.interleave_bytes + within
    asked, counts = np.unique(at, return_counts=True)
    nbytes = dict(zip(asked.tolist(), counts.tolist(), strict=True))
    blocks = np.unique(local // hbm.access_bytes * hbm.channels + at)
    accesses = Counter()
    for number in blocks.tolist():
        block, channel_number = divmod(number, hbm.channels)
        dram_row = block * hbm.access_bytes // hbm.row_bytes
        row, bank = divmod(dram_row, hbm.banks * hbm.ranks)
        accesses[channel_number, bank, row] += 1
    return nbytes, accesses


def random_rows(chance):
    count = chance.choice([1, 1, 3, 32, 100])
    row_bytes = chance.choice([1, 2, 64, 100, 128, 1000, 4096, 9000])
    pitch = chance.choice([row_bytes, row_bytes + 24, 1024, 2048, 4096, 33000])
    pitch = max(pitch, row_bytes)
    addr = chance.randrange(1 << 20)
    return Rows(addr, count, row_bytes, 0 if count == 1 else pitch)


@pytest.mark.parametrize(
    "hbm",
    [
        HbmSpec(),
        HbmSpec(channel_hash="none"),
        HbmSpec(channels=6, interleave_bytes=512),
        HbmSpec(channels=7, interleave_bytes=999, channel_hash="none"),
        HbmSpec(channels=4, interleave_bytes=32, ranks=2, row_bytes=1024),
        HbmSpec(channels=16, interleave_bytes=4096, banks=8, access_bytes=32),
    ],
    ids=lambda hbm: f"{hbm.channels}-{hbm.interleave_bytes}-{hbm.channel_hash}",
)
def test_what_a_descriptor_asks_of_channels_and_rows_is_what_its_bytes_do(hbm):
    chance = random.Random(repr(hbm))
    layout = Layout(hbm)
    for _ in range(12):
        rows = random_rows(chance)
        nbytes, accesses = counted(hbm, rows)
        pattern, base = layout.find(rows)
        assert {at: share.nbytes for at, share in pattern.shares} == nbytes
        for at, share in pattern.shares:
            mine = {(b, r): n for (c, b, r), n in accesses.items() if c == at}
            assert share.accesses == sum(mine.values())
            assert {part.bank for part in share.banks} == {bank for bank, _ in mine}
            for part in share.banks:
                here = {row: n for (bank, row), n in mine.items() if bank == part.bank}
                assert part.accesses == sum(here.values())
                assert part.rows == len(here)
                assert (part.first + base, part.last + base) == (min(here), max(here))
        alike = {share for _, share in pattern.shares}
        assert pattern.even == (len(pattern.shares) == hbm.channels and len(alike) == 1)
