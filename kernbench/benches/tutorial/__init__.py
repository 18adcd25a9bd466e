"""Kernels as one knows them from Triton's tutorials, written for these machines.

Each runs on some PEs of one cube, and shows how a block, a mask, a grid or an atomic of
Triton is said here. They are listed under a heading of their own.
"""
