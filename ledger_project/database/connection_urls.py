"""Database URLs in Django's form."""

from typing import Any
from urllib.parse import unquote

import environ

ENGINE = "ledger_project.database"


def parse(url: str) -> dict[str, Any]:
    """Turn a libpq URL into an entry of Django's DATABASES.

    Args:
        url: `postgresql://role:password@host:port/database?option=value`; the host may be a percent-encoded socket directory.

    Returns:
        NAME, USER, PASSWORD, HOST, PORT and OPTIONS, and as ENGINE the project's own backend.

    Source: https://www.postgresql.org/docs/18/libpq-connect.html#LIBPQ-CONNSTRING-URIS
    """
    config: dict[str, Any] = environ.Env.db_url_config(url)
    config["ENGINE"] = ENGINE
    config["HOST"] = unquote(config["HOST"])
    config.setdefault("OPTIONS", {})
    return config
