"""A copy of the tree that a test changes as a contributor would."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from filecmp import cmp
from pathlib import Path

ROOT = Path(__file__).parents[1]
_COPIED = ("kernbench", "tui", "tests", "traces", ".github", "pyproject.toml")
_COPIED_TOO = (".ci", "README.md")
_LEFT_OUT = ("snapshots", "__snapshots__", ".pytest_cache")
_NOT_WRITTEN_BY_HAND = {"__pycache__", ".ruff_cache", ".hypothesis"}


class Checkout:
    """The tree, copied to ``root``; programs run there take their code from it.

    ``edit``, ``add_file`` and ``add_row`` change it; ``changed`` says what differs.
    """

    def __init__(self, folder: Path) -> None:
        self.root = folder / "kernbench"
        self._home = folder / "home"
        left_out = shutil.ignore_patterns(*_LEFT_OUT)
        for name in (*_COPIED, *_COPIED_TOO):
            there = ROOT / name
            here = self.root / name
            if there.is_dir():
                shutil.copytree(there, here, ignore=left_out)
            else:
                shutil.copy2(there, here)

    # -- what a contributor does ------------------------------------------------------

    def add_file(self, path: str, text: str) -> None:
        """Write a file that is not there yet."""
        file = self.root / path
        assert not file.exists(), f"{path} exists already"
        file.write_text(text, encoding="utf-8")

    def add_row(self, path: str, table: str, row: str) -> None:
        """Write lines at the end of a table.

        That is before the bracket that ends what begins with the line ``table``.
        """
        lines = self._lines(path)
        heads = [i for i, line in enumerate(lines) if line.startswith(table)]
        assert len(heads) == 1, f"{path}: {len(heads)} lines begin with {table!r}"
        head = heads[0]
        is_end = [line[:1] in (")", "}", "]") for line in lines[head:]]
        lines.insert(head + is_end.index(True), row)
        self._write(path, lines)

    def append(self, path: str, text: str) -> None:
        """Write lines at the end of a file."""
        self._write(path, [*self._lines(path), text])

    def insert_before(self, path: str, anchor: str, text: str) -> None:
        """Write lines before the one that begins with ``anchor``."""
        lines = self._lines(path)
        places = [i for i, line in enumerate(lines) if line.startswith(anchor)]
        assert len(places) == 1, f"{path}: {len(places)} lines begin with {anchor!r}"
        lines.insert(places[0], text)
        self._write(path, lines)

    def replace(self, path: str, old: str, new: str) -> None:
        """Write something else in place of a text that is there once."""
        text = "".join(self._lines(path))
        assert text.count(old) == 1, f"{path}: {old!r} is there {text.count(old)} times"
        self._write(path, [text.replace(old, new)])

    def _lines(self, path: str) -> list[str]:
        text = (self.root / path).read_text(encoding="utf-8")
        return text.splitlines(keepends=True)

    def _write(self, path: str, lines: list[str]) -> None:
        (self.root / path).write_text("".join(lines), encoding="utf-8")

    # -- what came of it --------------------------------------------------------------

    def changed(self) -> set[str]:
        """The files that are new, or are others than before."""
        found = set()
        for file in self.root.rglob("*"):
            path = file.relative_to(self.root)
            if file.is_dir() or _NOT_WRITTEN_BY_HAND & set(path.parts):
                continue
            before = ROOT / path
            if not before.is_file() or not cmp(before, file, shallow=False):
                found.add(str(path))
        return found

    def touched(self) -> set[str]:
        """The files that are others than before, and the folders of those that are new.

        As documents name them: a folder with a slash at its end.
        """
        found = set()
        for path in self.changed():
            is_new = not (ROOT / path).is_file()
            found.add(f"{Path(path).parent}/" if is_new else path)
        return found

    def python(self, script: str) -> str:
        """What a script prints that imports from the copy."""
        return self._run("-c", script)

    def kernbench(self, *words: str) -> str:
        """What ``kernbench`` prints."""
        return self._run("-m", "kernbench.cli", *words)

    def passes(self, *words: str) -> int:
        """Run the copy's own tests: how many passed; one that fails fails this one."""
        options = ("-p", "no:cacheprovider", "-m", "", "--no-header")
        printed = self._run("-m", "pytest", *options, *words)
        counted = re.search(r"^(\d+) passed", printed, re.MULTILINE)
        assert counted is not None, printed
        return int(counted[1])

    def is_clean(self) -> bool:
        """Whether ``ruff`` finds nothing in what was written."""
        files = [name for name in self.changed() if name.endswith(".py")]
        self._run("-m", "ruff", "check", *files)
        self._run("-m", "ruff", "format", "--check", *files)
        return True

    def _run(self, *words: str) -> str:
        """What Python prints; a run that fails shows all that it printed."""
        own = {
            "PYTHONPATH": str(self.root),
            "XDG_CONFIG_HOME": str(self._home),
            "XDG_STATE_HOME": str(self._home),
        }
        done = subprocess.run(
            [sys.executable, *words],
            cwd=self.root,
            env=os.environ | own,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, f"{words}:\n{done.stdout}\n{done.stderr}"
        return done.stdout
