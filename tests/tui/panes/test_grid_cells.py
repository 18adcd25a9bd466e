"""The picked cell of a grid."""

import pytest

from tui.panes.grid import Cells


@pytest.mark.parametrize("shape", [(3, 0), (0, 3), (0,)])
def test_of_a_grid_without_elements_the_first_cell_is_picked(shape):
    assert Cells().at_element(0, shape) == Cells()
    picked = Cells(row=5, column=5).clamped(shape)
    assert (picked.row, picked.column) in [(0, 0), (0, 2)]
