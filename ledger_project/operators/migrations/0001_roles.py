"""The groups of a new ledger. Later changes by operators stay: a migration runs once, and makes only missing groups."""

from pathlib import Path
from typing import Any, ClassVar

from django.apps import apps as django_apps
from django.apps.registry import Apps
from django.contrib.auth.management import create_permissions
from django.db import migrations

from ledger.applications import LedgerApplication
from ledger_project.operators.roles import make_groups


def _optional() -> list[str]:
    """The labels of the applications with tables that a project may leave out."""
    optional = [config for config in django_apps.get_app_configs() if isinstance(config, LedgerApplication)]
    return [config.label for config in optional if (Path(config.path) / "migrations" / "0001_initial.py").exists()]


def make_roles(apps: Apps, schema_editor: Any) -> None:
    """Make the permissions, which Django makes only after the last migration, then the groups."""
    for label in ("auth", "axes", "ledger", *_optional(), "billing"):
        config = apps.get_app_config(label)
        config.models_module = True
        create_permissions(config, apps=apps, verbosity=0, using=schema_editor.connection.alias)
        config.models_module = None
    make_groups(apps.get_model("auth", "Group"), apps.get_model("auth", "Permission"))


class Migration(migrations.Migration):
    initial = True

    dependencies: ClassVar[list[tuple[str, str]]] = [
        ("auth", "0012_alter_user_first_name_max_length"),
        ("axes", "__latest__"),
        ("contenttypes", "0002_remove_content_type_name"),
        ("ledger", "0001_initial"),
        *((label, "0001_initial") for label in _optional()),
        ("billing", "0001_initial"),
    ]
    # Groups stay when the migration is reversed: operators may have them.
    operations: ClassVar[list[Any]] = [migrations.RunPython(make_roles, migrations.RunPython.noop)]
