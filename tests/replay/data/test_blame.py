"""From an element back to what it was made of, and what is wrong there."""

import random
import re
from dataclasses import replace
from pathlib import Path

import half_written
import numpy as np
import pytest
from bench_sizes import UNEVEN
from cancelled import cancelled_at
from replay_logs import PE0, Log, double, host_write, load, region, store

from kernbench.common.messages import HostWriteCmd
from kernbench.common.pe_commands import MathCmd
from kernbench.common.progress import Cancelled
from kernbench.errors import UsageError
from kernbench.replay import ReplaySession
from kernbench.replay.data import hazards as kinds
from kernbench.replay.text import as_text
from kernbench.runtime_api import run_bench
from kernbench.sim_engine.data_executor import DataExecutor
from kernbench.sim_engine.event_log import Shard
from kernbench.trace import Trace

MATMUL = Path(__file__).parents[3] / "traces" / "matmul.msgpack"


def names(links):
    return [link.op.name for link in links]


# -- by changing inputs and executing again --

TENSOR_PARALLEL = {
    "tokens": 4,
    "d": 8,
    "hidden": 16,
    "algorithm": "ring_chunked_allreduce",
}
TWO_CUBES = {"sip.cube_mesh.w": 2, "sip.cube_mesh.h": 1}


def stripped(record):
    """Without what Phase 1 saw, which would hide a change."""
    if record.op_name == "host_write":
        return record
    hidden = {"snapshot", "input_snapshots"} & record.params.keys()
    return replace(record, params=record.params | dict.fromkeys(hidden))


def changed(record, shards, index):
    """A host_write of one of ``shards`` with the element at ``index`` changed."""
    if record.op_name != "host_write":
        return record
    for shard in shards:
        inside = [i - o for i, o in zip(index, shard.origin, strict=True)]
        is_held = all(0 <= i < n for i, n in zip(inside, shard.shape, strict=True))
        params = record.params
        if params["dst_addr"] == shard.addr and is_held:
            data = params["snapshot"].copy()
            data[tuple(inside)] += 1
            record = replace(record, params=params | {"snapshot": data})
    return record


def outputs(session, records):
    """The bytes of each element of the expected tensor, by its index."""
    executor = DataExecutor(records)
    executor.run()
    first = session.trace.expects[0].tensor
    found = {}
    for e in session.trace.expects:
        if e.tensor != first:
            continue
        values = executor.store.view(e.space, e.addr, e.array.shape, e.dtype)
        for at, value in np.ndenumerate(values):
            index = tuple(i + o for i, o in zip(at, e.origin, strict=True))
            found[index] = value.tobytes()
    return found


def changed_by(session, shards, index):
    """Where the expected tensor changes with one element of all copies of an input."""
    log = [stripped(record) for record in session.trace.executable]
    before = outputs(session, log)
    after = outputs(session, [changed(record, shards, index) for record in log])
    return {at for at in before if before[at] != after[at]}


def is_blamed(session, output, element, tensor, index):
    """Whether the blame of an element of the output ends at an element of an input."""
    answer = session.blame(f"{output}{list(element)}", 100)
    assert not answer.note
    for link in answer.links:
        name = link.wrote.name
        is_of_tensor = re.match(rf"{re.escape(tensor)}(@[^\[]*)?\[", name)
        if link.op.name != "host_write" or not is_of_tensor:
            continue
        box = session.index.places.place(name).index
        if all(a <= i < b for i, (a, b) in zip(index, box, strict=True)):
            return True
    return False


def written_tensors(session):
    """The inputs that the host writes."""
    records = [r for r in session.trace.executable if r.op_name == "host_write"]
    written = {record.params["dst_addr"] for record in records}
    tensors = {s.tensor for s in session.trace.allocs if s.addr in written}
    return sorted(tensors - {e.tensor for e in session.trace.expects})


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["matmul", "softmax", "layernorm", "flash_attention", "mlp_tp"]
)
def test_every_output_that_an_input_changes_is_blamed_on_it(name, tmp_path):
    params = UNEVEN[name] | {"pes": 2} if name in UNEVEN else TENSOR_PARALLEL
    assert run_bench(name, params=params, spec=TWO_CUBES, trace=tmp_path / "t").ok
    session = ReplaySession(Trace.open(tmp_path / "t"))
    draw = random.Random(name)
    output = session.trace.expects[0].tensor
    shape = session.tensor(output, len(session) - 1).values.shape
    for tensor in written_tensors(session):
        shards = [s for s in session.trace.allocs if s.tensor == tensor]
        extents = np.max([np.add(s.origin, s.shape) for s in shards], axis=0)
        for _ in range(20):  # a relu hides some
            index = tuple(draw.randrange(int(n)) for n in extents)
            touched = changed_by(session, shards, index)
            if touched:
                break
        assert touched
        others = {tuple(draw.randrange(n) for n in shape) for _ in range(4)} - touched
        for element in draw.sample(sorted(touched), min(3, len(touched))):
            assert is_blamed(session, output, element, tensor, index)
        # in these every element that is blamed counts, so no other is
        for element in others if name in ("matmul", "softmax") else ():
            assert not is_blamed(session, output, element, tensor, index)


# -- logs made by hand --


@pytest.fixture
def log(tmp_path, one_cube):
    return Log(tmp_path / "log", one_cube)


@pytest.fixture
def chain(log):
    """hbm -> tcm 0 -> doubled at tcm 64 -> hbm 256, and a tensor over all of it."""
    log.writer.alloc(Shard("x", "f32", "hbm", 0, 1 << 52, 512, PE0, (0,), (128,), 0))
    log.alloc("tcm", 0, 256, "s")
    log.op(host_write(), 0, 10)
    log.op(load(16, 0), 20, 30)
    log.op(double(0, 64), 40, 50, engine="pe_math")
    log.op(store(64, 256), 60, 70)
    return log.session()


def test_a_chain_leads_through_scratch_to_the_input(chain):
    answer = chain.blame("x[65]")
    wrote = [link.wrote for link in answer.links]
    assert names(answer.links) == ["dma_write", "add", "dma_read", "host_write"]
    assert [part.name for part in wrote] == [
        "x[65]",
        f"s@{PE0}[17]",
        f"s@{PE0}[1]",
        "x[5]",
    ]
    assert [part.value for part in wrote] == ["10", "10", "5", "5"]
    assert [link.depth for link in answer.links] == [0, 1, 2, 3]
    assert answer.suspect is None
    assert answer.links[1].op.site == "kernel.py:3"


def test_a_blame_that_reports_its_progress_is_the_same(chain):
    shares = []
    reported = chain.blame("x[65]", progress=shares.append)
    assert as_text(reported) == as_text(chain.blame("x[65]"))
    assert len(shares) > 3


def test_an_op_that_is_read_twice_is_in_full_once(chain):
    lines = as_text(chain.blame("x[65]")).splitlines()
    again = [line.endswith("(above)") for line in lines if "dma_read on" in line]
    assert again == [False, True]


def test_the_place_is_that_at_the_cursor(chain):
    chain.goto(2)
    assert names(chain.blame("x[65]").links) == ["host_write"]


def test_depth_cuts_the_chain_off_and_says_so(chain):
    answer = chain.blame("x[65]", 1)
    assert names(answer.links) == ["dma_write", "add"]
    assert [link.followed for link in answer.links] == [True, False]
    assert answer.note == "cut off: the inputs of 1 ops are not followed"


def test_an_element_of_two_writers_has_both(log):
    log.op(host_write(), 0, 10)
    log.op(load(0, 0), 20, 30)
    log.op(load(64, 8, 1), 40, 50)
    assert log.session().blame("tcm 0x4:8").part.writers == (2, 1)


def test_bytes_that_nobody_wrote_are_said_to_be_so(log):
    log.op(load(16, 0), 20, 30)
    blame = log.session().blame("tcm 0x0:4", 9)
    (link,) = blame.links
    assert link.reads[0].writers == (-1,)
    assert kinds.NEVER_WRITTEN in link.notes[0]
    assert "never written" in as_text(blame)


def test_of_what_nobody_wrote_the_writers_of_the_rest_are_to_be_asked_for(tmp_path):
    session = ReplaySession(Trace.open(half_written.recorded_in(tmp_path)))
    assert as_text(session.blame("y[1,0]")).endswith("the rest of it: history y")
    assert "history" not in as_text(session.blame("y[0,0]"))


def test_bytes_that_a_later_op_writes_are_not_written_yet(log):
    log.op(load(0, 0), 20, 30)
    log.op(load(0, 64), 40, 50)
    session = log.session()
    session.goto(0)
    blame = session.blame("tcm 0x40:4")
    assert blame.part.awaited == 1
    assert "not written yet, first by op 1" in as_text(blame)
    assert session.blame("tcm 0x80:4").part.awaited is None


def test_a_read_of_a_writer_in_flight_is_marked_on_its_link(log):
    log.op(host_write(), 0, 10)
    log.op(load(0, 0), 20, 60)
    log.op(double(0, 64), 40, 50, engine="pe_math")
    answer = log.session().blame("tcm 0x40:4")
    assert answer.links[0].notes == (f"{kinds.LATE_WRITER}: op 1",)
    assert answer.suspect == 1


def test_without_data_the_chain_has_no_values(tmp_path):
    run_bench(
        "softmax",
        params=UNEVEN["softmax"],
        spec=TWO_CUBES,
        trace=tmp_path / "t",
        data=False,
        verify=False,
    )
    answer = ReplaySession(Trace.open(tmp_path / "t")).blame("y[3,4]")
    assert answer.note.startswith("without values: op 0 (host_write on")
    assert names(answer.links)[-1] == "host_write"
    assert {link.wrote.value for link in answer.links} == {""}


def test_a_blame_that_is_cancelled_is_no_blame_without_values(chain):
    with pytest.raises(Cancelled):
        chain.blame("x[65]", progress=cancelled_at(0))
    assert chain.blame("x[65]").part.value == "10"


def test_an_overflow_is_the_first_suspect(log):
    log.op(host_write(), 0, 10)
    big = MathCmd(op="exp", inputs=(region("hbm", 400),), out=region("tcm", 0))
    log.op(big, 20, 30, engine="pe_math")
    log.op(double(0, 64), 40, 50, engine="pe_math")
    answer = log.session().blame("tcm 0x40:16")
    assert answer.suspect == 1
    assert answer.links[1].notes == ("4 of 4 overflow",)
    assert answer.links[1].wrote.value == "inf"


@pytest.mark.parametrize(
    ("fault", "params", "what"),
    [
        ("missing_wait", {}, kinds.LATE_WRITER),
        ("scratch_reused", {}, kinds.EARLY_WRITER),
        ("overflow", {}, "overflow"),
        ("never_written", {"warn_memory": True}, kinds.NEVER_WRITTEN),
        ("past_shard", {"warn_memory": True}, kinds.OUTSIDE),
    ],
)
@pytest.mark.slow
def test_the_blame_of_a_faulty_output_names_the_fault(fault, params, what, tmp_path):
    run_bench(f"fault_{fault}", trace=tmp_path / "t", **params)
    answer = ReplaySession(Trace.open(tmp_path / "t")).blame("y")
    (suspect,) = [link for link in answer.links if link.op.op == answer.suspect]
    assert what in " ".join(suspect.notes)
    assert f"faults/{fault}.py" in suspect.op.site


def test_an_operand_is_followed_to_what_it_really_was(tmp_path):
    run = run_bench("fault_early_credit", trace=tmp_path / "t")
    session = ReplaySession(Trace.open(tmp_path / "t"))
    session.goto(len(session) - 1)
    x = session.tensor("x").values
    y = session.tensor("y").values
    remarked = 0
    for row in range(16, 32):
        (sent,) = np.flatnonzero((2 * x == y[row]).all(axis=1))
        answer = session.blame(f"y[{row},0]")
        source = next(link for link in answer.links if link.op.name == "host_write")
        assert source.wrote.name == f"x[{sent}, 0]"
        notes = " ".join(note for link in answer.links for note in link.notes)
        remarked += "given as it was before op" in notes
    # Phase 2 found as many operands that it would have read otherwise.
    assert remarked == len(run.findings) > 0


def test_an_op_that_makes_nan_of_infinities_is_a_suspect(log):
    data = np.array([np.inf, 1, np.inf, 2], np.float32)
    log.op(HostWriteCmd(dst=region("hbm", 0), data=data), 0, 10)
    log.op(load(0, 0), 20, 30)
    a = region("tcm", 0)
    log.op(MathCmd(op="sub", inputs=(a, a), out=region("tcm", 64)), 40, 50)
    log.alloc("hbm", 0, 16)
    log.alloc("tcm", 0, 128)
    answer = log.session().blame("tcm 0x40:16")
    assert answer.suspect == 2
    assert answer.links[0].notes == ("2 NaN of operands that have none",)


GATHERS = """
from kernbench.benches import bench
from kernbench.runtime_api import DPPolicy


def kernel(x, y, picked, tl):
    tl.store(y[:2], tl.load(x[:2]))
    tl.store(y[2:], tl.exp(tl.load(x[2:])))
    backwards = 3 - tl.arange(4)
    tl.store(picked, tl.gather(tl.load(y), backwards))


@bench(name="gathers", description="elements in another order, of which one overflows")
def run(torch):
    one = DPPolicy(num_cubes=1, num_pes=1)
    x = torch.tensor([1, 2, 3, 90], "f16", one, name="x")
    y = torch.zeros((4,), "f16", one, name="y")
    picked = torch.zeros((4,), "f16", one, name="picked")
    torch.launch("kernel", kernel, x, y, picked)
    torch.expect(picked, [0, 0, 0, 0])
"""


@pytest.fixture
def gathers(tmp_path):
    (tmp_path / "gathers.py").write_text(GATHERS)
    run_bench(str(tmp_path / "gathers.py"), trace=tmp_path / "t")
    return ReplaySession(Trace.open(tmp_path / "t"))


def test_what_an_index_leaves_out_of_a_gather_is_no_suspect(gathers):
    bad = gathers.blame("picked[0]")
    assert gathers.row(bad.suspect).name == "exp"
    good = gathers.blame("picked[3]")
    assert good.part.value == "1"
    assert good.suspect is None
    assert "exp" not in names(good.links)


def test_a_gathered_element_is_blamed_on_the_input_that_changes_it_alone(gathers):
    x = [shard for shard in gathers.trace.allocs if shard.tensor == "x"]
    for i in range(3):
        assert changed_by(gathers, x, (i,)) == {(3 - i,)}
        for element in range(4):
            is_of_it = is_blamed(gathers, "picked", (element,), "x", (i,))
            assert is_of_it == (element == 3 - i)


# -- what a part holds --


def test_raw_bytes_have_the_values_of_the_allocation_they_lie_in(chain):
    assert chain.blame("hbm 0x104:8").part.value == "10 to 12"


def test_bytes_that_are_no_whole_elements_are_shown_as_bytes(chain):
    assert chain.blame("hbm 0x106:2").part.value == "bytes 32 to 65"


def test_bytes_beyond_the_allocation_are_shown_as_bytes(log):
    log.alloc("hbm", 0, 4)
    log.op(host_write(), 0, 10)
    assert log.session().blame("hbm 0x0:8").part.value == "bytes 0 to 128"


def test_bytes_of_several_shards_are_not_counted_as_elements():
    session = ReplaySession(Trace.open(MATMUL))
    session.goto(0)
    first, *_ = session.blame("c").lines(100)
    assert first.endswith("at op 0 (16,384 elements somewhere in these bytes)")


def test_nan_is_no_value_that_is_counted(log):
    data = np.array([1, 2, np.nan, 3], np.float32)
    log.op(HostWriteCmd(dst=region("hbm", 0), data=data), 0, 10)
    log.alloc("hbm", 0, 16)
    session = log.session()
    assert session.blame("hbm 0x8:4").part.value == "NaN"
    assert session.blame("hbm 0x0:12").part.value == "1 to 2, NaN in 1 of 3"


# -- the commands --


def test_the_commands_take_places_as_users_write_them(chain):
    assert as_text(chain.run_line("blame x[65]")) == as_text(chain.blame("x[65]"))
    by_address = chain.run_line("blame hbm 0x104:4 1")
    assert as_text(by_address) == as_text(chain.blame("hbm 0x104:4", 1))
    assert [t.op.op for t in chain.run_line("who-wrote x[64:68]").rows] == [3]
    chain.goto(0)
    assert [t.op.op for t in chain.run_line("who-reads x[5]").rows] == [1]
    with pytest.raises(UsageError, match="no tensor 'q'"):
        chain.run_line("blame q[3]")
