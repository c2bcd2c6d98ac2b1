"""Generates pages for `make docs`: modules, the commands' help, the schemas, the app's README, code highlighting.

MkDocs runs this file as a hook, griffe as an extension. The pages are not committed.
"""

from __future__ import annotations

import json
import re
import textwrap
from pathlib import Path
from typing import Any

import griffe
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from pygments.formatters import HtmlFormatter

from pocketbert.commands import COMMANDS
from pocketbert.commands.command_line import Command
from pocketbert.commands.help_text import option_tables
from pocketbert_bench import results
from pocketbert_export.bundles.schema import SCHEMA

_SOURCE_ROOTS = ("runtime", "modeling", "export", "benchmarks")
_SAMPLES = "docs/reference/sample-output.json"
_SECTION = re.compile(r"(?<!\n)\n(?=(Args|Attributes|Raises|Returns|Yields):\n)")


class SectionBreaks(griffe.Extension):
    """Adds blank lines before docstring sections: griffe needs them, our style omits them."""

    def on_object(self, *, obj: griffe.Object, **_: object) -> None:
        """Handles a module, class, function or attribute."""
        if obj.docstring:
            obj.docstring.value = _SECTION.sub("\n\n", obj.docstring.value)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the generated pages; a MkDocs event."""
    root = Path(config.config_file_path).parent
    pages = {
        "reference/commands.md": _commands(json.loads((root / _SAMPLES).read_text(encoding="utf-8"))),
        "reference/results.md": results.page(),
        "reference/bundle.md": _schema("bundle.json", SCHEMA),
    }
    pages["how-to/android.md"] = _android((root / "android_app" / "README.md").read_text(encoding="utf-8"))
    pages["css/highlight.css"] = HtmlFormatter(style="friendly").get_style_defs(".highlight")
    modules = _modules(root)
    pages["api/index.md"] = _index(modules)
    for module in modules:
        pages[f"api/{module}.md"] = f"# {module}\n\n::: {module}\n"
    for path, content in pages.items():
        files.append(File.generated(config, path, content=content))
    return files


def on_page_markdown(markdown: str, **_: object) -> str:
    """Removes the `norun` option of code blocks, which the highlighter refuses; a MkDocs event."""
    return re.sub(r'^( *```python) norun="[^"]*"$', r"\1", markdown, flags=re.MULTILINE)


def _android(readme: str) -> str:
    """Returns the README of `android_app` as a page in how-to/; links out of the guide lose their target."""
    inside = re.sub(r"\]\(\.\./docs/", "](../", readme).replace("](../how-to/", "](")
    outside = r"\[([^\]]*)\]\((?!https?://|#|[\w-]+\.md|\.\./(?:reference|tutorials|methods|results)/)[^)]*\)"
    return re.sub(outside, r"\1", inside)


def _modules(root: Path) -> list[str]:
    names = []
    for source_root in _SOURCE_ROOTS:
        for path in sorted((root / source_root).rglob("*.py")):
            parts = path.relative_to(root / source_root).with_suffix("").parts
            if parts[0] != "studies" and "commands" not in parts and not any(part.startswith("_") for part in parts):
                names.append(".".join(parts))
    return names


def _index(modules: list[str]) -> str:
    lines = ["# API", "", "Generated from the docstrings.", ""]
    package = ""
    for module in modules:
        if module.partition(".")[0] != package:
            package = module.partition(".")[0]
            lines += ["", f"## {package}", ""]
        lines.append(f"- [{module}]({module}.md)")
    return "\n".join(lines) + "\n"


def _commands(samples: dict[str, dict[str, str]]) -> str:
    """Returns a section per command: purpose, example, a run's output, options by group, and those of each variant."""
    lines = ["# Commands", ""]
    for name, (_, summary) in COMMANDS.items():
        command = Command(name)
        about, _, example = (command.module.__doc__ or "").strip().partition("\nExample:\n")
        lines += [f"## {name}", "", f"{summary[0].upper()}{summary[1:]}.", "", about.strip(), ""]
        lines += ["```console", textwrap.dedent(example.rstrip()), "```", ""]
        if name in samples:
            run = samples[name]
            lines += ["A run on film reviews, with its first and last lines:", "", "```console", f"$ {run['command']}"]
            lines += ["```", "", "```text", run["output"], "```", ""]
        lines += option_tables(command.fields)
        for arguments in command.module.variants() if hasattr(command.module, "variants") else ():
            fields = [field for field in Command(name, arguments).fields if field not in command.fields]
            lines += [f"### {name} {' '.join(arguments)}", "", *option_tables(fields)]
    return "\n".join(lines)


def _schema(title: str, schema: dict[str, Any]) -> str:
    return f"# {title}\n\nThe JSON Schema.\n\n```json\n{json.dumps(schema, indent=2)}\n```\n"
