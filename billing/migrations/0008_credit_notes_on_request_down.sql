DROP TRIGGER never_truncated ON billing_creditnotetax;
DROP TRIGGER never_truncated ON billing_creditnoteline;
DROP TRIGGER never_truncated ON billing_creditnote;
DROP TRIGGER frozen ON billing_creditnotetax;
DROP TRIGGER frozen ON billing_creditnoteline;
DROP TRIGGER frozen ON billing_creditnote;
DROP FUNCTION billing_freeze_creditnote_part();
DROP FUNCTION billing_freeze_creditnote();

CREATE OR REPLACE FUNCTION billing_freeze_invoice() RETURNS trigger
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
