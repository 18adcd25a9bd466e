"""What is written to a real terminal and how it looks there: bytes, sizes, colours."""

from __future__ import annotations

import base64
import os
import re
import stat
from pathlib import Path
from statistics import median

import pytest
from pace import some_in_ci
from rich.terminal_theme import TerminalTheme
from terminals import Terminal, opened

from tui import themes

READY = "op 40/"
STEPS = "sssSSnnNss"
REDRAW = "\x0c"  # Ctrl+L
PALETTE = "\x10"  # Ctrl+P


def ready(terminal: Terminal) -> None:
    """Wait until the trace is shown, and all that is drawn for it has come."""
    terminal.until(READY)
    terminal.read(0.4)


# -- bytes -------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(("size", "step"), [((120, 40), 2048), ((200, 50), 6144)])
def test_few_bytes_are_written_whatever_is_done(
    size: tuple[int, int], step: int, trace_path: Path, tmp_path: Path
) -> None:
    with opened(trace_path, "--op", 40, size=size, state=tmp_path) as terminal:
        ready(terminal)
        terminal.read(2.5)  # what nobody asked for is computed too
        assert terminal.read(1.0) == b""  # idle
        assert median(len(terminal.press(key, 0.3)) for key in STEPS) <= step
        assert 5000 < len(terminal.press(REDRAW, 0.6)) <= 61_440  # the whole screen
        terminal.read(2.5)
        assert terminal.move_mouse(range(2, size[0], 9), (3, 12, 30)) == b""


OVER = {"a command line": ":", "a page": "?", "the palette": PALETTE}


@pytest.mark.slow
@pytest.mark.parametrize("over", OVER)
def test_nothing_is_written_while_nothing_is_done(
    over: str, terminal: Terminal
) -> None:
    """A mouse that only moves does nothing."""
    terminal.press(OVER[over], 0.8)
    assert terminal.read(1.0) == b""  # longer than a cursor blinks
    assert terminal.move_mouse(range(2, 80, 9), (3, 12, 24)) == b""


@pytest.mark.slow
def test_nothing_is_written_over_the_picker_either(tmp_path: Path) -> None:
    with opened(state=tmp_path) as terminal:
        terminal.until("which trace?")
        terminal.read(0.4)
        assert terminal.read(1.0) == b""
        assert terminal.move_mouse(range(2, 80, 9), (3, 4, 5, 12)) == b""


# -- keys --------------------------------------------------------------------------


@pytest.mark.slow
def test_keys_that_come_in_one_go_are_typed_into_the_line_they_open(
    terminal: Terminal,
) -> None:
    terminal.press(":goto 7\r")
    terminal.until("op 7/151")


@pytest.mark.slow
@pytest.mark.parametrize("sequence", ["\x1b[1;2R", "\x1b[13;2~"])
def test_shift_f3_as_terminals_send_it(sequence: str, terminal: Terminal) -> None:
    """As xterm, tmux and screen do; as kitty's protocol has it."""
    terminal.press("/gemm\r")
    terminal.until("op 64/")
    terminal.press("\x1bOR")
    terminal.until("op 65/")
    terminal.press(sequence)
    terminal.until("op 64/")


# -- sizes -------------------------------------------------------------------------


@pytest.mark.slow
def test_a_redraw_repairs_the_screen(terminal: Terminal) -> None:
    before = terminal.text
    terminal.screen.reset()  # another program has written there
    terminal.press(REDRAW, 0.6)
    assert terminal.text == before


SIZES = [(60, 16), (5, 2), (1, 1), (200, 50), (33, 7), (5, 2), (120, 40)]


@pytest.mark.slow
def test_a_resize_storm_keeps_cursor_and_selection(terminal: Terminal) -> None:
    terminal.press("2jj")
    before = terminal.text.splitlines()
    for columns, lines in SIZES * 4:
        terminal.resize(columns, lines)
    terminal.press("jk")
    terminal.resize(80, 24)
    terminal.until("op 40/151")
    terminal.read(0.5)
    after = terminal.text.splitlines()
    assert after[:6] == before[:6]  # status, focus, window of time
    assert "[2 Ops]" in terminal.text
    terminal.press("\r")  # goes to the picked row
    terminal.until("op 42/151")


# -- colours -----------------------------------------------------------------------

MODES = {
    "16 colours": {"TERM": "xterm"},
    "256 colours": {"TERM": "xterm-256color"},
    "truecolor": {"TERM": "xterm-256color", "COLORTERM": "truecolor"},
    "no colours": {"TERM": "xterm-256color", "NO_COLOR": "1"},
}

# The colours of xterm by the names that pyte has for them.
XTERM = {
    "black": "000000",
    "red": "cd0000",
    "green": "00cd00",
    "brown": "cdcd00",
    "blue": "0000ee",
    "magenta": "cd00cd",
    "cyan": "00cdcd",
    "white": "e5e5e5",
    "brightblack": "7f7f7f",
    "brightred": "ff0000",
    "brightgreen": "00ff00",
    "brightbrown": "ffff00",
    "brightblue": "5c5cff",
    "brightmagenta": "ff00ff",
    "brightcyan": "00ffff",
    "brightwhite": "ffffff",
}
_RGB = [tuple(bytes.fromhex(text)) for text in XTERM.values()]
XTERM_THEME = TerminalTheme((0, 0, 0), (255, 255, 255), _RGB[:8], _RGB[8:])
DARK = ("ffffff", "000000")  # a terminal's default foreground and background
LIGHT = ("000000", "ffffff")

# Keys that open one page after the other.
ESC = "\x1b"
F5 = "\x1b[15~"
PAGES = {
    "all panes": [],
    "numbers": ["4", "v"],
    "diff": ["6", "v"],
    "critical path": ["1", "v"],
    "help": ["?"],
    "command line": [ESC, ":"],
    "a hint": ["\t"],
    "a word": ["zz"],
    "message": [ESC, F5, "'"],
    "palette": [ESC, PALETTE],
    "a word in it": ["st"],
}


def luminance(colour: str) -> float:
    """The relative luminance of RRGGBB, from 0 to 1 (WCAG 2.1)."""
    red, green, blue = (linear(int(colour[i : i + 2], 16) / 255) for i in (0, 2, 4))
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def linear(channel: float) -> float:
    """A channel of sRGB as an amount of light."""
    if channel <= 0.04045:
        return channel / 12.92
    return ((channel + 0.055) / 1.055) ** 2.4


def contrast(one: str, other: str) -> float:
    """The ratio of contrast of two colours, from 1 to 21 (WCAG 2.1)."""
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def colours_of(cell, defaults: tuple[str, str]) -> tuple[str, str]:
    """Foreground and background of a cell as RRGGBB."""
    foreground, background = defaults
    if cell.fg != "default":
        foreground = XTERM.get(cell.fg, cell.fg)
    if cell.bg != "default":
        background = XTERM.get(cell.bg, cell.bg)
    return foreground, background


def illegible(terminal: Terminal, defaults: tuple[str, str]) -> dict:
    """Pairs of colours with a contrast below 3, and a character that has them.

    Block elements are no text: they are a ground of which a part of a cell is filled.
    """
    characters: dict[tuple[str, str], str] = {}
    for row in terminal.screen.buffer.values():
        for cell in row.values():
            if cell.data.strip() and not "\u2581" <= cell.data <= "\u2595":
                characters[colours_of(cell, defaults)] = cell.data
    return {pair: text for pair, text in characters.items() if contrast(*pair) < 3}


@pytest.mark.slow
@pytest.mark.parametrize("mode", some_in_ci(MODES, 2))
def test_all_is_legible(mode: str, trace_path: Path, tmp_path: Path) -> None:
    with opened(
        trace_path, "--op", 40, size=(200, 50), state=tmp_path, **MODES[mode]
    ) as terminal:
        ready(terminal)
        for page, keys in PAGES.items():
            for key in keys:
                terminal.press(key)
            assert illegible(terminal, DARK) == {}, page
            assert illegible(terminal, LIGHT) == {}, page


@pytest.mark.slow
def test_colours_are_used(terminal: Terminal) -> None:
    assert len(hues(terminal)) > 2


@pytest.mark.slow
def test_no_color_leaves_attributes_only(trace_path: Path, tmp_path: Path) -> None:
    with opened(trace_path, "--op", 40, state=tmp_path, NO_COLOR="1") as terminal:
        ready(terminal)
        for keys in PAGES.values():
            for key in keys:
                terminal.press(key)
        sequences = re.findall(rb"\x1b\[([0-9;]*)m", terminal.raw)
        codes = {int(code or 0) for code in b";".join(sequences).split(b";")}
        assert not codes & {*range(30, 39), *range(40, 49)}
        assert hues(terminal) == {"default"}


def hues(terminal: Terminal) -> set[str]:
    """The foreground colours on the screen."""
    rows = terminal.screen.buffer.values()
    return {cell.fg for row in rows for cell in row.values()}


@pytest.mark.slow
@pytest.mark.parametrize("term", ["xterm-256color", "tmux-256color"])
def test_of_256_colours_those_of_the_table_are_sent(
    term: str, trace_path: Path, tmp_path: Path
) -> None:
    with opened(
        trace_path, "--op", 75, state=tmp_path, TERM=term, COLORTERM=""
    ) as terminal:
        terminal.until("op 75/")
        terminal.read(1.0)
        assert b"8;2;" not in terminal.raw
        sent = {int(n) for n in re.findall(rb"[34]8;5;(\d+)", terminal.raw)}
        assert len(sent) > 10
        assert sent <= {*themes.XTERM.values()}


# -- glyphs ------------------------------------------------------------------------


@pytest.mark.slow
def test_ascii_is_all_that_it_draws_with(trace_path: Path, tmp_path: Path) -> None:
    with opened(
        trace_path, "--op", 40, "--ascii", size=(200, 50), state=tmp_path
    ) as terminal:
        ready(terminal)
        terminal.press("4vv1+l")
        assert "Timeline" in terminal.text
        terminal.press(PALETTE)
        terminal.until("an action")
        terminal.press("st")
        terminal.until("step: one op forward")
        assert terminal.raw.isascii()


@pytest.mark.slow
@pytest.mark.parametrize("environ", [{"LANG": "C"}, {"LC_ALL": "POSIX"}], ids=str)
def test_ascii_where_the_locale_has_nothing_else(
    environ: dict[str, str], trace_path: Path, tmp_path: Path
) -> None:
    with opened(trace_path, "--op", 40, state=tmp_path, **environ) as terminal:
        ready(terminal)
        assert "Timeline" in terminal.text
        assert terminal.raw.isascii()


# -- copies ------------------------------------------------------------------------


def fake_tmux(folder: Path) -> Path:
    """Make a tmux that notes what it is called with; return its folder."""
    program = folder / "bin" / "tmux"
    program.parent.mkdir()
    program.write_text(
        f'#!/bin/sh\necho "$@" > {folder}/called\ncat > {folder}/copied\n'
    )
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return program.parent


@pytest.mark.slow
def test_y_copies_by_osc_52(terminal: Terminal) -> None:
    terminal.press("y")
    terminal.until("copied by OSC 52")
    (data,) = re.findall(rb"\x1b\]52;c;([^\x07\x1b]+)", terminal.raw)
    assert "Timeline" in base64.b64decode(data).decode()


@pytest.mark.slow
def test_y_copies_into_the_buffer_of_tmux(trace_path: Path, tmp_path: Path) -> None:
    path = f"{fake_tmux(tmp_path)}:{os.environ['PATH']}"
    with opened(
        trace_path, "--op", 40, state=tmp_path, TMUX="/tmp/none,1,0", PATH=path
    ) as terminal:
        ready(terminal)
        terminal.press("y")
        terminal.until("copied by tmux")
    assert (tmp_path / "called").read_text() == "load-buffer -w -\n"
    assert "Timeline" in (tmp_path / "copied").read_text(encoding="utf-8")


@pytest.mark.slow
def test_y_copies_to_a_file_where_nothing_else_can(
    trace_path: Path, tmp_path: Path
) -> None:
    with opened(
        trace_path, "--op", 40, state=tmp_path, size=(160, 40), TERM="linux"
    ) as terminal:
        ready(terminal)
        terminal.press("y")
        terminal.until("copied to ")
    copied = (tmp_path / "kernbench" / "copied.txt").read_text(encoding="utf-8")
    assert "Timeline" in copied
