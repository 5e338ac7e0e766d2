"""Our model gives every answer of lm-evaluation-harness' ``hf`` model; where that one fails, ours does not."""

import json

import pytest
from hf.asking import ask, request, score
from hf.parity import ASKED, FIXTURE, KINDS, ODD_ASKED, ODD_PAIRS, PAIRS, WHOLE
from hf.tiny import LENGTH

from calipers.clients import Continuation, Rolling, Scored
from calipers.clients.huggingface import batches
from calipers.errors import ClientError

THEIRS = json.loads(FIXTURE.read_text())
CLOSE = {"rel": 1e-5, "abs": 1e-5}  # both sum hundreds of 32-bit numbers, in different orders


def written(text, how):
    """A request as lm-evaluation-harness makes it: greedy, and a prompt that is too long is cut at its beginning."""
    until = how.get("until", ())
    stop = (until,) if isinstance(until, str) else until
    return request(text, max_tokens=how["max_gen_toks"], temperature=0.0, stop=stop, extra={"truncate": "left"})


@pytest.fixture(params=[0, 128])
def worth(request, monkeypatch):
    """With every common prefix computed separately, and with those that save enough (here none)."""
    monkeypatch.setattr(batches, "WORTH", request.param)


@pytest.mark.parametrize("kind", KINDS)
def test_continuations(checkpoints, kind, worth):
    (ours,) = score(checkpoints[kind], [Continuation(*pair) for pair in PAIRS])
    for pair, mine, (logprob, greedy) in zip(PAIRS, ours, THEIRS[kind]["loglikelihood"], strict=True):
        assert mine.logprob == pytest.approx(logprob, **CLOSE), pair
        assert mine.greedy == greedy, pair


def test_some_continuations_are_what_the_model_would_say():
    assert all({greedy for _, greedy in THEIRS[kind]["loglikelihood"]} == {True, False} for kind in ("gpt2", "llama"))


@pytest.mark.parametrize("kind", KINDS)
def test_continuations_that_may_have_no_likelihood(checkpoints, kind):
    """lm-evaluation-harness stops at the first; ours fails only for that text, and reads spaces as no context."""
    ours = score(checkpoints[kind], *[[Continuation(*pair)] for pair in ODD_PAIRS])
    for pair, mine, theirs in zip(ODD_PAIRS, ours, THEIRS[kind]["odd loglikelihood"], strict=True):
        context, continuation = pair
        if isinstance(theirs, list):
            assert mine[0].logprob == pytest.approx(theirs[0], **CLOSE), pair
            assert mine[0].greedy == theirs[1], pair
        elif context and not context.strip():
            (same,) = score(checkpoints[kind], [Continuation("", context + continuation)])
            assert mine[0].logprob == pytest.approx(same[0].logprob, **CLOSE)
        else:
            assert isinstance(mine, ClientError), pair
            assert mine.kind in ("prompt", "context")


@pytest.mark.parametrize("kind", KINDS)
def test_whole_texts(checkpoints, kind):
    (ours,) = score(checkpoints[kind], [Rolling(text) for text in WHOLE])
    assert [one.logprob for one in ours] == pytest.approx(THEIRS[kind]["rolling"], **CLOSE)
    assert max(one.tokens for one in ours) > 2 * LENGTH[kind]  # some take several windows
    if kind != "llama":
        assert ours[0] == Scored(0.0, True, 0)  # no text, no tokens; the other kind puts one before it


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("most", [1, 4, 64])
def test_answers(checkpoints, kind, most, worth):
    ends = ask(checkpoints[kind], *[written(*one) for one in ASKED], api="completions", most=most)
    assert [end.text for end in ends] == THEIRS[kind]["generated"]
    assert {end.finish_reason for end in ends} >= {"length"}


@pytest.mark.parametrize("kind", KINDS)
def test_answers_that_may_not_be_written(checkpoints, kind):
    """An empty prompt is the beginning of a text; an answer as long as the context leaves no room for a prompt."""
    (nothing, endless) = ask(checkpoints[kind], *[written(*one) for one in ODD_ASKED], api="completions")
    theirs = THEIRS[kind]["odd generated"]
    assert nothing.text == theirs[0] if isinstance(theirs[0], str) else nothing.text
    assert theirs[1] == {"error": "AssertionError"}
    said = f"max_tokens is 4000, but the model's context length is {LENGTH[kind]} tokens, including the prompt"
    assert (endless.kind, str(endless)) == ("context", said)
