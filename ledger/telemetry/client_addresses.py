"""The address of a request's client: the same in the log, in the staff log, and for the limit of logins."""

from django.http import HttpRequest

from ledger import conf


def client_address(request: HttpRequest) -> str:
    """Return the address of the client: the connection's, or the one that the outermost trusted proxy saw.

    Behind n proxies (the setting TRUSTED_PROXIES) that is the n-th address of X-Forwarded-For from the right; the client itself
    may have written the addresses before it.
    """
    peer: str = request.META.get("REMOTE_ADDR", "")
    proxies = conf.TRUSTED_PROXIES.value
    if not proxies:
        return peer
    passed_on = [part.strip() for part in request.META.get("HTTP_X_FORWARDED_FOR", "").split(",")]
    return passed_on[-proxies] if len(passed_on) >= proxies and passed_on[-proxies] else peer
