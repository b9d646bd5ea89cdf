"""The page on which an operator turns two-step login on and off, and makes recovery codes."""

from base64 import b32encode
from typing import Any

import django_otp
import segno
from django import forms
from django.contrib import admin, messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from unfold.widgets import UnfoldAdminTextInputWidget

from ledger.operators.staff_log import record
from ledger_project.operators import two_step

WRONG = "This code is not right. After a wrong code, the server accepts the next one only after a pause, which doubles each time."

BEGUN = "two-step-begun"
"""In the session that has begun the set-up: the id of the device. Only this session sees the secret, and can confirm it."""


class CodeForm(forms.Form):
    """A code of the app, or a recovery code."""

    code = forms.CharField(
        max_length=32,
        widget=UnfoldAdminTextInputWidget(attrs={"autocomplete": "one-time-code", "inputmode": "text"}),
        help_text="Six digits from the app. To turn two-step login off, you can also use a recovery code.",
    )


def page(request: HttpRequest) -> HttpResponse:
    """Show the state of two-step login, or do what the button says: begin, confirm, turn off, make recovery codes."""
    act = {"begin": _begin, "confirm": _confirm, "off": _off, "codes": _new_codes}.get(request.POST.get("do", ""))
    if request.method == "POST" and act is not None:
        return act(request)
    return _show_form(request, CodeForm())


def _begin(request: HttpRequest) -> HttpResponse:
    if two_step.device_of(request.user) is None:  # type: ignore[arg-type]
        request.session[BEGUN] = two_step.begin(request.user).pk  # type: ignore[arg-type]
    return HttpResponseRedirect(reverse("two-step"))


def _confirm(request: HttpRequest) -> HttpResponse:
    form = CodeForm(request.POST)
    confirmed = None
    if form.is_valid():
        confirmed = two_step.confirm(request.user, request.session.get(BEGUN), form.cleaned_data["code"])  # type: ignore[arg-type]
    if confirmed is None:
        return _wrong(request, form)
    device, codes = confirmed
    del request.session[BEGUN]
    # A copy of the session's cookie from before must not become a verified session.
    request.session.cycle_key()
    django_otp.login(request, device)
    record(request, "second-step-on", about=_about(request))
    messages.success(request, "Two-step login is on: from now on, a login needs the password and a code.")
    return _show_form(request, CodeForm(), codes=codes)


def _off(request: HttpRequest) -> HttpResponse:
    form = CodeForm(request.POST)
    if not form.is_valid() or two_step.verify(request.user, form.cleaned_data["code"]) is None:  # type: ignore[arg-type]
        return _wrong(request, form)
    two_step.turn_off(request.user)  # type: ignore[arg-type]
    record(request, "second-step-off", about=_about(request))
    messages.success(request, "Two-step login is off: a login needs only the password.")
    return HttpResponseRedirect(reverse("two-step"))


def _new_codes(request: HttpRequest) -> HttpResponse:
    form = CodeForm(request.POST)
    if not form.is_valid() or two_step.verify(request.user, form.cleaned_data["code"]) is None:  # type: ignore[arg-type]
        return _wrong(request, form)
    codes = two_step.make_recovery_codes(request.user)  # type: ignore[arg-type]
    record(request, "recovery-codes-made", about=_about(request))
    return _show_form(request, CodeForm(), codes=codes)


def _wrong(request: HttpRequest, form: CodeForm) -> HttpResponse:
    if form.is_valid():
        form.add_error("code", WRONG)
    return _show_form(request, form, status=422)


def _show_form(request: HttpRequest, form: CodeForm, *, codes: list[str] | None = None, status: int = 200) -> HttpResponse:
    user: Any = request.user
    device = two_step.device_of(user)
    beginning = None if device else two_step.beginning(user, request.session.get(BEGUN))
    context = {
        **admin.site.each_context(request),
        "title": "Two-step login",
        "form": form,
        "codes": codes,
        "is_on": device is not None,
        "is_required": two_step.is_required(user),
        "codes_left": two_step.recovery_codes_left(user) if device else 0,
        "picture": beginning and segno.make(beginning.config_url, error="m").svg_data_uri(scale=5, border=2, light="white"),
        "secret": beginning and _group_secret(beginning),
    }
    return TemplateResponse(request, "admin/two_step.html", context, status=status)


def _group_secret(device: Any) -> str:
    """Return the secret in the form that apps accept, in groups of four."""
    text = b32encode(device.bin_key).decode()
    return " ".join(text[place : place + 4] for place in range(0, len(text), 4))


def _about(request: HttpRequest) -> str:
    return f"user {request.user.get_username()}"
