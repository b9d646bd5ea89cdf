"""Race schemas, in which locks or constraints can be switched off."""

import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.concurrency.race_harness import RaceSchema
from tests.nodes import Session


@pytest.fixture
def make_race_schema(committed_db: None, raw_connection: Callable[..., Session]) -> Iterator[Callable[..., RaceSchema]]:
    """`make_race_schema(broken=None, constrained=True, grouped=True)` makes a schema, which the test's connection uses too.

    broken: how the lock is broken, a key of `BROKEN`; None keeps it. constrained: False drops the keys, checks and triggers.
    grouped: True executes requests by group commit, as the product does; False in separate transactions.
    """
    with ExitStack() as stack:

        def make(broken: str | None = None, *, constrained: bool = True, grouped: bool = True) -> RaceSchema:
            name = f"race_{uuid.uuid4().hex[:12]}"
            owner, observer = (raw_connection(autocommit=True) for _ in range(2))
            owner.execute(f"CREATE SCHEMA {name}")
            stack.callback(lambda: owner.execute(f"DROP SCHEMA {name} CASCADE"))
            observer.execute(f"SET search_path = {name}, public")
            schema = RaceSchema(name, owner, observer, is_grouped=grouped)
            if broken:
                schema.break_lock(broken)
            if not constrained:
                schema.drop_constraints()
            schema.use()
            return schema

        yield make
