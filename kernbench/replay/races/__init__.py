"""Races: accesses that no edge of the memory model orders (docs/memory-model.md).

    calls      the calls of kernels: which issued an op, and at which it is known to end
    queues     which payload each recv took, and whether its slot was given back in time
    clocks     what a PE knows of the calls of others, which changes at receives only
    order      whether one access is before another
    shared     bytes that several PEs use, and the neighbours among their accesses
    search     all pairs of accesses that are no races only by luck, or not even that
    findings   what was found, one for a pair of lines and a tensor, the worst first
    prove      a race tried out by running again with the earlier op held back

Each imports from those above it only. Measured time is never an edge; it only says
whether two accesses that are not ordered met in this run.
"""
