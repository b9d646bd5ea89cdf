"""Which requests are executed together, which wait for a busy holder, and which result each caller gets. Without a database."""

import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from types import SimpleNamespace
from typing import Any

import pytest

from ledger.database import queues
from ledger.database.queues import Pending
from ledger.errors import HolderBusy, Invalid, OutcomeUnknown, ServerBusy
from ledger.journal import Result
from ledger.rules.requests import Request, SpendRequest
from ledger.services import group_commit
from ledger.services.group_commit import GroupCommit, ResultOrError
from tests import nodes

TIMEOUT_S = 30
SLOW_GROUP_S = 2.4
"""Almost the time after which requests behind a group are refused."""


def spend_request(key: str, holder: str = "a") -> Request:
    """A request to spend one credit of the holder."""
    return SpendRequest(holder_id=holder, amount=1, idempotency_key=key)


class Ways:
    """Executes by noting what was executed how; stops on demand, so that a test decides what arrives in the meantime."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, list[str]]] = []
        self.locked: set[str] = set()
        self.is_kept = False
        """A lock that is waited for only for a moment does not become free."""
        self.raised: dict[str, BaseException] = {}
        self.wrong: set[str] = set()
        self.seconds: list[float] = []
        self.tries_after_waiting = 1
        self.stuck: set[str] = set()
        """Holders that stay locked: a short wait for them has ended in vain at once, a longer one when the test says so."""
        self.stopped = {way: threading.Event() for way in ("together", "a moment", "after waiting", "took", "stuck")}
        self.go_on = {way: threading.Event() for way in self.stopped}
        for event in self.go_on.values():
            event.set()

    def _do(self, way: str, names: list[str]) -> None:
        self.calls.append((way, names))
        self.stopped[way].set()
        assert self.go_on[way].wait(TIMEOUT_S)
        if way in self.raised:
            raise self.raised[way]

    def _outcome(self, request: Request) -> ResultOrError:
        if request.idempotency_key in self.wrong:
            return Invalid(pointer="/amount", rule="range", detail=request.idempotency_key)
        return Result(entry=request.idempotency_key)  # type: ignore[arg-type]

    def together(self, requests: Sequence[Request]) -> Sequence[ResultOrError]:
        self._do("together", [request.idempotency_key for request in requests])
        return [None if request.holder_id in self.locked else self._outcome(request) for request in requests]

    def waiting_a_moment(self, requests: Sequence[Request], *, seconds: float) -> Sequence[ResultOrError]:
        assert seconds == group_commit.SHARED_WAIT_SECONDS
        self._do("a moment", [request.idempotency_key for request in requests])
        return [None if self.is_kept else self._outcome(request) for request in requests]

    def after_waiting(
        self, holder_id: str, arrived: Callable[[], Sequence[Request]], *, seconds: float
    ) -> Sequence[ResultOrError]:
        assert 0 < seconds <= queues.PATIENCE_SECONDS
        self.seconds.append(seconds)
        self._do("after waiting", [holder_id])
        if holder_id in self.stuck:
            if seconds > 0.1:
                self._do("stuck", [holder_id])
            raise HolderBusy(key=f"ledger/{holder_id}")
        for _ in range(self.tries_after_waiting):
            requests = arrived()
            self._do("took", [request.idempotency_key for request in requests])
        return [self._outcome(request) for request in requests]


class Scene:
    """A group commit, its ways, and callers whose outcomes are futures."""

    def __init__(self, most: int = 4, *, waits_a_moment: bool = False) -> None:
        self.ways = Ways()
        self.group_commit = GroupCommit(
            self.ways.together,
            self.ways.after_waiting,
            most=lambda: most,
            execute_shared=self.ways.waiting_a_moment if waits_a_moment else None,
        )
        self.notified: list[int] = []
        """How many requests each notification was about."""

    def submit(self, key: str, holder: str = "a") -> "Future[Any]":
        """Submit a request."""
        future: Future[Any] = Future()
        self.group_commit.submit(spend_request(key, holder), self._notify, future)
        return future

    def _notify(self, group: Sequence[Pending]) -> None:
        self.notified.append(len(group))
        for pending in group:
            try:
                pending.caller.set_result(pending.result())
            except BaseException as error:
                pending.caller.set_exception(error)

    def stop_in(self, way: str) -> None:
        self.ways.stopped[way].clear()
        self.ways.go_on[way].clear()

    def wait_for(self, way: str) -> None:
        assert self.ways.stopped[way].wait(TIMEOUT_S)

    @staticmethod
    def wait_until(is_so: Callable[[], bool]) -> None:
        deadline = time.monotonic() + TIMEOUT_S
        while not is_so():
            assert time.monotonic() < deadline
            nodes.pause()

    def let_go(self, way: str) -> None:
        self.ways.go_on[way].set()


@pytest.fixture
def scene() -> Iterator[Scene]:
    """A group commit without a database, whose steps the test holds back."""
    scene = Scene()
    yield scene
    for event in scene.ways.go_on.values():
        event.set()
    scene.group_commit.close()


def entries_of(futures: Sequence["Future[Any]"]) -> list[Any]:
    """The entries that the requests led to."""
    return [future.result(TIMEOUT_S).entry for future in futures]


def test_requests_that_arrive_while_a_group_is_executed_form_the_next_group_in_their_order(scene: Scene) -> None:
    scene.stop_in("together")
    first = scene.submit("1")
    scene.wait_for("together")
    others = [scene.submit(key) for key in ("2", "3", "4")]
    assert scene.ways.calls == [("together", ["1"])]
    scene.let_go("together")

    assert entries_of([first, *others]) == ["1", "2", "3", "4"]
    assert scene.ways.calls == [("together", ["1"]), ("together", ["2", "3", "4"])]
    assert scene.notified == [1, 3]


def test_a_group_has_no_more_than_it_may(scene: Scene) -> None:
    scene.stop_in("together")
    futures = [scene.submit("1")]
    scene.wait_for("together")
    futures += [scene.submit(str(number)) for number in range(2, 8)]
    scene.let_go("together")

    assert entries_of(futures) == [str(number) for number in range(1, 8)]
    assert [keys for _, keys in scene.ways.calls] == [["1"], ["2", "3", "4", "5"], ["6", "7"]]


def test_the_next_group_waits_for_the_clients_that_just_had_a_response(scene: Scene) -> None:
    scene.group_commit._gather_seconds = TIMEOUT_S
    scene.stop_in("together")
    futures = [scene.submit("1")]
    scene.wait_for("together")
    futures += [scene.submit("2"), scene.submit("3")]
    scene.let_go("together")
    # One was answered and two wait, so that three are expected.
    assert entries_of(futures[:1]) == ["1"]
    assert scene.ways.calls == [("together", ["1"])]

    futures.append(scene.submit("4"))
    assert entries_of(futures) == ["1", "2", "3", "4"]
    assert [keys for _, keys in scene.ways.calls] == [["1"], ["2", "3", "4"]]


def test_the_next_group_waits_no_longer_than_it_may_for_clients_that_do_not_come(scene: Scene) -> None:
    scene.group_commit._gather_seconds = 0.05
    scene.stop_in("together")
    futures = [scene.submit("1")]
    scene.wait_for("together")
    futures += [scene.submit("2"), scene.submit("3")]
    scene.let_go("together")
    assert entries_of(futures) == ["1", "2", "3"]
    assert [keys for _, keys in scene.ways.calls] == [["1"], ["2", "3"]]


def test_if_a_group_takes_longer_the_next_one_waits_as_long_for_the_clients_that_just_had_a_response(scene: Scene) -> None:
    scene.group_commit._most_gather_seconds = TIMEOUT_S
    scene.group_commit._pace._group_seconds = SLOW_GROUP_S
    scene.stop_in("together")
    futures = [scene.submit("1")]
    scene.wait_for("together")
    futures += [scene.submit("2"), scene.submit("3")]
    scene.let_go("together")
    assert entries_of(futures[:1]) == ["1"]
    # Longer than a group waits whose groups are quick.
    with pytest.raises(FutureTimeout):
        futures[1].result(10 * group_commit.GATHER_SECONDS)

    futures.append(scene.submit("4"))
    assert entries_of(futures) == ["1", "2", "3", "4"]
    assert [keys for _, keys in scene.ways.calls] == [["1"], ["2", "3", "4"]]


def test_however_long_a_group_takes_the_next_one_waits_no_longer_than_the_most(scene: Scene) -> None:
    scene.group_commit._pace._group_seconds = SLOW_GROUP_S
    scene.stop_in("together")
    futures = [scene.submit("1")]
    scene.wait_for("together")
    futures += [scene.submit("2"), scene.submit("3")]
    scene.let_go("together")
    assert entries_of(futures[:1]) == ["1"]
    assert scene.group_commit._gathers_until - time.monotonic() <= group_commit.MOST_GATHER_SECONDS
    assert entries_of(futures) == ["1", "2", "3"]
    assert [keys for _, keys in scene.ways.calls] == [["1"], ["2", "3"]]


def test_a_client_that_comes_alone_waits_for_nobody(scene: Scene) -> None:
    scene.group_commit._gather_seconds = TIMEOUT_S
    for key in ("1", "2", "3"):
        assert scene.submit(key).result(TIMEOUT_S / 2).entry == key
    assert [keys for _, keys in scene.ways.calls] == [["1"], ["2"], ["3"]]


def test_closing_does_not_wait_for_clients_that_could_come_back(scene: Scene) -> None:
    scene.group_commit._gather_seconds = TIMEOUT_S
    scene.stop_in("together")
    futures = [scene.submit("1")]
    scene.wait_for("together")
    futures += [scene.submit("2"), scene.submit("3")]
    scene.let_go("together")
    started = time.monotonic()
    scene.group_commit.close()
    assert entries_of(futures) == ["1", "2", "3"]
    assert time.monotonic() - started < TIMEOUT_S / 2


# Holders of several processes ------------------------------------------------------------------------


@pytest.fixture
def sharing() -> Iterator[Scene]:
    """A scene whose committer may wait a moment for a lock, after a waiter had the lock of holder a soon."""
    scene = Scene(waits_a_moment=True)
    scene.ways.locked = {"a"}
    assert scene.submit("first").result(TIMEOUT_S).entry == "first"
    scene.ways.locked = set()
    scene.ways.calls.clear()
    # However slow the machine is.
    scene.group_commit._shared._until["a"] = math.inf
    yield scene
    scene.group_commit.close()


def test_after_a_short_wait_for_a_holder_the_committer_waits_for_it_itself(sharing: Scene) -> None:
    assert sharing.submit("1").result(TIMEOUT_S).entry == "1"
    assert sharing.ways.calls == [("a moment", ["1"])]


def test_a_group_with_requests_of_others_waits_for_no_lock(sharing: Scene) -> None:
    sharing.stop_in("together")
    futures = [sharing.submit("1", "b")]
    sharing.wait_for("together")
    futures += [sharing.submit("2", "a"), sharing.submit("3", "b")]
    sharing.let_go("together")
    assert entries_of(futures) == ["1", "2", "3"]
    assert sharing.ways.calls == [("together", ["1"]), ("together", ["2", "3"])]


def test_the_committer_waits_for_no_other_holder(sharing: Scene) -> None:
    assert sharing.submit("1", "b").result(TIMEOUT_S).entry == "1"
    assert sharing.ways.calls == [("together", ["1"])]


def test_if_the_lock_is_kept_for_longer_a_waiter_gets_the_requests_and_the_committer_waits_no_more(sharing: Scene) -> None:
    sharing.ways.is_kept = True
    sharing.stop_in("after waiting")
    futures = [sharing.submit("1")]
    sharing.wait_for("after waiting")
    assert sharing.submit("2", "b").result(TIMEOUT_S).entry == "2"
    sharing.let_go("after waiting")
    assert entries_of(futures) == ["1"]
    assert [each for each in sharing.ways.calls if each[0] != "took"] == [
        ("a moment", ["1"]),
        ("after waiting", ["a"]),
        ("together", ["2"]),
    ]


def test_a_holder_counts_as_shared_for_a_while_only_after_a_short_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(group_commit, "time", SimpleNamespace(monotonic=lambda: now))
    holders, requests = group_commit.SharedHolders(), [spend_request("1"), spend_request("2")]
    assert not holders.has_all(requests)
    holders.was_free_after("a", group_commit.SHARED_WAIT_SECONDS)
    assert not holders.has_all(requests)
    holders.was_free_after("a", group_commit.SHARED_WAIT_SECONDS / 2)
    assert holders.has_all(requests)
    assert not holders.has_all([*requests, spend_request("3", "b")])
    now += group_commit.SHARED_SECONDS
    assert not holders.has_all(requests)
    holders.was_free_after("b", 0.0)
    assert list(holders._until) == ["b"]
    holders.was_free_after("a", 0.0)
    holders.was_not_free("a")
    assert not holders.has_all(requests)


def test_with_at_most_one_per_transaction_several_are_executed_at_the_same_time() -> None:
    scene = Scene(most=1)
    scene.stop_in("together")
    futures = [scene.submit(str(number)) for number in range(group_commit.COMMITTERS)]
    deadline = time.monotonic() + TIMEOUT_S
    while len(scene.ways.calls) < group_commit.COMMITTERS:
        assert time.monotonic() < deadline
    scene.let_go("together")

    assert sorted(entries_of(futures)) == sorted(str(number) for number in range(group_commit.COMMITTERS))
    assert all(len(keys) == 1 for _, keys in scene.ways.calls)
    scene.group_commit.close()


def test_an_error_of_one_request_is_raised_to_its_caller_only(scene: Scene) -> None:
    scene.ways.wrong = {"2"}
    scene.stop_in("together")
    first = scene.submit("1")
    scene.wait_for("together")
    wrong, right = scene.submit("2"), scene.submit("3")
    scene.let_go("together")

    assert entries_of([first, right]) == ["1", "3"]
    with pytest.raises(Invalid) as refused:
        wrong.result(TIMEOUT_S)
    assert refused.value.facts["detail"] == "2"


def test_a_locked_holder_keeps_nobody_else_waiting_and_one_waiter_waits_for_all_who_want_it(scene: Scene) -> None:
    scene.ways.locked = {"busy"}
    scene.stop_in("after waiting")
    first = scene.submit("1", "busy")
    scene.wait_for("after waiting")

    assert entries_of([scene.submit("2", "free")]) == ["2"]
    joined = [scene.submit("3", "busy"), scene.submit("4", "busy")]
    assert entries_of([scene.submit("5", "free")]) == ["5"]
    # Those who joined did not try the lock: it is known to be taken.
    assert [keys for way, keys in scene.ways.calls if way == "together"] == [["1"], ["2"], ["5"]]
    scene.let_go("after waiting")

    assert entries_of([first, *joined]) == ["1", "3", "4"]
    assert scene.ways.calls.count(("after waiting", ["busy"])) == 1
    assert ("took", ["1", "3", "4"]) in scene.ways.calls


def test_a_request_that_waits_too_long_is_refused_with_those_that_joined_it(scene: Scene) -> None:
    scene.ways.locked = {"busy"}
    scene.ways.raised["after waiting"] = HolderBusy(key="ledger/busy")
    scene.stop_in("after waiting")
    futures = [scene.submit("1", "busy")]
    scene.wait_for("after waiting")
    futures.append(scene.submit("2", "busy"))
    scene.let_go("after waiting")

    errors = [future.exception(TIMEOUT_S) for future in futures]
    assert [type(error) for error in errors] == [HolderBusy, HolderBusy]
    assert errors[0] is not errors[1], "each has its own"


def test_those_who_wait_for_a_holder_that_stays_busy_learn_when_to_come_back(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At once those beyond the number of waiters too; and only until its lock is got."""
    monkeypatch.setattr(group_commit, "SOON_SECONDS", 0)
    monkeypatch.setattr(group_commit, "random", SimpleNamespace(randint=lambda first, last: 7))
    monkeypatch.setattr(group_commit, "WAITING_PER_HOLDER", 1)
    scene.ways.locked = {"busy"}
    scene.ways.raised["after waiting"] = HolderBusy(key="ledger/busy")
    late = scene.submit("1", "busy").exception(TIMEOUT_S)
    assert isinstance(late, HolderBusy)
    assert late.facts == {"key": "ledger/busy", "retry_after_seconds": 7}

    del scene.ways.raised["after waiting"]
    scene.stop_in("after waiting")
    waiting = scene.submit("2", "busy")
    scene.wait_for("after waiting")
    with pytest.raises(HolderBusy) as refused:
        scene.submit("3", "busy")
    assert refused.value.facts == {"key": "ledger/busy", "retry_after_seconds": 7}
    scene.let_go("after waiting")
    assert entries_of([waiting]) == ["2"]

    scene.stop_in("after waiting")
    waiting = scene.submit("4", "busy")
    scene.wait_for("after waiting")
    with pytest.raises(HolderBusy) as refused:
        scene.submit("5", "busy")
    assert refused.value.facts == {"key": "ledger/busy"}
    scene.let_go("after waiting")
    assert entries_of([waiting]) == ["4"]


def test_beyond_a_number_of_waiters_for_one_holder_the_next_is_refused_at_once_and_others_are_served(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_commit, "WAITING_PER_HOLDER", 3)
    scene.ways.locked = {"busy"}
    scene.stop_in("after waiting")
    waiting = [scene.submit("1", "busy")]
    scene.wait_for("after waiting")
    waiting += [scene.submit(key, "busy") for key in ("2", "3")]
    with pytest.raises(HolderBusy):
        scene.submit("4", "busy")
    assert entries_of([scene.submit("5", "free")]) == ["5"]
    scene.let_go("after waiting")
    assert entries_of(waiting) == ["1", "2", "3"]


def test_beyond_a_length_of_the_queue_the_next_is_refused_at_once(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scene.group_commit, "_limit", 2)
    scene.stop_in("together")
    futures = [scene.submit("1")]
    scene.wait_for("together")
    futures += [scene.submit("2"), scene.submit("3")]
    with pytest.raises(ServerBusy):
        scene.submit("4")
    scene.let_go("together")
    assert entries_of(futures) == ["1", "2", "3"]


def test_a_request_that_would_wait_too_long_is_refused_when_it_comes_and_the_next_are_asked_to_come_back_later(
    scene: Scene,
) -> None:
    """A group of four takes four seconds, by the groups before; 2.5 s are what a request may wait."""
    assert entries_of([scene.submit("0")]) == ["0"]
    scene.group_commit._pace._group_seconds = 4.0
    scene.stop_in("together")
    futures = [scene.submit("1")]
    scene.wait_for("together")
    futures += [scene.submit(key) for key in ("2", "3", "4")]
    refusals = []
    for key in ("5", "6", "7"):
        with pytest.raises(ServerBusy) as refused:
            scene.submit(key)
        refusals.append(refused.value.facts["retry_after_seconds"])
    assert refusals == [4, 5, 6], "one after the other, as fast as the queue moves"
    scene.let_go("together")
    assert entries_of(futures) == ["1", "2", "3", "4"]
    assert [keys for _, keys in scene.ways.calls] == [["0"], ["1"], ["2", "3", "4"]], "what is refused is not executed"


def test_a_request_that_waited_too_long_in_the_queue_is_refused_and_not_executed(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.stop_in("together")
    first = scene.submit("1")
    scene.wait_for("together")
    monkeypatch.setattr(queues, "PATIENCE_SECONDS", -1)
    late = scene.submit("2")
    monkeypatch.undo()
    patient = scene.submit("3")
    scene.group_commit.expire()

    assert isinstance(late.exception(0), ServerBusy), "not that the holder is busy: its lock was not tried"
    assert not patient.done()
    scene.let_go("together")
    assert entries_of([first, patient]) == ["1", "3"]
    assert [keys for _, keys in scene.ways.calls] == [["1"], ["3"]], "what has expired is not executed"


def test_a_request_that_waited_too_long_for_a_busy_holder_is_refused_while_the_waiter_waits(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.ways.locked = {"busy"}
    scene.stop_in("after waiting")
    first = scene.submit("1", "busy")
    scene.wait_for("after waiting")
    scene.group_commit._by_holder["busy"][0].deadline = 0
    scene.group_commit.expire()
    assert isinstance(first.exception(0), HolderBusy)
    scene.let_go("after waiting")
    scene.group_commit.close()
    assert ("took", []) in scene.ways.calls


def test_when_a_transaction_fails_each_is_executed_by_itself(scene: Scene) -> None:
    fail_groups = scene.ways.together

    def together(requests: Sequence[Request]) -> Sequence[ResultOrError]:
        outcomes = fail_groups(requests)
        if len(requests) > 1 or requests[0].idempotency_key == "3":
            raise RuntimeError("a row of somebody else")
        return outcomes

    scene.group_commit._execute = together
    scene.stop_in("together")
    first = scene.submit("1")
    scene.wait_for("together")
    others = [scene.submit(key) for key in ("2", "3", "4")]
    scene.let_go("together")

    assert entries_of([first, others[0], others[2]]) == ["1", "2", "4"]
    assert isinstance(others[1].exception(TIMEOUT_S), RuntimeError)
    assert [keys for _, keys in scene.ways.calls] == [["1"], ["2", "3", "4"], ["2"], ["3"], ["4"]]


def test_if_the_outcome_of_a_groups_commit_is_unknown_every_request_gets_outcome_unknown_and_none_is_retried(
    scene: Scene,
) -> None:
    scene.ways.raised["together"] = OutcomeUnknown(holder_id="a")
    scene.stop_in("together")
    futures = [scene.submit("1")]
    scene.wait_for("together")
    futures += [scene.submit(key) for key in ("2", "3")]
    scene.let_go("together")

    assert [type(future.exception(TIMEOUT_S)) for future in futures] == [OutcomeUnknown] * 3
    assert [way for way, _ in scene.ways.calls] == ["together", "together"]

    assert [future.exception(0).facts for future in futures] == [{"holder_id": "a"}] * 3


def test_an_unknown_outcome_names_only_the_holder_of_its_own_request(scene: Scene) -> None:
    scene.stop_in("together")
    first = scene.submit("1")
    scene.wait_for("together")
    others = [scene.submit("2", "b"), scene.submit("3", "c")]
    scene.ways.raised["together"] = OutcomeUnknown(holder_id="b")
    scene.let_go("together")
    assert [future.exception(TIMEOUT_S).facts for future in (first, *others)] == [{"holder_id": holder} for holder in "abc"]


def test_if_the_outcome_of_a_waiters_commit_is_unknown_its_requests_stay_unknown_and_none_is_executed_again(scene: Scene) -> None:
    """A second try could fail, and its error would say that nothing was written."""
    scene.ways.locked = {"busy"}
    scene.stop_in("after waiting")
    futures = [scene.submit("1", "busy")]
    scene.wait_for("after waiting")
    futures.append(scene.submit("2", "busy"))
    scene.ways.raised["took"] = OutcomeUnknown(holder_id="busy")
    scene.let_go("after waiting")

    errors = [future.exception(TIMEOUT_S) for future in futures]
    assert [(type(error), error.facts) for error in errors if error] == [(OutcomeUnknown, {"holder_id": "busy"})] * 2
    assert errors[0] is not errors[1], "each has its own"
    assert [way for way, _ in scene.ways.calls] == ["together", "after waiting", "took"]


@pytest.mark.parametrize("is_taken", [False, True])
def test_if_a_waiter_fails_before_commit_each_of_its_requests_is_executed_once_more(scene: Scene, is_taken: bool) -> None:
    scene.ways.locked = {"busy"}
    scene.stop_in("after waiting")
    futures = [scene.submit("1", "busy")]
    scene.wait_for("after waiting")
    futures.append(scene.submit("2", "busy"))
    if is_taken:
        scene.ways.raised["took"] = RuntimeError("the connection was lost")
    else:
        scene.ways.raised["after waiting"] = RuntimeError("the connection was lost")
    scene.ways.locked.clear()
    scene.let_go("after waiting")

    assert entries_of(futures) == ["1", "2"]
    assert scene.ways.calls[-1] == ("together", ["1", "2"])


def test_a_waiter_that_fails_does_not_take_the_requests_of_the_next_waiter(scene: Scene) -> None:
    """Requests that arrive after the first waiter took its own have another waiter, which is at work on them."""
    scene.ways.locked = {"busy"}
    scene.stop_in("took")
    first = scene.submit("1", "busy")
    scene.wait_for("took")
    scene.ways.raised["took"] = RuntimeError("the connection was lost")
    scene.stop_in("after waiting")
    second = scene.submit("2", "busy")
    scene.wait_for("after waiting")
    scene.ways.locked.clear()
    scene.let_go("took")

    assert entries_of([first]) == ["1"]
    assert scene.ways.calls[-1] == ("together", ["1"]), "only its own"
    assert not second.done()
    del scene.ways.raised["took"]
    scene.let_go("after waiting")
    assert entries_of([second]) == ["2"]
    assert scene.notified == [1, 1]


def test_a_second_try_of_a_waiter_executes_what_the_first_one_took(scene: Scene) -> None:
    """A transaction that collides is executed again from the start; what has arrived in between has a waiter of its own."""
    scene.ways.locked = {"busy"}
    scene.ways.tries_after_waiting = 2
    scene.stop_in("took")
    first = scene.submit("1", "busy")
    scene.wait_for("took")
    second = scene.submit("2", "busy")
    scene.let_go("took")

    assert entries_of([first, second]) == ["1", "2"]
    assert sorted(keys for way, keys in scene.ways.calls if way == "took") == [["1"], ["1"], ["2"], ["2"]]


def test_a_crash_of_a_waiter_is_raised_to_its_requests_and_the_next_ones_are_executed(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    scene.ways.locked = {"busy"}
    scene.ways.raised["after waiting"] = SystemExit()
    crashed = scene.submit("1", "busy").exception(TIMEOUT_S)
    assert isinstance(crashed, OutcomeUnknown)
    assert crashed.facts == {"holder_id": "busy"}

    scene.ways.raised.clear()
    assert entries_of([scene.submit("2", "busy")]) == ["2"]
    scene.group_commit.close()
    assert [record.levelname for record in caplog.records if record.exc_info] == ["CRITICAL"]


def test_a_request_whose_time_is_over_waits_for_the_lock_for_a_moment_and_not_for_ever(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lock_timeout of 0 would be none."""
    scene.ways.locked = {"busy"}
    with monkeypatch.context() as patched:
        patched.setattr(queues, "PATIENCE_SECONDS", -1)
        late = scene.submit("1", "busy")
    assert entries_of([late]) == ["1"]
    assert scene.ways.seconds == [0.001]


def test_a_request_waits_for_the_lock_for_a_short_time_and_then_until_its_own_deadline(scene: Scene) -> None:
    scene.ways.locked = scene.ways.stuck = {"busy"}
    assert isinstance(scene.submit("1", "busy").exception(TIMEOUT_S), HolderBusy)
    short, rest = scene.ways.seconds
    assert short == group_commit.SHORT_WAIT_SECONDS
    assert 0 < rest < queues.PATIENCE_SECONDS


def test_for_a_holder_that_has_stayed_busy_there_is_no_short_wait_until_it_was_free(scene: Scene) -> None:
    scene.ways.locked = scene.ways.stuck = {"busy"}
    for key in ("1", "2"):
        assert isinstance(scene.submit(key, "busy").exception(TIMEOUT_S), HolderBusy)
    assert [seconds <= group_commit.SHORT_WAIT_SECONDS for seconds in scene.ways.seconds] == [True, False, False]

    scene.ways.locked = set()
    assert entries_of([scene.submit("3", "busy")]) == ["3"]
    scene.ways.locked, scene.ways.stuck = {"busy"}, set()
    assert entries_of([scene.submit("4", "busy")]) == ["4"]
    assert scene.ways.seconds[3:] == [group_commit.SHORT_WAIT_SECONDS]


@pytest.mark.parametrize("has_two_kinds", [True, False], ids=["two kinds of waiters", "control: all wait to the end"])
def test_stuck_holders_do_not_take_the_waiters_of_a_holder_that_is_busy_for_a_moment(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, has_two_kinds: bool
) -> None:
    if not has_two_kinds:
        monkeypatch.setattr(group_commit, "SHORT_WAIT_SECONDS", queues.PATIENCE_SECONDS)
    scene.ways.stuck = {f"stuck-{number}" for number in range(24)}
    scene.ways.locked = {"healthy", *scene.ways.stuck}
    scene.stop_in("stuck")
    stuck = [scene.submit(holder, holder) for holder in sorted(scene.ways.stuck)]
    threads_taken = group_commit.PATIENT_WAITERS if has_two_kinds else group_commit.WAITERS
    scene.wait_until(lambda: [way for way, _ in scene.ways.calls].count("stuck") == threads_taken)

    healthy = scene.submit("1", "healthy")
    if has_two_kinds:
        assert entries_of([healthy]) == ["1"]
    else:
        assert entries_of([scene.submit("2", "free")]) == ["2"]
        assert not healthy.done()
    assert not any(future.done() for future in stuck)
    scene.let_go("stuck")
    assert {type(future.exception(TIMEOUT_S)) for future in stuck} == {HolderBusy}
    assert entries_of([healthy]) == ["1"]


def test_a_holder_is_refused_after_the_short_wait_if_too_many_others_have_patient_waiters(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scene.group_commit._patient_waiters, "_limit", 0)
    scene.ways.locked = scene.ways.stuck = {"busy"}
    assert isinstance(scene.submit("1", "busy").exception(TIMEOUT_S), HolderBusy)
    assert scene.ways.seconds == [group_commit.SHORT_WAIT_SECONDS]


def test_a_holder_is_forgotten_if_all_its_requests_expire_before_a_waiter_has_time(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next request tries the lock again, as if nobody had waited."""
    others = [f"holder-{number}" for number in range(group_commit.WAITERS)]
    scene.ways.locked = {"busy", *others}
    scene.stop_in("after waiting")
    waiting = [scene.submit(holder, holder) for holder in others]
    late = scene.submit("late", "busy")
    scene.wait_until(lambda: len(scene.group_commit._by_holder) == group_commit.WAITERS + 1)
    scene.group_commit._by_holder["busy"][0].deadline = 0
    scene.group_commit.expire()
    assert isinstance(late.exception(0), HolderBusy)
    scene.let_go("after waiting")
    assert entries_of(waiting) == others
    scene.wait_until(lambda: not scene.group_commit._by_holder)

    scene.ways.locked = set()
    assert entries_of([scene.submit("1", "busy")]) == ["1"]
    assert ("after waiting", ["busy"]) not in scene.ways.calls
    assert scene.ways.calls[-1] == ("together", ["1"])


def test_a_holder_for_which_there_is_no_waiter_does_not_stay_busy(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """More holders are busy than may wait: the request is refused, and the next one tries the holder's lock again."""
    monkeypatch.setattr(scene.group_commit._waiters, "_limit", 0)
    scene.ways.locked = {"busy"}
    scene.stop_in("together")
    refused = [scene.submit("1", "busy")]
    scene.wait_for("together")
    refused.append(scene.submit("2", "busy"))
    others = [scene.submit("3", "free")]
    scene.let_go("together")
    assert [type(future.exception(TIMEOUT_S)) for future in refused] == [ServerBusy] * 2
    assert entries_of(others) == ["3"], "those of the same group have their results"

    scene.ways.locked.clear()
    assert entries_of([scene.submit("4", "busy")]) == ["4"]


def test_closing_ends_the_threads_that_wait_for_busy_holders(scene: Scene) -> None:
    scene.ways.locked = {"busy"}
    scene.ways.raised["after waiting"] = HolderBusy(key="ledger/busy")
    assert isinstance(scene.submit("1", "busy").exception(TIMEOUT_S), HolderBusy)
    queues_of_it = (scene.group_commit, scene.group_commit._waiters, scene.group_commit._patient_waiters)
    threads = [thread for queue in queues_of_it for thread in queue._running]
    names = {thread.name.rsplit("-", 1)[0] for thread in threads}
    assert names == {"ledger-committer", "ledger-waiter", "ledger-patient-waiter"}
    scene.group_commit.close()
    assert not any(thread.is_alive() for thread in threads)


def test_a_crash_of_the_committer_is_logged_and_raised_to_its_group_and_the_next_group_is_executed(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    scene.ways.raised["together"] = SystemExit()
    scene.stop_in("together")
    crashed = scene.submit("1")
    scene.wait_for("together")
    next_one = scene.submit("2")
    scene.let_go("together")
    assert isinstance(crashed.exception(TIMEOUT_S), OutcomeUnknown)
    assert isinstance(next_one.exception(TIMEOUT_S), OutcomeUnknown)
    scene.ways.raised.clear()

    assert entries_of([scene.submit("3")]) == ["3"]
    critical = [record for record in caplog.records if record.levelname == "CRITICAL"]
    assert len(critical) == 2
    assert all(record.exc_info for record in critical)


def test_closing_executes_what_was_taken_in_and_takes_nothing_more_in(scene: Scene) -> None:
    scene.ways.locked = {"busy"}
    scene.stop_in("together")
    futures = [scene.submit("1")]
    scene.wait_for("together")
    futures += [scene.submit("2"), scene.submit("3", "busy")]
    closing = threading.Thread(target=scene.group_commit.close)
    closing.start()
    deadline = time.monotonic() + TIMEOUT_S
    while not scene.group_commit._is_closing:
        assert time.monotonic() < deadline
        nodes.pause()
    with pytest.raises(ServerBusy):
        scene.submit("4")
    scene.let_go("together")
    closing.join(TIMEOUT_S)

    assert entries_of(futures) == ["1", "2", "3"]
    assert not closing.is_alive()


@pytest.mark.slow
@pytest.mark.check
def test_those_of_one_group_beyond_the_number_of_waiters_for_its_busy_holder_are_refused(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_commit, "WAITING_PER_HOLDER", 1)
    scene.ways.locked = {"busy"}
    scene.stop_in("together")
    scene.stop_in("after waiting")
    first = scene.submit("1", "free")
    scene.wait_for("together")
    waiting, refused, other = scene.submit("2", "busy"), scene.submit("3", "busy"), scene.submit("4", "free")
    scene.let_go("together")
    assert isinstance(refused.exception(TIMEOUT_S), HolderBusy)
    assert entries_of([first, other]) == ["1", "4"]
    scene.let_go("after waiting")
    assert entries_of([waiting]) == ["2"]
