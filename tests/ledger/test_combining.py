"""Who leads, who waits and who is told what, among threads whose requests are answered together. Without a database."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from ledger.errors import HolderBusy, Invalid, OutcomeUnknown
from ledger.journal import Recorded
from ledger.rules import Request, SpendRequest
from ledger.services.combining import Combiner, Outcome

TIMEOUT_S = 30


def spend(key: str, holder: str = "a") -> Request:
    return SpendRequest(holder_id=holder, amount=1, idempotency_key=key)


class Ways:
    """Answers by noting who was answered how; stops on demand, so that a test decides what happens meanwhile."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, list[str]]] = []
        self.locked: set[str] = set()
        self.raised: dict[str, BaseException] = {}
        self.wrong: set[str] = set()
        self.stopped = {way: threading.Event() for way in ("alone", "together", "after waiting")}
        self.go_on = {way: threading.Event() for way in self.stopped}
        for event in self.go_on.values():
            event.set()

    def _do(self, way: str, requests: Sequence[Request]) -> None:
        self.calls.append((way, [request.idempotency_key for request in requests]))
        self.stopped[way].set()
        assert self.go_on[way].wait(TIMEOUT_S)
        if way in self.raised:
            raise self.raised[way]

    def _outcome(self, request: Request) -> Outcome:
        if request.idempotency_key in self.wrong:
            return Invalid(pointer="/amount", rule="range", detail=request.idempotency_key)
        return Recorded(entry=request.idempotency_key)  # type: ignore[arg-type]

    def alone(self, request: Request) -> Recorded:
        self._do("alone", [request])
        outcome = self._outcome(request)
        assert isinstance(outcome, Recorded)
        return outcome

    def together(self, requests: Sequence[Request]) -> Sequence[Outcome]:
        self._do("together", requests)
        return [None if request.holder_id in self.locked else self._outcome(request) for request in requests]

    def after_waiting(self, holder_id: str, arrived: Callable[[], Sequence[Request]]) -> Sequence[Outcome]:
        self.calls.append(("after waiting", [holder_id]))
        self.stopped["after waiting"].set()
        assert self.go_on["after waiting"].wait(TIMEOUT_S)
        if "after waiting" in self.raised:
            raise self.raised["after waiting"]
        requests = arrived()
        self.calls.append(("took", [request.idempotency_key for request in requests]))
        return [self._outcome(request) for request in requests]


class Scene:
    """A combiner, its ways, and threads that bring requests."""

    def __init__(self, pool: ThreadPoolExecutor, most: int = 4) -> None:
        self.ways = Ways()
        self.combiner = Combiner(self.ways, most=lambda: most)
        self._pool = pool

    def bring(self, key: str, holder: str = "a") -> "Future[Recorded]":
        """Have a thread bring the request; returns when it has a seat."""
        before = self._seated()
        brought = self._pool.submit(self.combiner.answer, spend(key, holder))
        while self._seated() == before and not brought.done():
            pass
        return brought

    def _seated(self) -> int:
        calls = sum(len(keys) for way, keys in self.ways.calls if way in ("alone", "together"))
        return calls + len(self.combiner._queue) + sum(map(len, self.combiner._wanted.values()))

    def stop_in(self, way: str) -> None:
        self.ways.stopped[way].clear()
        self.ways.go_on[way].clear()

    def wait_for(self, way: str) -> None:
        assert self.ways.stopped[way].wait(TIMEOUT_S)

    def let_go(self, way: str) -> None:
        self.ways.go_on[way].set()

    def is_at_rest(self) -> bool:
        return not (self.combiner._queue or self.combiner._wanted or self.combiner._is_led)


@pytest.fixture
def pool() -> Any:
    with ThreadPoolExecutor(12) as pool:
        yield pool


def entries(futures: Sequence["Future[Recorded]"]) -> list[Any]:
    return [future.result(TIMEOUT_S).entry for future in futures]


def test_what_arrives_meanwhile_is_answered_together_in_its_order(pool: ThreadPoolExecutor) -> None:
    scene = Scene(pool)
    scene.stop_in("together")
    first = scene.bring("1")
    scene.wait_for("together")
    others = [scene.bring(key) for key in ("2", "3", "4")]
    assert scene.ways.calls == [("together", ["1"])]
    scene.let_go("together")

    assert entries([first, *others]) == ["1", "2", "3", "4"]
    assert scene.ways.calls == [("together", ["1"]), ("together", ["2", "3", "4"])]
    assert scene.is_at_rest()


def test_a_leader_takes_no_more_than_it_may_and_the_next_one_leads_the_rest(pool: ThreadPoolExecutor) -> None:
    scene = Scene(pool, most=2)
    scene.stop_in("together")
    first = scene.bring("1")
    scene.wait_for("together")
    others = [scene.bring(key) for key in ("2", "3", "4", "5", "6")]
    scene.let_go("together")

    assert entries([first, *others]) == ["1", "2", "3", "4", "5", "6"]
    assert [keys for _, keys in scene.ways.calls] == [["1"], ["2", "3"], ["4", "5"], ["6"]]


def test_with_at_most_one_per_transaction_nobody_waits_for_another(pool: ThreadPoolExecutor) -> None:
    scene = Scene(pool, most=1)
    scene.stop_in("alone")
    brought = [scene.bring(key) for key in ("1", "2", "3")]
    while len(scene.ways.calls) < 3:
        pass
    scene.let_go("alone")

    assert sorted(entries(brought)) == ["1", "2", "3"]
    assert {way for way, _ in scene.ways.calls} == {"alone"}


def test_what_is_wrong_with_one_is_told_to_that_one(pool: ThreadPoolExecutor) -> None:
    scene = Scene(pool)
    scene.ways.wrong = {"2"}
    scene.stop_in("together")
    first = scene.bring("1")
    scene.wait_for("together")
    wrong, right = scene.bring("2"), scene.bring("3")
    scene.let_go("together")

    assert entries([first, right]) == ["1", "3"]
    with pytest.raises(Invalid) as told:
        wrong.result(TIMEOUT_S)
    assert told.value.facts["detail"] == "2"


def test_a_locked_holder_keeps_nobody_else_waiting_and_one_waits_for_all_who_want_it(pool: ThreadPoolExecutor) -> None:
    scene = Scene(pool)
    scene.ways.locked = {"busy"}
    scene.stop_in("after waiting")
    lookout = scene.bring("1", "busy")
    scene.wait_for("after waiting")

    assert entries([scene.bring("2", "free")]) == ["2"]
    joined = [scene.bring("3", "busy"), scene.bring("4", "busy")]
    assert entries([scene.bring("5", "free")]) == ["5"]
    # Those who joined did not try the lock: it is known to be taken.
    assert [keys for way, keys in scene.ways.calls if way == "together"] == [["1"], ["2"], ["5"]]
    scene.let_go("after waiting")

    assert entries([lookout, *joined]) == ["1", "3", "4"]
    assert scene.ways.calls.count(("after waiting", ["busy"])) == 1
    assert ("took", ["1", "3", "4"]) in scene.ways.calls
    assert scene.is_at_rest()


def test_who_waits_too_long_is_told_so_and_those_who_joined_too(pool: ThreadPoolExecutor) -> None:
    scene = Scene(pool)
    scene.ways.locked = {"busy"}
    scene.ways.raised["after waiting"] = HolderBusy(key="ledger/busy")
    scene.stop_in("after waiting")
    brought = [scene.bring("1", "busy")]
    scene.wait_for("after waiting")
    brought.append(scene.bring("2", "busy"))
    scene.let_go("after waiting")

    errors = [future.exception(TIMEOUT_S) for future in brought]
    assert [type(error) for error in errors] == [HolderBusy, HolderBusy]
    assert errors[0] is not errors[1], "each thread raises its own"
    assert scene.is_at_rest()


def test_when_a_transaction_fails_each_is_answered_alone(pool: ThreadPoolExecutor) -> None:
    scene = Scene(pool)
    scene.ways.raised["together"] = RuntimeError("a row of somebody else")
    scene.stop_in("together")
    first = scene.bring("1")
    scene.wait_for("together")
    others = [scene.bring(key) for key in ("2", "3")]
    scene.let_go("together")

    assert entries([first, *others]) == ["1", "2", "3"]
    assert sorted(keys for way, keys in scene.ways.calls if way == "alone") == [["1"], ["2"], ["3"]]
    assert scene.is_at_rest()


def test_when_nobody_knows_whether_it_was_committed_all_are_told_so_and_nothing_is_tried_again(pool: ThreadPoolExecutor) -> None:
    scene = Scene(pool)
    scene.ways.raised["together"] = OutcomeUnknown(holder_id="a")
    scene.stop_in("together")
    brought = [scene.bring("1")]
    scene.wait_for("together")
    brought += [scene.bring(key) for key in ("2", "3")]
    scene.let_go("together")

    assert [type(future.exception(TIMEOUT_S)) for future in brought] == [OutcomeUnknown] * 3
    assert [way for way, _ in scene.ways.calls] == ["together", "together"]


def test_a_leader_that_is_interrupted_leaves_nobody_behind(pool: ThreadPoolExecutor) -> None:
    scene = Scene(pool)
    scene.stop_in("together")
    first = scene.bring("1")
    scene.wait_for("together")
    leader, follower = scene.bring("2"), scene.bring("3")
    scene.ways.raised["together"] = SystemExit()
    scene.let_go("together")

    assert [type(future.exception(TIMEOUT_S)) for future in (leader, first)] == [SystemExit, SystemExit]
    assert entries([follower]) == ["3"]
    scene.ways.raised.clear()
    assert entries([scene.bring("4")]) == ["4"]
    assert scene.is_at_rest()
