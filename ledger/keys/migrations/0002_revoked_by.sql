-- The trigger of the register keeps the schema that the migration works in, as those of schema.sql.
SELECT set_config('search_path', format('%I, pg_temp', current_schema()), true);

-- Who revoked a key. Null for keys that are not revoked, and for those that were revoked before, or by code of 0.2.0.
ALTER TABLE ledger_api_key ADD COLUMN revoked_by text;
COMMENT ON COLUMN ledger_api_key.revoked_by IS 'Who revoked the key; null if it is not revoked, or was by code of 0.2.0.';

-- Checked for what is written from now on; the next migration looks at the rows that are there.
ALTER TABLE ledger_api_key ADD CONSTRAINT ledger_api_key_revoked_by_somebody CHECK (
    revoked_by IS NULL OR revoked_at IS NOT NULL AND char_length(revoked_by) BETWEEN 1 AND 200
) NOT VALID;

-- The register follows a change of the new column too. A null column is in no form, so the digests of the rows that are there stay.
DROP TRIGGER registered ON ledger_api_key;
CALL ledger_have_registered('ledger_api_key', '{id}', '{revoked_at,revoked_by,prefix,key_digest,rotated_at,former_digest,former_until}');
