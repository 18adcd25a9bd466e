"""A YAML file runs no code: it names what ships, or what is loaded, as plugins are."""

import hashlib
import json
import sys

import pytest
from click.testing import CliRunner

from kernbench.cli import main
from kernbench.components.registry import component_class
from kernbench.errors import UsageError
from kernbench.runtime_api import run_bench
from kernbench.trace import Trace

SMALL = ("m=32", "k=32", "n=32", "pes=1")
ONE_CUBE = "system: {sips: {count: 1}}\nsip: {cube_mesh: {w: 1, h: 1}}\n"
SLOW_GEMM = """
from kernbench.components.builtin.pe_gemm import PeGemm

class SlowGemm(PeGemm):
    def run(self, env, msg):
        yield env.timeout(50_000.0)
"""
ALL_REDUCE = """
from kernbench.ccl.algorithms.intercube_allreduce import *
from kernbench.ccl.topologies import *
"""
TELLTALE = "import pathlib\npathlib.Path(__file__).with_suffix('.ran').touch()\n"


def kernbench(*args):
    return CliRunner().invoke(main, list(map(str, args)))


@pytest.fixture
def machine(tmp_path):
    """machine(impl): a small machine whose GEMM arrays are of that class."""

    def machine(impl):
        file = tmp_path / "machine.yaml"
        file.write_text(f"{ONE_CUBE}components: {{pe_gemm: {{impl: '{impl}'}}}}\n")
        return file

    return machine


@pytest.fixture
def on_the_path(tmp_path, monkeypatch):
    """A module that can be imported, and leaves a file behind if it is."""
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "telltale.py").write_text(TELLTALE + SLOW_GEMM + ALL_REDUCE)
    return tmp_path / "telltale.ran"


def error_of(result):
    """The one line of a run that was refused."""
    (line,) = result.stderr.splitlines()
    assert result.exit_code in (1, 2)
    return line


def test_a_topology_imports_nothing(machine, on_the_path):
    file = machine("telltale:SlowGemm")
    for command in (["run", "matmul"], ["probe"]):
        line = error_of(kernbench(*command, "--topology", file))
        assert "no module 'telltale' is loaded" in line
        assert "--plugin FILE.py" in line
    assert kernbench("info", "--topology", file).exit_code == 0
    assert not on_the_path.exists()
    assert "telltale" not in sys.modules


def test_a_ccl_file_imports_nothing(tmp_path, on_the_path):
    file = tmp_path / "ccl.yaml"
    file.write_text("defaults: {algorithm: a}\nalgorithms: {a: {module: telltale}}\n")
    line = error_of(kernbench("run", "ccl_allreduce", "--ccl", file))
    assert "algorithms.a.module: telltale is not loaded" in line
    assert "--plugin FILE.py" in line
    assert not on_the_path.exists()


def test_a_class_is_looked_up_without_asking_the_module(tmp_path):
    plugin = tmp_path / "asked.py"
    plugin.write_text("def __getattr__(name): raise SystemExit(name)\n")
    run_bench("matmul", params={"m": 8, "k": 8, "n": 8, "pes": 1}, plugins=[plugin])
    with pytest.raises(UsageError, match="module 'asked' has no class 'Gone'"):
        component_class("asked:Gone")


@pytest.mark.slow
def test_a_plugin_is_named_by_its_file_and_stands_in_the_trace(tmp_path, machine):
    plugin = tmp_path / "slow_models.py"
    plugin.write_text(SLOW_GEMM)
    options = ["--topology", machine("slow_models:SlowGemm"), "--plugin", plugin]
    out = tmp_path / "out.msgpack"
    ran = kernbench(
        "run", "matmul", *options, "--set", *SMALL, "--trace", out, "--json"
    )
    answer = json.loads(ran.output)
    assert answer["ok"]
    assert answer["end_ns"] > 50_000
    assert answer["plugins"] == [str(plugin)]
    sha = hashlib.sha256(plugin.read_bytes()).hexdigest()
    assert Trace.open(out).header["plugins"] == [{"name": "slow_models", "sha": sha}]
    shown = kernbench("trace", "info", out).stdout
    assert "slow_models" in shown
    assert sha in shown.replace("\n", "").replace(" ", "")

    assert kernbench("info", *options).exit_code == 0
    assert kernbench("probe", *options).exit_code == 0


@pytest.mark.slow
def test_without_plugins_a_trace_says_nothing_of_them(tmp_path):
    out = tmp_path / "out.msgpack"
    assert kernbench("run", "matmul", "--set", *SMALL, "--trace", out).exit_code == 0
    assert "plugins" not in Trace.open(out).header


def test_an_all_reduce_may_be_a_plugin(tmp_path):
    (tmp_path / "mine_reduces.py").write_text(ALL_REDUCE)
    ccl = tmp_path / "ccl.yaml"
    ccl.write_text("defaults: {algorithm: a}\nalgorithms: {a: {module: mine_reduces}}")
    result = run_bench(
        "ccl_allreduce",
        ccl=ccl,
        plugins=[tmp_path / "mine_reduces.py"],
        spec={"sip.cube_mesh.w": 2, "sip.cube_mesh.h": 1},
        params={"n_elem": 8},
    )
    assert result.ok


def test_a_bench_file_may_hold_the_models_of_its_machine(tmp_path):
    bench = tmp_path / "own_models.py"
    bench.write_text(
        SLOW_GEMM + "from kernbench.benches import bench\n"
        "from kernbench.benches.matmul import run as matmul\n"
        "impl = {'components.pe_gemm.impl': f'{__name__}:SlowGemm'}\n"
        "@bench(name='own', description='', machine=lambda: impl)\n"
        "def run(torch):\n"
        "    matmul(torch, m=32, k=32, n=32, pes=1)\n"
    )
    one_cube = {"sips.count": 1, "sip.cube_mesh.w": 1, "sip.cube_mesh.h": 1}
    named = {"components.pe_gemm.impl": "kernbench_bench_own_models:SlowGemm"}
    for spec in (one_cube, one_cube | named):
        assert run_bench(str(bench), spec=spec).end_ns > 50_000


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("gone.py", None, "gone.py' cannot be read: No such file"),
        ("models.txt", "", "models.txt' is no .py file"),
        ("json.py", "", "json.py': a module 'json' is loaded already; rename the file"),
        ("leaves.py", "raise SystemExit('bye')", "leaves.py': SystemExit: bye"),
        ("wrong.py", "def", "wrong.py': SyntaxError: "),
        ("nul.py", "a = 1\0", "nul.py': "),
        ("deep.py", "a = " + "(" * 5000, "deep.py': "),
    ],
)
def test_a_plugin_that_cannot_be_loaded_is_one_line(tmp_path, name, text, problem):
    plugin = tmp_path / name
    if text is not None:
        plugin.write_text(text)
    result = kernbench("run", "matmul", "--plugin", plugin)
    assert result.exit_code == 2
    assert problem in error_of(result)
    assert json is sys.modules["json"]


def test_two_plugins_of_one_name_are_refused(tmp_path):
    files = [tmp_path / folder / "twin.py" for folder in ("a", "b")]
    for file in files:
        file.parent.mkdir()
        file.write_text("")
    result = kernbench("info", "--plugin", files[0], "--plugin", files[1])
    assert "a module 'twin' is loaded already" in error_of(result)
