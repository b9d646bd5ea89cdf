-- Compares each entry of a slice with the entry before it, and returns one row per violation of a law.
--
-- Most entries are spends from the first open lot, or refusals. For a spend the expected text of `lots` is built from the previous
-- entry's text and compared; a refusal must repeat the previous text. `doubtful` selects all other entries, and those that fail this
-- quick check; only they are parsed lot by lot.
WITH clock AS (
    -- On a replica also the primary's clock, by the last replayed transaction: the replica's clock may be behind.
    SELECT GREATEST(clock_timestamp(), pg_last_xact_replay_timestamp()) AS now
), move AS MATERIALIZED (
    -- Of test clocks, which hardly any database has.
    SELECT t.holder_id, t.credit_type, t.sequence, t.recorded_at, (t.counterpart ->> 'tick')::numeric AS number,
        (extract(epoch FROM (t.counterpart ->> 'clock')::timestamptz) * 1000000)::bigint AS clock_us
    FROM ledger_entry t
    WHERE t.holder_id >= %(since)s AND t.holder_id <= %(upto)s AND t.kind = 'adjust' AND t.counterpart ->> 'tick' IS NOT NULL
), beside AS (
    SELECT
        e.holder_id, e.credit_type, e.sequence, e.kind, e.amount, e.balance, e.held, e.refers_to, e.refunded_total, e.overdraft,
        e.lots, e.drawn, e.holds, e.costs, e.rating ->> 'rate' AS rate, e.metadata, COALESCE(e.counterpart ->> 'incoming', e.counterpart ->> 'holder', 'moved' || (e.counterpart ->> 'tick')) AS setting, COALESCE(e.counterpart ->> 'budget', e.counterpart ->> 'recurring_grant', e.counterpart ->> 'overage', e.counterpart ->> 'claim') AS budget, e.idempotency_key, e.request_digest, e.actor, e.effective_at, e.recorded_at, e.digest,
        e.lots::text AS lots_text,
        lag(e.sequence) OVER account AS p_sequence,
        lag(e.balance) OVER account AS p_balance,
        lag(e.held) OVER account AS p_held,
        lag(e.overdraft) OVER account AS p_overdraft,
        lag(e.lots::text) OVER account AS p_lots_text,
        lag(e.holds::text) OVER account AS p_holds_text,
        lag(e.recorded_at) OVER account AS p_recorded_at,
        e.next_grant_at IS DISTINCT FROM lag(e.next_grant_at) OVER account AND NOT CASE
            WHEN e.idempotency_key IS NULL THEN false
            WHEN e.kind = 'adjust' THEN e.counterpart ->> 'recurring_grant' IS NOT NULL
            WHEN e.kind = 'grant' AND e.actor = 'ledger' THEN e.metadata ->> 'recurring_grant' IS NOT NULL
            ELSE false
        END AS moves_next_grant,
        -- Computed here, where `e` is still a table row: for a row of a subquery each of its columns would be looked up again.
        e.digest = ledger_entry_digest(COALESCE(lag(e.digest) OVER account, decode(repeat('00', 32), 'hex')), e) AS digest_fits
    FROM ledger_entry e
    WHERE e.holder_id >= %(since)s
        AND e.holder_id <= %(upto)s
        AND e.sequence BETWEEN %(first)s - 1 AND %(last)s
    WINDOW account AS (PARTITION BY e.holder_id, e.credit_type ORDER BY e.sequence)
), first_lot AS (
    SELECT
        b.*,
        split_part(b.p_lots_text, ']', 1) AS head,
        substr(split_part(b.p_lots_text, ',', 1), 3) AS first_grant,
        split_part(b.p_lots_text, ',', 2) AS first_remaining,
        split_part(split_part(b.p_lots_text, ']', 1), ',', 3) AS first_effective_us,
        split_part(split_part(b.p_lots_text, ']', 1), ',', 4) AS first_expires_us
    FROM beside b
    WHERE b.sequence >= %(first)s
), doubtful AS (
    SELECT f.*
    FROM first_lot f
    WHERE NOT COALESCE(
        f.kind IN ('spend', 'refusal')
        AND f.sequence = f.p_sequence + 1
        AND f.holder_id NOT IN (SELECT holder_id FROM move)
        AND f.balance = f.p_balance + f.amount
        AND f.balance >= 0
        AND f.digest_fits
        AND f.recorded_at >= f.p_recorded_at
        AND f.recorded_at <= (SELECT now FROM clock)
        AND COALESCE(f.effective_at = f.recorded_at, true)
        AND f.idempotency_key IS NOT NULL
        AND f.request_digest IS NOT NULL
        AND f.refers_to IS NULL
        AND f.refunded_total IS NULL
        AND f.setting IS NULL
        AND NOT f.moves_next_grant
        AND f.overdraft IS NOT DISTINCT FROM f.p_overdraft
        AND f.held = f.p_held
        AND f.holds::text IS NOT DISTINCT FROM f.p_holds_text
        AND (f.kind = 'refusal' OR f.amount < 0)
        AND (f.kind = 'refusal' OR strpos(f.p_lots_text, '{') = 0)
        AND (f.kind = 'spend' OR (f.amount = 0 AND f.drawn::text = '[]' AND f.lots_text = f.p_lots_text))
        AND CASE
            WHEN f.kind = 'refusal' THEN true
            WHEN f.p_lots_text = '[]' OR f.first_remaining !~ '^[0-9]+$' OR octet_length(f.first_remaining) > 18 THEN false
            ELSE f.first_remaining::bigint >= -f.amount
                AND f.drawn::text = '[[' || f.first_grant || ',' || -f.amount || ']]'
                AND f.lots_text = CASE
                    WHEN f.first_remaining::bigint > -f.amount
                        THEN '[[' || f.first_grant || ',' || f.first_remaining::bigint + f.amount
                            || substr(f.p_lots_text, 4 + length(f.first_grant) + length(f.first_remaining))
                    -- The first lot is used up: the remaining text begins after its bracket and comma.
                    ELSE '[' || COALESCE(NULLIF(substr(f.p_lots_text, length(f.head) + 3), ''), ']')
                END
        END
        AND CASE
            WHEN f.kind = 'refusal' OR f.first_effective_us = '0' THEN true
            WHEN f.first_effective_us !~ '^-?[0-9]+(e6)?$' THEN false
            ELSE f.first_effective_us::numeric <= extract(epoch FROM f.recorded_at) * 1000000
        END
        AND CASE
            WHEN f.kind = 'refusal' OR f.first_expires_us IN ('', 'null') THEN true
            WHEN f.first_expires_us !~ '^-?[0-9]+(e6)?$' THEN false
            ELSE f.first_expires_us::numeric > extract(epoch FROM f.recorded_at) * 1000000
        END,
        false
    )
), classified AS (
    SELECT
        d.holder_id, d.credit_type, d.sequence, d.kind, d.amount, d.balance, d.held, d.refers_to, d.refunded_total, d.overdraft,
        d.lots, d.drawn, d.holds, d.costs, d.rate, d.metadata, d.actor, d.setting, d.budget, d.idempotency_key, d.recorded_at, d.digest, d.digest_fits,
        d.moves_next_grant AND d.sequence = COALESCE(d.p_sequence, 0) + 1 AS moves_next_grant,
        d.lots_text,
        d.drawn::text AS drawn_text,
        d.holds::text AS holds_text,
        -- The time of the decision: the test clock's, that of imported history, or the server's.
        COALESCE(
            shown.clock_us,
            (extract(epoch FROM CASE WHEN starts_with(d.actor, 'import:') THEN least(d.effective_at, d.recorded_at) ELSE d.recorded_at END) * 1000000)::bigint
        ) AS decided_us,
        (extract(epoch FROM COALESCE(d.effective_at, d.recorded_at)) * 1000000)::bigint AS effective_us,
        (d.idempotency_key IS NULL) = (d.request_digest IS NULL) AS key_has_its_request,
        d.p_sequence,
        COALESCE(d.p_balance, 0) AS p_balance,
        COALESCE(d.p_held, 0) AS p_held,
        d.p_overdraft,
        d.p_lots_text::json AS p_lots,
        d.p_holds_text::json AS p_holds,
        d.p_recorded_at,
        -- After the clock was set back, an entry repeats the previous recorded_at and may count from an earlier time.
        COALESCE(shown.clock_us IS NULL AND d.recorded_at = d.p_recorded_at AND d.effective_at < d.recorded_at, false) AS may_be_set_back
    FROM doubtful d
    LEFT JOIN LATERAL (
        -- In the account of the move the entries' numbers tell what came after it, in others their times.
        SELECT m.clock_us
        FROM move m
        WHERE m.holder_id = d.holder_id
            AND CASE WHEN m.credit_type = d.credit_type THEN m.sequence < d.sequence ELSE m.recorded_at <= d.recorded_at END
        ORDER BY m.number DESC
        LIMIT 1
    ) AS shown ON true
), formed AS (
    SELECT
        t.*,
        t.lots_text ~ '^\[(\[\d+,\d+,-?\d+(e6)?(,(null|-?\d+(e6)?)(,\d+(,[12]|,[012],1|,[012],[01],\{("rates":\["[^"\\\[\]{}]+"(,"[^"\\\[\]{}]+")*\]|"rates":\["[^"\\\[\]{}]+"(,"[^"\\\[\]{}]+")*\],"labels":\{"[^"\\\[\]{}]+":\["[^"\\\[\]{}]+"(,"[^"\\\[\]{}]+")*\]\}|"labels":\{"[^"\\\[\]{}]+":\["[^"\\\[\]{}]+"(,"[^"\\\[\]{}]+")*\]\})\})?)?)?\](,(?!\])|(?=\]$)))*\]$'
            AND t.drawn_text ~ '^\[(\[\d+,\d+\](,(?!\])|(?=\]$)))*\]$'
            AND COALESCE(t.holds_text, '[]')
                ~ '^\[(\[\d+,-?\d+,\[(\[\d+,\d+,-?\d+(e6)?(,(null|-?\d+(e6)?)(,\d+(,[12]|,[012],1|,[012],[01],\{("rates":\["[^"\\\[\]{}]+"(,"[^"\\\[\]{}]+")*\]|"rates":\["[^"\\\[\]{}]+"(,"[^"\\\[\]{}]+")*\],"labels":\{"[^"\\\[\]{}]+":\["[^"\\\[\]{}]+"(,"[^"\\\[\]{}]+")*\]\}|"labels":\{"[^"\\\[\]{}]+":\["[^"\\\[\]{}]+"(,"[^"\\\[\]{}]+")*\]\})\})?)?)?\](,(?!\])|(?=\]\])))*\]\](,(?!\])|(?=\]$)))*\]$'
            AS is_canonical
    FROM classified t
), judged AS (
    SELECT
        f.*,
        array_remove(ARRAY[
            CASE WHEN f.sequence <> COALESCE(f.p_sequence, 0) + 1 THEN 'numbers' END,
            CASE WHEN f.balance <> f.p_balance + f.amount THEN 'balance' END,
            CASE WHEN NOT (f.balance >= 0 OR (f.overdraft IS NOT NULL AND (f.kind <> 'spend' OR f.balance >= -f.overdraft)))
                THEN 'overspent' END,
            CASE WHEN NOT f.digest_fits THEN 'digest' END,
            CASE WHEN f.moves_next_grant THEN 'recurring' END,
            CASE WHEN f.recorded_at < f.p_recorded_at THEN 'time' END,
            CASE WHEN f.recorded_at > (SELECT now FROM clock) THEN 'future' END,
            CASE WHEN NOT f.key_has_its_request THEN 'keys' END,
            CASE WHEN NOT f.is_canonical THEN 'form' END
        ], NULL)
        || CASE
            WHEN NOT f.is_canonical OR f.sequence <> COALESCE(f.p_sequence, 0) + 1 THEN '{}'
            ELSE (
                WITH lot_before AS (
                    SELECT (l ->> 0)::numeric AS lot, (l ->> 1)::numeric AS remaining, (l ->> 2)::numeric AS effective_us,
                        (l ->> 3)::numeric AS expires_us, COALESCE((l ->> 4)::numeric, 100) AS priority, NULLIF(l ->> 5, '0') AS promotional, NULLIF(l ->> 6, '0') AS received, l ->> 7 AS applies_to, place
                    FROM json_array_elements(f.p_lots) WITH ORDINALITY AS u (l, place)
                ), lot AS (
                    SELECT (l ->> 0)::numeric AS lot, (l ->> 1)::numeric AS remaining, (l ->> 2)::numeric AS effective_us,
                        (l ->> 3)::numeric AS expires_us, COALESCE((l ->> 4)::numeric, 100) AS priority, NULLIF(l ->> 5, '0') AS promotional, NULLIF(l ->> 6, '0') AS received, l ->> 7 AS applies_to, place
                    FROM json_array_elements(f.lots) WITH ORDINALITY AS u (l, place)
                ), part_before AS (
                    SELECT (h ->> 0)::numeric AS hold, (h ->> 1)::numeric AS hold_expires_us,
                        (l ->> 0)::numeric AS lot, (l ->> 1)::numeric AS remaining, (l ->> 2)::numeric AS effective_us,
                        (l ->> 3)::numeric AS expires_us, COALESCE((l ->> 4)::numeric, 100) AS priority, NULLIF(l ->> 5, '0') AS promotional, NULLIF(l ->> 6, '0') AS received, l ->> 7 AS applies_to
                    FROM json_array_elements(f.p_holds) AS h, json_array_elements(h -> 2) AS l
                ), part AS (
                    SELECT (h ->> 0)::numeric AS hold, (h ->> 1)::numeric AS hold_expires_us,
                        (l ->> 0)::numeric AS lot, (l ->> 1)::numeric AS remaining, (l ->> 2)::numeric AS effective_us,
                        (l ->> 3)::numeric AS expires_us, COALESCE((l ->> 4)::numeric, 100) AS priority, NULLIF(l ->> 5, '0') AS promotional, NULLIF(l ->> 6, '0') AS received, l ->> 7 AS applies_to
                    FROM json_array_elements(f.holds) AS h, json_array_elements(h -> 2) AS l
                ), drawn AS (
                    SELECT (d ->> 0)::numeric AS lot, (d ->> 1)::numeric AS amount
                    FROM json_array_elements(f.drawn) AS d
                ), purpose AS (
                    -- What the entry is for: a capture is for the labels of its hold, and for the rate of it unless it has its own.
                    SELECT
                        CASE WHEN f.kind IN ('spend', 'hold', 'capture') THEN COALESCE(f.rate, h.rating ->> 'rate') END AS rate,
                        CASE WHEN (f.kind = 'spend' OR f.kind = 'hold') AND f.actor <> 'billing' THEN f.metadata WHEN f.kind = 'capture' THEN h.metadata END AS metadata
                    FROM (SELECT) AS one
                    LEFT JOIN ledger_entry h
                        ON f.kind = 'capture' AND h.holder_id = f.holder_id AND h.credit_type = f.credit_type AND h.sequence = f.refers_to
                ), barred AS (
                    -- The lots whose credits cannot pay for that.
                    SELECT DISTINCT known.lot
                    FROM (
                        SELECT lot, applies_to::json AS applies_to FROM lot_before
                        UNION ALL
                        SELECT lot, applies_to::json FROM part_before
                    ) AS known
                    CROSS JOIN purpose
                    WHERE known.applies_to IS NOT NULL
                        AND (f.kind IN ('adjust', 'hold', 'spend', 'transfer_out') OR f.kind = 'capture')
                        AND (
                            (
                                known.applies_to -> 'rates' IS NOT NULL
                                AND NOT COALESCE((known.applies_to -> 'rates')::jsonb ? purpose.rate, false)
                            ) OR EXISTS (
                                SELECT
                                FROM json_each(known.applies_to -> 'labels') AS label
                                WHERE NOT COALESCE(label.value::jsonb ? (purpose.metadata ->> label.key), false)
                            )
                        )
                ), facts AS (
                    SELECT
                        COALESCE((SELECT sum(amount) FROM drawn), 0) AS drawn,
                        COALESCE((SELECT sum(remaining) FROM lot_before), 0) - f.p_balance AS owed_before,
                        CASE WHEN f.kind IN ('hold', 'capture', 'release') THEN COALESCE(f.refers_to, f.sequence) END AS hold,
                        (
                            SELECT o.kind
                            FROM ledger_entry o
                            WHERE o.holder_id = f.holder_id AND o.credit_type = f.credit_type AND o.sequence = f.refers_to
                        ) AS closed_kind
                ), taken AS (
                    -- The amount to take from each lot, in burn order, at the time from which the entry counts.
                    SELECT b.lot, b.place, b.remaining,
                        CASE
                            WHEN b.effective_us <= f.effective_us AND (b.expires_us IS NULL OR b.expires_us > f.effective_us)
                                AND b.lot NOT IN (SELECT lot FROM barred)
                            THEN LEAST(b.remaining, GREATEST(0, w.due - COALESCE(sum(b.remaining) FILTER (
                                WHERE b.effective_us <= f.effective_us AND (b.expires_us IS NULL OR b.expires_us > f.effective_us)
                                    AND b.lot NOT IN (SELECT lot FROM barred)
                            ) OVER (ORDER BY b.place ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0)))
                            ELSE 0
                        END AS amount
                    FROM lot_before b
                    CROSS JOIN (
                        SELECT CASE
                            WHEN f.kind <> 'adjust' THEN -f.amount
                            WHEN f.idempotency_key IS NULL THEN GREATEST(facts.owed_before, 0)
                            ELSE 0
                        END AS due
                        FROM facts
                    ) AS w
                )
                SELECT array_remove(ARRAY[
                    -- Each lot, held parts included, has what it had before, less what was drawn, plus what was given back or granted.
                    CASE WHEN EXISTS (
                        SELECT
                        FROM (
                            SELECT lot, remaining AS change FROM lot
                            UNION ALL SELECT lot, remaining FROM part
                            UNION ALL SELECT lot, -remaining FROM lot_before
                            UNION ALL SELECT lot, -remaining FROM part_before
                            UNION ALL SELECT lot, CASE
                                WHEN f.kind IN ('refund', 'transfer_in') THEN -amount
                                WHEN f.kind IN ('hold', 'release') THEN 0
                                WHEN f.kind IN ('grant', 'spend', 'revoke', 'reissue', 'expire', 'capture', 'transfer_out', 'adjust', 'refusal') THEN amount
                            END FROM drawn
                            UNION ALL SELECT f.sequence, -f.amount WHERE f.kind = 'grant' OR (f.kind = 'transfer_in' AND f.drawn_text = '[]')
                            UNION ALL SELECT f.sequence, -amount FROM drawn WHERE f.kind = 'reissue'
                        ) AS changes
                        GROUP BY lot
                        HAVING sum(change) <> 0
                    ) OR (
                        f.kind IN ('hold', 'release') AND EXISTS (
                            SELECT
                            FROM (
                                SELECT lot, remaining AS change FROM lot
                                UNION ALL SELECT lot, -remaining FROM lot_before
                                UNION ALL SELECT lot, CASE WHEN f.kind = 'hold' THEN amount WHEN f.kind = 'release' THEN -amount END FROM drawn
                            ) AS changes
                            GROUP BY lot
                            HAVING sum(change) <> 0
                        )
                    ) OR EXISTS (SELECT FROM lot WHERE remaining < 1)
                    OR EXISTS (SELECT FROM lot GROUP BY lot HAVING count(*) > 1)
                    THEN 'lots' END,
                    CASE WHEN (SELECT
                        CASE WHEN f.overdraft IS NULL THEN COALESCE(sum(remaining), 0) <> f.balance
                        ELSE COALESCE(sum(remaining), 0) < f.balance END
                        FROM lot
                    ) THEN 'lots-sum' END,
                    -- A lot's terms never change, also if it was closed and credits come back to it.
                    CASE WHEN EXISTS (
                        SELECT
                        FROM lot AS n
                        LEFT JOIN lot_before b USING (lot)
                        WHERE CASE
                            WHEN b.lot IS NOT NULL THEN
                                (n.effective_us, n.expires_us, n.priority, n.promotional, n.received, n.applies_to)
                                IS DISTINCT FROM (b.effective_us, b.expires_us, b.priority, b.promotional, b.received, b.applies_to)
                            WHEN n.lot = f.sequence THEN f.kind NOT IN ('grant', 'transfer_in', 'refund', 'reissue')
                                OR (f.kind = 'transfer_in') <> (n.received IS NOT NULL)
                                OR (
                                    f.kind = 'grant'
                                    AND n.effective_us <> f.effective_us
                                    -- 0 means that the lot could be spent as soon as the entry was recorded.
                                    AND NOT (n.effective_us = 0 AND f.effective_us <= f.decided_us)
                                )
                                -- A lot of other terms has the effective time and the source of the lot that it replaces.
                                OR (f.kind = 'reissue' AND NOT EXISTS (
                                    SELECT
                                    FROM lot_before AS replaced
                                    WHERE replaced.lot = f.refers_to
                                        AND (replaced.effective_us = n.effective_us OR (n.effective_us = 0 AND replaced.effective_us <= f.effective_us))
                                        AND (replaced.promotional, replaced.applies_to) IS NOT DISTINCT FROM (n.promotional, n.applies_to)
                                        AND (replaced.expires_us, replaced.priority) IS DISTINCT FROM (n.expires_us, n.priority)
                                        AND COALESCE(n.expires_us > f.effective_us, true)
                                ))
                                OR (f.kind = 'refund' AND (n.effective_us <> 0 OR COALESCE(n.expires_us <= f.effective_us, true)))
                            WHEN f.kind = 'transfer_in' AND f.refers_to IS NULL AND NOT EXISTS (SELECT FROM part_before h WHERE h.lot = n.lot) THEN true
                            ELSE f.kind NOT IN ('refund', 'release', 'transfer_in') OR NOT EXISTS (
                                SELECT
                                FROM ledger_entry o
                                CROSS JOIN json_array_elements(o.lots) AS l
                                WHERE o.holder_id = f.holder_id
                                    AND o.credit_type = f.credit_type
                                    AND o.sequence = n.lot
                                    AND (l ->> 0)::numeric = n.lot
                                    AND (
                                        (l ->> 2)::numeric, (l ->> 3)::numeric, COALESCE((l ->> 4)::numeric, 100), NULLIF(l ->> 5, '0'), NULLIF(l ->> 6, '0'), l ->> 7
                                    ) IS NOT DISTINCT FROM (n.effective_us, n.expires_us, n.priority, n.promotional, n.received, n.applies_to)
                            )
                        END
                    ) THEN 'terms' END,
                    -- Receipts of equal terms share a lot, open or held, and nothing else goes into it.
                    CASE WHEN EXISTS (
                        SELECT
                        FROM (
                            SELECT lot, effective_us, expires_us, priority, promotional, applies_to FROM lot WHERE received IS NOT NULL
                            UNION SELECT lot, effective_us, expires_us, priority, promotional, applies_to FROM part WHERE received IS NOT NULL
                        ) AS shared
                        LEFT JOIN (
                            SELECT (c ->> 0)::numeric AS lot, c ->> 2 AS currency
                            FROM json_array_elements(CASE WHEN json_typeof(f.costs) = 'array' THEN f.costs END) AS c
                        ) AS sold USING (lot)
                        GROUP BY effective_us, expires_us, priority, promotional, applies_to, currency
                        HAVING count(*) > 1
                    ) OR (
                        f.kind = 'transfer_in' AND f.refers_to IS NULL AND EXISTS (SELECT FROM drawn LEFT JOIN lot USING (lot) WHERE lot.received IS NULL)
                    ) THEN 'shared' END,
                    CASE WHEN EXISTS (
                        SELECT
                        FROM (
                            SELECT place, row_number() OVER (ORDER BY priority, expires_us NULLS LAST, promotional NULLS LAST, lot) AS rank
                            FROM lot
                        ) AS ranked
                        WHERE place <> rank
                    ) THEN 'lots-order' END,
                    CASE WHEN CASE
                        WHEN f.kind IN ('spend', 'hold', 'transfer_out', 'adjust') THEN
                            f.refers_to IS NULL AND f.drawn_text <> COALESCE(
                                (SELECT '[' || string_agg('[' || lot || ',' || amount || ']', ',' ORDER BY place) || ']'
                                FROM taken WHERE amount > 0),
                                '[]'
                            )
                        WHEN f.kind = 'capture' THEN EXISTS (
                            SELECT FROM taken t LEFT JOIN lot n USING (lot) WHERE t.remaining - COALESCE(n.remaining, 0) <> t.amount
                        )
                        -- A revocation of no grant takes all lots, up to the largest amount.
                        WHEN f.kind IN ('revoke', 'expire') THEN f.drawn_text <> COALESCE('[[' || f.refers_to || ',' || -f.amount || ']]', (
                            SELECT '[' || string_agg('[' || lot || ',' || LEAST(remaining, 9007199254740991 - ahead) || ']', ',' ORDER BY place) || ']'
                            FROM (SELECT lot, place, remaining, COALESCE(sum(remaining) OVER (
                                ORDER BY place ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
                            ), 0) AS ahead FROM lot_before) AS whole
                            WHERE ahead < 9007199254740991
                        ), '[]')
                        WHEN f.kind IN ('grant', 'refund', 'reissue', 'release', 'transfer_in', 'refusal') THEN false
                    END IS NOT FALSE THEN 'burn-order' END,
                    CASE WHEN EXISTS (SELECT FROM drawn JOIN barred USING (lot)) THEN 'purpose' END,
                    CASE WHEN (SELECT CASE
                        WHEN f.kind = 'spend' THEN facts.drawn = -f.amount OR (f.overdraft IS NOT NULL AND facts.drawn < -f.amount)
                        WHEN f.kind = 'refund' THEN facts.drawn = f.amount OR (f.overdraft IS NOT NULL AND facts.drawn < f.amount)
                        WHEN f.kind = 'release' THEN facts.drawn = f.amount
                        WHEN f.kind = 'capture' THEN facts.drawn >= -f.amount
                        WHEN f.kind = 'grant' THEN facts.drawn = 0
                        WHEN f.kind = 'transfer_in' THEN f.drawn_text = '[]' OR f.drawn_text ~ ('^\[\[\d+,' || f.amount || '\]\]$')
                        WHEN f.kind = 'adjust' THEN f.amount = 0
                        WHEN f.kind = 'reissue' THEN f.amount = 0 AND f.drawn_text = COALESCE((
                            SELECT '[[' || lot || ',' || remaining || ']]' FROM lot_before WHERE lot = f.refers_to
                        ), '')
                        WHEN f.kind = 'refusal' THEN f.amount = 0 AND facts.drawn = 0
                        WHEN f.kind IN ('revoke', 'expire', 'hold', 'transfer_out') THEN facts.drawn = -f.amount
                    END IS NOT TRUE FROM facts) OR EXISTS (SELECT FROM drawn WHERE amount < 1)
                    OR EXISTS (SELECT FROM drawn GROUP BY lot HAVING count(*) > 1)
                    THEN 'drawn' END,
                    CASE WHEN (SELECT f.held <> COALESCE((SELECT sum(remaining) FROM part), 0)
                        OR f.held - f.p_held IS DISTINCT FROM CASE
                            WHEN f.kind IN ('hold', 'release') THEN -f.amount
                            WHEN f.kind = 'capture' THEN -(facts.drawn + f.amount)
                            WHEN f.kind IN ('grant', 'spend', 'refund', 'revoke', 'reissue', 'expire', 'transfer_in', 'transfer_out', 'adjust', 'refusal') THEN 0
                        END FROM facts)
                    THEN 'held' END,
                    -- Other holds do not change (but 5e6 may be written 5000000); the parts of this hold have the terms of their lots.
                    CASE WHEN (SELECT (
                            SELECT string_agg(replace(h::text, 'e6', '000000'), ',' ORDER BY place)
                            FROM json_array_elements(f.p_holds) WITH ORDINALITY AS u (h, place)
                            WHERE (h ->> 0)::numeric IS DISTINCT FROM facts.hold
                        ) IS DISTINCT FROM (
                            SELECT string_agg(replace(h::text, 'e6', '000000'), ',' ORDER BY place)
                            FROM json_array_elements(f.holds) WITH ORDINALITY AS u (h, place)
                            WHERE (h ->> 0)::numeric IS DISTINCT FROM facts.hold
                        ) OR EXISTS (
                            SELECT
                            FROM part n
                            LEFT JOIN (
                                SELECT lot, effective_us, expires_us, priority, promotional, received, applies_to
                                FROM part_before
                                WHERE hold = facts.hold
                                UNION ALL
                                SELECT lot, effective_us, expires_us, priority, promotional, received, applies_to
                                FROM lot_before
                                WHERE f.refers_to IS NULL
                            ) AS b USING (lot)
                            WHERE n.hold = facts.hold
                                AND (n.effective_us, n.expires_us, n.priority, n.promotional, n.received, n.applies_to)
                                    IS DISTINCT FROM (b.effective_us, b.expires_us, b.priority, b.promotional, b.received, b.applies_to)
                        ) OR (
                            f.kind IN ('capture', 'release') AND EXISTS (
                                SELECT
                                FROM json_array_elements(f.holds) AS n
                                JOIN json_array_elements(f.p_holds) AS b ON n ->> 0 = b ->> 0
                                WHERE (n ->> 0)::numeric = facts.hold AND (n ->> 1)::numeric <> (b ->> 1)::numeric
                            )
                        ) OR (
                            -- A hold stands in the state, also one of 0.
                            f.kind = 'hold' AND NOT EXISTS (
                                SELECT FROM json_array_elements(f.holds) AS h WHERE (h ->> 0)::numeric = facts.hold
                            )
                        )
                        FROM facts)
                    THEN 'holds' END,
                    CASE WHEN (f.overdraft IS DISTINCT FROM f.p_overdraft AND (f.kind <> 'adjust' OR f.idempotency_key IS NULL))
                        OR (f.kind = 'adjust' AND f.overdraft IS NULL AND f.setting IS NULL AND f.budget IS NULL)
                    THEN 'overdraft' END,
                    CASE WHEN f.setting IS NOT NULL AND NOT (
                        f.kind = 'adjust'
                        AND (f.setting IN ('accepted', 'refused', 'frozen', 'thawed') OR f.setting LIKE 'moved%%')
                        AND f.idempotency_key IS NOT NULL
                        AND f.drawn_text = '[]'
                        AND f.overdraft IS NOT DISTINCT FROM f.p_overdraft
                    ) THEN CASE WHEN f.setting IN ('frozen', 'thawed') THEN 'frozen' WHEN f.setting LIKE 'moved%%' THEN 'clocks' ELSE 'incoming' END END,
                    CASE WHEN CASE
                        WHEN f.kind = 'grant' THEN false
                        WHEN f.kind = 'expire' THEN f.effective_us > f.decided_us OR NOT EXISTS (
                            SELECT FROM lot_before WHERE lot = f.refers_to AND expires_us = f.effective_us
                        )
                        WHEN f.kind = 'release' THEN f.effective_us <> f.decided_us AND NOT f.may_be_set_back AND NOT EXISTS (
                            SELECT FROM json_array_elements(f.p_holds) AS h
                            WHERE (h ->> 0)::numeric = f.refers_to AND (h ->> 1)::numeric = f.effective_us
                                AND f.effective_us <= f.decided_us
                        )
                        -- A repayment booked later counts from when a lot became effective, or from when a hold gave back credits.
                        WHEN f.kind = 'adjust' THEN f.effective_us <> f.decided_us AND NOT f.may_be_set_back AND (
                            f.idempotency_key IS NOT NULL
                            OR f.effective_us > f.decided_us
                            OR NOT (
                                EXISTS (SELECT FROM lot_before WHERE effective_us = f.effective_us)
                                OR EXISTS (
                                    SELECT
                                    FROM ledger_entry o
                                    WHERE o.holder_id = f.holder_id
                                        AND o.credit_type = f.credit_type
                                        AND o.kind = 'release'
                                        AND o.sequence < f.sequence
                                        AND o.recorded_at = f.recorded_at
                                        AND (extract(epoch FROM o.effective_at) * 1000000)::bigint = f.effective_us
                                )
                            )
                        )
                        WHEN f.kind IN ('spend', 'refund', 'revoke', 'reissue', 'hold', 'capture', 'transfer_in', 'transfer_out', 'refusal') THEN
                            f.effective_us <> f.decided_us AND NOT f.may_be_set_back
                    END IS NOT FALSE THEN 'time' END,
                    CASE WHEN f.refers_to IS NOT NULL AND (SELECT closed_kind IS NULL FROM facts) THEN 'orphans' END,
                    CASE WHEN (SELECT CASE
                        WHEN f.kind = 'refund' THEN f.refers_to IS NOT NULL AND COALESCE(closed_kind IN ('spend', 'capture'), true)
                        WHEN f.kind = 'revoke' THEN f.refers_to IS NULL OR COALESCE(closed_kind IN ('grant', 'reissue'), true)
                        WHEN f.kind IN ('expire', 'reissue') THEN
                            f.refers_to IS NOT NULL AND COALESCE(closed_kind IN ('grant', 'transfer_in', 'refund', 'reissue'), true)
                        WHEN f.kind IN ('capture', 'release') THEN f.refers_to IS NOT NULL AND COALESCE(closed_kind = 'hold', true)
                        WHEN f.kind = 'hold' THEN f.refers_to IS NULL OR (f.amount = 0 AND COALESCE(closed_kind = 'hold', true))
                        WHEN f.kind = 'transfer_in' THEN f.refers_to IS NULL OR COALESCE(closed_kind = 'transfer_out', true)
                        WHEN f.kind = 'transfer_out' THEN f.refers_to IS NULL OR COALESCE(closed_kind = 'transfer_in', true)
                        WHEN f.kind IN ('grant', 'spend', 'adjust', 'refusal') THEN f.refers_to IS NULL
                    END IS NOT TRUE FROM facts) THEN 'refers-to' END,
                    CASE WHEN (f.refunded_total IS NOT NULL) <> (f.kind = 'refund') THEN 'refunds' END,
                    CASE WHEN f.idempotency_key IS NULL AND f.kind NOT IN ('grant', 'revoke', 'expire', 'release', 'adjust', 'transfer_in', 'transfer_out', 'refund') THEN 'keys' END
                ], NULL)
            )
        END AS broken
    FROM formed f
)
SELECT
    law,
    j.holder_id,
    j.credit_type,
    j.sequence,
    CASE law
        WHEN 'numbers' THEN j.sequence::text
        WHEN 'balance' THEN j.balance::text
        WHEN 'overspent' THEN j.balance::text
        WHEN 'digest' THEN encode(j.digest, 'hex')
        WHEN 'future' THEN to_char(j.recorded_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')
        WHEN 'time' THEN to_char(j.recorded_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')
        WHEN 'held' THEN j.held::text
        WHEN 'overdraft' THEN j.overdraft::text
        WHEN 'orphans' THEN j.kind || ' of ' || j.refers_to
        WHEN 'refers-to' THEN j.kind || ' of ' || COALESCE(j.refers_to::text, 'nothing')
        WHEN 'refunds' THEN j.kind || ' refunded_total ' || COALESCE(j.refunded_total::text, 'null')
        WHEN 'holds' THEN left(j.holds_text, 400)
        ELSE concat_ws(' ', j.kind, j.amount, 'drawn', left(j.drawn_text, 200), 'lots', left(j.lots_text, 400))
    END AS found,
    CASE law
        WHEN 'future' THEN to_char((SELECT now FROM clock) AT TIME ZONE 'UTC', '"at most "YYYY-MM-DD"T"HH24:MI:SS.US"Z"')
        WHEN 'numbers' THEN (COALESCE(j.p_sequence, 0) + 1)::text
        WHEN 'balance' THEN (j.p_balance + j.amount)::text
        WHEN 'digest' THEN (
            SELECT encode(ledger_entry_digest(COALESCE(p.digest, decode(repeat('00', 32), 'hex')), e), 'hex')
            FROM ledger_entry e
            LEFT JOIN ledger_entry p
                ON p.holder_id = e.holder_id AND p.credit_type = e.credit_type AND p.sequence = e.sequence - 1
            WHERE e.holder_id = j.holder_id AND e.credit_type = j.credit_type AND e.sequence = j.sequence
        )
        WHEN 'overdraft' THEN j.p_overdraft::text
    END AS expected
FROM judged j
CROSS JOIN LATERAL unnest(j.broken) AS law
WHERE j.broken <> '{}'
