"""Who reads and writes bytes: all, the last writers, the readers until overwritten."""

from dataclasses import replace

import pytest
from gaps import least_gap, limit_s
from replay_logs import Log, double, host_write, load, region, store

from kernbench.common.pe_commands import DmaReadCmd, DmaWriteCmd
from kernbench.common.rows import Rows
from kernbench.errors import UsageError


@pytest.fixture
def log(tmp_path, one_cube):
    return Log(tmp_path / "log", one_cube)


def ops(touches):
    return [touch.op.op for touch in touches.rows]


def test_every_read_and_write_of_a_place_is_in_the_order_of_ops(log):
    log.op(host_write(), 0, 10)
    log.op(load(0, 0), 20, 30)
    log.op(double(0, 64), 40, 50, engine="pe_math")
    log.op(load(64, 128), 60, 70)
    rows = log.session().history("tcm", 4, 8).rows
    assert [(touch.kind, touch.op.op) for touch in rows] == [
        ("write", 1),
        ("read", 2),
        ("read", 2),
    ]
    assert {(touch.space, touch.addr, touch.nbytes) for touch in rows} == {
        ("tcm", 0, 16)
    }


def test_bytes_of_two_writers_have_both_the_earlier_first(log):
    log.op(host_write(), 0, 10)
    log.op(load(0, 0), 20, 30)
    log.op(load(64, 8, 1), 40, 50)
    wrote = log.session().who_wrote("tcm 0x0:16").rows
    assert [(t.op.op, t.addr, t.nbytes) for t in wrote] == [(1, 0, 12), (2, 8, 4)]


def test_a_newer_write_hides_an_older_one(log):
    log.op(host_write(), 0, 10)
    for start in (20, 40):
        log.op(load(start, 0), start, start + 10)
    assert ops(log.session().who_wrote("tcm 0:16")) == [2]


def test_bytes_that_nobody_wrote_are_in_the_note(log):
    log.op(load(16, 0), 20, 30)
    answer = log.session().who_wrote("tcm 0x8:16")
    assert ops(answer) == [0]
    assert answer.note == "8 bytes from tcm 0x10 on were never written"


def test_the_note_has_the_op_that_is_the_first_to_write_the_bytes(log):
    log.op(load(16, 0), 20, 30)
    log.op(load(0, 4), 40, 50)
    log.op(load(0, 16), 60, 70)
    log.op(load(0, 20), 80, 90)
    session = log.session()
    session.goto(1)
    answer = session.who_wrote("tcm 0x8:16")
    assert answer.note == "4 bytes from tcm 0x14 on are not written yet, first by op 2"


def test_bytes_that_nobody_ever_wrote_have_no_writer(log):
    log.op(load(16, 0), 20, 30)
    answer = log.session().who_wrote("tcm 0x40:8")
    assert ops(answer) == []
    assert answer.note == "8 bytes from tcm 0x40 on were never written"


def test_readers_are_those_until_the_bytes_are_overwritten(log):
    log.op(host_write(), 0, 10)
    log.op(load(0, 0), 20, 30)
    log.op(double(0, 64), 40, 50, engine="pe_math")
    log.op(store(8, 256, 1), 60, 70)
    log.op(load(16, 0, 2), 80, 90)
    log.op(double(0, 128), 100, 110, engine="pe_math")
    session = log.session()
    session.goto(1)
    assert ops(session.who_reads("tcm 0x0:8")) == [2, 2]
    assert ops(session.who_reads("tcm 0x8:4")) == [2, 2, 3, 5, 5]


def test_too_many_bytes_are_refused(log):
    log.op(host_write(), 0, 10)
    with pytest.raises(UsageError, match="ask for a part of it"):
        log.session().who_wrote(f"hbm 0:{1 << 30}")


def test_the_commands_take_places_as_users_write_them(log):
    log.alloc("hbm", 0, 512)
    log.op(host_write(), 0, 10)
    log.op(load(16, 0), 20, 30)
    session = log.session()
    assert ops(session.run_line("who-wrote hbm 0x10:16")) == [0]
    session.goto(0)
    assert ops(session.run_line("who-reads hbm 0x10:4")) == [1]
    with pytest.raises(UsageError, match="no tensor 'q'"):
        session.run_line("who-reads q[3]")


@pytest.mark.slow
def test_rows_over_4_mib_are_looked_at_with_a_call_of_progress_every_10_ms(log):
    rows = Rows(0, rows=512, row_bytes=32, pitch=8192)
    inside = region("tcm", 0, rows.nbytes // 4)
    outside = replace(inside, space="hbm", strided=rows)
    write = DmaWriteCmd(src=inside, dst_addr=0, handle_id="h", strided=rows)
    log.op(write, 0, 10)
    log.op(DmaReadCmd(src=outside, dst=inside, handle_id="h"), 20, 30)
    session = log.session()
    session.goto(0)
    place = f"hbm 0:{rows.span}"

    def writers():
        return lambda progress: session.who_wrote(place, progress)

    def readers():
        return lambda progress: session.who_reads(place, progress)

    assert ops(session.who_wrote(place)) == [0]
    assert ops(session.who_reads(place)) == [1]
    limit = limit_s()
    assert least_gap(writers, rounds=5, enough=limit) <= limit
    assert least_gap(readers, rounds=5, enough=limit) <= limit
