"""A loaded checkpoint: encoding many texts gives the same tokens as one by one, and how scores are computed."""

import threading
from dataclasses import replace

import pytest
from hf import tiny
from hf.asking import batch_plan
from hf.parity import CHOICES, LONG
from hf.test_score import CLOSE, reference

from calipers.clients import Continuation
from calipers.clients.huggingface import LoadOptions
from calipers.clients.huggingface.batches import BatchBounds, PrefixCache
from calipers.clients.huggingface.checkpoint import BatchPlan, load
from calipers.clients.huggingface.score import scores

TEXTS = ["", " ", "the cat", " the cat", "<s>the cat", "<s> sat", "</s>", "日本 é", "a\n\nb", "the" * 40, "<|turn|>"]


@pytest.mark.parametrize("kind", ["gpt2", "llama", "headless", "pieces"])
@pytest.mark.parametrize("given", [{}, {"add_bos_token": False}, {"add_bos_token": True}])
def test_many_texts_are_encoded_as_one_by_one(checkpoints, kind, given):
    checkpoint = load(checkpoints["llama" if kind == "pieces" else kind], LoadOptions.of(given))
    if kind == "pieces":
        checkpoint = replace(checkpoint, tokenizer=tiny.pieces())
    asked = [(text, whole) for text in TEXTS for whole in (True, False)]
    checkpoint.tokenizer.model_max_length = 9
    cut = checkpoint.encode("the cat sat " * 9, cut=True)  # it leaves a limit in the tokenizer
    found = checkpoint.encode_all([*asked, *asked])
    assert found == {key: checkpoint.encode(*key) for key in asked}
    assert checkpoint.encode("the cat sat " * 9, cut=True) == cut
    assert len(cut) <= 9


def test_a_text_that_cannot_be_encoded_is_left_to_whoever_asks_for_it(checkpoints):
    checkpoint = load(checkpoints["llama"])
    assert checkpoint.encode_all([("the", True), ("\ud800", True)]) == {}
    assert checkpoint.encode_all([]) == {}


@pytest.mark.parametrize(
    ("kind", "linear"),
    [("gpt2", True), ("llama", True), ("gemma", False)],  # Gemma 2 bounds its scores
)
@pytest.mark.parametrize("keeps", [True, False])
@pytest.mark.parametrize("places", [3, 2**20])
def test_scores_that_are_no_linear_function_of_states_are_the_models_own(checkpoints, kind, linear, keeps, places):
    """With and without the argument that omits scores at unwanted places."""
    checkpoint = load(checkpoints[kind])
    assert checkpoint.linear is linear
    assert "logits_to_keep" in checkpoint.takes
    if not keeps:
        checkpoint = replace(checkpoint, takes=checkpoint.takes - {"logits_to_keep"})
    bounds = BatchBounds(64, 600, threading.Event(), BatchPlan(**batch_plan(places=places)))
    asked = [(context, choice) for context in ("hello", LONG[:39]) for choice in CHOICES]
    calls = [[Continuation(*pair)] for pair in asked]
    ours = [call[0] for call in scores(checkpoint, PrefixCache(checkpoint, bounds.plan), calls, bounds)]
    wanted = [reference(checkpoints[kind], *pair) for pair in asked]
    assert [one.logprob for one in ours] == pytest.approx([one[0] for one in wanted], **CLOSE)
    assert [(one.greedy, one.tokens) for one in ours] == [one[1:] for one in wanted]


@pytest.mark.parametrize("kind", ["llama", "gemma", "mamba"])
def test_the_order_of_calls_changes_no_digit(checkpoints, kind):
    """The batches depend only on the texts, so that even the last digit is the same."""
    bounds = BatchBounds(4, 600, threading.Event(), BatchPlan(**batch_plan(tokens=60)))
    asked = [(LONG[:n], choice) for n in range(5, 60, 6) for choice in CHOICES]
    found = []
    for order in (asked, asked[::-1]):
        checkpoint = load(checkpoints[kind])
        ends = scores(
            checkpoint, PrefixCache(checkpoint, bounds.plan), [[Continuation(*pair)] for pair in order], bounds
        )
        found.append(dict(zip(order, [end[0].logprob for end in ends], strict=True)))
    assert found[0] == found[1]
