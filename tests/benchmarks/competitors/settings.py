"""The project's settings with the competitors' paths in addition, so that all run in the same server."""

from ledger_project.settings import *  # noqa: F403
from ledger_project.settings import INSTALLED_APPS

INSTALLED_APPS = [*INSTALLED_APPS, "tests.benchmarks.competitors"]
ROOT_URLCONF = "tests.benchmarks.competitors.urls"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
