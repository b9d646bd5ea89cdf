-- What the database does with packs, purchases, payment intents and top-ups, as far as Django's models cannot express it. refuse_change(),
-- ledger_signal_is_wanted() and ledger_have_registered() are the ledger's.

SELECT set_config('search_path', format('%I, pg_temp', current_schema()), true);

-- ENABLE ALWAYS: what refuses also fires under session_replication_role = replica.
DO $$
DECLARE
    name text;
BEGIN
    -- Only ever inserted.
    FOREACH name IN ARRAY ARRAY[
        'billing_purchase', 'billing_purchasegrant', 'billing_purchasereturn', 'billing_returnsettlement', 'billing_providercustomer'
    ] LOOP
        EXECUTE format('CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON %I
            FOR EACH STATEMENT EXECUTE FUNCTION refuse_change()', name);
        EXECUTE format('ALTER TABLE %I ENABLE ALWAYS TRIGGER append_only', name);
    END LOOP;
END;
$$;

-- A pack never changes. Another process may lock its row FOR UPDATE while it sells it, and needs the right to UPDATE for that; so the
-- trigger refuses the updates that this right would allow.
CREATE TRIGGER frozen BEFORE UPDATE OR DELETE OR TRUNCATE ON billing_pack FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
ALTER TABLE billing_pack ENABLE ALWAYS TRIGGER frozen;


-- Signals ---------------------------------------------------------------------------------------------

-- The triggers write signals in the transaction of their cause: docs/explanation/billing.md. Signals of one customer are sent in order.

CREATE FUNCTION billing_tell_purchase() RETURNS trigger
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    IF ledger_signal_is_wanted('purchase.paid') THEN
        INSERT INTO ledger_signal (type, stream, holder_id, data)
        SELECT 'purchase.paid', NEW.holder_id, NEW.holder_id, json_build_object(
            'id', NEW.id,
            'holder_id', NEW.holder_id,
            'pack', pack.code,
            'version', pack.version,
            'provider', NEW.provider,
            'payment', NEW.payment,
            'currency', NEW.currency,
            'paid_minor', NEW.paid_minor
        )
        FROM billing_pack AS pack WHERE pack.id = NEW.pack_id;
    END IF;
    RETURN NULL;
END $$;

CREATE TRIGGER told AFTER INSERT ON billing_purchase FOR EACH ROW EXECUTE FUNCTION billing_tell_purchase();

CREATE FUNCTION billing_tell_purchase_grant() RETURNS trigger
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    IF ledger_signal_is_wanted('purchase.granted') THEN
        INSERT INTO ledger_signal (type, stream, holder_id, data)
        SELECT 'purchase.granted', purchase.holder_id, purchase.holder_id, json_build_object(
            'id', purchase.id,
            'holder_id', purchase.holder_id,
            'credit_type', purchase.credit_type,
            'credits', NEW.credits,
            'bonus', NEW.bonus,
            'entries', NEW.entries
        )
        FROM billing_purchase AS purchase WHERE purchase.id = NEW.purchase_id;
    END IF;
    RETURN NULL;
END $$;

CREATE TRIGGER told AFTER INSERT ON billing_purchasegrant FOR EACH ROW EXECUTE FUNCTION billing_tell_purchase_grant();

CREATE FUNCTION billing_tell_return() RETURNS trigger
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    IF ledger_signal_is_wanted('purchase.returned') THEN
        INSERT INTO ledger_signal (type, stream, holder_id, data)
        SELECT 'purchase.returned', purchase.holder_id, purchase.holder_id, json_build_object(
            'id', purchase.id,
            'holder_id', purchase.holder_id,
            'kind', returned.kind,
            'payment', returned.payment,
            'currency', purchase.currency,
            'amount_minor', returned.amount_minor,
            'loss_minor', returned.loss_minor,
            'credits', NEW.taken_credits,
            'bonus', NEW.taken_bonus,
            'claim_credits', NEW.share_credits - NEW.taken_credits,
            'claim_minor', NEW.claim_minor
        )
        FROM billing_purchase AS purchase JOIN billing_purchasereturn AS returned ON returned.id = NEW.purchase_return_id
        WHERE purchase.id = NEW.purchase_id;
    END IF;
    RETURN NULL;
END $$;

CREATE FUNCTION billing_tell_intent() RETURNS trigger
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    wanted text := 'payment_intent.' || NEW.state;
BEGIN
    IF ledger_signal_is_wanted(wanted) THEN
        INSERT INTO ledger_signal (type, stream, holder_id, data)
        SELECT wanted, coalesce(NEW.holder_id, 'customer/' || customer.ref), coalesce(NEW.holder_id, NULLIF(customer.holder_id, '')),
            json_build_object(
                'id', NEW.id,
                'provider', NEW.provider,
                'holder_id', NEW.holder_id,
                'invoice', NEW.invoice_id,
                'currency', NEW.currency,
                'amount_minor', NEW.amount_minor,
                'url', NULLIF(NEW.url, ''),
                'error', NULLIF(NEW.error, '')
            )
        FROM (SELECT) AS one LEFT JOIN billing_customer AS customer ON customer.id = NEW.customer_id;
    END IF;
    RETURN NULL;
END $$;

CREATE TRIGGER told AFTER UPDATE OF state ON billing_paymentintent
    FOR EACH ROW WHEN (OLD.state IS DISTINCT FROM NEW.state AND NEW.state IN ('waiting', 'succeeded', 'failed'))
    EXECUTE FUNCTION billing_tell_intent();

CREATE FUNCTION billing_tell_top_up() RETURNS trigger
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    IF ledger_signal_is_wanted('top_up.paused') THEN
        INSERT INTO ledger_signal (type, stream, holder_id, data)
        VALUES ('top_up.paused', NEW.holder_id, NEW.holder_id, json_build_object(
            'id', NEW.id,
            'holder_id', NEW.holder_id,
            'credit_type', NEW.credit_type,
            'declines', NEW.declines
        ));
    END IF;
    RETURN NULL;
END $$;

CREATE TRIGGER told AFTER UPDATE OF paused_at ON billing_topup
    FOR EACH ROW WHEN (OLD.paused_at IS NULL AND NEW.paused_at IS NOT NULL) EXECUTE FUNCTION billing_tell_top_up();

CREATE TRIGGER told AFTER INSERT ON billing_returnsettlement FOR EACH ROW EXECUTE FUNCTION billing_tell_return();


-- What is registered ----------------------------------------------------------------------------------

CALL ledger_have_registered('billing_pack', '{id}');
CALL ledger_have_registered('billing_paymentintent', '{id}',
    '{state,checkout,payment,url,error,is_canceled,returned_minor,settled_at,due_at,asked_at,tries}');
CALL ledger_have_registered('billing_providerrefund', '{id}', '{state,refund,error,due_at,asked_at,tries}');
CALL ledger_have_registered('billing_providerevent', '{id}', '{handled_at,intent_id,due_at,asked_at,tries,error}');
CALL ledger_have_registered('billing_providercustomer', '{id}');
CALL ledger_have_registered('billing_topup', '{id}', '{paused_at,resumed_at,ended_at}');
CALL ledger_have_registered('billing_purchase', '{id}');
CALL ledger_have_registered('billing_purchasegrant', '{id}');
CALL ledger_have_registered('billing_purchasereturn', '{id}');
CALL ledger_have_registered('billing_returnsettlement', '{id}');
