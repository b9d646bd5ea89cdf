-- What the database itself refuses, as far as Django's models cannot express it. Tables, columns, keys, checks and indexes that they
-- can express are in billing/models; the function refuse_change() is the ledger's.

-- Each function keeps the schema that the migration works in as its search path, as the ledger's do.
SELECT set_config('search_path', format('%I, pg_temp', current_schema()), true);


-- Periods ---------------------------------------------------------------------------------------------

-- Two claims of an item and kind never overlap, so a bypassed lock cannot bill a period twice. Plain ranges instead of
-- btree_gist's operators: the server that comes with pip has no btree_gist.
ALTER TABLE billing_claim
    ADD CONSTRAINT billing_claim_period CHECK (starts_at < ends_at),
    ADD CONSTRAINT billing_claim_no_overlap EXCLUDE USING gist (
        int8range(item_id, item_id, '[]') WITH &&,
        int4range(kind, kind, '[]') WITH &&,
        tstzrange(starts_at, ends_at) WITH &&
    ) WHERE (released_at IS NULL);

ALTER TABLE billing_itemversion
    ADD CONSTRAINT billing_itemversion_valid CHECK (ends_at IS NULL OR starts_at < ends_at),
    ADD CONSTRAINT billing_itemversion_no_overlap EXCLUDE USING gist (
        int8range(item_id, item_id, '[]') WITH &&,
        tstzrange(starts_at, ends_at) WITH &&
    ) WHERE (superseded_at IS NULL);


-- Names -----------------------------------------------------------------------------------------------

-- A text for the comparison of names: without accents and case, punctuation as spaces. Letters that Unicode does not take apart
-- are replaced here. Characters are named by number, because classes such as [[:alnum:]] differ between databases. At most 500 characters: a word of
-- an index has at most 2,046 bytes, and one character may become many.
CREATE FUNCTION billing_folded_name(name text) RETURNS text
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN left(trim(regexp_replace(
    regexp_replace(lower(translate(normalize(
        replace(replace(replace(replace(replace(replace(replace(replace(
            name, 'ß', 'ss'), 'ẞ', 'ss'), 'Æ', 'ae'), 'æ', 'ae'), 'Œ', 'oe'), 'œ', 'oe'), 'Þ', 'th'), 'þ', 'th'
    ), NFKD), 'ØøŁłĐđÐðĦħŦŧıς', 'oollddddhhttiσ')), '[\u0300-\u036f]+', '', 'g'),
    '[\u0001-\u002f\u003a-\u0060\u007b-\u00bf\u2000-\u206f\u3000-\u3004]+', ' ', 'g'
)), 500);

-- The same text, with umlauts spelt as two letters: "Müller" is "mueller" too.
CREATE FUNCTION billing_spelt_name(name text) RETURNS text
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN billing_folded_name(regexp_replace(regexp_replace(regexp_replace(regexp_replace(normalize(name, NFKD),
    '([AaOoUu])\u0308', '\1e', 'g'), '([Aa])\u030a', '\1a', 'g'), 'Ø', 'oe', 'g'), 'ø', 'oe', 'g'));

-- The words of a name, in both spellings.
CREATE FUNCTION billing_name_words(name text) RETURNS tsvector
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN array_to_tsvector(array_remove(
    string_to_array(billing_folded_name(name), ' ') || string_to_array(billing_spelt_name(name), ' '), ''
));

-- What somebody typed, as a query: each typed word begins a word of the name, in one of the spellings. Null without any word.
CREATE FUNCTION billing_name_query(typed text) RETURNS tsquery
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN (
    SELECT string_agg(format('(''%s'':*|''%s'':*)', word.folded, word.spelt), '&')::tsquery
    FROM unnest(
        string_to_array(billing_folded_name(typed), ' '), string_to_array(billing_spelt_name(typed), ' ')
    ) AS word (folded, spelt)
    WHERE word.folded <> ''
);

-- Find customers and plans by words of their names; the server updates the words with the names. The indexes have no list of pending
-- rows, which each search would read in full.
ALTER TABLE billing_customer ADD COLUMN name_words tsvector GENERATED ALWAYS AS (billing_name_words(name)) STORED;
ALTER TABLE billing_plan ADD COLUMN name_words tsvector GENERATED ALWAYS AS (billing_name_words(name)) STORED;
CREATE INDEX billing_customer_name ON billing_customer USING gin (name_words) WITH (fastupdate = off);
-- Finds the subscriptions that were ordered on or amended to some versions of a plan, for plan moves.
CREATE INDEX billing_amendment_plan ON billing_amendment (((change ->> 'plan')::bigint), subscription_id) WHERE change ? 'plan';
CREATE INDEX billing_plan_name ON billing_plan USING gin (name_words) WITH (fastupdate = off);


-- Usage events ----------------------------------------------------------------------------------------

-- Partitioned by the time of use: a month that is billed and past every look-back is detached and dropped in one step. All events
-- go into the default partition until there are partitions of months. The key is unique in billing_usagekey, which is never pruned.
CREATE TABLE billing_usageevent (
    subscription_id bigint         NOT NULL,
    meter           varchar(64)    NOT NULL,
    occurred_at     timestamptz    NOT NULL,
    idempotency_key varchar(255)   NOT NULL,
    value           numeric(38,12) NOT NULL,
    properties      jsonb          NOT NULL,
    recorded_at     timestamptz    NOT NULL DEFAULT clock_timestamp(),
    -- The key of an event of the same subscription, meter and time that no longer counts; of a cancellation, `counts` is false.
    corrects        varchar(255),
    counts          boolean        NOT NULL DEFAULT true,
    -- The version of the meter whose expression computed the value; null: the value was sent.
    meter_version   integer,
    CONSTRAINT billing_usageevent_cancels CHECK (counts OR corrects IS NOT NULL),
    CONSTRAINT billing_usageevent_computed CHECK (meter_version IS NULL OR meter_version >= 1 AND counts),
    CONSTRAINT billing_usageevent_years CHECK (occurred_at >= '2000-01-01 00:00:00+00' AND occurred_at < '2201-01-01 00:00:00+00')
) PARTITION BY RANGE (occurred_at);
CREATE TABLE billing_usageevent_default PARTITION OF billing_usageevent DEFAULT;
CREATE INDEX billing_usageevent_period ON billing_usageevent (subscription_id, meter, occurred_at);
-- An event is corrected or cancelled at most once, whatever writes: what corrects it has its time, so the index is whole.
CREATE UNIQUE INDEX billing_usageevent_corrected ON billing_usageevent (subscription_id, meter, occurred_at, corrects)
    WHERE corrects IS NOT NULL;
-- For the list of a meter's events over all subscriptions. Without the key, which would make it three times as large.
CREATE INDEX billing_usageevent_meter ON billing_usageevent (meter, occurred_at);
-- Finds events of a subscription since the last run that checked it: they may be late.
CREATE INDEX billing_usageevent_late ON billing_usageevent (subscription_id, recorded_at);
-- For events since the last run: events are only appended, so a few bytes for every 128 pages say where the events of a time are.
CREATE INDEX billing_usageevent_recorded ON billing_usageevent USING brin (recorded_at) WITH (autosummarize = on);

-- SHA-256 over the keys of a month (UTC) whose events were dropped, with what the keys say about the events.
CREATE FUNCTION billing_dropped_keys_digest(month date) RETURNS bytea
LANGUAGE sql STABLE
RETURN (
    SELECT sha256(convert_to(coalesce(string_agg(concat_ws(' ', key.idempotency_key, encode(key.content_digest, 'hex'),
        key.subscription_id, extract(epoch FROM key.occurred_at), extract(epoch FROM key.recorded_at), key.meter_version), E'\n'
        ORDER BY key.idempotency_key COLLATE "C"), ''), 'UTF8'))
    FROM billing_usagekey AS key
    WHERE key.occurred_at >= month::timestamp AT TIME ZONE 'UTC'
        AND key.occurred_at < (month + interval '1 month') AT TIME ZONE 'UTC'
        AND NOT EXISTS (
            SELECT FROM billing_usageevent AS event
            WHERE event.subscription_id = key.subscription_id AND event.occurred_at = key.occurred_at
                AND event.idempotency_key = key.idempotency_key)
);

-- Makes the partition of a month. Returns 'made', 'known' if it exists, or 'in-default' if events of the month came earlier and are
-- in the default partition. Runs with its owner's rights, so that workers need only the application's rights. A partition gets the
-- parent's row triggers by itself, but not its statement triggers.
CREATE FUNCTION billing_make_usage_month(month date) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    starts_at timestamptz := date_trunc('month', month)::timestamp AT TIME ZONE 'UTC';
    ends_at timestamptz := (date_trunc('month', month) + interval '1 month')::timestamp AT TIME ZONE 'UTC';
    name text := 'billing_usageevent_' || to_char(month, 'YYYY_MM');
BEGIN
    IF to_regclass(name) IS NOT NULL THEN
        RETURN 'known';
    END IF;
    IF EXISTS (SELECT FROM billing_usageevent_default AS e WHERE e.occurred_at >= starts_at AND e.occurred_at < ends_at) THEN
        RETURN 'in-default';
    END IF;
    EXECUTE format('CREATE TABLE %I PARTITION OF billing_usageevent FOR VALUES FROM (%L) TO (%L)', name, starts_at, ends_at);
    EXECUTE format('CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON %I
        FOR EACH STATEMENT EXECUTE FUNCTION refuse_change()', name);
    EXECUTE format('ALTER TABLE %I ENABLE ALWAYS TRIGGER append_only', name);
    RETURN 'made';
EXCEPTION WHEN duplicate_table THEN
    -- Another session was faster.
    RETURN 'known';
END;
$$;
REVOKE ALL ON FUNCTION billing_make_usage_month(date) FROM PUBLIC;


-- How long a period of a price of a plan is.
CREATE FUNCTION billing_interval(plan billing_plan, price billing_price) RETURNS interval
LANGUAGE sql STABLE PARALLEL SAFE
RETURN coalesce((price.definition -> 'interval' ->> 'count')::integer, plan.interval_count)
    * CASE coalesce(price.definition -> 'interval' ->> 'unit', plan.interval_unit)
    WHEN 'day' THEN interval '1 day'
    WHEN 'week' THEN interval '7 days'
    WHEN 'month' THEN interval '1 month'
    WHEN 'quarter' THEN interval '3 months'
    WHEN 'half_year' THEN interval '6 months'
    WHEN 'year' THEN interval '1 year'
END;


-- Digests ---------------------------------------------------------------------------------------------

-- The canonical form of a row of intent: all of its columns that are not null, but the digest and the words of a name, as a JSON object with times in UTC.
CREATE FUNCTION billing_row_form(content anyelement) RETURNS text
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT SET timezone = 'UTC' AS $$
BEGIN
    RETURN (ledger_row_form(to_jsonb(content)) - 'digest' - 'name_words')::text;
END;
$$;

-- SHA-256 over the previous digest (32 zero bytes for the first) and a form.
CREATE FUNCTION billing_chained_digest(before bytea, form text) RETURNS bytea
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN sha256(coalesce(before, decode(repeat('00', 32), 'hex')) || convert_to(form, 'UTF8'));

-- The digest of a price covers the price and its plan.
CREATE FUNCTION billing_price_digest(price billing_price) RETURNS bytea
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
DECLARE
    plan billing_plan;
BEGIN
    SELECT * INTO plan FROM billing_plan WHERE id = price.plan_id;
    RETURN sha256(convert_to(billing_row_form(plan) || billing_row_form(price), 'UTF8'));
END;
$$;

CREATE FUNCTION billing_coupon_digest(coupon billing_coupon) RETURNS bytea
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
BEGIN
    RETURN sha256(convert_to(billing_row_form(coupon), 'UTF8'));
END;
$$;

CREATE FUNCTION billing_seller_digest(seller billing_seller) RETURNS bytea
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
BEGIN
    RETURN sha256(convert_to(billing_row_form(seller), 'UTF8'));
END;
$$;

CREATE FUNCTION billing_tax_digest(tax billing_tax) RETURNS bytea
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
BEGIN
    RETURN sha256(convert_to(billing_row_form(tax), 'UTF8'));
END;
$$;

CREATE FUNCTION billing_digest_price() RETURNS trigger
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    NEW.digest := billing_price_digest(NEW);
    RETURN NEW;
END;
$$;

CREATE FUNCTION billing_digest_coupon() RETURNS trigger
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    NEW.digest := billing_coupon_digest(NEW);
    RETURN NEW;
END;
$$;

CREATE FUNCTION billing_digest_seller() RETURNS trigger
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    NEW.digest := billing_seller_digest(NEW);
    RETURN NEW;
END;
$$;

CREATE FUNCTION billing_digest_tax() RETURNS trigger
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    NEW.digest := billing_tax_digest(NEW);
    RETURN NEW;
END;
$$;

-- Rows numbered 1, 2, 3 … per subscription, or per customer without one: each is chained to the one before it.
CREATE FUNCTION billing_chain_row() RETURNS trigger
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    before bytea;
BEGIN
    IF NEW.subscription_id IS NULL THEN
        EXECUTE format('SELECT digest FROM %I WHERE customer_id = $1 AND sequence = $2', TG_TABLE_NAME)
            INTO before USING NEW.customer_id, NEW.sequence - 1;
    ELSE
        EXECUTE format('SELECT digest FROM %I WHERE subscription_id = $1 AND sequence = $2', TG_TABLE_NAME)
            INTO before USING NEW.subscription_id, NEW.sequence - 1;
    END IF;
    NEW.digest := billing_chained_digest(before, billing_row_form(NEW));
    RETURN NEW;
END;
$$;

CREATE FUNCTION billing_microseconds(instant timestamptz) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN (extract(epoch FROM instant) * 1000000)::bigint;

-- The amount of a line after discounts as it was priced: with the tax that its price includes. Claims have these amounts.
CREATE FUNCTION billing_priced_minor(l billing_line) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN l.rating ? 'included_tax'
    THEN (l.rating #>> '{included_tax,amount_minor}')::bigint - (l.rating #>> '{included_tax,discount_minor}')::bigint
    ELSE l.amount_minor - l.discount_minor END;

-- The canonical form of a finalised invoice: a JSON array of everything that no longer changes, and of what the invoice was made from
-- and paid with. It leaves out what changes later (the state, what credit notes lower). docs/explanation/billing.md names the fields.
CREATE FUNCTION billing_invoice_form(i billing_invoice) RETURNS text
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
BEGIN
    RETURN json_build_array(
        'invoice', i.id, i.series, i.series_value, i.number, i.subscription_id, i.subscription_ref, i.customer_id, i.customer_ref,
        i.seller_id, encode((SELECT s.digest FROM billing_seller AS s WHERE s.id = i.seller_id), 'hex'), i.buyer, i.currency, i.note, i.scope, billing_microseconds(i.as_of), i.issue_date, i.due_date, i.subtotal_minor, i.discount_minor,
        i.tax_minor, i.total_minor, i.credits_applied_minor, i.rounding_minor, i.credit_units, i.run_id, billing_microseconds(i.grace_ends_at),
        billing_microseconds(i.created_at), billing_microseconds(i.finalized_at),
        (
            SELECT coalesce(json_agg(json_build_array(
                l.id, l.position, l.kind, l.item_id, l.price_id, l.price_key, l.description, billing_microseconds(l.starts_at),
                billing_microseconds(l.ends_at), l.quantity, l.unit_amount, l.amount_minor, l.discount_minor, l.tax_category,
                l.tax_rate, l.taxes, l.rating, l.subscription_id
            ) ORDER BY l.position), '[]')
            FROM billing_line AS l WHERE l.invoice_id = i.id
        ),
        (
            SELECT coalesce(json_agg(json_build_array(t.id, t.category, t.rate, t.code, encode(tax.digest, 'hex'), t.base_minor, t.amount_minor)
                ORDER BY t.category COLLATE "C", t.rate, t.code COLLATE "C"), '[]')
            FROM billing_invoicetax AS t LEFT JOIN billing_tax AS tax ON tax.id = t.tax_id WHERE t.invoice_id = i.id
        ),
        -- The claims as they were written: a claim that later restores another is a separate row.
        (
            SELECT coalesce(json_agg(json_build_array(
                c.id, c.subscription_id, c.item_id, c.kind, billing_microseconds(c.starts_at), billing_microseconds(c.ends_at),
                c.price_id, c.quantity, c.amount_minor, c.invoice_id, c.line_position, c.snapshot, billing_microseconds(c.created_at)
            ) ORDER BY c.id), '[]')
            FROM billing_claim AS c WHERE c.made_by = i.id AND c.restores IS NULL
        ),
        (
            SELECT coalesce(json_agg(json_build_array(u.id, u.customer_coupon_id, u.amount_minor, u.periods,
                billing_microseconds(u.counted_from), billing_microseconds(u.counted_until), u.currency,
                billing_microseconds(u.used_at), encode(coupon.digest, 'hex'), u.subscription_id) ORDER BY u.id), '[]')
            FROM billing_couponuse AS u
            LEFT JOIN billing_customercoupon AS given ON given.id = u.customer_coupon_id
            LEFT JOIN billing_coupon AS coupon ON coupon.id = given.coupon_id
            WHERE u.invoice_id = i.id
        ),
        (
            SELECT coalesce(json_agg(json_build_array(n.id, n.amount_minor) ORDER BY n.id), '[]')
            FROM billing_creditnote AS n WHERE n.invoice_id = i.id AND n.kind = 'carried'
        ),
        -- A requested note lowers the amount due of its own invoice: the form of the note contains that.
        (
            SELECT coalesce(json_agg(json_build_array(u.credit_note_id, u.amount_minor) ORDER BY u.id), '[]')
            FROM billing_creditnoteuse AS u JOIN billing_creditnote AS n ON n.id = u.credit_note_id
            WHERE u.invoice_id = i.id AND NOT (n.kind = 'requested' AND n.invoice_id = i.id)
        ),
        (
            SELECT json_build_array(p.id, p.holder_id, p.credit_type, p.credits, p.amount_minor, p.spend_sequence,
                billing_microseconds(p.recorded_at))
            FROM billing_creditpayment AS p WHERE p.invoice_id = i.id
        ),
        -- What was ordered, and its prices: so they cannot change unnoticed afterwards.
        (
            SELECT json_build_array(s.customer_id, billing_microseconds(s.started_at), billing_microseconds(s.anchor_at),
                s.time_zone, a.sequence, encode(a.digest, 'hex'))
            FROM billing_subscription AS s
            LEFT JOIN billing_amendment AS a ON a.subscription_id = s.id AND a.sequence = i.amendments_seen
            WHERE s.id = i.subscription_id
        ),
        (
            SELECT coalesce(json_agg(json_build_array(p.id, encode(p.digest, 'hex')) ORDER BY p.id), '[]')
            FROM billing_price AS p WHERE p.id IN (SELECT l.price_id FROM billing_line AS l WHERE l.invoice_id = i.id)
        ),
        (
            SELECT coalesce(json_agg(json_build_array(o.id, encode(o.digest, 'hex')) ORDER BY o.id), '[]')
            FROM billing_claim AS c JOIN billing_charge AS o ON o.id = c.item_id
            WHERE c.made_by = i.id AND c.kind = 3 AND c.restores IS NULL
        ),
        -- Of a consolidated invoice: its subscriptions, each with what was ordered.
        (
            SELECT coalesce(json_agg(json_build_array(b.id, b.subscription_id, b.subscription_ref, billing_microseconds(b.as_of),
                b.amendments_seen, s.customer_id, billing_microseconds(s.started_at), billing_microseconds(s.anchor_at), s.time_zone,
                encode(a.digest, 'hex')) ORDER BY b.id), '[]')
            FROM billing_invoicedsubscription AS b
            LEFT JOIN billing_subscription AS s ON s.id = b.subscription_id
            LEFT JOIN billing_amendment AS a ON a.subscription_id = s.id AND a.sequence = b.amendments_seen
            WHERE b.invoice_id = i.id
        )
    )::text;
END;
$$;

-- The canonical form of a requested credit note, with the amount by which it lowered its invoice.
CREATE FUNCTION billing_creditnote_form(n billing_creditnote) RETURNS text
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
BEGIN
    RETURN json_build_array(
        'credit note', n.id, n.series, n.series_value, n.number, n.customer_id, n.subscription_id, n.invoice_id, n.currency, n.issue_date,
        n.seller_id, encode((SELECT s.digest FROM billing_seller AS s WHERE s.id = n.seller_id), 'hex'), n.subtotal_minor, n.tax_minor, n.rounding_minor, n.amount_minor, n.credits_returned, n.credits_returned_minor, n.refund_sequence, n.reason,
        n.actor, billing_microseconds(n.recorded_at),
        (
            SELECT coalesce(json_agg(json_build_array(l.id, l.position, l.description, l.amount_minor, l.tax_category, l.tax_rate, l.taxes)
                ORDER BY l.position), '[]')
            FROM billing_creditnoteline AS l WHERE l.credit_note_id = n.id
        ),
        (
            SELECT coalesce(json_agg(json_build_array(t.id, t.category, t.rate, t.code, encode(tax.digest, 'hex'), t.base_minor, t.amount_minor)
                ORDER BY t.category COLLATE "C", t.rate, t.code COLLATE "C"), '[]')
            FROM billing_creditnotetax AS t LEFT JOIN billing_tax AS tax ON tax.id = t.tax_id WHERE t.credit_note_id = n.id
        ),
        (
            SELECT u.amount_minor FROM billing_creditnoteuse AS u WHERE u.credit_note_id = n.id AND u.invoice_id = n.invoice_id
        )
    )::text;
END;
$$;

-- The series of a seller's documents: a prefix, and by choice the year of the issue and the customer.
CREATE FUNCTION billing_series(prefix text, details jsonb, issued_on date, customer_ref text) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN concat_ws('-', prefix,
    CASE WHEN details @> '{"numbers_per_year": true}' THEN extract(year FROM issued_on)::text END,
    CASE WHEN details @> '{"numbers_per_customer": true}' THEN customer_ref END);

-- What a seller's step of cash payments in a currency adds to an amount of 0 or more: to the nearest multiple, a half up.
CREATE FUNCTION billing_cash_rounding(due bigint, details jsonb, currency text) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN (SELECT (due + step / 2) / step * step - due
    FROM (SELECT coalesce((details -> 'cash_rounding_minor' ->> currency)::bigint, 1) AS step) AS of_seller);

-- The digest that a document must have: SHA-256 over the digest of the previous document of its series (32 zero bytes for the first)
-- and its canonical form. Numbers of a series are assigned one after the other, so the previous document is committed, or belongs to
-- the same transaction.
CREATE FUNCTION billing_invoice_digest(i billing_invoice) RETURNS bytea
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
BEGIN
    RETURN billing_chained_digest(
        (SELECT p.digest FROM billing_invoice AS p WHERE p.series = i.series AND p.series_value = i.series_value - 1),
        billing_invoice_form(i)
    );
END;
$$;

CREATE FUNCTION billing_creditnote_digest(n billing_creditnote) RETURNS bytea
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
BEGIN
    RETURN billing_chained_digest(
        (SELECT p.digest FROM billing_creditnote AS p WHERE p.series = n.series AND p.series_value = n.series_value - 1),
        billing_creditnote_form(n)
    );
END;
$$;


-- Invoices --------------------------------------------------------------------------------------------

-- What payments paid of an invoice, less what went back and made it due again.
CREATE FUNCTION billing_paid_minor(invoice bigint) RETURNS bigint
LANGUAGE sql STABLE
RETURN (
    SELECT coalesce(sum(p.applied_minor - coalesce((
        SELECT sum(r.reopened_minor) FROM billing_paymentreturn AS r WHERE r.invoice_payment_id = p.id), 0)), 0)::bigint
    FROM billing_invoicepayment AS p WHERE p.invoice_id = invoice
);

-- The letters and digits of a number, in capitals: people write numbers with other signs between them.
CREATE FUNCTION billing_plain_number(number text) RETURNS text
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN regexp_replace(upper(number), '[^A-Z0-9]', '', 'g');

CREATE INDEX billing_invoice_plain_number ON billing_invoice (billing_plain_number(number)) WHERE number IS NOT NULL;
-- Find a customer by VAT id, and by the beginning of the e-mail, for operators.
CREATE INDEX billing_customer_plain_vat_id ON billing_customer (billing_plain_number(vat_id)) WHERE vat_id <> '';
CREATE INDEX billing_customer_email ON billing_customer (lower(email) text_pattern_ops) WHERE email <> '';

-- Whether a row comes from another server, by logical replication, or from a dump: complete, with the digests and sums that the source made.
-- Its tables come one after the other, so the rows that it belongs to may be missing yet, or be final already; the audit of the copy checks
-- them (docs/how-to/operations/back-up.md). A copied row is frozen like any other, and only superusers can be in this state.
CREATE FUNCTION billing_row_is_copied() RETURNS boolean
LANGUAGE sql STABLE
RETURN current_setting('session_replication_role') = 'replica';

-- An invoice begins as a draft. Once it has left that state, only the state and its instant change, and only
-- along draft -> open -> paid | void | uncollectible, uncollectible -> paid | void. Only credit notes lower the amount due of an open or
-- uncollectible invoice. Payments and their returns change what is paid, which decides the state: a paid invoice is due again when
-- money went back.
CREATE FUNCTION billing_freeze_invoice() RETURNS trigger
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    changeable text[] := ARRAY['state', 'paid_at', 'voided_at', 'uncollectible_at'];
    is_copied  CONSTANT boolean := billing_row_is_copied();
    is_lowered boolean;
    is_payment boolean;
BEGIN
    IF TG_OP = 'INSERT' THEN
        IF NEW.state <> 'draft' AND NOT is_copied THEN
            RAISE EXCEPTION 'billing_invoice: an invoice begins as a draft' USING ERRCODE = 'LG001';
        END IF;
        RETURN NEW;
    END IF;
    IF TG_OP = 'DELETE' THEN
        IF OLD.state <> 'draft' THEN
            RAISE EXCEPTION 'billing_invoice: % is % and cannot be deleted', OLD.number, OLD.state USING ERRCODE = 'LG001';
        END IF;
        RETURN OLD;
    END IF;
    IF OLD.state = 'draft' AND NEW.state IN ('draft', 'open') THEN
        IF NEW.state = 'open' AND NOT is_copied THEN
            NEW.digest := billing_invoice_digest(NEW);
        END IF;
        RETURN NEW;
    END IF;
    is_lowered := OLD.state IN ('open', 'uncollectible') AND NEW.state IN (OLD.state, 'paid')
        AND NEW.credit_notes_minor > OLD.credit_notes_minor
        AND (is_copied OR NEW.credit_notes_minor = (
            SELECT sum(amount_minor) FROM billing_creditnoteuse WHERE invoice_id = OLD.id AND released_at IS NULL));
    IF is_lowered THEN
        changeable := changeable || ARRAY['credit_notes_minor', 'amount_due_minor'];
    END IF;
    is_payment := OLD.state IN ('open', 'paid', 'uncollectible') AND NEW.payment_changes = OLD.payment_changes + 1
        AND NEW.amount_paid_minor <> OLD.amount_paid_minor AND (is_copied OR NEW.amount_paid_minor = billing_paid_minor(OLD.id))
        AND NEW.state = CASE
            WHEN NEW.amount_paid_minor = OLD.amount_due_minor THEN 'paid'
            WHEN OLD.uncollectible_at IS NOT NULL THEN 'uncollectible'
            ELSE 'open' END;
    IF is_payment THEN
        changeable := changeable || ARRAY['amount_paid_minor', 'payment_changes'];
    END IF;
    IF NOT is_payment AND NOT (is_lowered AND NEW.state = OLD.state) AND (OLD.state, NEW.state) NOT IN (
        ('open', 'paid'), ('open', 'void'), ('open', 'uncollectible'), ('uncollectible', 'paid'), ('uncollectible', 'void')
    ) AND NOT (OLD.state = 'paid' AND NEW.state = 'void' AND OLD.total_minor = 0)
    OR to_jsonb(NEW) - changeable IS DISTINCT FROM to_jsonb(OLD) - changeable THEN
        RAISE EXCEPTION 'billing_invoice: % is % and frozen', OLD.number, OLD.state USING ERRCODE = 'LG001';
    END IF;
    RETURN NEW;
END;
$$;

-- Lines and taxes can be added to a draft and deleted, and are frozen with the invoice. FOR SHARE, so that no line can be added while
-- another connection finalises the invoice.
CREATE FUNCTION billing_freeze_part() RETURNS trigger
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    invoice_state text;
    invoice bigint := CASE TG_OP WHEN 'INSERT' THEN NEW.invoice_id ELSE OLD.invoice_id END;
BEGIN
    IF TG_OP = 'INSERT' AND billing_row_is_copied() THEN
        RETURN NEW;
    END IF;
    SELECT state INTO invoice_state FROM billing_invoice WHERE id = invoice FOR SHARE;
    IF invoice_state IS DISTINCT FROM 'draft' OR (TG_OP = 'UPDATE' AND NEW.invoice_id <> OLD.invoice_id) THEN
        RAISE EXCEPTION '%: invoice % is frozen', TG_TABLE_NAME, invoice USING ERRCODE = 'LG001';
    END IF;
    RETURN CASE TG_OP WHEN 'DELETE' THEN OLD ELSE NEW END;
END;
$$;


-- A subscription that waits for the payment of its first invoice: what was ordered stays, and the row stops waiting once.
CREATE FUNCTION billing_freeze_activation() RETURNS trigger
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    changeable text[] := ARRAY['state', 'settled_at', 'settled_by'];
BEGIN
    IF TG_OP = 'DELETE' THEN
        RAISE EXCEPTION 'billing_activation: % cannot be deleted', OLD.id USING ERRCODE = 'LG001';
    END IF;
    IF OLD.invoice_id IS NULL THEN
        changeable := changeable || 'invoice_id'::text;
    END IF;
    IF OLD.state <> 'waiting' OR to_jsonb(NEW) - changeable IS DISTINCT FROM to_jsonb(OLD) - changeable THEN
        RAISE EXCEPTION 'billing_activation: % is % and frozen', OLD.id, OLD.state USING ERRCODE = 'LG001';
    END IF;
    RETURN NEW;
END;
$$;

-- The first invoice is paid, in whatever way: the subscription starts in the same transaction, once; docs/explanation/billing.md.
CREATE FUNCTION billing_start_subscription() RETURNS trigger
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    UPDATE billing_activation SET state = 'started', settled_at = clock_timestamp()
    WHERE invoice_id = NEW.id AND state = 'waiting';
    RETURN NULL;
END;
$$;

CREATE TRIGGER starts AFTER UPDATE OF state ON billing_invoice
    FOR EACH ROW WHEN (NEW.state = 'paid' AND OLD.state <> 'paid') EXECUTE FUNCTION billing_start_subscription();


-- Credit notes ----------------------------------------------------------------------------------------

-- A note gets its number last; from then on it can only be voided together with its invoice, and its uses lower its rest. Numbers of one series are assigned one
-- after the other, so this sum contains everything that was credited before, even by a process without the lock.
CREATE FUNCTION billing_freeze_creditnote() RETURNS trigger
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    changeable CONSTANT text[] := ARRAY['released_at', 'left_minor'];
    is_copied  CONSTANT boolean := billing_row_is_copied();
    category record;
BEGIN
    IF TG_OP = 'INSERT' THEN
        IF NEW.number IS NOT NULL AND NOT is_copied THEN
            RAISE EXCEPTION 'billing_creditnote: the number is assigned last' USING ERRCODE = 'LG001';
        END IF;
        RETURN NEW;
    END IF;
    IF TG_OP = 'DELETE' THEN
        RAISE EXCEPTION 'billing_creditnote: % cannot be deleted', OLD.id USING ERRCODE = 'LG001';
    END IF;
    IF OLD.kind = 'requested' AND OLD.number IS NULL THEN
        IF NEW.kind <> 'requested' OR NEW.invoice_id <> OLD.invoice_id THEN
            RAISE EXCEPTION 'billing_creditnote: % belongs to invoice %', OLD.id, OLD.invoice_id USING ERRCODE = 'LG001';
        END IF;
        IF NEW.number IS NOT NULL AND NOT is_copied THEN
            FOR category IN
                SELECT credited.category, credited.rate, credited.code
                FROM billing_creditnotetax AS credited
                JOIN billing_creditnote AS note ON note.id = credited.credit_note_id
                LEFT JOIN billing_invoicetax AS billed
                    ON billed.invoice_id = note.invoice_id AND billed.category = credited.category AND billed.rate = credited.rate
                    AND billed.code = credited.code
                WHERE note.invoice_id = NEW.invoice_id AND note.released_at IS NULL
                GROUP BY credited.category, credited.rate, credited.code, billed.base_minor, billed.amount_minor
                HAVING sum(credited.base_minor) > coalesce(billed.base_minor, 0)
                    OR sum(credited.amount_minor) > coalesce(billed.amount_minor, 0)
            LOOP
                RAISE EXCEPTION 'billing_creditnote: more than invoice % has of category % at %', NEW.invoice_id,
                    category.category, category.rate USING ERRCODE = 'check_violation';
            END LOOP;
            IF (SELECT sum(note.amount_minor) > invoice.total_minor + invoice.rounding_minor
                FROM billing_creditnote AS note JOIN billing_invoice AS invoice ON invoice.id = note.invoice_id
                WHERE note.invoice_id = NEW.invoice_id AND note.kind = 'requested' AND note.released_at IS NULL
                GROUP BY invoice.id)
            THEN
                RAISE EXCEPTION 'billing_creditnote: more than invoice % is worth', NEW.invoice_id USING ERRCODE = 'check_violation';
            END IF;
            NEW.digest := billing_creditnote_digest(NEW);
        END IF;
        RETURN NEW;
    END IF;
    IF to_jsonb(NEW) - changeable IS DISTINCT FROM to_jsonb(OLD) - changeable
        OR (OLD.released_at IS NOT NULL AND NEW.released_at IS DISTINCT FROM OLD.released_at)
        OR NOT is_copied AND NEW.left_minor <> NEW.amount_minor - NEW.credits_returned_minor - (
            SELECT coalesce(sum(amount_minor), 0) FROM billing_creditnoteuse WHERE credit_note_id = NEW.id AND released_at IS NULL)
    THEN
        RAISE EXCEPTION 'billing_creditnote: % is frozen', coalesce(OLD.number, OLD.id::text) USING ERRCODE = 'LG001';
    END IF;
    RETURN NEW;
END;
$$;

-- What is taken from a note or given back changes its rest. The row of the note makes two transactions take turns, and its check
-- refuses to take more than the rest, even from a process without the lock.
CREATE FUNCTION billing_keep_rest() RETURNS trigger
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    UPDATE billing_creditnote SET left_minor = left_minor
        - CASE WHEN NEW.released_at IS NULL THEN NEW.amount_minor ELSE 0 END
        + CASE WHEN TG_OP = 'UPDATE' AND OLD.released_at IS NULL THEN OLD.amount_minor ELSE 0 END
    WHERE id = NEW.credit_note_id;
    RETURN NULL;
END;
$$;

-- Lines and taxes come before the number and never change.
CREATE FUNCTION billing_freeze_creditnote_part() RETURNS trigger
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    IF TG_OP = 'INSERT' AND billing_row_is_copied() THEN
        RETURN NEW;
    END IF;
    IF TG_OP <> 'INSERT' OR NOT EXISTS (
        SELECT FROM billing_creditnote WHERE id = NEW.credit_note_id AND kind = 'requested' AND number IS NULL
    ) THEN
        RAISE EXCEPTION '%: the credit note is frozen', TG_TABLE_NAME USING ERRCODE = 'LG001';
    END IF;
    RETURN NEW;
END;
$$;


-- Stored responses -------------------------------------------------------------------------------------

-- Returns the columns of a table that its model declares as personal; their comments begin with the word. See Note [Personal columns] in
-- billing/models/personal.py.
CREATE FUNCTION billing_personal_columns(of_table text) RETURNS text[]
LANGUAGE sql STABLE SET search_path FROM CURRENT
RETURN (
    SELECT coalesce(array_agg(c.attname::text ORDER BY c.attnum), '{}')
    FROM pg_attribute AS c
    WHERE c.attrelid = of_table::regclass AND c.attnum > 0 AND NOT c.attisdropped
        AND col_description(c.attrelid, c.attnum) ~ '^personal\y'
);

-- Stored responses are for replays. The personal data of a customer can be erased from them; no other change is possible.
CREATE FUNCTION billing_keep_response() RETURNS trigger
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    personal CONSTANT text[] := billing_personal_columns('billing_customer');
BEGIN
    IF TG_OP = 'UPDATE' AND OLD.collection = 'customers'
        AND to_jsonb(NEW) - 'body' = to_jsonb(OLD) - 'body'
        AND NEW.body - personal = OLD.body - personal
        AND NEW.body ->> 'name' ~ '^Erased on [0-9]{4}-[0-9]{2}-[0-9]{2}$'
        AND NOT EXISTS (
            SELECT FROM unnest(personal) AS member
            WHERE member <> 'name' AND coalesce(NEW.body -> member, 'true') NOT IN ('""', '{}', 'null')
        )
    THEN
        RETURN NEW;
    END IF;
    RAISE EXCEPTION 'billing_requestkey: stored responses cannot be changed or deleted' USING ERRCODE = 'LG001';
END;
$$;

-- What VIES said is evidence. Once it names nobody, it stays so; no other change is possible. The VAT id stays where documents rely on it.
CREATE FUNCTION billing_keep_vatlookup() RETURNS trigger
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    personal CONSTANT text[] := billing_personal_columns('billing_vatlookup');
BEGIN
    IF TG_OP = 'UPDATE' AND to_jsonb(NEW) - personal = to_jsonb(OLD) - personal
        AND NOT EXISTS (
            SELECT FROM unnest(personal) AS member
            WHERE to_jsonb(NEW) -> member NOT IN ('""', '{}', 'null') AND NOT (member = 'vat_id' AND NEW.vat_id = OLD.vat_id)
        )
    THEN
        RETURN NEW;
    END IF;
    RAISE EXCEPTION 'billing_vatlookup: lookups cannot be changed or deleted' USING ERRCODE = 'LG001';
END;
$$;


-- Triggers --------------------------------------------------------------------------------------------

-- ENABLE ALWAYS: what refuses also fires under session_replication_role = replica. What computes does not: copied rows have its results.
DO $$
DECLARE
    name text;
BEGIN
    -- Only ever inserted.
    FOREACH name IN ARRAY ARRAY[
        'billing_usageevent', 'billing_usageevent_default', 'billing_usagekey', 'billing_amendment', 'billing_charge',
        'billing_transition', 'billing_seller', 'billing_tax', 'billing_creditrefund', 'billing_planmove', 'billing_movedsubscription',
        'billing_invoicepayment', 'billing_paymentreturn'
    ] LOOP
        EXECUTE format('CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON %I
            FOR EACH STATEMENT EXECUTE FUNCTION refuse_change()', name);
        EXECUTE format('ALTER TABLE %I ENABLE ALWAYS TRIGGER append_only', name);
    END LOOP;

    -- Intent that documents refer to never changes. Another process may lock these rows FOR UPDATE while it sells them, and needs the
    -- right to UPDATE for that; so the trigger refuses the updates that this right would allow.
    FOREACH name IN ARRAY ARRAY['billing_plan', 'billing_price', 'billing_coupon', 'billing_meter'] LOOP
        EXECUTE format('CREATE TRIGGER frozen BEFORE UPDATE OR DELETE OR TRUNCATE ON %I
            FOR EACH STATEMENT EXECUTE FUNCTION refuse_change()', name);
        EXECUTE format('ALTER TABLE %I ENABLE ALWAYS TRIGGER frozen', name);
    END LOOP;

    -- Values that the server computes when a row is inserted.
    FOREACH name IN ARRAY ARRAY['billing_amendment', 'billing_charge', 'billing_transition'] LOOP
        EXECUTE format('CREATE TRIGGER chained BEFORE INSERT ON %I FOR EACH ROW EXECUTE FUNCTION billing_chain_row()', name);
    END LOOP;
    CREATE TRIGGER digested BEFORE INSERT ON billing_price FOR EACH ROW EXECUTE FUNCTION billing_digest_price();
    CREATE TRIGGER digested BEFORE INSERT ON billing_coupon FOR EACH ROW EXECUTE FUNCTION billing_digest_coupon();
    CREATE TRIGGER digested BEFORE INSERT ON billing_seller FOR EACH ROW EXECUTE FUNCTION billing_digest_seller();
    CREATE TRIGGER digested BEFORE INSERT ON billing_tax FOR EACH ROW EXECUTE FUNCTION billing_digest_tax();

    CREATE TRIGGER kept BEFORE UPDATE OR DELETE ON billing_requestkey FOR EACH ROW EXECUTE FUNCTION billing_keep_response();
    ALTER TABLE billing_requestkey ENABLE ALWAYS TRIGGER kept;
    CREATE TRIGGER kept BEFORE UPDATE OR DELETE ON billing_vatlookup FOR EACH ROW EXECUTE FUNCTION billing_keep_vatlookup();
    ALTER TABLE billing_vatlookup ENABLE ALWAYS TRIGGER kept;

    -- Frozen row by row, once their document is.
    CREATE TRIGGER frozen BEFORE INSERT OR UPDATE OR DELETE ON billing_invoice
        FOR EACH ROW EXECUTE FUNCTION billing_freeze_invoice();
    CREATE TRIGGER frozen BEFORE INSERT OR UPDATE OR DELETE ON billing_line
        FOR EACH ROW EXECUTE FUNCTION billing_freeze_part();
    CREATE TRIGGER frozen BEFORE INSERT OR UPDATE OR DELETE ON billing_invoicetax
        FOR EACH ROW EXECUTE FUNCTION billing_freeze_part();
    CREATE TRIGGER frozen BEFORE INSERT OR UPDATE OR DELETE ON billing_invoicedsubscription
        FOR EACH ROW EXECUTE FUNCTION billing_freeze_part();
    CREATE TRIGGER frozen BEFORE INSERT OR UPDATE OR DELETE ON billing_creditnote
        FOR EACH ROW EXECUTE FUNCTION billing_freeze_creditnote();
    CREATE TRIGGER frozen BEFORE INSERT OR UPDATE OR DELETE ON billing_creditnoteline
        FOR EACH ROW EXECUTE FUNCTION billing_freeze_creditnote_part();
    CREATE TRIGGER frozen BEFORE INSERT OR UPDATE OR DELETE ON billing_creditnotetax
        FOR EACH ROW EXECUTE FUNCTION billing_freeze_creditnote_part();
    CREATE TRIGGER frozen BEFORE UPDATE OR DELETE ON billing_activation
        FOR EACH ROW EXECUTE FUNCTION billing_freeze_activation();
    FOREACH name IN ARRAY ARRAY[
        'billing_invoice', 'billing_line', 'billing_invoicetax', 'billing_invoicedsubscription', 'billing_creditnote',
        'billing_creditnoteline', 'billing_creditnotetax', 'billing_activation'
    ] LOOP
        EXECUTE format('ALTER TABLE %I ENABLE ALWAYS TRIGGER frozen', name);
    END LOOP;
    CREATE TRIGGER keeps_rest AFTER INSERT OR UPDATE OF released_at ON billing_creditnoteuse
        FOR EACH ROW EXECUTE FUNCTION billing_keep_rest();

    -- TRUNCATE, which row triggers do not see.
    FOREACH name IN ARRAY ARRAY[
        'billing_claim', 'billing_invoice', 'billing_line', 'billing_invoicetax', 'billing_invoicedsubscription',
        'billing_creditnote', 'billing_creditnoteline', 'billing_creditnotetax', 'billing_requestkey',
        'billing_activation', 'billing_vatlookup'
    ] LOOP
        EXECUTE format('CREATE TRIGGER never_truncated BEFORE TRUNCATE ON %I
            FOR EACH STATEMENT EXECUTE FUNCTION refuse_change()', name);
        EXECUTE format('ALTER TABLE %I ENABLE ALWAYS TRIGGER never_truncated', name);
    END LOOP;
END;
$$;


-- Signals ---------------------------------------------------------------------------------------------

-- The triggers write signals in the transaction of their cause: docs/explanation/billing.md. Signals of one customer are sent in order.

CREATE FUNCTION billing_tell_invoice() RETURNS trigger
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    wanted text := CASE
        WHEN OLD.state = 'paid' AND NEW.state <> 'void' THEN 'invoice.reopened'
        WHEN NEW.state = 'open' THEN 'invoice.finalized'
        ELSE 'invoice.' || NEW.state END;
BEGIN
    IF ledger_signal_is_wanted(wanted) THEN
        INSERT INTO ledger_signal (type, stream, holder_id, data)
        SELECT wanted, 'customer/' || NEW.customer_ref, NULLIF(customer.holder_id, ''), json_build_object(
            'id', NEW.id,
            'number', NEW.number,
            'subscription', NULLIF(NEW.subscription_ref, ''),
            'customer', NEW.customer_ref,
            'currency', NEW.currency,
            'state', NEW.state,
            'issue_date', NEW.issue_date,
            'due_date', NEW.due_date,
            'total_minor', NEW.total_minor,
            'credit_notes_minor', NEW.credit_notes_minor,
            'credits_applied_minor', NEW.credits_applied_minor,
            'rounding_minor', NEW.rounding_minor,
            'amount_due_minor', NEW.amount_due_minor,
            'amount_paid_minor', NEW.amount_paid_minor
        )
        FROM billing_customer AS customer WHERE customer.id = NEW.customer_id;
    END IF;
    RETURN NULL;
END $$;

CREATE TRIGGER told AFTER UPDATE OF state ON billing_invoice
    FOR EACH ROW WHEN (OLD.state IS DISTINCT FROM NEW.state AND NEW.state <> 'draft') EXECUTE FUNCTION billing_tell_invoice();

CREATE FUNCTION billing_tell_suspension() RETURNS trigger
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    wanted text := CASE WHEN NEW.resumed_at IS NULL THEN 'subscription.suspended' ELSE 'subscription.resumed' END;
BEGIN
    IF ledger_signal_is_wanted(wanted) THEN
        INSERT INTO ledger_signal (type, stream, holder_id, data)
        SELECT wanted, 'customer/' || customer.ref, NULLIF(customer.holder_id, ''), json_build_object(
            'subscription', subscription.ref,
            'customer', customer.ref,
            'reason', NEW.reason,
            'resumed_by', NULLIF(NEW.resumed_by, ''),
            'resume_reason', NULLIF(NEW.resume_reason, '')
        )
        FROM billing_subscription AS subscription JOIN billing_customer AS customer ON customer.id = subscription.customer_id
        WHERE subscription.id = NEW.subscription_id;
    END IF;
    RETURN NULL;
END $$;

CREATE TRIGGER told AFTER INSERT OR UPDATE OF resumed_at ON billing_suspendedbilling
    FOR EACH ROW EXECUTE FUNCTION billing_tell_suspension();

CREATE FUNCTION billing_tell_activation() RETURNS trigger
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    wanted text := 'subscription.' || NEW.state;
BEGIN
    IF ledger_signal_is_wanted(wanted) THEN
        INSERT INTO ledger_signal (type, stream, holder_id, data)
        SELECT wanted, 'customer/' || customer.ref, NULLIF(customer.holder_id, ''), json_build_object(
            'subscription', subscription.ref,
            'customer', customer.ref,
            'invoice', NEW.invoice_id,
            'expires_at', NEW.expires_at,
            'settled_at', NEW.settled_at
        )
        FROM billing_subscription AS subscription JOIN billing_customer AS customer ON customer.id = subscription.customer_id
        WHERE subscription.id = NEW.subscription_id;
    END IF;
    RETURN NULL;
END $$;

CREATE TRIGGER told AFTER UPDATE OF state ON billing_activation
    FOR EACH ROW WHEN (OLD.state <> NEW.state) EXECUTE FUNCTION billing_tell_activation();

CREATE FUNCTION billing_tell_payment() RETURNS trigger
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    IF ledger_signal_is_wanted('payment.recorded') THEN
        INSERT INTO ledger_signal (type, stream, holder_id, data)
        SELECT 'payment.recorded', 'customer/' || customer.ref, NULLIF(customer.holder_id, ''), json_build_object(
            'id', NEW.id,
            'invoice', NEW.invoice_id,
            'number', invoice.number,
            'customer', customer.ref,
            'provider', NEW.provider,
            'payment', NEW.payment,
            'currency', NEW.currency,
            'amount_minor', NEW.amount_minor,
            'applied_minor', NEW.applied_minor
        )
        FROM billing_customer AS customer JOIN billing_invoice AS invoice ON invoice.id = NEW.invoice_id
        WHERE customer.id = NEW.customer_id;
    END IF;
    RETURN NULL;
END $$;

CREATE TRIGGER told AFTER INSERT ON billing_invoicepayment FOR EACH ROW EXECUTE FUNCTION billing_tell_payment();

CREATE FUNCTION billing_tell_payment_return() RETURNS trigger
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    IF ledger_signal_is_wanted('payment.returned') THEN
        INSERT INTO ledger_signal (type, stream, holder_id, data)
        SELECT 'payment.returned', 'customer/' || customer.ref, NULLIF(customer.holder_id, ''), json_build_object(
            'payment_id', paid.id,
            'invoice', paid.invoice_id,
            'customer', customer.ref,
            'kind', NEW.kind,
            'payment', NEW.payment,
            'currency', paid.currency,
            'amount_minor', NEW.amount_minor,
            'credit_minor', NEW.credit_minor,
            'reopened_minor', NEW.reopened_minor,
            'claim_minor', NEW.claim_minor
        )
        FROM billing_invoicepayment AS paid JOIN billing_customer AS customer ON customer.id = paid.customer_id
        WHERE paid.id = NEW.invoice_payment_id;
    END IF;
    RETURN NULL;
END $$;

CREATE TRIGGER told AFTER INSERT ON billing_paymentreturn FOR EACH ROW EXECUTE FUNCTION billing_tell_payment_return();

-- The first answer about a VAT id, and one that differs from the answer before it.
CREATE FUNCTION billing_tell_vatlookup() RETURNS trigger
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    IF ledger_signal_is_wanted('customer.vat_id_checked') AND NEW.outcome <> 'unavailable' AND NEW.outcome IS DISTINCT FROM (
        SELECT l.outcome FROM billing_vatlookup AS l
        WHERE l.customer_id = NEW.customer_id AND l.vat_id = NEW.vat_id AND l.id < NEW.id AND l.outcome <> 'unavailable'
        ORDER BY l.id DESC LIMIT 1)
    THEN
        INSERT INTO ledger_signal (type, stream, holder_id, data)
        SELECT 'customer.vat_id_checked', 'customer/' || customer.ref, NULLIF(customer.holder_id, ''), json_build_object(
            'customer', customer.ref,
            'lookup', NEW.id,
            'outcome', NEW.outcome
        )
        FROM billing_customer AS customer
        WHERE customer.id = NEW.customer_id;
    END IF;
    RETURN NULL;
END $$;

CREATE TRIGGER told AFTER INSERT ON billing_vatlookup FOR EACH ROW EXECUTE FUNCTION billing_tell_vatlookup();

-- What is registered ----------------------------------------------------------------------------------

-- What a customer ordered, and who the customer is.
CALL ledger_have_registered('billing_customer', '{id}',
    billing_personal_columns('billing_customer')
        || '{language,vat_status,e_invoice_format,terms_days,grace_days,hold_days,consolidated_invoicing,seller}'::text[]);
CALL ledger_have_registered('billing_vatlookup', '{id}', billing_personal_columns('billing_vatlookup'));
CALL ledger_have_registered('billing_subscription', '{id}', '{trial_end,hold_days,consolidated_invoicing}');
CALL ledger_have_registered('billing_item', '{id}');
CALL ledger_have_registered('billing_itemversion', '{id}', '{superseded_at}');
CALL ledger_have_registered('billing_amendment', '{id}');
CALL ledger_have_registered('billing_activation', '{id}', '{invoice_id,state,settled_at,settled_by}');
CALL ledger_have_registered('billing_planmove', '{id}');
CALL ledger_have_registered('billing_movedsubscription', '{id}');
CALL ledger_have_registered('billing_charge', '{id}');
CALL ledger_have_registered('billing_plan', '{id}');
CALL ledger_have_registered('billing_price', '{id}');
CALL ledger_have_registered('billing_coupon', '{id}');
CALL ledger_have_registered('billing_meter', '{id}');
CALL ledger_have_registered('billing_invoicepayment', '{id}');
CALL ledger_have_registered('billing_paymentreturn', '{id}');
CALL ledger_have_registered('billing_customercoupon', '{id}', '{taken_off_at}');
CALL ledger_have_registered('billing_suspendedbilling', '{id}', '{resumed_at,resumed_by,resume_reason}');
CALL ledger_have_registered('billing_seller', '{id}');
CALL ledger_have_registered('billing_tax', '{id}');
CALL ledger_have_registered('billing_transition', '{id}');
CALL ledger_have_registered('billing_droppedmonth', '{month}', '{events,keys_digest,dropped_at}');
CALL ledger_have_registered('billing_requestkey', '{collection,idempotency_key}', '{body}');
CALL ledger_have_registered('billing_run', '{run_id}', '{finished_at,exit_code,summary}');
CALL ledger_have_registered('billing_runresult', '{id}');
CALL ledger_have_registered('billing_scheduledtask', '{name}',
    '{due_at,started_at,finished_at,exit_code,succeeded_at,host,executions,failures,seconds}');
CALL ledger_have_registered('billing_creditnoteuse', '{id}', '{released_at}');
CALL ledger_have_registered('billing_creditrefund', '{id}');

-- What a document's digest covers is registered when it changes afterwards; so an invoice costs nothing more.
CALL ledger_have_registered('billing_claim', '{id}', '{released_at,released_by,snapshot,measure_again,invoice_id,line_position,made_by}',
    'NEW.made_by IS NULL OR NEW.restores IS NOT NULL OR NEW.released_at IS NOT NULL');
CALL ledger_have_registered('billing_couponuse', '{id}', '{released_at,invoice_id}', 'NEW.released_at IS NOT NULL');
CALL ledger_have_registered('billing_creditpayment', '{id}', '{refund_sequence}', 'NEW.refund_sequence IS NOT NULL');
CALL ledger_have_registered('billing_creditnote', '{id}', '{released_at,left_minor}',
    'NEW.kind <> ''requested'' OR NEW.released_at IS NOT NULL');
CALL ledger_have_registered('billing_invoice', '{id}',
    '{state,paid_at,voided_at,uncollectible_at,credit_notes_minor,amount_due_minor,amount_paid_minor,payment_changes}',
    'NEW.paid_at IS DISTINCT FROM NEW.finalized_at AND NEW.paid_at IS NOT NULL
        OR NEW.voided_at IS NOT NULL OR NEW.uncollectible_at IS NOT NULL OR NEW.payment_changes > 0');
