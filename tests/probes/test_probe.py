"""``kernbench probe`` and ``info``: formula and simulation agree on every machine, or
say where not.
"""

import json
from dataclasses import replace

import pytest
from click.testing import CliRunner

from kernbench.cli import main
from kernbench.components.builtin.hbm_ctrl import HbmCtrl
from kernbench.policy.routing.router import PathRouter
from kernbench.probes import describe, probe
from kernbench.probes.probe import SIZES
from kernbench.topology import TopologySpec, build_topology
from kernbench.topology.spec import (
    ComponentSpec,
    CubeMeshSpec,
    HbmSpec,
    HbmZoneSpec,
    MemoryMapSpec,
    MeshSpec,
    SipsSpec,
)

FAMILIES = [
    *("host to HBM write", "HBM to host read"),
    *("own slice read", "own slice write", "same half read", "same half write"),
    *("cross half read", "cross half write", "nearest cube read", "nearest cube write"),
    *("farthest cube read", "farthest cube write", "other SIP read", "other SIP write"),
    *("m_cpu to HBM write", "launch launch"),
]


class SlowHbm(HbmCtrl):
    """A user's model of the HBM: a nanosecond later than the spec says."""

    def burst(self, now, rows, owner):
        start, access, service = super().burst(now, rows, owner)
        return start, access + 1, service


def kernbench(*args):
    return CliRunner().invoke(main, list(args))


CHANNELS_GBS = 8 * 32 * (1 - 260 / 3900)
"""What the channels of a slice give together, less what refreshes take."""


def small_spec(cube=None, pe=None, sips=1, cubes=(1, 1)):
    """The shipped machine with fewer SIPs and cubes, and some fields of cube and PE
    replaced.
    """
    spec = TopologySpec()
    return replace(
        spec,
        system=replace(spec.system, sips=SipsSpec(count=sips)),
        sip=replace(spec.sip, cube_mesh=CubeMeshSpec(*cubes)),
        cube=replace(spec.cube, **(cube or {})),
        pe=replace(spec.pe, **(pe or {})),
    )


def dma(**fields):
    return {"dma": replace(TopologySpec().pe.dma, **fields)}


@pytest.fixture(scope="module")
def report(shipped):
    return probe(shipped)


def pick(report, family, op, nbytes=4096):
    (row,) = (
        r for r in report.rows if (r.family, r.op, r.nbytes) == (family, op, nbytes)
    )
    return row


@pytest.mark.slow
def test_every_family_is_there_at_every_size(report):
    assert list(dict.fromkeys(f"{r.family} {r.op}" for r in report.rows)) == FAMILIES
    for family in FAMILIES[:-1]:
        assert [
            r.nbytes for r in report.rows if f"{r.family} {r.op}" == family
        ] == list(SIZES)
    assert report.omitted == ()


@pytest.mark.slow
def test_formula_and_simulation_agree_on_the_shipped_machine(report):
    assert report.ok, report.as_text()


def test_the_formula_of_a_read_of_the_own_slice_by_hand(report):
    row = pick(report, "own slice", "read")
    # the router of 2 ns and 1.3 mm of wire at 0.01 ns/mm, in 1/1024 ns: 13.312
    hop = 2 + 13 / 1024
    request = hop + 32 / 256
    # the controller, tRP, tRCD and CL; then 512 bytes of each channel, as 8 accesses
    # of 2 ns, a fifteenth of the time being refreshes
    access = 3 + 14 + 14 + 14
    data = hop + 8 * round(2 / (1 - 260 / 3900) * 1024) / 1024
    assert row.formula_ns == row.simulated_ns == 20 + request + access + data
    assert row.bandwidth_gbs == pytest.approx(4096 / row.simulated_ns)


@pytest.mark.parametrize(
    ("family", "op", "gbs"),
    [
        ("own slice", "read", CHANNELS_GBS),
        ("cross half", "write", CHANNELS_GBS),
        ("farthest cube", "read", 128),
        ("other SIP", "write", 63),
        ("host to HBM", "write", 63),
        ("HBM to host", "read", 63),
        ("m_cpu to HBM", "write", 64),
    ],
)
def test_each_byte_more_takes_one_over_the_bottleneck(report, family, op, gbs):
    small, large = (pick(report, family, op, nbytes) for nbytes in (1 << 18, 1 << 20))
    more = (1 << 20) - (1 << 18)
    longer = large.formula_ns - small.formula_ns
    assert longer == pytest.approx(more / gbs, rel=5e-4)


def test_farther_means_later_and_longer(shipped, report):
    families = ["own slice", "same half", "cross half", "nearest cube", "farthest cube"]
    for op in ("read", "write"):
        for nbytes in SIZES:
            times = [
                pick(report, family, op, nbytes).simulated_ns for family in families
            ]
            assert times == sorted(set(times))
    router = PathRouter(shipped)
    ends = [pick(report, family, "write").path[-1] for family in families]
    distances = [
        router.find_path_with_distance("sip0.cube0.pe0", end)[1] for end in ends
    ]
    assert distances == sorted(set(distances))


@pytest.mark.parametrize(
    ("family", "kind", "gbs"),
    [
        ("own slice", "hbm channels", CHANNELS_GBS),
        ("farthest cube", "ucie", 128),
        ("other SIP", "(pcie)", 63),
        ("host to HBM", "(pcie)", 63),
        ("HBM to host", "(pcie)", 63),
    ],
)
def test_the_bottleneck_is_the_slowest_link_and_fills_up(report, family, kind, gbs):
    rows = [r for r in report.rows if (r.family, r.nbytes) == (family, 1 << 20)]
    assert rows
    for row in rows:
        assert kind in row.bottleneck
        assert row.utilisation == pytest.approx(row.bandwidth_gbs / gbs, rel=0.02)
        assert 0.9 < row.utilisation < 1


@pytest.mark.slow
@pytest.mark.parametrize("interleave", [256, 512, 2048, 8192])
def test_all_channels_work_whatever_the_interleave(layout_cache, interleave):
    spec = small_spec({"hbm": HbmSpec(interleave_bytes=interleave)})
    found = probe(build_topology(spec, layout_cache))
    # where a burst covers few channels, the hash has some of them wait for others
    least = 0.97 if interleave <= 512 else 0.8
    for op in ("read", "write"):
        row = pick(found, "own slice", op, 1 << 20)
        assert least * CHANNELS_GBS < row.bandwidth_gbs < CHANNELS_GBS


@pytest.mark.slow
def test_slow_channels_are_the_bottleneck(layout_cache):
    slow = build_topology(small_spec({"hbm": HbmSpec(channel_bw_gbs=4)}), layout_cache)
    row = pick(probe(slow), "own slice", "read", 1 << 20)
    assert row.bottleneck == "hbm channels"
    assert row.utilisation == pytest.approx(row.bandwidth_gbs / 30, rel=0.01)


MACHINES = [
    small_spec({"pes": 1, "memory_map": MemoryMapSpec(slices_per_cube=1)}),
    small_spec({"hbm": HbmSpec(channels=16, interleave_bytes=64, channel_bw_gbs=5)}),
    small_spec({"hbm": HbmSpec(channels=8, interleave_bytes=2048, channel_bw_gbs=3)}),
    small_spec({"hbm": HbmSpec(interleave_bytes=8192)}, dma(burst_bytes=3000)),
    small_spec(pe=dma(burst_bytes=1 << 16, setup_ns=0, to_router_bw_gbs=40)),
    small_spec({"pes": 16, "memory_map": MemoryMapSpec(slices_per_cube=16)}),
    small_spec(
        {"mesh": MeshSpec(3, 5), "hbm_zone": HbmZoneSpec(1, 1, 1, 2)},
        cubes=(2, 2),
        sips=3,
    ),
    small_spec({"hbm": HbmSpec(channels=1, access_ns=0)}, dma(burst_bytes=1024)),
    small_spec({"hbm": HbmSpec(channels=8, interleave_bytes=2048)}),
    small_spec({"hbm": HbmSpec(interleave_bytes=2048, to_router_bw_gbs=500)}),
    replace(small_spec(), system=replace(TopologySpec().system, pcie_bw_gbs=400)),
    small_spec(pe=dma(burst_bytes=5000)),
    small_spec({"hbm": HbmSpec(channels=6, interleave_bytes=512)}),
    small_spec(
        {"hbm": HbmSpec(channels=7, interleave_bytes=999)}, dma(burst_bytes=3000)
    ),
]


def name_of(spec):
    """What tells the machines apart."""
    hbm = spec.cube.hbm
    return (
        f"{spec.cube.pes}pe-{hbm.channels}x{hbm.interleave_bytes}"
        f"-{spec.pe.dma.burst_bytes}"
    )


@pytest.mark.parametrize("spec", MACHINES, ids=name_of)
@pytest.mark.slow
def test_formula_and_simulation_agree_on_other_machines(layout_cache, spec):
    report = probe(build_topology(spec, layout_cache))
    assert report.ok, report.as_text()


@pytest.mark.slow
def test_what_a_machine_lacks_is_left_out_with_a_word(layout_cache):
    one = small_spec({"pes": 1, "memory_map": MemoryMapSpec(slices_per_cube=1)})
    report = probe(build_topology(one, layout_cache))
    assert {r.family for r in report.rows} == {
        *("host to HBM", "HBM to host", "own slice", "m_cpu to HBM", "launch")
    }
    assert [text.split(" (")[0] for text in report.omitted] == [
        *("same half", "cross half", "nearest cube", "farthest cube", "other SIP")
    ]
    assert "left out: other SIP (one SIP)" in report.as_text()


@pytest.mark.slow
def test_a_component_that_departs_from_the_spec_is_found(layout_cache):
    spec = small_spec()
    slow = ComponentSpec("test_probe:SlowHbm")
    spec = replace(spec, components=replace(spec.components, hbm_ctrl=slow))
    report = probe(build_topology(spec, layout_cache))
    assert not report.ok
    assert [r.ok for r in report.rows] == [r.family == "launch" for r in report.rows]
    assert "differ in host to HBM write of 4096" in report.as_text()


@pytest.mark.slow
def test_probe_exits_0_with_a_table_where_all_agree(tmp_path):
    machine = tmp_path / "one.yaml"
    machine.write_text("system: {sips: {count: 1}}\nsip: {cube_mesh: {w: 1, h: 1}}\n")
    result = kernbench("probe", "--topology", str(machine))
    assert result.exit_code == 0
    assert "agree" in result.output.splitlines()[-1]
    assert "DIFFERS" not in result.output


@pytest.mark.slow
def test_probe_and_info_take_fields_as_a_run_does():
    one = ["--spec", "sips.count=1", "cube_mesh.w=1", "cube_mesh.h=1"]
    result = kernbench("probe", *one, "router.overhead_ns=3", "--json")
    slow = json.loads(result.output)["rows"]
    fast = json.loads(kernbench("probe", *one, "--json").output)["rows"]
    at = [row["family"] for row in fast].index("own slice")
    one_router_each_way = 2 * (3 - 2)
    assert fast[at]["op"] == "read"
    assert slow[at]["simulated_ns"] - fast[at]["simulated_ns"] == one_router_each_way
    assert "1 SIPs x 1 cubes" in kernbench("info", *one).output
    assert kernbench("info", "--topology", "--spec", "pes=1").exit_code == 2


@pytest.mark.slow
def test_probe_exits_1_and_says_where_they_differ(tmp_path):
    machine = tmp_path / "slow.yaml"
    machine.write_text(
        "system: {sips: {count: 1}}\nsip: {cube_mesh: {w: 1, h: 1}}\n"
        "components: {hbm_ctrl: {impl: 'test_probe:SlowHbm'}}\n"
    )
    text = kernbench("probe", "--topology", str(machine))
    answer = json.loads(kernbench("probe", "--topology", str(machine), "--json").output)
    assert text.exit_code == 1
    assert "own slice read of 65536" in text.output.splitlines()[-1]
    assert answer["ok"] is False
    assert {row["family"] for row in answer["rows"] if row["ok"]} == {"launch"}
    assert answer["rows"][0].keys() >= {
        "formula_ns",
        "simulated_ns",
        "bottleneck",
        "utilisation",
    }


def test_a_topology_that_is_not_there_is_one_line():
    result = kernbench("probe", "--topology", "nowhere.yaml")
    assert (result.exit_code, len(result.stderr.splitlines())) == (2, 1)


def test_describe_counts_the_shipped_machine(shipped):
    titles = describe(shipped)
    assert titles["machine"] == "2 SIPs x 16 cubes x 8 PEs = 256 PEs"
    assert titles["GEMM"].startswith("2,097.2 TFLOP/s")  # 256 x 64 x 64 x 2 at 1 GHz
    assert titles["HBM"].startswith("65,536 GB/s")
    assert f"{len(shipped.edges):,}" in titles["edges"]


def test_info_names_versions_machine_files_and_benches():
    result = kernbench("info")
    assert result.exit_code == 0
    assert all(
        len(line) <= 100 for line in result.output.splitlines() if "/" not in line
    )
    for part in (
        "kernbench",
        "python",
        "numpy",
        "simpy",
        "256 PEs",
        "configs",
        "cache",
        "matmul",
    ):
        assert part in result.output
