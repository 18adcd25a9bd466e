"""The themes: alarm is told from everything, ink is legible, also of 256 colours.

Distances are of CIE 1976 L*a*b* (D65): 2.3 is just noticed. Colours are also looked at
as people see them who lack one kind of cones, by the matrices for full severity of
Machado, Oliveira and Fernandes, "A Physiologically-based Model for Simulation of Color
Vision Deficiency", IEEE TVCG 15(6), 2009, which are applied to linear RGB.
"""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from rich.color import ColorSystem
from rich.style import Style

from tui.ansi import ink_of
from tui.themes import CLASS_STYLES, THEMES, XTERM, chosen

EYES = {
    "all cones": [[1, 0, 0], [0, 1, 0], [0, 0, 1]],
    "protanopia": [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
    "deuteranopia": [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ],
    "tritanopia": [
        [1.255528, -0.076749, -0.178779],
        [-0.078411, 0.930809, 0.147602],
        [0.004733, 0.691367, 0.303900],
    ],
}
XYZ = np.array(  # of linear sRGB, IEC 61966-2-1
    [
        [0.4124564, 0.3575761, 0.1804375],
        [0.2126729, 0.7151522, 0.0721750],
        [0.0193339, 0.1191920, 0.9503041],
    ]
)
LEVELS = (0, 95, 135, 175, 215, 255)
GROUNDS = [letter + shade for letter in CLASS_STYLES for shade in ("", "2")]
INKS = ["?-" if letter == "?" else letter.lower() for letter in CLASS_STYLES]

Vector = NDArray[np.float64]


def xterm_hex(number: int) -> str:
    """The colour of a number from 16 to 255, as xterm has it by default."""
    if number >= 232:
        return "#" + f"{8 + 10 * (number - 232):02x}" * 3
    cube = number - 16
    parts = (LEVELS[cube // 36], LEVELS[cube // 6 % 6], LEVELS[cube % 6])
    return "#" + "".join(f"{part:02x}" for part in parts)


def linear(colour: str) -> Vector:
    rgb = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)


def lab(rgb: Vector) -> Vector:
    share = XYZ @ rgb / XYZ.sum(axis=1)
    low = (24389 / 27 * share + 16) / 116
    f = np.where(share > 216 / 24389, np.cbrt(share), low)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def seen(colour: str, eyes: str) -> Vector:
    return lab(np.clip(np.array(EYES[eyes]) @ linear(colour), 0, 1))


def distance(one: str, other: str, eyes: str = "all cones") -> float:
    return float(np.linalg.norm(seen(one, eyes) - seen(other, eyes)))


def contrast(one: str, other: str) -> float:
    """The contrast of WCAG 2.1."""
    lights = sorted(float(XYZ[1] @ linear(colour)) for colour in (one, other))
    return (lights[1] + 0.05) / (lights[0] + 0.05)


@pytest.fixture(params=["dark", "light"])
def theme(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=["rgb", "256"])
def colours(theme: str, request: pytest.FixtureRequest) -> dict[str, str]:
    """The colours of a theme by name, as a terminal shows them."""
    found = THEMES[theme].colours
    if request.param == "256":
        return {name: xterm_hex(XTERM[colour]) for name, colour in found.items()}
    return found


@pytest.mark.parametrize("eyes", EYES)
def test_alarm_is_told_from_every_ground_and_ink(
    eyes: str, colours: dict[str, str]
) -> None:
    alarm = colours["alarm"]
    near = {ground: distance(alarm, colours[ground], eyes) for ground in GROUNDS}
    assert min(near.values()) >= 19, near
    inks = [*INKS, "ink", "dim", "mark", "lit"]
    near = {ink: distance(alarm, colours[ink], eyes) for ink in inks}
    assert min(near.values()) >= 9.5, near


def test_alarm_is_used_for_what_is_wrong_only(theme: str) -> None:
    alarm = THEMES[theme].colours["alarm"]
    users = set()
    for name, style in THEMES[theme].styles.items():
        used = [colour.triplet.hex for colour in (style.color, style.bgcolor)]
        if alarm in used:
            users.add(name)
    assert users == {"alarm", "bad", "bad<", "bad>", "bad*"}


def test_ink_is_legible_on_every_ground(colours: dict[str, str]) -> None:
    on_ground = {g: contrast(colours["class_ink"], colours[g]) for g in GROUNDS}
    assert min(on_ground.values()) >= 4.2, on_ground
    names = [*INKS, "ink", "dim", "title", "lit", "mark", "alarm", "hot", "busy2"]
    on_paper = {name: contrast(colours[name], colours["paper"]) for name in names}
    assert min(on_paper.values()) >= 4.2, on_paper
    assert contrast(colours["on_bad"], colours["bad"]) >= 4.5


def test_neighbours_have_two_shades(colours: dict[str, str]) -> None:
    for letter in CLASS_STYLES:
        shades = colours[letter], colours[f"{letter}2"]
        assert 4 <= distance(*shades) <= 36, letter


def test_grounds_are_calm(theme: str) -> None:
    colours = THEMES[theme].colours
    for ground in GROUNDS:
        light, a, b = seen(colours[ground], "all cones")
        assert np.hypot(a, b) <= 45, ground
        assert light <= 45 if theme == "dark" else light >= 75, ground


@pytest.mark.parametrize("name", ["R", "R2", "G", "bad", ""])
def test_256_colours_are_those_of_the_table(name: str, theme: str) -> None:
    style = THEMES[theme].styles[name]
    ink = ink_of(style, ColorSystem.EIGHT_BIT)
    assert style.bgcolor is not None
    assert ink.background == f"48;5;{XTERM[style.bgcolor.triplet.hex]}"


def test_a_theme_without_colours_has_none() -> None:
    for style in THEMES["none"].styles.values():
        assert style.color is None
        assert style.bgcolor is None


def test_the_theme_of_the_terminal_uses_its_sixteen_colours() -> None:
    for name, style in THEMES["terminal"].styles.items():
        for colour in (style.color, style.bgcolor):
            assert colour is None or colour.number is None or colour.number < 16, name
            assert colour is None or colour.triplet is None, name


def test_the_theme_of_the_terminal_is_seen_on_dark_and_on_light_paper() -> None:
    """Black and the whites are mostly the colour of some terminal's paper."""
    papers = {0, 7, 15}
    for name, style in THEMES["terminal"].styles.items():
        assert style.bgcolor is None or style.bgcolor.number not in papers, name
        is_on_paper = style.bgcolor is None or style.bgcolor.is_default
        if is_on_paper and style.color is not None:
            assert style.color.number not in papers, name


def test_every_theme_has_every_style() -> None:
    (names,) = {tuple(theme.styles) for theme in THEMES.values()}
    assert all(isinstance(THEMES["dark"].styles[name], Style) for name in names)


@pytest.mark.parametrize(
    ("wanted", "environ", "name"),
    [
        (None, {"TERM": "xterm-256color"}, "dark"),
        (None, {"TERM": "tmux-256color"}, "dark"),
        (None, {"TERM": "xterm", "COLORTERM": "truecolor"}, "dark"),
        (None, {"TERM": "xterm"}, "terminal"),
        (None, {"TERM": "linux"}, "terminal"),
        ("light", {"TERM": "xterm"}, "light"),
        ("light", {"TERM": "xterm-256color", "NO_COLOR": ""}, "light"),
        ("light", {"TERM": "xterm-256color", "NO_COLOR": "0"}, "none"),
        (None, {"TERM": "xterm-256color", "NO_COLOR": "1"}, "none"),
    ],
)
def test_which_theme_is_chosen(
    wanted: str | None, environ: dict[str, str], name: str
) -> None:
    assert chosen(wanted, environ) == name
