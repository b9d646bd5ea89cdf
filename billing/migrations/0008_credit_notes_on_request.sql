-- Credit notes on request: frozen like invoices, and never more than the invoice, whatever the application does.

-- What is due on an open or uncollectible invoice falls with credit notes about it, and by nothing else; all other figures stay.
CREATE OR REPLACE FUNCTION billing_freeze_invoice() RETURNS trigger
LANGUAGE plpgsql AS $$
DECLARE
    moving text[] := ARRAY['state', 'paid_at', 'voided_at', 'uncollectible_at'];
    is_lowered boolean;
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
    is_lowered := OLD.state IN ('open', 'uncollectible') AND NEW.state IN (OLD.state, 'paid')
        AND NEW.credit_notes_minor > OLD.credit_notes_minor
        AND NEW.credit_notes_minor = (
            SELECT sum(amount_minor) FROM billing_creditnoteuse WHERE invoice_id = OLD.id AND released_at IS NULL);
    IF is_lowered THEN
        moving := moving || ARRAY['credit_notes_minor', 'amount_due_minor'];
    END IF;
    IF NOT (is_lowered AND NEW.state = OLD.state) AND (OLD.state, NEW.state) NOT IN (
        ('open', 'paid'), ('open', 'void'), ('open', 'uncollectible'), ('uncollectible', 'paid'), ('uncollectible', 'void')
    ) OR to_jsonb(NEW) - moving IS DISTINCT FROM to_jsonb(OLD) - moving THEN
        RAISE EXCEPTION 'billing_invoice: % is % and frozen', OLD.number, OLD.state USING ERRCODE = 'LG001';
    END IF;
    RETURN NEW;
END;
$$;

-- A note gets its number last; from then on it only ends with its invoice. Numbers of one series are given one after the other,
-- so what is summed up here is all that was credited before, also by somebody without the lock.
CREATE FUNCTION billing_freeze_creditnote() RETURNS trigger
LANGUAGE plpgsql AS $$
DECLARE
    category record;
BEGIN
    IF TG_OP = 'INSERT' THEN
        IF NEW.number IS NOT NULL THEN
            RAISE EXCEPTION 'billing_creditnote: the number is given last' USING ERRCODE = 'LG001';
        END IF;
        RETURN NEW;
    END IF;
    IF TG_OP = 'DELETE' THEN
        RAISE EXCEPTION 'billing_creditnote: % is kept', OLD.id USING ERRCODE = 'LG001';
    END IF;
    IF OLD.kind = 'requested' AND OLD.number IS NULL THEN
        IF NEW.kind <> 'requested' OR NEW.invoice_id <> OLD.invoice_id THEN
            RAISE EXCEPTION 'billing_creditnote: % belongs to invoice %', OLD.id, OLD.invoice_id USING ERRCODE = 'LG001';
        END IF;
        IF NEW.number IS NOT NULL THEN
            FOR category IN
                SELECT credited.category, credited.rate
                FROM billing_creditnotetax AS credited
                JOIN billing_creditnote AS note ON note.id = credited.credit_note_id
                LEFT JOIN billing_invoicetax AS billed
                    ON billed.invoice_id = note.invoice_id AND billed.category = credited.category AND billed.rate = credited.rate
                WHERE note.invoice_id = NEW.invoice_id AND note.released_at IS NULL
                GROUP BY credited.category, credited.rate, billed.base_minor, billed.amount_minor
                HAVING sum(credited.base_minor) > coalesce(billed.base_minor, 0)
                    OR sum(credited.amount_minor) > coalesce(billed.amount_minor, 0)
            LOOP
                RAISE EXCEPTION 'billing_creditnote: more than invoice % has of category % at %', NEW.invoice_id,
                    category.category, category.rate USING ERRCODE = 'check_violation';
            END LOOP;
        END IF;
        RETURN NEW;
    END IF;
    IF OLD.released_at IS NOT NULL OR NEW.released_at IS NULL
        OR to_jsonb(NEW) - 'released_at' IS DISTINCT FROM to_jsonb(OLD) - 'released_at'
    THEN
        RAISE EXCEPTION 'billing_creditnote: % is frozen', coalesce(OLD.number, OLD.id::text) USING ERRCODE = 'LG001';
    END IF;
    RETURN NEW;
END;
$$;
CREATE TRIGGER frozen BEFORE INSERT OR UPDATE OR DELETE ON billing_creditnote
    FOR EACH ROW EXECUTE FUNCTION billing_freeze_creditnote();
ALTER TABLE billing_creditnote ENABLE ALWAYS TRIGGER frozen;

-- Lines and taxes come before the number and never change.
CREATE FUNCTION billing_freeze_creditnote_part() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP <> 'INSERT' OR NOT EXISTS (
        SELECT FROM billing_creditnote WHERE id = NEW.credit_note_id AND kind = 'requested' AND number IS NULL
    ) THEN
        RAISE EXCEPTION '%: the credit note is frozen', TG_TABLE_NAME USING ERRCODE = 'LG001';
    END IF;
    RETURN NEW;
END;
$$;
CREATE TRIGGER frozen BEFORE INSERT OR UPDATE OR DELETE ON billing_creditnoteline
    FOR EACH ROW EXECUTE FUNCTION billing_freeze_creditnote_part();
ALTER TABLE billing_creditnoteline ENABLE ALWAYS TRIGGER frozen;
CREATE TRIGGER frozen BEFORE INSERT OR UPDATE OR DELETE ON billing_creditnotetax
    FOR EACH ROW EXECUTE FUNCTION billing_freeze_creditnote_part();
ALTER TABLE billing_creditnotetax ENABLE ALWAYS TRIGGER frozen;

CREATE TRIGGER never_truncated BEFORE TRUNCATE ON billing_creditnote
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
ALTER TABLE billing_creditnote ENABLE ALWAYS TRIGGER never_truncated;
CREATE TRIGGER never_truncated BEFORE TRUNCATE ON billing_creditnoteline
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
ALTER TABLE billing_creditnoteline ENABLE ALWAYS TRIGGER never_truncated;
CREATE TRIGGER never_truncated BEFORE TRUNCATE ON billing_creditnotetax
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
ALTER TABLE billing_creditnotetax ENABLE ALWAYS TRIGGER never_truncated;
