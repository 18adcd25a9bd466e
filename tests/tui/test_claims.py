"""What a re-run can prove, and what is predicted of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from made_up import END_NS, GAINS

from kernbench.errors import UsageError
from kernbench.replay import ReplaySession
from kernbench.replay.time.roofline import Bound
from kernbench.replay.whatif.answers import CausalProfile, Prediction
from tui.claims import FirstGains, claim_of, delay_of, prove, proved_ends, title_of


@pytest.fixture
def bound(session: ReplaySession) -> Bound:
    """An op that may end 40 ns later."""
    return replace(session.bound(40), slack=40.0, sure=False, why="of a test")


class Reran:
    """Gives the recorded trace for any re-run; ``asked`` is what was to be changed."""

    def __init__(self, path: Path) -> None:
        self.asked: list[tuple[Sequence[str], Sequence[tuple[int, float]]]] = []
        self._path = path

    def __call__(
        self, spec: Sequence[str], delays: Sequence[tuple[int, float]], /
    ) -> Path:
        self.asked.append((spec, delays))
        return self._path


@pytest.mark.parametrize(("ns", "later"), [(30.0, 0.0), (40.0, 0.0), (50.0, 10.0)])
def test_what_a_delay_has_beyond_the_slack_is_added_to_the_end(
    ns, later, bound, session, trace_path
) -> None:
    reran = Reran(trace_path)
    proved = prove(delay_of(bound, ns), session.trace, reran)
    assert isinstance(proved, Prediction)
    end_ns = session.trace.end_ns
    assert proved.predicted_ns == pytest.approx(end_ns + later, abs=1e-6)
    assert proved.proved_ns == end_ns
    assert (proved.sure, proved.why) == (False, "of a test")
    assert reran.asked == [((), ((40, ns),))]


def test_nothing_is_claimed_of_an_op_that_ends_after_the_launches(bound) -> None:
    later = replace(bound, slack=math.inf)
    assert claim_of(later) is None
    with pytest.raises(UsageError, match="op 40 ends after the launches"):
        delay_of(later, 1.0)


def test_a_profile_claims_its_first_rows_if_a_field_says_any() -> None:
    claim = claim_of(CausalProfile(END_NS, GAINS))
    assert claim == FirstGains(CausalProfile(END_NS, GAINS), 5)
    assert claim_of(CausalProfile(END_NS, GAINS[:2])) is None


def test_other_answers_claim_nothing(session) -> None:
    assert claim_of(session.run_line("op")) is None


def test_a_title_says_what_is_claimed(bound) -> None:
    assert title_of(bound) == "slack of op 40, 40.00ns"
    assert title_of(delay_of(bound, 1e3)) == "op 40 TileToken/DMA_READ 1.000us later"


def test_ends_are_known_of_changes_of_one_field() -> None:
    prediction = Prediction(("a=1",), 9.0, 8.0, True, "", (), proved_ns=7.0)
    assert proved_ends(prediction) == {"a=1": 7.0}
    assert proved_ends(replace(prediction, changed=("a=1", "b=2"))) == {}
    gains = (replace(GAINS[2], proved_ns=5.0), GAINS[3])
    assert proved_ends(CausalProfile(END_NS, gains)) == {"pe.clock_ghz=2": 5.0}
