"""A trace whose every text does to a terminal what a stranger would like."""

from __future__ import annotations

import re
import zlib
from typing import Any

import msgpack

from kernbench.trace.schema import pack_frame

HOSTILE = (
    "\x1b]52;c;ZXZpbA==\x07\x1b]0;owned\x07\x1b[?31337h\x9b31m\x9d0;owned\x9c\x08\r\n"
    "\x7f\u202eeteled\u2066\u200b\ufeff\u2028\xad\U000e0041\t"
)
"""Sets the clipboard, the title, a mode and colours; turns text around; is not seen."""

HOSTILE_NAME = "\x1b]0;owned\x07\x9b31m\u202e\u200b\n\udcff.msgpack"
"""A file may be called so."""

_WORDS = (
    "hbm tcm sram f16 f32 row_major output_tile gemm add exp sum div relu "
    "dma_read dma_write FETCH GEMM MATH STORE DMA_WRITE"
)
WORDS = frozenset(_WORDS.split())
"""Texts that mean something to the program."""

_HARM = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u200b-\u200f\u2028-\u202e"
    "\u2060-\u206f\ufeff\ud800-\udfff\U000e0000-\U000e007f]"
)
_OURS = re.compile(
    r"\x1b\[(?!\?31337h)[<>=?]?[0-9;]*\$?[A-Za-z]"  # CSI
    r"|\x1b\]22;default\x07"  # the shape of the mouse's pointer
    r"|\r(?=\n)|\x08+(?!\r)"  # ends of lines; moves to the left
)
_WRITTEN = ("bench", "file", "kernel", "name", "error", "tensor")
_OF_THE_FRAME = ("crc", "pad")


def hostile(data: bytes, spared: frozenset[str] = frozenset()) -> bytes:
    """A sound trace with hostile texts, but for those that are ``spared``."""
    unpacker = msgpack.Unpacker(strict_map_key=False, max_buffer_size=0)
    unpacker.feed(data)
    made = bytearray()
    for tag, whole_head, body in unpacker:
        head = {k: v for k, v in whole_head.items() if k not in _OF_THE_FRAME}
        head = _spoiled(head, spared)
        if tag == "strings":
            texts = msgpack.unpackb(zlib.decompress(body))
            body = msgpack.packb([_spoiled(text, spared, "name") for text in texts])
        elif tag == "source":
            body = zlib.decompress(body).replace(b"\n", HOSTILE.encode() + b"\n")
        if tag in ("strings", "source"):
            head["raw"] = len(body)
            body = zlib.compress(body)
        made += pack_frame(tag, head, body, len(made))
    return bytes(made)


def _spoiled(value: Any, spared: frozenset[str], name: str = "") -> Any:
    """A value with all texts in it hostile that people wrote, as its ``name`` says."""
    if isinstance(value, dict):
        return {key: _spoiled(item, spared, key) for key, item in value.items()}
    if isinstance(value, list):
        return [_spoiled(item, spared, name) for item in value]
    if isinstance(value, str) and name in _WRITTEN and value not in spared:
        return f"{value}{HOSTILE}"
    return value


def harm_in(text: str) -> list[str]:
    """The characters of a text that must not come to a terminal."""
    return _HARM.findall(text)


def harm_on_terminal(written: bytes) -> list[str]:
    """What a terminal was sent beside text and the sequences of a screen."""
    return harm_in(_OURS.sub("", written.decode(errors="surrogateescape")))
