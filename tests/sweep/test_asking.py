"""Points that Optuna chooses: different ones, of the space, and better than chance."""

import json

import pytest
from click.testing import CliRunner

from kernbench.cli import main
from kernbench.sweep.asking import Asked
from kernbench.sweep.draw import Draw, drawn
from kernbench.sweep.keys import Keys
from kernbench.sweep.space import read_space
from kernbench.sweep.store import Row

VALLEY = """
bench: matmul
set: {m: {from: 1, to: 200}, dtype: [f16, f32]}
spec: {pe.clock_ghz: {from: 0.5, to: 2.0}, sips.count: 1}
where: m != 100
"""


def cost(point):
    """Least at m = 140, 1.5 GHz and f32."""
    off = abs(point.params["m"] - 140) / 200
    off += abs(point.spec.get("pe.clock_ghz", 1.5) - 1.5)
    return off + (point.params["dtype"] == "f16")


def row_of(key, point):
    return Row(key, point, {"end_ns": cost(point), "ok": True}, None)


def asked(space, count, done=()):
    source = Asked(space, Draw("optuna", count, 1), {row.key: row for row in done})
    rows = []
    while (found := source.next()) is not None:
        rows.append(row_of(*found))
        source.told(rows[-1])
    return source, rows


@pytest.mark.slow
def test_it_asks_for_different_points_of_the_space(space_file):
    space = read_space(space_file(VALLEY))
    source, rows = asked(space, 40)
    assert len({row.key for row in rows}) == 40
    assert set(source.had()) == {row.key for row in rows}
    keys = Keys(space)
    for row in rows:
        assert row.key == keys.of(row.point)
        assert space.holds(row.point)
        assert 1 <= row.point.params["m"] <= 200
        assert 0.5 <= row.point.spec["pe.clock_ghz"] <= 2


@pytest.mark.slow
def test_it_finds_better_points_than_as_many_by_chance(space_file):
    space = read_space(space_file(VALLEY))
    _, rows = asked(space, 60)
    chance = [cost(point) for point in drawn(space, Draw("random", 60, 1))]
    last = [row.result["end_ns"] for row in rows[-20:]]
    assert sum(last) / 20 < sum(chance) / 60 / 2
    assert min(row.result["end_ns"] for row in rows) < min(chance)


def test_what_a_folder_has_of_the_space_counts(space_file):
    space = read_space(space_file(VALLEY))
    _, first = asked(space, 10)
    other = first[0]._replace(key="of another kernbench")
    source, more = asked(space, 15, [*first, other])
    assert sorted(row.key for row in source.found()) == sorted(r.key for r in first)
    assert len(more) == 5
    assert not {row.key for row in more} & {row.key for row in first}


def test_a_sweep_of_one_worker_goes_on_as_if_it_had_not_been_killed(space_file):
    space = read_space(space_file(VALLEY))
    _, whole = asked(space, 25)
    _, rest = asked(space, 25, whole[:14])
    assert rest == whole[14:]


@pytest.mark.slow
def test_a_space_with_fewer_points_ends(space_file):
    space = read_space(space_file("bench: matmul\nset: {m: [1, 2, 3], dtype: [f16]}"))
    _, rows = asked(space, 10)
    assert sorted(row.point.params["m"] for row in rows) == [1, 2, 3]


def test_points_that_fail_are_told_as_such(space_file):
    space = read_space(space_file(VALLEY))
    source = Asked(space, Draw("optuna", 4, 1), {})
    for _ in range(4):
        key, point = source.next()
        source.told(Row(key, point, None, "it failed"))
    assert source.next() is None
    assert len(list(source.had())) == 4


@pytest.mark.slow
def test_a_sweep_by_optuna_runs_so_many_points_and_goes_on(space_file, tmp_path):
    out = tmp_path / "out"
    words = ["sweep", str(space_file()), "-o", str(out), "--jobs", "2", "--optuna"]
    for count, before in (("4", 0), ("6", 4), ("100", 6)):
        result = CliRunner().invoke(main, [*words, count])
        assert result.exit_code == 0, result.stderr
        assert f"{before} of them were there before" in result.stdout
    text = (out / "points.jsonl").read_text().splitlines()
    assert 6 <= len(text) <= 10  # of the ten points of the space
    assert all(json.loads(line)["result"]["ok"] for line in text)
