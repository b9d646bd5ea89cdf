-- Nearly every entry counts from when it was recorded: only another instant is stored. And 8 bytes of a request's digest tell requests under one
-- key apart.
DROP VIEW ledger_account;
DROP VIEW ledger_entry_listing;

ALTER TABLE ledger_entry ALTER COLUMN effective_at DROP NOT NULL;
COMMENT ON COLUMN ledger_entry.effective_at   IS 'When it counts from, for an expiry the instant of the lot; null where that is recorded_at.';
COMMENT ON COLUMN ledger_entry.request_digest IS 'First 8 bytes of SHA-256 over what was asked; 16 on entries of earlier releases.';

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
    (extract(epoch FROM COALESCE(e.effective_at, e.recorded_at)) * 1000000)::bigint,
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
SELECT
    e.holder_id || '/' || e.credit_type || '/' || e.sequence AS id,
    e.holder_id,
    e.credit_type,
    e.sequence,
    e.amount,
    e.balance,
    e.held,
    e.closes,
    e.settled,
    e.overdraft,
    COALESCE(e.effective_at, e.recorded_at) AS effective_at,
    e.recorded_at,
    e.kind,
    e.lots,
    e.drawn,
    e.holds,
    e.counterpart,
    e.rating,
    e.idempotency_key,
    e.request_digest,
    e.actor,
    e.reason,
    e.reference,
    e.metadata,
    e.digest
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
    SELECT
        e.holder_id,
        e.credit_type,
        e.sequence,
        e.amount,
        e.balance,
        e.held,
        e.closes,
        e.settled,
        e.overdraft,
        COALESCE(e.effective_at, e.recorded_at) AS effective_at,
        e.recorded_at,
        e.kind,
        e.lots,
        e.drawn,
        e.holds,
        e.counterpart,
        e.rating,
        e.idempotency_key,
        e.request_digest,
        e.actor,
        e.reason,
        e.reference,
        e.metadata,
        e.digest
    FROM ledger_entry e
    WHERE e.holder_id = account.holder_id AND e.credit_type = account.credit_type
    ORDER BY e.sequence DESC
    LIMIT 1
) last;
COMMENT ON VIEW ledger_account IS 'The last entry of each account: its whole state.';
