-- The ledger's whole schema: tables, indexes, functions, triggers, views. 0001_initial.py runs this file and declares the models that read it.
--
--   ledger_entry       every movement and refusal, with the account's state after it; append-only
--   ledger_recurring_grant   when the next grant of each recurring grant is due; repeats what entries say
--   ledger_budget_counter    what each subject has used of a budget; written only by the trigger of the entries that say so
--   ledger_usage       what accounts used, by label, rate and day; written only by the trigger of the entries
--   ledger_credit_type how a credit type is shown to people
--   ledger_rate        versions of named prices; append-only
--   ledger_batch       outcomes of batches; append-only
--   ledger_staff_event what operators did besides writing entries; append-only
--   ledger_register    a digest of each row of the tables that have no chain; written only by their triggers
--
-- ledger_entry, ledger_recurring_grant, ledger_budget_counter and ledger_usage can be distributed by holder: each of their unique keys begins with holder_id, no foreign
-- key points to or from them, and no column takes its values from a database sequence. Credit types, rates and batches are then copied to all nodes; the other tables
-- stay on the coordinator (ledger/cluster/distribution.py).

-- Each function keeps the schema that the migration works in as its search path, because it is not only called by the application's sessions:
-- the process that applies replicated rows, a restore and VACUUM have an empty path. A body that begins with RETURN or BEGIN ATOMIC was bound
-- to what it names when it was created, so it needs none.
SELECT set_config('search_path', format('%I, pg_temp', current_schema()), true);

-- Entries ----------------------------------------------------------------------------------------------------------------------------------

-- Fixed-width columns come first, so that alignment wastes no bytes.
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
    requested         bigint,
    effective_at      timestamptz,
    recorded_at       timestamptz      NOT NULL,
    kind              text COLLATE "C" NOT NULL,
    lots              json             NOT NULL,
    drawn             json             NOT NULL,
    holds             json,
    budgets           json,
    counterpart       json,
    rating            json,
    refusal           json,
    idempotency_key   text COLLATE "C",
    request_digest    bytea,
    actor             text             NOT NULL,
    reason            text             NOT NULL,
    reference         text COLLATE "C" NOT NULL,
    metadata          json,
    sale              json,
    costs             json,
    cost_changes      json,
    overage           json,
    postpaid          bigint,
    claims            json,
    counts            json,
    next_grant_at     timestamptz,
    digest            bytea            NOT NULL,

    -- The lock keeps writers from colliding. This key makes a wrong balance impossible even without the lock.
    PRIMARY KEY (holder_id, credit_type, sequence),
    CONSTRAINT ledger_entry_numbered_from_1     CHECK (sequence >= 1),
    CONSTRAINT ledger_entry_first_starts_at_0   CHECK (sequence > 1 OR balance = amount),
    -- Without an overdraft a balance is never below 0; with an overdraft no spend exceeds it.
    CONSTRAINT ledger_entry_never_overspent     CHECK (
        balance >= 0 OR (overdraft IS NOT NULL AND (kind <> 'spend' OR balance >= -overdraft))
    ),
    CONSTRAINT ledger_entry_held_by_holds       CHECK (held = 0 OR (held > 0 AND holds IS NOT NULL)),
    CONSTRAINT ledger_entry_overdraft_positive  CHECK (overdraft >= 0),
    CONSTRAINT ledger_entry_at_most_as_requested CHECK (requested IS NULL OR (kind = 'spend' AND requested >= -amount)),
    CONSTRAINT ledger_entry_sign_fits_kind      CHECK (
        (CASE
            WHEN kind IN ('grant', 'refund', 'transfer_in')            THEN amount > 0
            WHEN kind IN ('revoke', 'expire', 'transfer_out')          THEN amount < 0
            WHEN kind IN ('spend', 'hold', 'capture')                  THEN amount <= 0
            WHEN kind = 'release'                                      THEN amount >= 0
            WHEN kind IN ('adjust', 'reissue', 'refusal')              THEN amount = 0
        END) IS TRUE
    ),
    CONSTRAINT ledger_entry_refusal_says_why    CHECK (
        (kind = 'refusal') = (refusal IS NOT NULL) AND (kind <> 'refusal' OR idempotency_key IS NOT NULL)
    ),
    CONSTRAINT ledger_entry_sale_of_a_grant     CHECK (sale IS NULL OR (kind = 'grant' AND cost_changes IS NOT NULL)),
    CONSTRAINT ledger_entry_cost_fits_kind      CHECK (
        cost_changes IS NULL
        OR (CASE
            WHEN kind = 'grant' THEN sale IS NOT NULL
            WHEN kind IN ('spend', 'refund', 'revoke', 'reissue', 'expire', 'capture', 'transfer_in', 'transfer_out', 'adjust') THEN true
            WHEN kind IN ('hold', 'release', 'refusal') THEN false
        END) IS TRUE
    ),
    -- Credits beyond the lots are granted within the limit of the period; who lowers the limit leaves what is used.
    CONSTRAINT ledger_entry_postpaid_fits_kind  CHECK (
        postpaid IS NULL
        OR (
            postpaid > 0
            AND overage IS NOT NULL
            AND CASE
                WHEN kind = 'grant'                                          THEN postpaid = amount AND idempotency_key IS NULL AND (
                    overage ->> 0 IS NULL OR (overage ->> 1)::bigint <= (overage ->> 0)::bigint
                )
                WHEN kind = 'revoke'                                         THEN postpaid = -amount
                WHEN kind IN ('spend', 'hold')                               THEN postpaid <= -amount
                WHEN kind IN ('refund', 'release')                           THEN postpaid <= amount
                WHEN kind = 'capture'                                        THEN true
                WHEN kind IN ('expire', 'transfer_in', 'transfer_out', 'adjust', 'reissue', 'refusal') THEN false
            END
        ) IS TRUE
    ),
    -- What budgets count is what an entry takes, and what a release gives back.
    CONSTRAINT ledger_entry_counts_fit_kind     CHECK (
        counts IS NULL
        OR (budgets IS NOT NULL AND amount <> 0 AND kind IN ('spend', 'hold', 'capture', 'release', 'transfer_out')) IS TRUE
    ),
    CONSTRAINT ledger_entry_refers_to_an_earlier CHECK (refers_to < sequence),
    CONSTRAINT ledger_entry_key_has_its_request CHECK ((idempotency_key IS NULL) = (request_digest IS NULL)),
    CONSTRAINT ledger_entry_digest_is_sha256    CHECK (octet_length(digest) = 32),
    -- The limits of ledger/rules/requests.py. Balance and held credits together are at most 600 times 2^53 - 1.
    CONSTRAINT ledger_entry_overage_in_limits   CHECK (
        overage IS NULL OR (overage ->> 1)::bigint BETWEEN 0 AND 9007199254740991
    ),
    CONSTRAINT ledger_entry_amounts_in_limits   CHECK (
        amount BETWEEN -9007199254740991 AND 9007199254740991
        AND overdraft <= 9007199254740991
        AND requested <= 9007199254740991
        AND balance >= -9007199254740991
        AND balance + held <= 5404319552844594600
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
COMMENT ON COLUMN ledger_entry.holder_id       IS 'The owner of the credits: an opaque external id.';
COMMENT ON COLUMN ledger_entry.credit_type     IS 'What the account counts, such as credits or sms.';
COMMENT ON COLUMN ledger_entry.sequence        IS '1, 2, 3 … per account, without gaps.';
COMMENT ON COLUMN ledger_entry.amount          IS 'The change of the balance, signed, in the smallest unit.';
COMMENT ON COLUMN ledger_entry.balance         IS 'The sum of the account''s amounts, up to and including this entry.';
COMMENT ON COLUMN ledger_entry.held            IS 'Credits set aside by open holds after this entry; not part of the balance.';
COMMENT ON COLUMN ledger_entry.refers_to       IS 'Sequence of the spend, hold, grant or transfer of this account that the entry refers to.';
COMMENT ON COLUMN ledger_entry.refunded_total  IS 'On a refund: how much of the spend has been refunded in all, this entry included.';
COMMENT ON COLUMN ledger_entry.overdraft       IS 'How far below 0 spends may take the balance after this entry; null if the account never had an overdraft.';
COMMENT ON COLUMN ledger_entry.requested       IS 'On a partial spend: how many credits the request asked for; it took these, or all that were available.';
COMMENT ON COLUMN ledger_entry.effective_at    IS 'The time from which the entry counts; for an expiry the lot''s expiry. Null if it equals recorded_at.';
COMMENT ON COLUMN ledger_entry.recorded_at     IS 'The server''s clock, read under the holder''s lock.';
COMMENT ON COLUMN ledger_entry.kind            IS 'grant, spend, refund, revoke, reissue, expire, hold, capture, release, transfer_in, transfer_out, adjust or refusal.';
COMMENT ON COLUMN ledger_entry.lots            IS 'Open lots after this entry in burn order: [grant, remaining, effective µs or 0, expires µs, priority, 1 if promotional or 2 if postpaid, 1 if a transfer opened it, what it applies to: {"rates": […], "labels": {label: […]}}]. 0: spendable as soon as its entry was recorded. Whole seconds are written …e6.';
COMMENT ON COLUMN ledger_entry.drawn           IS 'The lots that the entry took from, or gave back to: [grant, amount].';
COMMENT ON COLUMN ledger_entry.holds           IS 'Open holds after this entry: [hold, expires µs, [the held lots, as in lots]]; null if there are no holds.';
COMMENT ON COLUMN ledger_entry.budgets         IS 'Budgets after this entry: [name, limit, window, hours, time zone, by, label, subject, 1 if hard, sequence from which it counts], and of one that nests its parent and [[by, label, subject]] of its parents; null if there are no budgets.';
COMMENT ON COLUMN ledger_entry.counts          IS 'What budgets counted of it: [sequence from which the budget counts, subject, start of the step in µs, amount, used in the step after it, used in the window after it if that is not the same]; null if no budget counted it.';
COMMENT ON COLUMN ledger_entry.counterpart     IS 'On a transfer: the other holder, and the sequence and grant of the other entry if known. On an adjust that says so: whether the account accepts transfers from others, or whether the holder is frozen, with the number of the change, which budget, recurring grant or overage it sets or ends, to which time it moves the holder''s test clock, with the number of the move, and for which period of a recurring grant nothing was due.';
COMMENT ON COLUMN ledger_entry.rating          IS 'If a rate gave the amount: rate, version, and quantity or quantities by component.';
COMMENT ON COLUMN ledger_entry.refusal         IS 'On a refusal: operation, request, code, facts, the request''s id, and after: the last entry that is not a refusal, or 0.';
COMMENT ON COLUMN ledger_entry.idempotency_key IS 'The key of the request that made this entry; null on entries that the ledger books by itself.';
COMMENT ON COLUMN ledger_entry.request_digest  IS 'The first 8 bytes of SHA-256 over the request.';
COMMENT ON COLUMN ledger_entry.actor           IS 'The API key, the operator or the ledger itself that made the entry.';
COMMENT ON COLUMN ledger_entry.reason          IS 'Why the entry was made.';
COMMENT ON COLUMN ledger_entry.reference       IS 'The caller''s id for the subject of the entry, such as an order.';
COMMENT ON COLUMN ledger_entry.metadata        IS 'Facts from the caller; null without facts.';
COMMENT ON COLUMN ledger_entry.sale            IS 'On a grant that was sold: paid_minor without tax, currency, and if given sold_at and document.';
COMMENT ON COLUMN ledger_entry.costs           IS 'What the credits of open and held lots cost after this entry: [lot, left, currency, paid, of, fraction], the oldest lot first. The basis is paid minor units, less fraction millionths of one, for that many credits. Null if no lot was sold.';
COMMENT ON COLUMN ledger_entry.cost_changes    IS 'What the entry changed of the costs of lots: [lot, change, currency], in minor units. Null if it changed none.';
COMMENT ON COLUMN ledger_entry.overage         IS 'The overage after this entry: [limit or null, used in the period, first sequence of the period''s counting, end of the period µs, sequence of the terms, interval, count, anchor µs, time zone, end µs or null, reference]. Null if the account never had one.';
COMMENT ON COLUMN ledger_entry.postpaid        IS 'How many of the entry''s credits were granted, used or returned on overage; null if none were.';
COMMENT ON COLUMN ledger_entry.claims          IS 'Claims after this entry: [sequence of the claim, credits that are still claimed, lots to which they may come back…]. Null without claims.';
COMMENT ON COLUMN ledger_entry.next_grant_at   IS 'When a recurring grant of the account is due next, after this entry: the first write from then on makes it. Null if nothing will be due.';
COMMENT ON COLUMN ledger_entry.digest          IS 'SHA-256 over the digest of the account''s previous entry, 32 zero bytes on the first, and the canonical form of this one.';

-- Rows are never updated, so the pages may be full. Vacuum is needed only to freeze and for the visibility map. The first statistics
-- are of 1,000 rows: with those of a few rows, sessions would keep plans that read the whole table when it has grown.
ALTER TABLE ledger_entry SET (
    fillfactor = 100,
    autovacuum_vacuum_insert_scale_factor = 0.05,
    autovacuum_analyze_threshold = 1000,
    autovacuum_analyze_scale_factor = 0.02
);

-- Returns the first 8 bytes of SHA-256 over the key: the same value in every language, version and platform. PostgreSQL's own hash
-- functions may change with a major version. A key is printable ASCII; `decode` reads it as bytes, so each backslash is doubled.
CREATE FUNCTION ledger_key_hash(key text) RETURNS bytea
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN substr(sha256(decode(replace(key, E'\\', E'\\\\'), 'escape')), 1, 8);

-- Returns the start of the five-second slot that contains a time.
CREATE FUNCTION ledger_slot(at timestamptz) RETURNS timestamptz
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN date_bin('5 seconds', at, timestamptz '2000-01-01 00:00:00+00');

-- One entry per key and holder; also finds the entry of a repeated key. The index holds 8 bytes of each key instead of its text. If two
-- keys of one holder have the same hash, the second key is refused as taken (docs/adr/0013).
CREATE UNIQUE INDEX ledger_entry_key ON ledger_entry (holder_id, ledger_key_hash(idempotency_key)) WHERE idempotency_key IS NOT NULL;
-- Finds an imported row by its id, in every account, and keeps two imports from importing it twice: docs/explanation/ledger.md. It has no row
-- for other entries.
CREATE UNIQUE INDEX ledger_entry_imported ON ledger_entry (ledger_key_hash(idempotency_key))
    WHERE starts_with(actor, 'import:') AND idempotency_key IS NOT NULL;
-- Each account once, by its first entry: walks the accounts without walking their histories.
CREATE INDEX ledger_entry_first ON ledger_entry (holder_id, credit_type) WHERE sequence = 1;
-- Finds the entries that refer to an entry: a spend's refunds, a grant's revocations and expiries. It has no row for a spend or grant.
CREATE INDEX ledger_entry_refers_to ON ledger_entry (holder_id, credit_type, refers_to, sequence) WHERE refers_to IS NOT NULL;
-- Finds the grants, refunds … of an account without walking its spends, which are most of its entries.
CREATE INDEX ledger_entry_kind ON ledger_entry (holder_id, credit_type, kind, sequence) WHERE kind <> 'spend';
-- Finds whether an account accepts transfers from others: only a few entries change that.
CREATE INDEX ledger_entry_incoming ON ledger_entry (holder_id, credit_type, sequence) WHERE kind = 'adjust' AND counterpart IS NOT NULL;
-- Finds whether a holder is frozen, by the last change, which its number makes the only one even without the lock.
CREATE UNIQUE INDEX ledger_entry_freeze ON ledger_entry (holder_id, ((counterpart ->> 'change')::integer))
    WHERE kind = 'adjust' AND counterpart ->> 'change' IS NOT NULL;
-- Finds the test clock of a holder, by its last move; the number of a move makes it the only one even without the lock.
CREATE UNIQUE INDEX ledger_entry_tick ON ledger_entry (holder_id, ((counterpart ->> 'tick')::integer))
    WHERE kind = 'adjust' AND counterpart ->> 'tick' IS NOT NULL;
-- Back-dated and future grants, for balances by effective time.
CREATE INDEX ledger_entry_effective_at ON ledger_entry (holder_id, credit_type, effective_at) WHERE effective_at <> recorded_at AND kind = 'grant';
-- Imported history: finds the last entry that was decided by a time, for balances by effective time. It has no row for other entries.
CREATE INDEX ledger_entry_decided_at ON ledger_entry (holder_id, credit_type, effective_at, sequence)
    WHERE effective_at <> recorded_at AND kind <> 'grant' AND actor <> 'ledger';
-- Finds grants of all holders that become effective later, for operators. It has no row for other entries.
CREATE INDEX ledger_entry_scheduled ON ledger_entry (effective_at) WHERE effective_at > recorded_at;
-- Lists the newest entries of all holders for operators; refusals have a second index. All rows of a five-second slot share one key here,
-- which takes a third of the bytes; the reader sorts the rows of a slot.
CREATE INDEX ledger_entry_recorded_at ON ledger_entry (ledger_slot(recorded_at)) WHERE kind <> 'refusal';
CREATE INDEX ledger_entry_refused_at ON ledger_entry (ledger_slot(recorded_at)) WHERE kind = 'refusal';
-- Finds the entries of a month that changed what sold credits cost, for the books. It has no row for other entries.
CREATE INDEX ledger_entry_cost ON ledger_entry (ledger_slot(recorded_at)) WHERE cost_changes IS NOT NULL;
-- Finds what was granted on overage in a period, for its invoice. It has no row for other entries.
CREATE INDEX ledger_entry_overage ON ledger_entry (holder_id, credit_type, (COALESCE(effective_at, recorded_at)))
    WHERE kind = 'grant' AND postpaid IS NOT NULL;
-- Finds what was recorded about overage since a run: use, refunds, releases, captures of holds. It has no row for other entries.
CREATE INDEX ledger_entry_overage_at ON ledger_entry (holder_id, credit_type, recorded_at)
    WHERE kind IN ('grant', 'revoke', 'capture') AND postpaid IS NOT NULL;
-- Finds the refusals of a request by its id, for operators. Only refusals store the id of the request.
CREATE INDEX ledger_entry_refused_request ON ledger_entry ((refusal ->> 'request_id')) WHERE kind = 'refusal';
-- Finds the pages that may hold a reference, by a Bloom filter per 64 pages, which is made once they are full. Measured with a million
-- entries: 2.2 bytes per entry, no measurable cost on an insert, 7 ms for a search; a btree takes 59 bytes per entry, a hash index 34.
CREATE INDEX ledger_entry_reference ON ledger_entry
    USING brin (reference text_bloom_ops (n_distinct_per_range = 2000))
    WITH (pages_per_range = 64, autosummarize = on);

-- What the database refuses -----------------------------------------------------------------------------------------------------------------

-- The trigger function of every append-only table. The triggers are per statement, so they also fire for TRUNCATE, and for a statement
-- that matches no row.
CREATE FUNCTION refuse_change() RETURNS trigger
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    RAISE EXCEPTION '% is append-only: % refused', TG_TABLE_NAME, TG_OP USING ERRCODE = 'LG001', TABLE = TG_TABLE_NAME;
END $$;

CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON ledger_entry
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
ALTER TABLE ledger_entry ENABLE ALWAYS TRIGGER append_only;

-- Returns the digest of an entry: SHA-256 over the digest of the entry before it (32 zero bytes for the first) and the entry's canonical
-- form, which ledger/rules/entries.py defines. If an entry has requested, budgets, sale, costs, cost_changes, overage, postpaid, claims, counts
-- or next_grant_at, these follow the form.
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
)::text || COALESCE('[' || e.requested || ']', '') || COALESCE(e.budgets::text, '') || COALESCE(e.sale::text, '') || COALESCE(e.costs::text, '')
    || COALESCE(e.cost_changes::text, '') || COALESCE(e.overage::text, '') || COALESCE('(' || e.postpaid || ')', '')
    || COALESCE('claims' || e.claims::text, '') || COALESCE('counts' || e.counts::text, '')
    || COALESCE('next' || (extract(epoch FROM e.next_grant_at) * 1000000)::bigint, ''), 'UTF8'));

-- Returns whether the costs of an account's lots after an entry are those before it and its changes of them, 0 or more and no more than
-- was paid.
CREATE FUNCTION ledger_costs_follow(before json, changes json, after json) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN NOT EXISTS (
    SELECT
    FROM (
        SELECT cost ->> 0 AS lot, cost ->> 2 AS currency, (cost ->> 1)::numeric AS minor FROM json_array_elements(after) AS cost
        UNION ALL
        SELECT cost ->> 0, cost ->> 2, -(cost ->> 1)::numeric FROM json_array_elements(before) AS cost
        UNION ALL
        SELECT cost ->> 0, cost ->> 2, -(cost ->> 1)::numeric FROM json_array_elements(changes) AS cost
    ) AS moved
    GROUP BY lot, currency
    HAVING sum(minor) <> 0
) AND NOT EXISTS (
    SELECT FROM json_array_elements(after) AS cost WHERE NOT (cost ->> 1)::numeric BETWEEN 0 AND (cost ->> 3)::numeric
);

-- Returns whether the overage after an entry is the one before it and what the entry granted on it or gave back. A grant may begin the
-- next period, of which nothing was used; what comes back after its period changes nothing. Only an adjustment changes the terms.
CREATE FUNCTION ledger_overage_follows(before json, kind text, postpaid bigint, after json) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE
    WHEN kind = 'adjust' THEN before IS NULL OR after IS NOT NULL
    WHEN before IS NULL THEN after IS NULL
    WHEN kind IN ('grant', 'revoke') AND postpaid IS NOT NULL THEN
        ARRAY[before ->> 0, before ->> 4, before ->> 5, before ->> 6, before ->> 7, before ->> 8, before ->> 9, before ->> 10]
            IS NOT DISTINCT FROM
            ARRAY[after ->> 0, after ->> 4, after ->> 5, after ->> 6, after ->> 7, after ->> 8, after ->> 9, after ->> 10]
        AND CASE
            WHEN kind = 'revoke' THEN
                after::text = before::text
                OR (
                    (after ->> 1)::bigint = (before ->> 1)::bigint - postpaid
                    AND (after ->> 2, after ->> 3) = (before ->> 2, before ->> 3)
                )
            WHEN after ->> 3 = before ->> 3 THEN
                (after ->> 1)::bigint = (before ->> 1)::bigint + postpaid AND after ->> 2 = before ->> 2
            ELSE (after ->> 1)::bigint = postpaid AND (after ->> 3)::bigint > (before ->> 3)::bigint
        END
    ELSE after::text = before::text
END;

-- Returns whether the claims after an entry are those before it: only an adjustment takes or withdraws one, and only a revocation settles
-- some, of what it takes back.
CREATE FUNCTION ledger_claims_follow(before json, kind text, amount bigint, after json) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN kind = 'adjust'
    OR after::text IS NOT DISTINCT FROM before::text
    OR kind = 'revoke'
    AND (SELECT COALESCE(sum((claim ->> 1)::numeric), 0) FROM json_array_elements(before) AS claim)
        = (SELECT COALESCE(sum((claim ->> 1)::numeric), 0) FROM json_array_elements(after) AS claim) - amount
    AND NOT EXISTS (
        SELECT FROM json_array_elements(after) AS claim
        WHERE NOT COALESCE((claim ->> 1)::numeric BETWEEN 1 AND (
            SELECT (known ->> 1)::numeric FROM json_array_elements(before) AS known WHERE known ->> 0 = claim ->> 0
        ), false)
    );

-- Returns whether credits that apply to these rates and labels can pay for a use by this rate and with these metadata; both are null for a
-- use for no certain thing.
CREATE FUNCTION ledger_applies(applies_to json, rate text, metadata json) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN (
        applies_to -> 'rates' IS NULL
        OR EXISTS (SELECT FROM json_array_elements_text(applies_to -> 'rates') AS known WHERE known = rate)
    )
    AND NOT EXISTS (
        SELECT FROM json_each(applies_to -> 'labels') AS label
        WHERE NOT EXISTS (SELECT FROM json_array_elements_text(label.value) AS known WHERE known = metadata ->> label.key)
    );

-- Returns whether an entry takes nothing from lots, open or held before it, whose credits cannot pay for its use.
CREATE FUNCTION ledger_lots_apply(lots json, holds json, kind text, drawn json, rate text, metadata json) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN kind NOT IN ('adjust', 'hold', 'spend', 'transfer_out') AND kind <> 'capture'
    OR NOT EXISTS (
        SELECT
        FROM (
            SELECT lot FROM json_array_elements(lots) AS lot
            UNION ALL
            SELECT lot FROM json_array_elements(holds) AS hold CROSS JOIN LATERAL json_array_elements(hold -> 2) AS lot
        ) AS known
        JOIN json_array_elements(drawn) AS part ON part ->> 0 = known.lot ->> 0
        WHERE known.lot -> 7 IS NOT NULL AND ledger_applies(known.lot -> 7, rate, metadata) IS NOT TRUE
    );

-- Refuses an entry that does not follow from the entry before it:
--   a gap in the numbers, or a balance other than the previous balance plus the amount;
--   a recorded_at before that of the previous entry, or beyond the clock (except the previous entry's, after the clock was set back);
--   a digest other than ledger_entry_digest();
--   a change of the held credits, the overdraft or the budgets by a kind of entry that cannot change them;
--   costs of lots that are not those before it and its changes;
--   an overage that is not the one before it and what the entry used or gave back;
--   claims that are not those before it, without it taking, withdrawing or settling one;
--   another instant of the next recurring grant, without it being a grant or setting one;
--   credits of a lot that cannot pay for its rate and labels, which for a capture are those of its hold, and its own rate if it has one, and
--   which an entry by billing does not have;
--   lots that do not add up to the balance (with an overdraft they may add up to more: the difference is the debt).
-- The lock keeps writers from colliding. This trigger and the primary key make a wrong balance impossible even without the lock.
-- About the settings see Note [Plans that stay right] below.
CREATE FUNCTION ledger_entry_follows() RETURNS trigger
LANGUAGE plpgsql SET search_path FROM CURRENT
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off
AS $$
DECLARE
    wrong record;
BEGIN
    SELECT n.holder_id, n.credit_type, n.sequence
    INTO wrong
    FROM appended n
    LEFT JOIN LATERAL (
        SELECT e.balance, e.digest, e.recorded_at, e.held, e.overdraft, e.budgets, e.costs, e.overage, e.claims, e.next_grant_at, e.lots, e.holds
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
                AND (p.overdraft IS NOT DISTINCT FROM n.overdraft OR n.kind = 'adjust')
                AND (n.kind = 'adjust' OR p.budgets::text IS NOT DISTINCT FROM n.budgets::text)
                AND (n.kind = 'adjust' OR n.kind = 'grant' OR p.next_grant_at IS NOT DISTINCT FROM n.next_grant_at),
                false
            )
        )
        OR (n.recorded_at > clock_timestamp() AND n.recorded_at IS DISTINCT FROM p.recorded_at)
        OR n.digest <> ledger_entry_digest(COALESCE(p.digest, decode(repeat('00', 32), 'hex')), ROW(n.*)::ledger_entry)
        OR (
            SELECT CASE WHEN n.overdraft IS NULL THEN total <> n.balance ELSE total < n.balance END
            FROM (SELECT COALESCE(sum((lot ->> 1)::bigint), 0) AS total FROM json_array_elements(n.lots) lot) AS lots
        )
        OR CASE
            WHEN n.costs IS NULL AND n.cost_changes IS NULL AND p.costs IS NULL THEN false
            ELSE ledger_costs_follow(p.costs, n.cost_changes, n.costs) IS NOT TRUE
        END
        OR CASE
            WHEN n.overage IS NULL AND p.overage IS NULL THEN false
            ELSE ledger_overage_follows(p.overage, n.kind, n.postpaid, n.overage) IS NOT TRUE
        END
        OR CASE
            WHEN n.claims IS NULL AND p.claims IS NULL THEN false
            ELSE ledger_claims_follow(p.claims, n.kind, n.amount, n.claims) IS NOT TRUE
        END
        -- Only what a lot applies to has a brace.
        OR CASE
            WHEN strpos(concat(p.lots::text, p.holds::text), '{') = 0 THEN false
            WHEN n.kind = 'capture' THEN NOT EXISTS (
                SELECT
                FROM ledger_entry h
                WHERE h.holder_id = n.holder_id
                    AND h.credit_type = n.credit_type
                    AND h.sequence = n.refers_to
                    AND ledger_lots_apply(
                        p.lots, p.holds, n.kind, n.drawn, COALESCE(n.rating ->> 'rate', h.rating ->> 'rate'), h.metadata
                    )
                LIMIT 1
            )
            ELSE NOT ledger_lots_apply(
                p.lots,
                p.holds,
                n.kind,
                n.drawn,
                n.rating ->> 'rate',
                CASE WHEN (n.kind = 'spend' OR n.kind = 'hold') AND n.actor <> 'billing' THEN n.metadata END
            )
        END
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

-- The register -----------------------------------------------------------------------------------------------------------------------------

-- A digest of each row of the tables that have no chain (docs/adr/0056). Triggers named `registered` write it with their owner's rights; the
-- application can only read it. So the register shows whether a row was changed, deleted or added while triggers were off.
CREATE TABLE ledger_register (
    of_table      text COLLATE "C" NOT NULL,
    row_key       text COLLATE "C" NOT NULL,
    registered_on date             NOT NULL DEFAULT (clock_timestamp() AT TIME ZONE 'UTC')::date,
    digest        bytea            NOT NULL,
    PRIMARY KEY (of_table, row_key),
    CONSTRAINT ledger_register_digest_is_sha256 CHECK (octet_length(digest) = 32)
);

COMMENT ON TABLE  ledger_register               IS 'A digest of each row of the registered tables, written only by their triggers.';
COMMENT ON COLUMN ledger_register.of_table      IS 'The table.';
COMMENT ON COLUMN ledger_register.row_key       IS 'The row''s key, its columns joined by a slash.';
COMMENT ON COLUMN ledger_register.registered_on IS 'The day (UTC) on which the row was first registered.';
COMMENT ON COLUMN ledger_register.digest        IS 'SHA-256 over the row as JSON, without columns that are null, with times in UTC.';

-- The form of a row that a digest covers: without the columns that are null, so that a later release can add a column, null in the rows
-- that are there, and their digests stay as they are.
CREATE FUNCTION ledger_row_form(content jsonb) RETURNS jsonb
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN (SELECT coalesce(jsonb_object_agg(key, value), '{}') FROM jsonb_each(content) WHERE value <> 'null');

-- Writes the digest of a row to the register, or takes it out with a row that the application may delete. Its arguments are the columns
-- of the key. On a cluster the row of a table that all nodes have is registered by the coordinator's copy.
CREATE FUNCTION ledger_register_row() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT SET timezone = 'UTC' AS $$
DECLARE
    -- Without the columns that the server computes again when the database is restored, and without when a key was used.
    content jsonb := ledger_row_form(CASE TG_OP WHEN 'DELETE' THEN to_jsonb(OLD) ELSE to_jsonb(NEW) END) - '{name_words,last_used_at}'::text[];
    name    text := regexp_replace(TG_TABLE_NAME, '_[0-9]{6,}$', '');
    key     text := content ->> TG_ARGV[0];
BEGIN
    IF to_regclass('ledger_register') IS NULL THEN
        RETURN NULL;
    END IF;
    FOR position IN 1 .. TG_NARGS - 1 LOOP
        key := key || '/' || (content ->> TG_ARGV[position]);
    END LOOP;
    IF TG_OP = 'DELETE' THEN
        DELETE FROM ledger_register WHERE of_table = name AND row_key = key;
    ELSE
        INSERT INTO ledger_register AS known (of_table, row_key, digest) VALUES (name, key, sha256(convert_to(content::text, 'UTF8')))
        ON CONFLICT (of_table, row_key) DO UPDATE SET digest = EXCLUDED.digest;
    END IF;
    RETURN NULL;
END $$;
-- Anyone who could create a trigger with this function could register any digest.
REVOKE ALL ON FUNCTION ledger_register_row() FROM PUBLIC;

-- Registers the rows of a table from now on, under these key columns.
-- changes: the columns that the application may change; a change of any other column is not registered.
-- condition: which rows are registered; rows that a document's digest covers need not be.
-- The trigger is not ENABLE ALWAYS: rows that another server has registered are replicated together with their register.
CREATE PROCEDURE ledger_have_registered(name text, key text[], changes text[] DEFAULT '{}', condition text DEFAULT 'true')
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    arguments text := (SELECT string_agg(quote_literal(part), ', ') FROM unnest(key) AS part);
BEGIN
    EXECUTE format('CREATE TRIGGER registered AFTER INSERT%s ON %I FOR EACH ROW WHEN (%s) EXECUTE FUNCTION ledger_register_row(%s)',
        ' OR UPDATE OF ' || NULLIF(array_to_string(changes, ', '), ''), name, condition, arguments);
END $$;

-- Lock, then read --------------------------------------------------------------------------------------------------------------------------

-- The only way to take a holder's lock: waits for it, or tries it and returns whether it has it. The holder is an argument beside the
-- number of the lock so that this function can be distributed with the tables, and locks on the node that has the holder's rows.
CREATE FUNCTION ledger_lock(number bigint, holder text, wait boolean) RETURNS boolean
LANGUAGE sql VOLATILE
RETURN CASE WHEN wait THEN pg_advisory_xact_lock(number) IS NOT NULL ELSE pg_try_advisory_xact_lock(number) END;

-- Note [Plans that stay right]
--     A session plans a statement of these functions once and keeps the plan until the next ANALYZE. A plan for few rows may scan
--     the table, or find a key by reading all entries of its holder: if most holders have one entry, as after an import, that
--     seems as cheap as the index of the keys. Until the next ANALYZE, each operation of a busy holder would read all its entries. So the
--     settings, which cost 0.3 µs a call, leave only plans that read one index in its order. The key is therefore searched as a range from
--     its hash to its hash, in the order of the hash, which only the index of the keys has; for an equality, any index of the holder would do.

-- Returns the time of the holder's test clock (docs/explanation/ledger.md), or null if the holder has none.
CREATE FUNCTION ledger_clock(holder text) RETURNS timestamptz
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
BEGIN
    RETURN (
        SELECT (t.counterpart ->> 'clock')::timestamptz
        FROM ledger_entry t
        WHERE t.holder_id = holder AND t.kind = 'adjust' AND t.counterpart ->> 'tick' IS NOT NULL
        ORDER BY (t.counterpart ->> 'tick')::integer DESC
        LIMIT 1
    );
END $$;

-- Returns the recorded_at up to which the holder's entries had been made when its test clock showed a time: what was recorded before the
-- clock moved beyond that time. Without a test clock, and for a time before its first move, that is the time itself.
CREATE FUNCTION ledger_recorded_by(holder text, at timestamptz) RETURNS timestamptz
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
DECLARE
    move    record;
    is_past boolean := false;
BEGIN
    FOR move IN
        SELECT t.recorded_at, (t.counterpart ->> 'clock')::timestamptz AS shown
        FROM ledger_entry t
        WHERE t.holder_id = holder AND t.kind = 'adjust' AND t.counterpart ->> 'tick' IS NOT NULL
        ORDER BY (t.counterpart ->> 'tick')::integer
    LOOP
        IF move.shown > at THEN
            RETURN CASE WHEN is_past THEN move.recorded_at ELSE LEAST(at, move.recorded_at) END;
        END IF;
        is_past := true;
    END LOOP;
    RETURN CASE WHEN is_past THEN 'infinity' ELSE at END;
END $$;

-- Locks holders, and then reads their accounts and whether keys have been used: one row for each place of the arrays, in their order.
-- wait: true waits for each lock; false tries the locks, and a row whose lock is busy has no other values; null if the transaction already
-- has the locks. A place without a type reads no account, a place without a key checks no key, and a place without a holder only locks a
-- number. clocks: whether holders may have test clocks; `clock` is the time of the holder's. A key also counts as used if another key of the holder has the same hash: the code that replays its result compares the texts.
-- The function must be VOLATILE: each statement inside gets a new snapshot, so the read sees what was committed during the wait for
-- the lock. STABLE, or locking and reading in one statement, would read with a snapshot older than the lock.
CREATE FUNCTION ledger_open(wait boolean, lock_numbers bigint[], holders text[], types text[], keys text[], clocks boolean DEFAULT false)
RETURNS TABLE (
    is_locked   boolean,
    now         timestamptz,
    recorded_at timestamptz,
    sequence    bigint,
    balance     bigint,
    held        bigint,
    lots        json,
    holds       json,
    overdraft   bigint,
    digest      bytea,
    moved_by    bigint,
    freeze      text,
    budgets     json,
    costs       json,
    overage     json,
    claims      json,
    next_grant  timestamptz,
    clock       timestamptz,
    is_used     boolean
)
LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off
AS $$
DECLARE
    number bigint;
    place  integer := 0;
    holder text;
    type   text;
    key    text;
BEGIN
    FOREACH number IN ARRAY lock_numbers LOOP
        place := place + 1;
        holder := holders[place];
        type := types[place];
        key := keys[place];
        is_locked := true;
        IF wait IS NOT NULL THEN
            is_locked := ledger_lock(number, holder, wait);
        END IF;
        IF NOT is_locked THEN
            holder := NULL;
        END IF;
        SELECT
            e.recorded_at,
            e.sequence,
            e.balance,
            e.held,
            e.lots,
            e.holds,
            e.overdraft,
            e.digest,
            -- The last entry that is not a refusal.
            CASE e.kind WHEN 'refusal' THEN (e.refusal ->> 'after')::bigint ELSE e.sequence END,
            (
                SELECT f.counterpart ->> 'holder'
                FROM ledger_entry f
                WHERE f.holder_id = e.holder_id AND f.kind = 'adjust' AND f.counterpart ->> 'change' IS NOT NULL
                ORDER BY (f.counterpart ->> 'change')::integer DESC
                LIMIT 1
            ),
            e.budgets,
            e.costs,
            e.overage,
            e.claims,
            e.next_grant_at
        INTO recorded_at, sequence, balance, held, lots, holds, overdraft, digest, moved_by, freeze, budgets, costs, overage, claims, next_grant
        FROM ledger_entry e
        WHERE e.holder_id = holder AND e.credit_type = type
        ORDER BY e.sequence DESC
        LIMIT 1;
        IF type IS NOT NULL AND sequence IS NULL THEN
            -- An account without entries, which may receive credits.
            SELECT f.counterpart ->> 'holder'
            INTO freeze
            FROM ledger_entry f
            WHERE f.holder_id = holder AND f.kind = 'adjust' AND f.counterpart ->> 'change' IS NOT NULL
            ORDER BY (f.counterpart ->> 'change')::integer DESC
            LIMIT 1;
        END IF;
        PERFORM
        FROM ledger_entry e
        WHERE e.holder_id = holder
            AND ledger_key_hash(e.idempotency_key) BETWEEN ledger_key_hash(key) AND ledger_key_hash(key)
            AND e.idempotency_key IS NOT NULL
        ORDER BY ledger_key_hash(e.idempotency_key)
        LIMIT 1;
        is_used := FOUND;
        IF clocks THEN
            clock := ledger_clock(holder);
        END IF;
        -- The rules decide by this time, or by that of the test clock. It may lie before the last entry, if the clock was set back.
        now := clock_timestamp();
        RETURN NEXT;
    END LOOP;
END $$;

-- Reading ----------------------------------------------------------------------------------------------------------------------------------

-- Returns the sequence of the account's last entry recorded at or before a time, or 0. recorded_at never falls with the sequence, so a
-- binary search finds it.
CREATE FUNCTION ledger_sequence_at(holder text, type text, at timestamptz) RETURNS bigint
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
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

-- Returns whether a spend or capture of an account was refunded, or a hold captured, after a time: what was used before may be another
-- quantity then.
CREATE FUNCTION ledger_use_changed_since(holder text, type text, since timestamptz) RETURNS boolean
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
BEGIN
    RETURN EXISTS (
        SELECT
        FROM ledger_entry e
        WHERE e.holder_id = holder AND e.credit_type = type AND e.kind IN ('refund', 'capture') AND e.kind <> 'spend'
            AND e.sequence > ledger_sequence_at(holder, type, since)
    );
END $$;

-- Returns the sequences of an account's entries in (since, upto) that are not refusals: the newest `many`, or the oldest. Backwards it
-- skips a run of refusals in one step, forwards by a binary search: so a page of a list costs what it shows, even after many refusals.
CREATE FUNCTION ledger_movements(holder text, type text, since bigint, upto bigint, many integer, newest boolean) RETURNS bigint[]
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
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
        -- All refusals of a run have the same `after`. A binary search finds the first later entry that has not.
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

-- Returns entries of all holders by recorded_at, holder, credit type and sequence: those after a place and recorded before `bound`, or
-- those before a place and recorded at `bound` or later, the newest first. It returns at most `many` movements and `many` refusals.
-- About the settings see Note [Plans that stay right]: no plan sorts more than one slot.
CREATE FUNCTION ledger_recorded(
    newest boolean, at timestamptz, holder text, type text, number bigint, bound timestamptz, many integer, movements boolean, refusals boolean
)
RETURNS SETOF ledger_entry
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off
AS $$
BEGIN
    IF movements AND newest THEN
        RETURN QUERY
        SELECT *
        FROM ledger_entry e
        WHERE e.kind <> 'refusal'
            AND ledger_slot(e.recorded_at) BETWEEN ledger_slot(bound) AND ledger_slot(at)
            AND (e.recorded_at, e.holder_id, e.credit_type, e.sequence) < (at, holder, type, number)
            AND e.recorded_at >= bound
        ORDER BY ledger_slot(e.recorded_at) DESC, e.recorded_at DESC, e.holder_id DESC, e.credit_type DESC, e.sequence DESC
        LIMIT many;
    ELSIF movements THEN
        RETURN QUERY
        SELECT *
        FROM ledger_entry e
        WHERE e.kind <> 'refusal'
            AND ledger_slot(e.recorded_at) BETWEEN ledger_slot(at) AND ledger_slot(bound)
            AND (e.recorded_at, e.holder_id, e.credit_type, e.sequence) > (at, holder, type, number)
            AND e.recorded_at < bound
        ORDER BY ledger_slot(e.recorded_at), e.recorded_at, e.holder_id, e.credit_type, e.sequence
        LIMIT many;
    END IF;
    IF refusals AND newest THEN
        RETURN QUERY
        SELECT *
        FROM ledger_entry e
        WHERE e.kind = 'refusal'
            AND ledger_slot(e.recorded_at) BETWEEN ledger_slot(bound) AND ledger_slot(at)
            AND (e.recorded_at, e.holder_id, e.credit_type, e.sequence) < (at, holder, type, number)
            AND e.recorded_at >= bound
        ORDER BY ledger_slot(e.recorded_at) DESC, e.recorded_at DESC, e.holder_id DESC, e.credit_type DESC, e.sequence DESC
        LIMIT many;
    ELSIF refusals THEN
        RETURN QUERY
        SELECT *
        FROM ledger_entry e
        WHERE e.kind = 'refusal'
            AND ledger_slot(e.recorded_at) BETWEEN ledger_slot(at) AND ledger_slot(bound)
            AND (e.recorded_at, e.holder_id, e.credit_type, e.sequence) > (at, holder, type, number)
            AND e.recorded_at < bound
        ORDER BY ledger_slot(e.recorded_at), e.recorded_at, e.holder_id, e.credit_type, e.sequence
        LIMIT many;
    END IF;
END $$;

-- Returns up to `many` entries of all holders that have a reference, in no order, from the pages that may contain it.
CREATE FUNCTION ledger_referenced(wanted text, many integer) RETURNS SETOF ledger_entry
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT
SET enable_seqscan = off
AS $$
BEGIN
    RETURN QUERY SELECT * FROM ledger_entry e WHERE e.reference = wanted LIMIT many;
END $$;

-- Entries with a text key, for tools that cannot use a composite key, such as Django's admin.
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
    e.requested,
    COALESCE(e.effective_at, e.recorded_at) AS effective_at,
    e.recorded_at,
    e.kind,
    e.lots,
    e.drawn,
    e.holds,
    e.budgets,
    e.counterpart,
    e.rating,
    e.refusal,
    e.idempotency_key,
    e.request_digest,
    e.actor,
    e.reason,
    e.reference,
    e.metadata,
    e.sale,
    e.costs,
    e.cost_changes,
    e.overage,
    e.postpaid,
    e.claims,
    e.counts,
    e.next_grant_at,
    e.digest
FROM ledger_entry e;
COMMENT ON VIEW ledger_entry_listing IS 'Entries with a key of one column: holder/credit type/sequence.';

-- The last entry of each account: one lookup in the primary key per account, starting from its first entry.
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
    last.requested,
    last.effective_at,
    last.recorded_at,
    last.kind,
    last.lots,
    last.drawn,
    last.holds,
    last.budgets,
    last.counterpart,
    last.rating,
    last.refusal,
    last.idempotency_key,
    last.request_digest,
    last.actor,
    last.reason,
    last.reference,
    last.metadata,
    last.sale,
    last.costs,
    last.cost_changes,
    last.overage,
    last.postpaid,
    last.claims,
    last.counts,
    last.next_grant_at,
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

-- What entries changed of the costs of lots. For reports.
CREATE VIEW ledger_cost_change AS
SELECT
    e.holder_id,
    e.credit_type,
    e.sequence,
    e.kind,
    (change ->> 0)::bigint AS lot,
    (change ->> 1)::numeric AS minor,
    change ->> 2 AS currency,
    e.recorded_at
FROM ledger_entry e
CROSS JOIN LATERAL json_array_elements(e.cost_changes) AS change;
COMMENT ON VIEW ledger_cost_change IS 'One row for each entry and each lot whose cost the entry changed, in minor units, signed.';

-- The parts that entries took from, or gave back to, each grant. For reports.
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
COMMENT ON VIEW ledger_drawn IS 'One row for each entry and each lot that the entry took from or gave back to.';

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

-- Recurring grants -------------------------------------------------------------------------------------------------------------------------

-- The entries say all of it: the terms are on the entry that set them, how far it has got is on the last entry. This is the list of what is due.
CREATE TABLE ledger_recurring_grant (
    holder_id   text COLLATE "C" NOT NULL,
    credit_type text COLLATE "C" NOT NULL,
    name        text COLLATE "C" NOT NULL,
    setting     bigint           NOT NULL,
    last        bigint           NOT NULL,
    next_at     timestamptz,
    PRIMARY KEY (holder_id, credit_type, name),
    CONSTRAINT ledger_recurring_grant_last_not_before_setting CHECK (setting >= 1 AND last >= setting),
    CONSTRAINT ledger_recurring_grant_texts_in_limits CHECK (
        char_length(holder_id) <= 64 AND char_length(credit_type) <= 32 AND char_length(name) <= 40
    )
);
CREATE INDEX ledger_recurring_grant_due ON ledger_recurring_grant (next_at) WHERE next_at IS NOT NULL;

COMMENT ON TABLE  ledger_recurring_grant         IS 'The recurring grants of accounts, also those that have ended: when the next grant is due.';
COMMENT ON COLUMN ledger_recurring_grant.setting IS 'Sequence of the entry of the account that set or ended it.';
COMMENT ON COLUMN ledger_recurring_grant.last    IS 'Sequence of the entry of the last period since then; without one, the same as setting.';
COMMENT ON COLUMN ledger_recurring_grant.next_at IS 'When the next period begins; null if nothing is left.';

-- Budgets ----------------------------------------------------------------------------------------------------------------------------------

-- What the subjects of budgets have used, by step of the window (docs/adr/0160). The entries say all of it, each what it changed; this is
-- where the next decision finds it. Only the trigger below writes it, with its owner's rights: so a counter is what the entries add up to,
-- and an entry that says something else is refused.
CREATE TABLE ledger_budget_counter (
    holder_id   text COLLATE "C" NOT NULL,
    credit_type text COLLATE "C" NOT NULL,
    setting     bigint           NOT NULL,
    start_us    bigint           NOT NULL,
    used        bigint           NOT NULL,
    sequence    bigint           NOT NULL,
    subject     text COLLATE "C" NOT NULL,
    PRIMARY KEY (holder_id, credit_type, setting, start_us, subject),
    CONSTRAINT ledger_budget_counter_not_below_0       CHECK (used >= 0),
    CONSTRAINT ledger_budget_counter_after_its_setting CHECK (setting >= 1 AND sequence > setting),
    CONSTRAINT ledger_budget_counter_texts_in_limits   CHECK (
        char_length(holder_id) <= 64 AND char_length(credit_type) <= 32 AND octet_length(subject) <= 2400
    )
);

COMMENT ON TABLE  ledger_budget_counter          IS 'What the subjects of budgets have used, by step of the window.';
COMMENT ON COLUMN ledger_budget_counter.setting  IS 'Sequence of the entry of the account from which the budget counts.';
COMMENT ON COLUMN ledger_budget_counter.start_us IS 'The start of the step, in microseconds since 1970. A calendar window is one step, a rolling one has 25.';
COMMENT ON COLUMN ledger_budget_counter.used     IS 'What was used in the step, holds included.';
COMMENT ON COLUMN ledger_budget_counter.sequence IS 'Sequence of the last entry that changed it.';
COMMENT ON COLUMN ledger_budget_counter.subject  IS 'Whose use it is: an actor, a reference or the value of a label; empty for the whole account and for no label; of a nested budget a JSON array of the subjects of its parents and its own.';

-- Adds what an entry counts to the counters of its subjects, and refuses the entry if it says something else than they do then: a session
-- without the lock decided by a counter that has changed since. Also refused are counts of another amount than the entry's, of a budget that
-- the account does not have, and what exceeds a hard limit. A copied entry comes with its copied counters, so this is not for copies.
CREATE FUNCTION ledger_count_entry() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off
AS $$
DECLARE
    counted json;
    budget  json;
    counter bigint;
    total   numeric;
BEGIN
    FOR counted IN SELECT json_array_elements(NEW.counts) LOOP
        IF NEW.amount < 0 THEN
            INSERT INTO ledger_budget_counter AS known (holder_id, credit_type, setting, subject, start_us, used, sequence)
            VALUES (
                NEW.holder_id, NEW.credit_type, (counted ->> 0)::bigint, counted ->> 1, (counted ->> 2)::bigint, -NEW.amount, NEW.sequence
            )
            ON CONFLICT (holder_id, credit_type, setting, start_us, subject)
            DO UPDATE SET used = known.used - NEW.amount, sequence = NEW.sequence
            RETURNING known.used INTO counter;
        ELSE
            UPDATE ledger_budget_counter AS known
            SET used = known.used - NEW.amount, sequence = NEW.sequence
            WHERE known.holder_id = NEW.holder_id
                AND known.credit_type = NEW.credit_type
                AND known.setting = (counted ->> 0)::bigint
                AND known.start_us = (counted ->> 2)::bigint
                AND known.subject = counted ->> 1
            RETURNING known.used INTO counter;
        END IF;
        SELECT b INTO budget FROM json_array_elements(NEW.budgets) AS b WHERE b ->> 9 = counted ->> 0;
        total := counter;
        IF budget ->> 3 IS NOT NULL AND NEW.amount < 0 THEN
            SELECT sum(c.used) INTO total
            FROM ledger_budget_counter c
            WHERE c.holder_id = NEW.holder_id
                AND c.credit_type = NEW.credit_type
                AND c.setting = (counted ->> 0)::bigint
                AND c.start_us = ANY (ARRAY(
                    SELECT generate_series(
                        (counted ->> 2)::bigint - (budget ->> 3)::bigint * 3600000000, (counted ->> 2)::bigint,
                        (budget ->> 3)::bigint * 150000000
                    )
                ))
                AND c.subject = counted ->> 1;
        END IF;
        IF budget IS NULL
            OR (counted ->> 3)::bigint <> -NEW.amount
            OR (counted ->> 4)::bigint IS DISTINCT FROM counter
            OR (NEW.amount < 0 AND COALESCE(counted ->> 5, counted ->> 4)::bigint <> total)
            OR (NEW.amount < 0 AND budget ->> 8 = '1' AND total > (budget ->> 1)::bigint)
        THEN
            RAISE EXCEPTION 'entry % of %/% does not count what its budgets do', NEW.sequence, NEW.holder_id, NEW.credit_type
                USING ERRCODE = 'LG002', TABLE = 'ledger_entry';
        END IF;
    END LOOP;
    RETURN NULL;
END $$;
-- Anyone who could create a trigger with this function could write counters.
REVOKE ALL ON FUNCTION ledger_count_entry() FROM PUBLIC;

CREATE TRIGGER counted AFTER INSERT ON ledger_entry
    FOR EACH ROW WHEN (NEW.counts IS NOT NULL)
    EXECUTE FUNCTION ledger_count_entry();

-- Returns the counters of subjects: one row for each step of the window `firsts` .. `lasts`, whose steps are `widths` apart, in which
-- something was counted; `place` is the place in the arrays. About the settings see Note [Plans that stay right].
CREATE FUNCTION ledger_budget_counters(
    holders text[], types text[], settings bigint[], subjects text[], firsts bigint[], lasts bigint[], widths bigint[]
)
RETURNS TABLE (place integer, start_us bigint, used bigint)
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off
AS $$
BEGIN
    FOR place IN 1 .. cardinality(holders) LOOP
        RETURN QUERY
        SELECT place, c.start_us, c.used
        FROM ledger_budget_counter c
        WHERE c.holder_id = holders[place]
            AND c.credit_type = types[place]
            AND c.setting = settings[place]
            AND c.start_us = ANY (ARRAY(SELECT generate_series(firsts[place], lasts[place], widths[place])))
            AND c.subject = subjects[place];
    END LOOP;
END $$;

-- Usage ------------------------------------------------------------------------------------------------------------------------------------

-- What an account used, by label, rate and day (docs/adr/0165): the sums of its entries up to the last one whose sequence is a multiple of
-- 256. A read adds the entries after that one. Only the trigger below writes it, with its owner's rights.
CREATE TABLE ledger_usage (
    holder_id        text COLLATE "C" NOT NULL,
    credit_type      text COLLATE "C" NOT NULL,
    entries          bigint           NOT NULL,
    day              date             NOT NULL,
    amount           numeric(38)      NOT NULL,
    postpaid         numeric(38)      NOT NULL,
    dimension        text COLLATE "C" NOT NULL,
    value            text COLLATE "C" NOT NULL,
    quarters         smallint[]       NOT NULL,
    quarter_rates    smallint[]       NOT NULL,
    quarter_amounts  numeric(38)[]    NOT NULL,
    quarter_postpaid numeric(38)[]    NOT NULL,
    quarter_entries  bigint[]         NOT NULL,
    rates            text[] COLLATE "C" NOT NULL,
    rate_amounts     numeric(38)[]    NOT NULL,
    rate_postpaid    numeric(38)[]    NOT NULL,
    rate_entries     bigint[]         NOT NULL,
    PRIMARY KEY (holder_id, credit_type, dimension, day, value),
    CONSTRAINT ledger_usage_of_entries      CHECK (entries >= 1),
    CONSTRAINT ledger_usage_by_quarter      CHECK (
        cardinality(quarters) >= 1
        AND cardinality(quarters) = cardinality(quarter_rates)
        AND cardinality(quarters) = cardinality(quarter_amounts)
        AND cardinality(quarters) = cardinality(quarter_postpaid)
        AND cardinality(quarters) = cardinality(quarter_entries)
    ),
    CONSTRAINT ledger_usage_by_rate         CHECK (
        cardinality(rates) = cardinality(rate_amounts)
        AND cardinality(rates) = cardinality(rate_postpaid)
        AND cardinality(rates) = cardinality(rate_entries)
        AND cardinality(rates) >= ALL (quarter_rates)
        AND CASE WHEN dimension LIKE 'label:%' THEN 1 <= ALL (quarter_rates) ELSE 0 <= ALL (quarter_rates) AND cardinality(rates) = 0 END
    ),
    CONSTRAINT ledger_usage_dimension_known CHECK (dimension IN ('', 'rate') OR dimension LIKE 'label:_%'),
    CONSTRAINT ledger_usage_texts_in_limits CHECK (
        char_length(holder_id) <= 64
        AND char_length(credit_type) <= 32
        AND char_length(dimension) <= 70
        AND char_length(value) <= 200
    )
);

COMMENT ON TABLE  ledger_usage                  IS 'What accounts used by label, rate and day, up to the last entry of each whose sequence is a multiple of 256.';
COMMENT ON COLUMN ledger_usage.day              IS 'The day in UTC on which the entries count.';
COMMENT ON COLUMN ledger_usage.entries          IS 'How many spends, captures and refunds.';
COMMENT ON COLUMN ledger_usage.amount           IS 'What spends and captures took, less what refunds returned on that day, whenever it was used.';
COMMENT ON COLUMN ledger_usage.postpaid         IS 'How much of it was used on overage, less what came back.';
COMMENT ON COLUMN ledger_usage.dimension        IS 'rate, label: and the key in the metadata, or empty for everything.';
COMMENT ON COLUMN ledger_usage.value            IS 'The rate, or the label''s value; empty for everything, and for all values of the day that have no row of their own.';
COMMENT ON COLUMN ledger_usage.quarters         IS 'The quarters of an hour since the start of the day that have entries, 0 .. 95; each once for each of its rates.';
COMMENT ON COLUMN ledger_usage.quarter_rates    IS 'Of a label: the place in rates of the rate of each of them; else 0.';
COMMENT ON COLUMN ledger_usage.quarter_amounts  IS 'The amount of each of them.';
COMMENT ON COLUMN ledger_usage.quarter_postpaid IS 'How much of it was on overage.';
COMMENT ON COLUMN ledger_usage.quarter_entries  IS 'How many entries.';
COMMENT ON COLUMN ledger_usage.rates            IS 'Of a label: the rates by which its value was used; null for use without a rate, empty for all rates of the day that have no row of their own.';
COMMENT ON COLUMN ledger_usage.rate_amounts     IS 'The amount of each rate.';
COMMENT ON COLUMN ledger_usage.rate_postpaid    IS 'How much of it was on overage.';
COMMENT ON COLUMN ledger_usage.rate_entries     IS 'How many entries.';

-- Returns what an account used by its entries after one of a sequence, up to another: by dimension, value, day, quarter of an hour and, of a
-- label, rate. A capture has the labels of its hold and its own, which prevail; a refund has those of the spend, and the day on which it was made. A use without a
-- label "model" counts as the model that its rate names. See Note [Plans that stay right].
CREATE FUNCTION ledger_usage_of(holder text, type text, after bigint, upto bigint)
RETURNS TABLE (dimension text, value text, rate text, day date, quarter smallint, amount numeric, postpaid numeric, entries bigint)
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT
SET enable_seqscan = off SET enable_bitmapscan = off
AS $$
BEGIN
    RETURN QUERY
    WITH moved AS (
        SELECT
            COALESCE(e.effective_at, e.recorded_at) AT TIME ZONE 'UTC' AS at,
            CASE e.kind
                WHEN 'spend' THEN -e.amount
                WHEN 'capture' THEN (SELECT COALESCE(sum((part ->> 1)::numeric), 0) FROM json_array_elements(e.drawn) AS part)
                WHEN 'refund' THEN -e.amount
            END::numeric AS amount,
            COALESCE(CASE WHEN e.kind = 'refund' THEN -e.postpaid WHEN e.kind IN ('spend', 'capture') THEN e.postpaid END, 0) AS postpaid,
            COALESCE(u.rating ->> 'rate', h.rating ->> 'rate') AS rate,
            COALESCE(h.metadata::jsonb, '{}') || COALESCE(u.metadata::jsonb, '{}') AS labels
        FROM ledger_entry e
        -- The use: of a refund, what it refunds.
        CROSS JOIN LATERAL (
            SELECT e.kind, e.refers_to, e.rating, e.metadata
            WHERE e.kind <> 'refund'
            UNION ALL
            SELECT s.kind, s.refers_to, s.rating, s.metadata
            FROM ledger_entry s
            WHERE e.kind = 'refund' AND s.holder_id = holder AND s.credit_type = type AND s.sequence = e.refers_to
        ) AS u
        LEFT JOIN LATERAL (
            SELECT s.rating, s.metadata
            FROM ledger_entry s
            WHERE u.kind = 'capture' AND s.holder_id = holder AND s.credit_type = type AND s.sequence = u.refers_to
            -- Looked up for each capture, never joined with all entries.
            LIMIT 1
        ) AS h ON true
        WHERE e.holder_id = holder
            AND e.credit_type = type
            AND e.sequence > after
            AND e.sequence <= upto
            AND e.kind IN ('spend', 'capture', 'refund')
    )
    SELECT
        d.dimension, d.value, d.rate, m.at::date, floor(EXTRACT(epoch FROM m.at - date_trunc('day', m.at)) / 900)::smallint,
        sum(m.amount), sum(m.postpaid), count(*)
    FROM moved m
    CROSS JOIN LATERAL (
        SELECT '' AS dimension, '' AS value, NULL AS rate
        UNION ALL
        SELECT 'rate', m.rate, NULL
        WHERE m.rate IS NOT NULL
        UNION ALL
        SELECT 'label:model', m.rate, m.rate
        WHERE m.rate IS NOT NULL AND COALESCE(m.labels ->> 'model', '') = ''
        UNION ALL
        SELECT
            'label:' || label.key,
            CASE WHEN char_length(label.value) > 200 THEN left(label.value, 199) || '…' ELSE label.value END,
            m.rate
        FROM jsonb_each_text(m.labels) AS label
        WHERE label.value <> '' AND label.key <> ''
    ) AS d
    GROUP BY 1, 2, 3, 4, 5;
END $$;

-- Adds 256 entries to the usage of their account. Of a label and day, 200 values have a row of their own; what comes later, when others have
-- theirs, is summed up. So are all values of a label that has another one on each of more than 20 entries, such as the id of a request. Once
-- something is summed up, no further value of that day gets a row: a row always has all of its value.
CREATE FUNCTION ledger_sum_usage() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT
SET enable_seqscan = off SET enable_bitmapscan = off
AS $$
BEGIN
    WITH fresh AS MATERIALIZED (
        SELECT * FROM ledger_usage_of(NEW.holder_id, NEW.credit_type, NEW.sequence - 256, NEW.sequence)
    ), known AS MATERIALIZED (
        SELECT t.dimension, t.day, u.values
        FROM (SELECT DISTINCT f.dimension, f.day FROM fresh f WHERE f.dimension <> '') AS t
        CROSS JOIN LATERAL (
            SELECT COALESCE(array_agg(u.value), '{}') AS values
            FROM ledger_usage u
            WHERE u.holder_id = NEW.holder_id AND u.credit_type = NEW.credit_type AND u.dimension = t.dimension AND u.day = t.day
        ) AS u
    ), valued AS (
        SELECT
            v.dimension, v.day, v.value, v.values, v.has_row,
            row_number() OVER (PARTITION BY v.dimension, v.day, v.has_row ORDER BY v.moved DESC, v.value) AS place,
            sum(v.entries) OVER (PARTITION BY v.dimension, v.day) > count(*) OVER (PARTITION BY v.dimension, v.day) AS repeats,
            count(*) OVER (PARTITION BY v.dimension, v.day) AS found
        FROM (
            SELECT f.dimension, f.day, f.value, k.values, f.value = ANY (k.values) AS has_row, sum(f.amount) AS moved, sum(f.entries) AS entries
            FROM fresh f
            JOIN known k ON k.dimension = f.dimension AND k.day = f.day
            GROUP BY f.dimension, f.day, f.value, k.values
        ) AS v
    ), named AS MATERIALIZED (
        SELECT v.dimension, v.day, v.value
        FROM valued v
        WHERE v.has_row
            OR (
                '' <> ALL (v.values)
                AND cardinality(v.values) + v.place <= 200
                AND (cardinality(v.values) > 0 OR v.found <= 20 OR v.repeats)
            )
    ), parts AS MATERIALIZED (
        SELECT
            f.dimension, f.day, COALESCE(n.value, '') AS value, f.quarter, CASE WHEN f.rate IS NOT NULL THEN COALESCE(r.value, '') END AS rate,
            sum(f.amount) AS amount, sum(f.postpaid) AS postpaid, sum(f.entries)::bigint AS entries
        FROM fresh f
        LEFT JOIN named n ON n.dimension = f.dimension AND n.day = f.day AND n.value = f.value
        LEFT JOIN named r ON r.dimension = 'rate' AND r.day = f.day AND r.value = f.rate
        GROUP BY 1, 2, 3, 4, 5
    ), rated AS (
        SELECT
            s.dimension, s.day, s.value, array_agg(s.rate ORDER BY s.rate) AS rates, array_agg(s.amount ORDER BY s.rate) AS amounts,
            array_agg(s.postpaid ORDER BY s.rate) AS postpaid, array_agg(s.entries ORDER BY s.rate) AS entries
        FROM (
            SELECT
                p.dimension, p.day, p.value, p.rate,
                sum(p.amount) AS amount, sum(p.postpaid) AS postpaid, sum(p.entries)::bigint AS entries
            FROM parts p
            WHERE p.dimension LIKE 'label:%'
            GROUP BY 1, 2, 3, 4
        ) AS s
        GROUP BY 1, 2, 3
    ), quarters AS (
        SELECT
            p.dimension, p.day, p.value, p.quarter, COALESCE(array_position(r.rates, p.rate), 0)::smallint AS rate,
            p.amount, p.postpaid, p.entries
        FROM parts p
        LEFT JOIN rated r ON r.dimension = p.dimension AND r.day = p.day AND r.value = p.value
    ), rows AS (
        SELECT
            q.dimension, q.day, q.value, sum(q.amount) AS amount, sum(q.postpaid) AS postpaid, sum(q.entries) AS entries,
            array_agg(q.quarter ORDER BY q.quarter, q.rate) AS quarters, array_agg(q.rate ORDER BY q.quarter, q.rate) AS rates,
            array_agg(q.amount ORDER BY q.quarter, q.rate) AS amounts, array_agg(q.postpaid ORDER BY q.quarter, q.rate) AS each_postpaid,
            array_agg(q.entries ORDER BY q.quarter, q.rate) AS each_entries
        FROM quarters q
        GROUP BY 1, 2, 3
    )
    INSERT INTO ledger_usage AS known (
        holder_id, credit_type, entries, day, amount, postpaid, dimension, value,
        quarters, quarter_rates, quarter_amounts, quarter_postpaid, quarter_entries,
        rates, rate_amounts, rate_postpaid, rate_entries
    )
    SELECT
        NEW.holder_id, NEW.credit_type, w.entries, w.day, w.amount, w.postpaid, w.dimension, w.value,
        w.quarters, w.rates, w.amounts, w.each_postpaid, w.each_entries,
        COALESCE(r.rates, '{}'), COALESCE(r.amounts, '{}'), COALESCE(r.postpaid, '{}'), COALESCE(r.entries, '{}')
    FROM rows w
    LEFT JOIN rated r ON r.dimension = w.dimension AND r.day = w.day AND r.value = w.value
    ON CONFLICT (holder_id, credit_type, dimension, day, value) DO UPDATE SET
        entries = known.entries + excluded.entries,
        amount = known.amount + excluded.amount,
        postpaid = known.postpaid + excluded.postpaid,
        -- New rates come after those that the row has: the places of these stay.
        (quarters, quarter_rates, quarter_amounts, quarter_postpaid, quarter_entries) = (
            SELECT
                array_agg(s.quarter ORDER BY s.quarter, s.rate), array_agg(s.rate ORDER BY s.quarter, s.rate),
                array_agg(s.amount ORDER BY s.quarter, s.rate), array_agg(s.postpaid ORDER BY s.quarter, s.rate),
                array_agg(s.entries ORDER BY s.quarter, s.rate)
            FROM (
                SELECT
                    part.quarter, part.rate::smallint AS rate,
                    sum(part.amount) AS amount, sum(part.postpaid) AS postpaid, sum(part.entries)::bigint AS entries
                FROM (
                    SELECT *
                    FROM unnest(
                        known.quarters, known.quarter_rates, known.quarter_amounts, known.quarter_postpaid, known.quarter_entries
                    )
                    UNION ALL
                    SELECT added.quarter, COALESCE(places.place, 0), added.amount, added.postpaid, added.entries
                    FROM unnest(
                        excluded.quarters, excluded.quarter_rates, excluded.quarter_amounts, excluded.quarter_postpaid,
                        excluded.quarter_entries
                    ) AS added (quarter, rate, amount, postpaid, entries)
                    LEFT JOIN (
                        SELECT
                            r.own,
                            COALESCE(
                                array_position(known.rates, r.rate),
                                cardinality(known.rates) + count(*) FILTER (WHERE array_position(known.rates, r.rate) IS NULL) OVER (ORDER BY r.own)
                            ) AS place
                        FROM unnest(excluded.rates) WITH ORDINALITY AS r (rate, own)
                    ) AS places ON places.own = added.rate
                ) AS part (quarter, rate, amount, postpaid, entries)
                GROUP BY part.quarter, part.rate
            ) AS s
        ),
        (rates, rate_amounts, rate_postpaid, rate_entries) = (
            SELECT
                COALESCE(array_agg(s.rate ORDER BY s.place), '{}'), COALESCE(array_agg(s.amount ORDER BY s.place), '{}'),
                COALESCE(array_agg(s.postpaid ORDER BY s.place), '{}'), COALESCE(array_agg(s.entries ORDER BY s.place), '{}')
            FROM (
                SELECT
                    part.rate, min(part.place) AS place,
                    sum(part.amount) AS amount, sum(part.postpaid) AS postpaid, sum(part.entries)::bigint AS entries
                FROM (
                    SELECT *
                    FROM unnest(known.rates, known.rate_amounts, known.rate_postpaid, known.rate_entries) WITH ORDINALITY
                    UNION ALL
                    SELECT added.rate, added.amount, added.postpaid, added.entries, cardinality(known.rates) + added.place
                    FROM unnest(excluded.rates, excluded.rate_amounts, excluded.rate_postpaid, excluded.rate_entries)
                        WITH ORDINALITY AS added (rate, amount, postpaid, entries, place)
                ) AS part (rate, amount, postpaid, entries, place)
                GROUP BY part.rate
            ) AS s
        );
    RETURN NULL;
END $$;
-- Anyone who could create a trigger with this function could write sums.
REVOKE ALL ON FUNCTION ledger_sum_usage() FROM PUBLIC;

-- One entry of 256 pays for all; the others compare one number. A copied entry comes with its copied sums.
CREATE TRIGGER summed AFTER INSERT ON ledger_entry
    FOR EACH ROW WHEN (NEW.sequence % 256 = 0)
    EXECUTE FUNCTION ledger_sum_usage();

-- Credit types -----------------------------------------------------------------------------------------------------------------------------

-- For display only: no rule and no entry depends on it, and a type without a row works like any other.
CREATE TABLE ledger_credit_type (
    code  text COLLATE "C" PRIMARY KEY,
    name  varchar(60)      NOT NULL,
    unit  varchar(16)      NOT NULL,
    scale smallint         NOT NULL DEFAULT 0,
    CONSTRAINT ledger_credit_type_code_fits  CHECK (code ~ '^[a-z0-9_]{1,32}$'),
    CONSTRAINT ledger_credit_type_scale_fits CHECK (scale BETWEEN 0 AND 12)
);

COMMENT ON TABLE  ledger_credit_type       IS 'How pages show amounts of a credit type. The ledger itself counts whole numbers.';
COMMENT ON COLUMN ledger_credit_type.code  IS 'The credit type.';
COMMENT ON COLUMN ledger_credit_type.name  IS 'The full name of the credit type.';
COMMENT ON COLUMN ledger_credit_type.unit  IS 'The unit, shown after an amount.';
COMMENT ON COLUMN ledger_credit_type.scale IS 'Decimals: an amount is shown divided by 10 to this power.';

-- How these types are shown now, for a document that must always look the same: {"usd_cents": ["USD", 2]}, without types that have no row.
CREATE FUNCTION ledger_shown_units(codes text[]) RETURNS jsonb
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
BEGIN
    RETURN (
        SELECT coalesce(jsonb_object_agg(shown.code, jsonb_build_array(shown.unit, shown.scale)), '{}')
        FROM ledger_credit_type AS shown WHERE shown.code = ANY (codes)
    );
END;
$$;

-- Rates ------------------------------------------------------------------------------------------------------------------------------------

CREATE TABLE ledger_rate (
    credit_type       text COLLATE "C" NOT NULL,
    code              text COLLATE "C" NOT NULL,
    version           integer          NOT NULL,
    price             bigint,
    per               bigint,
    components        json,
    published_at      timestamptz      NOT NULL,
    published_by      text             NOT NULL,
    published_because text             NOT NULL,
    idempotency_key   text COLLATE "C",
    request_digest    bytea,

    PRIMARY KEY (credit_type, code, version),
    CONSTRAINT ledger_rate_positive CHECK (version >= 1 AND price >= 0 AND per >= 1),
    CONSTRAINT ledger_rate_one_price_or_components CHECK (
        (price IS NULL) = (per IS NULL) AND (price IS NULL) = (components IS NOT NULL) AND json_typeof(components) = 'object'
    ),
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
COMMENT ON COLUMN ledger_rate.price             IS 'The credits that `per` units cost; 0 if they are free. Null if the rate has components.';
COMMENT ON COLUMN ledger_rate.per               IS 'The number of units that `price` credits pay for. A cost is rounded up to whole credits.';
COMMENT ON COLUMN ledger_rate.components        IS 'By name, the price of each component: {"input": {"price": 1, "per": 1000}}. The exact sum of all costs is rounded up once to whole credits.';
COMMENT ON COLUMN ledger_rate.published_because IS 'The publisher''s reason.';
COMMENT ON COLUMN ledger_rate.idempotency_key   IS 'The key of the request that published the version; null if the request had no key.';

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
CREATE INDEX ledger_batch_request ON ledger_batch (request_id);
CREATE INDEX ledger_batch_recorded_at ON ledger_batch (recorded_at, confined_to, idempotency_key);

COMMENT ON TABLE  ledger_batch             IS 'Executed batches, so that a retry gets the same outcomes.';
COMMENT ON COLUMN ledger_batch.confined_to IS 'The holder to which the API key is confined, or empty. Other API keys neither see nor use up the idempotency keys of such a key.';
COMMENT ON COLUMN ledger_batch.outcomes    IS 'For each operation, the data to repeat its outcome.';

CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON ledger_batch
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
ALTER TABLE ledger_batch ENABLE ALWAYS TRIGGER append_only;

CREATE VIEW ledger_batch_listing AS
SELECT b.confined_to || '/' || b.idempotency_key AS id, b.*
FROM ledger_batch b;
COMMENT ON VIEW ledger_batch_listing IS 'Batches with a key of one column: confined to/idempotency key.';

-- Operators --------------------------------------------------------------------------------------------------------------------------------

-- Logins, keys, permissions, exports, forms about credits: docs/how-to/admin.md. It has no foreign keys: what a row names may be gone, or never have existed.
CREATE TABLE ledger_staff_event (
    id          bigint      GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
    recorded_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    actor       text        NOT NULL,
    address     text        NOT NULL,
    action      text        NOT NULL,
    object      text        NOT NULL,
    details     text        NOT NULL,
    request_id  text        NOT NULL,
    CONSTRAINT ledger_staff_event_names_action   CHECK (action <> ''),
    CONSTRAINT ledger_staff_event_texts_in_limits CHECK (
        char_length(actor) <= 200
        AND char_length(address) <= 64
        AND char_length(action) <= 40
        AND char_length(object) <= 200
        AND char_length(details) <= 1000
        AND char_length(request_id) <= 64
    )
);
CREATE INDEX ledger_staff_event_recorded_at ON ledger_staff_event (recorded_at, id);

COMMENT ON TABLE  ledger_staff_event            IS 'What operators did, and who tried to log in. Append-only.';
COMMENT ON COLUMN ledger_staff_event.actor      IS 'admin: and the operator''s name; for a failed login the typed name; "command" for a command line.';
COMMENT ON COLUMN ledger_staff_event.address    IS 'The client''s address, or empty.';
COMMENT ON COLUMN ledger_staff_event.action     IS 'What was done, such as login-failed.';
COMMENT ON COLUMN ledger_staff_event.object     IS 'What it was done to, such as user ben.';
COMMENT ON COLUMN ledger_staff_event.details    IS 'What changed, in words; never a secret.';
COMMENT ON COLUMN ledger_staff_event.request_id IS 'The request''s id, as in the log, or empty.';

CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON ledger_staff_event
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
ALTER TABLE ledger_staff_event ENABLE ALWAYS TRIGGER append_only;

-- Signals ----------------------------------------------------------------------------------------------------------------------------------

-- Whether anybody wants signals of this type. The application of signals replaces the function: without it, nobody does. So a trigger of
-- any application may ask before it writes a signal.
CREATE FUNCTION ledger_signal_is_wanted(wanted text) RETURNS boolean
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
BEGIN
    RETURN false;
END $$;

-- What is registered -----------------------------------------------------------------------------------------------------------------------

CALL ledger_have_registered('ledger_batch', '{confined_to,idempotency_key}');
CALL ledger_have_registered('ledger_rate', '{credit_type,code,version}');
CALL ledger_have_registered('ledger_staff_event', '{id}');
CALL ledger_have_registered('ledger_credit_type', '{code}', '{name,unit,scale}');
-- The application may delete these.
CREATE TRIGGER unregistered AFTER DELETE ON ledger_credit_type FOR EACH ROW EXECUTE FUNCTION ledger_register_row('code');
