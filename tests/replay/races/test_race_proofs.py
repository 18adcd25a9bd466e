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

OVERWRITTEN = """
    torch.expect(WHAT, name="early")
    torch.launch("zeros", zeros, x, y)


def zeros(x, y, tl):
    zero = tl.zeros((1, 64), "f32")
    tl.store(x, zero)
    tl.store(y, zero)
"""
"""What a bench has behind its launch: it looks, and then both tensors are zeros."""


@pytest.fixture
def proved(tmp_path, monkeypatch):
    """What the command line says of the races of a kernel once they were tried out."""
    monkeypatch.chdir(tmp_path)

    def proved(*lines, behind="", **options):
        (tmp_path / "by_hand.py").write_text(text_of(*lines) + behind)
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


def test_what_the_bench_saw_in_a_rerun_counts_though_it_is_overwritten(proved):
    seen = "x, [64 * [2.0], 64 * [0.0]]"
    (proof,) = proved(*STORES_OF_BOTH, behind=OVERWRITTEN.replace("WHAT", seen))
    assert (proof["kind"], proof["detail"]) == (HARMFUL, "early[0,0] 2 -> 1")
    assert proof["runs"] == 1


def test_what_the_bench_saw_before_a_race_is_not_changed_by_it(proved):
    kernel = "    torch.launch('by_hand', kernel, x, y)\n"
    (proof,) = proved(
        "tl.load(x + pe * 256, (64,), 'f32', wait=False) + 1.0",
        "if pe == 1: tl.store(y, tl.full((128,), 3.0, 'f32'))",
        behind=OVERWRITTEN.replace("WHAT", "y, [64 * [3.0], 64 * [3.0]]").replace(
            "\n\n\ndef", f"\n{kernel}\n\ndef"
        ),
    )
    assert (proof["kind"], proof["detail"]) == (BENIGN, "4 of 4 pairs of ops tried")


def test_what_the_bench_saw_in_the_other_order_counts_though_it_is_overwritten(proved):
    (proof,) = proved(
        "got = tl.load(x + pe * 256, (64,), 'f32', wait=False)",
        "tl.store(y + pe * 256, got + 1.0)",
        behind=OVERWRITTEN.replace("WHAT", "y, [64 * [1.0], 64 * [1.0]]"),
    )
    assert (proof["kind"], proof["detail"]) == (HARMFUL, "early[0,0] 1 -> nan")
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


def test_a_composite_beside_a_store_that_nobody_waits_for_is_flipped(proved):
    """A composite is no DMA: nothing keeps it behind the store whose bytes it reads."""
    (proof,) = proved(
        "one = tl.full((16,), 1.0, 'f32')",
        "if pe == 0: tl.store(x, one, wait=False)",
        "if pe == 0: tl.composite('mul', a=tl.ref(x, (1, 16), 'f32'), b=2.0,"
        " out_ptr=y, wait=True)",
    )
    assert (proof["kind"], proof["detail"]) == (HARMFUL, "y[0,0] 2 -> 0")


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


RANKS_ON_ONE_CUBE = """
from kernbench.benches import bench
from kernbench.runtime_api import DPPolicy

MACHINE = {"system.sips.count": 2, "sip.cube_mesh.w": 1, "sip.cube_mesh.h": 1}


def put(x, y, tl):
    if tl.program_id(0) == 0:
        tl.store(y[0], tl.load(x[0]))


def get(y, z, tl):
    if tl.program_id(0) == 1:
        tl.store(z[1], tl.load(y[0]))


def worker(rank, torch, x, y, z, has_own):
    if has_own:
        torch.zeros((1, 4), "f32", DPPolicy(cube="row_wise", num_pes=1), name="w")
    if rank == 0:
        torch.launch("put", put, x, y)
    else:
        torch.launch("get", get, y, z)


@bench(name="one_cube", description="", machine=lambda **_: MACHINE)
def run(torch, has_own: bool = False):
    torch.distributed.init_process_group(backend="ahbm")
    two = DPPolicy(pe="row_wise", num_cubes=1, num_pes=2)
    x = torch.tensor(torch.rng.standard_normal((2, 64)), "f32", two, name="x")
    y = torch.zeros((2, 64), "f32", two, name="y")
    z = torch.zeros((2, 64), "f32", two, name="z")
    torch.multiprocessing.spawn(worker, (torch, x, y, z, has_own), 2)
"""


@pytest.mark.parametrize("has_own", [False, True])
def test_launches_of_two_ranks_on_one_cube_race(tmp_path, has_own):
    """A rank is no SIP. The proof is a re-run, in which the store is late."""
    file = tmp_path / "one_cube.py"
    file.write_text(RANKS_ON_ONE_CUBE)
    trace = tmp_path / "t"
    run_bench(str(file), trace=trace, params={"has_own": has_own})
    words = ["trace", "hazards", str(trace), "--prove", "--json"]
    done = CliRunner().invoke(main, words)
    (row,) = json.loads(done.stdout)["rows"]
    assert row["proof"]["kind"] == HARMFUL
    assert row["proof"]["detail"].startswith("z[1,0] ")
    assert row["proof"]["runs"] == 1
