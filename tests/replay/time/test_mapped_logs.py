"""The logs of a trace, mapped by their names."""

import pytest

from kernbench.replay.time.mapped_logs import map_logs


def test_logs_are_mapped_by_their_names(session):
    map_logs(session.trace, lambda done: None, "commands", "waits")
    with pytest.raises(AttributeError):
        map_logs(session.trace, lambda done: None, "no_such_log")
