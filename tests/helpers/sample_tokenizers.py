"""Small valid files of tokenizers for `sample_files.READERS`, and what reads them."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

TEXTS = ["the cats ½ [MASK] <mask> a naïve café  ", ""]


def write(path: Path, content: Any) -> Path:
    """Writes a text as it is, and other values as JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content), "utf-8")
    return path


def _tokenize(path: Path) -> object:
    from pocketbert.checkpoints.vocabulary_files import read_vocabulary_files
    from pocketbert.errors import raise_if_any
    from pocketbert.tokenizers.opening import open_tokenizer

    problems: list[str] = []

    vocabulary = read_vocabulary_files(path, problems)
    raise_if_any(problems, str(path))
    return vocabulary and open_tokenizer(vocabulary).tokenize(TEXTS)


def _special_files(folder: Path, kind: str) -> None:
    token = {"content": "<new>", "lstrip": False, "rstrip": False, "single_word": False, "normalized": True}
    write(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": kind,
            "model_max_length": 512,
            "additional_special_tokens": ["<new>"],
            "mask_token": {"content": "[MASK]" if kind == "BertTokenizer" else "<mask>", "lstrip": False},
            **({"do_lower_case": True, "strip_accents": None} if kind == "BertTokenizer" else {}),
        },
    )
    write(folder / "special_tokens_map.json", {"additional_special_tokens": [token]})


def _make_wordpiece(folder: Path) -> Path:
    from tokenizers import BertWordPieceTokenizer

    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"the cat ##s a nai ##ve cafe".split()]
    core = BertWordPieceTokenizer({token: index for index, token in enumerate(tokens)})
    write(folder / "tokenizer.json", core.to_str())
    _special_files(folder, "BertTokenizer")
    write(folder / "added_tokens.json", {"<new>": len(tokens)})
    return folder


def _make_template_wordpiece(folder: Path) -> Path:
    _make_wordpiece(folder)
    content = json.loads((folder / "tokenizer.json").read_text("utf-8"))

    def items(*parts: tuple[str, int]) -> list[dict[str, Any]]:
        return [{"Sequence" if name in "AB" else "SpecialToken": {"id": name, "type_id": kind}} for name, kind in parts]

    first = [("[CLS]", 0), ("A", 0), ("[SEP]", 0)]
    content["post_processor"] = {
        "type": "TemplateProcessing",
        "single": items(*first),
        "pair": items(*first, ("B", 1), ("[SEP]", 1)),
        "special_tokens": {"[CLS]": {"id": "[CLS]", "ids": [2], "tokens": ["[CLS]"]}},
    }
    content["truncation"] = {"direction": "Right", "max_length": 128, "strategy": "LongestFirst", "stride": 0}
    content["normalizer"] = {"type": "Sequence", "normalizers": [{"type": "Lowercase"}, content["normalizer"]]}
    write(folder / "tokenizer.json", content)
    (folder / "special_tokens_map.json").unlink()
    return folder


def _make_byte_bpe_files(folder: Path) -> Path:
    import tiny_tokenizers

    tiny_tokenizers.byte_bpe_files(folder, vocab_size=300)
    _special_files(folder, "RobertaTokenizer")
    return folder


def _make_byte_bpe_json(folder: Path) -> Path:
    import tiny_tokenizers

    vocab, merges = tiny_tokenizers.byte_bpe_files(folder, vocab_size=300)
    write(folder / "tokenizer.json", tiny_tokenizers.byte_bpe_json(vocab, merges))
    vocab.unlink()
    merges.unlink()
    return folder


def _make_unigram_file(folder: Path) -> Path:
    import tiny_tokenizers

    return tiny_tokenizers.unigram_file(folder)


def _make_character_map(folder: Path) -> Path:
    """The compiled character map of a normalizer, which tokenizer.json holds in Base64."""
    import tiny_tokenizers

    path = folder / "charsmap.bin"
    path.write_bytes(tiny_tokenizers.charsmap(tiny_tokenizers.unigram_file(folder)))
    return path


def _character_map(path: Path) -> object:
    import tiny_tokenizers

    folder = path.parent / "directory"
    folder.mkdir(exist_ok=True)
    content = tiny_tokenizers.unigram_json(path.parent / "sentencepiece.bpe.model")
    content["normalizer"]["normalizers"][0]["precompiled_charsmap"] = base64.b64encode(path.read_bytes()).decode()
    write(folder / "tokenizer.json", content)
    return _tokenize(folder)


def _unigram(path: Path) -> object:
    from pocketbert.tokenizers.unigram import UnigramTokenizer

    return UnigramTokenizer(path).tokenize(TEXTS)


def _make_unigram_json(folder: Path) -> Path:
    import tiny_tokenizers

    path = tiny_tokenizers.unigram_file(folder)
    write(folder / "tokenizer.json", tiny_tokenizers.unigram_json(path))
    path.unlink()
    _special_files(folder, "XLMRobertaTokenizer")
    return folder


def _make_layout_json(layout: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        import tiny_tokenizers

        from pocketbert.checkpoints.vocabulary_files import write_vocabulary_files
        from pocketbert_runtime.tokenizers.vocabulary import Vocabulary

        path = tiny_tokenizers.layout_file(folder / "made", layout)
        target = folder / "directory"
        target.mkdir()
        write_vocabulary_files(target, Vocabulary(path=path, kind="unigram", layout=layout), 512)
        (target / path.name).unlink()
        return target

    return make


def _make_layout(layout: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        import tiny_tokenizers

        return tiny_tokenizers.layout_file(folder, layout)

    return make


def _layout(layout: str) -> Callable[[Path], object]:
    def read(path: Path) -> object:
        from pocketbert.tokenizers.unigram import UnigramTokenizer

        return UnigramTokenizer(path, layout=layout).tokenize(TEXTS)

    return read


def _make_modernbert(folder: Path) -> Path:
    import modernbert_tokenizer

    return modernbert_tokenizer.write(folder)


_LAYOUTS = ("albert", "camembert", "deberta")
# Name → what makes a valid file or folder in an empty folder, and what reads it.
SAMPLES: dict[str, tuple[Callable[[Path], Path], Callable[[Path], object]]] = {
    "wordpiece-json": (_make_wordpiece, _tokenize),
    "template-wordpiece-json": (_make_template_wordpiece, _tokenize),
    "byte-bpe-files": (_make_byte_bpe_files, _tokenize),
    "byte-bpe-json": (_make_byte_bpe_json, _tokenize),
    "sentencepiece": (_make_unigram_file, _unigram),
    "character-map": (_make_character_map, _character_map),
    "unigram-json": (_make_unigram_json, _tokenize),
    "modernbert-json": (_make_modernbert, _tokenize),
    **{f"{layout}-sentencepiece": (_make_layout(layout), _layout(layout)) for layout in _LAYOUTS},
    **{f"{layout}-json": (_make_layout_json(layout), _tokenize) for layout in _LAYOUTS},
}
