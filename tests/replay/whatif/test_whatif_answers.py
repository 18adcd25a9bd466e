"""What ``whatif`` says reads well at 80 columns, proved or not."""

from dataclasses import FrozenInstanceError, replace

import pytest

from kernbench.replay.plain import as_data
from kernbench.replay.text import as_text
from kernbench.replay.whatif.answers import (
    CausalProfile,
    Gain,
    LaunchChange,
    Prediction,
)

SLOWER_WIRES = "the order at hbm_ctrl.pe3 would change, which moves the end by 4 %"
PREDICTION = Prediction(
    changed=("pe.clock_ghz=2", "cube.hbm.channel_bw_gbs=64"),
    end_ns=8492.0,
    predicted_ns=6120.0,
    sure=True,
    why="",
    launches=(LaunchChange(0, "matmul", 600.0, 450.0),),
)
GAIN = Gain(
    what="pe.clock_ghz",
    kind="field",
    how="2x",
    change="pe.clock_ghz=2",
    end_ns=8492.0,
    predicted_ns=8200.0,
    sure=True,
    why="",
)
LINE = Gain(
    what="kernbench/benches/flash_attention.py:35",
    kind="line",
    how="free",
    change="",
    end_ns=8492.0,
    predicted_ns=8300.0,
    sure=False,
    why=SLOWER_WIRES,
)


def test_a_prediction_says_both_ends_and_every_launch():
    assert as_text(PREDICTION, 80).splitlines() == [
        "what if pe.clock_ghz=2, cube.hbm.channel_bw_gbs=64",
        "the run ends at 8.492us -> 6.120us, -27.9%",
        "sure",
        "launch recorded predicted change kernel",
        "     0 600.00ns  450.00ns -25.0% matmul",
    ]


def test_a_proof_stands_beside_what_was_predicted():
    proved = replace(
        PREDICTION,
        proved_ns=6110.0,
        proved_launches=(LaunchChange(0, "matmul", 600.0, 449.0),),
    )
    assert as_text(proved, 80).splitlines()[2:] == [
        "re-run: it ends at 8.492us -> 6.110us, -28.0%; the prediction is +0.16% off",
        "sure",
        "launch recorded predicted   proved change kernel",
        "     0 600.00ns  450.00ns 449.00ns -25.2% matmul",
    ]


@pytest.mark.parametrize(("end", "launch"), [(6000.0, 450.0), (6120.0, 440.0)])
def test_a_sure_prediction_that_a_re_run_refutes_says_so(end, launch):
    proved = replace(
        PREDICTION,
        proved_ns=end,
        proved_launches=(LaunchChange(0, "matmul", 600.0, launch),),
    )
    text = " ".join(as_text(proved, 80).split())
    assert "it was called sure, and the re-run refutes it" in text


def test_a_sure_gain_that_a_re_run_refutes_is_sure_no_more():
    assert not GAIN.is_refuted
    assert not replace(GAIN, proved_ns=8210.0).is_refuted
    refuted = replace(GAIN, proved_ns=8400.0)
    assert refuted.is_refuted
    assert " no " in as_text(CausalProfile(8492.0, (refuted,)), 80)


def test_a_prediction_that_came_true_says_so():
    proved = replace(PREDICTION, proved_ns=PREDICTION.predicted_ns)
    assert "the prediction is exact" in as_text(proved, 80)


def test_an_unsure_prediction_says_why_at_any_width():
    unsure = replace(PREDICTION, sure=False, why=SLOWER_WIRES)
    for width in (40, 80):
        assert SLOWER_WIRES in " ".join(as_text(unsure, width).split())


def test_many_launches_are_cut_to_a_screenful_and_counted():
    launches = tuple(LaunchChange(n, "add", 10.0, 10.0) for n in range(1030))
    lines = as_text(replace(PREDICTION, launches=launches), 80).splitlines()
    assert len(lines) < 30
    assert lines[-1] == "(further launches: 1,010)"
    assert " same " in lines[-2]


def test_a_profile_is_a_row_a_gain():
    profile = CausalProfile(8492.0, (GAIN, LINE))
    assert as_text(profile, 80).splitlines() == [
        "the run ends at 8.492us; how much sooner, if one thing were faster:",
        "  sooner share sure  how what",
        "292.00ns -3.4% yes    2x pe.clock_ghz=2",
        "192.00ns -2.3% no   free kernbench/benches/flash_attention.py:35",
    ]


def test_a_profile_has_what_was_proved_in_a_column_of_its_own():
    profile = CausalProfile(8492.0, (replace(GAIN, proved_ns=8202.0), LINE))
    lines = as_text(profile, 80).splitlines()
    assert lines[2] == "292.00ns -3.4% 290.00ns yes    2x pe.clock_ghz=2"
    assert lines[3].split()[2] == "no"


def test_many_gains_are_cut_to_the_largest_and_counted():
    lines = as_text(CausalProfile(8492.0, (GAIN,) * 77), 80).splitlines()
    assert len(lines) == 33
    assert lines[-1] == "(smaller gains: 47)"


def test_an_empty_profile_says_that_nothing_is_known():
    assert "nothing known of" in as_text(CausalProfile(0.0, ()), 80)


def test_no_line_is_wider_than_it_may_be():
    for answer in (PREDICTION, CausalProfile(8492.0, (GAIN, LINE))):
        assert max(map(len, answer.lines(60))) <= 60


def test_answers_are_frozen_and_become_json():
    with pytest.raises(FrozenInstanceError):
        GAIN.sure = False
    data = as_data(replace(PREDICTION, proved_ns=6000.0))
    assert data["end_ns"] == 8492.0
    assert data["predicted_ns"] == 6120.0
    assert data["proved_ns"] == 6000.0
    assert data["sure"] is True
