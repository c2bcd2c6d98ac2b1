"""The bundle's model card: `README.md` in the format for Hugging Face's hub.

`bundle.json` holds the same facts: origin, licences, scores, and latencies if you give them. The card also shows the
gate's figures from `verification.json`. The card itself has no checksum, so you can edit it; `verify` checks its scores
(`record_checks`).
"""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from pocketbert.errors import printable
from pocketbert.hub.download import origin
from pocketbert.hub.names import CARD_FILE as CARD_FILE
from pocketbert.hub.names import HUB_SUFFIX, PREFIX, card_metadata, joined
from pocketbert.progress import log_info
from pocketbert.report.outcome import no_outcome

if TYPE_CHECKING:
    from pocketbert.data.assets import Asset

_RUN_FILE = "run.json"
# Markup inside a line, a heading or list at its beginning. An underscore inside a word is none.
_MARKUP = re.compile(r"[\\`*\[\]~]|(?<!\w)_|_(?!\w)|^[#+=-]|(?<=^\d)[.)]|(?<=^\d\d)[.)]")
_COMMITS = re.compile("@[0-9a-f]{40}(?=,|$)")
_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;", "|": "&#124;"}


@dataclass(frozen=True, kw_only=True)
class CardOptions:
    """Facts for the model card that PocketBERT cannot know.

    Attributes:
      license: licence for this model, such as apache-2.0 (default: from the model directory's README.md).
      base_model: model to start training from, such as google-bert/bert-base-uncased (default: known for weights from
        `pocketbert fetch` and the hub, otherwise from the model directory's README.md).
      base_model_license: licence of --base-model.
      dataset: training data, such as stanfordnlp/sst2.
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
      model_directory: the exported model; None for a model in memory. A run's `run.json` tells the model's initial
        weights.
    Returns:
      The fields of `CardOptions`, and `run_sha256`, the SHA-256 of `run.json`; None if unknown.
    """
    from pocketbert.files import sha256

    if model_directory is None:
        return {**asdict(options), "limits": list(options.limits), "run_sha256": None}
    run_file = Path(model_directory).resolve().parent / _RUN_FILE
    if not run_file.is_file():
        source = origin(model_directory)
        if source is not None:
            options = _with_origins(replace(options, license=options.license or source["license"]), [source])
        options = with_model_card(options, model_directory)
        return {**asdict(options), "limits": list(options.limits), "run_sha256": None}
    options = with_base_model(options, model_directory)
    limits = [*options.limits, *_cross_validated(run_file)]
    return {**asdict(options), "limits": limits, "run_sha256": sha256(run_file)}


def with_base_model(options: CardOptions, model_directory: str | os.PathLike[str]) -> CardOptions:
    """Adds the weights' base model to the caller's facts, if it comes from `pocketbert fetch` or the hub.

    Args:
      options: facts from the caller, which come first.
      model_directory: the downloaded weights, or a run's model trained from them.
    """
    from pocketbert.training.state import digest_directory

    run_file = Path(model_directory).resolve().parent / _RUN_FILE
    if run_file.is_file():
        run = _read_run(run_file)
        origins = [value for field, value in run.items() if field.endswith(HUB_SUFFIX)]
        return _with_base(_with_origins(options, origins), run["model_sha256"])
    source = origin(model_directory)
    if source is not None:
        return _with_origins(options, [source])
    return _with_base(options, digest_directory(model_directory))


def with_model_card(options: CardOptions, model_directory: str | os.PathLike[str]) -> CardOptions:
    """Adds licence and base model from a Hugging Face model card, unless the base model is known."""
    if options.base_model is not None:
        return options
    path = Path(model_directory) / CARD_FILE
    try:
        facts = card_metadata(path)
    except ValueError:
        log_info(f"{path}: the lines between --- are not YAML; licence and base model are not passed on")
        return options
    return replace(
        options, license=options.license or joined(facts.get("license")), base_model=joined(facts.get("base_model"))
    )


def _with_origins(options: CardOptions, origins: Sequence[Mapping[str, Any]]) -> CardOptions:
    """Adds models on the hub with their commits as base models; all of them, such as a student and its teacher."""
    names = dict.fromkeys(source["name"].removeprefix(PREFIX) for source in origins)
    licences = dict.fromkeys(source["license"] or "unknown" for source in origins)
    if options.base_model is not None or not names:
        return options
    base_model_license = options.base_model_license or ", ".join(licences)
    return replace(options, base_model=", ".join(names), base_model_license=base_model_license)


def _read_run(run_file: Path) -> dict[str, Any]:
    """Reads the digest of a run's initial weights, and the origins of its models on the hub."""
    from pocketbert_runtime.json_reading import read_json, read_members

    content = read_json(run_file)
    run = read_members(content, {"model_sha256": str | None}, str(run_file))
    for field in content:
        if field.endswith(HUB_SUFFIX):
            where = f"{run_file}: {field}"
            run[field] = read_members(content[field], {"name": str, "license": str | None}, where)
    return run


def _cross_validated(run_file: Path) -> list[str]:
    """A sentence about the score for a model trained on all examples; empty for other runs."""
    from pocketbert_runtime.json_reading import read_json, read_members

    kinds = {
        "kfold": int | None,
        "outcome": dict[str, Any] | None,
        "decision_thresholds": bool | None,
        "reject": float | None,
    }
    run = read_members(read_json(run_file), kinds, str(run_file))
    if run["kfold"] is None or not run["outcome"]:
        return []
    headline = read_members(run["outcome"], {"headline": str}, f"{run_file}: outcome")["headline"]
    sentence = (
        "The float model was trained on all its labelled examples, so these cannot score it. Cross-validation on them "
        f"gave {headline}."
    )
    if run["decision_thresholds"] or run["reject"] is not None:
        sentence += " Its predictions for them chose the thresholds of the answers."
    return [sentence]


def _with_base(options: CardOptions, digest: str | None) -> CardOptions:
    asset = None if options.base_model is not None else _asset_with_digest(digest)
    if asset is None:
        return options
    return replace(options, base_model=asset.origin, base_model_license=options.base_model_license or asset.license)


def _asset_with_digest(digest: str | None) -> Asset | None:
    """The fetched package with a model directory with this digest (`state.digest_directory`), or None."""
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
    """Writes a bundle's card from its records, and returns its path; adds the latencies to `bundle.json`, too."""
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
    """Renders the card for the model `name` from the contents of `bundle.json` and `verification.json`."""
    from pocketbert import report
    from pocketbert.tasks.registry import TASKS
    from pocketbert_export.recipes import get_recipe

    task = description.get("pairs", description)["task"]
    return report.render(
        "card.md",
        package="pocketbert_export.bundles",
        filters={
            "md": escape,
            # The hub's field has no commits.
            "without_commits": lambda text: _COMMITS.sub("", text),
            # JSON values are valid YAML.
            "yaml": lambda value: printable(json.dumps(value, ensure_ascii=False)),
            "points": lambda difference: f"{100 * difference:+.2f} points".replace("-", "\N{MINUS SIGN}"),
            "capital": lambda text: text[:1].upper() + text[1:],
        },
        name=name,
        description=description,
        verification=verification,
        latencies=latencies,
        facts=description.get("model_card") or card_facts(CardOptions(), None),
        outcome=description.get("outcome"),
        no_outcome=no_outcome("`"),
        task=task,
        tag="feature-extraction" if task is None else TASKS[task["kind"]].pipeline_tag,
        summary=get_recipe(description["recipe"]).summary,
        # A path on the exporting machine tells readers nothing.
        source=Path(str(verification["examples"]["source"])).name,
    ).lstrip()


def escape(text: str) -> str:
    """Formats a text as one line of Markdown, shown as it is, without markup and HTML."""
    line = _MARKUP.sub(r"\\\g<0>", printable(" ".join(text.split())))
    for character, entity in _ENTITIES.items():
        line = line.replace(character, entity)
    return line
