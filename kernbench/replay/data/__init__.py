"""Questions about data: what memory held, who wrote it, and whether it is right.

    arrays     read-only arrays of answers, and long calls into numpy
    intervals  which of many ranges of bytes overlap one
    history    memory after any number of executed ops
    lives      from which op to which an allocation has its bytes
    places     c[3,17] or hbm 0x40:8 to bytes, and back
    memory     what memory holds at an op; the numbers of a tensor
    touches    who reads and writes the bytes of a place
    hazards    accesses that meet in time, or that are wrong without another
    blame      from an element back to the inputs it was made of
    diff       ops beside their float64 oracle
    outputs    outputs beside what the bench expects of them
    departure  where an output went wrong though no op did

Each imports from those above it only.
"""
