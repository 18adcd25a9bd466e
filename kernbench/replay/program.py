"""What each op of a trace is of its program, so that ops of two traces can be compared.

An op is its name, the call and the kernel line that issued it, what served it, and its
params. An address stands for a place in a tensor, or in the handle that some call has
made: where an allocator puts that differs between runs and means nothing. Everything is
compared by hashes of 64 bits; only ops that are shown are decoded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial
from hashlib import blake2b
from pathlib import PurePath
from typing import Any, NamedTuple

import numpy as np

from kernbench.common.arrays import (
    Array,
    Bools,
    Ints,
    distinct,
    distinct_rows,
    numbered,
    repeated,
    running_count,
    runs_begin,
)
from kernbench.common.progress import Progress, computed_beside, no_progress, stage
from kernbench.common.room import make_room
from kernbench.errors import TraceFormatError
from kernbench.replay.alignment import mixed
from kernbench.replay.index import Index
from kernbench.replay.text import param_text
from kernbench.trace import Trace
from kernbench.trace.groups import ranges
from kernbench.trace.hops import is_of_tiles, rows_of_calls, tile_numbers_of
from kernbench.trace.params import ParamBlock

_NO_PARAMS = ("snapshot", "input_snapshots", "handle_id", "out_addr")
"""What params hold beside what was asked for.

That is data, a handle's name, and an address that dst_addr has, too.
"""

_LARGE_BYTES = 1 << 20
"""An array whose digest takes some ms."""

_ADDRESS_BITS = 52
_MOST_SPACES = 1 << 11
"""Kinds of memory that are told apart: a place is one number, of space and address."""


class Places(NamedTuple):
    """The addresses among the params of all ops, a row each.

    ``row`` is the op's, ``path`` an index of ``paths``. ``alloc`` is the row of the
    allocation that held the address when the op was issued, -1 where none did, and
    ``offset`` the bytes from its beginning; without one, ``offset`` is the address.
    """

    row: Ints
    path: Ints
    alloc: Ints
    offset: Ints
    paths: list[str]


class Program(NamedTuple):
    """The ops of a trace in the order of its program: PE by PE, call by call.

    ``rows`` are the rows of the op log in that order, ``streams`` hashes of the PEs or
    hosts that made the calls, ascending. ``levels`` are three keys of each, the
    strictest first: all that is known of the op; its line, name and tile; its name.

    The other columns are by row. ``params`` are hashes of the params with addresses as
    places, ``absolute`` with addresses as they are, and ``contents`` those of arrays.
    ``calls`` are the rows of ``trace.commands`` that issued the ops, -1 where unknown,
    and ``makers`` those that made each allocation.
    """

    rows: Ints
    streams: Array
    levels: tuple[Array, Array, Array]
    params: Array
    absolute: Array
    contents: Array
    calls: Ints
    places: Places
    is_scratch: Bools
    makers: Ints


def program(side: Index, progress: Progress = no_progress) -> Program:
    """The program of a trace; TraceFormatError for params that cannot be."""
    trace = side.trace
    found = _params(trace, stage(progress, 0.0, 0.6))
    params = found.hashes
    addresses = found.addresses
    places, is_scratch, relative, absolute = computed_beside(
        partial(_placed, trace, addresses), progress, 0.6
    )

    def ordered() -> Program:
        calls = side.ops.calls(trace.position)
        names = hashes_of(trace.op_columns.name[:], trace.strings.__getitem__)
        what = _What(names, found.tile)
        streams, levels = _identities(trace, calls, what, params + relative)
        rows = _in_program_order(trace, streams, what, addresses)
        return Program(
            rows=rows,
            streams=streams[rows],
            levels=(levels[0][rows], levels[1][rows], levels[2][rows]),
            params=params + relative,
            absolute=params + absolute,
            contents=found.contents,
            calls=calls,
            places=places,
            is_scratch=is_scratch,
            makers=_makers(trace),
        )

    return computed_beside(ordered, progress, 0.8)


# -- hashes ----------------------------------------------------------------------------


def digest(array: Array, progress: Progress = no_progress) -> bytes:
    """A hash of an array's bytes."""

    def hashed() -> bytes:
        return blake2b(array.tobytes()).digest()

    if array.nbytes > _LARGE_BYTES:
        return computed_beside(hashed, progress, 0.5)
    return hashed()


def _hash(value: Any) -> np.uint64:
    """A hash of 64 bits of what a value shows as."""
    return np.uint64(
        int.from_bytes(blake2b(repr(value).encode(), digest_size=8).digest())
    )


def _all_hashes(texts: Sequence[str]) -> Array:
    """The hash of each text."""
    return np.array([_hash(text) for text in texts], np.uint64)


def hashes_of(column: Array, what: Callable[[int], Any]) -> Array:
    """By row a hash of what the number in the column stands for."""
    used, place = distinct_rows([column.astype(np.int64)])
    hashes = [_hash(what(number)) for (number,) in used.tolist()]
    return np.array(hashes, np.uint64)[place]


# -- params ----------------------------------------------------------------------------


class _Addresses(NamedTuple):
    """Addresses among params: as of ``Places``, and the space as a string's number."""

    row: Ints
    path: Ints
    space: Ints
    addr: Ints
    paths: list[str]


class _Params(NamedTuple):
    """What the params of all ops say.

    By row: hashes of the params but for addresses, those of the contents of arrays (0
    without any), and the numbers of tiles as of ``tile_numbers``.
    """

    hashes: Array
    contents: Array
    tile: Ints
    addresses: _Addresses


def _params(trace: Trace, progress: Progress) -> _Params:
    """Read the params of all ops, once."""
    total = len(trace.op_columns.cmd)
    found = np.zeros(total, np.uint64)
    contents = np.zeros(total, np.uint64)
    tile = np.full(total, -1)
    structures = dict[int, np.uint64]()
    texts = dict[int, np.uint64]()
    arrays = dict[int, np.uint64]()
    paths = dict[str, int]()
    none = np.empty(0, np.int64)
    parts = [(none, none, none, none)]
    for block in trace.param_blocks():
        done = int(block.rows[0]) / total
        progress(done)
        if is_of_tiles(block):
            tile[block.rows] = tile_numbers_of(block)
        for path, column in block.columns("t").items():
            content = partial(_content, trace, stage(progress, done, done))
            contents[block.rows] += _hashes_in(path, column, arrays, content)
        schema = block.schema
        if id(schema) not in structures:
            structures[id(schema)] = _structure(schema.kind, schema.fields)
        hashes = np.full(len(block.rows), structures[id(schema)])
        spaces = _columns(block, "s")
        for path, column in _columns(block, "ifb").items():
            space = spaces.get(path.replace("addr", "space"))
            if "addr" in path and space is not None:
                number = paths.setdefault(path, len(paths))
                where = np.full(len(column), number)
                parts.append((block.rows, where, space, column))
            else:
                hashes += _mixed_in(path, _bits(column))
        for path, column in (spaces | _columns(block, "r")).items():
            hashes += _hashes_in(path, column, texts, trace.strings.__getitem__)
        found[block.rows] = hashes

    def joined() -> _Addresses:
        row, path, space, addr = (
            np.concatenate([part.astype(np.int64) for part in column])
            for column in zip(*parts, strict=True)
        )
        return _Addresses(row, path, space, addr, list(paths))

    return _Params(found, contents, tile, computed_beside(joined, progress, 1.0))


def _content(trace: Trace, progress: Progress, number: int) -> Any:
    """What a stored array is; None for one that is damaged.

    It says that it goes on, as a block may have hundreds of arrays.
    """
    progress(0.0)
    try:
        array = trace.tensor(number)
    except TraceFormatError:
        return None
    return array.dtype, array.shape, digest(array, progress)


def _columns(block: ParamBlock, letters: str) -> dict[str, Array]:
    """The params of a block that count, of those with one of some letters, by path."""
    return {
        path: column
        for path, column in block.columns(letters).items()
        if path.partition(".")[0] not in _NO_PARAMS
    }


def _structure(kind: str, fields: tuple[tuple[str, Any], ...]) -> np.uint64:
    """A hash of which params there are, and what each is made of."""
    shown = [repr(field) for field in fields if field[0] not in _NO_PARAMS]
    return _hash((kind, sorted(shown)))


@lru_cache(maxsize=1024)
def _path_hash(path: str) -> np.uint64:
    return _hash(path)


def _bits(column: Array) -> Array:
    """Numbers as 64 bits each; of floats all bits are kept."""
    if column.dtype.kind == "f":
        return column.astype(np.float64).view(np.uint64)
    return column.astype(np.int64).view(np.uint64)


def _mixed_in(path: str, bits: Array) -> Array:
    """By row the hash of a param; one for all rows if all have the same bits."""
    if (bits == bits[0]).all():
        bits = bits[:1]
    return mixed(_path_hash(path), bits)


def _hashes_in(
    path: str, column: Array, known: dict[int, np.uint64], what: Callable[[int], Any]
) -> Array:
    """By row the hash of a param that is ``what`` the number in its column stands for;
    one for all rows if it is the same. All that were looked up are ``known``.
    """
    used, which = _used(column)
    for number in used:
        if number not in known:
            known[number] = _hash(what(number))
    hashes = mixed(_path_hash(path), np.array([known[n] for n in used], np.uint64))
    return hashes if len(used) == 1 else hashes[which]


def _used(column: Array) -> tuple[list[int], Ints]:
    """The numbers in a column, which has some, and by row the place of its own.

    Most columns of a block hold one number, which is seen ten times as quickly.
    """
    if (column == column[0]).all():
        return [int(column[0])], np.zeros(len(column), np.int64)
    used, which = numbered(column)
    return used.tolist(), which


# -- addresses -------------------------------------------------------------------------


def _placed(trace: Trace, addresses: _Addresses) -> tuple[Places, Bools, Array, Array]:
    """The places that addresses stand for, and which allocations are scratch.

    Then two hashes by row: of the places, and of the addresses as they are. A handle is
    told by its owner alone; which call has made it is compared where calls are matched.
    """
    log = trace.alloc_columns
    spaces = {name: number for number, name in enumerate(log.spaces)}
    used = distinct(addresses.space)
    names = [trace.strings[number] for number in used.tolist()]
    numbers = [spaces.setdefault(name, len(spaces)) for name in names]
    if len(spaces) > _MOST_SPACES:
        raise TraceFormatError(
            f"{trace.path} names {len(spaces):,} kinds of memory; a machine has some "
            "ten: record the run again"
        )
    which = np.searchsorted(used, addresses.space)
    space = np.array(numbers, np.int64)[which] << _ADDRESS_BITS
    point = space | addresses.addr & (1 << _ADDRESS_BITS) - 1
    starts = log.space[:].astype(np.int64) << _ADDRESS_BITS
    starts |= log.addr[:].astype(np.int64)
    alloc = _holders(trace, addresses.row, point, starts)
    is_held = alloc >= 0
    offset = np.where(is_held, point - np.append(starts, 0)[alloc], addresses.addr)
    is_scratch = _is_scratch(trace)
    identities = np.append(_alloc_identities(trace, is_scratch), np.uint64(0))
    space_hash = _all_hashes(names)[which]
    path_hash = _all_hashes(addresses.paths)[addresses.path]
    whose = np.where(is_held, identities[alloc], space_hash)
    relative = _summed(trace, addresses.row, path_hash, mixed(whose, offset))
    places = mixed(space_hash, addresses.addr)
    absolute = _summed(trace, addresses.row, path_hash, places)
    found = Places(addresses.row, addresses.path, alloc, offset, addresses.paths)
    return found, is_scratch, relative, absolute


def _holders(trace: Trace, row: Ints, point: Ints, starts: Ints) -> Ints:
    """By address the youngest allocation that held it when its op was issued, or -1.

    ``point`` and ``starts`` have the space above the bits of the address.
    """
    log = trace.alloc_columns
    # In the order of their points, so that what is looked up next lies near.
    order = np.argsort(point)
    ascending = point[order]
    begins = runs_begin(ascending)
    points = ascending[begins]
    low = np.searchsorted(points, starts)
    counts = np.searchsorted(points, starts + log.nbytes[:].astype(np.int64)) - low
    make_room(64 * int(counts.sum()), "which allocations held which address")
    alloc = repeated(np.arange(len(starts)), counts)
    made = ranges(low, counts) << 32 | log.cmd[:].astype(np.int64)[alloc]
    youngest_last = np.argsort(made, kind="stable")
    made = np.append(-1, made[youngest_last])
    alloc = np.append(-1, alloc[youngest_last])
    at = running_count(begins) - 1
    issued = trace.op_columns.cmd[:].astype(np.int64)[row[order]]
    found = np.searchsorted(made, at << 32 | issued, side="right") - 1
    holders = np.empty(len(point), np.int64)
    holders[order] = np.where(made[found] >> 32 == at, alloc[found], -1)
    return holders


def _is_scratch(trace: Trace) -> Bools:
    """By allocation whether a call of a kernel has made it."""
    launches = np.append(trace.commands.launch[:], -1)
    return np.asarray(launches[_makers(trace)] >= 0)


def _makers(trace: Trace) -> Ints:
    """By allocation the row of ``trace.commands`` that made it, -1 where unknown."""
    return rows_of_calls(trace, trace.alloc_columns.cmd[:])


def _alloc_identities(trace: Trace, is_scratch: Bools) -> Array:
    """By allocation a hash of what it is: which shard of which tensor, whose it is."""
    log = trace.alloc_columns
    text = trace.strings.__getitem__
    owner = hashes_of(log.owner[:], text)
    named = np.flatnonzero(~is_scratch)
    found = mixed(owner, np.zeros(1))
    shard = mixed(hashes_of(log.tensor[:][named], text), log.index[:][named])
    found[named] = mixed(owner[named], shard)
    return found


def _summed(trace: Trace, row: Ints, path_hash: Array, place: Array) -> Array:
    """By row of ops the sum of a hash for each address, modulo 2 ** 64."""
    found = np.zeros(len(trace.op_columns.cmd), np.uint64)
    np.add.at(found, row, mixed(path_hash, place))
    return found


def made_by(mine: Program, numbers: Ints) -> Array:
    """By row a hash of which calls have made the handles that an op takes.

    ``numbers`` has one for each allocation, the same in both traces where the calls
    that have made them are matched.
    """
    places = mine.places
    is_scratch = np.append(mine.is_scratch, False)
    taken = np.flatnonzero(is_scratch[places.alloc])
    path_hash = _all_hashes(places.paths)[places.path[taken]]
    found = np.zeros(len(mine.params), np.uint64)
    made = mixed(path_hash, numbers[places.alloc[taken]])
    np.add.at(found, places.row[taken], made)
    return found


# -- the order, and what an op is ------------------------------------------------------


class _What(NamedTuple):
    """By row what an op is: a hash of its name, and the number of its tile, or -1."""

    name: Array
    tile: Ints


def _identities(
    trace: Trace, calls: Ints, what: _What, params: Array
) -> tuple[Array, tuple[Array, Array, Array]]:
    """By row a hash of who made the call, and the keys of all levels."""
    node = trace.node_ids.__getitem__
    log = trace.commands
    component = hashes_of(trace.op_columns.component[:], node)
    is_known = calls >= 0
    streams = component.copy()
    streams[is_known] = hashes_of(log.pe[:], node)[calls[is_known]]
    site = np.zeros(len(calls), np.uint64)
    site[is_known] = _sites(trace)[calls[is_known]]
    name = mixed(streams, what.name)
    line = mixed(mixed(mixed(name, component), site), what.tile)
    return streams, (mixed(line, params), line, name)


def _sites(trace: Trace) -> Array:
    """By call a hash of its name, its function and the text of its line.

    The number of the line does not count: it moves with every line that is put before.
    """
    log = trace.commands
    text = trace.strings.__getitem__
    lines = {name: file.text.splitlines() for name, file in trace.sources.items()}

    def line_text(key: int) -> Any:
        number = key & 0xFFFFFFFF
        known = lines.get(trace.strings[key >> 32], ())
        if 0 < number <= len(known):
            return known[number - 1].strip()
        return ""

    where = hashes_of(log.file[:].astype(np.int64) << 32 | log.line[:], line_text)
    function = hashes_of(log.function[:], text)
    return mixed(mixed(hashes_of(log.call[:], text), function), where)


def _in_program_order(
    trace: Trace, streams: Array, what: _What, addresses: _Addresses
) -> Ints:
    """The rows PE by PE and call by call.

    Within a call they are by tile, then by name, then by their first address, then as
    they completed.
    """
    first = np.zeros(len(streams), np.int64)
    first[addresses.row[::-1]] = addresses.addr[::-1]
    cmd = trace.op_columns.cmd[:]
    return np.lexsort((first, what.name, what.tile, cmd, streams))


# -- what differs between two ops ------------------------------------------------------


class _Shown(NamedTuple):
    """A param: what is compared, and its text."""

    value: Any
    text: str


class OneOp(NamedTuple):
    """An op of a trace, by its row; ``numbers`` as of ``made_by``."""

    side: Index
    program: Program
    numbers: Ints
    row: int


def params_apart(a: OneOp, b: OneOp) -> str:
    """The params that differ between two ops, as text."""
    none = _Shown(None, "none")
    shown_a = _shown(a)
    shown_b = _shown(b)
    apart = list[str]()
    for path in shown_a | shown_b:
        mine = shown_a.get(path, none)
        other = shown_b.get(path, none)
        if mine.value != other.value:
            apart.append(f"{path} {mine.text} -> {other.text}")
    return ", ".join(apart)


def _shown(op: OneOp) -> dict[str, _Shown]:
    """The params of an op by path, addresses as places."""
    trace = op.side.trace
    found = dict[str, _Shown]()
    for name, param in trace.params(op.row).items():
        if name not in _NO_PARAMS:
            for path, text in _leaf_texts(name, param):
                found[path] = _Shown(text, text)
    places = op.program.places
    for at in np.flatnonzero(places.row == op.row).tolist():
        alloc = int(places.alloc[at])
        if alloc < 0:
            continue
        (shard,) = trace.shards([alloc])
        offset = int(places.offset[at])
        text = f"{shard.tensor}+{offset:#x}"
        value: tuple[Any, ...] = (shard.tensor, shard.owner, shard.index, offset)
        maker = trace.command(shard.cmd)
        if op.program.is_scratch[alloc] and maker is not None:
            value = (int(op.numbers[alloc]), offset)
            file = PurePath(maker.site.file).name
            text = f"{text} of {maker.call} {file}:{maker.site.line}"
        else:
            text = f"{text} of {shard.owner}"
        found[places.paths[int(places.path[at])]] = _Shown(value, text)
    return found


def _leaf_texts(path: str, value: Any) -> Iterator[tuple[str, str]]:
    """The path and text of a param, or of each address of a list."""
    if "addr" in path and isinstance(value, (list, tuple)):
        for number, item in enumerate(value):
            yield f"{path}.{number}", param_text(item, path)
    else:
        yield path, param_text(value, path)
