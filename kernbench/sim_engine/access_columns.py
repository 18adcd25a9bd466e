"""What many ops touch, as columns: an access of rows is one, however many rows it has.

Owns how the rows of accesses are kept beside them, and which bytes those are.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from kernbench.common.arrays import Array, Bools, Ints
from kernbench.common.rows import MAX_PLANES, Rows, share_a_byte

FORM_COLUMNS = 3 + 2 * MAX_PLANES
"""Rows, row_bytes and pitch of a form, then count and pitch of each plane.

The planes stand outermost first; those that it lacks have a count of 1.
"""

_STARTS_KEPT = 8


class Forms:
    """Rows without their address, each different one once; number 0 is one row.

    ``table`` is of int64, (forms, ``FORM_COLUMNS``). ``spans`` are the bytes from the
    first one to behind the last, ``counts`` the rows of all planes together. What they
    say of form 0 means nothing: the bytes of one row differ by access.
    """

    def __init__(self, table: Ints) -> None:
        contiguous = np.array([[1, 0, 0] + [1, 0] * MAX_PLANES], np.int64)
        self.table = np.concatenate((contiguous, table))
        counts = self.table[:, [0, *range(3, FORM_COLUMNS, 2)]]
        pitches = self.table[:, [2, *range(4, FORM_COLUMNS, 2)]]
        self.spans: Ints = ((counts - 1) * pitches).sum(axis=1) + self.table[:, 1]
        self.counts: Ints = counts.prod(axis=1)
        self.has_planes: Bools = np.any(counts[:, 1:] > 1, axis=1)
        self.starts = lru_cache(_STARTS_KEPT)(self._starts)

    def rows(self, form: int, addr: int) -> Rows:
        """The rows of a form (not 0) from an address on."""
        number, row_bytes, pitch, *planes = self.table[form].tolist()
        axes = zip(planes[::2], planes[1::2], strict=True)
        further = tuple(axis for axis in axes if axis[0] > 1)
        return Rows(addr, number, row_bytes, pitch, further)

    def _starts(self, form: int) -> Ints:
        """Where its rows begin, from the first one on, ascending."""
        return np.sort(self.rows(form, 0).starts())


NO_FORMS = Forms(np.empty((0, FORM_COLUMNS), np.int64))


class Pieces(NamedTuple):
    """Contiguous ranges of bytes; ``of`` says which of the accesses asked for has it.

    ``of`` ascends; those of one access are in order of its planes and rows.
    """

    of: Ints
    addr: Ints
    nbytes: Ints


class Places(NamedTuple):
    """Different places, by the number of the first access to each.

    ``which`` has the place of every access, a number of ``first``.
    """

    first: Ints
    which: Ints


class AccessColumns(NamedTuple):
    """Accesses as columns, by ascending ``row``, the reads of a row before its write.

    ``mode`` is 1 for a write and 0 for a read; ``space`` is an index of ``spaces``;
    ``nbytes`` are those of all rows together. ``form`` is a number of ``forms``, 0 of
    contiguous bytes; it is empty where all are.
    """

    row: Ints
    mode: Ints
    space: Ints
    addr: Ints
    nbytes: Ints
    spaces: tuple[str, ...]
    form: Ints = np.empty(0, np.uint8)
    forms: Forms = NO_FORMS

    def take(self, at: Ints) -> AccessColumns:
        """The accesses numbered ``at``."""
        return AccessColumns(
            self.row[at],
            self.mode[at],
            self.space[at],
            self.addr[at],
            self.nbytes[at],
            self.spaces,
            self.form[at] if len(self.form) else self.form,
            self.forms,
        )

    def forms_of(self, at: Ints) -> Ints:
        """The forms of the accesses numbered ``at``."""
        if not len(self.form):
            return np.zeros(len(at), np.uint8)
        return self.form[at]

    def is_in_rows(self, number: int) -> bool:
        """Whether an access has rows with gaps between them."""
        return bool(len(self.form) and self.form[number])

    @property
    def spans(self) -> Ints:
        """By access, the bytes from its first one to behind its last one."""
        return self.spans_of(np.arange(len(self.row)))

    def spans_of(self, at: Ints) -> Ints:
        """``spans`` of the accesses numbered ``at``."""
        if not len(self.form):
            return self.nbytes[at]
        form = self.form[at]
        return np.where(form > 0, self.forms.spans[form], self.nbytes[at])

    def rows_of(self, number: int) -> Rows:
        """The rows of an access; of contiguous bytes one."""
        addr = int(self.addr[number])
        form = int(self.form[number]) if len(self.form) else 0
        if not form:
            return Rows.one(addr, int(self.nbytes[number]))
        return self.forms.rows(form, addr)

    def pieces(self, at: Ints) -> Pieces:
        """The contiguous ranges of the accesses numbered ``at``.

        There may be millions an access: ``piece_counts`` says how many.
        """
        of: Array = np.arange(len(at))
        starts = self.addr[at].astype(np.int64)
        form = self.forms_of(at)
        if not form.any():
            return Pieces(of, starts, self.nbytes[at])
        table = self.forms.table[form]
        for column in (*range(3, FORM_COLUMNS, 2), 0):
            count = table[of, column]
            pitch = table[of, column + 1 if column else 2]
            first = np.repeat(np.cumsum(count) - count, count)
            index = np.arange(len(first)) - first
            starts = np.repeat(starts, count) + index * np.repeat(pitch, count)
            of = np.repeat(of, count)
        nbytes = np.where(form > 0, table[:, 1], self.nbytes[at])
        return Pieces(of, starts, nbytes[of])

    def piece_counts(self, at: Ints) -> Ints:
        """How many contiguous ranges each of the accesses numbered ``at`` has."""
        return self.forms.counts[self.forms_of(at)]

    def meets(self, at: Ints, low: int, high: int) -> Bools:
        """Which of the accesses numbered ``at`` have a byte in [low, high)."""
        addr = self.addr[at].astype(np.int64)
        found = (addr < high) & (addr + self.spans_of(at) > low)
        if not len(self.form):
            return found
        form = self.form[at]
        flat = np.flatnonzero(found & (form > 0) & ~self.forms.has_planes[form])
        found[flat] = self._rows_meet(form[flat], low - addr[flat], high - addr[flat])
        deep = np.flatnonzero(found & self.forms.has_planes[form])
        for number in np.unique(form[deep]).tolist():
            mine = deep[form[deep] == number]
            starts = self.forms.starts(number)
            row_bytes = self.forms.table[number, 1]
            nearest = np.searchsorted(starts + row_bytes, low - addr[mine], "right")
            within = np.minimum(nearest, len(starts) - 1)
            found[mine] = starts[within] < high - addr[mine]
        return found

    def _rows_meet(self, form: Ints, low: Ints, high: Ints) -> Bools:
        """Whether a row of each form, from 0 on, has a byte in [low, high).

        The forms have no planes, and their spans reach into that.
        """
        _, row_bytes, pitch = self.forms.table[form, :3].T
        nearest = np.maximum((low - row_bytes) // np.maximum(pitch, 1) + 1, 0)
        return np.asarray(nearest * pitch < high)

    def distinct_places(self) -> Places:
        """The places of all accesses, each different one once."""
        form = self.forms_of(np.arange(len(self.row)))
        columns = (form, self.nbytes, self.addr, self.space)
        order = np.lexsort(columns)
        is_new = np.zeros(len(order), np.bool_)
        is_new[:1] = True
        for column in columns:
            ordered = column[order]
            is_new[1:] |= ordered[1:] != ordered[:-1]
        which = np.empty(len(order), np.int64)
        which[order] = np.cumsum(is_new) - 1
        return Places(order[is_new], which)

    def share(self, a: Ints, b: Ints) -> Bools:
        """By pair, whether access ``a[i]`` has a byte in common with access ``b[i]``.

        Their memories are not looked at.
        """
        a_addr = self.addr[a].astype(np.int64)
        b_addr = self.addr[b].astype(np.int64)
        a_end = a_addr + self.spans_of(a)
        b_end = b_addr + self.spans_of(b)
        found: Bools = np.maximum(a_addr, b_addr) < np.minimum(a_end, b_end)
        if not len(self.form):
            return found
        in_doubt = np.flatnonzero(found & ((self.form[a] > 0) | (self.form[b] > 0)))
        found[in_doubt] = self._rows_share(a[in_doubt], b[in_doubt])
        return found

    def _rows_share(self, a: Ints, b: Ints) -> Bools:
        """``share`` of accesses whose spans overlap, one of which at least is rows.

        Most have one pitch, or one of them has one row only.
        """
        found = np.zeros(len(a), np.bool_)
        has_planes = self.forms.has_planes
        is_flat = ~(has_planes[self.form[a]] | has_planes[self.form[b]])
        one_a = self.form[a] == 0
        one_b = self.form[b] == 0
        for mine, one, rows in (
            (np.flatnonzero(is_flat & one_a), a, b),
            (np.flatnonzero(is_flat & one_b), b, a),
        ):
            low = self.addr[one[mine]] - self.addr[rows[mine]]
            high = low + self.nbytes[one[mine]]
            found[mine] = self._rows_meet(self.form[rows[mine]], low, high)
        table = self.forms.table
        is_same = table[self.form[a], 2] == table[self.form[b], 2]
        is_rows = is_flat & ~one_a & ~one_b
        alike = np.flatnonzero(is_rows & is_same)
        found[alike] = self._same_pitch_share(a[alike], b[alike])
        left = np.flatnonzero(~is_flat | (is_rows & ~is_same))
        known: dict[tuple[int, ...], bool] = {}
        for i in left.tolist():
            first = self.rows_of(a[i])
            second = self.rows_of(b[i])
            key = (
                int(self.form[a[i]]),
                int(self.form[b[i]]),
                second.addr - first.addr,
                first.nbytes,
                second.nbytes,
            )
            if key not in known:
                known[key] = share_a_byte(first, second)
            found[i] = known[key]
        return found

    def _same_pitch_share(self, a: Ints, b: Ints) -> Bools:
        """``share`` of accesses of rows of one pitch and no planes.

        Row j of b begins ``column`` bytes behind row ``down + j`` of a, and may reach
        into the row after that one.
        """
        a_rows, a_bytes, pitch = self.forms.table[self.form[a], :3].T
        b_rows, b_bytes, _ = self.forms.table[self.form[b], :3].T
        apart = self.addr[b].astype(np.int64) - self.addr[a]
        down, column = np.divmod(apart, np.maximum(pitch, 1))

        def has_both(down: Ints) -> Bools:
            """Whether a row j of b and a row down + j of a are there."""
            first = np.maximum(0, -down)
            last = np.minimum(b_rows, a_rows - down)
            return np.asarray(first < last)

        in_row = (column < a_bytes) & has_both(down)
        in_next = (column + b_bytes > pitch) & has_both(down + 1)
        return np.asarray(in_row | in_next)
