-- Each function keeps the schema that the migration works in, as those of schema.sql.
SELECT set_config('search_path', format('%I, pg_temp', current_schema()), true);

-- Returns the budget that counts from an entry, of the budgets of an account, as it is in force at an instant; null without one. It may be one
-- of the settings of its name that come after the first: those with the same window and scope go on with the same counters.
CREATE FUNCTION ledger_budget_in_force(budgets json, setting text, at_us bigint) RETURNS json
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN (
    SELECT version
    FROM json_array_elements(budgets) AS budget
    CROSS JOIN LATERAL (SELECT budget AS version UNION ALL SELECT json_array_elements(budget -> 10 -> 'later')) AS versions
    WHERE version ->> 9 = setting
        AND COALESCE((version -> 10 ->> 'from')::bigint <= at_us, true)
        AND COALESCE((version -> 10 ->> 'until')::bigint > at_us, true)
    LIMIT 1
);

-- Adds what an entry counts to the counters of its subjects, and refuses the entry if it says something else than they do then: a session
-- without the lock decided by a counter that has changed since. Also refused are counts of another amount than the entry's, of a budget that
-- the account does not have, or that is not in force at the instant of the entry, and what exceeds a hard limit. A copied entry comes with its
-- copied counters, so this is not for copies.
CREATE OR REPLACE FUNCTION ledger_count_entry() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off
AS $$
DECLARE
    counted    json;
    budget     json;
    counter    bigint;
    total      numeric;
    decided_us CONSTANT bigint := (extract(epoch FROM COALESCE(NEW.effective_at, NEW.recorded_at)) * 1000000)::bigint;
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
        budget := ledger_budget_in_force(NEW.budgets, counted ->> 0, decided_us);
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

COMMENT ON COLUMN ledger_entry.budgets IS 'Budgets after this entry: [name, limit, window, hours, time zone, by, label, subject, 1 if hard, sequence from which it counts], and of one that nests its parent and [[by, label, subject]] of its parents; null if there are no budgets. One that is not always in force has instead of the parent {"parent": …, "from": µs, "until": µs, "later": [settings of the same name that come after it]}.';
