"""Files that are broken in every way, and a process that opens them under hard limits.

``python fuzz.py FOLDER FIRST COUNT [NAME]`` breaks the traces of a folder and prints a
JSON map of what became of them. ``NAME`` is one of SABOTAGE: a reader that is too
trusting is to be caught.

``python fuzz.py FOLDER FIRST COUNT values [JOBS]`` changes what the traces say, see
``mutants.py``, and asks every command of each; every tenth is shown on a screen. Each
mutant has a process of its own, forked from one that has imported everything and holds
no trace; ``JOBS`` of them at a time.
"""

import asyncio
import gc
import json
import mmap
import os
import random
import re
import resource
import select
import shutil
import signal
import struct
import sys
import tempfile
import traceback
import warnings
import zlib
from collections import Counter
from contextlib import suppress
from ctypes import CDLL
from pathlib import Path

import msgpack
import mutants
from recordings import touch

from kernbench.errors import KernbenchError, TraceFormatError
from kernbench.replay import ReplaySession
from kernbench.replay.check import check_file
from kernbench.replay.commands import listed
from kernbench.replay.parsing import arguments_of
from kernbench.replay.plain import as_data
from kernbench.replay.text import as_text
from kernbench.trace import Trace, logs, machine
from kernbench.trace.columns import LOGS
from kernbench.trace.frames import FrameFile
from kernbench.trace.schema import CODES, pack_frame, read_columns

M_ARENA_MAX = -8  # as malloc.h of the GNU C library has it
SECONDS = 20  # for one file; a sound one takes 0.02
# The memory that a file may cost: so many bytes, and so many more times its size.
FREE = 64 << 20
TIMES = 4
SESSION = 320 << 20  # of questions that execute ops

HUGE = [
    1 << 16,
    (1 << 31) - 1,
    1 << 32,
    (1 << 62) - 1,
    (1 << 63) - 1,
    1 << 63,
    (1 << 64) - 1,
]
ODD = [
    None,
    True,
    False,
    "",
    "x" * 40,
    "..",
    b"",
    b"\xff" * 9,
    [],
    {},
    [[]],
    {"a": {"b": [1]}},
]
NUMBERS = [
    -(1 << 63),
    -1,
    0,
    1,
    2,
    3,
    7,
    255,
    0.0,
    -1.5,
    1e300,
    float("nan"),
    float("inf"),
    *HUGE,
]
WORDS = [
    "f8",
    "u1",
    "i8",
    "O",
    "n",
    "hbm",
    "memory",
    "gemm",
    "math",
    "f16",
    "int4",
    "dma_read",
]
BOMB = zlib.compress(bytes(80 << 20), 9)


def frames_of(data):
    """The frames of a sound file, as lists [tag, head, body]."""
    unpacker = msgpack.Unpacker(strict_map_key=False, max_buffer_size=0)
    unpacker.feed(data)
    frames = []
    for tag, head, body in unpacker:
        del head["crc"], head["pad"]
        frames.append([tag, head, body])
    return frames


def packed(frames):
    """A file of frames, every crc right; one that msgpack cannot say is left out."""
    data = bytearray()
    for tag, head, body in frames:
        try:
            data += pack_frame(tag, head, body, len(data))
        except (ValueError, OverflowError, TypeError):
            continue
    return data


# -- what is done to bytes ---------------------------------------------------------


def starts_of(data):
    return [found.start() for found in re.finditer(b"\x93", data)] or [0]


def truncated(rng, data, _):
    at = rng.choice(
        [rng.randrange(len(data) + 1), rng.choice(starts_of(data)) + rng.randrange(9)]
    )
    return data[:at]


def flipped(rng, data, _):
    for _ in range(rng.randint(1, 6)):
        near = rng.choice(starts_of(data)) + rng.randrange(200)
        at = min(rng.choice([rng.randrange(len(data)), near]), len(data) - 1)
        data[at] = rng.choice([data[at] ^ 1 << rng.randrange(8), rng.randrange(256)])
    return data


def huge_length(rng, data, _):
    at = min(rng.choice(starts_of(data)) + rng.randrange(300), len(data) - 1)
    lead = rng.choice([0xC4, 0xC6, 0xC9, 0xD9, 0xDB, 0xDC, 0xDD, 0xDE, 0xDF])
    data[at : at + 5] = bytes([lead]) + rng.choice(HUGE).to_bytes(8, "big")[-4:]
    return data


def nested(rng, data, _):
    at = rng.choice(starts_of(data))
    depth = rng.choice([50, 600, 5000, 100_000])
    one_item = b"\xdd\x00\x00\x00\x01"
    many_items = b"\xdd\x00\x00\xff\xff"
    deep = rng.choice([b"\x91", b"\x81\xa1x", one_item, many_items])
    rest = rng.choice([b"", data[at:]])
    return data[:at] + b"\x93\xa3ops\x81\xa1x" + deep * depth + rest


def shuffled(rng, data, other):
    a, b = sorted(rng.randrange(len(data) + 1) for _ in range(2))
    piece = rng.choice([data[a:b], other[a:b]])
    at = rng.randrange(len(data) + 1)
    return rng.choice(
        [data[:at] + piece + data[at:], data[:a] + data[b:], data[:a] + other[b:]]
    )


# -- what is done to frames, their crcs right --------------------------------------


def spliced(rng, frames, others):
    at = rng.randrange(1, len(frames))
    return rng.choice(
        [
            [*frames[:at], rng.choice(others), *frames[at:]],
            [*frames[:at], rng.choice(frames), *frames[at:]],
            [*frames[:at], *frames[at + 1 :]],
            [frames[0], *rng.sample(frames[1:], len(frames) - 1)],
            [*frames[:at], *others[rng.randrange(len(others)) :]],
        ]
    )


def value(rng, old):
    if isinstance(old, int) and rng.random() < 0.4:
        return old + rng.choice([-1, 1, -8, 8, rng.randrange(-99, 99)])
    return rng.choice(rng.choice([NUMBERS, ODD, WORDS, [old, [old], {"a": old}]]))


def head_changed(rng, frames, _):
    """One value somewhere in the head of one frame is another, gone, or said twice."""
    at = rng.randrange(len(frames))
    tag, head, body = frames[at]
    head = json.loads(json.dumps(head, default=str))
    place = head
    keys = []
    while (
        isinstance(place, dict | list)
        and len(place)
        and (not keys or rng.random() < 0.8)
    ):
        parent = place
        keys = sorted(place) if isinstance(place, dict) else range(len(place))
        key = rng.choice(keys)
        place = parent[key]
    if keys and rng.random() < 0.2:
        del parent[key]
    elif keys:
        parent[key] = value(rng, place)
    else:
        head["x"] = value(rng, 0)
    changed = rng.choice([tag, tag, tag, rng.choice(frames)[0]])
    return [*frames[:at], [changed, head, body], *frames[at + 1 :]]


def body_changed(rng, frames, _):
    """Some numbers in the columns of a frame, or bytes of its body, are others."""
    at = rng.choice([i for i, frame in enumerate(frames) if frame[2]])
    tag, head, body = frames[at]
    inflated = "raw" in head
    raw = bytearray(zlib.decompress(body) if inflated else body)
    places = [
        (offset + number * CODES[code].itemsize, code)
        for _, code, offset, length in columns(head)
        for number in range(length)
    ]
    for _ in range(rng.randint(1, 3)):
        where, code = rng.choice(places or [(rng.randrange(len(raw) + 1), "u1")])
        numbers = NUMBERS
        if code != "f8":
            numbers = [number for number in NUMBERS if isinstance(number, int)]
        number = rng.choice(numbers)
        size = CODES[code].itemsize
        if code == "f8":
            wild = struct.pack("<d", float(number))
        else:
            wild = (number % (1 << 8 * size)).to_bytes(size, "little")
        raw[where : where + size] = wild
    if rng.random() < 0.1:
        raw = raw[: rng.randrange(len(raw) + 1)]
    new = zlib.compress(bytes(raw)) if inflated else bytes(raw)
    return [*frames[:at], [tag, head, new], *frames[at + 1 :]]


def columns(head):
    logs = (head, *(log for log in head.values() if isinstance(log, dict)))
    return [column for log in logs for column in log.get("columns", ())]


def bombed(rng, frames, _):
    """A deflated body of far more than its size, as its head claims, or does not."""
    at = rng.choice([i for i, (_, head, _) in enumerate(frames) if "raw" in head])
    tag, head, _ = frames[at]
    claim = rng.choice([80 << 20, head["raw"], 1 << 40, (80 << 20) - 1])
    bomb = [tag, head | {"raw": claim}, BOMB]
    return [*frames[:at], *[bomb] * rng.choice([1, 3]), *frames[at + 1 :]]


def heavy(rng, frames, _):
    """Many frames of heads that are small on disk and large in memory."""
    times, items = rng.choice([(1, 600)] * 9 + [(20, 60_000)])
    head = {"n": 0, "results": {"x": [rng.choice([{}, [], "", 300, None])] * items}}
    frame = [rng.choice(["verify", "end", "ops", "topology", "future"]), head, b""]
    return [*frames, *[frame] * times]


BYTES = (truncated, flipped, huge_length, nested, shuffled)
# In the order in which they are done.
FRAMES = (*[body_changed] * 4, bombed, spliced, *[head_changed] * 5, heavy)


def broken(rng, files):
    """A file that is broken in one to three ways: their names, and its bytes."""
    data, other = rng.sample(files, 2)
    ways = sorted(rng.choices(FRAMES, k=rng.randint(0, 3)), key=FRAMES.index)
    frames, others = frames_of(data), frames_of(other)
    for way in ways:
        frames = way(rng, frames, others)
    done = packed(frames) if ways else bytearray(data)
    if not ways or rng.random() < 0.2:
        ways = [*ways, rng.choice(BYTES)]
        done = ways[-1](rng, done, other)
    return [way.__name__ for way in ways], bytes(done)


# -- what is done with the files ---------------------------------------------------

QUESTIONS = [
    command.name
    for command in listed()
    if not any(argument.required for argument in arguments_of(command.args))
]


def limit(extra):
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    resource.setrlimit(resource.RLIMIT_AS, (pages * mmap.PAGESIZE + extra, hard))


def ask(rng, trace):
    """Ask some commands somewhere in the trace; KernbenchErrors are answers."""
    session = ReplaySession(trace)
    session.goto(rng.randrange(-1, len(session)))
    for name in rng.sample(QUESTIONS, 3):
        try:
            answer = session.run_line(name)
        except KernbenchError:
            continue
        as_text(answer), json.dumps(as_data(answer))


def try_file(rng, path, size):
    """What became of a file: "opened", "damaged" or "refused"; else it raises."""
    limit(FREE + TIMES * size)
    try:
        trace = touch(Trace.open(path))
        check_file(path)
    except TraceFormatError:
        return "refused"
    limit(SESSION)
    with suppress(TraceFormatError):
        ask(rng, Trace.open(path))
    return "damaged" if trace.damaged else "opened"


# -- what is done with values that are changed -------------------------------------

SCREEN = 10  # each so many mutants are shown on a screen as well
KEYS = 40


def places_in(rng, trace):
    """Places that this trace has, as far as it can say."""
    found = ["hbm 0x0:64"]
    try:
        shards = trace.allocs
    except KernbenchError:
        return found
    for shard in rng.sample(shards, min(2, len(shards))):
        zeros = ",".join("0" * len(shard.shape))
        found += [f"{shard.tensor}[{zeros}]", f"{shard.space} {shard.addr:#x}:8"]
    return found


def lines_for(rng, trace, sound, out):
    """A line of every command, with arguments of the kind that it takes."""
    place = rng.choice(places_in(rng, trace))
    ops = len(trace.ops)
    lines = {
        "goto": [f"{rng.randrange(ops + 1)}", "end"],
        "t": ["300"],
        "to-line": ["15"],
        "mark": ["here"],
        "find": ["dur >= 1ns and bytes > 16"],
        "rfind": ["comp ~ '*.pe_*'"],
        "break": ["kind = gemm or addr = 0"],
        "watch": [f"{place} w"],
        "catch": ["hazards", "checks"],
        "delete": ["1"],
        "assert": ["none dur > 1ms", "ok verify"],
        "ops": ["", "3 where wait > 1ns or space = hbm"],
        "memory": ["", rng.choice(places_in(rng, trace)).partition("[")[0]],
        "stalls": ["", "all"],
        "tiles": ["", "0 900"],
        "timeline": ["", "0 900"],
        "route": ["", "launch", "launch 0", "credit", "credit 0"],
        "activity": ["", "0 900 components *.r*"],
        "history": [place],
        "blame": [place],
        "who-wrote": [place],
        "who-reads": [place],
        "compare": [str(sound), str(trace.path)],
        "cut": [f"{out}.msgpack from 10 to 900"],
        "export": [f"perfetto {out}.json", f"csv {out}.csv"],
    }
    for command in listed():
        for words in lines.get(command.name, [""]):
            yield f"{command.name} {words}".strip()


def where_from(error):
    """The innermost line of ours that an error came through."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [f for f in frames if "/kernbench/" in f.filename or "/tui/" in f.filename]
    last = ours[-1] if ours else frames[-1]
    name = Path(last.filename)
    return f"{name.parent.name}/{name.name}:{last.lineno} {last.name}"


def said(what, error):
    """A failure as text: during what, which error, where from."""
    return f"{what}: {type(error).__name__} at {where_from(error)}: {error!s:.150}"


def asked_all(rng, trace, sound, out):
    """Ask every command; what none of them may raise, as text."""
    failures = []
    session = ReplaySession(trace)
    for line in lines_for(rng, trace, sound, out):
        signal.alarm(SECONDS)
        try:
            if line.split()[0] in ("info", "step", "next", "op"):
                session.goto(rng.randrange(-1, len(session)))
            answer = session.run_line(line)
            as_text(answer), json.dumps(as_data(answer))
        except KernbenchError:
            continue
        except Exception as error:
            failures.append(said(line.split()[0], error))
    return failures


async def drive(rng, session):
    """Show a session on a screen, and press keys.

    Raises what ended a task of the screen, too: nobody waits for what is drawn ahead.
    """
    from pilots import fast_keys

    from tui.actions import ACTIONS
    from tui.app import KernbenchApp

    keys = [key for action in ACTIONS for key in action.keys if key != "q"]
    keys = [key for key in keys if key not in ("ctrl+q", "ctrl+c", "ctrl+z", "R")]
    ended = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda loop, context: ended.append(context))
    app = KernbenchApp(session, "mutant")
    size = rng.choice([(80, 24), (120, 40), (40, 12)])
    async with app.run_test(size=size) as pilot:
        with fast_keys(app):
            await pilot.pause()
            for _ in range(KEYS):
                await pilot.press(rng.choice(keys))
            await pilot.pause(0.05)
    gc.collect()  # a task that nobody waits for says how it ended when it is dropped
    for context in ended:
        raise context.get("exception") or RuntimeError(context["message"])


def shown(rng, path):
    """Open a trace as the program does, on a screen; what is raised, as text."""
    from tui.__main__ import open_session

    signal.alarm(2 * SECONDS)
    try:
        asyncio.run(drive(rng, open_session(path, None)))
    except KernbenchError:
        return []
    except Exception as error:
        return [said("screen", error)]
    return []


def try_values(rng, path, size, sound, out, screen, free=FREE):
    """What became of a mutant, and what it made anything raise."""
    limit(free + TIMES * size)
    signal.alarm(SECONDS)
    try:
        trace = Trace.open(path)
    except TraceFormatError:
        return "refused", []
    failures = asked_all(rng, trace, sound, out)
    try:
        touch(Trace.open(path))
    except TraceFormatError:
        pass
    except Exception as error:
        failures.append(said("touch", error))
    limit(SESSION)  # each thread of the screen reserves 8 MiB for its stack
    if screen:
        failures += shown(rng, path)
    if failures:
        return "failed", failures
    return "damaged" if trace.damaged else "opened", failures


class Apart:
    """``work()`` in a process of its own, which is forked here and at once.

    A mutant may end its process (SIGSEGV, SIGBUS), and what one leaves behind in memory
    is nobody else's. ``fileno`` is of the pipe through which its result comes, for
    ``select``.
    """

    def __init__(self, work):
        reader, writer = os.pipe()
        self._child = os.fork()
        if not self._child:
            os.close(reader)
            try:
                with os.fdopen(writer, "w") as pipe:
                    json.dump(work(), pipe)
            finally:
                os._exit(0)
        os.close(writer)
        self._reader = os.fdopen(reader)

    def fileno(self):
        return self._reader.fileno()

    def result(self):
        """What it gave, waited for; how it ended if it ended badly."""
        with self._reader as pipe:
            found = pipe.read()
        _, status = os.waitpid(self._child, 0)
        if not found:
            return "failed", [f"process: Ended at status:{status} it: no word"]
        return json.loads(found)


class Mutants:
    """The mutants of some sound files, by number; ``work`` is a folder for them.

    Mutant ``number`` is the same in every run: its random numbers begin there.
    """

    def __init__(self, sounds, work):
        self.sounds = sounds
        self.work = work
        self.framed = [frames_of(path.read_bytes()) for path in sounds]

    def start(self, number):
        """Begin to try a mutant: how it was changed, and its process."""
        rng = random.Random(number)
        mine, other = rng.sample(range(len(self.sounds)), 2)
        ways, frames = mutants.mutated(rng, self.framed[mine], self.framed[other])
        data = bytes(packed(frames))
        screen = number % SCREEN == 0
        return ways, self.tried(number, data, self.sounds[mine], rng, screen)

    def tried(self, number, data, sound, rng, screen):
        """The process that tries a file of these bytes."""
        path = self.work / f"{number}.mutant"
        path.write_bytes(data)
        out = self.work / f"{number}.out"
        return Apart(lambda: try_values(rng, path, len(data), sound, out, screen))

    def tidy(self, number):
        """Remove what a mutant left behind."""
        for made in self.work.glob(f"{number}.*"):
            shutil.rmtree(made) if made.is_dir() else made.unlink()


def warmed(tried):
    """Import all that any mutant may need, and be asked about the sound files.

    In this process, so that what is imported or made on first use is there for all.
    What is alive by then is never looked at again by the collector of a child: to look
    is to write, and what is written is copied.
    """
    sys.path.append(str(Path(__file__).parents[1] / "tui"))
    for number, path in enumerate(tried.sounds):
        size = path.stat().st_size
        out = tried.work / f"{number}.out"
        rng = random.Random(0)
        # What is imported is compiled, where nobody has done that before.
        became, found = try_values(rng, path, size, path, out, True, SESSION)
        assert became == "opened", found
        signal.alarm(0)
        limit(1 << 34)
        tried.tidy(number)
    gc.collect()
    gc.freeze()


def try_mutants(folder, first, count, jobs):
    """Change values of the files, and ask everything."""
    warnings.simplefilter("error")
    seen = Counter()
    failures = []
    sounds = sorted(folder.glob("*.msgpack"))
    with tempfile.TemporaryDirectory(dir=folder) as work:
        tried = Mutants(sounds, Path(work))
        warmed(tried)
        for number, sound in enumerate(sounds):
            data = sound.read_bytes()
            child = tried.tried(number, data, sound, random.Random(0), True)
            became, found = child.result()
            assert became == "opened", found
            tried.tidy(number)
        running = {}
        left = iter(range(first, first + count))
        while True:
            for number in left:
                ways, child = tried.start(number)
                running[child] = number, ways
                if len(running) == jobs:
                    break
            if not running:
                return seen, failures
            for child in select.select([*running], [], [])[0]:
                number, ways = running.pop(child)
                became, found = child.result()
                tried.tidy(number)
                seen.update([became, *ways])
                failures += [f"file {number}, {ways}: {failure}" for failure in found]


def overrun(*_):
    raise TimeoutError(f"took over {SECONDS} s")


def main(folder, first, count, how="", jobs=1):
    signal.signal(signal.SIGALRM, overrun)
    # Else each thread reserves 64 MiB of addresses, which count and are no memory.
    CDLL(None).mallopt(M_ARENA_MAX, 1)
    folder = Path(folder)
    if how == "values":
        seen, failures = try_mutants(folder, int(first), int(count), int(jobs))
    else:
        files = [path.read_bytes() for path in sorted(folder.glob("*.msgpack"))]
        SABOTAGE.get(how, int)()
        seen, failures = try_broken(folder, files, int(first), int(count))
    print(json.dumps({"seen": seen, "failures": failures}))


def try_broken(folder, files, first, count):
    """Break the files, and open them."""
    path = folder / f"{first}.broken"
    seen = Counter()
    failures = []
    for data in files:  # what is made on first use is not the file's
        path.write_bytes(data)
        seen[try_file(random.Random(0), path, 1 << 30)] += 1
    assert seen == {"opened": len(files)}, seen
    for number in range(first, first + count):
        rng = random.Random(number)
        ways, data = broken(rng, files)
        path.write_bytes(data)
        signal.alarm(SECONDS)
        try:
            became = try_file(rng, path, len(data))
        except Exception:
            limit(1 << 34)
            failures.append(f"file {number}, {ways}: {traceback.format_exc()}")
            became = "failed"
        finally:
            signal.alarm(0)
        seen[became] += 1
        for way in ways:
            seen[way] += 1
    return seen, failures


def believe_sizes():
    FrameFile.inflate = lambda file, frame, more=0: zlib.decompress(file.body(frame))


def believe_numbers():
    tables = {column.table for log in LOGS.values() for column in log.values()}
    endless = dict.fromkeys(tables, range(1 << 40))

    def trusting(tag, head, body, tables):
        return read_columns(tag, head, body, endless)

    logs.read_columns = trusting
    machine.read_columns = trusting


SABOTAGE = {"sizes": believe_sizes, "numbers": believe_numbers}

if __name__ == "__main__":
    main(*sys.argv[1:])
