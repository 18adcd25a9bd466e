"""What a trace file is worth: its frames by tag, and all that is missing of them or damaged."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernbench.replay.text import table
from kernbench.trace import Trace
from kernbench.trace.frames import FrameFile


@dataclass(frozen=True, slots=True)
class TagCount:
    """Frames of one tag, bytes of their bodies, rows that can be read and rows told by ``end``."""

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
        lines = [f"{'ok' if self.ok else 'NOT OK'}: {self.bytes:,} bytes"]
        if not self.complete:
            lines.append(
                "cut off: no end frame, so the run or its recording was stopped"
            )
        for t in self.tags:
            if t.told is not None and t.rows != t.told:
                lines.append(
                    f"{t.tag}: {t.rows or 0:,} rows of the {t.told:,} that were recorded"
                )
        lines += [
            f"damaged: {d['tag']} at {d['offset']:,}: {d['reason']}"
            for d in self.damaged
        ]
        return [*lines, *table(self.tags, "frames bytes rows told tag")]


def check_file(path: str | Path) -> Check:
    """Read every frame and compare with what ``end`` counted; TraceFormatError if none is there."""
    file = FrameFile(Path(path))
    trace = Trace(file)
    trace.check()
    rows = {"ops": len(trace.op_columns.cmd), "alloc": len(trace.allocs)}
    rows |= {
        tag: len(getattr(trace, tag).cmd) for tag in ("commands", "transfers", "waits")
    }
    rows |= {"launches": len(trace.launches), "text": len(trace.texts)}
    counts = (trace.end or {}).get("counts")
    told = counts.items() if isinstance(counts, dict) else ()
    recorded = {tag: n for tag, n in told if tag in rows and isinstance(n, int)}
    for tag in file.by_tag:  # those too that nothing above looks into
        list(file.each(tag, lambda frame: None))
    tags = tuple(
        TagCount(
            tag,
            len(frames),
            sum(f.size for f in frames),
            rows.get(tag),
            recorded.get(tag),
        )
        for tag in dict.fromkeys([*file.by_tag, *(t for t, n in recorded.items() if n)])
        for frames in [file.by_tag.get(tag, [])]
    )
    damaged = tuple(damage._asdict() for damage in sorted(file.damaged))
    missing = any(rows[tag] != n for tag, n in recorded.items())
    ok = trace.complete and not damaged and not missing
    return Check(ok, file.size, trace.complete, tags, damaged)
