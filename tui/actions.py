"""THE table of actions: keys, footer, help and palette are made from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, TypeAlias

from kernbench.replay.command import Call, Command
from kernbench.replay.commands import (
    BACK,
    CAUSE,
    CONTINUE,
    EFFECT,
    FIRST,
    GOTO,
    LANE,
    LAST,
    LINE,
    NEXT,
    STEP,
    WIDEN,
)
from kernbench.replay.parsing import NoArguments, Reader
from tui.claims import Claim
from tui.panes import PANES
from tui.panes.base import ChangeView, Enter, Event, NextMark, Pan, Pin, Scroll
from tui.panes.timeline import Fit, Zoom


@dataclass(frozen=True, slots=True)
class ToPane:
    """An event for a pane, by its key; empty: for the active one."""

    event: Event
    pane: str = ""


@dataclass(frozen=True, slots=True)
class Own:
    """What the screen itself does: its method ``do_NAME(*args)``."""

    name: str
    args: tuple[Any, ...] = ()


Does: TypeAlias = Call | ToPane | Own


@dataclass(frozen=True, slots=True)
class Action:
    """Something that keys do. ``footer`` is the word for it, or for a pair, in the
    footer.
    """

    id: str
    keys: tuple[str, ...]
    title: str
    group: str
    does: Does
    footer: str = ""


def _action(
    group: str, id: str, keys: str, title: str, does: Does, footer: str = ""
) -> Action:
    return Action(id, tuple(keys.split()), title, group, does, footer)


def _move(id: str, keys: str, title: str, does: Does, footer: str = "") -> Action:
    return _action("Move", id, keys, title, does, footer)


def _ask(id: str, keys: str, title: str, does: Does, footer: str = "") -> Action:
    return _action("Ask", id, keys, title, does, footer)


def _view(id: str, keys: str, title: str, does: Does, footer: str = "") -> Action:
    return _action("View", id, keys, title, does, footer)


def _panes(id: str, keys: str, title: str, does: Does, footer: str = "") -> Action:
    return _action("Panes", id, keys, title, does, footer)


def _program(id: str, keys: str, title: str, does: Does, footer: str = "") -> Action:
    return _action("Program", id, keys, title, does, footer)


_FAR = 10**9
"""Rows: beyond both ends of any list."""

ACTIONS: tuple[Action, ...] = (
    _move("step", "s", "one op forward", STEP(n=1), "step"),
    _move("step_back", "S", "one op back", STEP(n=-1), "step"),
    _move("next", "n", "next op within the focus", NEXT(n=1), "next"),
    _move("previous", "N", "previous op within the focus", NEXT(n=-1), "next"),
    _move("continue", "c", "run to the next stop", CONTINUE(), "run"),
    _move(
        "reverse", "C", "run back to the previous stop", CONTINUE(back="back"), "run"
    ),
    _ask(
        "find",
        "/",
        "search: an expression, or text of a name",
        Own("prompt", ("search",)),
        "find",
    ),
    _ask("command", ":", "command line", Own("prompt", ("",)), "cmd"),
    _ask("help", "? f1", "help", Own("help"), "help"),
    _view(
        "enter",
        "enter",
        "drill in: to the row's op, or what it holds",
        ToPane(Enter()),
        "go",
    ),
    _view("next_view", "v", "next view of the pane", ToPane(ChangeView(1)), "view"),
    _view("previous_view", "V", "previous view of the pane", ToPane(ChangeView(-1))),
    _panes("maximise", "z", "maximise the pane, or back", Own("maximise"), "max"),
    _move("line", "i", "next kernel line of this PE", LINE(n=1)),
    _move("line_back", "I", "previous kernel line of this PE", LINE(n=-1)),
    _move(
        "cause", "t", "to what this op waited for, or its tile's stage before", CAUSE()
    ),
    _move(
        "effect",
        "T",
        "to the first that waited for it, or its tile's next stage",
        EFFECT(),
    ),
    _move("back_jump", "o", "back in the history of jumps", BACK(n=1)),
    _move("forward_jump", "O", "forward in the history of jumps", BACK(n=-1)),
    _move("lane", ".", "next op in the same lane", LANE(n=1)),
    _move("lane_back", ",", "previous op in the same lane", LANE(n=-1)),
    _move(
        "end",
        "f",
        "to the last stage of this tile, or what began here by its end",
        LAST(),
    ),
    _move("begin", "F", "to the first stage of this tile", FIRST()),
    _move("first", "g", "first op", GOTO(op=0)),
    _move("last", "G", "last op", GOTO(op="end")),
    _move("live", "L", "stay on the end of a run that goes on", Own("live")),
    _move("widen", "u", "widen the focus: PE, cube, SIP, machine", WIDEN(n=1)),
    _move("narrow", "d", "narrow the focus", WIDEN(n=-1)),
    _move("mark", "m", "set a mark: m and a letter", Own("letter", ("mark",))),
    _move("jump", "'", "jump to a mark: ' and its letter", Own("letter", ("jump",))),
    _move("play", "space", "play eight ops a second; any key pauses", Own("play")),
    _ask("find_next", "f3", "next that fits the search", Own("find", (1,))),
    _ask(
        "find_previous",
        "shift+f3 f15",
        "previous that fits the search",
        Own("find", (-1,)),
    ),
    _ask(
        "filter",
        "&",
        "show only the ops that fit an expression",
        Own("prompt", ("filter",)),
    ),
    _ask("break", "b", "breakpoint at ops like this one", Own("break")),
    _ask("watch", "w", "watch the bytes picked, or what this op writes", Own("watch")),
    _ask("stops", "B", "list the stops: Enter goes to one, d deletes", Own("stops")),
    _ask("prove", "P", "prove by a re-run what is claimed here", Own("prove")),
    _ask("palette", "ctrl+p", "palette of all this", Own("palette")),
    *(
        _panes(
            f"pane_{row.number}",
            str(row.number),
            f"pane {row.number}: {row.title}",
            Own("activate", (row.key,)),
        )
        for row in PANES
        if row.number
    ),
    _panes("next_pane", "tab", "next pane", Own("cycle", (1,))),
    _panes("previous_pane", "shift+tab", "previous pane", Own("cycle", (-1,))),
    _panes("next_tab", "]", "next tab of the strip", Own("cycle_tab", (1,))),
    _panes("previous_tab", "[", "previous tab of the strip", Own("cycle_tab", (-1,))),
    _panes("diff", "x", "show Diff, and back again", Own("diff")),
    _view("row_down", "j down", "row down", ToPane(Scroll(1))),
    _view("row_up", "k up", "row up", ToPane(Scroll(-1))),
    _view("page_down", "pagedown", "page down", ToPane(Scroll(1, pages=True))),
    _view("page_up", "pageup", "page up", ToPane(Scroll(-1, pages=True))),
    _view("top", "home", "first row", ToPane(Scroll(-_FAR))),
    _view("bottom", "end", "last row", ToPane(Scroll(_FAR))),
    _view(
        "left", "h left", "pan left: time, or by a column of numbers", ToPane(Pan(-1))
    ),
    _view("right", "l right", "pan right", ToPane(Pan(1))),
    _view("next_mark", "J", "next changed number, or mismatch", ToPane(NextMark(1))),
    _view(
        "previous_mark",
        "K",
        "previous changed number, or mismatch",
        ToPane(NextMark(-1)),
    ),
    _view("zoom_in", "+", "zoom the timeline in", ToPane(Zoom(0.5), "timeline")),
    _view("zoom_out", "-", "zoom the timeline out", ToPane(Zoom(2.0), "timeline")),
    _view("fit", "0", "fit the timeline to its launches", ToPane(Fit(), "timeline")),
    _view(
        "fit_marks",
        "=",
        "fit the timeline between the last two marks",
        Own("fit_marks"),
    ),
    _view(
        "pin",
        "p",
        "pin the picked row of the timeline on top, or let go",
        ToPane(Pin()),
    ),
    _program("yank", "y", "copy the pane as text", Own("yank")),
    _program(
        "shell", "!", "copy the shell command of what the pane shows", Own("shell")
    ),
    _program("reload", "R", "read the file again, keep the cursor", Own("reload")),
    _program("redraw", "ctrl+l", "redraw the screen", Own("redraw")),
    _program("suspend", "ctrl+z", "suspend; fg comes back", Own("suspend")),
    _program(
        "back",
        "escape ctrl+c",
        "back: message, job, filter, maximised pane",
        Own("back"),
    ),
    _program("quit", "q", "quit", Own("quit"), "quit"),
)
BY_ID = {action.id: action for action in ACTIONS}
DEFAULT = {action.id: action.keys for action in ACTIONS}


# -- commands of the ``:`` line that are the screen's own ---------------------


@dataclass(frozen=True, slots=True)
class Sought:
    """An expression, or text that is in a name."""

    text: Annotated[str, Reader("EXPR|TEXT", extent="line")]


@dataclass(frozen=True, slots=True)
class Filtered:
    """The same; without it all ops."""

    text: Annotated[str, Reader("EXPR|TEXT", extent="line")] = ""


@dataclass(frozen=True, slots=True)
class Claimed:
    """Fields of the machine with values; ``delay`` and a time for this op; ``slack``
    and an op, or without one this op; or ``race`` and its number among the hazards.
    Without any what the picked row claims, or else what was shown last.

    A page that shows a ``claim`` gives that itself: it cannot be typed.
    """

    what: Annotated[str, Reader("FIELD=VALUE|delay|slack|race", extent="line")] = ""
    claim: Claim | None = None


@dataclass(frozen=True, slots=True)
class Opened:
    """A trace; without one that which was shown before."""

    file: Annotated[str | None, Reader("FILE", extent="line")] = None


@dataclass(frozen=True, slots=True)
class Logged:
    """A file to write the script to; without one it is shown."""

    file: Annotated[str | None, Reader("FILE", extent="line")] = None


SEARCH = Command(
    "search",
    "screen",
    "to the next op that fits, or with the text in a name; F3 goes on",
    Sought,
)
FILTER = Command(
    "filter", "screen", "show only those in Ops; without one, all", Filtered
)
RELOAD = Command("reload", "screen", "read the file again", NoArguments)
PROVE = Command(
    "prove", "screen", "run again, changed as claimed: predicted and real", Claimed
)
OPEN = Command("open", "screen", "another trace in place of this one", Opened)
LOG = Command("log", "screen", "what was done as a script, or write it", Logged)
SCREEN_COMMANDS = (SEARCH, FILTER, RELOAD, PROVE, OPEN, LOG)
