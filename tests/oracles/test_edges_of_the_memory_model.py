"""The simulator keeps every edge of docs/memory-model.md, whatever is held back."""

import random
import re
from itertools import combinations, pairwise

import plain_frames
import plain_ops
import pytest
import random_kernels
import random_races
from plain_order import NO_CALL, Order
from random_delays import delayed

from kernbench import docs
from kernbench.runtime_api import run_bench

PROGRAMS = [
    *(("kernels", seed) for seed in range(4)),
    *(("shared", seed) for seed in range(4)),
]
OF_GRAPH = (
    "Program order",
    "Wait",
    "End of a kernel",
    "In-order engines",
    "Message",
    "Sends and recvs in turn",
    "Launch",
)
OF_PAIRS = ("DMAs of one PE in HBM", "Source of a send", "Slot")
TWO_RANKS = {
    "system.sips.count": 2,
    "sip.cube_mesh.w": 1,
    "sip.cube_mesh.h": 1,
    "cube.pes": 1,
    "cube.memory_map.slices_per_cube": 1,
}


def text_of(kind, seed):
    if kind == "shared":
        return random_races.program(seed, gaps=0.3)
    return random_kernels.program(seed)


@pytest.fixture(scope="module")
def orders(tmp_path_factory):
    """Programs as they ran, and as they ran with DMA ops held back."""
    found = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(random_kernels, "faults", lambda rng: [])
        for kind, seed in PROGRAMS:
            folder = tmp_path_factory.mktemp("edges")
            file = folder / "program.py"
            file.write_text(text_of(kind, seed))
            path = folder / "recorded.msgpack"
            new = folder / "new.msgpack"
            run_bench(str(file), trace=path)
            recording = plain_frames.read(path)
            delayed(path, new, recording, random.Random(seed))
            found += [Order(recording), Order(plain_frames.read(new))]
    return found


@pytest.mark.parametrize("kind", OF_GRAPH)
@pytest.mark.slow
def test_what_is_before_in_the_model_is_before_in_time(orders, kind):
    count = 0
    for order in orders:
        for before, after in order.by_kind[kind]:
            count += 1
            assert order.time(before) <= order.time(after), (before, after)
    assert count


@pytest.mark.parametrize("kind", OF_PAIRS)
@pytest.mark.slow
def test_two_accesses_in_order_take_effect_in_order(orders, kind):
    count = 0
    for order in orders:
        touched = []
        for op in order.recording.ops:
            if order.is_kernels(op):
                touched += [(op, mode, it) for mode, it in plain_ops.touched(op)]
        touched.sort(key=lambda access: access[0].cmd)
        for one, other in combinations(touched, 2):
            if one[2].space != other[2].space or one[0].row == other[0].row:
                continue
            if "w" not in (one[1], other[1]) or not shares(one[2], other[2]):
                continue
            if order.kind_of_pair(one, other) != kind:
                continue
            count += 1
            check_pair(kind, one[0], other[0])
    assert count


def shares(one, other):
    """Whether two tensors have a byte in common; most have not by their ends."""
    if one.addr >= other.end or other.addr >= one.end:
        return False
    return bool(set(one.addresses) & set(other.addresses))


def check_pair(kind, one, other):
    if kind == "Slot":
        first, second = sorted((one, other), key=lambda op: op.t_start)
        assert first.t_end <= second.t_start
    else:
        assert one.t_start < other.t_start


def test_commands_that_nobody_waits_for_are_served_in_turn(tmp_path):
    file = tmp_path / "program.py"
    file.write_text(IN_TURN)
    run_bench(str(file), trace=tmp_path / "t")
    recording = plain_frames.read(tmp_path / "t")
    for engine in ("pe_math", "pe_gemm"):
        served = [
            op
            for op in recording.ops
            if op.component.endswith(engine)
            and recording.call_of(op)["awaits"] == NO_CALL
        ]
        assert len(served) == 4
        assert [op.cmd for op in served] == sorted(op.cmd for op in served)
        for before, after in pairwise(served):
            assert before.t_end <= after.t_start


IN_TURN = """
from kernbench.common.messages import Region
from kernbench.common.pe_commands import GemmCmd, MathCmd
from kernbench.runtime_api.registry import bench


def kernel(x, tl):
    a = tl.load(x, (16, 16), "f32")
    outs = [tl.full((16, 16), 0.0, "f32").region for _ in range(8)]
    for out in outs[:4]:
        tl.issue(MathCmd(op="add", inputs=(a.region, a.region), out=out), wait=False)
    for out in outs[4:]:
        product = GemmCmd(a=a.region, b=a.region, out=out, m=16, k=16, n=16)
        tl.issue(product, wait=False)


@bench(name="in_turn", description="commands that nobody waits for")
def run(torch):
    x = torch.zeros((16, 16), "f32", name="x")
    torch.launch("in_turn", kernel, x)
"""


@pytest.mark.slow
def test_the_host_does_one_thing_after_the_other(orders):
    count = 0
    for order in orders:
        host = [call for call in order.recording.calls if call["launch"] < 0]
        for before, after in pairwise(sorted(host, key=lambda call: call["cmd"])):
            count += 1
            assert before["t_resume"] <= after["t_issue"]
    assert count


def test_a_barrier_waits_for_what_other_ranks_have_launched(tmp_path):
    file = tmp_path / "program.py"
    file.write_text(BARRIER)
    run_bench(str(file), spec=TWO_RANKS, trace=tmp_path / "t")
    recording = plain_frames.read(tmp_path / "t")
    names = {
        recording.strings[launch["kernel"]]: launch for launch in recording.launches
    }
    assert names["slow"]["t_end"] <= names["behind"]["t_start"]
    assert names["beside"]["t_start"] < names["slow"]["t_end"]


BARRIER = """
from kernbench.runtime_api.registry import bench


def kernel(x, count, tl):
    for _ in range(count):
        tl.load(x, (64,), "f32")


def rank(number, torch):
    torch.distributed.init_process_group()
    x = torch.zeros((64,), "f32", name="x")
    torch.launch("slow" if number else "beside", kernel, x, 50 * number + 1)
    torch.distributed.barrier()
    if not number:
        torch.launch("behind", kernel, x, 1)


@bench(name="barrier", description="two ranks and a barrier")
def run(torch):
    torch.multiprocessing.spawn(rank, args=(torch,))
"""


def test_the_page_has_the_edges_that_are_tested():
    titles = re.findall("^### (.*)$", docs.page("memory-model"), re.MULTILINE)
    assert {*titles} == {*OF_GRAPH, *OF_PAIRS, "Barrier", "Host transfers"}
