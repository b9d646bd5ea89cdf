"""What a claim stores of the line that billed it, as JSON and back: corrections and late usage need it."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from fractions import Fraction
from typing import Any

from billing.generator.claim_credits import Origin
from billing.generator.minimums import BoundTerms
from billing.rating.aggregation import Usage
from billing.rating.money import decimal_text
from billing.rating.prepaid_units import NOTHING_COVERED, Coverage, CreditSpend, covered_of, covered_snapshot, stretches_of
from billing.rating.proration import Share


def read_coverage(snapshot: Mapping[str, Any]) -> dict[str, Any]:
    if "covered" not in snapshot:
        return {}
    coverage, spends = covered_of(snapshot["covered"])
    return {"coverage": coverage, "spends": spends, "short_of": stretches_of(snapshot["covered"].get("short_of", ()))}


def read_origin(known: Mapping[str, Any]) -> Origin:
    return Origin(
        full_start=datetime.fromisoformat(known["full_start"]),
        full_end=datetime.fromisoformat(known["full_end"]),
        share=Share(*known["share"]),
        amount_minor=known["amount_minor"],
        discount_minor=known["discount_minor"],
        credited_minor=known["credited_minor"],
    )


def read_usage(known: Mapping[str, Any]) -> Usage:
    return Usage(Fraction(known["quantity"]), known["events"], Fraction(known["free_quantity"]), known["free_events"])


def origin_snapshot(origin: Origin, share_used: int) -> dict[str, Any]:
    """What a recurring claim stores of its line."""
    return {
        "origin": {
            "full_start": origin.full_start.isoformat(),
            "full_end": origin.full_end.isoformat(),
            "share": [origin.share.used, origin.share.of],
            "amount_minor": origin.amount_minor,
            "discount_minor": origin.discount_minor,
            "credited_minor": origin.credited_minor,
        },
        "share_used": share_used,
    }


def bound_snapshot(terms: BoundTerms) -> dict[str, Any]:
    """What the claim of a minimum or maximum stores of its line."""
    return {
        "plan": terms.plan_code,
        "currency": terms.currency,
        "tax_category": terms.tax_category,
        "tax_rate": decimal_text(terms.tax_rate),
    }


def read_bound_terms(known: Mapping[str, Any]) -> BoundTerms:
    return BoundTerms(known["plan"], known["currency"], known["tax_category"], Decimal(known["tax_rate"]))


def usage_snapshot(
    usage: Usage,
    gross_minor: int,
    after_coupons_minor: int,
    coverage: Coverage = NOTHING_COVERED,
    spends: Sequence[CreditSpend] = (),
) -> dict[str, Any]:
    """What a usage claim stores of the rated usage, exactly, and of what credits cover, with the spends that paid for it."""
    covered = {"covered": covered_snapshot(coverage, spends)} if coverage.stretches else {}
    return covered | {
        "usage": {
            "quantity": str(usage.quantity),
            "events": usage.events,
            "free_quantity": str(usage.free_quantity),
            "free_events": usage.free_events,
        },
        "quantity": decimal_text(usage.quantity),
        "gross_minor": gross_minor,
        "after_coupons_minor": after_coupons_minor,
    }
