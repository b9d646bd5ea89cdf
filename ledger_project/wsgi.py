"""WSGI entry point: `ledger_project.wsgi:application`. Does not come up on a database that would let wrong balances through."""

import os

from django.core.wsgi import get_wsgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "ledger_project.settings")

application = get_wsgi_application()

from ledger_project.start_guard import refuse_unsafe_database, wait_until_prepared  # noqa: E402 - Django must be set up first

wait_until_prepared()
refuse_unsafe_database()
