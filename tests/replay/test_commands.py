"""The commands of the user on the shipped trace, by text and by JSON, and their
errors.
"""

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from replay_logs import Log, double, host_write, load, store

from kernbench.cli import main
from kernbench.errors import KernbenchError, UsageError
from kernbench.replay import ReplaySession
from kernbench.replay.commands import listed, named, parse
from kernbench.replay.expr import parse_time
from kernbench.replay.plain import as_data
from kernbench.replay.text import as_text
from kernbench.sim_engine.data_executor import DataExecutor
from kernbench.sim_engine.numpy_ops import NUMPY_OPS
from kernbench.trace import Trace
from kernbench.trace.frames import FrameFile

KILLED = "the run was killed, or still goes on: this is what its trace has"
SHIPPED = Path(__file__).parents[2] / "traces" / "matmul.msgpack"


@pytest.fixture
def shipped_session():
    return ReplaySession(Trace.open(SHIPPED))


def product():
    rng = np.random.default_rng(0)
    a = rng.standard_normal((128, 128)).astype(np.float16).astype(np.float64)
    b = (
        (rng.standard_normal((128, 128)) / np.sqrt(128))
        .astype(np.float16)
        .astype(np.float64)
    )
    return a @ b


def kernbench(*args):
    return CliRunner().invoke(main, list(args))


def test_goto_prints_the_op_that_it_went_to(shipped_session):
    text = as_text(shipped_session.run_line("goto 40"))
    record = shipped_session.trace.ops[40]
    assert shipped_session.cursor == 40
    assert f"op 40 of {len(shipped_session)}" in text
    for part in (record.op_name, record.component_id, f"{record.t_start:.2f}"):
        assert part in text


def test_memory_c_prints_the_product_at_the_end(shipped_session):
    shipped_session.to_end()
    answer = shipped_session.run_line("memory c")
    np.testing.assert_allclose(
        answer.values.astype(np.float64), product(), rtol=1e-3, atol=1e-3
    )
    lines = as_text(answer).splitlines()
    assert lines[0].startswith("c  f16[128, 128] in hbm")
    assert "16,384 of 16,384 written" in lines[0]
    first = float(lines[3].split()[1].rstrip("*"))
    assert first == pytest.approx(product()[0, 0], abs=2e-3)


def test_route_prints_every_hop_and_totals_that_sum(shipped_session):
    ops = shipped_session.trace.ops
    op = next(i for i in range(len(ops)) if ops[i].op_name == "TileToken/DMA_READ")
    shipped_session.run_line(f"goto {op}")
    text = as_text(shipped_session.run_line("route"), 120)
    route = shipped_session.route()
    assert len(route.legs) == 4
    for leg in route.legs:
        arrived = leg.hops[-1].arrive - leg.t0
        assert f" ns, {arrived:.2f} ns to the last node" in text
        for hop in leg.hops:
            assert hop.node in text


def test_diff_prints_expected_actual_and_error(shipped_session):
    ops = shipped_session.trace.ops
    op = next(i for i in range(len(ops)) if ops[i].op_name == "composite_gemm")
    shipped_session.goto(op)
    answer = shipped_session.run_line("diff")
    pe = int(ops[op].component_id.split(".pe")[1].split(".")[0])
    exact = product()[:, pe * 16 : pe * 16 + 16]
    np.testing.assert_allclose(answer.expected, exact, rtol=1e-12)
    text = as_text(answer)
    assert "ok: 0 of 2,048 beyond rtol 0.001" in text
    assert [
        line for line in text.splitlines() if line in ("expected", "actual", "error")
    ]


SPECIFIED = {
    "goto 123": "op 123 of 152",
    "t 3.2us": "op 4 of 152",
    "b name=dma_write and bytes>4096": "stop 1: break name=dma_write and bytes>4096",
    "watch hbm 0x4000:64": "stop 1: watch hbm 0x4000:64 rw, at 2 ops",
    "blame c[3,17]": "c[3, 17] at op 151",
    "export perfetto out.json": "out.json:",
}


@pytest.mark.parametrize("line", SPECIFIED)
def test_the_examples_of_the_specification_run(
    line, shipped_session, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    assert as_text(shipped_session.run_line(line)).startswith(SPECIFIED[line])


@pytest.mark.parametrize("command", listed(), ids=lambda command: command.name)
def test_a_command_may_be_cut_to_where_it_is_certain(command):
    for length in range(1, len(command.name) + 1):
        short = command.name[:length]
        others = [c.name for c in listed() if c.name.startswith(short)]
        if others == [command.name]:
            assert named(short) is command
        elif short not in ("b", "c", "s", "n", "w") and short not in others:
            with pytest.raises(UsageError, match=f"did you mean .*{command.name}"):
                named(short)


def test_single_letters_are_commands_as_the_keys_are():
    words = [named(letter).name for letter in "bcsnwt"]
    assert words == ["break", "continue", "step", "next", "watch", "t"]


def test_tiles_prints_a_row_a_tile(shipped_session):
    shipped_session.goto_time(shipped_session.launch_window()[1])
    lines = as_text(shipped_session.run_line("tiles")).splitlines()
    assert "4 tiles" in lines[0]
    assert [line[1:12].strip() for line in lines[1:]] == [
        "0,0,0",
        "0,0,1",
        "1,0,0",
        "1,0,1",
    ]
    for line in lines[1:]:
        assert {"R", "F", "G"} <= set(line.split("|")[1])


@pytest.mark.parametrize("command", [c for c in listed() if c.usage[:1] in ("", "[")])
@pytest.mark.slow
def test_every_command_answers_as_text_and_as_data(shipped_session, command):
    shipped_session.goto(60)
    answer = shipped_session.run_line(command.name)
    text = as_text(answer, 80)
    assert text
    assert max(map(len, text.splitlines())) <= 80
    assert json.loads(json.dumps(as_data(answer)))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("", "an empty command"),
        ("fly", "unknown command 'fly'; help lists all"),
        ("memroy", "unknown command 'memroy'; did you mean memory\\? help lists all"),
        (
            "ti",
            "unknown command 'ti'; "
            "did you mean tile or tiles or timeline\\? help lists all",
        ),
        ("watch hbm zzz", "no tensor 'hbm zzz' in this trace; it has: a, b, c"),
        ("goto", "goto: takes OP"),
        ("goto x", "op 'x': must be a whole number"),
        ("goto 1.5", "op '1.5': must be a whole number"),
        ("goto 99999", "no op 99999"),
        ("step 1 2", r"step: takes \[N\]"),
        ("t 3parsec", "time '3parsec'"),
        ("timeline 5 1", "the end must lie after the start"),
        ("memory 'c", "No closing quotation"),
        ("history hbm", "no tensor 'hbm' in this trace"),
        ("history hbm top", "no tensor 'hbm top' in this trace"),
        ("continue forth", "'forth': must be back"),
        ("catch me", "'me': must be hazards or checks"),
        ("watch c[1] x", "'x': must be r or w or rw"),
        ("watch nothing", "no tensor 'nothing'"),
        ("break name =", r"column 7: it ends, expected a value"),
        ("break", "break: takes EXPR, got none"),
        ("ops where", r"ops: takes \[COUNT\]"),
        ("ops where op=1 limit", r"column 6: 'limit'"),
        ("ops -5", "count -5: must not be negative"),
        ("ops --limit x", "count 'x': must be a whole number"),
        ("ops 3 4", r"ops: takes \[COUNT\] \[where EXPR\] \[limit COUNT\], got 3 4"),
        ("delete 1", "no stop 1; there is: none"),
        ("find op = 999", "no op after op -1 fits 'op = 999'; none does"),
        ("help fly", "unknown command 'fly'"),
        ("assert ok info", "'info' gives no verdict"),
    ],
)
def test_a_wrong_command_line_is_one_clear_error(shipped_session, line, message):
    with pytest.raises(UsageError, match=message):
        shipped_session.run_line(line)


@pytest.mark.parametrize(
    ("text", "ns"), [("3.2us", 3200.0), ("17", 17.0), ("1e3ns", 1000.0), ("2ms", 2e6)]
)
def test_times_have_units(text, ns):
    assert parse_time(text) == pytest.approx(ns)


def test_kernbench_trace_prints_the_answer_for_an_op():
    result = kernbench("trace", "route", str(SHIPPED), "--op", "20")
    session = ReplaySession(Trace.open(SHIPPED))
    session.goto(20)
    assert result.exit_code == 0
    assert result.output.rstrip("\n") == as_text(session.route())


def test_kernbench_trace_prints_json():
    result = kernbench("trace", "memory", str(SHIPPED), "c", "--json")
    values = np.array(json.loads(result.output)["values"])
    np.testing.assert_allclose(values, product(), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(
    ("args", "message", "code"),
    [
        (("info", "nowhere.msgpack"), "nowhere.msgpack", 2),
        (("info", "."), "directory", 2),
        (("info", __file__), "test_commands.py", 2),
        (("fly", str(SHIPPED)), "unknown command 'fly'", 2),
        (("route", str(SHIPPED), "--op", "-7"), "no op -7", 2),
    ],
)
def test_kernbench_trace_refuses_bad_input_in_one_line(args, message, code):
    result = kernbench("trace", *args)
    assert result.exit_code == code
    lines = result.stderr.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("error: ")
    assert message in lines[0]


@pytest.fixture
def wrong(tmp_path, shipped):
    """Loads 0, 1, 2, 3, doubles and stores them; 9 is expected where 4 is; a race at
    the end.
    """
    log = Log(tmp_path / "wrong", shipped)
    log.op(host_write(), 0, 1)
    log.op(load(0, 0), 10, 20)
    log.op(double(0, 64), 20, 30, engine="pe_math")
    log.op(store(64, 256), 30, 40)
    log.expect("x", 256, [0, 2, 9, 6])
    log.op(load(0, 64), 35, 50)
    log.expect("y", 256, [0, 2, 4, 6])
    log.session()
    return str(log.path)


def test_verify_judges_what_is_expected_and_exits_1_where_that_is_wrong(wrong):
    result = kernbench("trace", "verify", wrong)
    assert result.exit_code == 1
    assert [line.split()[:5] for line in result.output.splitlines()[1:]] == [
        ["x", "f32", "4", "FAIL", "1"],
        ["y", "f32", "4", "ok", "0"],
        ["why:", "blame", "x[2],", "at", "op"],
    ]
    answer = json.loads(kernbench("trace", "verify", wrong, "--json").output)
    assert not answer["ok"]
    assert [row["row"]["first_bad"] for row in answer["rows"]] == [[2], None]


def test_verify_of_a_right_trace_exits_0():
    assert kernbench("trace", "verify", str(SHIPPED)).exit_code == 0


def test_what_is_not_due_yet_is_not_wrong(wrong):
    assert kernbench("trace", "outputs", wrong, "--op", "2").exit_code == 0
    assert kernbench("trace", "outputs", wrong, "--op", "3").exit_code == 1


def test_hazards_as_text_and_json(wrong):
    text = kernbench("trace", "hazards", wrong).output
    assert text.startswith(
        "in flight together: write over bytes that are being read: "
        "16 bytes of tcm at 0x40\n"
    )
    (hazard,) = json.loads(kernbench("trace", "hazards", wrong, "--json").output)[
        "rows"
    ]
    assert (hazard["op"]["op"], hazard["other"]["op"]) == (4, 3)
    assert (hazard["op"]["site"], hazard["other"]["site"]) == (
        "kernel.py:5",
        "kernel.py:4",
    )


def test_history_lists_every_read_and_write_of_a_range(wrong):
    rows = json.loads(
        kernbench("trace", "history", wrong, "tcm", "0x48:4", "--json").output
    )
    seen = [
        (row["kind"], row["op"]["op"], row["addr"], row["nbytes"])
        for row in rows["rows"]
    ]
    assert seen == [("write", 2, 64, 16), ("read", 3, 64, 16), ("write", 4, 64, 16)]


def test_history_of_a_slice_is_of_all_its_pieces(session):
    pieces = session.index.places.place("c[0:2, :]").ranges
    seen = {t.op.op for piece in pieces for t in session.history(*piece).rows}
    rows = session.run_line("history c[0:2, :]").rows
    assert len(pieces) > 1
    assert [t.op.op for t in rows] == sorted(seen)


def test_diff_has_the_local_and_the_accumulated_error():
    answer = json.loads(
        kernbench("trace", "diff", str(SHIPPED), "--op", "20", "--json").output
    )
    check = answer["check"]
    assert check["position"] == 20
    assert check["over"] == 0
    assert 0 < check["local"] == answer["row"]["max_abs"] <= check["bound"]
    assert check["accumulated"] >= check["local"]


def test_divergence_names_the_first_op_that_rounding_does_not_explain(
    wrong, monkeypatch
):
    note = ReplaySession(Trace.open(wrong)).first_divergence().note
    assert note == f"rounding explains every op; {KILLED}"
    broken = NUMPY_OPS | {"add": NUMPY_OPS["sub"]}
    monkeypatch.setattr(
        "kernbench.replay.data.diff.DataExecutor",
        lambda *args: DataExecutor(*args, ops=broken),
    )
    found = ReplaySession(Trace.open(wrong)).first_divergence()
    assert (found.op, found.name, found.check.over) == (2, "add", 3)


def test_divergence_of_a_killed_run_speaks_of_what_is_recorded(tmp_path):
    killed = tmp_path / "killed.msgpack"
    whole = SHIPPED.read_bytes()
    frames = FrameFile(SHIPPED).by_tag

    killed.write_bytes(whole[: frames["ops"][0].offset])
    note = ReplaySession(Trace.open(killed)).first_divergence().note
    assert note == f"no op is recorded; {KILLED}"

    killed.write_bytes(whole[: frames["end"][0].offset])
    note = ReplaySession(Trace.open(killed)).first_divergence().note
    assert note == f"rounding explains every op; {KILLED}"


def test_of_an_op_whose_call_a_killed_run_did_not_record_that_is_said(
    tmp_path, shipped
):
    log = Log(tmp_path / "killed", shipped)
    log.op(load(0, 0), 0, 10)
    log.op(store(0, 256), 10, 20, line=None)
    session = log.session()
    session.goto(1)
    why = "the line of op 1 is not known: its call was not recorded"
    assert as_text(session.run_line("source")) == why
    assert "call    #2 was not recorded" in as_text(session.run_line("op"))


def positions(session, line):
    return [row.op for row in session.run_line(line).rows]


@pytest.mark.parametrize(
    "line",
    [
        "ops where kind=gemm and op>17 limit 3",
        "ops --where 'kind=gemm and op>17' --limit 3",
        "ops --where kind=gemm and op>17 --limit 3",
        'ops limit 3 where "kind=gemm and op>17"',
    ],
)
def test_options_stand_anywhere_with_and_without_dashes(shipped_session, line):
    fits = shipped_session.matching("kind=gemm and op>17").tolist()
    assert positions(shipped_session, line) == fits[:3]


def test_an_argument_may_be_given_by_its_name(shipped_session):
    assert positions(shipped_session, "ops --count 3") == positions(
        shipped_session, "ops 3"
    )
    assert shipped_session.run_line("step --n -1").op == -1


def test_ops_that_fit_are_listed_around_the_cursor(shipped_session):
    fits = shipped_session.matching("stage=GEMM").tolist()
    shipped_session.goto(fits[9])
    answer = shipped_session.run_line("ops 4 where stage=GEMM")
    assert [row.op for row in answer.rows] == fits[7:11]
    assert as_text(answer).splitlines()[0].endswith("; 32 fit 'stage=GEMM'")


@pytest.mark.parametrize("name", [c.name for c in listed()])
def test_help_of_a_command_has_its_usage_and_examples_that_fit_it(
    shipped_session, name
):
    usage, *others = shipped_session.run_line(f"help {name}").rows
    assert usage[0].split()[0] == name
    for title, example in others:
        if title == "for example":
            assert parse(example).text.split()[0] == name


def test_help_of_what_takes_an_expression_lists_the_fields(shipped_session):
    assert "stage t dur bytes" in as_text(shipped_session.run_line("help break"))


def test_a_command_that_takes_long_reports_its_progress(shipped_session):
    shares: list[float] = []
    shipped_session.run_line("divergence", shares.append)
    assert shares == sorted(shares)
    assert all(0 <= share <= 1 for share in shares)


def test_a_session_of_commands_sets_stops_and_runs_to_them(shipped_session):
    for line in (
        "break stage=STORE",
        "watch c[0:2, 3] w",
        "watch hbm 0x4000:64 r",
        "mark here",
    ):
        shipped_session.run_line(line)
    stores = shipped_session.matching("stage=STORE").tolist()
    listed = as_text(shipped_session.run_line("breaks")).splitlines()
    assert [line.split()[:3] for line in listed] == [
        ["stop", "1", "break"],
        ["stop", "2", "watch"],
        ["stop", "3", "watch"],
    ]
    shipped_session.run_line("delete 2")
    shipped_session.run_line("delete 3")
    assert shipped_session.run_line("continue").op == stores[0]
    assert shipped_session.run_line("continue back").op == -1
    shipped_session.goto(stores[-1])
    assert "no further stop that way" in as_text(shipped_session.run_line("continue"))
    assert shipped_session.run_line("goto here").op == -1


@pytest.mark.parametrize(
    "text",
    [
        "kind=gemm and pe=4",
        "none dur > 1ms",
        "some stage=STORE",
        "8 kind = gemm",
        "ok verify",
        "'matmul.py:' in source",
        '"c" in memory c',
    ],
)
def test_what_is_so_can_be_asserted(shipped_session, text):
    (gemm,) = shipped_session.matching("kind=gemm and pe=4")
    shipped_session.goto(gemm)
    assert as_text(shipped_session.run_line(f"assert {text}")).split(None, 1) == [
        "ok",
        text,
    ]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("kind=memory", r"op 16  composite_gemm \(gemm\) on"),
        ("none stage=STORE", "16 ops do, the first is op"),
        ("some dur > 1ms", "0 ops do"),
        ("9 kind = gemm", "8 ops do"),
        ("'softmax.py' in source", "it says '.*/matmul.py:"),
    ],
)
def test_an_assertion_that_fails_says_what_is_so(shipped_session, text, why):
    shipped_session.goto(16)
    with pytest.raises(KernbenchError, match=f"assert .*: {why}"):
        shipped_session.run_line(f"assert {text}")


def test_a_verdict_can_be_asserted(wrong):
    session = ReplaySession(Trace.open(wrong))
    with pytest.raises(KernbenchError, match=r"assert ok verify: .* FAIL"):
        session.run_line("assert ok verify")
