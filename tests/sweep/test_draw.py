"""Grids, random points and Latin hypercubes against what they are by definition."""

import itertools

import pytest

from kernbench.errors import UsageError
from kernbench.sweep.draw import Draw, check_draw, drawn
from kernbench.sweep.space import read_space

GRID = """
bench: matmul
set: {m: [32, 64, 128], tile: {from: 16, to: 128, factor: 2}}
spec: {pe.clock_ghz: [1, 2]}
seed: {from: 0, to: 1}
where: [tile <= m, m - tile < 100 or pe.clock_ghz == 1]
"""
CONTINUOUS = """
bench: matmul
set: {m: {from: 1, to: 1000}}
spec: {pe.clock_ghz: {from: 0.5, to: 2.0}}
"""


def rows(space, draw):
    return [tuple(point.values().values()) for point in drawn(space, draw)]


def test_a_grid_is_the_product_of_its_axes_that_meets_the_conditions(space_file):
    space = read_space(space_file(GRID))
    tiles = (16, 32, 64, 128)
    expected = [
        (m, tile, clock, seed)
        for m, tile, clock, seed in itertools.product(
            (32, 64, 128), tiles, (1, 2), (0, 1)
        )
        if tile <= m and (m - tile < 100 or clock == 1)
    ]
    assert rows(space, Draw()) == expected
    assert 0 < len(expected) < space.grid_points


def test_random_points_of_a_grid_are_different_and_in_it(space_file):
    space = read_space(space_file(GRID))
    grid = rows(space, Draw())
    some = rows(space, Draw("random", 7, seed=3))
    assert len(set(some)) == 7
    assert set(some) < set(grid)
    assert rows(space, Draw("random", 7, seed=3)) == some
    assert rows(space, Draw("random", 7, seed=4)) != some
    assert sorted(rows(space, Draw("random", 1000))) == sorted(grid)


def test_each_point_of_a_grid_is_as_likely_as_any_other(space_file):
    space = read_space(space_file("bench: matmul\nset: {m: [1, 2, 3], k: [1, 2]}"))
    counts = dict.fromkeys(rows(space, Draw()), 0)
    for seed in range(600):
        (row,) = rows(space, Draw("random", 1, seed))
        counts[row] += 1
    assert all(60 < count < 140 for count in counts.values()), counts


def test_random_points_of_a_large_space_are_within_its_ends(space_file):
    space = read_space(space_file(CONTINUOUS))
    some = rows(space, Draw("random", 200))
    assert len(set(some)) == 200
    assert {type(m) for m, *_ in some} == {int}
    assert all(1 <= m <= 1000 and 0.5 <= clock <= 2 for m, clock, _ in some)


def test_conditions_that_hold_nowhere_end_a_random_draw(space_file):
    space = read_space(space_file(f"{CONTINUOUS}where: m > 1000"))
    assert rows(space, Draw("random", 10)) == []


@pytest.mark.parametrize("count", [1, 7, 50])
def test_a_latin_hypercube_has_one_point_in_each_part_of_every_axis(space_file, count):
    space = read_space(space_file(CONTINUOUS))
    some = rows(space, Draw("latin", count, seed=5))
    m_parts = sorted((m - 1) * count // 1000 for m, *_ in some)
    clock_parts = sorted(int((clock - 0.5) / 1.5 * count) for _, clock, _ in some)
    assert clock_parts == list(range(count))
    assert m_parts == list(range(count))
    assert rows(space, Draw("latin", count, seed=5)) == some


def test_a_latin_hypercube_leaves_out_what_the_conditions_exclude(space_file):
    whole = read_space(space_file(CONTINUOUS))
    space = read_space(space_file(f"{CONTINUOUS}where: m <= 500"))
    expected = [row for row in rows(whole, Draw("latin", 40)) if row[0] <= 500]
    assert rows(space, Draw("latin", 40)) == expected
    assert len(expected) == 20


def test_a_grid_of_a_continuous_axis_says_what_it_needs(space_file):
    space = read_space(space_file(CONTINUOUS))
    with pytest.raises(UsageError, match="a grid needs its step"):
        check_draw(space, Draw(), True)
    check_draw(space, Draw("latin", 10), False)


def test_a_million_points_are_asked_for_twice(space_file):
    text = "bench: matmul\nset: {m: {from: 1, to: 1000}, k: {from: 1, to: 1001}}"
    space = read_space(space_file(text))
    with pytest.raises(UsageError, match=r"a space of 1,001,000 points, .*; --yes"):
        check_draw(space, Draw(), False)
    check_draw(space, Draw(), True)
    check_draw(space, Draw("random", 10), False)
    with pytest.raises(UsageError, match="2,000,000 points"):
        check_draw(space, Draw("random", 2_000_000), False)
    first = next(iter(drawn(space, Draw())))
    assert dict(first.params) == {"m": 1, "k": 1}
