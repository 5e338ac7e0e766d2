"""Draws from known chances."""

import pytest

from calipers.clients import Request
from calipers.clients.huggingface.generate import Sampling, draw_token, sampling_of
from calipers.errors import ClientError

CHANCES = [0.1, 0.4, 0.2, 0.3]


def settings(**given):
    return sampling_of(Request("t", 0, "p", **given))


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, None),
        ({"temperature": 0.0, "seed": 1}, None),
        ({"temperature": 0.7, "seed": 1}, Sampling(0.7, 1)),
        ({"extra": {"do_sample": True}}, Sampling(1.0)),  # transformers' own meaning of it
        ({"extra": {"do_sample": False}, "temperature": 0.7}, None),
        ({"extra": {"top_k": 5, "top_p": 0.9, "min_p": 0.1}, "temperature": 1.0}, Sampling(1.0, None, 5, 0.9, 0.1)),
        ({"extra": {"top_p": 0.9}}, None),  # it alone asks for no draw
    ],
)
def test_what_a_request_asks_for(given, expected):
    assert settings(**given) == expected


@pytest.mark.parametrize(
    ("extra", "said"),
    [
        ({"top_p": 1.5}, "top_p is 1.5; expected a number from 0 to 1"),
        ({"top_k": -1}, "top_k is -1; expected an integer >= 0"),
        ({"top_k": "many"}, "top_k is 'many'; expected an integer >= 0"),
        ({"min_p": True}, "min_p is True; expected a number from 0 to 1"),
        ({"do_sample": "yes"}, "do_sample is 'yes'; expected true or false"),
        (
            {"num_beams": 4},
            ("hf/ models do not support 'num_beams'; supported: do_sample, min_p, top_k, top_p, truncate"),
        ),
    ],
)
def test_what_it_may_not_ask_for(extra, said):
    with pytest.raises(ClientError) as raised:
        settings(extra=extra, temperature=1.0)
    assert str(raised.value) == said
    assert raised.value.hopeless


def test_a_contradiction():
    with pytest.raises(ClientError, match="only one of the two"):
        settings(extra={"do_sample": True}, temperature=0.0)


@pytest.mark.parametrize(
    ("sampling", "chance", "token"),
    [
        (Sampling(1.0), 0.0, 0),
        (Sampling(1.0), 0.09, 0),
        (Sampling(1.0), 0.11, 1),
        (Sampling(1.0), 0.51, 2),
        (Sampling(1.0), 0.999999, 3),
        (Sampling(1.0, top_k=1), 0.0, 1),
        (Sampling(1.0, top_k=1), 0.999999, 1),
        (Sampling(1.0, top_k=2), 0.56, 1),  # 0.4 of 0.7
        (Sampling(1.0, top_k=2), 0.58, 3),
        (Sampling(1.0, top_k=9), 0.09, 0),  # more than there are
        (Sampling(1.0, top_p=0.0), 0.999999, 1),  # the likeliest always stays
        (Sampling(1.0, top_p=0.41), 0.999999, 3),  # the one that crosses the line is in
        (Sampling(1.0, top_p=0.75), 0.999999, 3),
        (Sampling(1.0, top_p=0.75), 0.0, 1),  # the first token is out
        (Sampling(1.0, min_p=0.49), 0.0, 1),
        (Sampling(1.0, min_p=0.49), 0.5, 2),  # half as likely as the likeliest is in
        (Sampling(0.01), 0.01, 1),  # cold: nothing but the likeliest
    ],
)
@pytest.mark.usefixtures("packages")
def test_a_draw(sampling, chance, token):
    import torch

    assert int(draw_token(torch.tensor(CHANCES).log(), sampling, chance)) == token


@pytest.mark.usefixtures("packages")
def test_draws_come_as_often_as_they_are_likely():
    import torch

    scores, dice = torch.tensor(CHANCES).log(), Sampling(1.0, seed=7).dice()
    draws = [int(draw_token(scores, Sampling(1.0), dice.random())) for _ in range(4000)]
    assert [draws.count(token) / 4000 for token in range(4)] == pytest.approx(CHANCES, abs=0.03)
