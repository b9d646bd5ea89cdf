"""Every finalised document computed again from stored rows: its lines, its payments, and the transitions of its state.

Each law is a query whose rows are findings in words. The queries share nothing with the code that makes documents.
"""

# The taxes of net amounts that lines with the same taxes have together; a compound tax is computed on the others, too.
TAXES_OF_NETS = """
    SELECT amount.invoice_id, one.category, one.rate, one.code,
        amount.net + CASE WHEN one.is_compound THEN others.minor ELSE 0 END AS base_minor
    FROM ({nets}) AS amount
    CROSS JOIN LATERAL (
        SELECT amount.tax_category AS category, amount.tax_rate AS rate, '' AS code, false AS is_compound
        WHERE amount.taxes = '[]'
        UNION ALL
        SELECT category, rate, code, is_compound
        FROM jsonb_to_recordset(amount.taxes) AS each(category text, rate numeric, code text, is_compound boolean)
    ) AS one
    CROSS JOIN LATERAL (
        SELECT coalesce(sum(round(amount.net * rate / 100)), 0) AS minor
        FROM jsonb_to_recordset(amount.taxes) AS each(rate numeric, is_compound boolean) WHERE NOT is_compound
    ) AS others
"""
NETS_OF_LINES = """
    SELECT invoice_id, tax_category, tax_rate, taxes, sum(amount_minor - discount_minor) AS net
    FROM billing_line GROUP BY invoice_id, tax_category, tax_rate, taxes
"""
# What prices that include declared taxes cost beyond net and taxes: their lines are rounded together, as they may have a tax in
# common. A group that is credited beyond its charges is carried, without rounding.
ROUNDING_OF_DECLARED = f"""
    WITH treated AS (
        SELECT l.tax_category, l.tax_rate, l.taxes, sum(l.amount_minor - l.discount_minor) AS net,
            coalesce(sum(l.amount_minor - l.discount_minor) FILTER (WHERE of_line.is_included), 0) AS net_of_priced,
            coalesce(sum(of_line.priced) FILTER (WHERE of_line.is_included), 0) AS priced
        FROM billing_line AS l
        CROSS JOIN LATERAL (
            SELECT coalesce((l.rating #>> '{{included_tax,rate}}')::numeric = l.tax_rate, false) AS is_included,
                billing_priced_minor(l) AS priced
        ) AS of_line
        WHERE l.invoice_id = i.id AND l.kind <> 'carried' AND l.taxes <> '[]'
        GROUP BY l.tax_category, l.tax_rate, l.taxes HAVING sum(l.amount_minor - l.discount_minor) >= 0
    ), amount AS (
        SELECT 1 AS invoice_id, tax_category, tax_rate, taxes, net FROM treated
        UNION ALL SELECT 2, tax_category, tax_rate, taxes, net - net_of_priced FROM treated
    ), charged AS (
        SELECT which, coalesce((SELECT sum(net) FROM amount WHERE invoice_id = which), 0)
            + coalesce((SELECT sum(minor) FROM (
                SELECT round(sum(base_minor) * rate / 100) AS minor
                FROM ({TAXES_OF_NETS.format(nets="SELECT * FROM amount")}) AS part WHERE invoice_id = which
                GROUP BY category, rate, code) AS rounded), 0) AS minor
        FROM (VALUES (1), (2)) AS variant(which)
    )
    SELECT coalesce(greatest((SELECT sum(priced) FROM treated) + others.minor - whole.minor, -whole.minor), 0) AS minor
    FROM charged AS whole, charged AS others WHERE whole.which = 1 AND others.which = 2
"""
DOCUMENT_LAWS = {
    "taxes do not follow from the lines": f"""
        SELECT format('invoice %s: %s at %s: the lines come to %s and %s of tax, the invoice says %s and %s',
            coalesce(due.invoice_id, tax.invoice_id),
            coalesce(nullif(coalesce(due.code, tax.code), ''), 'category ' || coalesce(due.category, tax.category)),
            coalesce(due.rate, tax.rate)::float8,
            coalesce(due.base_minor, 0), coalesce(round(due.base_minor * due.rate / 100), 0),
            coalesce(tax.base_minor, 0), coalesce(tax.amount_minor, 0))
        FROM (
            SELECT invoice_id, category, rate, code, sum(base_minor) AS base_minor
            FROM ({TAXES_OF_NETS.format(nets=NETS_OF_LINES)}) AS part
            GROUP BY invoice_id, category, rate, code
        ) AS due
        FULL JOIN billing_invoicetax AS tax USING (invoice_id, category, rate, code)
        WHERE tax.base_minor IS DISTINCT FROM due.base_minor
            OR tax.amount_minor IS DISTINCT FROM round(due.base_minor * due.rate / 100)
    """,
    "line that does not bear its taxes as declared": """
        SELECT format('invoice %s, line %s: %s', line.invoice_id, line.position, line.taxes)
        FROM billing_line AS line
        CROSS JOIN LATERAL (
            SELECT bool_and((tax.code, tax.category, tax.rate, tax.is_compound)
                    IS NOT DISTINCT FROM (one.code, one.category, one.rate, one.is_compound)) AS are_declared,
                sum(one.rate) FILTER (WHERE NOT one.is_compound) AS simple,
                sum(one.rate) FILTER (WHERE one.is_compound) AS compound
            FROM jsonb_to_recordset(line.taxes) AS one(tax_id bigint, code text, category text, rate numeric, is_compound boolean)
            LEFT JOIN billing_tax AS tax ON tax.id = one.tax_id
        ) AS found
        WHERE line.taxes <> '[]' AND (NOT found.are_declared OR line.tax_category <> line.taxes #>> '{0,category}'
            OR line.tax_rate <> coalesce(found.simple, 0) + coalesce(found.compound, 0) * (1 + coalesce(found.simple, 0) / 100))
    """,
    "lookup of a VAT id is not the buyer's": """
        SELECT format('invoice %s: lookup %s', i.id, i.buyer #>> '{vat_lookup,id}')
        FROM billing_invoice AS i
        LEFT JOIN billing_vatlookup AS l ON l.id = (i.buyer #>> '{vat_lookup,id}')::bigint
        WHERE i.buyer ? 'vat_lookup' AND (l.id IS NULL OR l.customer_id <> i.customer_id OR l.vat_id <> i.buyer ->> 'vat_id'
            OR l.outcome <> i.buyer #>> '{vat_lookup,outcome}')
    """,
    # A line is rounded by the provider's rules. The net amount of a price with tax is rounded for all lines together.
    "line that does not bear the taxes of its provider's answer": """
        SELECT format('invoice %s, line %s: %s', line.invoice_id, line.position, line.rating -> 'tax_answer')
        FROM billing_line AS line
        CROSS JOIN LATERAL (
            SELECT bool_and(coalesce(tax.provider = line.rating #>> '{tax_answer,provider}' AND one.rate = found.rate
                AND (found.amount_minor IS NULL
                    OR abs(found.amount_minor - abs(line.amount_minor - line.discount_minor) * one.rate / 100)
                        <= 1 + CASE WHEN line.rating ? 'included_tax' THEN one.rate / 100 ELSE 0 END), false)) AS are_found
            FROM jsonb_to_recordset(line.taxes) AS one(tax_id bigint, code text, rate numeric)
            FULL JOIN jsonb_to_recordset(line.rating #> '{tax_answer,taxes}')
                AS found(code text, rate numeric, amount_minor bigint) USING (code)
            LEFT JOIN billing_tax AS tax ON tax.id = one.tax_id
        ) AS fits
        WHERE line.rating ? 'tax_answer'
            AND (NOT coalesce(fits.are_found, true) OR line.tax_category IS DISTINCT FROM line.rating #>> '{tax_answer,category}')
    """,
    # Of all notes of an invoice that count: the share of each tax that the credited lines have, rounded once.
    "taxes of credit notes do not follow from their lines": """
        WITH part AS (
            SELECT note.invoice_id, line.tax_category, line.tax_rate, line.taxes, line.amount_minor AS net, true AS is_credited
            FROM billing_creditnoteline AS line JOIN billing_creditnote AS note ON note.id = line.credit_note_id
            WHERE note.released_at IS NULL
            UNION ALL
            SELECT line.invoice_id, line.tax_category, line.tax_rate, line.taxes, line.amount_minor - line.discount_minor, false
            FROM billing_line AS line
            WHERE line.invoice_id IN (SELECT invoice_id FROM billing_creditnote WHERE kind = 'requested' AND released_at IS NULL)
        ), net AS (
            SELECT part.invoice_id, one.category, one.rate, one.code, sum(net) FILTER (WHERE is_credited) AS credited,
                sum(net) FILTER (WHERE NOT is_credited) AS billed
            FROM part CROSS JOIN LATERAL (
                SELECT part.tax_category AS category, part.tax_rate AS rate, '' AS code WHERE part.taxes = '[]'
                UNION ALL
                SELECT category, rate, code FROM jsonb_to_recordset(part.taxes) AS each(category text, rate numeric, code text)
            ) AS one
            GROUP BY part.invoice_id, one.category, one.rate, one.code
        ), noted AS (
            SELECT note.invoice_id, tax.category, tax.rate, tax.code, sum(tax.amount_minor) AS minor, sum(tax.base_minor) AS base
            FROM billing_creditnotetax AS tax JOIN billing_creditnote AS note ON note.id = tax.credit_note_id
            WHERE note.released_at IS NULL GROUP BY 1, 2, 3, 4
        )
        SELECT format('invoice %s: its notes give back %s of %s at %s, it must be %s', net.invoice_id, coalesce(noted.minor, 0),
            coalesce(nullif(net.code, ''), 'category ' || net.category), net.rate::float8, expected.minor)
        FROM net
        JOIN billing_invoicetax AS tax USING (invoice_id, category, rate, code)
        LEFT JOIN noted USING (invoice_id, category, rate, code)
        CROSS JOIN LATERAL (
            SELECT round(tax.amount_minor * coalesce(net.credited, 0) / nullif(net.billed, 0)) AS minor,
                round(tax.base_minor * coalesce(net.credited, 0) / nullif(net.billed, 0)) AS base
        ) AS expected
        WHERE (coalesce(noted.minor, 0), coalesce(noted.base, 0)) <> (coalesce(expected.minor, 0), coalesce(expected.base, 0))
    """,
    # A void invoice keeps its amounts, so the uses that its voiding released count too.
    "amount due does not follow from what was set against it": """
        SELECT format('invoice %s: %s of credit notes and %s of credits are set against %s, the invoice says %s, %s and %s due',
            i.id, noted.minor, paid.minor, i.total_minor, i.credit_notes_minor, i.credits_applied_minor, i.amount_due_minor)
        FROM billing_invoice AS i
        CROSS JOIN LATERAL (
            SELECT coalesce(sum(u.amount_minor), 0) AS minor FROM billing_creditnoteuse AS u WHERE u.invoice_id = i.id
        ) AS noted
        CROSS JOIN LATERAL (
            SELECT coalesce(sum(p.amount_minor), 0) AS minor FROM billing_creditpayment AS p WHERE p.invoice_id = i.id
        ) AS paid
        WHERE i.state <> 'draft' AND (i.credit_notes_minor, i.credits_applied_minor, i.amount_due_minor, i.total_minor)
            <> (noted.minor, paid.minor, i.total_minor - noted.minor - paid.minor + i.rounding_minor,
                i.subtotal_minor - i.discount_minor + i.tax_minor)
    """,
    "net of a line does not follow from its price with tax": """
        SELECT format('invoice %s, line %s: %s of %s with %s %% of tax, it must be %s', line.invoice_id, line.position, line.net,
            line.priced, line.rate::float8, line.expected)
        FROM (
            SELECT each.*, round(so_far / (1 + rate / 100)) - round((so_far - priced) / (1 + rate / 100)) AS expected
            FROM (
                SELECT l.invoice_id, l.position, l.amount_minor - l.discount_minor AS net, l.discount_minor AS discount,
                    (l.rating #>> '{included_tax,rate}')::numeric AS rate,
                    (l.rating #>> '{included_tax,discount_minor}')::numeric AS priced_discount,
                    (l.rating #>> '{included_tax,amount_minor}')::numeric
                        - (l.rating #>> '{included_tax,discount_minor}')::numeric AS priced,
                    sum((l.rating #>> '{included_tax,amount_minor}')::numeric
                        - (l.rating #>> '{included_tax,discount_minor}')::numeric)
                        OVER (PARTITION BY l.invoice_id, l.tax_category, l.tax_rate, l.taxes, l.rating #>> '{included_tax,rate}'
                            ORDER BY l.position) AS so_far
                FROM billing_line AS l WHERE l.rating ? 'included_tax'
            ) AS each
        ) AS line
        WHERE line.net <> line.expected OR line.discount <> round(line.priced_discount / (1 + line.rate / 100))
    """,
    # What prices that include tax cost beyond net and tax: of each category and rate, and of all lines with declared taxes. Then
    # what was due in money at the issue, to the seller's step. Notes on request about the invoice came later.
    "rounding does not follow from the seller's step": f"""
        SELECT format('invoice %s: %s was due in money, which the step of %s rounds to %s; the invoice adds %s', i.id,
            due.minor, due.step, round(due.minor / due.step) * due.step, i.rounding_minor)
        FROM billing_invoice AS i
        LEFT JOIN billing_seller AS s ON s.id = i.seller_id
        CROSS JOIN LATERAL (
            SELECT coalesce(sum(greatest(
                priced + base - net + round((base - net) * rate / 100) - base - round(base * rate / 100),
                -base - round(base * rate / 100))), 0) AS minor
            FROM (
                SELECT l.tax_rate AS rate, sum(l.amount_minor - l.discount_minor) AS base,
                    sum(l.amount_minor - l.discount_minor) FILTER (WHERE of_rate.is_included) AS net,
                    sum((l.rating #>> '{{included_tax,amount_minor}}')::numeric
                        - (l.rating #>> '{{included_tax,discount_minor}}')::numeric) FILTER (WHERE of_rate.is_included) AS priced
                FROM billing_line AS l
                CROSS JOIN LATERAL (
                    SELECT coalesce((l.rating #>> '{{included_tax,rate}}')::numeric = l.tax_rate, false) AS is_included
                ) AS of_rate
                WHERE l.invoice_id = i.id AND l.kind <> 'carried' AND l.taxes = '[]'
                GROUP BY l.tax_category, l.tax_rate
                HAVING bool_or(of_rate.is_included) AND sum(l.amount_minor - l.discount_minor) >= 0
            ) AS of_category
        ) AS priced
        CROSS JOIN LATERAL ({ROUNDING_OF_DECLARED}) AS declared
        CROSS JOIN LATERAL (SELECT priced.minor + declared.minor AS minor) AS prices
        CROSS JOIN LATERAL (
            SELECT (i.total_minor + prices.minor - i.credits_applied_minor - coalesce(sum(u.amount_minor), 0))::numeric AS minor,
                coalesce((s.details -> 'cash_rounding_minor' ->> i.currency)::numeric, 1) AS step
            FROM billing_creditnoteuse AS u JOIN billing_creditnote AS n ON n.id = u.credit_note_id
            WHERE u.invoice_id = i.id AND NOT (n.kind = 'requested' AND n.invoice_id = i.id)
        ) AS due
        WHERE i.rounding_minor <> prices.minor
            + CASE i.state WHEN 'draft' THEN 0 ELSE round(due.minor / due.step) * due.step - due.minor END
    """,
    # Of all notes so far, less that of the notes before: money in whole steps, then what credits and earlier notes paid.
    "rounding of a credit note does not follow from its invoice": """
        SELECT format('credit note %s: the notes of invoice %s so far round by %s, it must be %s', note.id, note.invoice_id,
            note.rounded_minor, expected.minor)
        FROM (
            SELECT n.id, n.invoice_id,
                sum(n.subtotal_minor + n.tax_minor) OVER so_far AS credited_minor,
                sum(n.rounding_minor) OVER so_far AS rounded_minor
            FROM billing_creditnote AS n WHERE n.kind = 'requested'
            WINDOW so_far AS (PARTITION BY n.invoice_id ORDER BY n.id)
        ) AS note
        JOIN billing_invoice AS i ON i.id = note.invoice_id
        LEFT JOIN billing_seller AS s ON s.id = i.seller_id
        CROSS JOIN LATERAL (
            SELECT i.total_minor - i.credits_applied_minor - coalesce(sum(u.amount_minor), 0) AS minor,
                coalesce((s.details -> 'cash_rounding_minor' ->> i.currency)::numeric, 1) AS step
            FROM billing_creditnoteuse AS u JOIN billing_creditnote AS n ON n.id = u.credit_note_id
            WHERE u.invoice_id = i.id AND NOT (n.kind = 'requested' AND n.invoice_id = i.id)
        ) AS due
        CROSS JOIN LATERAL (
            SELECT CASE WHEN note.credited_minor >= due.minor THEN greatest(i.rounding_minor, -note.credited_minor)
                ELSE least(round(note.credited_minor / due.step) * due.step, due.minor + i.rounding_minor) - note.credited_minor
                END AS minor
        ) AS expected
        WHERE note.rounded_minor <> expected.minor
    """,
    # An invoice is paid when nothing is left to be paid: by payments, credit or credits. Void and uncollectible have a recorded
    # transition.
    "state does not follow from the transitions": """
        SELECT format('invoice %s is %s, after its transitions it must be %s', state.id, state.state, state.expected)
        FROM (
            SELECT i.id, i.state, i.paid_at, i.voided_at, i.uncollectible_at, last.kind, CASE
                WHEN last.kind = 'void' THEN 'void'
                WHEN i.amount_due_minor = i.amount_paid_minor THEN 'paid'
                WHEN last.kind = 'mark_uncollectible' THEN 'uncollectible'
                ELSE 'open' END AS expected
            FROM billing_invoice AS i
            LEFT JOIN LATERAL (
                SELECT t.kind FROM billing_transition AS t WHERE t.invoice_id = i.id AND t.kind NOT IN ('finalize', 'pay')
                ORDER BY t.id DESC LIMIT 1
            ) AS last ON true
            WHERE i.state <> 'draft'
        ) AS state
        WHERE state.state <> state.expected
            OR (state.state = 'paid' AND state.paid_at IS NULL)
            OR (state.state = 'void' AND state.voided_at IS NULL)
            OR (state.state = 'uncollectible' AND state.uncollectible_at IS NULL)
    """,
    # The claims of an item add up to its lines on invoices that are not void. No later invoice credits what a credit note has
    # credited of a line, so the lines may exceed the claims by that amount.
    "claims do not add up to the lines": """
        WITH billed AS (
            SELECT l.item_id, sum(billing_priced_minor(l)) AS minor
            FROM billing_line AS l JOIN billing_invoice AS i ON i.id = l.invoice_id
            WHERE i.state <> 'void' AND l.item_id IS NOT NULL GROUP BY l.item_id
        ), claimed AS (
            SELECT item_id, sum(amount_minor) AS minor FROM billing_claim
            WHERE released_at IS NULL AND kind IN (1, 2, 4) GROUP BY item_id
        ), noted AS (
            SELECT l.item_id, sum(ceil(part.amount_minor * billing_priced_minor(l)
                / nullif(l.amount_minor - l.discount_minor, 0)::numeric)) AS minor
            FROM billing_creditnoteline AS part
            JOIN billing_creditnote AS note ON note.id = part.credit_note_id AND note.released_at IS NULL
            JOIN billing_line AS l ON l.invoice_id = note.invoice_id AND l.position = part.position
            WHERE l.item_id IS NOT NULL GROUP BY l.item_id
        )
        SELECT format('item %s: the lines come to %s, the claims to %s', item_id, coalesce(billed.minor, 0),
            coalesce(claimed.minor, 0))
        FROM billed FULL JOIN claimed USING (item_id) LEFT JOIN noted USING (item_id)
        WHERE coalesce(billed.minor, 0) - coalesce(claimed.minor, 0) NOT BETWEEN 0 AND greatest(coalesce(noted.minor, 0), 0)
    """,
    "line without its claim": """
        SELECT format('invoice %s, line %s: %s', l.invoice_id, l.position, l.kind)
        FROM billing_line AS l JOIN billing_invoice AS i ON i.id = l.invoice_id
        WHERE l.kind IN ('recurring', 'usage', 'late_usage', 'charge') AND NOT EXISTS (
            SELECT FROM billing_claim AS c
            WHERE c.made_by = l.invoice_id AND c.invoice_id = l.invoice_id AND c.restores IS NULL
                AND CASE WHEN l.rating ? 'group'
                    THEN c.snapshot -> 'groups' @> jsonb_build_array(jsonb_build_object('group', l.rating -> 'group'))
                    ELSE c.line_position = l.position END
                AND c.subscription_id = coalesce(l.subscription_id, i.subscription_id)
                AND (l.kind = 'charge' OR (c.item_id, c.starts_at, c.ends_at) = (l.item_id, l.starts_at, l.ends_at)))
    """,
    "one-off charge differs from its line": """
        SELECT format('charge %s, invoice %s', c.item_id, c.invoice_id)
        FROM billing_claim AS c
        LEFT JOIN billing_charge AS o ON o.id = c.item_id AND o.subscription_id = c.subscription_id
        LEFT JOIN billing_line AS l ON l.invoice_id = c.invoice_id AND l.position = c.line_position
        WHERE c.kind = 3 AND c.released_at IS NULL
            AND (o.amount_minor, o.description, l.amount_minor - l.discount_minor)
                IS DISTINCT FROM (l.amount_minor, l.description, c.amount_minor)
    """,
    "restored claim differs from the released one": """
        SELECT format('claim %s restores %s', c.id, c.restores)
        FROM billing_claim AS c LEFT JOIN billing_claim AS r ON r.id = c.restores
        WHERE c.restores IS NOT NULL AND (r.released_at IS NULL
            OR (c.subscription_id, c.item_id, c.kind, c.starts_at, c.ends_at, c.price_id, c.quantity, c.amount_minor,
                c.invoice_id, c.line_position, c.made_by, c.snapshot - 'covered')
                IS DISTINCT FROM (r.subscription_id, r.item_id, r.kind, r.starts_at, r.ends_at, r.price_id, r.quantity,
                    r.amount_minor, r.invoice_id, r.line_position, r.made_by, r.snapshot - 'covered'))
    """,
    "use that does not fit the state of its invoice": """
        SELECT format('%s %s of invoice %s', used.what, used.id, used.invoice_id)
        FROM (
            SELECT 'coupon use' AS what, id, invoice_id, released_at FROM billing_couponuse
            UNION ALL SELECT 'credit note use', id, invoice_id, released_at FROM billing_creditnoteuse WHERE refund_id IS NULL
        ) AS used
        LEFT JOIN billing_invoice AS i ON i.id = used.invoice_id
        WHERE (used.released_at IS NULL) <> (i.id IS NOT NULL AND i.state <> 'void'
            -- The first invoice of an order that expired after a part of it was paid is credited, and its coupons are free again.
            AND NOT (used.what = 'coupon use' AND EXISTS (
                SELECT FROM billing_activation AS activation
                WHERE activation.invoice_id = i.id AND activation.state IN ('expired', 'canceled'))))
    """,
    "rest of a credit note does not follow from its uses": """
        SELECT format('credit note %s: %s is left of %s, it must be %s', n.id, n.left_minor, n.amount_minor, rest.minor)
        FROM billing_creditnote AS n
        CROSS JOIN LATERAL (
            SELECT n.amount_minor - n.credits_returned_minor - coalesce(sum(u.amount_minor), 0) AS minor
            FROM billing_creditnoteuse AS u WHERE u.credit_note_id = n.id AND u.released_at IS NULL
        ) AS rest
        WHERE n.left_minor <> rest.minor
    """,
    "credit of another customer or currency": """
        SELECT format('credit note %s of customer %s in %s: %s %s is of customer %s in %s', n.id, n.customer_id, n.currency,
            taken.what, taken.id, taken.customer_id, taken.currency)
        FROM billing_creditnote AS n
        CROSS JOIN LATERAL (
            SELECT 'its invoice' AS what, i.id, i.customer_id, i.currency FROM billing_invoice AS i WHERE i.id = n.invoice_id
            UNION ALL
            SELECT 'used by invoice', i.id, i.customer_id, i.currency
            FROM billing_creditnoteuse AS u JOIN billing_invoice AS i ON i.id = u.invoice_id WHERE u.credit_note_id = n.id
            UNION ALL
            SELECT 'paid out by refund', r.id, r.customer_id, r.currency
            FROM billing_creditnoteuse AS u JOIN billing_creditrefund AS r ON r.id = u.refund_id WHERE u.credit_note_id = n.id
        ) AS taken
        WHERE (taken.customer_id, taken.currency) <> (n.customer_id, n.currency)
    """,
    "refund does not follow from what was taken from credit": """
        SELECT format('refund %s: %s was taken from credit, the refund says %s', coalesce(r.id, taken.refund_id),
            coalesce(taken.minor, 0), coalesce(r.amount_minor, 0))
        FROM billing_creditrefund AS r
        FULL JOIN (
            SELECT refund_id, sum(amount_minor) AS minor FROM billing_creditnoteuse WHERE refund_id IS NOT NULL GROUP BY refund_id
        ) AS taken ON taken.refund_id = r.id
        WHERE taken.minor IS DISTINCT FROM r.amount_minor
    """,
    "refund of unused time that its invoice does not give back": """
        SELECT format('refund %s of invoice %s', r.id, r.invoice_id)
        FROM billing_creditrefund AS r
        WHERE r.invoice_id IS NOT NULL AND (r.amount_minor > (
            SELECT coalesce(sum(round(-line.amount_minor * (1 + line.tax_rate / 100)
                + 0.5 * greatest(jsonb_array_length(line.taxes), 1))), 0) FROM billing_line AS line
            WHERE line.invoice_id = r.invoice_id AND line.kind = 'credit' AND line.rating ->> 'unused_time' = 'refund'
        ) OR EXISTS (
            SELECT FROM billing_creditnoteuse AS u JOIN billing_creditnote AS n ON n.id = u.credit_note_id
            WHERE u.refund_id = r.id AND (n.kind <> 'carried' OR n.invoice_id <> r.invoice_id)
        ))
    """,
    "coupon of another customer or subscription": """
        SELECT format('coupon use %s of invoice %s', u.id, u.invoice_id)
        FROM billing_couponuse AS u
        JOIN billing_customercoupon AS given ON given.id = u.customer_coupon_id
        JOIN billing_invoice AS i ON i.id = u.invoice_id
        WHERE given.customer_id <> i.customer_id OR given.subscription_id <> u.subscription_id
            OR u.subscription_id IS DISTINCT FROM coalesce(i.subscription_id, (
                SELECT billed.subscription_id FROM billing_invoicedsubscription AS billed
                WHERE billed.invoice_id = i.id AND billed.subscription_id = u.subscription_id))
    """,
    # Each line but carried credit is of one of the subscriptions that the document names, and each of them has one.
    "subscriptions of an invoice do not follow from its lines": """
        SELECT format('invoice %s, subscription %s', coalesce(l.invoice_id, billed.invoice_id),
            coalesce(l.subscription_id, billed.subscription_id))
        FROM (SELECT DISTINCT invoice_id, subscription_id FROM billing_line WHERE subscription_id IS NOT NULL) AS l
        FULL JOIN billing_invoicedsubscription AS billed USING (invoice_id, subscription_id)
        LEFT JOIN billing_invoice AS i ON i.id = coalesce(l.invoice_id, billed.invoice_id)
        LEFT JOIN billing_subscription AS s ON s.id = billed.subscription_id
        WHERE l.invoice_id IS NULL OR billed.invoice_id IS NULL OR i.subscription_id IS NOT NULL
            OR (billed.subscription_ref, i.customer_id) IS DISTINCT FROM (s.ref, s.customer_id)
    """,
    "line of an invoice without its subscription": """
        SELECT format('invoice %s, line %s', l.invoice_id, l.position)
        FROM billing_line AS l JOIN billing_invoice AS i ON i.id = l.invoice_id
        WHERE i.subscription_id IS NULL AND l.subscription_id IS NULL AND l.kind NOT IN ('one_off', 'carried')
    """,
    "credit payment differs from the ledger": """
        SELECT format('payment of invoice %s: %s credits, the ledger has %s for %s', p.invoice_id, p.credits, -e.amount,
            e.reference)
        FROM billing_creditpayment AS p
        JOIN ledger_entry AS e ON e.holder_id = p.holder_id AND e.credit_type = p.credit_type AND e.sequence = p.spend_sequence
        WHERE e.kind = 'spend' AND (-e.amount, e.reference) <> (p.credits, 'invoice ' || p.invoice_id)
    """,
    "credit payment given back of an invoice that is not void": """
        SELECT format('payment of invoice %s', p.invoice_id)
        FROM billing_creditpayment AS p JOIN billing_invoice AS i ON i.id = p.invoice_id
        WHERE p.refund_sequence IS NOT NULL AND i.state <> 'void'
    """,
    "plan move that left subscriptions out": """
        SELECT DISTINCT format('plan move %s, subscription %s', m.id, s.ref)
        FROM billing_planmove AS m
        JOIN billing_amendment AS a
            ON a.change ? 'plan' AND m.from_plans @> (a.change -> 'plan') AND a.recorded_at <= m.recorded_at
        JOIN billing_subscription AS s ON s.id = a.subscription_id AND (m.subscriptions IS NULL OR m.subscriptions ? s.ref)
        WHERE NOT EXISTS (SELECT FROM billing_openplanmove AS o WHERE o.move_id = m.id)
            AND NOT EXISTS (SELECT FROM billing_movedsubscription AS n WHERE n.move_id = m.id AND n.subscription_id = s.id)
    """,
    "plan move differs from its amendments": """
        SELECT format('plan move %s, subscription %s', coalesce(moved.move_id, a.move_id),
            coalesce(moved.subscription_id, a.subscription_id))
        FROM (
            SELECT m.move_id, m.subscription_id, move.plan_id, jsonb_array_elements_text(m.amendments)::int AS sequence
            FROM billing_movedsubscription AS m LEFT JOIN billing_planmove AS move ON move.id = m.move_id
        ) AS moved
        FULL JOIN (
            SELECT subscription_id, sequence, (change ->> 'plan')::bigint AS plan_id, (change ->> 'plan_move')::bigint AS move_id
            FROM billing_amendment WHERE change ? 'plan_move'
        ) AS a ON (a.subscription_id, a.sequence, a.plan_id, a.move_id)
            = (moved.subscription_id, moved.sequence, moved.plan_id, moved.move_id)
        WHERE a.sequence IS NULL OR moved.sequence IS NULL
    """,
    "names an invoice that does not exist": """
        SELECT format('%s %s: invoice %s', named.what, named.id, named.invoice_id)
        FROM (
            SELECT 'claim' AS what, id, invoice_id FROM billing_claim WHERE released_at IS NULL
            UNION ALL SELECT 'claim', id, made_by FROM billing_claim WHERE released_at IS NULL AND made_by <> invoice_id
            UNION ALL SELECT 'credit payment', id, invoice_id FROM billing_creditpayment
            UNION ALL SELECT 'credit note', id, invoice_id FROM billing_creditnote WHERE released_at IS NULL
            UNION ALL SELECT 'refund', id, invoice_id FROM billing_creditrefund
            UNION ALL SELECT 'transition', id, invoice_id FROM billing_transition WHERE kind <> 'delete'
        ) AS named
        WHERE named.invoice_id IS NOT NULL AND NOT EXISTS (SELECT FROM billing_invoice AS i WHERE i.id = named.invoice_id)
    """,
}
