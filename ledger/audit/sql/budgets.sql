-- Entries whose budgets are not those before it, or of which budgets counted something else than they do.
--
-- Counted again from the entry alone: a spend, hold, transfer, or what a capture takes beyond its hold counts its amount in the present step
-- of each budget that is in force and counts its actor, reference or labels, within the limit of a hard budget; of budgets for the same kind
-- of subject only the most specific ones count. A release gives its amount back to the steps in which its hold was counted, if they still
-- count. Settings change only by an adjustment that a request asked for: after it the account has what the adjustment says, from its start to
-- its end, beside what was there before and has not ended. What a counter adds up to is the law `counters`.
SELECT 'budgets', f.holder_id, f.credit_type, f.sequence,
    f.kind || ' of ' || f.amount || ' with ' || left(COALESCE(f.counts::text, 'no counts') || ' of ' || COALESCE(f.budgets::text, 'no budgets'), 300), NULL
FROM (
    SELECT
        e.*,
        p.budgets AS p_budgets,
        r.counts AS h_counts,
        decided.decided_us,
        present.in_force,
        COALESCE((extract(epoch FROM CASE
            WHEN e.counterpart ->> 'settings' IS NULL THEN e.counterpart ->> 'ends_at' ELSE e.counterpart ->> 'starts_at'
        END::timestamptz) * 1000000)::bigint, decided.decided_us) AS changes_us,
        (extract(epoch FROM (e.counterpart ->> 'starts_at')::timestamptz) * 1000000)::bigint AS starts_us,
        (extract(epoch FROM (e.counterpart ->> 'ends_at')::timestamptz) * 1000000)::bigint AS ends_us,
        -- Whose actor, reference and metadata count: those of the hold, for what a capture takes beyond it.
        CASE WHEN h.sequence IS NULL THEN e.actor ELSE h.actor END AS by_actor,
        CASE WHEN h.sequence IS NULL THEN e.reference ELSE h.reference END AS by_reference,
        CASE WHEN h.sequence IS NULL THEN e.metadata ELSE h.metadata END AS by_metadata,
        -- What takes a transfer back, which refers to it, is not counted: the holder who got the credits did not spend them.
        -e.amount * (e.kind IN ('spend', 'hold', 'capture', 'transfer_out') AND (e.kind <> 'transfer_out' OR e.refers_to IS NULL))::integer AS used
    FROM ledger_entry e
    CROSS JOIN LATERAL (
        SELECT (extract(epoch FROM COALESCE(e.effective_at, e.recorded_at)) * 1000000)::bigint AS decided_us
    ) AS decided
    CROSS JOIN LATERAL (
        SELECT json_agg(version) AS in_force
        FROM json_array_elements(e.budgets) AS known
        CROSS JOIN LATERAL (SELECT known AS version UNION ALL SELECT json_array_elements(known -> 10 -> 'later')) AS versions
        WHERE COALESCE((version -> 10 ->> 'from')::numeric <= decided_us, true)
            AND COALESCE((version -> 10 ->> 'until')::numeric > decided_us, true)
    ) AS present
    LEFT JOIN ledger_entry p ON p.holder_id = e.holder_id AND p.credit_type = e.credit_type AND p.sequence = e.sequence - 1
    LEFT JOIN ledger_entry h
        ON e.kind = 'capture' AND h.holder_id = e.holder_id AND h.credit_type = e.credit_type AND h.sequence = e.refers_to
    LEFT JOIN ledger_entry r
        ON e.kind = 'release' AND r.holder_id = e.holder_id AND r.credit_type = e.credit_type AND r.sequence = e.refers_to
    WHERE e.holder_id >= %(since)s
        AND e.holder_id <= %(upto)s
        AND e.sequence BETWEEN %(first)s AND %(last)s
        AND (e.budgets IS NOT NULL OR e.counts IS NOT NULL OR p.budgets IS NOT NULL)
) AS f
WHERE (
    -- Settings.
    f.budgets::text IS DISTINCT FROM f.p_budgets::text
    AND (f.kind <> 'adjust' OR f.idempotency_key IS NULL OR f.counterpart ->> 'budget' IS NULL)
) OR (
    f.kind = 'adjust'
    AND f.counterpart ->> 'budget' IS NOT NULL
    AND EXISTS (
        WITH before AS (
            SELECT version, version ->> 0 AS name, (version -> 10 ->> 'from')::bigint AS from_us, (version -> 10 ->> 'until')::bigint AS until_us,
                version ->> 0 = f.counterpart ->> 'budget' AS is_own
            FROM json_array_elements(f.p_budgets) AS known
            CROSS JOIN LATERAL (SELECT known AS version UNION ALL SELECT json_array_elements(known -> 10 -> 'later')) AS versions
        ), kept AS (
            SELECT version, name, from_us, CASE WHEN is_own THEN least(until_us, f.changes_us) ELSE until_us END AS until_us
            FROM before
            WHERE NOT is_own OR COALESCE(from_us < f.changes_us, true)
            UNION ALL
            SELECT version, name, from_us, until_us
            FROM before
            WHERE is_own AND f.counterpart ->> 'settings' IS NOT NULL AND from_us >= f.ends_us
        ), expected AS (
            SELECT name, from_us, until_us, ARRAY[version ->> 9] AS settings, ARRAY[
                    version ->> 1, version ->> 2, version ->> 3, version ->> 4, version ->> 5, version ->> 6, version ->> 7, version ->> 8,
                    CASE json_typeof(version -> 10) WHEN 'object' THEN version -> 10 ->> 'parent' ELSE version ->> 10 END
                ] AS terms
            FROM kept
            WHERE COALESCE(until_us > f.decided_us, true)
            UNION ALL
            -- It counts from this entry on, or goes on with the window and scope that it follows.
            SELECT f.counterpart ->> 'budget', f.starts_us, f.ends_us,
                array_append(
                    ARRAY(
                        SELECT version ->> 9
                        FROM before
                        WHERE is_own AND COALESCE(from_us < f.changes_us OR from_us = f.decided_us, true)
                            AND COALESCE(until_us >= f.changes_us, true) AND COALESCE(until_us > f.decided_us, true)
                            AND ARRAY[version ->> 2, version ->> 3, version ->> 4, version ->> 5, version ->> 6, version ->> 7]
                                IS NOT DISTINCT FROM ARRAY[
                                    term ->> 'window', term ->> 'hours', term ->> 'time_zone', term ->> 'by', term ->> 'label',
                                    term ->> 'subject'
                                ]
                    ),
                    f.sequence::text
                ),
                ARRAY[
                    term ->> 'limit', term ->> 'window', term ->> 'hours', term ->> 'time_zone', term ->> 'by', term ->> 'label',
                    term ->> 'subject', CASE term ->> 'mode' WHEN 'hard' THEN '1' WHEN 'soft' THEN '0' END, term ->> 'parent'
                ]
            FROM (SELECT f.counterpart -> 'settings' AS term) AS said
            WHERE f.counterpart ->> 'settings' IS NOT NULL
        ), found AS (
            SELECT version ->> 0 AS name, (version -> 10 ->> 'from')::bigint AS from_us, (version -> 10 ->> 'until')::bigint AS until_us,
                version ->> 9 AS setting, version ->> 11 AS within, ARRAY[
                    version ->> 1, version ->> 2, version ->> 3, version ->> 4, version ->> 5, version ->> 6, version ->> 7, version ->> 8,
                    CASE json_typeof(version -> 10) WHEN 'object' THEN version -> 10 ->> 'parent' ELSE version ->> 10 END
                ] AS terms
            FROM json_array_elements(f.budgets) AS known
            CROSS JOIN LATERAL (SELECT known AS version UNION ALL SELECT json_array_elements(known -> 10 -> 'later')) AS versions
        )
        SELECT
        FROM expected
        FULL JOIN found ON found.name = expected.name AND COALESCE(found.from_us, 0) = COALESCE(expected.from_us, 0)
        WHERE found.name IS NULL
            OR expected.name IS NULL
            OR found.until_us IS DISTINCT FROM expected.until_us
            OR found.terms IS DISTINCT FROM expected.terms
            OR found.setting <> ALL (expected.settings)
            -- The scopes of the parents of a budget that goes on counting, or stays, are as before; an empty list is none.
            OR (found.setting <> f.sequence::text AND NULLIF(found.within, '[]') IS DISTINCT FROM (
                SELECT NULLIF(version ->> 11, '[]') FROM before WHERE name = found.name AND version ->> 9 = found.setting LIMIT 1
            ))
    )
) OR EXISTS (
    SELECT
    FROM (
        -- What budgets count of a use: one step each, the present one.
        SELECT setting, subject, NULL::bigint AS start_us
        FROM (
            SELECT
                a ->> 9 AS setting,
                COALESCE(named.subject, '') AS subject,
                rank() OVER (PARTITION BY a ->> 2, a ->> 3, named.kind ORDER BY named.precedence DESC) AS place
            FROM json_array_elements(f.in_force) AS a
            CROSS JOIN LATERAL (
                SELECT
                    bool_and(level ->> 0 = 'holder' OR level ->> 2 IS NULL OR level ->> 2 = of_level) AS is_counted,
                    CASE
                        WHEN count(*) FILTER (WHERE level ->> 0 <> 'holder') > 1 THEN
                            (json_agg(of_level ORDER BY number) FILTER (WHERE level ->> 0 <> 'holder'))::text
                        ELSE min(of_level) FILTER (WHERE level ->> 0 <> 'holder')
                    END AS subject,
                    json_agg(json_build_array(level -> 0, level -> 1) ORDER BY number)::text AS kind,
                    string_agg((level ->> 2 IS NOT NULL)::integer::text, '' ORDER BY number DESC) AS precedence
                FROM (
                    SELECT level, number,
                        CASE level ->> 0
                            WHEN 'actor' THEN f.by_actor
                            WHEN 'reference' THEN f.by_reference
                            WHEN 'label' THEN COALESCE(f.by_metadata ->> (level ->> 1), '')
                        END AS of_level
                    FROM (
                        SELECT level, number FROM json_array_elements(COALESCE(a -> 11, '[]')) WITH ORDINALITY AS parents (level, number)
                        UNION ALL
                        SELECT json_build_array(a -> 5, a -> 6, a -> 7), 1000
                    ) AS levels
                ) AS of_levels
            ) AS named
            WHERE f.used > 0 AND f.by_actor <> 'billing' AND named.is_counted
        ) AS counting
        WHERE place = 1
        UNION ALL
        -- What a release gives back.
        SELECT part ->> 0, part ->> 1, (part ->> 2)::bigint
        FROM json_array_elements(f.h_counts) AS part
        JOIN json_array_elements(f.in_force) AS a ON a ->> 9 = part ->> 0
        WHERE f.kind = 'release' AND f.amount > 0
            AND CASE a ->> 2
                WHEN 'rolling' THEN (part ->> 2)::bigint BETWEEN
                    f.decided_us - f.decided_us %% ((a ->> 3)::bigint * 150000000) - (a ->> 3)::bigint * 3600000000 AND f.decided_us
                ELSE (to_timestamp((part ->> 2)::bigint / 1000000) AT TIME ZONE (a ->> 4))::date
                    = date_trunc(a ->> 2, to_timestamp(f.decided_us / 1000000) AT TIME ZONE (a ->> 4))::date
            END
    ) AS expected
    FULL JOIN (
        SELECT count ->> 0 AS setting, count ->> 1 AS subject, (count ->> 2)::bigint AS start_us, (count ->> 3)::bigint AS amount,
            COALESCE(count ->> 5, count ->> 4)::numeric AS total, a.value AS budget
        FROM json_array_elements(f.counts) AS count
        LEFT JOIN json_array_elements(f.in_force) AS a ON a.value ->> 9 = count ->> 0
    ) AS found
        ON found.setting = expected.setting AND found.subject = expected.subject
        AND found.start_us = COALESCE(expected.start_us, found.start_us)
    WHERE expected.setting IS NULL
        OR found.setting IS NULL
        OR found.budget IS NULL
        OR found.amount <> -f.amount
        OR (
            f.used > 0
            AND (
                (found.budget ->> 8 = '1' AND found.total > (found.budget ->> 1)::numeric)
                OR CASE found.budget ->> 2
                    WHEN 'rolling' THEN found.start_us <> f.decided_us - f.decided_us %% ((found.budget ->> 3)::bigint * 150000000)
                    ELSE (to_timestamp(found.start_us / 1000000) AT TIME ZONE (found.budget ->> 4))::date
                        <> date_trunc(found.budget ->> 2, to_timestamp(f.decided_us / 1000000) AT TIME ZONE (found.budget ->> 4))::date
                END
            )
        )
)
