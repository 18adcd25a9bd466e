"""What if: a recorded run re-timed on a changed machine, without simulating it."""
