-- Gives each entry the digest of the one before it again, and the table as it was made, with the column in its place.
DROP VIEW ledger_account;
DROP VIEW ledger_entry_listing;
DROP FUNCTION ledger_entry_digest(ledger_entry);
DROP FUNCTION ledger_entry_digest(bytea, ledger_entry);

ALTER TABLE ledger_entry
    DROP CONSTRAINT ledger_entry_first_starts_at_0,
    DROP CONSTRAINT ledger_entry_digests_are_sha256;
ALTER TABLE ledger_entry ALTER COLUMN digest DROP NOT NULL;
ALTER TABLE ledger_entry RENAME COLUMN digest TO previous_digest;
ALTER TABLE ledger_entry ADD COLUMN digest bytea;
ALTER TABLE ledger_entry DISABLE TRIGGER append_only;
UPDATE ledger_entry e
SET
    digest = e.previous_digest,
    previous_digest = COALESCE(
        (
            SELECT p.previous_digest
            FROM ledger_entry p
            WHERE p.holder_id = e.holder_id AND p.credit_type = e.credit_type AND p.sequence = e.sequence - 1
        ),
        decode(repeat('00', 32), 'hex')
    );
ALTER TABLE ledger_entry ENABLE ALWAYS TRIGGER append_only;
ALTER TABLE ledger_entry
    ALTER COLUMN previous_digest SET NOT NULL,
    ALTER COLUMN digest SET NOT NULL,
    -- Writes the table anew, without what the UPDATE left behind.
    ALTER COLUMN previous_digest TYPE bytea USING previous_digest || ''::bytea,
    ADD CONSTRAINT ledger_entry_first_starts_at_0   CHECK (
        sequence > 1 OR (balance = amount AND previous_digest = decode(repeat('00', 32), 'hex'))
    ),
    ADD CONSTRAINT ledger_entry_digests_are_sha256  CHECK (octet_length(previous_digest) = 32 AND octet_length(digest) = 32);
COMMENT ON COLUMN ledger_entry.previous_digest IS 'Digest of the account''s previous entry; 32 zero bytes on the first.';
COMMENT ON COLUMN ledger_entry.digest          IS 'SHA-256 over previous_digest and the canonical form of this entry.';

-- The digest that an entry must have: SHA-256 over the previous digest and the canonical form, as ledger.rules.entries computes it.
CREATE FUNCTION ledger_entry_digest(e ledger_entry) RETURNS bytea
LANGUAGE sql STABLE PARALLEL SAFE
RETURN sha256(e.previous_digest || convert_to(json_build_array(
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

-- Refuses an entry that does not follow from the one before it: a gap, another balance than the previous one plus the amount, a
-- broken chain, held credits or an overdraft that change where they must not, or lots that do not add up to the balance (with an
-- overdraft they may add up to more: the difference is the debt). The lock keeps writers from colliding; this and the primary key make a
-- wrong balance impossible also for a writer who forgot the lock.
CREATE OR REPLACE FUNCTION ledger_entry_follows() RETURNS trigger
LANGUAGE plpgsql AS $$
DECLARE
    wrong record;
BEGIN
    SELECT n.holder_id, n.credit_type, n.sequence
    INTO wrong
    FROM appended n
    WHERE (
            n.sequence > 1
            AND NOT EXISTS (
                SELECT
                FROM ledger_entry p
                WHERE p.holder_id = n.holder_id
                    AND p.credit_type = n.credit_type
                    AND p.sequence = n.sequence - 1
                    AND p.balance + n.amount = n.balance
                    AND p.digest = n.previous_digest
                    AND p.recorded_at <= n.recorded_at
                    AND (p.held = n.held OR n.kind IN ('hold', 'capture', 'release'))
                    AND (p.overdraft IS NOT DISTINCT FROM n.overdraft OR n.kind = 'adjust')
            )
        )
        OR (
            SELECT CASE WHEN n.overdraft IS NULL THEN total <> n.balance ELSE total < n.balance END
            FROM (SELECT COALESCE(sum((lot ->> 1)::bigint), 0) AS total FROM json_array_elements(n.lots) lot) AS lots
        )
    LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'entry % of %/% does not follow from the one before it', wrong.sequence, wrong.holder_id, wrong.credit_type
            USING ERRCODE = 'LG002', TABLE = 'ledger_entry';
    END IF;
    RETURN NULL;
END $$;

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
