"""Finds and checks a command's inputs, before anything imports TensorFlow."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pocketbert.errors import UserError
from pocketbert.files import check_different
from pocketbert.heads_config import files_in
from pocketbert.hub.names import is_hub_name, shown
from pocketbert.options import BundlePath, ModelOrBundlePath, ModelPath, PresetOrPath, value_name_of

if TYPE_CHECKING:
    from pocketbert.commands.command_line import Options
    from pocketbert.data.model_paths import ModelForm

_FORMS: dict[str, ModelForm] = {
    value_name_of(ModelPath): "model",
    value_name_of(BundlePath): "bundle",
    value_name_of(ModelOrBundlePath): "either",
    value_name_of(PresetOrPath): "start",
}
# Options with example files; commands check the others.
_EXAMPLE_FILES = ("train_file", "dev_file", "augmented_file", "calibration_file", "file", "search")


def check(options: Options) -> None:
    """Finds the models in the options, and checks that example files exist.

    A model option takes a folder, a run folder, a `fetch` name, or a name on the hub in all commands, and gives the
    folder.

    Raises:
      UserError: no such model, bundle or file, or a duplicate.
    """
    for name in _EXAMPLE_FILES:
        path = options.values.get(name)
        if isinstance(path, str) and path:
            for file in files_in(path):
                check_file(file)
    for field in options.fields:
        form, value = _FORMS.get(field.value_name), options.values[field.name]
        if field.positional and field.many:
            check_different(field.positional, value)
        if form is None or not value:
            continue
        texts = value if field.many else (value,)
        paths = tuple(_found(text, form, options) for text in texts)
        # So that the run's file names the commit.
        names = tuple(shown(path) if is_hub_name(text) else text for text, path in zip(texts, paths, strict=True))
        options.resolve(**{field.name: names if field.many else names[0]})
        options.locate(field.name, paths if field.many else paths[0])


def check_file(path: str) -> None:
    """Raises a `UserError` if an example file is missing, a folder, or in a format for another program."""
    if not Path(path).exists():
        raise UserError(f"{path}: there is no such file; check the path")
    from pocketbert.data.readers.tables import check_format

    check_format(Path(path))


def _found(value: str, form: ModelForm, options: Options) -> str:
    if form == "start" and not _is_run_or_name(value):
        return value
    from pocketbert.data.assets import model_directory

    pinned = _pinned(options) if is_hub_name(value) else {}
    return str(model_directory(value, "model" if form == "start" else form, pinned))


def _pinned(options: Options) -> dict[str, str]:
    """Returns the commits of a run to resume."""
    from pocketbert.training.run_folder import pinned_commits

    output = options.values.get("output")
    return {} if not output or options.values.get("overwrite") else pinned_commits(output)


def _is_run_or_name(value: str) -> bool:
    """Whether a start comes from a run or `fetch`; presets, files and other folders stay as they are."""
    from pocketbert.presets import presets

    if is_hub_name(value):
        return True
    if value in presets() or Path(value).is_file():
        return False
    if not Path(value).exists():
        from pocketbert.data.assets import model_names
        from pocketbert.data.model_paths import hub_remedy
        from pocketbert.errors import did_you_mean

        if value in model_names():
            return True
        raise UserError(
            f"a model must be a preset, a model directory or a config.json; received {value}"
            f"{did_you_mean(value, presets())}; the presets are {', '.join(presets())}{hub_remedy(value)}"
        )
    return not (Path(value) / "config.json").exists()
