"""What is shown of results: the front by brute force, commands by running them."""

import json
import random
import shlex
from pathlib import Path
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner

from kernbench.cli import main
from kernbench.sweep.command import _open
from kernbench.sweep.plot import plot_of
from kernbench.sweep.show import Results, read_results, table_lines
from kernbench.sweep.space import Objective, Point, RunOptions
from kernbench.sweep.store import Row
from kernbench.sweep.table import pareto, value_of
from kernbench.trace import Trace

LEAST_TIME = Objective("end_ns", "min")
MOST_OPS = Objective("ops", "max")


def row(n, end_ns=0.0, ops=0, ok=True, error=None):
    result = {"end_ns": end_ns, "ops": ops, "ok": ok} if error is None else None
    return Row(f"{n:04}", Point({"n": n}, {}, 0), result, error)


def beats(one, other):
    """The definition: as good in every objective, and better in one."""
    times = (one.result["end_ns"], other.result["end_ns"])
    ops = (one.result["ops"], other.result["ops"])
    as_good = times[0] <= times[1] and ops[0] >= ops[1]
    return as_good and (times[0] < times[1] or ops[0] > ops[1])


@pytest.mark.parametrize("seed", range(30))
def test_the_front_is_what_no_other_row_beats(seed):
    draw = random.Random(seed)
    rows = [
        row(n, float(draw.randint(0, 9)), draw.randint(0, 9), draw.random() < 0.8)
        for n in range(draw.randint(0, 60))
    ]
    rows.insert(len(rows) // 2, row(99, error="it failed"))
    right = [r for r in rows if r.error is None and r.result["ok"]]
    expected = [
        i
        for i, r in enumerate(rows)
        if r in right and not any(beats(other, r) for other in right)
    ]
    assert pareto(rows, [LEAST_TIME, MOST_OPS]) == expected


def test_the_front_of_one_objective_is_all_that_are_best():
    rows = [row(1, 5.0), row(2, 3.0), row(3, 3.0), row(4, 1.0, ok=False)]
    assert pareto(rows, [LEAST_TIME]) == [1, 2]
    assert pareto(rows, [Objective("no_column", "min")]) == []


def results(rows, objectives=(LEAST_TIME, MOST_OPS)):
    options = RunOptions()
    return Results(Path("folder"), "matmul", tuple(objectives), options, tuple(rows))


def test_rows_are_sorted_by_any_column_and_those_without_it_are_last():
    found = results([row(1, 5.0), row(2, error="no"), row(3, 3.0), row(4, 9.0)])
    assert found.sorted_by("end_ns") == [2, 0, 3, 1]
    assert found.sorted_by("end_ns", True) == [3, 0, 2, 1]
    assert found.sorted_by("n", True) == [3, 2, 1, 0]
    assert found.sorted_by("error") == [1, 0, 2, 3]


def test_a_parameter_named_as_a_column_of_results_is_not_shown_as_that():
    rows = []
    for count, end_ns in ((1, 5.0), (2, 3.0)):
        point = Point({"ops": count, "error": "none"}, {}, 0)
        rows.append(
            Row(f"{count}", point, {"end_ns": end_ns, "ops": 40, "ok": True}, None)
        )
    rows.append(Row("3", Point({"ops": 3, "error": "none"}, {}, 0), None, "it failed"))
    found = results(rows, [LEAST_TIME])
    assert found.varied() == ["set.ops"]
    assert [value_of(one, "ops") for one in found.rows] == [40, 40, None]
    assert [value_of(one, "error") for one in found.rows] == [None, None, "it failed"]
    assert found.sorted_by("set.ops", True) == [2, 1, 0]
    header, *lines = table_lines(found, [0, 1])
    assert header.split() == ["row", "set.ops", "end_ns"]
    assert [line.split() for line in lines[::2]] == [["1", "1", "5"], ["*2", "2", "3"]]
    dots = plot_of(found, None, None).dots
    assert [(dot.x, dot.text) for dot in dots] == [
        (1.0, "set.ops=1 (row 1)"),
        (2.0, "set.ops=2 (row 2)"),
    ]


def test_a_scatter_has_a_mark_at_the_place_of_each_row():
    found = results([row(1, 0.0, 0), row(2, 10.0, 10), row(3, 5.0, 5, ok=False)])
    lines = plot_of(found, None, None).as_text(24, 5, is_ascii=True)
    assert lines == [
        "ops, * on the Pareto front",
        "10 |                   *",
        "   |",
        "   |",
        "   |",
        " 0 |*",
        "   +--------------------",
        "    0      end_ns     10",
    ]


def test_a_scatter_of_nothing_is_none():
    assert plot_of(results([row(1, error="no")]), None, None) is None
    assert plot_of(results([row(1, 1.0)], [LEAST_TIME]), None, None) is None
    one = plot_of(results([row(1, 1.0), row(2, 1.0)], [LEAST_TIME]), None, None)
    assert (one.x, one.y, len(one.dots)) == ("n", "end_ns", 2)
    assert "<circle" in one.as_svg()


def test_an_svg_shows_every_row_inside_its_frame():
    rows = [row(n, 100.0 + n * n, n, n != 7) for n in range(20)]
    rows[3] = Row("x<&>", Point({"n": "<b>&"}, {}, 0), rows[3].result, None)
    root = ElementTree.fromstring(plot_of(results(rows), None, None).as_svg())
    circles = [e for e in root.iter() if e.tag.endswith("circle")]
    assert len(circles) == 19
    assert all(90 <= float(c.get("cx")) <= 620 for c in circles)
    assert all(40 <= float(c.get("cy")) <= 340 for c in circles)
    assert "n=<b>&" in "".join(root.itertext())


# -- the command -----------------------------------------------------------------------


def kernbench(*words):
    return CliRunner().invoke(main, [*map(str, words)])


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    """A folder of results; some points fail, and a parameter is a small number."""
    folder = tmp_path_factory.mktemp("swept dir")
    (folder / "bench it.py").write_text(
        "from kernbench.benches import bench\n"
        "@bench(name='scaled', description='')\n"
        "def run(torch, n=4, by=1.0, name='a', all=None):\n"
        "    assert n < 64\n"
        "    x = torch.tensor([by] * n, 'f32', name='x')\n"
        "    torch.expect(x, [by] * n)\n"
    )
    (folder / "space.yaml").write_text(
        "bench: bench it.py\n"
        'set: {n: [4, 16, 64], by: [1.0e-05, 2], name: "it\'s", all: [null, 3]}\n'
        "spec: {pcie_bw_gbs: [0.00101, 8], sips.count: 1, hbm.model: ideal}\n"
        "where: n < 64 or by < 1\n"
        "objectives: [end_ns, energy_j]\n"
    )
    out = folder / "out"
    result = kernbench("sweep", folder / "space.yaml", "-o", out, "--jobs", 1)
    assert result.exit_code == 0, result.stderr
    return out


@pytest.mark.slow
def test_the_front_and_its_commands_are_shown(swept):
    result = kernbench("sweep", "show", swept)
    assert result.exit_code == 0, result.stderr
    first, heads, *rest = result.stdout.splitlines()
    assert "20 points, 4 failed, 0 with wrong data" in first
    assert heads.split()[0] == "row"
    assert rest[0].split()[0].startswith("*")
    assert rest[1].startswith("    kernbench run ")


@pytest.mark.slow
def test_the_command_of_each_row_gives_that_row(swept):
    found = json.loads(
        kernbench("sweep", "show", swept, "--sort", "end_ns", "--json").stdout
    )
    assert [r["row"] for r in found if r["error"] is None][-1] <= 20
    assert len(found) == 20
    for record in (found[0], found[7], found[15], found[-1]):
        program, *words = shlex.split(record["command"])
        assert program == "kernbench"
        result = kernbench(*words, "--json")
        if record["error"] is not None:
            assert result.exit_code == 1
            assert not json.loads(result.stdout)["ok"]
            continue
        summary = json.loads(result.stdout)
        for name in ("end_ns", "ops", "bytes_moved", "verified", "ok"):
            assert summary[name] == record[name], name
        assert summary["energy_j"] == pytest.approx(record["energy_j"], 1e-12)
        assert summary["params"]["by"] == record["set.by"]
        assert summary["spec"] == {
            name.removeprefix("spec."): value
            for name, value in record.items()
            if name.startswith("spec.")
        }
        assert Trace.open(summary["trace"]).complete


@pytest.mark.slow
def test_a_row_is_recorded_once_and_says_what_has_changed(swept):
    found = read_results(swept)
    number = 1 + found.front()[0]
    path = found.trace_path(found.row(number))
    path.unlink(missing_ok=True)
    result = kernbench("sweep", "show", swept, "--open", number)
    assert result.stdout == f"trace: kernbench-tui {path}\n"
    written = path.stat().st_mtime_ns
    assert kernbench("sweep", "show", swept, "--open", number).exit_code == 0
    assert path.stat().st_mtime_ns == written
    assert Trace.open(path).end_ns == found.row(number).result["end_ns"]


@pytest.mark.slow
def test_a_row_that_runs_otherwise_now_says_so(swept, tmp_path, monkeypatch, capsys):
    found = read_results(swept)
    first = found.row(found.front()[0] + 1)
    other = first._replace(result={**first.result, "end_ns": 1.0})
    _open(Results(tmp_path, found.bench, found.objectives, found.options, (other,)), 1)
    out = capsys.readouterr().out
    assert "and was 1.0 in the sweep" in out
    assert out.count(" in the sweep") == 1


@pytest.mark.slow
def test_a_row_that_fails_opens_up_to_its_error_or_says_it(swept):
    found = read_results(swept)
    (number, *_) = [i + 1 for i, r in enumerate(found.rows) if r.error is not None]
    result = kernbench("sweep", "show", swept, "--open", number)
    assert "AssertionError" in result.output
    assert result.output.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--sort", "speed"], "no column 'speed'; valid: n, by, name"),
        (["--open", 0], "row 0: there are rows 1 to 20"),
        (["--open", 21], "row 21: there are rows 1 to 20"),
        (["--x", "name"], "name: no number in every row"),
        (["--svg", "/nowhere/a.svg"], "/nowhere/a.svg: No such file"),
    ],
)
def test_what_cannot_be_shown_is_one_line(swept, words, why):
    result = kernbench("sweep", "show", swept, *words)
    assert result.exit_code in (1, 2)
    assert why in result.stderr
    assert result.stderr.count("\n") == 1


def test_a_folder_without_results_is_one_line(tmp_path):
    result = kernbench("sweep", "show", tmp_path)
    assert result.stderr.startswith(f"error: {tmp_path}/sweep.json: no results there")
    (tmp_path / "sweep.json").write_text('{"objectives": 3}')
    result = kernbench("sweep", "show", tmp_path)
    assert "is damaged" in result.stderr
    assert result.stderr.count("\n") == 1


def test_results_of_a_sweep_that_has_none_yet_are_shown(tmp_path):
    about = {"bench": "matmul", "objectives": {"end_ns": "min"}, "plugins": []}
    about |= dict.fromkeys(("topology", "ccl", "verify", "max_ns", "max_ops"))
    (tmp_path / "sweep.json").write_text(json.dumps(about))
    result = kernbench("sweep", "show", tmp_path)
    assert result.stdout.startswith("matmul: 0 points, 0 failed")
