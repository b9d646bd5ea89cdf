"""Tags of the operators' pages."""

from typing import Any

from django import template

from ledger_project.operators import appearance

register = template.Library()


@register.simple_tag(takes_context=True)
def section_tabs(context: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the tabs of the section of the sidebar to which the page belongs."""
    request = context.get("request")
    return appearance.section_tabs(request) if request is not None and request.user.is_authenticated else []
