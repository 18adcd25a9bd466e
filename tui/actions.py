"""THE table of actions: bindings, footer, help and palette are made from it.

An action either runs a command line of ``kernbench.replay.commands`` or, where it only moves
pixels, calls the method ``do_METHOD`` of the debugger screen.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby

from textual.binding import Binding


@dataclass(frozen=True, slots=True)
class Action:
    """One thing that a key does; ``footer`` is its word in the footer, shared by a pair of keys."""

    id: str
    keys: tuple[str, ...]
    title: str
    group: str
    command_line: str = ""
    method: str = ""
    footer: str = ""


_PANES = ("Timeline", "Ops", "Tiles", "Memory", "Route", "Diff")

ACTIONS: tuple[Action, ...] = (
    Action("step", ("s",), "one op forward", "Move", "step 1", footer="step"),
    Action("step_back", ("S",), "one op back", "Move", "step -1", footer="step"),
    Action("next", ("n",), "next op within the focus", "Move", "next 1", footer="next"),
    Action("previous", ("N",), "previous op within the focus", "Move", "next -1", footer="next"),
    Action("first", ("g",), "first op", "Move", method="first"),
    Action("last", ("G",), "last op", "Move", "goto end"),
    Action("widen", ("u",), "widen the focus: component, PE, cube, SIP, machine", "Move", method="widen"),
    Action("narrow", ("d",), "narrow the focus", "Move", method="narrow"),
    Action("command", (":",), "command line", "Ask", method="command", footer="command"),
    Action("help", ("?", "f1"), "help", "Ask", method="help", footer="help"),
    Action("palette", ("ctrl+p",), "palette of actions and commands", "Ask", method="palette"),
    *(
        Action(f"pane_{i}", (str(i),), f"pane {i}: {title}", "Panes", method=f"pane_{i}")
        for i, title in enumerate(_PANES, 1)
    ),
    Action("next_pane", ("tab",), "next pane", "Panes", method="next_pane", footer="pane"),
    Action("previous_pane", ("shift+tab",), "previous pane", "Panes", method="previous_pane"),
    Action("next_tab", ("]",), "next tab of the strip", "Panes", method="next_tab"),
    Action("previous_tab", ("[",), "previous tab of the strip", "Panes", method="previous_tab"),
    Action("maximise", ("z",), "maximise the active pane, or back", "Panes", method="maximise", footer="max"),
    Action("row_down", ("j", "down"), "row down", "Rows", method="row_down"),
    Action("row_up", ("k", "up"), "row up", "Rows", method="row_up"),
    Action("page_down", ("pagedown",), "page down", "Rows", method="page_down"),
    Action("page_up", ("pageup",), "page up", "Rows", method="page_up"),
    Action("top", ("home",), "first row", "Rows", method="top"),
    Action("bottom", ("end",), "last row", "Rows", method="bottom"),
    Action("enter", ("enter",), "go to the row: its op, or its numbers", "Rows", method="enter", footer="go"),
    Action("left", ("h", "left"), "pan left: time, or columns of numbers", "View", method="left"),
    Action("right", ("l", "right"), "pan right", "View", method="right"),
    Action("zoom_in", ("+",), "zoom the timeline in", "View", method="zoom_in", footer="zoom"),
    Action("zoom_out", ("-",), "zoom the timeline out", "View", method="zoom_out", footer="zoom"),
    Action("fit", ("0",), "fit the timeline to its launches", "View", method="fit"),
    Action("redraw", ("ctrl+l",), "redraw the screen", "Program", method="redraw"),
    Action("back", ("escape",), "back: message, maximised pane", "Program", method="back"),
    Action("quit", ("q",), "quit", "Program", method="quit", footer="quit"),
)
BY_ID = {action.id: action for action in ACTIONS}

_SHOWN = {
    "pagedown": "PgDn", "pageup": "PgUp", "home": "Home", "end": "End", "enter": "Enter", "tab": "Tab",
    "shift+tab": "shift+Tab", "escape": "Esc", "f1": "F1", "ctrl+p": "ctrl+P", "ctrl+l": "ctrl+L",
}  # fmt: skip


def shown(key: str) -> str:
    """A key as people write it."""
    return _SHOWN.get(key, key)


def bindings() -> list[Binding | tuple[str, str] | tuple[str, str, str]]:
    """A binding an action."""
    return [
        Binding(",".join(action.keys), f"act('{action.id}')", action.title, show=False)
        for action in ACTIONS
    ]


def footer_items() -> list[tuple[str, str]]:
    """(keys, word) in the order of the table; neighbours of one word share an entry."""
    marked = (action for action in ACTIONS if action.footer)
    return [
        ("/".join(shown(action.keys[0]) for action in group), word)
        for word, group in groupby(marked, key=lambda action: action.footer)
    ]


def help_rows() -> list[tuple[str, str, str]]:
    """(group, keys, title) of every action, in the order of the table."""
    return [
        (action.group, " ".join(shown(key) for key in action.keys), action.title)
        for action in ACTIONS
    ]
