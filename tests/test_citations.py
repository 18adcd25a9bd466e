"""What the code cites is there: a section of a document, or a numbered decision.

A document is cited as docs/machine.md, "HBM" (the file is kernbench/docs/machine.md), a
decision as ADR-0052 D3, or as D3 alone in a file that names its ADR elsewhere.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parent.parent
PAGES = ROOT / "kernbench" / "docs"
CODE = ("kernbench", "tui", "tests")

_GAP = r"[\s#]+"
"""Where a citation is broken over two lines of a comment."""
_SECTION = r"[DA]\d+(?:\.\d+)?"
_AND = rf"(?:,{_GAP}|{_GAP}and{_GAP}|{_GAP}to{_GAP}|-)"
_DOCUMENT = re.compile(rf'(?<![\w/.-])([\w./-]+\.md)\b(?:,{_GAP}"([^"]+)")?')
_DECISION = re.compile(rf"ADR-(\d{{4}})(?:{_GAP}({_SECTION}(?:{_AND}{_SECTION})*)\b)?")
_PART = re.compile(rf"(?<![\w.'\"-]){_SECTION}\b(?!['\"])")


class Citation(NamedTuple):
    """A citation in a line of a file; ``problem`` is "" where it resolves."""

    file: Path
    line: int
    text: str
    problem: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.text}: {self.problem}"


def headings(page: Path) -> set[str]:
    """The headings of a page, without their marks."""
    lines = page.read_text(encoding="utf-8").splitlines()
    return {line.lstrip("#").strip() for line in lines if line.startswith("#")}


def decisions() -> dict[str, set[str]]:
    """The parts of each decision that the page of decisions has a heading for."""
    found: dict[str, set[str]] = {}
    for heading in headings(PAGES / "decisions.md"):
        numbered = re.match(rf"ADR-(\d{{4}})(?: ({_SECTION}))?:", heading)
        if numbered is not None:
            parts = found.setdefault(numbered[1], set())
            if numbered[2]:
                parts.add(numbered[2])
    return found


def cited_documents(file: Path, text: str) -> Iterator[Citation]:
    """Documents by their file, with or without a section."""
    for match in _DOCUMENT.finditer(text):
        path, section = match.groups()
        found = [base / path for base in (ROOT, ROOT / "kernbench")]
        page = next((place for place in found if place.is_file()), None)
        problem = ""
        if page is None:
            problem = "no such document"
        elif section is not None and plain(section) not in headings(page):
            problem = "no such section"
        yield Citation(file, line_of(text, match), plain(match[0]), problem)


def cited_decisions(file: Path, text: str) -> Iterator[Citation]:
    """Decisions by their number, and parts of those that the file names."""
    known = decisions()
    named: set[str] = set()
    spans = []
    for match in _DECISION.finditer(text):
        number, parts = match.groups()
        spans.append(match.span())
        named.add(number)
        problem = ""
        if number not in known:
            problem = "no such decision"
        else:
            asked = re.findall(_SECTION, parts or "")
            missing = [part for part in asked if part not in known[number]]
            if missing:
                problem = f"no heading for {', '.join(missing)}"
        yield Citation(file, line_of(text, match), plain(match[0]), problem)
    if not named:
        return
    parts_there = set().union(*(known.get(number, set()) for number in named))
    for match in _PART.finditer(text):
        inside = any(start <= match.start() < end for start, end in spans)
        if not inside and match[0] not in parts_there:
            problem = f"no such part of {', '.join(sorted(named))}"
            yield Citation(file, line_of(text, match), match[0], problem)


def citations(file: Path) -> list[Citation]:
    """All citations in a file, whether they resolve or not."""
    text = file.read_text(encoding="utf-8")
    shown = file
    if file.is_relative_to(ROOT):
        shown = file.relative_to(ROOT)
    return [*cited_documents(shown, text), *cited_decisions(shown, text)]


def plain(text: str) -> str:
    """A citation on one line."""
    return re.sub(_GAP, " ", text).strip()


def line_of(text: str, match: re.Match[str]) -> int:
    """The line that a match begins in, counted from 1."""
    return text.count("\n", 0, match.start()) + 1


def sources() -> list[Path]:
    """The files whose citations have to resolve."""
    found = [ROOT / "README.md", *sorted((ROOT / ".github").glob("*.md"))]
    for folder in CODE:
        for pattern in ("*.py", "*.yaml", "*.tcss", "*.md"):
            found += sorted((ROOT / folder).rglob(pattern))
    return [file for file in found if file != Path(__file__)]


@pytest.mark.slow
def test_every_citation_resolves():
    wrong = [c for file in sources() for c in citations(file) if c.problem]
    assert not wrong, "\n" + "\n".join(map(str, wrong))


def test_pages_cite_what_is_there():
    wrong = [
        citation
        for page in PAGES.glob("*.md")
        for citation in citations(page)
        if citation.problem
    ]
    assert not wrong, "\n" + "\n".join(map(str, wrong))


@pytest.fixture
def problems(tmp_path):
    """problems(text): what is wrong with the citations in a file of that text."""

    def problems(text):
        file = tmp_path / "cites.py"
        file.write_text(text)
        return [(c.line, c.text, c.problem) for c in citations(file) if c.problem]

    return problems


def test_a_section_of_a_document_is_found_over_a_line_break(problems):
    assert problems('"""Time: docs/machine.md,\n"Time on the wires"."""') == []


def test_an_unknown_section_is_named_with_its_line(problems):
    text = '\n# docs/machine.md, "Warp drive"\n'
    assert problems(text) == [(2, 'docs/machine.md, "Warp drive"', "no such section")]


def test_a_document_that_does_not_ship_is_unknown(problems):
    assert problems("# see simulator.md section 5") == [
        (1, "simulator.md", "no such document")
    ]


@pytest.mark.parametrize(
    "text",
    [
        "ADR-0020",
        "ADR-0020 D6, D10 and D11",
        "ADR-0052 D2-D5",
        "ADR-0052 D1 to D5",
        "ADR-0052 A4, and D3.6 elsewhere",
        "ADR-0020 D11's tolerances",
        "ADR-0032\n# D7",
    ],
)
def test_a_decision_is_found_however_its_parts_are_listed(problems, text):
    assert problems(f"# {text}") == []


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("ADR-9999", "no such decision"),
        ("ADR-0020 D6, D99", "no heading for D99"),
        ("ADR-0052 (D3), not D44", "no such part of 0052"),
    ],
)
def test_a_decision_without_a_heading_is_reported(problems, text, problem):
    assert [found for _line, _text, found in problems(f"# {text}")] == [problem]
