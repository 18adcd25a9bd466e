"""Waiting for a screen is waiting for its jobs, however many turns the loop makes."""

from __future__ import annotations

from time import monotonic
from types import SimpleNamespace

import pilots
import pytest
from pilots import settled


class BusyUntil:
    """A pilot of a screen whose turns take no time, and whose job ends at ``end``."""

    def __init__(self, end: float) -> None:
        self.end = end
        self.looks = 0
        self.app = SimpleNamespace(debugger=self)
        self.runner = self
        self.waiting: list[str] = []

    @property
    def busy(self) -> bool:
        return monotonic() < self.end

    def look(self, rested: bool) -> None:
        assert rested
        self.looks += 1

    async def pause(self) -> None:
        """Nothing is queued."""


@pytest.mark.slow
async def test_a_job_that_takes_longer_than_many_turns_is_waited_for() -> None:
    pilot = BusyUntil(monotonic() + 0.3)
    await settled(pilot)
    assert not pilot.busy
    assert pilot.looks > 4


async def test_a_screen_that_does_not_settle_is_a_mistake(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pilots, "SETTLED_S", 0.05)
    with pytest.raises(AssertionError, match="jobs still run"):
        await settled(BusyUntil(monotonic() + 1000))
