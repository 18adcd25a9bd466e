"""What may follow in a command line, from what its command takes and what the trace
holds.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from glob import escape, glob

from kernbench.errors import UsageError
from kernbench.replay.command import Command
from kernbench.replay.commands import COMMANDS, listed, named
from kernbench.replay.expr import FIELDS
from kernbench.replay.index import Index
from kernbench.replay.parsing import Argument, Reader, arguments_of
from kernbench.replay.query import Session
from kernbench.replay.questions import EXPORT_FORMATS
from kernbench.topology import TopologySpec
from kernbench.topology.section import leaf_types

Words = Callable[[Index, Session], Iterable[str]]

_VALUE_OF_FIELD = re.compile(r"(\w+)\s*(?:!=|==?|!?~)\s*[\"']?$")
"""The end of an expression that is waiting for the value of a field."""


def _pes(index: Index, session: Session) -> list[str]:
    nodes = index.trace.nodes
    found = zip(index.trace.node_ids, nodes.engine, nodes.pe.tolist(), strict=False)
    return [id.removesuffix(f".{engine}") for id, engine, pe in found if pe >= 0]


def _names_of_memory(index: Index, session: Session) -> list[str]:
    return [*index.places.names, *index.history.allocs.spaces]


_FIELDS_OF_MACHINE = tuple(f"{path}=" for path, _ in leaf_types(TopologySpec))

# what stands for a name in a usage
_WORDS: dict[str, Words] = {
    "TENSOR": lambda index, session: index.places.names,
    "PLACE": _names_of_memory,
    "MARK": lambda index, session: [name for name, _ in session.marks],
    "STOP": lambda index, session: [str(stop.number) for stop in session.stops],
    "PE": _pes,
    "GLOB": lambda index, session: index.trace.node_ids,
    "FORMAT": lambda index, session: EXPORT_FORMATS,
    "NAME": lambda index, session: [command.name for command in listed()],
    "CONDITION": lambda index, session: [*FIELDS, "none", "some", "ok"],
    "FIELD=VALUE": lambda index, session: _FIELDS_OF_MACHINE,
    "EXPR": lambda index, session: [*FIELDS, "and", "or", "not"],
}
# what a field of an expression can be
_VALUES: dict[str, Words] = {
    "comp": lambda index, session: index.trace.node_ids,
    "name": lambda index, session: [s.name for s in index.trace.schemas if s],
    "kind": lambda index, session: [s.kind for s in index.trace.schemas if s],
    "space": lambda index, session: index.history.allocs.spaces,
}
_FILES = ("FILE", "OUT")


def candidates(
    index: Index,
    session: Session,
    head: str,
    word: str,
    table: Sequence[Command] = COMMANDS,
) -> list[str]:
    """What begins with ``word`` and may stand after ``head`` in a command line,
    sorted.
    """
    name, _, rest = head.lstrip().partition(" ")
    if not name:
        known = {command.name for command in table if command.listed}
        return sorted(text for text in known if text.startswith(word))
    field = _VALUE_OF_FIELD.search(rest)
    if field is not None:
        values = _VALUES.get(field[1])
        known = set() if values is None else set(values(index, session))
        return sorted(text for text in known if text.startswith(word))
    try:
        command = named(name, table)
    except UsageError:
        return []
    known = set()
    for reader in _expected(arguments_of(command.args), rest.split()):
        known |= _words_of(reader, index, session, word)
    return sorted(text for text in known if text.startswith(word))


def _words_of(reader: Reader, index: Index, session: Session, word: str) -> set[str]:
    """What may stand for an argument: words of its usage, what the trace has, files."""
    known: set[str] = set()
    for part in reader.alternatives:
        if part.islower():
            known.add(part)
        if part in _WORDS:
            known.update(_WORDS[part](index, session))
        if part in _FILES:
            known.update(glob(f"{escape(word)}*"))
    return known


def _expected(arguments: Sequence[Argument], words: Sequence[str]) -> list[Reader]:
    """The readers of what may come after some words: up to the first that must be
    there.
    """
    options = {a.reader.option: a.reader for a in arguments if a.reader.option}
    if words and words[-1].removeprefix("--") in options:
        return [options[words[-1].removeprefix("--")]]
    given = [word.removeprefix("--") for word in words]
    open_options = [Reader(option) for option in options if option not in given]
    placed = [a for a in arguments if not a.reader.option]
    left = placed[len(words) :] or placed[-1:]
    expected = []
    for argument in left:
        expected.append(argument.reader)
        if argument.required:
            return expected
    return expected + open_options
