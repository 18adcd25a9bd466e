"""The op's details beside the strip: facts that wrap, code that does not."""

from __future__ import annotations

from bench import PaneBench, ops_of

from tui.panes.details import DetailsPane


def details(op: int, width: int = 36, height: int = 14) -> PaneBench:
    return PaneBench(DetailsPane, "matmul", op, width, height)


def test_code_is_cut_and_not_wrapped_however_narrow_the_pane() -> None:
    """In a narrow column a line of the kernel took four."""
    bench = details(16)
    (here,) = [i for i, line in enumerate(bench.lines) if line.startswith(">")]
    numbers = [line[1:5] for line in bench.lines[here - 1 : here + 2]]
    assert [int(number) for number in numbers] == [21, 22, 23]
    assert len(bench.lines[here]) == 36
    assert bench.lines[here].endswith("…")


def test_code_that_is_far_in_begins_at_the_left() -> None:
    """Of a line of a library in three blocks ``self.combine…`` was seen."""
    bench = PaneBench(DetailsPane, "ccl_allreduce", 100, 36, 14)
    (here,) = [line for line in bench.lines if line.startswith(">")]
    (around,) = [
        line for line in bench.lines if line[1:5] == f"{int(here[1:5]) - 1:>4}"
    ]
    first = min(len(line[7:]) - len(line[7:].lstrip()) for line in (here, around))
    assert first == 0


def test_a_long_component_is_broken_behind_a_dot() -> None:
    """It was ``pe_fetch_sto`` and ``re``."""
    bench = PaneBench(DetailsPane, "matmul", 75, 36, 14)
    assert bench.lines[0].endswith("sip0.cube0.pe3.")
    assert bench.lines[1].strip() == "pe_fetch_store, lane 0"


def test_all_that_is_recorded_is_there_with_the_code_between() -> None:
    bench = details(100, height=60)
    (wait,) = [line for line in bench.lines if line.startswith(" waited")]
    assert " for engine at " in " ".join(bench.text.split())
    code = next(i for i, line in enumerate(bench.lines) if line.startswith(">"))
    assert bench.lines.index(wait) < code


def test_the_component_of_an_op_is_told_in_full() -> None:
    for op in ops_of(details(0).index, "sip0.cube0.pe4.pe_dma"):
        text = "".join(line[9:] for line in details(op).lines[:2])
        assert text.startswith("sip0.cube0.pe4.pe_dma, lane")


def test_names_of_parameters_are_not_cut_beside_short_values() -> None:
    """They were ``out_ad…`` and ``dst_ad…``, beside 20 blank columns."""
    lines = details(16, height=60).lines
    for name in ("out_addr", "out_nbytes", "src_a_addr", "dst_addr"):
        assert any(line.startswith(f" {name} ") for line in lines), name
    flash = PaneBench(DetailsPane, "flash_attention", 150, 36, 60).lines
    assert any(line.startswith(" input_dtypes ") for line in flash)
