"""The competitors as a Django app, for the benchmark alone."""

from django.apps import AppConfig


class CompetitorsConfig(AppConfig):
    """Other ways to do the same."""

    name = "tests.benchmarks.competitors"
    label = "competitors"
