"""Renders HTML reports. Each page is self-contained, readable on a phone, and extends `page.html`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any


def render(
    template: str,
    *,
    package: str = "pocketbert.report",
    filters: Mapping[str, Callable[..., str]] | None = None,
    **values: Any,
) -> str:
    """Renders a page that needs no other file.

    Args:
      template: template name, such as `scores.html`.
      package: package with the page's own templates in its folder `templates`.
      filters: name → function for the template.
      **values: template variables; a missing one is an error.
    """
    import jinja2

    loaders = [jinja2.PackageLoader(name) for name in dict.fromkeys([package, "pocketbert.report"])]
    environment = jinja2.Environment(
        loader=jinja2.ChoiceLoader(loaders),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= filters or {}
    return environment.get_template(template).render(**values)
