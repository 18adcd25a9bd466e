"""Phase 2 says how far it is, and may be ended at any call of progress.

Then nothing is half done: going on gives what an undisturbed run gives.
"""

from dataclasses import replace
from threading import Event

import numpy as np
import pytest
from phase2_logs import add, host_write, math_op, recorded, region, unknown

from kernbench.common.dtypes import dtype
from kernbench.common.messages import HostReadCmd
from kernbench.common.pe_commands import GemmCmd
from kernbench.common.progress import Cancelled
from kernbench.sim_engine.accesses import access_columns
from kernbench.sim_engine.data_executor import DataExecutor
from kernbench.sim_engine.memory_store import MemoryStore
from kernbench.sim_engine.numpy_ops import NUMPY_OPS
from kernbench.sim_engine.op_check import OracleRun, debug_check
from kernbench.sim_engine.verify import Expectation
from kernbench.trace import Trace, TraceWriter

SIDE = 192  # of a product that takes some ms
WIDE = 1 << 18  # elements of an op that does


def store():
    filled = MemoryStore()
    rng = np.random.default_rng(0)
    filled.write("tcm", 0, rng.standard_normal(1024).astype(np.float32))
    filled.write("hbm", 0, rng.standard_normal(WIDE).astype(np.float32))
    return filled


def log():
    """Small ops that share calls, ops that share none, and two that take long."""
    small = [add(16 * i, 0, 256 + 16 * i, float(i)) for i in range(4)]
    wide = region("hbm", 0, (WIDE,))
    doubled = math_op("mul", [wide, wide], region("hbm", 4 * WIDE, (WIDE,)), 5)
    square = region("hbm", 0, (SIDE, SIDE))
    product = GemmCmd(
        a=square,
        b=square,
        out=region("hbm", 8 * WIDE, (SIDE, SIDE)),
        m=SIDE,
        k=SIDE,
        n=SIDE,
    )
    read = recorded(HostReadCmd(src=region("hbm", 0, (4,))), 7)
    return [*small, unknown("X", 4), doubled, recorded(product, 6), read]


def bytes_of(executor):
    found = {}
    for space in executor.store.spaces():
        for addr, array in executor.store.extents(space):
            found[space, addr] = array.tobytes()
    return found


class Calls:
    """A progress function that keeps the shares, and is cancelled at call ``end``."""

    def __init__(self, end=-1):
        self.shares = []
        self.end = end

    def __call__(self, done):
        self.shares.append(done)
        if len(self.shares) == self.end:
            raise Cancelled("not wanted any more")


def until_done(compute):
    """Call ``compute(progress)``, cancelled at its 1st, 2nd, 4th, 8th … call."""
    end = 1
    while True:
        try:
            return compute(Calls(end))
        except Cancelled:
            end *= 2


@pytest.fixture
def undisturbed():
    executor = DataExecutor(log(), store())
    executor.run()
    return bytes_of(executor)


def test_a_run_says_which_share_is_done():
    executor = DataExecutor(log(), store())
    calls = Calls()
    executor.run(calls)
    assert calls.shares == sorted(calls.shares)
    assert calls.shares[0] == 0
    assert 0.5 < calls.shares[-1] < 1


def test_a_run_that_is_cancelled_again_and_again_leaves_the_same_bytes(undisturbed):
    executor = DataExecutor(log(), store())
    until_done(executor.run)
    assert bytes_of(executor) == undisturbed
    assert executor.skipped == {"X": 1}


def test_steps_that_are_cancelled_leave_the_same_bytes(undisturbed):
    executor = DataExecutor(log(), store())
    while until_done(executor.step) is not None:
        pass
    assert bytes_of(executor) == undisturbed


def test_a_long_op_that_is_cancelled_has_not_run():
    cancelled = Event()

    def slow(a, b):
        cancelled.wait()  # a product that takes until it is not wanted any more
        return a * b

    ops = NUMPY_OPS | {"mul": replace(NUMPY_OPS["mul"], function=slow)}
    executor = DataExecutor(log(), store(), ops)
    executor.run_until(5)
    before = bytes_of(executor)
    calls = Calls(2)  # the first is made before the op, the second while it computes
    with pytest.raises(Cancelled):
        executor.run_until(6, calls)
    cancelled.set()
    assert executor.position == 5
    assert bytes_of(executor) == before


def test_an_executor_of_a_long_log_can_be_cancelled_while_it_is_made():
    records = [add(0, 0, 256, float(i)) for i in range(300)]
    calls = Calls()
    DataExecutor(records, progress=calls)
    assert len(calls.shares) > 3
    assert calls.shares == sorted(calls.shares)
    with pytest.raises(Cancelled):
        DataExecutor(records, progress=Calls(2))


def test_a_log_whose_appending_is_cancelled_is_as_before():
    executor = DataExecutor([host_write(0, [1])])
    with pytest.raises(Cancelled):
        executor.extend([host_write(4, [2], t=1)], Calls(1))
    assert executor.total == 1
    executor.extend([host_write(4, [2], t=1)])
    executor.run()
    assert executor.store.view("hbm", 0, (2,), "f32").tolist() == [1, 2]


def test_a_verdict_that_is_cancelled_can_be_asked_for_again():
    wide = np.zeros(WIDE, np.float32)
    expected = {
        "wide": Expectation("hbm", 4 * WIDE, wide, "f32", dtype("f32").tolerance, 6),
        "small": Expectation("tcm", 0, wide[:4], "f32", dtype("f32").tolerance, 8),
    }
    alone = DataExecutor(log(), store()).verify(expected)
    executor = DataExecutor(log(), store())
    report = until_done(lambda progress: executor.verify(expected, progress))
    assert report == alone
    assert not report.ok


def test_no_check_is_lost_when_the_oracle_is_cancelled():
    alone = list(debug_check(DataExecutor(log(), store())))
    run = OracleRun(DataExecutor(log(), store()))
    found = []
    while (check := until_done(run.next_check)) is not None:
        found.append(check)
    assert found == alone
    assert len(found) == 6


def test_the_oracle_says_which_share_is_done():
    calls = Calls()
    assert len(list(debug_check(DataExecutor(log(), store()), calls))) == 6
    assert calls.shares == sorted(calls.shares)
    assert calls.shares[-1] >= 7 / 8


def test_the_accesses_of_a_trace_can_be_cancelled(tmp_path):
    writer = TraceWriter(tmp_path / "t")
    for row, record in enumerate(log()):
        writer.op(row, record, 0, 0, [], [])
    writer.close()
    trace = Trace.open(tmp_path / "t")
    calls = Calls()
    columns = access_columns(trace, calls)
    assert calls.shares == sorted(calls.shares)
    with pytest.raises(Cancelled):
        access_columns(trace, Calls(1))
    alone = access_columns(trace)
    for found, expected in zip(columns[:5], alone[:5], strict=True):
        assert found.tolist() == expected.tolist()
    assert columns.spaces == alone.spaces
