"""The questions of docs/tables.md: their SQL in DuckDB, and what kernbench answers.

Each answer is compared with that of a command of ``kernbench trace``, or is counted
from the records of the trace, one by one.
"""

import json
import re
from collections import Counter, defaultdict
from pathlib import Path

import pytest
from click.testing import CliRunner

from kernbench import docs
from kernbench.cli import main
from kernbench.trace import Trace
from kernbench.trace.export import export
from kernbench.trace.export.tables import TABLES

duckdb = pytest.importorskip("duckdb")

TRACES = Path(__file__).parents[3] / "traces"
NAMES = ("matmul", "mlp_tp")


def questions():
    """The SQL of each question of the page, by its heading."""
    section = (
        docs.page("tables").partition("## Ten questions\n")[2].partition("\n## ")[0]
    )
    found = {}
    for part in section.split("\n### ")[1:]:
        heading, _, body = part.partition("\n")
        found[heading] = "\n".join(re.findall(r"^    (.*)$", body, re.MULTILINE))
    return found


QUESTIONS = questions()


class Asked:
    """A trace, its tables in DuckDB, and the commands of ``kernbench trace`` on it."""

    def __init__(self, name, folder):
        self.path = TRACES / f"{name}.msgpack"
        self.trace = Trace.open(self.path)
        export(self.trace, "parquet", str(folder / name))
        self._database = duckdb.connect()
        for table in TABLES:
            file = folder / name / f"{table}.parquet"
            self._database.sql(f"CREATE VIEW {table} AS FROM '{file}'")

    def sql(self, text):
        """The rows of a query, as maps."""
        relation = self._database.sql(text)
        return [
            dict(zip(relation.columns, row, strict=True)) for row in relation.fetchall()
        ]

    def command(self, name, *words):
        """What a command of ``kernbench trace`` answers."""
        words = ["trace", name, str(self.path), *words, "--json"]
        result = CliRunner().invoke(main, words)
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)


@pytest.fixture(scope="module", params=NAMES)
def asked(request, tmp_path_factory):
    return Asked(request.param, tmp_path_factory.mktemp("tables"))


def ops_by_name(asked, rows):
    wanted = asked.command("info")["by_name"]
    assert {row["name"]: row["ops"] for row in rows} == wanted


def busy_engines(asked, rows):
    found = {row["component"]: row["busy_ns"] for row in rows}
    wanted = {}
    for glob in ("*pe_gemm", "*pe_math"):
        answer = asked.command("activity", "components", glob)
        window = answer["t1"] - answer["t0"]
        for component in answer["components"]:
            wanted[component["name"]] = component["busy"] * window
    busy = {name: ns for name, ns in wanted.items() if ns}
    assert found == pytest.approx(busy, rel=1e-6)
    assert all(0 < row["share"] <= 1 for row in rows)


def work_by_kind(asked, rows):
    ops = Counter()
    ns = Counter()
    nbytes = Counter()
    for position, record in enumerate(asked.trace.ops):
        if record.op_name.startswith("TileToken/"):
            continue
        row = int(asked.trace.order[position])
        ops[record.op_kind] += 1
        ns[record.op_kind] += record.t_end - record.t_start
        nbytes[record.op_kind] += int(asked.trace.op_columns.nbytes[row])
    assert {row["kind"]: row["ops"] for row in rows} == ops
    assert {row["kind"]: row["ns"] for row in rows} == pytest.approx(ns)
    assert {row["kind"]: row["bytes"] for row in rows} == nbytes


def busiest_links(asked, rows):
    answer = asked.command("links", "0", f"{asked.trace.end_ns}ns")
    window = answer["t1"] - answer["t0"]
    by_edge = {link["edge"]: link for link in answer["links"]}
    for row in rows:
        link = by_edge[row["edge"]]
        assert (row["src"], row["dst"]) == (link["src"], link["dst"])
        assert row["bytes"] == pytest.approx(link["nbytes"])
        assert row["busy_ns"] == pytest.approx(link["busy"] * window)
    most = sorted((link["busy"] for link in answer["links"]), reverse=True)
    assert [row["busy_ns"] for row in rows] == pytest.approx(
        [busy * window for busy in most[: len(rows)]]
    )


def kernel_lines(asked, rows):
    answer = asked.command("lines", "sip0.cube0.pe0")
    wanted = {row["site"]: (row["calls"], row["time"]) for row in answer["rows"]}
    found = {f"{row['file']}:{row['line']}": (row["calls"], row["ns"]) for row in rows}
    assert found.keys() == wanted.keys()
    for site, (calls, ns) in found.items():
        assert (calls, ns) == (wanted[site][0], pytest.approx(wanted[site][1]))


def waits_by_reason(asked, rows):
    ns = Counter()
    for row in range(len(asked.trace.ops)):
        cmd = int(asked.trace.op_columns.cmd[row])
        command = asked.trace.command(cmd)
        if command is None or command.launch < 0:
            continue
        for _, reason, t0, t1, _ in asked.trace.waits_of(row):
            ns[reason] += t1 - t0
    assert {row["reason"]: row["ns"] for row in rows} == pytest.approx(ns)


def holders(asked, rows):
    ns = Counter()
    for row in range(len(asked.trace.ops)):
        for _, _, t0, t1, holder in asked.trace.waits_of(row):
            if holder >= 0:
                ns[int(asked.trace.position[holder])] += t1 - t0
    wanted = sorted(ns.items(), key=lambda item: (-item[1], item[0]))[:10]
    assert [(row["holder"], row["ns"]) for row in rows] == [
        (op, pytest.approx(time)) for op, time in wanted
    ]
    for row in rows:
        record = asked.trace.ops[row["holder"]]
        assert (row["name"], row["component"]) == (
            record.op_name,
            record.component_id,
        )


def stages_of_a_composite(asked, rows):
    composites = [
        op
        for op, record in enumerate(asked.trace.ops)
        if record.op_name.startswith("composite_")
    ]
    answer = asked.command("tiles", "--op", str(composites[-1]))
    assert answer["composite"] == composites[-1]
    spans = defaultdict(list)
    for tile in answer["rows"]:
        for span in tile["spans"]:
            spans[f"TileToken/{span['stage']}"].append((span["t0"], span["t1"]))
    assert {row["name"] for row in rows} == spans.keys()
    for row in rows:
        of_name = spans[row["name"]]
        assert row["stages"] == len(of_name)
        assert row["first"] == min(start for start, _ in of_name)
        assert row["last"] == max(end for _, end in of_name)
        assert row["ns"] == pytest.approx(sum(end - start for start, end in of_name))


def memory_by_tensor(asked, rows):
    shards = Counter()
    nbytes = Counter()
    for shard in asked.trace.allocs:
        if shard.space == "hbm":
            shards[shard.tensor] += 1
            nbytes[shard.tensor] += shard.nbytes
    assert {row["tensor"]: row["shards"] for row in rows} == shards
    assert {row["tensor"]: row["bytes"] for row in rows} == nbytes


def longest_calls(asked, rows):
    for row in rows[:3]:
        op = next(
            position
            for position, cmd in enumerate(
                asked.trace.op_columns.cmd[asked.trace.order].tolist()
            )
            if asked.trace.command(cmd).pe == row["component"]
        )
        calls = asked.trace.commands
        same_place = [
            number
            for number in calls.cmd[:].tolist()
            if asked.trace.command(number).site[:2] == (row["file"], row["line"])
            and asked.trace.command(number).pe == row["component"]
            and asked.trace.command(number).call == row["call"]
        ]
        longest = 0.0
        for number in same_place:
            answer = asked.command("pes", str(number), "--op", str(op))
            at = answer["pes"].index(row["component"].removesuffix(".pe_cpu"))
            longest = max(longest, answer["duration"][at])
            assert answer["call"] == row["call"]
        assert row["ns"] == pytest.approx(longest)


CHECKS = {
    "How often was each op done?": ops_by_name,
    "How long was each engine busy, and for which share of its launch?": busy_engines,
    "How much work was there, each piece counted once?": work_by_kind,
    "Which links carried most?": busiest_links,
    "Which lines of the kernel took the time of a PE?": kernel_lines,
    "What did ops wait for, and how long?": waits_by_reason,
    "Which op kept others waiting longest?": holders,
    "How long was each stage of a composite at work?": stages_of_a_composite,
    "How much memory does each tensor take, in how many shards?": memory_by_tensor,
    "Which call took longest, and where?": longest_calls,
}


def test_the_page_has_ten_questions_each_of_which_is_checked():
    assert list(QUESTIONS) == list(CHECKS)
    assert len(QUESTIONS) == 10


@pytest.mark.parametrize("question", CHECKS)
def test_the_sql_of_a_question_answers_as_kernbench_does(asked, question):
    rows = asked.sql(QUESTIONS[question])
    assert rows
    CHECKS[question](asked, rows)
