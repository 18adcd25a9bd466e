"""Answers that once were wrong, each with the smallest program that showed it."""

import plain_names
import plain_time
import pytest
from check import Case

from kernbench.errors import UsageError
from kernbench.replay import ReplaySession
from kernbench.runtime_api import run_bench
from kernbench.trace import Trace

ONE_PE = {
    "system.sips.count": 1,
    "sip.cube_mesh.w": 1,
    "sip.cube_mesh.h": 1,
    "cube.pes": 1,
    "cube.memory_map.slices_per_cube": 1,
}
TWO_PES = ONE_PE | {"cube.pes": 2, "cube.memory_map.slices_per_cube": 2}
SCRATCH = "sip0.cube0.pe0.pe_cpu"

HEADER = """
import numpy as np
from kernbench.runtime_api.placement import DPPolicy
from kernbench.runtime_api.registry import bench
"""


@pytest.fixture
def record(tmp_path):
    """record(name, text, machine) -> what ran, as the debugger and plainly."""

    def record(name, text, machine=ONE_PE):
        bench = tmp_path / f"{name}.py"
        bench.write_text(HEADER + text)
        trace = tmp_path / f"{name}.msgpack"
        run_bench(str(bench), trace=trace, spec=machine)
        return Case(trace, 0)

    return record


def shipped(name, tmp_path, **params):
    """A shipped bench that has run."""
    trace = tmp_path / f"{name}.msgpack"
    run_bench(name, trace=trace, params=params)
    return Case(trace, 0)


@pytest.mark.slow
def test_blame_of_what_was_read_early_leads_to_the_input_that_was_read(tmp_path):
    case = shipped("fault_early_credit", tmp_path)
    answer = case.ask("blame y[17,0]", len(case.recording.ops) - 1)
    inputs = [link for link in answer.links if link.op.name == "host_write"]
    # the kernel doubles what it receives
    assert [2 * float(link.wrote.value) for link in inputs] == [
        pytest.approx(float(answer.part.value), rel=5e-3)
    ]


TWO_LAUNCHES = """
def first(x, y, tl):
    tl.store(y, tl.load(x, (4,), "f32") + 1)

def second(x, y, tl):
    tl.store(y, tl.load(x, (4,), "f32") * 3)

@bench(name="twice", description="two launches use the same scratch")
def run(torch):
    x = torch.tensor(np.arange(4), "f32", name="x")
    y = torch.zeros((4,), "f32", name="y")
    torch.launch("first", first, x, y)
    torch.launch("second", second, x, y)
"""


def names_of_launch(case, launch):
    """The scratch handles of a launch that something was written to."""
    found = []
    for alloc in case.recording.allocs:
        if alloc["tensor"].startswith(f"h{launch}.") and alloc["space"] == "tcm":
            found.append(plain_names.name_of(alloc))
    return found


def test_scratch_of_an_earlier_launch_was_not_written_by_a_later_one(record):
    case = record("twice", TWO_LAUNCHES)
    last = len(case.recording.ops) - 1
    name = names_of_launch(case, 0)[0]
    try:
        rows = case.ask(f"who-wrote {name}[0]", last).rows
    except UsageError:
        return  # it says that the handle is gone
    launches = {case.recording.call_of(op_of(case, row))["launch"] for row in rows}
    assert launches <= {0}


def op_of(case, row):
    return case.recording.ops[row.op.op]


def test_memory_of_a_handle_of_an_earlier_launch_is_not_what_a_later_one_loaded(record):
    case = record("twice", TWO_LAUNCHES.replace("+ 1", "+ 10"))
    last = len(case.recording.ops) - 1
    added = names_of_launch(case, 0)[1]  # x + 10; at its address the second has 3 x
    shown = said(case, f"memory {added}", last)
    assert "11" in shown or "released" in shown or "h1." in shown


def said(case, line, position):
    """What a command says, or the error that it ends with."""
    try:
        return "\n".join(case.ask(line, position).lines(100))
    except UsageError as why:
        return str(why)


def test_scratch_of_a_closed_scope_was_not_written_by_what_followed_it(record):
    case = record(
        "scopes",
        """
def kernel(x, y, tl):
    with tl.scope():
        tl.store(y, tl.load(x, (4,), "f32"))
    tl.store(y, tl.full((4,), 7, "f32"))

@bench(name="scopes", description="a scope is closed, and its bytes used again")
def run(torch):
    x = torch.tensor(np.arange(4), "f32", name="x")
    y = torch.zeros((4,), "f32", name="y")
    torch.launch("kernel", kernel, x, y)
""",
    )
    loaded = names_of_launch(case, 0)[0]
    shown = said(case, f"who-wrote {loaded}[0]", len(case.recording.ops) - 1)
    assert " full on" not in shown


def test_compare_of_2x_and_3x_says_that_they_differ(record):
    scaled = """
def kernel(x, y, tl):
    tl.store(y, tl.load(x, (4,), "f32") * FACTOR)

@bench(name="scaled", description="y is a multiple of x")
def run(torch):
    x = torch.tensor(np.arange(4), "f32", name="x")
    y = torch.zeros((4,), "f32", name="y")
    torch.launch("kernel", kernel, x, y)
"""
    two = record("two", scaled.replace("FACTOR", "2"))
    three = record("three", scaled.replace("FACTOR", "3"))
    answer = two.ask(f"compare {three.path}", -1)
    differing = [count for kind, count in answer.counts.items() if kind != "matched"]
    assert any(differing) or not answer.ok


def test_what_verify_calls_bad_is_bad_where_the_tensor_is_shown(record):
    case = record(
        "copies",
        """
def kernel(x, tl):
    if tl.program_id(0) == 1:
        tl.store(x, tl.full((4,), 9, "f32"))

@bench(name="copies", description="PE 1 spoils its copy of x")
def run(torch):
    data = np.arange(4).astype("f4")
    x = torch.tensor(data, "f32", DPPolicy(pe="replicate"), name="x")
    torch.launch("kernel", kernel, x)
    torch.expect(x, data)
""",
        TWO_PES,
    )
    last = len(case.recording.ops) - 1
    assert not case.ask("verify", last).ok
    everything = [said(case, f"{what} x", last) for what in ("memory", "who-wrote")]
    everything += [said(case, what, last) for what in ("outputs", "verify", "blame x")]
    # at least one of them has to name the copy that is wrong
    assert "pe1" in "".join(everything)


@pytest.mark.slow
def test_a_cut_has_the_credits_that_are_on_the_wire_when_it_begins(tmp_path):
    case = shipped("ccl_allreduce", tmp_path, n_elem=64)
    of_no_op = [
        hop
        for hop in plain_time.hops(case.recording)
        if hop.transfer["row"] >= len(case.recording.rows)
    ]
    times = [hop.start for hop in of_no_op if hop.start > hop.transfer["t0"] + 2]
    start = next(t for t in times if plain_time.in_flight(case.recording, t))
    out = tmp_path / "cut.msgpack"
    case.ask(f"cut {out} from {start}ns to {start + 1}ns", -1)
    line = f"links {start} {start + 1}"
    of_part = ReplaySession(Trace.open(out)).run_line(line)
    of_whole = case.ask(line, -1)
    wanted = {(link.src, link.dst): round(link.nbytes, 3) for link in of_whole.links}
    found = {(link.src, link.dst): round(link.nbytes, 3) for link in of_part.links}
    assert found == wanted


def test_verify_tells_that_the_run_itself_was_found_wrong(tmp_path):
    case = shipped("fault_low_bits", tmp_path, table="coarse")
    assert not case.recording.verdict["results"]["ok"]
    answer = case.ask("verify", -1)
    assert not answer.ok or "FAIL" in "\n".join(answer.lines(100))


@pytest.mark.slow
def test_divergence_names_an_op_where_an_error_has_added_up(record):
    case = record(
        "counting",
        """
def kernel(y, tl):
    total = tl.zeros((1,), "bf16")
    for _ in range(300):
        tl.add(total, 1.0, out=total)
    tl.store(y, total)

@bench(name="counting", description="bf16 cannot count beyond 256")
def run(torch):
    y = torch.zeros((1,), "bf16", name="y")
    torch.launch("kernel", kernel, y)
    torch.expect(y, np.array([300.0]))
""",
    )
    assert case.ask("divergence", -1).op >= 0


def test_blame_suspects_the_op_that_made_a_nan_of_numbers(record):
    case = record(
        "softmax",
        """
def kernel(x, y, tl):
    tl.store(y, tl.softmax(tl.load(x, (4,), "f32")))

@bench(name="softmax", description="softmax of a row of -inf")
def run(torch):
    x = torch.tensor(np.full(4, -np.inf), "f32", name="x")
    y = torch.zeros((4,), "f32", name="y")
    torch.launch("kernel", kernel, x, y)
""",
    )
    (born,) = [op for op in case.recording.ops if op.name == "softmax"]
    assert case.ask("blame y[0]", -1).suspect == born.position


def test_slack_of_a_load_does_not_end_where_the_next_took_its_slot(record):
    case = record(
        "slots",
        """
def kernel(x, y, tl):
    late = tl.load(x, (4,), "f32", wait=False)
    total = tl.zeros((4,), "f32")
    for _ in range(20):
        total = tl.exp(total)
    total = tl.load(x + 16, (4,), "f32")
    for _ in range(20):
        total = tl.exp(total)
    tl.wait(late)
    tl.store(y, total + late)

@bench(name="slots", description="a load is wanted long after the next one")
def run(torch):
    x = torch.tensor(np.arange(16), "f32", name="x")
    y = torch.zeros((4,), "f32", name="y")
    torch.launch("kernel", kernel, x, y)
""",
    )
    late, after = [op for op in case.recording.ops if op.name == "dma_read"]
    assert late.slot == after.slot
    names = case.recording.strings
    waits = [call for call in case.recording.calls if names[call["call"]] == "wait"]
    # one DMA of eight slots serves both at once
    told = case.ask("bound", late.position).slack
    assert told == pytest.approx(waits[0]["t_resume"] - late.t_end, abs=2)


ROWS_APART = """
def kernel(x, y, tl):
    tl.store(y, tl.load(x, (2, 6), "f32"), strides=(7, 1))

@bench(name="rows", description="two rows, of which one burst has only one")
def run(torch):
    x = torch.tensor(np.arange(12), "f32", name="x")
    y = torch.zeros((13,), "f32", name="y")
    torch.launch("kernel", kernel, x, y)
"""


def test_a_burst_of_rows_ends_with_its_last_whole_row(record):
    case = record("rows", ROWS_APART, ONE_PE | {"pe.dma.burst_bytes": 32})
    (store,) = [op for op in case.recording.ops if op.name == "dma_write"]
    (moved,) = [
        transfer
        for transfer in case.recording.of_row("transfers", store.row)
        if transfer["bursts"] == 2
    ]
    # each burst has 24 bytes, and not the first 32 of 48
    t1 = moved["start"][0] + 28 / 256
    t0 = moved["start"][0] - 1
    wanted = plain_time.link_loads(case.recording, t0, t1)
    found = {}
    for link in case.ask(f"links {t0} {t1}", -1).links:
        found[link.edge] = round(link.nbytes, 4)
    assert found == {edge: round(load[0], 4) for edge, load in wanted.items()}


def test_catch_stops_where_both_ops_of_a_race_have_come(record):
    case = record(
        "queued",
        """
def kernel(x, y, tl):
    if tl.program_id(0) == 0:
        many = tl.zeros((64, 64), "f32")
        few = tl.zeros((4,), "f32")
        tl.store(x + 64, many, wait=False)
        tl.store(x, few)  # issued before the other PE's load, which begins earlier
    else:
        total = tl.zeros((4,), "f32")
        for _ in range(8):
            total = tl.exp(total)
        tl.store(y, tl.load(x, (4,), "f32"))

@bench(name="queued", description="a store waits in its DMA as its bytes are read")
def run(torch):
    x = torch.tensor(np.arange(8192), "f32", DPPolicy(pe="row_wise"), name="x")
    y = torch.zeros((8,), "f32", DPPolicy(pe="row_wise"), name="y")
    torch.launch("kernel", kernel, x, y)
""",
        TWO_PES | {"pe.dma.outstanding": 1},
    )
    (load,) = [op for op in case.recording.ops if op.name == "dma_read"]
    store = case.recording.ops[-1]
    (met,) = case.ask("hazards", -1).rows
    assert (met.op.op, met.other.op) == (load.position, store.position)
    assert load.t_start < store.t_start
    case.ask("catch hazards", -1)
    case.session.run_line("continue")
    assert case.session.cursor == store.position
