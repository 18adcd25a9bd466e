"""Products against the least that their addresses allow (``kernbench validate
bounds``).
"""

from random import Random

import pytest
from pace import some_in_ci

from kernbench.sim_engine.engine import GraphEngine
from kernbench.topology import TopologySpec
from kernbench.topology.spec import HbmSpec
from kernbench.validation import bounds as module
from kernbench.validation.bounds import (
    HASHES,
    INTERLEAVES,
    Block,
    Case,
    bounds,
    product_on_one_pe,
    tiles,
)

REFRESHED = 1 - 260 / 3900
"""The share of time that refreshes leave."""


def each_byte(block, hbm):
    """The accesses of a block, by a look at every byte of it."""
    touched = [set() for _ in range(8)]
    for row in range(block.height):
        start = block.addr + row * block.cols * 2
        for addr in range(start, start + block.width * 2):
            chunk = addr // hbm.interleave_bytes
            stripe = chunk // 8
            at = chunk % 8
            if hbm.channel_hash == "xor":
                at = (chunk ^ stripe) % 8
            touched[at].add(addr // 64)
    return [len(blocks) for blocks in touched]


@pytest.mark.parametrize("seed", range(10))
def test_the_accesses_of_a_block_are_those_of_its_bytes(seed):
    chance = Random(seed)
    cols = chance.randrange(1, 900)
    block = Block(
        addr=chance.randrange(1 << 20) * 2,
        height=chance.randrange(1, 65),
        width=chance.randrange(1, min(cols, 64) + 1),
        cols=cols,
    )
    for interleave in INTERLEAVES:
        for hashed in HASHES:
            hbm = HbmSpec(interleave_bytes=interleave, channel_hash=hashed)
            assert block.accesses(hbm).tolist() == each_byte(block, hbm)


def test_tiles_by_hand_are_those_that_are_recorded(monkeypatch):
    engines = []

    class Kept(GraphEngine):
        def __init__(self, *args):
            super().__init__(*args)
            engines.append(self)

    monkeypatch.setattr(module, "GraphEngine", Kept)
    _, work, _ = product_on_one_pe(Case((150, 70, 200)), {})
    (engine,) = engines
    stages = {"TileToken/DMA_READ": [], "TileToken/DMA_WRITE": []}
    for record in engine.op_log:
        if record.op_name in stages:
            stages[record.op_name].append(record.params)
    reads, writes = (
        sorted(records, key=lambda params: params["origin"])
        for records in stages.values()
    )
    assert [moved(params) for params in reads] == [
        [described(block) for block in tile.reads] for tile in work
    ]
    assert [moved(params) for params in writes] == [
        [described(tile.write)] for tile in work if tile.write is not None
    ]


def described(block):
    """A block as a record has it: address, rows, bytes a row, pitch."""
    if block.height == 1 or block.width == block.cols:
        return (block.addr, 1, block.nbytes, 0)
    return (block.addr, block.height, block.width * 2, block.cols * 2)


def moved(params):
    """What a record of a DMA stage says of each block."""
    sizes = params["sizes"]
    ones = [1] * len(sizes)
    columns = (
        params["addrs"],
        params.get("rows", ones),
        params.get("row_bytes", sizes),
        params.get("pitch", [0] * len(sizes)),
    )
    return list(zip(*columns, strict=True))


def test_the_bounds_of_one_tile_are_what_it_takes_by_hand():
    spec = TopologySpec()
    work = list(tiles((64, 64, 64), 64, (0, 8192, 16384)))
    found = bounds(spec, work)
    assert found.array_ns == 254
    # 8 KiB are 16 accesses of each channel: two blocks are read, one written.
    access_ns = 2 / REFRESHED
    assert found.channel_ns == pytest.approx(48 * access_ns)
    # Set-up and a router, the reads, controller and CL and a router, FETCH, the array
    # without its filling; STORE, set-up and a router, controller and CWL, the write.
    there = 20 + 2 + 32 * access_ns + 3 + 14 + 2 + 16384 / 512
    written = 8192 / 512 + 20 + 2 + 3 + 4 + 16 * access_ns
    assert found.window_ns == pytest.approx(there + 64 + written)


def test_of_channels_that_take_turns_fewer_tiles_in_flight_make_less():
    """Eight tiles in a row read B from two channels, the next eight from others."""
    found = {}
    for window in (8, 16):
        fields = {"channel_hash": "none", "pe.tile.window": window}
        spec, work, _ = product_on_one_pe(Case((128, 512, 512)), fields)
        found[window] = bounds(spec, work)
    assert found[8].channel_ns == found[16].channel_ns
    assert found[8].window_ns > 1.1 * found[16].window_ns > found[16].channel_ns


EVEN = [
    ((512, 512, 512), "xor", 256),
    ((512, 512, 512), "xor", 4096),
    ((512, 512, 512), "none", 1024),
    ((500, 700, 300), "xor", 256),
    ((500, 700, 300), "xor", 4096),
    ((500, 700, 300), "none", 4096),
    ((500, 300, 700), "xor", 256),
    ((500, 300, 700), "xor", 1024),
    ((500, 300, 700), "none", 1024),
]


@pytest.mark.slow
@pytest.mark.parametrize(("shape", "hashed", "interleave"), EVEN)
def test_a_product_takes_10_percent_more_than_array_and_channels_at_most(
    shape, hashed, interleave
):
    fields = {"channel_hash": hashed, "interleave_bytes": interleave}
    spec, work, launch_ns = product_on_one_pe(Case(shape), fields)
    found = bounds(spec, work)
    least_ns = max(found.array_ns, found.channel_ns)
    assert least_ns <= launch_ns <= 1.1 * least_ns


@pytest.mark.slow
@pytest.mark.parametrize("seed", some_in_ci(range(12), 4))
def test_no_product_is_faster_than_its_bounds(seed):
    chance = Random(seed)
    shape = tuple(chance.randrange(30, 400) for _ in range(3))
    fields = {
        "channel_hash": chance.choice(HASHES),
        "interleave_bytes": chance.choice((256, 512, 1024, 2048, 4096)),
    }
    spec, work, launch_ns = product_on_one_pe(Case(shape), fields)
    _, least_ns = bounds(spec, work).largest
    assert launch_ns >= least_ns


@pytest.mark.slow
def test_with_twice_the_tiles_in_flight_phases_of_few_channels_overlap():
    fields = {
        "channel_hash": "none",
        "interleave_bytes": 1024,
        "pe.tile.window": 16,
        "pe.dma.outstanding": 16,
    }
    spec, work, launch_ns = product_on_one_pe(Case((1024, 128, 1024)), fields)
    assert launch_ns <= 1.03 * bounds(spec, work).channel_ns
