"""Asks the debugger about time, and compares with intervals counted one by one."""

from collections import Counter

import numpy as np
import plain_energy
import plain_ops
import plain_order
import plain_time
from asked_of_data import check_stops, layout_of, ops_asked
from plain_time import covered, launch_window, letter

SNAPSHOT = "Phase 1 snapshot differs from the Phase 2 value"
TOGETHER = "in flight together"
UNORDERED = "not ordered; did not meet this time"
RACE = "race"
NEAR_NS = 1e-6
"""How far sums of times may be apart."""


def near(a, b, apart=NEAR_NS):
    """Whether two numbers are the same but for the order of sums."""
    return abs(a - b) <= apart + 1e-9 * max(abs(a), abs(b))


def a_window(case):
    """Some part of the launches' time, as a text and as ns; or all of it."""
    t0, t1 = launch_window(case.recording)
    if case.rng.random() < 0.4:
        return "", t0, t1
    low = round(t0 + (t1 - t0) * case.rng.uniform(0, 0.6), 3)
    high = round(low + (t1 - t0) * case.rng.uniform(0.05, 0.5), 3)
    return f" {low} {high}", low, high


def kernel_pes(case):
    """The pe_cpus that ran a kernel."""
    calls = case.recording.calls
    return sorted({call["pe"] for call in calls if call["launch"] >= 0})


def check_stalls(case):
    """``stalls``: every kind of every PE, what was waited for, and engines' shares."""
    for _ in range(2):
        window, t0, t1 = a_window(case)
        for pe in kernel_pes(case):
            name = case.recording.strings[pe].removesuffix(".pe_cpu")
            answer = case.ask(f"stalls {name}{window}", -1)
            ledger = plain_time.Ledger(case.recording, pe, t0, t1)
            what = f"{name}{window}"
            wanted = {kind: ledger.total(kind) for kind in plain_time.KINDS}
            wanted["idle"] = t1 - t0 - sum(wanted.values())
            for kind, ns in wanted.items():
                said = (kind, round(answer.total[kind], 5))
                fits = near(answer.total[kind], ns, 1e-5)
                case.equal("stalls", fits or said, True, f"{what}: {kind} {ns}")
            for kind, reasons in ledger.meanwhile.items():
                told = answer.meanwhile[kind]
                fits = told.keys() == reasons.keys() and all(
                    near(told[reason], ns, 1e-5) for reason, ns in reasons.items()
                )
                case.equal("stalls", fits or told, True, f"{what}: {kind} {reasons}")
            _check_engines(case, answer, pe, t0, t1, what)
    _check_all_pes(case)


def _check_all_pes(case):
    """``stalls`` of all PEs is the sum of theirs."""
    t0, t1 = launch_window(case.recording)
    answer = case.ask("stalls all", -1)
    ledgers = [plain_time.Ledger(case.recording, pe, t0, t1) for pe in kernel_pes(case)]
    for kind in plain_time.KINDS[:-1]:
        ns = sum(ledger.total(kind) for ledger in ledgers)
        fits = near(answer.total[kind], ns, 1e-5)
        case.equal("stalls", fits, True, f"all: {kind} {ns}")


def _check_engines(case, answer, pe, t0, t1, what):
    recording = case.recording
    spans = {}
    for op in recording.ops:
        if plain_time.place(recording, op.node) == plain_time.place(recording, pe):
            engine = op.component.rpartition(".")[2]
            spans.setdefault(engine, []).append((op.t_start, op.t_end))
    case.equal("stalls", set(answer.engines), set(spans), f"{what}: engines")
    for engine, mine in spans.items():
        share = covered(mine, t0, t1) / (t1 - t0)
        fits = near(answer.engines[engine], share)
        case.equal("stalls", fits, True, f"{what}: share of {engine}")


def check_lines(case):
    """``lines``: calls and time of every kernel line, by kind. The end of a kernel is
    no call, and what it waits for is its last line's.
    """
    t0, t1 = launch_window(case.recording)
    pe = case.rng.choice(kernel_pes(case))
    name = case.recording.strings[pe].removesuffix(".pe_cpu")
    answer = case.ask(f"lines {name}", -1)
    ledger = plain_time.Ledger(case.recording, pe, t0, t1)
    times = {}
    calls = Counter()
    for call in case.recording.calls:
        if call["cmd"] in ledger.by_call:
            site = f"{case.recording.strings[call['file']]}:{call['line']}"
            calls[site] += case.recording.strings[call["call"]] != "exit"
            mine = times.setdefault(site, Counter())
            mine.update(ledger.by_call[call["cmd"]])
    told = {row.site: row.calls for row in answer.rows}
    made = {site: n for site, n in calls.items() if n or sum(times[site].values()) > 0}
    case.equal("lines", told, made, f"calls of {name}")
    for row in answer.rows:
        mine = times.get(row.site, {})
        wanted = {kind: ns for kind, ns in mine.items() if ns > 1e-5}
        fits = all(
            near(row.kinds.get(kind, 0), ns, 1e-5) for kind, ns in wanted.items()
        )
        case.equal("lines", fits, True, f"kinds of {row.site} on {name}")
        case.equal("lines", near(row.time, sum(mine.values()), 1e-5), True, row.site)


def check_pes(case):
    """``pes``: one call on all of its PEs, and how long it lasted on each."""
    recording = case.recording
    kernels = {launch["launch"]: launch["kernel"] for launch in recording.launches}
    ends = {}
    for op in recording.ops:
        ends[op.cmd] = max(ends.get(op.cmd, 0.0), op.t_end)
    in_kernels = [call for call in recording.calls if call["launch"] in kernels]
    for call in case.rng.sample(in_kernels, min(4, len(in_kernels))):
        key = ("call", "file", "line", "function")
        alike = {}
        for other in in_kernels:
            same = all(other[name] == call[name] for name in key)
            if same and kernels[other["launch"]] == kernels[call["launch"]]:
                launches = alike.setdefault(other["pe"], {})
                launches.setdefault(other["launch"], []).append(other)
        for launches in alike.values():
            for mine in launches.values():
                mine.sort(key=lambda other: other["t_issue"])
        mine = alike[call["pe"]]
        number = sorted(mine).index(call["launch"])
        place = [other["cmd"] for other in mine[call["launch"]]].index(call["cmd"])
        wanted = {}
        for pe, launches in alike.items():
            in_order = [launches[launch] for launch in sorted(launches)]
            if number < len(in_order) and place < len(in_order[number]):
                other = in_order[number][place]
                end = max(other["t_resume"], ends.get(other["cmd"], 0.0))
                name = recording.strings[pe].removesuffix(".pe_cpu")
                wanted[name] = (other["t_issue"], end - other["t_issue"])
        answer = case.ask(f"pes {call['cmd']}", 0)
        columns = (answer.pes, answer.t_issue.tolist(), answer.duration.tolist())
        found = {name: (t, ns) for name, t, ns in zip(*columns, strict=True)}
        what = f"call {call['cmd']}"
        case.equal("pes", found, wanted, what)
        times = [ns for _, ns in wanted.values()]
        figures = (answer.minimum, answer.median, answer.maximum)
        wanted_figures = (min(times), float(np.median(times)), max(times))
        case.equal("pes", figures, wanted_figures, f"figures of {what}")


def check_links(case):
    """``links``: bytes, share and queue of every link that carried something."""
    for _ in range(2):
        window, t0, t1 = a_window(case)
        answer = case.ask(f"links{window}", -1)
        wanted = plain_time.link_loads(case.recording, t0, t1)
        found = {link.edge: link for link in answer.links}
        case.equal("links", set(found), set(wanted), f"which{window}")
        for edge in found.keys() & wanted.keys():
            link = found[edge]
            nbytes, busy, queue = wanted[edge]
            what = f"{link.src} to {link.dst}{window}"
            case.equal("links", near(link.nbytes, nbytes, 1e-5), True, f"bytes {what}")
            case.equal("links", near(link.busy, busy), True, f"share {what}")
            case.equal("links", link.queue, queue, f"queue {what}")


def check_busiest(case):
    """``busiest``: the share of time in which each component served something."""
    t0, t1 = launch_window(case.recording)
    answer = case.ask("busiest 1000", -1)
    spans = {}
    for op in case.recording.ops:
        if letter(op) != "C":
            spans.setdefault(op.component, []).append((op.t_start, op.t_end))
    wanted = {}
    for name, mine in spans.items():
        share = covered(mine, t0, t1) / (t1 - t0)
        if share > 0:
            wanted[name] = share
    found = {row.node: row.share for row in answer.components}
    case.equal("busiest", set(found), set(wanted), "components")
    for name in found.keys() & wanted.keys():
        case.equal("busiest", near(found[name], wanted[name]), True, name)
    shares = [row.share for row in answer.components]
    case.equal("busiest", shares, sorted(shares, reverse=True), "order")


def check_timeline(case):
    """``timeline``: how busy each cell is, and with which class for longest."""
    window, t0, t1 = a_window(case)
    answer = case.ask(f"timeline{window}", -1)
    rows = {row.node: row for row in answer.rows}
    served = {op.component for op in case.recording.ops}
    case.equal("timeline", set(rows), served, f"components{window}")
    edges = np.linspace(t0, t1, answer.columns + 1)
    for name, row in rows.items():
        by_class = {}
        for op in case.recording.ops:
            if op.component == name:
                low = np.maximum(edges[:-1], op.t_start)
                high = np.minimum(edges[1:], op.t_end)
                mine = by_class.setdefault(letter(op), np.zeros(answer.columns))
                mine += np.maximum(high - low, 0)
        cell = (t1 - t0) / answer.columns
        total = sum(by_class.values()) / cell
        fits = np.allclose(total, row.busy, rtol=1e-6, atol=1e-7)
        case.equal("timeline", bool(fits), True, f"busy cells of {name}{window}")
        letters = []
        for number, told in enumerate(row.classes):
            most = max(mine[number] for mine in by_class.values())
            fitting = [
                one
                for one in by_class
                if by_class[one][number] > 0 and near(by_class[one][number], most, 1e-5)
            ]
            letters.append(told in (fitting or [" "]) or most < 1e-6)
        case.equal("timeline", all(letters), True, f"classes of {name}{window}")


def check_tiles(case):
    """``tiles``: the stages and waits of every tile of a composite."""
    recording = case.recording
    composites = [op for op in recording.ops if op.name == "composite_gemm"]
    for op in case.rng.sample(composites, min(2, len(composites))):
        answer = case.ask("tiles", op.position)
        what = f"composite {op.position}"
        case.equal("tiles", answer.composite, op.position, what)
        tiles = {}
        for other in recording.ops:
            if other.cmd == op.cmd and letter(other) != "C":
                index = tuple(other.params.get("tile_index", ()))
                if index:
                    tiles.setdefault(index, []).append(other)
        found = [tuple(row.index) for row in answer.rows]
        case.equal("tiles", found, list(tiles), f"tiles of {what}")
        for row in answer.rows:
            mine = tiles.get(tuple(row.index), [])
            spans = [(s.stage, s.t0, s.t1, s.op) for s in row.spans]
            wanted = []
            waits = []
            for stage in mine:
                name = stage.name.partition("/")[2]
                wanted.append((name, stage.t_start, stage.t_end, stage.position))
                for wait in recording.of_row("waits", stage.row):
                    node = recording.strings[wait["node"]]
                    reason = case.reasons[wait["reason"]]
                    waits.append((node, reason, wait["t0"], wait["t1"]))
            case.equal("tiles", spans, wanted, f"tile {row.index} of {what}")
            told = sorted((w.node, w.reason, w.t0, w.t1) for w in row.waits)
            case.equal("tiles", told, sorted(waits), f"waits of {row.index} of {what}")


def check_route(case):
    """``route``: the transactions of an op, hop by hop."""
    recording = case.recording
    by_transfer = {}
    for hop in plain_time.hops(recording):
        if hop.is_first:
            by_transfer.setdefault(id(hop.transfer), []).append(hop.start)
    moving = sorted({transfer["row"] for transfer in recording.transfers})
    rows = [row for row in moving if row < len(recording.rows)]
    for row in case.rng.sample(rows, min(6, len(rows))):
        op = recording.rows[row]
        answer = case.ask("route", op.position)
        what = f"op {op.position}"
        wanted = []
        for transfer in recording.of_row("transfers", row):
            path = [recording.strings[n] for n in recording.paths[transfer["path"]]]
            starts = by_transfer.get(id(transfer), [])
            wanted.append(
                (transfer["t0"], transfer["nbytes"], transfer["bursts"], path, starts)
            )
        found = []
        for leg in answer.legs:
            path = [hop.node for hop in leg.hops]
            starts = [hop.leave for hop in leg.hops[:-1]]
            found.append((leg.t0, leg.nbytes, leg.bursts, path, starts))
        case.equal("route", found, wanted, what)
        took = sum(ns for _, ns in answer.parts)
        case.equal("route", near(took, op.t_end - op.t_start), True, f"sum of {what}")


def check_roofline(case):
    """``roofline``: FLOPs and bytes of HBM of every PE."""
    recording = case.recording
    answer = case.ask("roofline", -1)
    flops = Counter()
    nbytes = Counter()
    for op in recording.ops:
        node = recording.nodes[op.node]
        if node["pe"] < 0:
            continue
        pe = f"sip{node['sip']}.cube{node['cube']}.pe{node['pe']}"
        flops[pe] += _flops(op)
        if op.name in ("TileToken/DMA_READ", "TileToken/DMA_WRITE"):
            nbytes[pe] += op.nbytes
        elif op.kind == "memory":
            for _, region in plain_ops.accesses(op):
                nbytes[pe] += region.nbytes * (region.space == "hbm")
    for roof in answer.pes:
        found = (roof.flops, roof.nbytes)
        case.equal("roofline", found, (flops[roof.pe], nbytes[roof.pe]), roof.pe)
    total = (answer.total.flops, answer.total.nbytes)
    wanted = (sum(flops.values()), sum(nbytes.values()))
    case.equal("roofline", total, wanted, "all")


def _flops(op):
    """What an op computes; the tiles of a composite are in that of the composite."""
    if op.kind == "gemm":
        p = op.params
        steps = len(p.get("epilogue", []))
        return 2 * p["m"] * p["n"] * p["k"] + steps * p["m"] * p["n"]
    if op.kind == "math":
        shapes = [region.shape for region in plain_ops.reads(op)]
        shapes.append(plain_ops.write(op).shape)
        return max(int(np.prod(shape)) for shape in shapes)
    return 0


def check_fetches(case):
    """``fetches``: the bytes that DMAs read of each tensor, and those read again."""
    found = {}
    for row in case.ask("fetches", -1).tensors:
        found[row.tensor] = (row.nbytes, row.distinct, row.pes, row.launches)
    wanted = plain_energy.fetched(case.recording)
    case.equal("fetches", set(found), set(wanted), "tensors")
    for tensor, numbers in wanted.items():
        case.equal("fetches", found.get(tensor), numbers, tensor)


def check_energy(case):
    """``energy``: every class of components, and each table adds up to the whole."""
    answer = case.ask("energy", -1)
    wanted = {name: pj for name, pj in plain_energy.spent(case.recording).items() if pj}
    found = {row.name: row.joules * 1e12 for row in answer.classes}
    case.equal("energy", set(found), set(wanted), "classes")
    for name, pj in wanted.items():
        fits = near(found.get(name, 0.0), pj)
        case.equal("energy", fits or found.get(name), True, f"{name}: {pj} pJ")
    whole = sum(wanted.values())
    for table in (answer.classes, answer.lines_, answer.tensors):
        total = sum(row.joules for row in table) * 1e12
        case.equal("energy", near(total, whole) or total, True, f"all: {whole} pJ")


def check_critical(case):
    """``critical`` accounts for all of the time, and ops only while in service.

    ``bound`` knows how long the op really took.
    """
    ops = case.recording.ops
    t0, t1 = launch_window(case.recording)
    answer = case.ask("critical 1000", -1)
    times = answer.times.tolist()
    case.equal("critical", (times[0], times[-1]), (t0, t1), "from and to")
    case.equal("critical", times, sorted(times), "order")
    case.equal("critical", near(sum(answer.totals.values()), t1 - t0), True, "sum")
    served = ("gemm", "math", "dma read", "dma write", "fetch", "store")
    for step in answer.steps:
        if step.op >= 0 and step.what in served and step.times == 1:
            op = ops[step.op]
            inside = op.t_start - 21 <= step.t0 and step.t1 <= op.t_end + NEAR_NS
            case.equal("critical", inside, True, f"{step.what} of op {step.op}")
    for position in ops_asked(case, 3):
        bound = case.ask("bound", position)
        op = ops[position]
        case.equal("bound", bound.real, op.t_end - op.t_start, f"real of {position}")


def check_hazards(case):
    """``hazards``: races, every pair compared byte by byte; and all others.

    Of runs with ranks the plain order knows nothing: no race is to be told of those
    here but of what met.
    """
    answer = case.ask("hazards", -1)
    met = plain_time.conflicts(case.recording)
    wanted = {frozenset(hazard[3:]) for hazard in met}
    if not plain_order.has_ranks(case.recording):
        wanted |= {frozenset(ops) for ops in plain_order.races(case.recording)}
    counts = Counter()
    for found in answer.rows:
        if found.kind == TOGETHER:
            hazard = (found.what, found.space, layout_of(found))
            told = (*hazard, found.op.op, found.other.op)
            case.equal("hazards", told in met, True, f"{told} met")
        elif found.kind == UNORDERED:
            told = frozenset((found.op.op, found.other.op))
            case.equal("hazards", told in wanted, True, f"{told} are in no order")
        elif found.kind != SNAPSHOT:
            told = (found.kind, found.space, found.addr, found.op.op)
            case.equal("hazards", told in alone(case), True, f"{told} is wrong")
        kind = RACE if found.kind in (TOGETHER, UNORDERED) else found.kind
        counts[kind] += found.count
    sites = {sites_of(case, ops) for ops in wanted}
    told = {frozenset(found.sites) for found in answer.rows if found.other is not None}
    case.equal("hazards", sites - told, set(), "lines that are missing")
    stale = case.memory.stale_operands
    case.equal("hazards", counts[SNAPSHOT], stale, "snapshots")
    others = Counter(kind for kind, *_ in alone(case))
    for kind in (plain_time.NEVER_WRITTEN, plain_time.OUTSIDE):
        case.equal("hazards", counts[kind], others[kind], kind)
    case.equal("hazards", answer.ok, not answer.rows, "verdict")
    ops = {max(pair) for pair in wanted}
    ops |= {op for *_, op in alone(case)} | case.memory.stale
    check_stops(case, "catch hazards", sorted(ops))


def alone(case):
    """What is wrong without another access."""
    found = plain_time.never_written(case.memory)
    return found | plain_time.outside(case.recording)


def sites_of(case, ops):
    """The lines of some ops, as the debugger writes them."""
    found = set()
    for position in ops:
        call = case.recording.call_of(case.recording.ops[position])
        found.add(f"{case.recording.strings[call['file']]}:{call['line']}")
    return frozenset(found)


CHECKS = (
    check_stalls,
    check_lines,
    check_pes,
    check_links,
    check_busiest,
    check_timeline,
    check_tiles,
    check_route,
    check_roofline,
    check_fetches,
    check_energy,
    check_critical,
    check_hazards,
)
