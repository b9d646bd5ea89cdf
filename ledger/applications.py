"""The applications below `ledger` and `billing` that a project may leave out: what each needs, and which modules have its parts.

A project names an application in INSTALLED_APPS, and its calls, pages, commands, tables and permissions are there. Without its
line they are not, and its folder may be missing. So the ledger imports none of them: it asks here for those that are installed.
"""

from importlib import import_module
from types import ModuleType
from typing import ClassVar

from django.apps import AppConfig, apps
from django.core.exceptions import ImproperlyConfigured


class LedgerApplication(AppConfig):
    """An application that can be left out. `apps.py` of each has a subclass; its `ready` registers what has a register.

    Args:
        needs: the applications without which it does not work.
        calls: the module whose `urlpatterns` are its calls, below the same address as the ledger's; empty for none.
        operators_pages: the modules of its pages for operators, which are loaded where `ledger.staff` is installed.
        permissions: the module that declares its permissions; empty for none.
        tables_on_all_nodes: the tables that a process on any node of a cluster reads, without entries; each node has a copy.
    """

    default_auto_field = "django.db.models.BigAutoField"
    needs: ClassVar[tuple[str, ...]] = ("ledger",)
    calls: ClassVar[str] = ""
    operators_pages: ClassVar[tuple[str, ...]] = ()
    permissions: ClassVar[str] = ""
    tables_on_all_nodes: ClassVar[tuple[str, ...]] = ()

    def ready(self) -> None:
        """Compare INSTALLED_APPS with `needs`.

        Raises:
            ImproperlyConfigured: an application that this one needs is not installed.
        """
        missing = [repr(name) for name in self.needs if not apps.is_installed(name)]
        if missing:
            raise ImproperlyConfigured(f"{self.name!r} needs {' and '.join(missing)} in INSTALLED_APPS".replace("'", '"'))


def call_modules() -> list[ModuleType]:
    """Return the modules of the calls of all installed applications, in the order of INSTALLED_APPS."""
    return [import_module(each.calls) for each in _installed_applications() if each.calls]


def load_operators_pages() -> None:
    """Import the operators' pages of all installed applications, also of billing: each registers itself with Django's admin."""
    for config in apps.get_app_configs():
        for name in getattr(config, "operators_pages", ()):
            import_module(name)


def permission_modules() -> list[ModuleType]:
    """Return the modules that declare the permissions of all installed applications, in the order of INSTALLED_APPS."""
    return [import_module(each.permissions) for each in _installed_applications() if each.permissions]


def tables_on_all_nodes() -> list[str]:
    """Return the tables of installed applications of which each node of a cluster has a copy."""
    return [table for each in _installed_applications() for table in each.tables_on_all_nodes]


def _installed_applications() -> list[LedgerApplication]:
    return [each for each in apps.get_app_configs() if isinstance(each, LedgerApplication)]
