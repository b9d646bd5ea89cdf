-- The ledger's tables. Fixed-width columns stand together so that no byte goes into alignment.
-- Every key begins with holder_id, nothing refers to or from other tables, and no number comes from a sequence:
-- so the tables can be distributed by holder.

CREATE TABLE ledger_entry (
    holder_id         text COLLATE "C" NOT NULL,
    credit_type       text COLLATE "C" NOT NULL,
    sequence          bigint           NOT NULL,
    amount            bigint           NOT NULL,
    balance           bigint           NOT NULL,
    held              bigint           NOT NULL,
    closes            bigint,
    settled           bigint,
    overdraft         bigint,
    effective_at      timestamptz      NOT NULL,
    recorded_at       timestamptz      NOT NULL,
    kind              text COLLATE "C" NOT NULL,
    lots              json             NOT NULL,
    drawn             json             NOT NULL,
    holds             json,
    counterpart       json,
    rating            json,
    idempotency_key   text COLLATE "C",
    request_digest    bytea,
    actor             text             NOT NULL,
    reason            text             NOT NULL,
    reference         text COLLATE "C" NOT NULL,
    metadata          json,
    previous_digest   bytea            NOT NULL,
    digest            bytea            NOT NULL,

    PRIMARY KEY (holder_id, credit_type, sequence),
    CONSTRAINT ledger_entry_numbered_from_1     CHECK (sequence >= 1),
    -- Never below 0 where no overdraft was ever agreed, and no spend beyond the overdraft where one was.
    CONSTRAINT ledger_entry_never_overspent     CHECK (
        balance >= 0 OR (overdraft IS NOT NULL AND (kind <> 'spend' OR balance >= -overdraft))
    ),
    CONSTRAINT ledger_entry_held_by_holds       CHECK (held >= 0 AND (held = 0) = (holds IS NULL)),
    CONSTRAINT ledger_entry_overdraft_positive  CHECK (overdraft >= 0),
    CONSTRAINT ledger_entry_sign_fits_kind      CHECK (
        CASE kind
            WHEN 'grant'        THEN amount > 0
            WHEN 'spend'        THEN amount < 0
            WHEN 'refund'       THEN amount > 0
            WHEN 'revoke'       THEN amount < 0
            WHEN 'expire'       THEN amount < 0
            WHEN 'hold'         THEN amount <= 0
            WHEN 'capture'      THEN amount <= 0
            WHEN 'release'      THEN amount >= 0
            WHEN 'transfer_in'  THEN amount > 0
            WHEN 'transfer_out' THEN amount < 0
            WHEN 'adjust'       THEN true
            ELSE false
        END
    ),
    CONSTRAINT ledger_entry_first_starts_at_0   CHECK (
        sequence > 1 OR (balance = amount AND previous_digest = decode(repeat('00', 32), 'hex'))
    ),
    CONSTRAINT ledger_entry_digests_are_sha256  CHECK (octet_length(previous_digest) = 32 AND octet_length(digest) = 32),
    CONSTRAINT ledger_entry_closes_an_earlier   CHECK (closes < sequence),
    CONSTRAINT ledger_entry_key_has_its_request CHECK ((idempotency_key IS NULL) = (request_digest IS NULL))
);

-- One effect per key and holder; also where a replayed request finds its first answer.
CREATE UNIQUE INDEX ledger_entry_key ON ledger_entry (holder_id, idempotency_key) WHERE idempotency_key IS NOT NULL;
-- What refers to an entry: a spend's refunds, a grant's revocations and expiries. Spends and grants cost nothing here.
CREATE INDEX ledger_entry_closes ON ledger_entry (holder_id, credit_type, closes, sequence) WHERE closes IS NOT NULL;
-- The grants, refunds … of an account without walking its spends, which are most of it.
CREATE INDEX ledger_entry_kind ON ledger_entry (holder_id, credit_type, kind, sequence) WHERE kind <> 'spend';
-- What counts from another instant than it was recorded at: back-dated and future grants, expiries. For balances by effective time.
CREATE INDEX ledger_entry_effective_at ON ledger_entry (holder_id, credit_type, effective_at) WHERE effective_at <> recorded_at;
-- Newest first over all holders, for the admin.
CREATE INDEX ledger_entry_recorded_at ON ledger_entry (recorded_at);

-- Rows are never updated, so the pages may be full. Vacuum is needed only to freeze and for the visibility map.
ALTER TABLE ledger_entry SET (fillfactor = 100, autovacuum_vacuum_insert_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.02);

COMMENT ON TABLE  ledger_entry                 IS 'The ledger: one immutable row per movement, each with the account''s state after it.';
COMMENT ON COLUMN ledger_entry.holder_id       IS 'Who owns the credits: an opaque external id.';
COMMENT ON COLUMN ledger_entry.credit_type     IS 'What is counted.';
COMMENT ON COLUMN ledger_entry.sequence        IS '1, 2, 3 … per account, without gaps.';
COMMENT ON COLUMN ledger_entry.amount          IS 'Signed: what happened to the balance, in the smallest unit.';
COMMENT ON COLUMN ledger_entry.balance         IS 'Sum of the account''s amounts, this one included.';
COMMENT ON COLUMN ledger_entry.held            IS 'Credits set aside by open holds after this entry; not part of the balance.';
COMMENT ON COLUMN ledger_entry.closes          IS 'Sequence of the spend, hold or grant of this account that the entry refers to.';
COMMENT ON COLUMN ledger_entry.settled         IS 'On a refund: how much of the spend has been given back, this entry included.';
COMMENT ON COLUMN ledger_entry.overdraft       IS 'How far below 0 spends may take the balance, after this entry; null where none was ever agreed.';
COMMENT ON COLUMN ledger_entry.effective_at    IS 'When it counts from; for an expiry, the instant of the lot.';
COMMENT ON COLUMN ledger_entry.recorded_at     IS 'The server''s clock when the holder''s lock was held.';
COMMENT ON COLUMN ledger_entry.kind            IS 'grant, spend, refund, revoke, expire, hold, capture, release, transfer_in, transfer_out or adjust.';
COMMENT ON COLUMN ledger_entry.lots            IS 'Open lots after this entry in burn order: [grant, remaining, effective µs, expires µs, priority, 1 if promotional].';
COMMENT ON COLUMN ledger_entry.drawn           IS 'What was taken from or given back to which lots: [grant, amount].';
COMMENT ON COLUMN ledger_entry.holds           IS 'Open holds after this entry: [hold, expires µs, [the lots held, as in lots]]; null for none.';
COMMENT ON COLUMN ledger_entry.counterpart     IS 'On a transfer: the other holder, and the other entry''s sequence and grant where known.';
COMMENT ON COLUMN ledger_entry.rating          IS 'When the amount came from a rate card: rate, version, quantity.';
COMMENT ON COLUMN ledger_entry.idempotency_key IS 'The key of the request that this entry answers; null on entries that the ledger books itself.';
COMMENT ON COLUMN ledger_entry.request_digest  IS 'First 16 bytes of SHA-256 over what was asked.';
COMMENT ON COLUMN ledger_entry.actor           IS 'Who: an API key, an operator, or the ledger itself.';
COMMENT ON COLUMN ledger_entry.reason          IS 'Why.';
COMMENT ON COLUMN ledger_entry.reference       IS 'The caller''s own id of what this is about.';
COMMENT ON COLUMN ledger_entry.metadata        IS 'The caller''s own facts; null for none.';
COMMENT ON COLUMN ledger_entry.previous_digest IS 'Digest of the account''s previous entry; 32 zero bytes on the first.';
COMMENT ON COLUMN ledger_entry.digest          IS 'SHA-256 over previous_digest and the canonical form of this entry.';

CREATE TABLE ledger_refusal (
    holder_id       text COLLATE "C" NOT NULL,
    idempotency_key text COLLATE "C" NOT NULL,
    recorded_at     timestamptz      NOT NULL,
    operation       text COLLATE "C" NOT NULL,
    credit_type     text COLLATE "C" NOT NULL,
    code            text COLLATE "C" NOT NULL,
    facts           json             NOT NULL,
    request         json             NOT NULL,
    request_digest  bytea            NOT NULL,
    request_id      text             NOT NULL,
    actor           text             NOT NULL,

    PRIMARY KEY (holder_id, idempotency_key)
);
CREATE INDEX ledger_refusal_holder_recorded_at ON ledger_refusal (holder_id, recorded_at);
CREATE INDEX ledger_refusal_recorded_at ON ledger_refusal (recorded_at);

COMMENT ON TABLE  ledger_refusal             IS 'What was answered no: one immutable row per request, so that its retries get the same no.';
COMMENT ON COLUMN ledger_refusal.operation   IS 'What was asked: grant, spend, refund, revoke …';
COMMENT ON COLUMN ledger_refusal.code        IS 'Which no it was; the last part of the problem''s type.';
COMMENT ON COLUMN ledger_refusal.facts       IS 'The numbers that made it so.';
COMMENT ON COLUMN ledger_refusal.request     IS 'What was asked, with defaults filled in.';
COMMENT ON COLUMN ledger_refusal.request_id  IS 'The request that was answered first.';
