"""Two-step login: a code from an app (TOTP) beside the password, recovery codes, and who must have it. docs/how-to/admin.md.

django-otp keeps the devices, and makes each device wait longer after each wrong code. axes counts a wrong code like a wrong
password.
"""

import re
from typing import Final

import django_otp
from django.conf import settings
from django.contrib.auth.models import Group, User
from django.db import transaction
from django_otp.plugins.otp_static.models import StaticDevice, StaticToken
from django_otp.plugins.otp_totp.models import TOTPDevice

RECOVERY_CODES: Final = 10
EVERYBODY: Final = "all"
CODE_OF_APP: Final = re.compile(r"[0-9]{6}", re.ASCII)


class UnknownGroups(Exception):
    """LEDGER_TWO_STEP names a group that does not exist; the message names it and the groups that do."""


def device_of(user: User) -> TOTPDevice | None:
    """The app that the operator confirmed; None without two-step login."""
    return TOTPDevice.objects.filter(user=user, confirmed=True).first()


def is_required(user: User) -> bool:
    """Whether the operator must have it: LEDGER_TWO_STEP names groups, or `all`. A superuser counts as a member of each group."""
    required = _required_groups()
    if not required:
        return False
    return EVERYBODY in required or user.is_superuser or user.groups.filter(name__in=required).exists()


def ensure_groups_exist() -> None:
    """Return if each name in LEDGER_TWO_STEP is `all` or a group, or raise UnknownGroups.

    Operators of a group that is misspelt there would log in without a code.
    """
    required = _required_groups() - {EVERYBODY}
    known = set(Group.objects.filter(name__in=required).values_list("name", flat=True)) if required else set()
    if required - known:
        groups = ", ".join(Group.objects.order_by("name").values_list("name", flat=True))
        raise UnknownGroups(f"LEDGER_TWO_STEP names {', '.join(sorted(required - known))}; the groups are {groups}")


def _required_groups() -> set[str]:
    return {name.strip() for name in settings.LEDGER_TWO_STEP} - {""}


def begin(user: User) -> TOTPDevice:
    """Make an unconfirmed device, in place of an earlier unconfirmed one."""
    with transaction.atomic():
        TOTPDevice.objects.filter(user=user, confirmed=False).delete()
        return TOTPDevice.objects.create(user=user, name="app", confirmed=False)


def beginning(user: User, device_id: int | None) -> TOTPDevice | None:
    """The unconfirmed device of this id; None if it was confirmed or replaced, or is another operator's."""
    return TOTPDevice.objects.filter(user=user, confirmed=False, pk=device_id).first()


def confirm(user: User, device_id: int | None, code: str) -> tuple[TOTPDevice, list[str]] | None:
    """Turn two-step login on if the code is right; return the device and the recovery codes, which nobody can read later."""
    with transaction.atomic():
        device = TOTPDevice.objects.select_for_update().filter(user=user, confirmed=False, pk=device_id).first()
        if device is None or not device.verify_token(plain(code)):
            return None
        device.confirmed = True
        device.save()
        return device, make_recovery_codes(user)


def make_recovery_codes(user: User) -> list[str]:
    """Make new codes, each valid for one login; earlier codes become invalid.

    The device stays, because sessions that a recovery code has verified name it.
    """
    with transaction.atomic():
        StaticDevice.objects.get_or_create(user=user, name="recovery codes")
        device = StaticDevice.objects.select_for_update().get(user=user)
        StaticToken.objects.filter(device=device).delete()
        codes = [StaticToken.random_token() for _ in range(RECOVERY_CODES)]
        StaticToken.objects.bulk_create(StaticToken(device=device, token=code) for code in codes)
        return codes


def recovery_codes_left(user: User) -> int:
    return StaticToken.objects.filter(device__user=user).count()


def verify(user: User, code: str) -> TOTPDevice | StaticDevice | None:
    """Accept the code of the app, or a recovery code, which is then used up; None if wrong or too soon after a wrong one."""
    given = plain(code)
    model = TOTPDevice if CODE_OF_APP.fullmatch(given) else StaticDevice
    device = model.objects.filter(user=user, confirmed=True).first()
    if device is None or not given:
        return None
    found: TOTPDevice | StaticDevice | None = django_otp.verify_token(user, device.persistent_id, given)
    return found


def turn_off(user: User) -> bool:
    """Remove the app and the recovery codes; False if there were none."""
    with transaction.atomic():
        removed, _ = TOTPDevice.objects.filter(user=user).delete()
        StaticDevice.objects.filter(user=user).delete()
    return removed > 0


def plain(code: str) -> str:
    """Return the code in the form for the comparison: people group digits, and type capitals."""
    return "".join(code.split()).lower()[:16]
