"""Durations as the machine has them, worked out in fractions (docs/machine.md)."""

from fractions import Fraction
from itertools import pairwise


def rounded(ns):
    """The nearest whole number of 2^-10 ns, of two the even one."""
    return float(Fraction(round(Fraction(ns) * 1024), 1024))


def header_ns(graph, path, overheads):
    """ns until a header that left path[0] is at path[-1]: hop by hop, wire and
    overhead together.
    """
    return sum(
        rounded(
            graph.edge_by_ends[ends].distance_mm * 0.01
            + overheads.get(graph.nodes[ends[1]].type, 0)
        )
        for ends in pairwise(path)
    )
