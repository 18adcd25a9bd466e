"""What is wrong: how the run ended, what ops may not do, outputs that are not right."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from kernbench.common.arrays import Bools
from kernbench.common.progress import Cancelled, Progress, beside_if_many, stage
from kernbench.errors import KernbenchError
from kernbench.replay.answers import OpRow
from kernbench.replay.data.blame import Blame
from kernbench.replay.data.diff import OpDiff
from kernbench.replay.data.outputs import OutputRow
from kernbench.replay.data.parting import HOST_WRITE, Parting, parting_of
from kernbench.replay.data.unread import Unread
from kernbench.replay.diagnosis.findings import Finding, command
from kernbench.replay.diagnosis.lines import LIBRARY, telling_line, telling_lines
from kernbench.replay.diagnosis.syntax import trees_of
from kernbench.replay.index import Index
from kernbench.replay.races.findings import MOST_EXECUTED, headline
from kernbench.replay.text import count_text, number_text, texts_apart
from kernbench.replay.time.spans import part_of_run
from kernbench.sim_engine.verify import mismatches
from kernbench.trace import Trace

# It begins where a word does: else a long word is gone through from each letter on.
_LINE = re.compile(r"(?<![^\s'\"(),])[^\s'\"(),]+?\.py:\d+")
_SEND: tuple[Collection[str], str] = (("send",), "sends")
_RECV: tuple[Collection[str], str] = (("recv", "recv_async"), "receives")
"""The calls at either end of a ring, and what a line does that makes them."""
_UNKNOWN = "?"
_DEPTH = 32
"""Ops deep that the chain of an element is followed."""
_LINES = 4
"""Suspicious lines of an output, the most suspicious first."""
_UNSURE_LINES = 8
"""Lines of an output of which nothing tells one from another."""
_UNREAD = 2
"""Ops that made something in vain that are described."""
_WRITERS_TRIED = 32
"""Ops among whose elements the right one is looked for."""
_TENSORS = 5
"""Outputs that are looked into."""


def wrong(index: Index, progress: Progress) -> list[Finding]:
    """All that is wrong, and what is unchecked. Executes every op, unless they are
    many; see ``_outputs``.
    """
    found = _hazards(index, stage(progress, 0.0, 0.4))
    try:
        outputs = _outputs(index, stage(progress, 0.4, 1.0))
        if not any(finding.kind == "wrong" for finding in outputs):
            # else they are what the error is about
            found = [*_ended_with(index), *found]
        found += outputs
    except Cancelled:
        raise
    except KernbenchError as why:
        title = f"the outputs were not checked: {why}"
        found = [*_ended_with(index), *found]
        found.append(
            Finding("unchecked", title, (), (), (), command(index.trace, "verify"))
        )
    return [*found, *_cut_off(index.trace)]


def _cut_off(trace: Trace) -> list[Finding]:
    """That a recording breaks off, so nobody knows what came behind it."""
    if trace.complete:
        return []
    check = command(trace, "check")
    return [Finding("unchecked", part_of_run(trace), (), (), (), check)]


def _ended_with(index: Index) -> list[Finding]:
    """The error that ended the run, if one did."""
    error = index.ops.error
    if not error:
        return []
    title = f"the run ended with {error}"
    lines = tuple(dict.fromkeys(_LINE.findall(error)))
    evidence: tuple[str, ...] = ()
    if error.startswith("DeadlockError"):
        for calls, does in _other_ends(error):
            ran = _lines_that_call(index.trace, calls)
            lines = tuple(dict.fromkeys((*lines, *ran)))
            evidence += tuple(
                f"{line} {does}, and ran {count_text(times, 'time')}"
                for line, times in ran.items()
            )
    at = index.ops.error_op
    ops = (at,) if at >= 0 else ()
    if not lines and ops:
        lines = _known(index.ops.row(at).site)
    return [Finding("wrong", title, ops, lines, evidence, command(index.trace, "info"))]


def _other_ends(error: str) -> list[tuple[Collection[str], str]]:
    """What would have let those go on that a DeadlockError lists, as ``_RECV``."""
    found = [_RECV] if "is full (" in error else []
    if not found or "nothing more has come" in error:
        found.append(_SEND)
    return found


def _lines_that_call(trace: Trace, calls: Collection[str]) -> dict[str, int]:
    """The kernel lines that send, or those that receive, and how often each ran, the
    rarest first.

    Where somebody waits for a message for ever, or for a free slot, one of them ran too
    rarely. Lines that call a function which does so are among them, and stand for it if
    it is the library's.
    """
    lines, which = telling_lines(trace)
    times = dict(zip(lines, np.bincount(which, minlength=len(lines)), strict=True))
    trees = dict(trees_of(trace))
    callers = {*calls}
    for tree in trees.values():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef) and _lines_calling(node, calls):
                callers.add(node.name)
    found: dict[str, int] = {}
    for file, tree in trees.items():
        for number in _lines_calling(tree, callers):
            line = f"{file}:{number}"
            if not file.startswith(LIBRARY):
                found[line] = int(times.get(line, 0))
    return dict(sorted(found.items(), key=lambda row: row[1])[:_LINES])


def _lines_calling(tree: ast.AST, names: Collection[str]) -> list[int]:
    """The lines with a call of a method or a function by one of these names."""
    lines = set()
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        called = getattr(node.func, "attr", getattr(node.func, "id", ""))
        if called in names:
            lines.add(node.lineno)
    return sorted(lines)


# -- what ops may not do ------------------------------------------------------


def _hazards(index: Index, progress: Progress) -> list[Finding]:
    """Races, and bytes that nobody wrote or allocated: by kind and kernel lines."""
    hazards = index.hazards.findings(progress)
    found = []
    for hazard in hazards.rows:
        ops = [hazard.op.op]
        if hazard.other is not None:
            ops.insert(0, hazard.other.op)
        rows = (hazard.op,) if hazard.other is None else (hazard.other, hazard.op)
        known = [line for row in rows for line in _known(telling_line(row))]
        lines = tuple(dict.fromkeys(known))
        words = ["--prove"] if hazard.is_race else []
        check = command(index.trace, "hazards", *words)
        found.append(Finding("wrong", headline(hazard), tuple(ops), lines, (), check))
    if hazards.note:
        check = command(index.trace, "hazards")
        found.append(Finding("unchecked", hazards.note, (), (), (), check))
    return found


# -- outputs ------------------------------------------------------------------


def _outputs(index: Index, progress: Progress) -> list[Finding]:
    """The outputs that are not as the bench expects, with what made them so.

    Those of a long run that found all of them right itself are not computed again, and
    of any long run no op is executed after the last of them is due.
    """
    count = len(index.ops)
    is_long = count > MOST_EXECUTED
    verdict = index.trace.verify_report
    if is_long and verdict is not None and verdict.get("ok"):
        title = (
            f"all outputs are right as the run itself found; {count:,} ops were not "
            "executed again"
        )
        check = command(index.trace, "verify")
        return [Finding("unchecked", title, (), (), (), check)]
    report = index.outputs.verify(stage(progress, 0.0, 0.3), to_end=not is_long)
    if not report.rows and count:
        why = report.note
        if index.trace.complete and not index.ops.error:
            why = (
                "the bench does not say what any of them is to be; "
                "torch.expect(tensor, array) does"
            )
        title = f"no output was checked: {why}"
        return [Finding("unchecked", title, (), (), (), command(index.trace, "verify"))]
    failing = [out for out in report.rows if not out.row.ok]
    found: list[Finding] = []
    if failing:
        found += _divergence(index, stage(progress, 0.3, 0.6))
    rest = stage(progress, 0.6, 1.0)
    for number, out in enumerate(failing[:_TENSORS]):
        own = stage(rest, number / _TENSORS, (number + 1) / _TENSORS)
        found.append(_failed(index, out, own))
    return found


def _divergence(index: Index, progress: Progress) -> list[Finding]:
    """The op that is off by more than rounding; else where an output went wrong."""
    diff: OpDiff | None = index.diffs.first_divergence(stage(progress, 0.0, 0.5))
    title = "is off by more than rounding"
    if diff is not None and diff.check is not None and diff.check.overflows:
        title = "overflows: of what is finite rounding makes infinity"
    if diff is not None and diff.check is not None and diff.check.is_of_nan:
        title = "makes an integer of NaN, which has none"
    if diff is None:
        diff = index.departures.first(stage(progress, 0.5, 1.0))
        title = ""
    if diff is None:
        return []
    row = index.ops.row(diff.op)
    what = f"op {diff.op:,} {diff.name}"
    title = f"{what} {title}" if title else f"{what}: {diff.note}"
    check = command(index.trace, "divergence")
    return [Finding("wrong", title, (diff.op,), _known(row.site), (), check)]


def _failed(index: Index, out: OutputRow, progress: Progress) -> Finding:
    """An output that is wrong: its first bad element, and the lines to suspect."""
    row = out.row
    op = out.after - 1
    title = f"{row.tensor}: {row.mismatches:,} of {row.elements:,} elements are wrong"
    check = command(index.trace, "outputs")
    if out.bad is None:
        return Finding("wrong", f"{row.tensor}: {row.note}", (), (), (), check)
    bad = _element(out.name, out.bad)
    chain = index.blame.named(bad, op, _DEPTH, stage(progress, 0.0, 0.2))
    good = _right_element(index, out, chain, stage(progress, 0.2, 0.5))
    if chain.part.writers == (-1,):
        title += f", the first {bad} was never written"
        return _never_written(index, out, title, good, stage(progress, 0.5, 1.0))
    value = chain.part.value
    if good is None:
        values = _values(index, out, stage(progress, 0.5, 0.7))
    else:
        values = _Values(good.wrong, good.expected)
    if value not in ("", "NaN"):
        value = values.wrong or value
    title += f", the first {bad} = {value or '?'}"
    if values.expected:
        title += f", which is to be {values.expected}"
    # what was due earlier may be something else by now
    moment = [] if op == len(index.ops) - 1 else ["--op", str(op)]
    check = command(index.trace, "blame", bad, *moment)
    parting: Parting | None = None
    if good is None:
        evidence = [f"no element of {row.tensor} is right"]
    else:
        beside = index.blame.named(good.name, op, _DEPTH, stage(progress, 0.5, 0.7))
        found = parting_of(beside, chain)
        if found.is_telling:
            parting = found
            evidence = parting.lines(10_000)[:3]
            check = command(index.trace, "blame", good.name, bad, *moment)
        else:
            evidence = [f"{good.name} is right, but made otherwise: it tells nothing"]
    measure = None
    if parting is not None and good is not None and not good.is_by_chance:
        measure = parting.good
    unread = _unread(index, chain, measure, stage(progress, 0.7, 1.0))
    evidence += [_unread_text(found) for found in unread[:_UNREAD]]
    suspects = _suspects(chain, parting, unread)
    doubts = _doubts(chain, parting, unread, suspects)
    shown = _UNSURE_LINES if doubts else _LINES
    behind = _rows_behind(chain, parting, unread)
    return Finding(
        "wrong",
        title,
        _first_of_line(suspects, behind, _ops(chain)),
        suspects[:shown],
        (*evidence, *doubts),
        check,
    )


def _never_written(
    index: Index, out: OutputRow, title: str, good: _Right | None, progress: Progress
) -> Finding:
    """An output of which nobody wrote an element: who wrote a right one, whose lines
    did not come to it.
    """
    tensor = out.row.tensor
    evidence = f"no element of {tensor} is right"
    ops: tuple[int, ...] = ()
    lines: tuple[str, ...] = ()
    if good is None:
        expected = _values(index, out, progress).expected
    else:
        expected = good.expected
    if expected:
        title += f", and is to be {expected}"
    if good is not None:
        chain = index.blame.named(good.name, out.after - 1, _DEPTH, progress)
        lines = _suspects(chain, None, ())[:_LINES]
        ops = _first_of_line(lines, _rows_behind(chain, None, ()), _ops(chain))
        evidence = f"{good.name} is right, as these lines made it"
    check = command(index.trace, "history", tensor)
    return Finding("wrong", title, ops, lines, (evidence,), check)


class _Right(NamedTuple):
    """An element that is right, near a wrong one, whose right value is ``expected``.

    ``wrong`` is the value of that, with as many digits as tell both apart; "" of one in
    another copy. Where the op that wrote the right one has written wrong ones, too, it
    may be right by chance.
    """

    name: str
    expected: str
    wrong: str = ""
    is_by_chance: bool = False


def _right_element(
    index: Index, out: OutputRow, chain: Blame, progress: Progress
) -> _Right | None:
    """The right element to put beside the first bad one; None if none is right.

    Of a bad copy it is the same element of the first copy. Else it is the nearest that
    the same line wrote; of a bad one that no kernel wrote, the nearest that any did.
    Best by an op that wrote no bad one: beside bad ones an element may be right by
    chance. The nearest of all if there is none of these.
    """
    row = out.row
    op = out.after - 1
    view = index.memory.tensor(op, row.tensor, stage(progress, 0.0, 0.3))
    diff = index.outputs.beside(view, stage(progress, 0.3, 0.6))
    if diff.expected is None or diff.actual is None or out.bad is None:
        return None
    is_bad = mismatches(diff.actual, diff.expected, row.tolerance)
    is_left = view.written & ~is_bad
    if is_left.ndim != len(out.bad):
        return None
    if out.name != row.tensor:  # the first copy is right there
        right_one = number_text(diff.expected[out.bad])
        return _Right(_element(row.tensor, out.bad), right_one)
    wrong, expected = texts_apart(diff.actual[out.bad], diff.expected[out.bad])
    line = _writing_line(index, chain.part.writers)
    search = stage(progress, 0.6, 1.0)
    nearest: _Right | None = None
    by_chance: _Right | None = None
    for tried in range(_WRITERS_TRIED):
        done = tried / _WRITERS_TRIED
        find = partial(_nearest, is_left, out.bad)
        at = beside_if_many(is_left.size, find, search, done)
        if at is None:
            break
        right = _Right(_element(row.tensor, at), expected, wrong)
        nearest = nearest or right
        writers = index.blame.named(right.name, op, 0, search).part.writers
        wrote = np.zeros_like(is_left)
        for writer in writers:
            if writer >= 0:
                wrote |= index.memory.written_by(writer, row.tensor, search)
        its_line = _writing_line(index, writers)
        is_alike = its_line == line if line else bool(its_line)
        if is_alike and not (is_bad & wrote).any():
            return right
        if is_alike:
            by_chance = by_chance or right._replace(is_by_chance=True)
        is_left &= ~wrote
        is_left[at] = False
    return by_chance or nearest


class _Values(NamedTuple):
    """What a wrong element is and is to be, with as many digits as tell both apart; ""
    where that is not known.
    """

    wrong: str
    expected: str


def _values(index: Index, out: OutputRow, progress: Progress) -> _Values:
    """Both values of the first bad element, of which no right one has told."""
    tensor = out.row.tensor
    view = index.memory.tensor(out.after - 1, tensor, stage(progress, 0.0, 0.5))
    diff = index.outputs.beside(view, stage(progress, 0.5, 1.0))
    if diff.expected is None or diff.actual is None or out.bad is None:
        return _Values("", "")
    if len(out.bad) != diff.expected.ndim:
        return _Values("", "")
    if out.name != tensor:  # the first copy has another value there
        return _Values("", number_text(diff.expected[out.bad]))
    return _Values(*texts_apart(diff.actual[out.bad], diff.expected[out.bad]))


def _nearest(is_right: Bools, to: Sequence[int]) -> tuple[int, ...] | None:
    """The place nearest to another one at which something is right."""
    at = np.argwhere(is_right)
    if not len(at):
        return None
    distance = np.abs(at - np.array(to)).sum(axis=1)
    return tuple(at[distance.argmin()].tolist())


def _writing_line(index: Index, writers: Sequence[int]) -> str:
    """The kernel line of the last op that wrote an element; "" if none of a kernel."""
    written = [op for op in writers if op >= 0]
    if not written:
        return ""
    row = index.ops.row(max(written))
    return "" if row.name == HOST_WRITE else telling_line(row)


def _element(tensor: str, at: Sequence[int]) -> str:
    """An element as it is typed."""
    return f"{tensor}[{', '.join(map(str, at))}]"


def _ops(chain: Blame) -> list[int]:
    """The ops of a chain, the latest first."""
    return [link.op.op for link in chain.links[:_LINES]]


def _unread(
    index: Index, chain: Blame, measure: Blame | None, progress: Progress
) -> tuple[Unread, ...]:
    """What was made in vain beside a wrong element, and not beside a right one.

    ``measure`` is the chain of the right one, None if there is none that tells.
    """
    found = index.unread.beside(chain, stage(progress, 0.0, 0.5))
    if measure is None:
        return found
    right = index.unread.beside(measure, stage(progress, 0.5, 1.0))
    usual = {telling_line(one.op) for one in right}
    return tuple(one for one in found if telling_line(one.op) not in usual)


def _unread_text(found: Unread) -> str:
    """That nobody reads what an op made, and who may have been to."""
    text = (
        f"nobody reads what op {found.op.op:,} {found.op.name} made at {found.op.site}"
    )
    if found.instead is None:
        return text
    other = found.instead
    return f"{text}; op {other.op:,} {other.name} at {other.site} read something else"


def _suspects(
    chain: Blame, parting: Parting | None, unread: Sequence[Unread]
) -> tuple[str, ...]:
    """Kernel lines, the most suspicious first.

    What the chain's own notes say comes first, then who may have been to read what was
    made in vain, and who made that. Then where the chain parts from that of a right
    element: lines that one of them lacks before those that both have. Then who wrote
    it, from the last op back, the shipped collectives and the host behind the kernel;
    last what was made in vain for nobody.
    """
    noted = [telling_line(link.op) for link in reversed(chain.links) if link.notes]
    in_vain = list[str]()
    for_nobody = list[str]()
    for found in unread:
        if found.instead is None:
            for_nobody.append(telling_line(found.op))
        else:
            in_vain += [telling_line(found.instead), telling_line(found.op)]
    differing = [] if parting is None else _parting_lines(parting)
    of_host = {link.op.site for link in chain.links if link.op.name == HOST_WRITE}
    wrote = sorted(
        (telling_line(link.op) for link in chain.links),
        key=lambda site: (site in of_host, site.startswith(LIBRARY)),
    )
    sites = (*noted, *in_vain, *differing, *wrote, *for_nobody)
    return tuple(dict.fromkeys(site for site in sites if _known(site)))


def _rows_behind(
    chain: Blame, parting: Parting | None, unread: Sequence[Unread]
) -> list[OpRow]:
    """The ops whose lines ``_suspects`` names, those of the wrong element first.

    A line that a wrong element lacks has none among its own: then the op is of the
    right one, or made something in vain.
    """
    links = sorted(chain.links, key=lambda link: link.op.op != chain.suspect)
    rows = [link.op for link in links]
    if parting is not None:
        rows += [link.op for link in parting.good.links]
    for found in unread:
        if found.instead is not None:
            rows.append(found.instead)
        rows.append(found.op)
    return rows


def _first_of_line(
    lines: Sequence[str], behind: Sequence[OpRow], ops: Sequence[int]
) -> tuple[int, ...]:
    """Some ops, before them one of the first line, so that who goes to the first op
    comes to the line that is named.
    """
    of_line = [row.op for row in behind if telling_line(row) in lines[:1]]
    return tuple(dict.fromkeys((*of_line[:1], *ops)))


def _parting_lines(parting: Parting) -> list[str]:
    """The kernel lines at which two chains part, those that one of them lacks first."""
    of_good = _kernel_sites(parting.good)
    of_bad = _kernel_sites(parting.bad)
    sites = [d.site for d in parting.differences if d.site in of_good | of_bad]
    return sorted(sites, key=lambda site: site in of_good & of_bad)


def _kernel_sites(chain: Blame) -> set[str]:
    """The lines of a chain but for those of the host."""
    return {link.op.site for link in chain.links if link.op.name != HOST_WRITE}


def _doubts(
    chain: Blame,
    parting: Parting | None,
    unread: Sequence[Unread],
    suspects: Sequence[str],
) -> list[str]:
    """That nothing tells one line behind an element from another, if that is so."""
    is_meant = any(found.instead is not None for found in unread)
    is_told = chain.suspect is not None or is_meant
    if parting is not None:
        is_told |= bool(_parting_lines(parting))
    if is_told or len(suspects) < 2:
        return []
    text = f"unsure: any of the {len(suspects):,} lines behind it may be wrong"
    if len(suspects) > _UNSURE_LINES:
        text += f"; the last {_UNSURE_LINES} are named"
    return [text]


def _known(site: str) -> tuple[str, ...]:
    """A kernel line, if it is one."""
    return (site,) if site and not site.startswith(_UNKNOWN) else ()
