"""Laws of purchases: what their rows say among each other, and what the ledger says about them."""

from typing import Final

# The entries of the ledger that purchases name; those of claims move no credits. A purchase's grants are its own and those after
# a dispute that was won.
_NAMED: Final = """
    SELECT p.id, p.holder_id, p.credit_type, (part ->> 'sequence')::bigint AS sequence, (part ->> 'amount')::bigint AS amount,
        'grant' AS kind
    FROM billing_purchasegrant AS g JOIN billing_purchase AS p ON p.id = g.purchase_id
    CROSS JOIN LATERAL jsonb_array_elements(g.entries) AS part
    UNION ALL
    SELECT p.id, p.holder_id, p.credit_type, (part ->> 'sequence')::bigint,
        CASE r.kind WHEN 'reinstated' THEN 1 ELSE -1 END * (part ->> 'amount')::bigint,
        CASE WHEN part ? 'claim' THEN 'adjust' WHEN r.kind = 'reinstated' THEN 'grant' ELSE 'revoke' END
    FROM billing_returnsettlement AS s
    JOIN billing_purchase AS p ON p.id = s.purchase_id
    JOIN billing_purchasereturn AS r ON r.id = s.purchase_return_id
    CROSS JOIN LATERAL jsonb_array_elements(s.entries) AS part
"""

NAMED_ENTRIES: Final = f"""
    SELECT format('purchase %s', named.id), named.holder_id, named.credit_type, named.sequence, named.kind
    FROM ({_NAMED}) AS named
"""

# A settlement without entries took nothing from the ledger: what it took had not been added.
_WITHHELD: Final = """
    (SELECT coalesce(sum(s.taken_{0}), 0) FROM billing_returnsettlement AS s
     WHERE s.purchase_id = p.id AND s.entries = '[]')
"""


def _sum_of(source: str, entries: str) -> str:
    return f"""
        (SELECT coalesce(sum((part ->> 'amount')::bigint), 0) FROM jsonb_array_elements({entries}) AS part
         WHERE part ->> 'source' = '{source}')
    """


PURCHASE_LAWS: Final = {
    "purchase is neither settled nor waiting": """
        SELECT format('purchase %s', p.id) FROM billing_purchase AS p
        WHERE NOT EXISTS (SELECT FROM billing_duepurchase AS d WHERE d.purchase_id = p.id)
            AND (NOT EXISTS (SELECT FROM billing_purchasegrant AS g WHERE g.purchase_id = p.id)
                OR EXISTS (
                    SELECT FROM billing_purchasereturn AS r WHERE r.purchase_id = p.id AND NOT EXISTS (
                        SELECT FROM billing_returnsettlement AS s WHERE s.purchase_return_id = r.id)))
    """,
    "purchase is not of its pack": """
        SELECT format('purchase %s', p.id) FROM billing_purchase AS p LEFT JOIN billing_pack AS pack ON pack.id = p.pack_id
        WHERE (pack.credit_type, pack.credits * p.quantity, pack.bonus * p.quantity, pack.currency)
            IS DISTINCT FROM (p.credit_type, p.credits, p.bonus, p.currency)
    """,
    "purchase does not add up": f"""
        SELECT format('purchase %s', p.id)
        FROM billing_purchase AS p JOIN billing_purchasegrant AS g ON g.purchase_id = p.id
        WHERE g.credits <> p.credits - {_WITHHELD.format("credits")} OR g.bonus <> p.bonus - {_WITHHELD.format("bonus")}
            OR g.credits <> {_sum_of("purchased", "g.entries")} OR g.bonus <> {_sum_of("promotional", "g.entries")}
    """,
    "return does not add up": f"""
        SELECT format('return %s of purchase %s', r.id, r.purchase_id)
        FROM billing_returnsettlement AS s JOIN billing_purchasereturn AS r ON r.id = s.purchase_return_id
        CROSS JOIN LATERAL (SELECT CASE r.kind WHEN 'reinstated' THEN -1 ELSE 1 END AS sign) AS side
        WHERE s.purchase_id <> r.purchase_id
            OR side.sign * s.taken_credits NOT BETWEEN 0 AND side.sign * s.share_credits
            OR side.sign * s.taken_bonus NOT BETWEEN 0 AND side.sign * s.share_bonus
            OR s.claim_minor <> CASE WHEN s.share_credits = 0 THEN 0 ELSE side.sign * div(
                2 * r.amount_minor::numeric * (s.share_credits - s.taken_credits) + s.share_credits,
                2 * s.share_credits::numeric) END
            OR s.entries <> '[]' AND (side.sign * s.taken_credits <> {_sum_of("purchased", "s.entries")}
                OR side.sign * s.taken_bonus <> {_sum_of("promotional", "s.entries")})
    """,
    "more was returned than was paid": """
        SELECT format('purchase %s', p.id) FROM billing_purchase AS p JOIN billing_purchasereturn AS r ON r.purchase_id = p.id
        GROUP BY p.id HAVING sum(CASE r.kind WHEN 'reinstated' THEN -r.amount_minor ELSE r.amount_minor END)
            NOT BETWEEN 0 AND p.paid_minor
    """,
    "purchases differ from the ledger": f"""
        WITH named AS MATERIALIZED ({_NAMED}),
        there AS MATERIALIZED (
            SELECT e.holder_id, e.credit_type, e.sequence, e.amount, e.reference
            FROM named JOIN ledger_entry AS e USING (holder_id, credit_type, sequence)
        )
        SELECT format('purchase %s: entry %s of %s in %s has %s of %s', named.id, sequence, holder_id, credit_type, there.amount,
            named.amount)
        FROM named JOIN there USING (holder_id, credit_type, sequence)
        WHERE there.amount <> named.amount OR there.reference <> format('purchase %s', named.id)
    """,
    # The eighth part of a lot, in the entry that opens it.
    "credits of a purchase are not for what its pack says": f"""
        SELECT format('purchase %s: entry %s of %s in %s', named.id, e.sequence, e.holder_id, e.credit_type)
        FROM ({_NAMED}) AS named JOIN ledger_entry AS e USING (holder_id, credit_type, sequence)
        JOIN billing_purchase AS p ON p.id = named.id JOIN billing_pack AS pack ON pack.id = p.pack_id
        CROSS JOIN LATERAL json_array_elements(e.lots) AS lot
        WHERE named.kind = 'grant' AND (lot ->> 0)::bigint = e.sequence
            AND (lot -> 7)::jsonb IS DISTINCT FROM pack.applies_to
    """,
    "entries of a purchase that it does not name": f"""
        WITH recorded AS MATERIALIZED (
            SELECT reference, count(*) AS entries FROM ledger_entry
            WHERE actor = 'billing' AND starts_with(reference, 'purchase ') AND kind IN ('grant', 'revoke')
            GROUP BY reference
        ), named AS MATERIALIZED (
            SELECT format('purchase %s', id) AS reference, count(*) AS entries FROM ({_NAMED}) AS each
            WHERE kind <> 'adjust' GROUP BY id
        )
        SELECT format('%s: the ledger has %s entries, the purchase names %s', reference, recorded.entries,
            coalesce(named.entries, 0))
        FROM recorded LEFT JOIN named USING (reference)
        WHERE recorded.entries <> coalesce(named.entries, 0)
    """,
}
"""The name of a finding and its query; each row is a finding in words."""
