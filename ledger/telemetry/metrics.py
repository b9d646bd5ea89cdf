"""The counts of a process for Prometheus. Knows no credits, no HTTP and no database.

A web server has several processes, and a scrape reaches one of them. So each process writes its counts to a separate file in the
folder that PROMETHEUS_MULTIPROC_DIR names, and the scraped process adds all files up. The variable is set before this module is
imported; without it, the counts stay in the memory of the process.

To add to a count takes 4 µs, and three times as much if the caches are cold. So everything about each request is counted in
variables, which `write_counts` writes four times a second. ADR 0037.
"""

import os
from collections.abc import Callable, Iterable, Sequence

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.metrics_core import Metric
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector

from ledger.telemetry.count_files import CountFile, use_count_files, write_down_all

FOLDER = "PROMETHEUS_MULTIPROC_DIR"
GROUP_SIZES = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)

use_count_files()
OWN = CollectorRegistry()
"""The counts of this process."""

REQUEST_SECONDS = Histogram(
    "ledger_http_request_duration_seconds",
    "How long requests took, from the last byte of their head to the response.",
    ("method", "route", "status"),
    buckets=SECONDS,
    registry=OWN,
)
PROBLEMS = Counter(
    "ledger_http_problems", "Responses that are a problem, by its code, such as holder-busy.", ("status", "code"), registry=OWN
)
KEY_CALLS = Counter(
    "ledger_http_key_calls",
    "Calls with a valid API key, by its name; of a process, only the first 500 names are apart.",
    ("key", "status"),
    registry=OWN,
)
OPERATIONS = Counter(
    "ledger_operations",
    "Operations on credits by outcome: recorded, refused, replayed (the key was used before), failed (nothing was written).",
    ("operation", "outcome"),
    registry=OWN,
)
REFUSALS = Counter(
    "ledger_refusals", "Refusals that were recorded, by code; replays are not counted again.", ("code",), registry=OWN
)
GROUP_SIZE = Histogram(
    "ledger_group_size",
    "How many requests shared one transaction.",
    buckets=GROUP_SIZES,
    registry=OWN,
)
LOCK_WAIT_SECONDS = Histogram(
    "ledger_lock_wait_seconds",
    "How long requests waited for the lock of a holder that another process had, until they were executed.",
    buckets=SECONDS,
    registry=OWN,
)
RETRIES = Counter(
    "ledger_transaction_retries",
    "Transactions that started again because another writer was first, by SQLSTATE.",
    ("sqlstate",),
    registry=OWN,
)


def add_observations(histogram: Histogram, counts: Sequence[float], total: float) -> None:
    """Add observations that were counted elsewhere, with the effect of as many calls of `observe`.

    The package has no such call; `tests/deployment/monitoring/test_metrics.py` compares this with `observe`.

    Args:
        histogram: with its labels.
        counts: how many fell into each bucket, without those of lower buckets; the bucket without a bound is last.
        total: the sum of the observations.
    """
    for bucket, count in zip(histogram._buckets, counts, strict=True):
        if count:
            bucket.inc(count)
    histogram._sum.inc(total)


_writers: list[Callable[[], None]] = []


def call_before_reading(write: Callable[[], None]) -> None:
    """Let `write_counts` call this function, which writes what its module has counted in variables."""
    _writers.append(write)


def write_counts() -> None:
    """Write the counts for the other processes. Call it in the thread of the event loop, if there is one."""
    for write in _writers:
        write()
    write_down_all()


def are_counts_written() -> bool:
    """Return whether the other processes can see the counts of this one: not while the disk of the folder is full."""
    return CountFile.are_written


class _Own(Collector):
    """The counts of this process as a collector, for a registry with further collectors."""

    def collect(self) -> Iterable[Metric]:
        return OWN.collect()


def all_processes() -> CollectorRegistry:
    """Return a registry with the counts of all processes that share a folder; without a folder, of this one."""
    registry = CollectorRegistry()
    if os.environ.get(FOLDER):
        MultiProcessCollector(registry)
    else:
        registry.register(_Own())
    return registry
