"""The memory pane: allocations, a tensor as numbers, heat or hex, a cell's history."""

from __future__ import annotations

from concurrent.futures import wait
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from kernbench.trace import TraceWriter
from tui.__main__ import open_session
from tui.app import KernbenchApp
from tui.widgets.grid import flat2, name_of, within
from tui.widgets.memory import MemoryPane

TRACES = Path(__file__).parents[2] / "traces"


def pane(pilot) -> MemoryPane:
    return pilot.app.debugger.panes[4]


async def test_the_numbers_view_picks_a_cell_and_says_all_about_it(
    session, drive
) -> None:
    session.goto(17)
    async with drive(80, 24, "4", "v", "j", "j", "l") as pilot:
        text = pane(pilot).text
        value = session.tensor("c").values[2, 1]
        space, addr, _ = session.places.place("c[2,1]").ranges[0]
        assert (
            f" c[2,1] = {float(value):.7g}  0x{value.view('u2'):04x}  {space} {addr:#x}"
            in text
        )
        assert "written op 17 (0 ago)" in text
        assert text.count(">") == 1


async def test_the_cell_is_what_watch_and_blame_take(session, drive) -> None:
    session.goto(17)
    async with drive(80, 24, "4", "v", "j", "w") as pilot:
        assert pilot.app.debugger.line.value == "watch c[1,0] rw"
        assert pane(pilot).enter() == "blame c[1,0]"


async def test_a_picked_allocation_is_what_watch_takes(session, drive) -> None:
    session.goto(17)
    async with drive(80, 24, "4") as pilot:
        assert pane(pilot).place() is None  # the op's own bytes
        await pilot.press("j")
        shard = session.memory().entries[1].shard
        assert pane(pilot).place() == f"{shard.space} {shard.addr:#x}:{shard.nbytes}"


async def test_a_view_opened_from_a_picked_allocation_is_of_its_tensor(
    session, drive
) -> None:
    session.goto(17)
    async with drive(80, 24, "4", "j", "v") as pilot:
        name = session.memory().entries[1].tensor
        assert f" {name} (kept: Esc lets go)" in pane(pilot).text
        assert f"\n {name}[0,0]" in pane(pilot).text


async def test_a_cell_of_a_kept_tensor_stays_while_stepping(session, drive) -> None:
    session.goto(16)
    async with drive(80, 24, "4", "j", "j", "v", "j", "l", "s") as pilot:
        before = pane(pilot).place()
        await pilot.press("s", "s", "v", "v")
        assert pane(pilot).place() == before


async def test_the_cell_goes_to_what_an_op_changed(session, drive) -> None:
    session.goto(16)
    async with drive(80, 24, "4", "v", "j", "s") as pilot:
        first = np.argwhere(session.tensor("c").changed)[0]
        assert pane(pilot).place() == f"c[{first[0]},{first[1]}]"


async def test_J_and_K_go_through_the_changed_cells(session, drive) -> None:
    session.goto(16)
    async with drive(80, 24, "4", "v", "J", "J") as pilot:
        changed = [
            tuple(at) for at in np.argwhere(session.tensor("c").changed)[:3].tolist()
        ]
        assert pane(pilot).place() == "c[{},{}]".format(*changed[2])
        await pilot.press("K")
        assert pane(pilot).place() == "c[{},{}]".format(*changed[1])
        await pilot.press("K", "K")
        assert "no further changed number" in str(pilot.app.debugger.notice.render())


async def test_pages_and_ends_stay_within_the_tensor(session, drive) -> None:
    session.goto(17)
    async with drive(80, 24, "4", "v", "end") as pilot:
        assert pane(pilot).place() == "c[127,0]"
        await pilot.press("pagedown", "l")
        assert pane(pilot).place() == "c[127,1]"
        await pilot.press("pageup")
        assert pane(pilot).place() == f"c[{127 - pane(pilot).room + 1},1]"
        await pilot.press("home", "h", "h")
        assert pane(pilot).place() == "c[0,0]"


async def test_heat_is_a_glyph_a_block_with_its_scale(session, drive) -> None:
    session.goto(16)
    async with drive(80, 24, "4", "v", "v") as pilot:
        view, lines = session.tensor("c"), pane(pilot).text.splitlines()
        assert lines[3] == " ▁ 0 to █ 3.635, the largest |x| of 19x2 cells; ! beyond"
        assert [line[:5].strip() for line in lines[4:]] == [
            "0",
            "19",
            "38",
            "57",
            "76",
            "95",
            "114",
        ]
        columns = np.flatnonzero(view.written.any(axis=0)) // 2
        shown = {
            i - 7 for line in lines[4:] for i in range(7, len(line)) if line[i] != " "
        }
        assert shown == set(columns.tolist())
        assert all(
            line[5] == "*" for line in lines[4:]
        )  # this op wrote in all of these rows
        assert "█" in lines[9] + lines[10]


async def test_heat_tells_nan_and_infinity(drive, session, monkeypatch) -> None:
    session.goto(17)
    view = session.tensor("c")
    values = view.values.copy()
    values[5, 3] = np.inf
    with_infinity = replace(view, values=values)
    monkeypatch.setattr(session, "tensor", lambda *_: with_infinity)
    async with drive(80, 24, "4", "v", "v") as pilot:
        assert pane(pilot).text.splitlines()[4][7 + 1] == "!"


async def test_ascii_heat_needs_no_other_characters(drive, session) -> None:
    session.goto(17)
    async with drive(80, 24, "4", "v", "v", ascii_only=True) as pilot:
        assert pane(pilot).text.isascii()
        assert " . 0 to @ " in pane(pilot).text


async def test_hex_shows_the_bits_of_every_element(session, drive) -> None:
    session.goto(17)
    async with drive(80, 24, "4", "v", "v", "v") as pilot:
        bits = session.tensor("c").values.view("u2")
        assert f">{bits[0, 0]:04x}*  {bits[0, 1]:04x}*" in pane(pilot).text


async def test_history_lists_the_accesses_of_the_cell_and_enter_goes_to_one(
    session, drive
) -> None:
    session.goto(40)
    async with drive(80, 24, "4", "j", "enter", "v", "v", "v", "v") as pilot:
        place = pane(pilot).place()
        touches = session.history(*session.places.place(place).ranges[0]).rows
        assert len(touches) > 1
        lines = pane(pilot).text.splitlines()
        assert lines[0].startswith(f" accesses to {place}: {len(touches)}, hbm ")
        assert [line.split()[-1] for line in lines[1:]] == [
            t.op.component for t in touches[: len(lines) - 1]
        ]
        await pilot.press("home", "j", "enter")
        assert session.cursor == touches[1].op.op


async def test_the_spaces_are_told_beside_the_title(session, drive) -> None:
    session.goto(17)
    async with drive(80, 24, "4", "z") as pilot:
        space, count, size = session.memory().spaces[0]
        assert pane(pilot).subtitle == f"{count} in {space} ({size:,} B)"
        assert pane(pilot).subtitle in pane(pilot).text


@pytest.mark.parametrize(
    ("shape", "rows", "name", "cell"),
    [
        ((4, 8), 4, "3", "[3,2]"),
        ((2, 3, 8), 6, "1,0", "[1,0,2]"),
        ((64,), 1, "", "[2]"),
        ((), 1, "", ""),
    ],
)
def test_rows_of_any_rank_are_named_by_their_index(shape, rows, name, cell) -> None:
    assert flat2(np.zeros(shape)).shape[0] == rows
    row = min(3, rows - 1)
    assert name_of(row, shape) == name
    assert within(row, 2 if shape else 0, shape) == cell


async def test_a_long_way_to_execute_is_a_job(monkeypatch) -> None:
    session = open_session(TRACES / "matmul.msgpack", 40)
    monkeypatch.setattr(session.memories, "quick", lambda op, name: False)
    app = KernbenchApp(session, "matmul")
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("4")
        wait([future for _, future in app.debugger.jobs._asked.values()])
        pane(pilot).repaint()
        assert "a f16 128x128" in pane(pilot).text
        assert ("memory", ("tensor", ("a", 40))) in app.debugger.jobs._asked


async def test_a_row_picked_where_nothing_is_written_names_no_bytes(drive) -> None:
    async with drive(80, 24, "4") as pilot:
        pane = pilot.app.debugger.panes[4]
        pane.pick, pane._entries = 0, ()
        assert pane.place() is None


async def test_V_on_a_picked_allocation_lists_the_accesses_to_all_of_it(
    session, drive
) -> None:
    session.goto(40)
    async with drive(80, 24, "4", "j", "V") as pilot:
        shard = session.memory().entries[1].shard
        touches = session.history(shard.space, shard.addr, shard.nbytes).rows
        place = f"{shard.space} {shard.addr:#x}:{shard.nbytes}"
        lines = pane(pilot).text.splitlines()
        assert lines[0].startswith(f" accesses to {place}: {len(touches)}, ")
        await pilot.press("home", "j", "enter")
        assert session.cursor == touches[1].op.op


async def test_the_history_that_v_comes_to_is_of_the_cell_again(session, drive) -> None:
    session.goto(40)
    async with drive(80, 24, "4", "j", "V", "V", "v") as pilot:
        assert " accesses to b[0,0]: " in pane(pilot).text


@pytest.mark.parametrize("place", ["c[0:2, :]", "c", "hbm 0x9000:64"])
async def test_history_of_a_place_opens_in_the_pane(
    session, drive, settle, place
) -> None:
    session.goto(40)
    async with drive(80, 24) as pilot:
        pilot.app.debugger.run(f"history {place}")
        await settle(pilot)
        assert pilot.app.debugger.active == 4
        touches = session.history_of(place).rows
        assert f" accesses to {place}: {len(touches)}, " in pane(pilot).text
        await pilot.press("home", "enter")
        assert session.cursor == touches[0].op.op


async def test_history_of_what_is_not_there_is_an_error(session, drive, settle) -> None:
    async with drive(80, 24, "2") as pilot:
        pilot.app.debugger.run("history foo")
        await settle(pilot)
        assert "no tensor 'foo'" in str(pilot.app.debugger.notice.render())
        assert pilot.app.debugger.active == 2


async def test_escape_lets_go_of_a_kept_tensor_before_the_maximised_pane(
    session, drive
) -> None:
    session.goto(17)
    async with drive(80, 24, "4", "j", "enter", "z") as pilot:
        assert " b (kept: Esc lets go) " in pane(pilot).text
        await pilot.press("escape")
        assert " c f16 128x128" in pane(pilot).text
        assert pilot.app.debugger.maximised
        await pilot.press("escape")
        assert not pilot.app.debugger.maximised


@pytest.mark.parametrize("number", range(1, 9))
async def test_without_ops_no_pane_names_a_key_that_steps(
    number, tmp_path, one_cube
) -> None:
    writer = TraceWriter(tmp_path / "none.msgpack")
    writer.begin({}, one_cube)
    writer.close()
    app = KernbenchApp(open_session(tmp_path / "none.msgpack", None), "none")
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press(str(number))
        text = app.debugger.panes[number].text
        assert "steps" not in text
        assert number not in (2, 4, 7) or " this trace has no ops" in text


async def test_enter_on_a_history_that_is_not_there_yet_goes_nowhere(
    session, drive
) -> None:
    session.goto(20)
    async with drive(80, 24, "4") as pilot:
        pane = pilot.app.debugger.panes[4]
        pane.view, pane.picks, pane.total = pane.views.index("history"), True, 3
        pane.known.clear()
        assert pane.enter() is None


@pytest.mark.parametrize("number", [4, 6])
async def test_a_cell_beyond_the_grid_is_its_nearest_before_it_is_drawn(
    number, session, drive
) -> None:
    session.goto(23)
    async with drive(120, 40, str(number), *"v" * (number == 4)) as pilot:
        pane = pilot.app.debugger.panes[number]
        first = pane.place()
        pane.row = pane.column = -(10**9)
        assert (pane.place() or "").endswith("[0,0]" if number == 4 else ":2")
        pane.row = pane.column = 10**9
        assert pane.place() not in (None, first)
