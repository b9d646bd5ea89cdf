"""A peer from PyPI on the same server: django-hordak, installed into a separate environment."""

import json
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from statistics import median

from ledger import reads, services
from ledger_project.serving.postgres.credentials import SUPERUSER
from tests.benchmarks.measuring import Result, result
from tests.benchmarks.server import BenchmarkServer

HORDAK = ("django-hordak==2.0.0", "django==5.2.19", "psycopg[binary]==3.3.9")
HORDAK_PROCESS = Path(__file__).resolve().parents[1] / "competitors" / "hordak_process.py"
CALLS = 300
ROUNDS = 3


def run(server: BenchmarkServer) -> list[Result]:
    """Measure spends and balances of the ledger beside transfers and balances of the peer, each in one process."""
    python = server.postgres.data_dir / "hordak" / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(python.parent.parent)], check=True)
        subprocess.run([python, "-m", "pip", "-q", "--disable-pip-version-check", "install", *HORDAK], check=True)
    with server.superuser() as connection:
        connection.execute("DROP DATABASE IF EXISTS hordak WITH (FORCE)")
        connection.execute("CREATE DATABASE hordak")
    kept = server.postgres.credentials
    url = kept.url(SUPERUSER, kept.superuser_password, "hordak")
    server.grant_to_all("peer-", 100)
    ours: dict[str, list[float]] = {"move": [], "balance": []}
    theirs: dict[str, list[float]] = {"move": [], "balance": []}
    with subprocess.Popen([python, HORDAK_PROCESS, url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.readline()
        for _ in range(ROUNDS):
            ours["move"].append(_rate(_spend))
            ours["balance"].append(_rate(lambda number: reads.balance(f"peer-{number % 100}")))
            process.stdin.write(f"{CALLS}\n")
            process.stdin.flush()
            given = json.loads(process.stdout.readline())
            for name, rates in theirs.items():
                rates.append(given[name])
        process.stdin.close()
    with server.superuser() as connection:
        connection.execute("DROP DATABASE hordak WITH (FORCE)")
    return [
        result("peers", "a spend, one process", "django-hordak 2.0.0: a transfer", ours["move"], theirs["move"], aim=">= 1.0",
               context=f"{median(ours['move']):.0f}/s beside {median(theirs['move']):.0f}/s"),
        result("peers", "a balance, one process", "django-hordak 2.0.0: a balance", ours["balance"], theirs["balance"],
               aim=">= 1.0", context=f"{median(ours['balance']):.0f}/s beside {median(theirs['balance']):.0f}/s"),
    ]  # fmt: skip


def _spend(number: int) -> None:
    """A spend of one of 100 holders."""
    services.spend(holder_id=f"peer-{number % 100}", amount=120, idempotency_key=str(uuid.uuid4()), reason="chat completion")


def _rate(call: Callable[[int], object]) -> float:
    """Calls a second."""
    start = time.perf_counter()
    for number in range(CALLS):
        call(number)
    return CALLS / (time.perf_counter() - start)
