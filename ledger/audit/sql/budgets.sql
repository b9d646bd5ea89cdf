-- Entries after which the budgets are not what they were before, less what does not count any more, plus what the entry used or gave back.
--
-- Counted again from the entry alone: a spend, hold, transfer, or what a capture takes beyond its hold adds its amount to one step of each
-- budget that counts its actor, reference or label, within the limit of a hard budget; a release takes its amount from the step of its hold.
-- Settings change only by an adjustment that a request asked for.
SELECT 'budgets', f.holder_id, f.credit_type, f.sequence, f.kind || ' of ' || f.amount || ' with ' || left(f.budgets::text, 300), NULL
FROM (
    SELECT
        e.*,
        p.budgets AS p_budgets,
        (extract(epoch FROM COALESCE(e.effective_at, e.recorded_at)) * 1000000)::bigint AS decided_us,
        -- Whose actor, reference and metadata count: those of the hold, for what a capture takes beyond it.
        CASE WHEN h.sequence IS NULL THEN e.actor ELSE h.actor END AS by_actor,
        CASE WHEN h.sequence IS NULL THEN e.reference ELSE h.reference END AS by_reference,
        CASE WHEN h.sequence IS NULL THEN e.metadata ELSE h.metadata END AS by_metadata,
        -- What takes a transfer back, which refers to it, is not counted: the holder who got the credits did not spend them.
        CASE
            WHEN e.kind IN ('spend', 'hold', 'capture', 'transfer_out') THEN -e.amount
            WHEN e.kind IN ('grant', 'refund', 'revoke', 'expire', 'release', 'transfer_in', 'adjust', 'reissue', 'refusal') THEN 0
        END * (e.kind <> 'transfer_out' OR e.refers_to IS NULL)::integer AS used
    FROM ledger_entry e
    LEFT JOIN ledger_entry p ON p.holder_id = e.holder_id AND p.credit_type = e.credit_type AND p.sequence = e.sequence - 1
    LEFT JOIN ledger_entry h
        ON e.kind = 'capture' AND h.holder_id = e.holder_id AND h.credit_type = e.credit_type AND h.sequence = e.refers_to
    WHERE e.holder_id >= %(since)s
        AND e.holder_id <= %(upto)s
        AND e.sequence BETWEEN %(first)s AND %(last)s
        AND e.budgets IS NOT NULL
) AS f
WHERE EXISTS (
    -- The next entry has lost them.
    SELECT
    FROM ledger_entry n
    WHERE n.holder_id = f.holder_id
        AND n.credit_type = f.credit_type
        AND n.sequence = f.sequence + 1
        AND n.budgets IS NULL
        AND NOT (n.kind = 'adjust' AND n.idempotency_key IS NOT NULL AND n.counterpart ->> 'budget' IS NOT NULL)
) OR (
    f.kind = 'adjust'
    AND f.budgets::text IS DISTINCT FROM f.p_budgets::text
        AND (f.idempotency_key IS NULL OR f.counterpart ->> 'budget' IS NULL OR EXISTS (
            -- No other budget changes.
            SELECT
            FROM json_array_elements(f.budgets) AS a
            FULL JOIN json_array_elements(f.p_budgets) AS b ON a ->> 0 = b ->> 0
            WHERE COALESCE(a ->> 0, b ->> 0) <> f.counterpart ->> 'budget' AND a::text IS DISTINCT FROM b::text
        ))
) OR (
    f.kind <> 'adjust'
    AND (
        f.p_budgets IS NULL
        OR EXISTS (
            -- Their settings are the first nine members.
            SELECT
            FROM json_array_elements(f.budgets) AS a
            FULL JOIN json_array_elements(f.p_budgets) AS b ON a ->> 0 = b ->> 0
            WHERE ARRAY(SELECT json_array_elements_text(a) LIMIT 9) <> ARRAY(SELECT json_array_elements_text(b) LIMIT 9)
        )
        OR EXISTS (
            SELECT
            FROM json_array_elements(f.budgets) AS a
            JOIN json_array_elements(f.p_budgets) AS b ON a ->> 0 = b ->> 0
            CROSS JOIN LATERAL (
                -- Under which subject the budget counts the entry; null if it does not.
                SELECT CASE
                    WHEN f.by_actor = 'billing' THEN NULL
                    WHEN a ->> 7 IS NULL OR a ->> 7 = named.subject THEN named.subject
                END AS subject
                FROM (
                    SELECT CASE a ->> 5
                        WHEN 'holder' THEN ''
                        WHEN 'actor' THEN f.by_actor
                        WHEN 'reference' THEN f.by_reference
                        WHEN 'label' THEN COALESCE(f.by_metadata ->> (a ->> 6), '')
                    END AS subject
                ) AS named
            ) AS counted
            CROSS JOIN LATERAL (
                SELECT
                    -- A release gives back to the step of its hold, if that still counts.
                    COALESCE((SELECT share ->> 1 FROM json_array_elements(b -> 10) AS share WHERE (share ->> 0)::bigint = f.refers_to), '') AS held_by,
                    (SELECT (share ->> 2)::bigint FROM json_array_elements(b -> 10) AS share WHERE (share ->> 0)::bigint = f.refers_to) AS held_in
            ) AS hold
            LEFT JOIN LATERAL (
                SELECT COALESCE(n.subject, o.subject) AS subject, COALESCE(n.start_us, o.start_us) AS start_us,
                    COALESCE(n.used, 0) AS used, COALESCE(o.used, 0) AS used_before,
                    CASE a ->> 2
                        WHEN 'rolling' THEN COALESCE(n.start_us, o.start_us) + (a ->> 3)::bigint * 3750000000 <= f.decided_us
                        ELSE (to_timestamp(COALESCE(n.start_us, o.start_us) / 1000000) AT TIME ZONE (a ->> 4))::date
                            < date_trunc(a ->> 2, to_timestamp(f.decided_us / 1000000) AT TIME ZONE (a ->> 4))::date
                    END AS is_past,
                    CASE a ->> 2
                        WHEN 'rolling' THEN COALESCE(n.start_us, o.start_us) = f.decided_us - f.decided_us %% ((a ->> 3)::bigint * 150000000)
                        ELSE (to_timestamp(COALESCE(n.start_us, o.start_us) / 1000000) AT TIME ZONE (a ->> 4))::date
                            = date_trunc(a ->> 2, to_timestamp(f.decided_us / 1000000) AT TIME ZONE (a ->> 4))::date
                    END AS is_present
                FROM (
                    SELECT c ->> 0 AS subject, (s ->> 0)::bigint AS start_us, (s ->> 1)::numeric AS used
                    FROM json_array_elements(a -> 9) AS c CROSS JOIN LATERAL json_array_elements(c -> 1) AS s
                ) AS n
                FULL JOIN (
                    SELECT c ->> 0 AS subject, (s ->> 0)::bigint AS start_us, (s ->> 1)::numeric AS used
                    FROM json_array_elements(b -> 9) AS c CROSS JOIN LATERAL json_array_elements(c -> 1) AS s
                ) AS o USING (subject, start_us)
            ) AS step ON true
            GROUP BY a ->> 0, a ->> 1, a ->> 8, counted.subject
            HAVING
                -- Each step changes by what the entry used or gave back, or it is gone because it does not count any more.
                COALESCE(bool_or(
                    NOT (step.is_past AND step.used = 0)
                    AND step.used - step.used_before <> CASE
                        WHEN f.kind = 'release' AND step.subject = hold.held_by AND step.start_us = hold.held_in THEN -f.amount
                        WHEN step.subject = counted.subject AND step.is_present THEN f.used
                        ELSE 0
                    END
                ), false)
                -- What counts is counted.
                OR (
                    f.used > 0 AND counted.subject IS NOT NULL
                    AND NOT COALESCE(bool_or(step.subject = counted.subject AND step.is_present AND step.used >= f.used), false)
                )
                -- A hard budget is not exceeded by what it counts.
                OR (
                    f.used > 0 AND a ->> 8 = '1' AND counted.subject IS NOT NULL
                    AND COALESCE(sum(step.used) FILTER (WHERE step.subject = counted.subject), 0) > (a ->> 1)::numeric
                )
        )
    )
)
