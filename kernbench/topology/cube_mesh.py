"""The layout of one cube: which router each unit is attached to, and where it lies.

Owns the router grid and the cache of its last layout. Knows no names and no other cube. Row 0 is
the north edge, column 0 the west; places are mm from the north-west corner of the cube.
"""

import hashlib
import json
import os
from contextlib import suppress
from functools import partial
from itertools import product
from pathlib import Path
from typing import NamedTuple

import platformdirs

from kernbench.topology.spec import CubeSpec

SIDES = ("N", "S", "E", "W")
_CACHE_FILE = (
    "cube_mesh.yaml"  # written as JSON, which is YAML and ten times as fast to read
)
_RULES = 1  # the version of the rules below: a layout by others is not reused


class Place(NamedTuple):
    """Where a unit lies, and the row and column of the router that it is attached to."""

    x_mm: float
    y_mm: float
    row: int
    col: int


class CubeMesh(NamedTuple):
    """A place for every unit: ``pes[p]`` and ``hbm[p]`` share a router.

    ``connections`` holds those of each UCIe side in the order of SIDES, from west or north.
    """

    routers: tuple[Place, ...]
    pes: tuple[Place, ...]
    hbm: tuple[Place, ...]
    m_cpu: Place
    sram: Place
    connections: tuple[tuple[Place, ...], ...]


def source_hash(cube: CubeSpec) -> str:
    """SHA-256 over the five fields that a layout depends on."""
    layout, connections = (cube.pe_layout, cube.pes), cube.ucie.connections_per_side
    source = (_RULES, cube.size_mm, cube.mesh, cube.hbm_zone, layout, connections)
    return hashlib.sha256(repr(source).encode()).hexdigest()


def cube_mesh(cube: CubeSpec, cache_dir: Path | None = None) -> CubeMesh:
    """The layout of ``cube``: the cached one if its ``source_hash`` matches, else a new one.

    ``cache_dir`` None is the user's cache directory. A cache that fails is no error.
    """
    file = (cache_dir or platformdirs.user_cache_path("kernbench")) / _CACHE_FILE
    key = source_hash(cube)
    mesh = _read(file, key)
    if mesh is None:
        mesh = lay_out(cube)
        _write(file, key, mesh)
    return mesh


def on_border(cube: CubeSpec, side: str, at: float) -> tuple[float, float]:
    """The point, in mm, ``at`` (0 to 1 from west or north) of a side of the cube."""
    x, y = {"N": (at, 0.0), "S": (at, 1.0), "E": (1.0, at), "W": (0.0, at)}[side]
    return x * cube.size_mm.w, y * cube.size_mm.h


def lay_out(cube: CubeSpec) -> CubeMesh:
    """Routers on the grid minus the HBM zone; PEs by corner; the rest at the nearest router."""
    width, height, zone = cube.size_mm.w, cube.size_mm.h, cube.hbm_zone
    dx, dy, count = (
        width / cube.mesh.cols,
        height / cube.mesh.rows,
        cube.ucie.connections_per_side,
    )
    routers = tuple(
        Place(round((col + 0.5) * dx, 6), round((row + 0.5) * dy, 6), row, col)
        for row, col in product(range(cube.mesh.rows), range(cube.mesh.cols))
        if not (0 <= row - zone.row < zone.rows and 0 <= col - zone.col < zone.cols)
    )

    def nearest(x: float, y: float) -> Place:
        router = min(
            routers, key=lambda r: (round(abs(r.x_mm - x) + abs(r.y_mm - y), 6), *r[2:])
        )
        return Place(round(x, 6), round(y, 6), router.row, router.col)

    homes = _by_corner(routers, cube)
    return CubeMesh(
        routers=routers,
        pes=tuple(r._replace(x_mm=round(r.x_mm - 0.3 * dx, 6)) for r in homes),
        hbm=tuple(r._replace(x_mm=round(r.x_mm + 0.3 * dx, 6)) for r in homes),
        m_cpu=nearest(0.25 * width, 0.5 * height),
        sram=nearest(0.75 * width, 0.5 * height),
        connections=tuple(
            tuple(
                nearest(*on_border(cube, side, (k + 0.5) / count)) for k in range(count)
            )
            for side in SIDES
        ),
    )


def _by_corner(routers: tuple[Place, ...], cube: CubeSpec) -> list[Place]:
    """The router of each PE: a quarter of the PEs to each corner (NW NE SW SE), outer rows first.

    A corner fills from its second column on: the PEs of the north half are then nearer to each
    other than to any of the south half, and the first column is left to the E and W connections.
    """
    rows, cols = cube.mesh.rows, cube.mesh.cols
    free, homes = list(routers), []

    def rank(south: int, east: int, router: Place) -> tuple[int, ...]:
        row = rows - 1 - router.row if south else router.row
        col = cols - 1 - router.col if east else router.col
        return (2 * row >= rows, 2 * col >= cols, row, col == 0, col)

    for pe in range(cube.pes):
        homes.append(min(free, key=partial(rank, *divmod(pe * 4 // cube.pes, 2))))
        free.remove(homes[-1])
    return homes


def _read(file: Path, key: str) -> CubeMesh | None:
    """The layout in ``file``, or None if there is none of this ``key``."""
    try:
        held = json.loads(file.read_text(encoding="utf-8"))
        if held["source_hash"] != key:
            return None
        routers, pes, hbm, (m_cpu, sram), *sides = (
            tuple(Place(*place) for place in places) for places in held["layout"]
        )
        return CubeMesh(routers, pes, hbm, m_cpu, sram, tuple(sides))
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return None


def _write(file: Path, key: str, mesh: CubeMesh) -> None:
    layout = [
        mesh.routers,
        mesh.pes,
        mesh.hbm,
        (mesh.m_cpu, mesh.sram),
        *mesh.connections,
    ]
    fresh = file.with_suffix(f".{os.getpid()}.tmp")
    with suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        try:
            fresh.write_text(
                json.dumps({"source_hash": key, "layout": layout}), encoding="utf-8"
            )
            os.replace(fresh, file)
        finally:
            fresh.unlink(missing_ok=True)
