"""To add something, one touches the files that "To add one of these" says, no others.

Each test adds a thing to a copy of the tree as a contributor would, uses it there from
the command line or the screen, runs the tests that go through its table, and counts the
files that differ. They are those that ``kernbench doc architecture`` names.
"""

from __future__ import annotations

import json
import re
import textwrap

import pytest
from checkout import ROOT, Checkout

from kernbench import docs

pytestmark = pytest.mark.slow


@pytest.fixture
def checkout(tmp_path):
    """A copy of the tree."""
    return Checkout(tmp_path)


def said_of(thing):
    """The files and folders that are touched to add a thing, as the documents say."""
    _before, _, after = docs.page("architecture").partition("## To add one of these")
    section, _, _after = after.partition("\n## ")
    items = re.split(r"\n- ", section)
    (item,) = [item for item in items if item.startswith(f"{thing}: ")]
    return set(re.findall(r"`([\w.]+/[\w./]*)`", item))


# -- an op -----------------------------------------------------------------------------

OPS = "kernbench/sim_engine/numpy_ops.py"
OP_CASES = "tests/op_cases.py"
OP_ROWS = {
    "a unary call, and a step of an epilogue": """\
    OpSpec("square", np.square, 1, unary, "x * x.", epilogue=True, ulps=0.5),
""",
    "a binary call, and a Python operator": """\
    OpSpec("fmod", np.fmod, 2, binary, "The rest of a / b.", operator="mod"),
""",
    "a reduction": """\
    OpSpec(
        "spread",
        np.ptp,
        1,
        reduction,
        "The largest minus the smallest over ``axis``.",
        form=REDUCTION,
        ulps=0.5,
    ),
""",
    "a step of an epilogue alone": """\
    OpSpec("floor_at", np.maximum, 2, epilogue=True),
""",
}
CASES = """\
    "square": OpCase((X,), [0.0625, 1, 16], np.square),
    "fmod": OpCase((X, Y), [0.25, 0, 0], np.fmod, positive=True, selects=True),
    "spread": OpCase((Y,), 3, np.ptp, selects=True),
    "floor_at": OpCase((Y, 0.5), [2, 0.5, 0.5], np.maximum, selects=True),
"""
BENCH_OF_NEW_OPS = """
import numpy as np

from kernbench.benches import bench


def kernel(x_ptr, y_ptr, z_ptr, tl):
    x = tl.load(x_ptr, (8, 8), "f32")
    tl.store(y_ptr, tl.spread(tl.square(x) % 5.0, axis=1))
    tl.wait(tl.composite(a=x, b=x, out_ptr=z_ptr, epilogue=["square", ("floor_at", 2)]))


@bench(name="new_ops", description="the ops that are new")
def run(torch):
    data = torch.rng.integers(-4, 5, (8, 8)).astype("f4")
    x = torch.tensor(data, "f32", name="x")
    y = torch.empty((8,), "f32", name="y")
    z = torch.empty((8, 8), "f32", name="z")
    torch.launch("new_ops", kernel, x, y, z)
    torch.expect(y, np.ptp(np.fmod(data**2, 5), axis=1))
    torch.expect(z, np.maximum((data @ data) ** 2, 2))
"""


def test_an_op_of_any_kind_is_its_row_and_its_test_case(checkout, tmp_path):
    for row in OP_ROWS.values():
        checkout.add_row(OPS, "_ROWS", row)
    checkout.add_row(OP_CASES, "OP_CASES", CASES)
    own_bench = tmp_path / "new_ops.py"
    own_bench.write_text(BENCH_OF_NEW_OPS)
    trace = str(tmp_path / "new_ops.msgpack")

    # Phase 1 runs them, and Phase 2 finds the data right, beside the oracle as well.
    ran = checkout.kernbench("run", str(own_bench), "--trace", trace, "--debug")
    assert re.search(r"^y +f32 +8 +ok ", ran, re.MULTILINE), ran
    assert re.search(r"^z +f32 +64 +ok ", ran, re.MULTILINE), ran

    # the trace shows them, and from what their results are made
    ops = checkout.kernbench("trace", "ops", trace, "--where", "kind=math")
    assert [name for name in ("square", "fmod", "spread") if name not in ops] == []
    blame = checkout.kernbench("trace", "blame", trace, "y[3]")
    assert "spread" in blame
    calls = checkout.kernbench("doc", "tl")
    assert re.search(r"^    square\(x.* x \* x\.$", calls, re.MULTILINE)

    new = "square or fmod or spread or floor_at or every"
    of_the_table = ("test_numpy_ops", "test_read_elements", "test_new_op")
    files = [f"tests/sim_engine/{name}.py" for name in of_the_table]
    files.append("tests/triton_emu/test_tl_oracle.py")
    assert (
        checkout.passes(*files, "-k", f"{new} or elementwise or outside_its_row") > 10
    )
    assert checkout.is_clean()
    assert checkout.changed() == {OPS, OP_CASES}
    assert checkout.touched() == said_of("an op of any kind")


# -- components ------------------------------------------------------------------------

PATIENT_GEMM = '''\
"""A GEMM array that takes a microsecond for anything."""

import simpy

from kernbench.common.messages import MsgBase
from kernbench.components.base import Process
from kernbench.components.builtin.pe_gemm import PeGemm


class PatientGemm(PeGemm):
    """Takes a microsecond for any product."""

    def run(self, env: simpy.Environment, msg: MsgBase) -> Process:
        """Pay a microsecond."""
        yield env.timeout(1000.0)
'''
MATMUL = ("run", "matmul", "--set", "m=64", "k=64", "n=64", "pes=1", "--json")


def test_a_model_of_a_component_is_one_class_and_impl_in_yaml(checkout):
    checkout.add_file("kernbench/components/builtin/patient_gemm.py", PATIENT_GEMM)
    machine = checkout.kernbench("info", "--topology")
    ours = "    impl: pe_gemm\n"
    patient = "kernbench.components.builtin.patient_gemm:PatientGemm"
    assert machine.count(ours) == 1
    changed = machine.replace(ours, f"    impl: {patient!r}\n")
    checkout.add_file("my_machine.yaml", changed)

    before = json.loads(checkout.kernbench(*MATMUL))
    options = ("--topology", "my_machine.yaml", "--trace", "out.msgpack")
    after = json.loads(checkout.kernbench(*MATMUL, *options))
    assert after["ok"]
    assert after["end_ns"] > before["end_ns"] + 500
    (checkout.root / "out.msgpack").unlink()
    assert checkout.is_clean()
    assert checkout.changed() == {
        "kernbench/components/builtin/patient_gemm.py",
        "my_machine.yaml",
    }
    assert said_of("a component's model") == set()


PE_SHUFFLE = '''\
"""The shuffling network of a PE."""

from dataclasses import dataclass
from typing import ClassVar

import simpy

from kernbench.common.messages import MsgBase, Region
from kernbench.components.base import ComponentBase, Process


@dataclass(slots=True, eq=False, kw_only=True)
class ShuffleCmd(MsgBase):
    """A tensor into another order."""

    data_op: ClassVar[bool] = True
    served_by: ClassVar[str] = "pe_shuffle"
    src: Region
    dst: Region
    n: int


class PeShuffle(ComponentBase):
    """A nanosecond an element."""

    serves = (ShuffleCmd,)

    def run(self, env: simpy.Environment, msg: ShuffleCmd) -> Process:
        """Pay for all elements."""
        yield env.timeout(msg.n)
'''
SHUFFLE_ON_A_PE = """
from kernbench.common.messages import Region
from kernbench.components.builtin.pe_shuffle import ShuffleCmd
from kernbench.sim_engine.engine import GraphEngine
from kernbench.topology import load_topology

engine = GraphEngine(load_topology(None, {"sips.count": 1}))
scheduler = engine.sim.component(engine.graph.at(0, 0, 3, "pe_scheduler"))
here = Region("tcm", 0, (16,), "f16", 32)
scheduler.dispatch(ShuffleCmd(src=here, dst=here, n=16))
engine.env.run()
(record,) = engine.op_log
print(record.component_id, f"{record.t_end - record.t_start:g} ns")
"""


def test_a_kind_of_component_is_a_class_a_registry_row_and_the_spec(checkout, tmp_path):
    registry = "kernbench/components/registry.py"
    kinds = "kernbench/topology/kinds.py"
    machine = "kernbench/configs/topology.yaml"
    checkout.add_file("kernbench/components/builtin/pe_shuffle.py", PE_SHUFFLE)
    checkout.insert_before(
        registry,
        "from kernbench.components.builtin.pe_tcm",
        "from kernbench.components.builtin.pe_shuffle import PeShuffle\n",
    )
    checkout.add_row(registry, "COMPONENTS", '    "pe_shuffle": PeShuffle,\n')
    row = '    PeEngine("pe_shuffle", "pe_shuffle", cell=(3, 1), links=("pe_tcm",)),\n'
    checkout.add_row(kinds, "NODE_KINDS", row)
    checkout.append(machine, "  pe_shuffle: {impl: pe_shuffle}\n")

    # each PE has one, which serves what a kernel would have it do
    assert checkout.python(SHUFFLE_ON_A_PE) == "sip0.cube0.pe3.pe_shuffle 16 ns\n"

    # a run's trace has them, and another model is chosen by a field of the spec
    trace = str(tmp_path / "out.msgpack")
    checkout.kernbench(*MATMUL, "--trace", trace, "--spec", "pe_shuffle.impl=transit")
    nodes = f"from kernbench.trace import Trace; print(Trace.open({trace!r}).node_ids)"
    assert "'sip0.cube0.pe3.pe_shuffle'" in checkout.python(nodes)

    contract = "tests/components/test_component_contract.py"
    spec = "tests/topology/test_topology_spec.py"
    assert checkout.passes(contract, spec, "-k", "pe_shuffle or every or shipped") > 6
    assert checkout.is_clean()
    assert checkout.changed() == {
        "kernbench/components/builtin/pe_shuffle.py",
        registry,
        kinds,
        machine,
    }
    assert checkout.touched() == said_of("a kind of component")


# -- a pane ----------------------------------------------------------------------------

CLOCK_PANE = '''\
"""Pane 9: the time of the op, and how long it took."""

from __future__ import annotations

from dataclasses import dataclass

from kernbench.replay.commands import OP
from kernbench.replay.index import Index
from kernbench.replay.query import Query
from tui.panes.base import (
    Answers,
    BasePane,
    Change,
    Event,
    Frame,
    Picture,
    before_first_op,
)


@dataclass(frozen=True, slots=True)
class ClockState:
    """Nothing can be picked here."""


class ClockPane(BasePane[ClockState]):
    """What the op is, in a line."""

    def __init__(self, index: Index) -> None:
        self._index = index

    def start(self) -> ClockState:
        """The only state."""
        return ClockState()

    def update(
        self, state: ClockState, event: Event, frame: Frame, answers: Answers
    ) -> Change[ClockState] | None:
        """No event changes anything."""
        return None

    def queries(
        self, state: ClockState, frame: Frame, answers: Answers
    ) -> tuple[Query, ...]:
        """All that is recorded of the op."""
        return () if frame.cursor < 0 else (OP.ask(frame.cursor),)

    def render(self, state: ClockState, frame: Frame, answers: Answers) -> Picture:
        """Its first line."""
        if frame.cursor < 0:
            return Picture((before_first_op(len(self._index.ops)),))
        details = answers.of(OP.ask(frame.cursor))
        return Picture(([(details.lines(frame.width)[0], "title")],))
'''
CLOCK_ROW = """\
    PaneRow(
        "clock",
        9,
        "Clock",
        ClockPane,
        "shared",
        shows="the time of the op",
    ),
"""
PRESS_9 = """
import asyncio
from pathlib import Path

from tui.__main__ import open_session
from tui.ansi import screen_lines
from tui.app import KernbenchApp


async def play():
    session = open_session(Path("traces/matmul.msgpack"), 20)
    app = KernbenchApp(session, "matmul")
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("9")
        shown = []
        for _ in range(100):
            await pilot.pause(0.05)
            shown = screen_lines(app.screen)
            if any("op 20  composite_gemm" in line for line in shown):
                break
        print(*shown, sep="\\n")
        print("== palette")
        for command in app.get_system_commands(app.screen):
            print(command.title)
        await pilot.press("question_mark")
        print("== help")
        for _ in range(4):
            await pilot.pause()
            print(*screen_lines(app.screen), sep="\\n")
            await pilot.press("pagedown")


asyncio.run(play())
"""


def test_a_pane_is_one_file_and_one_row(checkout):
    table = "tui/panes/__init__.py"
    checkout.add_file("tui/panes/clock.py", CLOCK_PANE)
    checkout.insert_before(
        table,
        "from tui.panes.details",
        "from tui.panes.clock import ClockPane\n",
    )
    checkout.add_row(table, "PANES", CLOCK_ROW)

    printed = checkout.python(PRESS_9)
    screen, _, more = printed.partition("== palette\n")
    palette, _, help_screen = more.partition("== help\n")
    assert "9 Clock" in screen
    assert "op 20  composite_gemm" in screen.partition("9 Clock")[2]
    assert "pane 9: pane 9: Clock" in palette
    assert re.search(r"9 +pane 9: Clock", help_screen)

    page = checkout.kernbench("doc", "debugger")
    assert "\n    9 Clock     the time of the op\n" in page
    assert re.search(r"^    9 +pane_9 +pane 9: Clock$", page, re.MULTILINE)

    files = ("tests/test_docs.py", "tests/tui/test_screen_snapshots.py")
    assert checkout.passes(*files, "-k", "are_listed or other_characters") == 3
    assert checkout.is_clean()
    assert checkout.changed() == {"tui/panes/clock.py", table}
    assert checkout.touched() == said_of("a pane")


# -- a command -------------------------------------------------------------------------

QUESTIONS = "kernbench/replay/questions.py"
COMMANDS = "kernbench/replay/commands.py"
COMPLETED = """
from kernbench.replay import ReplaySession
from kernbench.replay.commands import table_of_topics
from kernbench.replay.completion import candidates
from kernbench.trace import Trace

session = ReplaySession(Trace.open("traces/matmul.msgpack"))
print(candidates(session.index, session.state, "", "lo"))
print(session.run_line("longest 2"))
print(table_of_topics())
"""


def first_change():
    """The function and the row of the command that the contributors' guide adds."""
    guide = (ROOT / ".github/CONTRIBUTING.md").read_text(encoding="utf-8")
    shown = re.findall(r"(?:^ {8}.*\n|^\n)+", guide, re.MULTILINE)
    blocks = [textwrap.dedent(block).strip("\n") for block in shown]
    (function,) = [block for block in blocks if block.startswith("@dataclass")]
    (row,) = [block for block in blocks if block.startswith("LONGEST")]
    return function, row


def test_a_command_is_one_function_and_one_row(checkout):
    function, row = first_change()
    checkout.append(QUESTIONS, f"\n\n{function}\n")
    checkout.insert_before(COMMANDS, "COMMANDS: tuple", f"{row}\n\n")
    checkout.add_row(COMMANDS, "COMMANDS: tuple", "    LONGEST,\n")

    matmul = "traces/matmul.msgpack"
    answered = checkout.kernbench("trace", "longest", matmul, "2")
    assert [row.split()[0] for row in answered.splitlines()[-2:]] == ["5", "7"]
    assert "longest [N]" in checkout.kernbench("trace", "--help")
    assert "longest [N]" in checkout.kernbench("doc", "debugger")
    completed, typed = checkout.python(COMPLETED).split("\n", 1)
    assert completed == "['longest']"
    assert "host_write" in typed

    files = ("tests/replay/test_commands.py", "tests/test_readme.py")
    assert checkout.passes(*files, "-k", "longest or table_of_questions") > 2
    assert checkout.is_clean()
    assert checkout.changed() == {QUESTIONS, COMMANDS}
    assert checkout.touched() == said_of("a command")

    # the README lists it where its row says under which question
    topical = row.replace("    ABOUT_OP,\n", "    ABOUT_OP,\n    topic=_SLOW,\n")
    checkout.replace(COMMANDS, row, topical)
    assert "`longest`" in checkout.python(COMPLETED)


# -- an export format ------------------------------------------------------------------

JSON_LINES = '''\
"""Ops as JSON, a line each."""

from __future__ import annotations

import json
from pathlib import Path

from kernbench.common.progress import Progress
from kernbench.trace.reader import Trace


def export_json_lines(trace: Trace, path: Path, progress: Progress) -> dict[str, int]:
    """Write what each op was, where and when; how many there are."""
    progress(0.0)
    with open(path, "w", encoding="utf-8") as file:
        for op in trace.ops:
            row = [op.op_name, op.component_id, op.t_start, op.t_end]
            file.write(json.dumps(row) + "\\n")
    progress(1.0)
    return {"ops": len(trace.ops)}
'''


def test_an_export_format_is_one_file_and_one_row(checkout, tmp_path):
    table = "kernbench/trace/export/__init__.py"
    checkout.add_file("kernbench/trace/export/json_lines.py", JSON_LINES)
    checkout.insert_before(
        table,
        "from kernbench.trace.export.konata",
        "from kernbench.trace.export.json_lines import export_json_lines\n",
    )
    row = '    Exporter("jsonl", "ops as lines of JSON", export_json_lines, "file"),\n'
    checkout.add_row(table, "_ROWS", row)

    out = tmp_path / "ops.jsonl"
    matmul = "traces/matmul.msgpack"
    wrote = checkout.kernbench("trace", "export", matmul, "jsonl", "-o", str(out))
    ops = [json.loads(line) for line in out.read_text().splitlines()]
    assert len(ops) == 152
    assert f"{len(ops)} ops" in wrote
    assert "konata, jsonl" in checkout.kernbench("trace", "--help")

    tests = "tests/trace/export/test_exporters.py"
    assert checkout.passes(tests, "-k", "jsonl") > 8
    assert checkout.is_clean()
    assert checkout.changed() == {"kernbench/trace/export/json_lines.py", table}
    assert checkout.touched() == said_of("an export format")


# -- an all-reduce ---------------------------------------------------------------------

LINES_ALL_REDUCE = '''\
"""All-reduce along rows and columns in turn: to the end of each, and back."""

from __future__ import annotations

from typing import Any

from kernbench.ccl.kernels import Lane, Lanes, Peers, all_reduce_kernel
from kernbench.ccl.kernels import kernel_args as kernel_args
from kernbench.ccl.topologies import SIP_TOPO_MESH as SIP_TOPO_MESH
from kernbench.ccl.topologies import SIP_TOPO_RING as SIP_TOPO_RING
from kernbench.ccl.topologies import SIP_TOPO_TORUS as SIP_TOPO_TORUS
from kernbench.ccl.topologies import TOPO_NAME_TO_KIND as TOPO_NAME_TO_KIND


def _exchange(peers: Peers, acc: Any, sip_topo_kind: int, lanes: Lanes) -> None:
    """Every lane is a line, of a ring all links but one."""
    for lane in lanes:
        line = Lane.of(lane.size, lane.place, str(lane.ahead), str(lane.back))
        peers.merge(line.back, acc)
        peers.give(line.ahead, acc)
        peers.take(line.ahead, acc)
        peers.give(line.back, acc)


kernel = all_reduce_kernel(_exchange)
'''


def test_an_all_reduce_is_one_file_and_one_row(checkout):
    module = "kernbench/ccl/algorithms/lines_allreduce.py"
    table = "kernbench/configs/ccl.yaml"
    checkout.add_file(module, LINES_ALL_REDUCE)
    entry = "{module: kernbench.ccl.algorithms.lines_allreduce}"
    checkout.append(table, f"  lines_allreduce: {entry}\n")

    parameters = ("n_elem=40", "algorithm=lines_allreduce", "--json")
    ran = checkout.kernbench("run", "ccl_allreduce", "--set", *parameters)
    assert json.loads(ran)["ok"]

    tests = ("tests/ccl/test_ccl_config.py", "tests/benches/test_ccl_benches.py")
    assert checkout.passes(*tests, "-k", "lines_allreduce or shipped_file") == 3
    assert checkout.is_clean()
    assert checkout.changed() == {module, table}
    assert checkout.touched() == said_of("an all-reduce")


# -- a bench ---------------------------------------------------------------------------

AXPY = '''\
"""y = a x + y, rows over all PEs.

Exercises DMA and the MATH engine in turn. In its trace look at how long each waits for
the other.
"""

from typing import Any

from kernbench.benches.grid import Grid, Pes
from kernbench.runtime_api.registry import at_least_one, bench


def axpy_kernel(a: float, x: Any, y: Any, tl: Any) -> None:
    """One PE's rows."""
    rows, _ = tl.own(x)
    if rows:
        tl.store(y, a * tl.load(x) + tl.load(y))


@bench(name="axpy", description="y = a x + y")
def run(
    torch: Any, m: int = 512, n: int = 512, a: float = 2.0, pes: Pes = None
) -> None:
    """``m`` rows of ``n`` elements."""
    at_least_one(m=m, n=n)
    grid = Grid.of(torch, pes)
    data = torch.rng.integers(-4, 5, (2, m, n)).astype("f4")
    x = torch.tensor(data[0], "f32", grid.dp(), name="x")
    y = torch.tensor(data[1], "f32", grid.dp(), name="y")
    torch.launch("axpy", axpy_kernel, a, x, y)
    torch.expect(y, a * data[0] + data[1])
'''
AXPY_SIZES = """\
    "axpy": Sizes(
        uneven={"m": 37, "n": 50},
        wide={"m": 256, "n": 8},
    ),
"""


def test_a_bench_is_one_file_and_the_row_of_its_test(checkout, tmp_path):
    sizes = "tests/bench_sizes.py"
    checkout.add_file("kernbench/benches/axpy.py", AXPY)
    checkout.add_row(sizes, "BENCH_SIZES", AXPY_SIZES)

    assert checkout.kernbench("list").startswith("axpy  ")
    trace = str(tmp_path / "out.msgpack")
    small = ("--set", "m=40", "n=16", "pes=4", "--json", "--trace", trace)
    assert json.loads(checkout.kernbench("run", "axpy", *small))["ok"]
    assert "axpy_kernel" in checkout.kernbench("trace", "source", trace)

    tests = ("tests/benches/test_benches.py", "tests/test_readme.py")
    also = "every_bench_is_tested or benches_to_begin_with"
    assert checkout.passes(*tests, "-k", f"(axpy and not default) or {also}") > 8
    assert checkout.is_clean()
    assert checkout.changed() == {"kernbench/benches/axpy.py", sizes}
    assert checkout.touched() == said_of("a bench")
