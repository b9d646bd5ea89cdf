"""The project's settings with the rivals' paths beside its own, so that all run in the same server."""

from ledger_project.settings import *  # noqa: F403
from ledger_project.settings import INSTALLED_APPS

INSTALLED_APPS = [*INSTALLED_APPS, "tests.benchmarks.rivals"]
ROOT_URLCONF = "tests.benchmarks.rivals.urls"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
