"""Who was busy when, by looking at every op: intervals, brute force."""


def in_flight(recording, time):
    """The positions of the ops that were in service at a time."""
    return [op.position for op in recording.ops if op.t_start <= time < op.t_end]
