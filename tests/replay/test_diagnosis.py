"""Every fault bench is diagnosed by one script that is given its trace and nothing
else.

``diagnose`` asks what a user at ``kernbench trace`` would ask, and decides by the
answers alone. What it says first must name the op, the PE and the kernel line that are
at fault.
"""

import importlib
import inspect
import json
import re

import pytest
from click.testing import CliRunner

from kernbench.benches import FAULTS
from kernbench.cli import main
from kernbench.errors import KernbenchError
from kernbench.runtime_api import run_bench

HOST = "host_write"
# what is recorded of each fault; a part of the line that is to be named; op and PE
CAUSES = {
    "missing_wait": [({}, "# fault", "add", "sip0.cube0.pe0.")],
    "scratch_reused": [
        ({"reader": "store"}, "# fault", "dma_read", "sip0.cube0.pe0."),
        ({"reader": "composite"}, "# fault", "dma_read", "sip0.cube0.pe0."),
    ],
    "past_shard": [
        ({}, "# fault", "load", "sip0.cube0.pe0."),
        ({"warn_memory": True}, "# fault", "dma_read", "sip0.cube0.pe0."),
    ],
    "never_written": [
        ({}, "# fault", "dma_read", "sip0.cube0.pe0."),
        ({"warn_memory": True}, "# fault", "dma_read", "sip0.cube0.pe0."),
    ],
    "overflow": [({}, "# fault", "exp", "sip0.cube0.pe0.")],
    "low_bits": [
        ({"table": "coarse", "debug": True}, "# fault", "exp", "sip0.cube0.pe0.")
    ],
    "early_credit": [({}, "# reads", "ipcq_recv", "sip0.cube1.pe0.")],
    "ring_by_name": [({}, "# waits", "recv W", "sip0.cube0.pe0.")],
    "wrong_root": [({}, "tl.send(toward[root], x)", "ipcq_copy", "sip0.cube0.pe0.")],
}
CASES = [(fault, *case) for fault, cases in CAUSES.items() for case in cases]


def asker(path):
    """ask(command, …) -> the JSON of ``kernbench trace`` on a file; None where it
    refuses.
    """

    def ask(name, *args):
        done = CliRunner().invoke(main, ["trace", name, str(path), *args, "--json"])
        return json.loads(done.stdout) if done.stdout else None

    return ask


def named(op):
    """An op as a finding names it."""
    return f"{op['name']} on {op['component']} at {op['site']}"


def diagnose(ask):
    """What is wrong with the run of a trace, the cause first."""
    error = ask("info")["error"]
    found = [
        f"{hazard['kind']}: {named(hazard['op'])}" for hazard in ask("hazards")["rows"]
    ]
    if error.startswith("DeadlockError"):
        found += ask("stalls")["errors"]
    if error and not error.startswith("VerificationError"):
        return [*found, error]  # it ended there: nothing has been compared
    first = ask("divergence")
    if first["op"] >= 0:
        row = ask("op", "--op", str(first["op"]))["row"]
        found.append(f"off by more than rounding: {named(row)}")
    wrong = [out["row"] for out in ask("verify")["rows"] if not out["row"]["ok"]]
    for row in wrong:
        found.append(came_from(ask, row["tensor"], row["first_bad"]))
    if error and not wrong:  # ours is right, so theirs executed by another table
        for op in re.findall(r"\bop (\d+) ", error):
            found.append(f"{error}: {named(ask('op', '--op', op)['row'])}")
    return found


def came_from(ask, tensor, index):
    """The suspect behind an element, or all that it was made of; of the tensor if of
    nothing.
    """
    blame = ask("blame", f"{tensor}{index}")
    if all(link["op"]["name"] == HOST for link in blame["links"]):
        # No kernel has written the element: who wrote the others?
        blame = ask("blame", tensor)
    links = [link for link in blame["links"] if link["op"]["op"] == blame["suspect"]]
    parts = [
        f"{named(link['op'])}, from {', '.join(part['name'] for part in link['reads'])}"
        for link in links or blame["links"]
    ]
    return f"{tensor}{index} is wrong: {'; '.join(parts)}"


@pytest.fixture
def recorded(tmp_path):
    """recorded(fault, options) -> asks about the trace of its run, whatever that ended
    with.
    """

    def recorded(fault, options):
        options = {"debug": False, "warn_memory": False} | options
        flags = {name: options.pop(name) for name in ("debug", "warn_memory")}
        path = tmp_path / "trace.msgpack"  # of a name that tells nothing
        try:
            run_bench(f"fault_{fault}", params=options, trace=path, **flags)
        except KernbenchError:
            assert path.exists()
        return asker(path)

    return recorded


@pytest.mark.slow
@pytest.mark.parametrize(("fault", "options", "text", "op", "pe"), CASES)
def test_a_fault_is_named_by_who_does_not_know_it(
    recorded, fault, options, text, op, pe
):
    source = inspect.getsource(
        importlib.import_module(f"kernbench.benches.faults.{fault}")
    )
    (number,) = (n for n, line in enumerate(source.splitlines(), 1) if text in line)
    first = diagnose(recorded(fault, options))[0]
    assert op in first
    assert pe in first
    assert re.search(rf"benches/faults/{fault}\.py:{number}\b", first)


def test_no_fault_is_left_out():
    assert {f"fault_{name}" for name in CAUSES} == set(FAULTS)


def test_a_deadlock_names_all_who_wait_and_where_their_time_went(recorded):
    ask = recorded("ring_by_name", {})
    first, second = sorted(ask("stalls")["errors"])
    assert first.startswith("never ended: sip0.cube0.pe0.pe_cpu: recv W at ")
    assert second == first.replace("cube0", "cube1")
    (row,) = (row for row in ask("lines")["rows"] if first.endswith(f" {row['site']}"))
    assert (row["calls"], list(row["kinds"])) == (2, ["arrival"])
    assert ask("stalls")["total"]["unexplained"] == 0


def test_a_row_of_the_wrong_root_is_made_of_no_sum(recorded):
    ask = recorded("wrong_root", {})
    links = ask("blame", "x[1,0]")["links"]
    assert "add" not in {link["op"]["name"] for link in links}
    (copy,) = (link for link in links if link["op"]["name"] == "ipcq_copy")
    assert copy["reads"][0]["name"].endswith("@sip0.cube0.pe0.pe_cpu[0, 0]")


@pytest.mark.slow
@pytest.mark.parametrize("bench", ["matmul", "flash_attention"])
def test_nothing_is_said_of_a_right_run(tmp_path, bench):
    path = tmp_path / "trace.msgpack"
    run_bench(bench, params={"pes": 1}, trace=path)
    assert diagnose(asker(path)) == []
