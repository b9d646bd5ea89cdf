-- Compares each transfer_in with the transfer_out that it names: the same credits, lot by lot, under the same terms, and only once.
-- A transfer_out without its transfer_in breaks the law `identity`: over all accounts, as much must arrive as leaves.
WITH arrival AS (
    SELECT
        i.holder_id, i.credit_type, i.sequence, i.amount, i.lots,
        -- Its own lot, or that of earlier receipts which it joined.
        COALESCE((i.drawn -> 0 ->> 0)::numeric, i.sequence) AS arrived_in,
        i.refers_to,
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
            AND (here ->> 6 = '1' OR a.refers_to IS NOT NULL)
            -- 0: the credits can be spent from their arrival on. What a reversal gives back could be spent when it left.
            AND ((here ->> 2)::numeric IN (0, (there ->> 2)::numeric) OR a.refers_to IS NOT NULL)
            AND (a.refers_to IS NULL) = (o.refers_to IS NULL)
            AND ((here ->> 3)::numeric, COALESCE(here ->> 4, '100'), NULLIF(here ->> 5, '0'), here ->> 7)
                IS NOT DISTINCT FROM ((there ->> 3)::numeric, COALESCE(there ->> 4, '100'), NULLIF(there ->> 5, '0'), there ->> 7)
    )
UNION ALL
SELECT 'transfers', o.holder_id, o.credit_type, o.sequence, 'to ' || COALESCE(o.counterpart::text, 'nobody'), NULL
FROM ledger_entry o
WHERE o.holder_id >= %(since)s
    AND o.holder_id <= %(upto)s
    AND o.kind = 'transfer_out'
    AND (o.counterpart ->> 'holder_id' IS NULL OR o.counterpart ->> 'holder_id' = o.holder_id)
UNION ALL
-- Reversals, on the side that loses the credits: out of the lot in which the receipt arrived, back to its sender, and no more than arrived.
SELECT 'transfers', o.holder_id, o.credit_type, o.sequence, o.amount || ' of entry ' || o.refers_to || ', drawn ' || o.drawn::text, NULL
FROM (
    SELECT o.*, sum(-o.amount) OVER (PARTITION BY o.holder_id, o.credit_type, o.refers_to ORDER BY o.sequence) AS reversed
    FROM ledger_entry o
    WHERE o.holder_id >= %(since)s AND o.holder_id <= %(upto)s AND o.kind = 'transfer_out' AND o.refers_to IS NOT NULL
) AS o
JOIN ledger_entry a ON a.holder_id = o.holder_id AND a.credit_type = o.credit_type AND a.sequence = o.refers_to
WHERE o.drawn::text <> '[[' || COALESCE(a.drawn -> 0 ->> 0, a.sequence::text) || ',' || -o.amount || ']]'
    OR o.counterpart ->> 'holder_id' IS DISTINCT FROM a.counterpart ->> 'holder_id'
    OR o.reversed > a.amount
