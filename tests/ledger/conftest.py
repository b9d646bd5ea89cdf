"""Two ways to another time: the clock that the ledger decides by, for what is past, and the server's, for one that is wrong."""

from collections.abc import Callable
from typing import Any

import pytest

from ledger import journal
from ledger.rules.instants import DAY_US
from ledger.testing import set_server_clock
from tests import nodes


@pytest.fixture
def ledger_clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """`ledger_clock(days)`: from now on the ledger decides as if it were `days` days later, in all threads.

    Less than 0 for earlier. Beyond the server's clock nothing can be recorded.
    """
    read = journal._account

    def move(days: float) -> None:
        def moved(*arguments: Any) -> Any:
            state = read(*arguments)
            return state._replace(now_us=state.now_us + int(days * DAY_US))

        monkeypatch.setattr(journal, "_account", moved)

    return move


@pytest.fixture
def server_clock(db: None) -> Callable[[str], None]:
    """`server_clock("1 day")`: from now on the server's clock is so much ahead for this session; `server_clock("0")` mends it."""
    if nodes.cluster:
        pytest.skip("on one node only: a session sets the clock of its own server")
    return lambda ahead: set_server_clock(f"pg_catalog.{{clock}}() + interval '{ahead}'")
