"""Two servers get conflicting requests for one hold or batch at the same time: one succeeds, the other is refused."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from ledger import services
from tests.concurrency.test_story_spends_over_http import Clients, Story, clients, pool, story, two_servers

__all__ = ["clients", "pool", "story", "two_servers"]


def hold_url(told: Story, sequence: int, call: str) -> str:
    """The path of a call on a hold of the story's holder."""
    return f"/v1/holders/{told.holder}/holds/{sequence}/{call}"


@pytest.mark.slow
def test_of_two_captures_of_one_hold_at_two_servers_one_succeeds(
    story: Story, clients: Clients, pool: ThreadPoolExecutor
) -> None:
    services.grant(holder_id=story.holder, amount=100, idempotency_key="grant")
    services.hold(holder_id=story.holder, amount=30, idempotency_key="hold")

    with story.gate() as wait_for:
        asked = [
            pool.submit(client.post, hold_url(story, 2, "captures"), {"amount": 20 + n}, key=f"capture {n}")
            for n, client in enumerate(clients)
        ]
        wait_for(2)
    won, lost = sorted((each.result(60) for each in asked), key=lambda response: response.status)

    assert (won.status, lost.status) == (201, 409)
    captured = won.json["drawn"][0]["amount"]
    assert captured in (20, 21)
    assert {name: lost.json[name] for name in ("sequence", "how", "closed_by")} == {
        "sequence": 2, "how": "captured", "closed_by": won.json["sequence"],
    }  # fmt: skip
    assert story.entries() == [
        (1, "grant", 100, 100),
        (2, "hold", -30, 70),
        (3, "release", 30 - captured, 100 - captured),
        (4, "capture", 0, 100 - captured),
    ]
    assert [code for _, code in story.refusals()] == ["hold-closed"]


@pytest.mark.slow
def test_control_captures_of_two_holds_both_succeed(story: Story, clients: Clients, pool: ThreadPoolExecutor) -> None:
    """Only the shared hold makes one of the captures fail."""
    services.grant(holder_id=story.holder, amount=100, idempotency_key="grant")
    for number in range(2):
        services.hold(holder_id=story.holder, amount=30, idempotency_key=f"hold {number}")

    with story.gate() as wait_for:
        asked = [
            pool.submit(client.post, hold_url(story, 2 + n, "captures"), {}, key=f"capture {n}")
            for n, client in enumerate(clients)
        ]
        wait_for(2)

    assert [each.result(60).status for each in asked] == [201, 201]
    assert [(kind, amount, balance) for _, kind, amount, balance in story.entries()[3:]] == [("capture", 0, 40)] * 2


@pytest.mark.slow
def test_a_capture_that_is_sent_twice_is_one_capture(story: Story, clients: Clients, pool: ThreadPoolExecutor) -> None:
    services.grant(holder_id=story.holder, amount=100, idempotency_key="grant")
    services.hold(holder_id=story.holder, amount=30, idempotency_key="hold")

    with story.gate() as wait_for:
        asked = [pool.submit(client.post, hold_url(story, 2, "captures"), {}, key="capture") for client in clients]
        wait_for(2)
    one, other = sorted((each.result(60) for each in asked), key=lambda response: response.replayed)

    assert (one.status, one.replayed, other.status, other.replayed) == (201, False, 201, True)
    assert other.content == one.content
    assert story.entries()[2:] == [(3, "capture", 0, 70)]


@pytest.mark.slow
def test_of_a_capture_and_a_release_of_one_hold_one_succeeds(story: Story, clients: Clients, pool: ThreadPoolExecutor) -> None:
    services.grant(holder_id=story.holder, amount=100, idempotency_key="grant")
    services.hold(holder_id=story.holder, amount=30, idempotency_key="hold")

    with story.gate() as wait_for:
        asked = [
            pool.submit(client.post, hold_url(story, 2, call), {}, key=call)
            for call, client in zip(("captures", "release"), clients, strict=True)
        ]
        wait_for(2)
    won, lost = sorted((each.result(60) for each in asked), key=lambda response: response.status)

    how = {"capture": "captured", "release": "released"}[won.json["kind"]]
    assert (won.status, lost.status, lost.json["how"], lost.json["closed_by"]) == (201, 409, how, 3)
    assert len(story.entries()) == 3


@pytest.mark.slow
def test_a_batch_sent_to_two_servers_at_the_same_time_is_executed_once(
    story: Story, clients: Clients, pool: ThreadPoolExecutor
) -> None:
    services.grant(holder_id=story.holder, amount=100, idempotency_key="grant")
    operation = {"operation": "spend", "holder": story.holder, "amount": 40}
    body = {"mode": "each", "operations": [operation] * 3}
    key = f"batch of {story.holder}"

    with story.gate() as wait_for:
        asked = [pool.submit(client.post, "/v1/batches", body, key=key) for client in clients]
        wait_for(1)
    one, other = sorted((each.result(60) for each in asked), key=lambda response: response.replayed)

    assert (one.status, one.replayed, other.status, other.replayed) == (200, False, 200, True)
    assert other.content == one.content
    assert [result["status"] for result in one.json["results"]] == [201, 201, 402]
    assert story.entries() == [(1, "grant", 100, 100), (2, "spend", -40, 60), (3, "spend", -40, 20)]
    assert clients[1].post("/v1/batches", body, key=key).content == one.content


@pytest.mark.slow
def test_of_two_conditional_writes_with_the_same_etag_one_succeeds(
    story: Story, clients: Clients, pool: ThreadPoolExecutor
) -> None:
    services.grant(holder_id=story.holder, amount=100, idempotency_key="grant")
    tag = clients[0].get(f"/v1/holders/{story.holder}/balance").headers["etag"]

    with story.gate() as wait_for:
        asked = [
            pool.submit(client.post, story.spends, {"amount": 10}, key=f"spend {n}", headers={"If-Match": tag})
            for n, client in enumerate(clients)
        ]
        wait_for(2)
    done, moved = sorted((each.result(60) for each in asked), key=lambda response: response.status)

    assert (done.status, moved.status, moved.json["expected"], moved.json["sequence"]) == (201, 412, 1, 2)
    assert story.entries() == [(1, "grant", 100, 100), (2, "spend", -10, 90)]
    assert story.refusals() == []
