-- One row per entry and lot: what was taken from, or given back to, which grant. For reports.
CREATE VIEW ledger_drawn AS
SELECT
    e.holder_id,
    e.credit_type,
    e.sequence,
    e.kind,
    (part ->> 0)::bigint AS granted_by,
    (part ->> 1)::bigint AS amount,
    e.recorded_at
FROM ledger_entry e
CROSS JOIN LATERAL json_array_elements(e.drawn) AS part;
COMMENT ON VIEW ledger_drawn IS 'One row per entry and lot that it took from or gave back to.';

-- An entry with a text key, for tools that cannot take a composite one, such as Django's admin.
CREATE VIEW ledger_entry_listing AS
SELECT e.holder_id || '/' || e.credit_type || '/' || e.sequence AS id, e.*
FROM ledger_entry e;
COMMENT ON VIEW ledger_entry_listing IS 'Entries with a key of one column: holder/credit type/sequence.';

CREATE VIEW ledger_refusal_listing AS
SELECT r.holder_id || '/' || r.idempotency_key AS id, r.*
FROM ledger_refusal r;
COMMENT ON VIEW ledger_refusal_listing IS 'Refusals with a key of one column: holder/idempotency key.';

-- The last entry of each account, found by skipping from account to account: costs grow with the accounts read, not with their history.
CREATE VIEW ledger_account AS
WITH RECURSIVE account AS (
    (SELECT e.holder_id, e.credit_type FROM ledger_entry e ORDER BY e.holder_id, e.credit_type LIMIT 1)
    UNION ALL
    SELECT following.holder_id, following.credit_type
    FROM account
    CROSS JOIN LATERAL (
        SELECT e.holder_id, e.credit_type
        FROM ledger_entry e
        WHERE (e.holder_id, e.credit_type) > (account.holder_id, account.credit_type)
        ORDER BY e.holder_id, e.credit_type
        LIMIT 1
    ) following
)
SELECT account.holder_id || '/' || account.credit_type AS id, last.*
FROM account
CROSS JOIN LATERAL (
    SELECT e.*
    FROM ledger_entry e
    WHERE e.holder_id = account.holder_id AND e.credit_type = account.credit_type
    ORDER BY e.sequence DESC
    LIMIT 1
) last;
COMMENT ON VIEW ledger_account IS 'The last entry of each account: its whole state.';
