"""THE table of actions: bindings, footer, help and palette are made from it."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby

from textual.binding import Binding, BindingType


@dataclass(frozen=True, slots=True)
class Action:
    """Keys that run a command line or, to move pixels, ``_do_METHOD(*args)`` of the screen;
    ``footer`` is the word of a pair of keys there.
    """

    id: str
    keys: tuple[str, ...]
    title: str
    group: str
    command_line: str = ""
    method: str = ""
    args: tuple[float, ...] = ()
    footer: str = ""


def _view(id: str, keys: str, title: str, method: str, *args: float, footer: str = "") -> Action:
    return Action(id, tuple(keys.split()), title, "View", "", method, args, footer)


ACTIONS: tuple[Action, ...] = (
    Action("step", ("s",), "one op forward", "Move", "step 1", footer="step"),
    Action("step_back", ("S",), "one op back", "Move", "step -1", footer="step"),
    Action("next", ("n",), "next op within the focus", "Move", "next 1", footer="next"),
    Action("previous", ("N",), "previous op within the focus", "Move", "next -1", footer="next"),
    Action("first", ("g",), "first op", "Move", method="first"),
    Action("last", ("G",), "last op", "Move", "goto end"),
    Action("widen", ("u",), "widen the focus: PE, cube, SIP, machine", "Move", "", "focus", (1,)),
    Action("narrow", ("d",), "narrow the focus", "Move", "", "focus", (-1,)),
    Action("command", (":",), "command line", "Ask", method="command", footer="cmd"),
    Action("help", ("?", "f1"), "help", "Ask", method="help", footer="help"),
    Action("palette", ("ctrl+p",), "palette of actions and commands", "Ask", method="palette"),
    *(
        Action(f"pane_{i}", (str(i),), f"pane {i}: {title}", "Panes", "", "activate", (i,))
        for i, title in enumerate(("Timeline", "Ops", "Tiles", "Memory", "Route", "Diff"), 1)
    ),
    Action("next_pane", ("tab",), "next pane", "Panes", "", "cycle", (1,), "pane"),
    Action("previous_pane", ("shift+tab",), "previous pane", "Panes", "", "cycle", (-1,)),
    Action("next_tab", ("]",), "next tab of the strip", "Panes", "", "cycle_tab", (1,)),
    Action("previous_tab", ("[",), "previous tab of the strip", "Panes", "", "cycle_tab", (-1,)),
    Action(
        "maximise", ("z",), "maximise the pane, or back", "Panes", method="maximise", footer="max"
    ),
    _view("row_down", "j down", "row down", "rows", 1),
    _view("row_up", "k up", "row up", "rows", -1),
    _view("page_down", "pagedown", "page down (Memory: its numbers)", "rows", 1, True),
    _view("page_up", "pageup", "page up", "rows", -1, True),
    _view("top", "home", "first row", "rows", -(10**9)),
    _view("bottom", "end", "last row", "rows", 10**9),
    _view("enter", "enter", "go to the row: its op, or its numbers", "enter", footer="go"),
    _view("left", "h left", "pan left: time, or columns of numbers", "pan", -1),
    _view("right", "l right", "pan right", "pan", 1),
    _view("zoom_in", "+", "zoom the timeline in", "zoom", 0.5, footer="zoom"),
    _view("zoom_out", "-", "zoom the timeline out", "zoom", 2.0, footer="zoom"),
    _view("fit", "0", "fit the timeline to its launches", "fit"),
    _view("next_view", "v", "next view of the pane", "view", 1),
    _view("previous_view", "V", "previous view of the pane", "view", -1),
    _view("pin", "p", "pin the picked row of the timeline on top, or let go", "pin"),
    Action("redraw", ("ctrl+l",), "redraw the screen", "Program", method="redraw"),
    Action("back", ("escape",), "back: message, maximised pane", "Program", method="back"),
    Action("quit", ("q",), "quit", "Program", method="quit", footer="quit"),
)
BY_ID = {action.id: action for action in ACTIONS}

_SHOWN = {"pagedown": "PgDn", "pageup": "PgUp", "shift+tab": "shift+Tab", "escape": "Esc"}


def shown(key: str) -> str:
    """A key as people write it."""
    return _SHOWN.get(key) or (key if len(key) == 1 or "+" in key else key.capitalize())


def bindings() -> list[BindingType]:
    """A binding an action."""
    return [Binding(",".join(a.keys), f"act('{a.id}')", a.title, show=False) for a in ACTIONS]


def footer_items() -> list[tuple[str, str]]:
    """(keys, word) in the order of the table; neighbours of one word share an entry."""
    pairs = groupby((a for a in ACTIONS if a.footer), key=lambda action: action.footer)
    return [("/".join(shown(action.keys[0]) for action in group), word) for word, group in pairs]
