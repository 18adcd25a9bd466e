"""Rings that are smaller than what a link holds on the way: how many slots would do.

A sender may have as many bytes on their way as its neighbour's ring has room for. A
link is busy all the time only if that is at least its bandwidth times the time from the
push of a slot until its credit is back.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil
from typing import NamedTuple


class ShortRing(NamedTuple):
    """A ring that a payload did not fit, and that keeps its link waiting.

    ``bandwidth_gbs`` is that of the slowest link to it, ``round_trip_ns`` the time of a
    full slot until its credit is back, on the idle machine.
    """

    slots: int
    slot_bytes: int
    bandwidth_gbs: float
    round_trip_ns: float

    @property
    def on_the_way_bytes(self) -> float:
        """The bytes that keep the link busy for a round trip."""
        return self.bandwidth_gbs * self.round_trip_ns

    @property
    def is_short(self) -> bool:
        """Whether all slots together are less than that."""
        return self.slots * self.slot_bytes < self.on_the_way_bytes

    @property
    def slots_needed(self) -> int:
        """The least number of slots of this size that are not."""
        return ceil(self.on_the_way_bytes / self.slot_bytes)


def short_ring_notes(short: Mapping[tuple[str, str], ShortRing]) -> tuple[str, ...]:
    """One line about all short rings of a run; nothing if there is none.

    Keys are the sender's pe_ipcq and its direction. The line has the numbers of the
    ring that needs the most slots.
    """
    if not short:
        return ()
    (sender, way), worst = max(short.items(), key=lambda item: item[1].slots_needed)
    others = ""
    if len(short) > 1:
        others = f" and {len(short) - 1} more"
    return (
        f"ring of {worst.slots} slots x {worst.slot_bytes:,} B from {sender} to {way}"
        f"{others}: less than bandwidth x round trip, {worst.bandwidth_gbs:g} GB/s x "
        f"{worst.round_trip_ns:,.1f} ns = {worst.on_the_way_bytes:,.0f} B, so the link "
        f"waits for credits; {worst.slots_needed} slots would do (ccl.yaml, slots)",
    )
