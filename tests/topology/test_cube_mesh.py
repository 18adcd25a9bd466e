import json
from dataclasses import fields, is_dataclass, replace

import pytest
import yaml

from kernbench.topology import TopologySpec, build_topology
from kernbench.topology.cube_mesh import SIDES, cube_mesh, lay_out, source_hash
from kernbench.topology.spec import (
    CubeMeshSpec,
    CubeSpec,
    HbmZoneSpec,
    MeshSpec,
    SipSpec,
)

CUBE = CubeSpec()


def where(places):
    return [(place.row, place.col) for place in places]


def test_routers_fill_the_grid_but_for_the_hbm_zone():
    grid = {(row, col) for row in range(6) for col in range(6)}
    zone = {(2, 2), (2, 3), (3, 2), (3, 3)}
    assert set(where(lay_out(CUBE).routers)) == grid - zone


def test_pes_lie_two_to_a_corner_each_on_a_router_of_its_own():
    homes = where(lay_out(CUBE).pes)
    assert homes == [(0, 1), (0, 2), (0, 4), (0, 3), (5, 1), (5, 2), (5, 4), (5, 3)]


def test_the_hbm_slice_of_a_pe_is_at_its_router():
    mesh = lay_out(CUBE)
    assert where(mesh.hbm) == where(mesh.pes)


def test_memories_and_m_cpu_are_at_the_nearest_router():
    mesh = lay_out(CUBE)
    for unit in mesh.units.values():
        lengths = {
            (r.row, r.col): abs(r.x_mm - unit.x_mm) + abs(r.y_mm - unit.y_mm)
            for r in mesh.routers
        }
        assert lengths[unit.row, unit.col] == min(lengths.values())


def test_connections_spread_over_their_border():
    sides = dict(zip(SIDES, map(where, lay_out(CUBE).connections), strict=True))
    assert sides["N"] == [(0, 0), (0, 2), (0, 3), (0, 5)]
    assert sides["S"] == [(5, 0), (5, 2), (5, 3), (5, 5)]
    assert sides["E"] == [(0, 5), (2, 5), (3, 5), (5, 5)]
    assert sides["W"] == [(0, 0), (2, 0), (3, 0), (5, 0)]


@pytest.mark.parametrize("pes", range(1, 17))
def test_any_number_of_pes_gets_different_routers(pes):
    cube = replace(CUBE, pes=pes, mesh=MeshSpec(4, 5), hbm_zone=HbmZoneSpec(1, 1, 2, 2))
    homes = where(lay_out(cube).pes)
    assert len(set(homes)) == pes
    assert set(homes) <= set(where(lay_out(cube).routers))


def test_units_find_a_router_where_the_zone_reaches_the_border():
    mesh = lay_out(replace(CUBE, hbm_zone=HbmZoneSpec(0, 1, 5, 5)))
    units = [
        *mesh.pes,
        *mesh.units.values(),
        *(p for side in mesh.connections for p in side),
    ]
    assert set(where(units)) <= set(where(mesh.routers))


def leaves(spec, prefix=""):
    for field in fields(spec):
        value = getattr(spec, field.name)
        path = f"{prefix}{field.name}"
        yield from leaves(value, f"{path}.") if is_dataclass(value) else [path]


def with_another(spec, path):
    """``spec`` with another value of the field at ``path``."""
    name, _, below = path.partition(".")
    value = getattr(spec, name)
    if below:
        return replace(spec, **{name: with_another(value, below)})
    return replace(spec, **{name: f"{value}2" if isinstance(value, str) else value + 1})


LAYOUT = (
    "size_mm.",
    "mesh.",
    "hbm_zone.",
    "pe_layout",
    "pes",
    "ucie.connections_per_side",
)


@pytest.mark.parametrize("path", [p for p in leaves(CUBE) if p.startswith(LAYOUT)])
def test_a_change_to_each_field_of_the_layout_makes_a_new_one(tmp_path, path):
    cube_mesh(CUBE, tmp_path)
    changed = with_another(CUBE, path)
    assert cube_mesh(changed, tmp_path) == lay_out(changed)
    held = yaml.safe_load((tmp_path / "cube_mesh.yaml").read_text())
    assert held["source_hash"] == source_hash(changed) != source_hash(CUBE)


@pytest.mark.parametrize("path", [p for p in leaves(CUBE) if not p.startswith(LAYOUT)])
def test_a_change_to_any_other_field_of_a_cube_makes_none(tmp_path, monkeypatch, path):
    made = cube_mesh(CUBE, tmp_path)
    monkeypatch.setattr("kernbench.topology.cube_mesh.lay_out", None)
    assert cube_mesh(with_another(CUBE, path), tmp_path) == made


def test_a_change_outside_the_cube_makes_none(tmp_path, monkeypatch):
    small = TopologySpec(sip=SipSpec(CubeMeshSpec(1, 1)))
    build_topology(small, tmp_path)
    monkeypatch.setattr("kernbench.topology.cube_mesh.lay_out", None)
    for path in (
        "system.sips.count",
        "sip.cube_mesh.h",
        "pe.gemm.rows",
        "components.sram.impl",
    ):
        assert build_topology(with_another(small, path), tmp_path).nodes


def test_the_cache_holds_what_was_laid_out(tmp_path):
    first = cube_mesh(CUBE, tmp_path / "new" / "dir")
    file = tmp_path / "new" / "dir" / "cube_mesh.yaml"
    assert yaml.safe_load(file.read_text())["source_hash"] == source_hash(CUBE)
    assert list(file.parent.iterdir()) == [file]
    assert cube_mesh(CUBE, file.parent) == first == lay_out(CUBE)


def test_a_matching_cache_is_read_and_not_written(tmp_path, monkeypatch):
    cube_mesh(CUBE, tmp_path)
    before = (tmp_path / "cube_mesh.yaml").stat()
    monkeypatch.setattr("kernbench.topology.cube_mesh.lay_out", None)
    assert cube_mesh(CUBE, tmp_path).units["m_cpu"].col == 1
    after = (tmp_path / "cube_mesh.yaml").stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_the_cache_of_another_cube_is_replaced(tmp_path):
    other = replace(CUBE, mesh=MeshSpec(7, 7))
    cube_mesh(CUBE, tmp_path)
    assert cube_mesh(other, tmp_path) == lay_out(other)
    held = yaml.safe_load((tmp_path / "cube_mesh.yaml").read_text())
    assert held["source_hash"] == source_hash(other)


def edited(text, change):
    held = yaml.safe_load(text)
    change(held)
    return json.dumps(held)


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: "",
        lambda text: "[1, 2",
        lambda text: "\x00",
        lambda text: "[" * 200000,
        lambda text: text[: len(text) // 2],
        lambda text: "just text",
        lambda text: edited(text, lambda held: held.pop("layout")),
        lambda text: edited(text, lambda held: held.update(layout=3)),
        lambda text: edited(text, lambda held: held["layout"]["pes"][0].pop()),
    ],
)
def test_a_damaged_cache_is_laid_out_again(tmp_path, damage):
    file = tmp_path / "cube_mesh.yaml"
    cube_mesh(CUBE, tmp_path)
    file.write_text(damage(file.read_text()))
    assert cube_mesh(CUBE, tmp_path) == lay_out(CUBE)
    assert cube_mesh(CUBE, tmp_path) == lay_out(CUBE)
    assert yaml.safe_load(file.read_text())["source_hash"] == source_hash(CUBE)


def test_a_cache_that_cannot_be_written_is_no_error(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("not a directory")
    assert cube_mesh(CUBE, blocked) == lay_out(CUBE)
    (tmp_path / "cube_mesh.yaml").mkdir()
    assert cube_mesh(CUBE, tmp_path) == lay_out(CUBE)
    assert not list(tmp_path.glob("*.tmp"))


def test_without_a_directory_the_users_cache_is_used(tmp_path, monkeypatch):
    monkeypatch.setattr("platformdirs.user_cache_path", lambda app: tmp_path / app)
    cube_mesh(CUBE)
    assert (tmp_path / "kernbench" / "cube_mesh.yaml").exists()
