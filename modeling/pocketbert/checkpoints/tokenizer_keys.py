"""Keys in a tokenizer's JSON files, from transformers 4.30 to 5. Others are errors: they may change the tokens."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from pocketbert.configs import TokenizerKind
from pocketbert.progress import log_info
from pocketbert_runtime.tokenizers.kinds.rules import TokenizerRules

CONFIG_NAME = "tokenizer_config.json"
MAP_NAME = "special_tokens_map.json"
TOKENIZER_NAME = "tokenizer.json"
# Our own key: a truncation without a key in transformers.
TRUNCATION_KEY = "pocketbert_truncation"

# The named special tokens, in transformers' order, and lists of further ones.
NAMED_TOKENS = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
LISTED_TOKENS = ("additional_special_tokens", "extra_special_tokens", "model_specific_special_tokens")

# Keys in tokenizer_config.json that change no token, or only those in a call with a length.
_HARMLESS = {
    # Where and how the tokenizer was made.
    "name_or_path", "special_tokens_map_file", "tokenizer_file", "vocab_file", "merges_file", "tokenizer_class",
    "processor_class", "init_inputs", "use_fast", "from_slow", "backend", "is_local", "local_files_only",
    "use_auth_token", "token", "revision", "cache_dir", "trust_remote_code", "verbose", "full_tokenizer_file", "legacy",
    # Lengths and padding: `configs` and calls decide on them.
    "max_len", "model_max_length", "max_length", "max_seq_length", "stride", "truncation", "truncation_strategy",
    "padding", "pad_to_multiple_of", "pad_token_type_id", "pad_token_id", "model_input_names",
    # From ids to text, and offsets.
    "clean_up_tokenization_spaces", "errors", "trim_offsets", "chat_template", "response_schema",
}  # fmt: skip
# Keys that change ids or their order → the supported values; null counts as missing.
_FIXED: dict[str, tuple[object, ...]] = {
    "add_special_tokens": (True,),
    "auto_map": ({},),
    "fix_mistral_regex": (False,),
    "padding_side": ("right",),
    "split_special_tokens": (False,),
    "truncation_side": ("right", "left"),
}
_READ = {"added_tokens_decoder", TRUNCATION_KEY, *NAMED_TOKENS, *LISTED_TOKENS}
# BERT's options. Conversions leave them in other tokenizers' files, and their fast classes ignore them.
_BERT_OPTIONS = {"do_lower_case", "never_split", "strip_accents", "tokenize_chinese_chars"}


def config_key_problems(content: Mapping[str, Any], kind: TokenizerKind, rules: TokenizerRules) -> list[str]:
    """Lists problems with keys in a tokenizer_config.json: unknown ones, and unsupported values."""
    fixed = {**_FIXED, **rules.config_keys}
    accepted = {*_HARMLESS, *fixed, *_READ, *_BERT_OPTIONS, *names_of_tokens(content)}
    problems = unknown_keys(content, accepted, CONFIG_NAME)
    if not rules.has_options and content.get("do_lower_case") and "do_lower_case" not in fixed:
        log_info(f"do_lower_case in {CONFIG_NAME} does not count: {kind} keeps the case, also in transformers")
    problems += [
        f"{key} in {CONFIG_NAME} must be {accepted[0]!r}; received {content[key]!r:.60}"
        for key, accepted in fixed.items()
        if content.get(key) is not None and content[key] not in accepted
    ]
    return problems


def names_of_tokens(content: Mapping[str, Any]) -> set[str]:
    """The names defined in mappings of special tokens; transformers repeats each as a key."""
    return {name for key in LISTED_TOKENS if isinstance(content.get(key), dict) for name in content[key]}


def unknown_keys(content: Mapping[str, Any], accepted: Collection[str], where: str) -> list[str]:
    """Lists one problem per unknown key with a value."""
    return [
        f"key {key[:60]!r} in {where} is unknown and may change the tokens; remove it if it does not"
        for key in sorted(content)
        if key not in accepted and content[key] is not None
    ]
