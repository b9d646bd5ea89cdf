-- The tables of totals. 0001_initial.py runs this file and declares the models that read it.
--
--   ledger_daily_total, ledger_total_state, ledger_expiring_total, ledger_month_close   totals of all accounts, counted from the entries

-- The functions keep the schema that the migration works in, as those of the ledger.
SELECT set_config('search_path', format('%I, pg_temp', current_schema()), true);

-- The totals of a day's entries over all accounts. `manage.py update_totals` counts them from the entries; no rule depends on them.
CREATE TABLE ledger_daily_total (
    day                 date             NOT NULL,
    credit_type         text COLLATE "C" NOT NULL,
    granted_purchased   numeric(38, 0)   NOT NULL,
    granted_promotional numeric(38, 0)   NOT NULL,
    granted_postpaid    numeric(38, 0)   NOT NULL,
    spent               numeric(38, 0)   NOT NULL,
    refunded            numeric(38, 0)   NOT NULL,
    expired             numeric(38, 0)   NOT NULL,
    revoked             numeric(38, 0)   NOT NULL,
    transferred_in      numeric(38, 0)   NOT NULL,
    transferred_out     numeric(38, 0)   NOT NULL,
    held_change         numeric(38, 0)   NOT NULL,
    refusals            bigint           NOT NULL,
    entries             bigint           NOT NULL,
    late_entries        bigint           NOT NULL DEFAULT 0,
    PRIMARY KEY (day, credit_type)
);

COMMENT ON TABLE  ledger_daily_total              IS 'Totals of the entries of a day (UTC), by credit type; days of a closed month never change.';
COMMENT ON COLUMN ledger_daily_total.spent        IS 'Spends, and what captures took; refunds are counted separately.';
COMMENT ON COLUMN ledger_daily_total.held_change  IS 'By how much the held credits grew.';
COMMENT ON COLUMN ledger_daily_total.entries      IS 'Entries, refusals included.';
COMMENT ON COLUMN ledger_daily_total.late_entries IS 'How many of these entries belong to an earlier month, which was closed when they appeared.';

CREATE TABLE ledger_total_state (
    is_only       boolean     PRIMARY KEY DEFAULT true CHECK (is_only),
    counted_until timestamptz NOT NULL,
    entries       jsonb       NOT NULL DEFAULT '{}'
);
INSERT INTO ledger_total_state (counted_until) VALUES ('2000-01-01 00:00:00+00');

COMMENT ON TABLE  ledger_total_state               IS 'How far the entries are counted; one row.';
COMMENT ON COLUMN ledger_total_state.counted_until IS 'Every entry recorded before this instant is in the totals.';
COMMENT ON COLUMN ledger_total_state.entries       IS 'How many entries of each kind were counted, of all credit types and days.';

CREATE TABLE ledger_expiring_total (
    expires_us  bigint           NOT NULL,
    credit_type text COLLATE "C" NOT NULL,
    credits     numeric(38, 0)   NOT NULL,
    PRIMARY KEY (expires_us, credit_type)
);
CREATE INDEX ledger_expiring_total_nothing ON ledger_expiring_total (expires_us) WHERE credits = 0;

COMMENT ON TABLE  ledger_expiring_total            IS 'Credits in open lots that expire, by the instant of expiry, as of ledger_total_state.counted_until.';
COMMENT ON COLUMN ledger_expiring_total.expires_us IS 'In microseconds since 1970, as in the lots of entries.';
COMMENT ON COLUMN ledger_expiring_total.credits    IS 'Credits of all accounts; held credits are not in their lots.';

CREATE TABLE ledger_month_close (
    month       date             NOT NULL,
    credit_type text COLLATE "C" NOT NULL,
    accounts    bigint           NOT NULL,
    entries     bigint           NOT NULL,
    balance     numeric(38, 0)   NOT NULL,
    held        numeric(38, 0)   NOT NULL,
    outstanding json             NOT NULL,
    paid        json             NOT NULL,
    ties        json             NOT NULL,
    costs       json             NOT NULL,
    closed_at   timestamptz      NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (month, credit_type),
    CONSTRAINT ledger_month_close_first_day CHECK (extract(day FROM month) = 1)
);

COMMENT ON TABLE  ledger_month_close             IS 'Totals of all accounts at the end of a month, by credit type. Append-only.';
COMMENT ON COLUMN ledger_month_close.entries     IS 'How many entries all accounts had then, by their sequence numbers.';
COMMENT ON COLUMN ledger_month_close.outstanding IS 'Open and held lots, by month of expiry, source and whether they are held.';
COMMENT ON COLUMN ledger_month_close.paid        IS 'What was paid for the purchased credits of the month, by currency, in minor units.';

COMMENT ON COLUMN ledger_month_close.ties        IS 'What documents say about the month''s entries, and what the entries add up to.';
COMMENT ON COLUMN ledger_month_close.costs       IS 'What sold credits cost: [currency, month of expiry or empty, line, minor units, 1 if late], from opening to closing.';

CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON ledger_month_close
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
ALTER TABLE ledger_month_close ENABLE ALWAYS TRIGGER append_only;

CREATE FUNCTION ledger_refuse_closed_day() RETURNS trigger
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    that_day date := CASE TG_OP WHEN 'DELETE' THEN OLD.day ELSE NEW.day END;
BEGIN
    -- A total that logical replication or a dump brings may come after the close of its month.
    IF TG_OP = 'INSERT' AND current_setting('session_replication_role') = 'replica' THEN
        RETURN NEW;
    END IF;
    IF EXISTS (SELECT FROM ledger_month_close WHERE month = date_trunc('month', that_day)::date) THEN
        RAISE EXCEPTION 'ledger_daily_total: the month of % is closed', that_day USING ERRCODE = 'LG001', TABLE = 'ledger_daily_total';
    END IF;
    RETURN CASE TG_OP WHEN 'DELETE' THEN OLD ELSE NEW END;
END $$;

CREATE TRIGGER closed BEFORE INSERT OR UPDATE OR DELETE ON ledger_daily_total
    FOR EACH ROW EXECUTE FUNCTION ledger_refuse_closed_day();
ALTER TABLE ledger_daily_total ENABLE ALWAYS TRIGGER closed;

-- The state of an account after the entry with that number, in parts that can be added up over accounts: the totals, without a source, and
-- then each open and held lot, with the month (UTC) in which it expires.
CREATE FUNCTION ledger_state_parts(number bigint, balance bigint, set_aside bigint, lots json, holds json)
RETURNS TABLE (
    source  text,
    expires text,
    is_held boolean,
    entries bigint,
    credits bigint,
    held    bigint
)
LANGUAGE sql STABLE
BEGIN ATOMIC
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
END;

-- What is registered -----------------------------------------------------------------------------------------------------------------------

CALL ledger_have_registered('ledger_month_close', '{month,credit_type}');
CALL ledger_have_registered('ledger_daily_total', '{day,credit_type}',
    '{granted_purchased,granted_promotional,granted_postpaid,spent,refunded,expired,revoked,transferred_in,transferred_out,held_change,refusals,entries,late_entries}');
CALL ledger_have_registered('ledger_expiring_total', '{expires_us,credit_type}', '{credits}');
-- The application may delete these.
CREATE TRIGGER unregistered AFTER DELETE ON ledger_expiring_total
    FOR EACH ROW EXECUTE FUNCTION ledger_register_row('expires_us', 'credit_type');
