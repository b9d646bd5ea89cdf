-- The same spend as one server function: lock, replay check, lots in burn order, digest, insert. It knows spends alone, and neither
-- dues, holds, overdrafts nor rates, which is to its advantage.
CREATE FUNCTION competitors.spend(
    lock_number bigint, holder text, type text, wanted bigint, key text, request bytea, actor text, reason text, reference text
) RETURNS ledger_entry
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    last    ledger_entry;
    made    ledger_entry;
    now_us  bigint;
    missing bigint := wanted;
    part    bigint;
    lot     json;
    fields  text[];
    kept    text[] := '{}';
    drawn   text[] := '{}';
BEGIN
    PERFORM pg_advisory_xact_lock(lock_number);
    SELECT e.*
    INTO made
    FROM ledger_entry e
    WHERE e.holder_id = holder AND ledger_key_hash(e.idempotency_key) = ledger_key_hash(key) AND e.idempotency_key = key;
    IF FOUND THEN
        RETURN made;
    END IF;
    SELECT e.* INTO last FROM ledger_entry e WHERE e.holder_id = holder AND e.credit_type = type ORDER BY e.sequence DESC LIMIT 1;
    made.recorded_at := GREATEST(clock_timestamp(), last.recorded_at);
    now_us := (extract(epoch FROM made.recorded_at) * 1000000)::bigint;
    FOR lot IN SELECT json_array_elements(last.lots) LOOP
        IF missing > 0 AND (lot ->> 2)::numeric <= now_us AND COALESCE((lot ->> 3)::numeric, now_us + 1) > now_us THEN
            part := LEAST(missing, (lot ->> 1)::bigint);
            missing := missing - part;
            drawn := drawn || format('[%s,%s]', lot ->> 0, part);
            IF part < (lot ->> 1)::bigint THEN
                fields := ARRAY(SELECT json_array_elements(lot)::text);
                fields[2] := ((lot ->> 1)::bigint - part)::text;
                kept := kept || ('[' || array_to_string(fields, ',') || ']');
            END IF;
        ELSE
            kept := kept || lot::text;
        END IF;
    END LOOP;
    IF missing > 0 THEN
        RAISE EXCEPTION 'not enough credits' USING ERRCODE = 'LG100';
    END IF;
    made.holder_id := holder;
    made.credit_type := type;
    made.sequence := last.sequence + 1;
    made.kind := 'spend';
    made.amount := -wanted;
    made.balance := last.balance - wanted;
    made.held := last.held;
    made.lots := '[' || array_to_string(kept, ',') || ']';
    made.drawn := '[' || array_to_string(drawn, ',') || ']';
    made.idempotency_key := key;
    made.request_digest := request;
    made.actor := actor;
    made.reason := reason;
    made.reference := reference;
    made.digest := ledger_entry_digest(COALESCE(last.digest, decode(repeat('00', 32), 'hex')), made);
    INSERT INTO ledger_entry SELECT made.*;
    RETURN made;
END $$;
