"""The form that makes a link to the customer's page. The link is shown once, and in no log."""

from typing import Any, Final

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from unfold.widgets import UnfoldAdminSelectWidget, UnfoldBooleanSwitchWidget

from ledger.operators import additions, staff_log
from ledger.portal import links
from ledger.portal.links import NOT_SERVED
from ledger.reads import Balance
from ledger.records import declared_fields
from ledger.staff.kit.idempotent_forms import sentence
from ledger.staff.kit.pages import ReadOnlyAdmin, form_page
from ledger.staff.kit.rows import NamesField, text_cell, with_more_rows
from ledger.staff.links import holder_url
from ledger.typesetting.languages import LANGUAGES
from ledger.values import InvalidValue

PLAN: Final = "plan"
"""The noun of plans among references; another application offers them."""
PLANS_VALUE: Final = next(each.value for each in declared_fields(links.LinkRequest) if each.name == "plans")
LASTS: Final = ((900, "15 minutes"), (3_600, "1 hour"), (86_400, "1 day"))


class PageLinkForm(forms.Form):
    """How long the link lasts, and what it shows."""

    expires_in = forms.TypedChoiceField(label="Ends after", choices=LASTS, coerce=int, widget=UnfoldAdminSelectWidget())
    language = forms.ChoiceField(
        choices=[("", "the customer's"), *((each.code, each.code) for each in LANGUAGES)],
        required=False,
        widget=UnfoldAdminSelectWidget(),
    )
    hide_amounts = forms.BooleanField(
        required=False, help_text="The page then shows no amount and offers no PDF.", widget=UnfoldBooleanSwitchWidget()
    )
    allow_payments = forms.BooleanField(
        required=False,
        help_text="The page then has buttons that pay an invoice, buy a pack and set an automatic top-up.",
        widget=UnfoldBooleanSwitchWidget(),
    )

    allow_plan_changes = forms.BooleanField(
        required=False,
        help_text="The page then has buttons that cancel a subscription at the end of its period, or move it to another plan.",
        widget=UnfoldBooleanSwitchWidget(),
    )
    plans = NamesField(
        {"name": text_cell("Plan", references=PLAN)},
        noun="Plan",
        label="Plans on offer",
        required=False,
        help_text="Without a row, the customer can only cancel.",
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if PLAN in additions.references():
            self.fields["plans"].columns["name"].widget.attrs["list"] = f"references-{PLAN}"  # type: ignore[attr-defined]

    def clean_plans(self) -> list[str] | None:
        """Return the refs; None without any."""
        plans: list[str] | None = self.cleaned_data["plans"] or None
        if plans is not None:
            try:
                PLANS_VALUE.check(plans)
            except InvalidValue as error:
                raise forms.ValidationError(sentence(error.detail)) from error
        return plans

    def clean(self) -> dict[str, Any]:
        """Refuse payments of amounts that are hidden."""
        given = super().clean() or {}
        if given.get("hide_amounts") and given.get("allow_payments"):
            self.add_error("allow_payments", "Nobody pays an amount that is hidden: choose one of both.")
        if given.get("hide_amounts") and given.get("allow_plan_changes"):
            self.add_error("allow_plan_changes", "Nobody takes a plan whose price is hidden: choose one of both.")
        if given.get("plans") and not given.get("allow_plan_changes"):
            self.add_error("plans", "Allow plan changes too, or leave this empty.")
        return given


def page_link_view(model_admin: ReadOnlyAdmin, request: HttpRequest, account: Balance) -> HttpResponse:
    """Ask, then make the link and show it in this one response."""
    back = holder_url(account.holder_id, type=account.credit_type)
    if not links.is_served():
        messages.error(request, NOT_SERVED)
        return HttpResponseRedirect(back)
    form = PageLinkForm(request.POST if request.method == "POST" else None)
    if "more" in request.POST:
        form = PageLinkForm(initial=with_more_rows(form, request.POST["more"]))
    elif request.method == "POST" and form.is_valid():
        return _shown_once(model_admin, request, account.holder_id, form.cleaned_data, back)
    return form_page(
        request,
        form,
        title=f"Customer's page of {account.holder_id}",
        button="Make a link",
        explanation="Anyone who has the link sees balance, history, usage and invoices of this holder until the link ends.",
        back=back,
        opts=model_admin.opts,
        reference_lists=_reference_lists(request),
    )


def _reference_lists(request: HttpRequest) -> list[tuple[str, str, Any]]:
    """Return the plans with which the list of the field begins, for those who may see plans."""
    listed = additions.references().get(PLAN)
    if listed is None or (listed.permission is not None and not request.user.has_perm(listed.permission)):
        return []
    return [(PLAN, f"references-{PLAN}", listed.list_rows(""))]


def _shown_once(
    model_admin: ReadOnlyAdmin, request: HttpRequest, holder_id: str, given: dict[str, Any], back: str
) -> HttpResponse:
    asked = links.LinkRequest(
        holder_id=holder_id,
        expires_in=given["expires_in"],
        hide_amounts=given["hide_amounts"],
        allow_payments=given["allow_payments"],
        allow_plan_changes=given["allow_plan_changes"],
        plans=given["plans"],
        language=given["language"] or None,
    )
    made = links.link_of(asked, request)
    also = [
        *([", without amounts"] if asked.hide_amounts else []),
        *([", with payments"] if asked.allow_payments else []),
        *([f", with changes of plans ({', '.join(asked.plans or ['only cancelling'])})"] if asked.allow_plan_changes else []),
    ]
    details = f"until {made.expires_at:%Y-%m-%d %H:%M} UTC{''.join(also)}"
    staff_log.record(request, "page-link-made", about=f"holder {holder_id}", details=details)
    title = f"Customer's page of {holder_id}"
    context = {**model_admin.admin_site.each_context(request), "title": title, "made": made, "back": back}
    response = TemplateResponse(request, "admin/ledger/portal/page_link.html", context)
    response["Cache-Control"] = "no-store"
    return response
