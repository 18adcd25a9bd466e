"""What `kernbench perf phase2` measures; the seconds are its own affair."""

import math

import pytest

from kernbench.perf import phase2
from kernbench.replay import ReplaySession
from kernbench.replay.data.history import History
from kernbench.sim_engine.data_executor import DataExecutor
from kernbench.sim_engine.memory_store import MemoryStore


@pytest.mark.slow
def test_every_goal_has_a_figure():
    rows = phase2.measure(scale=0, rounds=1)
    assert len(rows) == 7
    assert all(0 <= row.measured < math.inf for row in rows)
    assert {row.name: row.goal for row in rows if "add" in row.name} == {
        "a small add, all in - numpy": 15.0
    }


def test_the_gemms_share_nothing():
    log, store = phase2.gemm_log(3, 16)
    DataExecutor(log, store).run()
    held = [store.view("tcm", 512 * i, (16, 16), "f16") for i in range(9)]
    for a, b, out in zip(held[::3], held[1::3], held[2::3], strict=True):
        assert (out == (a.astype("f4") @ b.astype("f4")).astype("f2")).all()


def test_the_recorded_adds_have_no_hazard_and_can_be_executed(tmp_path):
    trace = phase2.add_trace(tmp_path / "adds.msgpack", 20)
    history = History(trace)
    assert ReplaySession(trace).hazards().rows == ()
    assert history.at(20).view("tcm", 512, (64,), "f32").tolist() == [2] * 64


def test_the_adds_use_their_places_in_turn():
    log = phase2.add_log(1001)
    assert log[1000].params == log[0].params
    store = MemoryStore()
    store.write("tcm", 0, phase2.np.ones(3 * 1000 * 64, "f4"))
    DataExecutor(log, store).run()
    assert store.view("tcm", 3 * 256 * 999 + 512, (64,), "f32").tolist() == [2] * 64
