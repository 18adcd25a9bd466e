"""``ccl.yaml``: the shipped file, defaults, and a clear error for every wrong field."""

from inspect import signature

import pytest

from kernbench.ccl.config import load_ccl
from kernbench.errors import TopologyError

ENTRY = "algorithms: {mine: {module: some.where, %s}}\n"


@pytest.fixture
def ccl(tmp_path):
    """ccl(text): what load_ccl makes of a file that holds it."""

    def ccl(text):
        (tmp_path / "ccl.yaml").write_text(text)
        return load_ccl(tmp_path / "ccl.yaml")

    return ccl


def test_the_shipped_file_names_the_algorithms_and_the_default():
    spec = load_ccl()
    assert {"intercube_allreduce", "ring_chunked_allreduce"} <= set(spec.algorithms)
    assert spec.of().name == "intercube_allreduce"


def test_the_shipped_queues_are_those_of_the_machine_table():
    cfg = load_ccl().of()
    queues = (cfg.buffer_kind, cfg.slots, cfg.slot_bytes, cfg.credit_bytes)
    assert queues == ("tcm", 4, 4096, 16)


@pytest.mark.parametrize("name", load_ccl().algorithms)
def test_every_shipped_module_keeps_the_contract(name):
    module = load_ccl().of(name).load()
    kinds = (module.SIP_TOPO_RING, module.SIP_TOPO_TORUS, module.SIP_TOPO_MESH)
    assert kinds == (0, 1, 2) == tuple(module.TOPO_NAME_TO_KIND.values())
    assert list(module.TOPO_NAME_TO_KIND) == ["ring_1d", "torus_2d", "mesh_2d_no_wrap"]
    assert module.kernel_args(2, 8) == (8, 4, 4, 2)
    positional = (
        "t_ptr n_elem cube_w cube_h n_sips sip_rank "
        "sip_topo_kind sip_topo_w sip_topo_h tl"
    )
    assert list(signature(module.kernel).parameters) == [*positional.split(), "op"]


def test_an_algorithm_takes_what_it_lacks_from_the_defaults(ccl):
    spec = ccl(
        "defaults: {algorithm: mine, slots: 7, buffer_kind: hbm}\n" + ENTRY % "slots: 2"
    )
    assert (spec.of().slots, spec.of().buffer_kind) == (2, "hbm")


def test_any_name_of_an_algorithm_is_valid(ccl):
    spec = ccl("defaults: {algorithm: a.b}\nalgorithms: {a.b: {module: c}}")
    assert spec.of("a.b").module == "c"


@pytest.mark.parametrize(
    ("field", "problem"),
    [
        (
            "slots: 0",
            r"ccl\.yaml:1: algorithms\.mine\.slots: must be a whole number from 1 to",
        ),
        ("slots: yes", "must be a whole number from 1 to .*, not True"),
        ("slot_bytes: 1.5", "slot_bytes: must be a whole number"),
        ("credit_bytes: -1", "credit_bytes: must be a whole number"),
        ("n_elem: 0", "n_elem: must be a whole number"),
        ("root_cube: 16", "root_cube: must be a whole number from -1 to 15, not 16"),
        ("buffer_kind: l2", "buffer_kind: must be one of tcm, sram, hbm, not 'l2'"),
        ("topology: ring_1d", "topology: must be one of none, not 'ring_1d'"),
        (
            "slot: 4",
            "mine.slot: unknown field; valid: topology, buffer_kind, slots, slot_bytes",
        ),
        ("slots: [4]", "must be one value, not a list"),
        ("module: other", "given twice; first on line 1"),
    ],
)
def test_a_wrong_field_is_named_with_its_file_line_and_valid_values(
    ccl, field, problem
):
    with pytest.raises(TopologyError, match=problem):
        ccl(ENTRY % field)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "the file is empty; fields: defaults, algorithms"),
        ("defaults: {}", "the field algorithms is missing"),
        (
            "algorithms: {mine: {slots: 2}}",
            "algorithms.mine: the field module is missing",
        ),
        ("algorithms: {mine: 3}", "algorithms.mine: must be a mapping with fields of"),
        ("algorithms: {mine: {module: ''}}", "module: must be a name, not ''"),
        ("rings: {}", "rings: unknown field; valid: defaults, algorithms"),
        (
            ENTRY % "slots: 1",
            "defaults.algorithm: must be one of mine, not 'intercube_allreduce'",
        ),
        (
            "defaults: {slots: x}\n" + ENTRY % "slots: 1",
            "ccl.yaml:1: defaults.slots: must be",
        ),
        ("a: [", "not valid YAML"),
    ],
)
def test_a_wrong_file_is_refused(ccl, text, problem):
    with pytest.raises(TopologyError, match=problem):
        ccl(text)


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(TopologyError, match=r"none\.yaml: cannot be read"):
        load_ccl(tmp_path / "none.yaml")


def test_an_unknown_algorithm_lists_the_valid_ones():
    with pytest.raises(
        TopologyError, match="'tree'; valid: intercube_allreduce, ring_chunked"
    ):
        load_ccl().of("tree")


@pytest.mark.parametrize(
    ("module", "problem"),
    [
        ("no.such", "no.such is not loaded, .*--plugin FILE.py, or name one of kernb"),
        ("json", "json lacks kernel, kernel"),
    ],
)
def test_a_module_without_the_contract_is_refused(ccl, module, problem):
    text = f"defaults: {{algorithm: mine}}\nalgorithms: {{mine: {{module: {module}}}}}"
    with pytest.raises(TopologyError, match=problem):
        ccl(text).of().load()
