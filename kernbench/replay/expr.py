"""The one expression grammar: breakpoints, filter, search, ``trace ops --where``.

    or:    and {"or" and}
    and:   not {"and" not}
    not:   "not" not | "(" or ")" | FIELD SIGN VALUE

SIGN is = == != < <= > >=, or ~ !~ for globs; != and !~ hold where = and ~ do not. A
value is a word or in quotes; times have units (3.2us), counts may be hex, 1_000 or
4KiB. Nothing is ever given to ``eval``.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fnmatch import translate
from functools import partial, reduce
from typing import Any, NamedTuple, NoReturn, TypeAlias, TypeVar

import numpy as np

from kernbench.common.arrays import Bools, Ints
from kernbench.common.near import did_you_mean, instead_of
from kernbench.common.progress import Progress, computed_beside, no_progress
from kernbench.errors import UsageError
from kernbench.replay.data.history import History
from kernbench.sim_engine.op_log import KIND_RANK
from kernbench.trace import Trace
from kernbench.trace.hops import kernel_lines
from kernbench.trace.params import Schema

T = TypeVar("T")

_TILE = "TileToken/"


class _Data(NamedTuple):
    """What a test looks at: a trace, its op columns, the history of its accesses."""

    trace: Trace
    history: History
    ops: Any
    progress: Progress


_Test: TypeAlias = Callable[[_Data], Any]
"""Gives a mask of the rows of some table, in the end of ops."""

_Make: TypeAlias = Callable[[str, str], _Test]
"""Makes a test of a sign and of the text of a value; UsageError if it cannot."""

_DEEPEST = 50
_FEW_OPS = 50_000
"""Ops that any one comparison looks through within some ms."""
_TOKEN = re.compile(
    r"""\s*(==|!=|!~|<=|>=|[=<>~()]|"[^"]*"|'[^']*'|[^\s()=!<>~"']+|$)"""
)
_SIGNS: dict[str, Callable[[Any, Any], Any]] = {
    **dict.fromkeys(("=", "==", "!=", "~", "!~"), operator.eq),
    **{"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge},
}
_UNITS = {"": 0, "ns": 0, "us": 3, "ms": 6, "s": 9}
"""Powers of ten of a ns."""
_SIZES = {"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


def parse_time(text: str) -> float:
    """``3.2us`` or ``3200`` to ns; UsageError names the units."""
    match = re.fullmatch(
        r"(\d+\.?\d*|\.\d+)(?:e([+-]?\d{1,4}))?(ns|us|ms|s|)", text, re.ASCII
    )
    if match is None:
        raise UsageError(
            f"time {text!r}: give a number with ns, us, ms or s, as in 3.2us"
        )
    digits, exponent, unit = match.groups()
    # rounded once: 1.005 times 1e3 is a little less than 1005
    power = int(exponent or 0) + _UNITS[unit]
    return float(f"{digits}e{power}")


def parse_count(text: str) -> int:
    """``0x40``, ``-1``, ``1_000``, ``1,000`` or ``4KiB``; UsageError for others."""
    plain = text.replace("_", "").replace(",", "")
    match = re.fullmatch(
        r"(-?)(0x[0-9a-fA-F]{1,30}|\d{1,30})(|KiB|MiB|GiB)", plain, re.ASCII
    )
    if match is None:
        raise UsageError(
            f"{text!r:.60}: must be a whole number, as 4096, 0x1000 or 4KiB"
        )
    sign, digits, unit = match.groups()
    base = 16 if "x" in digits else 10
    return int(sign + digits, base) * _SIZES[unit]


# -- fields -----------------------------------------------------------------


def _is_equality(sign: str) -> bool:
    """Whether a sign compares for equality: = and ~, and those that turn them round."""
    return _SIGNS[sign] is operator.eq


def _number(
    read: Callable[[_Data], Any], parse: Callable[[str], float] = parse_count
) -> _Make:
    """Compares a column of numbers, which ``read`` gives and ``parse`` reads one of."""

    def make(sign: str, text: str) -> _Test:
        """A comparison with one number."""
        if "~" in sign:
            raise UsageError("numbers are compared by = != < <= > >=")
        value = parse(text)
        return lambda data: _SIGNS[sign](read(data), value)

    return make


def _ordinal(read: Callable[[_Data], Any]) -> _Make:
    """Compares a column of numbers that count from 0; what is below 0 is none."""
    number = _number(read)

    def make(sign: str, text: str) -> _Test:
        """A comparison with one number, which fits no row that has none."""
        fits = number(sign, text)
        return lambda data: fits(data) & (read(data) >= 0)

    return make


_Read: TypeAlias = Callable[[_Data], tuple[Sequence[str], Any]]
"""Gives strings, and for every row the number of one."""


def _text(read: _Read, known: Sequence[str] = ()) -> _Make:
    """Compares strings, of which every row has the number of one.

    ``read`` gives the strings and the numbers; each string is looked at once. With
    ``known`` no trace has others, so that to compare with another is a mistake.
    """

    def make(sign: str, text: str) -> _Test:
        """A comparison with one string, or one glob."""
        if not _is_equality(sign):
            raise UsageError("text is compared by = != ~ !~")
        if known and "~" not in sign and text not in known:
            raise UsageError(f"{text!r} is none; {instead_of(text, known)}")
        fits = re.compile(translate(text)).match if "~" in sign else text.__eq__

        def test(data: _Data) -> Any:
            names, numbers = read(data)
            which = np.array([bool(fits(name)) for name in names] or [False])
            return which[numbers]

        return test

    return make


def _line(sign: str, text: str) -> _Test:
    """``12`` is that line of any file; FILE:LINE is a glob, folders left out or not."""
    if text.isdecimal():
        return _number(lambda data: data.trace.commands.line)(sign, text)
    glob = sign if sign[0] in "<>" else "~"
    return _text(_sites)(glob, f"*/{text}")


def _sites(data: _Data) -> tuple[list[str], Any]:
    """The kernel line of every call, /FILE:LINE, so that a glob may begin anywhere."""
    lines, numbers = kernel_lines(data.trace)
    return [f"/{line}" for line in lines], numbers


def _addr(sign: str, text: str) -> _Test:
    """Compares any byte that an op touches; = takes ADDR:BYTES too."""
    start, _, size = text.partition(":")
    low = parse_count(start)
    end = low + (parse_count(size) if size else 1)
    if "~" in sign or (size and not _is_equality(sign)):
        raise UsageError("addresses are compared by = != < <= > >=, ADDR:BYTES by = !=")

    def test(data: _Data) -> Any:
        touched = data.history.touched
        first = touched.addr
        stop = first + touched.spans
        if _is_equality(sign):
            return touched.meets(np.arange(len(first)), low, end)
        # one byte of a range is below an address if the first is, above if the last is
        extreme = first if "<" in sign else stop - 1
        return _SIGNS[sign](extreme, low)

    return test


def _shape(sign: str, text: str) -> _Test:
    """Compares any shape among the params: 64x64, or 64x* for any second extent.

    A shape of another number of axes never fits.
    """
    if not _is_equality(sign):
        raise UsageError("shapes, as 64x64 or 64x*, are compared by = !=")
    wanted = [
        None if extent == "*" else parse_count(extent) for extent in text.split("x")
    ]

    def test(data: _Data) -> Bools:
        found = np.zeros(len(data.trace.order), np.bool_)
        for block in data.trace.param_blocks():
            for extents in _shapes_of(block.schema):
                if len(extents) != len(wanted):
                    continue
                fits = np.ones(len(block.rows), np.bool_)
                for column, extent in zip(extents, wanted, strict=True):
                    if extent is not None:
                        fits &= block.values[column] == extent
                found[block.rows[fits]] = True
        return found

    return test


def _shapes_of(schema: Schema) -> list[list[str]]:
    """The fields of each shape among the params of a schema, an extent each."""
    shapes: dict[str, list[str]] = {}
    for i, (path, _) in enumerate(schema.leaves):
        name = path.rpartition(".")[0]
        if "shape" in name:
            shapes.setdefault(name, []).append(f"f{i}")
    return list(shapes.values())


def _names(data: _Data) -> tuple[list[str], Any]:
    """The name of every op."""
    return data.trace.strings[: len(data.trace.strings)], data.ops.name


def _stages(data: _Data) -> tuple[list[str], Any]:
    """The stage of every op of a tile, "" of all others."""
    names, numbers = _names(data)
    stages = [
        name.removeprefix(_TILE) if name.startswith(_TILE) else "" for name in names
    ]
    return stages, numbers


def _kinds(data: _Data) -> tuple[Sequence[str], Any]:
    """The kind of every op."""
    return list(KIND_RANK), data.ops.kind


def _components(data: _Data) -> tuple[Sequence[str], Any]:
    """The id of every node."""
    return data.trace.node_ids, slice(None)


def _spaces(data: _Data) -> tuple[Sequence[str], Any]:
    """The space of every access."""
    touched = data.history.touched
    return touched.spaces, touched.space


def _of_ops(data: _Data, positions: Any) -> Bools:
    """By row: true at these canonical positions."""
    found = np.zeros(len(data.trace.order), np.bool_)
    found[data.trace.order[positions]] = True
    return found


_SPREADS: dict[str, Callable[[_Data, Any], Any]] = {
    "row": lambda data, mask: mask,
    "op": _of_ops,
    "access": lambda data, mask: _of_ops(data, data.history.touched.row[mask]),
    "call": lambda data, mask: np.isin(data.ops.cmd, data.trace.commands.cmd[mask]),
    "node": lambda data, mask: mask[data.ops.component],
}
"""From a mask of some rows to one of ops by row: of an op without a call, or without an
access, all comparisons but != are false. So they are of one on no PE, or of no
launch."""

_FIELDS: dict[str, tuple[str, _Make]] = {
    "op": ("op", _number(lambda data: np.arange(len(data.trace.order)))),
    "name": ("row", _text(_names)),
    "kind": ("row", _text(_kinds, list(KIND_RANK))),
    "comp": ("node", _text(_components)),
    "pe": ("node", _ordinal(lambda data: data.trace.nodes.pe)),
    "cube": ("node", _ordinal(lambda data: data.trace.nodes.cube)),
    "sip": ("node", _ordinal(lambda data: data.trace.nodes.sip)),
    "stage": ("row", _text(_stages)),
    "t": ("row", _number(lambda data: data.ops.t_start, parse_time)),
    "dur": ("row", _number(lambda data: data.ops.t_end - data.ops.t_start, parse_time)),
    "bytes": ("row", _number(lambda data: data.ops.nbytes)),
    "addr": ("access", _addr),
    "space": ("access", _text(_spaces)),
    "shape": ("row", _shape),
    "line": ("call", _line),
    "launch": ("call", _ordinal(lambda data: data.trace.commands.launch)),
    "cmd": ("row", _number(lambda data: data.ops.cmd)),
}
"""Of each field what its column has a row of (``_SPREADS``); what makes its test."""

FIELDS = tuple(_FIELDS)

_NAMES: dict[str, _Read] = {
    "name": _names,
    "comp": _components,
    "stage": _stages,
    "space": _spaces,
}
"""What can be misspelt as the value of a field: the strings that a trace has."""


# -- grammar ----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Expr:
    """A condition on ops, as ``compile`` makes it of ``text``."""

    text: str
    _test: _Test = field(repr=False, compare=False)
    _named: tuple[tuple[str, str], ...] = field(repr=False, compare=False)

    def mask(
        self,
        trace: Trace,
        history: History | None = None,
        progress: Progress = no_progress,
    ) -> Bools:
        """Which ops fit, by canonical position; ``history``, if given, is the trace's.

        ``progress`` is called between the comparisons, and while one takes long. It
        depends on no cursor, so any thread may ask.
        """
        known = history or History(trace)
        data = _Data(trace, known, trace.op_columns, progress)
        found = self._test(data)
        return np.asarray(found[trace.order])

    def ops(
        self,
        trace: Trace,
        history: History | None = None,
        progress: Progress = no_progress,
    ) -> Ints:
        """The canonical positions of the ops that fit, ascending; see ``mask``."""
        data = _Data(trace, history or History(trace), trace.op_columns, progress)
        found = self._test(data)
        return _beside(lambda: np.flatnonzero(found[trace.order]), data)

    def misspelt(self, trace: Trace, history: History | None = None) -> str:
        """Which values no op of a trace has, and what they may have been; "" if none.

        Of ``space`` the history has to be prepared, as it is where the expression was
        looked for.
        """
        found = []
        data = _Data(trace, history or History(trace), trace.op_columns, no_progress)
        for name, value in self._named:
            names, numbers = _NAMES[name](data)
            used = {names[i] for i in np.unique(np.arange(len(names))[numbers])}
            if value not in used:
                hint = did_you_mean(value, used - {""})
                found.append(f"no {name} is {value!r}" + (f"; {hint}" if hint else ""))
        return "; ".join(found)


def compile(text: str) -> Expr:
    """The expression that a text is.

    UsageError, if it is none, names the column (from 1), what is there and what may be.
    """
    parser = _Parser(text)
    test = parser.chain("or")
    if parser.token:
        parser.fail("and, or, or the end")
    return Expr(text, test, tuple(parser.named))


def _beside(compute: Callable[[], T], data: _Data) -> T:
    """``compute()``, on a thread of its own if there are many ops."""
    if len(data.trace.order) <= _FEW_OPS:
        return compute()
    return computed_beside(compute, data.progress, 0.9)


def _compared(rows: str, test: _Test, is_negated: bool) -> _Test:
    """The test of one comparison, as a mask of ops by row.

    ``rows`` says what ``test`` gives a mask of. An op with several accesses fits if one
    of them does, so what is negated is the mask of the ops: != holds where none does.
    """
    spread = _SPREADS[rows]
    needs_accesses = rows == "access"

    def compared(data: _Data) -> Any:
        if needs_accesses:
            data.history.prepare(data.progress)

        def mask() -> Any:
            found = spread(data, test(data))
            return ~found if is_negated else found

        data.progress(0.5)
        return _beside(mask, data)

    return compared


class _Parser:
    """Recursive descent over ``text``.

    ``token`` is what is read next, "" at the end; it begins at column ``_start``, and
    what follows it at ``_end``.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._depth = 0
        self._start = 0
        self._end = 0
        self.token = ""
        self.named: list[tuple[str, str]] = []
        """Fields that were compared for equality with a name, and that name."""
        self._advance()

    def take(self) -> str:
        """The token that was read; the next one is read then."""
        taken = self.token
        self._advance()
        return taken

    def _advance(self) -> None:
        """Read the next token; what is none is an error here."""
        match = _TOKEN.match(self._text, self._end)
        if match is None:
            rest = self._text[self._end :].lstrip()
            self.token = rest[0]
            self._start = len(self._text) - len(rest)
            self.fail("= != < <= > >= ~ !~" if rest[0] == "!" else "a quote that ends")
        self.token = match[1]
        self._start = match.start(1)
        self._end = match.end()

    def fail(self, wanted: str) -> NoReturn:
        """Raise a UsageError of the token that is here."""
        got = repr(self.token) if self.token else "it ends"
        raise self.error(self._start, f"{got}, expected {wanted}")

    def error(self, column: int, why: str) -> UsageError:
        """What is wrong at a column, counted from 0."""
        return UsageError(f"expression {self._text!r}, column {column + 1}: {why}")

    def chain(self, word: str) -> _Test:
        """Parts joined by ``word``: comparisons and brackets by and, those by or."""
        join: Any = np.logical_or
        part = partial(self.chain, "and")
        if word == "and":
            join = np.logical_and
            part = partial(self._unary)
        tests = [part()]
        while self.token == word:
            self.take()
            tests.append(part())
        if len(tests) == 1:
            return tests[0]
        return lambda data: reduce(join, (test(data) for test in tests))

    def _unary(self) -> _Test:
        """A comparison, something in brackets, or the contrary of either.

        Brackets and not go deeper, at most ``_DEEPEST`` levels.
        """
        self._depth += 1
        if self._depth > _DEEPEST:
            self.fail(f"at most {_DEEPEST} levels of ( and not")
        if self.token == "not":
            self.take()
            test = _negated(self._unary())
        elif self.token == "(":
            self.take()
            test = self.chain("or")
            if self.token != ")":
                self.fail("and, or, or )")
            self.take()
        else:
            test = self._comparison()
        self._depth -= 1
        return test

    def _comparison(self) -> _Test:
        """FIELD SIGN VALUE; what the field says of the value gets the sign's column."""
        if self.token not in _FIELDS:
            hint = did_you_mean(self.token, FIELDS)
            wanted = f"not, ( or a field ({' '.join(FIELDS)})"
            self.fail(f"{wanted}; {hint}" if hint else wanted)
        name = self.take()
        if self.token not in _SIGNS:
            self.fail("one of = != < <= > >= ~ !~")
        sign = self.take()
        column = self._start
        if self.token in ("", "(", ")", *_SIGNS):
            self.fail("a value")
        value = self.take()
        if value[0] in "\"'":
            value = value[1:-1]
        rows, make = _FIELDS[name]
        try:
            test = make(sign, value)
        except UsageError as why:
            raise self.error(column, f"{name}: {why}") from None
        if name in _NAMES and sign in ("=", "=="):
            self.named.append((name, value))
        return _compared(rows, test, "!" in sign)


def _negated(test: _Test) -> _Test:
    """The contrary of a test, whose mask is one of ops."""
    return lambda data: ~test(data)
