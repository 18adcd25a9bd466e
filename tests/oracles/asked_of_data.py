"""Asks the debugger about data, and compares each answer with the byte-wise replay."""

import numpy as np
import plain_names
import plain_ops
from plain_frames import DTYPES
from plain_memory import slice_of

from kernbench.errors import UsageError

TOLERANCES = {"f16": 1e-3, "bf16": 1e-2, "f32": 1e-5}
"""rtol and atol of docs/machine.md; all other dtypes that are used are exact."""

PLACES = 6
"""Places that are asked about in a program, for each question."""


def ops_asked(case, count):
    """Some positions, the last among them."""
    last = len(case.recording.ops) - 1
    return sorted({case.rng.randint(0, last) for _ in range(count)} | {last})


def a_place(case):
    """A box of a tensor, or a few bytes that some op touches."""
    if case.rng.random() < 0.7:
        names = plain_names.copies(case.recording)
        name = case.rng.choice(sorted(names))
        return plain_names.random_place(case.rng, name, names[name])
    touched = []
    while not touched:
        touched = plain_ops.accesses(case.rng.choice(case.recording.ops))
    _, region = case.rng.choice(touched)
    first = region.addr + case.rng.randrange(region.nbytes)
    return plain_names.bytes_place(region.space, first, case.rng.randint(1, 12))


def check_memory(case):
    """``memory NAME``: values, what is written, what changed, and the statistics."""
    for name, allocs in plain_names.copies(case.recording).items():
        for position in ops_asked(case, 2):
            view = case.ask(f"memory {name}", position)
            _check_tensor(case, "memory NAME", view, allocs, position)


def check_scratch(case):
    """The same of scratch, and who wrote it, at ops that use the handle themselves."""
    touching = []
    for op in case.recording.ops:
        out = plain_ops.write(op)
        if out is not None and out.space == "tcm" and out.nbytes:
            alloc = plain_names.holder(case.recording, out.space, out.addr, op)
            if alloc is not None and alloc["addr"] == out.addr:
                touching.append((op, alloc))
    for op, alloc in case.rng.sample(touching, min(PLACES, len(touching))):
        if len(alloc["shape"]) == 0:
            continue
        name = plain_names.name_of(alloc)
        if not _is_certain(case, alloc):
            continue
        view = case.ask(f"memory {name}", op.position)
        _check_tensor(case, "memory SCRATCH", view, [alloc], op.position)
        place = plain_names.random_place(case.rng, name, [alloc])
        _check_writers(case, "who-wrote SCRATCH", place, op.position)


def check_lives_of_scratch(case):
    """At any op a scratch name has its data from its first op until the bytes' next."""
    allocs = case.recording.allocs
    certain = [
        number
        for number, alloc in enumerate(allocs)
        if not alloc["va"] and alloc["shape"] and _is_certain(case, alloc)
    ]
    for position in ops_asked(case, 2):
        lost = plain_names.losers(case.recording, position)
        for number in case.rng.sample(certain, min(PLACES, len(certain))):
            alloc = allocs[number]
            name = plain_names.name_of(alloc)
            made = plain_names.made_at(case.recording, alloc)
            is_there = made <= position and number not in lost
            try:
                view = case.ask(f"memory {name}", position)
            except UsageError:
                view = None
            what = f"{name} at op {position}"
            case.equal("memory SCRATCH", view is not None, is_there, what)
            if view is not None and is_there:
                _check_tensor(case, "memory SCRATCH", view, [alloc], position)


def _is_certain(case, alloc):
    """Whether the handle's name is that of one allocation."""
    name = plain_names.name_of(alloc)
    alike = [a for a in case.recording.allocs if plain_names.name_of(a) == name]
    return len(alike) == 1


def _check_tensor(case, command, view, allocs, position):
    shape = plain_names.whole_shape(allocs)
    dtype = allocs[0]["dtype"]
    values = np.zeros(shape, DTYPES[dtype])
    written = np.zeros(shape, bool)
    changed = np.zeros(shape, bool)
    written_now = plain_ops.stored(case.recording.ops[position])
    for alloc in allocs:
        region = plain_ops.Bytes(alloc["space"], alloc["addr"], alloc["shape"], dtype)
        box = _box(alloc)
        array, known = case.memory.view(region, position)
        values[box] = array
        written[box] = known
        mine = np.arange(region.addr, region.addr + region.nbytes)
        for space, addr, nbytes in written_now:
            if space == region.space:
                hit = (mine >= addr) & (mine < addr + nbytes)
                hit = hit.reshape(-1, region.itemsize).any(axis=1)
                changed[box] |= hit.reshape(region.shape)
    what = f"{view.name} at op {position}"
    known = (
        (view.values[written].tobytes(), view.written.tolist(), view.changed.tolist()),
        (values[written].tobytes(), written.tolist(), changed.tolist()),
    )
    case.equal(command, known[0] == known[1], True, f"values of {what}")
    wide = values[written].astype(np.float64)
    finite = wide[np.isfinite(wide)]
    case.equal(command, view.nans, int(np.isnan(wide).sum()), f"NaNs of {what}")
    if finite.size:
        least = (view.minimum, view.maximum)
        case.equal(command, least, (finite.min(), finite.max()), f"range of {what}")
        near = bool(np.isclose(view.mean, finite.mean(), rtol=1e-9, atol=1e-12))
        case.equal(command, near, True, f"mean of {what}")
    else:
        none = bool(np.isnan([view.minimum, view.maximum, view.mean]).all())
        case.equal(command, none, True, f"statistics of {what}")


def _box(alloc):
    pairs = zip(alloc["origin"], alloc["shape"], strict=True)
    return tuple(slice(origin, origin + extent) for origin, extent in pairs)


def check_allocations(case):
    """``memory``: which allocations hold something, and who wrote into them last.

    Of scratch that is used again only the handle that has the bytes then; and that is
    the one which can be asked for by its name.
    """
    made = {(a["space"], a["addr"], a["cmd"]): a for a in case.recording.allocs}
    for position in ops_asked(case, 2):
        answer = case.ask("memory", position)
        last = {}
        for op in case.recording.ops[: position + 1]:
            out = plain_ops.write(op)
            if out is None or not out.nbytes:
                continue
            alloc = plain_names.holder(case.recording, out.space, out.addr, op)
            if alloc is not None:
                last[_key(alloc)] = op.position
        for number in plain_names.losers(case.recording, position):
            last.pop(_key(case.recording.allocs[number]), None)
        case.equal("memory", answer.total, len(last), f"allocations at op {position}")
        totals = {}
        for space, _addr, nbytes, _name in last:
            count, held = totals.get(space, (0, 0))
            totals[space] = (count + 1, held + nbytes)
        told = {space: (count, nbytes) for space, count, nbytes in answer.spaces}
        told = {space: held for space, held in told.items() if held != (0, 0)}
        case.equal("memory", told, totals, f"bytes by space at op {position}")
        for entry in answer.entries:
            shard = entry.shard
            where = (shard.space, shard.addr, shard.cmd)
            alloc = made.get(where)
            if alloc is None:
                case.equal("memory", where, None, f"allocations at op {position}")
                continue
            what = f"writer of {entry.tensor} at op {position}"
            case.equal("memory", entry.writer, last.get(_key(alloc)), what)
            name = plain_names.name_to_ask(case.recording, alloc)
            case.equal("memory", entry.tensor, name, f"name at {shard.addr:#x}")
            if alloc["shape"] and _is_certain(case, alloc):
                view = case.ask(f"memory {name}", position)
                held = view.written.any()
                case.equal("memory", bool(held), True, f"{name} at op {position}")


def _key(alloc):
    name = plain_names.name_of(alloc)
    return alloc["space"], alloc["addr"], alloc["nbytes"], name


def layout_of(touch):
    """How the bytes lie that a line of the debugger is about, as it says."""
    return touch.addr, touch.nbytes, touch.rows, touch.row_bytes, touch.pitch


def check_who_wrote(case):
    """``who-wrote``: the last writer of every byte of a place."""
    for _ in range(PLACES):
        place = a_place(case)
        for position in ops_asked(case, 1):
            _check_writers(case, "who-wrote", place, position)


def _check_writers(case, command, place, position):
    answer = case.ask(f"who-wrote {place.text}", position)
    wanted = {}
    for addr in place.addresses:
        writer = case.memory.writer(place.space, addr, position)
        wanted.setdefault(writer, []).append(addr)
    nobody = wanted.pop(None, [])
    found = [(touch.op.op, layout_of(touch)) for touch in answer.rows]
    rows = [(op, plain_ops.layout(mine)) for op, mine in sorted(wanted.items())]
    what = f"{place.text} at op {position}"
    case.equal(command, found, rows, what)
    case.equal(command, bool(answer.note), bool(nobody), f"note of {what}")
    if nobody:
        case.equal(command, answer.note.split()[0], f"{len(nobody):,}", what)


def check_who_reads(case):
    """``who-reads``: the reads of what a place holds, until it is overwritten."""
    for _ in range(PLACES):
        place = a_place(case)
        position = case.rng.randint(-1, len(case.recording.ops) - 1)
        answer = case.ask(f"who-reads {place.text}", position)
        held = set(place.addresses)
        wanted = []
        for op in case.recording.ops[position + 1 :]:
            for mode, region in plain_ops.touched(op):
                mine = set(region.addresses)
                if region.space != place.space or held.isdisjoint(mine):
                    continue
                if mode == "r":
                    wanted.append((op.position, region.layout))
                else:
                    held.difference_update(mine)
        found = [(touch.op.op, layout_of(touch)) for touch in answer.rows]
        case.equal("who-reads", found, wanted, f"{place.text} at op {position}")


def touches(case, place):
    """(kind, op, layout) of every access of a place, in order."""
    wanted = []
    mine = set(place.addresses)
    for op in case.recording.ops:
        for mode, region in plain_ops.touched(op):
            overlaps = not mine.isdisjoint(region.addresses)
            if region.space == place.space and overlaps:
                kind = {"r": "read", "w": "write"}[mode]
                wanted.append((kind, op.position, region.layout))
    return wanted


def check_history(case):
    """``history``: every access of a place, from the first op to the last."""
    for _ in range(PLACES):
        place = a_place(case)
        answer = case.ask(f"history {place.text}", -1)
        found = [(touch.kind, touch.op.op, layout_of(touch)) for touch in answer.rows]
        case.equal("history", found, touches(case, place), place.text)


def check_watch(case):
    """``watch`` and ``continue``, there and back: every op that touches the bytes."""
    for _ in range(PLACES // 2):
        place = a_place(case)
        mode = case.rng.choice(["r", "w", "rw"])
        wanted = set()
        for kind, op, _ in touches(case, place):
            if kind[0] in mode:
                wanted.add(op)
        what = f"{place.text} {mode}"
        check_stops(case, f"watch {what}", sorted(wanted))


def check_stops(case, line, wanted):
    """Set a stop, run through it forward and back, and forget it."""
    session = case.session
    stop = case.ask(line, -1)
    command = line.split()[0]
    case.equal(command, stop.ops, len(wanted), line)
    last = len(case.recording.ops) - 1
    found = []
    while len(found) <= len(wanted):
        session.run_line("continue")
        found.append(session.cursor)
        if session.cursor == last:
            break
    ends = wanted if last in wanted else [*wanted, last]
    case.equal("continue", found, ends, line)
    found = []
    while len(found) <= len(wanted) + 1:
        session.run_line("continue back")
        if session.cursor == -1:
            break
        found.append(session.cursor)
    before = [op for op in reversed(wanted) if op != last]
    case.equal("continue", found, before, f"{line}, back")
    session.run_line(f"delete {session.stops[-1].number}")


def check_blame(case):
    """``blame``: the ops behind an element, how far away, how many elements each."""
    ops = case.recording.ops
    for number in range(PLACES + 2):
        place = a_place(case)
        if number % 2:
            place = _one_written(case) or place
        position = case.rng.choice([len(ops) - 1, case.rng.randrange(len(ops))])
        answer = case.ask(f"blame {place.text} 1000", position)
        addresses = [(place.space, addr) for addr in place.addresses]
        behind, distance = slice_of(case.memory, addresses, position)
        if len(behind) > 500 or case.memory.stale & behind.keys():
            continue  # it is cut off; or an operand was not what memory held
        what = f"{place.text} at op {position}"
        found = [link.op.op for link in answer.links]
        case.equal("blame", found, sorted(behind, reverse=True), f"ops of {what}")
        counts = {link.op.op: link.wrote.elements for link in answer.links}
        wanted = {op: len(mine) for op, mine in behind.items()}
        case.equal("blame", counts, wanted, f"elements of {what}")
        depths = {link.op.op: link.depth for link in answer.links}
        case.equal("blame", depths, distance, f"distances of {what}")
        for link in answer.links:
            _check_operands(case, link, behind.get(link.op.op, set()), what)


def _check_operands(case, link, elements, what):
    """The operands of a link: how many elements of each, and who wrote them."""
    op = case.recording.ops[link.op.op]
    regions = plain_ops.reads(op)
    needed = [set() for _ in regions]
    for element in elements:
        for mine, more in zip(needed, plain_ops.needed(op, element), strict=True):
            mine |= more
    found = []
    wanted = []
    for part in link.reads:
        writers = sorted(writer for writer in part.writers if writer >= 0)
        found.append((part.elements, part.space, writers))
    for region, mine in zip(regions, needed, strict=True):
        writers = set()
        for element in mine:
            for addr in region.element(element):
                writers.add(case.memory.writer(region.space, addr, link.op.op - 1))
        writers.discard(None)
        wanted.append((len(mine), region.space, sorted(writers)))
    case.equal("blame", found, wanted, f"operands of op {link.op.op} behind {what}")
    single = [link.wrote, *link.reads]
    parts = [(plain_ops.write(op), elements, link.op.op)]
    parts += [
        (region, mine, link.op.op - 1)
        for region, mine in zip(regions, needed, strict=True)
    ]
    for part, (region, mine, position) in zip(single, parts, strict=True):
        if len(mine) == 1 and part.value:
            low = region.element(next(iter(mine)))[0]
            one = plain_ops.Bytes(region.space, low, (), region.dtype)
            value = float(case.memory.view(one, position)[0])
            told = float(part.value)
            near = np.isclose(told, value, *_rounding(part.value), equal_nan=True)
            said = f"{part.value} of {part.name} of op {link.op.op} behind {what}"
            case.equal("blame", bool(near), True, said)


def _rounding(text):
    """How far a value may be from its text, relative and absolute.

    A text with an exponent is off by half of its last digit at most, another has three
    digits or more.
    """
    mantissa, _, exponent = text.partition("e")
    if not exponent:
        return 5e-3, 1e-30
    decimals = len(mantissa.partition(".")[2])
    return 0.0, 0.5001 * 10.0 ** (int(exponent) - decimals)


def _one_written(case):
    """An element of a tensor that a kernel has written, if there is one."""
    kernels = [op for op in case.recording.ops if op.name != "host_write"]
    written = []
    for op in kernels:
        out = plain_ops.write(op)
        if out is not None and out.space == "hbm":
            written.append(out)
    for name, allocs in plain_names.copies(case.recording).items():
        for out in written:
            for alloc in allocs:
                inside = alloc["addr"] <= out.addr < alloc["addr"] + alloc["nbytes"]
                if inside and case.rng.random() < 0.3:
                    return _element_at(name, alloc, out, case.rng)
    return None


def _element_at(name, alloc, out, rng):
    size = plain_names.itemsize(alloc["dtype"])
    end = alloc["addr"] + alloc["nbytes"]
    mine = [addr for addr in out.addresses if addr < end]
    flat = (rng.choice(mine) - alloc["addr"]) // size
    index = np.unravel_index(flat, alloc["shape"])
    whole = [int(i) + o for i, o in zip(index, alloc["origin"], strict=True)]
    spans = [range(i, i + 1) for i in whole]
    text = f"{name}[{','.join(map(str, whole))}]"
    return plain_names.place_of(text, [alloc], spans)


# -- verdicts ---------------------------------------------------------------------


def check_verify(case):
    """``verify``: each expected tensor when it was due; and what the run recorded."""
    expected = _by_tensor(case)
    answer = case.ask("verify", -1)
    rows = {out.row.tensor: out for out in answer.rows}
    case.equal("verify", list(rows), list(expected), "tensors")
    judged = {}
    for name, shards in expected.items():
        judged[name] = judge(case, shards, None)
        found = _row(rows[name].row)
        case.equal("verify", found, judged[name], f"{name}")
        due = max(shard["after"] for shard in shards)
        case.equal("verify", rows[name].after, due, f"{name} is due")
    ok = all(row["ok"] for row in judged.values())
    case.equal("verify", answer.ok, ok, "verdict")
    recorded = {}
    if case.recording.verdict is None:
        return
    for row in case.recording.verdict["results"]["rows"]:
        fine = recorded.get(row["tensor"], (True, 0))
        recorded[row["tensor"]] = (
            fine[0] and row["ok"],
            fine[1] + row["mismatches"],
        )
    told = {name: (row["ok"], row["mismatches"]) for name, row in judged.items()}
    case.equal("verify", told, recorded, "recorded verdict")


def check_outputs(case):
    """``outputs``: expected tensors against memory at an op, due or not."""
    expected = _by_tensor(case)
    for position in ops_asked(case, 2):
        answer = case.ask("outputs", position)
        rows = {out.row.tensor: out for out in answer.rows}
        ok = True
        for name, shards in expected.items():
            wanted = judge(case, shards, position)
            what = f"{name} at op {position}"
            case.equal("outputs", _row(rows[name].row), wanted, what)
            due = position + 1 >= max(shard["after"] for shard in shards)
            case.equal("outputs", rows[name].due, due, f"{what} is due")
            ok = ok and (wanted["ok"] or not due)
        case.equal("outputs", answer.ok, ok, f"verdict at op {position}")


def _by_tensor(case):
    """The expectations of each tensor: ``name`` is the tensor's, and the shard's."""
    found = {}
    for shard in case.recording.expected:
        found.setdefault(shard["name"], []).append(shard)
    return found


def _row(row):
    """What is compared of a verdict."""
    return {
        "ok": row.ok,
        "elements": row.elements,
        "mismatches": row.mismatches,
        "max_abs": row.max_abs,
        "nans": tuple(row.nans),
        "infs": tuple(row.infs),
        "first_bad": None if row.first_bad is None else tuple(row.first_bad),
    }


def judge(case, shards, position):
    """The verdict on a tensor at an op; None: each shard when it is due."""
    total = {
        "ok": True,
        "elements": 0,
        "mismatches": 0,
        "max_abs": 0.0,
        "nans": (0, 0),
        "infs": (0, 0),
        "first_bad": None,
    }
    for shard in shards:
        at = shard["after"] - 1 if position is None else position
        wanted = shard["array"]
        region = plain_ops.Bytes(
            shard["space"], shard["addr"], wanted.shape, shard["dtype"]
        )
        actual, known = case.memory.view(region, at)
        total["elements"] += wanted.size
        total["ok"] = total["ok"] and bool(known.all())
        is_due = at >= shard["after"] - 1
        if not known.any() or not (is_due or known.all()):
            continue
        r = wanted.astype(np.float64)
        a = np.where(known, actual.astype(np.float64), r)
        rtol, atol = shard["tolerance"]
        bad = []
        for index in np.ndindex(wanted.shape):
            if not _is_good(a[index], r[index], rtol, atol):
                whole = zip(index, shard["origin"], strict=True)
                bad.append(tuple(i + o for i, o in whole))
        finite = np.isfinite(a) & np.isfinite(r)
        apart = np.abs(a[finite] - r[finite])
        total["max_abs"] = max(total["max_abs"], float(apart.max(initial=0.0)))
        for index in zip(*np.nonzero(~known), strict=True):
            whole = zip(index, shard["origin"], strict=True)
            bad.append(tuple(int(i) + o for i, o in whole))
        total["mismatches"] += len(bad)
        total["ok"] = total["ok"] and not bad
        for name, is_odd in (("nans", np.isnan), ("infs", np.isinf)):
            both = (int(is_odd(a).sum()), int(is_odd(r).sum()))
            total[name] = tuple(np.add(total[name], both).tolist())
        firsts = [*bad[:1], total["first_bad"]]
        total["first_bad"] = min(
            (first for first in firsts if first is not None), default=None
        )
    return total


def _is_good(a, r, rtol, atol):
    if np.isnan(a) or np.isnan(r):
        return bool(np.isnan(a) and np.isnan(r))
    if np.isinf(a) or np.isinf(r):
        return bool(a == r)
    return bool(abs(a - r) <= atol + rtol * abs(r))


def check_diff(case):
    """``diff``: what an op wrote, beside the same op in f64 on its own inputs."""
    computed = []
    for op in case.recording.ops:
        if op.position in case.memory.outputs and op.name != "host_write":
            computed.append(op)
    for op in case.rng.sample(computed, min(PLACES, len(computed))):
        answer = case.ask("diff", op.position)
        what = f"{op.name} at op {op.position}"
        actual = case.memory.outputs[op.position]
        operands = case.memory.operands[op.position]
        expected = plain_ops.compute(op, operands, wide=True)
        same = answer.actual.tobytes() == actual.tobytes()
        case.equal("diff", same, True, f"actual of {what}")
        with np.errstate(all="ignore"):
            fits = np.isclose(answer.expected, expected, 1e-9, 1e-300, equal_nan=True)
            wide = actual.astype(np.float64)
            error = wide - answer.expected
            told = np.isclose(answer.error, error, 1e-9, 1e-300, equal_nan=True)
        case.equal("diff", bool(fits.all()), True, f"expected of {what}")
        case.equal("diff", bool(told.all()), True, f"error of {what}")
        bound = TOLERANCES.get(plain_ops.write(op).dtype, 0.0)
        bad = 0
        for a, r in zip(wide.reshape(-1), answer.expected.reshape(-1), strict=True):
            bad += not _is_good(a, r, bound, bound)
        case.equal("diff", answer.row.mismatches, bad, f"bad elements of {what}")


def check_divergence(case):
    """``divergence`` finds no op over: each, computed anew, gives the same bytes.

    ``catch checks`` then stops where an expected tensor is due and wrong.
    """
    answer = case.ask("divergence", -1)
    is_over = answer.check is not None and answer.check.over > 0
    case.equal("divergence", is_over, False, f"op {answer.op}")
    if case.recording.end["ok"]:
        case.equal("divergence", answer.op, -1, "culprit")
    due = set()
    for shards in _by_tensor(case).values():
        if not judge(case, shards, None)["ok"]:
            due.add(max(shard["after"] for shard in shards) - 1)
    check_stops(case, "catch checks", sorted(due))


def check_stale_blame(case):
    """``blame`` follows what an operand was, where memory holds something else.

    Of an operand that Phase 1 saw differently it names a writer of those very bytes, if
    there was one.
    """
    last = len(case.recording.ops) - 1
    for position in sorted(case.memory.stale)[:PLACES]:
        op = case.recording.ops[position]
        out = plain_ops.write(op)
        element = case.rng.randrange(out.nbytes // out.itemsize)
        low = out.element(element)[0]
        place = f"{out.space} {low:#x}:{out.itemsize}"
        answer = case.ask(f"blame {place} 1", min(position, last))
        link = next(link for link in answer.links if link.op.op == position)
        regions = plain_ops.reads(op)
        needed = plain_ops.needed(op, element)
        columns = (regions, needed, case.memory.operands[position], link.reads)
        for region, elements, operand, part in zip(*columns, strict=True):
            if len(elements) > 1:
                continue
            (mine,) = elements
            value = operand.reshape(-1)[mine].tobytes()
            wrote = _wrote(case, region, mine, value, position)
            if wrote:
                named = {writer for writer in part.writers if writer >= 0}
                what = f"{place} at op {position}: {sorted(named)} of {sorted(wrote)}"
                case.equal("blame STALE", named <= wrote, True, what)


def _wrote(case, region, element, value, position):
    """The ops before a position that gave an element of a region this value."""
    found = None
    for addr, byte in zip(region.element(element), value, strict=True):
        writes = case.memory.bytes.get((region.space, addr), [])
        mine = {op for op, held in writes if op < position and held == byte}
        found = mine if found is None else found & mine
    return found


def check_released_scratch(case):
    """A scratch name never stands for what a later owner of its bytes wrote."""
    allocs = [a for a in case.recording.allocs if not a["va"] and a["space"] == "tcm"]
    ops = case.recording.ops
    asked = 0
    for number, alloc in enumerate(allocs):
        followers = [
            other
            for other in allocs[number + 1 :]
            if other["owner"] == alloc["owner"]
            and other["addr"] == alloc["addr"]
            and other["shape"]
        ]
        if not followers or not alloc["shape"] or not _is_certain(case, alloc):
            continue
        name = plain_names.name_of(alloc)
        index = ",".join("0" for _ in alloc["shape"])
        rows = _answered(case, f"who-wrote {name}[{index}]", len(ops) - 1)
        later = [row for row in rows if ops[row.op.op].cmd >= followers[0]["cmd"]]
        found = [row.op.op for row in later]
        case.equal("who-wrote RELEASED", found, [], f"{name}[{index}]")
        asked += 1
        if asked == PLACES:
            return


def _answered(case, line, position):
    """The rows of an answer; none where the line is refused."""
    try:
        return case.ask(line, position).rows
    except UsageError:
        return ()


CHECKS = (
    check_memory,
    check_scratch,
    check_lives_of_scratch,
    check_allocations,
    check_who_wrote,
    check_who_reads,
    check_history,
    check_watch,
    check_blame,
    check_verify,
    check_outputs,
    check_diff,
    check_divergence,
    check_stale_blame,
    check_released_scratch,
)
