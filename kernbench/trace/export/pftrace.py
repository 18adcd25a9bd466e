"""A trace in Perfetto's own protobuf: machine > SIP > cube > PE > component.

Tracks are nested, and in the order of their numbers.

The package perfetto, which this needs, is imported when a trace is written.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, BinaryIO

from kernbench.common.progress import Progress
from kernbench.trace.export.timeline import (
    COUNTERS_TITLE,
    Slices,
    Timeline,
    place_title,
    timeline_of,
)
from kernbench.trace.reader import Trace

_EXPLICIT = 3  # TrackDescriptor.ChildTracksOrdering
_NEVER_MERGED = 2  # TrackDescriptor.SiblingMergeBehavior
_BEGIN = 1  # TrackEvent.Type
_END = 2
_COUNTER = 4
_SEQUENCE = 1
_MACHINE = 1  # the uuid of the first track

_BEHIND_TRACKS = 1 << 24
"""The rank of the first place within another: that one's own tracks are before it."""

_BEHIND_ALL = 1 << 28
"""The rank of the counters, in the machine."""

_REPORTED = 256  # slices between two calls of progress


def export_pftrace(trace: Trace, path: Path, progress: Progress) -> dict[str, int]:
    """Write the file; how many tracks, counter values, slices and arrows.

    ``progress`` is called with the share of slices that are written.
    """
    timeline = timeline_of(trace)
    with open(path, "wb") as file:
        return _Writer(file, timeline).write(progress)


class _Writer:
    """Writes a timeline, packet by packet."""

    def __init__(self, file: BinaryIO, timeline: Timeline) -> None:
        from perfetto.protos.perfetto.trace import perfetto_trace_pb2

        self._packets = perfetto_trace_pb2.Trace
        self._file = file
        self._timeline = timeline
        self._tracks = 0
        self._flows = _flows(timeline)

    def write(self, progress: Progress) -> dict[str, int]:
        """Write all; how many of each kind there are."""
        timeline = self._timeline
        uuids = self._write_tracks()
        counts = {"counters": self._write_counters()}
        total = sum(len(slices.track) for slices in timeline.slices)
        done = 0
        for slices in timeline.slices:
            count = len(slices.track)
            for first in range(0, count, _REPORTED):
                end = min(first + _REPORTED, count)
                self._write_slices(slices, uuids, first, end)
                done += end - first
                progress(done / total)
            counts[slices.kind] = count
        arrows = int(timeline.arrows.number.max(initial=0))
        return {"tracks": self._tracks, **counts, "arrows": arrows}

    # -- tracks --

    def _write_tracks(self) -> list[int]:
        """Write the tracks of places and of components; the uuids of the latter.

        The first of all is that of the machine.
        """
        places: dict[tuple[int, ...], int] = {}
        self._place((), places)
        for place in self._timeline.places:
            self._place(place, places)
        uuids = []
        for rank, track in enumerate(self._timeline.tracks):
            parent = places[_levels(self._timeline.places[track.place])]
            uuids.append(self._track(track.title, parent, rank))
        return uuids

    def _place(self, place: tuple[int, ...], uuids: dict[tuple[int, ...], int]) -> int:
        """The uuid of the track of a place, which is written with those around it.

        All are in that of the machine: what is in none is drawn by name, sip10 before
        sip2.
        """
        levels = _levels(place)
        if levels not in uuids:
            title = place_title(levels).rpartition(" ")[2]
            parent = 0
            rank = 0
            if levels:
                parent = self._place(levels[:-1], uuids)
                rank = _BEHIND_TRACKS + levels[-1]
            uuids[levels] = self._track(title, parent, rank)
        return uuids[levels]

    def _track(self, title: str, parent: int, rank: int, unit: str = "") -> int:
        """Write a track; its uuid."""
        self._tracks += 1
        packets = self._packets()
        packet = packets.packet.add()
        packet.trusted_packet_sequence_id = _SEQUENCE
        track = packet.track_descriptor
        track.uuid = self._tracks
        if parent:
            track.parent_uuid = parent
        track.name = title
        track.child_ordering = _EXPLICIT
        track.sibling_order_rank = rank
        track.sibling_merge_behavior = _NEVER_MERGED
        if unit:
            track.counter.unit_name = unit
        self._file.write(packets.SerializeToString())
        return self._tracks

    def _write_counters(self) -> int:
        """Write the counters with their tracks; how many values they have."""
        counters = self._timeline.counters
        if not counters:
            return 0
        parent = self._track(COUNTERS_TITLE, _MACHINE, _BEHIND_ALL)
        count = 0
        for rank, counter in enumerate(counters):
            uuid = self._track(counter.title, parent, rank, "%")
            packets = self._packets()
            values = zip(counter.ns.tolist(), counter.percents.tolist(), strict=True)
            for ns, percent in values:
                event = self._event(packets, ns, uuid, _COUNTER)
                event.double_counter_value = percent
                count += 1
            self._file.write(packets.SerializeToString())
        return count

    # -- slices --

    def _event(self, packets: Any, ns: int, track: int, kind: int) -> Any:
        """Add an event to some packets; before 0 the format has no time."""
        packet = packets.packet.add()
        packet.timestamp = max(ns, 0)
        packet.trusted_packet_sequence_id = _SEQUENCE
        event = packet.track_event
        event.type = kind
        event.track_uuid = track
        return event

    def _write_slices(
        self, slices: Slices, uuids: list[int], first: int, end: int
    ) -> None:
        """Write the slices from ``first`` to before ``end``: two events each."""
        packets = self._packets()
        tracks = slices.track[first:end].tolist()
        starts = slices.start_ns[first:end].tolist()
        ends = slices.end_ns[first:end].tolist()
        for number, track, start_ns, end_ns in zip(
            range(first, end), tracks, starts, ends, strict=True
        ):
            uuid = uuids[track]
            begin = self._event(packets, start_ns, uuid, _BEGIN)
            begin.name = slices.name[number]
            begin.categories.append(slices.category[number])
            _annotate(begin, slices, number)
            if slices is self._timeline.ops:
                for flow, is_last in self._flows.get(number, ()):
                    flows = begin.flow_ids
                    if is_last:
                        flows = begin.terminating_flow_ids
                    flows.append(flow)
            self._event(packets, end_ns, uuid, _END)
        self._file.write(packets.SerializeToString())


def _levels(place: tuple[int, ...]) -> tuple[int, ...]:
    """The numbers of a place as far as it has them: () of the machine's own."""
    levels = []
    for number in place:
        if number < 0:
            break
        levels.append(number)
    return tuple(levels)


def _annotate(event: Any, slices: Slices, number: int) -> None:
    """Give an event the args of a slice."""
    for name, values in slices.args.items():
        value = values[number]
        if value is None:
            continue
        note = event.debug_annotations.add()
        note.name = name
        if isinstance(value, str):
            note.string_value = value
        else:
            note.int_value = value


def _flows(timeline: Timeline) -> dict[int, list[tuple[int, bool]]]:
    """By op the arrows that touch it, and whether each ends there."""
    arrows = timeline.arrows
    flows: dict[int, list[tuple[int, bool]]] = {}
    rows = zip(
        arrows.op.tolist(),
        arrows.number.tolist(),
        arrows.phase.tolist(),
        strict=True,
    )
    for op, number, phase in rows:
        flows.setdefault(op, []).append((number, phase == "f"))
    return flows
