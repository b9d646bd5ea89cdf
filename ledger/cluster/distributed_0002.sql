-- The functions of distributed.sql that get another body by migration 0002 of the ledger. `manage.py prepare_database` runs this file on a
-- cluster, after that one.

-- Each function keeps its schema as its search path, as in schema.sql.
SELECT set_config('search_path', format('%I, pg_temp', current_schema()), true);

-- As in migration 0002, but on a shard: the counters of its holders are on the same node, in a shard whose name is known only when the trigger
-- fires.
CREATE OR REPLACE FUNCTION ledger_count_entry() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT
SET citus.enable_manual_changes_to_shards = on
AS $$
DECLARE
    counters   text := format('ledger_budget_counter_%s', get_shard_id_for_distribution_column('ledger_budget_counter', NEW.holder_id));
    counted    json;
    budget     json;
    counter    bigint;
    total      numeric;
    decided_us CONSTANT bigint := (extract(epoch FROM COALESCE(NEW.effective_at, NEW.recorded_at)) * 1000000)::bigint;
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
        budget := ledger_budget_in_force(NEW.budgets, counted ->> 0, decided_us);
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
