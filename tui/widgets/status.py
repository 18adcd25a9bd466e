"""The lines around the panes: status and breadcrumb on top, the strip of tabs, the footer."""

from __future__ import annotations

from textual import events
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from kernbench.replay import ReplaySession
from kernbench.replay.session import FOCUS_LEVELS
from kernbench.replay.text import time_text
from tui.jobs import Jobs
from tui.keymap import Keymap
from tui.messages import Activate
from tui.widgets.draw import Glyphs, Line, Run, length, rule, strip
from tui.widgets.pane import Pane

_VERDICTS: dict[bool | None, Run] = {
    True: ("  verify ok ", "flight"),
    False: ("  verify FAILED ", "bad"),
    None: ("  verify not run ", "dim"),
}


class LineWidget(Widget):
    """One line of runs; refreshes only if it changed."""

    DEFAULT_CSS = "LineWidget { height: 1; }"
    ALLOW_SELECT = False

    def __init__(self, id: str) -> None:
        super().__init__(id=id)
        self.line: Line = []

    def put(self, line: Line) -> None:
        """Show ``line``."""
        if line != self.line:
            self.line = line
            self.refresh()

    def render_line(self, y: int) -> Strip:
        """The line, cut or filled up."""
        return strip(self.line, self.size.width)


class Status(LineWidget):
    """``kernbench FILE  op 12/153  t=5.43us  3 in flight  2 BP  !1 DIFF  a-b 1.2us  verify ok``.

    Where the line is too short, what matters least is left out.
    """

    def __init__(self, session: ReplaySession, name: str) -> None:
        super().__init__("status")
        info = session.info()
        self._session, self._file = session, name
        self._verdict = 4, _VERDICTS[info.verified]
        if info.error and info.verified is None:
            self._verdict = (
                8,
                (f"  run ended with {info.error.partition(':')[0][:30]} ", "bad"),
            )
        rows = (session.trace.verify_report or {}).get("rows", ())
        bad = sum(isinstance(row, dict) and row.get("ok") is False for row in rows)
        self._bad = f"  !{bad} DIFF" * bool(bad)
        self._state = "" if info.complete else "file cut off"
        self._state = f"{info.damaged} damaged frames" if info.damaged else self._state

    def tell(
        self,
        width: int,
        note: str,
        between: tuple[str, float, float] | None,
        jobs: Jobs,
    ) -> None:
        """Say where the cursor is; ``note`` is about the layout, ``between`` of two marks."""
        session = self._session
        line: list[tuple[int, Run]] = [
            (1, (" kernbench", "bold")),
            (3, (f" {self._file}", "")),
        ]
        if session.cursor >= 0:
            line.append((9, (f"  op {session.cursor:,}/{len(session) - 1:,}", "bold")))
            line.append((5, (f"  t={time_text(session.time)}", "")))
            line.append((2, (f"  {len(session.in_flight())} in flight", "flight")))
        else:
            line.append((9, (f"  before the first of {len(session):,} ops", "bold")))
        stops = len(session.stops.all)
        line += [(6, (f"  {stops} BP" * bool(stops), "mark")), (7, (self._bad, "mark"))]
        if between is not None:
            name, t0, t1 = between
            line.append((4, (f"  {name} {time_text(t1 - t0)}", "title")))
        right = (
            [(7, (f" {note or self._state}", "mark"))] if note or self._state else []
        )
        for job in jobs.late()[:1]:
            right.append((8, (f" {job.title[:24]} {job.done:.0%}", "mark")))
        right.append(self._verdict)
        while (
            length([run for _, run in line + right]) > width and len(line + right) > 1
        ):
            least = min(line + right)
            (line if least in line else right).remove(least)
        gap = " " * (width - length([run for _, run in line + right]))
        self.put([run for _, run in [*line, (0, (gap, "")), *right]])


class Crumbs(LineWidget):
    """``sip0 > cube0 > pe3 > [pe_gemm] > tile 0,1,0``; the focus of n and N in brackets."""

    def __init__(self, session: ReplaySession) -> None:
        super().__init__("crumbs")
        self._session = session

    def tell(self) -> None:
        """Say where the cursor's op ran."""
        session = self._session
        op, component = session.op, session.component
        if op is None or component is None:
            first = (
                "s steps to the first op" if len(session) else "this trace has no ops"
            )
            self.put([(f" {first}, : takes commands, ? helps", "dim")])
            return
        nodes, level = session.trace.nodes, FOCUS_LEVELS[session.level]
        numbers = (
            (name, int(getattr(nodes, name)[component]))
            for name in ("sip", "cube", "pe")
        )
        places = [("machine", "machine")] * (level == "machine")
        places += [(name, f"{name}{n}") for name, n in numbers if n >= 0]
        places.append(("component", nodes.engine[component]))
        line: Line = []
        for name, text in places:
            line.append((" > " if line else " ", "dim"))
            line.append((f"[{text}]", "active") if name == level else (text, ""))
        tile = op.params.get("tile_index")
        line.append(("" if tile is None else f" > tile {','.join(map(str, tile))}", ""))
        self.put([*line, (f"   {op.op_name}", "bold")])


class Tabs(LineWidget):
    """The strip below the main pane: names of panes, of which a click activates one."""

    DEFAULT_CSS = "Tabs { position: absolute; }"

    def __init__(self, glyphs: Glyphs) -> None:
        super().__init__("tabs")
        self._glyphs, self._ends = glyphs, list[tuple[int, int]]()

    def place(
        self, at: Region, panes: list[tuple[int, str]], shown: int, active: bool
    ) -> None:
        """Stand at ``at`` with the names of ``panes`` (number, title), ``shown`` in brackets."""
        self.styles.offset, self.styles.width = (at.x, at.y), at.width
        line: Line = [((self._glyphs.bar if at.x else "") + self._glyphs.rule, "rule")]
        self._ends = []
        for number, title in panes:
            here = number == shown
            text = f"[{number} {title}]" if here else f" {number} {title} "
            line.append((text, ("active" if active else "bold") if here else "title"))
            self._ends.append((length(line), number))
        self.put(rule(line, "", at.width, self._glyphs))

    def on_click(self, event: events.Click) -> None:
        """Activate the pane whose name was hit."""
        for number in [number for end, number in self._ends if event.x < end][:1]:
            self.post_message(Activate(number))


class KeyFooter(LineWidget):
    """Keys worth remembering and their words, as many as fit but always help and quit."""

    def __init__(self, keymap: Keymap) -> None:
        super().__init__("footer")
        self._keymap = keymap

    def tell(self, width: int, pane: Pane) -> None:
        """Say what the keys do in ``pane``: Enter, and v the name of the next view."""
        later = (
            pane.views[(pane.view + 1) % len(pane.views)] if len(pane.views) > 1 else ""
        )
        words = self._keymap.footer({"enter": pane.enter_word, "next_view": later})
        for gap in (" ", ""):  # between them, as far as there is room
            items: list[Line] = [
                [(f" {k}", "bold"), (f" {word}{gap}", "dim")] for k, word in words
            ]
            if sum(map(length, items)) <= width:
                break
        while sum(map(length, items)) > width and len(items) > 2:
            del items[-3]
        self.put([run for item in items for run in item])
