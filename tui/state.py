"""What the user has set on a trace, kept by the trace's hash in the state directory;
recent files.

Nothing in these files can make the program fail: what does not fit is left out, and
said.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from platformdirs import user_state_path

from tui.private_file import write_private

if TYPE_CHECKING:
    from kernbench.replay.command import Call
    from tui.screens.debugger import DebuggerScreen

_TRACES = 200
_RECENT = 20
"""That are kept."""
_WRONG = (TypeError, ValueError, LookupError, AttributeError, OverflowError)
_LEAST_WINDOW_NS = 0.1


# -- files of the state directory ---------------------------------------------


def read(name: str) -> tuple[dict[str, Any], str]:
    """The map in a file of the state directory, {} where there is none; what is wrong
    with it.
    """
    path = user_state_path("kernbench") / name
    try:
        return dict(json.loads(path.read_text(encoding="utf-8"))), ""
    except FileNotFoundError:
        return {}, ""
    except (OSError, RecursionError, *_WRONG) as why:
        return {}, f"{path}: not read, so left out: {why}".splitlines()[0]


def write(name: str, kept: dict[str, Any]) -> None:
    """Put a map there: all of it or, where that fails, nothing. Raises OSError."""
    write_private(name, json.dumps(kept).encode())


def recent() -> list[Path]:
    """The traces opened last that are still there, the latest first."""
    files = read("recent.json")[0].get("files")
    named = files if isinstance(files, list) else []
    return [
        Path(file) for file in named if isinstance(file, str) and os.path.isfile(file)
    ]


def remember(path: Path) -> None:
    """Put a trace in front of the recent ones; drop what is kept of traces long
    unopened.
    """
    files = dict.fromkeys(map(str, [path.resolve(), *recent()]))
    with suppress(OSError):
        write("recent.json", {"files": [*files][:_RECENT]})
        traces = (user_state_path("kernbench") / "traces").glob("*.json")
        for old in sorted(traces, key=os.path.getmtime)[:-_TRACES]:
            old.unlink()


# -- what is kept of a screen -------------------------------------------------


def state(screen: DebuggerScreen) -> dict[str, Any]:
    """All that is kept of a screen, ready for JSON."""
    from tui.desk import ROW_OF

    session = screen.session
    timeline = screen.desk.states["timeline"]
    views = {
        str(ROW_OF[key].number): pane.view(screen.desk.states[key])
        for key, pane in screen.desk.panes.items()
    }
    stops = [f"{stop.kind} {stop.what}" for stop in session.stops]
    stops += [call.text for call in screen.pending_stops]
    return {
        "cursor": session.cursor,
        "level": session.level,
        "marks": dict(session.marks),
        "pins": list(timeline.pins),
        "folds": sorted(timeline.folds),
        "t0": timeline.window[0],
        "t1": timeline.window[1],
        "active": ROW_OF[screen.active].number,
        "tab": ROW_OF[screen.tab].number,
        "maximised": screen.maximised,
        "views": views,
        "stops": stops,
    }


def restore(screen: DebuggerScreen, kept: dict[str, Any]) -> list[str]:
    """Make a new screen stand as ``state`` found it; what was left out, a line each."""
    from kernbench.replay.query import Session
    from tui.panes import PANES

    desk = screen.desk
    last = len(desk.index.ops) - 1
    end = 4 * max(desk.index.trace.end_ns, 1.0)
    numbers = [row.number for row in PANES]
    notes: list[str] = []

    def taken(name: str, read: Callable[[Any], Any], default: Any) -> Any:
        """The value that was kept under a name; the default where it does not fit."""
        if name not in kept:
            return default
        try:
            return read(kept[name])
        except _WRONG:
            text = f"{name} {kept[name]!r:.40} does not fit this trace, so left out"
            notes.append(text)
            return default

    session = screen.session
    timeline = desk.states["timeline"]
    t0, t1 = timeline.window
    desk.replay.state = Session(
        cursor=taken("cursor", lambda x: _whole(x, -1, last), session.cursor),
        level=taken("level", lambda x: _whole(x, 0, 4), session.level),
        marks=taken("marks", lambda x: _marks(x, last), session.marks),
        left=session.left,
        returned=session.returned,
        stops=session.stops,
        made=session.made,
    )
    pins = taken("pins", lambda x: tuple(_texts(x)), timeline.pins)
    folds = taken("folds", lambda x: frozenset(_texts(x)), timeline.folds)
    window = (
        taken("t0", lambda x: _number(x, -end, end), t0),
        taken("t1", lambda x: _number(x, -end, end), t1),
    )
    if window[1] - window[0] < _LEAST_WINDOW_NS:
        window = (t0, t1)
    desk.states["timeline"] = replace(timeline, pins=pins, folds=folds, window=window)
    by_number = {row.number: row.key for row in PANES}
    active = taken("active", lambda x: _whole(x, 1, max(numbers)), None)
    screen.active = by_number.get(active, screen.active)
    tab = taken("tab", lambda x: _whole(x, 2, max(numbers)), None)
    screen.tab = by_number.get(tab, screen.tab)
    screen.maximised = taken("maximised", lambda x: bool(_whole(x, 0, 1)), False)
    if "cursor" not in kept:
        desk.follow()  # the window that was kept may be elsewhere
    _restore_views(screen, kept.get("views"))
    screen.pending_stops = _stops(kept.get("stops"))
    return notes


def _restore_views(screen: DebuggerScreen, kept: Any) -> None:
    from tui.panes import PANES

    views = kept if isinstance(kept, dict) else {}
    desk = screen.desk
    for row in PANES:
        pane = desk.panes[row.key]
        view = views.get(str(row.number))
        if isinstance(view, int) and 0 <= view < len(pane.views):
            desk.states[row.key] = pane.with_view(desk.states[row.key], view)


def _stops(kept: Any) -> list[Call]:
    """The calls that make the stops that were kept; those that no longer parse are
    gone.
    """
    from kernbench.errors import KernbenchError
    from kernbench.replay.commands import BREAK, CATCH, WATCH, parse

    calls = []
    for line in kept if isinstance(kept, list) else ():
        if isinstance(line, str):
            with suppress(KernbenchError):
                call = parse(line)
                if call.command in (BREAK, WATCH, CATCH):
                    calls.append(call)
    return calls


def _number(value: Any, least: float, most: float) -> float:
    """A number in that range; raises ValueError for what is none."""
    if not isinstance(value, int | float) or not least <= value <= most:
        raise ValueError(value)
    return float(value)


def _whole(value: Any, least: int, most: int) -> int:
    if not isinstance(value, int) or not least <= value <= most:
        raise ValueError(value)
    return int(value)


def _marks(value: Any, last: int) -> tuple[tuple[str, int], ...]:
    return tuple((str(name), _whole(op, -1, last)) for name, op in value.items())


def _texts(value: Any) -> list[str]:
    return [text for text in value if isinstance(text, str)]
