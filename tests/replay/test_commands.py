"""The commands of the user on the shipped trace, by text and by JSON, and their errors."""

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from kernbench.cli import main
from kernbench.errors import UsageError
from kernbench.replay import ReplaySession
from kernbench.replay.commands import COMMANDS, as_data, parse_time, run_command
from kernbench.replay.text import as_text
from kernbench.trace import Trace

SHIPPED = Path(__file__).parents[2] / "traces" / "matmul.msgpack"


@pytest.fixture
def shipped_session():
    return ReplaySession(Trace.open(SHIPPED))


def product():
    rng = np.random.default_rng(0)
    a = rng.standard_normal((128, 128)).astype(np.float16).astype(np.float64)
    b = (rng.standard_normal((128, 128)) / np.sqrt(128)).astype(np.float16).astype(np.float64)
    return a @ b


def kernbench(*args):
    return CliRunner().invoke(main, list(args))


def test_goto_prints_the_op_that_it_went_to(shipped_session):
    text = as_text(run_command(shipped_session, "goto 40"))
    record = shipped_session.trace.ops[40]
    assert shipped_session.cursor == 40
    assert f"op 40 of {len(shipped_session)}" in text
    for part in (record.op_name, record.component_id, f"{record.t_start:.2f}"):
        assert part in text


def test_memory_c_prints_the_product_at_the_end(shipped_session):
    shipped_session.to_end()
    answer = run_command(shipped_session, "memory c")
    np.testing.assert_allclose(answer.values.astype(np.float64), product(), rtol=1e-3, atol=1e-3)
    lines = as_text(answer).splitlines()
    assert lines[0].startswith("c  f16[128, 128] in hbm")
    assert "16,384 of 16,384 written" in lines[0]
    first = float(lines[3].split()[1].rstrip("*"))
    assert first == pytest.approx(product()[0, 0], abs=2e-3)


def test_route_prints_every_hop_and_totals_that_sum(shipped_session):
    ops = shipped_session.trace.ops
    op = next(i for i in range(len(ops)) if ops[i].op_name == "TileToken/DMA_READ")
    run_command(shipped_session, f"goto {op}")
    text = as_text(run_command(shipped_session, "route"), 120)
    route = shipped_session.route()
    assert len(route.legs) == 4
    for leg in route.legs:
        arrived = leg.hops[-1].arrive - leg.t0
        assert f"= {arrived:.2f} ns to the last node" in text
        for hop in leg.hops:
            assert hop.node in text


def test_diff_prints_expected_actual_and_error(shipped_session):
    ops = shipped_session.trace.ops
    op = next(i for i in range(len(ops)) if ops[i].op_name == "composite_gemm")
    shipped_session.goto(op)
    answer = run_command(shipped_session, "diff")
    pe = int(ops[op].component_id.split(".pe")[1].split(".")[0])
    exact = product()[:, pe * 16 : pe * 16 + 16]
    np.testing.assert_allclose(answer.expected, exact, rtol=1e-12)
    text = as_text(answer)
    assert "ok: 0 of 2,048 beyond rtol 0.001" in text
    assert [line for line in text.splitlines() if line in ("expected", "actual", "error")]


def test_tiles_prints_a_row_a_tile(shipped_session):
    shipped_session.goto_time(shipped_session.launch_window()[1])
    lines = as_text(run_command(shipped_session, "tiles")).splitlines()
    assert "4 tiles" in lines[0]
    assert [line[1:12].strip() for line in lines[1:]] == ["0,0,0", "0,0,1", "1,0,0", "1,0,1"]
    for line in lines[1:]:
        assert {"R", "F", "G"} <= set(line.split("|")[1])


@pytest.mark.parametrize("command", [c for c in COMMANDS if not c.args or c.args[0] == "["])
def test_every_command_answers_as_text_and_as_data(shipped_session, command):
    shipped_session.goto(60)
    answer = run_command(shipped_session, command.name)
    text = as_text(answer, 80)
    assert text
    assert max(map(len, text.splitlines())) <= 80
    assert json.loads(json.dumps(as_data(answer)))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("", "an empty command"),
        ("fly", "unknown command 'fly'; valid: info, goto"),
        ("goto", "goto: takes OP"),
        ("goto x", "op 'x': must be a whole number"),
        ("goto 99999", "no op 99999"),
        ("step 1 2", r"step: takes \[N\]"),
        ("t 3parsec", "time '3parsec'"),
        ("timeline 5 1", "the end must lie after the start"),
        ("memory 'c", "No closing quotation"),
    ],
)
def test_a_wrong_command_line_is_one_clear_error(shipped_session, line, message):
    with pytest.raises(UsageError, match=message):
        run_command(shipped_session, line)


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
        (("info", "nowhere.msgpack"), "nowhere.msgpack", 1),
        (("info", "."), "directory", 1),
        (("info", __file__), "test_commands.py", 1),
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
