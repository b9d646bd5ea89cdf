"""Rooms for the races."""

import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.concurrency.rooms import Room, Session


@pytest.fixture
def make_room(committed_db: None, raw_connection: Callable[..., Session]) -> Iterator[Callable[..., Room]]:
    """`make_room(broken=None, constrained=True, together=True)`: a room, gone at the end; the test's connection enters it too.

    together: requests go the way of those answered together, as the product's do; else each has a transaction of its own.
    """
    with ExitStack() as stack:

        def make(broken: str | None = None, *, constrained: bool = True, together: bool = True) -> Room:
            name = f"room_{uuid.uuid4().hex[:12]}"
            owner, observer = (raw_connection(autocommit=True) for _ in range(2))
            owner.execute(f"CREATE SCHEMA {name}")
            stack.callback(lambda: owner.execute(f"DROP SCHEMA {name} CASCADE"))
            observer.execute(f"SET search_path = {name}, public")
            room = Room(name, owner, observer, is_grouped=together)
            if broken:
                room.break_lock(broken)
            if not constrained:
                room.drop_constraints()
            room.enter()
            return room

        yield make
