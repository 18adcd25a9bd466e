"""One tl call over all the PEs that made it."""

from pathlib import Path

import numpy as np
import pytest
from replay_logs import Log, load, store

from kernbench.errors import UsageError
from kernbench.replay import ReplaySession
from kernbench.replay.text import as_text
from kernbench.replay.time.call_times import STRAGGLER
from kernbench.sim_engine.event_log import Site
from kernbench.trace import Trace, TraceWriter

TRACES = Path(__file__).parents[3] / "traces"


def test_a_call_is_found_on_every_pe_in_the_same_place_of_its_program(benches):
    session = benches("flash_attention")
    log = session.trace.commands
    node_index = session.trace.node_index
    on_pe2 = log.pe == node_index["sip0.cube0.pe2.pe_cpu"]
    line = log.line[on_pe2][12]
    dots = np.flatnonzero(on_pe2 & (log.line == line))
    dots = dots[log.call[dots] == log.call[dots[0]]]
    assert len(dots) > 1
    for nth, row in enumerate(dots):
        same = (log.line == log.line[row]) & (log.call == log.call[row])
        found = session.pes(int(log.cmd[row]))
        for pe, t_issue in zip(found.pes, found.t_issue, strict=True):
            on_pe = log.pe == node_index[f"{pe}.pe_cpu"]
            assert t_issue == np.sort(log.t_issue[same & on_pe])[nth]


@pytest.mark.slow
def test_a_call_that_does_not_wait_lasts_until_its_ops_have_ended(benches):
    session = benches("matmul")
    names = [record.op_name for record in session.trace.ops]
    session.goto(names.index("composite_gemm"))
    found = session.pes()
    pe = session.op.component_id.removesuffix(".pe_scheduler")
    at = found.pes.index(pe)
    assert found.t_issue[at] + found.duration[at] == pytest.approx(session.op.t_end)
    assert found.minimum <= found.median <= found.maximum


def test_stragglers_are_named_and_stand_out_in_the_grid(tmp_path, shipped):
    writer = TraceWriter(tmp_path / "trace")
    writer.begin({}, shipped)
    site = Site("kernel.py", 3, "kernel")
    for cube, took in enumerate([10, 10, 11, 30, 12]):
        pe_cpu = f"sip0.cube{cube}.pe1.pe_cpu"
        writer.command(cube, pe_cpu, 0, "load", site, cube, 100, 100 + took)
    writer.close()
    found = ReplaySession(Trace.open(tmp_path / "trace")).pes(2)
    assert found.duration.max() > STRAGGLER * found.median
    assert as_text(found).splitlines()[2:] == [
        "sip0 cube0   .0 .0 .0 .9",
        "sip0 cube4   .0 .. .. ..",
        "stragglers (over 1.2 x median): sip0.cube3.pe1",
    ]


@pytest.mark.slow
def test_what_is_no_call_of_a_kernel_is_refused(benches):
    with pytest.raises(UsageError, match="call 123456 is none of this trace"):
        benches("matmul").pes(123456)


def test_at_an_op_of_the_host_it_says_whose_that_is_and_where_to_ask():
    """It said that call 0 is none of a kernel, of which nobody had spoken."""
    session = ReplaySession(Trace.open(TRACES / "fault_wrong_root.msgpack"))
    session.goto(0)
    with pytest.raises(UsageError) as refused:
        session.run_line("pes")
    assert str(refused.value) == (
        "op 0 host_write is the host's, so no PE called it; the next op that one "
        "called is 2: ask there"
    )
    session.goto(2)
    assert session.run_line("pes").call == "load"


def test_an_op_whose_call_a_killed_run_did_not_record_is_not_the_hosts(
    tmp_path, one_cube
):
    log = Log(tmp_path / "trace", one_cube)
    log.op(load(0, 0), 0.0, 40.0)
    log.op(store(0, 256), 40.0, 80.0, line=None)
    session = log.session()
    session.goto(1)
    with pytest.raises(UsageError) as refused:
        session.run_line("pes")
    assert str(refused.value) == (
        "the call of op 1 dma_write is not recorded, so no PE is known to have made "
        "it; the last op that one called is 0: ask there"
    )


def test_the_number_of_a_call_of_the_host_is_refused_as_that():
    session = ReplaySession(Trace.open(TRACES / "fault_wrong_root.msgpack"))
    with pytest.raises(UsageError, match="call 0 is the host's, so no PE made it"):
        session.run_line("pes 0")


def test_the_command_takes_the_number_of_a_call(benches):
    session = benches("matmul")
    session.goto(len(session) // 2)
    of_the_op = as_text(session.run_line("pes"))
    cmd = session.details().cmd
    assert as_text(session.run_line(f"pes {cmd}")) == of_the_op
