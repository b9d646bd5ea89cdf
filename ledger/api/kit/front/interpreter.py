"""How the threads of a process share the interpreter lock."""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

SHORT_TURN_S = 0.0005
"""While a page is made or a long call is executed. With Python's 5 ms, a group of spends, which needs the interpreter some ten
times, waits 50 ms beside it.
At all other times it would cost a tenth of a spend."""

_guard = threading.Lock()
_blocks = 0
_usual_s = 0.0


@contextmanager
def short_turns() -> Iterator[None]:
    """For the block, a computing thread releases the interpreter lock sooner to a waiting one. Blocks may overlap."""
    global _blocks, _usual_s
    with _guard:
        if not _blocks:
            _usual_s = sys.getswitchinterval()
            sys.setswitchinterval(SHORT_TURN_S)
        _blocks += 1
    try:
        yield
    finally:
        with _guard:
            _blocks -= 1
            if not _blocks:
                sys.setswitchinterval(_usual_s)
