"""What the first spend after a pause takes, with a daily grant: `python -m tests.benchmarks.late_grants [--one-by-one]`.

The median of three spends, each of a holder of its own whose test clock has moved. With --one-by-one each period is granted and
expired by entries of its own, as if no periods could be skipped.
"""

import argparse
import os
import sys
import time
import uuid
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median
from typing import Any
from unittest.mock import patch

from tests.benchmarks.server import ROOT, BenchmarkServer

DAYS = (1, 12, 365, 1_095)
TEN_YEARS = 3_650
TERMS: dict[str, dict[str, Any]] = {
    "100 that expire with the day": {"amount": 100},
    "100 that expire after 10 days": {"amount": 100, "expiry": "after_days", "expires_after_days": 10},
    "up to 100, which never expire": {"up_to": 100, "expiry": "never"},
    "100, of which 250 roll over": {"amount": 100, "expiry": "rollover", "rollover_cap": 250},
    "up to 100, which expire after 10 days": {"up_to": 100, "expiry": "after_days", "expires_after_days": 10},
}
TIMES = 3


def main() -> None:
    """Print one line for each kind of terms."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--one-by-one", action="store_true", help="skip no periods")
    options = parser.parse_args()
    server = BenchmarkServer(Path(os.environ.get("LEDGER_DATA_DIR", str(ROOT / ".data"))).absolute() / "bench-late")
    try:
        from django.conf import settings
        from django.test import override_settings

        from ledger.rules.decisions import skipped_periods

        limit = 10**9 if options.one_by_one else skipped_periods.MADE_ONE_BY_ONE
        clocks = override_settings(LEDGER={**settings.LEDGER, "TEST_CLOCKS": True})
        with clocks, patch.object(skipped_periods, "MADE_ONE_BY_ONE", limit):
            days_late = DAYS if options.one_by_one else (*DAYS, TEN_YEARS)
            sys.stdout.write(f"{'ms, after a pause of days':40}" + "".join(f"{days:>10,}" for days in days_late) + "\n")
            for name, terms in TERMS.items():
                sys.stdout.write(f"{name:40}" + "".join(f"{_median_ms(terms, days):10.1f}" for days in days_late) + "\n")
                sys.stdout.flush()
    finally:
        server.close()


def _median_ms(terms: dict[str, Any], days: int) -> float:
    from ledger import services

    found = []
    for _ in range(TIMES):
        holder = f"late-{uuid.uuid4()}"
        named = {"holder_id": holder, "recurring_grant": "daily", "interval": "day", **terms}
        services.set_recurring_grant(**named, idempotency_key="set")
        services.grant_due_period(holder_id=holder)
        later = datetime.now(UTC) + timedelta(days=days, hours=1)
        services.set_clock(holder_id=holder, now=later, idempotency_key="pause")
        began = time.perf_counter()
        services.spend(holder_id=holder, amount=1, idempotency_key="spend")
        found.append((time.perf_counter() - began) * 1e3)
    return median(found)


if __name__ == "__main__":
    main()
