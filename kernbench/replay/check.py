"""What a trace file is worth: its frames by tag, and what is missing or damaged."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernbench.common.progress import Cancelled, Progress, computed_beside, no_progress
from kernbench.replay.text import table
from kernbench.trace import Trace
from kernbench.trace.frames import Frame, FrameFile, OnFrame

_LOGS = ("commands", "callers", "transfers", "waits")


@dataclass(frozen=True, slots=True)
class TagCount:
    """The frames of one tag, and the bytes of their bodies.

    ``rows`` can be read of them, ``told`` is what the end frame says were recorded;
    None where rows of that tag are not counted.
    """

    tag: str
    frames: int
    bytes: int
    rows: int | None
    told: int | None


@dataclass(frozen=True, slots=True)
class Check:
    """``ok`` if the run was recorded to its end and every frame is sound.

    ``damaged`` are maps of offset, tag ("?": no frame can be read there) and reason.
    """

    ok: bool
    bytes: int
    complete: bool
    tags: tuple[TagCount, ...]
    damaged: tuple[dict[str, Any], ...]

    def lines(self, width: int) -> list[str]:
        """As text for ``width`` columns."""
        verdict = "ok" if self.ok else "NOT OK"
        lines = [f"{verdict}: {self.bytes:,} bytes"]
        if not self.complete:
            lines.append(
                "cut off: no end frame, so the run or its recording was stopped"
            )
        for tag in self.tags:
            if tag.told is not None and tag.rows != tag.told:
                rows = f"{tag.rows or 0:,} rows of the {tag.told:,}"
                lines.append(f"{tag.tag}: {rows} that were recorded")
        for damage in self.damaged:
            where = f"{damage['tag']} at {damage['offset']:,}"
            lines.append(f"damaged: {where}: {damage['reason']}")
        return [*lines, *table(self.tags, "frames bytes rows told tag")]


def check_file(path: str | Path, progress: Progress = no_progress) -> Check:
    """Read every frame, and compare with what the end frame has counted.

    Reads the whole file, as every checksum is looked at. TraceFormatError if there is
    no readable first frame: then it is no trace.
    """
    is_wanted = True

    def stop_if_unwanted(frame: Frame) -> None:
        """Called before each frame is read, on the thread that reads."""
        if not is_wanted:
            raise Cancelled("nobody waits for what the file is worth")

    try:
        return computed_beside(
            lambda: _checked(Path(path), stop_if_unwanted), progress, 0.0
        )
    except BaseException:
        is_wanted = False
        raise


def _checked(path: Path, on_frame: OnFrame) -> Check:
    """``check_file``, whose frames are announced before they are read."""
    file = FrameFile(path, on_frame=on_frame)
    trace = Trace(file)
    trace.check()
    rows = _rows(trace)
    recorded = _recorded(trace, rows)
    for tag in file.by_tag:  # those too that nothing above looks into
        for _ in file.each(tag, lambda frame: None):
            pass
    # what was counted and has no frame is missing: it gets a row as well
    without_frames = [tag for tag, count in recorded.items() if count]
    tags = list[TagCount]()
    for tag in dict.fromkeys([*file.by_tag, *without_frames]):
        frames = file.by_tag.get(tag, [])
        nbytes = sum(frame.size for frame in frames)
        count = TagCount(tag, len(frames), nbytes, rows.get(tag), recorded.get(tag))
        tags.append(count)
    damaged = tuple(damage._asdict() for damage in sorted(file.damaged))
    is_missing = any(rows[tag] != count for tag, count in recorded.items())
    ok = trace.complete and not damaged and not is_missing
    return Check(ok, file.size, trace.complete, tuple(tags), damaged)


def _rows(trace: Trace) -> dict[str, int]:
    """By tag how many rows can be read."""
    rows = {"ops": len(trace.op_columns.cmd), "alloc": len(trace.allocs)}
    for tag in _LOGS:
        rows[tag] = len(getattr(trace, tag).cmd)
    rows["launches"] = len(trace.launches)
    rows["text"] = len(trace.texts)
    return rows


def _recorded(trace: Trace, rows: dict[str, int]) -> dict[str, int]:
    """By tag how many rows the end frame has counted, as far as they make sense."""
    counts = (trace.end or {}).get("counts")
    if not isinstance(counts, dict):
        return {}
    return {
        tag: count
        for tag, count in counts.items()
        if tag in rows and isinstance(count, int)
    }
