"""What holds of every exporter: whole files or none, one line where it cannot be."""

import errno
import json
from dataclasses import asdict

import pytest
from trace_kinds import KINDS

from kernbench.errors import KernbenchError, UsageError
from kernbench.trace.export import EXPORTERS, export


@pytest.fixture
def out(tmp_path):
    folder = tmp_path / "here"
    folder.mkdir()
    return folder / "out"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", EXPORTERS)
def test_every_exporter_writes_every_trace(make, out, name, kind):
    trace, shares = make(kind), []
    answer = export(trace, name, str(out), shares.append)
    assert list(out.parent.iterdir()) == [out]
    assert answer.counts["slices" if name == "perfetto" else "ops"] == len(trace.ops)
    assert shares == sorted(shares)
    assert all(0 <= share <= 1 for share in shares)
    assert f"{len(trace.ops):,}" in "\n".join(answer.lines(80))
    assert json.loads(json.dumps(asdict(answer)))["format"] == name


@pytest.mark.parametrize("name", EXPORTERS)
def test_the_same_trace_gives_the_same_bytes(make, out, name):
    written = []
    for folder in ("a", "b"):
        export(make("every_kind_of_op"), name, str(out.parent / folder))
        files = sorted(
            path for path in (out.parent / folder).rglob("*") if path.is_file()
        )
        files = files or [out.parent / folder]
        written.append([path.read_bytes() for path in files])
    assert written[0] == written[1]


@pytest.mark.parametrize("name", EXPORTERS)
def test_an_export_that_is_broken_off_leaves_nothing(shipped_trace, out, name):
    def stop(done):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        export(shipped_trace, name, str(out), stop)
    assert list(out.parent.iterdir()) == []


def test_a_full_disk_is_one_line_and_leaves_nothing(shipped_trace, out, monkeypatch):
    def full(trace, path, tell):
        path.write_text("half")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setitem(EXPORTERS, "perfetto", full)
    with pytest.raises(
        KernbenchError, match=r"cannot export to .*out: No space left on device"
    ):
        export(shipped_trace, "perfetto", str(out))
    assert list(out.parent.iterdir()) == []


@pytest.mark.parametrize("name", EXPORTERS)
@pytest.mark.parametrize("place", ["no/such/folder", "file/below", "."])
def test_a_place_that_cannot_be_written_is_one_line(
    shipped_trace, tmp_path, name, place
):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(KernbenchError) as error:
        export(shipped_trace, name, str(tmp_path / place))
    assert f"cannot export to {tmp_path / place}: " in str(error.value)
    assert "\n" not in str(error.value)
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("name", ["parquet", "csv"])
@pytest.mark.parametrize("there", ["a folder", "a file"])
def test_tables_replace_nothing_that_is_there(shipped_trace, out, name, there):
    mine = out
    if there == "a folder":
        out.mkdir()
        mine = out / "mine"
    mine.write_text("mine")
    with pytest.raises(KernbenchError, match="exists already; name another"):
        export(shipped_trace, name, str(out))
    assert mine.read_text() == "mine"


def test_a_file_replaces_a_file(shipped_trace, out):
    out.write_text("old")
    export(shipped_trace, "perfetto", str(out))
    assert json.loads(out.read_text())["traceEvents"]


def test_an_unknown_format_lists_the_valid_ones(shipped_trace, out):
    with pytest.raises(
        UsageError, match="unknown format 'pdf'; valid: perfetto, parquet, csv"
    ):
        export(shipped_trace, "pdf", str(out))
