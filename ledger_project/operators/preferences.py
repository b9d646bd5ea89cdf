"""An operator's preferences: the zone in which the admin shows times."""

from functools import cache
from zoneinfo import ZoneInfo, available_timezones

from django import forms
from django.apps import apps
from django.contrib import messages
from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from unfold.widgets import UnfoldAdminTextInputWidget

ZONE = "time_zone"
"""The key of the zone in the session, so that no page has to query the database."""
UTC = "UTC"
LIST = "references-time_zone"
"""The id of the list in which the field searches: Note [A list that works without scripts]."""


@cache
def zones() -> list[str]:
    """Return the zones to choose from: UTC, and those named after a place."""
    return [UTC, *sorted(name for name in available_timezones() if "/" in name and not name.startswith("Etc/"))]


class PreferencesForm(forms.Form):
    """The preferences that an operator may choose."""

    time_zone = forms.CharField(
        label="Time zone",
        widget=UnfoldAdminTextInputWidget(attrs={"list": LIST, "autocomplete": "off", "spellcheck": "false"}),
        help_text="The admin shows times in this zone, and in UTC when you point at them. Filters by time use it too. "
        "Days and months of reports are always in UTC, and so are the times in files and on documents.",
    )

    def clean_time_zone(self) -> str:
        """Refuse what is no zone."""
        name = str(self.cleaned_data["time_zone"])
        if name not in zones():
            raise ValidationError("This must be a time zone, such as Europe/Berlin.", code="unknown-time-zone")
        return name


def page(request: HttpRequest) -> HttpResponse:
    """Show the form, or store the choice."""
    # Imported here, so that a command, which reads this module too, does not load the admin's pages.
    from ledger.staff.kit.pages import form_page
    from ledger.staff.models import Operator
    from ledger.staff.references import list_time_zones

    form = PreferencesForm(request.POST or None, initial={"time_zone": zone_of(request)})
    if request.method == "POST" and form.is_valid():
        chosen = form.cleaned_data["time_zone"]
        assert request.user.pk is not None
        Operator.objects.update_or_create(user_id=request.user.pk, defaults={"time_zone": chosen})
        request.session[ZONE] = chosen
        messages.success(request, f"Times are shown in {chosen.replace('_', ' ')}.")
        return HttpResponseRedirect(reverse("preferences"))
    return form_page(
        request,
        form,
        title="Preferences",
        button="Save",
        explanation="These settings are only for you.",
        back=reverse("admin:index"),
        reference_lists=[("time_zone", LIST, list_time_zones(""))],
    )


def zone_of(request: HttpRequest) -> str:
    """The name of the operator's zone."""
    return str(request.session.get(ZONE, UTC))


def time_zone(request: HttpRequest) -> ZoneInfo:
    """The operator's zone; UTC if this machine does not know that zone."""
    name = zone_of(request)
    return ZoneInfo(name if name in zones() else UTC)


def remember(sender: object, request: HttpRequest, user: User, **more: object) -> None:
    """Store the operator's zone in the session at login."""
    if not apps.is_installed("ledger.staff"):
        return
    from ledger.staff.models import Operator

    known = Operator.objects.filter(user_id=user.pk).values_list("time_zone", flat=True).first()
    if known is not None:
        request.session[ZONE] = known
