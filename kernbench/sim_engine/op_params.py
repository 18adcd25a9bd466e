"""What the params of a record have to be, for those who have them from elsewhere.

Records that the simulator makes are right by construction. Those of a trace may say
anything, so a trace looks at them where it decodes them, and whoever reads a param
afterwards may take it for what ADR-0052 D3 says it is. Those that somebody makes by
hand may have the params of ADR-0020 D5: ``completed`` makes them ours.

A param that no table here names is nobody's but its reader's: it may be anything.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np

from kernbench.common.dtypes import DTYPES
from kernbench.common.pe_commands import DATAFLOWS
from kernbench.errors import TraceFormatError
from kernbench.sim_engine.op_log import KIND_RANK, OpRecord, Params

TILE_PREFIX = "TileToken/"
"""What the names of the stages of tiles begin with."""

ADDRESS_BITS = 52
"""No physical address and no size is longer than this."""

_MOST_AXES = 64  # of numpy's arrays

Test: TypeAlias = Callable[[Any], bool]


def is_whole(value: Any) -> bool:
    """Whether a value is a number of bytes, elements or things, or an address."""
    return isinstance(value, int) and 0 <= value < 1 << ADDRESS_BITS


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_dtype(value: Any) -> bool:
    return isinstance(value, str) and value in DTYPES


def _is_dataflow(value: Any) -> bool:
    return isinstance(value, str) and value in DATAFLOWS


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float))


def _is_axis(value: Any) -> bool:
    if value is None:
        return True
    # True counts as 1 in Python, and is no axis for numpy.
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return is_number and abs(value) < _MOST_AXES


def _is_array(value: Any) -> bool:
    return value is None or isinstance(value, np.ndarray)


def _all(test: Test) -> Test:
    """A test of lists whose items all pass ``test``."""
    return lambda value: isinstance(value, (list, tuple)) and all(map(test, value))


_is_shape = _all(is_whole)


def _is_whole_or_some(value: Any) -> bool:
    """Of a DMA a number, of the stage of a tile one for each block."""
    return is_whole(value) or _is_shape(value)


def _is_axis_of_rows(value: Any) -> bool:
    return _is_shape(value) and len(value) == 2


def _is_form(value: Any) -> bool:
    return _is_shape(value) and len(value) in (3, 5, 7)


def _is_box(value: Any) -> bool:
    return _is_shape(value) and len(value) == 3


_WHOLE = "a number of 0 to 2^52"
_DTYPE = f"one of {', '.join(DTYPES)}"
_DATAFLOW = f"one of {', '.join(DATAFLOWS)}"
_FORM_OF_ROWS = f"rows, row_bytes, pitch and up to two planes, each {_WHOLE}"

_RULES: tuple[tuple[Test, str, tuple[str, ...]], ...] = (
    (
        is_whole,
        _WHOLE,
        (
            *("src_addr", "dst_addr", "src_a_addr", "src_b_addr", "src_acc_addr"),
            *("out_addr", "nbytes", "out_nbytes", "m", "k", "n"),
        ),
    ),
    (
        _is_text,
        "a text",
        (
            *("src_space", "dst_space", "src_a_space", "src_b_space"),
            *("src_acc_space", "op", "math_op", "dtype_acc", "stage_type"),
        ),
    ),
    (_is_dtype, _DTYPE, ("dtype", "dtype_in", "dtype_out")),
    (_is_dataflow, _DATAFLOW, ("dataflow",)),
    (
        _is_shape,
        f"extents, each {_WHOLE}",
        ("shape", "shape_a", "shape_b", "shape_out"),
    ),
    (_is_box, f"three times {_WHOLE}", ("tile", "tile_index", "origin", "extent")),
    (_is_flag, "true or false", ("transpose_a", "transpose_b", "keepdims")),
    (_is_axis, "an axis or none", ("axis",)),
    (_is_array, "an array or none", ("snapshot",)),
    (_all(_is_array), "arrays", ("input_snapshots",)),
    (
        _all(_is_text),
        "texts",
        (
            *("input_spaces", "epilogue_spaces", "epilogue", "epilogue_scopes"),
            *("spaces", "ops"),
        ),
    ),
    (_all(_is_dtype), f"each {_DTYPE}", ("input_dtypes", "epilogue_dtypes")),
    (
        _all(is_whole),
        f"each {_WHOLE}",
        ("input_addrs", "epilogue_addrs", "scalar_positions", "addrs", "sizes"),
    ),
    (_is_whole_or_some, f"or each {_WHOLE}", ("rows", "row_bytes", "pitch")),
    (_all(_is_axis_of_rows), f"pairs of {_WHOLE}", ("planes",)),
    (
        _is_form,
        _FORM_OF_ROWS,
        ("src_rows", "dst_rows", "src_a_rows", "src_b_rows", "src_acc_rows"),
    ),
    (_all(_is_form), f"each {_FORM_OF_ROWS}", ("input_rows", "epilogue_rows")),
    (_all(_is_shape), "shapes", ("input_shapes", "epilogue_shapes")),
    (_all(_is_number), "numbers", ("scalars", "epilogue_scalars")),
    (_all(_is_flag), "each true or false", ("epilogue_has_operand",)),
)
_TESTS = {name: (test, what) for test, what, names in _RULES for name in names}

_MEASURED = (
    *("shape", "addr", "nbytes", "size", "tile", "origin", "extent", "position"),
    *("rows", "row_bytes", "pitch", "planes"),
)
"""What the names of params have in them that are sizes, places or counts."""

_TOGETHER = (
    ("input_addrs", "input_spaces", "input_dtypes", "input_shapes", "input_rows"),
    (
        "epilogue_addrs",
        "epilogue_spaces",
        "epilogue_dtypes",
        "epilogue_shapes",
        "epilogue_rows",
    ),
    ("epilogue", "epilogue_scopes", "epilogue_scalars", "epilogue_has_operand"),
    ("scalars", "scalar_positions"),
    ("spaces", "addrs", "sizes"),
)
"""Lists with an item for each operand, step, scalar or range: equally long."""

_FORM = ("rows", "row_bytes", "pitch")
"""Lists with an item for each block of a tile; all of them are there, or none."""


def is_checked(kind: str, name: str) -> bool:
    """Whether the params of ops of that kind and name have to be something."""
    is_executed = KIND_RANK.get(kind, KIND_RANK["unknown"]) < KIND_RANK["unknown"]
    return is_executed or name.startswith(TILE_PREFIX)


@lru_cache(maxsize=1024)
def is_measured(path: str) -> bool:
    """Whether the param at a path, as "shape.0", is a number of 0 to 2^52."""
    name = path.partition(".")[0]
    return name in ("m", "k", "n") or any(part in name for part in _MEASURED)


def check_params(params: Mapping[str, Any]) -> None:
    """TraceFormatError, which names the param, unless each is what its name says."""
    for name, value in params.items():
        rule = _TESTS.get(name)
        if rule is None:
            continue
        test, what = rule
        if not test(value):
            raise TraceFormatError(f"{name} is {value!r:.60}, and has to be {what}")
    for names in _TOGETHER:
        lengths = {len(params[name]) for name in names if name in params}
        if len(lengths) > 1:
            raise TraceFormatError(f"{', '.join(names)} are not equally long")
    if "addrs" in params and not params.keys().isdisjoint(_FORM):
        _check_form(params)


def _check_form(params: Mapping[str, Any]) -> None:
    """TraceFormatError unless the form of a tile's blocks is told for each of them."""
    for name in _FORM:
        values = params.get(name)
        if not isinstance(values, list | tuple) or len(values) != len(params["addrs"]):
            raise TraceFormatError(
                f"{', '.join(_FORM)} have to be lists as long as addrs"
            )


# -- records that somebody has made by hand --------------------------------------------

_NEEDED: dict[str, frozenset[str]] = {
    "memory": frozenset(("shape", "dtype")),
    "gemm": frozenset(
        (
            *("src_a_space", "src_b_space", "dst_space", "dst_addr"),
            *("shape_out", "dtype_out", "m", "k", "n"),
        )
    ),
    "math": frozenset(("op", "input_spaces", "input_dtypes", "dst_space", "dst_addr")),
}
"""The params of each kind that ``completed`` can make of others."""


def completed(record: OpRecord) -> OpRecord:
    """``record`` with the params that our logger gives such an op.

    It is the record itself if it has them. A record may have those of ADR-0020 D5 (one
    ``addr_space`` and ``dtype`` for all operands, a copy of so many bytes, operands of
    column-major layout) or of ADR-0052 D3 alone. What cannot be made is left out; who
    executes the record says what it lacks.
    """
    kind = record.op_kind
    if kind not in _NEEDED:
        return record
    params = record.params
    if _lacks_some(kind, tuple(params)):
        params = _DEFAULTS[kind](record) | params
    if "col_major" in (params.get("layout_a"), params.get("layout_b")):
        with suppress(KeyError, ValueError):  # some are missing, or no matrices
            params = _row_major(params)
    return record if params is record.params else replace(record, params=params)


@lru_cache(maxsize=1024)
def _lacks_some(kind: str, names: tuple[str, ...]) -> bool:
    """Whether params of these names are not all that ``completed`` could make."""
    return not _NEEDED[kind].issubset(names)


def _of_memory(record: OpRecord) -> Params:
    """A copy of ``nbytes`` is one of bytes."""
    params = record.params
    if "shape" in params or "nbytes" not in params:
        return {}
    return {"shape": (params["nbytes"],), "dtype": "u8"}


def _of_gemm(record: OpRecord) -> Params:
    """All operands lie in ``addr_space``, the TCM; the output is the product.

    A composite writes to HBM.
    """
    params = record.params
    space = params.get("addr_space", "tcm")
    made = {"src_a_space": space, "src_b_space": space, "dst_space": space}
    if "src_acc_addr" in params:
        made["src_acc_space"] = space
    if "out_addr" in params:
        made |= {"dst_space": "hbm", "dst_addr": params["out_addr"]}
    if "dtype_in" in params:
        made["dtype_out"] = params["dtype_in"]
    a = tuple(params.get("shape_a", ()))
    b = tuple(params.get("shape_b", ()))
    if len(a) == len(b) == 2:
        m, k = _turned(a) if params.get("transpose_a") else a
        _, n = _turned(b) if params.get("transpose_b") else b
        made |= {"shape_out": (m, n), "m": m, "k": k, "n": n}
    return made


def _of_math(record: OpRecord) -> Params:
    """All operands lie in ``addr_space``, the TCM, and are of one dtype.

    A composite writes to HBM.
    """
    params = record.params
    space = params.get("addr_space", "tcm")
    inputs = len(params.get("input_addrs", ()))
    made = {
        "op": record.op_name,
        "input_spaces": [space] * inputs,
        "dst_space": space,
    }
    if "out_addr" in params:
        made |= {"dst_space": "hbm", "dst_addr": params["out_addr"]}
    if "dtype" in params:
        made["input_dtypes"] = [params["dtype"]] * inputs
    return made


_DEFAULTS: dict[str, Callable[[OpRecord], Params]] = {
    "memory": _of_memory,
    "gemm": _of_gemm,
    "math": _of_math,
}


def _row_major(params: Params) -> Params:
    """A product of column-major operands as one of row-major operands.

    The bytes of a column-major matrix are those of its transpose in row-major order.
    """
    made = dict(params)
    for x in ("a", "b"):
        if made.get(f"layout_{x}") == "col_major":
            made[f"layout_{x}"] = "row_major"
            made[f"shape_{x}"] = _turned(made[f"shape_{x}"])
            made[f"transpose_{x}"] = not made.get(f"transpose_{x}", False)
    return made


def _turned(shape: Any) -> tuple[int, ...]:
    """The shape of the transpose of each matrix."""
    *outer, rows, columns = shape
    return (*outer, columns, rows)
