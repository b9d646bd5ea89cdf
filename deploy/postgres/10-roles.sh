#!/bin/bash
# Run once by the postgres image, on an empty data directory: the two roles, and the database that the first one owns.
set -euo pipefail
psql --username "$POSTGRES_USER" --dbname postgres --set ON_ERROR_STOP=1 \
    --set owner_password="$LEDGER_OWNER_PASSWORD" --set app_password="$LEDGER_APP_PASSWORD" <<'SQL'
CREATE ROLE ledger_owner LOGIN PASSWORD :'owner_password';
CREATE ROLE ledger_app LOGIN PASSWORD :'app_password';
GRANT pg_read_all_stats TO ledger_app;
CREATE DATABASE ledger OWNER ledger_owner;
SQL
