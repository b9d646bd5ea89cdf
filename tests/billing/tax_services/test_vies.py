"""The client of VIES: what it sends, what it reads out of each answer, and that nothing makes it raise or wait for long."""

import json
import threading
import time
from typing import Any

import pytest

from billing.rating.vat import LookupOutcome, relied_vat_id
from billing.tax_services import vies as client
from billing.tax_services.vies import look_up, read_answer
from ledger import conf
from tests.billing.tax_services.vies_double import ViesDouble, failing, invalid, valid

VALID, INVALID, UNAVAILABLE = LookupOutcome.VALID, LookupOutcome.INVALID, LookupOutcome.UNAVAILABLE


def test_a_valid_id_has_name_address_and_a_consultation_number_for_a_requester(vies: ViesDouble) -> None:
    found = look_up("FR40303265045", requester="EL094259216")
    assert (found.outcome, found.name, found.address) == (VALID, "ACME SA", "1 RUE X, 75001 PARIS")
    assert (found.consultation, found.requester, found.error) == ("WAPIAAAAZxT0vM3d", "EL094259216", "")
    assert vies.asked == [
        {"countryCode": "FR", "vatNumber": "40303265045", "requesterMemberStateCode": "EL", "requesterNumber": "094259216"}
    ]
    assert vies.paths == ["/vies/rest-api/check-vat-number"]


@pytest.mark.parametrize("vat_id", ["EL094259216", "XI432525179"])
def test_greece_and_northern_ireland_are_asked_by_their_prefixes_of_vies(vies: ViesDouble, vat_id: str) -> None:
    assert (look_up(vat_id).outcome, look_up(vat_id).consultation) == (VALID, "")
    assert vies.asked[0] == {"countryCode": vat_id[:2], "vatNumber": vat_id[2:]}


def test_only_no_is_invalid(vies: ViesDouble) -> None:
    vies.answers = invalid
    found = look_up("FR40303265045", requester="DE123456788")
    assert (found.outcome, found.name, found.address, found.consultation) == (INVALID, "", "", "WAPIAAAAZxT0vM3d")


@pytest.mark.parametrize("status", [200, 400, 500, 503])
@pytest.mark.parametrize(
    "code", ["MS_UNAVAILABLE", "GLOBAL_MAX_CONCURRENT_REQ", "MS_MAX_CONCURRENT_REQ", "TIMEOUT", "INVALID_INPUT"]
)
def test_an_error_of_vies_is_no_answer(vies: ViesDouble, code: str, status: int) -> None:
    vies.answers = failing(code, status)
    found = look_up("FR40303265045")
    assert (found.outcome, found.error) == (UNAVAILABLE, code)


@pytest.mark.parametrize(
    ("status", "content", "error"),
    [
        (200, b"", "UNREADABLE_ANSWER"), (200, b"<html>", "UNREADABLE_ANSWER"), (200, b"\xff\xfe", "UNREADABLE_ANSWER"),
        (200, b"[" * 60_000, "UNREADABLE_ANSWER"), (200, b"[]", "UNREADABLE_ANSWER"), (200, b"null", "UNREADABLE_ANSWER"),
        (200, b"{}", "UNREADABLE_ANSWER"), (200, b'{"valid": true}', "UNREADABLE_ANSWER"),
        (200, b'{"valid": false}', "UNREADABLE_ANSWER"),
        (200, b'{"valid": "no", "countryCode": "FR", "vatNumber": "40303265045"}', "UNREADABLE_ANSWER"),
        (200, b'{"valid": false, "countryCode": "FR", "vatNumber": "1"}', "UNREADABLE_ANSWER"),
        (200, b'{"valid": true, "errorWrappers": [{"error": "no code"}]}', "UNREADABLE_ANSWER"),
        (500, b"Internal Server Error", "HTTP_500"), (404, b"{}", "HTTP_404"), (302, b"", "HTTP_302"), (204, b"", "HTTP_204"),
        (500, b'{"valid": false, "countryCode": "FR", "vatNumber": "40303265045"}', "HTTP_500"),
        (500, b'{"errorWrappers": [{"error": "<script>"}]}', "HTTP_500"), (500, b'{"errorWrappers": {}}', "HTTP_500"),
    ],
)  # fmt: skip
def test_whatever_is_no_answer_leaves_the_id_unanswered(status: int, content: bytes, error: str) -> None:
    assert read_answer(status, content, vat_id="FR40303265045") == {"error": error}


@pytest.mark.parametrize(
    ("more", "found"),
    [
        ({"userError": "MS_UNAVAILABLE"}, {"error": "MS_UNAVAILABLE"}),
        ({"errorWrappers": [{"error": "TIMEOUT"}]}, {"error": "TIMEOUT"}),
        ({"userError": "INVALID"}, {"outcome": INVALID, "consultation": ""}),
    ],
)
def test_with_an_error_beside_it_no_is_no_answer(more: dict[str, Any], found: dict[str, Any]) -> None:
    _, body = valid({"countryCode": "FR", "vatNumber": "40303265045"}, valid=False, **more)
    assert read_answer(200, json.dumps(body).encode(), vat_id="FR40303265045") == found


def test_texts_of_vies_are_bounded_and_can_be_stored() -> None:
    given = {"name": "A\x00\ud800" + "B" * 9_000, "address": 7, "requestIdentifier": "no number!"}
    _, body = valid({"countryCode": "FR", "vatNumber": "40303265045"}, **given)
    found = read_answer(200, json.dumps(body).encode(), vat_id="FR40303265045")
    assert (found["name"][:4], len(found["name"]), found["address"], found["consultation"]) == ("A  B", 500, "", "")


def test_a_huge_answer_is_not_read(vies: ViesDouble) -> None:
    vies.answers = lambda asked: (200, b" " * 10_000_000)
    assert look_up("FR40303265045").error == "UNREADABLE_ANSWER"


def test_a_redirect_is_not_followed(vies: ViesDouble) -> None:
    vies.answers = lambda asked: (302, b"")
    assert look_up("FR40303265045").error == "HTTP_302"
    assert len(vies.asked) == 1


def test_an_answer_that_does_not_come_in_time_is_none(vies: ViesDouble) -> None:
    over = threading.Event()

    def waiting(asked: dict[str, Any]) -> Any:
        over.wait(30)
        return valid(asked)

    vies.answers = waiting
    began = time.monotonic()
    found = look_up("FR40303265045", timeout_s=0.2)
    over.set()
    assert (found.outcome, found.error) == (UNAVAILABLE, "NO_ANSWER_IN_TIME")
    assert time.monotonic() - began < 10


def test_a_service_that_is_gone_is_no_answer(settings: Any) -> None:
    settings.LEDGER = {**settings.LEDGER, "VIES_URL": "http://127.0.0.1:9/x"}
    assert look_up("FR40303265045").error == "NO_CONNECTION"


def test_one_process_asks_a_few_at_once_and_does_not_wait_for_its_turn(vies: ViesDouble) -> None:
    taken = [client._free.acquire(blocking=False) for _ in range(client.AT_ONCE)]
    try:
        assert (all(taken), look_up("FR40303265045").error, vies.asked) == (True, "TOO_MANY_LOOKUPS", [])
    finally:
        for _ in taken:
            client._free.release()
    assert look_up("FR40303265045").outcome == VALID


@pytest.mark.parametrize(
    ("url", "is_right"),
    [
        ("", True), ("https://ec.europa.eu/taxation_customs/vies/rest-api", True), ("http://127.0.0.1:8080/x", True),
        ("http://localhost", True), ("http://ec.europa.eu/x", False), ("ftp://ec.europa.eu", False), ("https://", False),
        ("https://me:secret@ec.europa.eu/x", False), ("https://ec.europa.eu/x?y", False),
        ("http://127.0.0.1.evil.example", False),
    ],
)  # fmt: skip
def test_the_address_comes_from_the_setting_and_is_encrypted(url: str, is_right: bool) -> None:
    assert (conf.VIES_URL.complaint(url) == "") is is_right


@pytest.mark.parametrize(
    ("vat_id", "outcome", "needs", "relied"),
    [
        ("FR40303265045", "", False, "FR40303265045"), ("FR40303265045", "invalid", False, "FR40303265045"),
        ("FR40303265045", "valid", True, "FR40303265045"), ("FR40303265045", "invalid", True, ""),
        ("FR40303265045", "unavailable", True, ""), ("FR40303265045", "", True, ""),
        ("EL094259216", "", True, ""), ("XI432525179", "", True, ""), ("GB999999973", "", True, "GB999999973"),
        ("", "", True, ""),
    ],
)  # fmt: skip
def test_the_seller_says_whether_reverse_charge_needs_a_confirmed_id(vat_id: str, outcome: str, needs: bool, relied: str) -> None:
    assert relied_vat_id(vat_id, outcome=outcome, needs_confirmed=needs) == relied
