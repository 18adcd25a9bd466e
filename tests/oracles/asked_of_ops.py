"""Asks the debugger which ops there are and moves its cursor, and compares by hand."""

import operator
from collections import Counter
from fnmatch import fnmatchcase
from functools import partial

import plain_ops
import plain_time
from asked_of_data import check_stops, ops_asked
from plain_time import in_flight

from kernbench.errors import KernbenchError

TIMES = 4
"""How often a move or a question is tried in a program."""


# -- expressions ------------------------------------------------------------------


def _calls(case, op):
    return case.recording.call_of(op)


def _site(case, op):
    call = _calls(case, op)
    if call is None:
        return None
    return case.recording.strings[call["file"]], call["line"]


SIGNS = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def _numbers(case):
    """Fields that are numbers, each with the number of an op, None for none."""
    nodes = case.recording.nodes
    return {
        "op": lambda op: op.position,
        "t": lambda op: op.t_start,
        "dur": lambda op: op.t_end - op.t_start,
        "bytes": lambda op: op.nbytes,
        "cmd": lambda op: op.cmd,
        "launch": lambda op: _none_below_0((_calls(case, op) or {}).get("launch")),
        "line": lambda op: (_calls(case, op) or {}).get("line"),
        "pe": lambda op: _none_below_0(nodes[op.node]["pe"]),
        "cube": lambda op: _none_below_0(nodes[op.node]["cube"]),
        "sip": lambda op: _none_below_0(nodes[op.node]["sip"]),
    }


def _none_below_0(number):
    return None if number is None or number < 0 else number


def _texts(case):
    """Fields that are texts, each with the text of an op."""
    return {
        "name": lambda op: op.name,
        "kind": lambda op: op.kind,
        "comp": lambda op: op.component,
        "stage": _stage,
    }


def _stage(op):
    prefix, slash, stage = op.name.partition("/")
    return stage if prefix == "TileToken" and slash else ""


def _shapes(op):
    """All shapes among the params of an op."""
    found = []
    for name, value in op.params.items():
        if "shape" not in name or value is None:
            continue
        if value and isinstance(value[0], (tuple, list)):
            found += [tuple(shape) for shape in value]
        else:
            found.append(tuple(value))
    return [shape for shape in found if shape]


def _number_comparison(case, model):
    """A number of ops, and the one that an op has."""
    name, read = case.rng.choice(sorted(_numbers(case).items()))
    value = read(model)
    if value is None:
        value = 0
    sign = case.rng.choice(sorted(SIGNS))
    text = repr(value)
    if name in ("t", "dur"):
        if "e" in text:
            text = f"{value:.6f}"
        value = float(text)
        text += case.rng.choice(["", "ns"])

    def holds(op):
        mine = read(op)
        if mine is None:
            return sign == "!="
        return SIGNS[sign](mine, value)

    return f"{name} {sign} {text}", holds


def _text_comparison(case, model):
    """A text of ops, whole or as a glob."""
    name, read = case.rng.choice(sorted(_texts(case).items()))
    value = read(model) or "GEMM"
    sign = case.rng.choice(["=", "!=", "~", "!~"])
    if "~" in sign:
        value = case.rng.choice([f"{value[:2]}*", f"*{value[-3:]}", "*a*", value])

    def fits(op):
        if "~" in sign:
            return fnmatchcase(read(op), value)
        return read(op) == value

    return f'{name} {sign} "{value}"', _held(sign, fits)


def _held(sign, fits):
    """Whether an op fits, or, with a sign that says not, does not."""

    def holds(op):
        return fits(op) != ("!" in sign)

    return holds


def _addr_comparison(case, model):
    """Some bytes that an op touches."""
    touched = plain_ops.accesses(model)
    if not touched:
        return "op >= 0", lambda op: True
    _, region = case.rng.choice(touched)
    low = region.addr + case.rng.randrange(region.nbytes)
    count = case.rng.choice([1, 1, 4, 32])
    sign = case.rng.choice(["=", "!="])

    def fits(op):
        return any(
            other.addr < low + count and low < other.addr + other.nbytes
            for _, other in plain_ops.accesses(op)
        )

    size = "" if count == 1 else f":{count}"
    return f"addr {sign} {low:#x}{size}", _held(sign, fits)


def _space_comparison(case, model):
    """A memory that ops touch."""
    sign = case.rng.choice(["=", "!="])
    space = case.rng.choice(["hbm", "tcm"])

    def fits(op):
        return any(other.space == space for _, other in plain_ops.accesses(op))

    return f"space {sign} {space}", _held(sign, fits)


def _shape_comparison(case, model):
    """A shape among the params of an op, of which the last extent may be any."""
    shapes = _shapes(model)
    if not shapes:
        return "op < 0", lambda op: False
    wanted = list(case.rng.choice(shapes))
    words = [str(extent) for extent in wanted]
    if len(wanted) > 1 and case.rng.random() < 0.3:
        wanted[-1] = None
        words[-1] = "*"
    sign = case.rng.choice(["=", "!="])

    def fits(op):
        return any(
            len(shape) == len(wanted)
            and all(w in (None, e) for w, e in zip(wanted, shape, strict=True))
            for shape in _shapes(op)
        )

    return f"shape {sign} {'x'.join(words)}", _held(sign, fits)


COMPARISONS = (
    _number_comparison,
    _text_comparison,
    _addr_comparison,
    _space_comparison,
    _shape_comparison,
)


def _comparison(case):
    """A random comparison, and a predicate of an op that means the same."""
    model = case.rng.choice(case.recording.ops)
    kind = case.rng.randrange(len(COMPARISONS))
    return COMPARISONS[kind](case, model)


def expression(case, depth=0):
    """A random expression, and a predicate of an op that means the same."""
    kind = case.rng.randrange(5) if depth < 3 else 4
    if kind == 0:
        text, holds = expression(case, depth + 1)
        return f"not ({text})", lambda op: not holds(op)
    if kind in (1, 2):
        word = ("and", "or")[kind - 1]
        left, a = expression(case, depth + 1)
        right, b = expression(case, depth + 1)
        if word == "and":
            return f"({left}) and ({right})", lambda op: a(op) and b(op)
        return f"({left}) or ({right})", lambda op: a(op) or b(op)
    if kind == 3:
        # without brackets: "and" binds closer than "or"
        x, a = _comparison(case)
        y, b = _comparison(case)
        z, c = _comparison(case)
        return f"{x} or {y} and not {z}", lambda op: a(op) or (b(op) and not c(op))
    return _comparison(case)


def check_expressions(case):
    """``ops where``, ``find``, ``rfind``, ``assert``, and ``break`` with continue."""
    last = len(case.recording.ops) - 1
    for number in range(2 * TIMES):
        text, holds = expression(case)
        wanted = [op.position for op in case.recording.ops if holds(op)]
        answer = case.ask(f"ops where {text} limit 100000", -1)
        case.equal("ops", [row.op for row in answer.rows], wanted, f"where {text}")
        case.equal("assert", _passes(case, f"assert {len(wanted)} {text}"), True, text)
        here = case.rng.randint(-1, last)
        later = [op for op in wanted if op > here]
        case.equal("find", _found(case, f"find {text}", here), later[:1], text)
        before = [op for op in wanted if op < here]
        case.equal("rfind", _found(case, f"rfind {text}", here), before[-1:], text)
        if here >= 0:
            passes = _passes(case, f"assert {text}", here)
            case.equal("assert", passes, here in wanted, f"{text} at op {here}")
        if number % 4 == 0:
            check_stops(case, f"break {text}", wanted)


def _passes(case, line, position=-1):
    """Whether an assertion holds."""
    return _errors(case, line, position) is None


def _errors(case, line, position):
    """The error that a line ends with, None if there is none."""
    try:
        case.ask(line, position)
    except KernbenchError as error:
        return error
    return None


def _found(case, line, position):
    """Where a search leads to, as a list of at most one."""
    if _errors(case, line, position) is not None:
        return []
    return [case.session.cursor]


# -- what is recorded -------------------------------------------------------------


def _held_behind(case, op, until):
    """Behind which op one was held in program order until a time, where the file names
    none; None if there is none.

    It is the last in program order of those of the kernel that were called before it,
    touch the same bytes, and had started a cycle before that time (docs/machine.md,
    "Program order").
    """
    mine = _calls(case, op)
    found = [
        other
        for other in case.recording.ops
        if other.cmd < op.cmd
        if abs(_started(case, other) - until) <= 0.01  # ns
        if _same_kernel(mine, _calls(case, other)) and _conflict(op, other)
    ]
    return max(found, key=lambda other: other.cmd, default=None)


def _started(case, op):
    """A cycle after an op has started; a send has when it has read its source."""
    spec = partial(plain_time.spec, case.recording)
    read = 0.0
    if op.name == "ipcq_copy":
        read = op.nbytes / spec("pe.dma.to_router_bw_gbs")
    return op.t_start + read + 1 / spec("pe.clock_ghz")


def _same_kernel(one, other):
    """Whether two calls are of one kernel, in one launch of it on one PE."""
    if one is None or other is None or one["launch"] < 0:
        return False
    return (one["pe"], one["launch"]) == (other["pe"], other["launch"])


def _conflict(one, other):
    """Whether two ops touch the same byte, and one of them writes it."""
    return any(
        "w" in (mode, their_mode) and plain_ops.shared(mine, theirs) is not None
        for mode, mine in plain_ops.touched(one)
        for their_mode, theirs in plain_ops.touched(other)
    )


def check_op(case):
    """``op``, ``source`` and the lines of ``ops``: what the file has of an op."""
    recording = case.recording
    by_row = {op.row: op.position for op in recording.ops}
    for position in ops_asked(case, 2 * TIMES):
        op = recording.ops[position]
        answer = case.ask("op", position)
        what = f"op {position}"
        row = answer.row
        found = (row.op, row.t_start, row.t_end, row.component, row.name, row.kind)
        wanted = (position, op.t_start, op.t_end, op.component, op.name, op.kind)
        case.equal("op", found, wanted, what)
        case.equal("op", (row.nbytes, answer.slot), (op.nbytes, op.slot), what)
        call = _calls(case, op)
        found = (answer.cmd, answer.call, answer.launch, row.t_issue)
        called = recording.strings[call["call"]]
        wanted = (op.cmd, called, call["launch"], call["t_issue"])
        case.equal("op", found, wanted, f"call of {what}")
        case.equal("op", repr(answer.params), repr(op.params), f"params of {what}")
        held = sorted(by_row[dep] for dep in op.deps)
        case.equal("op", sorted(answer.dependencies), held, f"after of {what}")
        waits = []
        for wait in recording.of_row("waits", op.row):
            holder = _holder(case, op, wait)
            behind = -1 if holder is None else holder.position
            node = recording.strings[wait["node"]]
            reason = case.reasons[wait["reason"]]
            waits.append((node, reason, wait["t0"], wait["t1"], behind))
        case.equal("op", sorted(answer.waits), sorted(waits), f"waits of {what}")
        source = case.ask("source", position)
        file, line = _site(case, op)
        found = (source.op, source.file, source.line)
        case.equal("source", found, (position, file, line), what)
        if file in recording.sources:
            text = tuple(recording.sources[file])
            case.equal("source", source.text, text, f"text of {what}")
        listed = case.ask("ops 5", position)
        near = [row.op for row in listed.rows]
        last = len(recording.ops) - 1
        first = max(min(position - 2, last - 4), 0)
        case.equal("ops", near, list(range(first, min(first + 5, last + 1))), what)
        case.equal("ops", row in listed.rows, True, f"the line of {what}")


def check_info(case):
    """``info``: what the trace holds."""
    recording = case.recording
    answer = case.ask("info", -1)
    names = Counter(op.name for op in recording.ops)
    case.equal("info", answer.by_name, dict(names), "ops by name")
    case.equal("info", answer.ops, len(recording.ops), "ops")
    case.equal("info", answer.launches, len(recording.launches), "launches")
    case.equal("info", answer.end_ns, recording.end["end_ns"], "end")
    case.equal("info", answer.nodes, len(recording.nodes), "nodes")
    case.equal("info", answer.error, recording.end["error"] or "", "error")
    verified = None
    if recording.verdict is not None:
        verified = recording.verdict["results"]["ok"]
    case.equal("info", answer.verified, verified, "verified")
    tensors = dict.fromkeys(a["tensor"] for a in recording.allocs if a["va"])
    case.equal("info", answer.tensors, tuple(tensors), "tensors")


# -- moves ------------------------------------------------------------------------


def check_moves(case):
    """Every move: where it leads, by looking at all ops."""
    recording = case.recording
    ops = recording.ops
    last = len(ops) - 1
    for position in ops_asked(case, 2 * TIMES):
        op = ops[position]
        n = case.rng.choice([1, -1, 2, 5, -3])
        moved = _at(case, f"step {n}", position)
        case.equal("step", moved, min(max(position + n, -1), last), f"{n} {position}")
        mine = [other.position for other in ops if other.node == op.node]
        moved = _at(case, f"next {n}", position)
        case.equal("next", moved, _along(mine, position, n), f"{n} from {position}")
        lane = [p for p in mine if ops[p].slot == op.slot]
        moved = _at(case, f"lane {n}", position)
        case.equal("lane", moved, _along(lane, position, n), f"{n} from {position}")
        pe = [other for other in ops if _pe(case, other) == _pe(case, op)]
        case.equal(
            "line",
            _at(case, f"line {n}", position),
            _by_lines(case, pe, position, n),
            f"{n} from {position}",
        )
        file, line = _site(case, case.rng.choice(pe))
        if file == _site(case, op)[0]:
            of_line = [p.position for p in pe if _site(case, p) == (file, line)]
            later = [p for p in of_line if p > position]
            moved = _at(case, f"to-line {line}", position)
            case.equal("to-line", moved, [*later, *of_line][0], f"{line} {position}")
        _check_tile_moves(case, op)
        check_cause(case, op)
        time = case.rng.choice([op.t_start, op.t_end, op.t_start + 0.25])
        started = [other.position for other in ops if other.t_start <= time]
        moved = _at(case, f"t {time!r}", position)
        case.equal("t", moved, max(started), f"{time!r}")
        flying = in_flight(recording, op.t_start)
        case.session.goto(position)
        found = case.session.in_flight()
        case.equal("timeline (in flight)", found, flying, f"at op {position}")
    _check_jumps(case)


def _at(case, line, position):
    """Where the cursor is after a line."""
    case.ask(line, position)
    return case.session.cursor


def _along(positions, position, n):
    """So many further among some positions, at most to their ends."""
    at = positions.index(position) + n
    return positions[min(max(at, 0), len(positions) - 1)]


def _pe(case, op):
    node = case.recording.nodes[op.node]
    return node["sip"], node["cube"], node["pe"]


def _by_lines(case, ops, position, n):
    """The op after so many changes of line; as far as there are any."""
    way = ops if n > 0 else ops[::-1]
    at = [op.position for op in way].index(position)
    for _ in range(abs(n)):
        here = _site(case, way[at])
        others = [i for i in range(at + 1, len(way)) if _site(case, way[i]) != here]
        if not others:
            break
        at = others[0]
    return way[at].position


def stages_of(case, op):
    """The positions of the stages of an op's tile; of another op itself."""
    if not _stage(op):
        return [op.position]
    return [
        other.position
        for other in case.recording.ops
        if other.cmd == op.cmd
        and _stage(other)
        and other.params["tile_index"] == op.params["tile_index"]
    ]


def _check_tile_moves(case, op):
    """``first``, ``last``, ``stage`` and ``tile``."""
    ops = case.recording.ops
    position = op.position
    stages = stages_of(case, op)
    what = f"from {position}"
    case.equal("first", _at(case, "first", position), stages[0], what)
    if len(stages) > 1:
        wanted = stages[-1]
    else:
        mine = [o for o in ops if o.node == op.node and o.t_start <= op.t_end]
        wanted = mine[-1].position
    case.equal("last", _at(case, "last", position), wanted, what)
    n = case.rng.choice([1, -1, 2])
    wanted = _along(stages, position, n)
    case.equal("stage", _at(case, f"stage {n}", position), wanted, f"{n} {what}")
    if not _stage(op):
        return
    firsts = {}
    for other in ops:
        if other.cmd == op.cmd and _stage(other):
            firsts.setdefault(tuple(other.params["tile_index"]), other.position)
    wanted = _along(list(firsts.values()), stages[0], n)
    case.equal("tile", _at(case, f"tile {n}", position), wanted, f"{n} {what}")


def check_cause(case, op):
    """``cause``: what it waited for last. ``effect``: a waiter that started first."""
    ops = case.recording.ops
    causes = causes_of(case, op)
    moved = ops[_at(case, "cause", op.position)]
    last = max((until for _, until in causes), default=None)
    wanted = [cause for cause, until in causes if until == last] or [op]
    case.equal(
        "cause", moved in wanted, True, f"from {op.position} to {moved.position}"
    )
    effects = effects_of(case, op)
    moved = ops[_at(case, "effect", op.position)]
    wanted = min((effect.t_start for effect in effects), default=op.t_start)
    fits = moved in (effects or [op]) and moved.t_start == wanted
    case.equal("effect", fits, True, f"from {op.position} to {moved.position}")


def causes_of(case, op):
    """(op, until when) of what an op waited for: causes and the stage before until they
    ended, and what held it in program order until it had started; where there is
    nothing of these, those that it only shared a server with.
    """
    ops = case.recording.ops
    stages = [ops[p] for p in stages_of(case, op)]
    before = [s for s in stages if s.position < op.position and s.t_end <= op.t_start]
    known = [case.recording.rows[row] for row in op.deps] + before[-1:]
    held, shared = [], []
    for wait in case.recording.of_row("waits", op.row):
        holder = _holder(case, op, wait)
        if holder is None or holder in known:
            continue
        is_held = case.reasons[wait["reason"]] == "operand"
        (held if is_held else shared).append((holder, wait["t1"]))
    return [(cause, cause.t_end) for cause in known] + held or shared


def _holder(case, op, wait):
    """Behind which op one waited, None where nobody knows."""
    rows = case.recording.rows
    if wait["holder"] < len(rows):
        return rows[wait["holder"]]
    if case.reasons[wait["reason"]] != "operand":
        return None
    return _held_behind(case, op, wait["t1"])


def effects_of(case, op):
    """The ops that waited for one: its effects, the next stage of its tile, and what it
    held in program order.
    """
    ops = case.recording.ops
    stages = [ops[p] for p in stages_of(case, op)]
    after = [s for s in stages if s.position > op.position and s.t_start >= op.t_end]
    held = [
        other
        for other in ops
        for wait in case.recording.of_row("waits", other.row)
        if case.reasons[wait["reason"]] == "operand"
        and _holder(case, other, wait) is op
    ]
    return [other for other in ops if op.row in other.deps] + after[:1] + held


def _check_jumps(case):
    """``goto``, ``mark``, ``marks``, ``back`` and ``breaks``."""
    session = case.session
    last = len(case.recording.ops) - 1
    session.goto(-1)
    way = [case.rng.randint(0, last) for _ in range(TIMES)]
    for name, position in zip("abcd", way, strict=True):
        session.goto(position)
        case.equal("goto", session.cursor, position, f"{position}")
        session.run_line(f"mark {name}")
    jumps = [-1]
    for position in way:
        if position != jumps[-1]:
            jumps.append(position)
    session.run_line("back")
    case.equal("back", session.cursor, jumps[-2], f"from {jumps}")
    session.run_line("back -1")
    case.equal("back", session.cursor, jumps[-1], f"again from {jumps}")
    marks = dict(case.session.run_line("marks").rows)
    wanted = {
        name: f"op {position:,}" for name, position in zip("abcd", way, strict=True)
    }
    case.equal("marks", marks, wanted, "all")
    session.run_line("goto b")
    case.equal("mark", session.cursor, way[1], "goto b")
    session.run_line("break op = 3")
    breaks = session.run_line("breaks").rows
    case.equal("breaks", len(breaks), 1, "after one")
    session.run_line(f"delete {session.stops[-1].number}")
    case.equal("delete", len(session.run_line("breaks").rows), 0, "after it")


CHECKS = (check_expressions, check_op, check_info, check_moves)
