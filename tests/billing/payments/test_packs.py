"""Packs: versions that never change, and the one that is on sale."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone

from billing.payments import reads
from billing.payments.models import Pack
from billing.payments.packs import NewPack, pack_on_sale
from billing.payments.testing import PackFactory
from billing.testing import unique
from ledger.errors import Invalid
from tests.ledger.rest.conftest import ApiClient

pytestmark = pytest.mark.django_db

NOW = datetime(2026, 6, 1, tzinfo=UTC)
BODY: dict[str, Any] = {"ref": "starter", "name": "Starter", "credits": 1000, "currency": "EUR", "price_minor": 2000}


def day(number: int) -> datetime:
    return NOW + timedelta(days=number)


def test_the_newest_version_that_has_begun_is_on_sale_until_it_ends() -> None:
    code = unique("pack")
    for price, begins, ends in ((1, 0, None), (2, 10, 20), (3, 5, 6)):
        PackFactory(code=code, price_minor=price, valid_from=day(begins), valid_until=None if ends is None else day(ends))
    assert [pack_on_sale(code, day(at)).price_minor for at in (0, 4)] == [1, 1]
    assert pack_on_sale(code, day(5)).price_minor == 3
    for at in (6, 12, 30):
        with pytest.raises(Invalid) as refused:
            pack_on_sale(code, day(at))
        assert (refused.value.facts["pointer"], refused.value.facts["rule"]) == ("/pack", "on-sale")
    assert pack_on_sale(code, day(30), version=2).price_minor == 2


def test_a_version_that_ends_when_it_begins_takes_the_pack_off_sale() -> None:
    code = PackFactory().code
    assert [row.code for row in reads.packs(on_sale=True, limit=200) if row.code == code] == [code]
    PackFactory(code=code, valid_until=timezone.now())
    assert not [row for row in reads.packs(on_sale=True, limit=200) if row.code == code]
    assert [row.version for row in reads.packs(code=code, limit=9)] == [2, 1]


@pytest.mark.parametrize(
    ("change", "pointer"),
    [
        ({"credits": 0}, "/credits"),
        ({"bonus": -1}, "/bonus"),
        ({"price_minor": 0}, "/price_minor"),
        ({"price_minor": "20.00"}, "/price_minor"),
        ({"currency": "EURO"}, "/currency"),
        ({"expires_days": 0}, "/expires_days"),
        ({"credit_type": "No"}, "/credit_type"),
        ({"applies_to": {}}, "/applies_to"),
        ({"applies_to": {"rates": ["image.small"], "models": ["x"]}}, "/applies_to/models"),
        ({"applies_to": {"labels": {"member": ["ada"], "model": ["x"]}}}, "/applies_to/labels"),
        ({"valid_from": "2026-02-01T00:00:00Z", "valid_until": "2026-01-01T00:00:00Z"}, "/valid_until"),
        ({"version": 2}, "/version"),
    ],
)
def test_a_bad_pack_is_refused_by_field_and_nothing_is_written(api: ApiClient, change: dict[str, Any], pointer: str) -> None:
    response = api.post("/v1/packs", BODY | change)
    assert response.status_code == 400
    assert [error["pointer"] for error in response.json()["errors"]] == [pointer]
    assert not Pack.objects.exists()


def test_packs_over_rest(api: ApiClient) -> None:
    first = api.post("/v1/packs", BODY | {"bonus": 100, "names": {"de": "Einstieg"}, "expires_days": 365})
    assert first.status_code == 201
    assert first.json() | {"valid_from": None} == {
        **BODY, "version": 1, "names": {"de": "Einstieg"}, "credit_type": "credits", "bonus": 100, "expires_days": 365,
        "applies_to": None, "valid_from": None, "valid_until": None,
    }  # fmt: skip
    assert api.post("/v1/packs", BODY | {"price_minor": 1500}).json()["version"] == 2
    assert api.get("/v1/packs/starter").json()["price_minor"] == 1500
    assert api.get("/v1/packs/starter?version=1").json() == first.json()
    assert [row["version"] for row in api.get("/v1/packs?on_sale=true").json()["results"]] == [2]
    assert api.get("/v1/packs/none").status_code == 404


def test_what_a_packs_credits_can_pay_for_is_read_as_it_was_written(api: ApiClient) -> None:
    purpose = {"rates": ["image.small", "image.large"], "labels": {"member": ["ada"]}}
    made = api.post("/v1/packs", BODY | {"applies_to": purpose}).json()
    assert made["applies_to"] == {"rates": ["image.large", "image.small"], "labels": {"member": ["ada"]}}
    assert api.get("/v1/packs/starter").json() == made
    assert api.post("/v1/packs", BODY).json()["applies_to"] is None


def test_a_dry_run_shows_the_next_version_and_writes_nothing(api: ApiClient) -> None:
    assert api.post("/v1/packs?dry_run=true", BODY).json()["version"] == 1
    assert not Pack.objects.exists()


def test_the_fields_of_a_pack_are_those_of_its_row() -> None:
    columns = {field.name for field in Pack._meta.fields} - {"id", "version", "created_at"}
    assert set(NewPack.__annotations__) == columns
