"""The columns of the logs: what is stated of them is so, and the page says it."""

from dataclasses import fields

import numpy as np
import pytest

from kernbench.trace.columns import COLUMN_CLASSES, LOGS, tables_as_markdown
from kernbench.trace.schema import CODES, FIXED_TABLES

TABLES = {"node", "string", "text", "path", "space", *FIXED_TABLES}
ALL = [(tag, name) for tag, log in LOGS.items() for name in log]

MAPPED = {
    "ops": "op_columns",
    "transfers": "transfers",
    "waits": "waits",
    "commands": "commands",
    "alloc": "alloc_columns",
}
"""The logs that a trace gives as columns, and as what."""


def page_of(tag):
    """The rows of the table of a log: cells by the name of the column."""
    (page,) = [p for p in tables_as_markdown() if p.startswith(f"### `{tag}`\n")]
    heading, _, *columns = [line for line in page.splitlines() if line[:1] == "|"]
    names = [cell.strip() for cell in heading.strip("|").split("|")]
    rows = {}
    for line in columns:
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        rows[cells[0].strip("`")] = dict(zip(names, cells, strict=True))
    return rows


@pytest.mark.parametrize(("tag", "name"), ALL)
def test_a_column_has_types_of_the_format_and_a_known_table(tag, name):
    column = LOGS[tag][name]
    assert column.widest in CODES
    assert column.narrowest in ("n", *CODES)
    assert column.table in ("", *TABLES)
    log, _, joined = column.joins.partition(".")
    assert not column.joins or log in LOGS
    assert not joined or joined in LOGS[log]
    assert column.meaning


@pytest.mark.parametrize(("tag", "name"), ALL)
def test_a_time_has_a_unit(tag, name):
    column = LOGS[tag][name]
    if column.widest == "f8":
        assert column.unit


@pytest.mark.parametrize("tag", MAPPED)
def test_a_mapped_column_gives_the_type_that_is_stated(trace, tag):
    log = getattr(trace, MAPPED[tag])
    page = page_of(tag)
    for field in fields(log):
        if field.name == "spaces":
            continue
        column = getattr(log, field.name)
        stated = page[field.name]["in memory"].removesuffix("[]")
        assert column.dtype == column[:1].dtype == np.dtype(stated)


def test_every_column_of_a_log_is_on_the_page_in_its_order():
    for tag, log in COLUMN_CLASSES.items():
        assert list(page_of(tag)) == [field.name for field in fields(log)]


def test_the_page_says_of_a_column_all_that_is_stated():
    waits = page_of("waits")
    assert waits["t0"] == {
        "column": "`t0`",
        "on disk": "f8",
        "in memory": "f8",
        "unit": "ns",
        "refers to": "",
        "meaning": "since when",
    }
    assert waits["node"]["on disk"] == "n to u4"
    assert waits["node"]["refers to"] == "node"
    assert waits["holder"]["in memory"] == "i8"
    assert waits["holder"]["refers to"] == "ops"


def test_the_page_marks_lists_and_columns_that_are_in_no_file():
    ops = page_of("ops")
    assert (ops["dep"]["on disk"], ops["dep"]["in memory"]) == ("u4[]", "i8[]")
    assert ops["kind"]["on disk"] == "-"
    assert page_of("nodes")["type"]["in memory"] == "list of str"
    assert page_of("edges")["src"]["in memory"] == "as on disk"
