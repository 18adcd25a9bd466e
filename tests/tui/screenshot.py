"""Makes traces/debugger.svg, the picture in the README: run it as a program."""

from __future__ import annotations

import asyncio
from pathlib import Path

from pilots import settled

from tui.__main__ import open_session
from tui.app import KernbenchApp

TRACES = Path(__file__).parents[2] / "traces"
PICTURE = TRACES / "debugger.svg"
_TRACE = "matmul.msgpack"
_OP = 75
_KEY = "3"  # Tiles


def svg() -> str:
    """The screen of 120 x 40 in the middle of a recorded matmul."""
    return asyncio.run(_drawn())


async def _drawn() -> str:
    app = KernbenchApp(open_session(TRACES / _TRACE, _OP), _TRACE)
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press(_KEY)
        await settled(pilot)
        return app.export_screenshot(
            title=f"kernbench-tui traces/{_TRACE}", simplify=True
        )


if __name__ == "__main__":
    PICTURE.write_text(svg(), encoding="utf-8")
