-- The newest first, over all holders: the index has the five seconds that an entry was recorded in. Entries of one slot share its key there, which
-- takes a third of the bytes; they are sorted when they are read, and a slot has no more than are written in five seconds.
CREATE FUNCTION ledger_slot(at timestamptz) RETURNS timestamptz
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN date_bin('5 seconds', at, timestamptz '2000-01-01 00:00:00+00');

DROP INDEX ledger_entry_recorded_at;
CREATE INDEX ledger_entry_recorded_at ON ledger_entry (ledger_slot(recorded_at));
