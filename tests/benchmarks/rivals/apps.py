"""The rivals as a Django app, for the benchmark alone."""

from django.apps import AppConfig


class RivalsConfig(AppConfig):
    """Other ways to do the same."""

    name = "tests.benchmarks.rivals"
    label = "rivals"
