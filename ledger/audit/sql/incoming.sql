-- Arrivals in an account that refused transfers from others: its last entry before them that says so is the one that counts.
SELECT 'incoming', i.holder_id, i.credit_type, i.sequence, i.amount || ' arrived', 'none after entry ' || setting.sequence
FROM ledger_entry i
CROSS JOIN LATERAL (
    SELECT s.sequence, s.counterpart ->> 'incoming' AS incoming
    FROM ledger_entry s
    WHERE s.holder_id = i.holder_id
        AND s.credit_type = i.credit_type
        AND s.sequence < i.sequence
        AND s.kind = 'adjust'
        AND s.counterpart ->> 'incoming' IS NOT NULL
    ORDER BY s.sequence DESC
    LIMIT 1
) AS setting
WHERE i.holder_id >= %(since)s AND i.holder_id <= %(upto)s AND i.kind = 'transfer_in' AND i.refers_to IS NULL AND setting.incoming = 'refused'
