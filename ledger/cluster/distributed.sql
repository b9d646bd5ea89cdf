-- The functions of schema.sql that get another body when ledger_entry is distributed by holder (docs/adr/0043).
-- `manage.py prepare_database` runs this file on a cluster, and then distributes tables and functions. The signatures are the same, so
-- callers do not notice.
--
-- A delegated function runs completely on the node that has the holder's rows, even in the middle of a transaction. Citus delegates it only
-- if its arguments are constants: from PL/pgSQL this means EXECUTE … USING. Citus would inline a function in SQL, and never delegate it.

-- Each function keeps its schema as its search path, as in schema.sql.
SELECT set_config('search_path', format('%I, pg_temp', current_schema()), true);

-- A unique index of a distributed table contains the holder. This one finds the rows of earlier imports; two imports at the same time are
-- not kept apart.
DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_index WHERE indexrelid = 'ledger_entry_imported'::regclass AND indisunique) THEN
        DROP INDEX ledger_entry_imported;
        CREATE INDEX ledger_entry_imported ON ledger_entry (ledger_key_hash(idempotency_key))
            WHERE starts_with(actor, 'import:') AND idempotency_key IS NOT NULL;
    END IF;
END $$;

-- Returns the shard of a holder, or raises LG003 if this node does not have the shard, or if the session must not ask it: a lock taken on
-- another node would exclude nobody, and rows written there would be lost. Two kinds of sessions may ask: sessions at the coordinator, whose
-- catalog is always right, and sessions at this node itself. A session at another worker may not: a worker that was taken out of the cluster
-- still has its old catalog, and sends statements to where a shard was.
-- In a session in which Citus 14.0.1 failed to plan a part of a query, it delegates nothing any more; this function detects that too, and
-- the caller has to close that session.
CREATE OR REPLACE FUNCTION ledger_shard_here(home text) RETURNS text
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
DECLARE
    shard bigint := get_shard_id_for_distribution_column('ledger_entry', home);
BEGIN
    PERFORM
    FROM pg_dist_placement p
    JOIN pg_dist_local_group USING (groupid)
    JOIN pg_dist_node asking ON asking.nodeid = citus_nodeid_for_gpid(citus_backend_gpid()) AND asking.groupid IN (0, p.groupid)
    WHERE p.shardid = shard;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'this node does not have the holder, or the session comes from another worker' USING ERRCODE = 'LG003';
    END IF;
    RETURN 'ledger_entry_' || shard;
END $$;

-- Takes the holder's lock on the node of the holder's rows, so sessions of all nodes exclude each other.
CREATE OR REPLACE FUNCTION ledger_lock(number bigint, holder text, wait boolean) RETURNS boolean
LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM ledger_shard_here(holder);
    IF wait THEN
        PERFORM pg_advisory_xact_lock(number);
        RETURN true;
    END IF;
    RETURN pg_try_advisory_xact_lock(number);
END $$;

-- One place of the arrays of ledger_open, on the node of `home`: the holder, or without a holder the number as text.
-- About the settings see Note [Plans that stay right] in schema.sql.
-- It reads the shard directly, by a statement that is prepared once per shard and session: Citus would plan each read again,
-- which took two thirds of its time. When the statement is prepared, it checks who is asking, because a session always works for the same
-- client; the statement itself checks, under the lock, whether the shard is still here. If the shard moves away after that, the keys of the
-- table refuse a write that relies on what was read, as they refuse a writer without the lock.
CREATE OR REPLACE FUNCTION ledger_open_at(home text, number bigint, wait boolean, holder text, type text, key text, clocks boolean)
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
    number_of_shard bigint := get_shard_id_for_distribution_column('ledger_entry', home);
    shard           text := 'ledger_entry_' || number_of_shard;
    look            text;
    known           text;
    is_here         boolean;
BEGIN
    IF holder IS NULL THEN
        PERFORM ledger_shard_here(home);
    END IF;
    is_locked := true;
    is_used := false;
    IF wait THEN
        PERFORM pg_advisory_xact_lock(number);
    ELSIF NOT wait THEN
        is_locked := pg_try_advisory_xact_lock(number);
    END IF;
    IF is_locked AND holder IS NOT NULL THEN
        look := 'open_' || shard;
        known := 'ledger.open_' || shard;
        IF current_setting(known, true) IS DISTINCT FROM 'yes' THEN
            PERFORM ledger_shard_here(home);
            IF NOT EXISTS (SELECT FROM pg_prepared_statements WHERE name = look) THEN
                EXECUTE format(
                    'PREPARE %1$I (text, text, text, boolean) AS
                    SELECT
                        EXISTS (SELECT FROM pg_dist_placement p WHERE p.shardid = %3$s AND p.groupid = %4$s),
                        e.recorded_at, e.sequence, e.balance, e.held, e.lots, e.holds, e.overdraft, e.digest,
                        CASE e.kind WHEN ''refusal'' THEN (e.refusal ->> ''after'')::bigint ELSE e.sequence END,
                        (
                            SELECT f.counterpart ->> ''holder''
                            FROM %2$I f
                            WHERE f.holder_id = $1 AND f.kind = ''adjust'' AND f.counterpart ->> ''change'' IS NOT NULL
                            ORDER BY (f.counterpart ->> ''change'')::integer DESC
                            LIMIT 1
                        ),
                        e.budgets,
                        e.costs,
                        e.overage,
                        e.claims,
                        e.next_grant_at,
                        CASE WHEN $4 THEN (
                            SELECT (t.counterpart ->> ''clock'')::timestamptz
                            FROM %2$I t
                            WHERE t.holder_id = $1 AND t.kind = ''adjust'' AND t.counterpart ->> ''tick'' IS NOT NULL
                            ORDER BY (t.counterpart ->> ''tick'')::integer DESC
                            LIMIT 1
                        ) END,
                        (
                            SELECT true
                            FROM %2$I k
                            WHERE k.holder_id = $1
                                AND ledger_key_hash(k.idempotency_key) BETWEEN ledger_key_hash($3) AND ledger_key_hash($3)
                                AND k.idempotency_key IS NOT NULL
                            ORDER BY ledger_key_hash(k.idempotency_key)
                            LIMIT 1
                        ) IS NOT NULL
                    FROM (SELECT) AS one
                    LEFT JOIN LATERAL (
                        SELECT *
                        FROM %2$I
                        WHERE holder_id = $1 AND credit_type = $2
                        ORDER BY sequence DESC
                        LIMIT 1
                    ) e ON true',
                    look, shard, number_of_shard, (SELECT groupid FROM pg_dist_local_group)
                );
            END IF;
            PERFORM set_config(known, 'yes', false);
        END IF;
        EXECUTE format('EXECUTE %I (%L, %L, %L, %L)', look, holder, type, key, clocks)
        INTO is_here, recorded_at, sequence, balance, held, lots, holds, overdraft, digest, moved_by, freeze, budgets, costs, overage, claims, next_grant, clock, is_used;
        IF NOT is_here THEN
            RAISE EXCEPTION 'the holder has moved to another node' USING ERRCODE = 'LG003';
        END IF;
    END IF;
    now := clock_timestamp();
    RETURN NEXT;
END $$;

CREATE OR REPLACE FUNCTION ledger_open(wait boolean, lock_numbers bigint[], holders text[], types text[], keys text[], clocks boolean DEFAULT false)
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
LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
DECLARE
    place integer;
BEGIN
    FOR place IN 1 .. cardinality(lock_numbers) LOOP
        RETURN QUERY EXECUTE 'SELECT * FROM ledger_open_at($1, $2, $3, $4, $5, $6, $7)'
            USING COALESCE(holders[place], lock_numbers[place]::text), lock_numbers[place], wait, holders[place], types[place], keys[place],
                clocks;
    END LOOP;
END $$;

-- The states of accounts by their last entries, in the columns of an AccountRow (ledger/reads/account_state.py). Each account is a query of
-- one holder: a query of several holders cannot find the last entry of each.
CREATE OR REPLACE FUNCTION ledger_states(holders text[], types text[], clocks boolean DEFAULT false)
RETURNS TABLE (
    holder_id       text,
    credit_type     text,
    now             timestamptz,
    sequence        bigint,
    balance         bigint,
    held            bigint,
    lots            text,
    holds           text,
    overdraft       bigint,
    recorded_at     timestamptz,
    effective_times text,
    costs           text,
    overage         text,
    claims          text,
    next_grant      timestamptz
)
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
DECLARE
    place  integer;
    holder text;
    type   text;
    grants bigint[];
BEGIN
    FOR place IN 1 .. cardinality(holders) LOOP
        holder := holders[place];
        type := types[place];
        SELECT e.sequence, e.balance, e.held, e.lots::text, e.holds::text, e.overdraft, e.recorded_at, e.costs::text, e.overage::text, e.claims::text, e.next_grant_at
        INTO sequence, balance, held, lots, holds, overdraft, recorded_at, costs, overage, claims, next_grant
        FROM ledger_entry e
        WHERE e.holder_id = holder AND e.credit_type = type
        ORDER BY e.sequence DESC
        LIMIT 1;
        grants := ARRAY(SELECT (lot ->> 0)::bigint FROM json_array_elements(lots::json) AS lot WHERE lot ->> 2 = '0');
        SELECT json_object_agg(g.sequence, (extract(epoch FROM COALESCE(g.effective_at, g.recorded_at)) * 1000000)::bigint)::text
        INTO effective_times
        FROM ledger_entry g
        WHERE g.holder_id = holder AND g.credit_type = type AND g.sequence = ANY (grants);
        holder_id := holder;
        credit_type := type;
        now := COALESCE(CASE WHEN clocks THEN ledger_clock(holder) END, statement_timestamp());
        RETURN NEXT;
    END LOOP;
END $$;

-- A page of accounts, as PAGE in ledger/reads/holder_list.py: the first entries of all shards, then each account's state.
CREATE OR REPLACE FUNCTION ledger_page_of_accounts(
    is_after boolean, holder text, type text, prefix text, beyond text, only_type text, many integer, clocks boolean DEFAULT false
)
RETURNS TABLE (
    holder_id       text,
    credit_type     text,
    now             timestamptz,
    sequence        bigint,
    balance         bigint,
    held            bigint,
    lots            text,
    holds           text,
    overdraft       bigint,
    recorded_at     timestamptz,
    effective_times text,
    costs           text,
    overage         text,
    claims          text,
    next_grant      timestamptz
)
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
DECLARE
    holders text[];
    types   text[];
BEGIN
    EXECUTE format(
        'SELECT array_agg(page.holder_id), array_agg(page.credit_type)
        FROM (
            SELECT e.holder_id, e.credit_type
            FROM ledger_entry e
            WHERE e.sequence = 1
                AND (
                    e.kind <> ''refusal''
                    OR EXISTS (
                        SELECT
                        FROM ledger_entry moved
                        WHERE moved.holder_id = e.holder_id
                            AND moved.credit_type = e.credit_type
                            -- The kinds in the order of their index: an account begins with neither of these two.
                            AND moved.kind <> ''spend''
                            AND (moved.kind < ''refusal'' OR moved.kind > ''refusal'')
                    )
                )
                AND (e.holder_id, e.credit_type) %1$s ($1, $2)
                AND e.holder_id >= $3
                AND e.holder_id < $4
                AND (e.credit_type = $5 OR $5 IS NULL)
            ORDER BY e.holder_id %2$s, e.credit_type %2$s
            LIMIT $6
        ) AS page',
        CASE WHEN is_after THEN '>' ELSE '<' END,
        CASE WHEN is_after THEN 'ASC' ELSE 'DESC' END
    )
    INTO holders, types
    USING holder, type, prefix, beyond, only_type, many;
    RETURN QUERY SELECT * FROM ledger_states(COALESCE(holders, '{}'), COALESCE(types, '{}'), clocks);
END $$;

-- As in schema.sql, but Citus must not inline it: it cannot plan a set-returning function behind another.
CREATE OR REPLACE FUNCTION ledger_state_parts(number bigint, balance bigint, set_aside bigint, lots json, holds json)
RETURNS TABLE (
    source  text,
    expires text,
    is_held boolean,
    entries bigint,
    credits bigint,
    held    bigint
)
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
BEGIN
    RETURN QUERY
    SELECT NULL::text, NULL::text, NULL::boolean, number, balance, set_aside
    UNION ALL
    SELECT
        CASE lot ->> 5 WHEN '1' THEN 'promotional' WHEN '2' THEN 'postpaid' ELSE 'purchased' END,
        to_char(to_timestamp(floor((lot ->> 3)::numeric / 1000000)) AT TIME ZONE 'UTC', 'YYYY-MM'),
        in_hold,
        0,
        (lot ->> 1)::bigint,
        0
    FROM (
        SELECT false AS in_hold, lot
        FROM json_array_elements(lots) AS lot
        UNION ALL
        SELECT true, lot
        FROM json_array_elements(holds) AS hold
        CROSS JOIN LATERAL json_array_elements(hold -> 2) AS lot
    ) AS all_lots;
END $$;

-- As in schema.sql, but on a shard, whose name is known only when the trigger fires. The statement that reads the entry before is prepared
-- once per shard and session; planning it each time would take most of the time of an entry.
CREATE OR REPLACE FUNCTION ledger_entry_follows() RETURNS trigger
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    n           ledger_entry;
    look        text := format('ledger_before_%s', TG_RELID);
    known       text := format('ledger.before_%s', TG_RELID);
    balance     bigint;
    digest      bytea;
    recorded_at timestamptz;
    held        bigint;
    overdraft   bigint;
    budgets     text;
    costs       json;
    overage     json;
    claims      json;
    next_grant  timestamptz;
    lots        json;
    holds       json;
    rate        text;
    labels      json;
BEGIN
    -- If the transaction fails, the settings made here end with it, but the prepared statement stays. No block catches an error here: it
    -- would begin a savepoint on every node, in the middle of a COPY to them.
    IF current_setting(known, true) IS DISTINCT FROM 'yes' THEN
        -- A worker that was taken out of the cluster must not write here (ledger_shard_here).
        IF NOT EXISTS (
            SELECT
            FROM pg_dist_node
            WHERE nodeid = citus_nodeid_for_gpid(citus_backend_gpid()) AND groupid IN (0, (SELECT groupid FROM pg_dist_local_group))
        ) THEN
            RAISE EXCEPTION 'the session comes from another worker' USING ERRCODE = 'LG003';
        END IF;
        IF NOT EXISTS (SELECT FROM pg_prepared_statements WHERE name = look) THEN
            EXECUTE format(
                'PREPARE %I (text, text, bigint) AS
                SELECT e.balance, e.digest, e.recorded_at, e.held, e.overdraft, e.budgets::text, e.costs, e.overage, e.claims, e.next_grant_at,
                    e.lots, e.holds
                FROM %s e
                WHERE e.holder_id = $1 AND e.credit_type = $2 AND e.sequence = $3',
                look, TG_RELID::regclass
            );
        END IF;
        PERFORM set_config(known, 'yes', false);
    END IF;
    -- A CASE in the condition of IF stands in parentheses: PL/pgSQL would take its THEN for that of the IF.
    FOR n IN SELECT * FROM appended LOOP
        EXECUTE format('EXECUTE %I (%L, %L, %s)', look, n.holder_id, n.credit_type, n.sequence - 1)
        INTO balance, digest, recorded_at, held, overdraft, budgets, costs, overage, claims, next_grant, lots, holds;
        rate := n.rating ->> 'rate';
        labels := CASE WHEN (n.kind = 'spend' OR n.kind = 'hold') AND n.actor <> 'billing' THEN n.metadata END;
        IF n.kind = 'capture' AND strpos(concat(lots::text, holds::text), '{') > 0 THEN
            EXECUTE format(
                'SELECT COALESCE(%L, h.rating ->> ''rate''), h.metadata FROM %s h
                WHERE h.holder_id = %L AND h.credit_type = %L AND h.sequence = %s',
                rate, TG_RELID::regclass, n.holder_id, n.credit_type, n.refers_to
            )
            INTO rate, labels;
        END IF;
        IF (
                n.sequence > 1
                AND NOT COALESCE(
                    balance + n.amount = n.balance
                    AND recorded_at <= n.recorded_at
                    AND (held = n.held OR n.kind IN ('hold', 'capture', 'release'))
                    AND (overdraft IS NOT DISTINCT FROM n.overdraft OR n.kind = 'adjust')
                    AND (n.kind = 'adjust' OR budgets IS NOT DISTINCT FROM n.budgets::text)
                    AND (n.kind = 'adjust' OR n.kind = 'grant' OR next_grant IS NOT DISTINCT FROM n.next_grant_at),
                    false
                )
            )
            OR (n.recorded_at > clock_timestamp() AND n.recorded_at IS DISTINCT FROM recorded_at)
            OR n.digest <> ledger_entry_digest(COALESCE(digest, decode(repeat('00', 32), 'hex')), n)
            OR (
                SELECT CASE WHEN n.overdraft IS NULL THEN total <> n.balance ELSE total < n.balance END
                FROM (SELECT COALESCE(sum((lot ->> 1)::bigint), 0) AS total FROM json_array_elements(n.lots) lot) AS lots
            )
            OR (CASE
                WHEN n.costs IS NULL AND n.cost_changes IS NULL AND costs IS NULL THEN false
                ELSE ledger_costs_follow(costs, n.cost_changes, n.costs) IS NOT TRUE
            END)
            OR (CASE
                WHEN n.overage IS NULL AND overage IS NULL THEN false
                ELSE ledger_overage_follows(overage, n.kind, n.postpaid, n.overage) IS NOT TRUE
            END)
            OR (CASE
                WHEN n.claims IS NULL AND claims IS NULL THEN false
                ELSE ledger_claims_follow(claims, n.kind, n.amount, n.claims) IS NOT TRUE
            END)
            -- Only what a lot applies to has a brace.
            OR (CASE
                WHEN strpos(concat(lots::text, holds::text), '{') = 0 THEN false
                ELSE ledger_lots_apply(lots, holds, n.kind, n.drawn, rate, labels) IS NOT TRUE
            END)
        THEN
            RAISE EXCEPTION 'entry % of %/% does not follow from the one before it', n.sequence, n.holder_id, n.credit_type
                USING ERRCODE = 'LG002', TABLE = 'ledger_entry';
        END IF;
    END LOOP;
    RETURN NULL;
END $$;

-- As in schema.sql, but on a shard: the counters of its holders are on the same node, in a shard whose name is known only when the trigger
-- fires.
CREATE OR REPLACE FUNCTION ledger_count_entry() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT
SET citus.enable_manual_changes_to_shards = on
AS $$
DECLARE
    counters text := format('ledger_budget_counter_%s', get_shard_id_for_distribution_column('ledger_budget_counter', NEW.holder_id));
    counted  json;
    budget   json;
    counter  bigint;
    total    numeric;
BEGIN
    FOR counted IN SELECT json_array_elements(NEW.counts) LOOP
        EXECUTE format(
            CASE WHEN NEW.amount < 0 THEN
                'INSERT INTO %I AS known (holder_id, credit_type, setting, subject, start_us, used, sequence)
                VALUES ($1, $2, $3, $4, $5, $6, $7)
                ON CONFLICT (holder_id, credit_type, setting, start_us, subject) DO UPDATE SET used = known.used + $6, sequence = $7
                RETURNING known.used'
            ELSE
                'UPDATE %I SET used = used + $6, sequence = $7
                WHERE holder_id = $1 AND credit_type = $2 AND setting = $3 AND subject = $4 AND start_us = $5
                RETURNING used'
            END,
            counters
        )
        INTO counter
        USING NEW.holder_id, NEW.credit_type, (counted ->> 0)::bigint, counted ->> 1, (counted ->> 2)::bigint, -NEW.amount, NEW.sequence;
        SELECT b INTO budget FROM json_array_elements(NEW.budgets) AS b WHERE b ->> 9 = counted ->> 0;
        total := counter;
        IF budget ->> 3 IS NOT NULL AND NEW.amount < 0 THEN
            EXECUTE format(
                'SELECT sum(c.used) FROM %I c
                WHERE c.holder_id = $1 AND c.credit_type = $2 AND c.setting = $3 AND c.subject = $4
                    AND c.start_us = ANY (ARRAY(SELECT generate_series($5, $6, $7)))',
                counters
            )
            INTO total
            USING NEW.holder_id, NEW.credit_type, (counted ->> 0)::bigint, counted ->> 1,
                (counted ->> 2)::bigint - (budget ->> 3)::bigint * 3600000000, (counted ->> 2)::bigint,
                (budget ->> 3)::bigint * 150000000;
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

-- As in schema.sql, but on a shard: the sums of its holders are on the same node, in a shard whose name is known only when the trigger fires.
CREATE OR REPLACE FUNCTION ledger_sum_usage() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT
SET citus.enable_manual_changes_to_shards = on
AS $$
BEGIN
    EXECUTE format(
    $usage$
    WITH fresh AS MATERIALIZED (
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
            FROM %1$s e
            -- The use: of a refund, what it refunds.
            CROSS JOIN LATERAL (
                SELECT e.kind, e.refers_to, e.rating, e.metadata
                WHERE e.kind <> 'refund'
                UNION ALL
                SELECT s.kind, s.refers_to, s.rating, s.metadata
                FROM %1$s s
                WHERE e.kind = 'refund' AND s.holder_id = $1 AND s.credit_type = $2 AND s.sequence = e.refers_to
            ) AS u
            LEFT JOIN LATERAL (
                SELECT s.rating, s.metadata
                FROM %1$s s
                WHERE u.kind = 'capture' AND s.holder_id = $1 AND s.credit_type = $2 AND s.sequence = u.refers_to
                -- Looked up for each capture, never joined with all entries.
                LIMIT 1
            ) AS h ON true
            WHERE e.holder_id = $1
                AND e.credit_type = $2
                AND e.sequence > $3 - 256
                AND e.sequence <= $3
                AND e.kind IN ('spend', 'capture', 'refund')
        )
        SELECT
            d.dimension, d.value, d.rate, m.at::date AS day, floor(EXTRACT(epoch FROM m.at - date_trunc('day', m.at)) / 900)::smallint AS quarter,
            sum(m.amount) AS amount, sum(m.postpaid) AS postpaid, count(*) AS entries
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
        GROUP BY 1, 2, 3, 4, 5
    ), known AS MATERIALIZED (
        SELECT t.dimension, t.day, u.values
        FROM (SELECT DISTINCT f.dimension, f.day FROM fresh f WHERE f.dimension <> '') AS t
        CROSS JOIN LATERAL (
            SELECT COALESCE(array_agg(u.value), '{}') AS values
            FROM %2$I u
            WHERE u.holder_id = $1 AND u.credit_type = $2 AND u.dimension = t.dimension AND u.day = t.day
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
            WHERE p.dimension LIKE 'label:%%'
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
    INSERT INTO %2$I AS known (
        holder_id, credit_type, entries, day, amount, postpaid, dimension, value,
        quarters, quarter_rates, quarter_amounts, quarter_postpaid, quarter_entries,
        rates, rate_amounts, rate_postpaid, rate_entries
    )
    SELECT
        $1, $2, w.entries, w.day, w.amount, w.postpaid, w.dimension, w.value,
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
        )
    $usage$,
        TG_RELID::regclass, format('ledger_usage_%s', get_shard_id_for_distribution_column('ledger_usage', NEW.holder_id))
    )
    USING NEW.holder_id, NEW.credit_type, NEW.sequence;
    RETURN NULL;
END $$;

-- Queries of one holder, which run on a shard, call these functions; the rows that these read are on the same node.
ALTER FUNCTION ledger_sequence_at(text, text, timestamptz) SET citus.allow_nested_distributed_execution = on;
ALTER FUNCTION ledger_use_changed_since(text, text, timestamptz) SET citus.allow_nested_distributed_execution = on;
ALTER FUNCTION ledger_clock(text) SET citus.allow_nested_distributed_execution = on;
ALTER FUNCTION ledger_recorded_by(text, timestamptz) SET citus.allow_nested_distributed_execution = on;
ALTER FUNCTION ledger_movements(text, text, bigint, bigint, integer, boolean) SET citus.allow_nested_distributed_execution = on;
ALTER FUNCTION ledger_usage_of(text, text, bigint, bigint) SET citus.allow_nested_distributed_execution = on;
