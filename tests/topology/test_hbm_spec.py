"""Fields of DRAM that make no sense are refused, with what would fit."""

import pytest

from kernbench.errors import TopologyError
from kernbench.topology.spec import load_spec


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"bank_groups": 3}, "bank_groups: 3 groups for 16 .* 1, 2, 4, 8, 16"),
        ({"cube.hbm.banks": 0}, "cube.hbm.banks: must be a whole number from 1"),
        ({"row_bytes": 100}, "row_bytes: 100 is no whole number .* 128 is"),
        ({"trfc_ns": 4000}, "trfc_ns: a refresh of 4000 ns every 3900"),
        ({"trcd_ns": -1}, "cube.hbm.trcd_ns|trcd_ns: must be a number from 0"),
        ({"trefi_ns": 0}, "trefi_ns: must be a number above 0"),
        ({"cube.hbm.model": "fast"}, "must be one of banked, ideal"),
        ({"channel_hash": "sum"}, "must be one of xor, none"),
    ],
)
def test_a_channel_that_makes_no_sense_names_field_value_and_what_fits(fields, said):
    with pytest.raises(TopologyError, match=said):
        load_spec(None, fields)
