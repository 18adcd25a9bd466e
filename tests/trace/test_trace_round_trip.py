"""All else that a writer is given: what went in comes out."""

import msgpack
import numpy as np
import pytest
from files import opened
from recordings import HBM, PATH, PE, record_all, record_ops, shard, touch

from kernbench.common.dtypes import Tolerance
from kernbench.errors import KernbenchError, TraceFormatError
from kernbench.sim_engine.event_log import Site
from kernbench.sim_engine.op_log import OpRecord, canonical_rows
from kernbench.sim_engine.verify import VerifyReport
from kernbench.trace import Trace, TraceWriter
from kernbench.trace.frames import FrameFile


@pytest.fixture
def writer(tmp_path):
    writer = TraceWriter(tmp_path / "w.msgpack")
    yield writer
    writer.close()


def reopened(writer):
    writer.close()
    return Trace.open(writer.path)


def op(row, t_start=0.0, kind="memory", deps=()):
    return OpRecord(t_start, t_start + 5, "n", kind, kind, {"row": row}, list(deps))


def test_a_whole_run_is_complete_and_sound(trace):
    assert touch(trace).damaged == []
    assert trace.complete
    assert trace.header["bench"] == "demo"
    assert trace.header["arguments"] == {"m": 3}
    assert trace.header["time_unit"] == "ns"
    assert trace.end["ok"] is True
    assert trace.end["counts"]["ops"] == len(trace.ops)
    assert trace.end_ns == 130.0


def test_the_machine_comes_back(trace, small):
    assert trace.node_ids == list(small.nodes)
    assert trace.header["topology_hash"] == small.hash
    for i, node in enumerate(small.nodes.values()):
        assert trace.node_index[node.id] == i
        assert trace.nodes.type[i] == node.type
        assert trace.nodes.engine[i] == node.engine
    for name in ("sip", "cube", "pe", "x_mm", "y_mm", "overhead_ns"):
        wanted = [getattr(node, name) for node in small.nodes.values()]
        assert getattr(trace.nodes, name).tolist() == wanted
    edge = small.edges[-1]
    last = len(small.edges) - 1
    assert trace.node_ids[trace.edges.src[last]] == edge.src
    assert trace.node_ids[trace.edges.dst[last]] == edge.dst
    assert trace.edges.kind[last] == edge.kind
    assert trace.edges.bandwidth_gbs.tolist() == [e.bandwidth_gbs for e in small.edges]
    assert trace.spec["system"]["ns_per_mm"] == small.spec.system.ns_per_mm


def test_ops_stand_in_canonical_order(demo, trace):
    recorded = demo[1].records
    wanted = [recorded[row] for row in canonical_rows(recorded)]
    assert [r.op_name for r in trace.ops] == [r.op_name for r in wanted]
    assert [r.t_start for r in trace.ops] == [r.t_start for r in wanted]
    assert trace.ops[-1] == trace.ops[len(wanted) - 1]
    assert len(trace.ops[1:3]) == 2
    with pytest.raises(IndexError):
        trace.ops[len(wanted)]


def test_equal_starts_are_ordered_by_kind_then_row(writer):
    for row, kind in enumerate(("unknown", "math", "memory", "gemm", "memory")):
        writer.op(row, op(row, kind=kind), 0, 0, [], [])
    assert [r.params["row"] for r in reopened(writer).ops] == [2, 4, 3, 1, 0]


def test_dependency_ids_are_positions_of_the_sequence_that_holds_the_record(writer):
    ops = [("unknown", 9), ("gemm", 8), ("math", 1), ("math", 2)]
    for row, (kind, start) in enumerate(ops):
        writer.op(row, op(row, start, kind, range(row)), 0, 0, [], [])
    trace = reopened(writer)
    held = {r.params["row"]: r.dependency_ids for r in trace.ops}
    assert trace.order.tolist() == [2, 3, 1, 0]
    assert held == {0: [], 1: [3], 2: [2, 3], 3: [0, 2, 3]}
    assert trace.deps(3).tolist() == [0, 1, 2]
    held = {r.params["row"]: r.dependency_ids for r in trace.executable}
    assert held == {1: [], 2: [2], 3: [0, 2]}
    assert trace.executable_positions.tolist() == [0, 1, 2]


def test_op_columns_stand_in_row_order(demo, trace):
    columns = trace.op_columns
    records = demo[1].records
    components = [trace.node_ids[i] for i in columns.component]
    assert columns.t_end.tolist() == [r.t_end for r in records]
    assert components == [r.component_id for r in records]
    assert [trace.strings[i] for i in columns.name] == [r.op_name for r in records]
    ranks = {"memory": 0, "gemm": 1, "math": 2, "unknown": 3}
    assert columns.kind.tolist() == [ranks[r.op_kind] for r in records]
    assert columns.cmd[:3].tolist() == [0, 1, 2]
    assert columns.slot[:4].tolist() == [0, 1, 2, 0]
    assert trace.position[trace.order].tolist() == list(range(len(records)))


def test_waits_and_transfers_of_an_op_come_back(demo, trace):
    for row in range(len(trace.ops)):
        assert trace.waits_of(row) == demo[1].waits[row]
        assert trace.transfers_of(row) == demo[1].transfers[row]


def test_a_transfer_of_no_op_comes_back(trace):
    log = trace.transfers
    (at,) = np.flatnonzero(log.row < 0).tolist()
    path = tuple(trace.node_ids[i] for i in trace.paths[int(log.path[at])])
    assert (path, log.cmd[at], log.nbytes[at]) == (PATH[::-1], 9, 64)
    assert log.start[log.start_ptr[at] : log.start_ptr[at + 1]].tolist() == [1.0, 2.0]


def test_an_unknown_wait_reason_is_refused(writer):
    with pytest.raises(KernbenchError, match="operand, engine"):
        writer.op(0, op(0), 0, 0, [("n", "boredom", 0.0, 1.0, -1)], [])


def test_commands_come_back_by_number(trace):
    command = trace.command(5)
    assert (command.pe, command.launch, command.call) == (f"{PE}cpu", 0, "load")
    assert command.site == Site("demo.py", 2, "kernel")
    assert (command.awaits, command.t_issue, command.t_resume) == (5, 0.0, 30.0)
    assert trace.command(4).launch == -1
    assert trace.command(6) is None


def test_shards_come_back(trace):
    assert trace.allocs == [
        shard(),
        shard(1, space="tcm", va=0, origin=(), shape=(), nbytes=2),
    ]
    columns = trace.alloc_columns
    assert [columns.spaces[i] for i in columns.space] == ["hbm", "tcm"]
    assert columns.addr.tolist() == [4096, 4096]


def test_a_reference_comes_back(trace):
    (expect,) = trace.expects
    assert (expect.tensor, expect.shard) == ("c", 0)
    assert (expect.space, expect.addr) == ("hbm", 4096)
    assert (expect.dtype, expect.origin, expect.array.shape) == ("f16", (0, 4), (2, 4))
    assert (expect.tolerance, expect.after) == (Tolerance(1e-3, 1e-4), 12)
    np.testing.assert_array_equal(
        expect.array, np.arange(8, dtype=np.float32).reshape(2, 4)
    )


def test_arrays_are_read_only_views_of_the_file(trace):
    array = trace.expects[0].array
    assert not array.flags.owndata
    with pytest.raises(ValueError, match="read-only"):
        array[0] = 1
    with pytest.raises(TraceFormatError, match="tensor 999"):
        trace.tensor(999)


def test_launches_texts_sources_and_the_verdict_come_back(trace):
    (launch,) = trace.launches
    assert (launch.launch, launch.kernel, launch.pes[0]) == (0, "kernel", f"{PE}cpu")
    assert (launch.t_issue, launch.t_start, launch.t_end) == (1.0, 2.0, 90.0)
    assert trace.texts == [(3.5, 5, "print", "über\n1")]
    assert trace.sources["demo.py"] == ("kernel", "def kernel():\n    pass\n")
    assert trace.verify_report == {
        "ok": True,
        "rows": [{"name": "c.0", "max_abs": 0.0}],
    }


def test_a_verify_report_is_recorded_with_its_verdict(writer):
    writer.verify(VerifyReport(()))
    assert reopened(writer).verify_report == {"rows": [], "ok": True}


def test_the_same_content_is_stored_once(writer):
    for row in range(3):
        record = op(row)
        record.params = {"snapshot": np.full((300, 300), row // 2, np.float64)}
        writer.op(row, record, 0, 0, [], [])
    trace = reopened(writer)
    assert trace.params(1)["snapshot"].base is trace.params(0)["snapshot"].base
    size = writer.path.stat().st_size
    assert 2 * 720_000 < size < 2.1 * 720_000


def test_a_run_recorded_without_data_holds_no_array(tmp_path, small):
    writer = TraceWriter(tmp_path / "x.msgpack")
    writer.begin({"data": False}, small)
    record = op(0)
    record.component_id = f"{PE}math"
    record.params = {"snapshot": np.ones(9), "input_snapshots": [np.ones(9), None]}
    writer.op(0, record, 0, 0, [], [])
    writer.expect("c", shard(), np.ones((2, 4)), Tolerance(), 1)
    trace = touch(reopened(writer))
    assert trace.params(0) == {"snapshot": None, "input_snapshots": [None, None]}
    assert (trace.expects, trace.damaged) == ([], [])
    assert "tensors" not in FrameFile(trace.path).by_tag


def test_many_references_are_frames_of_one_write(tmp_path):
    writer, disk = opened(tmp_path / "x.msgpack")
    for index in range(50):
        writer.expect("c", shard(index), np.full((2, 4), index), Tolerance(), 0)
    assert [expect.shard for expect in reopened(writer).expects] == list(range(50))
    assert len(disk.write_sizes) == 3  # header, tensors, references


@pytest.mark.slow
def test_a_log_of_many_chunks_is_one_log(tmp_path, small):
    writer = TraceWriter(tmp_path / "x.msgpack")
    writer.begin({}, small)
    recording = record_ops(writer, repeat=1600, step=0.01)
    reference = writer.path.with_name("x.msgpack.partial").stat().st_size
    writer.end(0.0)
    trace = Trace.open(writer.path)
    assert reference > 100_000  # most of it was on disk before the end
    assert len(trace.ops) == len(recording.records) > 2 * 8192
    for row in (0, 8191, 8192, 12_345, len(recording.records) - 1):
        assert trace.params(row).keys() == recording.records[row].params.keys()
        assert trace.waits_of(row) == recording.waits[row]
        assert trace.transfers_of(row) == recording.transfers[row]
        assert trace.deps(row).tolist() == recording.records[row].dependency_ids
    assert sum(len(block.rows) for block in trace.param_blocks()) == len(trace.ops)


def test_a_quiet_run_flushes_by_simulated_time(tmp_path):
    sizes = {}
    for step in (1.0, 100.0):
        writer = TraceWriter(tmp_path / f"{step}.msgpack")
        record_ops(writer, repeat=25, step=step)
        sizes[step] = (tmp_path / f"{step}.msgpack.partial").stat().st_size
        writer.close()
    assert sizes[1.0] == 0
    assert sizes[100.0] > 1000


def test_equal_runs_are_equal_bytes(tmp_path, small):
    paths = [tmp_path / name for name in ("a.msgpack", "b.msgpack")]
    for path in paths:
        record_all(TraceWriter(path), small, repeat=30)
    assert paths[0].read_bytes() == paths[1].read_bytes()


def test_any_msgpack_reader_sees_frames(demo):
    with demo[0].open("rb") as file:
        frames = list(msgpack.Unpacker(file, strict_map_key=False))
    assert all(isinstance(head, dict) for _, head, _ in frames)
    assert all(isinstance(body, bytes) for _, _, body in frames)
    assert (frames[0][0], frames[-1][0]) == ("kernbench-trace", "end")
    assert frames[0][1]["version"] == [1, 1]


def test_bodies_are_aligned(trace):
    by_tag = FrameFile(trace.path).by_tag
    frames = [frame for frames in by_tag.values() for frame in frames]
    assert {frame.start % 8 for frame in frames if frame.size} == {0}


def test_a_run_without_ops_is_a_trace(writer, small):
    writer.begin({}, small)
    writer.end(0.0)
    trace = touch(Trace.open(writer.path))
    assert (len(trace.ops), len(trace.executable), trace.end_ns) == (0, 0, 0.0)
    assert trace.complete


def test_an_empty_alloc_of_a_region_needs_no_graph(writer):
    writer.alloc(shard(tensor=HBM.space, owner=""))
    assert reopened(writer).allocs[0].owner == ""


def test_begin_comes_once_and_first(writer, small):
    writer.text(0.0, 0, "print", "x")
    with pytest.raises(KernbenchError, match="begin once"):
        writer.begin({}, small)
