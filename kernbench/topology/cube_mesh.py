"""The layout of one cube: which router each unit is attached to, and where it lies.

Owns the router grid and the cache of its last layout. Knows no node names and no other
cube. Row 0 is the north edge and column 0 the west; places are mm from the north-west
corner of the cube.
"""

import hashlib
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from itertools import product
from pathlib import Path
from typing import NamedTuple

import platformdirs

from kernbench.topology.kinds import cube_units
from kernbench.topology.spec import CubeSpec

SIDES = ("N", "S", "E", "W")
_CACHE_FILE = "cube_mesh.yaml"
"""It is written as JSON, which is YAML too and ten times as fast to read."""

_RULES = 2
"""The version of the rules below: a layout made by others is not reused."""


class Place(NamedTuple):
    """Where a unit lies, and row and column of the router that it is attached to."""

    x_mm: float
    y_mm: float
    row: int
    col: int


class CubeMesh(NamedTuple):
    """A place for every unit of a cube.

    ``pes[p]`` and ``hbm[p]`` share a router. ``units`` are by kind. ``connections``
    holds those of each UCIe side in the order of SIDES, from west or north.
    """

    routers: tuple[Place, ...]
    pes: tuple[Place, ...]
    hbm: tuple[Place, ...]
    units: Mapping[str, Place]
    connections: tuple[tuple[Place, ...], ...]


def source_hash(cube: CubeSpec) -> str:
    """SHA-256, in hex, over what a layout depends on.

    That is five fields of the spec (size, mesh, HBM zone, layout of the PEs with their
    number, UCIe connections a side), the units that a cube has, and the rules.
    """
    source = (
        _RULES,
        cube.size_mm,
        cube.mesh,
        cube.hbm_zone,
        (cube.pe_layout, cube.pes),
        cube.ucie.connections_per_side,
        [(kind.name, kind.at) for kind in cube_units()],
    )
    return hashlib.sha256(repr(source).encode()).hexdigest()


def cube_mesh(cube: CubeSpec, cache_dir: Path | None = None) -> CubeMesh:
    """The layout of ``cube``: the cached one if its ``source_hash`` matches, or new.

    ``cache_dir`` None is the user's cache directory. A cache that fails is no error.
    """
    folder = cache_dir or platformdirs.user_cache_path("kernbench")
    file = folder / _CACHE_FILE
    key = source_hash(cube)
    mesh = _read(file, key)
    if mesh is None:
        mesh = lay_out(cube)
        _write(file, key, mesh)
    return mesh


def on_border(cube: CubeSpec, side: str, at: float) -> tuple[float, float]:
    """A point of a side of the cube, in mm: ``at`` is its share from west or north."""
    ends = {"N": (at, 0.0), "S": (at, 1.0), "E": (1.0, at), "W": (0.0, at)}
    x_share, y_share = ends[side]
    return x_share * cube.size_mm.w, y_share * cube.size_mm.h


def lay_out(cube: CubeSpec) -> CubeMesh:
    """A new layout, by rule.

    Routers lie on the grid but for the HBM zone, and PEs at routers by corner. What
    else a cube has lies at its place, attached to the nearest router.
    """
    dx_mm = cube.size_mm.w / cube.mesh.cols
    routers = _routers(cube)
    homes = _by_corner(routers, cube)
    pes = [home._replace(x_mm=round(home.x_mm - 0.3 * dx_mm, 6)) for home in homes]
    hbm = [home._replace(x_mm=round(home.x_mm + 0.3 * dx_mm, 6)) for home in homes]
    units = {}
    for kind in cube_units():
        x_share, y_share = kind.at
        x_mm = x_share * cube.size_mm.w
        y_mm = y_share * cube.size_mm.h
        units[kind.name] = _attached(routers, x_mm, y_mm)
    count = cube.ucie.connections_per_side
    connections = []
    for side in SIDES:
        points = [on_border(cube, side, (k + 0.5) / count) for k in range(count)]
        connections.append(tuple(_attached(routers, *point) for point in points))
    return CubeMesh(routers, tuple(pes), tuple(hbm), units, tuple(connections))


def _routers(cube: CubeSpec) -> tuple[Place, ...]:
    """The routers, row by row: one in each cell of the grid outside of the HBM zone."""
    dx_mm = cube.size_mm.w / cube.mesh.cols
    dy_mm = cube.size_mm.h / cube.mesh.rows
    zone = cube.hbm_zone
    routers = []
    for row, col in product(range(cube.mesh.rows), range(cube.mesh.cols)):
        in_rows = 0 <= row - zone.row < zone.rows
        in_cols = 0 <= col - zone.col < zone.cols
        if not (in_rows and in_cols):
            x_mm = round((col + 0.5) * dx_mm, 6)
            y_mm = round((row + 0.5) * dy_mm, 6)
            routers.append(Place(x_mm, y_mm, row, col))
    return tuple(routers)


def _attached(routers: tuple[Place, ...], x_mm: float, y_mm: float) -> Place:
    """A unit at a point, attached to the router that is nearest by Manhattan distance.

    Of several it is the first by row and column.
    """

    def rank(router: Place) -> tuple[float, int, int]:
        """How far a router is, and where: the smallest is the nearest."""
        distance_mm = abs(router.x_mm - x_mm) + abs(router.y_mm - y_mm)
        return round(distance_mm, 6), router.row, router.col

    nearest = min(routers, key=rank)
    return Place(round(x_mm, 6), round(y_mm, 6), nearest.row, nearest.col)


def _by_corner(routers: tuple[Place, ...], cube: CubeSpec) -> list[Place]:
    """The router of each PE: a quarter of them to each corner (NW NE SW SE).

    A corner fills from its outer rows, and in these from its second column on: the PEs
    of the north half are then nearer to each other than to any of the south half, and
    the first column is left to the E and W connections.
    """
    rows = cube.mesh.rows
    cols = cube.mesh.cols

    def rank(south: int, east: int, router: Place) -> tuple[int, ...]:
        """A router's place seen from a corner: the smallest is taken first."""
        row = rows - 1 - router.row if south else router.row
        col = cols - 1 - router.col if east else router.col
        other_half = 2 * row >= rows
        other_side = 2 * col >= cols
        return other_half, other_side, row, col == 0, col

    free = list(routers)
    homes: list[Place] = []
    for pe in range(cube.pes):
        south, east = divmod(pe * 4 // cube.pes, 2)
        home = min(free, key=partial(rank, south, east))
        homes.append(home)
        free.remove(home)
    return homes


def _read(file: Path, key: str) -> CubeMesh | None:
    """The layout in ``file``, or None if there is none of this ``key``."""
    try:
        held = json.loads(file.read_text(encoding="utf-8"))
        if held["source_hash"] != key:
            return None
        layout = held["layout"]
        return CubeMesh(
            routers=_places(layout["routers"]),
            pes=_places(layout["pes"]),
            hbm=_places(layout["hbm"]),
            units={name: Place(*place) for name, place in layout["units"].items()},
            connections=tuple(_places(side) for side in layout["connections"]),
        )
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None


def _places(rows: list[list[float]]) -> tuple[Place, ...]:
    return tuple(Place(*row) for row in rows)  # type: ignore[arg-type]


def _write(file: Path, key: str, mesh: CubeMesh) -> None:
    """Keep a layout in ``file``, whole or not at all; where that fails, nothing is."""
    text = json.dumps({"source_hash": key, "layout": mesh._asdict()})
    fresh = file.with_suffix(f".{os.getpid()}.tmp")
    with suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        try:
            fresh.write_text(text, encoding="utf-8")
            os.replace(fresh, file)
        finally:
            fresh.unlink(missing_ok=True)
