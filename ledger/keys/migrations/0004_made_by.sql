CREATE INDEX CONCURRENTLY ledger_api_key_made_by ON ledger_api_key (parent_id) WHERE parent_id IS NOT NULL;
