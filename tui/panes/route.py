"""Pane 5, in the making."""
from __future__ import annotations
from typing import Any
from tui.panes.base import BasePane, Change, Picture
class RoutePane(BasePane[Any]):
    """Stub."""
    def __init__(self, index: Any) -> None:
        self.index = index
    def start(self) -> Any:
        return ()
    def update(self, state: Any, event: Any, frame: Any, answers: Any) -> Any:
        return None
    def render(self, state: Any, frame: Any, answers: Any) -> Picture:
        return Picture(())
