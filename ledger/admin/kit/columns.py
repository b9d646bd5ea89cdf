"""The names of a list's columns."""

from django.contrib.admin import AdminSite
from django.db.models import Model
from django.utils.text import capfirst
from unfold.admin import ModelAdmin


class NamedColumns(ModelAdmin):
    """A list whose columns' names begin with a capital, also on a narrow page, which names the column in each cell."""

    def __init__(self, model: type[Model], admin_site: AdminSite) -> None:
        super().__init__(model, admin_site)
        for field in model._meta.fields:
            # Migrations do not know this name, but the one that the field was given.
            field.verbose_name = capfirst(str(field.verbose_name))
