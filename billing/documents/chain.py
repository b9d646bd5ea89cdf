"""The chains of billing: numbered documents, transitions of their states, and the rows of intent that their digests cover; and
the tables whose rows are registered.

Triggers make the digests (migrations/schema.sql); docs/explanation/billing.md has their forms. The ledger's audit verifies
the two chains and the register, and its anchor holds the last digest of each series: see `ledger.audit.chains`. The anchor
does not hold amendments, charges, prices, coupons and sellers, because the digest of an invoice covers those from which it
was made.
"""

from typing import Final

from billing.models.invoices import of_documents
from ledger.audit.chains import Chain, RegisteredTable

_HEAD = """
        (SELECT series_value, digest FROM {table}
         WHERE series = series.name AND series_value IS NOT NULL ORDER BY series_value DESC LIMIT 1)
"""
HEADS = f"""
    SELECT series.name, last.series_value, encode(last.digest, 'hex')
    FROM billing_numberseries AS series CROSS JOIN LATERAL ({of_documents(_HEAD, between=" UNION ALL ")}) AS last
    ORDER BY series.name COLLATE "C"
"""

_FOUND = "(SELECT digest FROM {table} WHERE series = anchored.series AND series_value = anchored.number)"
_LAST = "(SELECT max(series_value) FROM {table} WHERE series = anchored.series)"
FOUND_AT = f"""
    SELECT anchored.series, anchored.number, encode(coalesce({of_documents(_FOUND, between=", ")}), 'hex'),
        greatest({of_documents(_LAST, between=", ")})
    FROM unnest(%s::text[], %s::bigint[]) AS anchored(series, number)
"""

_BROKEN = """
    SELECT series, series_value, coalesce(encode(digest, 'hex'), 'none'), encode({table}_digest(document), 'hex')
    FROM {table} AS document
    WHERE {chained_if} AND digest IS DISTINCT FROM {table}_digest(document)
"""
BROKEN = f"{of_documents(_BROKEN, between=' UNION ALL ')} ORDER BY 1, 2"


def _chained_rows(table: str, series: str = "subscription_id") -> str:
    """Return the SQL of a table's rows, numbered per series, each with the digest that its chain expects."""
    return f"""
        SELECT {series} AS series, sequence, digest, billing_chained_digest(
            lag(digest) OVER (PARTITION BY {series} ORDER BY sequence), billing_row_form(numbered)) AS expected
        FROM {table} AS numbered
    """


DOCUMENTS: Final = Chain(
    name="documents",
    law="The digest of an invoice or credit note is SHA-256 over the digest of the previous document of its series, 32 zero "
    "bytes for the first, and its own canonical form.",
    heads=HEADS,
    found_at=FOUND_AT,
    broken=BROKEN,
)

# A series is a subscription, or a customer for invoices without one: its transitions are numbered from 1 on, under its lock.
_SERIES = "coalesce(subscription_id::text, 'customer ' || customer_id)"
TRANSITION_HEADS = f"""
    SELECT DISTINCT ON ({_SERIES} COLLATE "C") {_SERIES}, sequence::bigint, encode(digest, 'hex')
    FROM billing_transition ORDER BY {_SERIES} COLLATE "C", sequence DESC
"""

_OF_SERIES = """(subscription_id = substring(anchored.series FROM '^[0-9]+$')::bigint
        OR customer_id = substring(anchored.series FROM '^customer ([0-9]+)$')::bigint)"""
TRANSITIONS_FOUND_AT = f"""
    SELECT anchored.series, anchored.number,
        (SELECT encode(digest, 'hex') FROM billing_transition WHERE {_OF_SERIES} AND sequence = anchored.number),
        (SELECT max(sequence)::bigint FROM billing_transition WHERE {_OF_SERIES})
    FROM unnest(%s::text[], %s::bigint[]) AS anchored(series, number)
"""

TRANSITIONS_BROKEN = f"""
    SELECT series, sequence::bigint, coalesce(encode(digest, 'hex'), 'none'), encode(expected, 'hex')
    FROM ({_chained_rows("billing_transition", _SERIES)}) AS chained
    WHERE digest IS DISTINCT FROM expected
    ORDER BY series COLLATE "C", sequence
"""

TRANSITIONS: Final = Chain(
    name="transitions",
    law="The digest of a transition of a document is SHA-256 over the digest of the previous transition of its subscription, or "
    "of the customer for invoices without one, 32 zero bytes for the first, and its own canonical form.",
    heads=TRANSITION_HEADS,
    found_at=TRANSITIONS_FOUND_AT,
    broken=TRANSITIONS_BROKEN,
)

# Rows of intent whose digest is not that of their content; each row is a finding in words.
INTENT_LAWS: Final = {
    "digest of an amendment": f"""
        SELECT format('subscription %s, amendment %s', series, sequence)
        FROM ({_chained_rows("billing_amendment")}) AS chained
        WHERE digest IS DISTINCT FROM expected
    """,
    "digest of a charge": f"""
        SELECT format('subscription %s, charge %s', series, sequence)
        FROM ({_chained_rows("billing_charge")}) AS chained
        WHERE digest IS DISTINCT FROM expected
    """,
    "digest of a price": """
        SELECT format('price %s of plan %s', price.id, price.plan_id) FROM billing_price AS price
        WHERE digest IS DISTINCT FROM billing_price_digest(price)
    """,
    "digest of a coupon": """
        SELECT format('coupon %s', code) FROM billing_coupon AS coupon
        WHERE digest IS DISTINCT FROM billing_coupon_digest(coupon)
    """,
    "digest of a seller": """
        SELECT format('version %s of the seller', id) FROM billing_seller AS seller
        WHERE digest IS DISTINCT FROM billing_seller_digest(seller)
    """,
    "digest of a tax": """
        SELECT format('version %s of the tax %s', id, code) FROM billing_tax AS tax
        WHERE digest IS DISTINCT FROM billing_tax_digest(tax)
    """,
}

# A row that a document's digest covers is registered once it changes afterwards.
REGISTERED: Final = (
    *(
        RegisteredTable(f"billing_{name}", is_fixed=True)
        for name in (
            "item", "amendment", "charge", "plan", "price", "coupon", "seller", "tax", "transition", "runresult", "creditrefund",
            "planmove", "movedsubscription",
            "meter", "invoicepayment", "paymentreturn",
        )
    ),
    *(
        RegisteredTable(f"billing_{name}")
        for name in (
            "customer", "subscription", "itemversion", "customercoupon", "suspendedbilling", "creditnoteuse",
            "activation", "vatlookup",
        )
    ),
    RegisteredTable("billing_droppedmonth", ("month",)),
    RegisteredTable("billing_requestkey", ("collection", "idempotency_key")),
    RegisteredTable("billing_run", ("run_id",)),
    RegisteredTable("billing_scheduledtask", ("name",)),
    RegisteredTable(
        "billing_claim", condition="r.made_by IS NULL OR r.restores IS NOT NULL OR r.released_at IS NOT NULL"
    ),
    RegisteredTable("billing_couponuse", condition="r.released_at IS NOT NULL"),
    RegisteredTable("billing_creditpayment", condition="r.refund_sequence IS NOT NULL"),
    RegisteredTable("billing_creditnote", condition="r.kind <> 'requested' OR r.released_at IS NOT NULL"),
    RegisteredTable(
        "billing_invoice",
        condition="r.paid_at IS DISTINCT FROM r.finalized_at AND r.paid_at IS NOT NULL OR r.voided_at IS NOT NULL "
        "OR r.uncollectible_at IS NOT NULL OR r.payment_changes > 0",
    ),
)  # fmt: skip
