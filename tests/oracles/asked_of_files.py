"""Asks the debugger for files: other traces beside this one, parts, other formats."""

import csv
import json
from collections import Counter
from fnmatch import fnmatchcase
from itertools import pairwise
from math import prod

import msgpack
import plain_frames
import plain_time
from asked_of_time import near

CLASSES = {
    "gemm": "G",
    "math": "M",
    "dma read": "R",
    "dma write": "W",
    "fetch": "F",
    "store": "S",
    "host transfer": "H",
    "composite": "C",
    "other": "?",
}


def figures(recording):
    """The totals that ``compare`` shows of one trace, by their names."""
    found = {"end, ns": recording.end["end_ns"], "ops": len(recording.ops)}
    found["launches, ns"] = launched_ns(recording)
    for name, letter in CLASSES.items():
        mine = [op for op in recording.ops if plain_time.letter(op) == letter]
        found[f"busy {name}, ns"] = sum(op.t_end - op.t_start for op in mine)
    return found


def launched_ns(recording):
    """For how long launches ran: each piece between two of their times once."""
    spans = [(row["t_start"], row["t_end"]) for row in recording.launches]
    times = sorted({time for span in spans for time in span})
    pieces = [
        high - low
        for low, high in pairwise(times)
        if any(start <= low and high <= end for start, end in spans)
    ]
    return sum(pieces)


def check_compare(case):
    """``compare`` of a trace with itself: nothing differs, and the totals are right."""
    answer = case.ask(f"compare {case.path}", -1)
    case.equal("compare", answer.ok, True, "verdict")
    case.equal("compare", answer.changes, (), "changes")
    counts = {kind: count for kind, count in answer.counts.items() if count}
    case.equal("compare", counts, {"matched": len(case.recording.ops)}, "counts")
    case.equal("compare", answer.tensors, (), "tensors")
    known = figures(case.recording)
    for row in answer.totals:
        case.equal("compare", row.a, row.b, f"both sides of {row.what}")
        if row.what in known:
            case.equal("compare", near(row.a, known[row.what]), True, row.what)
    for row in answer.kernel_lines:
        case.equal("compare", row.a, row.b, f"both sides of {row.what}")


def check_check(case):
    """``check``: frames, bytes and rows by tag of a file that is whole."""
    answer = case.ask("check", -1)
    case.equal("check", (answer.ok, answer.complete), (True, True), "verdict")
    case.equal("check", answer.bytes, case.path.stat().st_size, "bytes")
    with case.path.open("rb") as file:
        frames = list(msgpack.Unpacker(file, max_buffer_size=0))
    count = Counter(tag for tag, _, _ in frames)
    nbytes = Counter()
    rows = Counter()
    for tag, head, body in frames:
        nbytes[tag] += len(body)
        rows[tag] += head.get("n", 0)
    for found in answer.tags:
        told = (found.frames, found.bytes)
        wanted = (count[found.tag], nbytes[found.tag])
        case.equal("check", told, wanted, f"frames of {found.tag}")
        if found.rows is not None:
            case.equal("check", found.rows, rows[found.tag], f"rows of {found.tag}")
    case.equal("check", {row.tag for row in answer.tags}, set(count), "tags")


def cut_out(case, number, components="*"):
    """A random part of the trace: its window, and the file that ``cut`` wrote.

    One of the components has an op in it.
    """
    ops = [op for op in case.recording.ops if fnmatchcase(op.component, components)]
    t0 = round(case.rng.choice(ops).t_start, 3)
    t1 = round(t0 + case.rng.uniform(10, 500), 3)
    if not any(t0 <= op.t_start < t1 for op in ops):
        t1 = t0 + 1000
    out = case.path.with_name(f"{case.path.stem}_cut{number}.msgpack")
    case.ask(f"cut {out} from {t0}ns to {t1}ns components {components}", -1)
    return t0, t1, out


def _places_of(recording, op):
    """Where an op was, since and until when: where it ran, and where it waited."""
    yield op.component, op.t_start, op.t_end
    for wait in recording.of_row("waits", op.row):
        yield recording.strings[wait["node"]], wait["t0"], wait["t1"]


def check_cut(case):
    """``cut``: the ops that run or wait in the window, with all that is theirs."""
    engine = case.rng.choice(case.recording.ops).component.rpartition(".")[2]
    for number, components in enumerate(("*", f"*.{engine}")):
        t0, t1, out = cut_out(case, number, components)
        part = plain_frames.read(out)
        what = f"from {t0} to {t1} of {components}"
        kept = [
            op
            for op in case.recording.ops
            if any(
                since < t1
                and (until > t0 or since >= t0)
                and fnmatchcase(component, components)
                for component, since, until in _places_of(case.recording, op)
            )
        ]
        found = [(op.name, op.t_start, op.t_end, op.component) for op in part.ops]
        wanted = [(op.name, op.t_start, op.t_end, op.component) for op in kept]
        case.equal("cut", found, wanted, f"ops {what}")
        for log in ("transfers", "waits"):
            of_part = sum(len(part.of_row(log, op.row)) for op in part.ops)
            of_whole = sum(len(case.recording.of_row(log, op.row)) for op in kept)
            case.equal("cut", of_part, of_whole, f"{log} {what}")
        calls = {call["cmd"] for call in part.calls}
        case.equal("cut", {op.cmd for op in kept} <= calls, True, f"calls {what}")


def check_cut_links(case):
    """The links of a cut carry in its window what those of the whole trace do."""
    for number in range(4):
        t0, t1, out = cut_out(case, f"_links{number}")
        links = case.opened(out).run_line(f"links {t0} {t1}").links
        found = {(link.src, link.dst): round(link.nbytes, 4) for link in links}
        wanted = {}
        loads = plain_time.link_loads(case.recording, t0, t1)
        for edge, (nbytes, _, _) in loads.items():
            row = case.recording.edges[edge]
            ends = [case.recording.strings[row[end]] for end in ("src", "dst")]
            wanted[tuple(ends)] = round(nbytes, 4)
        case.equal("cut LINKS", found, wanted, f"from {t0} to {t1}")


def check_export(case):
    """``export``: the ops as tables, and the slices of a Perfetto trace."""
    ops = case.recording.ops
    folder = case.path.with_name(f"{case.path.stem}_csv")
    case.ask(f"export csv {folder}", -1)
    with (folder / "ops.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    found = []
    wanted = []
    for row in rows:
        times = (float(row["t_start"]), float(row["t_end"]))
        found.append((int(row["op"]), *times, row["name"], row["component"]))
    for op in ops:
        times = (op.t_start, op.t_end)
        wanted.append((op.position, *times, op.name, op.component))
    case.equal("export", found, wanted, "ops.csv")
    with (folder / "waits.csv").open(newline="") as file:
        count = len(list(csv.DictReader(file)))
    case.equal("export", count, len(case.recording.waits), "waits.csv")
    count = 0
    with (folder / "accesses.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            planes = [int(plane.split("x")[0]) for plane in row["planes"].split()]
            count += int(row["rows"]) * prod(planes)
    wanted = sum(len(case.accesses(op)) for op in ops)
    case.equal("export", count, wanted, "accesses.csv")
    out = case.path.with_name(f"{case.path.stem}.json")
    case.ask(f"export perfetto {out}", -1)
    events = json.loads(out.read_text())["traceEvents"]
    slices = {}
    last_begun = {}
    for event in events:
        track = (event["pid"], event["tid"])
        if event["ph"] == "E":
            last_begun[track]["until"] = event["ts"]
        elif event["ph"] == "B":
            last_begun[track] = event
            if event["cat"] not in ("call", "wait"):
                slices[event["args"]["op"]] = event
    case.equal("export", sorted(slices), list(range(len(ops))), "slices")
    for op in ops:
        event = slices.get(op.position)
        if event is not None:
            args = event["args"]
            ends = (args["start_ps"], args["end_ps"])
            shown_ns = (round(event["ts"] * 1e3), round(event["until"] * 1e3))
            exact = (round(op.t_start * 1e3), round(op.t_end * 1e3))
            whole_ns = (exact[0] // 1000, exact[1] // 1000)
            fits = (event["name"], ends, shown_ns)
            wanted = (op.name, exact, whole_ns)
            case.equal("export", fits, wanted, f"slice {op.position}")


CHECKS = (check_compare, check_check, check_cut, check_cut_links, check_export)
