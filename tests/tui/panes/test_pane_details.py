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
