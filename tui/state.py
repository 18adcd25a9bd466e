"""What the user has set on a trace, kept by the trace's hash in the state directory; recent files.

Nothing in these files can make the program fail: what does not fit is left out, and said.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from platformdirs import user_state_path

from kernbench.errors import KernbenchError

if TYPE_CHECKING:
    from kernbench.replay.progress import Progress as Tell
    from tui.screens.debugger import DebuggerScreen

_TRACES, _RECENT = 200, 20  # that are kept
_WRONG = (TypeError, ValueError, LookupError, AttributeError, OverflowError)


def read(name: str) -> tuple[dict[str, Any], str]:
    """The map in a file of the state directory, {} where there is none; what is wrong with it."""
    path = user_state_path("kernbench") / name
    try:
        return dict(json.loads(path.read_text(encoding="utf-8"))), ""
    except FileNotFoundError:
        return {}, ""
    except (OSError, RecursionError, *_WRONG) as why:
        return {}, f"{path}: not read, so left out: {why}".splitlines()[0]


def write(name: str, kept: dict[str, Any]) -> None:
    """Put a map there: all of it or, where that fails, nothing. Raises OSError."""
    path = user_state_path("kernbench") / name
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f"{path.name}.{os.getpid()}")
    fresh.write_text(json.dumps(kept, default=sorted), encoding="utf-8")
    fresh.replace(path)


def recent() -> list[Path]:
    """The traces opened last that are still there, the latest first."""
    files = read("recent.json")[0].get("files")
    named = files if isinstance(files, list) else []
    return [
        Path(file) for file in named if isinstance(file, str) and os.path.isfile(file)
    ]


def remember(path: Path) -> None:
    """Put a trace in front of the recent ones; drop what is kept of traces long unopened."""
    files = dict.fromkeys(map(str, [path.resolve(), *recent()]))
    with suppress(OSError):
        write("recent.json", {"files": [*files][:_RECENT]})
        traces = (user_state_path("kernbench") / "traces").glob("*.json")
        for old in sorted(traces, key=os.path.getmtime)[:-_TRACES]:
            old.unlink()


def _homes(screen: DebuggerScreen) -> dict[str, tuple[Any, ...]]:
    """Of each attribute that is kept: whose it is, and the least and greatest of its values."""
    session, timeline, end = screen.session, screen.timeline, 4 * screen.timeline.end
    last, most = len(session) - 1, max(screen.panes)
    homes: dict[str, tuple[Any, ...]] = {
        "cursor": (session, -1, last),
        "level": (session, 0, 4),
    }
    homes |= {"marks": (session, -1, last), "pins": (timeline,), "folds": (timeline,)}
    homes |= {"t0": (timeline, -end, end), "t1": (timeline, -end, end)}
    homes |= {
        "active": (screen, 1, most),
        "tab": (screen, 2, most),
        "maximised": (screen, 0, 1),
    }
    return homes


def state(screen: DebuggerScreen) -> dict[str, Any]:
    """All that is kept of a screen, ready for JSON."""
    kept = {name: getattr(home, name) for name, (home, *_) in _homes(screen).items()}
    kept["views"] = {str(number): pane.view for number, pane in screen.panes.items()}
    return kept | {
        "stops": [f"{stop.kind} {stop.what}" for stop in screen.session.stops.all]
    }


def restore(screen: DebuggerScreen, kept: dict[str, Any]) -> list[str]:
    """Make a new screen stand as ``state`` found it; what was left out, a line each."""
    notes = []
    for name, (home, *limits) in _homes(screen).items():
        try:
            setattr(home, name, _like(getattr(home, name), kept[name], limits))
        except _WRONG:
            if name in kept:
                notes.append(
                    f"{name} {kept[name]!r:.40} does not fit this trace, so left out"
                )
    views = kept.get("views")
    views = views if isinstance(views, dict) else {}
    for number, pane in screen.panes.items():
        view: Any = views.get(str(number))
        pane.view = view if view in range(len(pane.views)) else 0
    if screen.timeline.t1 - screen.timeline.t0 < 0.1:
        screen.timeline.fit()
    if "cursor" not in kept:
        screen.timeline.follow()
    stops = kept.get("stops")
    if isinstance(stops, list) and stops:
        screen.jobs.ask(
            ("memory", "kept stops"), "stops", lambda tell: _stop(screen, stops, tell)
        )
    return notes


def _like(now: Any, kept: Any, limits: list[float]) -> Any:
    """A kept value as one of the kind of ``now``; raises what ``_WRONG`` lists if it is none."""
    if isinstance(now, dict):
        return {str(key): _like(0, value, limits) for key, value in kept.items()}
    if isinstance(now, list | set):
        return type(now)(text for text in kept if isinstance(text, str))
    if not (isinstance(kept, int | type(now)) and limits[0] <= kept <= limits[1]):
        raise ValueError
    return type(now)(kept)


def _stop(screen: DebuggerScreen, lines: list[Any], tell: Tell) -> None:
    from kernbench.replay.commands import (
        run_command,
    )  # heavy: not before the first frame

    for line in lines:
        if isinstance(line, str) and line.startswith(("break ", "watch ", "catch ")):
            with suppress(KernbenchError):
                run_command(screen.session, line, tell)
