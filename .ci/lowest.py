"""Prints the lowest versions that pyproject.toml allows, as constraints of pip.

A floor may lie below the first version that has a wheel for a later Python. What is
known of that stands in FIRST_WHEELS.
"""

import re
import sys
import tomllib
from pathlib import Path

EXTRAS = ("parquet", "serve")
FIRST_WHEELS = {
    (3, 13): {
        "msgpack": "1.1.0",
        "numpy": "2.1.0",
        "pyarrow": "18.0.0",
        "pyyaml": "6.0.2",
    }
}
"""By the version of Python, of packages whose floor has none for it."""

project = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))["project"]
requirements = list(project["dependencies"])
for extra in EXTRAS:
    requirements += project["optional-dependencies"][extra]
first_wheels = FIRST_WHEELS.get(sys.version_info[:2], {})
for requirement in requirements:
    name, floor = re.fullmatch(r"([\w-]+)>=([\d.]+).*", requirement).groups()
    print(f"{name}=={first_wheels.get(name, floor)}")
