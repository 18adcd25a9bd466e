"""Kernels that are wrong on purpose, each with what must be found about it.

Nothing that looks for faults may know them: a finding comes from what the ops do.
"""
