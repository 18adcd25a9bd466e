"""The widget of all panes: titles, strips, and which lines are drawn anew."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import pytest
from desks import LARGE, SIZES, SMALL
from pilots import pane_of, run, settled
from rich.color import Color
from textual.geometry import Region
from textual.strip import Strip

from kernbench.replay.commands import GOTO
from tui.app import KernbenchApp
from tui.draw import ASCII, UNICODE, Line, cut, strip
from tui.panes import PANES
from tui.panes.base import ChangeView
from tui.widgets.pane_view import PaneView
from tui.widgets.status import Tab, Tabs

OPS = 2
KEYS = [row.key for row in PANES]

Lines = dict[str, list[str]]


def shown(pilot: Any) -> dict[str, PaneView]:
    """The views of the panes in view."""
    views = pilot.app.debugger.views
    return {key: view for key, view in views.items() if view.display}


def lines_of(view: PaneView) -> list[str]:
    """The lines that a view hands to the terminal."""
    whole = Region(0, 0, *view.size)
    return [line.text for line in view.render_lines(whole)]


@contextmanager
def refreshed(
    views: dict[str, PaneView],
) -> Iterator[dict[str, list[tuple[Region, ...]]]]:
    """The regions that each view asks to be drawn meanwhile, by call."""
    calls: dict[str, list[tuple[Region, ...]]] = {key: [] for key in views}

    def noting(key: str, refresh: Callable[..., Any]) -> Callable[..., Any]:
        def noted(*regions: Region, **more: bool) -> Any:
            calls[key].append(regions)
            return refresh(*regions, **more)

        return noted

    with pytest.MonkeyPatch.context() as patch:
        for key, view in views.items():
            patch.setattr(view, "show_anew", noting(key, view.show_anew))
        yield calls


def _text(line: Line) -> str:
    """What a line says, without the blanks at its end."""
    return "".join(text for text, _ in line).rstrip()


def colours_of(lines: list[Strip]) -> set[Color | None]:
    """The colours that some lines have, but for the terminal's own."""
    styles = [segment.style for line in lines for segment in line if segment.style]
    colours = {style.color for style in styles} | {style.bgcolor for style in styles}
    return {colour for colour in colours if colour and not colour.is_default}


# -- strips -------------------------------------------------------------------------


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.slow
def test_a_line_has_one_segment_a_run_of_one_style(key, desk_bench) -> None:
    bench = desk_bench("matmul", 100, LARGE)
    bench.show(key, LARGE)
    for _ in range(max(len(bench.desk.panes[key].views), 1)):
        picture = bench.settle()[key].picture
        for line in picture.lines:
            made = strip(line, LARGE[0])
            styles = [segment.style for segment in made]
            assert all(a != b for a, b in pairwise(styles)), made.text
        bench.send(key, ChangeView(1))


@pytest.mark.slow
@pytest.mark.parametrize("size", SIZES)
async def test_a_view_shows_the_lines_of_its_picture_below_a_title(size, drive) -> None:
    async with drive(*size, "4") as pilot:
        await settled(pilot)
        tabbed = pilot.app.debugger.tabs.line
        for key, view in shown(pilot).items():
            lines = lines_of(view)
            heading = pilot.app.debugger.desk.heading(key)
            if not any(text.strip(" []") == heading for text, _ in tabbed):
                assert heading in lines.pop(0)
            if pilot.app.size.width >= 100:
                lines = [line[1:-1] for line in lines[:-1]]  # within its borders
            shown_lines = [line.rstrip() for line in lines]
            width = view.room.width
            wanted = [_text(cut(line, width, UNICODE)) for line in view.picture.lines]
            assert shown_lines[: len(wanted)] == wanted


# -- what is drawn anew -------------------------------------------------------------


@pytest.mark.slow
async def test_a_step_draws_only_the_lines_that_differ(session, drive) -> None:
    session.goto(40)
    async with drive(*LARGE) as pilot:
        await settled(pilot)
        views = shown(pilot)
        before = {key: lines_of(view) for key, view in views.items()}
        with refreshed(views) as calls:
            await pilot.press("s")
            await settled(pilot)
        for key, view in views.items():
            regions = [region for call in calls[key] for region in call]
            assert all(calls[key])  # none is of the whole pane
            assert all(region.height == 1 for region in regions)
            pairs = zip(before[key], lines_of(view), strict=True)
            differ = {y for y, (old, new) in enumerate(pairs) if old != new}
            assert differ <= {region.y for region in regions}
        rows = {region.y for call in calls["ops"] for region in call}
        assert 0 < len(rows) < pane_of(pilot, OPS).size.height


@pytest.mark.slow
async def test_what_has_not_changed_is_not_drawn_again(drive) -> None:
    async with drive(*LARGE) as pilot:
        await settled(pilot)
        with refreshed(shown(pilot)) as calls:
            for _ in range(3):
                pilot.app.debugger.show()
        assert list(calls.values()) == [[]] * len(calls)


@pytest.mark.slow
async def test_another_active_pane_changes_the_borders_of_two_only(drive) -> None:
    async with drive(*LARGE, "2") as pilot:
        await settled(pilot)
        with refreshed(shown(pilot)) as calls:
            await pilot.press("3")
            await settled(pilot)
        changed = {key for key, regions in calls.items() if regions}
        assert changed == {"ops", "tiles"}


async def test_a_move_draws_nothing_in_panes_that_are_not_in_view(drive) -> None:
    async with drive(80, 24, "2") as pilot:
        await settled(pilot)
        views = pilot.app.debugger.views
        hidden = {key: view for key, view in views.items() if not view.display}
        with refreshed(hidden) as calls:
            run(pilot, GOTO(op=100).text)
            await settled(pilot)
        assert len(hidden) == len(PANES) - 2
        assert list(calls.values()) == [[]] * len(hidden)


# -- colours ------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("without", [True, False])
async def test_no_color_takes_the_colours_of_lines_that_are_blank_too(
    without, session, monkeypatch
) -> None:
    if without:
        monkeypatch.setenv("NO_COLOR", "1")
    app = KernbenchApp(session, "matmul.msgpack")
    async with app.run_test(size=SMALL) as pilot:
        view = PaneView("page", UNICODE)
        view.styles.width = 10
        view.styles.height = 2
        await app.debugger.mount(view)
        await settled(pilot)
        lines = view.render_lines(Region(0, 0, 10, 2))
        assert [line.text for line in lines] == [" " * 10] * 2
        assert bool(colours_of(lines)) is not without


@pytest.mark.slow
async def test_a_pane_that_goes_back_to_its_place_makes_no_line_anew(
    drive, monkeypatch
) -> None:
    async with drive(*LARGE) as pilot:
        for _ in range(4):
            await pilot.press("z")
            await settled(pilot)
        before = {key: lines_of(view) for key, view in shown(pilot).items()}
        made: list[Any] = []

        def noting(line: Any, width: int) -> Any:
            made.append(line)
            return strip(line, width)

        monkeypatch.setattr("tui.widgets.pane_view.strip", noting)
        await pilot.press("z")
        await settled(pilot)
        assert len(shown(pilot)) == 1
        await pilot.press("z")
        await settled(pilot)
        assert {key: lines_of(view) for key, view in shown(pilot).items()} == before
        assert not made


# -- what there is no room for --------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "shown"),
    [("1,234", "1,234"), ("12,345", "12,3…"), ("1,234  ", "1,234"), ("1", "1    ")],
)
def test_what_is_cut_ends_in_an_ellipsis_and_blanks_are_no_loss(text, shown) -> None:
    line = [(text[:3], "bold"), (text[3:], "")]
    assert "".join(part for part, _ in cut(line, 5, UNICODE)) == shown


@pytest.mark.parametrize("glyphs", [UNICODE, ASCII])
def test_a_cut_line_is_as_wide_as_its_pane(glyphs) -> None:
    for width in range(8):
        line = cut([("abc", "bold"), ("", ""), ("def", "")], width, glyphs)
        assert sum(len(part) for part, _ in line) == width


@pytest.mark.parametrize("chosen", [0, 5, 7])
def test_tabs_without_room_for_their_names_are_numbers(chosen) -> None:
    """The one that is shown is named in any case."""
    tabs = [Tab(row.key, row.name) for row in PANES if row.number > 1]
    strip_of_tabs = Tabs(UNICODE)
    for width in (60, 40):
        region = Region(0, 0, width, 1)
        strip_of_tabs.update_line(region, tabs, tabs[chosen].key, active=True)
        text = "".join(part for part, _ in strip_of_tabs.line)
        assert len(text) == width
        assert f"[{tabs[chosen].text}]" in text
        assert all(f" {tab.text[0]} " in text.replace("[", " ") for tab in tabs)


def test_tabs_with_room_for_their_names_have_them() -> None:
    tabs = [Tab(row.key, row.name) for row in PANES if row.number > 1]
    strip_of_tabs = Tabs(UNICODE)
    strip_of_tabs.update_line(Region(0, 0, 80, 1), tabs, tabs[0].key, active=True)
    text = "".join(part for part, _ in strip_of_tabs.line)
    assert all(tab.text in text for tab in tabs)
