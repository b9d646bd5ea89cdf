"""A gateway as a process of its own: decides against a lease as it is told to on its standard input.

python -m tests.clients.lease_gateway URL HOLDER LOG TERMS   (the API key in API_KEY, TERMS as JSON)

It writes `a AMOUNT` to its log before each decision and `d AMOUNT` after it, so that the log says what was decided even if it is
killed, but for the last one. Lines in and out: `decide COUNT` prints `at COUNT` after each 50 decisions, and
`did COUNT WHY MICROSECONDS`;
`close` prints `closed`.
"""

import json
import os
import random
import sys
import time
from pathlib import Path
from statistics import median

from credit_ledger import Client, CreditLedgerError, LeaseExhausted, Retries
from credit_ledger.leases import Lease


def say(*words: object) -> None:
    """Print a line at once."""
    print(*words, flush=True)


def decide(lease: Lease, count: int, log: int, chance: random.Random, name: str) -> tuple[int, str, int]:
    """Decide so often, with a refill where credits lack; return how often, why it stopped, and the median in µs."""
    took_ns = []
    for number in range(count):
        amount = chance.randint(1, 3)
        os.write(log, f"a {amount}\n".encode())
        began = time.perf_counter_ns()
        try:
            take(lease, amount, name)
        except CreditLedgerError as error:
            return number, type(error).__name__, 0
        took_ns.append(time.perf_counter_ns() - began)
        os.write(log, f"d {amount}\n".encode())
        if number % 50 == 49:
            say("at", number + 1)
    return count, "all", int(median(took_ns)) // 1_000


def take(lease: Lease, amount: int, name: str) -> None:
    """Spend from the lease, after a refill if it must be."""
    try:
        lease.spend(amount, reference=name)
    except LeaseExhausted:
        lease.refill(amount)
        lease.spend(amount, reference=name)


def main(url: str, holder: str, log_path: str, terms: str) -> None:
    """Follow what the standard input says."""
    chance = random.Random(log_path)
    log = os.open(log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    retries = Retries(total_s=4.0, attempt_s=2.0)
    with Client(url, os.environ["API_KEY"], retries=retries) as client:
        lease = client.lease(holder, **json.loads(terms))
        say("open")
        for line in sys.stdin:
            name, *given = line.split()
            if name == "decide":
                say("did", *decide(lease, int(given[0]), log, chance, Path(log_path).name))
            else:
                lease.close()
                say("closed")
                return


if __name__ == "__main__":
    main(*sys.argv[1:])
