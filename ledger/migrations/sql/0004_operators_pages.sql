-- A version of a rate with a text key, for tools that cannot take a composite one, such as Django's admin.
CREATE VIEW ledger_rate_listing AS
SELECT r.credit_type || '/' || r.code || '/' || r.version AS id, r.*
FROM ledger_rate r;
COMMENT ON VIEW ledger_rate_listing IS 'Versions of rates with a key of one column: credit type/code/version.';
