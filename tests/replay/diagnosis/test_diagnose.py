"""What was put into a kernel is what its diagnosis names.

The kernels are shipped ones with one line rewritten, and some of a few lines: what is
wrong with them is known because it was put there.
"""

import json
import re
import shlex
from contextlib import suppress
from pathlib import Path
from threading import Event

import half_written
import pytest
from click.testing import CliRunner
from replay_logs import Log, store

from kernbench.benches import flash_attention
from kernbench.cli import main
from kernbench.common.progress import Cancelled
from kernbench.errors import KernelError
from kernbench.replay import ReplaySession
from kernbench.replay.diagnosis.findings import Finding, asked_by
from kernbench.runtime_api import run_bench
from kernbench.sim_engine.plans import perform_next
from kernbench.trace import Trace
from kernbench.trace.cut import cut
from kernbench.trace.frames import FrameFile

ATTENTION = Path(flash_attention.__file__).read_text(encoding="utf-8")
RESCALE = "            tl.mul(out, fade, out=out)\n"
SKIPPED = "            if low != 64:\n                tl.mul(out, fade, out=out)\n"
PART = "part = slice(low, min(low + block, keys.stop))"
ONE_OFF = "part = slice(32, 64) if low == 64 else slice(low, low + block)"

FOUR_PES = """
from kernbench.benches import bench
from kernbench.runtime_api import DPPolicy

ROWS = DPPolicy(num_cubes=1, num_pes=4)

def kernel(x_ptr, y_ptr, n, tl):
    pe = tl.program_id(0)
    BODY

@bench(name="four_pes", description="")
def run(torch, n=256):
    dp = DPPolicy(num_cubes=1, num_pes=4, pe="column_wise")
    data = torch.rng.standard_normal((4, n))
    x = torch.tensor(data, "f32", dp, name="x")
    y = torch.zeros((4, n), "f32", dp, name="y")
    torch.launch("kernel", kernel, x, y, n)
    torch.expect(y, data.astype("f4") * 2)
"""

TRACES = Path(__file__).parents[3] / "traces"


def kernbench(*args):
    return CliRunner().invoke(main, list(map(str, args)), catch_exceptions=False)


@pytest.fixture
def diagnosed(tmp_path, monkeypatch):
    """diagnosed(source, *options) -> the findings about a run of a bench's source."""
    monkeypatch.chdir(tmp_path)

    def diagnosed(source, *options):
        Path("mine.py").write_text(source)
        kernbench("run", "./mine.py", "--trace", "t.msgpack", *options)
        result = kernbench("trace", "diagnose", "t.msgpack", "--json")
        assert result.exit_code == 0
        return json.loads(result.stdout)

    return diagnosed


def line_of(text):
    """The kernel line of the only line of mine.py with a text in it."""
    source = Path("mine.py").read_text().splitlines()
    (number,) = (i for i, line in enumerate(source, 1) if text in line)
    return f"mine.py:{number}"


@pytest.mark.slow
def test_an_output_of_another_name_that_was_overwritten_is_followed(diagnosed):
    again = """    torch.expect(y, data.astype("f4") * 2, name="early")
    torch.launch("kernel", kernel, y, x, n)
"""
    body = "tl.store(y_ptr, tl.load(x_ptr) * 3)"
    source = FOUR_PES.replace("BODY", body).rpartition("    torch.expect")[0] + again
    wrong = diagnosed(source)[0]
    assert wrong["title"].startswith("early: 1,024 of 1,024 elements are wrong")
    assert wrong["lines"][0] == line_of("tl.store")
    *_, name, _path, place, option, op = shlex.split(wrong["check"])
    assert (name, place, option) == ("blame", "early[0, 0]", "--op")
    with ReplaySession(Trace.open("t.msgpack")) as session:
        assert int(op) == session.verify().rows[0].after - 1
    assert asked_by(Finding(**wrong)) == ["blame", place]


@pytest.mark.slow
def test_a_rescale_that_is_skipped_once_is_named_by_its_count(diagnosed):
    findings = diagnosed(ATTENTION.replace(RESCALE, SKIPPED), "--set", "pes=8")
    first, second, *_ = findings
    assert first["kind"] == "wrong"
    assert first["title"].startswith("o: 2,290 of 8,192 elements are wrong")
    assert second["kind"] == "odd"
    assert second["lines"] == [line_of("tl.mul(out, fade, out=out)")]
    assert "ran 24 times, and 8 times it was left out" in second["title"]


@pytest.mark.slow
def test_a_tile_that_is_loaded_twice_is_named(diagnosed):
    findings = diagnosed(ATTENTION.replace(PART, ONE_OFF), "--set", "pes=8")
    odd = [finding for finding in findings if finding["kind"] == "odd"]
    assert {line for finding in odd for line in finding["lines"]} == {
        line_of("key = tl.load(k[part])"),
        line_of("tl.load(v[part])"),
    }
    assert findings[1] == odd[0]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["matmul", "flash_attention", "ccl_allreduce"])
def test_lines_that_would_gain_are_before_numbers_of_the_machine(name):
    session = ReplaySession(Trace.open(TRACES / f"{name}.msgpack"))
    found = session.run_line("diagnose")
    are_lines = [bool(one.lines) for one in found if "sooner if" in one.title]
    assert True in are_lines
    assert are_lines == sorted(are_lines, reverse=True)


def test_a_number_that_is_to_be_doubled_or_halved_is_so_in_the_command():
    trace = Trace.open(TRACES / "matmul.msgpack")
    told = []
    for finding in ReplaySession(trace).run_line("diagnose"):
        verb = re.search(r"sooner if (\S+) is (doubled|halved) ", finding.title)
        if verb is None:
            continue
        path, number = finding.check.split()[-2].split("=")
        assert path == verb[1]
        value = trace.spec
        for name in path.split("."):
            value = value[name]
        times = {"doubled": 2.0, "halved": 0.5}[verb[2]]
        assert float(number) == value * times
        told.append(verb[2])
    assert {"doubled", "halved"} == set(told)


@pytest.mark.slow
def test_the_right_kernel_is_slow_at_most(diagnosed):
    findings = diagnosed(ATTENTION, "--set", "pes=8")
    assert {finding["kind"] for finding in findings} == {"slow"}


@pytest.mark.slow
def test_every_check_is_a_command_that_can_be_run(diagnosed):
    findings = diagnosed(ATTENTION.replace(RESCALE, SKIPPED), "--set", "pes=2")
    fields = {"kind", "title", "ops", "lines", "evidence", "check"}
    for finding in findings:
        assert set(finding) == fields
        program, *words = shlex.split(finding["check"])
        assert program == "kernbench"
        result = kernbench(*(word for word in words if word != "--prove"))
        assert result.exit_code in (0, 1)
        assert result.stdout


BODY = """
    row = x_ptr + pe * n * 4
    x = tl.load(row, (n,), "f32")
    tl.mul(x, 2.0, out=x)
    tl.store(y_ptr + pe * n * 4, x)
""".strip()


@pytest.mark.slow
def test_a_line_that_one_pe_leaves_out_is_named(diagnosed):
    skipping = BODY.replace("tl.mul(", "pe != 2 and tl.mul(")
    findings = diagnosed(FOUR_PES.replace("BODY", BODY))
    assert {finding["kind"] for finding in findings} <= {"slow"}
    wrong, odd, *_ = diagnosed(FOUR_PES.replace("BODY", skipping))
    assert wrong["title"].startswith("y: 256 of 1,024 elements are wrong")
    assert odd["lines"] == [line_of("tl.mul(x, 2.0")]
    assert "ran 0 times on sip0.cube0.pe2, and 1 time on 3 other PEs" in odd["title"]


@pytest.mark.slow
def test_two_pes_that_load_one_row_are_named(diagnosed):
    twice = BODY.replace("x_ptr + pe", "x_ptr + (2 if pe == 1 else pe)")
    _, odd, *_ = diagnosed(FOUR_PES.replace("BODY", twice))
    assert odd["lines"] == [line_of('x = tl.load(row, (n,), "f32")')]
    assert "touched the same bytes on" in odd["title"]


@pytest.mark.slow
def test_bytes_that_nobody_wrote_are_wrong_and_name_their_line(diagnosed):
    unwritten = """
    x = tl.load(y_ptr + pe * n * 4, (n,), "f32")
    tl.mul(x, 2.0, out=x)
    tl.store(y_ptr + pe * n * 4, x)
""".strip()
    source = FOUR_PES.replace("BODY", unwritten).replace("zeros(", "empty(")
    first, *_ = diagnosed(source)
    assert first["kind"] == "wrong"
    assert "never written" in first["title"]
    assert first["lines"] == [line_of("x = tl.load(y_ptr")]


@pytest.mark.slow
def test_an_error_that_ends_the_run_comes_first(diagnosed):
    raising = BODY.replace("tl.mul(", "1 / (pe - 2) and tl.mul(")
    first, *_ = diagnosed(FOUR_PES.replace("BODY", raising))
    assert first["kind"] == "wrong"
    assert "division by zero" in first["title"]


@pytest.mark.slow
def test_of_a_run_without_ops_there_is_nothing_to_say(diagnosed):
    source = FOUR_PES.replace("BODY", BODY)
    source = source.replace("    dp = DPPolicy", "    return\n    dp = DPPolicy")
    assert diagnosed(source) == []


@pytest.mark.slow
def test_the_first_op_of_a_wrong_output_is_of_the_first_line_that_is_named():
    """It was the host's, which had written the wrong element, in another line."""
    session = ReplaySession(Trace.open(TRACES / "fault_wrong_root.msgpack"))
    first, *_ = session.run_line("diagnose")
    assert first.title.startswith("x: 84 of 128 elements are wrong")
    assert session.row(first.ops[0]).site == first.lines[0]
    assert 0 in first.ops


@pytest.mark.parametrize("name", ["matmul", "fault_overflow", "fault_ring_by_name"])
@pytest.mark.slow
def test_a_profile_that_is_found_beside_the_rest_changes_nothing(name, monkeypatch):
    path = TRACES / f"{name}.msgpack"
    one_by_one = ReplaySession(Trace.open(path)).run_line("diagnose")
    monkeypatch.setattr("kernbench.replay.diagnosis.diagnose.MOST_EXECUTED", 0)
    beside = ReplaySession(Trace.open(path)).run_line("diagnose")
    assert beside == one_by_one


def test_a_profile_that_is_found_beside_the_rest_is_given_up_with_it(monkeypatch):
    ended = Event()

    def endless(index, progress):
        try:
            while True:
                progress(0.5)
        finally:
            ended.set()

    def give_up(done):
        raise Cancelled

    monkeypatch.setattr("kernbench.replay.diagnosis.diagnose.MOST_EXECUTED", 0)
    monkeypatch.setattr("kernbench.replay.diagnosis.diagnose.gains", endless)
    session = ReplaySession(Trace.open(TRACES / "matmul.msgpack"))
    with pytest.raises(Cancelled):
        session.run_line("diagnose", give_up)
    assert ended.wait(10)


@pytest.mark.slow
def test_a_long_run_that_found_itself_right_is_not_executed_again(monkeypatch):
    """A run that found itself wrong is, and says what is."""
    monkeypatch.setattr("kernbench.replay.diagnosis.wrong.MOST_EXECUTED", 5)
    told = kernbench("trace", "diagnose", str(TRACES / "matmul.msgpack")).output
    assert "unchecked: all outputs are right as the run itself found; 152 ops" in told
    told = kernbench("trace", "diagnose", str(TRACES / "fault_wrong_root.msgpack"))
    assert "x: 84 of 128 elements are wrong" in told.output
    assert "executed again" not in told.output


@pytest.mark.slow
def test_a_long_run_without_a_verdict_is_executed_until_its_outputs_are_due(
    monkeypatch, tmp_path
):
    """What is wrong is found all the same, and what follows is not executed."""
    executed = set()

    def counted(turn_of, step, *args):
        executed.add(step)
        return perform_next(turn_of, step, *args)

    def diagnosis(trace):
        """The titles of what is wrong, and the last step that was executed."""
        executed.clear()
        found = ReplaySession(Trace.open(trace)).run_line("diagnose")
        return [f.title for f in found if f.kind == "wrong"], max(executed)

    right = tmp_path / "right.msgpack"
    wrong = tmp_path / "wrong.msgpack"
    for trace, factor in ((right, 2), (wrong, 3)):
        source = FOUR_PES.replace("BODY", BODY).replace("* 2)", f"* {factor})")
        source += 20 * '    torch.launch("kernel", kernel, x, y, n)\n'
        bench = tmp_path / "four_pes.py"
        bench.write_text(source, encoding="utf-8")
        kernbench("run", bench, "--trace", trace, "--no-verify")
    monkeypatch.setattr("kernbench.replay.data.history.perform_next", counted)
    of_right, last = diagnosis(right)
    of_wrong, _ = diagnosis(wrong)
    assert of_right == []
    assert [title for title in of_wrong if title.startswith("y: ")] != []

    monkeypatch.setattr("kernbench.replay.diagnosis.wrong.MOST_EXECUTED", 5)
    monkeypatch.setattr("kernbench.replay.races.findings.MOST_EXECUTED", 5)
    of_long, last_of_long = diagnosis(right)
    assert of_long == []
    assert last_of_long < last / 4
    assert diagnosis(wrong)[0] == of_wrong


@pytest.mark.slow
def test_what_cannot_be_checked_is_said(diagnosed):
    findings = diagnosed(FOUR_PES.replace("BODY", BODY), "--no-data")
    titles = [f["title"] for f in findings if f["kind"] == "unchecked"]
    assert [title.partition(":")[0] for title in titles] == [
        "Phase 1 was not compared with Phase 2",
        "the outputs were not checked",
    ]
    assert all("record the run again without --no-data" in title for title in titles)


@pytest.mark.slow
def test_loads_and_compute_that_take_turns_are_told(diagnosed):
    turns = """
    for i in range(8):
        x = tl.load(x_ptr + pe * n * 4, (n,), "f32")
        for _ in range(8):
            y = tl.exp(x)
    tl.store(y_ptr + pe * n * 4, y)
""".strip()
    findings = diagnosed(FOUR_PES.replace("BODY", turns))
    (told,) = (f for f in findings if "double-buffering" in f["title"])
    assert told["kind"] == "slow"
    assert told["lines"] == [line_of("x = tl.load(")]
    fetched = [f["title"] for f in findings if f["title"].startswith("x 8 times")]
    assert len(fetched) == 1


HELPED = """
    def half(of):
        return tl.mul(of, 0.5, out=of)

    x = tl.load(x_ptr[pe : pe + 1, :])
    first = tl.full((1, n), 2.0, "f32")
    half(first)
    if pe != 2:
        half(x)  # left out
    tl.store(y_ptr[pe : pe + 1, :], x + x + x + x)
""".strip()


@pytest.mark.slow
def test_of_a_helper_the_line_that_did_not_call_it_is_named(diagnosed):
    """The helper's own line ran once on that PE, and twice on the others."""
    source = FOUR_PES.replace("BODY", HELPED).replace(
        'pe="column_wise"', 'pe="row_wise"'
    )
    findings = diagnosed(source)
    (odd,) = (finding for finding in findings if finding["kind"] == "odd")
    assert odd["lines"] == [line_of("# left out")]
    assert "ran 0 times on sip0.cube0.pe2, and 1 time on 3 other PEs" in odd["title"]


@pytest.mark.slow
def test_an_error_about_an_op_leads_to_that_op_and_its_line(diagnosed):
    """It is raised once all has been simulated: stores came after that op."""
    first, *_ = diagnosed(GATHER)
    op = f"op 18 (gather on sip0.cube0.pe2.pe_math) at {line_of('# out of it')}"
    error = f"VerificationError: {op}: gather has indices"
    assert error in first["title"]
    assert first["ops"] == [18]
    assert first["lines"] == [line_of("# out of it")]


@pytest.mark.slow
def test_an_output_that_is_written_in_part_leads_to_what_was_written_wrongly(diagnosed):
    """The last row stays unwritten; the lines behind that are those of the others."""
    first, *_ = diagnosed(SHIFTED)
    assert first["title"].startswith("y: 32 of 128 elements are wrong, the first y[6")
    assert line_of("# beyond") in first["lines"]


SHIFTED = """
import numpy as np
from kernbench.benches import bench
from kernbench.runtime_api import DPPolicy

def kernel(x, y, tl):
    for i in range(6):
        tl.store(y[i : i + 1, :], tl.load(x[i : i + 1, :]))
    tl.store(y[6:7, :], tl.load(x[7:8, :]))  # beyond

@bench(name="shifted", description="")
def run(torch):
    dp = DPPolicy(num_cubes=1, num_pes=1)
    data = np.arange(128.0).reshape(8, 16)
    x = torch.tensor(data, "f32", dp, name="x")
    y = torch.empty((8, 16), "f32", dp, name="y")
    torch.launch("kernel", kernel, x, y)
    torch.expect(y, data)
"""


@pytest.mark.slow
def test_a_pe_that_loads_once_is_not_told_to_load_ahead(diagnosed):
    once = GATHER.replace("    at = tl.load(at_ptr[mine])\n", "").replace(
        "tl.gather(x, at, 0)", "tl.exp(tl.exp(tl.exp(x)))"
    )
    assert "double-buffering" not in str(diagnosed(once))


@pytest.mark.slow
def test_of_an_element_that_nobody_wrote_the_line_that_stores_others_is_named(
    diagnosed,
):
    first, *_ = diagnosed(half_written.SOURCE)
    assert "the first y[1, 0] was never written" in first["title"]
    stored = line_of("tl.store(y, tl.load(x))")
    assert first["lines"][0] == stored
    assert first["ops"]


def test_of_a_killed_run_it_says_that_nobody_knows_the_rest(tmp_path):
    path = half_written.recorded_in(tmp_path)
    whole = ReplaySession(Trace.open(path)).run_line("diagnose")
    assert not any(one.title.startswith("the run was killed") for one in whole)
    frames = FrameFile(path).by_tag
    for tag in ("commands", "ops", "end"):
        killed = tmp_path / "killed.msgpack"
        killed.write_bytes(path.read_bytes()[: frames[tag][0].offset])
        found = ReplaySession(Trace.open(killed)).run_line("diagnose")
        said = [one for one in found if one.title.startswith("the run was killed")]
        assert [one.kind for one in said] == ["unchecked"]


def test_time_that_nothing_explains_is_not_said_to_move_bytes(tmp_path, one_cube):
    """All of a path was, as it ends with an op that moves some."""
    to_memory = ("sip0.cube0.pe0.pe_dma", "sip0.cube0.r0c1", "sip0.cube0.hbm_ctrl.pe0")
    log = Log(tmp_path / "trace", one_cube)
    written = store(0, 256)
    written.transfers.append((to_memory, 990.0, 16, 1, [990.0, 992.0]))
    log.op(written, 960.0, 1000.0)
    session = log.session()
    assert session.critical_path().totals == {"unexplained": 960.0, "dma write": 40.0}
    found = session.run_line("diagnose")
    assert not [one for one in found if "of the critical path" in one.title]


@pytest.mark.slow
def test_a_memory_that_no_pe_used_is_said_to_be_the_hosts(tmp_path):
    path = half_written.recorded_in(tmp_path)
    part = tmp_path / "part.msgpack"
    first = Trace.open(path).ops[0]
    assert first.op_name == "host_write"
    cut(path, part, first.t_start, first.t_end)
    found = ReplaySession(Trace.open(part)).run_line("diagnose")
    (crowded,) = (one for one in found if "of the critical path" in one.title)
    assert crowded.title.endswith(", which the host alone used")


ALIKE = """
from kernbench.benches import bench
from kernbench.runtime_api import DPPolicy

ROWS = DPPolicy(num_cubes=1, num_pes=4, pe="row_wise")

def kernel(x_ptr, y_ptr, fails, tl):
    pe = tl.program_id(0)
    for i in range(20):
        row = 2 * i + pe
        if pe == 3:
            row = 2 * i + 60
        x = tl.load(x_ptr[row : row + 1])
        tl.store(y_ptr, 2 * x)
        if fails and i == 10 and pe == 3:
            tl.load(x_ptr[900:901])

@bench(name="alike", description="PE 2 loads what PE 0 loads next")
def run(torch, fails=False):
    x = torch.tensor(torch.rng.standard_normal((100, 32)), "f32", ROWS, name="x")
    y = torch.empty((4, 32), "f32", ROWS, name="y")
    torch.launch("kernel", kernel, x, y, fails)
"""


def odd_in(trace):
    """The findings about what is odd in a trace."""
    found = ReplaySession(trace).run_line("diagnose")
    return [one.title for one in found if one.kind == "odd"]


@pytest.fixture
def alike(tmp_path):
    """alike(fails) -> the trace of ALIKE."""

    def alike(fails):
        bench = tmp_path / "alike.py"
        bench.write_text(ALIKE)
        path = tmp_path / "alike.msgpack"
        with suppress(KernelError):
            run_bench(str(bench), params={"fails": fails}, trace=path)
        return Trace.open(path)

    return alike


@pytest.mark.slow
@pytest.mark.parametrize("step", [4, pytest.param(1, marks=pytest.mark.soak)])
def test_where_a_recording_breaks_off_no_pe_is_unlike_the_others(alike, tmp_path, step):
    whole = alike(fails=False)
    (launch,) = whole.launches
    assert odd_in(whole) == []
    part = tmp_path / "part.msgpack"
    for share in range(1, 16, step):
        middle = launch.t_start + share / 16 * (launch.t_end - launch.t_start)
        cut(whole.path, part, launch.t_start, middle)
        assert odd_in(Trace.open(part)) == []
        cut(whole.path, part, middle, launch.t_end + 1)
        assert odd_in(Trace.open(part)) == []


@pytest.mark.slow
def test_where_an_error_ends_a_run_no_pe_is_unlike_the_others(alike):
    failed = alike(fails=True)
    assert failed.end["error"].startswith("KernelError")
    assert odd_in(failed) == []


def test_of_a_run_that_an_error_ended_the_bench_is_not_blamed():
    session = ReplaySession(Trace.open(TRACES / "fault_ring_by_name.msgpack"))
    *_, last = session.run_line("diagnose")
    assert last.title.startswith("no output was checked: the run ended before")


@pytest.mark.slow
def test_a_run_that_expects_nothing_is_said_to_be_unchecked(diagnosed):
    *_, last = diagnosed(GATHER.replace("= 9", "= 7"))
    assert last["kind"] == "unchecked"
    assert last["title"].startswith("no output was checked")


GATHER = """
import numpy as np
from kernbench.benches import bench
from kernbench.runtime_api import DPPolicy

def kernel(x_ptr, at_ptr, y_ptr, tl):
    rows, _ = tl.own(x_ptr)
    mine = slice(rows.start, rows.stop)
    x = tl.load(x_ptr[mine])
    at = tl.load(at_ptr[mine])
    y = tl.gather(x, at, 0)  # out of it
    tl.store(y_ptr[mine], y)

@bench(name="pick", description="")
def run(torch):
    dp = DPPolicy(num_cubes=1, num_pes=4, pe="row_wise")
    at = np.zeros((32, 4), np.int32)
    at[16:24] = 9
    x = torch.zeros((32, 4), "f32", dp, name="x")
    y = torch.empty((32, 4), "f32", dp, name="y")
    torch.launch("kernel", kernel, x, torch.tensor(at, "i32", dp, name="at"), y)
"""


TALK = """
from kernbench.ccl.install import install_ipcq
from kernbench.benches import bench
from kernbench.runtime_api import DPPolicy

def tell(tl, way, what):
    tl.send(way, what, wait=False)

def kernel(x_ptr, tl):
    pe = tl.program_id(0)
    x = tl.load(x_ptr[pe : pe + 1, :])
    if pe > 1:
        tell(tl, "E", x)  # never on two
    tl.recv("W", (1, 16), "f32")

@bench(name="talk", description="")
def run(torch):
    install_ipcq(
        torch.engine,
        world_size=2,
        rank_to_pe=[(0, 0, 0), (0, 0, 1)],
        neighbors=lambda pe: {"E": 1 - pe, "W": 1 - pe},
    )
    dp = DPPolicy(num_cubes=1, num_pes=2, pe="row_wise")
    torch.launch("kernel", kernel, torch.zeros((2, 16), "f32", dp, name="x"))
"""


@pytest.mark.slow
def test_who_waits_for_a_message_of_a_helper_hears_who_would_have_sent_it(diagnosed):
    first, *_ = diagnosed(TALK)
    assert first["title"].startswith("the run ended with DeadlockError")
    sender = line_of("# never on two")
    assert sender in first["lines"]
    assert f"{sender} sends, and ran 0 times" in first["evidence"]


FULL = """
from kernbench.ccl.install import install_ipcq
from kernbench.benches import bench
from kernbench.runtime_api import DPPolicy

def kernel(x_ptr, tl):
    pe = tl.program_id(0)
    x = tl.load(x_ptr[pe : pe + 1, :])
    for _ in range(6):
        tl.send("E", x)  # more than the ring holds
    for _ in range(6):
        tl.recv("W", (1, 16), "f32")  # nobody comes here

@bench(name="full", description="")
def run(torch):
    install_ipcq(
        torch.engine,
        world_size=2,
        rank_to_pe=[(0, 0, 0), (0, 0, 1)],
        neighbors=lambda pe: {"E": 1 - pe, "W": 1 - pe},
        slots=2,
    )
    dp = DPPolicy(num_cubes=1, num_pes=2, pe="row_wise")
    torch.launch("fill", kernel, torch.zeros((2, 16), "f32", dp, name="x"))
"""


@pytest.mark.slow
def test_senders_whose_rings_are_full_hear_that_and_who_never_received(diagnosed):
    first, *_ = diagnosed(FULL)
    assert "is full (2 of 2 slots)" in first["title"]
    sends = line_of("# more than the ring holds")
    recvs = line_of("# nobody comes here")
    launch = line_of("torch.launch(")
    assert first["lines"] == [sends, launch, recvs]
    assert first["evidence"] == [f"{recvs} receives, and ran 0 times"]


@pytest.mark.slow
def test_what_is_wrong_by_little_is_told_from_what_it_is_to_be(diagnosed):
    body = "tl.store(y_ptr, tl.load(x_ptr) * (2.0002 if pe == 2 else 2.0))"
    finding = diagnosed(FOUR_PES.replace("BODY", body))[0]
    numbers = re.search(r"y\[.*\] = (\S+), which is to be (\S+)$", finding["title"])
    wrong, expected = map(float, numbers.groups())
    assert wrong == pytest.approx(1.0001 * expected, rel=5e-5)
    assert wrong != expected


@pytest.mark.slow
def test_where_nothing_is_right_it_says_what_the_first_wrong_one_is_to_be(diagnosed):
    """Of 2 x + 1 instead of 2 x neither the bench nor a neighbour told the number."""
    body = "tl.store(y_ptr, tl.load(x_ptr) * 2.0 + 1.0)"
    finding = diagnosed(FOUR_PES.replace("BODY", body))[0]
    numbers = re.search(r"y\[.*\] = (\S+), which is to be (\S+)$", finding["title"])
    wrong, expected = map(float, numbers.groups())
    assert wrong == pytest.approx(expected + 1.0, rel=1e-3)
    assert "no element of y is right" in finding["evidence"]


@pytest.mark.slow
def test_where_nothing_was_written_it_says_what_the_first_is_to_be(diagnosed):
    source = FOUR_PES.replace("BODY", "tl.load(x_ptr)").replace(
        'torch.zeros((4, n), "f32", dp', 'torch.empty((4, n), "f32", dp'
    )
    finding = diagnosed(source)[0]
    assert re.search(
        r"the first y\[0, 0\] was never written, and is to be -?\d", finding["title"]
    )


@pytest.mark.slow
def test_of_a_run_that_an_error_ended_nothing_is_to_be_faster(diagnosed):
    """It was told by how much sooner it would have raised."""
    body = "x = tl.load(x_ptr[pe, :])\n    tl.store(y_ptr[pe, :], x + x)\n    FAULT"
    right = FOUR_PES.replace("BODY", body.replace("FAULT", "tl.wait(x)"))
    wrong = FOUR_PES.replace("BODY", body.replace("FAULT", "raise ValueError(pe)"))
    assert any("sooner" in found["title"] for found in diagnosed(right))
    assert not any("sooner" in found["title"] for found in diagnosed(wrong))
