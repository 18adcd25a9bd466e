"""``kernbench-tui --serve``: the debugger in a browser.

Each page that is opened has a debugger of its own, a process whose screen and keys
textual-serve passes through pipes; a web socket takes them on to the page. The debugger
ends with its page.

Whoever reaches the port can do with a trace, and write to files, what the user can. So
it is open at 127.0.0.1 alone; another machine comes there through ``ssh -L``. Pages of
other sites, which a browser would let in, are refused by their origin.
"""

from __future__ import annotations

import asyncio
import errno
import html
import logging
import shlex
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any

from kernbench.console import say
from kernbench.errors import RefusedError, UsageError

try:
    import textual_serve
    from aiohttp import WSCloseCode, WSMsgType, web
    from aiohttp.http_exceptions import HttpProcessingError
    from aiohttp.log import server_logger
    from textual_serve.app_service import AppService
    from textual_serve.download_manager import DownloadManager
except ImportError as why:
    raise RefusedError(
        f"--serve needs textual-serve ({why}): pip install 'kernbench[serve]'"
    ) from None

if TYPE_CHECKING:
    from aiohttp.typedefs import Handler

HOST = "127.0.0.1"
DEFAULT_PORT = 8000
_LARGEST_PORT = 65_535
_LOOPBACK = (HOST, "localhost", "::1")

_PROGRAM = (sys.executable, "-m", "kernbench.debugger")
_PAGE = Path(__file__).with_name("page.html")
_STATIC = Path(textual_serve.__file__).parent / "static"
_FONT_SIZE = 16  # pixels
_LARGEST_SIDE = 1000  # cells
_PATIENCE_S = 5.0  # for a debugger to end, or a page to let go
_HEARTBEAT_S = 15.0

# Back to the main screen, cleared, from its first cell on.
_BLANK = "\x1b[?1049l\x1b[2J\x1b[H"
_LOST = "The debugger has ended. The terminal in which it is served says why."


class Debugger(AppService):
    """A debugger for one page, which is told if that ends by itself."""

    def __init__(self, command: str, page: web.WebSocketResponse) -> None:
        self._page = page
        self._has_ended_in_order = False
        super().__init__(
            command,
            write_bytes=page.send_bytes,
            write_str=page.send_str,
            close=self.close_page,
            download_manager=DownloadManager(),
        )

    async def close_page(self) -> None:
        """Close the page's web socket: the page then says that the debugger ended."""
        await self._page.close()

    async def on_meta(self, data: bytes) -> None:
        """Note that the debugger ends in order; the rest is textual-serve's."""
        if b'"exit"' in data:
            self._has_ended_in_order = True
        await super().on_meta(data)

    async def run(self) -> None:
        """Pass the screen on, until the debugger ends; then close the page."""
        await super().run()
        with suppress(ConnectionError, RuntimeError):  # the page has gone
            if not self._has_ended_in_order:
                await self._page.send_bytes((_BLANK + _LOST).encode())
            await self.close_page()

    async def take(self, message: Any) -> None:
        """Pass on what a page sends: keys, its size, whether it is looked at.

        LookupError, TypeError, ValueError or AttributeError if it is none of these.
        """
        match message:
            case ["stdin", str(keys)]:
                await self.send_bytes(keys.encode())
            case ["resize", {"width": int(width), "height": int(height)}]:
                await self.set_terminal_size(_side(width), _side(height))
            case ["ping", str(token)]:
                await self._page.send_json(["pong", token])
            case ["focus"]:
                await self.focus()
            case ["blur"]:
                await self.blur()
            case _:
                raise ValueError(message)

    async def end(self) -> None:
        """Tell the debugger to end; one that does not loses its pipe, and ends then."""
        with suppress(TimeoutError, asyncio.CancelledError):
            await asyncio.wait_for(self.stop(), _PATIENCE_S)
            return
        self.stdin.close()


def parse_port(text: str) -> int:
    """Return the number of a port; UsageError for what is none."""
    if not text.isdecimal() or int(text) > _LARGEST_PORT:
        raise UsageError(
            f"--serve {text}: no port; give a number up to {_LARGEST_PORT}, as "
            f"--serve {DEFAULT_PORT}, or 0 for any that is free"
        )
    return int(text)


def serve(arguments: Sequence[str], name: str, port: int) -> None:
    """Serve ``kernbench-tui ARGUMENTS`` until Ctrl+C; ``name`` is the page's title.

    RefusedError if the port cannot be had.
    """
    listener = _listener(port)
    port = listener.getsockname()[1]
    say(f"kernbench-tui is at http://{HOST}:{port} in a browser; Ctrl+C ends it")
    sys.stdout.flush()
    server_logger.addFilter(_is_of_a_request)
    command = shlex.join([*_PROGRAM, *arguments])
    web.run_app(
        _application(f"exec {command}", name),
        sock=listener,
        print=None,
        access_log=None,
        shutdown_timeout=_PATIENCE_S,
    )


def _is_of_a_request(record: logging.LogRecord) -> bool:
    """Whether to print what aiohttp logs: not of what it has refused as no request.

    Whoever sent that was told so by the answer, 400. A traceback would look like a
    defect of ours.
    """
    error = record.exc_info[1] if record.exc_info else None
    return not isinstance(error, HttpProcessingError)


def _listener(port: int) -> socket.socket:
    """A socket that listens at the port, of this machine alone."""
    try:
        return socket.create_server((HOST, port))
    except OSError as why:
        reason = f"{why.strerror}; name another, as --serve {DEFAULT_PORT + 1}"
        if why.errno == errno.EADDRINUSE:
            reason = "it is in use; name another, or 0 for any that is free"
        raise RefusedError(f"--serve {port}: {reason}") from None


def _application(command: str, name: str) -> web.Application:
    """The pages, and the web sockets behind them."""
    open_pages: set[web.WebSocketResponse] = set()

    async def page(request: web.Request) -> web.Response:
        """A terminal that connects to ``debugger``."""
        font_size = request.query.get("fontsize", "")
        if not font_size.isdecimal():
            font_size = str(_FONT_SIZE)
        text = Template(_PAGE.read_text(encoding="utf-8")).substitute(
            name=html.escape(name),
            font_size=font_size,
            socket=html.escape(f"ws://{request.host}/ws"),
        )
        return web.Response(text=text, content_type="text/html")

    async def debugger(request: web.Request) -> web.WebSocketResponse:
        """A debugger, for as long as its page is open."""
        web_socket = web.WebSocketResponse(heartbeat=_HEARTBEAT_S)
        await web_socket.prepare(request)
        open_pages.add(web_socket)
        service = Debugger(command, web_socket)
        try:
            width = _side(int(request.query.get("width", "80")))
            height = _side(int(request.query.get("height", "24")))
            await service.start(width, height)
            async for message in web_socket:
                if message.type == WSMsgType.TEXT:
                    await service.take(message.json())
        except ValueError:
            await web_socket.close(code=WSCloseCode.UNSUPPORTED_DATA)
        finally:
            open_pages.discard(web_socket)
            await service.end()
        return web_socket

    async def close_pages(application: web.Application) -> None:
        for web_socket in [*open_pages]:
            await web_socket.close(code=WSCloseCode.GOING_AWAY)

    application = web.Application(middlewares=[_own_pages_only])
    application.add_routes(
        [
            web.get("/", page),
            web.get("/ws", debugger),
            web.static("/static", _STATIC),
        ]
    )
    application.on_shutdown.append(close_pages)
    return application


@web.middleware
async def _own_pages_only(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Refuse what a page of another site asks for.

    Its browser says in Origin where it is from. Where such a site gives its own name
    the address of this machine, Host has that name.
    """
    try:
        host = request.url.host
    except ValueError:
        raise web.HTTPBadRequest(text="there is no such host and port\n") from None
    own_origin = f"http://{request.host}"
    origin = request.headers.get("Origin", own_origin)
    if host not in _LOOPBACK or origin != own_origin:
        raise web.HTTPForbidden(text="this debugger is for its own pages only\n")
    return await handler(request)


def _side(cells: int) -> int:
    """A width or height that a screen can have."""
    return max(1, min(cells, _LARGEST_SIDE))
