"""What holds of every exporter: whole files or none, one line where it cannot be."""

import errno
import json
from dataclasses import asdict

import pytest
from trace_kinds import KINDS

from kernbench.errors import KernbenchError, UsageError
from kernbench.trace.export import EXPORTERS, Exporter, export


@pytest.fixture
def out(tmp_path):
    folder = tmp_path / "here"
    folder.mkdir()
    return folder / "out"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", EXPORTERS)
def test_every_exporter_writes_every_trace(make, out, name, kind):
    trace = make(kind)
    shares = []
    answer = export(trace, name, str(out), shares.append)
    assert list(out.parent.iterdir()) == [out]
    assert out.is_dir() == (EXPORTERS[name].makes == "folder")
    assert answer.counts.get("ops", len(trace.ops)) == len(trace.ops)
    assert shares == sorted(shares)
    assert all(0 <= share <= 1 for share in shares)
    for kind, count in answer.counts.items():
        assert f"{count:,} {kind}" in "\n".join(answer.lines(80))
    assert json.loads(json.dumps(asdict(answer)))["format"] == name


@pytest.mark.parametrize("name", EXPORTERS)
def test_the_same_trace_gives_the_same_bytes(make, out, name):
    written = []
    for folder in ("a", "b"):
        export(make("every_kind_of_op"), name, str(out.parent / folder))
        made = sorted((out.parent / folder).rglob("*")) or [out.parent / folder]
        written.append([path.read_bytes() for path in made])
    assert written[0] == written[1]


@pytest.mark.parametrize("name", EXPORTERS)
def test_an_export_that_is_broken_off_leaves_nothing(shipped_trace, out, name):
    def stop(done):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        export(shipped_trace, name, str(out), stop)
    assert list(out.parent.iterdir()) == []


def test_a_full_disk_is_one_line_and_leaves_nothing(shipped_trace, out, monkeypatch):
    def full(trace, path, progress):
        path.write_text("half")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setitem(EXPORTERS, "half", Exporter("half", "", full, "file"))
    with pytest.raises(
        KernbenchError, match=r"cannot export to .*out: No space left on device"
    ):
        export(shipped_trace, "half", str(out))
    assert list(out.parent.iterdir()) == []


def test_a_row_is_all_that_a_new_format_needs(shipped_trace, out, monkeypatch):
    def count(trace, path, progress):
        path.write_text(str(len(trace.ops)))
        return {"ops": len(trace.ops)}

    row = Exporter("count", "the number of ops", count, "file")
    monkeypatch.setitem(EXPORTERS, "count", row)
    out.write_text("old")
    answer = export(shipped_trace, "count", str(out))
    assert out.read_text() == str(len(shipped_trace.ops))
    assert answer.counts == {"ops": len(shipped_trace.ops)}


def test_what_a_format_requires_and_is_not_there_is_named(
    shipped_trace, out, monkeypatch
):
    row = Exporter(
        "strange", "", lambda *_: {}, "file", requires="no_such_module", extra="odd"
    )
    monkeypatch.setitem(EXPORTERS, "strange", row)
    wanted = "strange needs no_such_module: pip install 'kernbench[odd]'"
    with pytest.raises(KernbenchError) as error:
        export(shipped_trace, "strange", str(out))
    assert str(error.value).startswith(f"{wanted}, or export perfetto")
    assert list(out.parent.iterdir()) == []


@pytest.mark.parametrize("exporter", EXPORTERS.values(), ids=list(EXPORTERS))
def test_every_row_says_what_it_writes(exporter):
    assert EXPORTERS[exporter.name] is exporter
    assert exporter.help
    assert exporter.makes in ("file", "folder")


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


@pytest.mark.parametrize("name", [n for n in EXPORTERS if EXPORTERS[n].makes != "file"])
@pytest.mark.parametrize("there", ["a folder", "a file"])
def test_a_folder_replaces_nothing_that_is_there(shipped_trace, out, name, there):
    mine = out
    if there == "a folder":
        out.mkdir()
        mine = out / "mine"
    mine.write_text("mine")
    with pytest.raises(KernbenchError, match=r"it exists already.*; name another"):
        export(shipped_trace, name, str(out))
    assert mine.read_text() == "mine"


def test_a_file_replaces_a_file(shipped_trace, out):
    out.write_text("old")
    export(shipped_trace, "perfetto", str(out))
    assert json.loads(out.read_text())["traceEvents"]


@pytest.mark.parametrize("name", EXPORTERS)
def test_a_name_may_be_as_long_as_the_file_system_allows(shipped_trace, out, name):
    longest = out.with_name("n" * 255)
    export(shipped_trace, name, str(longest))
    assert list(out.parent.iterdir()) == [longest]


def test_a_folder_may_be_replaced_whatever_its_name(shipped_trace, out):
    for name in ("made", "replaced"):
        folder = out.with_name(name)
        export(shipped_trace, "csv", str(folder))
        made = contents(folder)
        (folder / "ops.csv").write_text("of a run before")
        export(shipped_trace, "csv", str(folder), force=True)
        assert contents(folder) == made
    assert {kept.name for kept in out.parent.iterdir()} == {"made", "replaced"}


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_an_unknown_format_lists_the_valid_ones(shipped_trace, out):
    with pytest.raises(
        UsageError, match="unknown format 'pdf'; valid: perfetto, pftrace, parquet, csv"
    ):
        export(shipped_trace, "pdf", str(out))
