"""The lines around the panes: status and breadcrumb on top, the strip of tabs, the
footer.

What they say is made by functions of the session; the widgets only show a line.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from time import monotonic

from textual import events
from textual.geometry import Region
from textual.strip import Strip

from kernbench.replay.index import Index
from kernbench.replay.query import FOCUS_LEVELS, Session
from kernbench.replay.text import count_text, time_text
from kernbench.visible import visible
from tui.ansi import StripWidget
from tui.draw import Glyphs, Line, Run, clip, cut, length, rule, strip
from tui.keymap import Keymap
from tui.messages import Activate
from tui.runner import Pending

LATE_S = 0.1
"""Most answers are there sooner, and nothing is said of their coming."""
_LEAST_NAME = 8
"""Columns in which a part of the file's name still tells it from others."""

_VERDICTS: dict[bool | None, Run] = {
    True: ("  verify ok ", "flight"),
    False: ("  verify FAILED ", "bad"),
    None: ("  verify not run ", "dim"),
}


@dataclass(frozen=True, slots=True)
class Between:
    """Two marks, or one and the cursor: their names, and their times, ns, in order."""

    names: str
    t0: float
    t1: float


def between_marks(index: Index, session: Session) -> Between | None:
    """The last two marks, or the only one and the cursor; None where none is set."""
    marks = list(session.marks[-2:])
    if not marks:
        return None
    if len(marks) == 1:
        marks.append(("cursor", session.cursor))
    times = [index.ops.time(op) for _, op in marks]
    return Between("-".join(name for name, _ in marks), min(times), max(times))


class LineWidget(StripWidget):
    """One line of runs; is written anew only if it changed."""

    DEFAULT_CSS = "LineWidget { height: 1; }"

    def __init__(self, id: str) -> None:
        super().__init__(id=id)
        self.line: Line = []
        self._strip: Strip | None = None

    def put(self, line: Line) -> None:
        """Show ``line``."""
        if line != self.line:
            self.line = line
            self._strip = None
            self.show_anew()

    def strips(self) -> list[Strip]:
        """The line, cut or filled up."""
        width = self.size.width
        if self._strip is None or self._strip.cell_length != width:
            self._strip = self.filtered(strip(self.fitted(width), width))
        return [self._strip]

    def fitted(self, width: int) -> Line:
        """What is shown of the line in so many columns."""
        return self.line


@dataclass(frozen=True, slots=True)
class _Part:
    """A part of the status line; of two the one of less ``worth`` is left out first.

    One that has a ``least`` is cut to so many columns instead, and these are left out
    only when it is the turn of what is worth ``least_worth``.
    """

    worth: int
    run: Run
    least: int = 0
    least_worth: int = 0


class Status(LineWidget):
    """``kernbench FILE  op 12/153  t=5.43us  3 in flight  2 BP  !1 DIFF  !2 HAZARDS
    a-b 1.2us  verify ok``.

    Where the line is too short, what matters least is left out.
    """

    def __init__(self, index: Index, name: str, glyphs: Glyphs) -> None:
        super().__init__("status")
        self._index = index
        self._glyphs = glyphs
        self._file = visible(name)
        info = index.ops.info()
        self._verdict = _Part(4, _VERDICTS[info.verified])
        if info.verified and not info.compared:
            self._verdict = _Part(4, ("  nothing verified ", "dim"))
        if info.error and info.verified is None:
            what = info.error.partition(":")[0][:30]
            self._verdict = _Part(8, (f"  run ended with {what} ", "bad"))
        verdicts = index.trace.recorded_verdicts
        self._wrong = sum(not ok for ok in verdicts.values())
        self._cut_off = not info.complete
        self._later = info.later

    def update_line(
        self,
        session: Session,
        width: int,
        note: str,
        running: Sequence[Pending],
        hazards: int,
    ) -> None:
        """Say where the cursor is; ``note`` is about the layout, ``hazards`` are those
        that are known.
        """
        left = [
            _Part(1, (" kernbench", "bold")),
            _Part(3, (f" {self._file}", ""), _LEAST_NAME, 6),
            *self._place(session),
        ]
        if session.stops:
            left.append(_Part(6, (f"  {len(session.stops)} BP", "mark")))
        if self._wrong:
            left.append(_Part(7, (f"  !{self._wrong} DIFF", "alarm")))
        if hazards:
            word = "HAZARD" if hazards == 1 else "HAZARDS"
            left.append(_Part(7, (f"  !{hazards} {word}", "alarm")))
        between = between_marks(self._index, session)
        if between is not None:
            text = f"  {between.names} {time_text(between.t1 - between.t0)}"
            left.append(_Part(4, (text, "title")))
        right = []
        damage = self._damage()
        if note or damage:
            right.append(_Part(7, (f" {note or damage}", "mark")))
        late = [job for job in running if monotonic() - job.begun > LATE_S]
        if late:
            text = f" {late[0].title[:24]} {late[0].done:.0%}"
            right.append(_Part(8, (text, "mark")))
        right.append(self._verdict)
        self.put(_fitted(left, right, width, self._glyphs))

    def _damage(self) -> str:
        """What the file has lost, as far as that is known by now; frames are looked
        into when something is first asked of them.
        """
        damaged = len(self._index.trace.damaged)
        if damaged:
            return count_text(damaged, "damaged frame")
        if self._cut_off:
            return "file cut off"
        return "later run: .partial" if self._later else ""

    def _place(self, session: Session) -> list[_Part]:
        ops = len(self._index.ops)
        if session.cursor < 0:
            return [_Part(9, (f"  before the first of {ops:,} ops", "bold"))]
        time = time_text(self._index.ops.time(session.cursor))
        flying = len(self._index.ops.in_flight(session.cursor))
        return [
            _Part(9, (f"  op {session.cursor:,}/{ops - 1:,}", "bold")),
            _Part(5, (f"  t={time}", "")),
            _Part(2, (f"  {flying} in flight", "flight")),
        ]


def _fitted(left: list[_Part], right: list[_Part], width: int, glyphs: Glyphs) -> Line:
    """The parts at both ends of a line; what is worth least is cut or left out until
    they fit, and what was cut gets the columns that are free then.
    """
    columns = {part: length([part.run]) for part in (*left, *right)}
    worth = {part: part.worth for part in columns}
    while sum(columns.values()) > width and len(columns) > 1:
        part = min(columns, key=lambda part: (worth[part], part.run))
        if worth[part] < part.least_worth:
            columns[part] = min(part.least, columns[part])
            worth[part] = part.least_worth
        else:
            del columns[part]
    gap = width - sum(columns.values())
    line: Line = []
    for part in left:
        if part not in columns:
            continue
        text, style = part.run
        shown = min(length([part.run]), columns[part] + max(gap, 0))
        gap -= shown - columns[part]
        line.append((clip(text, shown, glyphs), style))
    line.append((" " * gap, ""))
    return line + [part.run for part in right if part in columns]


class Crumbs(LineWidget):
    """``sip0 > cube0 > pe3 > [pe_gemm] > tile 0,1,0``; the focus of n and N in
    brackets.
    """

    def __init__(self, index: Index, glyphs: Glyphs) -> None:
        super().__init__("crumbs")
        self._index = index
        self._glyphs = glyphs

    def fitted(self, width: int) -> Line:
        """The line; one that is too long ends in an ellipsis."""
        return cut(self.line, width, self._glyphs)

    def update_line(self, session: Session) -> None:
        """Say where the cursor's op ran."""
        node = self._index.ops.component(session.cursor)
        if node is None:
            first = "this trace has no ops"
            if len(self._index.ops):
                first = "s steps to the first op"
            self.put([(f" {first}, : takes commands, ? helps", "dim")])
            return
        level = FOCUS_LEVELS[session.level]
        line: Line = []
        for name, text in self._places(node, level):
            line.append((" > " if line else " ", "dim"))
            line.append((f"[{text}]", "active") if name == level else (text, ""))
        op = self._index.trace.ops[session.cursor]
        tile = op.params.get("tile_index")
        if tile is not None:
            line.append((f" > tile {','.join(map(str, tile))}", ""))
        self.put([*line, (f"   {op.op_name}", "bold")])

    def _places(self, node: int, level: str) -> list[tuple[str, str]]:
        """The levels of focus around a node, the widest first, and what they are
        called.
        """
        nodes = self._index.trace.nodes
        places = []
        if level == "machine":
            places.append(("machine", "machine"))
        numbers = (("sip", nodes.sip), ("cube", nodes.cube), ("pe", nodes.pe))
        for name, column in numbers:
            number = int(column[node])
            if number >= 0:
                places.append((name, f"{name}{number}"))
        places.append(("component", nodes.engine[node]))
        return places


@dataclass(frozen=True, slots=True)
class Tab:
    """The name of a pane in the strip, and its key."""

    key: str
    text: str


class Tabs(LineWidget):
    """The strip below the main pane: names of panes, of which a click activates one."""

    DEFAULT_CSS = "Tabs { position: absolute; }"

    def __init__(self, glyphs: Glyphs) -> None:
        super().__init__("tabs")
        self._glyphs = glyphs
        self._ends: list[tuple[int, str]] = []

    def place_at(self, region: Region) -> None:
        """Stand at a line of the body."""
        self.styles.offset = (region.x, region.y)
        self.styles.width = region.width

    def update_line(
        self,
        region: Region,
        tabs: Sequence[Tab],
        shown: str,
        active: bool,
        bordered: bool = False,
    ) -> None:
        """The names of panes, ``shown`` in brackets, marked if it is the active pane.
        Where that is ``bordered`` this is the upper border.
        """
        style = "frame" if active else "rule"
        left = self._glyphs.rule
        right = ""
        if bordered:
            left = self._glyphs.corners[0] + self._glyphs.rule
            right = self._glyphs.corners[1]
        line: Line = [(left, style)]
        self._ends = []
        names = _names_of(tabs, shown, region.width - len(left) - len(right))
        for tab, name in zip(tabs, names, strict=True):
            text = f" {name} "
            kind = "title"
            if tab.key == shown:
                text = f"[{name}]"
                kind = "active" if active else "bold"
            line.append((text, kind))
            self._ends.append((length(line), tab.key))
        width = region.width - len(right)
        line = rule(line, "", width, self._glyphs, style)
        self.put([*line, (right, style)])

    def on_click(self, event: events.Click) -> None:
        """Activate the pane whose name was hit."""
        for end, key in self._ends:
            if event.x < end:
                self.post_message(Activate(key))
                return


def _names_of(tabs: Sequence[Tab], shown: str, room: int) -> list[str]:
    """What tabs are called; where there is no room for all the last ones but that which
    is ``shown`` are their numbers alone.
    """
    names = [tab.text for tab in tabs]
    for i in reversed(range(len(tabs))):
        if sum(len(name) + 2 for name in names) <= room:
            break
        if tabs[i].key != shown:
            names[i] = tabs[i].text.partition(" ")[0]
    return names


class KeyFooter(LineWidget):
    """Keys worth remembering and their words, as many as fit but always help
    and quit.
    """

    def __init__(self, keymap: Keymap) -> None:
        super().__init__("footer")
        self._keymap = keymap

    def update_line(self, width: int, enter_word: str, next_view: str) -> None:
        """Say what the keys do: Enter in the active pane, and the name of its next
        view.
        """
        words = self._keymap.footer({"enter": enter_word, "next_view": next_view})
        items = _key_items(words, gap=" ")
        if _width_of(items) > width:
            items = _key_items(words, gap="")
        while _width_of(items) > width and len(items) > 2:
            del items[-3]
        self.put([run for item in items for run in item])


def _key_items(words: Sequence[tuple[str, str]], gap: str) -> list[Line]:
    return [[(f" {keys}", "bold"), (f" {word}{gap}", "dim")] for keys, word in words]


def _width_of(items: Sequence[Line]) -> int:
    return sum(length(item) for item in items)
