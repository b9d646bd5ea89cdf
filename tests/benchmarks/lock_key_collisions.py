"""Counts the names that share their lock's number with another: `python -m tests.benchmarks.lock_key_collisions [NAMES]`.

The names are ledger/<uuid>, the same in every run. A 32-bit hash is expected to give n(n-1)/2^33 pairs. PostgreSQL's hashtext is
counted too where DATABASE_URL names a server.
"""

import os
import sys
from collections import Counter
from collections.abc import Iterable
from random import Random
from uuid import UUID

import psycopg

from ledger.database import lock_keys


def main(count: int) -> None:
    """Print a line for each scheme."""
    random = Random(42)
    names = [f"ledger/{UUID(int=random.getrandbits(128), version=4)}" for _ in range(count)]
    print(f"{count:,} names; expected of a 32-bit hash: {count * (count - 1) / 2**33:.1f} pairs")
    for scheme in lock_keys.SCHEMES:
        show(scheme, map(lock_keys.numbering(scheme), names))
    show(f"{lock_keys.NAMESPACED}, namespace 7", map(lock_keys.numbering(lock_keys.NAMESPACED, 7), names))
    if url := os.environ.get("DATABASE_URL"):
        with psycopg.connect(url) as connection:
            rows = connection.execute("SELECT hashtext(name) FROM unnest(%s::text[]) AS name", [names])
            show("hashtext", (number for (number,) in rows))


def show(scheme: str, numbers: Iterable[int]) -> None:
    """Print how many pairs share a number."""
    pairs = sum(times * (times - 1) // 2 for times in Counter(numbers).values())
    print(f"{scheme:30} {pairs:6,} pairs")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100_000)
