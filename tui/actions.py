"""THE table of actions: keys, footer, help and palette are made from it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Action:
    """Keys that run a command line or, to move pixels, ``_do_METHOD(*args)`` of the screen, or what
    is at a path with dots from it; ``footer`` is the word of a pair of keys there.
    """

    id: str
    keys: tuple[str, ...]
    title: str
    group: str
    command_line: str = ""
    method: str = ""
    args: tuple[float, ...] = ()
    footer: str = ""


def _move(id: str, keys: str, title: str, line: str, footer: str = "") -> Action:
    return Action(id, tuple(keys.split()), title, "Move", line, footer=footer)


def _act(
    group: str, id: str, keys: str, title: str, method: str, *args: float
) -> Action:
    title, _, footer = title.partition(" | ")
    return Action(id, tuple(keys.split()), title, group, "", method, args, footer)


PANES = ("Timeline", "Ops", "Tiles", "Memory", "Route", "Diff", "Source", "Stats")
ACTIONS: tuple[Action, ...] = (
    _move("step", "s", "one op forward", "step 1", "step"),
    _move("step_back", "S", "one op back", "step -1", "step"),
    _move("next", "n", "next op within the focus", "next 1", "next"),
    _move("previous", "N", "previous op within the focus", "next -1", "next"),
    _move("continue", "c", "run to the next stop", "continue", "run"),
    _move("reverse", "C", "run back to the previous stop", "continue back", "run"),
    _act(
        "Ask",
        "find",
        "/",
        "search: an expression, or text of a name | find",
        "prompt",
        0,
    ),
    _act("Ask", "command", ":", "command line | cmd", "prompt", 1),
    _act("Ask", "help", "? f1", "help | help", "help"),
    _act(
        "View",
        "enter",
        "enter",
        "drill in: to the row's op, or what it holds | go",
        "enter",
    ),
    _act("View", "next_view", "v", "next view of the pane | view", "view", 1),
    _act("View", "previous_view", "V", "previous view of the pane", "view", -1),
    _act("Panes", "maximise", "z", "maximise the pane, or back | max", "maximise"),
    _move("line", "i", "next kernel line of this PE", "line 1"),
    _move("line_back", "I", "previous kernel line of this PE", "line -1"),
    _move(
        "cause", "t", "to what this op waited for, or its tile's stage before", "cause"
    ),
    _move(
        "effect",
        "T",
        "to the first that waited for it, or its tile's next stage",
        "effect",
    ),
    _move("back_jump", "o", "back in the history of jumps", "back 1"),
    _move("forward_jump", "O", "forward in the history of jumps", "back -1"),
    _move("lane", ".", "next op in the same lane", "lane 1"),
    _move("lane_back", ",", "previous op in the same lane", "lane -1"),
    _move(
        "end",
        "f",
        "to the last stage of this tile, or what began here by its end",
        "last",
    ),
    _move("begin", "F", "to the first stage of this tile", "first"),
    _move("first", "g", "first op", "goto 0"),
    _move("last", "G", "last op", "goto end"),
    _act("Move", "widen", "u", "widen the focus: PE, cube, SIP, machine", "focus", 1),
    _act("Move", "narrow", "d", "narrow the focus", "focus", -1),
    _act("Move", "mark", "m", "set a mark: m and a letter", "letter", 0),
    _act("Move", "jump", "'", "jump to a mark: ' and its letter", "letter", 1),
    _act("Move", "play", "space", "play eight ops a second; any key pauses", "play"),
    _act("Ask", "find_next", "f3", "next that fits the search", "find", 1),
    _act(
        "Ask",
        "find_previous",
        "shift+f3 f15",
        "previous that fits the search",
        "find",
        -1,
    ),
    _act("Ask", "filter", "&", "show only the ops that fit an expression", "prompt", 2),
    _act("Ask", "break", "b", "breakpoint at ops like this one", "break"),
    _act(
        "Ask", "watch", "w", "watch the bytes picked, or what this op writes", "watch"
    ),
    _act("Ask", "stops", "B", "list the stops: Enter goes to one, d deletes", "stops"),
    _act(
        "Ask", "palette", "ctrl+p", "palette of all this", "app.action_command_palette"
    ),
    *(
        _act("Panes", f"pane_{i}", str(i), f"pane {i}: {title}", "activate", i)
        for i, title in enumerate(PANES, 1)
    ),
    _act("Panes", "next_pane", "tab", "next pane", "cycle", 1),
    _act("Panes", "previous_pane", "shift+tab", "previous pane", "cycle", -1),
    _act("Panes", "next_tab", "]", "next tab of the strip", "cycle_tab", 1),
    _act("Panes", "previous_tab", "[", "previous tab of the strip", "cycle_tab", -1),
    _act("Panes", "diff", "x", "show Diff, and back again", "diff"),
    _act("View", "row_down", "j down", "row down", "pane.scroll_rows", 1),
    _act("View", "row_up", "k up", "row up", "pane.scroll_rows", -1),
    _act("View", "page_down", "pagedown", "page down", "pane.scroll_page", 1),
    _act("View", "page_up", "pageup", "page up", "pane.scroll_page", -1),
    _act("View", "top", "home", "first row", "pane.scroll_rows", -(10**9)),
    _act("View", "bottom", "end", "last row", "pane.scroll_rows", 10**9),
    _act(
        "View", "left", "h left", "pan left: time, or by a column of numbers", "pan", -1
    ),
    _act("View", "right", "l right", "pan right", "pan", 1),
    _act("View", "next_mark", "J", "next changed number, or mismatch", "marked", 1),
    _act(
        "View",
        "previous_mark",
        "K",
        "previous changed number, or mismatch",
        "marked",
        -1,
    ),
    _act("View", "zoom_in", "+", "zoom the timeline in", "timeline.zoom", 0.5),
    _act("View", "zoom_out", "-", "zoom the timeline out", "timeline.zoom", 2.0),
    _act("View", "fit", "0", "fit the timeline to its launches", "fit"),
    _act(
        "View",
        "fit_marks",
        "=",
        "fit the timeline between the last two marks",
        "fit_marks",
    ),
    _act(
        "View",
        "pin",
        "p",
        "pin the picked row of the timeline on top, or let go",
        "pin",
    ),
    _act("Program", "yank", "y", "copy the pane as text", "yank"),
    _act("Program", "reload", "R", "read the file again, keep the cursor", "reload"),
    _act("Program", "redraw", "ctrl+l", "redraw the screen", "redraw"),
    _act(
        "Program",
        "suspend",
        "ctrl+z",
        "suspend; fg comes back",
        "app.action_suspend_process",
    ),
    _act(
        "Program",
        "back",
        "escape ctrl+c",
        "back: message, job, filter, maximised pane",
        "back",
    ),
    _act("Program", "quit", "q", "quit | quit", "app.exit"),
)
BY_ID = {action.id: action for action in ACTIONS}
DEFAULT = {action.id: action.keys for action in ACTIONS}
# commands of the : line that are the screen's own: name, arguments, help
SCREEN_COMMANDS = (
    (
        "search",
        "EXPR|TEXT",
        "to the next op that fits, or with the text in a name; F3 goes on",
    ),
    ("filter", "[EXPR|TEXT]", "show only those in Ops; without one, all"),
    ("reload", "", "read the file again"),
)
