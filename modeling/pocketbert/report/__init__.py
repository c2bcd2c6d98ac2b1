"""Rendering of HTML reports. Each page is self-contained, readable on a phone, and extends `page.html`."""

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
      template: name of the template, such as `scores.html`.
      package: package whose folder `templates` has the page's own templates.
      filters: name → function for the template.
      **values: variables of the template; a missing one is an error.
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
