"""API keys that Ctrl+K finds by words of their names, among the newest."""

from collections.abc import Callable, Iterable
from typing import Any, Final

from ledger.keys.models import ApiKey
from ledger.keys.permissions import VIEW_APIKEY
from ledger.operators.additions import SearchResult
from ledger.staff.kit.cells import row_url
from ledger.staff.spelling import begins, resembles, words_of

NAMES_READ: Final = 500
SHORTEST_NAME: Final = 3
MOST: Final = 5


def search(request: Any, word: str) -> list[SearchResult]:
    """Return keys whose names have words that begin with those typed, if the operator may see keys."""
    return _find(request, word, begins)


def guess(request: Any, word: str) -> list[SearchResult]:
    """Return keys whose names resemble what was typed, if the operator may see keys."""
    return _find(request, word, resembles)


def _find(request: Any, word: str, fits: Callable[[Iterable[str], Iterable[str]], bool]) -> list[SearchResult]:
    typed = words_of(word)
    if not typed or len(word) < SHORTEST_NAME or not request.user.has_perm(VIEW_APIKEY):
        return []
    newest = ApiKey.objects.order_by("-pk")[:NAMES_READ]
    keys = [key for key in newest if fits(typed, words_of(f"{key.name} {key.prefix}"))]
    return [SearchResult(title=key.name, description="API key", url=row_url(ApiKey, key.pk), icon="key") for key in keys[:MOST]]
