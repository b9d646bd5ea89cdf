"""granian, which starts a worker again whenever it has ended, with growing pauses.

granian itself ends, with all other workers, when one ends within 5.5 s of its start for the second time: three `kill -9` in six
seconds, or the kernel's killer of processes on a machine that is short of memory, then end the whole web server.
"""

import logging
import time
from collections import defaultdict
from typing import Any, Final

import granian.cli
from granian.server import Server

SETTLED_AFTER_S: Final = 10.0
"""A worker that ended later than that had come up: it is started again at once."""
LONGEST_PAUSE_S: Final = 5.0
SHORTEST_PAUSE_S: Final = 0.5
LOOK_EVERY_S: Final = 0.05

log = logging.getLogger("ledger_project.serving.granian_server")


def pause_s(failed_starts: int) -> float:
    """Return the pause before a worker's next start: none after its first failed start, then 0.5, 1, 2, 4, 5, 5, … seconds."""
    return 0.0 if failed_starts < 2 else min(SHORTEST_PAUSE_S * 2.0 ** min(failed_starts - 2, 10), LONGEST_PAUSE_S)


class PersistentServer(Server):  # type: ignore[misc, valid-type]
    """granian without an end: see above."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._started_at: dict[int, float] = {}
        self._failed_starts: defaultdict[int, int] = defaultdict(int)

    def _respawn_workers(self, workers: list[int], spawn_target: Any, target_loader: Any, delay: float = 0) -> None:
        """Start workers again that have ended, one after the other."""
        for worker in workers:
            self._wait_before_start_of(worker)
            if not self.interrupt_signal:
                self._started_at[worker] = time.monotonic()
                super()._respawn_workers([worker], spawn_target, target_loader, delay)
        # By these, granian finds that a worker ends again and again.
        self.respawned_wrks.clear()

    def _wait_before_start_of(self, worker: int) -> None:
        now = time.monotonic()
        has_come_up = now - self._started_at.get(worker, float("-inf")) >= SETTLED_AFTER_S
        self._failed_starts[worker] = 0 if has_come_up else self._failed_starts[worker] + 1
        pause = pause_s(self._failed_starts[worker])
        log.error("A web process has ended; starting it again%s.", f" in {pause:g} s" if pause else "")
        while time.monotonic() - now < pause and not self.interrupt_signal:
            time.sleep(LOOK_EVERY_S)


def main() -> None:
    """Run granian by its command line."""
    granian.cli.Server = PersistentServer
    granian.cli.entrypoint()


if __name__ == "__main__":
    main()
