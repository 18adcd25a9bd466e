"""Traces of sound frames with values that are not: damage that knows the format.

Where ``fuzz.py`` breaks bytes, this changes what they say. It knows what each column
refers to, what params look like and which heads are read: a mutant has right checksums,
lengths and types, and says of its machine, ops and arrays what cannot be.
"""

import copy
import zlib
from math import prod

import msgpack
import numpy as np

from kernbench.common.dtypes import DTYPES
from kernbench.trace.columns import LOGS
from kernbench.trace.schema import CODES, FIXED_TABLES, NONE, pack

WHOLE = [
    0,
    1,
    2,
    3,
    7,
    16,
    255,
    1 << 16,
    (1 << 20) + 1,
    (1 << 31) - 1,
    1 << 31,
    NONE,
    1 << 40,
    (1 << 52) - 8,
    1 << 52,
    (1 << 62) - 1,
    (1 << 63) - 1,
    1 << 63,
    (1 << 64) - 1,
    -1,
    -2,
    -(1 << 31),
    -(1 << 63),
]
REAL = [0.0, -0.0, -1.0, 5e-324, 1e-9, 1e18, 1e300, -1e300]
WILD = [*REAL, float("nan"), float("inf"), float("-inf")]
TEXTS = [
    "",
    "c",
    "c.0",
    "f16",
    "f64",
    "int4",
    "bool",
    "hbm",
    "tcm",
    "nowhere",
    "sum",
    "where",
    "exp",
    "gemm",
    "transpose",
    "composite_gemm",
    "TileToken/DMA_READ",
    "TileToken/",
    "sip9.cube0.pe0.pe_cpu",
    "sip0.cube0.pe0.pe_gemm",
    "sip0.cube0.pe",
    "host_write",
    "a b\n\tc",
    "x" * 70_000,
    "é" * 40,
    "1e400",
]
KINDS = ["memory", "gemm", "math", "unknown", "other"]
ROWS_AT_MOST = 4  # are changed at once, unless all are


class Mutant:
    """The frames of a trace, to be changed, and what numbers in them refer to."""

    def __init__(self, frames):
        self.frames = copy.deepcopy(frames)
        self.sizes = {name: len(table) for name, table in FIXED_TABLES.items()}
        for tag, head, _ in self.frames:
            table = {"strings": "string", "paths": "path", "ops": "ops"}.get(tag)
            if table:
                self.sizes[table] = head["first"] + head["n"]
            if tag == "topology":
                self.sizes["node"] = head["nodes"]["n"]
            if tag == "alloc":
                self.sizes["space"] = len(head["spaces"])
            if tag == "tensors":
                self.sizes["tensor"] = head["first"] + head["n"]
        self.sizes["text"] = self.sizes.get("string", 0)

    def tagged(self, *tags):
        return [frame for frame in self.frames if frame[0] in tags]


def body_of(frame):
    _, head, body = frame
    return bytearray(zlib.decompress(body) if "raw" in head else body)


def set_body(frame, body):
    if "raw" in frame[1]:
        frame[1]["raw"] = len(body)
        body = zlib.compress(bytes(body))
    frame[2] = bytes(body)


def logs_of(mutant):
    """(tag, frame, head of the log) of each that has rows."""
    found = []
    for frame in mutant.frames:
        tag, head, _ = frame
        if tag == "topology":
            found += [(part, frame, head[part]) for part in ("nodes", "edges")]
        elif tag in LOGS:
            found.append((tag, frame, head))
    return [log for log in found if log[2]["n"]]


def values_of(frame, head, name):
    """A copy of a column, and its entry in the head."""
    entry = next(entry for entry in head["columns"] if entry[0] == name)
    _, code, offset, length = entry
    data = bytes(body_of(frame))
    return np.frombuffer(data, CODES[code], length, offset).copy(), entry


def append(frame, array):
    """Put an array behind all others of a frame; its offset."""
    body = body_of(frame)
    body += bytes(-len(body) % 8)
    offset = len(body)
    set_body(frame, body + array.tobytes())
    return offset


def store(frame, entry, array):
    entry[1:] = [array.dtype.str[1:], append(frame, array), len(array)]


# -- columns -----------------------------------------------------------------------


def numbers_for(rng, mutant, column, values, size):
    """``size`` values that a column might have, or should not."""
    floats = [*REAL, *(values.tolist() if values.dtype.kind == "f" else [])]
    near = [int(value) + rng.choice([-1, 1, 2, 64]) for value in values[:8].tolist()]
    if values.dtype.kind == "f":
        choices = floats + [value + 1.0 for value in values[:8].tolist()]
    elif column is not None and column.table:
        count = mutant.sizes.get(column.table, 2)
        choices = [0, 1, count // 2, count - 1, *[rng.randrange(count + 1)] * 4]
        choices += [count] if rng.random() < 0.1 else []
    elif column is not None and column.joins == "ops":
        count = mutant.sizes.get("ops", 1)
        choices = [0, count - 1, count, NONE, rng.randrange(count + 1)]
    else:
        choices = [*WHOLE, *near, *near, *values.tolist()]
    return [rng.choice(choices) for _ in range(size)]


def fitting(numbers, dtype):
    """Numbers as a column of a type, cut to its range as a file would."""
    if dtype.kind == "f":
        return np.array(numbers, dtype)
    mask = (1 << 8 * dtype.itemsize) - 1
    unsigned = np.dtype(f"u{dtype.itemsize}")
    return np.array([int(n) & mask for n in numbers], unsigned).view(dtype)


def picked_rows(rng, length):
    way = rng.random()
    if way < 0.2:
        return list(range(length))
    count = rng.randint(1, min(ROWS_AT_MOST, length))
    return rng.sample(range(length), count)


def column_changed(rng, mutant, _):
    """Some values of a column are others, that may be of its kind or not."""
    logs = logs_of(mutant)
    if not logs:
        return
    tag, frame, head = rng.choice(logs)
    name, column = rng.choice([*LOGS[tag].items()])
    values, entry = values_of(frame, head, name)
    if not len(values):
        return
    rows = picked_rows(rng, len(values))
    wanted = numbers_for(rng, mutant, column, values, len(rows))
    if len(rows) == len(values) and rng.random() < 0.5:
        wanted = wanted[:1] * len(rows)
    dtype = values.dtype
    if column.joins == "" and column.table == "":
        dtype = np.dtype(rng.choice([dtype, CODES[column.widest]]))
    changed = values.astype(dtype)
    changed[rows] = fitting(wanted, dtype)
    store(frame, entry, changed)


def column_shuffled(rng, mutant, _):
    """A column is in another order, or is another column of the same type."""
    logs = logs_of(mutant)
    if not logs:
        return
    tag, frame, head = rng.choice(logs)
    name, _ = rng.choice([*LOGS[tag].items()])
    values, entry = values_of(frame, head, name)
    others = [
        other
        for other, code, _, length in head["columns"]
        if code == entry[1] and length == len(values)
    ]
    taken, _ = values_of(frame, head, rng.choice([name, *others]))
    order = np.array(rng.sample(range(len(values)), len(values)), int)
    store(frame, entry, rng.choice([taken, taken[::-1].copy(), taken[order]]))


def allocation_changed(rng, mutant, _):
    """An allocation is another box, and as large as that."""
    frames = [frame for frame in mutant.tagged("alloc") if frame[1]["n"]]
    if not frames:
        return
    frame = rng.choice(frames)
    columns = {
        entry[0]: values_of(frame, frame[1], entry[0]) for entry in frame[1]["columns"]
    }
    rows = picked_rows(rng, frame[1]["n"])
    rank = rng.randrange(4)
    sizes = [row.itemsize for row in DTYPES.values()]
    shape = [
        rng.choice([0, 1, 3, 1 << 10, 1 << 15, (1 << 24) + 1]) for _ in range(rank)
    ]
    columns["rank"][0][rows] = rank
    for axis, extent in enumerate(shape):
        columns[f"shape{axis}"][0][rows] = extent
        columns[f"origin{axis}"][0][rows] = rng.choice([0, 0, 5, extent, 1 << 20])
    for row in rows:
        nbytes = prod(shape) * sizes[columns["dtype"][0][row]]
        columns["nbytes"][0][row] = nbytes % (1 << 64)
    for values, entry in columns.values():
        store(frame, entry, values)


def shapes_scaled(rng, mutant, _):
    """The first extents of all shapes of some ops are larger, or none."""
    schemas = [found for found in schemas_of(mutant) if found[1]]
    if not schemas:
        return
    (_, _, fields), blocks = rng.choice(schemas)
    frame, entry = rng.choice(blocks)
    paths = [name + path for name, tree in fields for path, _ in leaves_of(tree)]
    factor = rng.choice([0, 2, 1 << 10, 1 << 20, 1 << 30])
    leaves = read_block(frame, entry)
    for at, path in enumerate(paths):
        if "shape" in path and path.endswith(".0"):
            leaves[at] = leaves[at].astype(np.uint64) * np.uint64(factor)
    write_block(frame, entry, leaves)


def lists_changed(rng, mutant, _):
    """The values of lists are dealt to their rows in another way."""
    logs = [
        (frame, head, name)
        for tag, frame, head in logs_of(mutant)
        for name, column in LOGS[tag].items()
        if column.many
    ]
    if not logs:
        return
    frame, head, name = rng.choice(logs)
    counts, entry = values_of(frame, head, f"{name}_n")
    counts = counts.astype("<u4")
    total = int(counts.sum())
    for _ in range(rng.randint(1, 3)):
        giver = rng.randrange(len(counts))
        taker = rng.randrange(len(counts))
        given = rng.randint(0, int(counts[giver]))
        counts[giver] -= given
        counts[taker] += given
    if rng.random() < 0.2:
        counts[:] = 0
        counts[rng.randrange(len(counts))] = total
    store(frame, entry, counts)


def rows_taken(rng, mutant, _):
    """A log has none of its rows, some, or some of them twice."""
    logs = logs_of(mutant)
    if not logs:
        return
    tag, frame, head = rng.choice(logs)
    count = head["n"]
    rows = rng.choice(
        [
            [],
            [rng.randrange(count)],
            sorted(rng.sample(range(count), rng.randint(0, count))),
            [*range(count), rng.randrange(count)],
            [*range(count)][::-1],
        ]
    )
    for name, column in LOGS[tag].items():
        values, entry = values_of(frame, head, name)
        taken = np.array(rows, int)
        if column.many:
            counts, counts_entry = values_of(frame, head, f"{name}_n")
            ends = np.cumsum(counts, dtype=int)
            lists = [values[ends[row] - counts[row] : ends[row]] for row in rows]
            store(frame, counts_entry, counts[taken])
            store(frame, entry, np.concatenate([values[:0], *lists]))
        else:
            store(frame, entry, values[taken])
    head["n"] = len(rows)


# -- params ------------------------------------------------------------------------


def schemas_of(mutant):
    """(schema as it stands in a head, its blocks as (frame, entry)), by number."""
    found = {}
    for frame in mutant.tagged("ops"):
        head = frame[1]
        for number, schema in enumerate(head["schemas"], head["first_schema"]):
            found[number] = (schema, [])
        for entry in head["params"]:
            if entry[0] in found:
                found[entry[0]][1].append((frame, entry))
    return [*found.values()]


def leaves_of(tree, path=""):
    if isinstance(tree, str):
        return [] if tree == "n" else [(path, tree)]
    return [
        leaf
        for number, item in enumerate(tree[1])
        for leaf in leaves_of(item, f"{path}.{number}")
    ]


def read_block(frame, entry):
    """The leaves of a block, a column each."""
    _, rows, offset, codes = entry
    pairs = [codes[i : i + 2] for i in range(0, len(codes), 2)]
    dtype = np.dtype([(f"f{i}", CODES[code]) for i, code in enumerate(pairs)] or "u1")
    block = np.frombuffer(bytes(body_of(frame)), dtype, rows if pairs else 0, offset)
    return [block[f"f{i}"].copy() for i in range(len(pairs))]


def write_block(frame, entry, leaves):
    codes = [leaf.dtype.str[1:] for leaf in leaves]
    dtype = np.dtype([(f"f{i}", CODES[code]) for i, code in enumerate(codes)] or "u1")
    block = np.empty(entry[1] if codes else 0, dtype)
    for i, leaf in enumerate(leaves):
        block[f"f{i}"] = leaf
    entry[2:] = [append(frame, block), "".join(codes)]


def leaf_numbers(rng, mutant, letter, values):
    if letter in "sr":
        count = mutant.sizes.get("string", 1)
        return [rng.randrange(count) for _ in values]
    if letter == "t":
        count = mutant.sizes.get("tensor", 1)
        return [rng.choice([NONE, count, rng.randrange(count + 1)]) for _ in values]
    if letter == "f":
        return [rng.choice(WILD) for _ in values]
    if letter == "b":
        return [rng.choice([0, 1, 2]) for _ in values]
    near = [int(value) + rng.choice([-1, 1, 2]) for value in values[:8].tolist()]
    return [rng.choice([*WHOLE, *near * 2]) for _ in values]


def params_changed(rng, mutant, _):
    """A number in the params of some ops is another."""
    schemas = [found for found in schemas_of(mutant) if found[1]]
    if not schemas:
        return
    (_, _, fields), blocks = rng.choice(schemas)
    frame, entry = rng.choice(blocks)
    leaves = read_block(frame, entry)
    letters = [letter for name, tree in fields for _, letter in leaves_of(tree)]
    if not leaves or not entry[1]:
        return
    at = rng.randrange(len(leaves))
    rows = picked_rows(rng, entry[1])
    values = leaves[at]
    numbers = leaf_numbers(rng, mutant, letters[at], values[rows])
    if letters[at] == "i":
        numbers = numbers[:1] * len(rows)
    signed = letters[at] == "i" and min(numbers) < 0
    if letters[at] == "i":
        values = values.astype(np.int64 if signed else np.uint64)
    elif letters[at] in "srtb":
        values = values.astype(np.uint64)
    values[rows] = fitting(numbers, values.dtype)
    leaves[at] = values
    write_block(frame, entry, leaves)


def schema_changed(rng, mutant, _):
    """Ops have another name or kind, or their params other names."""
    schemas = schemas_of(mutant)
    if not schemas:
        return
    schema, _ = rng.choice(schemas)
    other, _ = rng.choice(schemas)
    way = rng.randrange(4)
    if way == 0:
        schema[0] = rng.choice([*KINDS, other[0]])
    elif way == 1:
        schema[1] = rng.choice([*TEXTS, other[1], other[1]])
    elif schema[2]:
        field = rng.choice(schema[2])
        names = [name for name, _ in [*schema[2], *other[2]]]
        field[0] = rng.choice([*names, "x", "axis", "shape"])


def structure_changed(rng, mutant, _):
    """A param is of another structure, in the schema and in all blocks."""
    schemas = [found for found in schemas_of(mutant) if found[0][2]]
    if not schemas:
        return
    schema, blocks = rng.choice(schemas)
    fields = schema[2]
    at = rng.randrange(len(fields))
    tree = fields[at][1]
    way = rng.choice(["gone", "none", "more", "fewer", "nested", "empty", *"ifbstr"])
    before = sum(len(leaves_of(other)) for _, other in fields[:at])
    mine = len(leaves_of(tree))
    new = tree
    keep = list(range(mine))
    made = []
    if way == "none":
        new = "n"
        keep = []
    elif way == "empty":
        new = ["(", []]
        keep = []
    elif way == "nested":
        new = ["(", [tree]]
    elif way in "ifbstr":
        new = way
        keep = []
        made = [way]
    elif way in ("more", "fewer") and not isinstance(tree, str) and tree[1]:
        last = len(leaves_of(tree[1][-1]))
        if way == "more":
            new = [tree[0], [*tree[1], tree[1][-1]]]
            keep = [*keep, *keep[mine - last :]]
        else:
            new = [tree[0], tree[1][:-1]]
            keep = keep[: mine - last]
    for frame, entry in blocks:
        leaves = read_block(frame, entry)
        own = [leaves[before + number] for number in keep]
        for letter in made:
            zeros = np.zeros(entry[1], np.float64 if letter == "f" else np.uint64)
            zeros[:] = leaf_numbers(rng, mutant, letter, zeros[:1])[0] % (1 << 64)
            own.append(zeros)
        if way == "gone":
            own = []
        write_block(frame, entry, [*leaves[:before], *own, *leaves[before + mine :]])
    fields[at][1] = new
    if way == "gone":
        del fields[at]


# -- heads, texts, frames ----------------------------------------------------------


def changed_value(rng, old):
    """Something else of the kind of a value in a head, or of another kind."""
    if rng.random() < 0.25:
        return rng.choice([None, "", [], {}, -1, 1e300, True, "x" * 70_000, [[]]])
    if isinstance(old, bool):
        return not old
    if isinstance(old, int):
        return rng.choice([*WHOLE, old + 1, old - 1, float(old)])
    if isinstance(old, float):
        return rng.choice([*WILD, 0, old + 1])
    if isinstance(old, str):
        return rng.choice(TEXTS)
    if isinstance(old, list):
        return rng.choice([[], old[:-1], [*old, *old[-1:]], old[::-1]])
    if isinstance(old, dict):
        return {}
    return rng.choice([0, "x", [1]])


def head_value_changed(rng, mutant, _):
    """One value of a head that says something is another."""
    tags = ("kernbench-trace", "topology", "expect", "verify", "end", "source")
    tag = rng.choice(tags)
    frames = mutant.tagged(tag)
    if not frames:
        return
    place = rng.choice(frames)[1]
    if tag == "topology":
        place = {"spec": place["spec"], "nodes": 0}
        place.pop("nodes")
    while place:
        keys = sorted(place) if isinstance(place, dict) else range(len(place))
        key = rng.choice(keys)
        if key in ("version", "raw", "crc"):
            return
        old = place[key]
        if not isinstance(old, dict | list) or not old or rng.random() < 0.1:
            place[key] = changed_value(rng, old)
            if rng.random() < 0.1 and isinstance(place, dict) and key != "spec":
                del place[key]
            return
        place = old


def strings_changed(rng, mutant, _):
    """Some strings are others: ids of nodes, names of ops, dtypes, places."""
    frames = mutant.tagged("strings")
    if not frames:
        return
    frame = rng.choice(frames)
    texts = msgpack.unpackb(bytes(body_of(frame)))
    if not texts:
        return
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(texts))
        texts[at] = rng.choice([*TEXTS, rng.choice(texts)])
    if rng.random() < 0.1:
        texts[rng.randrange(len(texts))] = "x" * 10_000_000
    set_body(frame, pack(texts))


def spaces_changed(rng, mutant, _):
    frames = mutant.tagged("alloc")
    if frames:
        frame = rng.choice(frames)
        frame[1]["spaces"] = changed_value(rng, frame[1]["spaces"])
        if frame[1]["spaces"] and rng.random() < 0.5:
            frame[1]["spaces"] = [rng.choice(TEXTS) for _ in range(5)]


def frames_mixed(rng, mutant, others):
    """The frames of one tag, or of all behind one, are those of another trace."""
    tags = sorted({frame[0] for frame in mutant.frames[1:]})
    tag = rng.choice(tags)
    theirs = [frame for frame in copy.deepcopy(others) if frame[0] == tag]
    kept = [frame for frame in mutant.frames if frame[0] != tag]
    places = [i for i, frame in enumerate(mutant.frames) if frame[0] == tag]
    mutant.frames = rng.choice(
        [
            [*mutant.frames[: places[0]], *theirs, *kept[places[0] :]],
            kept,
            [*mutant.frames, *theirs],
            [*mutant.frames[: places[0]], *copy.deepcopy(others[places[0] :])],
        ]
    )


# The more a way can do, the more often it is taken.
WAYS = (
    *[column_changed] * 6,
    *[column_shuffled] * 2,
    *[allocation_changed] * 2,
    *[shapes_scaled] * 2,
    lists_changed,
    *[rows_taken] * 2,
    *[params_changed] * 5,
    *[schema_changed] * 2,
    *[structure_changed] * 3,
    *[head_value_changed] * 3,
    *[strings_changed] * 2,
    spaces_changed,
    frames_mixed,
)


def mutated(rng, frames, others):
    """The frames of a trace changed in one to three ways, and the names of these."""
    mutant = Mutant(frames)
    ways = rng.choices(WAYS, k=rng.choice([1, 1, 1, 2, 3]))
    # Whose columns are to be found goes before what replaces whole frames.
    ways.sort(key=WAYS.index)
    for way in ways:
        way(rng, mutant, others)
    return [way.__name__ for way in ways], mutant.frames
