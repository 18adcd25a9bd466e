"""The version of kernbench, for whoever cannot import all of it."""

__version__ = "0.1.0"
