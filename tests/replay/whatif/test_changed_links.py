"""The links of a machine with another number, against those of that machine built."""

import tracemalloc
from dataclasses import replace

import numpy as np
import pytest

from kernbench.replay.whatif.changed_machines import OF_LINKS
from kernbench.replay.whatif.fields import (
    Change,
    all_fields,
    parse_change,
    value_of,
    with_changes,
)
from kernbench.replay.whatif.links import ChangedLinks, links_with
from kernbench.runtime_api import run_bench
from kernbench.topology import recorded_spec
from kernbench.trace import Trace

MACHINES = {
    "shipped": {},
    "one cube": {
        "system.sips.count": 1,
        "sip.cube_mesh.w": 1,
        "sip.cube_mesh.h": 1,
    },
    "a column": {"sip.cube_mesh.w": 1, "sip.cube_mesh.h": 3, "cube.pes": 4},
    "a row of cubes and more chiplets": {
        "system.sips.count": 3,
        "sip.cube_mesh.w": 5,
        "sip.cube_mesh.h": 1,
        "sip.io.count": 3,
        "cube.pes": 2,
    },
}


@pytest.fixture(scope="module", params=[*MACHINES])
def trace(request, tmp_path_factory):
    path = tmp_path_factory.mktemp("links") / "softmax.msgpack"
    params = {"m": 16, "n": 32, "pes": 1}
    spec = MACHINES[request.param]
    if "cube.pes" in spec:
        spec = {**spec, "cube.memory_map.slices_per_cube": spec["cube.pes"]}
    run_bench("softmax", params=params, spec=spec, trace=path)
    return Trace.open(path)


def same(one, other):
    """Whether both are the same links, or both none."""
    if one is None or other is None:
        return one is other
    return all(map(np.array_equal, one, other))


@pytest.mark.slow
def test_each_field_that_links_depend_on_changes_them_as_a_machine_does(trace):
    spec = recorded_spec(trace.spec)
    changed = ChangedLinks(trace, spec)
    seen = 0
    for field in all_fields().values():
        value = value_of(spec, field.path)
        if not field.path.startswith(OF_LINKS) or not isinstance(value, float):
            continue
        change = Change(field, value * 2 + 1, field.path)
        other = with_changes(spec, (change,))
        assert same(changed.with_(other), links_with(trace, other)), field.path
        seen += 1
    assert seen == 20


@pytest.mark.parametrize(
    "text", ["sip.cube_mesh.h=2", "cube.size_mm.w=17", "system.ns_per_mm=0.5"]
)
@pytest.mark.slow
def test_other_nodes_and_lengths_are_those_of_the_machine_built(trace, text):
    change = parse_change(text)
    spec = recorded_spec(trace.spec)
    other = with_changes(spec, (change,))
    found = ChangedLinks(trace, spec).with_(other)
    assert same(found, links_with(trace, other))
    assert not same(found, links_with(trace, spec))


class Another:
    """A trace with other columns of links or of nodes."""

    def __init__(self, trace, **changed):
        self._trace = trace
        for name, columns in changed.items():
            setattr(self, name, replace(getattr(trace, name), **columns))

    def __getattr__(self, name):
        return getattr(self._trace, name)


def test_links_that_are_not_of_their_spec_are_built(trace):
    spec = recorded_spec(trace.spec)
    other = with_changes(spec, (parse_change("cube.router.overhead_ns=9"),))
    speed = np.array(trace.edges.bandwidth_gbs[:])
    speed[0] *= 3
    faster = Another(trace, edges={"bandwidth_gbs": speed})
    assert same(ChangedLinks(faster, spec).with_(other), links_with(trace, other))


@pytest.mark.slow
def test_a_long_name_of_a_type_is_not_kept_for_every_link(trace):
    spec = recorded_spec(trace.spec)
    other = with_changes(spec, (parse_change("cube.router.overhead_ns=9"),))
    types = ["x" * 60_000, *trace.nodes.type[1:]]
    changed = ChangedLinks(Another(trace, nodes={"type": types}), spec)
    tracemalloc.start()
    try:
        assert same(changed.with_(other), links_with(trace, other))
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 64 << 20
