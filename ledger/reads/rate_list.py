"""Rates and their versions."""

from django.db.models import Q

from ledger.models import Rate

__all__ = ["rate_versions", "rates"]


def rates(
    *,
    credit_type: str | None = None,
    after: tuple[str, str] | None = None,
    before: tuple[str, str] | None = None,
    limit: int = 50,
) -> list[Rate]:
    """Return a page of rates, each in its newest version, by credit type and code.

    Args:
        after: only rates behind that (credit_type, code); `before`: only the next ones ahead of it.
    """
    found = Rate.objects.all() if credit_type is None else Rate.objects.filter(credit_type=credit_type)
    direction = "-" if before is not None else ""
    if after is not None or before is not None:
        type_, code = before or after or ("", "")
        side = "lt" if before is not None else "gt"
        found = found.filter(Q(**{f"credit_type__{side}": type_}) | Q(credit_type=type_, **{f"code__{side}": code}))
    newest = found.order_by(f"{direction}credit_type", f"{direction}code", "-version").distinct("credit_type", "code")[:limit]
    return list(newest)[::-1] if before is not None else list(newest)


def rate_versions(
    code: str,
    credit_type: str = "credits",
    *,
    before: tuple[int] | None = None,
    after: tuple[int] | None = None,
    limit: int = 50,
) -> list[Rate]:
    """Return a page of a rate's versions, the newest first.

    Args:
        before: only versions older than that one; `after`: only the next newer ones.
    """
    found = Rate.objects.filter(credit_type=credit_type, code=code)
    if before is not None:
        found = found.filter(version__lt=before[0])
    if after is not None:
        return list(found.filter(version__gt=after[0]).order_by("version")[:limit])[::-1]
    return list(found.order_by("-version")[:limit])
