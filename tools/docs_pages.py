"""Pages that `make docs` generates: one for each module, the commands' help, the schemas, code highlighting.

MkDocs runs this file as a hook, griffe as an extension. Nothing that it makes is committed.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import griffe
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from pygments.formatters import HtmlFormatter

from pocketbert import cli
from pocketbert.distillation import methods
from pocketbert_bench import results
from pocketbert_export.bundle_schema import SCHEMA

_SOURCE_ROOTS = ("modeling", "export", "benchmarks")
_SECTION = re.compile(r"(?<!\n)\n(?=(Args|Attributes|Raises|Returns|Yields):\n)")


class SectionBreaks(griffe.Extension):
    """Gives griffe the blank lines before docstring sections that it needs and our style leaves out."""

    def on_object(self, *, obj: griffe.Object, **_: object) -> None:
        """Called for each module, class, function and attribute."""
        if obj.docstring:
            obj.docstring.value = _SECTION.sub("\n\n", obj.docstring.value)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """MkDocs' event: adds the generated pages."""
    root = Path(config.config_file_path).parent
    pages = {
        "reference/commands.md": _commands(),
        "reference/results.md": results.page(),
        "reference/bundle.md": _schema("bundle.json", SCHEMA),
    }
    pages["css/highlight.css"] = HtmlFormatter(style="friendly").get_style_defs(".highlight")
    modules = _modules(root)
    pages["api/index.md"] = _index(modules)
    for module in modules:
        pages[f"api/{module}.md"] = f"# {module}\n\n::: {module}\n"
    for path, content in pages.items():
        files.append(File.generated(config, path, content=content))
    return files


def on_page_markdown(markdown: str, **_: object) -> str:
    """MkDocs' event: removes the option by which the tests skip a code block; the highlighter refuses unknown ones."""
    return re.sub(r'^( *```python) norun="[^"]*"$', r"\1", markdown, flags=re.MULTILINE)


def _modules(root: Path) -> list[str]:
    names = []
    for source_root in _SOURCE_ROOTS:
        for path in sorted((root / source_root).rglob("*.py")):
            parts = path.relative_to(root / source_root).with_suffix("").parts
            if parts[0] != "studies" and "commands" not in parts and not any(part.startswith("_") for part in parts):
                names.append(".".join(parts))
    return names


def _index(modules: list[str]) -> str:
    lines = ["# API", "", "Made from the docstrings.", ""]
    package = ""
    for module in modules:
        if module.partition(".")[0] != package:
            package = module.partition(".")[0]
            lines += ["", f"## {package}", ""]
        lines.append(f"- [{module}]({module}.md)")
    return "\n".join(lines) + "\n"


def _commands() -> str:
    lines = ["# Commands", "", "What `pocketbert COMMAND --help` prints.", ""]
    for name, (_, summary) in cli.COMMANDS.items():
        module, values = cli.command_flags(name)
        lines += [f"## {name}", "", f"{summary[0].upper()}{summary[1:]}.", "", "```text"]
        lines += [cli.command_help(name, module, values), "```", ""]
        if hasattr(module, "define_chosen"):
            for method in methods.names():
                lines += [f"### {name} --method={method}", "", "```text", *_method_flags(name, method), "```", ""]
    return "\n".join(lines)


def _method_flags(name: str, method: str) -> list[str]:
    module, general = cli.command_flags(name)
    own = cli.command_flags(name, [f"--method={method}"])[1]
    for flag in list(own):
        if flag in general:
            delattr(own, flag)
    return cli.command_help(name, module, own).partition(f"Flags of pocketbert {name}:\n")[2].splitlines()


def _schema(title: str, schema: dict[str, Any]) -> str:
    return f"# {title}\n\nIts JSON Schema.\n\n```json\n{json.dumps(schema, indent=2)}\n```\n"
