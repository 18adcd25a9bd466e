"""The one expression grammar: breakpoints, filter, search, ``trace ops --where``. Never ``eval``.

    or:  and {"or" and}     and: not {"and" not}     not: "not" not | "(" or ")" | FIELD SIGN VALUE

SIGN is = == != < <= > >=, or ~ !~ for globs; != and !~ hold where = and ~ do not. A value is a word
or in quotes; times have units (3.2us), counts may be hex, 1_000 or 4KiB.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fnmatch import translate
from functools import reduce
from typing import Any, NamedTuple, NoReturn, TypeAlias

import numpy as np
import numpy.typing as npt

from kernbench.errors import UsageError
from kernbench.replay.data.history import History
from kernbench.sim_engine.op_log import KIND_RANK
from kernbench.trace import Trace
from kernbench.trace.hops import kernel_lines

Mask: TypeAlias = npt.NDArray[np.bool_]


class _Data(NamedTuple):
    """What tests look at: a trace, its op columns, the history that knows what ops touch."""

    trace: Trace
    history: History
    ops: Any


_Test: TypeAlias = Callable[
    [_Data], Any
]  # a mask of the rows of some table, in the end of ops
_Make: TypeAlias = Callable[[str, str], _Test]  # of sign and value

_DEPTH = 50
_TOKEN = re.compile(
    r"""\s*(==|!=|!~|<=|>=|[=<>~()]|"[^"]*"|'[^']*'|[^\s()=!<>~"']+|$)"""
)
_SIGNS: dict[str, Callable[[Any, Any], Any]] = {
    **dict.fromkeys(("=", "==", "!=", "~", "!~"), operator.eq),
    **{"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge},
}
_UNITS = {"": 1.0, "ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9}
_SIZES = {"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


def parse_time(text: str) -> float:
    """``3.2us`` or ``3200`` to ns; UsageError names the units."""
    match = re.fullmatch(
        r"((?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?)(ns|us|ms|s|)", text, re.ASCII
    )
    if match is None:
        raise UsageError(
            f"time {text!r}: give a number with ns, us, ms or s, as in 3.2us"
        )
    return float(match[1]) * _UNITS[match[2]]


def parse_count(text: str) -> int:
    """``0x40``, ``-1``, ``1_000``, ``1,000`` or ``4KiB``; UsageError for what is none."""
    plain = text.replace("_", "").replace(",", "")
    match = re.fullmatch(
        r"(-?)(0x[0-9a-fA-F]{1,30}|\d{1,30})(|KiB|MiB|GiB)", plain, re.ASCII
    )
    if match is None:
        raise UsageError(
            f"{text!r:.60}: must be a whole number, as 4096, 0x1000 or 4KiB"
        )
    return int(match[1] + match[2], 16 if "x" in match[2] else 10) * _SIZES[match[3]]


# -- fields -----------------------------------------------------------------


def _number(
    read: Callable[[_Data], Any], parse: Callable[[str], float] = parse_count
) -> _Make:
    def make(sign: str, text: str) -> _Test:
        if "~" in sign:
            raise UsageError("numbers are compared by = != < <= > >=")
        value = parse(text)
        return lambda data: _SIGNS[sign](read(data), value)

    return make


def _text(read: Callable[[_Data], tuple[Sequence[str], Any]]) -> _Make:
    """A string a row by its number: each string is looked at once."""

    def make(sign: str, text: str) -> _Test:
        if _SIGNS[sign] is not operator.eq:
            raise UsageError("text is compared by = != ~ !~")
        match = re.compile(translate(text)).match if "~" in sign else text.__eq__

        def test(data: _Data) -> Any:
            names, numbers = read(data)
            return np.array([bool(match(name)) for name in names] or [False])[numbers]

        return test

    return make


def _line(sign: str, text: str) -> _Test:
    """``12`` is that line of any file; FILE:LINE is a glob that may leave out folders."""
    if text.isdecimal():
        return _number(lambda data: data.trace.commands.line)(sign, text)
    return _text(_sites)(sign if sign[0] in "<>" else "~", f"*/{text}")


def _sites(data: _Data) -> tuple[list[str], Any]:
    lines, numbers = kernel_lines(data.trace)
    return [f"/{line}" for line in lines], numbers


def _addr(sign: str, text: str) -> _Test:
    """Of any byte that is touched; = takes ADDR:BYTES too."""
    start, _, size = text.partition(":")
    low, end = (
        parse_count(start),
        parse_count(start) + (parse_count(size) if size else 1),
    )
    if "~" in sign or (size and _SIGNS[sign] is not operator.eq):
        raise UsageError("addresses are compared by = != < <= > >=, ADDR:BYTES by = !=")

    def test(data: _Data) -> Any:
        first = data.history.touched.addr
        stop = first + data.history.touched.nbytes
        if _SIGNS[sign] is operator.eq:
            return (first < end) & (stop > low)
        return _SIGNS[sign](first if "<" in sign else stop - 1, low)

    return test


def _shape(sign: str, text: str) -> _Test:
    """Any shape among the params: 64x64, or 64x* for any second extent."""
    if _SIGNS[sign] is not operator.eq:
        raise UsageError("shapes, as 64x64 or 64x*, are compared by = !=")
    wanted = [
        None if extent == "*" else parse_count(extent) for extent in text.split("x")
    ]

    def test(data: _Data) -> Mask:
        found = np.zeros(len(data.trace.ops), np.bool_)
        for schema, values, rows in data.trace.param_blocks():
            shapes: dict[str, list[str]] = {}
            for i, (path, _) in enumerate(schema.leaves):
                shapes.setdefault(path.rpartition(".")[0], []).append(f"f{i}")
            for name, extents in shapes.items():
                if "shape" in name and len(extents) == len(wanted):
                    pairs = zip(extents, wanted, strict=True)
                    same = [values[at] == n for at, n in pairs if n is not None]
                    found[rows[np.all(same, axis=0)] if same else rows] = True
        return found

    return test


def _names(data: _Data) -> tuple[list[str], Any]:
    return data.trace.strings[: len(data.trace.strings)], data.ops.name


def _stages(data: _Data) -> tuple[list[str], Any]:
    names, numbers = _names(data)
    return [s[10:] if s.startswith("TileToken/") else "" for s in names], numbers


def _of_ops(data: _Data, positions: Any) -> Mask:
    """By row: true at these canonical positions."""
    found = np.zeros(len(data.trace.order), np.bool_)
    found[data.trace.order[positions]] = True
    return found


# from a mask of these rows to one of ops by row; of an op without a call all but != is false
_SPREADS: dict[str, Callable[[_Data, Any], Any]] = {
    "row": lambda data, mask: mask,
    "op": _of_ops,
    "access": lambda data, mask: _of_ops(data, data.history.touched.row[mask]),
    "call": lambda data, mask: np.isin(data.ops.cmd, data.trace.commands.cmd[mask]),
    "node": lambda data, mask: mask[data.ops.component],
}
_FIELDS: dict[str, tuple[str, _Make]] = {
    "op": ("op", _number(lambda data: np.arange(len(data.trace.order)))),
    "name": ("row", _text(_names)),
    "kind": ("row", _text(lambda data: (list(KIND_RANK), data.ops.kind))),
    "comp": ("node", _text(lambda data: (data.trace.node_ids, slice(None)))),
    "pe": ("node", _number(lambda data: data.trace.nodes.pe)),
    "cube": ("node", _number(lambda data: data.trace.nodes.cube)),
    "sip": ("node", _number(lambda data: data.trace.nodes.sip)),
    "stage": ("row", _text(_stages)),
    "t": ("row", _number(lambda data: data.ops.t_start, parse_time)),
    "dur": ("row", _number(lambda data: data.ops.t_end - data.ops.t_start, parse_time)),
    "bytes": ("row", _number(lambda data: data.ops.nbytes)),
    "addr": ("access", _addr),
    "space": ("access", _text(lambda data: data.history.touched[5:1:-3])),
    "shape": ("row", _shape),
    "line": ("call", _line),
    "launch": ("call", _number(lambda data: data.trace.commands.launch)),
    "cmd": ("row", _number(lambda data: data.ops.cmd)),
}
FIELDS = tuple(_FIELDS)


# -- grammar ----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Expr:
    """A condition on ops, as ``compile`` makes it of ``text``."""

    text: str
    _test: _Test = field(repr=False, compare=False)

    def mask(self, trace: Trace, history: History | None = None) -> Mask:
        """Which ops fit, by canonical position; ``history``, if there is one, is the trace's."""
        found = self._test(_Data(trace, history or History(trace), trace.op_columns))
        return np.asarray(found[trace.order])


def compile(text: str) -> Expr:
    """The expression ``text``; UsageError names the column, what is there and what may be."""
    parser = _Parser(text)
    test = parser.chain("or")
    if parser.token:
        parser.fail("and, or, or the end")
    return Expr(text, test)


class _Parser:
    """Recursive descent over ``text``; stands at ``token``, which is empty at the end."""

    def __init__(self, text: str) -> None:
        self._text, self._end, self._depth = text, 0, 0
        self.take()

    def take(self) -> str:
        """The token here; stands at the next then."""
        taken, match = getattr(self, "token", ""), _TOKEN.match(self._text, self._end)
        if match is None:
            rest = self._text[self._end :].lstrip()
            self.token, self._start = rest[0], len(self._text) - len(rest)
            self.fail("= != < <= > >= ~ !~" if rest[0] == "!" else "a quote that ends")
        self.token, self._start, self._end = match[1], match.start(1), match.end()
        return taken

    def fail(self, wanted: str) -> NoReturn:
        got = repr(self.token) if self.token else "it ends"
        raise self.error(self._start, f"{got}, expected {wanted}")

    def error(self, column: int, why: str) -> UsageError:
        return UsageError(f"expression {self._text!r}, column {column + 1}: {why}")

    def chain(self, word: str) -> _Test:
        part = self._unary if word == "and" else lambda: self.chain("and")
        tests, join = [part()], {"and": np.logical_and, "or": np.logical_or}[word]
        while self.token == word:
            self.take()
            tests.append(part())
        return lambda data: reduce(join, (test(data) for test in tests))

    def _unary(self) -> _Test:
        self._depth += 1
        if self._depth > _DEPTH:
            self.fail(f"at most {_DEPTH} levels of ( and not")
        if self.token not in ("not", "("):
            test = self._comparison()
        elif self.take() == "not":
            inner = self._unary()
            test = lambda data: ~inner(data)  # noqa: E731
        else:
            test = self.chain("or")
            if self.token != ")":
                self.fail("and, or, or )")
            self.take()
        self._depth -= 1
        return test

    def _comparison(self) -> _Test:
        if self.token not in _FIELDS:
            self.fail(f"not, ( or a field ({' '.join(FIELDS)})")
        name = self.take()
        if self.token not in _SIGNS:
            self.fail("one of = != < <= > >= ~ !~")
        sign, column = self.take(), self._start
        if self.token in ("", "(", ")", *_SIGNS):
            self.fail("a value")
        value, (rows, make) = self.take(), _FIELDS[name]
        try:
            test = make(sign, value[1:-1] if value[0] in "\"'" else value)
        except UsageError as why:
            raise self.error(column, f"{name}: {why}") from None
        spread, swap = _SPREADS[rows], "!" in sign
        return lambda data: spread(data, test(data)) ^ swap
