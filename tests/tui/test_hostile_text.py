"""No text of a trace does anything to the terminal that the screen is drawn on."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hostile import HOSTILE, HOSTILE_NAME, WORDS, harm_in, harm_on_terminal, hostile
from hypothesis import given
from hypothesis import strategies as st
from pace import some_in_ci
from pilots import ask, piloted, settled
from rich.cells import cell_len
from terminals import ROOT, opened, program_of

from tui.__main__ import open_session
from tui.ansi import cells_of, screen_lines
from tui.app import KernbenchApp
from tui.draw import strip
from tui.panes import PANES

TEXTS = st.text(st.sampled_from([*HOSTILE, "a", " ", "界", "e", "\u0301", "─"]))
EVERY_PANE = "".join(str(row.number) for row in PANES if row.number)


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """A trace that opens, and whose texts are hostile."""
    path = tmp_path / HOSTILE_NAME
    data = (ROOT / "traces" / "fault_overflow.msgpack").read_bytes()
    path.write_bytes(hostile(data, WORDS))
    return path


# -- one line -------------------------------------------------------------------------


@given(TEXTS)
def test_cells_show_what_is_hidden_where_textual_has_room_for_it(text: str) -> None:
    cells = cells_of(text)
    assert harm_in("".join(cells)) == []
    assert len(cells) == cell_len(text)


@given(TEXTS, st.integers(0, 40))
def test_a_line_is_as_wide_as_it_should_be(text: str, width: int) -> None:
    made = strip([(text, ""), ("b", "bold")], width)
    assert made.cell_length == width
    assert harm_in(made.text) == []


def test_a_line_shows_what_is_hidden() -> None:
    assert strip([("a\x1b[31m\u202e", "")], 30).text.rstrip() == r"a\x1b[31m\u202e"


# -- the screen -----------------------------------------------------------------------


@pytest.mark.slow
async def test_an_error_shows_what_was_typed(drive) -> None:
    async with drive(80, 24) as pilot:
        pilot.app.debugger.run_line("find \x1b]0;owned\x07\n")
        await pilot.pause()
        screen = "\n".join(screen_lines(pilot.app.screen))
    assert r"\x1b]0;owned\x07" in screen


@pytest.mark.slow
async def test_panes_and_answers_show_what_is_hidden(trace) -> None:
    app = KernbenchApp(open_session(trace, 3), trace.name)
    async with piloted(app, (120, 40)) as pilot:
        await settled(pilot)
        shown = [app.debugger.views[row.key].text for row in PANES]
        await ask(pilot, "op")
        shown.append(app.screen.text)
    assert r"\x1b]52;c;ZXZpbA==\x07" in shown[-1]
    assert harm_in("".join(shown).replace("\n", "")) == []


def keys_of_everything() -> list[str]:
    """Keys that show each pane and view, the lines around them, and all that lies
    over them.
    """
    keys = []
    for pane in EVERY_PANE:
        keys += [pane, "v", "v", "v", "v", "\r", "j", "\r"]
    keys += ["z", "2", "z", "m", "a", "?", "\x1b", "\x10", "\x1b", "p", "w", "\x1b"]
    keys += [
        ":find x\x1b]\r",
        ":op\r",
        "\x1b",
        ":source\r",
        "\x1b",
        ":break \t",
        "\x1b",
    ]
    keys += [":memory \t", "\t", "\r", "\x1b", ":nothing\r", ":info\r", "\x1b"]
    keys += [":break kind = memory\r", "B", "\x1b", "f", "zz\r", "\x1b", "R"]
    return keys


SIZES = [(120, 40), (80, 24), (200, 50), (40, 10)]


@pytest.mark.slow
@pytest.mark.parametrize("size", some_in_ci(SIZES, 1))
def test_the_terminal_gets_text_and_our_own_sequences(trace, size, tmp_path) -> None:
    with opened(trace, state=tmp_path / "state", size=size) as terminal:
        terminal.until("op ")
        for keys in keys_of_everything():
            terminal.press(keys, 0.03)
        terminal.press("\x1b", 0.2)
        terminal.press("q")
        assert terminal.end() == 0
    assert harm_on_terminal(terminal.raw) == []


@pytest.mark.slow
def test_the_picker_shows_names_as_they_are(trace, tmp_path) -> None:
    state = tmp_path / "state"
    with opened(trace, state=state) as terminal:
        terminal.until("op ")
        terminal.press("q")
        assert terminal.end() == 0
    trace.write_bytes(b"no trace any more")
    with opened(state=state) as terminal:
        terminal.until(r"\x1b]0;owned")
        terminal.press("\r")
        terminal.until("no kernbench trace")  # until then q gives the reading up
        terminal.press("q")
        assert terminal.end() == 0
    assert harm_on_terminal(terminal.raw) == []


@pytest.mark.slow
def test_a_crash_shows_what_was_raised(trace_path, tmp_path) -> None:
    code = (
        f"def boom(*_, **__): raise ZeroDivisionError({HOSTILE!r} + '\\ud800')\n"
        "from tui.panes.timeline import TimelinePane as T; T.render = boom"
    )
    program = program_of(code)
    with opened(trace_path, program=program, state=tmp_path) as terminal:
        assert terminal.end() == 1
        assert terminal.restored()
    assert harm_on_terminal(terminal.raw) == []
    assert rb"\u202eeteled" in terminal.raw


@pytest.mark.slow
@pytest.mark.parametrize(
    "args", [(), ("--script", "-"), ("extra",), ("--\x1b]0;owned\x07",)]
)
def test_a_pipe_gets_text_only(trace, args) -> None:
    command = [sys.executable, "-m", "tui", str(trace), *args]
    environ = {**os.environ, "COLUMNS": "120", "LINES": "40"}
    script = "info\nop\nsource\nfind \x1b]0;x\x07\n"
    done = subprocess.run(
        command, input=script.encode(), capture_output=True, timeout=60, env=environ
    )
    written = (done.stdout + done.stderr).decode(errors="surrogateescape")
    assert written
    assert harm_in(written) == []
