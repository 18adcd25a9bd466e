"""The action table: keys, and what is made from it."""

from __future__ import annotations

from collections import Counter

import pytest
from pilots import fast_keys

from kernbench.replay import ReplaySession
from kernbench.replay.commands import COMMANDS, Call, listed
from tui.actions import ACTIONS, SCREEN_COMMANDS, Action, Own, ToPane
from tui.desk import ROW_OF
from tui.keymap import LOST, Keymap, merged, shown
from tui.panes import PANES
from tui.screens.debugger import DebuggerScreen
from tui.screens.help import help_lines
from tui.widgets.status import KeyFooter

SPECIFIED = """
s S n N i I t T o O v V & R f F c C u d b w B m ' g G j k pagedown pageup home end
enter h l left right up down + - 0 = , . 1 2 3 4 5 6 7 8 tab [ ] z / f3 shift+f3 :
space escape p y x ? f1 ctrl+p ctrl+l ctrl+z q
"""
NEVER = {
    "ctrl+h",
    "ctrl+i",
    "ctrl+m",
    "ctrl+[",
    "ctrl+enter",
    "shift+enter",
    "ctrl+a",
    "ctrl+b",
}
NEVER |= {f"alt+{digit}" for digit in range(10)}
KEYS = [key for action in ACTIONS for key in action.keys]
named = pytest.mark.parametrize("action", ACTIONS, ids=[a.id for a in ACTIONS])


def test_no_key_and_no_id_is_used_twice() -> None:
    assert max(Counter(KEYS).values()) == 1
    assert max(Counter(action.id for action in ACTIONS).values()) == 1


def test_no_key_is_one_that_terminals_or_multiplexers_swallow() -> None:
    assert NEVER <= LOST
    assert LOST.isdisjoint(KEYS)


def test_every_key_of_the_specification_has_an_action() -> None:
    assert set(SPECIFIED.split()) <= set(KEYS)


@named
def test_an_action_is_a_move_an_event_for_a_pane_or_a_method_of_the_screen(
    action: Action,
) -> None:
    does = action.does
    if isinstance(does, Call):
        assert does.command in COMMANDS
        assert does.command.kind == "move"
    elif isinstance(does, ToPane):
        assert does.pane == "" or does.pane in ROW_OF
    else:
        assert isinstance(does, Own)
        assert callable(getattr(DebuggerScreen, f"do_{does.name}"))


def test_every_call_of_the_table_says_where_it_led(session: ReplaySession) -> None:
    for action in ACTIONS:
        if isinstance(action.does, Call):
            session.goto(40)
            moved = session.call(action.does)
            assert moved.op == session.state.cursor, action.id


def test_every_pane_has_a_key() -> None:
    calls = {action.does.args[0] for action in ACTIONS if is_activation(action)}
    assert calls == {row.key for row in PANES if row.number}


def is_activation(action: Action) -> bool:
    return isinstance(action.does, Own) and action.does.name == "activate"


async def test_every_key_runs_its_action(drive, monkeypatch) -> None:
    done: list[str] = []
    monkeypatch.setattr(DebuggerScreen, "act", lambda self, id: done.append(id))
    async with drive(80, 24) as pilot:
        with fast_keys(pilot.app):
            await pilot.press(*KEYS)
        assert done == [action.id for action in ACTIONS for _ in action.keys]


# -- help and footer ------------------------------------------------------------------


def test_help_lists_every_action_and_every_command() -> None:
    lines = help_lines(Keymap(), 300)
    text = "\n".join("".join(part for part, _ in line) for line in lines)
    for action in ACTIONS:
        keys = " ".join(map(shown, action.keys))
        assert f"{keys:<16} {action.title}" in text
    for command in (*listed(), *SCREEN_COMMANDS):
        assert command.help in text


def test_help_says_what_the_status_line_counts() -> None:
    lines = ["".join(part for part, _ in line) for line in help_lines(Keymap())]
    assert any("!2 DIFF" in line and "wrong" in line for line in lines)
    assert any("!1 HAZARD" in line and "chance" in line for line in lines)


@pytest.mark.parametrize("width", [60, 80])
def test_help_fits_the_screen(width) -> None:
    keymap = merged({"preset": "perfetto", "keys": {"x" * 30: ["e"]}})
    for line in help_lines(keymap, width):
        assert sum(len(text) for text, _ in line) <= width


def test_footer_joins_the_two_directions_of_a_key() -> None:
    items = Keymap().footer({})
    assert ("s/S", "step") in items
    assert len(" ".join(f"{keys} {word}" for keys, word in items)) <= 76


def footer(width: int, enter_word: str, next_view: str) -> str:
    """The text of the last line."""
    widget = KeyFooter(Keymap())
    widget.update_line(width, enter_word, next_view)
    return "".join(text for text, _ in widget.line)


@pytest.mark.parametrize("width", [20, 40, 80, 120])
def test_the_footer_ends_in_help_and_quit_at_any_width(width) -> None:
    text = footer(width, "go", "the critical path")
    assert len(text) <= width
    assert text.split()[-4:] == ["?", "help", "q", "quit"]


def test_the_footer_names_what_enter_does_and_the_next_view() -> None:
    assert "Enter open v other" in footer(80, "open", "other")


def test_the_footer_has_no_key_for_the_next_view_of_a_pane_that_has_one_only() -> None:
    assert " v " not in footer(80, "open", "")


async def test_the_footer_is_about_the_active_pane(drive, as_text_of) -> None:
    async with drive(80, 24, "4") as pilot:
        assert "Enter keep v numbers" in as_text_of(pilot.app).splitlines()[-1]
        await pilot.press("v")
        await pilot.pause()
        assert "Enter blame v heatmap" in as_text_of(pilot.app).splitlines()[-1]
        await pilot.press("2")
        await pilot.pause()
        assert " v " not in as_text_of(pilot.app).splitlines()[-1]
