"""Races tried out: what comes of it when the order is flipped."""

import json

import pytest
from click.testing import CliRunner
from two_pes import text_of

from kernbench.cli import main
from kernbench.replay.races.findings import BENIGN, HARMFUL, NOT_FLIPPED
from kernbench.runtime_api import run_bench

STORES_OF_BOTH = (
    "mine = tl.full((64,), 1.0 + pe, 'f32')",
    "for _ in range(20 * pe): mine + mine",
    "tl.store(x, mine)",
)


@pytest.fixture
def proved(tmp_path, monkeypatch):
    """What the command line says of the races of a kernel once they were tried out."""
    monkeypatch.chdir(tmp_path)

    def proved(*lines, **options):
        (tmp_path / "by_hand.py").write_text(text_of(*lines))
        run_bench("by_hand.py", trace=tmp_path / "t", **options)
        words = ["trace", "hazards", "t", "--prove", "--json"]
        done = CliRunner().invoke(main, words)
        assert done.exit_code == 1
        return [row["proof"] for row in json.loads(done.stdout)["rows"]]

    return proved


def test_two_stores_of_other_values_are_harmful_and_the_element_is_named(proved):
    (proof,) = proved(*STORES_OF_BOTH)
    assert (proof["kind"], proof["detail"]) == (HARMFUL, "x[0,0] 2 -> 1")
    assert proof["runs"] == 1


def test_two_stores_of_equal_values_are_benign(proved):
    (proof,) = proved(
        "mine = tl.full((64,), 1.0, 'f32')",
        "for _ in range(20 * pe): mine + mine",
        "tl.store(x, mine)",
    )
    assert (proof["kind"], proof["detail"]) == (BENIGN, "")


@pytest.mark.slow
def test_a_consumer_that_came_late_by_luck_is_harmful(proved):
    (proof,) = proved(
        "one = tl.full((64,), 1.0, 'f32')",
        "if pe == 0: tl.store(x, one)",
        "for _ in range(200 * pe): one + one",
        "if pe == 1: tl.store(y + 256, tl.load(x, (64,), 'f32'))",
    )
    assert (proof["kind"], proof["detail"]) == (HARMFUL, "y[1,0] 1 -> 0")


@pytest.mark.slow
def test_a_load_that_nobody_waits_for_is_executed_behind_its_use(proved):
    """Ops of one PE stay in order whatever is held back; bytes nobody wrote are NaN."""
    (proof,) = proved(
        "other = tl.full((64,), 1.0, 'f32')",
        "got = tl.load(x + pe * 256, (64,), 'f32', wait=False)",
        "for _ in range(64): other + other",
        "tl.store(y + pe * 256, got + got)",
    )
    assert (proof["kind"], proof["detail"]) == (HARMFUL, "y[0,0] 0 -> nan")
    assert proof["runs"] == 1
    assert "before op" in proof["no_delay"]


def test_a_race_is_tried_out_with_its_last_ops_too(proved):
    """What the first load spoils is written again by later turns."""
    (proof,) = proved(
        "for turn in range(4):",
        "    got = tl.load(x + pe * 256, (32,), 'f32', wait=False)",
        "    tl.store(y + pe * 256 + 128 * (turn == 3), got + 1.0)",
    )
    assert proof["kind"] == HARMFUL
    assert proof["detail"].startswith("y[0,0] 1 -> nan by ops ")


@pytest.mark.slow
def test_of_a_benign_race_it_is_said_how_many_pairs_were_tried(proved):
    (proof,) = proved(
        "mine = tl.full((64,), 1.0, 'f32')",
        "for _ in range(4): tl.store(x, mine)",
    )
    assert proof["kind"] == BENIGN
    assert proof["detail"] == "4 of 16 pairs of ops tried"


@pytest.mark.slow
def test_what_an_op_in_place_reads_is_what_is_there_in_the_other_order(proved):
    """Its operand was known while the run was simulated, and is not in this order."""
    (proof,) = proved(
        "total = tl.load(x + pe * 256, (64,), 'f32')",
        "if pe == 0: tl.send('E', total, wait=False)",
        "if pe == 1: got = tl.recv_async('W', (64,), 'f32')",
        "for _ in range(64): tl.exp(total)",
        "if pe == 1: tl.add(total, got, out=total)",
        "tl.store(y + pe * 256, total)",
    )
    assert (proof["kind"], proof["detail"]) == (HARMFUL, "y[1,0] 0 -> nan")


@pytest.mark.slow
def test_what_no_delay_turns_round_is_executed_the_other_way(proved):
    """The message of the first PE leaves behind its stores, whatever they wait for."""
    proofs = proved(
        "one = tl.full((64,), 1.0 + 4 * pe, 'f32')",
        "if pe == 0: tl.store(x, one, wait=False)",
        "if pe == 0: tl.store(x, one, wait=False)",
        "if pe == 0: tl.send('E', one)",
        "if pe == 1: tl.recv('W', (64,), 'f32')",
        "if pe == 1: tl.store(x, one)",
    )
    assert {(proof["kind"], proof["detail"]) for proof in proofs} == {
        (HARMFUL, "x[0,0] 5 -> 1")
    }
    assert any(proof["no_delay"] for proof in proofs)


def test_what_nothing_turns_round_says_so(proved):
    """The load reads what the store writes, and is waited for: the store is done."""
    (proof,) = proved(
        "one = tl.full((64,), 1.0, 'f32')",
        "if pe == 0: tl.store(x, one, wait=False)",
        "got = tl.load(x + pe * 256, (64,), 'f32')",
        "tl.add(one, got, out=one)",
    )
    assert proof["kind"] == NOT_FLIPPED
    assert proof["no_delay"] == "what is between the two keeps them in order"


@pytest.mark.slow
def test_what_waits_for_a_dma_slot_is_flipped_where_there_are_more(proved):
    """The load that is waited for takes the only slot behind the store."""
    (proof,) = proved(
        "one = tl.full((64,), 1.0 + pe, 'f32')",
        "if pe == 0: tl.store(x, one, wait=False)",
        "if pe == 0: tl.store(y, one)",
        "if pe == 0: tl.send('E', tl.full((1,), 0.0, 'f32'))",
        "if pe == 1: tl.recv('W', (1,), 'f32')",
        "if pe == 1: tl.store(x, one)",
        spec={"pe.dma.outstanding": 1},
    )
    assert proof["kind"] == HARMFUL
    assert proof["detail"] == "x[0,0] 2 -> 1 with pe.dma.outstanding=64"


def test_the_text_has_the_proof_below_the_ops_of_a_race(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "by_hand.py").write_text(text_of(*STORES_OF_BOTH))
    run_bench("by_hand.py", trace=tmp_path / "t")
    done = CliRunner().invoke(main, ["trace", "hazards", "t", "--prove"])
    assert done.stdout.splitlines()[-1].startswith(
        "  harmful: x[0,0] 2 -> 1 (re-run with op "
    )
