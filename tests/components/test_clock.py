"""What the clock makes without SimPy's constructors is as they make it."""

import pytest
import simpy

from kernbench.components.clock import Clock


def test_a_timeout_is_one_of_simpy_s():
    theirs = vars(simpy.Environment().timeout(2.5, "value"))
    ours = vars(Clock().timeout(2.5, "value"))
    assert {**ours, "env": None} == {**theirs, "env": None}


def test_an_event_that_has_happened_is_one_of_simpy_s():
    theirs = vars(simpy.Environment().event().succeed("value"))
    ours = vars(Clock().event().succeed("value"))
    assert ours.keys() - theirs.keys() == {"_turn"}
    assert ours["_ok"] == theirs["_ok"]
    assert ours["_value"] == theirs["_value"]


def test_a_negative_timeout_is_refused():
    with pytest.raises(ValueError, match="Negative delay -1"):
        Clock().timeout(-1)


def test_an_event_happens_once():
    event = Clock().event().succeed()
    with pytest.raises(RuntimeError, match="already been triggered"):
        event.succeed()


def test_a_wait_ends_in_exact_time():
    clock = Clock()
    clock.timeout(0.3)
    clock.run()
    assert clock.now == round(0.3 * 1024) / 1024
