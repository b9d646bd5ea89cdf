"""A column of balances moves into the ledger and back while users spend: `python -m tests.benchmarks.moving [HOLDERS] [SPENDS]`.

As docs/how-to/move-with-traffic-running.md says it, with PostgreSQL and threads. Prints what each step took, and ends with an
error unless the planted difference is the only one and every credit is accounted for.
"""

import os
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

Result = TypeVar("Result")

HOLDERS, DECISIONS = 50_000, 20_000
THREADS: Final = 4
AT_ONCE: Final = 500
"""How many users move together."""
PLANTED: Final = 7
"""The user from whom forgotten code takes credits without asking."""

TABLES: Final = (
    "CREATE TABLE moving_user (id integer PRIMARY KEY, credits bigint NOT NULL, place text NOT NULL DEFAULT 'column')",
    "CREATE INDEX moving_user_place ON moving_user (place, id)",
    """
    CREATE TABLE moving_decision (
        id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, of_user integer NOT NULL, amount bigint NOT NULL,
        is_allowed boolean NOT NULL, balance bigint NOT NULL
    )
    """,
)
DROPPED: Final = "DROP TABLE IF EXISTS moving_user, moving_decision"


@dataclass(slots=True)
class Shop:
    """The team's own application: its column, its table of decisions, and where each user's credits are.

    Args:
        prefix: of the names that its users have in the ledger.
        taken: by user, how many rest its spends took, wherever they were.
        jobs: how many spends were answered, by what answered.
    """

    holders: int
    prefix: str
    taken: Counter[int] = field(default_factory=Counter)
    jobs: Counter[str] = field(default_factory=Counter)
    sent: int = 0
    has_ended: threading.Event = field(default_factory=threading.Event)
    errors: list[BaseException] = field(default_factory=list)
    _count: threading.Lock = field(default_factory=threading.Lock)
    _sending: threading.Lock = field(default_factory=threading.Lock)

    def holder(self, user: int) -> str:
        """What the user is called in the ledger."""
        return f"{self.prefix}{user}"

    def first_credits(self, user: int) -> int:
        """What the user has at the beginning."""
        return user * 7 % 50

    def open(self) -> None:
        """Make the column."""
        from django.db import connection

        with connection.cursor() as cursor:
            for statement in TABLES:
                cursor.execute(statement)
            cursor.execute(
                "INSERT INTO moving_user (id, credits) SELECT n, n * 7 %% 50 FROM generate_series(1, %s) AS n", [self.holders]
            )
            cursor.execute("ANALYZE moving_user")

    def spend(self, user: int, amount: int, job: str) -> bool:
        """Take credits from where they are; False if there are too few."""
        while True:
            place, allowed = self._spend_in_column(user, amount)
            if place == "ledger":
                allowed = self._spend_in_ledger(user, amount, job)
            if allowed is not None:
                with self._count:
                    self.taken[user] += amount if allowed else 0
                    self.jobs[place] += 1
                return allowed

    def _spend_in_column(self, user: int, amount: int) -> tuple[str, bool | None]:
        from django.db import connection, transaction

        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("SELECT credits, place FROM moving_user WHERE id = %s FOR UPDATE", [user])
            rest, place = cursor.fetchone()
            if place != "column":
                return place, None
            allowed = rest >= amount
            if allowed:
                rest -= amount
                cursor.execute("UPDATE moving_user SET credits = %s WHERE id = %s", [rest, user])
            self._decide(cursor, user, amount, rest, allowed=allowed)
        return place, allowed

    def _decide(self, cursor: Any, user: int, amount: int, rest: int, *, allowed: bool) -> None:
        sql = "INSERT INTO moving_decision (of_user, amount, is_allowed, balance) VALUES (%s, %s, %s, %s)"
        cursor.execute(sql, [user, amount, allowed, rest])

    def _spend_in_ledger(self, user: int, amount: int, job: str) -> bool | None:
        """As `spend`; None if the credits have left the ledger since."""
        from ledger import services
        from ledger.database.statements import fetch_value
        from ledger.errors import InsufficientCredits

        try:
            key = f"{job}-{time.monotonic_ns()}"
            _patiently(lambda: services.spend(holder_id=self.holder(user), amount=amount, idempotency_key=key))
        except InsufficientCredits:
            place = fetch_value(str, "SELECT place FROM moving_user WHERE id = %s", [user])
            return False if place == "ledger" else None
        return True

    def take_without_asking(self, user: int, amount: int) -> None:
        """What the forgotten code does."""
        from django.db import connection, transaction

        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("UPDATE moving_user SET credits = credits - %s WHERE id = %s RETURNING credits", [amount, user])
            (rest,) = cursor.fetchone()
            self._decide(cursor, user, amount, rest, allowed=True)
        with self._count:
            self.taken[user] += amount

    def give(self, user: int, amount: int) -> None:
        """Undo that by hand, without a decision that anybody sends."""
        from django.db import connection

        with connection.cursor() as cursor:
            cursor.execute("UPDATE moving_user SET credits = credits + %s WHERE id = %s", [amount, user])
        with self._count:
            self.taken[user] -= amount

    def send(self) -> int:
        """Send up to 1,000 decisions in their order; return how many there were."""
        from django.db import connection

        from ledger.database.statements import fetch_rows
        from ledger.shadow.requests import ObservationRequest

        with self._sending:
            sql = "SELECT id, of_user, amount, is_allowed, balance FROM moving_decision ORDER BY id LIMIT 1000"
            rows = fetch_rows(lambda *row: row, sql)
            _observe([
                ObservationRequest(
                    holder_id=self.holder(user), idempotency_key=f"decision-{number}", operation="spend", amount=amount,
                    is_allowed=allowed, balance=balance,
                )
                for number, user, amount, allowed, balance in rows
            ])  # fmt: skip
            with connection.cursor() as cursor:
                cursor.execute("DELETE FROM moving_decision WHERE id = ANY(%s)", [[row[0] for row in rows]])
            self.sent += len(rows)
            return len(rows)

    # Moving ------------------------------------------------------------------------------------------

    def promote_some(self, *, reason: str = "") -> int:
        """Move the next users into the ledger; return how many there were."""
        from ledger.database.statements import fetch_rows, fetch_value
        from ledger.shadow.promoting import Move, promote
        from ledger.shadow.requests import ObservationRequest

        users = self._stop("column")
        own = [user for user, _ in users]
        while fetch_value(bool, "SELECT EXISTS (SELECT FROM moving_decision WHERE of_user = ANY(%s))", [own]):
            self.send()
        with self._sending:
            _observe([
                ObservationRequest(
                    holder_id=self.holder(user), idempotency_key=f"moving-{user}", operation="balance", balance=rest
                )
                for user, rest in users
            ])  # fmt: skip
        moves = [Move(holder_id=self.holder(user), balances={"credits": rest}) for user, rest in users]
        results = _patiently(lambda: promote(moves, reason=reason))
        assert [each.result for each in results] == ["moved"] * len(users), Counter(each.result for each in results)
        fetch_rows(int, "UPDATE moving_user SET credits = 0, place = 'ledger' WHERE id = ANY(%s) RETURNING id", [own])
        return len(users)

    def bring_back_some(self) -> int:
        """Move the next users back into the column; return how many there were."""
        from django.db import connection

        from ledger.shadow.promoting import bring_back

        users = self._stop("ledger")
        results = _patiently(lambda: bring_back([self.holder(user) for user, _ in users]))
        assert [each.result for each in results] == ["moved"] * len(users)
        left = [(each.accounts[0]["balance"], user) for each, (user, _) in zip(results, users, strict=True)]
        with connection.cursor() as cursor:
            cursor.execute(
                "UPDATE moving_user SET credits = b.credits, place = 'column' "
                "FROM unnest(%s::bigint[], %s::int[]) AS b (credits, id) WHERE moving_user.id = b.id",
                [[rest for rest, _ in left], [user for _, user in left]],
            )
        return len(users)

    def _stop(self, place: str) -> list[tuple[int, int]]:
        """Have the other system, or the ledger, decide nothing more about the next users; return them with their column."""
        from ledger.database.statements import fetch_rows

        sql = (
            "WITH moved AS (UPDATE moving_user SET place = 'moving' WHERE id IN "
            "(SELECT id FROM moving_user WHERE place = %s ORDER BY id LIMIT %s) AND place = %s RETURNING id, credits) "
            "SELECT id, credits FROM moved ORDER BY id"
        )
        return fetch_rows(lambda *row: row, sql, [place, AT_ONCE, place])

    # Traffic -----------------------------------------------------------------------------------------

    @contextmanager
    def traffic(self, threads: int = THREADS) -> Iterator[None]:
        """For the block, users spend and decisions are sent. Raises what a thread raised."""
        works: list[Callable[[], None]] = [*(self._customer(number) for number in range(threads)), self._sender]
        running = [threading.Thread(target=self._guard, args=(work,), daemon=True) for work in works]
        for thread in running:
            thread.start()
        try:
            yield
        finally:
            self.has_ended.set()
            for thread in running:
                thread.join()
        if self.errors:
            raise self.errors[0]

    def _guard(self, work: Callable[[], None]) -> None:
        from django.db import connections

        try:
            work()
        except BaseException as error:
            self.errors.append(error)
            self.has_ended.set()
        finally:
            connections.close_all()

    def _customer(self, number: int) -> Callable[[], None]:
        def spend() -> None:
            chance, jobs = random.Random(number), 0
            while not self.has_ended.is_set():
                jobs += 1
                self.spend(chance.randint(1, self.holders), chance.randint(1, 9), f"{number}-{jobs}")

        return spend

    def _sender(self) -> None:
        while not self.has_ended.is_set():
            self.send()

    def answered(self) -> int:
        """How many spends were answered so far."""
        with self._count:
            return self.jobs.total()

    def wait_for(self, jobs: int) -> None:
        """Return when this many more spends were answered."""
        wanted = self.answered() + jobs
        while self.answered() < wanted and not self.has_ended.is_set():
            self.has_ended.wait(0.01)


@dataclass(frozen=True, slots=True)
class Step:
    """A step of the move: what it took, and how many spends were answered within it."""

    name: str
    seconds: float
    answered: int


def move(shop: Shop, *, decisions: int) -> list[Step]:
    """Observe, find the planted difference, promote all, go on against the ledger, and go back; all of it with traffic."""
    steps: list[Step] = []

    def timed(name: str, act: Callable[[], object]) -> None:
        began, before = time.monotonic(), shop.answered()
        act()
        steps.append(Step(name, time.monotonic() - began, shop.answered() - before))

    with shop.traffic():
        timed("observed", lambda: shop.wait_for(decisions))
        shop.take_without_asking(PLANTED, 100)
        shop.give(PLANTED, 100)
        timed("promoted", lambda: _all(lambda: shop.promote_some(reason="Forgotten code: repaired by hand")))
        timed("spent in the ledger", lambda: shop.wait_for(decisions))
        timed("went back", lambda: _all(shop.bring_back_some))
        timed("observed again", lambda: shop.wait_for(decisions // 10))
    while shop.send():
        pass
    return steps


def _observe(observations: Sequence[Any]) -> None:
    from ledger.shadow.observing import observe_all

    _patiently(lambda: observe_all(observations))


def _patiently(act: Callable[[], Result]) -> Result:
    """Do it again, with the same keys, while others hold the locks; nothing was written then."""
    from ledger.errors import Retryable

    while True:
        try:
            return act()
        except Retryable:
            continue


def _all(some: Callable[[], int]) -> None:
    while some():
        pass


def check(shop: Shop, first_differences: Sequence[str]) -> None:
    """Raise unless the planted difference was the only one, and each user has what its spends left it."""
    from ledger.database.statements import fetch_rows, fetch_value

    _ensure(list(first_differences) == [shop.holder(PLANTED)], f"only the planted difference is found, not {first_differences}")
    left = dict(fetch_rows(lambda *row: row, "SELECT id, credits FROM moving_user WHERE place = 'column'"))
    expected = {user: shop.first_credits(user) - shop.taken[user] for user in range(1, shop.holders + 1)}
    wrong = {user: (left.get(user), rest) for user, rest in expected.items() if left.get(user) != rest}
    _ensure(not wrong, f"each user has what is left: {dict(list(wrong.items())[:5])}")
    in_ledger = fetch_value(
        int,
        "SELECT COALESCE(sum(amount), 0)::bigint FROM ledger_entry WHERE starts_with(holder_id, %s)",
        [shop.prefix],
    )
    _ensure(in_ledger == 0, f"nothing is left in the ledger, not {in_ledger}")


def differing(shop: Shop) -> list[str]:
    """Return the users of the shop of whom a decision differed, at any time."""
    from ledger.database.statements import fetch_rows

    sql = (
        "SELECT DISTINCT holder_id FROM ledger_observation WHERE starts_with(holder_id, %s) AND difference IS NOT NULL "
        "ORDER BY holder_id"
    )
    return fetch_rows(str, sql, [shop.prefix])


def _ensure(is_so: bool, what: str) -> None:
    if not is_so:
        raise SystemExit(f"Not so: {what}")


def main() -> None:
    """Do it with 50,000 users, and print what it took."""
    from tests.benchmarks.server import ROOT, BenchmarkServer

    holders, decisions = (
        int(sys.argv[place]) if len(sys.argv) > place else usual for place, usual in ((1, HOLDERS), (2, DECISIONS))
    )
    server = BenchmarkServer(Path(os.environ.get("LEDGER_DATA_DIR", str(ROOT / ".data"))).absolute() / "bench-moving")
    try:
        with server.superuser() as connection:
            connection.execute("GRANT CREATE ON SCHEMA public TO ledger_app")
        shop = Shop(holders, "user-")
        shop.open()
        steps = move(shop, decisions=decisions)
        check(shop, differing(shop))
        for step in steps:
            sys.stdout.write(f"{step.name}: {step.seconds:,.1f} s, {step.answered:,} spends answered in that time\n")
        sys.stdout.write(
            f"{holders:,} holders, {shop.sent:,} decisions observed, {shop.jobs['ledger']:,} spends in the ledger, 0 lost\n"
        )
    finally:
        server.close()


if __name__ == "__main__":
    main()
