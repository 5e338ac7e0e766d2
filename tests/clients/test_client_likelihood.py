import asyncio

import pytest
from clients.asking import request

from calipers.clients import (
    Continuation,
    Likelihoods,
    Price,
    Rolling,
    Scored,
    as_prompt,
    likelihoods,
    read_back,
    texts_of,
    written,
)
from calipers.errors import ClientError, InputError

TEXTS = [
    [Continuation("q", " a"), Continuation("q", " b")],
    [Continuation("q", " a"), Continuation("", " a"), Continuation("q", " b")],  # the same context, but not adjacent
    [Continuation("one", " t"), Continuation("two", " t")],
    [Rolling("")],
    [Rolling("a"), Rolling("b"), Continuation("", "c")],
]


@pytest.mark.parametrize("texts", TEXTS)
def test_a_prompt_says_which_texts(texts):
    assert texts_of(as_prompt(texts)) == texts


def test_a_context_stands_once():
    assert as_prompt(TEXTS[0]) == [{"context": "q", "continuations": [" a", " b"]}]


@pytest.mark.parametrize("prompt", ["a question", [], [{"role": "user", "content": "a question"}]])
def test_a_question_asks_for_no_likelihood(prompt):
    with pytest.raises(ClientError, match="the request is not a log-likelihood request"):
        texts_of(prompt)


def test_what_the_log_keeps_is_read_back():
    texts = [Continuation("q", " \u00e9"), Rolling("whole")]
    first, second = read_back(written(texts, [Scored(-1.25, True, 1), Scored(-0.1 - 0.2, False, 5)]))
    assert (first.logprob, first.greedy, first.tokens, first.chars, first.bytes) == (-1.25, True, 1, 2, 3)
    assert (second.logprob, second.chars) == (-0.1 - 0.2, 5)  # to the last digit


@pytest.mark.parametrize("text", ["", "A", "[1]", '[{"logprob": "x"}]', "\ud800"])
def test_an_answer_is_no_likelihood(text):
    with pytest.raises(InputError, match=r"the completion is .*; expected log-likelihoods"):
        read_back(text)


class Model:
    """A client whose likelihood of a text is its length."""

    def __init__(self, logprob=None):
        self.logprob, self.closed, self.notes = logprob, False, ["a word"]

    async def complete(self, request):
        raise AssertionError("it was not to write")

    async def score(self, requests):
        return [Scored(self.logprob or -1.0 * place, False, 1, 10, 1) for place, _ in enumerate(requests)]

    async def close(self):
        self.closed = True


def ask(model, price=None):
    client = Likelihoods(model, likelihoods(model, "python/m"), price)
    completion = asyncio.run(client.complete(request(as_prompt(TEXTS[0]))))
    asyncio.run(client.close())
    assert client.notes == ("a word",)
    return completion


def test_likelihoods_go_through_the_loop_as_a_completion():
    model = Model()
    found = ask(model, Price(2.0, 4.0))
    assert [one.logprob for one in read_back(found.text)] == [0.0, -1.0]
    assert (found.usage["input_tokens"], found.usage["output_tokens"]) == (20, 2)
    assert found.usage["cost_usd"] == pytest.approx(48e-6)
    assert model.closed


@pytest.mark.parametrize("number", ["nan", "-inf", "inf"])
def test_no_finite_number_is_no_likelihood(number):
    """JSON would have null for it, and the log could not be scored."""
    with pytest.raises(ClientError, match=f"a log-likelihood is {number}; expected a finite number"):
        ask(Model(float(number)))


def test_a_model_that_only_writes_is_refused():
    class Writer:
        async def complete(self, request): ...

        async def close(self): ...

    with pytest.raises(
        InputError, match=(r"model 'litellm/x' does not return log-likelihoods; " r"expected hf/PATH, or openai/")
    ):
        likelihoods(Writer(), "litellm/x")
