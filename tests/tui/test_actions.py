"""The action table: keys, and what is made from them."""

from __future__ import annotations

from collections import Counter

import pytest
from tui.widgets.pane import Pane
from tui.widgets.timeline import TimelinePane

from kernbench.replay import ReplaySession
from kernbench.replay.commands import COMMANDS, run_command
from tui.actions import ACTIONS, SCREEN_COMMANDS
from tui.app import KernbenchApp
from tui.keymap import LOST, Keymap, merged, shown
from tui.screens.debugger import DebuggerScreen
from tui.screens.help import help_lines

SPECIFIED = """s S n N i I t T o O v V & R f F c C u d b w B m ' g G j k pagedown pageup home end
enter h l left right up down + - 0 = , . 1 2 3 4 5 6 7 8 tab [ ] z / f3 shift+f3 : space escape p
y x ? f1 ctrl+p ctrl+l ctrl+z q"""
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


def test_no_key_and_no_id_is_used_twice() -> None:
    assert max(Counter(key for action in ACTIONS for key in action.keys).values()) == 1
    assert max(Counter(action.id for action in ACTIONS).values()) == 1


def test_no_key_is_one_that_terminals_or_multiplexers_swallow() -> None:
    assert NEVER <= LOST
    assert not LOST & {key for action in ACTIONS for key in action.keys}


def test_every_key_of_the_specification_has_an_action() -> None:
    assert set(SPECIFIED.split()) <= {key for action in ACTIONS for key in action.keys}


def test_every_action_is_a_command_line_or_a_method_of_the_screen() -> None:
    owners = {"app": KernbenchApp, "pane": Pane, "timeline": TimelinePane}
    for action in ACTIONS:
        assert bool(action.command_line) != bool(action.method), action.id
        owner, _, name = action.method.rpartition(".")
        if owner:
            assert callable(getattr(owners[owner], name)), action.id
        elif name:
            assert callable(getattr(DebuggerScreen, f"_do_{name}")), action.id


def test_every_command_line_of_the_table_runs(session: ReplaySession) -> None:
    for action in ACTIONS:
        if action.command_line:
            session.goto(40)
            run_command(session, action.command_line)


async def test_every_key_runs_its_action(drive, monkeypatch) -> None:
    done: list[str] = []
    monkeypatch.setattr(DebuggerScreen, "action_act", lambda self, id: done.append(id))
    wanted = [(key, a.id) for a in ACTIONS for key in a.keys]
    async with drive(80, 24, *(key for key, _ in wanted)):
        assert [*zip((key for key, _ in wanted), done, strict=True)] == wanted


def test_help_lists_every_action_and_every_command() -> None:
    lines = help_lines(Keymap(), 300)
    text = "\n".join("".join(part for part, _ in line) for line in lines)
    for action in ACTIONS:
        assert f"{' '.join(map(shown, action.keys)):<16} {action.title}" in text
    for help in [c.help for c in COMMANDS] + [help for _, _, help in SCREEN_COMMANDS]:
        assert help in text


@pytest.mark.parametrize("width", [60, 80])
def test_help_fits_the_screen(width) -> None:
    for line in help_lines(
        merged({"preset": "perfetto", "keys": {"x" * 30: ["e"]}}), width
    ):
        assert sum(len(text) for text, _ in line) <= width


def test_footer_joins_the_two_directions_of_a_key() -> None:
    items = Keymap().footer({})
    assert ("s/S", "step") in items
    assert len(" ".join(f"{keys} {word}" for keys, word in items)) <= 76


@pytest.mark.parametrize("width", [20, 40, 80, 120])
async def test_the_footer_ends_in_help_and_quit_at_any_width(
    width, drive, as_text_of
) -> None:
    async with drive(width, 24) as pilot:
        pilot.app.debugger.panes[1].views = ("a", "the critical path")
        await pilot.press("z")
        await pilot.pause()
        assert as_text_of(pilot.app).splitlines()[-1].split()[-4:] == [
            "?",
            "help",
            "q",
            "quit",
        ]


async def test_the_footer_names_the_next_view_of_the_active_pane(
    drive, as_text_of
) -> None:
    async with drive(80, 24) as pilot:
        screen = pilot.app.debugger
        screen.panes[2].views, screen.panes[2].enter_word = ("list", "other"), "open"
        screen.panes[3].views = ()
        await pilot.press("2")
        await pilot.pause()
        assert "Enter open v other" in as_text_of(pilot.app).splitlines()[-1]
        await pilot.press("3")
        await pilot.pause()
        assert " v " not in as_text_of(pilot.app).splitlines()[-1]
