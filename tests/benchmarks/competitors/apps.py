"""The competitors as a Django app, for the benchmark alone."""

from django.apps import AppConfig

from ledger.api.kit.front.page_budget import PageBudget


def is_operator(budget: PageBudget, session: str | None) -> bool:
    """Give the competitors' paths the threads of operators' pages: a stranger's pages have one thread and a budget of CPU."""
    return True


class CompetitorsConfig(AppConfig):
    """Other ways to do the same."""

    name = "tests.benchmarks.competitors"
    label = "competitors"

    def ready(self) -> None:
        """Bound the competitors by their API key alone, as the ledger's own calls are."""
        PageBudget.is_operator = is_operator  # type: ignore[method-assign]
