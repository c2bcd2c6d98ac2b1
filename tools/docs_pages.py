"""Pages that `make docs` makes from the code: one for each module, the commands' help, the result schema.

MkDocs runs this file as a hook, griffe as an extension. Nothing that it makes is committed.
"""

from __future__ import annotations

import importlib
import json
import re
from pathlib import Path
from typing import Any

import griffe
from absl import flags
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from pocketbert import cli
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
    modules = _modules(root)
    pages["api/index.md"] = _index(modules)
    for module in modules:
        pages[f"api/{module}.md"] = f"# {module}\n\n::: {module}\n"
    for path, content in pages.items():
        files.append(File.generated(config, path, content=content))
    return files


def _modules(root: Path) -> list[str]:
    names = []
    for source_root in _SOURCE_ROOTS:
        for path in sorted((root / source_root).rglob("*.py")):
            parts = path.relative_to(root / source_root).with_suffix("").parts
            if "commands" not in parts and not any(part.startswith("_") for part in parts):
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
    for name, (module_name, summary) in cli.COMMANDS.items():
        module = importlib.import_module(module_name)
        values = flags.FlagValues()
        module.define(values)
        for flag_name in list(values):
            values.register_flag_by_module(name, values[flag_name])
        lines += [f"## {name}", "", f"{summary[0].upper()}{summary[1:]}.", "", "```text"]
        lines += [cli.command_help(name, module, values), "```", ""]
    return "\n".join(lines)


def _schema(title: str, schema: dict[str, Any]) -> str:
    return f"# {title}\n\nIts JSON Schema.\n\n```json\n{json.dumps(schema, indent=2)}\n```\n"
