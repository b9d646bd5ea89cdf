#!/bin/bash
# Run once by the image, on an empty data directory, after deploy/postgres/10-roles.sh: the extension, and the passwords by which nodes reach
# each other, 0 any node, -1 this one.
set -euo pipefail
psql --username "$POSTGRES_USER" --dbname ledger --set ON_ERROR_STOP=1 --set superuser="$POSTGRES_USER" \
    --set superuser_password="$POSTGRES_PASSWORD" --set owner_password="$LEDGER_OWNER_PASSWORD" --set app_password="$LEDGER_APP_PASSWORD" <<'SQL'
CREATE EXTENSION IF NOT EXISTS citus;
INSERT INTO pg_dist_authinfo (nodeid, rolename, authinfo)
SELECT node, role, 'password=' || password
FROM (VALUES (:'superuser', :'superuser_password'), ('ledger_owner', :'owner_password'), ('ledger_app', :'app_password')) AS login (role, password)
CROSS JOIN (VALUES (0), (-1)) AS known (node);
SQL
