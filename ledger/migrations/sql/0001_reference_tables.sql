-- Rates and batches are asked for by name, not by holder. Where the ledger is distributed they are reference tables. They are append-only too.
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON ledger_rate
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
ALTER TABLE ledger_rate ENABLE ALWAYS TRIGGER append_only;
CREATE UNIQUE INDEX ledger_rate_key ON ledger_rate (idempotency_key) WHERE idempotency_key IS NOT NULL;
ALTER TABLE ledger_rate ADD CONSTRAINT ledger_rate_positive CHECK (version >= 1 AND price >= 1 AND per >= 1);

CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON ledger_batch
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
ALTER TABLE ledger_batch ENABLE ALWAYS TRIGGER append_only;
