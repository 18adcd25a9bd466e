"""The model against published numbers; ``validation_checks`` says what is compared with
what.
"""

from pathlib import Path

import pytest
import validation_checks as suite

README = Path(__file__).parents[2] / "README.md"


@pytest.fixture(scope="module")
def checks(layout_cache):
    """Rows of each suite, by its name."""
    return {made.__name__: list(made(layout_cache)) for made in suite.SUITES}


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory):
    return {
        name: suite.matmul(name, tmp_path_factory.mktemp("m"))
        for name in suite.MACHINES
    }


def test_gemm_takes_the_cycles_of_scale_sim(checks):
    assert [c.model for c in checks["scale_sim"]] == [
        cycles for _, _, cycles in suite.SCALE_SIM
    ]


@pytest.mark.parametrize(("size", "farthest"), [(4, 7), (8, 15)])
def test_a_packet_alone_takes_booksims_cycles_whatever_its_way(
    layout_cache, size, farthest
):
    flits = 3
    seen = list(suite.mesh_latencies(suite.booksim_mesh(size, layout_cache), flits))
    assert {routers for routers, _ in seen} == set(range(1, farthest + 1))
    for routers, ns in seen:
        assert ns == pytest.approx(5 * routers + 2 + flits - 1)


def test_booksims_mean_and_corners(checks):
    assert len(checks["booksim"]) == 8
    for check in checks["booksim"]:
        assert check.model == pytest.approx(check.reference), check


def test_a_mesh_link_saturates_at_its_bandwidth_and_never_above(checks):
    (check,) = checks["saturation"]
    assert 0.95 * check.reference <= check.model <= check.reference


def test_what_leaves_a_saturated_link_later_approaches_its_bandwidth_further(
    layout_cache,
):
    graph = suite.machine(layout_cache)
    rates = [16 * n / max(suite.link_ends(graph, n)[0]) for n in (4096, 65536, 262144)]
    assert rates == sorted(rates)
    assert 0.995 * 256 <= rates[-1] <= 256


def test_readers_of_one_channel_end_within_a_round_of_bursts(layout_cache):
    graph = suite.machine(layout_cache, hbm=suite.HbmSpec(channels=1))
    ends = suite.channel_ends(graph, 1, 65536, 65536)
    assert max(ends) - min(ends) < 8 * 4096 / 32


def test_one_channel_gives_its_bandwidth_to_eight_readers_together(checks):
    totals = [c for c in checks["fair_channel"] if c.source == "its bandwidth"]
    assert len(totals) == 2
    for check in totals:
        assert 0.95 * check.reference <= check.model <= check.reference


def test_readers_line_by_line_differ_by_their_distance_at_most(checks):
    for check in checks["fair_channel"]:
        if check.source == "an eighth":
            assert abs(check.error) < 6, check


@pytest.mark.parametrize("op", ["read", "write"])
def test_two_streams_over_one_ucie_connection_get_half_each(layout_cache, op):
    nbytes = 1 << 20
    burst_ns = 4096 / 128
    first, second = suite.ucie_ends(op, nbytes, layout_cache)
    assert abs(first - second) <= 2 * burst_ns
    assert 0.98 * 128 <= 2 * nbytes / max(first, second) <= 128


@pytest.mark.slow
def test_matmul_is_right_on_every_machine_size(verdicts):
    assert [(v.elements, v.mismatches) for v in verdicts.values()] == [(65536, 0)] * 3


def test_the_readme_shows_what_was_measured_here(checks, verdicts):
    rows = [check for made in checks.values() for check in made]
    assert suite.as_markdown(rows, verdicts) in README.read_text(encoding="utf-8")
