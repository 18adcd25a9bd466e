"""The documents say what is so: what they show is run, what they name is there."""

import ast
import doctest
import inspect
import os
import re
import shlex
import subprocess
import sys
import textwrap
import tomllib
from operator import attrgetter
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from click.testing import CliRunner

import kernbench.errors
from kernbench import docs
from kernbench.cli import main
from kernbench.common.dtypes import DTYPES
from kernbench.common.dtypes import dtype as dtype_row
from kernbench.common.messages import WAIT_REASONS
from kernbench.common.near import instead_of
from kernbench.common.progress import no_progress
from kernbench.errors import UsageError
from kernbench.runtime_api import DPPolicy
from kernbench.runtime_api.torch import Torch
from kernbench.sim_engine.engine import GraphEngine
from kernbench.sim_engine.numpy_ops import NUMPY_OPS
from kernbench.topology import TopologySpec, load_topology
from kernbench.trace.columns import COLUMN_CLASSES
from kernbench.triton_emu.tl_context import TLContext

ROOT = Path(__file__).parent.parent
NAMES = (
    *("architecture", "changes", "commands", "debugger", "decisions", "exports"),
    *("machine", "memory-model", "python", "run", "speed", "sweep", "tables"),
    *("tl", "trace-format", "tutorial"),
)
CONTRIBUTING = ROOT / ".github/CONTRIBUTING.md"
PAGES = [*(docs.FOLDER / f"{name}.md" for name in NAMES), CONTRIBUTING]


def kernbench_says(line):
    """What a command line of kernbench gives, in this process."""
    result = CliRunner().invoke(main, shlex.split(line))
    assert isinstance(result.exception, SystemExit | None)
    return result


def stored(name):
    """A page as it is in its file, with markers for its tables."""
    return (docs.FOLDER / f"{name}.md").read_text(encoding="utf-8")


def blocks(text):
    """(heading, text) of every indented block of a page."""
    heading = ""
    block = []
    for line in [*text.splitlines(), "end"]:
        if line.startswith("    ") or (block and not line):
            block.append(line[4:])
            continue
        if block:
            yield heading, "\n".join(block).rstrip()
            block = []
        if line.startswith("#"):
            heading = line.lstrip("# ")


def rows(text, heading):
    """The cells of the table below a heading, without its titles."""
    section = text.partition(f"# {heading}\n")[2].partition("\n#")[0]
    table = section.partition("\n|---")[2].splitlines()[1:]
    found = []
    for line in table:
        if not line.startswith("|"):
            break
        found.append([cell.strip().strip("`") for cell in line.strip("|").split("|")])
    return found


@pytest.fixture
def at_traces(tmp_path, monkeypatch):
    """An empty folder but for ``traces``: the bundled ones."""
    (tmp_path / "traces").symlink_to(ROOT / "traces")
    monkeypatch.chdir(tmp_path)


# -- kernbench doc ---------------------------------------------------------------------


def test_doc_lists_the_pages_with_a_line_each():
    result = kernbench_says("doc")
    lines = result.stdout.splitlines()
    assert max(map(len, lines)) <= 100
    listed = [line.split(maxsplit=1) for line in lines]
    assert [name for name, _about in listed] == list(NAMES)
    assert all(about.endswith(".") for _name, about in listed)


def test_doc_prints_a_page_plainly_where_there_is_no_terminal():
    result = kernbench_says("doc machine")
    assert result.stdout.startswith("# The machine\n")
    assert (result.exit_code, result.stderr) == (0, "")


@pytest.mark.slow
def test_doc_survives_a_reader_that_has_enough():
    command = f"{sys.executable} -m kernbench.cli doc machine | head -1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, cwd=ROOT)
    assert (done.stdout, done.stderr) == ("# The machine\n", "")


def test_an_unknown_page_is_one_error_that_lists_the_pages():
    result = kernbench_says("doc manual")
    assert result.exit_code == 2
    assert result.stderr == f"error: no page 'manual'; {instead_of('manual', NAMES)}\n"
    with pytest.raises(UsageError):
        docs.page("manual")


def test_the_pages_are_looked_for_in_the_wheel():
    script = (ROOT / ".ci" / "dists").read_text()
    assert "kernbench/docs/architecture.md" in script


# -- tables that are made --------------------------------------------------------------


def test_no_marker_is_left_in_a_page():
    assert not [name for name in NAMES if "<!--" in docs.page(name)]


def test_the_tables_of_columns_are_those_of_the_logs():
    text = docs.page("trace-format")
    assert [tag for tag in COLUMN_CLASSES if f"### `{tag}`" not in text] == []


def test_the_commands_and_the_keys_are_listed():
    text = docs.page("debugger")
    assert "\n    who-wrote PLACE" in text
    assert re.search(r"^    s +step +one op forward$", text, re.MULTILINE)


# -- what is shown is run --------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_what_a_page_shows_of_python_is_so(at_traces, name):
    results = doctest.testfile(str(docs.FOLDER / f"{name}.md"), module_relative=False)
    assert results.failed == 0


def sessions():
    """(command, what it prints) of the blocks that show a command line."""
    for file in PAGES:
        if file.stem == "tutorial":  # its lines follow from each other
            continue
        for _heading, block in blocks(file.read_text(encoding="utf-8")):
            if block.startswith("$ kernbench "):
                command, _, printed = block.partition("\n")
                command = command.removeprefix("$ kernbench ")
                # Each of these runs the bench again, some seconds a row.
                slow = pytest.mark.slow if "--prove --first" in command else ()
                yield pytest.param(command, f"{printed}\n", id=command, marks=slow)


@pytest.mark.parametrize(("command", "printed"), sessions())
def test_a_command_prints_what_a_page_shows(at_traces, command, printed):
    pattern = re.escape(printed).replace("…\\\n", r"(?:.*\n)*")
    assert re.fullmatch(pattern, kernbench_says(command).stdout)


def test_commands_within_sentences_exist():
    mentioned = set()
    for file in PAGES:
        text = " ".join(file.read_text(encoding="utf-8").split())
        mentioned |= set(re.findall(r"`kernbench ([a-z]+)", text))
    assert mentioned
    assert mentioned - set(main.commands) == set()


@pytest.mark.slow
def test_the_script_of_the_debugger_page_succeeds(at_traces):
    (script,) = (
        block
        for _heading, block in blocks(docs.page("debugger"))
        if "assert ok" in block
    )
    Path("check.kb").write_text(script)
    command = [sys.executable, "-m", "tui", "traces/matmul.msgpack", "--script"]
    done = subprocess.run(
        [*command, "check.kb"],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("\nok ") == script.count("assert ")


# -- what is named is there ------------------------------------------------------------

_FOLDERS = r"kernbench|tui|tests|traces|\.ci|\.github"


def names_in(text):
    """What a page puts in backticks, outside of blocks."""
    prose = "\n".join(line for line in text.splitlines() if not line.startswith("    "))
    return [" ".join(name.split()) for name in re.findall(r"`([^`]+)`", prose)]


def words_of_the_project():
    """All words in the project's sources, and in what its YAML and pyproject say."""
    files = [ROOT / "pyproject.toml", *(ROOT / "kernbench" / "configs").glob("*.yaml")]
    for folder in ("kernbench", "tui", "tests"):
        files += (ROOT / folder).rglob("*.py")
    files.remove(Path(__file__))
    words = set()
    for file in files:
        words |= set(re.findall(r"[A-Za-z_]\w*", file.read_text(encoding="utf-8")))
    return words


@pytest.mark.parametrize("file", PAGES, ids=attrgetter("stem"))
def test_paths_that_a_page_names_exist(file):
    named = names_in(file.read_text(encoding="utf-8"))
    paths = [name for name in named if re.fullmatch(rf"(?:{_FOLDERS})/[\w./*-]*", name)]
    missing = [path for path in paths if not [*ROOT.glob(path)]]
    assert missing == []


@pytest.mark.parametrize("file", PAGES, ids=attrgetter("stem"))
def test_names_that_a_page_uses_are_in_the_code(file):
    known = words_of_the_project()
    unknown = []
    for name in names_in(file.read_text(encoding="utf-8")):
        if re.fullmatch(r"[A-Za-z_][\w.]*(?:\(.*\))?", name) and len(name) > 2:
            words = re.findall(r"[A-Za-z_]\w*", name)
            unknown += [word for word in words if word not in known]
    assert unknown == []


def test_errors_that_a_page_names_are_in_the_tree():
    named = set()
    for name in NAMES:
        named |= set(re.findall(r"`(\w+Error)`", docs.page(name)))
    assert {n for n in named if not hasattr(kernbench.errors, n)} <= {"ValueError"}


def test_the_panes_and_their_views_are_listed():
    listed = docs.page("debugger").partition("    pane ")[2]
    assert "\n    1 Timeline  a row a component over time, lanes where " in listed
    assert "       busy, lanes, critical\n" in listed


# -- architecture ----------------------------------------------------------------------


def imports_between_rooms():
    """For each room the others that it imports, as a set of names."""
    found = {}
    for file in [*ROOT.glob("kernbench/**/*.py"), *ROOT.glob("tui/**/*.py")]:
        top, inside, *_ = file.relative_to(ROOT).with_suffix("").parts
        room = inside
        if top == "tui":
            room = "tui"
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            modules = []
            if isinstance(node, ast.ImportFrom) and node.module == "kernbench":
                modules = [f"kernbench.{alias.name}" for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module:
                modules = [node.module]
            elif isinstance(node, ast.Import):
                modules = [alias.name for alias in node.names]
            for module in modules:
                other = re.match(r"kernbench\.([a-z]\w*)", module)
                if other is not None and other[1] != room:
                    found.setdefault(room, set()).add(other[1])
    return found


@pytest.mark.slow
def test_the_rooms_import_what_the_page_says():
    text = docs.page("architecture").partition("What each imports of the others:")[2]
    (_heading, block), *_ = blocks(text)
    said = {line.split()[0]: set(line.split()[1:]) for line in block.splitlines()}
    found = imports_between_rooms()
    for room in ("cli", "__init__", "__main__"):
        found.pop(room, None)
    assert said == found


def test_every_reason_to_wait_is_explained():
    explained = [
        row[0] for row in rows(docs.page("architecture"), "Why something waited")
    ]
    assert tuple(explained) == WAIT_REASONS


# -- decisions -------------------------------------------------------------------------

CLAUSES = {
    "ADR-0020": "D1 D2 D3 D4 D5 D6 D7 D8 D9 D10 D11",
    "ADR-0032": "D1 D2 D3 D4 D5 D6 D7",
    "ADR-0051": (
        "D1 D1.1 D1.2 D1.3 D1.4 D1.5 D2 D3 D3.1 D3.2 D3.3 D3.4 D3.5 D3.6 D4 D5 D6"
    ),
    "ADR-0052": (
        "D1 D2 D3 D3.1 D3.2 D3.3 D3.4 D3.5 D3.6 D3.7 D4 D5 "
        "D6 D6.1 D6.2 D6.3 D6.4 D6.5 D7"
    ),
}
"""The parts of the four records that shape the core."""

CLAUSE_NAMES = [
    *(f"{record} {part}" for record in CLAUSES for part in CLAUSES[record].split()),
    *("ADR-0051 First action", "ADR-0052 First action"),
]


def entry_of(clause):
    """What the page says under the heading of a clause; "" if it has none."""
    heading = rf"^#+ {re.escape(clause)}: .+\n((?:(?!#).*\n)*)"
    found = re.findall(heading, stored("decisions"), re.MULTILINE)
    return found[0] if len(found) == 1 else ""


def names_defined():
    """The classes and functions of kernbench."""
    found = set()
    for file in (ROOT / "kernbench").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef | ast.FunctionDef):
                found.add(node.name)
    return found


@pytest.mark.parametrize("clause", CLAUSE_NAMES)
def test_a_clause_says_what_was_decided(clause):
    what, _, _ = entry_of(clause).partition("**Where.**")
    assert len(what.split()) >= 5


@pytest.mark.slow
def test_every_clause_says_where_it_lives():
    defined = names_defined()
    homeless = []
    for clause in CLAUSE_NAMES:
        _, _, where = entry_of(clause).partition("**Where.**")
        named = names_in(where.partition("**Beyond.**")[0])
        in_code = {name.rpartition(".")[2] for name in named} & defined
        files = [name for name in named if (ROOT / name).exists()]
        if not in_code and not files:
            homeless.append(clause)
    assert homeless == []


def test_every_part_of_a_record_that_the_page_has_is_a_clause():
    headings = re.findall(r"^#+ (ADR-\d+ [D\d.]+):", stored("decisions"), re.MULTILINE)
    assert set(headings) <= set(CLAUSE_NAMES)


# -- the machine -----------------------------------------------------------------------


def test_fields_have_the_defaults_that_the_page_says():
    spec = TopologySpec()
    said = {row[0]: row[1] for row in rows(docs.page("machine"), "Fields and defaults")}
    for field, default in said.items():
        value = attrgetter(field)(spec)
        if isinstance(value, float):
            default = float(default)
        assert str(value) == str(default), field


def test_tolerances_are_those_that_the_page_says():
    for name, bound in rows(docs.page("machine"), "Tolerances"):
        listed = [name]
        if name == "integers, bool":
            listed = [row for row in DTYPES if row.startswith(("i", "u", "bool"))]
        for each in listed:
            tolerance = dtype_row(each).tolerance
            assert (tolerance.rtol, tolerance.atol) == (float(bound), float(bound))


# -- tl --------------------------------------------------------------------------------

NOT_FOR_KERNELS = {"bytes_of", "truth_of"}


def signature_of(name):
    """A call as a kernel writes it, without types."""
    signature = inspect.signature(getattr(TLContext, name))
    parameters = [
        parameter.replace(annotation=parameter.empty)
        for parameter in signature.parameters.values()
        if parameter.name != "self"
    ]
    bare = signature.replace(parameters=parameters, return_annotation=signature.empty)
    return f"tl.{name}{bare}"


def test_every_function_of_tl_has_a_heading_with_its_arguments():
    calls = {name for name in dir(TLContext) if not name.startswith("_")}
    own = calls - set(NUMPY_OPS) - NOT_FOR_KERNELS
    headings = re.findall(r"^### (tl\..*)$", docs.page("tl"), re.MULTILINE)
    assert sorted(headings) == sorted(map(signature_of, own))


def test_every_call_of_math_is_in_the_table():
    text = docs.page("tl")
    calls = [name for name in NUMPY_OPS if hasattr(TLContext, name)]
    assert [name for name in calls if f"\n    {name}(" not in text] == []


def examples():
    """The examples of the page, each under the heading that it is for."""
    for heading, block in blocks(stored("tl")):
        yield pytest.param(block, id=heading.partition("(")[0])


TINY = {
    "sips.count": 1,
    "cube_mesh.w": 2,
    "cube_mesh.h": 1,
    "cube.pes": 1,
    "slices_per_cube": 1,
}


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """Two cubes of one PE each, otherwise the default machine."""
    return load_topology(overrides=TINY, cache_dir=tmp_path_factory.mktemp("layout"))


@pytest.mark.parametrize("block", examples())
def test_an_example_of_tl_does_what_it_says(tiny, block):
    engine = GraphEngine(tiny)
    torch = Torch(engine)
    cubes = 1
    if "tl.send" in block:
        cubes = 2
        torch.distributed.init_process_group(algorithm="ring_chunked_allreduce")
    parted = DPPolicy(cube="row_wise", num_cubes=cubes, num_pes=1)
    copied = DPPolicy(num_cubes=cubes, num_pes=1)
    rng = np.random.default_rng(0)
    host = {
        "x": np.arange(64 * cubes, dtype="f4"),
        "a": rng.integers(-2, 3, (64, 64)).astype("f2"),
        "b": rng.integers(-2, 3, (64, 64)).astype("f2"),
    }
    tensors = {
        "x": torch.tensor(host["x"], "f32", parted, "x"),
        "a": torch.tensor(host["a"], "f16", copied, "a"),
        "b": torch.tensor(host["b"], "f16", copied, "b"),
        "y": torch.zeros((64 * cubes,), "f32", parted, "y"),
        "c": torch.zeros((64, 64), "f16", copied, "c"),
    }
    said = dict(re.findall(r"^# (takes|raises|[yc].*? ==) (.*)$", block, re.MULTILINE))
    assert said or "program_id" in block

    def run():
        torch.launch("example", kernel_of(block), *tensors.values())
        engine.drain()

    expected_error = said.pop("raises", None)
    if expected_error is not None:
        with pytest.raises(getattr(kernbench.errors, expected_error)):
            run()
        return
    run()
    for what, value in said.items():
        if what == "takes":
            launch = engine.launches[-1]
            assert f"{launch.t_end - launch.t_start:.3f} ns" == value
            continue
        name = what.removesuffix(" ==")
        found = eval(name, {key: tensors[key].numpy() for key in "yc"})
        wanted = eval(value, {"np": np, **host})
        np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-3)


def kernel_of(block):
    """A kernel with an example as its body."""
    body = "\n".join(f"    {line}" for line in block.splitlines())
    source = f"def kernel(x_ptr, a_ptr, b_ptr, y_ptr, c_ptr, tl):\n{body}\n    pass\n"
    found = {}
    exec(compile(source, "example.py", "exec"), found)
    return found["kernel"]


# -- contributing ----------------------------------------------------------------------


def test_markers_that_are_named_are_declared():
    text = CONTRIBUTING.read_text(encoding="utf-8")
    options = tomllib.loads((ROOT / "pyproject.toml").read_text())
    declared = options["tool"]["pytest"]["ini_options"]["markers"]
    known = {marker.partition(":")[0] for marker in declared}
    assert set(re.findall(r"pytest -m (\w+)", text)) <= known


def test_the_command_of_the_first_change_works(at_traces):
    from kernbench.replay import ReplaySession, commands, questions
    from kernbench.trace import Trace

    text = CONTRIBUTING.read_text(encoding="utf-8")
    deep = re.findall(r"(?:^ {8}.*\n|^\n)+", text, re.MULTILINE)
    shown = [textwrap.dedent(block).strip() for block in deep]
    function = next(block for block in shown if block.startswith("@dataclass"))
    row = next(block for block in shown if block.startswith("LONGEST"))
    there = dict(vars(questions))
    exec(compile(function, "questions.py", "exec", dont_inherit=True), there)
    table = dict(vars(commands)) | {"questions": SimpleNamespace(**there)}
    exec(row, table)
    session = ReplaySession(Trace.open("traces/matmul.msgpack"))
    call = commands.parse("longest 2", (table["LONGEST"],))
    query = call.command.query(session.state, call.args)
    answer = call.command.answer(session.index, query.at, query.args, no_progress)
    assert [found.op for found in answer.rows] == [5, 7]
