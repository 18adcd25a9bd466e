r"""How the text of strangers is shown: traces, file names, YAML, kernels and errors.

A terminal acts on control characters, and shows some characters as nothing or
elsewhere. So whatever prints or draws lets its text through ``visible`` or
``visible_text`` last of all, which write such a character out, as ``\x1b`` or
``\u202e``. Text without any is returned as it is.
"""

from __future__ import annotations

import re
import sys
import traceback
from types import TracebackType

# Control characters but the end of a line; what Unicode says is not to be seen
# (Default_Ignorable_Code_Point), which has the marks that turn text around and the
# tags; separators of lines and paragraphs; marks of annotations; lone surrogates.
_HIDDEN = re.compile(
    "[\x00-\x09\x0b-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f"
    "\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ud800-\udfff\ufe00-\ufe0f\ufeff"
    "\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\U000e0000-\U000e0fff]"
)


def visible_text(text: str) -> str:
    """Lines of text with what is hidden in them written out."""
    return _HIDDEN.sub(_written_out, text)


def visible(line: str) -> str:
    """One line of text; an end of a line in it is hidden like the rest."""
    if line.isascii() and line.isprintable():
        return line
    return visible_text(line).replace("\n", "\\n")


def _written_out(hidden: re.Match[str]) -> str:
    """The escape that stands for a character in a string of Python."""
    return hidden[0].encode("unicode_escape").decode()


def guard_tracebacks() -> None:
    """Let what Python says of an error that nobody has caught be visible as well."""
    sys.excepthook = _say_uncaught


def _say_uncaught(
    kind: type[BaseException], error: BaseException, where: TracebackType | None
) -> None:
    lines = traceback.format_exception(kind, error, where)
    sys.stderr.write(visible_text("".join(lines)))
