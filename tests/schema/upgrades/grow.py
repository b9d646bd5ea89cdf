"""Grows a ledger to a number of entries, with the code of the folder in which it runs: `python grow.py ENTRIES`."""

import os
import random
import sys
from pathlib import Path

import django

sys.path.insert(0, str(Path.cwd()))
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "ledger_project.settings")
django.setup()

from ledger import services  # noqa: E402
from ledger.models import Entry  # noqa: E402
from ledger.rules.requests import GrantRequest, SpendRequest  # noqa: E402

HOLDERS = 200
PER_BATCH = 1000


def grow(entries: int, seed: int = 20) -> None:
    """Add grants and spends until the ledger has this number of entries."""
    chance = random.Random(seed)
    number = 0
    while Entry.objects.count() < entries:
        requests = []
        for _ in range(PER_BATCH):
            number += 1
            holder, key = f"grown-{chance.randrange(HOLDERS)}", f"grown-{number}"
            kind = GrantRequest if number <= PER_BATCH or chance.random() < 0.01 else SpendRequest
            amount = 10_000 if kind is GrantRequest else chance.randrange(1, 20)
            requests.append(kind(holder_id=holder, amount=amount, idempotency_key=key))
        services.batch(requests, mode="each", idempotency_key=f"grown-batch-{number}")


grow(int(sys.argv[1]))
