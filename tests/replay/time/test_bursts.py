"""The bytes of bursts, of which a trace has the number, against how they were cut."""

import random

import pytest
from replay_logs import Log

from kernbench.common.messages import Region
from kernbench.common.pe_commands import DmaWriteCmd
from kernbench.common.rows import Rows
from kernbench.trace import Trace
from kernbench.trace.bursts import burst_bytes

PATH = ("sip0.cube0.pe0.pe_dma", "sip0.cube0.r0c1", "sip0.cube0.hbm_ctrl.pe0")
USUAL = 64


def some_rows(rng):
    """Rows of up to four dimensions; some are longer than a burst."""
    within = rng.choice([5, 8, 20, 40, 100])
    row_bytes = within
    axes = []
    for _ in range(rng.randint(0, 3)):
        count = rng.randint(2, 5)
        pitch = within + rng.choice([0, 3, 8])
        axes.insert(0, (count, pitch))
        within = pitch * count
    return Rows.of(0, tuple(axes), row_bytes)


def moved(log, t0, rows, bursts):
    """A store of some rows, and its transaction."""
    src = Region("tcm", 0, (rows.nbytes,), "u8", rows.nbytes)
    strided = None if rows.is_one else rows
    msg = DmaWriteCmd(src=src, dst_addr=0, handle_id="h", strided=strided)
    starts = [t0, t0 + 1, t0 + 8, t0 + 9][: 4 if bursts > 1 else 2]
    msg.transfers = [(PATH, t0, rows.nbytes, bursts, starts)]
    log.op(msg, t0, t0 + 10)


@pytest.mark.parametrize("seed", range(6))
def test_the_first_and_the_last_burst_have_as_many_bytes_as_were_cut(
    seed, tmp_path, one_cube
):
    rng = random.Random(seed)
    log = Log(tmp_path / "t", one_cube)
    wanted = []
    for number in range(60):
        rows = some_rows(rng)
        sizes = rows.cut(USUAL)[1]
        moved(log, 20.0 * number, rows, len(sizes))
        wanted.append((sizes[0], sizes[-1]))
    log.writer.close()
    found = burst_bytes(Trace.open(tmp_path / "t"), float(USUAL))
    assert list(zip(found.first, found.last, strict=True)) == wanted


def test_bursts_in_another_number_than_the_rows_say_are_taken_as_equal(
    tmp_path, one_cube
):
    log = Log(tmp_path / "t", one_cube)
    moved(log, 0.0, Rows(0, 5, 24, 32), 5)  # 48, 48 and 24 bytes are three
    log.writer.close()
    found = burst_bytes(Trace.open(tmp_path / "t"), float(USUAL))
    assert (found.first.tolist(), found.last.tolist()) == ([24.0], [24.0])
