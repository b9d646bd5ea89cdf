"""The login: name, password, and a code for operators with two-step login; and the page after too many wrong guesses."""

from typing import Any

from django import forms
from django.conf import settings
from django.contrib import admin, messages
from django.contrib.auth.signals import user_login_failed
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from unfold.forms import AuthenticationForm
from unfold.widgets import UnfoldAdminTextInputWidget

from ledger_project.operators import two_step

CODE_NEEDED = "This operator has two-step login: type the code too."
CODE_WRONG = "The code is not right, or came too soon after a wrong one."


class LoginForm(AuthenticationForm):
    """Django's form, and a code. UNFOLD["LOGIN"]."""

    code = forms.CharField(
        label="Code",
        required=False,
        max_length=32,
        widget=UnfoldAdminTextInputWidget(attrs={"autocomplete": "one-time-code", "spellcheck": "false"}),
        help_text="Only with two-step login: six digits from your app, or a recovery code.",
    )

    def clean_username(self) -> str:
        """Refuse a name that is too long for any operator, and for the column in which failures are counted."""
        name: str = self.cleaned_data["username"]
        if len(name) > self.username_field.max_length:
            raise forms.ValidationError(f"A name has at most {self.username_field.max_length} characters.", code="too-long")
        return name

    def clean(self) -> dict[str, Any]:
        """Accept the right password with the code, if the operator needs one; a wrong code counts like a wrong password."""
        values: dict[str, Any] = super().clean()
        user: Any = self.get_user()
        if user is None or two_step.device_of(user) is None:
            return values
        if not values.get("code"):
            raise forms.ValidationError(CODE_NEEDED, code="code-needed")
        user.otp_device = two_step.verify(user, values["code"])
        if user.otp_device is None:
            given = {"username": user.get_username()}
            user_login_failed.send(sender=__name__, credentials=given, request=self.request, reason="wrong code")
            raise forms.ValidationError(CODE_WRONG, code="code-wrong")
        return values


def locked_out(request: HttpRequest, response: HttpResponse | None, credentials: Any) -> HttpResponse:
    """Return the login page, which says that this name is locked for this address. AXES_LOCKOUT_CALLABLE."""
    minutes = int(settings.AXES_COOLOFF_TIME.total_seconds() // 60)
    messages.error(
        request,
        f"After {settings.AXES_FAILURE_LIMIT} wrong passwords or codes, the server locks this name for this address for "
        f'{minutes} minutes. Another operator can remove the lock under "Failed logins".',
    )
    context = {
        **admin.site.each_context(request),
        "title": "Log in",
        "form": LoginForm(request),
        "app_path": request.get_full_path(),
    }
    return render(request, "admin/login.html", context, status=429)
