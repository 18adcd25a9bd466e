"""Files that a trace writer may be given: on disks that get full, and closed by others.

``opened(path, Disk)`` makes a writer, and gives its file beside it.
"""

import errno

from kernbench.trace import TraceWriter
from kernbench.trace.stream import claim


class Disk:
    """The file of a writer, on a disk with ``room`` for so many bytes (None: for all).

    It takes 1000 bytes at once where its room is limited.
    """

    def __init__(self, path, partial, room=None):
        self.file = claim(path, partial)
        self.room = room
        self.write_sizes = []

    def write(self, data):
        self.write_sizes.append(len(data))
        if self.room is not None:
            if not self.room:
                raise OSError(errno.ENOSPC, "No space left on device")
            data = data[: min(1000, self.room)]
            self.room -= len(data)
        return self.file.write(data)

    def seek(self, offset):
        return self.file.seek(offset)

    def truncate(self, size):
        return self.file.truncate(size)

    def close(self):
        self.file.close()


class TornDisk(Disk):
    """A disk that takes half of a write and then calls ``torn``, once that is set.

    If that returns, the disk is full.
    """

    torn = None

    def write(self, data):
        if self.torn is None or self.room is not None:
            return super().write(data)
        half = len(data) // 2
        self.file.write(data[:half])
        self.room = 0
        self.torn()
        return half


def opened(path, make_disk=Disk, **options):
    """(a writer to ``path``, its file)."""
    disks = []

    def open_file(path, partial):
        disks.append(make_disk(path, partial, **options))
        return disks[0]

    return TraceWriter(path, open_file), disks[0]
