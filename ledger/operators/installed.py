"""Whether Django's admin can have the pages for operators: their base must be in INSTALLED_APPS."""

from typing import Any, Final

from django.apps import apps
from django.core.checks import CheckMessage
from django.core.checks import Warning as CheckWarning

NEEDED: Final = ("unfold", "unfold.contrib.filters")
"""The applications that the pages need, beside Django's admin."""
HINT: Final = (
    f"Put {', '.join(map(repr, NEEDED))} into INSTALLED_APPS, before 'django.contrib.admin'; "
    'pip install "credit-ledger[admin]" installs them.'
)


def missing() -> list[str]:
    """Return what INSTALLED_APPS lacks. If it lacks anything, no page is registered."""
    return [name for name in NEEDED if not apps.is_installed(name)]


def check_pages(app_configs: Any, **options: Any) -> list[CheckMessage]:
    """Report what keeps the pages out of Django's admin (ledger.W001), or out of their design (W002)."""
    if not apps.is_installed("django.contrib.admin"):
        return []
    if lacked := missing():
        what = f"The pages for operators are not registered: INSTALLED_APPS lacks {' and '.join(map(repr, lacked))}."
        return [CheckWarning(what, hint=HINT, id="ledger.W001")]
    names = [application.name for application in apps.get_app_configs()]
    if names.index("unfold") > names.index("django.contrib.admin"):
        what = "'unfold' stands behind 'django.contrib.admin', whose templates hide those of unfold."
        return [CheckWarning(what, hint=HINT, id="ledger.W002")]
    return []
