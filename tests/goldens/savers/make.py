"""Writes the model directories of this folder with the savers of transformers and sentence-transformers.

Run it in an environment with the version to record; see README.md. It keeps JSON files, texts and tokenizer models, and
deletes weights.

Example:
  python make.py transformers
  python make.py sentence-transformers
"""

from __future__ import annotations

import argparse
import inspect
import json
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
DROPPED = (".safetensors", ".bin", ".md")
TOKENIZER_FILES = ("vocab.txt", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json")
SIZES = {
    "hidden_size": 6, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 10,
    "max_position_embeddings": 40,
}  # fmt: skip
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = "[unused1] [ ] ! . a b e unused cat sat mask angela pad ##1 ##2 ##3 ##s ##b ##e é ä 中 中b".split()
CASED = "[unused1] [ ] ! . a b E e unused cat sat MASK Angela ##1 ##2 ##3 ##s ##b ##e É é ä 中".split()
ROBERTA = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
TEXTS = [
    "Angela sat", "cats É e\u0301 中b", "[unused1] [UNUSED1]", "a[E1]b [E2]b", "a  [E1]  a  [E2]  b",
    "[E3] a[E3] [E3].", "[E4] [e4] [E5] [e5]", "Ä! ä!", "a [MASK] <mask> a", "[E1][E2]", "",
]  # fmt: skip
# Versions that show something of their own; without a row, all do.
VERSIONS = {
    "bert_uncased_added_spare_rows": ("4.57",), "bert_uncased_extra_special": ("4.57", "5."),
    "bert_uncased_after_training": ("4.57",), "bert_uncased_options": ("4.57",),
    "bert_uncased_added": ("4.30", "5."), "bert_cased_generic": ("4.57", "5."), "distilbert_added": ("5.",),
    "bert_with_xlmr_tokenizer": ("4.57",), "xlmr_slow": ("4.30",), "bert_uncased_slow_flags": ("4.57",),
    "embedding_without_limit": ("1.", "2.2", "6."), "embedding_dense": ("1.", "2.2", "2.7", "3.", "5.", "6."),
    "embedding_dense_identity": ("2.2", "6."), "embedding_dense_residual": ("6.",),
    "embedding_lowercase": ("2.2", "5."),
    "embedding_two_poolings": ("2.2", "6."), "embedding_prompts": ("2.7", "3.", "5.", "6."),
    "embedding_dot": ("3.", "5.", "6."), "cross_encoder_sigmoid": ("2.", "3.", "4.", "5.", "6."),
    "cross_encoder_identity": ("2.", "3.", "4.", "5.", "6."), "cross_encoder_default": ("2.2", "3.", "4.", "5.", "6."),
    "cross_encoder_three_labels": ("4.", "6."),
}  # fmt: skip


class Saver:
    """Folders of one library version.

    Attributes:
      output: folder of the version.
      work: temporary folder with the input files.
    """

    def __init__(self, library: str, version: str, work: Path):
        self.output = HERE / f"{library}-{version}"
        self.work = work

    def source(self, name: str, files: dict[str, str | bytes | dict[str, Any]]) -> str:
        """Writes input files and returns their folder."""
        folder = self.work / name
        folder.mkdir()
        for file, content in files.items():
            if isinstance(content, dict):
                content = json.dumps(content)
            (folder / file).write_bytes(content.encode("utf-8") if isinstance(content, str) else content)
        return str(folder)

    def case(self, name: str, write: Callable[[Path], Any]) -> None:
        """Writes a case, then deletes what is no JSON, text or tokenizer model. Prints why the version cannot."""
        if not self.output.name.split("-")[-1].startswith(VERSIONS.get(name, ("",))):
            return
        folder = self.output / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        try:
            write(folder)
        except Exception as error:  # noqa: BLE001 - a version may lack the class or the argument
            shutil.rmtree(folder)
            print(f"{self.output.name}/{name}: not written: {type(error).__name__}: {str(error)[:200]}")
        for path in sorted(folder.rglob("*")):
            if path.suffix in DROPPED or path.name == ".gitattributes":
                path.unlink()
            elif path.name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
                # The same content without indentation, to keep the folder small.
                content = json.loads(path.read_text("utf-8"))
                if "_name_or_path" in content:
                    content["_name_or_path"] = "a/name"  # The folder of the input on this machine.
                path.write_text(json.dumps(content, ensure_ascii=False, separators=(",", ":")) + "\n", "utf-8")
        for path in sorted(folder.rglob("*"), reverse=True):
            if path.is_dir() and path.name not in ("2_Normalize",) and not any(path.iterdir()):
                path.rmdir()

    def leave_out_equal_files(self, first: str) -> None:
        """Deletes tokenizer files that equal those of the case `first`. Prints the cases that lack such a file."""
        files = [self.output / first / name for name in TOKENIZER_FILES if (self.output / first / name).is_file()]
        for folder in self.output.iterdir():
            for path in files if folder.name != first else []:
                if not (folder / path.name).is_file():
                    print(f"{folder}: no {path.name}")
                elif (folder / path.name).read_bytes() == path.read_bytes():
                    (folder / path.name).unlink()


def expected(folder: Path, tokenizer: Any) -> None:
    """Writes ids and offsets of the texts, without special tokens, and a pair with them, by the version's tokenizer."""
    rows = []
    for text in TEXTS:
        plain = tokenizer(text, add_special_tokens=False, truncation=False, padding=False)
        row: dict[str, Any] = {"text": text, "ids": plain["input_ids"]}
        if tokenizer.is_fast:
            row["offsets"] = tokenizer(
                text, add_special_tokens=False, truncation=False, padding=False, return_offsets_mapping=True
            )["offset_mapping"]
        rows.append(row)
    pair = tokenizer("a cat", "sat", truncation=False, padding=False)
    # A number, not 512: transformers' "no limit" is 1e30.
    limit = tokenizer.model_max_length
    content = {
        "class": type(tokenizer).__name__,
        "tokens": len(tokenizer),
        "model_max_length": limit if limit < 1e6 else None,
        "pair": {"texts": ["a cat", "sat"], **{key: list(value) for key, value in pair.items()}},
    }
    head = json.dumps(content, ensure_ascii=False)[:-1]
    lines = ",\n".join(json.dumps(row, ensure_ascii=False) for row in rows)
    (folder / "expected.json").write_text(f'{head}, "texts": [\n{lines}\n]}}\n', "utf-8")


def byte_bpe_inputs() -> dict[str, Any]:
    """A vocab.json with all bytes and a merges.txt."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    characters = [chr(byte) for byte in printable] + [chr(0x100 + index) for index in range(256 - len(printable))]
    pairs = [("c", "a"), ("ca", "t"), ("s", "a"), ("sa", "t"), ("Ġ", "cat"), ("Ġ", "sat"), ("Ġ", "a")]
    tokens = [*ROBERTA[:4], *characters, *("".join(pair) for pair in pairs), ROBERTA[4]]
    return {
        "vocab.json": json.dumps({token: index for index, token in enumerate(tokens)}, ensure_ascii=False),
        "merges.txt": "".join(f"{line}\n" for line in ["#version: 0.2", *map(" ".join, pairs)]),
    }


def unigram_input() -> bytes:
    """A sentencepiece.bpe.model with a small map of characters."""
    import io

    import sentencepiece

    # The model keeps this path: a relative one holds nothing of this machine.
    rules = Path("rules.tsv")
    # ﬁ → fi, Ａ → A, full-width space → space, é stays.
    rules.write_text("FB01\t66 69\nFF21\t41\n3000\t20\n", "utf-8")
    try:
        stream = io.BytesIO()
        sentences = ["the cat sat on the mat", "Angela sat . a b !", "cats é ä 中 [E1]", "a cat sat [ E ] 2 3"]
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(sentences * 5), model_writer=stream, vocab_size=60, model_type="unigram",
            normalization_rule_tsv=str(rules), hard_vocab_limit=False, minloglevel=2,
        )  # fmt: skip
    finally:
        rules.unlink()
    return stream.getvalue()


def flags() -> list[Any]:
    """One token for each flag of an added token."""
    from transformers import AddedToken

    return [
        AddedToken("[E1]", lstrip=True, normalized=False),
        AddedToken("[E2]", rstrip=True, normalized=False),
        AddedToken("[E3]", single_word=True, normalized=False),
        AddedToken("[E4]", normalized=False),
        AddedToken("[E5]", normalized=True),
        AddedToken("Ä!", normalized=True),
    ]


def model_for(tokenizer: Any, family: str, rows: int, multiple: int | None = None, **changes: Any) -> Any:
    """A classifier with a table for the tokenizer, resized as transformers does it."""
    import transformers

    config_class = getattr(transformers, f"{family}Config")
    sizes: dict[str, Any] = dict(SIZES)
    if family == "DistilBert":
        sizes = {"dim": 6, "n_layers": 2, "n_heads": 3, "hidden_dim": 10, "max_position_embeddings": 40}
    config = config_class(**{"vocab_size": rows, "pad_token_id": tokenizer.pad_token_id, **sizes, **changes})
    model = getattr(transformers, f"{family}ForSequenceClassification")(config)
    if len(tokenizer) > rows or multiple:
        options = {} if multiple is None else {"pad_to_multiple_of": multiple}
        model.resize_token_embeddings(len(tokenizer), **options)
    return model


def bert_inputs(words: list[str], lowercase: bool) -> dict[str, Any]:
    """A vocab.txt with the options that BERT's own tokenizer needs."""
    options = {"do_lower_case": lowercase, "tokenizer_class": "BertTokenizer", "model_max_length": 40}
    return {"vocab.txt": "".join(f"{token}\n" for token in [*SPECIAL, *words]), "tokenizer_config.json": options}


def class_file(name: str) -> dict[str, Any]:
    """A tokenizer_config.json that names the class."""
    return {"tokenizer_config.json": {"tokenizer_class": name, "model_max_length": 38}}


def transformers_cases() -> None:
    """Tokenizers and classifiers of transformers."""
    import transformers

    with tempfile.TemporaryDirectory() as work:
        saver = Saver("transformers", transformers.__version__, Path(work))
        uncased = saver.source("uncased", bert_inputs(WORDS, True))
        cased = saver.source("cased", bert_inputs(CASED, False))
        distilled = {"tokenizer_config.json": {**bert_inputs(WORDS, True)["tokenizer_config.json"],
                                               "tokenizer_class": "DistilBertTokenizer"}}  # fmt: skip
        distilbert = saver.source("distilbert", {**bert_inputs(WORDS, True), **distilled})
        roberta = saver.source("roberta", {**byte_bpe_inputs(), **class_file("RobertaTokenizer")})
        files = {"sentencepiece.bpe.model": unigram_input(), **class_file("XLMRobertaTokenizer")}
        xlmr = saver.source("xlmr", files)
        fast = {
            name: getattr(transformers, f"{name}TokenizerFast", None) or getattr(transformers, f"{name}Tokenizer")
            for name in ("Bert", "DistilBert", "Roberta", "XLMRoberta")
        }

        def write(
            name: str,
            source: str,
            family: str,
            change: Callable[[Any], Any] = lambda tokenizer: None,
            tokenizer_class: Any = None,
            model_family: str | None = None,
            multiple: int | None = None,
            sizes: dict[str, Any] | None = None,
            also: tuple[str, ...] = (),
            **options: Any,
        ) -> None:
            def save(folder: Path) -> None:
                tokenizer = (tokenizer_class or fast[family]).from_pretrained(source, **options)
                rows = len(tokenizer)
                tokenizer = change(tokenizer) or tokenizer
                tokenizer.save_pretrained(folder)
                model_for(tokenizer, model_family or family, rows, multiple, **(sizes or {})).save_pretrained(folder)
                for file in also:
                    shutil.copyfile(Path(source, file), folder / file)
                expected(folder, tokenizer)

            saver.case(name, save)

        def add(tokenizer: Any) -> None:
            tokenizer.add_tokens(["[E1]", "[E2]"])

        def add_flags(tokenizer: Any) -> None:
            tokenizer.add_tokens(flags())

        def add_special(tokenizer: Any) -> None:
            tokenizer.add_special_tokens({"additional_special_tokens": ["[unused1]", "[E1]"]})

        def train(tokenizer: Any) -> None:
            tokenizer(["a cat", "a"], padding="max_length", truncation=True, max_length=16)

        def generic(tokenizer: Any) -> Any:
            names = {f"{name}_token": f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep", "mask")}
            return transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer.backend_tokenizer, **names)

        write("bert_uncased", uncased, "Bert")
        write("bert_uncased_added", uncased, "Bert", add)
        write("bert_uncased_added_spare_rows", uncased, "Bert", add, multiple=32)
        write("bert_uncased_flags", uncased, "Bert", add_flags)
        write("bert_cased_flags", cased, "Bert", add_flags)
        write("bert_uncased_special", uncased, "Bert", add_special)
        write("bert_uncased_extra_special", uncased, "Bert", extra_special_tokens={"image_token": "[unused1]"})
        write("bert_uncased_after_training", uncased, "Bert", train)
        write("bert_uncased_options", uncased, "Bert", strip_accents=False, tokenize_chinese_chars=False,
              padding_side="left", truncation_side="left", model_max_length=12)  # fmt: skip
        write("bert_cased_generic", cased, "Bert", generic, also=("vocab.txt",))
        write("distilbert_added", distilbert, "DistilBert", add)
        write("roberta_prefix_space", roberta, "Roberta", add_flags, add_prefix_space=True)
        write("xlmr_flags", xlmr, "XLMRoberta", add_flags)
        write("bert_with_xlmr_tokenizer", xlmr, "XLMRoberta", model_family="Bert", multiple=8,
              sizes={"pad_token_id": 0})  # fmt: skip
        if not issubclass(transformers.BertTokenizer, transformers.PreTrainedTokenizerFast):
            write("bert_uncased_slow_flags", uncased, "Bert", add_flags, transformers.BertTokenizer)
            write("bert_cased_slow_special", cased, "Bert", add_special, transformers.BertTokenizer)
            write("xlmr_slow", xlmr, "XLMRoberta", add, transformers.XLMRobertaTokenizer)


def sentence_transformers_cases() -> None:
    """Embeddings and cross-encoders of sentence-transformers."""
    import sentence_transformers
    import torch
    import transformers
    from sentence_transformers import SentenceTransformer, models
    from sentence_transformers.cross_encoder import CrossEncoder

    with tempfile.TemporaryDirectory() as work:
        saver = Saver("sentence-transformers", sentence_transformers.__version__, Path(work))
        source = saver.source("bert", bert_inputs(WORDS[:10], True))
        tokenizer = getattr(transformers, "BertTokenizerFast", transformers.BertTokenizer).from_pretrained(source)
        tokenizer.save_pretrained(source)
        config = transformers.BertConfig(vocab_size=len(tokenizer), **SIZES)
        transformers.BertModel(config).save_pretrained(source)
        reranker = f"{source}-reranker"
        shutil.copytree(source, reranker)
        transformers.BertForSequenceClassification(
            transformers.BertConfig(vocab_size=len(tokenizer), num_labels=1, **SIZES)
        ).save_pretrained(reranker)
        three = f"{source}-three"
        shutil.copytree(source, three)
        transformers.BertForSequenceClassification(
            transformers.BertConfig(vocab_size=len(tokenizer), num_labels=3, **SIZES)
        ).save_pretrained(three)

        def embedding(
            name: str, modules: Callable[[], list[Any]] = list, pooling: dict[str, Any] | None = None,
            model: dict[str, Any] | None = None, change: Callable[[Any], Any] = lambda model: None, **transformer: Any,
        ) -> None:  # fmt: skip
            def save(folder: Path) -> None:
                first = models.Transformer(source, **transformer)
                stack = [first, models.Pooling(SIZES["hidden_size"], **(pooling or {})), *modules()]
                encoder = SentenceTransformer(modules=stack, **(model or {}))
                change(encoder)
                encoder.save(str(folder))

            saver.case(name, save)

        def dense(**options: Any) -> list[Any]:
            return [models.Dense(in_features=6, out_features=options.pop("out_features", 4), **options)]

        def cross(name: str, folder: str, activation: Any, **options: Any) -> None:
            def save(output: Path) -> None:
                names = inspect.signature(CrossEncoder.__init__).parameters
                name = "default_activation_function"
                options[name if name in names and "activation_fn" not in names else "activation_fn"] = activation
                CrossEncoder(folder, **options).save(str(output))

            saver.case(name, save)

        embedding("embedding", lambda: [models.Normalize()], max_seq_length=16)
        embedding("embedding_without_limit", pooling={"pooling_mode": "cls"})
        embedding("embedding_lowercase", do_lower_case=True, pooling={"pooling_mode": "max"})
        embedding("embedding_dense", lambda: dense(bias=True, activation_function=torch.nn.Tanh()))
        embedding("embedding_dense_identity", lambda: dense(bias=False, activation_function=torch.nn.Identity()))
        embedding("embedding_dense_residual", lambda: dense(out_features=6, use_residual=True))
        prompts = {"query": "query: ", "document": "passage: "}
        embedding("embedding_prompts", lambda: [models.Normalize()], pooling={"include_prompt": False},
                  model={"prompts": prompts, "default_prompt_name": "query"})  # fmt: skip
        embedding("embedding_dot", model={"similarity_fn_name": "dot", "truncate_dim": 3})
        embedding("embedding_two_poolings", pooling={
            "pooling_mode_cls_token": True, "pooling_mode_mean_tokens": True})  # fmt: skip
        cross("cross_encoder_sigmoid", reranker, torch.nn.Sigmoid(), max_length=20)
        cross("cross_encoder_identity", reranker, torch.nn.Identity())
        cross("cross_encoder_default", reranker, None)
        cross("cross_encoder_three_labels", three, None)
        saver.leave_out_equal_files("embedding")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("library", choices=("transformers", "sentence-transformers"))
    cases = transformers_cases if parser.parse_args().library == "transformers" else sentence_transformers_cases
    cases()


if __name__ == "__main__":
    main()
