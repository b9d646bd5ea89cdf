"""Runs an ASGI server in a process that has loaded the application already, so that the workers that it forks need not.

    python -m ledger_project.preloaded granian ledger_project.asgi:application --interface asgi ...

Loading takes a second of CPU, and memory that the workers share: of two workers, a quarter of all (docs/PERFORMANCE.md).
"""

import gc
import multiprocessing
import os
import runpy
import sys

from ledger_project.web_server import end_with_parent

SERVED_BY = "LEDGER_SERVED_BY"
"""In the environment: the number of the process that started this one and with which it ends."""


def main() -> None:
    """Load the application, then become the module that is named, with the arguments behind it."""
    parent = os.environ.get(SERVED_BY)
    if parent:
        end_with_parent()
        if os.getppid() != int(parent):
            sys.exit("Whoever started this has ended meanwhile.")
    # Where workers are not forked, there is nothing to share.
    if multiprocessing.get_start_method() == "fork":
        load()
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


def load() -> None:
    """Import whatever a worker needs; opens no connection and starts no thread, neither of which a fork would take along."""
    import ledger_project.application  # noqa: F401 - only where it is shared

    # What is there by now stays: the collector need not look at it, nor write to the pages that are shared.
    gc.collect()
    gc.freeze()


if __name__ == "__main__":
    main()
