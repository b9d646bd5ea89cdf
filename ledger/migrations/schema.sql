-- The ledger's schema as it is: tables, indexes, functions, triggers, views. Made by 0001_initial.py, beside the models that read it.
--
--   ledger_entry       what happened or was refused, and each account's state after it; append-only
--   ledger_rate        versions of named prices; append-only
--   ledger_batch       outcomes of batches; append-only
--   ledger_api_key     who may call the REST API
--
-- Every key of the first begins with holder_id, no foreign key points to or from a table of the ledger, and no number of an entry
-- comes from a sequence: so it can be distributed by holder. The others are asked for by name; there they are reference tables.

-- Entries ----------------------------------------------------------------------------------------------------------------------------------

-- Fixed-width columns come first, so that no byte goes into alignment.
CREATE TABLE ledger_entry (
    holder_id         text COLLATE "C" NOT NULL,
    credit_type       text COLLATE "C" NOT NULL,
    sequence          bigint           NOT NULL,
    amount            bigint           NOT NULL,
    balance           bigint           NOT NULL,
    held              bigint           NOT NULL,
    refers_to         bigint,
    refunded_total    bigint,
    overdraft         bigint,
    effective_at      timestamptz,
    recorded_at       timestamptz      NOT NULL,
    kind              text COLLATE "C" NOT NULL,
    lots              json             NOT NULL,
    drawn             json             NOT NULL,
    holds             json,
    counterpart       json,
    rating            json,
    refusal           json,
    idempotency_key   text COLLATE "C",
    request_digest    bytea,
    actor             text             NOT NULL,
    reason            text             NOT NULL,
    reference         text COLLATE "C" NOT NULL,
    metadata          json,
    digest            bytea            NOT NULL,

    -- The lock keeps writers from colliding; this key is what makes a wrong balance impossible also without it.
    PRIMARY KEY (holder_id, credit_type, sequence),
    CONSTRAINT ledger_entry_numbered_from_1     CHECK (sequence >= 1),
    CONSTRAINT ledger_entry_first_starts_at_0   CHECK (sequence > 1 OR balance = amount),
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
            WHEN 'refusal'      THEN amount = 0
            ELSE false
        END
    ),
    CONSTRAINT ledger_entry_refusal_says_why    CHECK (
        (kind = 'refusal') = (refusal IS NOT NULL) AND (kind <> 'refusal' OR idempotency_key IS NOT NULL)
    ),
    CONSTRAINT ledger_entry_refers_to_an_earlier CHECK (refers_to < sequence),
    CONSTRAINT ledger_entry_key_has_its_request CHECK ((idempotency_key IS NULL) = (request_digest IS NULL)),
    CONSTRAINT ledger_entry_digest_is_sha256    CHECK (octet_length(digest) = 32),
    -- The limits of ledger/rules/requests.py. A balance and what is held are at most 500 lots of 2^53 - 1.
    CONSTRAINT ledger_entry_amounts_in_limits   CHECK (
        amount BETWEEN -9007199254740991 AND 9007199254740991
        AND overdraft <= 9007199254740991
        AND balance >= -9007199254740991
        AND balance + held <= 4503599627370495500
    ),
    CONSTRAINT ledger_entry_texts_in_limits     CHECK (
        char_length(holder_id) <= 64
        AND char_length(credit_type) <= 32
        AND char_length(idempotency_key) <= 255
        AND char_length(actor) <= 200
        AND char_length(reason) <= 500
        AND char_length(reference) <= 200
        AND octet_length(metadata::text) <= 8192
    )
);

COMMENT ON TABLE  ledger_entry                 IS 'The ledger: one immutable row per movement or refusal, each with the account''s state after it.';
COMMENT ON COLUMN ledger_entry.holder_id       IS 'Who owns the credits: an opaque external id.';
COMMENT ON COLUMN ledger_entry.credit_type     IS 'What is counted.';
COMMENT ON COLUMN ledger_entry.sequence        IS '1, 2, 3 … per account, without gaps.';
COMMENT ON COLUMN ledger_entry.amount          IS 'Signed: what happened to the balance, in the smallest unit.';
COMMENT ON COLUMN ledger_entry.balance         IS 'Sum of the account''s amounts, this one included.';
COMMENT ON COLUMN ledger_entry.held            IS 'Credits set aside by open holds after this entry; not part of the balance.';
COMMENT ON COLUMN ledger_entry.refers_to       IS 'Sequence of the spend, hold or grant of this account that the entry refers to.';
COMMENT ON COLUMN ledger_entry.refunded_total  IS 'On a refund: how much of the spend has been given back, this entry included.';
COMMENT ON COLUMN ledger_entry.overdraft       IS 'How far below 0 spends may take the balance, after this entry; null where none was ever agreed.';
COMMENT ON COLUMN ledger_entry.effective_at    IS 'When it counts from, for an expiry the instant of the lot; null where that is recorded_at.';
COMMENT ON COLUMN ledger_entry.recorded_at     IS 'The server''s clock when the holder''s lock was held.';
COMMENT ON COLUMN ledger_entry.kind            IS 'grant, spend, refund, revoke, expire, hold, capture, release, transfer_in, transfer_out, adjust or refusal.';
COMMENT ON COLUMN ledger_entry.lots            IS 'Open lots after this entry in burn order: [grant, remaining, effective µs or 0, expires µs, priority, 1 if promotional]; 0 where it could be spent from the first, whole seconds as …e6.';
COMMENT ON COLUMN ledger_entry.drawn           IS 'What was taken from or given back to which lots: [grant, amount].';
COMMENT ON COLUMN ledger_entry.holds           IS 'Open holds after this entry: [hold, expires µs, [the lots held, as in lots]]; null for none.';
COMMENT ON COLUMN ledger_entry.counterpart     IS 'On a transfer: the other holder, and the other entry''s sequence and grant where known.';
COMMENT ON COLUMN ledger_entry.rating          IS 'When the amount came from a rate card: rate, version, quantity.';
COMMENT ON COLUMN ledger_entry.refusal         IS 'On a refusal: operation, request, code, facts, the request''s id, and after: the last entry that is no refusal, 0 for none.';
COMMENT ON COLUMN ledger_entry.idempotency_key IS 'The key of the request that this entry answers; null on entries that the ledger books itself.';
COMMENT ON COLUMN ledger_entry.request_digest  IS 'First 8 bytes of SHA-256 over what was asked.';
COMMENT ON COLUMN ledger_entry.actor           IS 'Who: an API key, an operator, or the ledger itself.';
COMMENT ON COLUMN ledger_entry.reason          IS 'Why.';
COMMENT ON COLUMN ledger_entry.reference       IS 'The caller''s own id of what this is about.';
COMMENT ON COLUMN ledger_entry.metadata        IS 'The caller''s own facts; null for none.';
COMMENT ON COLUMN ledger_entry.digest          IS 'SHA-256 over the digest of the account''s previous entry, 32 zero bytes on the first, and the canonical form of this one.';

-- Rows are never updated, so the pages may be full. Vacuum is needed only to freeze and for the visibility map.
ALTER TABLE ledger_entry SET (fillfactor = 100, autovacuum_vacuum_insert_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.02);

-- The first 8 bytes of SHA-256 over the key, which any language computes alike, on every version and platform. A key is printable ASCII;
-- `decode` takes it as bytes, of which the backslash alone would mean something else. Not PostgreSQL's own hash functions: they promise
-- no value from one major version to the next.
CREATE FUNCTION ledger_key_hash(key text) RETURNS bytea
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN substr(sha256(decode(replace(key, E'\\', E'\\\\'), 'escape')), 1, 8);

-- The five seconds that an instant is in.
CREATE FUNCTION ledger_slot(at timestamptz) RETURNS timestamptz
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN date_bin('5 seconds', at, timestamptz '2000-01-01 00:00:00+00');

-- One effect per key and holder; also where a replayed request finds its first answer. The index holds 8 bytes of each key instead of its
-- text. A key whose hash another key of the holder has is refused as taken (docs/adr/0013).
CREATE UNIQUE INDEX ledger_entry_key ON ledger_entry (holder_id, ledger_key_hash(idempotency_key)) WHERE idempotency_key IS NOT NULL;
-- Every account once, by its first entry: to go from account to account whatever the length of their histories.
CREATE INDEX ledger_entry_first ON ledger_entry (holder_id, credit_type) WHERE sequence = 1;
-- What refers to an entry: a spend's refunds, a grant's revocations and expiries. Spends and grants cost nothing here.
CREATE INDEX ledger_entry_refers_to ON ledger_entry (holder_id, credit_type, refers_to, sequence) WHERE refers_to IS NOT NULL;
-- The grants, refunds … of an account without walking its spends, which are most of it.
CREATE INDEX ledger_entry_kind ON ledger_entry (holder_id, credit_type, kind, sequence) WHERE kind <> 'spend';
-- What counts from another instant than it was recorded at: back-dated and future grants, expiries. For balances by effective time.
CREATE INDEX ledger_entry_effective_at ON ledger_entry (holder_id, credit_type, effective_at) WHERE effective_at <> recorded_at;
-- Newest first over all holders, for operators: entries, and refusals by themselves. Rows of one slot share its key here, which takes a third
-- of the bytes; they are sorted when they are read, and a slot has no more than are written in five seconds.
CREATE INDEX ledger_entry_recorded_at ON ledger_entry (ledger_slot(recorded_at)) WHERE kind <> 'refusal';
CREATE INDEX ledger_entry_refused_at ON ledger_entry (ledger_slot(recorded_at)) WHERE kind = 'refusal';
-- Which pages of the table may hold a reference: a Bloom filter per 64 pages, made when they are full. Measured with a million entries:
-- 2.2 bytes an entry, nothing measurable on an insert, and 7 ms for a search; a btree would take 59 bytes, a hash index 34.
CREATE INDEX ledger_entry_reference ON ledger_entry
    USING brin (reference text_bloom_ops (n_distinct_per_range = 2000))
    WITH (pages_per_range = 64, autosummarize = on);

-- What the database refuses -----------------------------------------------------------------------------------------------------------------

-- What every append-only table's trigger calls. A statement trigger, so that no WHERE clause gets past it and TRUNCATE neither.
CREATE FUNCTION refuse_change() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% is append-only: % refused', TG_TABLE_NAME, TG_OP USING ERRCODE = 'LG001', TABLE = TG_TABLE_NAME;
END $$;

CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON ledger_entry
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
ALTER TABLE ledger_entry ENABLE ALWAYS TRIGGER append_only;

-- The digest that an entry must have behind one with that digest: SHA-256 over it and the canonical form, as ledger.rules.entries
-- computes it. Behind the first there are 32 zero bytes.
CREATE FUNCTION ledger_entry_digest(previous_digest bytea, e ledger_entry) RETURNS bytea
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
    e.refers_to,
    e.refunded_total,
    e.idempotency_key,
    encode(e.request_digest, 'hex'),
    (extract(epoch FROM COALESCE(e.effective_at, e.recorded_at)) * 1000000)::bigint,
    (extract(epoch FROM e.recorded_at) * 1000000)::bigint,
    e.actor,
    e.reason,
    e.reference,
    e.metadata,
    e.counterpart,
    e.rating,
    e.refusal
)::text, 'UTF8'));

-- Refuses an entry that does not follow from the one before it: a gap, another balance than the previous one plus the amount, a
-- digest that is not the one of this entry behind that one, held credits or an overdraft that change where they must not, or lots that
-- do not add up to the balance (with an overdraft they may add up to more: the difference is the debt), or a time of recording beyond
-- the clock (save that of the entry before it, where the clock was set back). The lock keeps writers from
-- colliding; this and the primary key make a wrong balance impossible also for a writer who forgot the lock.
CREATE FUNCTION ledger_entry_follows() RETURNS trigger
LANGUAGE plpgsql AS $$
DECLARE
    wrong record;
BEGIN
    SELECT n.holder_id, n.credit_type, n.sequence
    INTO wrong
    FROM appended n
    LEFT JOIN LATERAL (
        SELECT e.balance, e.digest, e.recorded_at, e.held, e.overdraft
        FROM ledger_entry e
        WHERE e.holder_id = n.holder_id AND e.credit_type = n.credit_type AND e.sequence = n.sequence - 1
        LIMIT 1
    ) p ON true
    WHERE (
            n.sequence > 1
            AND NOT COALESCE(
                p.balance + n.amount = n.balance
                AND p.recorded_at <= n.recorded_at
                AND (p.held = n.held OR n.kind IN ('hold', 'capture', 'release'))
                AND (p.overdraft IS NOT DISTINCT FROM n.overdraft OR n.kind = 'adjust'),
                false
            )
        )
        OR (n.recorded_at > clock_timestamp() AND n.recorded_at IS DISTINCT FROM p.recorded_at)
        OR n.digest <> ledger_entry_digest(COALESCE(p.digest, decode(repeat('00', 32), 'hex')), ROW(n.*)::ledger_entry)
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

CREATE TRIGGER follows AFTER INSERT ON ledger_entry
    REFERENCING NEW TABLE AS appended
    FOR EACH STATEMENT EXECUTE FUNCTION ledger_entry_follows();
ALTER TABLE ledger_entry ENABLE ALWAYS TRIGGER follows;

-- Lock, then read --------------------------------------------------------------------------------------------------------------------------

-- Takes the holder's lock, then reads the account as it stands after the last entry, and whether the key was answered before, or one
-- that has its hash: who replays the answer compares the texts.
-- VOLATILE is what makes it right: each statement inside gets a snapshot of its own, so the read sees what was committed while the
-- lock was waited for. STABLE, or lock and read in one statement, would read with a snapshot older than the lock.
CREATE FUNCTION ledger_open(lock_number bigint, holder text, type text, key text)
RETURNS TABLE (
    now         timestamptz,
    recorded_at timestamptz,
    sequence    bigint,
    balance     bigint,
    held        bigint,
    lots        text,
    holds       text,
    overdraft   bigint,
    digest      bytea,
    moved_by    bigint,
    is_answered boolean
)
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(lock_number);
    RETURN QUERY
        SELECT
            -- What is decided is decided by this. It may lie before the last entry, where the clock was set back.
            clock_timestamp(),
            last.recorded_at,
            last.sequence,
            last.balance,
            last.held,
            last.lots::text,
            last.holds::text,
            last.overdraft,
            last.digest,
            -- The last entry that is no refusal.
            CASE last.kind WHEN 'refusal' THEN (last.refusal ->> 'after')::bigint ELSE last.sequence END,
            EXISTS (
                SELECT
                FROM ledger_entry e
                WHERE e.holder_id = holder
                    AND ledger_key_hash(e.idempotency_key) = ledger_key_hash(key)
                    AND e.idempotency_key IS NOT NULL
            )
        FROM (VALUES (1)) AS always_one_row
        LEFT JOIN LATERAL (
            SELECT e.*
            FROM ledger_entry e
            WHERE e.holder_id = holder AND e.credit_type = type
            ORDER BY e.sequence DESC
            LIMIT 1
        ) last ON true;
END $$;

-- Takes the locks of many requests' holders as far as nobody else has them, then reads their accounts, and whether their keys were
-- answered before: what ledger_open does for one request, without waiting for anybody. One row per request, in their order.
-- VOLATILE for the same reason: the read is a statement of its own, with a snapshot younger than the locks.
CREATE FUNCTION ledger_open_many(lock_numbers bigint[], holders text[], types text[], keys text[])
RETURNS TABLE (
    is_locked   boolean,
    now         timestamptz,
    recorded_at timestamptz,
    sequence    bigint,
    balance     bigint,
    held        bigint,
    lots        text,
    holds       text,
    overdraft   bigint,
    digest      bytea,
    moved_by    bigint,
    is_answered boolean
)
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    locked boolean[];
BEGIN
    SELECT array_agg(pg_try_advisory_xact_lock(number)) INTO locked FROM unnest(lock_numbers) AS number;
    RETURN QUERY
        SELECT
            asked.is_locked,
            -- What is decided is decided by this. It may lie before the last entry, where the clock was set back.
            clock_timestamp(),
            last.recorded_at,
            last.sequence,
            last.balance,
            last.held,
            last.lots::text,
            last.holds::text,
            last.overdraft,
            last.digest,
            CASE last.kind WHEN 'refusal' THEN (last.refusal ->> 'after')::bigint ELSE last.sequence END,
            COALESCE(answered.is_there, false)
        FROM unnest(locked, holders, types, keys) WITH ORDINALITY AS asked (is_locked, holder, type, key, place)
        LEFT JOIN LATERAL (
            SELECT e.*
            FROM ledger_entry e
            WHERE asked.is_locked AND e.holder_id = asked.holder AND e.credit_type = asked.type
            ORDER BY e.sequence DESC
            LIMIT 1
        ) last ON true
        -- Joined, not EXISTS: where a table looks small, that would be answered by reading all of it.
        LEFT JOIN LATERAL (
            SELECT true AS is_there
            FROM ledger_entry e
            WHERE asked.is_locked
                AND e.holder_id = asked.holder
                AND ledger_key_hash(e.idempotency_key) = ledger_key_hash(asked.key)
                AND e.idempotency_key IS NOT NULL
            LIMIT 1
        ) answered ON true
        ORDER BY asked.place;
END $$;

-- Reading ----------------------------------------------------------------------------------------------------------------------------------

-- The number of the account's last entry recorded at or before an instant, 0 when there is none. recorded_at rises with the number,
-- so it is found by halving, in the logarithm of the history's length.
CREATE FUNCTION ledger_sequence_at(holder text, type text, at timestamptz) RETURNS bigint
LANGUAGE plpgsql STABLE AS $$
DECLARE
    low    bigint := 0;
    high   bigint;
    middle bigint;
BEGIN
    SELECT COALESCE(max(e.sequence), 0)
    INTO high
    FROM ledger_entry e
    WHERE e.holder_id = holder AND e.credit_type = type;
    WHILE low < high LOOP
        middle := low + (high - low + 1) / 2;
        IF (SELECT e.recorded_at <= at FROM ledger_entry e WHERE e.holder_id = holder AND e.credit_type = type AND e.sequence = middle)
        THEN
            low := middle;
        ELSE
            high := middle - 1;
        END IF;
    END LOOP;
    RETURN low;
END $$;

-- The numbers of an account's entries that are no refusals, out of (since, upto): the newest `many`, or the oldest. Each run of refusals is
-- passed by in one step back, or in the logarithm of its length ahead: so a page of a list costs what it shows, however much was refused.
CREATE FUNCTION ledger_movements(holder text, type text, since bigint, upto bigint, many integer, newest boolean) RETURNS bigint[]
LANGUAGE plpgsql STABLE AS $$
DECLARE
    found bigint[] := '{}';
    one   record;
    place bigint := CASE WHEN newest THEN upto - 1 ELSE since + 1 END;
    high  bigint;
    low   bigint;
    mid   bigint;
    after bigint;
BEGIN
    WHILE newest LOOP
        after := NULL;
        FOR one IN
            SELECT e.sequence, (e.refusal ->> 'after')::bigint AS after
            FROM ledger_entry e
            WHERE e.holder_id = holder AND e.credit_type = type AND e.sequence > since AND e.sequence <= place
            ORDER BY e.sequence DESC
            LIMIT many - cardinality(found)
        LOOP
            after := one.after;
            EXIT WHEN after IS NOT NULL;
            found := found || one.sequence;
        END LOOP;
        IF after IS NULL THEN
            RETURN found;
        END IF;
        place := after;
    END LOOP;

    SELECT LEAST(upto - 1, COALESCE(max(e.sequence), 0)) INTO high
    FROM ledger_entry e
    WHERE e.holder_id = holder AND e.credit_type = type;
    LOOP
        after := NULL;
        FOR one IN
            SELECT e.sequence, (e.refusal ->> 'after')::bigint AS after
            FROM ledger_entry e
            WHERE e.holder_id = holder AND e.credit_type = type AND e.sequence >= place AND e.sequence <= high
            ORDER BY e.sequence
            LIMIT many - cardinality(found)
        LOOP
            after := one.after;
            EXIT WHEN after IS NOT NULL;
            found := found || one.sequence;
        END LOOP;
        IF after IS NULL THEN
            RETURN found;
        END IF;
        -- All refusals of a run name the same entry; the first number behind them that does not is found by halving.
        low := one.sequence;
        mid := high + 1;
        WHILE mid - low > 1 LOOP
            IF EXISTS (
                SELECT
                FROM ledger_entry e
                WHERE e.holder_id = holder
                    AND e.credit_type = type
                    AND e.sequence = low + (mid - low) / 2
                    AND (e.refusal ->> 'after')::bigint = after
            ) THEN
                low := low + (mid - low) / 2;
            ELSE
                mid := low + (mid - low) / 2;
            END IF;
        END LOOP;
        place := mid;
    END LOOP;
END $$;

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
    e.refers_to,
    e.refunded_total,
    e.overdraft,
    COALESCE(e.effective_at, e.recorded_at) AS effective_at,
    e.recorded_at,
    e.kind,
    e.lots,
    e.drawn,
    e.holds,
    e.counterpart,
    e.rating,
    e.refusal,
    e.idempotency_key,
    e.request_digest,
    e.actor,
    e.reason,
    e.reference,
    e.metadata,
    e.digest
FROM ledger_entry e;
COMMENT ON VIEW ledger_entry_listing IS 'Entries with a key of one column: holder/credit type/sequence.';

-- The last entry of each account, found from its first one by one look into the primary key.
CREATE VIEW ledger_account AS
SELECT
    last.holder_id || '/' || last.credit_type AS id,
    last.holder_id,
    last.credit_type,
    last.sequence,
    last.amount,
    last.balance,
    last.held,
    last.refers_to,
    last.refunded_total,
    last.overdraft,
    last.effective_at,
    last.recorded_at,
    last.kind,
    last.lots,
    last.drawn,
    last.holds,
    last.counterpart,
    last.rating,
    last.refusal,
    last.idempotency_key,
    last.request_digest,
    last.actor,
    last.reason,
    last.reference,
    last.metadata,
    last.digest
FROM ledger_entry first
CROSS JOIN LATERAL (
    SELECT e.*
    FROM ledger_entry_listing e
    WHERE e.holder_id = first.holder_id AND e.credit_type = first.credit_type
    ORDER BY e.sequence DESC
    LIMIT 1
) last
WHERE first.sequence = 1;
COMMENT ON VIEW ledger_account IS 'The last entry of each account: its whole state.';

-- What was taken from, or given back to, which grant. For reports.
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

-- Refusals with their members as columns.
CREATE VIEW ledger_refusal_listing AS
SELECT
    e.holder_id || '/' || e.credit_type || '/' || e.sequence AS id,
    e.holder_id,
    e.credit_type,
    e.sequence,
    e.recorded_at,
    e.idempotency_key,
    e.refusal ->> 'operation' AS operation,
    e.refusal ->> 'code' AS code,
    e.refusal -> 'facts' AS facts,
    e.refusal -> 'request' AS request,
    e.refusal ->> 'request_id' AS request_id,
    e.actor,
    e.balance,
    e.held,
    e.lots
FROM ledger_entry e
WHERE e.kind = 'refusal';
COMMENT ON VIEW ledger_refusal_listing IS 'Refusals with a key of one column: holder/credit type/sequence.';

-- Rates ------------------------------------------------------------------------------------------------------------------------------------

CREATE TABLE ledger_rate (
    credit_type       text COLLATE "C" NOT NULL,
    code              text COLLATE "C" NOT NULL,
    version           integer          NOT NULL,
    price             bigint           NOT NULL,
    per               bigint           NOT NULL,
    published_at      timestamptz      NOT NULL,
    published_by      text             NOT NULL,
    published_because text             NOT NULL,
    idempotency_key   text COLLATE "C",
    request_digest    bytea,

    PRIMARY KEY (credit_type, code, version),
    CONSTRAINT ledger_rate_positive CHECK (version >= 1 AND price >= 1 AND per >= 1),
    CONSTRAINT ledger_rate_texts_in_limits CHECK (
        char_length(credit_type) <= 32
        AND char_length(code) <= 64
        AND char_length(idempotency_key) <= 255
        AND char_length(published_by) <= 200
        AND char_length(published_because) <= 500
    )
);
CREATE UNIQUE INDEX ledger_rate_key ON ledger_rate (idempotency_key) WHERE idempotency_key IS NOT NULL;

COMMENT ON TABLE  ledger_rate                   IS 'Versions of named prices in credits: a new price is a new version.';
COMMENT ON COLUMN ledger_rate.price             IS 'For so many credits …';
COMMENT ON COLUMN ledger_rate.per               IS '… one gets so many units; started credits are counted whole.';
COMMENT ON COLUMN ledger_rate.published_because IS 'The reason that was given.';
COMMENT ON COLUMN ledger_rate.idempotency_key   IS 'The request that published it; null where nobody gave a key.';

CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON ledger_rate
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
ALTER TABLE ledger_rate ENABLE ALWAYS TRIGGER append_only;

CREATE VIEW ledger_rate_listing AS
SELECT r.credit_type || '/' || r.code || '/' || r.version AS id, r.*
FROM ledger_rate r;
COMMENT ON VIEW ledger_rate_listing IS 'Versions of rates with a key of one column: credit type/code/version.';

-- Batches ----------------------------------------------------------------------------------------------------------------------------------

CREATE TABLE ledger_batch (
    idempotency_key text COLLATE "C" NOT NULL,
    confined_to     text COLLATE "C" NOT NULL,
    request_digest  bytea            NOT NULL,
    mode            text             NOT NULL,
    outcomes        json             NOT NULL,
    recorded_at     timestamptz      NOT NULL,
    actor           text             NOT NULL,
    request_id      text             NOT NULL,
    PRIMARY KEY (idempotency_key, confined_to)
);
CREATE INDEX ledger_batch_recorded_at ON ledger_batch (recorded_at, confined_to, idempotency_key);

COMMENT ON TABLE  ledger_batch             IS 'Batches that were answered, so that a retry gets the same outcomes.';
COMMENT ON COLUMN ledger_batch.confined_to IS 'The holder that the API key is confined to; empty for none. Others neither see nor use up its keys.';
COMMENT ON COLUMN ledger_batch.outcomes    IS 'Per operation: what it takes to tell its outcome again.';

CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON ledger_batch
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
ALTER TABLE ledger_batch ENABLE ALWAYS TRIGGER append_only;

CREATE VIEW ledger_batch_listing AS
SELECT b.confined_to || '/' || b.idempotency_key AS id, b.*
FROM ledger_batch b;
COMMENT ON VIEW ledger_batch_listing IS 'Batches with a key of one column: confined to/idempotency key.';

-- API keys ---------------------------------------------------------------------------------------------------------------------------------

CREATE TABLE ledger_api_key (
    id         bigint       GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
    name       varchar(100) NOT NULL UNIQUE,
    prefix     varchar(8)   NOT NULL,
    key_digest bytea        NOT NULL UNIQUE,
    scopes     jsonb        NOT NULL,
    holder_id  text COLLATE "C",
    created_at timestamptz  NOT NULL,
    created_by varchar(200) NOT NULL,
    revoked_at timestamptz
);

COMMENT ON TABLE  ledger_api_key            IS 'Who may call the REST API, and for what. The key itself is shown once and never stored.';
COMMENT ON COLUMN ledger_api_key.name       IS 'Becomes the actor of what is done with the key: key:<name>.';
COMMENT ON COLUMN ledger_api_key.prefix     IS 'The first characters, to recognise the key by.';
COMMENT ON COLUMN ledger_api_key.key_digest IS 'SHA-256 of the key.';
COMMENT ON COLUMN ledger_api_key.scopes     IS 'List of scopes.';
COMMENT ON COLUMN ledger_api_key.holder_id  IS 'The one holder that the key is confined to; null for all.';
