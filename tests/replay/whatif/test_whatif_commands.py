"""``whatif`` and what proves it, as commands: parsed, answered, re-run beside it.

What predicts and what runs again are small fakes here: the texts are about the
commands.
"""

from pathlib import Path

import pytest

from kernbench.common.progress import no_progress
from kernbench.errors import KernbenchError, UsageError
from kernbench.replay import ReplaySession
from kernbench.replay.commands import (
    PROVE_BOUND,
    PROVE_HAZARDS,
    PROVE_WHATIF,
    WHATIF,
    named,
    parse,
)
from kernbench.replay.completion import candidates
from kernbench.replay.questions import OpBound, WhatIf
from kernbench.replay.text import as_text
from kernbench.replay.whatif.answers import (
    CausalProfile,
    Gain,
    LaunchChange,
    Prediction,
)
from kernbench.replay.whatif.slack import Slack
from kernbench.runtime_api import run_bench
from kernbench.trace import Trace

SMALL = {"m": 32, "k": 32, "n": 32, "pes": 1}
FASTER = ("pe.clock_ghz=2",)


class Predictor:
    """Predicts that everything takes half of its time."""

    told_slack = 100.0

    def __init__(self, trace):
        self.trace = trace

    def predict(self, changes, progress):
        progress(1.0)
        launches = tuple(
            LaunchChange(
                launch.launch,
                launch.kernel,
                launch.t_end - launch.t_start,
                (launch.t_end - launch.t_start) / 2,
            )
            for launch in self.trace.launches
        )
        end = self.trace.end_ns
        return Prediction(tuple(changes), end, end / 2, True, "", launches)

    def slack(self, position, progress):
        return Slack(self.told_slack, True, "")

    def profile(self, progress):
        end = self.trace.end_ns
        rows = [
            ("pe.clock_ghz", "2x", "pe.clock_ghz=2"),
            ("mm.py:3", "free", ""),
            ("a", "2x", "a=1"),
            ("b", "2x", "b=1"),
        ]
        return CausalProfile(
            end,
            tuple(
                Gain(what, "field", how, change, end, end - 9 + n, True, "")
                for n, (what, how, change) in enumerate(rows)
            ),
        )


class Reruns:
    """Gives one recorded trace whatever is changed, and keeps what was asked."""

    def __init__(self, path):
        self.path = path
        self.asked = []

    def __call__(self, spec, delays):
        self.asked.append((tuple(spec), tuple(delays)))
        return self.path


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """A small run, and the same on a machine whose clock is twice as fast."""
    folder = tmp_path_factory.mktemp("whatif")
    for name, spec in (("slow", {}), ("fast", {"pe.clock_ghz": 2.0})):
        path = folder / f"{name}.msgpack"
        run_bench("matmul", params=SMALL, spec=spec, trace=path)
    return folder


@pytest.fixture
def session(recorded):
    session = ReplaySession(Trace.open(recorded / "slow.msgpack"))
    session.index.whatif = Predictor(session.trace)
    return session


def asked(session, line, rerun=None):
    """The answer of a line, where ``rerun`` runs the trace again."""
    session.index.rerun = rerun
    return session.run_line(line)


@pytest.mark.parametrize(
    ("line", "args"),
    [
        ("whatif", WhatIf()),
        ("whatif pe.clock_ghz=2", WhatIf(FASTER)),
        ("whatif a=1 b.c=1e3", WhatIf(("a=1", "b.c=1e3"))),
        ("whatif prove", WhatIf(prove=True)),
        ("whatif prove first 3", WhatIf(prove=True, first=3)),
        ("whatif --prove a=1", WhatIf(("a=1",), prove=True)),
        ("whatif a=1 --prove b=2", WhatIf(("a=1", "b=2"), prove=True)),
        ("bound", OpBound()),
        ("bound --prove", OpBound(prove=True)),
    ],
)
def test_a_line_and_words_of_a_shell_are_the_same_arguments(line, args):
    assert parse(line).args == args
    assert parse(line.split()).args == args


def test_what_proves_is_an_effect_and_the_question_a_job():
    assert parse("whatif a=1").command.kind == "job"
    for line, command in (
        ("whatif a=1 prove", PROVE_WHATIF),
        ("bound prove", PROVE_BOUND),
        ("hazards prove first 2", PROVE_HAZARDS),
    ):
        assert parse(line).command is command
        assert command.kind == "effect"
        question = parse(line.partition(" prove")[0]).command
        assert command.lane == question.lane


def test_a_proof_is_typed_as_its_question_only():
    assert named("whatif") is WHATIF
    with pytest.raises(UsageError, match="unknown command"):
        named("whatif --prove")


def test_a_call_reads_as_one_would_type_it():
    for line in (
        "whatif a=1 b=2",
        "whatif",
        "whatif prove first 3",
        "ops 3 where dur > 1us",
    ):
        assert parse(parse(line).text).args == parse(line).args


def test_the_usage_names_all():
    assert WHATIF.usage == "[FIELD=VALUE …] [prove] [first N]"


@pytest.mark.parametrize("word", ["pe.clock_ghz", "=2", "pe.clock_ghz="])
def test_what_is_no_change_says_how_one_is_written(word):
    with pytest.raises(UsageError, match=r"must be FIELD=VALUE, as pe\.clock"):
        parse(f"whatif {word}")


@pytest.mark.slow
def test_fields_of_the_machine_are_offered(session):
    found = candidates(session.index, session.state, "whatif ", "pe.cl")
    assert found == ["pe.clock_ghz="]
    assert "prove" in candidates(session.index, session.state, "whatif a=1 ", "p")


def test_a_prediction_is_not_proved_unasked(session):
    found = asked(session, "whatif pe.clock_ghz=2")
    assert found.changed == FASTER
    assert found.proved_ns is None
    assert session.whatif(*FASTER) == found
    assert session.whatif() == asked(session, "whatif")


def test_a_proof_has_the_end_and_the_launches_of_the_rerun(session, recorded):
    rerun = Reruns(recorded / "fast.msgpack")
    found = asked(session, "whatif pe.clock_ghz=2 --prove", rerun)
    new = Trace.open(rerun.path)
    assert rerun.asked == [(FASTER, ())]
    assert found.proved_ns == new.end_ns
    (launch,) = found.proved_launches
    assert launch.predicted_ns == new.launches[0].t_end - new.launches[0].t_start
    assert launch.recorded_ns == found.launches[0].recorded_ns
    assert launch.predicted_ns != launch.recorded_ns
    assert "re-run: it ends at" in as_text(found, 80)


def test_a_launch_that_the_rerun_has_not_is_not_proved(session, recorded, tmp_path):
    whole = Predictor(session.trace).predict(FASTER, no_progress)
    known = whole.launches[0]
    session.index.whatif.predict = lambda changes, progress: Prediction(
        whole.changed,
        whole.end_ns,
        whole.predicted_ns,
        True,
        "",
        (known, LaunchChange(7, "lost", 1.0, 1.0)),
    )
    found = asked(session, "whatif a=1 prove", Reruns(recorded / "fast.msgpack"))
    assert [launch.launch for launch in found.proved_launches] == [known.launch]
    assert as_text(found, 80).splitlines()[-1].split()[3:] == ["same", "lost"]


def test_the_first_rows_that_a_field_can_say_are_proved(session, recorded):
    rerun = Reruns(recorded / "fast.msgpack")
    found = asked(session, "whatif prove first 2", rerun)
    assert rerun.asked == [(("pe.clock_ghz=2",), ()), (("a=1",), ())]
    end = Trace.open(rerun.path).end_ns
    assert [gain.proved_ns for gain in found.gains] == [end, None, end, None]


def test_the_slack_of_an_op_is_tried_out_by_holding_it_back(session, recorded):
    rerun = Reruns(recorded / "slow.msgpack")
    op = len(session) // 2
    session.goto(op)
    found = asked(session, "bound prove", rerun)
    delays = [pair for _, pairs in rerun.asked for pair in pairs]
    assert delays == [(op, 100.0), (op, 110.0)]
    assert found.beyond.moved_ns == 0.0  # the fake run is the recorded one
    assert not found.ok
    assert as_text(found, 80).endswith("slack NOT as told: there is more of it")


@pytest.mark.parametrize(
    ("slack", "delays"), [(0.0, [10.0]), (float("inf"), [10_000.0])]
)
def test_no_slack_and_slack_without_end_are_tried_out_once(
    session, recorded, slack, delays
):
    rerun = Reruns(recorded / "slow.msgpack")
    session.goto(0)
    session.index.whatif.told_slack = slack
    found = asked(session, "bound prove", rerun)
    assert [ns for _, pairs in rerun.asked for _, ns in pairs] == delays
    assert found.ok == (slack > 0)  # the fake run is the recorded one
    assert ("the end does not wait for it" in as_text(found)) == (slack > 0)


@pytest.mark.slow
def test_of_a_part_of_a_run_slack_is_unsure(session, recorded, tmp_path):
    part = tmp_path / "part.msgpack"
    session.run_line(f"cut {part} to 6us")
    bound = ReplaySession(Trace.open(part)).bound(0)
    assert not bound.sure
    assert "does not hold all of its run" in as_text(bound)


def test_without_anything_that_runs_again_a_proof_says_so(session):
    for line in ("whatif a=1 prove", "whatif prove", "bound prove"):
        with pytest.raises(UsageError, match="kernbench trace"):
            asked(session, line)


def test_what_a_rerun_raises_is_not_swallowed(session):
    def refuse(spec, delays):
        raise KernbenchError("its source is another than was recorded")

    with pytest.raises(KernbenchError, match="another than was recorded"):
        asked(session, "whatif a=1 prove", refuse)


def test_progress_of_a_proof_never_goes_back(session, recorded):
    seen = []
    session.index.rerun = Reruns(Path(recorded / "fast.msgpack"))
    session.run_line("whatif prove", seen.append)
    assert seen == sorted(seen)
