"""Fields of DRAM that make no sense are refused, with what would fit.

So is every rate, time and length that no machine has, since its run would not end.
"""

import re
from dataclasses import replace
from random import Random

import pytest

from kernbench.errors import TopologyError
from kernbench.probes import channel
from kernbench.topology import TopologySpec
from kernbench.topology.section import leaf_types
from kernbench.topology.spec import HbmSpec, load_spec

UNITS = ("_gbs", "_ghz", "_ns", "_mm")
RATES_AND_TIMES = [
    path
    for path, _ in leaf_types(TopologySpec)
    if path.endswith(UNITS) or ".rate." in path or path.startswith("cube.size_mm.")
    if not path.startswith("energy.")
]
OF_HBM = [path for path in RATES_AND_TIMES if path.startswith("cube.hbm.")]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"bank_groups": 3}, "bank_groups: 3 groups for 16 .* 1, 2, 4, 8, 16"),
        ({"cube.hbm.banks": 0}, "cube.hbm.banks: must be a whole number from 1"),
        ({"row_bytes": 100}, "row_bytes: 100 is no whole number .* 128 is"),
        (
            {"trfc_ns": 4000},
            "trfc_ns: a refresh of 4000 ns every 3900 .* from 0 to 3510, 90% of that",
        ),
        ({"trfc_ns": 3899.9999999}, "a refresh of 3900 ns every 3900 .* 0 to 3510"),
        (
            {"trcd_ns": -1},
            "trcd_ns: must be a number from 0 to 1e.06, not -1.0",
        ),
        ({"trefi_ns": 0}, "trefi_ns: must be a number from 1 to 1e.06, not 0.0"),
        ({"cube.hbm.model": "fast"}, "must be one of banked, ideal"),
        ({"channel_hash": "sum"}, "must be one of xor, none"),
    ],
)
def test_a_channel_that_makes_no_sense_names_field_value_and_what_fits(fields, said):
    with pytest.raises(TopologyError, match=said):
        load_spec(None, fields)


@pytest.mark.parametrize("value", [-1.0, 1e-300, 1e300])
@pytest.mark.parametrize("path", RATES_AND_TIMES)
def test_a_rate_or_a_time_that_no_machine_has_names_field_value_and_range(path, value):
    may_be_short = path.endswith(("_ns", "_mm")) and path != "cube.hbm.trefi_ns"
    if may_be_short and value == 1e-300:
        load_spec(None, {path: value})
        return
    shown = re.escape(str(value))
    said = rf"{re.escape(path)}: must be a number from \S+ to \S+, not {shown}"
    with pytest.raises(TopologyError, match=said):
        load_spec(None, {path: value})


def valid_range(path):
    """The least and the greatest valid value, as the message for a wrong one says."""
    with pytest.raises(TopologyError) as raised:
        load_spec(None, {path: -1.0})
    low, high = re.search(r"from (\S+) to (\S+), not", str(raised.value)).groups()
    return float(low), float(high)


@pytest.mark.parametrize("path", OF_HBM)
@pytest.mark.slow
def test_a_channel_of_the_least_and_the_greatest_valid_values_ends(path):
    random = Random(1)
    requests = [
        (0.0, random.choice("rw"), random.randrange(1 << 20) * 64, 256)
        for _ in range(300)
    ]
    _, _, name = path.rpartition(".")
    for value in valid_range(path):
        fields = {name: value}
        if name == "trfc_ns":
            value = min(value, 0.9 * HbmSpec().trefi_ns)
            fields = {name: value}
        elif name == "trefi_ns" and value < HbmSpec().trfc_ns:
            fields["trfc_ns"] = 0.9 * value
        ends = channel(replace(HbmSpec(), **fields), requests)
        assert all(0 < end < 1e10 for end in ends)
