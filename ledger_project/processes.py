"""Child processes of the project: each ends with its parent."""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def end_with(parent: int) -> None:
    """In a child, ask the kernel for SIGTERM when the parent ends, even by SIGKILL (Linux only); exit if it has ended already."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:
        sys.exit("The process that started this one has ended.")
