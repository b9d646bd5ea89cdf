"""Starts localstripe, taught what it lacks of the requests that are sent here. It has neither checkouts nor disputes.

Run as a program: `python -m tests.billing.payments.local_stripe PORT`.
"""

import sys
from typing import Any

from aiohttp import web
from localstripe import resources

resources.store.dump_to_disk = lambda: None  # type: ignore[method-assign]
_intent = resources.PaymentIntent
_create, _confirm = _intent.__init__, _intent._api_confirm


def _described(self: Any, description: str | None = None, **data: Any) -> None:
    _create(self, **data)
    self.description = description


def _confirmed(
    id: str,  # noqa: A002 – its handler names it so
    off_session: str | None = None,
    return_url: str | None = None,
    **_: Any,
) -> Any:
    return _confirm(id)


class Dispute(resources.StripeObject):
    """There are none."""

    object = "dispute"
    _id_prefix = "dp_"

    @classmethod
    def _api_list_all(cls, url: str, **_: Any) -> Any:
        return super()._api_list_all(url)


_intent.__init__ = _described
_intent.amount_received = property(lambda self: self.amount if self.status == "succeeded" else 0)
resources.extra_apis[:] = [
    (method, url, _confirmed if url.endswith("/payment_intents/{id}/confirm") else act)
    for method, url, act in resources.extra_apis
]


def main() -> None:
    """Serve it on loopback."""
    # The routes are made when it is imported.
    from localstripe import server

    server.app.router.add_get("/v1/disputes", server.api_list_all(Dispute, "/v1/disputes"))
    web.run_app(server.app, host="127.0.0.1", port=int(sys.argv[1]), print=lambda *_: None)


if __name__ == "__main__":
    main()
