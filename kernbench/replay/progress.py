"""What a screen needs of ``kernbench.common.progress``: it imports ``kernbench.replay``
only.
"""

from kernbench.common.progress import (
    Cancelled,
    Progress,
    begun_beside,
    no_progress,
)

__all__ = ["Cancelled", "Progress", "begun_beside", "no_progress"]
