-- Recurring grants whose row does not say what the entries say: the last entry that set or ended it, the last one of a period since then,
-- and when the next period begins. And entries that set, end or handle one whose next_grant_at is not the earliest of all of the account.
-- And entries of a part that are not what the terms name: its time and credits, and at most what it takes back of a lot.
-- And periods and parts that have kept more unspent credits of earlier lots than their cap, though not all is held; or less, after revoking some.
-- And entries that skip periods which have left something: the terms and the account say so again, by the calendar of PostgreSQL.
WITH setting AS (
    SELECT DISTINCT ON (s.holder_id, s.credit_type, s.counterpart ->> 'recurring_grant')
        s.holder_id, s.credit_type, s.counterpart ->> 'recurring_grant' AS name, s.sequence, s.counterpart ->> 'next_at' AS next_at
    FROM ledger_entry s
    WHERE s.holder_id >= %(since)s AND s.holder_id <= %(upto)s
        AND s.kind = 'adjust' AND s.counterpart ->> 'recurring_grant' IS NOT NULL AND s.counterpart ->> 'period_start' IS NULL
    ORDER BY s.holder_id, s.credit_type, s.counterpart ->> 'recurring_grant', s.sequence DESC
), expected AS (
    SELECT
        s.holder_id, s.credit_type, s.name, s.sequence AS setting, COALESCE(period.sequence, s.sequence) AS last,
        (CASE WHEN period.sequence IS NULL THEN s.next_at ELSE period.next_at END)::timestamptz AS next_at
    FROM setting s
    LEFT JOIN LATERAL (
        SELECT p.sequence, p.metadata ->> 'next_at' AS next_at
        FROM ledger_entry p
        WHERE p.holder_id = s.holder_id AND p.credit_type = s.credit_type AND p.sequence > s.sequence
            AND (p.kind = 'grant' OR p.kind = 'adjust') AND p.actor = 'ledger' AND p.idempotency_key IS NOT NULL
            AND p.metadata ->> 'recurring_grant' = s.name
        ORDER BY p.sequence DESC
        LIMIT 1
    ) AS period ON true
), handled AS (
    SELECT
        e.holder_id, e.credit_type, e.sequence, e.next_grant_at,
        COALESCE(e.counterpart ->> 'recurring_grant', e.metadata ->> 'recurring_grant') AS name,
        (CASE WHEN e.metadata ->> 'period_start' IS NULL THEN e.counterpart ->> 'next_at' ELSE e.metadata ->> 'next_at' END)::timestamptz
            AS next_at
    FROM ledger_entry e
    WHERE e.holder_id >= %(since)s AND e.holder_id <= %(upto)s AND e.idempotency_key IS NOT NULL
        AND (
            (e.kind = 'adjust' AND e.counterpart ->> 'recurring_grant' IS NOT NULL)
            OR (e.kind = 'grant' AND e.actor = 'ledger' AND e.metadata ->> 'recurring_grant' IS NOT NULL)
        )
), found AS (
    SELECT r.holder_id, r.credit_type, r.name, r.setting, r.last, r.next_at
    FROM ledger_recurring_grant r
    WHERE r.holder_id >= %(since)s AND r.holder_id <= %(upto)s
)
SELECT
    'recurring', holder_id, credit_type, COALESCE(e.setting, f.setting),
    name || COALESCE(': set by ' || f.setting || ', last ' || f.last || ', next at ' || COALESCE(f.next_at::text, 'no time'), ' has no row'),
    COALESCE('set by ' || e.setting || ', last ' || e.last || ', next at ' || COALESCE(e.next_at::text, 'no time'), 'no entry sets it')
FROM expected e
FULL JOIN found f USING (holder_id, credit_type, name)
WHERE (e.setting, e.last, e.next_at) IS DISTINCT FROM (f.setting, f.last, f.next_at)
UNION ALL
SELECT
    'recurring', holder_id, credit_type, sequence, 'next grant at ' || COALESCE(next_grant_at::text, 'no time'),
    'next grant at ' || COALESCE(earliest::text, 'no time')
FROM (
    SELECT holder_id, credit_type, sequence, min(next_grant_at) AS next_grant_at, min(known.next_at) AS earliest
    FROM (
        SELECT
            e.holder_id, e.credit_type, e.sequence, e.next_grant_at, n.name,
            max(CASE WHEN e.name = n.name THEN e.sequence END)
                OVER (PARTITION BY e.holder_id, e.credit_type, n.name ORDER BY e.sequence) AS latest
        FROM handled e
        JOIN (SELECT DISTINCT holder_id, credit_type, name FROM handled) n USING (holder_id, credit_type)
    ) AS each
    LEFT JOIN (SELECT holder_id, credit_type, sequence AS latest, next_at FROM handled) known USING (holder_id, credit_type, latest)
    GROUP BY holder_id, credit_type, sequence
) AS compared
WHERE next_grant_at IS DISTINCT FROM earliest
UNION ALL
SELECT
    'recurring', e.holder_id, e.credit_type, e.sequence,
    format('part %%s: %%s of %%s for %%s to %%s', e.metadata ->> 'part', e.kind, e.amount, e.metadata ->> 'period_start', e.metadata ->> 'period_end'),
    COALESCE('what its terms name: ' || t.part::text, 'no part that its terms do not name')
FROM ledger_entry e
LEFT JOIN LATERAL (
    SELECT s.counterpart -> 'parts' -> (e.metadata ->> 'part')::integer AS part
    FROM ledger_entry s
    WHERE s.holder_id = e.holder_id AND s.credit_type = e.credit_type AND s.sequence = (e.metadata ->> 'setting')::bigint
        AND s.counterpart ->> 'recurring_grant' = e.metadata ->> 'recurring_grant'
) AS t ON true
WHERE e.holder_id >= %(since)s AND e.holder_id <= %(upto)s AND e.actor = 'ledger' AND e.idempotency_key IS NOT NULL
    AND e.metadata ->> 'recurring_grant' IS NOT NULL AND e.metadata ->> 'part' IS NOT NULL
    AND NOT COALESCE(
        (t.part ->> 'from')::timestamptz = (e.metadata ->> 'period_start')::timestamptz
        AND (t.part ->> 'until')::timestamptz = (e.metadata ->> 'period_end')::timestamptz
        AND COALESCE(t.part ->> 'at', t.part ->> 'from')::timestamptz <= COALESCE(e.effective_at, e.recorded_at)
        AND CASE e.kind
            WHEN 'grant' THEN (t.part ->> 'amount')::bigint = e.amount
            WHEN 'adjust' THEN (t.part ->> 'amount')::bigint = 0
                OR (t.part ->> 'expires_at')::timestamptz <= COALESCE(e.effective_at, e.recorded_at)
            WHEN 'revoke' THEN ((t.part ->> 'rollover_cap') IS NOT NULL AND e.idempotency_key ~ '/cap/[0-9]+$') OR EXISTS (
                SELECT FROM json_array_elements(t.part -> 'taken_back') AS back (lot)
                WHERE (back.lot ->> 0)::bigint = e.refers_to AND (back.lot ->> 1)::bigint >= -e.amount
            )
        END,
        false
    )
UNION ALL
SELECT
    'recurring', holder_id, credit_type, sequence, format('%%s keeps %%s of earlier lots, %%s of them held', name, unspent, held),
    'at most ' || cap
FROM (
    SELECT
        e.holder_id, e.credit_type, e.sequence, e.idempotency_key, e.metadata ->> 'recurring_grant' AS name, kept.unspent, kept.held,
        (CASE WHEN e.metadata ->> 'part' IS NULL THEN s.counterpart -> 'terms' ELSE s.counterpart -> 'parts' -> (e.metadata ->> 'part')::integer END
            ->> 'rollover_cap')::numeric AS cap
    FROM ledger_entry e
    JOIN ledger_entry s ON s.holder_id = e.holder_id AND s.credit_type = e.credit_type AND s.sequence = (e.metadata ->> 'setting')::bigint
    JOIN ledger_entry p ON p.holder_id = e.holder_id AND p.credit_type = e.credit_type AND p.sequence = e.sequence - 1
    CROSS JOIN LATERAL (
        SELECT COALESCE(sum((l ->> 1)::numeric), 0) AS unspent, COALESCE(sum((l ->> 1)::numeric) FILTER (WHERE is_held), 0) AS held
        FROM (
            SELECT l, false FROM json_array_elements(p.lots) AS l
            UNION ALL
            SELECT part, true FROM json_array_elements(p.holds) AS h, json_array_elements(h -> 2) AS part
        ) AS there (l, is_held)
        JOIN ledger_entry g ON g.holder_id = e.holder_id AND g.credit_type = e.credit_type AND g.sequence = (l ->> 0)::bigint
        WHERE l ->> 3 IS NULL AND g.kind = 'grant' AND CASE g.actor
            WHEN 'ledger' THEN g.metadata ->> 'recurring_grant'
            WHEN 'billing' THEN g.metadata ->> 'rolls_over_with'
        END = e.metadata ->> 'recurring_grant'
    ) AS kept
    WHERE e.holder_id >= %(since)s AND e.holder_id <= %(upto)s AND e.actor = 'ledger' AND e.idempotency_key IS NOT NULL
        AND (e.kind = 'grant' OR (e.kind = 'adjust' AND e.counterpart ->> 'periods' IS NULL))
        AND e.metadata ->> 'recurring_grant' IS NOT NULL
        -- What continues a period, after other terms, cuts nothing.
        AND (e.metadata ->> 'part' IS NOT NULL OR s.counterpart ->> 'begins_at' IS NULL OR e.metadata ->> 'period' <> s.counterpart ->> 'next_period')
) AS begun
WHERE cap IS NOT NULL AND (
    unspent > greatest(cap, held)
    OR (
        unspent < cap AND EXISTS (
            SELECT FROM ledger_entry r
            WHERE r.holder_id = begun.holder_id AND r.credit_type = begun.credit_type AND r.sequence = begun.sequence - 1
                AND r.kind = 'revoke' AND r.actor = 'ledger' AND r.idempotency_key ^@ (begun.idempotency_key || '/cap/')
        )
    )
)
UNION ALL
SELECT
    'recurring', holder_id, credit_type, sequence, format('skips %%s periods up to %%s: %%s', periods, period_end, because),
    'only periods that have left nothing by ' || at
FROM (
    SELECT
        e.holder_id, e.credit_type, e.sequence, e.lots, e.holds, e.balance, e.claims, COALESCE(e.effective_at, e.recorded_at) AS at,
        (e.metadata ->> 'as_of')::timestamptz AS as_of, e.metadata ->> 'next_at' AS next_at, (e.metadata ->> 'setting')::bigint AS setting,
        e.counterpart ->> 'recurring_grant' AS name, e.counterpart ->> 'because' AS because, t.terms,
        COALESCE(e.counterpart -> 'still_open', '[]') AS still_open,
        (e.counterpart ->> 'periods')::bigint AS periods, (e.metadata ->> 'period')::bigint AS last,
        (e.counterpart ->> 'period_start')::timestamptz AS period_start, (e.counterpart ->> 'period_end')::timestamptz AS period_end,
        t.terms ->> 'time_zone' AS zone, (t.terms ->> 'starts_at')::timestamptz AT TIME ZONE (t.terms ->> 'time_zone') AS anchor,
        CASE t.terms ->> 'interval' WHEN 'month' THEN 1 WHEN 'year' THEN 12 ELSE 0 END * (t.terms ->> 'interval_count')::integer AS months,
        CASE t.terms ->> 'interval' WHEN 'day' THEN 1 WHEN 'week' THEN 7 ELSE 0 END * (t.terms ->> 'interval_count')::integer AS days,
        ceil((t.terms ->> 'rollover_cap')::numeric / (t.terms ->> 'amount')::numeric) AS kept
    FROM ledger_entry e
    LEFT JOIN LATERAL (
        SELECT s.counterpart -> 'terms' AS terms
        FROM ledger_entry s
        WHERE s.holder_id = e.holder_id AND s.credit_type = e.credit_type AND s.sequence = (e.metadata ->> 'setting')::bigint
            AND s.counterpart ->> 'recurring_grant' = e.counterpart ->> 'recurring_grant'
    ) AS t ON true
    WHERE e.holder_id >= %(since)s AND e.holder_id <= %(upto)s AND e.kind = 'adjust' AND e.counterpart ->> 'periods' IS NOT NULL
) AS skipped
LEFT JOIN LATERAL (
    -- Of a local time that the clocks repeat, the first counts.
    SELECT
        array_agg(CASE WHEN (instant - earlier) AT TIME ZONE zone = instant AT TIME ZONE zone THEN instant - earlier ELSE instant END ORDER BY place)
            AS boundary
    FROM unnest(ARRAY[last - periods + 1, last - periods + 2, last, last + 1, last + 1 + kept]) WITH ORDINALITY AS n (n, place)
    CROSS JOIN LATERAL (SELECT (anchor + make_interval(months => (n * months)::integer, days => (n * days)::integer)) AT TIME ZONE zone AS instant) AS i
    CROSS JOIN LATERAL (
        SELECT CASE WHEN (instant - interval '30 minutes') AT TIME ZONE zone = instant AT TIME ZONE zone THEN interval '30 minutes'
            ELSE interval '1 hour' END AS earlier
    ) AS o
) AS computed ON true
LEFT JOIN LATERAL (
    SELECT COALESCE(sum(remaining), 0) AS unspent, COALESCE(sum(remaining) FILTER (WHERE expires_us IS NULL OR expires_us > last_us), 0) AS lasting
    FROM (
        SELECT (l ->> 0)::bigint AS lot, (l ->> 1)::numeric AS remaining, (l ->> 3)::numeric AS expires_us
        FROM (
            SELECT l FROM json_array_elements(lots) AS l
            UNION ALL
            SELECT p FROM json_array_elements(holds) AS h, json_array_elements(h -> 2) AS p
        ) AS part (l)
    ) AS part
    CROSS JOIN (SELECT extract(epoch FROM boundary[3]) * 1000000 AS last_us) AS last
    WHERE EXISTS (
        SELECT FROM ledger_entry g
        WHERE g.holder_id = skipped.holder_id AND g.credit_type = skipped.credit_type AND g.sequence = part.lot
            AND g.actor = 'ledger' AND g.metadata ->> 'recurring_grant' = skipped.name
    )
) AS own ON true
WHERE NOT COALESCE(
    period_end = boundary[4] AND period_start >= boundary[1] AND period_start < boundary[2]
    AND period_end <= COALESCE(boundary[5], period_end)
    AND (
        (claims IS NULL AND balance = (SELECT COALESCE(sum((l ->> 1)::numeric), 0) FROM json_array_elements(lots) AS l))
        OR (terms ->> 'applies_to' IS NOT NULL AND because IN ('expired', 'filled_expired'))
    )
    AND CASE because
        WHEN 'expired' THEN CASE terms ->> 'expiry'
            WHEN 'period_end' THEN period_end <= at
            WHEN 'after_days' THEN terms ->> 'up_to' IS NULL
                AND (anchor + make_interval(months => (last * months)::integer, days => (last * days + (terms ->> 'expires_after_days')::bigint)::integer))
                    AT TIME ZONE zone <= at
        END
        WHEN 'full' THEN boundary[3] <= at AND lasting >= (terms ->> 'up_to')::numeric
            AND unspent <= COALESCE((terms ->> 'rollover_cap')::numeric, unspent)
        WHEN 'filled_expired' THEN (
            -- What is there of its lots, from one period that fills them up to the next: those that are skipped have expired by now. Beside
            -- open lots there are those whose expiry is booked already, and those that an earlier entry of the setting has skipped.
            WITH RECURSIVE calendar AS MATERIALIZED (
                SELECT array_agg(instants[1] ORDER BY n) AS starts, array_agg(instants[2] ORDER BY n) AS expiries
                FROM (
                    SELECT
                        n,
                        array_agg(
                            CASE WHEN (instant - earlier) AT TIME ZONE zone = instant AT TIME ZONE zone THEN instant - earlier ELSE instant END
                            ORDER BY place
                        ) AS instants
                    FROM generate_series(last - periods + 1, last + 1) AS n
                    CROSS JOIN LATERAL (
                        SELECT CASE WHEN n = last - periods + 1 AND period_start <> boundary[1] THEN period_start AT TIME ZONE zone
                            ELSE anchor + make_interval(months => (n * months)::integer, days => (n * days)::integer) END AS begins
                    ) AS b
                    CROSS JOIN LATERAL unnest(ARRAY[begins, begins + make_interval(days => (terms ->> 'expires_after_days')::integer)])
                        WITH ORDINALITY AS l (local, place)
                    CROSS JOIN LATERAL (SELECT local AT TIME ZONE zone AS instant) AS i
                    CROSS JOIN LATERAL (
                        SELECT CASE WHEN (instant - interval '30 minutes') AT TIME ZONE zone = instant AT TIME ZONE zone THEN interval '30 minutes'
                            ELSE interval '1 hour' END AS earlier
                    ) AS o
                    GROUP BY n
                ) AS each
            ), there AS (
                SELECT COALESCE(to_timestamp((l ->> 3)::numeric / 1000000), 'infinity') AS expires_at, (l ->> 1)::bigint AS amount, false AS is_skipped
                FROM (
                    SELECT l FROM json_array_elements(lots) AS l
                    UNION ALL
                    SELECT p FROM json_array_elements(holds) AS h, json_array_elements(h -> 2) AS p
                ) AS part (l)
                JOIN ledger_entry g ON g.holder_id = skipped.holder_id AND g.credit_type = skipped.credit_type AND g.sequence = (l ->> 0)::bigint
                WHERE g.actor = 'ledger' AND g.metadata ->> 'recurring_grant' = name
                UNION ALL
                SELECT x.effective_at, -x.amount, false
                FROM ledger_entry x
                JOIN ledger_entry g ON g.holder_id = x.holder_id AND g.credit_type = x.credit_type AND g.sequence = x.refers_to
                WHERE x.holder_id = skipped.holder_id AND x.credit_type = skipped.credit_type AND x.sequence < skipped.sequence
                    AND x.kind = 'expire' AND x.effective_at > as_of AND g.actor = 'ledger' AND g.metadata ->> 'recurring_grant' = name
                UNION ALL
                SELECT to_timestamp((o ->> 0)::numeric / 1000000), (o ->> 1)::bigint, true
                FROM (
                    SELECT p.metadata -> 'still_open' AS still_open
                    FROM ledger_entry p
                    WHERE p.holder_id = skipped.holder_id AND p.credit_type = skipped.credit_type
                        AND p.sequence > setting AND p.sequence < skipped.sequence
                        AND p.actor = 'ledger' AND p.idempotency_key IS NOT NULL
                        AND (p.kind = 'grant' OR p.kind = 'adjust') AND p.metadata ->> 'recurring_grant' = name
                    ORDER BY p.sequence DESC
                    LIMIT 1
                ) AS before
                CROSS JOIN LATERAL json_array_elements(before.still_open) AS o
            ), filled AS (
                SELECT
                    1 AS place, true AS is_right, array_agg(expires_at) AS expiring, array_agg(amount) AS amounts, array_agg(is_skipped) AS are_skipped
                FROM there
                UNION ALL
                SELECT
                    CASE WHEN f.lacks AND NOT f.fills THEN place + 1
                        ELSE greatest(place + 1, width_bucket((SELECT min(e) FROM unnest(f.expiring) AS e) - interval '1 microsecond', starts) + 1) END,
                    NOT f.fills OR expiries[place] <= at, f.expiring, f.amounts, f.are_skipped
                FROM filled
                CROSS JOIN calendar
                CROSS JOIN LATERAL (SELECT greatest(CASE place WHEN 1 THEN period_start ELSE starts[place] END, as_of) AS moment) AS m
                CROSS JOIN LATERAL (
                    SELECT
                        array_agg(o.expires_at) AS expiring, array_agg(o.amount) AS amounts, array_agg(o.is_skipped) AS are_skipped,
                        (terms ->> 'up_to')::bigint - COALESCE(sum(o.amount), 0)::bigint AS lacking
                    FROM unnest(filled.expiring, filled.amounts, filled.are_skipped) AS o (expires_at, amount, is_skipped)
                    WHERE o.expires_at > moment
                ) AS kept
                CROSS JOIN LATERAL (
                    SELECT
                        lacking > 0 AS lacks, fills, CASE WHEN fills THEN kept.expiring || expiries[place] ELSE kept.expiring END AS expiring,
                        CASE WHEN fills THEN kept.amounts || lacking ELSE kept.amounts END AS amounts,
                        CASE WHEN fills THEN kept.are_skipped || true ELSE kept.are_skipped END AS are_skipped
                    FROM (SELECT lacking > 0 AND expiries[place] > moment AS fills) AS decided
                ) AS f
                WHERE place <= periods AND is_right
            )
            SELECT
                terms ->> 'expiry' = 'after_days' AND boundary[3] <= at AND bool_and(is_right) AND CASE WHEN next_at IS NULL THEN json_array_length(still_open) = 0
                ELSE (
                    SELECT COALESCE(json_agg(json_build_array((extract(epoch FROM o.expires_at) * 1000000)::bigint, o.amount) ORDER BY o.expires_at, o.amount), '[]')
                    FROM filled f
                    CROSS JOIN LATERAL unnest(f.expiring, f.amounts, f.are_skipped) AS o (expires_at, amount, is_skipped)
                    WHERE f.place > periods AND o.is_skipped AND o.expires_at > period_end
                )::jsonb = still_open::jsonb END
            FROM filled
        )
        WHEN 'not_kept' THEN holds IS NULL AND terms ->> 'up_to' IS NULL AND boundary[5] <= at
            AND boundary[5] < COALESCE((terms ->> 'ends_at')::timestamptz, 'infinity')
            AND last + 1 + kept < COALESCE((terms ->> 'periods')::bigint, last + 2 + kept)
    END,
    false
)
