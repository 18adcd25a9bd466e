"""The key of a point: a hash of all that its result depends on.

That is kernbench's own files, the source of the bench and the plugins, the parameters
with their defaults, the whole machine, the collectives, the seed, and the options of
the run. So a result is used again just as long as it would come out the same; a file
that a bench imports itself is not seen.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from kernbench.ccl.config import load_ccl
from kernbench.errors import KernbenchError
from kernbench.runtime_api.own_code import code_sha
from kernbench.runtime_api.registry import bind_params, source_of
from kernbench.runtime_api.run import machine_of
from kernbench.runtime_api.user_files import sha_of
from kernbench.sweep.space import Point, Space
from kernbench.topology import load_spec


class Keys:
    """Gives the keys of the points of one space."""

    def __init__(self, space: Space) -> None:
        self._space = space
        self._machines: dict[str, str] = {}
        options = space.options
        source = source_of(space.entry)
        shared = {
            "code": code_sha(),
            "bench": space.entry.name,
            "source": source and source.sha,
            "plugins": [sha_of(Path(path)) for path in options.plugins],
            "ccl": asdict(load_ccl(options.ccl)),
            "verify": options.verify,
            "max_ns": options.max_ns,
            "max_ops": options.max_ops,
        }
        self._shared_sha = _sha(shared)

    def of(self, point: Point) -> str:
        """The key of a point, 64 characters of hex."""
        bound = bind_params(self._space.entry, point.params)
        machine = self._machine(bound, point.spec)
        return _sha([self._shared_sha, bound, machine, point.seed])

    def _machine(self, bound: dict[str, Any], spec: Mapping[str, Any]) -> str:
        """A hash of the machine of a point; of one that is not sound, of its fields."""
        try:
            fields = {**machine_of(self._space.entry, bound), **spec}
            given = json.dumps(fields, default=repr)
            if given not in self._machines:
                whole = load_spec(self._space.options.topology_file, fields)
                self._machines[given] = _sha(asdict(whole))
            return self._machines[given]
        except KernbenchError as error:  # running the point says it again
            return _sha([bound, dict(spec), str(error)])


def _sha(data: Any) -> str:
    """The SHA-256 of data as JSON, in hex."""
    text = json.dumps(data, sort_keys=True, default=repr)
    return hashlib.sha256(text.encode()).hexdigest()
