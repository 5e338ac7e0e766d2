"""Likelihoods against the plainest way to compute them; those of lm-evaluation-harness are in test_parity."""

from functools import cache

import pytest
from hf.asking import batch_plan, in_turn, score
from hf.parity import CHOICES, EXAMPLES, LONG

from calipers.clients import Continuation, Rolling
from calipers.clients.huggingface import batches
from calipers.clients.huggingface import score as scoring

CLOSE = {"rel": 1e-5, "abs": 1e-5}  # both add hundreds of numbers of 32 bits, in another order


@cache
def parts(path):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    return AutoTokenizer.from_pretrained(path), AutoModelForCausalLM.from_pretrained(path)


@cache
def reference(path, context, continuation):
    """One text, one pass, no batch: the sum over the last tokens of a sequence that the model reads whole."""
    import torch

    words, model = parts(path)
    before, whole = words(context)["input_ids"], words(context + continuation)["input_ids"]
    with torch.no_grad():
        table = model(torch.tensor([whole])).logits[0].log_softmax(-1)
    places = range(len(before), len(whole))
    likely = all(int(table[place - 1].argmax()) == whole[place] for place in places)
    return sum(float(table[place - 1, whole[place]]) for place in places), likely, len(places)


@pytest.mark.parametrize("kind", ["gpt2", "llama", "bloom", "gemma", "mamba"])
@pytest.mark.parametrize("most", [1, 3, 64])
@pytest.mark.parametrize("family", [0, 10**9])  # every context read by itself; none
@pytest.mark.parametrize("prefix", [0, 10**9])  # and so what several contexts begin with
def test_sharing_and_batching_change_nothing(checkpoints, kind, most, family, prefix, monkeypatch):
    monkeypatch.setattr(scoring, "WORTH", family)
    monkeypatch.setattr(batches, "WORTH", prefix)
    contexts = [LONG[:39], LONG[:25], "hello", LONG[:39] + " and then the"]
    asked = [(context, choice) for context in contexts for choice in [*CHOICES, ", not"]]
    calls = score(
        checkpoints[kind], *[[Continuation(*pair) for pair in asked if pair[0] == one] for one in contexts], most=most
    )
    ours = [one for call in calls for one in call]
    wanted = [reference(checkpoints[kind], *pair) for pair in asked]
    assert [one.logprob for one in ours] == pytest.approx([one[0] for one in wanted], **CLOSE)
    assert [(one.greedy, one.tokens) for one in ours] == [one[1:] for one in wanted]


@pytest.fixture
def read(monkeypatch):
    """The tokens that the model reads, call by call, fillers included."""
    found = []
    plain = batches.ForwardPass.__call__

    def counting(self, rows, wanted, **more):
        found.append(sum(map(len, rows)))
        return plain(self, rows, wanted, **more)

    monkeypatch.setattr(batches.ForwardPass, "__call__", counting)
    return found


def test_what_is_shared_is_read_once(checkpoints, read):
    letters = [Continuation("hello world", letter) for letter in "ABCD"]
    score(checkpoints["gpt2"], letters)
    assert read == [2]  # "hello" and " world": one row for four choices
    read.clear()
    score(checkpoints["gpt2"], [Continuation(LONG[:89], choice) for choice in CHOICES])
    assert read == [27, 15]  # the context, and what three choices read after it: 1, 4 and 5 tokens, filled up
    read.clear()
    score(checkpoints["gpt2"], [*letters, *letters])
    assert read == [2]  # the same question twice


def test_examples_before_several_questions_are_read_once(checkpoints, read):
    """In this batch, and in the next ones: after the first call the model remembers them."""
    questions = [[Continuation(EXAMPLES * 4 + question, " the cat")] for question in ("the", "hello", "not", "on")]
    path = checkpoints["bloom"], checkpoints["long"]
    for sharing, calls in zip((False, True), path):
        read.clear()
        score(calls, *questions)
        assert (len(read) > 1) == sharing
    examples, rest = read
    assert examples > 20 * rest / len(questions)
    read.clear()
    assert len(in_turn(checkpoints["long"], questions)) == 4
    assert sum(read) < 3 * examples  # alone, the first two read all; then the second's beginning is known


def test_a_family_too_large_for_one_call_is_parted(checkpoints, read):
    """Its context is read once more for each part; no call asks for more than it may."""
    choices = [Continuation(LONG[:89], f" the dog {n}") for n in range(30)]
    (ours,) = score(checkpoints["llama"], choices, batch=batch_plan(tokens=60))
    assert max(read) <= 60
    (whole,) = score(checkpoints["llama"], choices)
    assert [one.logprob for one in ours] == pytest.approx([one.logprob for one in whole], **CLOSE)


def test_calls_are_cut_to_what_a_processor_reads_at_once(checkpoints, read):
    texts = [Rolling(LONG[:length]) for length in range(20, 60, 4)]
    (ours,) = score(checkpoints["llama"], texts, batch=batch_plan(tokens=40))
    assert max(read) <= 40
    (whole,) = score(checkpoints["llama"], texts)
    assert [one.logprob for one in ours] == pytest.approx([one.logprob for one in whole], **CLOSE)


@pytest.mark.parametrize(
    ("text", "kind", "said"),
    [
        (Continuation("the", ""), "prompt", "the continuation '' has no tokens of its own"),
        (Continuation("the", "n"), "prompt", "the continuation 'n' has no tokens of its own"),  # "then" is one token
        (Continuation("a", LONG), "context", "the continuation has 81 tokens, but the model's context length is 64"),
        (Continuation("a", "\ud800"), "prompt", "the text cannot be encoded: it is not valid Unicode"),
    ],
)
def test_a_text_without_a_likelihood_fails_its_own_call_only(checkpoints, text, kind, said):
    failed, fine = score(checkpoints["gpt2"], [Continuation("the", " cat"), text], [Continuation("the", " cat")])
    assert (failed.kind, failed.retry, str(failed)) == (kind, False, said)
    assert fine[0].tokens == 1


def test_the_same_text_with_another_border(checkpoints):
    """One row serves both, each by its own places; lm-eval 0.4.13 takes the shorter one's from the start."""
    both = [Continuation("", "the cat sat"), Continuation("<s>the cat", " sat")]
    (together,) = score(checkpoints["llama"], both)
    apart = [call[0] for call in score(checkpoints["llama"], both[:1], most=1) + score(checkpoints["llama"], both[1:])]
    assert [one.logprob for one in together] == pytest.approx([one.logprob for one in apart], **CLOSE)
    assert [one.tokens for one in together] == [3, 1]


def test_a_context_of_spaces_is_the_beginning(checkpoints):
    """Its spaces belong to what follows, and nothing is left of it; lm-eval stops with an assertion there."""
    ((spaces, plain),) = score(checkpoints["gpt2"], [Continuation("  ", "the"), Continuation("", "  the")])
    assert spaces == plain


def test_no_texts(checkpoints):
    assert score(checkpoints["gpt2"], []) == [[]]
