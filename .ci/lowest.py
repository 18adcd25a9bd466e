"""Prints the lowest versions that pyproject.toml allows, as constraints of pip.

A floor may lie below the first version that has a wheel for a later Python. What is
known of that stands in FIRST_WHEELS.
"""

import re
import sys
import tomllib
from pathlib import Path

EXTRAS = ("parquet", "serve")
FIRST_WHEELS: dict[tuple[int, int], dict[str, str]] = {}
"""By the version of Python."""

project = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))["project"]
requirements = list(project["dependencies"])
for extra in EXTRAS:
    requirements += project["optional-dependencies"][extra]
first_wheels = FIRST_WHEELS.get(sys.version_info[:2], {})
for requirement in requirements:
    name, floor = re.fullmatch(r"([\w-]+)>=([\d.]+).*", requirement).groups()
    print(f"{name}=={first_wheels.get(name, floor)}")
