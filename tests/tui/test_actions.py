"""The action table: keys, and what is made from them."""

from __future__ import annotations

from collections import Counter

from textual.binding import Binding

from kernbench.replay import ReplaySession
from kernbench.replay.commands import COMMANDS, run_command
from tui.actions import ACTIONS, bindings, footer_items, shown
from tui.screens.debugger import DebuggerScreen
from tui.screens.help import help_lines
from tui.widgets.draw import UNICODE

LOST = {"ctrl+h", "ctrl+i", "ctrl+m", "ctrl+[", "ctrl+enter", "shift+enter", "ctrl+a", "ctrl+b"}
LOST |= {f"alt+{digit}" for digit in range(10)}


def test_no_key_and_no_id_is_used_twice() -> None:
    assert max(Counter(key for action in ACTIONS for key in action.keys).values()) == 1
    assert max(Counter(action.id for action in ACTIONS).values()) == 1


def test_no_key_is_one_that_terminals_or_multiplexers_swallow() -> None:
    assert not LOST & {key for action in ACTIONS for key in action.keys}


def test_every_action_is_a_command_line_or_a_method_of_the_screen(session) -> None:
    screen = DebuggerScreen(session, "", UNICODE)
    for action in ACTIONS:
        assert bool(action.command_line) != bool(action.method), action.id
        assert not action.method or hasattr(screen, f"_do_{action.method}"), action.id


def test_every_command_line_of_the_table_runs(session: ReplaySession) -> None:
    for action in ACTIONS:
        if action.command_line:
            run_command(session, action.command_line)


def test_every_action_is_bound_to_its_keys() -> None:
    made = [binding for binding in bindings() if isinstance(binding, Binding)]
    assert [b.key.split(",") for b in made] == [list(action.keys) for action in ACTIONS]
    assert [b.action for b in made] == [f"act('{action.id}')" for action in ACTIONS]


def test_help_lists_every_action_and_every_command() -> None:
    text = "\n".join("".join(part for part, _ in line) for line in help_lines())
    for action in ACTIONS:
        assert f"{' '.join(map(shown, action.keys)):<16} {action.title}" in text
    for command in COMMANDS:
        assert command.help in text


def test_footer_joins_the_two_directions_of_a_key() -> None:
    assert ("s/S", "step") in footer_items()
    assert len(" ".join(f"{keys} {word}" for keys, word in footer_items())) <= 76
