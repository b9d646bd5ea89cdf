-- The instants themselves in their index again.
DROP INDEX ledger_entry_recorded_at;
CREATE INDEX ledger_entry_recorded_at ON ledger_entry (recorded_at);
DROP FUNCTION ledger_slot(timestamptz);
