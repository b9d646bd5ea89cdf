-- What the database does with mails and reminders, as far as Django's models cannot express it. refuse_change(), ledger_signal_is_wanted() and
-- ledger_have_registered() are the ledger's.

SELECT set_config('search_path', format('%I, pg_temp', current_schema()), true);

-- Only ever inserted. ENABLE ALWAYS: what refuses also fires under session_replication_role = replica.
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON billing_reminder
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
ALTER TABLE billing_reminder ENABLE ALWAYS TRIGGER append_only;

-- A finalised invoice is mailed if its seller mails invoices and its customer has an address for that. The mail is queued in the
-- transaction of the finalisation, whatever made it; docs/explanation/billing.md.
CREATE FUNCTION billing_queue_mail() RETURNS trigger
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    INSERT INTO billing_mail (kind, invoice_id, customer_id, identity, recipient)
    SELECT 'invoice', NEW.id, customer.id, gen_random_uuid(), customer.email
    FROM billing_customer AS customer JOIN billing_seller AS seller ON seller.id = NEW.seller_id
    WHERE customer.id = NEW.customer_id AND customer.email <> '' AND seller.details @> '{"mails_invoices": true}';
    RETURN NULL;
END $$;

CREATE TRIGGER mailed AFTER UPDATE OF state ON billing_invoice
    FOR EACH ROW WHEN (OLD.state = 'draft' AND NEW.state <> 'draft') EXECUTE FUNCTION billing_queue_mail();

CREATE FUNCTION billing_tell_reminder() RETURNS trigger
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    IF ledger_signal_is_wanted('invoice.reminded') THEN
        INSERT INTO ledger_signal (type, stream, holder_id, data)
        SELECT 'invoice.reminded', 'customer/' || customer.ref, NULLIF(customer.holder_id, ''), json_build_object(
            'invoice', NEW.invoice_id,
            'number', invoice.number,
            'subscription', NULLIF(invoice.subscription_ref, ''),
            'customer', customer.ref,
            'step', NEW.step,
            'currency', invoice.currency,
            'remaining_minor', NEW.remaining_minor,
            'fee_minor', NEW.fee_minor,
            'suspends', NEW.suspends
        )
        FROM billing_customer AS customer JOIN billing_invoice AS invoice ON invoice.id = NEW.invoice_id
        WHERE customer.id = NEW.customer_id;
    END IF;
    RETURN NULL;
END $$;

CREATE TRIGGER told AFTER INSERT ON billing_reminder FOR EACH ROW EXECUTE FUNCTION billing_tell_reminder();

CALL ledger_have_registered('billing_reminder', '{id}');
CALL ledger_have_registered('billing_reminderhold', '{id}', '{released_at,released_by,release_reason}');
