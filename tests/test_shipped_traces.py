"""The traces that ship open, are sound, and hold what the present code records."""

import tomllib
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from kernbench.benches import recorded
from kernbench.benches.recorded import RECORDED, Recorded
from kernbench.cli import main
from kernbench.errors import VerificationError
from kernbench.replay import ReplaySession
from kernbench.runtime_api import rerun
from kernbench.trace import Trace

ROOT = Path(__file__).parents[1]
TRACES = ROOT / "traces"
COLUMNS = {
    "transfers": ("cmd", "row", "t0", "nbytes", "bursts", "start"),
    "waits": ("cmd", "row", "node", "reason", "t0", "t1", "holder"),
}
OP_FIELDS = ["t_start", "t_end", "component_id", "op_kind", "op_name", "dependency_ids"]
VERDICT_FIELDS = [
    "name",
    "tensor",
    "dtype",
    "elements",
    "tolerance",
    "ok",
    "mismatches",
]
EXPECT_FIELDS = ["space", "addr", "dtype", "tolerance", "after", "tensor", "origin"]
each = pytest.mark.parametrize("name", RECORDED)


def shipped(name):
    return Trace.open(TRACES / f"{name}.msgpack")


@pytest.fixture(scope="module")
def fresh(tmp_path_factory):
    """fresh(name) -> what `kernbench record` makes of it today."""
    folder = tmp_path_factory.mktemp("recorded") / "traces"
    result = CliRunner().invoke(main, ["record", str(folder)])
    assert result.exit_code == 0, result.output
    return lambda name: Trace.open(folder / f"{name}.msgpack")


def without_data(value):
    if isinstance(value, np.ndarray):
        return str(value.dtype), value.shape
    if isinstance(value, dict):
        return {key: without_data(item) for key, item in value.items()}
    return [without_data(item) for item in value] if isinstance(value, list) else value


def arrays(value):
    if isinstance(value, np.ndarray):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    if not isinstance(value, list):
        return []
    return [array for item in value for array in arrays(item)]


def assert_near(a, b):
    np.testing.assert_allclose(a.astype("f8"), b.astype("f8"), rtol=1e-2, atol=1e-2)


@each
def test_it_is_small_whole_and_sound(name):
    trace = shipped(name)
    assert trace.check() == []
    assert trace.complete
    assert (TRACES / f"{name}.msgpack").stat().st_size < 1_000_000


@each
def test_its_run_ended_as_it_had_to(name):
    end = shipped(name).end
    ends = RECORDED[name].ends
    assert (end["error"] or "").partition(":")[0] == ends
    assert end["ok"] is (ends == "")


@each
def test_executing_it_gives_the_verdict_that_it_holds(name):
    trace = shipped(name)
    verdict = ReplaySession(trace).verify()
    assert verdict.ok is (RECORDED[name].ends == "")
    assert len(verdict.rows) > 0 or RECORDED[name].ends == "DeadlockError"
    if trace.verify_report is not None:
        assert trace.verify_report["ok"] is verdict.ok


@pytest.mark.slow
@each
def test_its_machine_and_its_memory_are_those_of_today(name, fresh):
    ours = fresh(name)
    theirs = shipped(name)
    for what in ("end", "node_ids", "texts", "launches", "allocs", "spec"):
        assert getattr(ours, what) == getattr(theirs, what), what
    # code that makes the same of it may have changed since
    for name in (ours.header | theirs.header).keys() - {"code_sha", "crc"}:
        assert ours.header.get(name) == theirs.header.get(name), name


@each
@pytest.mark.slow
def test_run_again_it_is_what_is_recorded_today(name, fresh, tmp_path):
    new = tmp_path / "new.msgpack"
    rerun(shipped(name), new)
    assert new.read_bytes() == fresh(name).path.read_bytes()


@each
@pytest.mark.slow
def test_its_ops_are_those_of_today(name, fresh):
    ours = fresh(name)
    theirs = shipped(name)
    assert len(ours.ops) == len(theirs.ops) > 0
    for a, b in zip(ours.ops, theirs.ops, strict=True):
        for what in OP_FIELDS:
            assert getattr(a, what) == getattr(b, what), what
        np.testing.assert_equal(without_data(a.params), without_data(b.params))


@each
def test_its_waits_transfers_and_calls_are_those_of_today(name, fresh):
    ours = fresh(name)
    theirs = shipped(name)
    assert len(theirs.commands.cmd) > 0
    for log, columns in COLUMNS.items():
        for column in columns:
            a, b = (getattr(getattr(trace, log), column) for trace in (ours, theirs))
            np.testing.assert_array_equal(a, b, f"{log}.{column}")
    paths = []
    calls = []
    for trace in (ours, theirs):
        paths.append([trace.paths[path] for path in trace.transfers.path.tolist()])
        calls.append([trace.command(cmd) for cmd in trace.commands.cmd.tolist()])
    assert paths[0] == paths[1]
    assert calls[0] == calls[1]


@each
def test_its_data_are_those_of_today_but_for_rounding(name, fresh):
    ours = fresh(name)
    theirs = shipped(name)
    pairs = [
        tuple(arrays(t.ops[i].params) for t in (ours, theirs))
        for i in range(len(ours.ops))
    ]
    for a, b in ((a, b) for pair in pairs for a, b in zip(*pair, strict=True)):
        assert_near(a, b)
    for a, b in zip(ours.expects, theirs.expects, strict=True):
        for what in EXPECT_FIELDS:
            assert getattr(a, what) == getattr(b, what), what
        assert_near(a.array, b.array)


@each
def test_its_verdict_is_that_of_today_but_for_rounding(name, fresh):
    reports = [
        trace.verify_report or {"rows": []} for trace in (fresh(name), shipped(name))
    ]
    for a, b in zip(*(report["rows"] for report in reports), strict=True):
        for what in VERDICT_FIELDS:
            assert a[what] == b[what], what
        assert a["max_abs"] == pytest.approx(
            b["max_abs"], rel=0.5, abs=a["tolerance"]["atol"]
        )


@each
def test_the_readme_gives_its_command(name):
    bench, params, _ = RECORDED[name]
    settings = [f"{key}={value}" for key, value in params.items()]
    command = " ".join(
        ["kernbench run", bench, *(["--set"] if settings else []), *settings]
    )
    text = (TRACES / "README.md").read_text()
    assert f"\n`{name}.msgpack`: " in text
    assert f"\n`{command}`\n" in text


def test_nothing_else_ships_and_the_wheel_holds_it():
    names = {f"{name}.msgpack" for name in RECORDED}
    assert {path.name for path in TRACES.iterdir()} == names | {
        "README.md",
        "debugger.svg",
    }
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"][
        "build"
    ]
    assert wheel["targets"]["wheel"]["force-include"] == {"traces": "kernbench/traces"}


def test_a_run_that_ends_otherwise_is_an_error(tmp_path, monkeypatch):
    small = {"m": 16, "k": 16, "n": 16, "pes": 1}
    monkeypatch.setattr(
        recorded, "RECORDED", {"x": Recorded("matmul", small, "DeadlockError")}
    )
    with pytest.raises(
        VerificationError, match=r"ended with no error, not with DeadlockError"
    ):
        list(recorded.record(tmp_path))
