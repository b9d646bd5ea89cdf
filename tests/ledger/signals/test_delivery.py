"""At least once, in order for each holder, signed, with every attempt on record, whatever the receiver does."""

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from django.db import connection
from pytest_django.fixtures import Settings

from ledger import services
from ledger.database.statements import fetch_rows
from ledger.errors import InsufficientCredits
from ledger.signals import delivery, reads
from ledger.signals.delivery import DUE, PACE, SLOW_MS, Candidate, Summary, chosen, deliver, slow_rounds_at_once
from ledger.signals.feed import feed
from ledger.signals.webhooks import (
    PingRequest,
    ResendRequest,
    WebhookChangeRequest,
    WebhookRotationRequest,
    change_webhook,
    ping,
    present,
    resend,
    rotate_secret,
)
from ledger.testing import unique
from tests.ledger.signals.conftest import Receiver, answer, close, work

MakeWebhook = Callable[..., dict[str, Any]]


def grant(holder: str, **more: Any) -> Any:
    return services.grant(holder_id=holder, amount=10, idempotency_key=unique("k"), **more)


def deliveries() -> list[tuple[str, str, int]]:
    """Stream, state and attempts of each delivery, in the order of sending."""
    return fetch_rows(lambda *row: row, "SELECT stream, state, attempts FROM ledger_delivery ORDER BY webhook_id, signal")


def all_due_now() -> None:
    """Let the time until the next attempts pass."""
    with connection.cursor() as cursor:
        cursor.execute("UPDATE ledger_delivery_stream SET due_at = clock_timestamp() WHERE due_at IS NOT NULL")
        cursor.execute("UPDATE ledger_webhook_pace SET retry_at = NULL")


def test_a_receiver_gets_the_entry_as_the_api_shows_it_signed(db: None, receiver: Receiver, webhook: MakeWebhook) -> None:
    made = webhook()
    entry = grant("ada", reference="order-7")
    assert work() == Summary(attempts=1, delivered=1)
    [got] = receiver.received
    content = got.verified_by(made["secret"])
    assert (content["type"], list(content)) == ("entry.recorded", ["data", "timestamp", "type"])
    assert content["timestamp"] == content["data"]["recorded_at"]
    assert content["data"]["digest"] == entry.digest.hex()
    assert (content["data"]["holder_id"], content["data"]["reference"], content["data"]["balance"]) == ("ada", "order-7", 10)
    assert got.headers["content-type"] == "application/json"
    assert deliveries() == [("ada", "delivered", 1)]
    assert work() == Summary()


def test_a_refusal_is_sent_with_its_problem(db: None, receiver: Receiver, webhook: MakeWebhook) -> None:
    webhook("refusal.recorded")
    with pytest.raises(InsufficientCredits):
        services.spend(holder_id="ada", amount=3, idempotency_key="s")
    work()
    [got] = receiver.received
    data = got.content["data"]
    assert (data["holder_id"], data["sequence"], data["operation"], data["idempotency_key"]) == ("ada", 1, "spend", "s")
    assert (data["problem"]["status"], data["problem"]["requested"]) == (402, 3)


def test_both_secrets_sign_until_the_overlap_ends(db: None, receiver: Receiver, webhook: MakeWebhook) -> None:
    made = webhook()
    later = datetime.now(UTC) + timedelta(hours=1)
    new = rotate_secret(WebhookRotationRequest(webhook=made["id"], former_until=later)).body["secret"]
    grant("ada")
    work()
    assert receiver.received[0].verified_by(made["secret"]) == receiver.received[0].verified_by(new)
    newest = rotate_secret(WebhookRotationRequest(webhook=made["id"])).body["secret"]
    grant("ada")
    work()
    assert receiver.received[1].verified_by(newest)
    for old in (made["secret"], new):
        with pytest.raises(Exception, match="No matching signature"):
            receiver.received[1].verified_by(old)


def test_a_failure_holds_back_its_holder_and_nobody_else(db: None, receiver: Receiver, webhook: MakeWebhook) -> None:
    webhook()
    for holder in ("ada", "ada", "bob"):
        grant(holder)
    receiver.always = lambda handler: answer(500 if '"ada"' in receiver.received[-1].body else 204)(handler)
    work()
    assert deliveries() == [("ada", "pending", 1), ("ada", "pending", 0), ("bob", "delivered", 1)]
    assert deliver() == Summary(), "not due yet"
    receiver.always = None
    all_due_now()
    assert deliver() == Summary(attempts=2, delivered=2)
    of_ada = [each for each in receiver.received if '"ada"' in each.body]
    assert [each.content["data"]["sequence"] for each in of_ada] == [1, 1, 2]
    assert of_ada[0].id == of_ada[1].id != of_ada[2].id
    assert of_ada[0].body == of_ada[1].body


MISBEHAVIOURS = {
    "fails": (answer(500, b"no\x00 idea"), 500, "the receiver answered 500"),
    "refuses": (answer(400), 400, "the receiver answered 400"),
    "lies about its length": (answer(500, b"", Content_Length="99"), 500, "RemoteProtocolError"),
    "redirects": (answer(302, Location="http://127.0.0.1/"), 302, "redirects are not followed"),
    "closes": (close, None, "RemoteProtocolError"),
    "speaks no HTTP": (lambda handler: handler.wfile.write(b"hello\r\n\r\n"), None, "RemoteProtocolError"),
}


@pytest.mark.parametrize("name", MISBEHAVIOURS)
def test_each_attempt_is_on_record_with_what_came_of_it(db: None, receiver: Receiver, webhook: MakeWebhook, name: str) -> None:
    behaviour, status, error = MISBEHAVIOURS[name]
    receiver.behaviours.append(behaviour)
    made = webhook()
    grant("ada")
    assert work() == Summary(attempts=1, failed=1)
    all_due_now()
    assert deliver() == Summary(attempts=1, delivered=1)
    shown = reads.delivery(made["id"], UUID(receiver.received[0].id))
    [second, first] = shown["tried"]
    assert (second["status"], second["error"]) == (204, "")
    assert first["status"] in (status, None)
    assert error in first["error"] or "RemoteProtocolError" in first["error"]
    assert (shown["state"], shown["attempts"]) == ("delivered", 2)


@pytest.mark.slow
@pytest.mark.check
def test_a_receiver_that_drips_is_cut_off(db: None, receiver: Receiver, webhook: MakeWebhook, settings: Settings) -> None:
    settings.LEDGER = {**settings.LEDGER, "SIGNAL_TIMEOUT_SECONDS": 1}

    def drip(handler: Any) -> None:
        handler.send_response(200)
        for _ in range(600):
            handler.wfile.write(b"X-More: and more\r\n")
            handler.wfile.flush()
            time.sleep(0.05)

    receiver.behaviours.append(drip)
    made = webhook()
    grant("ada")
    assert work() == Summary(attempts=1, failed=1)
    [row] = reads.deliveries(made["id"])
    assert row["state"] == "pending"
    [(error, took_ms)] = fetch_rows(lambda *row: row, "SELECT error, took_ms FROM ledger_delivery_attempt")
    assert error == "no whole answer within 1 s"
    assert took_ms < 15_000


def test_of_an_endless_answer_only_the_beginning_is_read(db: None, receiver: Receiver, webhook: MakeWebhook) -> None:
    def pour(handler: Any) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", str(10**12))
        handler.end_headers()
        for _ in range(10_000):
            handler.wfile.write(b"x" * 65_536)

    receiver.behaviours.append(pour)
    webhook()
    grant("ada")
    assert work() == Summary(attempts=1, delivered=1)
    assert fetch_rows(str, "SELECT response FROM ledger_delivery_attempt") == ["x" * 500]


def test_nothing_is_sent_to_a_private_address(db: None, receiver: Receiver, webhook: MakeWebhook, settings: Settings) -> None:
    settings.LEDGER = {**settings.LEDGER, "SIGNAL_ALLOWED_NETWORKS": []}
    webhook()
    grant("ada")
    assert work() == Summary(attempts=1, failed=1)
    assert receiver.received == []
    [error] = fetch_rows(str, "SELECT error FROM ledger_delivery_attempt")
    assert "which is not public" in error


def test_the_address_that_was_checked_is_the_one_that_is_connected_to(
    db: None, receiver: Receiver, webhook: MakeWebhook, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_up = []

    async def rebinding(self: Any, host: str, port: int, **options: Any) -> Any:
        looked_up.append(host)
        # A sender that asked twice would get an address where nobody listens.
        address = "127.0.0.1" if len(looked_up) == 1 else "127.9.9.9"
        return [(2, 1, 6, "", (address, port))]

    monkeypatch.setattr("asyncio.base_events.BaseEventLoop.getaddrinfo", rebinding)
    webhook(url=receiver.url.replace("localhost", "shop.example"))
    grant("ada")
    assert work() == Summary(attempts=1, delivered=1)
    assert looked_up[0] == "shop.example"
    assert [host for host in looked_up[1:] if host != "127.0.0.1"] == []
    assert receiver.received[0].headers["host"].startswith("shop.example:")


def test_a_receiver_that_answers_nobody_is_left_alone_and_asked_by_one_request(
    db: None, receiver: Receiver, webhook: MakeWebhook
) -> None:
    made = webhook()
    for holder in ("ada", "bob", "eve"):
        grant(holder)
    receiver.always = answer(503, Retry_After="600")
    assert work() == Summary(attempts=3, failed=3)
    [wait] = fetch_rows(lambda wait: wait, "SELECT retry_at - clock_timestamp() FROM ledger_webhook_pace")
    assert timedelta(seconds=590) < wait <= timedelta(seconds=600)
    assert reads.failing_since([made["id"]])[made["id"]] is not None
    all_due_now()
    assert deliver() == Summary(attempts=1, failed=1)
    receiver.always = None
    all_due_now()
    assert deliver() == Summary(attempts=3, delivered=3)
    assert reads.failing_since([made["id"]])[made["id"]] is None


def test_a_webhook_that_fails_for_days_is_disabled_and_loses_nothing(db: None, receiver: Receiver, webhook: MakeWebhook) -> None:
    made = webhook()
    grant("ada")
    receiver.always = answer(500)
    work()
    with connection.cursor() as cursor:
        cursor.execute("UPDATE ledger_webhook_pace SET failing_since = clock_timestamp() - interval '5 days 1 s'")
    all_due_now()
    assert deliver() == Summary(attempts=1, failed=1, disabled=1)
    assert present(made["id"]).disabled_because == "No attempt has succeeded for 5 days. The last one: the receiver answered 500."
    grant("ada")
    receiver.always = None
    all_due_now()
    assert work() == Summary()
    change_webhook(WebhookChangeRequest(webhook=made["id"], enabled=True))
    assert deliver() == Summary(attempts=2, delivered=2)
    assert receiver.sequences() == [1, 1, 1, 2]


def test_410_disables_at_once(db: None, receiver: Receiver, webhook: MakeWebhook) -> None:
    made = webhook()
    grant("ada")
    receiver.always = answer(410)
    assert work() == Summary(attempts=1, failed=1, disabled=1)
    assert present(made["id"]).disabled_because == "The receiver answered 410: it is gone."


def test_a_signal_that_is_refused_to_the_end_is_given_up_where_others_are_accepted_and_can_be_sent_again(
    db: None, receiver: Receiver, webhook: MakeWebhook
) -> None:
    made = webhook()
    grant("ada")
    receiver.always = lambda handler: answer(422 if '"ada"' in receiver.received[-1].body else 204)(handler)
    work()
    with connection.cursor() as cursor:
        cursor.execute("UPDATE ledger_delivery SET attempts = %s", [delivery.ATTEMPTS - 1])
    grant("ada")
    grant("bob")
    all_due_now()
    receiver.behaviours.clear()
    assert work().given_up == 1
    assert [state for stream, state, _ in deliveries() if stream == "ada"] == ["given_up", "pending"]
    receiver.always = None
    all_due_now()
    work()
    [given_up] = [row for row in reads.deliveries(made["id"]) if row["state"] == "given_up"]
    again = resend(ResendRequest(webhook=made["id"], signal=UUID(given_up["signal"])))
    assert again.body["state"] == "pending"
    assert deliver() == Summary(attempts=1, delivered=1)
    assert receiver.received[-1].id == given_up["signal"]


def test_a_ping_goes_to_one_webhook_alone(db: None, receiver: Receiver, webhook: MakeWebhook) -> None:
    made, _ = webhook(), webhook()
    asked = ping(PingRequest(webhook=made["id"], actor="key:shop"))
    assert work() == Summary(attempts=1, delivered=1)
    assert receiver.received[0].id == asked.body["signal"]
    assert receiver.received[0].verified_by(made["secret"])["data"] == {"actor": "key:shop", "webhook": made["id"]}


def test_an_error_of_ours_keeps_no_other_webhook_from_its_turn(
    db: None, receiver: Receiver, webhook: MakeWebhook, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    broken, _ = webhook(), webhook()
    grant("ada")
    feed()
    one_round = delivery._round

    def breaking(webhook_id: int, summary: Summary) -> None:
        if webhook_id == broken["id"]:
            raise ValueError("ours")
        one_round(webhook_id, summary)

    monkeypatch.setattr(delivery, "_round", breaking)
    assert deliver() == Summary(attempts=1, delivered=1, broken=1)
    assert "what it sends is sent again" not in caplog.text
    assert f"A round of webhook {broken['id']} failed" in caplog.text


def test_the_schedule_is_longer_each_time_and_takes_days() -> None:
    waits = [delivery.wait_after(failures) for failures in range(1, delivery.ATTEMPTS)]
    assert timedelta(seconds=4) < waits[0] < timedelta(seconds=6)
    assert timedelta(days=3) < sum(waits, timedelta()) < timedelta(days=5)
    assert delivery.wait_after(99) < timedelta(hours=27)
    assert delivery.wait_after(1, timedelta(minutes=3)) == timedelta(minutes=3)
    assert delivery.wait_after(1, timedelta(days=3)) == delivery.MOST_ASKED_FOR


# Whose turn it is ------------------------------------------------------------------------------------


def named(*round_ms: int) -> list[Candidate]:
    """Webhooks in the order in which they are due, by the milliseconds of their last rounds."""
    return [Candidate(number, ms) for number, ms in enumerate(round_ms, 1)]


@pytest.mark.parametrize(
    ("due", "free", "room_for_slow", "begun"),
    [
        (named(10, 10, 10), 2, 2, [1, 2]),
        (named(9_000, 9_000, 10, 9_000, 10), 3, 1, [1, 3, 5]),
        (named(9_000, 9_000), 6, 0, []),
        (named(SLOW_MS, SLOW_MS + 1), 6, 0, [1]),
        (named(), 6, 4, []),
    ],
)
def test_slow_receivers_get_sessions_only_while_there_is_room_for_them(
    due: list[Candidate], free: int, room_for_slow: int, begun: list[int]
) -> None:
    assert [each.webhook_id for each in chosen(due, free=free, room_for_slow=room_for_slow)] == begun


def test_a_third_of_the_sessions_is_kept_free_of_slow_receivers() -> None:
    assert [slow_rounds_at_once(sessions) for sessions in (1, 2, 3, 6, 32)] == [1, 1, 2, 4, 22]


@pytest.mark.django_db
def test_a_webhook_rests_behind_others_as_long_as_its_round_lasted(webhook: Any, receiver: Receiver) -> None:
    slow, quick = webhook()["id"], webhook()["id"]
    services.grant(holder_id="ada", amount=5, idempotency_key="g")
    feed()
    assert [each.webhook_id for each in fetch_rows(Candidate, DUE)] == [slow, quick]
    with connection.cursor() as cursor:
        cursor.execute(PACE, {"webhook": slow, "ms": 9_000})
        cursor.execute(PACE, {"webhook": quick, "ms": 40})
    assert fetch_rows(Candidate, DUE) == [Candidate(quick, 40), Candidate(slow, 9_000)]
    assert deliver() == Summary(attempts=2, delivered=2), "nobody waits for nothing"
    assert max(fetch_rows(int, "SELECT round_ms FROM ledger_webhook_pace")) < SLOW_MS
