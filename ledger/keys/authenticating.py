"""How a call is authenticated by an API key: a look at its first characters, and one at its digest in the table."""

from ledger import conf
from ledger.keys import api_keys, last_use
from ledger.rest.kit.authentication import Key, digest_of
from ledger.rest.kit.request_errors import KeyForTests, KeyNotForTests


def check_secret(secret: str) -> None:
    """Refuse a key of the other kind of deployment.

    Raises:
        KeyNotForTests, KeyForTests: as their names say.
    """
    if not api_keys.is_of_this_deployment(secret):
        raise KeyNotForTests if conf.TEST_CLOCKS.value else KeyForTests


def find_key(secret: str) -> Key | None:
    """Return the valid key with this secret, and have its use recorded; None if there is none."""
    key = api_keys.find_api_key(secret)
    if key is None:
        return None
    last_use.note_use(key)
    return Key(
        digest=digest_of(secret),
        name=key.name,
        scopes=frozenset(key.granted_scopes),
        holder_id=key.holder_id or None,
        expires_at=key.expires_at,
        requests_per_second=key.requests_per_second,
        concurrent_requests=key.concurrent_requests,
        id=key.pk,
        labels=key.labels,
    )
