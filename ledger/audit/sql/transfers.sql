-- Compares each transfer_in with the transfer_out that it names: the same credits, lot by lot, under the same terms, and only once.
-- A transfer_out without its transfer_in breaks the law `identity`: over all accounts, as much must arrive as leaves.
WITH arrival AS (
    SELECT
        i.holder_id, i.credit_type, i.sequence, i.amount, i.lots,
        -- Its own lot, or that of earlier receipts which it joined.
        COALESCE((i.drawn -> 0 ->> 0)::numeric, i.sequence) AS arrived_in,
        i.counterpart ->> 'holder_id' AS sender,
        (i.counterpart ->> 'sequence')::numeric AS sender_sequence,
        (i.counterpart ->> 'grant')::numeric AS lot,
        i.counterpart::text AS counterpart_text,
        count(*) OVER (PARTITION BY i.holder_id, i.credit_type, i.counterpart::text) AS times
    FROM ledger_entry i
    WHERE i.holder_id >= %(since)s AND i.holder_id <= %(upto)s AND i.kind = 'transfer_in'
)
SELECT
    'transfers',
    a.holder_id,
    a.credit_type,
    a.sequence,
    a.amount || ' from ' || COALESCE(a.counterpart_text, 'nobody') || CASE WHEN a.times > 1 THEN ', ' || a.times || ' times' ELSE '' END,
    NULL
FROM arrival a
WHERE a.times > 1
    OR NOT EXISTS (
        SELECT
        FROM ledger_entry o
        CROSS JOIN json_array_elements(o.drawn) AS part
        JOIN ledger_entry before
            ON before.holder_id = o.holder_id AND before.credit_type = o.credit_type AND before.sequence = o.sequence - 1
        CROSS JOIN json_array_elements(before.lots) AS there
        CROSS JOIN json_array_elements(a.lots) AS here
        WHERE o.holder_id = a.sender
            AND o.credit_type = a.credit_type
            AND o.sequence = a.sender_sequence::bigint
            AND o.kind = 'transfer_out'
            AND o.counterpart ->> 'holder_id' = a.holder_id
            AND (part ->> 0)::numeric = a.lot
            AND (part ->> 1)::numeric = a.amount
            AND (there ->> 0)::numeric = a.lot
            AND (here ->> 0)::numeric = a.arrived_in
            AND here ->> 6 = '1'
            -- 0: the credits can be spent from their arrival on.
            AND (here ->> 2)::numeric IN (0, (there ->> 2)::numeric)
            AND ((here ->> 3)::numeric, COALESCE(here ->> 4, '100'), NULLIF(here ->> 5, '0'))
                IS NOT DISTINCT FROM ((there ->> 3)::numeric, COALESCE(there ->> 4, '100'), NULLIF(there ->> 5, '0'))
    )
UNION ALL
SELECT 'transfers', o.holder_id, o.credit_type, o.sequence, 'to ' || COALESCE(o.counterpart::text, 'nobody'), NULL
FROM ledger_entry o
WHERE o.holder_id >= %(since)s
    AND o.holder_id <= %(upto)s
    AND o.kind = 'transfer_out'
    AND (o.counterpart ->> 'holder_id' IS NULL OR o.counterpart ->> 'holder_id' = o.holder_id)
