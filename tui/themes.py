"""The colours of the screen: four themes, and the styles that follow from each.

A theme says of each style that has a name what it looks like. "dark" and "light" have
colours of their own; "terminal" uses the sixteen that the terminal's user has chosen;
"none" has no colours at all, only bold, reverse and underline.

A colour of "dark" and "light" is written twice: as RGB, and as the number among the 256
colours of xterm that stands for it where there is no RGB, as mostly over SSH and in
tmux. To take the nearest would make one of two neighbouring shades.

``alarm`` is for what is wrong, and for nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from rich.console import Console
from rich.style import Style

from tui.terminal import forbids_colours

CLASS_STYLES = "GMRWFSHC?"
"""The letters of the classes of ops, each the name of a style: its ground and ink."""

_DARK = """
paper #10161d 233  ink #dfe5ec 254  dim #8b96a3 246  rule #616e7b 242
title #a9bccd 250  lit #6cb8f0 75   mark #f0c674 222 white #ffffff 231
alarm #ff5f66 203  on_bad #14080b 16   bad #ff5f66 203  on_lit #10161d 233
busy #3f83b5 67    busy2 #5fb0ea 75  hot #d9b45b 179
off #242c35 236    off2 #2c3540 237  off_ink #8b96a3 246
heat0 #41658c 60   heat1 #4a7bab 67  heat2 #5f93c3 68  heat3 #83add0 110
heat4 #b3b7b0 145  heat5 #d3b274 179 heat6 #ecad3a 214 heat7 #ffb000 220
class_ink #f4f7fa 231
R #1f4e79 25       R2 #2b639b 26     r #5fa8e6 75
W #1d525c 23       W2 #286674 24     w #6cc4d4 80
F #5d4078 54       F2 #75549a 97     f #b692dc 140
G #1b4d40 22       G2 #205b4d 28     g #62c499 78
M #665113 94       M2 #77611a 130     m #d3b24c 178
S #465823 64       S2 #54692c 58     s #a3c05e 149
H #3f4b57 240      H2 #495560 241     h #9aa9b8 109
C #2f3641 236      C2 #3c4450 238    c #939db0 247
? #4b433b 239      ?2 #574d43 240     ?- #b0a498 144
"""
_LIGHT = """
paper #fbfcfd 231  ink #1c232b 234   dim #5a6672 240   rule #86919c 245
title #33506b 24   lit #0f62b0 25    mark #8a5a00 94   white #000000 16
alarm #c8003a 161  on_bad #ffffff 231  bad #c8003a 161  on_lit #ffffff 231
busy #5b9bd0 68    busy2 #1f6fb8 25  hot #a85400 130
off #eceff2 255    off2 #e0e4e9 254  off_ink #5a6672 241
heat0 #2f5f96 25   heat1 #33659c 25  heat2 #3f6fa0 61  heat3 #4a6a86 60
heat4 #66635c 241  heat5 #7d5a20 94  heat6 #8a5200 94  heat7 #944a00 130
class_ink #14191f 16
R #bcd7f4 153      R2 #9fc6ee 111    r #1f6fc4 26
W #b4e2e8 152      W2 #92d3dd 116    w #0f7a88 30
F #dfcdf2 189      F2 #cdb3e8 183    f #7a45b8 97
G #bfe5cd 151      G2 #9fd6b3 114    g #1d7a45 22
M #f2e3ad 229      M2 #e6d186 222    m #846200 94
S #d8e8b2 193      S2 #c5db8f 149    s #2c5405 58
H #d3dae2 252      H2 #bfc9d4 250    h #566473 60
C #e4e8ed 254      C2 #d3d9e0 251    c #5f6874 242
? #e6ddd2 187      ?2 #d9ccba 180    ?- #75654f 95
"""
_TERMINAL = """
paper default      ink default       dim default       rule bright_black
title default      lit bright_blue   mark magenta      white default
alarm bright_red   on_bad black         bad bright_red   on_lit black
busy bright_blue   busy2 bright_blue hot magenta
off bright_black   off2 bright_black off_ink white
heat0 bright_blue  heat1 bright_blue heat2 bright_blue heat3 bright_blue
heat4 bright_black heat5 bright_black heat6 magenta    heat7 magenta
class_ink black
R bright_blue      R2 blue           r bright_blue  R2ink bright_white
W bright_cyan      W2 cyan           w bright_cyan
F bright_magenta   F2 magenta        f bright_magenta
G bright_green     G2 green          g bright_green
M bright_yellow    M2 yellow         m bright_yellow
S default          S2 default        s default
H default          H2 default        h default
C bright_black     C2 bright_black   c default
Cink bright_white  C2ink bright_white
? default          ?2 default        ?- default
"""


@dataclass(frozen=True, slots=True)
class Theme:
    """A theme: its styles by their names, and its colours.

    ``colours`` are "#rrggbb" by name, as the tables have them; none where it uses those
    of the terminal, which are not known, or has none.
    """

    name: str
    styles: dict[str, Style]
    colours: dict[str, str]

    @property
    def has_colours(self) -> bool:
        """Whether it has colours of its own."""
        return bool(self.colours)


_DEFAULT = "default"
"""The terminal's own paper, or ink; as the ground of a class its ink."""
XTERM: dict[str, int] = {}
"""By "#rrggbb" the number of the colour that stands for it where there are 256."""


def _read(table: str) -> dict[str, str]:
    """The colours of a table by name. Notes in ``XTERM`` what stands for each."""
    words = iter(table.split())
    found: dict[str, str] = {}
    for name in words:
        colour = next(words)
        found[name] = colour
        if colour.startswith("#"):
            XTERM[colour] = int(next(words))
    return found


def _styles(colours: Mapping[str, str]) -> dict[str, Style]:
    """The styles of a theme that has colours.

    For each ground of a class there are five: the ground with its ink, by the letter;
    with "<" the edge at which a slice begins, with ">" the part of a cell in which it
    ends, with "*" the ink of a slice that is pointed at, and by the small letter the
    class on paper.
    """

    def on(ground: str, ink: str, bold: bool = False) -> Style:
        if ground != "paper" and colours[ground] == _DEFAULT:
            # the terminal's ink, on which its paper is legible, be it dark or light
            return Style(reverse=True, bold=bold or None)
        return Style(color=colours[ink], bgcolor=colours[ground], bold=bold or None)

    is_own = colours["paper"] == _DEFAULT

    def slices(ground: str, edge: str, ink: str) -> dict[str, Style]:
        pointed = "white"
        if is_own or ground == "bad":  # lighter inks may be too near to the ground
            pointed = ink
        if is_own:
            edge = ink
        return {
            ground: on(ground, ink),
            f"{ground}<": on(ground, edge),
            f"{ground}>": on("paper", ground),
            f"{ground}*": on(ground, pointed, bold=True),
        }

    plain = on("paper", "ink")
    styles = {
        "": plain,
        "bold": on("paper", "ink", bold=True),
        "dim": on("paper", "dim"),
        "rule": on("paper", "rule"),
        "title": on("paper", "title"),
        "frame": on("paper", "lit"),
        "active": on("lit", "on_lit", bold=True),
        "here": plain + Style(bold=True, reverse=True),
        "pick": plain + Style(bold=True, underline=True),
        "flight": on("paper", "lit"),
        "mark": on("paper", "mark", bold=True),
        "cursor": on("paper", "white", bold=True),
        "alarm": on("paper", "alarm", bold=True),
        "hot": on("paper", "hot"),
        "busy": on("paper", "busy"),
        "busy2": on("paper", "busy2"),
        **slices("bad", "on_bad", "on_bad"),
        **slices("off", "dim", "off_ink"),
        **slices("off2", "dim", "off_ink"),
    }
    for step in range(8):
        styles[f"heat{step}"] = on("paper", f"heat{step}")
    for letter in CLASS_STYLES:
        small = letter.lower()
        if small == letter:
            small = f"{letter}-"
        styles[small] = on("paper", small)
        for ground in (letter, f"{letter}2"):
            ink = f"{ground}ink"
            if ink not in colours:
                ink = "class_ink"
            styles |= slices(ground, small, ink)
    return styles


def _without_colours(named: Iterable[str]) -> dict[str, Style]:
    """The styles of a theme without colours."""
    attributes = {
        "bold": Style(bold=True),
        "active": Style(bold=True, reverse=True),
        "here": Style(bold=True, reverse=True),
        "pick": Style(bold=True, underline=True),
        "mark": Style(bold=True),
        "cursor": Style(bold=True),
        "alarm": Style(bold=True),
        "bad": Style(bold=True, reverse=True),
        "hot": Style(bold=True),
    }
    styles = {}
    for name in named:
        styles[name] = attributes.get(name, Style())
        if name.endswith("*"):
            styles[name] = Style(bold=True)
    return styles


def _themes() -> dict[str, Theme]:
    """All themes, by name."""
    themes = {}
    for name, table in (("dark", _DARK), ("light", _LIGHT)):
        colours = _read(table)
        themes[name] = Theme(name, _styles(colours), colours)
    own = _styles(_read(_TERMINAL))
    own["dim"] = Style(dim=True)
    themes["terminal"] = Theme("terminal", own, {})
    themes["none"] = Theme("none", _without_colours(own), {})
    return themes


THEMES = _themes()
"""The themes, by name."""


def chosen(wanted: str | None, environ: Mapping[str, str]) -> str:
    """The name of the theme to use: NO_COLOR forbids colours, else it is the one that
    is wanted. Where none is, a terminal of sixteen colours keeps its own.
    """
    if forbids_colours(environ):
        return "none"
    if wanted is not None:
        return wanted
    system = Console(force_terminal=True, _environ=environ).color_system
    return "terminal" if system == "standard" else "dark"
