"""A headless Chromium, driven by its DevTools protocol, and what its page was sent."""

from __future__ import annotations

import asyncio
import base64
import json
import re
import shutil
import struct
import zlib
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pyte

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
LIMIT_S = 60.0  # for anything that is waited for
_OPTIONS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--remote-debugging-port=0",
    "--window-size=1280,800",
    "about:blank",
]

Pixel = tuple[int, int, int]


class Page:
    """One page. ``screen`` is what pyte makes of all that its web socket was sent."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.screen = pyte.Screen(300, 100)
        self._stream = pyte.ByteStream(self.screen)
        self._socket = socket
        self._calls = 0

    async def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Call a method of the protocol, and return its result."""
        self._calls += 1
        call = {"id": self._calls, "method": method, "params": parameters}
        await self._socket.send_json(call)
        while True:
            message = await self._next()
            if message.get("id") == call["id"]:
                assert "error" not in message, message
                return message["result"]

    async def _next(self) -> dict[str, Any]:
        """The next message of the browser; what the page was sent is kept."""
        message = json.loads(await self._socket.receive_str(timeout=LIMIT_S))
        if message.get("method") == "Network.webSocketFrameReceived":
            frame = message["params"]["response"]
            if frame["opcode"] == 2:  # binary
                self._stream.feed(base64.b64decode(frame["payloadData"]))
        return message

    async def until(self, is_so: Callable[[], bool]) -> None:
        """Wait for what the page is sent, until something is so of it."""
        async with asyncio.timeout(LIMIT_S):
            while not is_so():
                await self._next()

    async def until_true(self, expression: str) -> None:
        """Wait until an expression of JavaScript is true in the page."""
        async with asyncio.timeout(LIMIT_S):
            while not await self.value(expression):
                await asyncio.sleep(0.05)

    async def value(self, expression: str) -> Any:
        """The value of an expression of JavaScript, or of what it promises."""
        result = await self.call(
            "Runtime.evaluate", expression=expression, awaitPromise=True
        )
        return result["result"].get("value")

    async def press(self, key: str) -> None:
        """Press a key that types a character."""
        await self.call("Input.dispatchKeyEvent", type="keyDown", text=key, key=key)
        await self.call("Input.dispatchKeyEvent", type="keyUp", key=key)

    @property
    def text(self) -> str:
        """The screen as lines."""
        return "\n".join(line.rstrip() for line in self.screen.display)

    async def screenshot(self) -> bytes:
        """The page as a PNG."""
        result = await self.call("Page.captureScreenshot")
        return base64.b64decode(result["data"])


@asynccontextmanager
async def opened_page(url: str, profile: Path) -> AsyncIterator[Page]:
    """A page of a Chromium that has an empty folder for all that it keeps."""
    browser = await asyncio.create_subprocess_exec(
        str(CHROMIUM),
        f"--user-data-dir={profile}",
        *_OPTIONS,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        assert browser.stderr is not None
        port = ""
        while not port:
            line = await asyncio.wait_for(browser.stderr.readline(), LIMIT_S)
            assert line, "the browser has ended"
            found = re.search(rb"ws://127\.0\.0\.1:(\d+)/", line)
            port = found[1].decode() if found else ""
        async with aiohttp.ClientSession() as session:
            async with session.get(f"http://127.0.0.1:{port}/json") as answer:
                targets = await answer.json()
            address = next(t for t in targets if t["type"] == "page")
            endpoint = address["webSocketDebuggerUrl"]
            async with session.ws_connect(endpoint, max_msg_size=0) as socket:
                page = Page(socket)
                await page.call("Network.enable")
                await page.call("Page.navigate", url=url)
                yield page
    finally:
        browser.terminate()
        await browser.wait()


def pixels_of(png: bytes) -> Counter[Pixel]:
    """How often each colour is in a PNG of 8 bits a channel, RGB or RGBA."""
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    width, height, depth, kind = struct.unpack_from(">IIBB", png, 16)
    assert depth == 8
    channels = {2: 3, 6: 4}[kind]
    packed = b""
    at = 8
    while at < len(png):
        (size,) = struct.unpack_from(">I", png, at)
        if png[at + 4 : at + 8] == b"IDAT":
            packed += png[at + 8 : at + 8 + size]
        at += size + 12
    data = zlib.decompress(packed)
    row_bytes = width * channels
    above = bytearray(row_bytes)
    colours: Counter[Pixel] = Counter()
    for y in range(height):
        start = y * (row_bytes + 1)
        row = bytearray(data[start + 1 : start + 1 + row_bytes])
        _unfilter(data[start], row, above, channels)
        red, green, blue = (row[i::channels] for i in range(3))
        colours.update(zip(red, green, blue, strict=True))
        above = row
    return colours


def _unfilter(kind: int, row: bytearray, above: bytearray, step: int) -> None:
    """Undo in place what a row was filtered with (PNG specification, 9.2)."""
    for i in range(len(row)):
        left = row[i - step] if i >= step else 0
        corner = above[i - step] if i >= step else 0
        match kind:
            case 1:
                row[i] = (row[i] + left) & 255
            case 2:
                row[i] = (row[i] + above[i]) & 255
            case 3:
                row[i] = (row[i] + (left + above[i]) // 2) & 255
            case 4:
                row[i] = (row[i] + _paeth(left, above[i], corner)) & 255


def _paeth(left: int, above: int, corner: int) -> int:
    """The one of three neighbours that is nearest to left + above - corner."""
    target = left + above - corner
    return min((left, above, corner), key=lambda value: abs(target - value))
