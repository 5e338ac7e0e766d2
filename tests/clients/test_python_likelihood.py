import asyncio

import msgspec
import numpy as np
import pytest
from clients.asking import request

from calipers.clients import Connection, Continuation, LikelihoodModel, Likelihoods, Rolling, Scored, connect
from calipers.clients.python import OwnScorer
from calipers.clients.secrets import Secrets
from calipers.errors import ClientError

TEXTS = [Continuation("q", " a"), Rolling("whole")]
CODE = """\
from calipers.clients import Rolling, Scored

class Model:
    def complete(self, request): ...

    {how} score(self, requests):
        return [Scored(-2.0 if isinstance(one, Rolling) else -1.0, True, 1) for one in requests]

def answer(prompt):
    return "text"
"""


@pytest.mark.parametrize("how", ["def", "async def"])
def test_an_object_with_score_gives_likelihoods(tmp_path, monkeypatch, how):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.py").write_text(CODE.format(how=how))
    client = connect("python/own.py:Model", Connection())
    assert isinstance(client, LikelihoodModel)
    assert asyncio.run(client.score(TEXTS)) == [Scored(-1.0, True, 1), Scored(-2.0, True, 1)]
    asyncio.run(client.close())
    assert not isinstance(connect("python/own.py:answer", Connection()), LikelihoodModel)


class Writer:
    def __init__(self):
        self.closed = False

    async def complete(self, request):
        return request.prompt

    async def close(self):
        self.closed = True


def ended(score):
    try:
        return asyncio.run(OwnScorer(Writer(), score, Secrets()).score(TEXTS))
    except ClientError as error:
        return error.kind, str(error)


def failing(requests):
    raise ValueError("no model")


def refusing(requests):
    raise ClientError("too long", kind="context")


@pytest.mark.parametrize(
    ("score", "end"),
    [
        (failing, ("python", "ValueError: no model")),
        (refusing, ("context", "too long")),
        (lambda requests: None, ("python", "score() returned NoneType for 2 texts; expected a Scored for each")),
        (
            lambda requests: [Scored(0.0, True, 0)],
            ("python", "score() returned list for 2 texts; expected a Scored for each"),
        ),
        (lambda requests: [-1.0, -2.0], ("python", "score() returned list for 2 texts; expected a Scored for each")),
        (
            lambda requests: [Scored("low", True, 1)] * 2,
            ("python", "score() returned an invalid Scored: ValueError: could not convert string to float: 'low'"),
        ),
    ],
)
def test_what_is_no_likelihood_fails_the_call(score, end):
    assert ended(score) == end


def test_numbers_of_numpy_are_logged():
    scored = Scored(np.float64(-1.5), np.bool_(True), np.int64(2), np.int64(3))
    model = OwnScorer(Writer(), lambda requests: [scored] * len(requests), Secrets())
    completion = asyncio.run(Likelihoods(model, model).complete(request([{"text": "whole"}])))
    assert completion.text == '[{"logprob":-1.5,"greedy":true,"tokens":2,"chars":5,"bytes":5}]'
    assert msgspec.json.encode(completion.usage).startswith(b'{"input_tokens":3,"latency_s":')


def test_it_still_answers_and_closes():
    writer = Writer()
    client = OwnScorer(writer, failing, Secrets())
    assert asyncio.run(client.complete(request("hello"))) == "hello"
    asyncio.run(client.close())
    assert writer.closed
