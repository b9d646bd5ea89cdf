"""The ledger's settings, each with its default: `settings.LEDGER` has those that differ, and may be missing."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Generic, Literal, TypeVar

from django.apps import apps
from django.conf import settings
from django.core.signals import setting_changed
from django.db import DEFAULT_DB_ALIAS
from django.dispatch import receiver

T = TypeVar("T")

CHECKS: Final = "ledger-settings"
"""The tag of the checks that every command does first: of settings alone, so that none of them loads the URLs and their pages."""


@dataclass(frozen=True)
class Setting(Generic[T]):
    """One name of `settings.LEDGER`. Its default determines its type.

    Args:
        about: its effect.
        choices: the values that it may have; empty: every value of its type.
        least: the smallest whole number.
        pattern: matches the string, or each string of a list.
        derived: returns the value where none is given, from Django's settings; None: the default.
        application: alone reads it, and can be left out; empty: the ledger itself reads it.
    """

    name: str
    default: T
    about: str
    choices: tuple[T, ...] = ()
    least: int = 0
    pattern: str = ".*"
    derived: Callable[[], T] | None = None
    application: str = ""

    @cached_property
    def value(self) -> T:
        """The value; cached, because every request needs many of them."""
        given = given_settings()
        if self.name in given or self.derived is None:
            value: T = given.get(self.name, self.default)
            return value
        return self.derived()

    def complaint(self, value: object) -> str:
        """Return what is wrong with the value, or an empty string."""
        parts = value if isinstance(value, list) else [value] if isinstance(value, str) else []
        if type(value) is not type(self.default) or not all(isinstance(part, str) for part in parts):
            return f"must be {NAMES_OF_TYPES[type(self.default)]}, not {value!r}"
        if self.choices and value not in self.choices:
            return f"must be one of {', '.join(map(repr, self.choices))}, not {value!r}"
        if wrong := [part for part in parts if not re.fullmatch(self.pattern, part, re.DOTALL)]:
            what = "be a list of strings that match" if isinstance(value, list) else "match"
            return f"must {what} {self.pattern}, not {wrong[0]!r}"
        if isinstance(value, int) and value < self.least:
            return f"must be {self.least} or more, not {value}"
        return ""


def keeps_server_sessions() -> bool:
    """Return whether Django's settings say that a connection keeps its session of the server from one transaction to the next."""
    database = settings.DATABASES[DEFAULT_DB_ALIAS]
    return not (database.get("DISABLE_SERVER_SIDE_CURSORS") or database.get("OPTIONS", {}).get("prepare_threshold", 0) is None)


NAMES_OF_TYPES: Final[dict[type, str]] = {
    bool: "True or False",
    int: "a whole number",
    str: "a string",
    list: "a list of strings",
}

LOCK_KEY_SCHEME: Final = Setting(
    "LOCK_KEY_SCHEME", "sha256", "How a lock's name becomes its number, the same in every process: docs/reference/lock-keys.md."
)
LOCK_NAMESPACE: Final = Setting(
    "LOCK_NAMESPACE", "", "A part of every lock name that keeps two applications in one database apart."
)
LOCK_NAMES: Final = Setting(
    "LOCK_NAMES", "", "Lock names as another service spells them, to share its locks: `holder=ledger:{holder} rate=…`."
)
PREPARE_STATEMENTS: Final = Setting(
    "PREPARE_STATEMENTS",
    True,
    "Keep the most frequent statements prepared on each connection. Without this setting, they are not where DATABASES has "
    "DISABLE_SERVER_SIDE_CURSORS or a prepare_threshold of None, as it should behind a pooler in transaction mode; PgBouncer can "
    "keep them from 1.21 on.",
    derived=keeps_server_sessions,
)
REQUESTS_PER_TRANSACTION: Final = Setting(
    "REQUESTS_PER_TRANSACTION", 32, "How many calls that arrive together share one transaction; 1 gives each its own.", least=1
)
DISTRIBUTED: Final = Setting("DISTRIBUTED", False, "The database is a Citus cluster, and the ledger is distributed by holder.")
SHARDS: Final = Setting(
    "SHARDS", 32, "On a cluster, the number of parts, fixed for good; a part moves to another node as a whole.", least=1
)
REFUND_TO_EXPIRED_LOT: Final = Setting[Literal["new-lot", "gone"]](
    "REFUND_TO_EXPIRED_LOT", "new-lot", "How a refund returns credits of an expired lot.", choices=("new-lot", "gone")
)
REFUND_LOT_DAYS: Final = Setting("REFUND_LOT_DAYS", 30, "For how many days credits in such a new lot can be spent.", least=1)
DOCUMENT_FONTS: Final = Setting[list[str]](
    "DOCUMENT_FONTS", [], "Folders of fonts for scripts that the PDF compiler's fonts lack."
)
KEY_REQUESTS_PER_SECOND: Final = Setting(
    "KEY_REQUESTS_PER_SECOND", 0, "How many calls a second one API key may send to one process; 0: no limit."
)
KEY_CONCURRENT_REQUESTS: Final = Setting(
    "KEY_CONCURRENT_REQUESTS",
    1024,
    "How many calls at the same time one API key may have in one process; 0: no limit. The default is half of what a process "
    "lets wait, so that one program that runs wild leaves room for the others.",
)
TRUSTED_PROXIES: Final = Setting(
    "TRUSTED_PROXIES", 0, "How many of your proxies forward a request; each adds the address that it saw to X-Forwarded-For."
)
SIGNAL_ALLOWED_NETWORKS: Final = Setting[list[str]](
    "SIGNAL_ALLOWED_NETWORKS",
    [],
    "Networks to which signals may be sent although they are not public, such as 10.1.0.0/16.",
    application="ledger.signals",
)
SIGNAL_PLAIN_HTTP: Final = Setting(
    "SIGNAL_PLAIN_HTTP",
    False,
    "Also send signals to http:// addresses, where others on the way can read them.",
    application="ledger.signals",
)
SIGNAL_MAIL_FROM: Final = Setting(
    "SIGNAL_MAIL_FROM",
    "",
    "The sender of signals that are mailed, such as ledger@shop.example; empty: none are.",
    application="ledger.signals",
)
SIGNAL_TIMEOUT_SECONDS: Final = Setting(
    "SIGNAL_TIMEOUT_SECONDS",
    10,
    "How long one request to a receiver may take in all.",
    least=1,
    application="ledger.signals",
)
SIGNAL_DISABLED_AFTER_DAYS: Final = Setting(
    "SIGNAL_DISABLED_AFTER_DAYS",
    5,
    "After how many days without a success a webhook is disabled.",
    least=1,
    application="ledger.signals",
)
SIGNAL_KEPT_DAYS: Final = Setting(
    "SIGNAL_KEPT_DAYS",
    30,
    "How long signals are kept, with their deliveries and attempts, whether delivered or not.",
    least=1,
    application="ledger.signals",
)
SECOND_OPERATOR_ABOVE: Final = Setting[list[str]](
    "SECOND_OPERATOR_ABOVE",
    [],
    "Above which amounts a form of the admin waits for a second operator, alone or with what its operator moved in 24 hours, "
    "by credit type in the smallest unit or by currency in minor units, such as credits=10000 or EUR=50000.",
    pattern="(?:[a-z0-9_]{1,32}|[A-Z]{3})=[0-9]{1,16}",
    application="ledger.staff",
)
VIES_URL: Final = Setting(
    "VIES_URL",
    "",
    "The EU's service that says whether a VAT id is valid, https://ec.europa.eu/taxation_customs/vies/rest-api: VAT ids of "
    "customers are looked up there. Empty: they are only checked offline.",
    # Plain HTTP only to this machine, because VAT ids are sent.
    pattern=r"(?:(?:https://[^\s/?#@]+|http://(?:localhost|127\.0\.0\.1)(?::[0-9]+)?)(?:/[^\s?#]*)?)?",
)
TEST_CLOCKS: Final = Setting(
    "TEST_CLOCKS",
    False,
    "This is a deployment for tests: holders may have test clocks, and its API keys begin with `test_`; no other deployment "
    "accepts such keys.",
)
CUSTOMER_PAGE_URL: Final = Setting(
    "CUSTOMER_PAGE_URL",
    "",
    "The address of the customer's page, such as https://shop.example/c/; empty: at the host of the request that makes a link.",
    application="ledger.portal",
)
CUSTOMER_PAGE_SALT: Final = Setting(
    "CUSTOMER_PAGE_SALT",
    "",
    "Any text; another one ends all links to customers' pages that were made before.",
    application="ledger.portal",
)
CUSTOMER_PAGE_FRAMED_BY: Final = Setting[list[str]](
    "CUSTOMER_PAGE_FRAMED_BY",
    [],
    "Origins whose pages may show the customer's page in a frame, such as https://shop.example.",
    application="ledger.portal",
)

SETTINGS: Final[tuple[Setting[Any], ...]] = tuple(value for value in list(globals().values()) if type(value) is Setting)


@receiver(setting_changed)
def forget_values(*, setting: str, **_: Any) -> None:
    """Clear the cached values when a test changes the settings that they come from."""
    if setting in {"LEDGER", "DATABASES"}:
        for each in SETTINGS:
            vars(each).pop("value", None)


def given_settings() -> dict[str, Any]:
    """Return `settings.LEDGER`; without one, or with one that the checks refuse, an empty dict."""
    given = getattr(settings, "LEDGER", None)
    return given if isinstance(given, dict) else {}


def complaints() -> Iterator[str]:
    """Yield a sentence for each name in `settings.LEDGER` that is unknown, has a wrong value, or nobody installed reads."""
    if (given := getattr(settings, "LEDGER", {})) != given_settings():
        yield f"settings.LEDGER must be a dict, not {given!r}"
    known = {setting.name: setting for setting in SETTINGS}
    for name, value in given_settings().items():
        if name not in known:
            yield f"settings.LEDGER has no {name!r}; known are: {', '.join(known)}"
        elif complaint := known[name].complaint(value):
            yield f"settings.LEDGER[{name!r}] {complaint}"
        elif (application := known[name].application) and value != known[name].default and not apps.is_installed(application):
            yield f"settings.LEDGER[{name!r}] needs {application!r} in INSTALLED_APPS"
