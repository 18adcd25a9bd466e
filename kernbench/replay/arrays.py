"""The array aliases that a screen needs: it imports ``kernbench.replay`` only."""

from kernbench.common.arrays import Array, Bools, Floats, Ints

__all__ = ["Array", "Bools", "Floats", "Ints"]
