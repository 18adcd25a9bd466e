"""The ``:`` line: completion, lines that were run before, what opens and leaves it."""

from __future__ import annotations

import pytest
from pilots import ask, state_of

from kernbench.replay import ReplaySession
from kernbench.replay.commands import COMMANDS
from kernbench.replay.completion import candidates
from kernbench.trace.export import EXPORTERS
from tui.actions import SCREEN_COMMANDS
from tui.screens.command import expression

TABLE = (*COMMANDS, *SCREEN_COMMANDS)


def completed(session: ReplaySession, head: str, word: str) -> list[str]:
    """What may follow a part of a line, and begins with a word."""
    return candidates(session.index, session.state, head, word, TABLE)


# -- completion -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("head", "word", "wanted"),
    [
        ("", "got", ["goto"]),
        ("", "fil", ["filter"]),
        ("memory ", "", ["a", "b", "c"]),
        ("watch ", "c", ["c"]),
        ("watch c ", "", ["r", "rw", "w"]),
        ("goto ", "", ["end", "m", "start"]),
        ("export ", "", sorted(EXPORTERS)),
        ("break ", "ki", ["kind"]),
        ("break kind=gemm ", "a", ["addr", "and"]),
        ("break kind=", "ge", ["gemm"]),
        ("find name = ", "composite", ["composite_gemm"]),
        ("ops ", "w", ["where"]),
        ("ops where ", "ki", ["kind"]),
        ("search comp ~ ", "sip0.cube0.pe4.pe_g", ["sip0.cube0.pe4.pe_gemm"]),
        ("stalls ", "sip0.cube0.pe4", ["sip0.cube0.pe4"]),
        ("history ", "h", ["hbm"]),
        ("delete ", "", ["1"]),
        ("help ", "brea", ["break", "breaks"]),
        ("continue ", "", ["back"]),
        ("catch ", "", ["checks", "hazards"]),
        ("whatif ", "pe.clo", ["pe.clock_ghz="]),
        ("whatif pe.clock_ghz=2 ", "pe.dma.set", ["pe.dma.setup_ns="]),
        ("whatif pe.clock_ghz=", "", []),
        ("prove ", "de", ["delay"]),
        ("prove ", "pe.clo", ["pe.clock_ghz="]),
        (
            "cut x.msgpack components ",
            "sip0.cube0.pe4.pe_g",
            ["sip0.cube0.pe4.pe_gemm"],
        ),
    ],
)
def test_completion_knows_what_may_follow(head, word, wanted, session) -> None:
    session.goto(3)
    session.mark("m")
    session.break_on("kind=gemm")
    found = completed(session, head, word)
    assert [text for text in found if "@" not in text] == wanted


def test_completion_of_a_file(session, tmp_path) -> None:
    (tmp_path / "other.msgpack").touch()
    found = completed(session, "compare ", f"{tmp_path}/oth")
    assert found == [str(tmp_path / "other.msgpack")]


def test_a_shortened_command_completes_as_the_whole_one(session) -> None:
    assert completed(session, "b ", "na") == ["name"]
    assert completed(session, "exp ", "perf") == ["perfetto"]


async def test_tab_completes_within_an_expression(drive) -> None:
    async with drive(80, 24, "b") as pilot:
        line = pilot.app.debugger.line
        line.value = "break kind=gemm and comp=sip0.cube0.pe4.pe_ge"
        await pilot.press("tab")
        assert line.value == "break kind=gemm and comp=sip0.cube0.pe4.pe_gemm "


async def test_behind_the_name_of_a_field_comes_its_value(drive) -> None:
    async with drive(80, 24, ":", *"whatif pe.clo", "tab", *"2") as pilot:
        assert pilot.app.debugger.line.value == "whatif pe.clock_ghz=2"


async def test_completion_hints_at_what_is_open(drive, as_text_of) -> None:
    async with drive(80, 24, ":") as pilot:
        pilot.app.debugger.line.value = "memory "
        await pilot.press("tab")
        await pilot.pause()
        assert "a  b  c" in as_text_of(pilot.app)


@pytest.mark.slow
async def test_many_candidates_are_counted(drive, as_text_of) -> None:
    async with drive(120, 40, ":") as pilot:
        pilot.app.debugger.line.value = "find comp="
        await pilot.press("tab")
        await pilot.pause()
        assert " words, as " in as_text_of(pilot.app)


# -- lines that are run ---------------------------------------------------------------


async def test_a_line_is_completed_run_remembered_and_left(session, drive) -> None:
    async with drive(80, 24, ":", *"got", "tab", *"50", "enter", "s") as pilot:
        line = pilot.app.debugger.line
        assert session.cursor == 51
        await pilot.press(":", "up")
        assert line.value == "goto 50"
        await pilot.press("escape", "s")
        assert not line.display
        assert session.cursor == 52


@pytest.mark.slow
async def test_up_and_down_go_through_all_lines_that_were_run(drive) -> None:
    lines = ["goto 3", "goto 5", "goto 7"]
    async with drive(80, 24) as pilot:
        line = pilot.app.debugger.line
        for text in lines:
            await pilot.press(":")
            line.value = text
            await pilot.press("enter")
        await pilot.press(":")
        seen = []
        for key in ["up"] * 4 + ["down"] * 4:
            await pilot.press(key)
            seen.append(line.value)
    assert seen == [*lines[::-1], lines[0], *lines[1:], "", ""]


async def test_commands_of_the_line_may_be_shortened(session, drive) -> None:
    lines = ["b name=dma_write and bytes>4096", "w hbm 0x4000:64", "fil kind=gemm"]
    async with drive(80, 24) as pilot:
        await ask(pilot, *lines)
        assert [stop.kind for stop in session.stops] == ["break", "watch"]
        assert state_of(pilot, 2).where == "kind=gemm"


@pytest.mark.slow
async def test_a_line_left_as_soon_as_it_is_opened_keeps_no_keys(
    session, drive
) -> None:
    async with drive(80, 24) as pilot:
        pilot.app.debugger.line.open("goto")
        pilot.app.debugger.line.action_leave()
        await pilot.press("g")
        assert session.cursor == 0


@pytest.mark.parametrize(
    ("key", "example"), [("b", "kind=gemm and pe=3"), ("w", "c[3,17] w")]
)
async def test_a_key_that_begins_a_stop_says_what_sets_it_and_what_else_may_be_typed(
    key, example, drive, as_text_of
) -> None:
    """There was a line to type into, and a word above it that stood there already."""
    async with drive(80, 24, key) as pilot:
        await pilot.pause()
        text = " ".join(as_text_of(pilot.app).split())
        assert "Enter sets this stop, c then runs to " in text
        assert example in text
        await pilot.press("x")
        await pilot.pause()
        assert "Enter sets this stop" not in as_text_of(pilot.app)


@pytest.mark.parametrize("key", ["/", "&"])
async def test_a_prompt_for_an_expression_proposes_expressions(
    key, session, drive
) -> None:
    async with drive(80, 24, key) as pilot:
        proposed = pilot.app.debugger.line.placeholder
    examples, _, _ = proposed.partition("   ")
    for one in examples.split(" | "):
        session.matching(expression(one))
    assert "goto" not in proposed
