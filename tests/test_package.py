"""What a package of the project says of itself. ``.ci/dists`` builds one and looks."""

import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
METADATA = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT = METADATA["project"]
FRAGMENTS = METADATA["tool"]["hatch"]["metadata"]["hooks"]["fancy-pypi-readme"][
    "fragments"
]


def description():
    """The page of an index, as hatch-fancy-pypi-readme puts it together."""
    pieces = []
    for fragment in FRAGMENTS:
        text = fragment.get("text")
        if text is None:
            text = (ROOT / fragment["path"]).read_text(encoding="utf-8")
        if "start-after" in fragment:
            _, found, text = text.partition(fragment["start-after"])
            assert found, fragment
        if "end-before" in fragment:
            text, found, _ = text.partition(fragment["end-before"])
            assert found, fragment
        pieces.append(text)
    return "".join(pieces)


def test_the_page_of_an_index_shows_the_screen_as_text() -> None:
    page = description()
    assert page.startswith("# kernbench\n\n```text\n")
    screen, _, rest = page.removeprefix("# kernbench\n\n```text\n").partition("```\n")
    assert len(screen.splitlines()) == 24
    assert "[1 Timeline]" in screen
    assert "![" not in page
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert rest == readme.partition(".svg)\n")[2]


@pytest.mark.parametrize("package", ["kernbench", "tui"])
def test_a_package_says_that_it_is_typed(package: str) -> None:
    assert (ROOT / package / "py.typed").is_file()


def test_classifiers_name_the_pythons_that_are_tested() -> None:
    named = [
        classifier.rpartition(" ")[2]
        for classifier in PROJECT["classifiers"]
        if classifier.startswith("Programming Language :: Python :: 3.")
    ]
    assert PROJECT["requires-python"] == f">={named[0]}"
    run = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert f"for minor in {' '.join(name.removeprefix('3.') for name in named)};" in run


def test_every_dependency_has_a_floor() -> None:
    needed = [*PROJECT["dependencies"]]
    for extra in ("optuna", "parquet", "serve", "sweep"):
        needed += PROJECT["optional-dependencies"][extra]
    assert [each for each in needed if ">=" not in each] == []
