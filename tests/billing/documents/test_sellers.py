"""Who invoices: recorded by the command, checked, and never changed."""

import json

import pytest
from django.core.management import CommandError, call_command
from django.db import DatabaseError, transaction

from billing.documents.sellers import Iban, current_seller, is_iban, record_seller
from billing.models import Seller
from ledger.errors import Invalid
from ledger.values import InvalidValue
from tests.billing.documents.issued import SELLER

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(
    ("change", "pointer", "rule"),
    [
        ({"nmae": "X"}, "/nmae", "unknown-field"),
        ({"name": ""}, "/name", "too-short"),
        ({"name": None}, "/name", "null"),
        ({"name": "  "}, "/name", "blank"),
        ({"line1": 7}, "/line1", "not-a-string"),
        ({"name": "x" * 71}, "/name", "too-long"),
        ({"city": "Ber\nlin"}, "/city", "forbidden-character"),
        ({"country": "Germany"}, "/country", "too-long"),
        ({"country": "de"}, "/country", "pattern"),
        ({"vat_id": "123"}, "/vat_id", "pattern"),
        ({"iban": "DE89 3704 0044 0532 0130 00"}, "/iban", "pattern"),
        ({"iban": "DE88370400440532013000"}, "/iban", "wrong-check-digits"),
        ({"bic": "COBA"}, "/bic", "pattern"),
    ],
)
def test_what_a_document_cannot_print_is_refused_and_nothing_recorded(change, pointer, rule):
    with pytest.raises(Invalid) as refused:
        record_seller({**SELLER, **change}, actor="test")
    assert (refused.value.facts["pointer"], refused.value.facts["rule"]) == (pointer, rule)
    assert not Seller.objects.exists()


def test_an_iban_with_spaces_is_refused_in_words():
    with pytest.raises(InvalidValue) as refused:
        Iban().check("DE89 3704 0044 0532 0130 00")
    assert (refused.value.code, refused.value.detail) == ("pattern", "This must be an IBAN without spaces.")


def test_the_last_one_counts_and_the_same_again_records_nothing():
    first = record_seller(SELLER, actor="test")
    assert record_seller(dict(reversed(SELLER.items())), actor="test") == first
    second = record_seller({**SELLER, "city": "Potsdam"}, actor="test")
    assert current_seller() == second
    assert Seller.objects.count() == 2


def test_a_seller_that_documents_name_never_changes():
    seller = record_seller(SELLER, actor="test")
    with pytest.raises(DatabaseError, match="append-only"), transaction.atomic():
        Seller.objects.filter(pk=seller.pk).update(recorded_by="somebody else")


def test_the_check_digits_of_an_iban():
    assert all(map(is_iban, ("DE89370400440532013000", "GB29NWBK60161331926819", "NO9386011117947")))
    assert not is_iban("NO9386011117948")


def test_the_command_shows_records_and_says_what_is_wrong(tmp_path, capsys):
    with pytest.raises(CommandError, match=r"No seller is recorded\. Record one with --file\."):
        call_command("seller")
    file = tmp_path / "seller.json"
    for content, message in (
        ("{", "cannot be read as JSON"),
        ("[]", "must contain one JSON object"),
        (json.dumps({**SELLER, "iban": "DE88370400440532013000"}), "iban: This has wrong check digits"),
    ):
        file.write_text(content)
        with pytest.raises(CommandError, match=message):
            call_command("seller", file=file)
    assert not Seller.objects.exists()
    file.write_text(json.dumps(SELLER))
    call_command("seller", file=file)
    call_command("seller")
    shown = capsys.readouterr().out
    assert shown.count("Name          Nimbus Computing GmbH\n") == 2
    assert "VAT id        DE987654328\n" in shown
    call_command("seller", format="json")
    assert SELLER.items() <= json.loads(capsys.readouterr().out).items()
    assert "UTC by command:" in shown
