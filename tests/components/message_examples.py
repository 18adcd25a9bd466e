"""A message of every type that components serve, for the contract tests.

A message is made from the types of its fields, so that a new one of regions and numbers
needs no entry here. FIELDS holds what that would not get right.
"""

from collections.abc import Callable
from dataclasses import MISSING, fields
from functools import partial
from typing import Any, get_origin, get_type_hints

import numpy as np

from kernbench.common.messages import (
    STAGE_ENGINES,
    HostReadCmd,
    HostWriteCmd,
    MsgBase,
    Region,
    Stage,
    TileToken,
)
from kernbench.common.pe_commands import (
    CompositeCmd,
    CompositeMathCmd,
    DmaReadCmd,
    DmaWriteCmd,
    MathCmd,
)
from kernbench.common.phys_addr import PhysAddr

HBM = PhysAddr.pe_hbm_addr(0, 0, 0, 0, 6 << 30).encode()
IN_TCM = Region("tcm", 0, (64, 64), "f16", 8192)
IN_HBM = Region("hbm", HBM, (64, 64), "f16", 8192)
BEHIND_IT = Region("hbm", HBM + 8192, (64, 64), "f16", 8192)

FIELDS = {
    HostReadCmd: {"src": IN_HBM},
    HostWriteCmd: {"dst": IN_HBM, "data": np.zeros((64, 64), np.float16)},
    DmaReadCmd: {"src": IN_HBM},
    DmaWriteCmd: {"dst_addr": HBM},
    MathCmd: {"op": "exp"},
    CompositeCmd: {
        "op": "gemm",
        "a": IN_HBM,
        "b": IN_HBM,
        "out": BEHIND_IT,
        "tile": (64, 64, 64),
    },
    CompositeMathCmd: {
        "op": "exp",
        "inputs": (IN_HBM,),
        "out": BEHIND_IT,
        "tile": (64, 64, 1),
    },
}


def data_ops(name, kind):
    """The data ops that a registry entry serves: what each is, and how to make one."""
    found = {}
    for type_ in kind.serves:
        if type_ is TileToken:
            for stage_type, engine in STAGE_ENGINES.items():
                if engine == name:
                    found[f"tile {stage_type.value}"] = partial(tile, stage_type)
        elif type_.data_op:
            found[type_.__name__] = partial(message, type_)
    return found


def message(type_):
    """A message, made from the types of the fields that have no default."""
    hints = get_type_hints(type_)
    values = {}
    for field in fields(type_):
        has_default = field.default is not MISSING
        if field.init and not has_default and field.default_factory is MISSING:
            values[field.name] = value(hints[field.name])
    return type_(**values | FIELDS.get(type_, {}))


def value(hint):
    """A value for a field of that type."""
    if hint is Region:
        return IN_TCM
    if get_origin(hint) is tuple:
        return (IN_TCM,)
    if get_origin(hint) is Callable:
        return lambda *args: None
    if hint is Any:
        return None
    return {int: 64, str: "name", float: 1.0}[hint]


def tile(stage_type):
    """A tile of 64^3 that is in the stage."""
    params = {
        "extent": (64, 64, 64),
        "nbytes": 8192,
        "ops": ["relu"],
        "addrs": [HBM],
        "sizes": [8192],
        "spaces": ["hbm"],
    }
    stage = Stage(stage_type, "", params)
    return TileToken(composite=MsgBase(), index=(0, 0, 0), stages=(stage,))
