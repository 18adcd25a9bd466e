"""What is said of a command: how it is called, examples, and what its words mean."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection

from kernbench.replay.command import Command
from kernbench.replay.expr import FIELDS
from kernbench.replay.parsing import Extent, TypedLine, parse_arguments

WORDS = {
    "PLACE": "c[3,17] or c[0:2, :], elements of a tensor by its name; "
    "x@sip0.cube0.pe1.pe_cpu[2], those of the copy that a PE owns; "
    "hbm 0x4000:64, bytes of hbm, tcm or sram",
    "EXPR": "FIELD SIGN VALUE, joined by and, or, not, ( ): kind=gemm and dur > 100ns. "
    "Signs are = != < <= > >=, and ~ !~ for globs (name ~ 'TileToken/*'); times have "
    f"units, counts may be 0x40 or 4KiB. Fields: {' '.join(FIELDS)}",
    "CONDITION": "an EXPR that this op fits; none EXPR, some EXPR or 16 EXPR, how many "
    "ops fit; ok COMMAND, whose verdict is good; 'TEXT' in COMMAND, what it says",
    "TIME": "a time of the run, as in 3.2us, 450ns or 1ms",
    "FROM": "a time of the run, as in 3.2us; without it from the first launch on",
    "TO": "a time of the run; without it to the end of the last launch",
    "PE": "sip0.cube0.pe3; of a cube (sip0.cube0) or SIP (sip0) all that ran in it",
    "GLOB": "names of components, with * and ?, as in '*.pe0.*' or '*.hbm_ctrl.*'; "
    "with -> in it, of links",
    "TENSOR": "a tensor by the name that the bench gave it, or a scratch handle",
    "FIELD=VALUE": "a field of the machine, by its dotted path or the end of one, as "
    "`kernbench info --topology` prints them",
    "FAIL-OVER": "how many percent longer launches may take, as in 5%",
    "OP": "the position of an op, as `ops` numbers them",
    "MARK": "a letter that `mark` gave an op",
    "CMD": "the number of a tl call, as `op` shows it",
}
"""What the words in capitals of a usage stand for."""


def word_rows(command: Command) -> list[tuple[str, str]]:
    """The words in the usage of a command that need it, and what they stand for."""
    found = re.findall(r"[A-Z][A-Z=-]+", command.usage)
    return [(word, WORDS[word]) for word in dict.fromkeys(found) if word in WORDS]


def examples_of(command: Command) -> list[str]:
    """How one would type it; the name alone if it needs nothing else."""
    return command.example.splitlines() or [command.name]


def shell_examples(command: Command) -> list[str]:
    """The same as lines of a shell, asked of a bundled trace."""
    return [_shell_line(command, text) for text in examples_of(command)]


class _Noting(TypedLine):
    """A typed line that notes how it was taken apart, as words of a shell."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.words: list[str] = []

    def drop_head(self) -> None:
        """Go on behind an option, which has dashes in a shell."""
        self.words.append(f"--{self.head.removeprefix('--')}")
        super().drop_head()

    def take(self, extent: Extent, stops: Collection[str]) -> str:
        """The next value, one word of a shell."""
        value = super().take(extent, stops)
        self.words.append(shlex.quote(value))
        return value


def _shell_line(command: Command, text: str) -> str:
    """A typed line as one asks a trace from a shell; in a script, if another line has
    to come before.
    """
    asked = command.asked
    file = f"traces/{asked.of}.msgpack"
    if asked.after:
        lines = f"{shlex.quote(asked.after)} {shlex.quote(text)}"
        return f"printf '%s\\n' {lines} | kernbench-tui {file} --script -"
    _name, _, rest = text.partition(" ")
    line = _Noting(rest)
    parse_arguments(command.args, line)
    at = [] if asked.op is None else [f"--op {asked.op}"]
    return " ".join(["kernbench trace", command.name, file, *line.words, *at])
