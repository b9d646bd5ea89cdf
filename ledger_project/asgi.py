"""ASGI entry point: `ledger_project.asgi:application`."""

import os

from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "ledger_project.settings")

application = get_asgi_application()
