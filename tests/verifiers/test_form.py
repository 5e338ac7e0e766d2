import pytest
from verifiers.judging import judge, task

from calipers.errors import InputError, VerifierError
from calipers.verifiers.text import FORMAT_ONLY


@pytest.mark.parametrize(
    ("text", "params", "reward", "think", "answer"),
    [
        ("<think>t</think><answer>A</answer>", {}, 1.0, 1.0, 1.0),  # G33
        ("</think><think>", {}, 0.5, 1.0, 0.0),  # the order does not count
        ("bad", {}, 0.0, 0.0, 0.0),
        ("<think>", {}, 0.0, 0.0, 0.0),
        ("<answer></answer>", {"has_answer_reward": 2}, 2.0, 0.0, 1.0),
        ("<think></think><answer></answer>", {"has_think_reward": -1}, -0.5, 1.0, 1.0),
    ],
)
def test_verdict(text, params, reward, think, answer):
    verdict = judge(FORMAT_ONLY, text, None, **params)
    assert verdict.reward == reward
    assert verdict.fields == {"has_think": think, "has_answer": answer}
    FORMAT_ONLY.check(task(None, "format_only", **params))


def test_a_reward_that_is_no_number():
    said = "has_think_reward is 'much'; expected a number"
    with pytest.raises(InputError, match=f"task 't1': {said}"):
        FORMAT_ONLY.check(task(None, "format_only", has_think_reward="much"))
    with pytest.raises(VerifierError, match=said):
        judge(FORMAT_ONLY, "<think></think>", None, has_think_reward="much")


def test_a_misspelt_reward():
    with pytest.raises(InputError, match="named 'has_thing_reward'; did you mean 'has_think_reward'"):
        FORMAT_ONLY.check(task(None, "format_only", has_thing_reward=1))
