"""Added tokens in a model directory: four files state them, and transformers' order decides between them.

As in transformers 4.57 (`PreTrainedTokenizerBase._from_pretrained` and the fast class), tokenizer.json has the tokens;
`added_tokens_decoder` in tokenizer_config.json adds others and overrides flags. Only without a decoder,
special_tokens_map.json and added_tokens.json count. Special tokens in lists come last.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pocketbert.checkpoints.tokenizer_keys import (
    CONFIG_NAME,
    LISTED_TOKENS,
    MAP_NAME,
    NAMED_TOKENS,
    TOKENIZER_NAME,
    names_of_tokens,
    unknown_keys,
)
from pocketbert.files import write_json
from pocketbert.json_reading import read_json_object
from pocketbert.progress import log_info
from pocketbert_runtime.tokenizers.added_tokens import (
    FLAGS,
    AddedToken,
    added_problems,
    default_special,
)
from pocketbert_runtime.tokenizers.kinds.rules import TokenizerRules
from pocketbert_runtime.tokenizers.vocabulary import ADDED_NAME, Vocabulary

_DECODER = "added_tokens_decoder"
_NO_ID = -1
_FIELDS = {"content", "id", "__type", *FLAGS}


@dataclasses.dataclass(frozen=True)
class StatedTokens:
    """The files with added and special tokens.

    Attributes:
      config: tokenizer_config.json; empty if there is none.
      special: special_tokens_map.json; empty if there is none.
      added: added_tokens.json, or None.
      stored: `added_tokens` in tokenizer.json, or None.
    """

    config: Mapping[str, Any]
    special: Mapping[str, Any]
    added: Mapping[str, Any] | None
    stored: Any

    @classmethod
    def read(cls, path: Path, config: Mapping[str, Any], stored: Any, problems: list[str]) -> StatedTokens:
        """Reads a model directory's files."""
        special = read_json_object(path / MAP_NAME, problems, required=False) or {}
        names = names_of_tokens(config) | names_of_tokens(special)
        problems += unknown_keys(special, {*NAMED_TOKENS, *LISTED_TOKENS, *names}, MAP_NAME)
        added = read_json_object(path / ADDED_NAME, problems, required=False)
        wrong = [token for token, index in (added or {}).items() if type(index) is not int]
        if wrong:
            problems.append(f"{ADDED_NAME} must map tokens to ids; received another value for {wrong[0][:60]!r}")
            added = None
        return cls(config, special, added, stored)

    @property
    def has_decoder(self) -> bool:
        """Whether tokenizer_config.json states the added tokens, so that older files do not count."""
        return _DECODER in self.config

    def specials(self, problems: list[str]) -> dict[str, AddedToken | str]:
        """Name in transformers, or name and number → special token; a string has no flags."""
        specials: dict[str, AddedToken | str] = {}
        sources = [(self.config, CONFIG_NAME)] + ([] if self.has_decoder else [(self.special, MAP_NAME)])
        for content, name in sources:
            for key in NAMED_TOKENS:
                if content.get(key) is not None:
                    token = _special(content[key], f"{key} in {name}", problems)
                    if token is not None:
                        specials[key] = token
            for key in LISTED_TOKENS:
                listed = content.get(key) or []
                if isinstance(listed, dict):
                    listed = list(listed.values())
                if not isinstance(listed, list):
                    problems.append(f"{key} in {name} must be a list of tokens; received {listed!r:.60}")
                    continue
                for value in listed:
                    token = _special(value, f"{key} in {name}", problems)
                    if token is not None:
                        # A token may be there without and with flags; the latter override.
                        specials[f"{key} {value if isinstance(token, str) else [token.content]}"] = token
        return specials


def read_added_tokens(
    stated: StatedTokens, rules: TokenizerRules, tokens: Sequence[str], problems: list[str]
) -> tuple[AddedToken, ...]:
    """Returns a tokenizer's added tokens, without its kind's special tokens unless these have unusual flags."""
    count = len(problems)
    specials = stated.specials(problems)
    for name, content in rules.special_names.items():
        token = specials.get(name, content)
        received = token if isinstance(token, str) else token.content
        if received != content:
            source = CONFIG_NAME if name in stated.config else MAP_NAME
            problems.append(f"{name} in {source} must be {content}; received {received!r:.60}")
    by_content: dict[str, AddedToken] = {}
    for token in _objects(stated.stored, f"added_tokens in {TOKENIZER_NAME}", problems):
        by_content[token.content] = token
    if stated.has_decoder:
        for token in _decoder(stated.config[_DECODER], problems):
            _check_id(by_content.get(token.content), token, CONFIG_NAME, problems)
            if (
                token.content in by_content
                and by_content[token.content] != token
                and token.id == by_content[token.content].id
            ):
                log_info(f"{token.content!r} has other flags in {TOKENIZER_NAME}; those in {CONFIG_NAME} count")
            by_content[token.content] = _overridden(by_content.get(token.content, token), token)
    else:
        contents = {token if isinstance(token, str) else token.content for token in specials.values()}
        for content, index in (stated.added or {}).items():
            special = content in contents
            token = AddedToken(content=content, id=index, normalized=not special, special=special)
            _check_id(by_content.get(content), token, ADDED_NAME, problems)
            by_content.setdefault(content, token)
    ids = {token: position for position, token in enumerate(tokens)}
    behind = max([len(tokens) - 1, *(token.id for token in by_content.values())]) + 1
    decoded = dict(by_content)
    for name, special_token in specials.items():
        content = special_token if isinstance(special_token, str) else special_token.content
        earlier = by_content.get(content)
        if isinstance(special_token, str) or (name in NAMED_TOKENS and content in decoded):
            if earlier is None:
                by_content[content] = AddedToken(content=content, id=_NO_ID, special=True)
        else:
            by_content[content] = special_token if earlier is None else _overridden(earlier, special_token)
        if by_content[content].id == _NO_ID:
            token_id = ids.get(content, behind)
            behind += token_id == behind
            by_content[content] = dataclasses.replace(by_content[content], id=token_id)
    _report_ignored(stated, by_content)
    added = tuple(
        sorted(
            (token for token in by_content.values() if not _is_default(rules, token, ids)),
            key=lambda token: token.id,
        )
    )
    if len(problems) == count and tokens:
        problems += added_problems(added, tokens)
    return added if len(problems) == count else ()


def _overridden(earlier: AddedToken, token: AddedToken) -> AddedToken:
    """A token added again with other flags: `tokenizers` keeps a special token's `normalized`."""
    normalized = earlier.normalized if earlier.special and token.special else token.normalized
    return dataclasses.replace(token, id=earlier.id, normalized=normalized)


def _is_default(rules: TokenizerRules, token: AddedToken, ids: Mapping[str, int]) -> bool:
    """Whether a token is one of the kind's special tokens, with its default flags."""
    if token.content not in rules.special_tokens or (rules.special_behind and token.content not in ids):
        return False
    default = default_special(rules, token.content, ids.get(token.content, token.id))
    if not rules.has_options:
        # Only the token itself has its normalized form, and no normalizer changes it.
        token = dataclasses.replace(token, normalized=False)
    if rules.joins_spaces:
        # The normalizer removes white space anyway; transformers 5 leaves out the flag of <mask>.
        token = dataclasses.replace(token, lstrip=default.lstrip)
    return token == default


def _report_ignored(stated: StatedTokens, read: Mapping[str, AddedToken]) -> None:
    """Names tokens in the older files, which transformers ignores if there is a decoder."""
    if not stated.has_decoder:
        return
    older = dataclasses.replace(stated, config={})
    contents = [token if isinstance(token, str) else token.content for token in older.specials([]).values()]
    ignored = [content for content in dict.fromkeys([*contents, *(stated.added or {})]) if content not in read]
    if ignored:
        shown = ", ".join(map(repr, ignored[:5]))
        log_info(f"{MAP_NAME} and {ADDED_NAME} do not count beside {_DECODER} in {CONFIG_NAME}: without {shown}")


def _check_id(earlier: AddedToken | None, token: AddedToken, name: str, problems: list[str]) -> None:
    if earlier is not None and earlier.id != token.id:
        problems.append(
            f"{name} and {TOKENIZER_NAME} must give a token the same id; received {token.id} and {earlier.id} for "
            f"{token.content!r}; take all tokenizer files from one model"
        )


def _special(value: Any, where: str, problems: list[str]) -> AddedToken | str | None:
    if isinstance(value, str) and value:
        return value
    return _token(value, where, problems, default_id=_NO_ID, special=True)


def _objects(listed: Any, where: str, problems: list[str]) -> Iterator[AddedToken]:
    if listed is None:
        return
    if not isinstance(listed, list):
        problems.append(f"{where} must be a list; received {type(listed).__name__}")
        return
    for value in listed:
        token = _token(value, where, problems)
        if token is not None:
            yield token


def _decoder(listed: Any, problems: list[str]) -> Iterator[AddedToken]:
    where = f"{_DECODER} in {CONFIG_NAME}"
    if not isinstance(listed, dict):
        problems.append(f"{where} must be an object; received {type(listed).__name__}")
        return
    for index in listed:
        if not index.isdecimal() or len(index) > 9:
            problems.append(f"{where} must have ids as keys; received {index[:60]!r}")
            continue
        token = _token(listed[index], where, problems, default_id=int(index))
        if token is not None:
            yield token


def _token(
    value: Any, where: str, problems: list[str], default_id: int | None = None, special: bool | None = None
) -> AddedToken | None:
    """Reads a token from its object."""
    if not isinstance(value, dict) or not isinstance(value.get("content"), str) or not value["content"]:
        problems.append(f"a token in {where} must be a string or an object with content; received {value!r:.60}")
        return None
    wrong = [flag for flag in FLAGS if not isinstance(value.get(flag, False), bool)]
    problems += [f"{flag} of {value['content']!r:.60} in {where} must be true or false" for flag in wrong]
    problems += unknown_keys(value, _FIELDS, f"{value['content']!r:.60} in {where}")
    token_id = value.get("id", default_id)
    if type(token_id) is not int or token_id >= 1 << 31:
        problems.append(f"the id of {value['content']!r:.60} in {where} must be a whole number; received {token_id!r}")
        return None
    if wrong:
        return None
    flags = {flag: value[flag] for flag in FLAGS if flag in value} | ({} if special is None else {"special": special})
    # transformers' default.
    flags.setdefault("normalized", not flags.get("special", False))
    return AddedToken(content=value["content"], id=token_id, **flags)


def write_added_tokens(folder: Path, vocabulary: Vocabulary) -> dict[str, Any]:
    """Writes added_tokens.json for old transformers versions, and returns keys for tokenizer_config.json."""
    if not vocabulary.added:
        return {}
    base = set(vocabulary.base_tokens())
    behind = {token.content: token.id for token in vocabulary.added if token.content not in base}
    if behind:
        write_json(folder / ADDED_NAME, behind)
    specials = vocabulary.rules.special_tokens
    return {
        "added_tokens_decoder": {
            str(token.id): {"content": token.content, **{flag: getattr(token, flag) for flag in FLAGS}}
            for token in vocabulary.added
        },
        LISTED_TOKENS[0]: [
            token.content for token in vocabulary.added if token.special and token.content not in specials
        ],
    }
