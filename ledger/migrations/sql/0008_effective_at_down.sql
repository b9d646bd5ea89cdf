-- Every entry bears when it counts from again.
DROP VIEW ledger_account;
DROP VIEW ledger_entry_listing;

ALTER TABLE ledger_entry DISABLE TRIGGER append_only;
UPDATE ledger_entry SET effective_at = recorded_at WHERE effective_at IS NULL;
ALTER TABLE ledger_entry ENABLE ALWAYS TRIGGER append_only;
ALTER TABLE ledger_entry ALTER COLUMN effective_at SET NOT NULL;
COMMENT ON COLUMN ledger_entry.effective_at   IS 'When it counts from; for an expiry, the instant of the lot.';
COMMENT ON COLUMN ledger_entry.request_digest IS 'First 16 bytes of SHA-256 over what was asked.';

-- The digest that an entry must have behind one with that digest: SHA-256 over it and the canonical form, as ledger.rules.entries computes it.
CREATE OR REPLACE FUNCTION ledger_entry_digest(previous_digest bytea, e ledger_entry) RETURNS bytea
LANGUAGE sql STABLE PARALLEL SAFE
RETURN sha256(previous_digest || convert_to(json_build_array(
    e.holder_id,
    e.credit_type,
    e.sequence,
    e.kind,
    e.amount,
    e.balance,
    e.held,
    e.lots,
    e.drawn,
    e.holds,
    e.overdraft,
    e.closes,
    e.settled,
    e.idempotency_key,
    encode(e.request_digest, 'hex'),
    (extract(epoch FROM e.effective_at) * 1000000)::bigint,
    (extract(epoch FROM e.recorded_at) * 1000000)::bigint,
    e.actor,
    e.reason,
    e.reference,
    e.metadata,
    e.counterpart,
    e.rating
)::text, 'UTF8'));

-- An entry with a text key, for tools that cannot take a composite one, such as Django's admin.
CREATE VIEW ledger_entry_listing AS
SELECT e.holder_id || '/' || e.credit_type || '/' || e.sequence AS id, e.*
FROM ledger_entry e;
COMMENT ON VIEW ledger_entry_listing IS 'Entries with a key of one column: holder/credit type/sequence.';

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
