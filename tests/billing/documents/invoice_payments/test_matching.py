"""A payment's text names an invoice, whatever signs people and banks put between the characters of its number."""

import pytest

from billing.documents.payment_matching import plain_numbers_in, standing_in

NUMBERS = {1: "INV-000012", 2: "INV-100000", 3: "INV-1000000", 4: "INV-2026-000012", 5: "RE-CUST-7-000003"}


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("INV-000012", [1]),
        ("inv 000012 danke", [1]),
        ("Rechnung:INV000012.", [1]),
        ("PROINV-000012", []),
        ("INV-000012b", []),
        ("INV-0000\n12", [1]),
        ("INV-000012 INV-100000", [1, 2]),
        ("INV-1000000", [3]),
        ("INV-100000, 0 EUR", [2]),
        ("INV-2026-000012", [4]),
        ("inv/2026/000012 2026", [4]),
        ("re cust 7 000003", [5]),
        ("INV-0000123", []),
        ("INV-00012", []),
        ("000012", []),
        ("", []),
        ("İNV-000012", []),
        ("9" * 200, []),
    ],
)
def test_a_number_is_found_in_a_text(text: str, keys: list[int]) -> None:
    candidates = plain_numbers_in(text, ["INV", "RE"])
    known = {key: number for key, number in NUMBERS.items() if number.replace("-", "") in candidates}
    assert standing_in(text, known) == keys


def test_candidates_begin_with_a_prefix_and_end_with_six_digits() -> None:
    assert plain_numbers_in("INV-0000012 x", ["INV"]) == {"INV000001", "INV0000012"}
    assert plain_numbers_in("INV-0000012", ["RE"]) == set()
    assert plain_numbers_in("", ["INV"]) == set()
