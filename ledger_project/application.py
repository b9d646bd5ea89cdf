"""The application with its views loaded, which has not looked at the database: `ledger_project.wsgi` is what servers call."""

import os

from django.core.wsgi import get_wsgi_application
from django.urls import get_resolver

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "ledger_project.settings")

application = get_wsgi_application()
# Imports the views, which Django would do at the first request.
get_resolver().url_patterns  # noqa: B018
