"""Keys that are bound to labels: what they write carries them, what they see is limited to them, and their keys end with them."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from ledger.audit.auditing import audit
from ledger.errors import Invalid
from ledger.keys import api_keys
from ledger.keys.models import ApiKey
from ledger.models import StaffEvent
from tests.ledger.rest.conftest import ApiClient, entry_of_201, nothing_written, problem_of_refusal

MakeApi = Callable[..., ApiClient]
Bound = Callable[..., ApiClient]
ADA = {"team": "red", "member": "ada"}
LATER = (timezone.now() + timedelta(days=1)).isoformat()
SCOPES = ("ledger:read", "ledger:spend", "ledger:refund", "ledger:hold", "ledger:transfer", "keys:admin")


@pytest.fixture
def bound(db: None, make_api: MakeApi) -> Bound:
    """Makes a client whose key is bound to labels, by default to a team and a member of it."""
    return lambda name="ada", labels=ADA, **more: make_api(*SCOPES, name=name, labels=labels, **more)


def slug(problem: dict[str, Any]) -> str:
    """Which problem it is."""
    return str(problem["type"]).rpartition("/")[2]


# Writing ---------------------------------------------------------------------------------------------


def test_each_write_carries_the_labels_without_saying_so(bound: Bound, api: ApiClient, holder: str) -> None:
    path, ada = f"/v1/holders/{holder}", bound()
    spent = ada.post(f"{path}/spends", {"amount": 2, "metadata": {"job": "7"}}).json()
    assert spent["metadata"] == {"job": "7", **ADA}
    held = ada.post(f"{path}/holds", {"amount": 5}).json()
    for step, body in (
        (f"holds/{held['sequence']}/extend", {"expires_at": LATER}),
        (f"holds/{held['sequence']}/captures", {"amount": 3}),
        ("refunds", {"spend": spent["sequence"], "amount": 1}),
        ("transfers", {"to": "bob", "amount": 1}),
        ("holds", {"amount": 1}),
    ):
        response = ada.post(f"{path}/{step}", body)
        assert response.status_code == 201, response.content
        assert response.json()["metadata"] == ADA
    assert api.post(f"{path}/spends", {"amount": 1}).json()["metadata"] == {}


def test_a_label_may_be_said_and_another_value_is_refused_and_writes_nothing(bound: Bound, holder: str) -> None:
    path, ada = f"/v1/holders/{holder}/spends", bound()
    assert entry_of_201(ada.post(path, {"amount": 1, "metadata": ADA}))["metadata"] == ADA
    for value in ("bob", "", None, 7, ["ada"]):
        with nothing_written(holder):
            problem = problem_of_refusal(ada.post(path, {"amount": 1, "metadata": {"member": value}}, key="bob"), 403)
            problem_of_refusal(ada.post(f"{path}?dry_run=true", {"amount": 1, "metadata": {"member": value}}, key=None), 403)
        assert (slug(problem), problem["label"], problem["value"]) == ("label-bound", "member", "ada")
    entry_of_201(ada.post(path, {"amount": 1}, key="bob"))


def test_a_repeated_request_gets_the_same_answer_whether_it_says_the_labels_or_not(bound: Bound, holder: str) -> None:
    path, ada = f"/v1/holders/{holder}/spends", bound()
    first = ada.post(path, {"amount": 1}, key="k")
    with nothing_written(holder):
        again = ada.post(path, {"amount": 1, "metadata": ADA}, key="k")
        other = bound("bob", {"team": "red", "member": "bob"}).post(path, {"amount": 1}, key="k")
    assert (again.content, again["Idempotency-Replayed"]) == (first.content, "true")
    assert slug(problem_of_refusal(other, 422)) == "idempotency-key-reused"


def test_labels_that_do_not_fit_beside_the_metadata_are_an_error_of_the_metadata(bound: Bound, holder: str) -> None:
    metadata = {f"name{number}": "x" for number in range(50)}
    with nothing_written(holder):
        response = bound().post(f"/v1/holders/{holder}/spends", {"amount": 1, "metadata": metadata})
    problem_of_refusal(response, 400, ("/metadata", "too-many-keys"))


@pytest.mark.parametrize("mode", ["atomic", "each"])
def test_the_operations_of_a_batch_carry_the_labels(bound: Bound, holder: str, mode: str) -> None:
    operation = {"operation": "spend", "holder": holder, "amount": 1}
    ada = bound()
    done = ada.post("/v1/batches", {"mode": mode, "operations": [operation, {**operation, "metadata": {"job": "7"}}]}).json()
    assert [each["body"]["metadata"] for each in done["results"]] == [ADA, {"job": "7", **ADA}]
    wrong = [{**operation, "metadata": {"member": "bob"}}]
    with nothing_written(holder):
        refused = ada.post("/v1/batches", {"mode": mode, "operations": wrong})
    if mode == "atomic":
        assert slug(problem_of_refusal(refused, 403)) == "label-bound"
    else:
        assert [(each["status"], slug(each["problem"])) for each in refused.json()["results"]] == [(403, "label-bound")]


def test_a_budget_counts_the_member_of_the_key(bound: Bound, make_api: MakeApi, holder: str) -> None:
    path, admin = f"/v1/holders/{holder}", make_api("ledger:admin", name="admin")
    settings = {"limit": 10, "window": "day", "by": "label", "label": "member"}
    assert admin.put(f"{path}/budgets/member", settings).status_code == 201
    assert admin.put(f"{path}/budgets/all", {"limit": 90, "window": "day"}).status_code == 201
    ada, bob = bound(), bound("bob", {"team": "red", "member": "bob"})
    for member in (ada, bob):
        entry_of_201(member.post(f"{path}/spends", {"amount": 7}))
        problem_of_refusal(member.post(f"{path}/spends", {"amount": 4}), 402)
    used = ada.get(f"{path}/budgets/member/usage").json()["results"]
    assert [(each["subject"], each["used"]) for each in used] == [("ada", 7)]
    problem_of_refusal(ada.get(f"{path}/budgets/all/usage"), 404)
    assert len(admin.get(f"{path}/budgets/member/usage").json()["results"]) == 2


@pytest.mark.parametrize("step", ["refunds", "captures", "release", "extend"])
def test_what_others_did_does_not_exist_for_a_key_with_labels(bound: Bound, api: ApiClient, holder: str, step: str) -> None:
    path = f"/v1/holders/{holder}"
    spent = api.post(f"{path}/spends", {"amount": 2, "metadata": {"team": "red", "member": "bob"}}).json()
    held = api.post(f"{path}/holds", {"amount": 5}).json()
    body = {"refunds": {"spend": spent["sequence"]}, "captures": {}, "release": {}, "extend": {"expires_at": LATER}}
    call = "refunds" if step == "refunds" else f"holds/{held['sequence']}/{step}"
    before = api.get(f"{path}/balance").json()
    problem = problem_of_refusal(bound().post(f"{path}/{call}", body[step]), 404)
    assert slug(problem) == "entry-not-found"
    after = api.get(f"{path}/balance").json()
    assert (after["balance"], after["held"]) == (before["balance"], before["held"])
    assert api.post(f"{path}/{call}", body[step]).status_code == 201


# Reading ---------------------------------------------------------------------------------------------


def test_a_key_with_labels_sees_the_entries_that_carry_them_and_the_account_as_a_whole(
    bound: Bound, api: ApiClient, holder: str
) -> None:
    path, ada = f"/v1/holders/{holder}", bound()
    other = api.post(f"{path}/spends", {"amount": 1, "metadata": {"team": "red", "member": "bob"}}).json()
    own = [ada.post(f"{path}/spends", {"amount": amount}).json() for amount in (1, 2, 3)][::-1]
    for listing in (f"{path}/entries?limit=2", f"/v1/entries?holder={holder}&limit=2"):
        first = ada.get(listing).json()
        second = ada.get(first["next"].partition("testserver")[2]).json()
        assert [each["id"] for each in first["results"] + second["results"]] == [each["id"] for each in own]
        assert second["next"] is None
        assert ada.get(second["previous"].partition("testserver")[2]).json()["results"] == first["results"]
    for prefix in (f"{path}/entries/", f"/v1/entries/{holder}/credits/"):
        assert ada.get(f"{prefix}{own[0]['sequence']}").json() == own[0]
        problem_of_refusal(ada.get(f"{prefix}{other['sequence']}"), 404)
    assert ada.get(f"{path}/lots").json() == api.get(f"{path}/lots").json()
    assert ada.get(f"{path}/balance").json()["available"] == ada.get(path).json()["accounts"][0]["available"] == 93


def test_calls_that_show_what_others_did_are_refused(bound: Bound, holder: str) -> None:
    ada, path = bound(), f"/v1/holders/{holder}"
    refused = ["holds", "refusals", "budgets", "recurring-grants", "entries/1/explanation", "freeze"]
    for call in [*(f"{path}/{each}" for each in refused), "/v1/holders", "/v1/entries?after=start"]:
        assert slug(problem_of_refusal(ada.get(call), 403)) == "not-with-labels", call


def test_a_shortfall_tells_a_key_with_labels_neither_lots_nor_holds(bound: Bound, holder: str) -> None:
    problem = problem_of_refusal(bound().post(f"/v1/holders/{holder}/spends", {"amount": 10_000}), 402)
    assert problem["shortfall"] > 0
    assert not {"lots", "holds"} & problem.keys()


# Keys ------------------------------------------------------------------------------------------------


def test_a_key_hands_on_a_narrower_one_and_never_a_wider_one(bound: Bound) -> None:
    team = bound("red", {"team": "red"})
    body = {"name": "red.ada", "scopes": ["ledger:spend"], "labels": ADA}
    made = team.post("/v1/keys", body).json()
    assert (made["labels"], made["created_by"], made["parent_id"]) == (ADA, "key:red", ApiKey.objects.get(name="red").pk)
    assert team.get("/v1/key").json()["labels"] == {"team": "red"}
    keys = ApiKey.objects.count()
    for labels in ({}, {"member": "ada"}, {"team": "blue", "member": "ada"}):
        problem = problem_of_refusal(team.post("/v1/keys", body | {"name": "wide", "labels": labels}), 403)
        assert (slug(problem), problem["exceeds"]) == ("key-exceeds-own", ["labels"])
    assert ApiKey.objects.count() == keys
    assert "labels member=ada, team=red" in StaffEvent.objects.get(object="key red.ada").details
    assert audit([connection.connection]).totals == {}


def test_a_key_sees_rotates_and_revokes_only_keys_that_have_its_labels(bound: Bound) -> None:
    team = bound("red", {"team": "red"})
    bound("blue", {"team": "blue"})
    other = ApiKey.objects.get(name="blue")
    assert [key["name"] for key in team.get("/v1/keys").json()["results"]] == ["red"]
    for call in (f"/v1/keys/{other.pk}/rotate", f"/v1/keys/{other.pk}/revoke"):
        problem_of_refusal(team.post(call, {}), 404)
    problem_of_refusal(team.get(f"/v1/keys/{other.pk}"), 404)
    other.refresh_from_db()
    assert (other.revoked_at, other.rotated_at) == (None, None)


def test_the_keys_of_a_key_with_labels_are_revoked_with_it_and_those_of_another_key_are_not(
    bound: Bound, make_api: MakeApi
) -> None:
    deploy = make_api("keys:admin", "ledger:read", name="deploy")
    deploy.post("/v1/keys", {"name": "shop", "scopes": ["ledger:read"]})
    team = bound("red", {"team": "red"})
    member = team.post("/v1/keys", {"name": "red.ada", "scopes": ["keys:admin", "ledger:spend"], "labels": ADA}).json()
    agent = (
        ApiClient(member["secret"], type(team.client)())
        .post("/v1/keys", {"name": "red.ada.agent", "scopes": ["ledger:spend"], "labels": {**ADA, "agent": "a1"}})
        .json()
    )
    assert api_keys.find_api_key(agent["secret"]) is not None
    for name in ("red", "deploy"):
        api_keys.revoke_api_key(ApiKey.objects.get(name=name), actor="ops")
    assert {key.name: key.state for key in ApiKey.objects.all()} == {
        "deploy": "revoked",
        "shop": "active",
        "red": "revoked",
        "red.ada": "revoked",
        "red.ada.agent": "revoked",
    }
    assert api_keys.find_api_key(agent["secret"]) is None
    revoked = StaffEvent.objects.filter(action="key-revoked").order_by("id").values_list("object", "actor", "details")
    assert list(revoked) == [
        ("key red", "ops", ""),
        ("key red.ada", "ops", "with the key that made it"),
        ("key red.ada.agent", "ops", "with the key that made it"),
        ("key deploy", "ops", ""),
    ]


@pytest.mark.parametrize(
    ("labels", "pointer", "rule"),
    [
        ({"": "ada"}, "/labels/", "too-long"),
        ({"x" * 65: "ada"}, f"/labels/{'x' * 65}", "too-long"),
        ({"member": ""}, "/labels/member", "too-short"),
        ({"member": "x" * 201}, "/labels/member", "too-long"),
        ({"member": 7}, "/labels/member", "not-a-string"),
        ({f"name{number}": "x" for number in range(11)}, "/labels", "too-many-keys"),
        ([], "/labels", "not-an-object"),
    ],
)
def test_wrong_labels_are_refused_by_field_and_rule(bound: Bound, labels: Any, pointer: str, rule: str) -> None:
    api, keys = bound(), ApiKey.objects.count()
    response = api.post("/v1/keys", {"name": "x", "scopes": ["ledger:spend"], "labels": labels})
    problem_of_refusal(response, 400, (pointer, rule))
    with pytest.raises(Invalid) as refused:
        api_keys.create_api_key(name="x", scopes=["ledger:spend"], labels=labels)
    assert (refused.value.facts["pointer"], refused.value.facts["rule"]) == (pointer, rule)
    assert ApiKey.objects.count() - keys == 0


@pytest.mark.parametrize("scope", ["ledger:admin", "ledger:grant", "billing:write", "signals:read", "pages:write"])
def test_a_scope_whose_calls_carry_no_labels_does_not_go_with_them(db: None, scope: str) -> None:
    with pytest.raises(Invalid) as refused:
        api_keys.create_api_key(name="x", scopes=["ledger:spend", scope], labels=ADA)
    assert (refused.value.facts["pointer"], refused.value.facts["rule"]) == ("/scopes", "not-with-labels")
    assert not ApiKey.objects.exists()
