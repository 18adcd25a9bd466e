"""The classes that panes show ops in, a letter each."""

from __future__ import annotations

# Class letter -> what it stands for. Where two classes are busy for equally long in one
# cell of a timeline, the one that comes first here is shown.
CLASSES = {
    "G": "gemm",
    "M": "math",
    "R": "dma read",
    "W": "dma write",
    "F": "fetch",
    "S": "store",
    "H": "host transfer",
    "C": "composite",
    "?": "other",
}
CLASS_LETTERS = "".join(CLASSES)
COMPOSITE = CLASS_LETTERS.index("C")

# The stages of a tile, in the order in which it goes through them, and their classes.
STAGE_LETTERS = {
    "DMA_READ": "R",
    "FETCH": "F",
    "GEMM": "G",
    "MATH": "M",
    "STORE": "S",
    "DMA_WRITE": "W",
}
TILE_PREFIX = "TileToken/"  # of the names of ops that are one stage of one tile
COMPOSITE_PREFIX = "composite_"

_BY_KIND = "RGM?"  # by the rank of an op's kind: memory, gemm, math, unknown


def op_class(name: str, kind: int) -> str:
    """The class letter of an op, from its name and the rank of its kind."""
    if name.startswith(COMPOSITE_PREFIX):
        return "C"
    if name.startswith("host_"):
        return "H"
    if name == "ipcq_copy":
        # The sender's DMA engine pushes it into the memory of a peer.
        return "W"
    stage = name.removeprefix(TILE_PREFIX).upper()
    return STAGE_LETTERS.get(stage, _BY_KIND[kind])
