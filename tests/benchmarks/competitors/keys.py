"""The API key of views that are no calls of the ledger: checked in REST framework's way, looked up in the ledger's."""

from typing import Any

from rest_framework.authentication import BaseAuthentication
from rest_framework.permissions import BasePermission
from rest_framework.request import Request
from rest_framework.views import APIView

from ledger.rest.kit import authentication
from ledger.rest.kit.authentication import Key, known_key, secret_of
from ledger.rest.kit.request_errors import Unauthenticated


class KeyAuthentication(BaseAuthentication):
    """Finds the key; `request.auth` is it."""

    def authenticate(self, request: Request) -> tuple[None, Key]:
        """Return nobody, and the key; or raise `Unauthenticated`."""
        secret = secret_of(request._request)
        return None, known_key(secret) or _found(secret)

    def authenticate_header(self, request: Request) -> str:
        """Return what WWW-Authenticate says."""
        return "Bearer"


class HasScope(BasePermission):
    """Lets in whose key carries the method's scope."""

    def has_permission(self, request: Request, view: Any) -> bool:
        """Whether it does."""
        method = (request.method or "").lower()
        return isinstance(request.auth, Key) and request.auth.may(view.scopes[method])


class KeyedView(APIView):
    """A view as one writes it, for those who have a key."""

    authentication_classes = [KeyAuthentication]
    permission_classes = [HasScope]


def _found(secret: str) -> Key:
    """The key of a secret; raise Unauthenticated where there is no key."""
    found = authentication._looked_up(secret)
    if found is None:
        raise Unauthenticated
    return found
