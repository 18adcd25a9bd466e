"""NDJSON, folded stacks and Konata's log, each read back by rules of its own."""

import json
import re
from collections import Counter, defaultdict
from pathlib import Path

import pytest
from trace_kinds import KINDS

from kernbench.trace import Trace
from kernbench.trace.export import export
from kernbench.trace.export.tables import TABLES

TRACES = Path(__file__).parents[3] / "traces"
NAMES = ("matmul", "mlp_tp", "ccl_allreduce", "flash_attention")


@pytest.fixture
def exported(tmp_path):
    """exported(trace, name) -> the file that was written."""

    def exported(trace, name):
        out = tmp_path / f"out.{name}"
        export(trace, name, str(out))
        return out

    return exported


def ps(ns):
    return round(ns * 1e3)


# -- ndjson ----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.slow
def test_ndjson_has_every_row_of_every_table(make, exported, kind):
    trace = make(kind)
    found = defaultdict(list)
    for line in exported(trace, "ndjson").read_text(encoding="utf-8").splitlines():
        row = json.loads(line, parse_constant=pytest.fail)
        found[row.pop("table")].append(row)
    for name, row in TABLES.items():
        made = row.make(trace)
        columns = [column.tolist() for column in made.values()]
        wanted = [
            dict(zip(made, cells, strict=True)) for cells in zip(*columns, strict=True)
        ]
        assert found[name] == wanted


@pytest.mark.slow
def test_duckdb_reads_ndjson_with_its_nulls(shipped_trace, exported):
    duckdb = pytest.importorskip("duckdb")
    out = exported(shipped_trace, "ndjson")
    rows = f"read_json('{out}', format='newline_delimited', sample_size=-1)"
    query = f"""
        SELECT count(*), count(parent), count(launch)
        FROM {rows} WHERE "table" = 'ops'
    """
    stages = sum(r.op_name.startswith("TileToken/") for r in shipped_trace.ops)
    writes = sum(r.op_name == "host_write" for r in shipped_trace.ops)
    ops = len(shipped_trace.ops)
    assert duckdb.sql(query).fetchall() == [(ops, stages, ops - writes)]


# -- folded stacks ---------------------------------------------------------------------


def stacks_of(path):
    """The frames and the weight of each line, as readers of the format split it."""
    stacks = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        frames, _, weight = line.rpartition(" ")
        stacks[tuple(frames.split(";"))] = int(weight)
    return stacks


@pytest.mark.parametrize("name", NAMES)
def test_folded_stacks_share_out_the_time_of_kernels_by_line(exported, name):
    trace = Trace.open(TRACES / f"{name}.msgpack")
    kernels = {row.launch: row.kernel for row in trace.launches}
    wanted = Counter()
    for number in trace.commands.cmd[:].tolist():
        command = trace.command(number)
        file, line, function = command.site
        root = kernels.get(command.launch, "host")
        time = ps(command.t_resume) - ps(command.t_issue)
        wanted[root, function, f"{file}:{line}", command.call] += time
    found = stacks_of(exported(trace, "folded"))
    assert found == {stack: time for stack, time in wanted.items() if time}


def test_the_stacks_of_a_kernel_add_up_to_its_life_on_each_pe(shipped_trace, exported):
    (launch,) = shipped_trace.launches
    found = stacks_of(exported(shipped_trace, "folded"))
    total = sum(time for stack, time in found.items() if stack[0] == launch.kernel)
    lives = defaultdict(list)
    for number in shipped_trace.commands.cmd[:].tolist():
        command = shipped_trace.command(number)
        if command.launch == launch.launch:
            lives[command.pe] += [ps(command.t_issue), ps(command.t_resume)]
    assert len(lives) == len(launch.pes)
    assert total == sum(max(times) - min(times) for times in lives.values())


# -- Konata ----------------------------------------------------------------------------


class Pipeline:
    """Reads a Kanata log by its rules: commands at cycles, instructions by number."""

    def __init__(self, text):
        head, *lines = text.splitlines()
        assert head == "Kanata\t0004"
        self.tids = {}
        self.labels = defaultdict(str)
        self.spans = defaultdict(list)
        self.retired = []
        self._open = {}
        self._cycle = None
        for line in lines:
            command, *words = line.split("\t")
            getattr(self, f"_on_{command.replace('=', '_')}")(*words)
        assert not self._open

    def _on_C_(self, cycle):
        assert self._cycle is None
        self._cycle = int(cycle)

    def _on_C(self, cycles):
        assert int(cycles) > 0
        self._cycle += int(cycles)

    def _on_I(self, number, own, tid):
        assert int(number) == len(self.tids)
        self.tids[number] = int(tid)

    def _on_L(self, number, kind, text):
        assert number in self.tids
        if kind == "0":
            self.labels[number] += text

    def _on_S(self, number, lane, stage):
        assert number in self.tids
        assert (number, lane) not in self._open
        self._open[number, lane] = (stage, self._cycle)

    def _on_E(self, number, lane, stage):
        begun, cycle = self._open.pop((number, lane))
        assert begun == stage
        self.spans[number].append((stage, cycle, self._cycle))

    def _on_R(self, number, retired, kind):
        assert (int(retired), kind) == (len(self.retired), "0")
        assert (number, "0") not in self._open
        self.retired.append(number)


@pytest.mark.parametrize("name", NAMES)
def test_konata_has_the_stages_of_each_tile(exported, name):
    trace = Trace.open(TRACES / f"{name}.msgpack")
    wanted = defaultdict(list)
    for op, record in enumerate(trace.ops):
        if record.op_name.startswith("TileToken/"):
            cmd = int(trace.op_columns.cmd[trace.order[op]])
            tile = (cmd, *record.params["tile_index"])
            start = ps(record.t_start) // 1000
            end = ps(record.t_end) // 1000
            wanted[tile].append((record.params["stage_type"], start, end))
    pipeline = Pipeline(exported(trace, "konata").read_text(encoding="utf-8"))
    assert len(pipeline.retired) == len(wanted)
    assert sorted(pipeline.spans.values()) == sorted(wanted.values())
    if name == "matmul":
        assert set(pipeline.tids.values()) == set(range(8))
        assert pipeline.labels["0"] == "sip0.cube0.pe0 op 16 tile 0,0,0"


def test_the_thread_of_a_tile_is_its_pe_counted_over_the_machine(exported):
    trace = Trace.open(TRACES / "mlp_tp.msgpack")
    pipeline = Pipeline(exported(trace, "konata").read_text(encoding="utf-8"))
    for number, label in pipeline.labels.items():
        sip, cube, pe = map(int, re.findall(r"\d+", label.split()[0]))
        assert pipeline.tids[number] == (sip * 16 + cube) * 8 + pe
