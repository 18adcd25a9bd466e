"""A recorded run again: the same bytes, or what one change does; what is refused."""

import hashlib
import json
from pathlib import Path

import msgpack
import pytest
from click.testing import CliRunner
from on_one_pe import BESIDE, bench_of
from pace import first_fast

from kernbench.cli import main
from kernbench.errors import KernbenchError, UsageError
from kernbench.runtime_api import Change, rerun, run_bench
from kernbench.trace import Trace
from kernbench.trace.frames import FrameFile
from kernbench.trace.schema import pack_frame

CHAIN = """
    a = tl.load(x_ptr, (n,), "f32")
    b = tl.load(y_ptr, (n,), "f32")
    tl.store(y_ptr, a, wait=True)
"""
IN_PIECES = """
    pe = tl.program_id(0)
    tl.load(x_ptr, (n,), "f32")
    tl.store(y_ptr + pe * 4, tl.load(x_ptr, (1,), "f32"))
"""
SMALL = {"m": 32, "k": 32, "n": 32, "pes": 1}


def kernbench(*args):
    return CliRunner().invoke(main, list(map(str, args)))


def error_of(result):
    """The one line of a re-run that was refused."""
    (line,) = result.stderr.splitlines()
    assert result.exit_code in (1, 2)
    assert line.startswith("error: ")
    return line


@pytest.fixture
def one_pe(tmp_path):
    """one_pe(body) -> the trace of a kernel on one PE."""

    def one_pe(body=CHAIN, **options):
        file = tmp_path / "one_pe.py"
        file.write_text(bench_of(body))
        path = tmp_path / "recorded.msgpack"
        run_bench(str(file), trace=path, **options)
        return path

    return one_pe


@pytest.fixture
def matmul(tmp_path):
    path = tmp_path / "matmul.msgpack"
    run_bench("matmul", params=SMALL, trace=path)
    return path


@pytest.fixture
def new(tmp_path):
    return tmp_path / "new.msgpack"


def with_head(path, change):
    """The file with another first frame, as another kernbench would have written it."""
    with path.open("rb") as file:
        frames = list(msgpack.Unpacker(file, max_buffer_size=0))
    change(frames[0][1])
    written = b""
    for tag, head, body in frames:
        plain = {key: value for key, value in head.items() if key not in ("crc", "pad")}
        written += pack_frame(tag, plain, body, len(written))
    path.write_bytes(written)


def waits_of(trace, op):
    return trace.waits_of(int(trace.order[op]))


def held_in(trace):
    """The ops that were held back."""
    return [
        record
        for op, record in enumerate(trace.ops)
        if any(wait[1] == "delayed" for wait in waits_of(trace, op))
    ]


# -- without a change ------------------------------------------------------------------


def test_an_unchanged_run_gives_the_same_bytes(matmul, new):
    done = rerun(matmul, new)
    assert (done.ok, done.parting, done.changed) == (True, None, None)
    assert new.read_bytes() == matmul.read_bytes()


@pytest.mark.parametrize(
    "options",
    [
        {"verify": False},
        {"data": False, "verify": False},
        {"seed": 7, "spec": {"pe.clock_ghz": 2, "cube.hbm.channels": 4}},
        {"debug": True},
        {"max_ns": 700},
        {"max_ops": 3},
        {"warn_memory": True},
    ],
)
@pytest.mark.slow
def test_whatever_a_run_was_given_is_given_again(tmp_path, new, options):
    path = tmp_path / "recorded.msgpack"
    try:
        run_bench("matmul", params=SMALL, trace=path, **options)
    except KernbenchError:
        assert {"max_ns", "max_ops"} & options.keys()
    assert rerun(path, new).ok
    assert new.read_bytes() == path.read_bytes()


@pytest.mark.slow
def test_the_collectives_are_those_of_the_trace(tmp_path, new):
    ccl = tmp_path / "ccl.yaml"
    shipped = Path(run_bench.__code__.co_filename).parents[1] / "configs" / "ccl.yaml"
    ccl.write_text(shipped.read_text().replace("slots: 4", "slots: 2"))
    path = tmp_path / "recorded.msgpack"
    run_bench("ccl_allreduce", params={"n_elem": 64}, ccl=ccl, trace=path)
    ccl.unlink()
    assert Trace.open(path).header["ccl"]["algorithms"]["intercube_allreduce"][
        "slots"
    ] == (2)
    assert rerun(path, new).ok


def test_a_killed_run_is_the_same_as_far_as_it_was_recorded(matmul, new, tmp_path):
    killed = tmp_path / "killed.msgpack"
    (frame,) = FrameFile(matmul).by_tag["launches"]
    killed.write_bytes(matmul.read_bytes()[: frame.offset + 5])
    result = kernbench("rerun", killed, "-o", new)
    assert result.exit_code == 0
    assert result.output.startswith("the recorded run again, up to where ")
    assert new.read_bytes() == matmul.read_bytes()
    told = json.loads(kernbench("rerun", killed, "-o", new, "--json").output)
    assert (told["same"], told["cut_off"]) == (True, True)


@pytest.mark.slow
def test_a_killed_run_that_did_something_else_is_not_the_same(matmul, new, tmp_path):
    killed = tmp_path / "killed.msgpack"
    (frame,) = FrameFile(matmul).by_tag["launches"]
    killed.write_bytes(matmul.read_bytes()[: frame.offset])
    with_head(killed, lambda head: head["arguments"].update(m=64))
    result = kernbench("rerun", killed, "-o", new)
    assert result.exit_code == 1
    assert result.output.startswith("NOT the recorded run: ")


def test_a_run_that_failed_fails_again_and_that_is_the_same(tmp_path, new):
    path = tmp_path / "recorded.msgpack"
    with pytest.raises(KernbenchError):
        run_bench("fault_ring_by_name", trace=path)
    result = kernbench("rerun", path, "-o", new)
    assert result.exit_code == 0
    assert "equal byte for byte" in result.output
    assert "ended as recorded, with DeadlockError: " in result.output
    assert new.read_bytes() == path.read_bytes()


@pytest.mark.slow
def test_parameters_that_are_tuples_come_back(tmp_path, new):
    file = tmp_path / "tuples.py"
    file.write_text(
        bench_of(CHAIN).replace("n=4096", "shape=(64,)")
        .replace("standard_normal(n)", "standard_normal(n := shape[0])")
    )  # fmt: skip
    path = tmp_path / "recorded.msgpack"
    run_bench(str(file), params={"shape": (32,)}, trace=path)
    assert rerun(path, new).ok


@pytest.mark.slow
@pytest.mark.parametrize(
    ("unseeded", "says"),
    [
        ("import random; n = random.choice(range(8, 4000, 8))", "op "),
        (
            "import time; x_ = torch.tensor([time.time()], 'f64', ONE)",
            "op 0 host_write",
        ),
    ],
)
def test_a_run_that_is_not_deterministic_is_found_out(tmp_path, new, unseeded, says):
    text = bench_of(CHAIN)
    first = "    x = torch.tensor("
    file = tmp_path / "unseeded.py"
    file.write_text(text.replace(first, f"    {unseeded}\n{first}"))
    path = tmp_path / "recorded.msgpack"
    run_bench(str(file), trace=path)
    result = kernbench("rerun", path, "-o", new)
    assert result.exit_code == 1
    wrong = result.output.splitlines()[0]
    assert wrong.startswith("NOT the recorded run: frame ")
    assert says in wrong
    assert "depends on more than its seed" in result.output
    answer = json.loads(kernbench("rerun", path, "-o", new, "--json").output)
    assert (answer["same"], answer["ok"], answer["other_code"]) == (False, False, "")
    assert answer["parting"].startswith("frame ")


@pytest.mark.slow
def test_a_trace_of_other_code_says_so_first(matmul, new):
    with_head(matmul, lambda head: head.update(code_sha="0" * 64))
    result = kernbench("rerun", matmul, "-o", new)
    first, second = result.output.splitlines()[:2]
    assert first.startswith(
        "recorded by other code: kernbench 0.1.0 (0000000000000000)"
    )
    assert second == "the recorded run again: all but the first frame is equal"
    assert result.exit_code == 0


def test_other_code_is_said_before_any_talk_of_what_differs(matmul, new):
    def older(head):
        head["code_sha"] = "0" * 64
        head["seed"] = 1

    with_head(matmul, older)
    result = kernbench("rerun", matmul, "-o", new)
    first, second, third = result.output.splitlines()[:3]
    assert first.startswith("recorded by other code")
    assert second.startswith("NOT the recorded run: frame ")
    assert "op 0 host_write" in second
    assert third.startswith("the other code may be why")
    assert result.exit_code == 1


# -- an op is held back ----------------------------------------------------------------


@pytest.mark.slow
def test_a_delay_on_the_critical_path_moves_the_end_by_as_much(one_pe, new):
    path = one_pe(CHAIN)
    before = Trace.open(path)
    names = [op.op_name for op in before.ops]
    assert names == ["host_write", "host_write", "dma_read", "dma_read", "dma_write"]
    for op in range(len(names)):
        done = rerun(path, new, Change(delays=[(op, 62.5)]))
        after = Trace.open(new)
        assert done.ok
        assert after.end_ns == before.end_ns + 62.5
        assert [later.op_name for later in after.ops] == names
        assert after.ops[op].t_start == before.ops[op].t_start + 62.5
        assert [wait[1:] for wait in waits_of(after, op)] == [
            ("delayed", before.ops[op].t_start, after.ops[op].t_start, -1)
        ]


@pytest.mark.slow
def test_a_delay_within_the_slack_moves_nothing_else(one_pe, new):
    path = one_pe(BESIDE)
    before = Trace.open(path)
    names = [op.op_name for op in before.ops]
    quick = names.index("exp") - 1
    assert names[quick] == "dma_read"
    slack = max(op.t_end for op in before.ops) - before.ops[quick].t_end
    assert slack > 100
    others = [op.t_start for place, op in enumerate(before.ops) if place != quick]
    for delay, moved in [(slack - 1, 0), (slack, 0), (slack + 25, 25)]:
        rerun(path, new, Change(delays=[(quick, delay)]))
        after = Trace.open(new)
        assert after.end_ns == before.end_ns + moved
        (held,) = held_in(after)
        assert held.t_end == before.ops[quick].t_end + delay
        starts = [op.t_start for op in after.ops]
        starts.remove(held.t_start)
        assert starts == others


@pytest.mark.slow
def test_delays_add_up_over_ops_and_over_reruns(one_pe, new, tmp_path):
    path = one_pe(CHAIN)
    end = Trace.open(path).end_ns
    once = tmp_path / "once.msgpack"
    rerun(path, once, Change(delays=[(2, 10.0), (3, 20.0), (2, 5.0)]))
    assert Trace.open(once).end_ns == end + 35
    assert rerun(once, new).ok
    assert new.read_bytes() == once.read_bytes()
    rerun(once, new, Change(delays=[(2, 100.0)]))
    assert Trace.open(new).end_ns == end + 135
    changed = Trace.open(new).header["changed"]
    assert changed["of"] == Trace.open(path).fingerprint()
    assert [delay["ns"] for delay in changed["delays"]] == [115.0, 20.0]


@pytest.mark.slow
def test_each_piece_of_a_call_is_an_op_of_its_own(tmp_path, new):
    file = tmp_path / "pieces.py"
    file.write_text(
        bench_of(IN_PIECES)
        .replace("num_cubes=1, num_pes=1", 'num_cubes=1, num_pes=4, pe="row_wise"')
        .replace("n=4096", "n=1024")
    )
    path = tmp_path / "recorded.msgpack"
    one_cube = {"sips.count": 1, "cube_mesh.w": 1, "cube_mesh.h": 1}
    run_bench(str(file), trace=path, verify=False, spec=one_cube)
    before = Trace.open(path)
    changes = []
    for op, record in enumerate(before.ops):
        done = rerun(path, new, Change(delays=[(op, 1000.0)]))
        changes += done.changed.lines()
        after = Trace.open(new)
        (held,) = held_in(after)
        assert held.op_name == record.op_name
        for name in ("src_addr", "dst_addr", "nbytes"):
            assert held.params.get(name) == record.params.get(name), changes[-1]
    assert len({*changes}) == len(changes)
    for piece in (1, 2, 3):
        assert any(f"piece {piece} on " in change for change in changes)
    assert any("HBM slice 3 of cube 0 of SIP 0" in change for change in changes)


@pytest.mark.slow
def test_messages_between_pes_are_held_back(tmp_path, new):
    path = tmp_path / "recorded.msgpack"
    run_bench("ccl_allreduce", params={"n_elem": 64, "sips": 1}, trace=path)
    before = Trace.open(path)
    names = [op.op_name for op in before.ops]
    for name in ("ipcq_copy", "ipcq_recv"):
        op = names.index(name, len(names) // 2)
        rerun(path, new, Change(delays=[(op, 300.0)]))
        after = Trace.open(new)
        held = [
            other for other in after.ops
            if other.component_id == before.ops[op].component_id
            and other.op_name == name
            and other.t_start == before.ops[op].t_start + 300
        ]  # fmt: skip
        assert len(held) == 1
        assert held[0].params["src_addr"] == before.ops[op].params["src_addr"]


@pytest.mark.slow
def test_a_tile_is_named_by_its_stage_and_index(tmp_path, new):
    path = tmp_path / "recorded.msgpack"
    params = {"m": 128, "k": 128, "n": 128, "pes": 8}
    run_bench("matmul", params=params, trace=path)
    before = Trace.open(path)
    op = next(
        number
        for number, record in enumerate(before.ops)
        if record.op_name == "TileToken/GEMM"
        and record.params["tile_index"] == (1, 0, 1)
        and "pe5" in record.component_id
    )
    rerun(path, new, Change(delays=[(op, 500.0)], spec={"pe.dma.setup_ns": 25}))
    after = Trace.open(new)
    (held,) = held_in(after)
    assert held.component_id == before.ops[op].component_id
    assert (held.op_name, held.params["tile_index"]) == ("TileToken/GEMM", (1, 0, 1))


@pytest.mark.slow
def test_an_op_is_found_in_a_smaller_machine_and_program(matmul, new):
    tile = len(Trace.open(matmul).ops) - 1
    result = kernbench(
        "rerun", matmul, "-o", new, "--delay", f"op {tile}", "1us", "--set", "pes=4"
    )
    assert result.exit_code == 0  # PE 0 has the same tile
    result = kernbench(
        "rerun", matmul, "-o", new, "--delay", "op 1", "1us", "--spec", "sips.count=1"
    )
    assert result.exit_code == 0


@pytest.mark.slow
def test_a_delay_of_what_a_branch_leaves_out_is_an_error(tmp_path, new):
    file = tmp_path / "branch.py"
    text = bench_of("    if n > 64:\n        tl.load(x_ptr, (4,), 'f32')")
    file.write_text(text)
    path = tmp_path / "recorded.msgpack"
    run_bench(str(file), trace=path)
    result = kernbench(
        "rerun", path, "-o", new, "--delay", "op 2", "1us", "--set", "n=8"
    )
    line = error_of(result)
    assert (
        "not delayed, as it does not occur in this run: dma_read of load #0 at" in line
    )
    assert "not delayed" in Trace.open(new).end["error"]


# -- other changes ---------------------------------------------------------------------


@pytest.mark.slow
def test_another_machine_is_that_of_the_trace_with_the_field_changed(tmp_path, new):
    path = tmp_path / "recorded.msgpack"
    spec = {"pe.dma.setup_ns": 33}
    run_bench("matmul", params=SMALL, spec=spec, trace=path)
    done = rerun(path, new, Change(spec={"clock_ghz": 2}))
    fresh = tmp_path / "fresh.msgpack"
    run_bench("matmul", params=SMALL, spec={**spec, "pe.clock_ghz": 2}, trace=fresh)
    assert done.end_ns == Trace.open(fresh).end_ns
    assert Trace.open(new).header["changed"]["spec"] == {"pe.clock_ghz": 2.0}
    assert Trace.open(new).spec == Trace.open(fresh).spec


@pytest.mark.slow
def test_other_parameters_and_seeds_are_as_if_run_so(matmul, new, tmp_path):
    fresh = tmp_path / "fresh.msgpack"
    run_bench("matmul", params={**SMALL, "m": 64}, seed=3, trace=fresh)
    result = kernbench("rerun", matmul, "-o", new, "--set", "m=64", "--seed", "3")
    assert result.exit_code == 0
    assert "changed: m=64\nchanged: seed=3\n" in result.output
    ours = Trace.open(new)
    theirs = Trace.open(fresh)
    assert [op.t_end for op in ours.ops] == [op.t_end for op in theirs.ops]
    assert ours.ops[0].params["snapshot"].tobytes() == (
        theirs.ops[0].params["snapshot"].tobytes()
    )
    assert ours.header["arguments"] == theirs.header["arguments"]


@pytest.mark.slow
def test_parameters_that_ask_for_a_machine_get_it(tmp_path, new):
    path = tmp_path / "recorded.msgpack"
    run_bench("ccl_allreduce", params={"n_elem": 64, "sips": 2}, trace=path)
    rerun(path, new, Change(params={"sips": 4}))
    assert Trace.open(new).spec["system"]["sips"]["count"] == 4


def test_what_is_given_as_it_was_is_no_change(matmul, new):
    same = Change(params={"m": "32"}, seed=0, spec={"pe.clock_ghz": 1})
    assert rerun(matmul, new, same).parting is None
    assert "changed" not in Trace.open(new).header


@pytest.mark.slow
def test_a_changed_trace_says_so_in_info_and_first_in_compare(matmul, new):
    kernbench("rerun", matmul, "-o", new, "--delay", "op 0", "1us", "--spec", "ghz=2")
    kernbench(
        "rerun", matmul, "-o", new, "--delay", "op 0", "1us", "--spec", "clock_ghz=2"
    )
    info = kernbench("trace", "info", new).output
    assert info.startswith("changed    host_write of host_write #0 at ")
    assert "changed    pe.clock_ghz=2.0\n" in info
    answer = json.loads(kernbench("trace", "info", new, "--json").output)
    assert answer["changed"][1] == "pe.clock_ghz=2.0"
    compared = kernbench("trace", "compare", matmul, new, "--width", 400).output
    assert compared.startswith("B is A with host_write of host_write #0 at ")
    answer = json.loads(kernbench("trace", "compare", matmul, new, "--json").output)
    assert answer["runs"][0]["what"] == "changed"
    assert answer["runs"][1]["what"] == "machine pe.clock_ghz"


def test_what_is_changed_back_is_no_change_of_the_first_run(matmul, new, tmp_path):
    other = tmp_path / "other.msgpack"
    rerun(matmul, other, Change(spec={"clock_ghz": 2}, params={"k": 64}, seed=7))
    rerun(other, new, Change(spec={"clock_ghz": 1}, params={"k": 32}, seed=0))
    assert new.read_bytes() == matmul.read_bytes()


@pytest.mark.slow
def test_a_part_that_is_changed_back_leaves_the_rest(matmul, new, tmp_path):
    other = tmp_path / "other.msgpack"
    direct = tmp_path / "direct.msgpack"
    rerun(matmul, other, Change(spec={"clock_ghz": 2}, params={"m": 64}, seed=7))
    result = kernbench("rerun", other, "-o", new, "--spec", "clock_ghz=1", "--seed=3")
    changes = [
        line for line in result.output.splitlines() if line.startswith("changed")
    ]
    assert changes == ["changed: pe.clock_ghz=1.0", "changed: seed=3"]  # of `other`
    rerun(matmul, direct, Change(params={"m": 64}, seed=3))
    assert new.read_bytes() == direct.read_bytes()
    compared = kernbench("trace", "compare", matmul, new).output
    assert compared.startswith("B is A with m=64\nseed=3\n")


@pytest.mark.slow
def test_a_source_that_is_brought_back_is_no_change(one_pe, tmp_path, new):
    path = one_pe()
    file = tmp_path / "one_pe.py"
    text = file.read_text()
    file.write_text(text + "# another\n")
    other = tmp_path / "other.msgpack"
    rerun(path, other, Change(any_source=True))
    file.write_text(text)
    done = rerun(other, new, Change(any_source=True))
    assert done.changed.lines() == ("source of bench one_pe",)
    assert new.read_bytes() == path.read_bytes()


@pytest.mark.slow
def test_an_older_rerun_that_does_not_say_what_was_first_lists_all(
    matmul, new, tmp_path
):
    other = tmp_path / "other.msgpack"
    rerun(matmul, other, Change(spec={"clock_ghz": 2}))
    with_head(other, lambda head: head["changed"].pop("first"))
    rerun(other, new, Change(spec={"clock_ghz": 1}))
    assert Trace.open(new).header["changed"]["spec"] == {"pe.clock_ghz": 1.0}


# -- whose source it is ----------------------------------------------------------------


def sha(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_a_first_frame_says_what_ran(one_pe, tmp_path):
    head = Trace.open(one_pe()).header
    file = tmp_path / "one_pe.py"
    assert (head["bench_file"], head["bench_sha"]) == (str(file), sha(file))
    assert head["version"] == [1, 1]
    assert head["ccl"]["default"] == "intercube_allreduce"
    assert "changed" not in head


@pytest.mark.slow
def test_a_bench_whose_source_differs_is_refused_with_both_hashes(
    one_pe, tmp_path, new
):
    path = one_pe()
    file = tmp_path / "one_pe.py"
    before = sha(file)
    file.write_text(file.read_text() + "# another\n")
    line = error_of(kernbench("rerun", path, "-o", new))
    assert before in line
    assert sha(file) in line
    assert "--any-source" in line
    assert not new.exists()
    result = kernbench("rerun", path, "-o", new, "--any-source")
    assert result.exit_code == 0
    assert result.output.startswith("changed: source of bench one_pe\n")
    assert Trace.open(new).header["bench_sha"] == sha(file)


def test_a_shipped_bench_of_another_source_is_refused_too(matmul, new):
    with_head(matmul, lambda head: head.update(bench_sha="f" * 64))
    assert "f" * 64 in error_of(kernbench("rerun", matmul, "-o", new))


def test_a_bench_that_is_not_there_is_named(one_pe, tmp_path, new):
    path = one_pe()
    (tmp_path / "one_pe.py").unlink()
    line = error_of(kernbench("rerun", path, "-o", new))
    assert f"{str(tmp_path / 'one_pe.py')!r} is not found by that name" in line


def test_a_bench_is_looked_for_by_the_name_that_it_had(
    one_pe, tmp_path, new, monkeypatch
):
    path = one_pe()
    monkeypatch.chdir(tmp_path)  # its sites would be called one_pe.py now
    assert "in the folder in which it was recorded" in error_of(
        kernbench("rerun", path, "-o", new)
    )


@pytest.mark.slow
def test_plugins_are_given_again_and_have_to_be_the_same(tmp_path, new):
    plugin = tmp_path / "slow_maths.py"
    plugin.write_text(
        "from kernbench.components.builtin.pe_math import PeMath\n"
        "class Slow(PeMath):\n"
        "    def run(self, env, msg):\n"
        "        yield env.timeout(500)\n"
    )
    spec = {"components.pe_math.impl": "slow_maths:Slow"}
    path = tmp_path / "recorded.msgpack"
    options = {"params": {"m": 2, "n": 16, "pes": 1}, "spec": spec}
    run_bench("softmax", plugins=[plugin], trace=path, **options)
    assert "--plugin slow_maths.py" in error_of(kernbench("rerun", path, "-o", new))
    result = kernbench("rerun", path, "-o", new, "--plugin", plugin)
    assert result.exit_code == 0, result.output
    before = sha(plugin)
    plugin.write_text(plugin.read_text().replace("500", "600"))
    line = error_of(kernbench("rerun", path, "-o", new, "--plugin", plugin))
    assert before in line
    assert sha(plugin) in line
    result = kernbench("rerun", path, "-o", new, "--plugin", plugin, "--any-source")
    assert result.output.startswith("changed: source of plugin slow_maths\n")


def as_1_0(head):
    head["version"] = [1, 0]
    for name in ("bench_file", "bench_sha", "ccl", "code_sha"):
        del head[name]


def test_an_older_trace_of_a_shipped_bench_is_run_again(matmul, new):
    with_head(matmul, as_1_0)
    result = kernbench("rerun", matmul, "-o", new)
    assert result.exit_code == 0
    assert result.output.startswith("recorded by other code: kernbench 0.1.0 (older)")
    compared = kernbench("trace", "compare", matmul, new)
    assert compared.output.startswith("ok: nothing differs")


def test_an_older_trace_of_a_file_is_refused_even_by_a_shipped_name(
    one_pe, tmp_path, new
):
    path = one_pe()
    with_head(path, as_1_0)
    assert "does not say which file" in error_of(kernbench("rerun", path, "-o", new))

    def named_as_ours(head):
        head["bench"] = "matmul"

    with_head(path, named_as_ours)
    assert "does not say which file" in error_of(kernbench("rerun", path, "-o", new))


# -- what is refused -------------------------------------------------------------------


WHOLE = "must be a whole number"
UNIT = "give a number with ns, us, ms or s"
REFUSED = [
    ("--spec pe.clock_ghx=2", "pe.clock_ghx: unknown field; valid are: pe.clock_ghz"),
    ("--spec pe.clock_ghz=-1", "--spec pe.clock_ghz: must be a number from"),
    ("--spec pe.clock_ghz", "must be KEY=VALUE"),
    ("--set mm=2", "has no parameter 'mm'; valid: m, k, n"),
    ("--set m=two", "m=two: must be int"),
    ("--seed -1", "seed -1: must be from 0"),
    ("--delay op_99 5ns", "op 99: "),
    ("--delay op_99 5ns", "has 8 ops, counted from 0"),
    ("--delay op_-1 5ns", "op -1: "),
    ("--delay fifth 5ns", f"--delay 'fifth' 5ns: 'fifth': {WHOLE}"),
    ("--delay _ 5ns", WHOLE),
    ("--delay op_5 5_parsec", UNIT),
    ("--delay op_5 -5ns", UNIT),
    ("--delay op_5 0ns", "a delay of 0 ns: must be from"),
    ("--delay op_5 1e300s", "must be from"),
    ("--delay op_5 1e999s", "must be from"),
    ("--delay op_5", "--delay"),
    ("--plugin nowhere.py", "plugin 'nowhere.py' cannot be read"),
]


@pytest.mark.parametrize("refused", first_fast(REFUSED, fast=12))
def test_a_change_that_there_cannot_be_is_one_line(matmul, new, refused):
    args, says = refused
    words = [word.replace("_", " ") for word in args.split(" ")]
    if not args.startswith("--delay"):
        words = args.split(" ")
    assert says in error_of(kernbench("rerun", matmul, "-o", new, *words))
    assert not new.exists()


@pytest.mark.parametrize("op", ["op 5", "5", "0x5"])
@pytest.mark.slow
def test_an_op_is_named_by_its_number(matmul, new, op):
    result = kernbench("rerun", matmul, "-o", new, "--delay", op, "0.5us")
    assert result.output.startswith("changed: TileToken/GEMM of composite #0 at ")
    assert result.output.splitlines()[0].endswith(": +500 ns")


def test_the_new_trace_has_to_be_another_file(matmul, tmp_path):
    before = matmul.read_bytes()
    link = tmp_path / "link.msgpack"
    link.symlink_to(matmul)
    for out in (matmul, link):
        assert "is the trace that is run again" in error_of(
            kernbench("rerun", matmul, "-o", out)
        )
    assert matmul.read_bytes() == before


def test_what_is_there_is_replaced_as_by_a_run(matmul, new):
    new.write_text("old")
    assert kernbench("rerun", matmul, "-o", new).exit_code == 0
    assert new.read_bytes() == matmul.read_bytes()


def test_without_a_name_for_it_nothing_is_run(matmul):
    result = kernbench("rerun", matmul)
    assert result.exit_code == 2
    assert "-o" in error_of(result)


def test_a_part_of_a_trace_is_refused_with_the_reason(matmul, tmp_path, new):
    part = tmp_path / "part.msgpack"
    kernbench("trace", "cut", matmul, "--from", "0ns", "--to", "900ns", "-o", part)
    assert "was cut from a trace" in error_of(kernbench("rerun", part, "-o", new))


def test_what_is_no_trace_is_refused(tmp_path, new):
    assert "No such file" in error_of(kernbench("rerun", tmp_path / "no", "-o", new))
    (tmp_path / "text").write_text("hello")
    line = error_of(kernbench("rerun", tmp_path / "text", "-o", new))
    assert "no kernbench trace" in line


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"bench": 3}, "does not say which bench"),
        ({"seed": "x"}, "does not say which seed"),
        ({"ccl": 3}, "does not say which ccl"),
        ({"ccl": {"default": "a", "algorithms": {"a": {"b": 1}}}}, "ccl of the trace"),
        ({"ccl": {"default": "a"}}, "no default or no algorithms"),
        ({"bench_file": 3}, "does not say which file"),
        ({"bench_file": None}, "does not say which file"),
        ({"bench_file": "../../etc/passwd"}, "is not found by that name"),
        ({"bench": "nothing"}, "is not found by that name"),
        ({"changed": 3}, "told otherwise"),
        ({"changed": {"of": ""}}, "told otherwise"),
        ({"max_ops": "many"}, "max_ops"),
        ({"max_ns": []}, "max_ns"),
    ],
)
def test_a_first_frame_of_unknown_origin_does_no_harm(
    matmul, new, tmp_path, monkeypatch, change, says
):
    monkeypatch.chdir(tmp_path)
    with_head(matmul, lambda head: head.update(change))
    assert says in error_of(kernbench("rerun", matmul, "-o", new))


def test_a_damaged_trace_is_refused(matmul, new):
    data = bytearray(matmul.read_bytes())
    at = data.index(b"commands")
    data[at : at + 8] = b"xommands"
    matmul.write_bytes(data)
    result = kernbench("rerun", matmul, "-o", new, "--delay", "op 2", "5ns")
    assert result.exit_code == 1


@pytest.mark.slow
def test_a_trace_without_data_is_run_again_without_checks(tmp_path, new):
    path = tmp_path / "recorded.msgpack"
    run_bench("matmul", params=SMALL, data=False, verify=False, trace=path)
    done = rerun(path, new, Change(delays=[(2, 100.0)]))
    assert done.result.report is None
    assert Trace.open(new).header["data"] is False


def test_python_is_told_by_errors(matmul, new):
    with pytest.raises(UsageError):
        rerun(matmul, new, Change(delays=[(99, 1.0)]))
    with pytest.raises(UsageError):
        rerun(matmul, matmul)
