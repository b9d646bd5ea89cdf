"""The people who use the admin, as a Django application."""

from typing import TYPE_CHECKING, Any

from django.apps import AppConfig

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ledger.operators.additions import SearchResult


class OperatorsConfig(AppConfig):
    """Roles, preferences, two-step login, and the recording of operators' logins and changes."""

    name = "ledger_project.operators"
    verbose_name = "Operators"

    def ready(self) -> None:
        """Have the staff log record logins and changes of operators and groups; let Ctrl+K find pages and actions."""
        from ledger.operators import additions
        from ledger_project.operators import recording

        recording.connect()
        additions.register_search(_destinations)
        additions.register_search(_alerts)
        additions.register_guesses(_similar_destinations)
        additions.register_guesses(_similar_alerts)


def _destinations(request: Any, word: str) -> "Sequence[SearchResult]":
    from ledger_project.operators import destinations

    return destinations.find(request, word)


def _similar_destinations(request: Any, word: str) -> "Sequence[SearchResult]":
    from ledger_project.operators import destinations

    return destinations.guess(request, word)


def _alerts(request: Any, word: str) -> "Sequence[SearchResult]":
    from ledger_project.operators import alert_rules

    return alert_rules.find(request, word)


def _similar_alerts(request: Any, word: str) -> "Sequence[SearchResult]":
    from ledger_project.operators import alert_rules

    return alert_rules.guess(request, word)
