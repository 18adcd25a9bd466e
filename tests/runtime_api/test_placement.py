"""Where shards lie: the split by ceiling, replicas, idle places."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernbench.errors import UsageError
from kernbench.runtime_api.placement import POLICIES, DPPolicy, place_shards


def boxes(shape, *, cubes=2, pes=2, sips=1, **policy):
    """(origin, shape, places) of every shard."""
    placed = place_shards(shape, DPPolicy(**policy), sips, cubes, pes)
    return [(p.origin, p.shape, p.places) for p in placed]


def test_replicate_is_one_shard_on_every_pe():
    ((origin, shape, places),) = boxes((3, 4))
    assert (origin, shape) == ((0, 0), (3, 4))
    assert places == ((0, 0, 0), (0, 0, 1), (0, 1, 0), (0, 1, 1))


def test_rows_over_cubes_and_columns_over_pes():
    assert boxes((4, 6), cube="row_wise", pe="column_wise") == [
        ((0, 0), (2, 3), ((0, 0, 0),)),
        ((0, 3), (2, 3), ((0, 0, 1),)),
        ((2, 0), (2, 3), ((0, 1, 0),)),
        ((2, 3), (2, 3), ((0, 1, 1),)),
    ]


def test_cubes_are_counted_over_all_sips_sip_major():
    rows = boxes((4, 1), sips=2, cubes=2, pes=1, cube="row_wise")
    assert [places for _, _, places in rows] == [
        ((0, 0, 0),),
        ((0, 1, 0),),
        ((1, 0, 0),),
        ((1, 1, 0),),
    ]


def test_what_does_not_divide_makes_the_last_shard_shorter():
    assert [s for _, s, _ in boxes((5,), cubes=1, pes=3, pe="row_wise")] == [
        (2,),
        (2,),
        (1,),
    ]


def test_empty_shards_are_left_out_and_their_pes_idle():
    rows = boxes((5,), cubes=1, pes=4, pe="row_wise")  # ceil(5 / 4) = 2: 2 + 2 + 1 + 0
    assert [places[0][2] for _, _, places in rows] == [0, 1, 2]


def test_a_shard_replicated_over_cubes_has_a_copy_in_each():
    rows = boxes((2, 2), pe="column_wise")
    assert [places for _, _, places in rows] == [
        ((0, 0, 0), (0, 1, 0)),
        ((0, 0, 1), (0, 1, 1)),
    ]


def test_num_cubes_and_num_pes_take_the_first_so_many():
    ((_, _, places),) = boxes((2,), sips=2, num_cubes=3, num_pes=1)
    assert places == ((0, 0, 0), (0, 1, 0), (1, 0, 0))


@pytest.mark.parametrize("count", [0, -1, 5])
@pytest.mark.parametrize("name", ["num_cubes", "num_pes"])
def test_more_than_there_are_or_none_is_refused(name, count):
    with pytest.raises(UsageError, match=rf"{name}={count}; this machine has 1 to "):
        boxes((2,), **{name: count})


def test_an_unknown_policy_names_the_valid_ones():
    with pytest.raises(
        UsageError, match="cube='diagonal'; valid: replicate, row_wise, column_wi"
    ):
        DPPolicy(cube="diagonal")


def test_a_scalar_cannot_be_split():
    assert len(boxes(())) == 1
    with pytest.raises(UsageError, match="without axes cannot be split row_wise"):
        boxes((), pe="row_wise")


@given(
    shape=st.lists(st.integers(1, 12), min_size=1, max_size=3).map(tuple),
    policies=st.tuples(*2 * [st.sampled_from(POLICIES)]),
    sizes=st.tuples(*3 * [st.integers(1, 4)]),
)
def test_shards_cover_every_element_once(shape, policies, sizes):
    sips, cubes, pes = sizes
    counts = {}
    rows = boxes(
        shape, sips=sips, cubes=cubes, pes=pes, cube=policies[0], pe=policies[1]
    )
    for origin, extents, places in rows:
        assert min(extents) > 0
        assert len(set(places)) == len(places) > 0
        cells = [()]
        for low, extent in zip(origin, extents, strict=True):
            cells = [(*cell, low + i) for cell in cells for i in range(extent)]
        for cell in cells:
            counts[cell] = counts.get(cell, 0) + 1
    expected = 1
    for extent in shape:
        expected *= extent
    assert len(counts) == expected
    assert set(counts.values()) == {1}
