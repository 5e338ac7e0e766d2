"""Likelihoods against lm-evaluation-harness' own numbers, and against the plainest way to compute them."""

import json
from functools import cache

import pytest
from hf.asking import ask, request, score
from hf.make_fixture import ASKED, CHOICES, FIXTURE, LONG, PAIRS, WHOLE
from hf.tiny import LENGTH

from calipers.run.clients import hf_score
from calipers.run.likelihood import Continuation, Rolling, Scored

THEIRS = json.loads(FIXTURE.read_text())
KINDS = [kind for kind in ("gpt2", "llama") if kind in THEIRS]
CLOSE = {"rel": 1e-5, "abs": 1e-5}  # both add hundreds of numbers of 32 bits, in another order


@pytest.mark.parametrize("kind", KINDS)
def test_continuations_as_lm_eval_scores_them(checkpoints, kind):
    (ours,) = score(checkpoints[kind], [Continuation(*pair) for pair in PAIRS])
    for pair, mine, (logprob, greedy) in zip(PAIRS, ours, THEIRS[kind]["loglikelihood"], strict=True):
        assert mine.logprob == pytest.approx(logprob, **CLOSE), pair
        assert mine.greedy == greedy, pair
    assert {one.greedy for one in ours} == {True, False}


@pytest.mark.parametrize("kind", KINDS)
def test_whole_texts_as_lm_eval_scores_them(checkpoints, kind):
    (ours,) = score(checkpoints[kind], [Rolling(text) for text in WHOLE])
    assert [one.logprob for one in ours] == pytest.approx(THEIRS[kind]["rolling"], **CLOSE)
    assert max(one.tokens for one in ours) > 2 * LENGTH[kind]  # some take several windows
    if kind == "gpt2":
        assert ours[0] == Scored(0.0, True, 0)  # no text, no tokens; the other kind puts one before it


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
@pytest.mark.parametrize("worth", [0, 10**9])  # every context read by itself; none
def test_sharing_and_batching_change_nothing(checkpoints, kind, most, worth, monkeypatch):
    monkeypatch.setattr(hf_score, "WORTH", worth)
    contexts = [LONG[:39], LONG[:25], "hello", LONG[:39] + " and then the"]
    asked = [(context, choice) for context in contexts for choice in [*CHOICES, ", not"]]
    calls = score(
        checkpoints[kind], *[[Continuation(*pair) for pair in asked if pair[0] == one] for one in contexts], most=most
    )
    ours = [one for call in calls for one in call]
    wanted = [reference(checkpoints[kind], *pair) for pair in asked]
    assert [one.logprob for one in ours] == pytest.approx([one[0] for one in wanted], **CLOSE)
    assert [(one.greedy, one.tokens) for one in ours] == [one[1:] for one in wanted]


def test_what_is_shared_is_read_once(checkpoints, monkeypatch):
    """Counted in tokens that the model reads, fillers included."""
    read = []
    plain = hf_score.Scorer._read

    def counting(self, tokens, kept, **more):
        read.append(sum(map(len, tokens)))
        return plain(self, tokens, kept, **more)

    monkeypatch.setattr(hf_score.Scorer, "_read", counting)
    letters = [Continuation("hello world", letter) for letter in "ABCD"]
    score(checkpoints["gpt2"], letters)
    assert read == [2]  # "hello" and " world": one row for four choices
    read.clear()
    score(checkpoints["gpt2"], [Continuation(LONG[:89], choice) for choice in CHOICES])
    assert read == [27, 15]  # the context, and what three choices read after it: 1, 4 and 5 tokens, filled up
    read.clear()
    score(checkpoints["gpt2"], [*letters, *letters])
    assert read == [2]  # the same question twice


@pytest.mark.parametrize(
    ("text", "kind", "said"),
    [
        (Continuation("the", ""), "prompt", "the continuation '' has no tokens of its own"),
        (Continuation("the", "n"), "prompt", "the continuation 'n' has no tokens of its own"),  # "then" is one token
        (Continuation("a", LONG), "context", "the continuation has 81 tokens and the model reads 64"),
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


@pytest.mark.parametrize("kind", KINDS)
def test_answers_as_lm_eval_generates_them(checkpoints, kind):
    requests = [request(text, max_tokens=how["max_gen_toks"], stop=how.get("until", ())) for text, how in ASKED]
    ends = ask(checkpoints[kind], *requests, api="completions", most=4)
    assert [end.text for end in ends] == THEIRS[kind]["generated"]
    assert {end.finish_reason for end in ends} == {"stop", "length"}
