"""``kernbench trace`` as a user calls it: options, streams, closed pipes, exit codes,
bad input.
"""

import gzip
import io
import json
import lzma
import os
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner

from kernbench.cli import main
from kernbench.console import shown_share
from kernbench.replay import ReplaySession, questions
from kernbench.replay.commands import OPS, listed
from kernbench.replay.text import as_text
from kernbench.runtime_api import run_bench
from kernbench.sim_engine.op_log import OpRecord
from kernbench.trace import Trace, TraceWriter
from kernbench.trace.export import EXPORTERS

TRACES = Path(__file__).parents[1] / "traces"
MATMUL, RACE = (
    str(TRACES / "matmul.msgpack"),
    str(TRACES / "fault_missing_wait.msgpack"),
)
SMALL = {"m": 32, "k": 32, "n": 32, "pes": 1}


def zstd(data):
    pyarrow = pytest.importorskip("pyarrow")
    return pyarrow.compress(data, codec="zstd", asbytes=True)


def kernbench(*args):
    return CliRunner().invoke(main, list(args))


@pytest.fixture
def session():
    return ReplaySession(Trace.open(MATMUL))


def test_help_lists_every_command_with_its_arguments():
    text = " ".join(kernbench("trace", "--help").output.split())
    for command in listed():
        assert f" {command.name} {command.usage}".rstrip() + f" {command.help}" in text


def test_help_of_one_command_has_its_example_and_no_others():
    text = " ".join(kernbench("trace", "ops", "--help").output.split())
    example = "kernbench trace ops traces/matmul.msgpack 40 --where "
    assert text.startswith(f"For example: {example}'kind=gemm and dur > 100ns' Usage:")
    assert f" ops FILE {OPS.usage} " in text
    assert " divergence " not in text


# -- ops ------------------------------------------------------------


def test_ops_prints_all_ops_under_one_head(session):
    head, *lines = kernbench("trace", "ops", MATMUL).output.splitlines()
    assert head.split() == ["op", "start_ns", "end_ns", "bytes", "name", "component"]
    assert [line.split()[0] for line in lines] == [
        str(op) for op in range(len(session))
    ]
    assert lines[40].split()[-2:] == [session.row(40).name, session.row(40).component]


def test_ops_as_json_is_an_object_a_line(session):
    lines = kernbench("trace", "ops", MATMUL, "--json").output.splitlines()
    rows = [json.loads(line) for line in lines]
    assert [row["op"] for row in rows] == list(range(len(session)))
    assert {(row["op"], row["component"], row["t_end"]) for row in rows} == {
        (row.op, row.component, row.t_end) for row in session.rows(0, len(session))
    }


@pytest.mark.parametrize(
    ("options", "where", "limit"),
    [
        (["--where", "dur > 10"], "dur > 10", None),
        (["--where=dur > 10", "--limit=3"], "dur > 10", 3),
        (["--limit", "2", "--where", "name=gemm_f16"], "name=gemm_f16", 2),
        (
            ["--where", 'comp ~ "*.pe_dma" and dur>1'],
            'comp ~ "*.pe_dma" and dur>1',
            None,
        ),
        (
            ["--where", "comp ~ '*.pe_dma' and dur > 1"],
            "comp ~ '*.pe_dma' and dur > 1",
            None,
        ),
        (["--where", "comp ~ '*.pe0.*' or comp = \"x\""], "comp ~ '*.pe0.*'", None),
        (["--where", "stage=GEMM", "--limit", "0"], "stage=GEMM", 0),
    ],
)
def test_ops_where_prints_those_that_fit(session, options, where, limit):
    lines = kernbench("trace", "ops", MATMUL, *options, "--json").output.splitlines()
    assert [json.loads(line)["op"] for line in lines] == session.matching(where)[
        :limit
    ].tolist()


def test_ops_where_nothing_fits_says_so():
    result = kernbench("trace", "ops", MATMUL, "--where", "dur > 1s")
    assert (result.exit_code, len(result.output.splitlines())) == (0, 1)
    assert "0 fit" in result.output


def test_ops_with_a_count_or_an_op_are_those_around_it(session):
    session.goto(40)
    result = kernbench("trace", "ops", MATMUL, "7", "--op", "40")
    assert result.output.rstrip("\n") == as_text(session.run_line("ops 7"))


def test_the_first_ops_are_there_before_the_others_are_looked_at(session, monkeypatch):
    asked, rows_of = [], session.index.ops.rows_of
    monkeypatch.setattr(questions, "PAGE", 10)
    monkeypatch.setattr(
        session.index.ops, "rows_of", lambda ops: asked.append(len(ops)) or rows_of(ops)
    )
    page = next(OPS.pages(session.index, OPS.args()))
    assert [row.op for row in page.rows] == list(range(10))
    assert asked == [10]


def test_pages_have_one_head(monkeypatch):
    whole = kernbench("trace", "ops", MATMUL).output.split()
    monkeypatch.setattr(questions, "PAGE", 50)
    assert kernbench("trace", "ops", MATMUL).output.split() == whole


# -- pipes ------------------------------------------------------------


@pytest.mark.parametrize(
    "args",
    [
        ["trace", "ops", MATMUL],
        ["trace", "ops", MATMUL, "--json"],
        ["trace", "info", MATMUL],
        ["trace", "hazards", RACE],
        ["trace", "--help"],
        ["list"],
    ],
)
@pytest.mark.slow
def test_a_closed_pipe_ends_it_quietly(args):
    ours, theirs = os.pipe()
    os.close(ours)
    command = [sys.executable, "-m", "kernbench.cli", *args]
    run = subprocess.run(
        command, stdout=theirs, stderr=subprocess.PIPE, timeout=100, check=False
    )
    os.close(theirs)
    assert (run.returncode, run.stderr) == (0, b"")


@pytest.mark.slow
def test_a_reader_that_has_enough_ends_a_stream_quietly(tmp_path):
    command = [sys.executable, "-m", "kernbench.cli", "trace", "ops", MATMUL, "--json"]
    run = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert json.loads(run.stdout.readline())["op"] == 0
    run.stdout.close()
    assert (run.wait(timeout=100), run.stderr.read()) == (0, b"")
    run.stderr.close()


# -- verdicts, and what writes files -----------------------------------------------


@pytest.mark.parametrize(
    ("args", "code"),
    [
        (["hazards", RACE], 1),
        (["hazards", MATMUL], 0),
        (["history", RACE, "tcm", "0x20000000000:4096"], 0),
        (["verify", MATMUL], 0),
        (["check", MATMUL], 0),
    ],
)
def test_the_exit_code_is_the_verdict(args, code):
    result = kernbench("trace", *args)
    assert result.exit_code == code
    assert json.loads(kernbench("trace", *args, "--json").output)["ok"] is (code == 0)


def test_check_of_a_cut_file_exits_1(tmp_path):
    part = tmp_path / "part.msgpack"
    part.write_bytes(Path(MATMUL).read_bytes()[:-40])
    result = kernbench("trace", "check", str(part))
    assert result.exit_code == 1
    assert "cut off" in result.output


@pytest.mark.slow
def test_compare_fails_where_anything_differs_or_over_its_limit_only(tmp_path):
    paths = []
    for clock in (1.0, 0.5):
        paths.append(str(tmp_path / f"{clock}.msgpack"))
        run_bench("matmul", params=SMALL, spec={"pe.clock_ghz": clock}, trace=paths[-1])
    assert kernbench("trace", "compare", *paths, "--fail-over", "5%").exit_code == 1
    assert kernbench("trace", "compare", *paths, "--fail-over", "500%").exit_code == 0
    assert kernbench("trace", "compare", *paths).exit_code == 1
    assert kernbench("trace", "compare", paths[0], paths[0]).exit_code == 0
    assert kernbench("trace", "compare", *paths[::-1], "--fail-over=5%").exit_code == 0


def test_cut_writes_a_trace_of_a_part(tmp_path, session):
    out = tmp_path / "a part.msgpack"
    options = [
        "--from",
        "8.1us",
        "--to",
        "8.2us",
        "--components",
        "*.pe0.*",
        "-o",
        str(out),
    ]
    result = kernbench("trace", "cut", MATMUL, *options)
    assert result.exit_code == 0
    trace = session.trace
    kept = []
    for op, record in enumerate(trace.ops):
        places = [(record.component_id, record.t_start, record.t_end)]
        for node, _, since, until, _ in trace.waits_of(int(trace.order[op])):
            places.append((node, since, until))
        if any(".pe0." in n and t0 < 8200 and t1 > 8100 for n, t0, t1 in places):
            kept.append(record.t_start)
    assert [record.t_start for record in Trace.open(out).ops] == kept


def test_export_writes_another_format(tmp_path):
    out = tmp_path / "it's out.json"
    assert kernbench("trace", "export", MATMUL, "perfetto", str(out)).exit_code == 0
    first = out.read_bytes()
    assert (
        kernbench("trace", "export", MATMUL, "perfetto", "-o", str(out)).exit_code == 0
    )
    assert json.loads(first)["traceEvents"]
    assert out.read_bytes() == first


@pytest.mark.parametrize(
    "name", [name for name, row in EXPORTERS.items() if row.makes == "file"]
)
@pytest.mark.slow
def test_a_dash_writes_an_export_of_one_file_to_stdout(tmp_path, name):
    out = tmp_path / "out"
    assert kernbench("trace", "export", MATMUL, name, "-o", str(out)).exit_code == 0
    for words in (["-o", "-"], ["-"]):
        result = kernbench("trace", "export", MATMUL, name, *words)
        assert (result.exit_code, result.stderr) == (0, "")
        assert result.stdout_bytes == out.read_bytes()


def test_a_folder_is_replaced_by_force_and_only_if_it_is_an_export(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    words = ("trace", "export", MATMUL, "csv", "-o", "out")
    assert kernbench(*words).exit_code == 0
    kept = Path("out/ops.csv").read_bytes()
    Path("out/ops.csv").write_text("old")
    refused = kernbench(*words)
    assert refused.exit_code != 0
    assert "exists already, and --force replaces a folder of exp" in refused.stderr
    assert Path("out/ops.csv").read_text() == "old"
    assert kernbench(*words, "--force").exit_code == 0
    assert Path("out/ops.csv").read_bytes() == kept
    Path("out/mine.txt").write_text("mine")
    refused = kernbench(*words, "--force")
    assert refused.exit_code != 0
    assert "mine.txt in it is no file of this format" in refused.stderr
    assert Path("out/mine.txt").read_text() == "mine"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_no_export_replaces_the_trace_that_it_is_of(tmp_path):
    path = tmp_path / "matmul.msgpack"
    path.write_bytes(Path(MATMUL).read_bytes())
    result = kernbench("trace", "export", str(path), "perfetto", "-o", str(path))
    assert result.exit_code != 0
    assert "it is the trace itself" in result.stderr
    assert path.read_bytes() == Path(MATMUL).read_bytes()


def test_no_export_replaces_the_tail_of_the_trace_that_it_is_of(tmp_path):
    writer = TraceWriter(tmp_path / "x.msgpack")
    writer.begin({"bench": "x", "arguments": {}, "seed": 0}, None)
    for row in range(5):
        writer.op(row, OpRecord(0.0, 1.0, "pe", "math", "add", {}, []), 0, 0, [], [])
    writer.write_tail()
    path = tmp_path / "x.msgpack.partial"
    tail = tmp_path / "x.msgpack.partial.tail"
    before = tail.read_bytes()
    result = kernbench("trace", "export", str(path), "konata", "-o", str(tail))
    assert result.exit_code != 0
    assert "it is the tail of the trace" in result.stderr
    assert tail.read_bytes() == before
    assert len(Trace.open(path).ops) == 5


def test_an_export_says_on_a_terminal_how_far_it_is(monkeypatch):
    terminal = io.StringIO()
    terminal.isatty = lambda: True
    monkeypatch.setattr(sys, "stderr", terminal)
    clock = iter([0.0, 0.5, 2.0, 2.5])
    monkeypatch.setattr("kernbench.console.time.monotonic", lambda: next(clock))
    with shown_share("export") as progress:
        for done in (0.1, 0.255, 0.9):
            progress(done)
    assert terminal.getvalue() == "\rexport 26%\033[K\r\r\033[K"


def test_an_option_where_the_file_should_be_is_an_option():
    result = kernbench("trace", "diagnose", "--lst")
    assert result.exit_code == 2
    assert result.stderr.startswith("error: diagnose: no option --lst; valid: --op,")


def test_nothing_is_told_how_far_it_is_where_nobody_would_see_it(monkeypatch):
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with shown_share("export") as progress:
        assert progress is None


def test_a_command_on_a_trace_reports_its_progress(monkeypatch):
    shares = []

    @contextmanager
    def shown(name):
        yield shares.append

    monkeypatch.setattr("kernbench.shell.trace.shown_share", shown)
    for name, *words in (["verify"], ["export", "konata", "-"], ["stalls"]):
        shares.clear()
        assert kernbench("trace", name, MATMUL, *words).exit_code == 0
        assert shares


@pytest.mark.parametrize(
    ("compress", "remedy"),
    [(gzip.compress, "gunzip -k"), (lzma.compress, "unxz -k"), (zstd, "unzstd")],
)
def test_a_compressed_trace_is_refused_with_how_to_open_it(tmp_path, compress, remedy):
    path = tmp_path / "matmul.msgpack.xx"
    path.write_bytes(compress(Path(MATMUL).read_bytes()))
    result = kernbench("trace", "info", str(path))
    assert result.exit_code != 0
    assert f"it is compressed; `{remedy} {path}`" in result.stderr


@pytest.mark.parametrize(
    ("args", "code", "parts"),
    [
        (["fly", "--help"], 2, ["unknown command 'fly'; help lists all"]),
        (["fly", MATMUL], 2, ["unknown command 'fly'; help lists all"]),
        (["info", "nowhere.msgpack"], 2, ["nowhere.msgpack", "No such file"]),
        (["info", "."], 2, ["directory"]),
        (["info", __file__], 2, ["test_cli_trace.py", "offset 0"]),
        (["info"], 2, ["Missing argument 'FILE'", "trace --help"]),
        (["ops", MATMUL, "--where", "dur >"], 2, ["column 6"]),
        (["ops", MATMUL, "--where", "speed > 3"], 2, ["speed", "column 1", "dur"]),
        (["ops", MATMUL, "--where", "dur > 3parsec"], 2, ["3parsec", "us"]),
        (["ops", MATMUL, "--limit", "x"], 2, ["'x'"]),
        (["ops", MATMUL, "--limit", "-3"], 2, ["-3"]),
        (["ops", MATMUL, "--where"], 2, ["ops: takes [COUNT] [where EXPR] [limit"]),
        (["ops", MATMUL, "--when", "3"], 2, ["--when"]),
        (["t", MATMUL, "3parsec"], 2, ["3parsec", "3.2us"]),
        (["route", MATMUL, "--op", "x"], 2, ["--op"]),
        (["route", MATMUL, "--op", "9999"], 2, ["no op 9999"]),
        (["export", MATMUL, "pdf", "out"], 2, ["'pdf'", "perfetto, pftrace, parquet"]),
        (["export", MATMUL, "perfetto"], 2, ["export: takes FORMAT OUT [force], got"]),
        (["export", MATMUL, "perfeto", "x"], 2, ["did you mean perfetto?"]),
        (["export", MATMUL, "csv", "-o", "-"], 2, ["writes a folder", "perfetto, pf"]),
        (["export", MATMUL, "perfetto", "."], 2, ["cannot export to ."]),
        (["export", MATMUL, "csv", "no/such/out"], 2, ["cannot export to no/such/out"]),
        (["cut", MATMUL, "--from", "soon", "-o", "out"], 2, ["'soon'"]),
        (
            ["cut", MATMUL, "--from", "2us", "--to", "1us", "-o", "out"],
            2,
            ["the end must lie"],
        ),
        (["cut", MATMUL, "--components", "nobody", "-o", "out"], 2, ["nobody"]),
        (["compare", MATMUL], 2, ["compare: takes FILE [FAIL-OVER]"]),
        (["compare", MATMUL, "nowhere.msgpack"], 2, ["nowhere.msgpack"]),
        (["compare", MATMUL, MATMUL, "--fail-over", "much"], 2, ["'much'", "5%"]),
    ],
)
def test_bad_input_is_one_line_and_writes_nothing(
    args, code, parts, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    result = kernbench("trace", *args)
    lines = result.stderr.splitlines()
    assert (result.exit_code, len(lines), result.stdout) == (code, 1, "")
    assert lines[0].startswith("error: ")
    for part in parts:
        assert part in lines[0]
    assert list(tmp_path.iterdir()) == []
