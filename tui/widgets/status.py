"""The two lines on top: what is open and where the cursor is; and the place of its op."""

from __future__ import annotations

from rich.segment import Segment
from textual.strip import Strip
from textual.widget import Widget

from kernbench.replay import ReplaySession
from kernbench.replay.session import FOCUS_LEVELS
from kernbench.replay.text import time_text
from tui.widgets.draw import STYLES, Line, length, strip

_VERDICTS = {None: ("verify not run", "dim"), True: ("verify ok", "ok"), False: ("verify FAILED", "bad")}


class LineWidget(Widget):
    """One line of runs; refreshes only if it changed."""

    DEFAULT_CSS = "LineWidget { height: 1; }"
    ALLOW_SELECT = False

    def __init__(self, id: str) -> None:
        super().__init__(id=id)
        self.line: Line = []

    def show(self, line: Line) -> None:
        """Put ``line`` on screen."""
        if line != self.line:
            self.line = line
            self.refresh()

    def render_line(self, y: int) -> Strip:
        """The line, cut or filled up."""
        return strip(self.line, self.size.width) if y == 0 else Strip([Segment("", STYLES[""])])


class Status(LineWidget):
    """``kernbench FILE  op 12/153  t=5.43us  3 in flight  verify ok``."""

    def __init__(self, session: ReplaySession, name: str) -> None:
        super().__init__("status")
        self._session, self._file = session, name
        info = session.info()
        self._verdict = _VERDICTS[info.verified]
        self._state = "" if info.complete else "cut off"
        self._state = f"{info.damaged} damaged frames" if info.damaged else self._state

    def update(self, width: int, note: str = "") -> None:
        """Tell where the cursor is; ``note`` is about the layout."""
        session = self._session
        left: Line = [("kernbench ", "bold"), (self._file, "")]
        left.append((f"  op {session.cursor:,}/{len(session) - 1:,}", "bold"))
        left.append((f"  t={time_text(session.time)}" if session.cursor >= 0 else "  before the first op", ""))
        left.append((f"  {len(session.in_flight())} in flight" if session.cursor >= 0 else "", "flight"))
        right: Line = [(note or self._state, "wait"), ("  ", ""), self._verdict]
        gap = width - length(left) - length(right)
        self.show([*left, (" " * max(gap, 2), ""), *right])


class Crumbs(LineWidget):
    """``sip0 > cube0 > pe3 > [pe_gemm] > tile 0,1,0``; the focus of n and N in brackets."""

    def __init__(self, session: ReplaySession) -> None:
        super().__init__("crumbs")
        self._session = session

    def update(self) -> None:
        """Tell the place of the cursor's op."""
        session = self._session
        op, component = session.op, session.component
        if op is None or component is None:
            self.show([(" s steps to the first op, : takes commands, ? helps", "dim")])
            return
        trace, level = session.trace, FOCUS_LEVELS[session.level]
        nodes = trace.nodes
        places = [("machine", "machine")] if level == "machine" else []
        for name, column in (("sip", nodes.sip), ("cube", nodes.cube), ("pe", nodes.pe)):
            if column[component] >= 0:
                places.append((name, f"{name}{int(column[component])}"))
        places.append(("component", trace.strings[int(nodes.engine[component])]))
        line: Line = [(" ", "")]
        for i, (name, text) in enumerate(places):
            line.append((" > " if i else "", "dim"))
            line.append((f"[{text}]", "active") if name == level else (text, ""))
        tile = op.params.get("tile_index")
        line.append((f" > tile {','.join(map(str, tile))}" if tile is not None else "", ""))
        line.append((f"  {op.op_name}", "bold"))
        self.show(line)
