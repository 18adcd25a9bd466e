"""The tutorial is gone through as a newcomer would, line by line in an empty folder.

A block that begins with $ is a command and what it prints; lines with - and + are a
change of ``my_kernel.py``.
"""

import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner
from test_docs import blocks

from kernbench import docs
from kernbench.cli import main

PAGE = docs.page("tutorial")
BLOCKS = [part for _heading, block in blocks(PAGE) for part in block.split("\n\n")]


def typed(block):
    """Command lines of a block, each with what it prints."""
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        line, _, printed = part.partition("\n")
        yield line, f"{printed.rstrip()}\n"


def changed(text, block):
    """A file in which the lines of a block with a - are replaced by those with a +."""
    lines = block.splitlines()
    old = "".join(f"{line[1:]}\n" for line in lines if line.startswith("-"))
    new = "".join(f"{line[1:]}\n" for line in lines if line.startswith("+"))
    assert text.count(old) == 1, block
    return text.replace(old, new)


def follow(block):
    """Do what a block says; the exit codes of its commands."""
    if not block.startswith("$ "):
        assert re.fullmatch(r"([-+] .*\n?)+", block)
        file = Path("my_kernel.py")
        file.write_text(changed(file.read_text(), block))
        return []
    codes = []
    for line, printed in typed(block):
        program, *words = shlex.split(line)
        assert program == "kernbench"
        result = CliRunner().invoke(main, words, prog_name="kernbench")
        pattern = re.escape(printed).replace("…\\\n", r"(?:.*\n)*")
        assert re.fullmatch(pattern, result.stdout), (line, result.output)
        codes.append(result.exit_code)
    return codes


@pytest.mark.slow
def test_the_tutorial_goes_as_it_says(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    codes = [code for block in BLOCKS for code in follow(block)]
    assert len(codes) == 10
    assert [i for i, code in enumerate(codes) if code] == [2]  # the wrong kernel
    assert "It exits 1" in PAGE


@pytest.mark.slow
def test_the_claims_in_its_sentences_hold(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for block in BLOCKS:
        follow(block)
    call = ["trace", "diagnose", "large.msgpack"]
    assert CliRunner().invoke(main, call).exit_code == 0
    call = ["trace", "compare", "large.msgpack", "right.msgpack", "--fail-over", "5%"]
    assert CliRunner().invoke(main, call).exit_code == 1


@pytest.mark.parametrize("page", re.findall(r"`kernbench doc ([\w-]+)`", PAGE))
def test_pages_that_it_names_are_there(page):
    assert page in docs.pages()
