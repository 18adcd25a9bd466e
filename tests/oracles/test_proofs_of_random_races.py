"""How many races of random programs are settled by trying them out."""

import json
from collections import Counter

import pytest
import random_races
from click.testing import CliRunner
from test_races_of_random_programs import GAPS, recorded

from kernbench.cli import main
from kernbench.replay.races.findings import BENIGN, HARMFUL, NOT_FLIPPED

LEAST_SETTLED = 0.95
"""The share of the races of which a proof says what comes of the other order."""

KINDS = {HARMFUL, BENIGN, NOT_FLIPPED}


def verdicts(seeds, folder):
    """How often each verdict was given of the races of some random programs."""
    counted = Counter()
    for seed in seeds:
        mine = folder / str(seed)
        mine.mkdir()
        path = recorded(random_races.program(seed, GAPS), mine)
        asked = ["trace", "hazards", str(path), "--prove", "--json"]
        done = CliRunner().invoke(main, asked)
        assert done.exit_code in (0, 1), done.output
        proofs = [row["proof"] for row in json.loads(done.stdout)["rows"]]
        counted.update(proof["kind"] for proof in proofs if proof)
    return counted


@pytest.mark.parametrize(
    "seeds",
    [
        pytest.param(range(8), marks=pytest.mark.slow),
        pytest.param(range(72), marks=pytest.mark.soak),
    ],
    ids=len,
)
def test_nearly_all_races_are_settled(seeds, tmp_path):
    counted = verdicts(seeds, tmp_path)
    print(dict(counted))
    assert set(counted) <= KINDS
    settled = counted[HARMFUL] + counted[BENIGN]
    assert settled >= LEAST_SETTLED * counted.total() > 0
