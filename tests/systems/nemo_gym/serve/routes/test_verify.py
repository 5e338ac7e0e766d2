import pytest
from systems.nemo_gym.serve.asking import asking, spoken

from calipers.errors import VerifierError
from calipers.systems.nemo_gym.serve.app import task_of
from calipers.verifiers import Verdict
from calipers.verifiers.user_code import FunctionVerifier, ObjectVerifier, find_verifier


@pytest.fixture(scope="module")
def exact():
    with asking(verifier=find_verifier("exact_match")) as ask:
        yield ask


@pytest.mark.parametrize(
    ("row", "reward"),
    [
        ({"expected_answer": "42"}, 1.0),
        ({"expected_answer": "41"}, 0.0),
        ({"target": "42", "expected_answer": "41"}, 1.0),  # Calipers' own key takes precedence
        ({"expected": "42"}, 1.0),
        ({}, 0.0),
        ({"target": "forty", "params": {"ignore_case": True}}, 0.0),
    ],
)
def test_rewards(exact, row, reward):
    asked = spoken(" 42 ", **row, _ng_task_index=3, difficulty="hard")
    found = exact.post("/verify", asked)
    assert found.status == 200
    assert found.json == {**asked, "reward": reward, "extracted_answer": found.json["extracted_answer"]}
    assert exact.post("/verify", asked).body == found.body


def test_a_row_that_failed_before_is_judged_anew(exact):
    """With the old mark, the collector would write the new verdict to the failures."""
    marks = {"_ng_failure_class": "judge_failed", "_ng_failure_terminal": True, "failure_reason": "it was asleep"}
    asked = spoken("42", target="42")
    assert exact.post("/verify", {**asked, **marks, "_ng_no_persist": True}).json == {
        **asked,
        "reward": 1.0,
        "extracted_answer": "42",
    }


@pytest.mark.parametrize(
    ("body", "code", "said"),
    [
        ({}, "bad_input", "body.responses_create_params: Field required (and 1 more)"),
        ([], "bad_input", "body: "),
        (spoken("x", responses_create_params={}), "bad_task", "responses_create_params.input: it is not a prompt"),
        (spoken("x", responses_create_params={"input": [1]}), "bad_task", "expected text or a list of messages"),
        (spoken("x", target=["a"]), "bad_task", "target is ['a']; expected text or a number"),
        (spoken("x", params={"ignore_csae": True}), "bad_task", "did you mean 'ignore_case'?"),
        (spoken("x", params=[]), "bad_input", "body.params: "),
        (spoken("x", response={"output": [7]}), "bad_input", "body.response.output.0: "),
        (spoken("x", response={"output": "x"}), "bad_input", "body.response.output: "),
    ],
)
def test_what_cannot_be_judged(exact, body, code, said):
    found = exact.post("/verify", body)
    assert (found.status, found.code) == (422, code)
    assert said in found.message


@pytest.mark.parametrize(
    ("output", "text"),
    [
        ([], ""),
        ([{"type": "reasoning", "content": [{"type": "output_text", "text": "hm"}]}], ""),
        ([{"type": "message", "content": [{"type": "refusal", "refusal": "no"}]}], ""),
        (
            [
                {
                    "type": "message",
                    "content": [{"type": "output_text", "text": "a"}, {"type": "output_text", "text": "b"}],
                }
            ],
            "ab",
        ),
        ([{"type": "message", "content": "text"}, {"type": "message", "content": [3]}], ""),
        ([{"type": "function_call", "name": "f", "arguments": "{}"}], ""),
    ],
)
def test_the_text_of_a_response(output, text):
    said = FunctionVerifier("length", lambda found, expected, params: len(found) if found == text else -1)
    with asking(verifier=said) as ask:
        assert ask.post("/verify", spoken("", response={"output": output})).json["reward"] == len(text)


class Gives:
    """A verifier with a given verdict."""

    def __init__(self, verdict):
        self.verdict = verdict

    async def verify(self, task, completion):
        if isinstance(self.verdict, Exception):
            raise self.verdict
        return self.verdict


def given(verdict):
    with asking(verifier=ObjectVerifier("gives", Gives(verdict))) as ask:
        found = ask.post("/verify", spoken("x", kept=1))
        assert found.status == 200
        assert found.json["kept"] == 1
        return {key: value for key, value in found.json.items() if key not in spoken("x", kept=1)}


def test_what_else_a_verdict_holds():
    verdict = Verdict(0.5, rewards={"style": 0.5}, answer=["a", 1], fields={"words": 3.0})
    assert given(verdict) == {
        "reward": 0.5,
        "reward_components": {"style": 0.5},
        "extracted_answer": ["a", 1],
        "words": 3.0,
    }


@pytest.mark.parametrize(
    ("verdict", "reward"),
    [
        (Verdict(None, {"style": 0.5}), 0.5),  # the only component is the reward
        (Verdict(None, outcome="unparsed"), 0.0),
        (Verdict(0.25, outcome="unparsed"), 0.25),
        (Verdict(1.0, outcome="tampered"), 0.0),
    ],
)
def test_a_verdict_is_worth_what_it_is_in_a_run(verdict, reward):
    found = given(verdict)
    assert (found["reward"], found.get("_ng_failure_class")) == (reward, None)


@pytest.mark.parametrize(
    ("verdict", "outcome", "said"),
    [
        (VerifierError("the judge is out", outcome="judge_failed"), "judge_failed", "the judge is out"),
        (RuntimeError("oh"), "verifier_failed", "verifier 'gives' failed: RuntimeError: oh"),
        (Verdict(None), "verifier_failed", "the verdict has no single reward"),
        (Verdict(None, {"a": 1.0, "b": 0.0}), "verifier_failed", "the verdict has no single reward"),
        (Verdict(1.0, outcome="judge_failed"), "judge_failed", "the verifier's verdict is judge_failed"),
        (Verdict(float("nan")), "verifier_failed", "reward is nan"),
        (Verdict("x"), "verifier_failed", "reward is 'x'"),
        (Verdict(1.0, fields={"a": "b"}), "verifier_failed", "a is 'b'"),
    ],
)
def test_no_verdict_is_no_reward(verdict, outcome, said):
    """NeMo Gym does not count such a row."""
    found = given(verdict)
    assert (found["reward"], found["_ng_failure_class"]) == (0.0, outcome)
    assert said in found["failure_reason"]


def test_a_task_out_of_a_row():
    messages = [{"role": "user", "content": "?"}]
    row = {"_ng_task_index": 7, "responses_create_params": {"input": messages}, "params": {"a": 1}, "target": None}
    task = task_of("v", {**row, "expected_answer": "never asked: a null target is one"})
    assert (task.id, task.prompt, task.verifier, task.target, task.params) == ("7", messages, "v", None, {"a": 1})
