"""Where the chain of a wrong element parts from that of a right one.

Two elements that the same kernel made have the same chain: the same lines, each as
often, given as many elements of the same tensors. What one has and the other has not is
what made them differ, or is next to it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import zip_longest

import numpy as np

from kernbench.replay.data.blame import Blame, Link, Part
from kernbench.replay.text import count_text, number_text, wrapped

_INDEX = re.compile(r"\[([\d:, ]*\d[\d:, ]*)\]$")
"""The index behind the name of a part."""
_ALIKE = 0.5
"""The share of the ops of two chains that have to be of the same lines."""
HOST_WRITE = "host_write"


@dataclass(frozen=True, slots=True)
class Difference:
    """A place where two chains differ: ``what`` in words, and the ops of either.

    ``site`` is the kernel line that is about; an op is -1 where a chain has none.
    """

    what: str
    site: str
    good: int
    bad: int


@dataclass(frozen=True, slots=True)
class Parting:
    """The chains of a right element, ``good``, and of a wrong one, ``bad``.

    ``differences`` are in the order of the ops, so the first is where they part.
    """

    good: Blame
    bad: Blame
    differences: tuple[Difference, ...]

    @property
    def is_telling(self) -> bool:
        """Whether the right element is made as the wrong one was to be.

        Half of the ops of their kernels have to be of the same lines. An element that
        the host filled, or another PE by other lines, differs for good reasons. A wrong
        one that no kernel wrote was to be made as the right one is.
        """
        good = _kernel_lines(self.good)
        bad = _kernel_lines(self.bad)
        if not good or not bad:
            return bool(good)
        common = (good & bad).total()
        return 2 * common >= _ALIKE * (good.total() + bad.total())

    def lines(self, width: int) -> list[str]:
        """As text: both elements, where they part, and what else differs."""
        lines = [
            f"{name} {blame.part.name} = {blame.part.value or '?'}: "
            f"{count_text(len(blame.links), 'op')} behind it"
            for name, blame in (("good", self.good), ("bad ", self.bad))
        ]
        if not self.differences:
            same = (
                "the chains are alike, op by op: what differs is what the inputs "
                "hold, or which of their elements were read"
            )
            return [*lines, *wrapped(same, width)]
        if not self.is_telling:
            lines += wrapped(
                f"{self.good.part.name} is made otherwise than {self.bad.part.name}, "
                "so where they part need not be wrong",
                width,
            )
        first, *others = self.differences
        lines += wrapped(f"they part at {_as_text(first)}", width, 2)
        for other in others:
            lines += wrapped(f"then {_as_text(other)}", width, 2)
        return lines


def _as_text(difference: Difference) -> str:
    """A difference in a sentence, with its ops."""
    ops = []
    if difference.good >= 0:
        ops.append(f"op {difference.good:,} of the good one")
    if difference.bad >= 0:
        ops.append(f"op {difference.bad:,} of the bad one")
    return f"{difference.site}: {difference.what} ({', '.join(ops)})"


def parting_of(good: Blame, bad: Blame) -> Parting:
    """Where the chain of ``bad`` parts from that of ``good``."""
    mine = _in_order(good)
    others = _in_order(bad)
    apart = _apart(good.part, bad.part)
    return Parting(good, bad, tuple(_differences(mine, others, apart)))


def _kernel_lines(blame: Blame) -> Counter[tuple[str, str]]:
    """How many ops of a chain are of each line and name, but for those of the host."""
    return Counter(
        (link.op.site, link.op.name)
        for link in blame.links
        if link.op.name != HOST_WRITE
    )


def _in_order(blame: Blame) -> list[Link]:
    """The links of a chain, the first op first."""
    return sorted(blame.links, key=lambda link: link.op.op)


def _differences(
    good: Sequence[Link], bad: Sequence[Link], apart: Sequence[int]
) -> Iterator[Difference]:
    """The places where two chains differ, in the order of their ops.

    ``apart`` is how far the wrong element is from the right one, by axis.
    """
    matcher = SequenceMatcher(
        None,
        [(link.op.site, link.op.name) for link in good],
        [(link.op.site, link.op.name) for link in bad],
        autojunk=False,
    )
    for tag, g0, g1, b0, b1 in matcher.get_opcodes():
        if tag == "equal":
            for one, other in zip(good[g0:g1], bad[b0:b1], strict=True):
                yield from _given_otherwise(one, other, apart)
            continue
        for link in good[g0:g1]:
            yield Difference(_missing(link, good, bad), link.op.site, link.op.op, -1)
        for link in bad[b0:b1]:
            yield Difference(_missing(link, bad, good), link.op.site, -1, link.op.op)


def _missing(link: Link, mine: Sequence[Link], others: Sequence[Link]) -> str:
    """That an op of a chain has no counterpart, and how often its line is in each."""
    site = link.op.site
    here = sum(other.op.site == site for other in mine)
    there = sum(other.op.site == site for other in others)
    return f"{link.op.name} is in one chain only; its line {here:,} times and {there:,}"


def _given_otherwise(
    good: Link, bad: Link, apart: Sequence[int]
) -> Iterator[Difference]:
    """What two ops of one line were given that is not alike."""
    pair = (good.op.site, good.op.op, bad.op.op)
    for one, other in zip_longest(good.reads, bad.reads):
        what = _otherwise(one, other, apart)
        if what:
            yield Difference(f"{good.op.name} {what}", *pair)
    if not np.array_equal(good.numbers, bad.numbers, equal_nan=True):
        one_has = ", ".join(map(number_text, good.numbers)) or "no number"
        other_has = ", ".join(map(number_text, bad.numbers)) or "none"
        text = f"{good.op.name} is given {one_has} in one, and {other_has} in the other"
        yield Difference(text, *pair)
    notes = Counter(bad.notes)
    notes.subtract(good.notes)
    for note, times in notes.items():
        if times > 0:
            yield Difference(f"{bad.op.name}: {note}", *pair)


def _otherwise(one: Part | None, other: Part | None, apart: Sequence[int]) -> str:
    """How an operand differs from its counterpart; "" if it does not."""
    if one is None or other is None:
        part = one or other
        assert part is not None
        return f"has {part.name} as one more operand"
    if _tensor(one) != _tensor(other):
        return f"reads {one.name} in one, and {other.name} in the other"
    if one.elements != other.elements:
        return (
            f"reads {count_text(one.elements, 'element')} of {_tensor(one)} in one, "
            f"and {other.elements:,} in the other"
        )
    written = (-1 in one.writers, -1 in other.writers)
    if written[0] != written[1]:
        return f"reads {other.name}, part of which nobody wrote in one of them"
    if not set(_apart(one, other)) <= {0, *apart}:
        return (
            f"reads {one.name} in one, and {other.name} in the other, which is not as "
            "far on as the elements are"
        )
    return ""


def _apart(one: Part, other: Part) -> tuple[int, ...]:
    """How far the first element of a part is from that of another, by axis.

    Nothing of parts without an index, nor of the scratch of a PE.
    """
    origins = []
    for part in (one, other):
        index = _INDEX.search(part.name)
        if part.space == "tcm" or index is None:
            return ()
        spans = index[1].split(",")
        origins.append([int(span.partition(":")[0] or 0) for span in spans])
    if len(origins[0]) != len(origins[1]):
        return ()
    return tuple(b - a for a, b in zip(*origins, strict=True))


def _tensor(part: Part) -> str:
    """The name of a part without its index, and without whose copy it is.

    Scratch of a PE has a name of its own each time, so all of it counts as one.
    """
    if part.space == "tcm":
        return "scratch"
    return part.name.partition("[")[0].partition("@")[0]
