-- What the database itself refuses, whatever the application does.

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

-- Usage events, partitioned by the time of use: what has been billed and is past every look-back is detached and dropped in
-- one step. Everything lands in the default partition until somebody creates narrower ones. The key is unique in a table of
-- its own, which is never pruned.
CREATE TABLE billing_usageevent (
    subscription_id bigint NOT NULL,
    meter varchar(64) NOT NULL,
    occurred_at timestamptz NOT NULL,
    idempotency_key varchar(255) NOT NULL,
    value numeric(38, 12) NOT NULL,
    properties jsonb NOT NULL,
    recorded_at timestamptz NOT NULL DEFAULT clock_timestamp()
) PARTITION BY RANGE (occurred_at);
CREATE TABLE billing_usageevent_default PARTITION OF billing_usageevent DEFAULT;
CREATE INDEX billing_usageevent_period ON billing_usageevent (subscription_id, meter, occurred_at);

-- Only ever inserted.
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON billing_usageevent
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
ALTER TABLE billing_usageevent ENABLE ALWAYS TRIGGER append_only;
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON billing_usageevent_default
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
ALTER TABLE billing_usageevent_default ENABLE ALWAYS TRIGGER append_only;
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON billing_usagekey
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
ALTER TABLE billing_usagekey ENABLE ALWAYS TRIGGER append_only;
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON billing_amendment
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
ALTER TABLE billing_amendment ENABLE ALWAYS TRIGGER append_only;
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON billing_charge
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
ALTER TABLE billing_charge ENABLE ALWAYS TRIGGER append_only;
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON billing_requestkey
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
ALTER TABLE billing_requestkey ENABLE ALWAYS TRIGGER append_only;

-- Plans, prices and coupons are intent that documents refer to: never changed. Their rows may be locked by whoever sells
-- them, so the privilege to UPDATE stays and the trigger refuses; hence another name than append_only.
CREATE TRIGGER frozen BEFORE UPDATE OR DELETE OR TRUNCATE ON billing_plan
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
ALTER TABLE billing_plan ENABLE ALWAYS TRIGGER frozen;
CREATE TRIGGER frozen BEFORE UPDATE OR DELETE OR TRUNCATE ON billing_price
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
ALTER TABLE billing_price ENABLE ALWAYS TRIGGER frozen;
CREATE TRIGGER frozen BEFORE UPDATE OR DELETE OR TRUNCATE ON billing_coupon
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
ALTER TABLE billing_coupon ENABLE ALWAYS TRIGGER frozen;

-- An invoice begins as a draft. Once it has left that state nothing of it changes but the state and when it was reached,
-- and that only along draft -> open -> paid | void | uncollectible, uncollectible -> paid | void.
CREATE FUNCTION billing_freeze_invoice() RETURNS trigger
LANGUAGE plpgsql AS $$
DECLARE
    moving CONSTANT text[] := ARRAY['state', 'paid_at', 'voided_at', 'uncollectible_at'];
BEGIN
    IF TG_OP = 'INSERT' THEN
        IF NEW.state <> 'draft' THEN
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
        RETURN NEW;
    END IF;
    IF (OLD.state, NEW.state) NOT IN (
        ('open', 'paid'), ('open', 'void'), ('open', 'uncollectible'), ('uncollectible', 'paid'), ('uncollectible', 'void')
    ) OR to_jsonb(NEW) - moving IS DISTINCT FROM to_jsonb(OLD) - moving THEN
        RAISE EXCEPTION 'billing_invoice: % is % and frozen', OLD.number, OLD.state USING ERRCODE = 'LG001';
    END IF;
    RETURN NEW;
END;
$$;
CREATE TRIGGER frozen BEFORE INSERT OR UPDATE OR DELETE ON billing_invoice
    FOR EACH ROW EXECUTE FUNCTION billing_freeze_invoice();
ALTER TABLE billing_invoice ENABLE ALWAYS TRIGGER frozen;

-- Lines and taxes come and go with a draft and are frozen with it. FOR SHARE, so that a line cannot slip in while another
-- connection finalises the invoice.
CREATE FUNCTION billing_freeze_part() RETURNS trigger
LANGUAGE plpgsql AS $$
DECLARE
    invoice_state text;
    invoice bigint := CASE TG_OP WHEN 'INSERT' THEN NEW.invoice_id ELSE OLD.invoice_id END;
BEGIN
    SELECT state INTO invoice_state FROM billing_invoice WHERE id = invoice FOR SHARE;
    IF invoice_state IS DISTINCT FROM 'draft' OR (TG_OP = 'UPDATE' AND NEW.invoice_id <> OLD.invoice_id) THEN
        RAISE EXCEPTION '%: invoice % is frozen', TG_TABLE_NAME, invoice USING ERRCODE = 'LG001';
    END IF;
    RETURN CASE TG_OP WHEN 'DELETE' THEN OLD ELSE NEW END;
END;
$$;
CREATE TRIGGER frozen BEFORE INSERT OR UPDATE OR DELETE ON billing_line
    FOR EACH ROW EXECUTE FUNCTION billing_freeze_part();
ALTER TABLE billing_line ENABLE ALWAYS TRIGGER frozen;
CREATE TRIGGER frozen BEFORE INSERT OR UPDATE OR DELETE ON billing_invoicetax
    FOR EACH ROW EXECUTE FUNCTION billing_freeze_part();
ALTER TABLE billing_invoicetax ENABLE ALWAYS TRIGGER frozen;

CREATE TRIGGER never_truncated BEFORE TRUNCATE ON billing_invoice
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
ALTER TABLE billing_invoice ENABLE ALWAYS TRIGGER never_truncated;
CREATE TRIGGER never_truncated BEFORE TRUNCATE ON billing_line
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
ALTER TABLE billing_line ENABLE ALWAYS TRIGGER never_truncated;
CREATE TRIGGER never_truncated BEFORE TRUNCATE ON billing_invoicetax
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
ALTER TABLE billing_invoicetax ENABLE ALWAYS TRIGGER never_truncated;
CREATE TRIGGER never_truncated BEFORE TRUNCATE ON billing_claim
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
ALTER TABLE billing_claim ENABLE ALWAYS TRIGGER never_truncated;
