"""Runs in the environment that has django-hordak: told a number, makes as many transfers and balances, and says how fast."""

import json
import sys
import time
from urllib.parse import unquote, urlsplit

import django
from django.conf import settings


def main(url: str) -> None:
    """Prepare the database, then answer each line of standard input."""
    found = urlsplit(url)
    role, _, address = found.netloc.rpartition("@")
    user, _, password = role.partition(":")
    host, _, port = address.rpartition(":")
    settings.configure(
        INSTALLED_APPS=["django.contrib.contenttypes", "django.contrib.auth", "mptt", "hordak"],
        DATABASES={
            "default": {
                "ENGINE": "django.db.backends.postgresql", "NAME": found.path[1:], "USER": user, "PASSWORD": password,
                "HOST": unquote(host), "PORT": port,
            }
        },
        DEFAULT_AUTO_FIELD="django.db.models.BigAutoField", USE_TZ=True, SECRET_KEY="only-here", DEFAULT_CURRENCY="EUR",
        CURRENCIES=["EUR"],
    )  # fmt: skip
    django.setup()
    from django.core.management import call_command
    from hordak.models import Account
    from moneyed import Money

    call_command("migrate", verbosity=0)
    revenue = Account.objects.create(name="revenue", code="1", type="IN", currencies=["EUR"])
    holders = [
        Account.objects.create(name=f"holder {number}", code=str(100 + number), type="LI", currencies=["EUR"])
        for number in range(100)
    ]
    print("ready", flush=True)
    for line in sys.stdin:
        calls = int(line)
        start = time.perf_counter()
        for number in range(calls):
            holders[number % 100].transfer_to(revenue, Money("1.20", "EUR"), description="chat completion")
        moved = time.perf_counter()
        for number in range(calls):
            holders[number % 100].get_balance()
        done = time.perf_counter()
        print(json.dumps({"move": calls / (moved - start), "balance": calls / (done - moved)}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
