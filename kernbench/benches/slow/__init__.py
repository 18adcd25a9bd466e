"""Kernels that are right and slow on purpose, each with what must be found about it.

Nothing that looks for what is slow may know them: a finding comes from what the ops do.
"""
