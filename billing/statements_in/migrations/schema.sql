-- What the database does with receipts, as far as Django's models cannot express it. ledger_have_registered() is the ledger's.

SELECT set_config('search_path', format('%I, pg_temp', current_schema()), true);

CALL ledger_have_registered('billing_bankreceipt', '{id}',
    '{state,why,waits_for_person,invoice_id,payment_intent_id,settled_by,settled_at,note}');
