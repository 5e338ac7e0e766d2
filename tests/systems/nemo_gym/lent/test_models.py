import pytest
from pydantic import ConfigDict, ValidationError
from systems.nemo_gym.serve.asking import spoken

from calipers.systems.nemo_gym.lent.models import (
    BaseMultiRewardVerifyResponse,
    BaseVerifyRequest,
    BaseVerifyResponse,
    NeMoGymResponse,
)


def test_keys_are_attributes_at_any_depth():
    body = BaseVerifyRequest.model_validate(spoken("42"))
    (item,) = body.response.output
    assert (item.type, item.content[0].text, item["role"]) == ("message", "42", "assistant")
    assert body.response.output_text == "42"
    assert body.responses_create_params.input == "?"
    with pytest.raises(KeyError):
        item["nope"]
    with pytest.raises(AttributeError):
        item.nope  # noqa: B018


def test_what_came_is_what_goes():
    sent = {"id": "r", "usage": {"input_tokens": 3}, "output": [{"type": "x", "deep": [[{"a": None}], 1, "s"]}, {}]}
    found = NeMoGymResponse.model_validate(sent)
    assert found.model_dump(exclude_unset=True) == sent
    assert (found.usage.input_tokens, found.status) == (3, None)


def test_a_verdict_is_made_of_the_request():
    body = BaseVerifyRequest.model_validate(spoken("42", dropped=1))
    verdict = BaseVerifyResponse(**body.model_dump(), reward=True)
    assert (verdict.reward, verdict.response.output_text) == (1.0, "42")
    assert "dropped" not in verdict.model_dump()


def test_a_class_may_allow_more():
    class Open(BaseVerifyRequest):
        model_config = ConfigDict(extra="allow")

    assert Open.model_validate(spoken("x", difficulty="hard")).difficulty == "hard"


@pytest.mark.parametrize(
    ("kind", "body", "where"),
    [
        (BaseVerifyRequest, {}, "responses_create_params"),
        (BaseVerifyRequest, spoken("x", response={"id": "r"}), "output"),
        (BaseVerifyRequest, spoken("x", responses_create_params={"input": "?", "topp": 1}), "topp"),
        (BaseVerifyRequest, spoken("x", responses_create_params={}), "input"),
        (BaseVerifyResponse, spoken("x"), "reward"),
        (BaseMultiRewardVerifyResponse, spoken("x", reward=1), "reward_components"),
    ],
)
def test_what_is_refused(kind, body, where):
    with pytest.raises(ValidationError) as caught:
        kind.model_validate(body)
    assert caught.value.errors()[0]["loc"][-1] == where
