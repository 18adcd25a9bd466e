"""Values that a trace says and that cannot be are refused where they are decoded."""

import csv
import json
import signal
import tracemalloc
from contextlib import suppress
from operator import methodcaller

import msgpack
import numpy as np
import pytest
from fuzz import frames_of, packed
from mutants import (
    body_of,
    leaves_of,
    read_block,
    schemas_of,
    set_body,
    store,
    values_of,
    write_block,
)
from recordings import record_all

from kernbench.common.dtypes import DTYPES
from kernbench.common.progress import no_progress
from kernbench.common.texts import LONGEST
from kernbench.errors import KernbenchError, TraceFormatError
from kernbench.replay import ReplaySession
from kernbench.replay.index import Index
from kernbench.replay.plain import as_data
from kernbench.replay.text import grid_text
from kernbench.runtime_api import run_bench
from kernbench.trace import Trace, TraceWriter
from kernbench.trace.schema import pack

ONE_CUBE = {"sip.cube_mesh.w": 1, "sip.cube_mesh.h": 1, "system.sips.count": 1}


@pytest.fixture(scope="module")
def softmax(tmp_path_factory):
    """The frames of a small run that can be executed."""
    path = tmp_path_factory.mktemp("damaged") / "softmax.msgpack"
    sizes = {"m": 4, "n": 16, "block": 2, "pes": 1}
    run_bench("softmax", params=sizes, spec=ONE_CUBE, trace=path)
    return path.read_bytes()


@pytest.fixture
def damaged(softmax, tmp_path):
    """``damaged(change)``: the trace after ``change(frames)``."""

    def opened(change):
        frames = frames_of(softmax)
        change(frames)
        path = tmp_path / "damaged.msgpack"
        path.write_bytes(packed(frames))
        return Trace.open(path)

    return opened


class _Frames:
    """Frames, as ``schemas_of`` wants them."""

    def __init__(self, frames):
        self.frames = frames

    def tagged(self, tag):
        return [frame for frame in self.frames if frame[0] == tag]


def with_param(op, leaf, number):
    """A change: the number at the path of a leaf is another in all ops of a name."""

    def change(frames):
        for (_, name, fields), blocks in schemas_of(_Frames(frames)):
            paths = [
                field + path for field, tree in fields for path, _ in leaves_of(tree)
            ]
            if name == op and leaf in paths:
                for frame, entry in blocks:
                    leaves = read_block(frame, entry)
                    at = paths.index(leaf)
                    leaves[at] = np.full(len(leaves[at]), number)
                    write_block(frame, entry, leaves)

    return change


def with_column(tag, name, number):
    """A change: the first value of a column is another."""

    def change(frames):
        for frame in frames:
            if frame[0] == tag:
                values, entry = values_of(frame, frame[1], name)
                if number == 1 << 60:  # the column may be too narrow for it
                    values = values.astype(np.uint64)
                values[0] = number
                store(frame, entry, values)

    return change


BEYOND = np.uint64(1 << 60)


@pytest.mark.parametrize(
    ("leaf", "number"),
    [
        ("dst_addr", BEYOND),
        ("input_shapes.0.0", np.int64(-3)),
        ("shape_out.1", BEYOND),
        ("axis", np.int64(1 << 40)),
        ("dtype", np.uint64(0)),
    ],
)
def test_a_param_that_cannot_be_is_named_with_its_op(damaged, leaf, number):
    trace = damaged(with_param("max", leaf, number))
    position = next(at for at in range(len(trace.order)) if named(trace, at) == "max")
    why = rf"op {position} max: {leaf.partition('.')[0]} "
    with pytest.raises(TraceFormatError, match=why):
        _ = trace.ops[position]
    with pytest.raises(TraceFormatError, match=why):
        _ = [block.values for block in trace.param_blocks()]


def named(trace, position):
    return trace.strings[int(trace.op_columns.name[trace.order[position]])]


def test_an_op_whose_operands_do_not_fit_says_which_param(damaged):
    session = ReplaySession(damaged(with_param("max", "axis", np.int64(5))))
    with pytest.raises(KernbenchError, match=r"max.*cannot be executed: input_shapes"):
        session.run_line("verify")


def with_one_leaf(letter, kind="math"):
    """A change: of each max, now of a kind, the shape of its result is one value."""

    def change(frames):
        for schema, blocks in schemas_of(_Frames(frames)):
            _, name, fields = schema
            if name != "max":
                continue
            schema[0] = kind
            for at, (field, _) in enumerate(fields):
                if field == "shape_out":
                    before = sum(len(leaves_of(tree)) for _, tree in fields[:at])
                    for frame, entry in blocks:
                        leaves = read_block(frame, entry)
                        del leaves[before + 1]
                        write_block(frame, entry, leaves)
                    fields[at][1] = letter

    return change


def test_a_number_in_the_place_of_a_shape_is_exported_as_it_is(damaged, tmp_path):
    trace = damaged(with_one_leaf("i", "own"))  # of a kind that nobody knows
    ReplaySession(trace).run_line(f"export csv {tmp_path}/tables")
    with open(tmp_path / "tables" / "ops.csv", encoding="utf-8", newline="") as file:
        shapes = {row["name"]: row["shape"] for row in csv.DictReader(file)}
    assert shapes["max"] == "2"


def test_params_of_no_op_hide_none_that_are_wrong(damaged):
    def change(frames):
        with_param("max", "shape_out.0", -1)(frames)
        names = [name for (_, name, _), _ in schemas_of(_Frames(frames))]
        for frame in frames:
            if frame[0] == "ops":
                schema, _ = values_of(frame, frame[1], "schema")
                params, entry = values_of(frame, frame[1], "param")
                params[schema == names.index("max")] = 1
                store(frame, entry, params)

    trace = damaged(change)
    with pytest.raises(TraceFormatError, match="max: shape_out is"):
        list(map(methodcaller("columns", "i"), trace.param_blocks()))


def test_a_text_in_the_place_of_a_shape_breaks_no_command(damaged):
    session = ReplaySession(damaged(with_one_leaf("s")))
    for line in ("memory", "hazards", "divergence", "find shape=2x1", "blame y"):
        with pytest.raises(TraceFormatError, match="max: shape_out is"):
            session.run_line(line)


@pytest.mark.parametrize(
    ("tag", "name", "number", "why"),
    [
        ("alloc", "nbytes", 1 << 40, "nbytes of allocation 0 is"),
        ("alloc", "shape0", 77, "its shape and dtype say"),
        ("alloc", "rank", 0, "its shape and dtype say"),
        ("ops", "nbytes", 1 << 60, "more than there are addresses"),
        ("transfers", "nbytes", 1 << 60, "more than there are addresses"),
        ("ops", "t_end", -1.0, "a t_end is before its t_start"),
        ("ops", "t_start", 1e300, "column t_start holds"),
        ("commands", "t_issue", float("nan"), "column t_issue holds nan"),
        ("launches", "t_end", 0.0, "a t_end is before its t_start"),
    ],
)
def test_a_frame_of_values_that_cannot_be_is_skipped(damaged, tag, name, number, why):
    trace = damaged(with_column(tag, name, number))
    (damage,) = trace.check()
    assert damage.tag == tag
    assert why in damage.reason


def test_an_array_of_2_to_the_64_bytes_is_not_believed(damaged):
    """Numpy takes it for one of none, and whoever reads it ends the process."""

    def change(frames):
        for frame in frames:
            if frame[0] == "tensors":
                shapes, entry = values_of(frame, frame[1], "shape")
                shapes = shapes.astype(np.uint64)
                shapes[:2] = (1 << 31, 1 << 33)
                store(frame, entry, shapes)

    trace = damaged(change)
    with pytest.raises(TraceFormatError, match="tensor 0 is not in the file"):
        trace.tensor(0)
    assert "array 0" in trace.damaged[0].reason


def test_an_error_that_is_no_text_is_none(damaged):
    def change(frames):
        frames[-1][1]["error"] = 7

    trace = damaged(change)
    assert not trace.complete
    assert "no text" in trace.damaged[0].reason


def test_a_trace_without_ops_answers(damaged):
    trace = damaged(
        lambda frames: frames.remove(next(f for f in frames if f[0] == "ops"))
    )
    session = ReplaySession(trace)
    tensor = trace.allocs[0].tensor
    answered = []
    for line in ("info", f"blame {tensor}", "roofline", "busiest", "critical"):
        with suppress(KernbenchError):
            json.dumps(as_data(session.run_line(line)))
            answered.append(line)
    assert "info" in answered
    assert len(trace.ops) == 0
    output = trace.expects[0].tensor
    compared = Index(trace).grids.compared(-1, output, no_progress)
    assert compared.row_elements == 16


def test_without_anything_that_happened_nothing_can_be_faster(damaged):
    def change(frames):
        kept = ("ops", "commands", "launches", "transfers", "waits")
        frames[:] = [frame for frame in frames if frame[0] not in kept]

    session = ReplaySession(damaged(change))
    assert session.run_line("whatif").gains == ()


def test_operands_without_a_memory_take_as_long_as_recorded(damaged):
    def change(frames):
        for (_, name, fields), blocks in schemas_of(_Frames(frames)):
            named = [field for field, _ in fields]
            if name == "max":
                at = named.index("input_spaces")
                before = sum(len(leaves_of(tree)) for _, tree in fields[:at])
                for frame, entry in blocks:
                    leaves = read_block(frame, entry)
                    del leaves[before]
                    write_block(frame, entry, leaves)
                del fields[at]

    predicted = ReplaySession(damaged(change)).run_line("whatif pe.clock_ghz=2")
    assert predicted.predicted_ns <= predicted.end_ns


def test_launches_of_no_time_have_a_window(damaged):
    def change(frames):
        for frame in frames:
            if frame[0] == "launches":
                for name in ("t_issue", "t_start", "t_end"):
                    values, entry = values_of(frame, frame[1], name)
                    store(frame, entry, np.full(len(values), 5.0))

    session = ReplaySession(damaged(change))
    assert session.launch_window() == (5.0, 6.0)
    session.run_line("busiest")
    session.run_line("roofline")


def test_more_memory_than_there_is_is_refused_before_it_is_taken(damaged):
    def change(frames):
        """One tensor is a quarter of a PiB, as its size says, too."""
        for frame in frames:
            if frame[0] == "alloc":
                for name, number in (
                    ("rank", 2),
                    ("shape0", 1 << 24),
                    ("shape1", 1 << 22),
                    ("origin0", 0),
                    ("origin1", 0),
                    ("addr", 0),
                    ("nbytes", 1 << 47),
                ):
                    values, entry = values_of(frame, frame[1], name)
                    values[0] = number
                    store(frame, entry, values)

    trace = damaged(change)
    (first, *_) = trace.allocs
    assert first.nbytes == 1 << 47
    with pytest.raises(KernbenchError, match=r"takes [\d,]+ bytes of memory"):
        ReplaySession(trace).run_line(f"memory {first.tensor}")


# -- texts -------------------------------------------------------------------------

LONG = "x" * (10 * LONGEST)


def test_a_text_that_is_too_long_is_cut_when_it_is_written(tmp_path):
    writer = TraceWriter(tmp_path / "x.msgpack")
    writer.text(1.0, 1, "print", LONG)
    writer.end(2.0, LONG)
    frames = frames_of((tmp_path / "x.msgpack").read_bytes())
    texts = [
        text for frame in frames if frame[0] == "strings" for text in texts_of(frame)
    ]
    assert max(map(len, texts)) == LONGEST
    trace = Trace.open(tmp_path / "x.msgpack")
    assert trace.texts[0].message.endswith(f"({len(LONG):,} characters)")
    assert len(trace.end["error"]) == LONGEST


def test_kernel_lines_are_soon_found_in_a_long_error(tmp_path):
    """Where each letter of a long word could begin one it took 11 s."""
    writer = TraceWriter(tmp_path / "x.msgpack")
    writer.end(2.0, f"{'x' * (LONGEST - 100)} kernels.py:7")
    signal.alarm(5)
    try:
        found = ReplaySession(Trace.open(tmp_path / "x.msgpack")).run_line("diagnose")
    finally:
        signal.alarm(0)
    assert as_data(found)[0]["lines"] == ["kernels.py:7"]


def test_a_text_that_is_too_long_is_cut_when_it_is_read(damaged):
    def change(frames):
        for frame in frames:
            if frame[0] == "strings":
                set_body(frame, pack([LONG, *texts_of(frame)[1:]]))

    assert len(damaged(change).strings[0]) == LONGEST


def texts_of(frame):
    return msgpack.unpackb(bytes(body_of(frame)))


def test_a_long_type_of_nodes_is_not_kept_for_every_component(damaged):
    def change(frames):
        for frame in frames:
            if frame[0] == "strings":
                texts = texts_of(frame)
                set_body(frame, pack([LONG if x == "router" else x for x in texts]))

    trace = damaged(change)
    assert max(map(len, trace.nodes.type)) == LONGEST
    index = Index(trace)
    tracemalloc.start()
    try:
        assert len(index.activity.used()) > 10
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 16 << 20


def test_a_tensor_without_elements_has_a_grid():
    nothing = np.zeros((3, 0))
    assert grid_text(nothing, 12, 80)[-1].split() == ["2"]


def test_a_tensor_without_elements_takes_no_memory_as_data():
    nothing = np.zeros((32_773, 1 << 20, 0))
    assert as_data(nothing) == []


def test_numbers_that_take_too_much_as_data_are_refused():
    many = np.broadcast_to(np.float32(0), (1 << 40, 1))
    with pytest.raises(KernbenchError, match="1,099,511,627,776 numbers as data"):
        as_data(many)


def test_shards_of_different_axes_are_no_tensor_that_can_be_compared(tmp_path):
    sizes = {"m": 4, "n": 16, "block": 2, "pes": 2}
    whole = tmp_path / "whole.msgpack"
    run_bench("softmax", params=sizes, spec=ONE_CUBE, trace=whole)
    frames = frames_of(whole.read_bytes())
    for frame in frames:
        if frame[0] == "alloc":
            for name, number in (("rank", 1), ("shape0", 32)):
                values, entry = values_of(frame, frame[1], name)
                values[0] = number
                store(frame, entry, values)
    flat = tmp_path / "flat.msgpack"
    flat.write_bytes(packed(frames))
    with pytest.raises(TraceFormatError, match="they are no parts of one tensor"):
        ReplaySession(Trace.open(whole)).run_line(f"compare {flat}")


@pytest.mark.parametrize(
    ("rows", "row_bytes", "why"),
    [
        (1 << 40, 0, "a DMA at most"),
        (1 << 40, 1, "a DMA at most"),
        (32, 128, "4096 bytes of an op that moves 8192"),
        (0, 128, "0 bytes of an op that moves 8192"),
    ],
)
def test_a_block_of_a_tile_that_is_no_rows_is_refused(tmp_path, rows, row_bytes, why):
    path = tmp_path / "matmul.msgpack"
    sizes = {"m": 16, "k": 128, "n": 128, "tile": 64, "pes": 1}
    run_bench("matmul", params=sizes, spec=ONE_CUBE, trace=path)
    frames = frames_of(path.read_bytes())
    read = "TileToken/DMA_READ"
    with_param(read, "rows.1", np.int64(rows))(frames)
    with_param(read, "row_bytes.1", np.int64(row_bytes))(frames)
    path.write_bytes(packed(frames))
    session = ReplaySession(Trace.open(path))
    ops = range(len(session.trace.order))
    position = next(op for op in ops if named(session.trace, op) == read)
    with pytest.raises(TraceFormatError, match=why):
        session.index.memory.touches(position)
    with pytest.raises(TraceFormatError, match=why):
        session.memory(position)


@pytest.mark.parametrize(
    "spaces", ["x" * 70_000, ["tcm", "hbm", "tcm"], 7], ids=["text", "twice", "number"]
)
def test_kinds_of_memory_that_are_no_list_of_names_are_refused(damaged, spaces):
    def change(frames):
        for tag, head, _ in frames:
            if tag == "alloc":
                head["spaces"] = spaces

    trace = damaged(change)
    assert len(trace.allocs) == 0
    assert {damage.tag for damage in trace.damaged} == {"alloc"}


REPLICATED = """
from kernbench.benches import bench
from kernbench.runtime_api import DPPolicy

def kernel(x_ptr, tl):
    tl.store(x_ptr, tl.zeros((8,), "f32"))

@bench(name="replicated", description="each PE writes its copy of x")
def run(torch):
    everywhere = DPPolicy(cube="replicate", pe="replicate", num_cubes=1, num_pes=2)
    x = torch.empty((8,), "f32", everywhere, "x")
    torch.launch("replicated", kernel, x)
"""


def test_copies_of_a_tensor_that_differ_in_size_are_not_compared(tmp_path):
    (tmp_path / "replicated.py").write_text(REPLICATED)
    path = tmp_path / "copies.msgpack"
    run_bench(str(tmp_path / "replicated.py"), spec=ONE_CUBE, trace=path)
    frames = frames_of(path.read_bytes())
    for change in (
        with_column("alloc", "shape0", 4),
        with_column("alloc", "nbytes", 16),
    ):
        change(frames)
    path.write_bytes(packed(frames))
    session = ReplaySession(Trace.open(path))
    session.to_end()
    assert session.run_line("memory x").note == ""


def test_a_part_without_elements_is_no_copy_of_one_that_has_some(tmp_path):
    whole = tmp_path / "whole.msgpack"
    sizes = {"m": 4, "n": 16, "block": 2, "pes": 2}
    run_bench("softmax", params=sizes, spec=ONE_CUBE, trace=whole)
    frames = frames_of(whole.read_bytes())
    for frame in frames:
        if frame[0] == "alloc":
            for name, first, second in (("shape0", 4, 0), ("origin0", 0, 0)):
                values, entry = values_of(frame, frame[1], name)
                values[:2] = first, second
                store(frame, entry, values)
            values, entry = values_of(frame, frame[1], "nbytes")
            values[:2] = 2 * values[0], 0
            store(frame, entry, values)
    less = tmp_path / "less.msgpack"
    less.write_bytes(packed(frames))
    session = ReplaySession(Trace.open(whole))
    assert not session.run_line(f"compare {less}").ok


def test_without_a_machine_a_message_ends_nowhere(tmp_path):
    path = tmp_path / "matmul.msgpack"
    sizes = {"m": 16, "k": 16, "n": 16, "tile": 16, "pes": 1}
    run_bench("matmul", params=sizes, spec=ONE_CUBE, trace=path)
    frames = [frame for frame in frames_of(path.read_bytes()) if frame[0] != "topology"]
    frames = [frame for frame in frames if frame[0] != "strings"]
    path.write_bytes(packed(frames))
    session = ReplaySession(Trace.open(path))
    assert not session.trace.node_ids
    with pytest.raises(KernbenchError):
        session.run_line("route launch 0")
    with pytest.raises(KernbenchError, match="none was recorded"):
        session.run_line("route credit 0")


@pytest.mark.parametrize("line", ["whatif pe.clock_ghz=2", "whatif", "bound"])
@pytest.mark.slow
def test_an_op_without_the_params_of_its_kind_takes_as_long_as_recorded(tmp_path, line):
    path = tmp_path / "own.msgpack"
    record_all(TraceWriter(path), None)
    session = ReplaySession(Trace.open(path))
    session.goto(0)
    with suppress(KernbenchError):
        assert json.dumps(as_data(session.run_line(line)))


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("line", ["whatif pe.clock_ghz=2", "bound"])
def test_links_that_are_lost_serve_nobody(tmp_path, line):
    path = tmp_path / "matmul.msgpack"
    sizes = {"m": 32, "k": 32, "n": 32, "tile": 16, "pes": 2}
    run_bench("matmul", params=sizes, spec=ONE_CUBE, trace=path)
    frames = frames_of(path.read_bytes())
    for frame in frames:
        if frame[0] == "topology":
            values, entry = values_of(frame, frame[1]["edges"], "src")
            values[:] = 0
            store(frame, entry, values)
    path.write_bytes(packed(frames))
    session = ReplaySession(Trace.open(path))
    session.goto(4)
    with suppress(KernbenchError):
        assert json.dumps(as_data(session.run_line(line)))


@pytest.fixture(scope="module")
def tiles(tmp_path_factory):
    """A small run with tiles in the array, as bytes."""
    path = tmp_path_factory.mktemp("tiles") / "matmul.msgpack"
    sizes = {"m": 32, "k": 32, "n": 32, "tile": 16, "pes": 2}
    run_bench("matmul", params=sizes, spec=ONE_CUBE, trace=path)
    return path.read_bytes()


def with_schema_of(frames, row, other):
    """Give an op the schema of another; True if they had two."""
    (frame,) = (frame for frame in frames if frame[0] == "ops")
    values, entry = values_of(frame, frame[1], "schema")
    if values[row] == values[other]:
        return False
    values[row] = values[other]
    store(frame, entry, values)
    return True


@pytest.mark.slow
@pytest.mark.parametrize("most", [8, pytest.param(1000, marks=pytest.mark.soak)])
def test_an_op_of_a_move_that_says_it_is_a_tile_is_re_timed(tiles, tmp_path, most):
    seen = set()
    (ops,) = (frame for frame in frames_of(tiles) if frame[0] == "ops")
    schemas = values_of(ops, ops[1], "schema")[0].tolist()
    for row, mine in enumerate(schemas):
        for other, wanted in enumerate(schemas):
            if mine == wanted or (mine, wanted) in seen or len(seen) == most:
                continue
            seen.add((mine, wanted))
            frames = frames_of(tiles)
            assert with_schema_of(frames, row, other)
            path = tmp_path / "damaged.msgpack"
            path.write_bytes(packed(frames))
            session = ReplaySession(Trace.open(path))
            with suppress(KernbenchError):
                assert json.dumps(as_data(session.run_line("whatif")))
    assert len(seen) > 6


def test_a_run_that_took_no_time_cannot_end_sooner(damaged):
    def change(frames):
        (end,) = (frame for frame in frames if frame[0] == "end")
        end[1]["end_ns"] = 0.0

    found = ReplaySession(damaged(change)).run_line("diagnose")
    assert not any("sooner" in row.title for row in found)


def test_a_tensor_without_axes_goes_by_its_name(damaged):
    def change(frames):
        sizes = np.array([row.itemsize for row in DTYPES.values()])
        for frame in frames:
            if frame[0] == "alloc":
                dtypes, _ = values_of(frame, frame[1], "dtype")
                for name, values in (("rank", 0 * dtypes), ("nbytes", sizes[dtypes])):
                    before, entry = values_of(frame, frame[1], name)
                    store(frame, entry, values.astype(before.dtype))

    trace = damaged(change)
    assert {shard.shape for shard in trace.allocs} == {()}
    names = Index(trace).slices.names.of(np.arange(len(trace.ops)))
    assert {"x", "y"} <= set(names)
