-- The function keeps the schema that the migration works in, as those of schema.sql.
SELECT set_config('search_path', format('%I, pg_temp', current_schema()), true);

-- The signal says since when the invoice is overdue, for a message of the receiver's own.
CREATE OR REPLACE FUNCTION billing_tell_reminder() RETURNS trigger
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
            'due_date', invoice.due_date,
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
