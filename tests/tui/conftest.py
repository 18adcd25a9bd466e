"""The trace of these tests, sessions and apps on it, and snapshots of their screens."""

from __future__ import annotations

import asyncio
import gc
import inspect
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from desks import DeskBench
from made_up import MadeUp
from pilots import piloted, settled
from terminals import Terminal, opened

from kernbench.replay import ReplaySession
from tui.__main__ import open_session
from tui.ansi import screen_lines
from tui.app import KernbenchApp

SNAPSHOTS = Path(__file__).parent / "snapshots"
UPDATE = "KERNBENCH_UPDATE_SNAPSHOTS"


@pytest.fixture(scope="session", autouse=True)
def _one_heap_of_screens() -> Iterator[None]:
    """No app has all collected that the tests before it have left: see ``_one_heap``.

    A program does so when its trace is loaded, and now and then while nobody types.
    """
    unforced = {
        "collect": lambda: 0,
        "freeze": lambda: None,
        "unfreeze": lambda: None,
        "set_threshold": lambda *_: None,
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tui.lifecycle.gc", SimpleNamespace(**vars(gc) | unforced))
        yield


@pytest.fixture(autouse=True)
def _at_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Give a test colours, and settings, state and clipboard of its own.

    What is computed once the user rests is computed at once.
    """
    for name in ("NO_COLOR", "TMUX"):
        monkeypatch.delenv(name, raising=False)
    for part in ("CONFIG", "STATE"):
        monkeypatch.setenv(f"XDG_{part}_HOME", str(tmp_path / "home"))
    monkeypatch.setattr("tui.screens.debugger.REST_S", 0.0)


@pytest.fixture(autouse=True)
def made_up(monkeypatch: pytest.MonkeyPatch) -> MadeUp:
    """The predictor of all traces."""
    predictor = MadeUp()
    monkeypatch.setattr("kernbench.replay.index.WhatIfIndex", lambda _: predictor)
    return predictor


@pytest.fixture(scope="session")
def trace_path() -> Path:
    return Path(__file__).parents[2] / "traces" / "matmul.msgpack"


@pytest.fixture
def session(trace_path: Path) -> ReplaySession:
    return open_session(trace_path, None)


@pytest.fixture
def as_text_of() -> Callable[[Any], str]:
    """What the screen of an app shows, without colours, as lines."""

    def text(app: Any) -> str:
        return "\n".join(screen_lines(app.screen)) + "\n"

    return text


Driver = Callable[..., AbstractAsyncContextManager[Any]]


@pytest.fixture
def drive(session: ReplaySession) -> Driver:
    """``async with drive(80, 24, "s", "s") as pilot``: an app that got those keys."""

    @asynccontextmanager
    async def run(
        width: int, height: int, *keys: str, ascii_only: bool = False
    ) -> AsyncIterator[Any]:
        app = KernbenchApp(session, "matmul.msgpack", ascii_only)
        async with piloted(app, (width, height), *keys) as pilot:
            yield pilot

    return run


@pytest.fixture(scope="module")
def _started(
    trace_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Terminal]:
    """A terminal in which the program starts once for the tests of a file."""
    home = tmp_path_factory.mktemp("home")
    config = str(home / "config")
    with opened(trace_path, "--op", 40, state=home, XDG_CONFIG_HOME=config) as terminal:
        terminal.until("op 40/")
        terminal.read(0.4)
        yield terminal


@pytest.fixture
def terminal(_started: Terminal) -> Terminal:
    """The program in a terminal of 80 x 24: the timeline active, op 40 under the
    cursor, and nothing over the panes.

    Tests of a file share it, since a start takes a second. They leave it running.
    """
    for _ in range(3):
        _started.press("\x1b", 0.2)  # one behind it at once would be one with Alt
        _started.press("1", 0.2)
        if "[1 Timeline]" in _started.text:
            break
    _started.until("[1 Timeline]")
    for op in (39, 40):
        _started.press(f":goto {op}\r", 0.1)
        _started.until(f"op {op}/")
    _started.read(0.4)
    return _started


@pytest.fixture
def settle() -> Callable[[Any], Awaitable[None]]:
    """``await settle(pilot)``: until no job runs and every pane shows its answer."""
    return settled


@pytest.fixture
def desk_bench() -> Iterator[Callable[..., DeskBench]]:
    """``desk_bench("matmul", 16)``: a desk without an App; its threads end with it."""
    made: list[DeskBench] = []

    def make(*args: Any, **options: Any) -> DeskBench:
        made.append(DeskBench(*args, **options))
        return made[-1]

    yield make
    for bench in made:
        bench.runner.close()


@pytest.fixture
def same_as_file() -> Callable[[str, str], None]:
    """Compare a screen with ``snapshots/NAME.txt``.

    Where the environment sets KERNBENCH_UPDATE_SNAPSHOTS the file is written anew.
    """

    def check(name: str, text: str) -> None:
        path = SNAPSHOTS / f"{name}.txt"
        if os.environ.get(UPDATE):
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
        why = f"no snapshot {path.name}; {UPDATE}=1 pytest tests/tui writes it"
        assert path.is_file(), why
        assert text == path.read_text(encoding="utf-8")

    return check


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run ``async def`` tests of this folder."""
    test = pyfuncitem.obj
    if not inspect.iscoroutinefunction(test):
        return None
    arguments = {
        name: pyfuncitem.funcargs[name] for name in inspect.signature(test).parameters
    }
    asyncio.run(test(**arguments))
    return True
