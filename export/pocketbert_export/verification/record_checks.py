"""Compare a bundle's records with a new run of the gate: source, `verification.json` and model card.

Nothing reads these records to compute an answer, so a wrong one changes none. But people choose by them, and digests do
not protect them from anyone who makes the digests anew.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pocketbert.data.assets import model_directory
from pocketbert.data.examples import LabelledData
from pocketbert.errors import UserError
from pocketbert.model import Model
from pocketbert.notation import argument
from pocketbert.recipes import RECIPES
from pocketbert_export.bundles import model_card
from pocketbert_export.bundles.bundle import BUNDLE_FILE, VERIFICATION_FILE, Bundle, read_description, read_verification
from pocketbert_export.bundles.description import saved_weight_digests, weight_digests
from pocketbert_export.checks.outputs import OWN_OUTPUTS, Check, count_check

# Checks of these records, and others that export cannot record.
_LATER = ("source", "verification", "card", "outcome", "runs", "mediapipe files", "mediapipe")
# Checks independent of the examples.
_WITHOUT_EXAMPLES = tuple(
    "operators signatures outputs shapes constants vocabulary task size weights goldens answers".split()
)
# Predictions that may change on another processor, where near ties fall otherwise; see `outcomes`.
_NEAR_TIES = 2
# The same file on the same processor: only the float model's sums may have another order.
_SAME, _SAME_SHARE = RECIPES["float32"].bounds.largest_difference, 1e-3
_MOST_SHOWN = 5
# Only the author knows these facts.
_AUTHORS_ROWS = ("| Licence |", "| Base model |", "| Data |")
# A metric and its value in `model-index`, in JSON or another form of YAML.
_INDEX_VALUE = re.compile(r"""(?:type["']?: *["']?([\w-]+)["']?\s*,?\s*)?["']?\bvalue["']?: *["']?([^\s"',}\]]+)""")


def examples_digest(examples: LabelledData, windows: Mapping[str, Any]) -> str:
    """Computes the SHA-256 over the gate's examples and how it reads them."""
    read = {name: value for name, value in windows.items() if value is not None}
    return hashlib.sha256(json.dumps([examples.identity, read], sort_keys=True).encode()).hexdigest()


def check_records(
    bundle: Bundle, remade: Mapping[str, Any], reference: Model, directory: str | os.PathLike[str] | None
) -> list[Check]:
    """Compares records with `remade`, this run's `Verification.to_json`; `directory` is the model's, or None."""
    remade = json.loads(json.dumps(remade))
    recorded: dict[str, Any] = {}
    try:
        recorded = read_verification(bundle.directory)
        problems = verification_problems(bundle, recorded, remade)
    except UserError as error:
        problems = [str(error)]
    same = recorded.get("examples_sha256") == remade["examples_sha256"]
    compared = "checks, values and counts are those of this run" if same else _other_examples(recorded)
    return [
        check_source(bundle, reference, directory),
        _check("verification", f"{VERIFICATION_FILE}: {compared}", problems),
        check_card(bundle, recorded),
    ]


def check_source(bundle: Bundle, reference: Model, directory: str | os.PathLike[str] | None) -> Check:
    """Checks that the bundle names the model's weight files.

    A bundle from a model in memory has the digests of its weights as `save_pretrained` writes them.

    Args:
      bundle: the bundle.
      reference: the float model.
      directory: its folder or name. None for a model in memory: its weights may come from files in another format, so
        other digests prove nothing.
    """
    digests = {} if directory is None else weight_digests(model_directory(directory))
    if bundle.source == digests or bundle.source == saved_weight_digests(reference):
        return _check("source", "bundle.json has the SHA-256 of the model's weights", [])
    if directory is None:
        reason = "not compared: a model in memory does not tell its files; pass model_directory"
        return _check("source", reason, [])
    problems = [
        f"{name} must be {_short(digests.get(name))}; it is {_short(bundle.source.get(name))}"
        for name in sorted({*digests, *bundle.source})
        if digests.get(name) != bundle.source.get(name)
    ]
    return _check("source", f"{BUNDLE_FILE} has the SHA-256 of the weights that it was exported from", problems)


def verification_problems(bundle: Bundle, recorded: Mapping[str, Any], remade: Mapping[str, Any]) -> list[str]:
    """Lists how `verification.json` differs from a new run; values on texts count if the examples are the same."""
    problems = [] if recorded["passed"] else ["passed must be true; it is false"]
    for name in ("recipe", "weights_need", "graph_optimizations", "operators"):
        problems += _difference(name, recorded[name], remade[name])
    problems += _difference("runtimes", sorted(recorded["runtimes"]), sorted(bundle.runtimes))
    same = recorded.get("examples_sha256") == remade["examples_sha256"]
    if same:
        for name in ("count", "labelled"):
            problems += _difference(f"examples.{name}", recorded["examples"][name], remade["examples"][name])
        if recorded["metric"] != remade["metric"]:
            problems.append(
                f"metric must be {remade['metric'] or 'none'}; it is {recorded['metric'] or 'none'}; if you exported "
                f"with {argument('metric')}, pass it too"
            )
    ran = {*recorded["runtimes"]} & {*remade["runtimes"]}
    old, new = (
        {(check["name"], check["runtime"]): check for check in run["checks"] if _counted(check, ran)}
        for run in (recorded, remade)
    )
    problems += [f"{check['name']} must have passed; it has not" for check in recorded["checks"] if not check["passed"]]
    if len(old) < sum(_counted(check, ran) for check in recorded["checks"]):
        problems.append("each check must stand once; one stands twice")
    # A run that fails may stop before some checks.
    if same and remade["passed"]:
        problems += [f"the check {_title(key)} must be there; it is missing" for key in new if key not in old]
        problems += [f"the check {_title(key)} must not be there: the gate has none" for key in old if key not in new]
    exact = all(check["measured"] == 0 for (name, _), check in new.items() if name == OWN_OUTPUTS)
    for key, check in new.items():
        if key in old and (same or key[0].partition(":")[0] in _WITHOUT_EXAMPLES):
            problems += _check_problems(_title(key), old[key], check, _tolerance(bundle, remade, check, exact))
    # XNNPACK's share depends on the runtime's version, which stands in its source.
    versions = [{" ".join(each) for each in run["runtimes"].items()} for run in (recorded, remade)]
    shares = [
        [each for each in run["delegates"] if each.get("source") not in versions[0] ^ versions[1]]
        for run in (recorded, remade)
    ]
    problems += _difference("delegates", *shares)
    if same:
        problems += _range_problems(recorded["activation_range"], remade["activation_range"])
    return problems


def check_card(bundle: Bundle, verification: Mapping[str, Any]) -> Check:
    """Checks that each score on the model card follows from `bundle.json` and `verification.json`.

    Scores are the values in `model-index`, and each line with a digit in the sections Score and Verification, except
    licence, base model and data. The rest is the author's, and so are omissions. `verification` is empty if the file
    cannot be read.
    """
    path = bundle.directory / model_card.CARD_FILE
    if not path.is_file():
        return _check("card", f"the bundle has no {model_card.CARD_FILE}", [])
    if not verification:
        return _check("card", f"not compared: {VERIFICATION_FILE} cannot be read", [])
    shown = path.read_text(encoding="utf-8", errors="replace")
    expected = model_card.render(bundle.directory.name, read_description(bundle.directory), verification)
    right = {*_scores(expected)}
    problems = [f"{line[:80]!r} does not follow from the records" for line in _scores(shown) if line not in right]
    return _check("card", f"the scores in {model_card.CARD_FILE} follow from the bundle's records", problems)


def _scores(card: str) -> Iterator[str]:
    """Lines and values on a card that are scores."""
    matter, _, body = card.removeprefix("---\n").partition("\n---\n") if card.startswith("---\n") else ("", "", card)
    for metric, value in _INDEX_VALUE.findall(matter.partition("model-index")[2]):
        yield f"model-index: {metric} {_as_number(value)}"
    section = ""
    for line in body.splitlines():
        if line.startswith("#"):
            section = line.strip("# ")
        elif (
            section in ("Score", "Verification")
            and (line.startswith("**") or re.search(r"\d", line))
            and not line.startswith(_AUTHORS_ROWS)
        ):
            yield " ".join(line.split())


def _as_number(text: str) -> str:
    try:
        return f"{float(text):g}"
    except ValueError:
        return text


def _check(name: str, reason: str, problems: Sequence[str]) -> Check:
    if problems:
        more = f"; and {len(problems) - _MOST_SHOWN} more" if len(problems) > _MOST_SHOWN else ""
        reason += f", but {'; '.join(problems[:_MOST_SHOWN])}{more}"
    return count_check(name, problems, reason)


def _other_examples(recorded: Mapping[str, Any]) -> str:
    if not recorded:
        return "the record of the gate at export"
    # A path on the exporting machine tells readers nothing.
    source = Path(recorded["examples"]["source"]).name
    return (
        f"what does not depend on texts is as in this run; the {recorded['examples']['count']:,} examples from "
        f"{source} at export are others, so their values are not compared"
    )


def _counted(check: Mapping[str, Any], ran: set[str]) -> bool:
    """Whether export records the check, and both runs have its runtime."""
    return check["name"] not in _LATER and (check["runtime"] is None or check["runtime"] in ran)


def _title(key: tuple[str, str | None]) -> str:
    return " on ".join(filter(None, key))


def _tolerance(bundle: Bundle, remade: Mapping[str, Any], check: Mapping[str, Any], exact: bool) -> tuple[float, float]:
    """Largest difference between two measurements for one check, absolute and as a fraction of the value."""
    ties = _NEAR_TIES / max(remade["examples"]["count"], 1)
    if check["name"] == "metric":
        # In points. The float model's near ties change it on every processor.
        return 100 * ties, 0.0
    if check["name"].partition(":")[0] == "labels" and not exact:
        return ties, 0.0
    if check["runtime"] is None:
        # Counts and constants are the file's; anything else may go through the float model's sums.
        return (0.0, 1e-9) if check["name"] in _WITHOUT_EXAMPLES else (_SAME, _SAME_SHARE)
    return (_SAME if exact else RECIPES[bundle.recipe].bounds.own_difference), _SAME_SHARE


def _check_problems(
    title: str, recorded: Mapping[str, Any], remade: Mapping[str, Any], tolerance: tuple[float, float]
) -> list[str]:
    problems = []
    if not _near(recorded["measured"], remade["measured"], *tolerance):
        problems.append(f"{title} must be {_number(remade['measured'])}; it is {_number(recorded['measured'])}")
    if not _near(recorded["bound"], remade["bound"], 0.0, 1e-9):
        problems.append(
            f"the bound of {title} must be {_number(remade['bound'])}; it is {_number(recorded['bound'])}; if you "
            "exported with bounds of your own, pass them to verify_bundle"
        )
    for old, new in zip(recorded.get("scores") or (), remade.get("scores") or (), strict=False):
        # Points, as the metric's drop.
        if not _near(100 * old, 100 * new, *tolerance):
            problems.append(f"the scores of {title} must have {new:.4f}; they have {old:.4f}")
    return problems


def _range_problems(recorded: Mapping[str, Any] | None, remade: Mapping[str, Any] | None) -> list[str]:
    if recorded is None or remade is None:
        return _difference("activation_range", *(content and "given" for content in (recorded, remade)))
    old, new = (content.get("maxima", {}) for content in (recorded, remade))
    if not isinstance(old, dict) or old.keys() != new.keys():
        return ["activation_range must name the activations of the file; it names others"]
    worst = [name for name, value in new.items() if not _near(old[name], value, 0.0, _SAME_SHARE)]
    return [f"activation_range: {name} must be {_number(new[name])}; it is {_number(old[name])}" for name in worst]


def _difference(name: str, recorded: Any, remade: Any) -> list[str]:
    if recorded == remade:
        return []
    if isinstance(recorded, dict) and isinstance(remade, dict):
        # From two long tables, only different lines.
        keys = sorted({key for key in {*recorded, *remade} if recorded.get(key) != remade.get(key)})
        recorded, remade = ({key: content.get(key) for key in keys[:3]} for content in (recorded, remade))
    return [f"{name} must be {json.dumps(remade)}; it is {json.dumps(recorded)}"]


def _near(one: Any, other: Any, absolute: float, share: float) -> bool:
    numbers = all(isinstance(number, int | float) and not isinstance(number, bool) for number in (one, other))
    return math.isclose(one, other, rel_tol=share, abs_tol=absolute) if numbers else one is other


def _number(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, int | float) else json.dumps(value)


def _short(digest: str | None) -> str:
    return "absent" if digest is None else f"{digest[:12]}…"
