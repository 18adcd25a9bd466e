"""The stages of tiles as a pipeline, for the viewer Konata: its Kanata log, version 4.

A tile is what an instruction is there, and a cycle is a ns.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

import numpy as np

from kernbench.common.progress import Progress
from kernbench.trace.export.tables import op_table
from kernbench.trace.export.timeline import to_ps
from kernbench.trace.hops import tile_columns
from kernbench.trace.reader import Trace
from kernbench.trace.schema import Columns

_STAGE_PREFIX = "TileToken/"


class _Tile(NamedTuple):
    """A tile: its composite's op, and the ops of its stages in their order."""

    composite: int
    tile_index: tuple[int, int, int]
    stages: list[int]


def export_konata(trace: Trace, path: Path, progress: Progress) -> dict[str, int]:
    """Write the file; how many tiles and stages it has.

    Tiles are in the order of their first stages, and retire in that of their last. The
    thread of a tile is its PE, counted over the machine.
    """
    ops = op_table(trace)
    start = to_ps(ops["t_start"]) // 1000
    end = to_ps(ops["t_end"]) // 1000
    tiles = _tiles(trace)
    commands: dict[int, list[str]] = defaultdict(list)
    # A tile ends and retires before another begins at the same ns.
    by_end = sorted(
        range(len(tiles)), key=lambda tile: int(end[tiles[tile].stages[-1]])
    )
    retired = {tile: number for number, tile in enumerate(by_end)}
    threads = _threads(trace)
    for number, tile in enumerate(tiles):
        first = tile.stages[0]
        at = int(start[first])
        commands[at] += [
            f"I\t{number}\t{tile.composite}\t{threads[first]}",
            f"L\t{number}\t0\t{_label(ops, tile)}",
            f"L\t{number}\t1\t{ops['file'][first]}:{ops['line'][first]}",
        ]
    for number, tile in enumerate(tiles):
        for op in tile.stages:
            stage = ops["name"][op].removeprefix(_STAGE_PREFIX)
            commands[int(start[op])].append(f"S\t{number}\t0\t{stage}")
            commands[int(end[op])].append(f"E\t{number}\t0\t{stage}")
        last = int(end[tile.stages[-1]])
        commands[last].append(f"R\t{number}\t{retired[number]}\t0")
    _write(path, commands)
    progress(1.0)
    stages = sum(len(tile.stages) for tile in tiles)
    return {"tiles": len(tiles), "stages": stages}


def _tiles(trace: Trace) -> list[_Tile]:
    """All tiles, by the start of their first stage."""
    parent_by_row, tile_by_row = tile_columns(trace)
    parent = parent_by_row[trace.order]
    tile = tile_by_row[trace.order]
    stages: dict[tuple[int, int], list[int]] = {}
    for op in np.flatnonzero((tile >= 0) & (parent >= 0)).tolist():
        stages.setdefault((int(parent[op]), int(tile[op])), []).append(op)
    tiles = []
    for (composite, number), its in stages.items():
        index = (number >> 40, number >> 20 & 0xFFFFF, number & 0xFFFFF)
        tiles.append(_Tile(int(trace.position[composite]), index, its))
    return tiles


def _threads(trace: Trace) -> list[int]:
    """By op the number of its PE among all of the machine, in their order, from 0."""
    nodes = trace.nodes
    levels = np.stack([nodes.sip[:], nodes.cube[:], nodes.pe[:]])
    (in_pes,) = np.nonzero(levels[2] >= 0)
    _, which = np.unique(levels[:, in_pes], axis=1, return_inverse=True)
    of_node = np.zeros(levels.shape[1], np.int64)
    of_node[in_pes] = which.ravel()
    threads: list[int] = of_node[trace.op_columns.component[trace.order]].tolist()
    return threads


def _label(ops: Columns, tile: _Tile) -> str:
    place = ops["component"][tile.composite].rpartition(".")[0]
    index = ",".join(map(str, tile.tile_index))
    return f"{place} op {tile.composite} tile {index}"


def _write(path: Path, commands: dict[int, list[str]]) -> None:
    """Write the commands of each cycle."""
    with open(path, "w", encoding="utf-8") as file:
        file.write("Kanata\t0004\n")
        before = min(commands, default=0)
        file.write(f"C=\t{before}\n")
        for cycle in sorted(commands):
            if cycle > before:
                file.write(f"C\t{cycle - before}\n")
            before = cycle
            file.write("\n".join(commands[cycle]) + "\n")
