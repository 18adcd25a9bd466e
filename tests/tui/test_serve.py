"""``kernbench-tui --serve``: the same screen over a web socket, and in a browser."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pyte
import pytest
from browsers import CHROMIUM, LIMIT_S, opened_page, pixels_of
from terminals import PROGRAM, ROOT

from kernbench.errors import KernbenchError
from tui.serve import parse_port
from tui.themes import THEMES

ENVIRON = {**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm"}


class Server:
    """A server that runs, at a port that was free; ``lines`` are what it has said."""

    def __init__(self, process: asyncio.subprocess.Process, line: str) -> None:
        self.process = process
        self.line = line
        found = re.search(r"http://127\.0\.0\.1:(\d+)", line)
        assert found is not None
        self.port = int(found[1])
        self.url = found[0]

    def debuggers(self) -> list[int]:
        """The processes of the debuggers, one a page."""
        pid = self.process.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text()
        return [int(child) for child in children.split()]

    async def until_debuggers(self, count: int) -> None:
        async with asyncio.timeout(LIMIT_S):
            while len(self.debuggers()) != count:
                await asyncio.sleep(0.02)


@asynccontextmanager
async def served(
    *arguments: object, state: Path, stderr: int | None = None
) -> AsyncIterator[Server]:
    process = await asyncio.create_subprocess_exec(
        *PROGRAM,
        *map(str, arguments),
        "--serve=0",
        env={**ENVIRON, "XDG_STATE_HOME": str(state)},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=stderr,
    )
    try:
        assert process.stdout is not None
        line = await asyncio.wait_for(process.stdout.readline(), LIMIT_S)
        yield Server(process, line.decode())
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


class Client:
    """What a page does, without a browser: ``screen`` is what it would show."""

    def __init__(self, web_socket: aiohttp.ClientWebSocketResponse) -> None:
        self.web_socket = web_socket
        self.screen = pyte.Screen(100, 30)
        self._stream = pyte.ByteStream(self.screen)

    @property
    def text(self) -> str:
        return "\n".join(self.screen.display)

    async def next(self) -> aiohttp.WSMessage:
        message = await self.web_socket.receive(timeout=LIMIT_S)
        if message.type == aiohttp.WSMsgType.BINARY:
            self._stream.feed(message.data)
        return message

    async def until(self, text: str) -> None:
        async with asyncio.timeout(LIMIT_S):
            while text not in self.text:
                message = await self.next()
                assert message.type != aiohttp.WSMsgType.CLOSE, self.text

    async def until_closed(self) -> int:
        """Read to the end; the code with which the server has closed."""
        async with asyncio.timeout(LIMIT_S):
            while True:
                message = await self.next()
                if message.type == aiohttp.WSMsgType.CLOSE:
                    return int(message.data)


@asynccontextmanager
async def connected(server: Server) -> AsyncIterator[Client]:
    url = f"{server.url}/ws?width=100&height=30"
    async with (
        aiohttp.ClientSession() as session,
        session.ws_connect(url, autoclose=False) as web_socket,
    ):
        yield Client(web_socket)
        await web_socket.close()


# -- the web socket --------------------------------------------------------------------


@pytest.mark.slow
async def test_a_page_has_a_debugger_that_takes_keys_and_sizes(
    trace_path: Path, tmp_path: Path
) -> None:
    async with served(trace_path, "--op", 40, state=tmp_path) as server:
        async with connected(server) as client:
            await client.until("op 40/151")
            await client.web_socket.send_json(["stdin", "s"])
            await client.until("op 41/151")
            await client.web_socket.send_json(["resize", {"width": 60, "height": 20}])
            await client.web_socket.send_json(["blur"])
            await client.web_socket.send_json(["focus"])
            await client.web_socket.send_json(["stdin", "s"])
            await client.until("op 42/151")
            await client.web_socket.send_json(["ping", "7"])
            message = await client.next()
            while message.type != aiohttp.WSMsgType.TEXT:
                message = await client.next()
            assert message.json() == ["pong", "7"]
            await client.web_socket.send_json(["stdin", "q"])
            assert await client.until_closed() == 1000
        await server.until_debuggers(0)


@pytest.mark.slow
async def test_each_page_has_its_own_debugger_which_ends_with_it(
    trace_path: Path, tmp_path: Path
) -> None:
    async with served(trace_path, "--op", 40, state=tmp_path) as server:
        async with connected(server) as first:
            await first.until("op 40/151")
            async with connected(server) as second:
                await second.until("op 40/151")
                await second.web_socket.send_json(["stdin", "ss"])
                await second.until("op 42/151")
                assert len(server.debuggers()) == 2
            await server.until_debuggers(1)
            assert "op 40/151" in first.text
        await server.until_debuggers(0)


@pytest.mark.slow
async def test_a_debugger_that_is_killed_says_so_in_its_page(
    trace_path: Path, tmp_path: Path
) -> None:
    async with (
        served(trace_path, "--op", 40, state=tmp_path) as server,
        connected(server) as client,
    ):
        await client.until("op 40/151")
        (debugger,) = server.debuggers()
        os.kill(debugger, signal.SIGKILL)
        await client.until_closed()
        assert client.text.startswith("The debugger has ended.")


@pytest.mark.slow
async def test_a_message_that_is_none_closes_the_page(
    trace_path: Path, tmp_path: Path
) -> None:
    async with served(trace_path, state=tmp_path) as server:
        for message in ('["stdin", 7]', "[", "{}", '["resize", {}]'):
            async with connected(server) as client:
                await client.web_socket.send_str(message)
                assert await client.until_closed() == 1003, message
            await server.until_debuggers(0)
            assert server.process.returncode is None


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
@pytest.mark.slow
async def test_with_the_server_its_debuggers_end(
    ending: signal.Signals, trace_path: Path, tmp_path: Path
) -> None:
    async with served(trace_path, "--op", 40, state=tmp_path) as server:
        async with connected(server) as client:
            await client.until("op 40/151")
            (debugger,) = server.debuggers()
            gone = os.pidfd_open(debugger)
            server.process.send_signal(ending)
            has_gone = asyncio.Event()
            loop = asyncio.get_running_loop()
            loop.add_reader(gone, has_gone.set)
            await asyncio.wait_for(has_gone.wait(), LIMIT_S)
            loop.remove_reader(gone)
            os.close(gone)
        code = await asyncio.wait_for(server.process.wait(), LIMIT_S)
        assert code == (-ending if ending == signal.SIGKILL else 0)


# -- who may come in -------------------------------------------------------------------


WHO_COMES = [
    ({}, 200),
    ({"Host": "localhost:9000"}, 200),  # through ssh -L 9000:127.0.0.1:8000
    ({"Host": "localhost:9000", "Origin": "http://localhost:9000"}, 200),
    ({"Host": "evil.example"}, 403),  # a name that leads to 127.0.0.1
    ({"Origin": "http://evil.example"}, 403),
    ({"Origin": "null"}, 403),
    ({"Host": "localhost:9000", "Origin": "http://localhost:9001"}, 403),
]


@pytest.mark.slow
async def test_pages_of_other_sites_are_refused(
    trace_path: Path, tmp_path: Path
) -> None:
    async with (
        served(trace_path, state=tmp_path) as server,
        aiohttp.ClientSession() as session,
    ):
        for headers, status in WHO_COMES:
            async with session.get(server.url, headers=headers) as answer:
                assert answer.status == status, headers
                if status == 200:
                    host = headers.get("Host", f"127.0.0.1:{server.port}")
                    assert f'"ws://{host}/ws"' in await answer.text()
            if status == 403:
                with pytest.raises(aiohttp.WSServerHandshakeError, match="403"):
                    await session.ws_connect(f"{server.url}/ws", headers=headers)
        assert server.debuggers() == []


NO_REQUESTS = [
    b"GET / HTTP/1.1\r\n\r\n",  # without Host
    b"GET / HTTP/1.1\r\nHost: localhost:99999\r\n\r\n",
    b"GET http://x:y/ HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"\x16\x03\x01\r\n\r\n",
]


@pytest.mark.slow
async def test_what_is_no_request_is_answered_and_prints_nothing(
    trace_path: Path, tmp_path: Path
) -> None:
    pipe = asyncio.subprocess.PIPE
    async with served(trace_path, state=tmp_path, stderr=pipe) as server:
        for sent in NO_REQUESTS:
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(sent)
            answer = await asyncio.wait_for(reader.readline(), LIMIT_S)
            assert b" 400 " in answer, sent
            writer.close()
        server.process.terminate()
        _, said = await asyncio.wait_for(server.process.communicate(), LIMIT_S)
        assert said == b""


@pytest.mark.slow
async def test_it_listens_at_this_machine_only(
    trace_path: Path, tmp_path: Path
) -> None:
    async with served(trace_path, state=tmp_path) as server:
        tables = Path("/proc/net/tcp").read_text() + Path("/proc/net/tcp6").read_text()
        listening = [
            row.split()[1]
            for row in tables.splitlines()
            if len(row.split()) > 3 and row.split()[3] == "0A"
        ]
        port = f":{server.port:04X}"
        ours = [address for address in listening if address.endswith(port)]
        assert ours == [f"0100007F{port}"]


@pytest.mark.slow
async def test_the_page_asks_no_other_site_for_anything(
    trace_path: Path, tmp_path: Path
) -> None:
    async with (
        served(trace_path, state=tmp_path) as server,
        aiohttp.ClientSession() as session,
    ):
        async with session.get(server.url) as answer:
            page = await answer.text()
        for path in re.findall(r'(?:href|src|url\()="?(/[^")]+)', page):
            async with session.get(server.url + path) as answer:
                assert answer.status == 200, path
    addresses = re.findall(r"\w+://[^\"')\s]*", page)
    assert addresses == [f"ws://127.0.0.1:{server.port}/ws"]
    assert "<title>kernbench matmul.msgpack</title>" in page


# -- wrong calls -----------------------------------------------------------------------


def failed(*arguments: object, **environ: str) -> tuple[int, str]:
    """The exit code of a call that fails, and the one line that it says."""
    done = subprocess.run(
        [*PROGRAM, *map(str, arguments)],
        env={**ENVIRON, **environ},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    return done.returncode, line


@pytest.mark.slow
def test_a_port_in_use_is_an_error_of_one_line(trace_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, line = failed(trace_path, "--serve", port)
    assert code == 2
    assert line.startswith(f"error: --serve {port}: it is in use; name another")


@pytest.mark.parametrize("port", ["abc", "65536", "8000.5"])
def test_a_port_is_a_number(port: str) -> None:
    wanted = f"--serve {port}: no port; give a number up to 65535"
    with pytest.raises(KernbenchError, match=re.escape(wanted)):
        parse_port(port)


@pytest.mark.slow
def test_a_port_that_is_no_number_is_an_error_of_one_line(trace_path: Path) -> None:
    code, line = failed(trace_path, "--serve=abc")
    assert code == 2
    assert line.startswith("error: --serve abc: no port; give a number up to 65535")


@pytest.mark.parametrize("arguments", [["none", "--serve=0"], ["--serve", "none"]])
@pytest.mark.slow
def test_a_file_that_is_not_there_is_not_served(arguments, tmp_path: Path) -> None:
    code, line = failed(*arguments)
    assert code == 2
    assert line.startswith("error: none: ")
    assert "No such file" in line


@pytest.mark.slow
def test_without_textual_serve_it_says_what_to_install(
    trace_path: Path, tmp_path: Path
) -> None:
    (tmp_path / "textual_serve.py").write_text("raise ImportError('none here')\n")
    path = f"{tmp_path}:{ROOT}"
    code, line = failed(trace_path, "--serve=0", PYTHONPATH=path)
    assert code == 2
    assert "pip install 'kernbench[serve]'" in line


# -- a browser -------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here: chromium on the path")
async def test_in_chromium_it_opens_and_takes_keys(
    trace_path: Path, tmp_path: Path
) -> None:
    def rgb(colour: str) -> tuple[int, ...]:
        return tuple(bytes.fromhex(colour.removeprefix("#")))

    async with (
        served(trace_path, "--op", 40, state=tmp_path) as server,
        opened_page(server.url, tmp_path / "profile") as page,
    ):
        await page.until(lambda: "op 40/151" in page.text)
        await page.until(lambda: "[1 Timeline]" in page.text)
        await page.until_true("document.fonts.check('16px \"Roboto Mono\"')")
        before = await page.screenshot()
        await page.press("s")
        await page.until(lambda: "op 41/151" in page.text)
        await page.until_true(FRAME)
        after = await page.screenshot()
        await page.press("q")
        await page.until_true("document.body.classList.contains('-closed')")
        note = "getComputedStyle(document.getElementById('ended')).display"
        assert await page.value(note) == "block"
    shots = os.environ.get("KERNBENCH_SCREENSHOTS")
    if shots:  # to be looked at
        Path(shots, "serve-before.png").write_bytes(before)
        Path(shots, "serve-after.png").write_bytes(after)
    colours = pixels_of(before)
    total = colours.total()
    background, _ = colours.most_common(1)[0]
    assert background == rgb(THEMES["dark"].colours["paper"])
    assert total == 1280 * 800 or total > 500_000
    assert 0.01 * total < total - colours[background] < 0.6 * total
    assert len([colour for colour, n in colours.items() if n > 50]) >= 8
    assert pixels_of(after) != colours


FRAME = """
new Promise(done => requestAnimationFrame(
    () => requestAnimationFrame(() => done(true))
))
"""
"""True, once the page has drawn what it was sent."""
