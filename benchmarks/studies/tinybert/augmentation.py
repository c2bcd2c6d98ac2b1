"""Speed of augmentation: batches of all words of many sentences, against one network call per word.

    python -m studies tinybert/augmentation [--quick]

SST-2's training sentences, a 6x384 masked-LM network (random weights, BERT's vocabulary), 25-dimensional GloVe, the
words that the authors' code replaces, 15 candidates, 20 copies, two threads. Timing covers the way from texts to texts:
tokenization, network, neighbours, and drawing of the copies. There are three comparisons:

- our default against the authors' way: one call per word, the pair "masked [SEP] original" as input, the vocabulary's
  logits at every position, all of them sorted, and one search of the vectors per word;
- our code with that same pair as input, against the authors' way;
- our default against one call per word with our input and logits for the masked position only, which shows the gain
  from batching alone.

The baselines' calls are compiled too and the sentence is tokenized once, unlike in the authors' code. The candidates of
both ways are compared before timing. Rounds alternate, in alternating order. Each takes other sentences, evenly spread
over all lengths, so that both sides get similar sentences.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Iterator
from typing import Any

from pocketbert import progress
from pocketbert_bench import results
from studies.shared_data import shared_data

THREADS = 2
PRESET = "minilmv2_6l_384d"
COPIES = 20
CANDIDATES = 15
# About the same duration on both sides, so that the machine's load is the same.
SENTENCES_A_ROUND = {"batched": 384, "one call per word": 32}
TARGET = 8.0

# Texts → `Sentence`s.
Find = Callable[[list[str]], list[Any]]


def run(quick: bool) -> dict[str, Any]:
    """Times both ways.

    Args:
      quick: two rounds instead of seven.

    Returns:
      Content of a result file: sentences per second of both ways in the three comparisons.

    Raises:
      UserError: the data are missing.
    """
    vocabulary = shared_data("vocab/bert-base-uncased.vocab.txt")
    vectors_file = shared_data("glove/glove.twitter.27B.25d.subset11925.txt")
    os.environ["TF_NUM_INTRAOP_THREADS"] = os.environ["TF_NUM_INTEROP_THREADS"] = str(THREADS)
    from pocketbert.augmentation.glove import read_glove
    from pocketbert.configs import TaskConfig
    from pocketbert.data.glue import read_glue
    from pocketbert.model import from_preset
    from pocketbert.tokenizers.wordpiece import WordPieceTokenizer

    model = from_preset(PRESET, [TaskConfig(kind="masked_lm")], WordPieceTokenizer(vocabulary), seed=0)
    vectors = read_glove(vectors_file)
    texts = list(dict.fromkeys(read_glue("sst2", shared_data("glue"), "train").texts))
    texts.sort(key=len)
    ours = {mode: batched(model, vectors, mode) for mode in ("alone", "with-original")}
    peers = {mode: one_call_a_word(model, vectors, mode) for mode in ("alone", "with-original")}
    for mode, find in ours.items():
        _check_equal(find(texts[::4500]), peers[mode](texts[::4500]))
    comparisons: list[tuple[str, str, Find, str, Find, float | None]] = [
        (
            "augmentation, default, against the authors' way",
            "batched; the masked sentence alone against masked [SEP] original with all logits",
            ours["alone"],
            "one call per word, as the authors' code",
            peers["with-original"],
            TARGET,
        ),
        (
            "augmentation, the same input pair, against the authors' way",
            "batched; masked [SEP] original on both sides",
            ours["with-original"],
            "one call per word, as the authors' code",
            peers["with-original"],
            None,
        ),
        (
            "augmentation, the same input, one call per word with one position's logits",
            "batched; the masked sentence alone on both sides",
            # A new object, because this one caches sentences.
            batched(model, vectors, "alone"),
            "one call per word, one position",
            peers["alone"],
            None,
        ),
    ]
    ratios = []
    for name, description, mine, peer_name, peer, target in comparisons:
        progress.log_info(name)
        samples = _rounds(mine, peer, texts, rounds=2 if quick else 7)
        ratios.append(
            results.ratio(
                name=name,
                description=f"{description}; SST-2, 6x384, {CANDIDATES} candidates, {COPIES} copies, {THREADS} threads",
                ours="pocketbert",
                peer=peer_name,
                unit="sentences/s",
                ours_samples=samples["batched"],
                peer_samples=samples["one call per word"],
                better="higher",
                target=target,
            )
        )
    notes = [
        f"rounds of {SENTENCES_A_ROUND['batched']} sentences in batches, of {SENTENCES_A_ROUND['one call per word']} "
        "with one call per word; random weights, which do not change the time; full data sets run in chunks of 2,048 "
        "sentences, which fill batches better"
    ]
    return results.to_json(results.result_file("augmentation", quick=quick, ratios=ratios, notes=notes))


def _check_equal(ours: list[Any], peers: list[Any]) -> None:
    words = [
        (mine.start, mine.end, {*mine.candidates}) == (his.start, his.end, {*his.candidates})
        for sentence, other in zip(ours, peers, strict=True)
        for mine, his in zip(sentence.slots, other.slots, strict=True)
    ]
    # Words of nearly equal probability may swap at the end of the list.
    if sum(words) < 0.95 * len(words):
        raise AssertionError("both ways must find the same candidates for a comparison; they differ")


def _rounds(mine: Find, peer: Find, ordered: list[str], rounds: int) -> dict[str, list[float]]:
    from pocketbert.augmentation.augmented_rows import augmented_rows

    options = _options("alone")
    sides = {"batched": mine, "one call per word": peer}
    rates: dict[str, list[float]] = {name: [] for name in sides}
    for turn in progress.track(range(-1, rounds), "rounds", "round"):
        for name in list(sides)[:: 1 if turn % 2 else -1]:
            # Start elsewhere each turn: cached sentences would cost nothing.
            stride = len(ordered) // SENTENCES_A_ROUND[name]
            texts = ordered[(turn + 1) * stride // (rounds + 1) :: stride]
            start = time.perf_counter()
            for number, sentence in enumerate(sides[name](texts)):
                augmented_rows([sentence], number, options)
            elapsed = time.perf_counter() - start
            # The first turn warms up.
            if turn >= 0:
                rates[name].append(len(texts) / elapsed)
    return rates


def _options(mode: Any) -> Any:
    from pocketbert.augmentation.augmented_rows import AugmentationOptions

    return AugmentationOptions(
        copies=COPIES, num_candidates=CANDIDATES, words="content", masked_input=mode, fill_candidates=False
    )


def batched(model: Any, vectors: Any, mode: str) -> Find:
    """PocketBERT's implementation.

    Args:
      model: a model with a masked-LM head.
      vectors: the word vectors.
      mode: `alone` or `with-original`, the network's input.
    """
    from pocketbert.augmentation.word_candidates import WordCandidates

    return WordCandidates(model, vectors, _options(mode))


def one_call_a_word(model: Any, vectors: Any, mode: str) -> Find:
    """The authors' implementation: one call of the network or one search per word of each sentence.

    Args:
      model: a model with a masked-LM head.
      vectors: the word vectors.
      mode: `with-original`: the authors' input, logits and sorting; `alone`: only the necessary work.
    """
    import tensorflow as tf

    from pocketbert.augmentation.augmented_rows import Sentence, Slot
    from pocketbert.augmentation.word_candidates import is_eligible
    from pocketbert.tokenizers.vocabulary import SPECIAL_TOKENS, read_vocabulary

    tokenizer = model.tokenizer
    pieces = read_vocabulary(tokenizer.vocab_path)
    with_original = mode == "with-original"
    row = tf.TensorSpec([1, None], tf.int32)

    @tf.function(input_signature=[row, row, tf.TensorSpec([], tf.int32)], autograph=False)
    def best(ids: tf.Tensor, segments: tf.Tensor, place: tf.Tensor) -> tf.Tensor:
        inputs = {"input_word_ids": ids, "input_mask": tf.ones_like(ids), "input_type_ids": segments}
        if with_original:
            # The authors score all positions and sort the whole vocabulary.
            return tf.argsort(model(inputs)["prediction_logits"][0, place], direction="DESCENDING")[:CANDIDATES]
        inputs["masked_lm_positions"] = tf.reshape(place, [1, 1])
        return tf.math.top_k(model(inputs)["prediction_logits"][0, 0], CANDIDATES).indices

    def candidates(ids: list[int], place: int) -> tuple[str, ...]:
        masked = [tokenizer.cls_token_id, *ids, tokenizer.sep_token_id]
        masked[place + 1] = tokenizer.mask_token_id
        second = [*ids, tokenizer.sep_token_id] if with_original else []
        segments = [0] * len(masked) + [1] * len(second)
        order = best(tf.constant([masked + second]), tf.constant([segments]), tf.constant(place + 1)).numpy()
        found = [pieces[each] for each in order]
        return tuple(
            piece for piece in found if not piece.startswith(("##", "[unused")) and piece not in SPECIAL_TOKENS
        )

    def slots(text: str) -> Iterator[Slot]:
        tokens = tokenizer.tokenize_with_offsets([text])
        ids, starts, ends = (each[0].numpy().tolist() for each in tokens)
        firsts = [place for place, each in enumerate(ids) if not pieces[each].startswith("##")]
        for first, behind in itertools.pairwise([*firsts, len(ids)]):
            form = "".join(pieces[each].removeprefix("##") for each in ids[first:behind])
            if is_eligible(form, "content"):
                several = behind - first > 1
                found = vectors.neighbours([form], CANDIDATES).get(form) if several else candidates(ids, first)
                if found:
                    yield Slot(starts[first], ends[behind - 1], found)

    return lambda texts: [Sentence(text, tuple(slots(text))) for text in texts]
