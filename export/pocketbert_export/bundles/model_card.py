"""The model card of a bundle: `README.md` in the format of Hugging Face's hub.

`bundle.json` holds the same facts: origin, licences, scores, and latencies if you give them. The card also shows the
gate's figures from `verification.json`. The card itself has no checksum, so you can edit it; `verify` checks its
scores (`record_checks`).
"""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from pocketbert.errors import printable
from pocketbert.report.outcome import no_outcome

if TYPE_CHECKING:
    from pocketbert.data.assets import Asset

CARD_FILE = "README.md"
_RUN_FILE = "run.json"
_UNKNOWN = "unknown"
# Markup inside a line, a heading or list at its begin. An underscore inside a word is none.
_MARKUP = re.compile(r"[\\`*\[\]~]|(?<!\w)_|_(?!\w)|^[#+=-]|(?<=^\d)[.)]|(?<=^\d\d)[.)]")
_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;", "|": "&#124;"}


@dataclass(frozen=True, kw_only=True)
class CardOptions:
    """Facts for the model card that PocketBERT cannot know.

    Attributes:
      license: licence of this model, such as apache-2.0.
      base_model: model that training started from, such as google-bert/bert-base-uncased (default: known for weights
        from `pocketbert fetch`).
      base_model_license: licence of --base-model.
      dataset: data that the model was trained on, such as stanfordnlp/sst2.
      dataset_license: licence of --dataset.
      limits: known limits, a sentence each.
    """

    GROUP: ClassVar = "Model card"
    COMMON: ClassVar = ("license",)

    license: str | None = None
    base_model: str | None = None
    base_model_license: str | None = None
    dataset: str | None = None
    dataset_license: str | None = None
    limits: tuple[str, ...] = ()


class Latency(NamedTuple):
    """A measured latency: tokens, threads, median in milliseconds, runtime and machine."""

    length: int
    threads: int
    median_ms: float
    runtime: str
    machine: str


def card_facts(options: CardOptions, model_directory: str | os.PathLike[str] | None) -> dict[str, Any]:
    """Collects the facts for `bundle.json`.

    Args:
      options: facts from the caller.
      model_directory: the exported model; None for a model in memory. For the model of a run, its `run.json` tells
        which weights it started from.
    Returns:
      The fields of `CardOptions`, and `run_sha256`, the SHA-256 of `run.json`; None if unknown.
    """
    from pocketbert.files import sha256
    from pocketbert.json_reading import read_json, read_members

    run_file = None if model_directory is None else Path(model_directory).resolve().parent / _RUN_FILE
    if run_file is None or not run_file.is_file():
        run_sha256, started_from = None, None
    else:
        run = read_members(read_json(run_file), {"model_sha256": str | None}, str(run_file))
        run_sha256, started_from = sha256(run_file), _asset_with_digest(run["model_sha256"])
    known = started_from if options.base_model is None else None
    return {
        "license": options.license,
        "base_model": known.origin if known else options.base_model,
        "base_model_license": options.base_model_license or (known.license if known else None),
        "dataset": options.dataset,
        "dataset_license": options.dataset_license,
        "limits": list(options.limits),
        "run_sha256": run_sha256,
    }


def _asset_with_digest(digest: str | None) -> Asset | None:
    """The fetched package whose model directory has this digest (`state.digest_directory`), or None."""
    from pocketbert.checkpoints.module_layout import model_files
    from pocketbert.checkpoints.sentence_transformers import write_modules
    from pocketbert.data.assets import ASSETS
    from pocketbert.files import digest_files, sha256

    for asset in ASSETS.values():
        digests = dict(asset.files)
        if digest_files(digests) == digest:
            return asset
        if asset.task is not None:
            with tempfile.TemporaryDirectory() as folder:
                write_modules(Path(folder), asset.task, asset.hidden_size, {})
                digests |= {name: sha256(path) for name, path in model_files(folder).items()}
            if digest_files(digests) == digest:
                return asset
    return None


def write_card(bundle_directory: str | os.PathLike[str], name: str, latencies: Sequence[Latency] = ()) -> Path:
    """Writes the card of a bundle and returns its path; adds the latencies to `bundle.json`, too.

    Args:
      bundle_directory: the bundle; `bundle.json` and `verification.json` are read.
      name: name of the model.
      latencies: measured latencies, if any.
    """
    from pocketbert import files
    from pocketbert_export.bundles.bundle import read_description, read_verification

    folder = Path(bundle_directory)
    description, verification = read_description(folder), read_verification(folder)
    if latencies:
        facts = description.get("model_card") or card_facts(CardOptions(), None)
        description["model_card"] = {**facts, "latencies": [latency._asdict() for latency in latencies]}
        files.write_json(folder / "bundle.json", description)
    path = folder / CARD_FILE
    files.write_text(path, render(name, description, verification, latencies))
    return path


def render(
    name: str, description: Mapping[str, Any], verification: Mapping[str, Any], latencies: Sequence[Latency] = ()
) -> str:
    """Renders the card.

    Args:
      name: name of the model.
      description: content of `bundle.json`.
      verification: content of `verification.json`.
      latencies: measured latencies.
    """
    facts, outcome = description.get("model_card") or card_facts(CardOptions(), None), description.get("outcome")
    version = description["tools"].get("pocketbert", _UNKNOWN)
    parts = [
        _front_matter(name, description, facts, verification),
        f"# {escape(name)}\n\n{_purpose(description)} Exported by PocketBERT {escape(version)}.",
        "## Score\n\n" + (_outcome(outcome, verification) if outcome else no_outcome("`")),
        _facts_table(description, facts),
        "## Latency\n\n"
        + (_latency_table(latencies) or "Not measured. Run `pocketbert bench`, then `pocketbert card`."),
        "## Verification\n\n" + _verification(verification),
        "## Limits\n\n" + "".join(f"- {escape(limit)}\n" for limit in _limits(description, facts, verification)),
    ]
    return "\n\n".join(part.rstrip() for part in parts) + "\n"


def escape(text: str) -> str:
    """A text as one line of Markdown that shows it as it is, without markup and HTML."""
    line = _MARKUP.sub(r"\\\g<0>", printable(" ".join(text.split())))
    for character, entity in _ENTITIES.items():
        line = line.replace(character, entity)
    return line


def _pipeline_tag(description: Mapping[str, Any]) -> str:
    from pocketbert.tasks.registry import TASKS

    task = description["task"]
    return "feature-extraction" if task is None else TASKS[task["kind"]].pipeline_tag


def _front_matter(
    name: str,
    description: Mapping[str, Any],
    facts: Mapping[str, Any],
    verification: Mapping[str, Any],
) -> str:
    """YAML between lines of dashes. JSON values are valid YAML."""
    tag, task, outcome = _pipeline_tag(description), description["task"], description.get("outcome")
    fields: dict[str, Any] = {
        "license": facts["license"] or _UNKNOWN,
        "library_name": "litert",
        "pipeline_tag": tag,
        "tags": ["pocketbert", "tflite", description["recipe"]],
    }
    if facts["base_model"]:
        fields["base_model"] = facts["base_model"]
    if facts["dataset"]:
        fields["datasets"] = [facts["dataset"]]
    if outcome is not None:
        result = {
            "task": {"type": tag},
            "dataset": {
                "name": facts["dataset"] or task["name"] or _source(verification),
                "type": task["name"] or "own",
            },
            "metrics": [{"type": outcome["metric"], "value": round(outcome["score"], 4)}],
        }
        fields["model-index"] = [{"name": name, "results": [result]}]
    lines = [f"{key}: {printable(json.dumps(value, ensure_ascii=False))}" for key, value in fields.items()]
    return "\n".join(["---", *lines, "---"])


def _purpose(description: Mapping[str, Any]) -> str:
    task = description["task"]
    if task is None:
        return "A text encoder as a TFLite file."
    labels = f" with the labels {escape(', '.join(task['labels']))}" if task["labels"] else ""
    return f"A model for {task['kind'].replace('_', '-')}{labels} as a TFLite file."


def _facts_table(description: Mapping[str, Any], facts: Mapping[str, Any]) -> str:
    from pocketbert_export.recipes import get_recipe

    recipe = description["recipe"]
    lengths = ", ".join(str(signature["length"]) for signature in description["signatures"])
    rows = {
        "Recipe": f"`{recipe}`: {get_recipe(recipe).summary}",
        "Size": f"{description['files']['model.tflite']['size_bytes'] / 1e6:.1f} MB",
        "Parameters": f"{description['num_parameters']:,}",
        "Lengths": f"{lengths} tokens",
        "Licence": escape(facts["license"] or _UNKNOWN),
        "Base model": _with_licence(facts["base_model"], facts["base_model_license"]),
        "Data": _with_licence(facts["dataset"] or (description["task"] or {}).get("name"), facts["dataset_license"]),
        "Training run": _digest(facts["run_sha256"], "run.json"),
        "Exported weights": ", ".join(_digest(digest, name) for name, digest in description["source"].items()),
    }
    return _table(("Fact", "Value"), [(name, value) for name, value in rows.items()])


def _with_licence(what: str | None, licence: str | None) -> str:
    return escape(f"{what or _UNKNOWN} (licence: {licence or _UNKNOWN})")


def _digest(digest: str | None, what: str) -> str:
    return _UNKNOWN if digest is None else f"SHA-256 of {escape(what)}: `{digest}`"


def _source(verification: Mapping[str, Any]) -> str:
    # A path of the machine that exported tells readers nothing.
    return Path(str(verification["examples"]["source"])).name


def _outcome(outcome: Mapping[str, Any], verification: Mapping[str, Any]) -> str:
    """The outcome in one line, and a table of all scores on the same examples."""
    score = outcome["score"]
    interval = "" if outcome["interval"] is None else "{:.4f} to {:.4f}".format(*outcome["interval"])
    rows = [("This file", f"{score:.4f}", interval, "")]
    others = [("Float model", outcome["float_model"]), ("Teacher", outcome["teacher"])]
    others += [(each["name"], each["score"]) for each in outcome["baselines"]]
    rows += [
        (escape(name[:1].upper() + name[1:]), f"{value:.4f}", "", signed_points(score - value))
        for name, value in others
        if value is not None
    ]
    table = _table((escape(outcome["metric"]), "Score", "95 % interval", "This file against it"), rows)
    source = f"{outcome['examples']:,} examples from {escape(_source(verification))}."
    warnings = "".join(f"\n- Warning: {escape(warning)}" for warning in outcome["warnings"])
    headline = outcome["headline"][:1].upper() + outcome["headline"][1:]
    return f"**{escape(headline)}**\n{warnings}\n\n{table}\n\n{source}"


def signed_points(difference: float) -> str:
    """A difference of two scores in points: +1.25 points, −0.40 points."""
    return f"{100 * difference:+.2f} points".replace("-", "\N{MINUS SIGN}")


def _latency_table(latencies: Sequence[Latency]) -> str:
    rows = [
        (str(each.length), str(each.threads), f"{each.median_ms:.2f} ms", escape(each.runtime), escape(each.machine))
        for each in latencies
    ]
    return _table(("Tokens", "Threads", "Median", "Runtime", "Machine"), rows) if rows else ""


def _verification(verification: Mapping[str, Any]) -> str:
    runtimes = escape(", ".join(f"{name} {version}" for name, version in verification["runtimes"].items()))
    checks = verification["checks"]
    passed = sum(check["passed"] for check in checks)
    text = (
        f"The file ran on {runtimes} with {verification['examples']['count']:,} examples and passed {passed} of "
        f"{len(checks)} checks. `verification.json` has all of them.\n\n"
    )
    shown = ("logits", "labels", "metric", "padding", "lengths")
    rows = [
        (escape(check["name"]), f"{check['measured']:.4g}", f"{check['bound']:.4g}", escape(check["runtime"] or ""))
        for check in checks
        if check["name"].startswith(shown) and check["measured"] is not None and check["bound"] is not None
    ]
    return text + _table(("Check", "Measured", "Bound", "Runtime"), rows)


def _limits(description: Mapping[str, Any], facts: Mapping[str, Any], verification: Mapping[str, Any]) -> list[str]:
    longest = max(signature["length"] for signature in description["signatures"])
    limits = [*facts["limits"], f"Inputs have at most {longest} tokens; longer texts are truncated or windowed."]
    if description["tokenizer"].get("lowercase"):
        limits.append("The tokenizer ignores case.")
    if not verification["examples"]["labelled"]:
        limits.append("No labelled examples were checked: the score of this file is unknown.")
    if len(verification["runtimes"]) == 1:
        limits.append(f"The file was verified on {next(iter(verification['runtimes']))} only.")
    return limits


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
