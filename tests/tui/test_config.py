"""``theme`` in ``config.toml``: taken, unless an option or NO_COLOR says otherwise."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pilots import piloted
from platformdirs import user_config_path

import tui.__main__ as program
from tui.app import KernbenchApp
from tui.config import configured_theme, read_config
from tui.themes import THEMES

SIXTEEN = {"TERM": "xterm", "COLORTERM": ""}


@pytest.fixture
def config() -> Path:
    """The file of a user who has none yet."""
    path = user_config_path("kernbench") / "config.toml"
    path.parent.mkdir(parents=True)
    return path


@pytest.fixture
def shown_in(monkeypatch: pytest.MonkeyPatch, trace_path: Path):
    """``shown_in("--theme", "dark")``: the theme that the program is shown in."""

    def shown_in(*options: str) -> str:
        taken: list[str] = []
        monkeypatch.setattr(program, "is_terminal", lambda _: True)
        monkeypatch.setattr(program, "show", lambda *args: taken.append(args[-1]))
        program.main.main([str(trace_path), *options], standalone_mode=False)
        (theme,) = taken
        return theme

    return shown_in


@pytest.mark.parametrize("name", THEMES)
def test_the_theme_is_that_of_the_file(name, config, shown_in) -> None:
    config.write_text(f'theme = "{name}"\n')
    assert shown_in() == name


def test_without_a_theme_in_it_the_terminal_decides(
    config, shown_in, monkeypatch
) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    assert shown_in() == "dark"
    config.write_text('preset = "gdb"\n')
    assert shown_in() == "dark"
    for name, value in SIXTEEN.items():
        monkeypatch.setenv(name, value)
    assert shown_in() == "terminal"
    config.write_text('theme = "light"\n')
    assert shown_in() == "light"


def test_an_option_goes_before_the_file_and_no_color_before_both(
    config, shown_in, monkeypatch
) -> None:
    config.write_text('theme = "light"\n')
    assert shown_in("--theme", "dark") == "dark"
    monkeypatch.setenv("NO_COLOR", "1")
    assert shown_in("--theme", "dark") == "none"
    assert shown_in() == "none"


@pytest.mark.parametrize("text", [b'theme = "drak"', b"theme = 3", b"[x", b"\xff"])
def test_what_is_no_theme_is_none(text, config) -> None:
    assert configured_theme() is None
    config.write_bytes(text)
    assert configured_theme() is None


async def test_a_wrong_name_is_said_in_one_line_at_the_start(
    config, session, as_text_of
) -> None:
    config.write_text('theme = "drak"\n')
    app = KernbenchApp(session, "matmul.msgpack")
    async with piloted(app, (80, 24)):
        said = "config.toml: theme 'drak': must be dark, light, terminal or none"
        assert as_text_of(app).count(said) == 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("theme = light", 'line 1: text takes quotes: theme = "light"'),
        (
            'preset = "gdb"\n  theme=light # of day',
            'line 2: text takes quotes: theme = "light"',
        ),
        ("theme = = 3", "line 1, theme = = 3: Invalid value"),
        ('theme = "light', "Unterminated string (at end of document)"),
    ],
)
def test_what_is_no_toml_is_said_with_its_line(
    text: str, said: str, config: Path
) -> None:
    """It said only at which line and column a value is invalid."""
    config.write_text(text)
    with pytest.raises(ValueError, match=re.escape(said)):
        read_config()
