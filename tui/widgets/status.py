"""The two lines on top: what is open and where the cursor is; and the place of its op."""

from __future__ import annotations

from textual.strip import Strip
from textual.widget import Widget

from kernbench.replay import ReplaySession
from kernbench.replay.session import FOCUS_LEVELS
from kernbench.replay.text import time_text
from tui.widgets.draw import Line, Run, length, strip

_VERDICTS: dict[bool | None, Run] = {
    True: ("verify ok ", "flight"),
    False: ("verify FAILED ", "bad"),
}
_VERDICTS[None] = ("verify not run ", "dim")


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
    """``kernbench FILE  op 12/153  t=5.43us  3 in flight  verify ok``."""

    def __init__(self, session: ReplaySession, name: str) -> None:
        super().__init__("status")
        info = session.info()
        self._session, self._file = session, name
        self._verdict = _VERDICTS[info.verified]
        self._state = "" if info.complete else "file cut off"
        self._state = f"{info.damaged} damaged frames" if info.damaged else self._state

    def tell(self, width: int, note: str) -> None:
        """Say where the cursor is; ``note`` is about the layout."""
        session = self._session
        line: Line = [(" kernbench ", "bold"), (self._file, "")]
        if session.cursor >= 0:
            line.append((f"  op {session.cursor:,}/{len(session) - 1:,}", "bold"))
            line.append((f"  t={time_text(session.time)}", ""))
            line.append((f"  {len(session.in_flight())} in flight", "flight"))
        else:
            line.append((f"  before the first of {len(session):,} ops", "bold"))
        right: Line = [(note or self._state, "mark"), ("  ", ""), self._verdict]
        gap = width - length(line) - length(right)
        if gap < 2 and note:
            line[:2] = [(f" {note}", "mark")]
        self.put([*line, (" " * max(gap, 2), ""), *right])


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
            self.put([(" s steps to the first op, : takes commands, ? helps", "dim")])
            return
        nodes, level = session.trace.nodes, FOCUS_LEVELS[session.level]
        engine = nodes.engine[component]
        numbers = [int(column[component]) for column in (nodes.sip, nodes.cube, nodes.pe)]
        levels = zip(("sip", "cube", "pe"), numbers, strict=True)
        places = [(name, f"{name}{n}") for name, n in levels if n >= 0] + [("component", engine)]
        if level == "machine":
            places.insert(0, (level, level))
        line: Line = []
        for name, text in places:
            line.append((" > " if line else " ", "dim"))
            line.append((f"[{text}]", "active") if name == level else (text, ""))
        tile = op.params.get("tile_index")
        line.append(("" if tile is None else f" > tile {','.join(map(str, tile))}", ""))
        self.put([*line, (f"   {op.op_name}", "bold")])
