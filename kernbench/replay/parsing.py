"""One typed parser: what is typed on a line, or given as words by a shell, as the
frozen arguments of a command.

A command's arguments are a frozen dataclass whose fields are annotated with a
``Reader``:

    @dataclass(frozen=True, slots=True)
    class Steps:
        n: Annotated[int, Reader("N", parse_count)] = 1

A field without a default must be given. Usage texts and completion are made from the
same readers, so that they cannot differ from what is parsed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import MISSING, Field, dataclass, fields
from functools import cache
from typing import Any, Literal, Protocol, get_type_hints

from kernbench.errors import UsageError

Extent = Literal["word", "place", "expression", "line"]
"""How much of a line one value takes: a word; c[3, 17] or hbm 0x40:8; all up to the
next option; all that is left.
"""


@dataclass(frozen=True, slots=True)
class Reader:
    """How one argument is written, and how its text becomes a value.

    ``usage`` is its name in capitals, with literal alternatives in small letters, as in
    ``PE|all``. ``parse`` makes the value and raises UsageError for what is none. An
    argument with an ``option`` follows that word, with or without ``--`` in front; one
    without is known by its place. A ``flag`` is its option alone, and a ``repeated``
    argument collects its values in a tuple: by its place all that come. ``nested`` only
    says how the usage puts brackets: an argument that makes no sense without the one
    before it.
    """

    usage: str
    parse: Callable[[str], Any] = str
    extent: Extent = "word"
    option: str = ""
    flag: bool = False
    repeated: bool = False
    nested: bool = False

    @property
    def alternatives(self) -> list[str]:
        """The parts of ``usage``: names in capitals, words that stand for
        themselves.
        """
        return [part.strip() for part in self.usage.split("|")]


@dataclass(frozen=True, slots=True)
class Argument:
    """A field of an arguments' dataclass with its reader; ``required``: it has no
    default.
    """

    name: str
    reader: Reader
    required: bool


@dataclass(frozen=True, slots=True)
class NoArguments:
    """The arguments of a command that takes none."""


@cache
def arguments_of(type_: type) -> tuple[Argument, ...]:
    """The arguments that a dataclass stands for, in order."""
    hints = get_type_hints(type_, include_extras=True)
    found = []
    for field in fields(type_):
        for reader in getattr(hints[field.name], "__metadata__", ()):
            if isinstance(reader, Reader):
                found.append(Argument(field.name, reader, _is_required(field)))
    return tuple(found)


def _is_required(field: Field[Any]) -> bool:
    return field.default is MISSING and field.default_factory is MISSING


@cache
def usage_of(type_: type) -> str:
    """What a command takes, as in ``[COUNT] [where EXPR]``; empty for nothing."""
    parts: list[str] = []
    for argument in arguments_of(type_):
        reader = argument.reader
        text = reader.usage
        if reader.option:
            text = reader.option if reader.flag else f"{reader.option} {text}"
        if reader.repeated and not reader.option:
            text = f"{text} …"
        if not argument.required:
            text = f"[{text}]"
        if reader.nested and parts:
            parts[-1] = f"{parts[-1].removesuffix(']')} {text}]"
        else:
            parts.append(text)
    return " ".join(parts)


class Source(Protocol):
    """The text that is left to be parsed."""

    @property
    def done(self) -> bool:
        """Whether nothing is left."""

    @property
    def head(self) -> str:
        """The first word that is left."""

    def drop_head(self) -> None:
        """Go on behind the first word."""

    def take(self, extent: Extent, stops: Collection[str]) -> str:
        """The next value; an expression ends before one of the words ``stops``."""


_QUOTED = r"""'[^']*'|"[^"]*\""""
_WORD = re.compile(rf"(?:{_QUOTED}|[^\s'\"])+(?!\S)")
_RAW_WORD = re.compile(rf"(?:{_QUOTED}|\S)+")
# quoted; with an index, which may hold blanks; else one word
_PLACE = re.compile(rf"{_QUOTED}|[^\s[]+\[[^]]*\]|\S+")
# what follows a place, and is no address: a mode, a count, an option
_NO_ADDRESS = re.compile(r"rw?|w|\d+|--.*")
_REST = re.compile(r"\S.*")


class TypedLine:
    """A ``Source`` over a line as it was typed; quotes keep blanks in one word."""

    def __init__(self, text: str) -> None:
        self.rest = text.strip()

    @property
    def done(self) -> bool:
        """Whether nothing is left."""
        return not self.rest

    @property
    def head(self) -> str:
        """The first word that is left."""
        return self.rest.split()[0]

    def drop_head(self) -> None:
        """Go on behind the first word."""
        self.rest = self.rest[len(self.head) :].lstrip()

    def take(self, extent: Extent, stops: Collection[str]) -> str:
        """The next value, without its quotes. Raises UsageError for a quote
        left open.
        """
        if extent == "expression":
            end = self._end_of_expression(stops)
        elif extent == "place":
            end = self._end_of_place(stops)
        else:
            match = (_WORD if extent == "word" else _REST).match(self.rest)
            if match is None:
                raise UsageError(f"{self.rest!r}: No closing quotation")
            end = match.end()
        text = self.rest[:end]
        self.rest = self.rest[end:].lstrip()
        if extent == "word" or re.fullmatch(_QUOTED, text):
            return _unquoted(text)
        return text

    def _end_of_expression(self, stops: Collection[str]) -> int:
        """Where the expression at the front ends: before an option, or with the
        line.
        """
        end = 0
        for word in _RAW_WORD.finditer(self.rest):
            is_last = word.end() == len(self.rest)
            if end and _is_option(word[0], is_last, stops):
                break
            end = word.end()
        return end

    def _end_of_place(self, stops: Collection[str]) -> int:
        """Where the place at the front ends: SPACE ADDR are two words."""
        first = _PLACE.match(self.rest)
        if first is None:
            raise UsageError(f"{self.rest!r}: No closing quotation")
        second = _RAW_WORD.search(self.rest, first.end())
        if second is None or not _is_address(first[0], second[0], stops):
            return first.end()
        return second.end()


def _is_option(word: str, is_last: bool, stops: Collection[str]) -> bool:
    """Whether a word ends an expression: an option that its value follows, or
    with --.
    """
    return word.startswith("--") or (word in stops and not is_last)


def _is_address(first: str, second: str, stops: Collection[str]) -> bool:
    """Whether two words are a space and an address in it."""
    if "[" in first or first[0] in "'\"":
        return False
    return second not in stops and not _NO_ADDRESS.fullmatch(second)


def _unquoted(text: str) -> str:
    return re.sub(r"'([^']*)'|\"([^\"]*)\"", r"\1\2", text)


class Words:
    """A ``Source`` over words that a shell has split: their quotes are gone already.

    ``--name=value`` is two words.
    """

    def __init__(self, words: Iterable[str]) -> None:
        self._left: list[str] = []
        for word in words:
            option, equals, value = word.partition("=")
            if equals and re.fullmatch(r"--[a-z-]+", option):
                self._left += [option, value]
            else:
                self._left.append(word)

    @property
    def done(self) -> bool:
        """Whether nothing is left."""
        return not self._left

    @property
    def head(self) -> str:
        """The first word that is left."""
        return self._left[0]

    def drop_head(self) -> None:
        """Go on behind the first word."""
        del self._left[0]

    def take(self, extent: Extent, stops: Collection[str]) -> str:
        """The next value; one that the shell has split is put together again."""
        count = self._count(extent, stops)
        taken = self._left[:count]
        del self._left[:count]
        return " ".join(taken)

    def _count(self, extent: Extent, stops: Collection[str]) -> int:
        """How many words the next value takes."""
        if extent == "place":
            return self._words_of_place(stops)
        if extent == "expression":
            return self._words_before(stops)
        if extent == "line":
            return len(self._left)
        return 1

    def _words_of_place(self, stops: Collection[str]) -> int:
        first, *others = self._left
        if "[" in first:
            closed = (i for i, word in enumerate(self._left, 1) if "]" in word)
            return next(closed, 1)
        if not others or " " in first:
            return 1
        return 2 if _is_address(first, others[0], stops) else 1

    def _words_before(self, stops: Collection[str]) -> int:
        last = len(self._left) - 1
        for i, word in enumerate(self._left[1:], 1):
            if _is_option(word, i == last, stops):
                return i
        return len(self._left)


def option_names(type_: type) -> list[str]:
    """The words that may stand before a value of a command, without their dashes."""
    return [
        argument.reader.option or argument.reader.alternatives[0].lower()
        for argument in arguments_of(type_)
    ]


def parse_arguments(type_: type, source: Source) -> Any | None:
    """An instance of ``type_`` from a source; None where its usage does not fit.

    Raises UsageError for a value that its reader refuses.
    """
    arguments = arguments_of(type_)
    options = {a.reader.option: a for a in arguments if a.reader.option}
    placed = [a for a in arguments if not a.reader.option]
    values: dict[str, Any] = {}
    while not source.done:
        option = options.get(source.head.removeprefix("--"))
        if option is not None:
            source.drop_head()
            argument = option
            if not argument.reader.repeated:
                del options[argument.reader.option]
            if argument.reader.flag:
                values[argument.name] = True
                continue
        elif placed:
            argument = placed[0]
            if not argument.reader.repeated:
                placed.pop(0)
            if source.head == f"--{argument.reader.alternatives[0].lower()}":
                source.drop_head()
        else:
            return None
        if source.done:
            return None
        reader = argument.reader
        value = reader.parse(source.take(reader.extent, options.keys()))
        if reader.repeated:
            value = (*values.get(argument.name, ()), value)
        values[argument.name] = value
    if any(a.required and a.name not in values for a in arguments):
        return None
    return type_(**values)


def one_of(*choices: str) -> Callable[[str], str]:
    """A parser of a word that must be one of ``choices``."""

    def parse(text: str) -> str:
        if text not in choices:
            raise UsageError(f"{text!r}: must be {' or '.join(choices)}")
        return text

    return parse


def words_of(source: Sequence[str] | str) -> Source:
    """The source of a typed line, or of the words of a shell."""
    return TypedLine(source) if isinstance(source, str) else Words(source)
