"""Convert a checkpoint to a model directory, or a model directory to Model Garden's format.

Choose one format:
  --from=hf            a folder from transformers (config.json; model.safetensors or tf_model.h5; vocab.txt or
                       tokenizer.json), or the name of a model on Hugging Face's hub, ORG/NAME or hf:ORG/NAME@REVISION,
                       if huggingface_hub is installed; other commands take such a name as their model, too
  --from=tf1           a google-research checkpoint of BERT or MobileBERT, with bert_config.json
  --from=model-garden  a folder with tf-models-official's EncoderConfig and a checkpoint of that encoder
  --to=model-garden    the other direction

The command writes nothing if any tensor or option does not fit.

Example:
  pocketbert convert --from=tf1 --input=uncased_L-12_H-768_A-12 --output=models/bert_base
  pocketbert convert --to=model-garden --input=models/mobilebert --output=models/mobilebert_garden
"""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any, ClassVar, Literal

from pocketbert.commands.command_line import Options
from pocketbert.configs import TokenizerConfig
from pocketbert.errors import UserError
from pocketbert.options import AnyPath, DirectoryPath, FilePath
from pocketbert_runtime.tokenizers.vocabulary import Vocabulary


@dataclasses.dataclass(frozen=True, kw_only=True)
class ConvertOptions:
    """Input and output of a conversion.

    Attributes:
      input: folder, checkpoint prefix or hub name.
      output: output folder.
      from_: input format, if it is not a model directory.
      to: output format, if it is not a model directory.
      vocab: vocab.txt, if it is in another folder.
      bert_config: bert_config.json, if it is in another folder (tf1).
      headless: convert the encoder alone, without the input's heads (hf).
      lowercase: whether the tokenizer lower-cases (default: detected from the input or the vocabulary).
      overwrite: replace an existing output.
    """

    GROUP: ClassVar = "Conversion"

    input: AnyPath
    output: DirectoryPath
    from_: Literal["hf", "tf1", "model-garden"] | None = None
    to: Literal["model-garden"] | None = None
    vocab: FilePath | None = None
    bert_config: FilePath | None = None
    headless: bool = False
    lowercase: bool | None = None
    overwrite: bool = False


OPTIONS = (ConvertOptions,)


def run(options: Options) -> None:
    """Converts; prints a summary as JSON."""
    from pocketbert.output_folders import MODEL_GARDEN_KIND, MODEL_KIND, check_directory

    chosen = options[ConvertOptions]
    if bool(chosen.from_) == bool(chosen.to):
        raise UserError("either --from or --to is required; received " + ("both" if chosen.from_ else "neither"))
    if chosen.headless and chosen.from_ != "hf":
        raise UserError("--headless is for --from=hf; received another conversion, which has no heads; leave it out")
    check_directory(chosen.output, MODEL_GARDEN_KIND if chosen.to else MODEL_KIND, overwrite=chosen.overwrite)
    print(json.dumps(_to_model_garden(chosen) if chosen.to else _to_directory(chosen), indent=2))


def _to_directory(options: ConvertOptions) -> dict[str, Any]:
    from pocketbert.checkpoints.directory import ModelDirectory, read_directory, write_directory

    if options.from_ == "hf":
        model = read_directory(_local_folder(options.input), headless=options.headless)
    elif options.from_ == "tf1":
        from pocketbert.checkpoints.tf1 import read_tf1

        model = read_tf1(options.input, options.bert_config)
    else:
        from pocketbert.checkpoints.model_garden import read_model_garden

        config, tensors = read_model_garden(options.input)
        vocab_path = Path(options.input) / "vocab.txt"
        vocabulary = Vocabulary(path=vocab_path) if vocab_path.exists() else None
        model = ModelDirectory(config=config, tasks=(), vocabulary=vocabulary, tensors=tensors)
    vocabulary = _vocabulary(options, model.vocabulary)
    write_directory(options.output, model.config, model.tasks, model.tensors, vocabulary, options.overwrite)
    return _summary(options, model, vocabulary)


def _vocabulary(options: ConvertOptions, vocabulary: Vocabulary | None) -> Vocabulary | None:
    """Takes the vocabulary from --vocab, else the input, with its tokenizer options."""
    if vocabulary is not None and not vocabulary.rules.has_options:
        if options.vocab or options.lowercase is not None:
            raise UserError(
                f"--vocab and --lowercase are for WordPiece; received a model with {vocabulary.path.name}; "
                "leave them out"
            )
        return vocabulary
    if options.vocab:
        if vocabulary is not None:
            vocabulary.require_no_added("a model with another --vocab", "leave --vocab out")
        path = Path(options.vocab)
        vocabulary = Vocabulary(path=path) if vocabulary is None else dataclasses.replace(vocabulary, path=path)
    if vocabulary is None:
        return None
    return dataclasses.replace(vocabulary, config=_tokenizer(options.lowercase, vocabulary.config, vocabulary.path))


def _tokenizer(lowercase: bool | None, stored: TokenizerConfig | None, vocab_path: Path) -> TokenizerConfig | None:
    """Chooses lower-casing from the flag, else the input, else the vocabulary."""
    if lowercase is None and stored is None and vocab_path.exists():
        from pocketbert_runtime.tokenizers.wordpiece_vocabulary import read_tokens

        words = [piece for piece in read_tokens(vocab_path) if not re.fullmatch(r"\[.*\]", piece)]
        lowercase = not any(re.search("[A-Z]", word) for word in words)
    if lowercase is None:
        return stored
    if stored is None:
        return TokenizerConfig(lowercase=lowercase)
    follows = stored.strip_accents == stored.lowercase
    return dataclasses.replace(stored, lowercase=lowercase, strip_accents=None if follows else stored.strip_accents)


def _to_model_garden(options: ConvertOptions) -> dict[str, Any]:
    from pocketbert.checkpoints.directory import read_directory
    from pocketbert.checkpoints.model_garden import write_model_garden
    from pocketbert.hub.download import local

    # Model Garden's format has only the encoder.
    model = read_directory(local(options.input), headless=True)
    if model.vocabulary is not None:
        model.vocabulary.require_no_added("Model Garden's format", "convert the model before you add tokens")
    vocab_path = Path(options.vocab) if options.vocab else model.vocab_path
    write_model_garden(options.output, model.config, model.tensors, vocab_path, options.overwrite)
    return _summary(options, model, model.vocabulary)


def _summary(options: ConvertOptions, model: Any, vocabulary: Vocabulary | None) -> dict[str, Any]:
    return {
        "output": options.output,
        "model_type": model.config.model_type,
        "tasks": [task.kind for task in model.tasks],
        "parameters": sum(tensor.size for tensor in model.tensors.values()),
        "lowercase": vocabulary.config.lowercase if vocabulary and vocabulary.config else None,
    }


def _local_folder(name: str) -> Path:
    """Returns the folder, downloaded from the hub if necessary; its `tf_model.h5` may replace safetensors."""
    from pocketbert.data.model_paths import hub_name
    from pocketbert.hub.download import download
    from pocketbert.hub.names import PREFIX, is_hub_name

    repository = None if Path(name).exists() or is_hub_name(name) else hub_name(name)
    hub = name if repository is None else f"{PREFIX}{repository}"
    return download(hub, keras=True) if is_hub_name(hub) else Path(name)
