"""The keymap: presets, the user's config.toml, and notes on its mistakes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pilots import piloted

from tui.actions import ACTIONS, BY_ID, DEFAULT
from tui.app import KernbenchApp
from tui.keymap import LOST, PRESETS, Keymap, load, merged


def test_without_a_file_the_table_holds(tmp_path) -> None:
    assert load(tmp_path / "config.toml") == Keymap()
    assert load(tmp_path / "config.toml").keys == DEFAULT


def test_the_file_is_looked_for_in_the_users_config_directory(
    tmp_path, monkeypatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (tmp_path / "kernbench").mkdir()
    (tmp_path / "kernbench" / "config.toml").write_text('[keys]\nstep = ["e"]\n')
    assert load().keys["step"] == ("e",)


@pytest.mark.parametrize("line", ["a = %s", "preset = %s", "keys.step = %s"])
def test_a_file_that_is_nested_deeply_leaves_a_note(tmp_path, line) -> None:
    file = tmp_path / "config.toml"
    file.write_text(line % ("[" * 5000 + "]" * 5000))
    assert load(file) == Keymap(notes=("config.toml: not read: nested too deeply",))


def test_a_file_that_cannot_be_read_leaves_a_note(tmp_path) -> None:
    assert load(tmp_path).notes == ("config.toml: not read: Is a directory",)


def test_a_users_keys_replace_those_of_an_action() -> None:
    keymap = merged({"keys": {"step": ["e", "right"], "quit": "Q"}})
    assert keymap.keys["step"] == ("e", "right")
    assert keymap.keys["quit"] == ("Q",)
    assert keymap.actions()["e"] == "step"
    assert "s" not in keymap.actions()


def test_a_key_that_the_user_gives_away_is_taken_from_its_action() -> None:
    keymap = merged({"keys": {"step": ["s", "right"]}})
    assert keymap.keys["right"] == ("l",)
    assert keymap.notes == ("config.toml: keys.right: 'right' is step's; it keeps l",)


def test_an_action_that_is_left_without_a_key_is_noted() -> None:
    keymap = merged({"keys": {"step": ["x"]}})
    assert keymap.keys["diff"] == ()
    assert keymap.notes == (
        "config.toml: keys.diff: 'x' is step's; it has no key left",
    )


def test_two_wishes_for_one_key_go_to_the_first() -> None:
    keymap = merged({"keys": {"step": ["e"], "next": ["e", "n"]}})
    assert (keymap.keys["step"], keymap.keys["next"]) == (("e",), ("n",))
    assert keymap.notes == ("config.toml: keys.next: 'e' is step's; it keeps n",)


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"preset": "vim"}, "preset 'vim': must be gdb or perfetto"),
        ({"preset": ["gdb"]}, "preset ['gdb']: must be gdb or perfetto"),
        ({"colour": 1}, "colour: only theme, preset and keys are known"),
        (
            {"theme": "drak"},
            "theme 'drak': must be dark, light, terminal or none",
        ),
        ({"theme": ["dark"]}, "theme ['dark']: must be dark, light, terminal or none"),
        ({"keys": 3}, "keys = 3: must be a table, [keys]"),
        ({"keys": {"stepp": ["e"]}}, "keys.stepp: no such action; the nearest is step"),
        (
            {"keys": {"foo": ["e"]}},
            "keys.foo: no such action; `kernbench doc",
        ),
        ({"keys": {"step": 3}}, "keys.step: must be a list of keys"),
        ({"keys": {"step": [3]}}, "keys.step: must be a list of keys"),
        (
            {"keys": {"step": ["ctrl+b"]}},
            "keys.step: 'ctrl+b' is lost in tmux or terminals",
        ),
        (
            {"keys": {"step": ["alt+1"]}},
            "keys.step: 'alt+1' is lost in tmux or terminals",
        ),
    ],
)
def test_a_mistake_is_one_note_and_the_table_holds(config, said) -> None:
    keymap = merged(config)
    assert keymap.keys == DEFAULT
    assert len(keymap.notes) == 1
    assert keymap.notes[0].startswith(f"config.toml: {said}")


@pytest.mark.parametrize("text", [b"[keys", b"\xff\xfe", b"[keys]\nstep = [\n"])
def test_a_file_that_is_no_toml_is_one_note(text, tmp_path) -> None:
    (tmp_path / "config.toml").write_bytes(text)
    keymap = load(tmp_path / "config.toml")
    assert keymap.keys == DEFAULT
    assert keymap.notes[0].startswith("config.toml: not read: ")
    assert len(keymap.notes) == 1
    assert "\n" not in keymap.notes[0]


@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_clashes_nowhere_and_binds_no_lost_key(preset) -> None:
    keymap = merged({"preset": preset})
    assert keymap.notes == ()
    assert len(keymap.actions()) == sum(map(len, keymap.keys.values()))
    assert not LOST & {*keymap.actions()}
    assert all(keymap.keys[id] for id in BY_ID)


def test_perfetto_pans_and_zooms_with_w_a_s_d() -> None:
    actions = merged({"preset": "perfetto"}).actions()
    assert [actions[key] for key in "wasd"] == ["zoom_in", "left", "zoom_out", "right"]
    assert [actions[key] for key in "eEDW"] == ["step", "step_back", "narrow", "watch"]


_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text(max_size=8)
    | st.sampled_from([*LOST, "s"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner)
    ),
    max_leaves=4,
)
_KEYS = st.dictionaries(st.sampled_from([*BY_ID, "nothing"]), _VALUES, max_size=4)


@pytest.mark.slow
@given(st.fixed_dictionaries({}, optional={"preset": _VALUES, "keys": _VALUES | _KEYS}))
def test_whatever_it_holds_no_key_has_two_actions_and_none_is_lost(config) -> None:
    keymap = merged(config)
    keys = [key for keys in keymap.keys.values() for key in keys]
    assert len(keys) == len({*keys})
    assert not LOST & {*keys}
    assert {*keymap.keys} == {action.id for action in ACTIONS}
    assert all("\n" not in note for note in keymap.notes)


async def test_notes_are_shown_at_start_until_a_key_and_in_the_help(
    session, as_text_of
) -> None:
    keymap = merged({"keys": {"stepp": ["e"], "step": ["e"], "quit": ["alt+1"]}})
    app = KernbenchApp(session, "matmul.msgpack", keymap=keymap)
    async with piloted(app, (100, 30)) as pilot:
        await pilot.pause()
        for note in keymap.notes:
            assert note in as_text_of(app)
        before = session.cursor
        await pilot.press("e")
        assert session.cursor == before + 1
        assert keymap.notes[0] not in as_text_of(app)
        await pilot.press("?")
        await pilot.pause()
        assert keymap.notes[0] in as_text_of(app)


PERFETTO = merged({"preset": "perfetto"})


async def test_the_footer_shows_the_users_keys(session, as_text_of) -> None:
    app = KernbenchApp(session, "matmul.msgpack", keymap=PERFETTO)
    async with piloted(app, (80, 24)) as pilot:
        await pilot.pause()
        assert "e/E step" in as_text_of(app)


async def test_the_palette_shows_the_users_keys(session) -> None:
    app = KernbenchApp(session, "matmul.msgpack", keymap=PERFETTO)
    async with piloted(app, (80, 24)):
        commands = {c.title: c.help for c in app.get_system_commands(app.screen)}
        assert commands["zoom in: zoom the timeline in"] == "key w +"


async def test_the_help_shows_the_users_keys(session, as_text_of) -> None:
    app = KernbenchApp(session, "matmul.msgpack", keymap=PERFETTO)
    async with piloted(app, (80, 200)) as pilot:  # all of it in one page
        await pilot.press("?")
        await pilot.pause()
        assert "  e                one op forward" in as_text_of(app)


@pytest.mark.parametrize(
    "key", ["bogus+key", "bogus", "ctrl+bogus", "f99", "", "ctrl+"]
)
def test_a_key_that_does_not_exist_is_noted(key) -> None:
    keymap = merged({"keys": {"step": [key, "e"]}})
    assert keymap.keys["step"] == ("e",)
    assert [note.split(";")[0] for note in keymap.notes] == [
        f"config.toml: keys.step: {key!r} is no key"
    ]


def test_every_key_of_the_table_and_the_presets_exists() -> None:
    keys = {id: [*keys] for id, keys in DEFAULT.items()}
    assert merged({"keys": keys}).notes == ()
    more = [
        "question_mark",
        "plus",
        "shift+up",
        "ctrl+pagedown",
        "alt+x",
        "full_stop",
        "minus",
    ]
    assert merged({"keys": {"step": more}}).notes == ()


async def test_of_many_notes_the_first_are_shown_and_how_many_there_are(
    session, as_text_of
) -> None:
    keymap = merged({"keys": {f"nothing{n}": ["e"] for n in range(9)}})
    app = KernbenchApp(session, "matmul.msgpack", keymap=keymap)
    async with piloted(app, (100, 30)) as pilot:
        await pilot.pause()
        text = as_text_of(app)
        assert "9 notes; ? F1 lists all" in text
        assert "nothing0" in text
        assert "nothing8" not in text
        await pilot.press("?")
        await pilot.pause()
        assert all(note in as_text_of(app) for note in keymap.notes)


async def test_a_page_scrolls_and_closes_by_the_users_keys(session) -> None:
    keymap = merged(
        {"keys": {"page_down": ["e"], "back": ["x"], "suspend": ["ctrl+g"]}}
    )
    app = KernbenchApp(session, "matmul.msgpack", keymap=keymap)
    async with piloted(app, (80, 24)) as pilot:
        await pilot.press("?", "e")
        assert app.screen.rows.top > 10
        await pilot.press("x")
        assert app.screen is app.debugger
        await pilot.press("?", "escape")  # leaves a page always
        assert app.screen is app.debugger
