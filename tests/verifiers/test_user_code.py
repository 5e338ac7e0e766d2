import asyncio
import math
from dataclasses import dataclass, field

import pytest
from verifiers.judging import judge, task

from calipers.clients import Completion
from calipers.errors import InputError, PluginError, VerifierError
from calipers.text.patterns import search
from calipers.verifiers import Verdict
from calipers.verifiers.user_code import wrap


def failing(error):
    def fn(model_output, expected, params):
        raise error

    return fn


async def awaited(model_output, expected, params):
    await asyncio.sleep(0)
    return 0.5


@pytest.mark.parametrize(
    ("fn", "reward"),
    [
        (lambda text, expected, params: len(text) + expected + params["more"], 111),
        (lambda text, expected, params: True, 1.0),
        (lambda text, expected, params: "0.5", 0.5),  # by float(), as in EvSys
        (lambda text, expected, params: -3, -3.0),
        (awaited, 0.5),
    ],
)
def test_a_function(fn, reward):
    verifier = wrap("mine", fn)
    verifier.check(task(100, "mine"))
    assert verifier.rerunnable
    assert judge(verifier, "a", 100, more=10) == Verdict(float(reward))


def test_not_a_number_is_a_number_somebody_sent():
    assert math.isnan(judge(wrap("mine", lambda *_: math.nan), "a").reward)


@pytest.mark.parametrize(
    ("fn", "said"),
    [
        (failing(ValueError("no")), "verifier 'mine' failed: ValueError: no"),
        (failing(AssertionError()), "verifier 'mine' failed: AssertionError"),
        (failing(SystemExit(3)), "verifier 'mine' failed: SystemExit: 3"),
        (failing(VerifierError("as it is")), "as it is"),
        (
            failing(asyncio.CancelledError()),
            ("verifier 'mine' failed: something inside it was cancelled"),
        ),  # the run was not
        (failing(ValueError("x" * 10**6)), f"verifier 'mine' failed: ValueError: {'x' * 487}…"),  # fit for a screen
        (lambda text: 1.0, r"verifier 'mine' failed: TypeError: .*takes 1 positional argument but 3 were given"),
        (lambda *_: None, "verifier 'mine' returned None; expected a number"),
        (lambda *_: "high", "verifier 'mine' returned 'high'; expected a number"),
        (lambda *_: [1.0], r"verifier 'mine' returned \[1.0\]; expected a number"),
        (lambda *_: 10**400, "verifier 'mine' returned 1000.*; expected a number"),
        (lambda *_: 10**5000, "verifier 'mine' returned an int that cannot be shown; expected a number"),
    ],
)
def test_a_function_that_fails(fn, said):
    with pytest.raises(VerifierError, match=f"^{said}$") as caught:
        judge(wrap("mine", fn), "a")
    assert caught.value.outcome == "verifier_failed"
    assert len(str(caught.value)) < 600


def test_a_cancelled_run_is_cancelled():
    async def waits(model_output, expected, params):
        await asyncio.Event().wait()

    async def main():
        judging = asyncio.create_task(wrap("mine", waits).verify(task("a"), Completion("a")))
        await asyncio.sleep(0)
        judging.cancel()
        await judging

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(main())


def test_a_function_whose_pattern_runs_out_of_time():
    def fn(model_output, expected, params):
        return search("(a+)+$", model_output, limit=0.05) is not None

    with pytest.raises(VerifierError, match="took longer") as caught:
        judge(wrap("mine", fn), "a" * 60 + "!")
    assert caught.value.outcome == "filter_timeout"


@dataclass
class Result:
    reward: object
    info: object = field(default_factory=dict)


class Config:
    def __init__(self, bonus=0.0):
        self.bonus = bonus


class Theirs:
    """As EvSys has them."""

    Config = Config

    def __init__(self, config):
        self.config = config

    def verify(self, *, prompt, completion, target):
        seen = {"same": completion == target["expected"], "length": len(completion), "said": completion}
        return Result(self.config.bonus + seen["same"], seen)


class Plain:
    def verify(self, *, prompt, completion, target):
        return Result(float(prompt == "2 + 2?" and target == {"a": 1}))


def test_a_class_of_evsys():
    verifier = wrap("theirs", Theirs)
    verifier.check(task("4", "theirs", bonus=0.25))
    assert judge(verifier, "4", "4", bonus=0.25) == Verdict(1.25, fields={"same": 1.0, "length": 1.0})


def test_a_class_without_a_config():
    assert judge(wrap("plain", Plain), "4", {"a": 1}).reward == 1.0
    assert judge(wrap("plain", Plain()), "4", {"a": 1}).reward == 1.0  # an instance, too
    for plugin in (Plain, Plain()):
        with pytest.raises(InputError, match="task 't1': verifier 'plain' accepts no params; remove bonus"):
            wrap("plain", plugin).check(task(None, "plain", bonus=1))


def test_a_class_that_refuses_its_params():
    said = "task 't1': verifier 'theirs' rejects its params; TypeError: .*'bonsu'"
    with pytest.raises(InputError, match=said):
        wrap("theirs", Theirs).check(task("4", "theirs", bonsu=1))
    with pytest.raises(VerifierError, match=said):
        judge(wrap("theirs", Theirs), "4", "4", bonsu=1)


@pytest.mark.parametrize(
    ("result", "verdict"),
    [
        (Result(1, None), Verdict(1.0)),
        (Result(1, ["no", "object"]), Verdict(1.0)),
        (Result(1, {1: 2, "large": 10**400}), Verdict(1.0, fields={"1": 2.0})),
        (0.5, Verdict(0.5)),  # a bare number
    ],
)
def test_what_a_class_may_return(result, verdict):
    plugin = type("Plugin", (), {"verify": lambda self, *, prompt, completion, target: result})
    assert judge(wrap("plugin", plugin), "4") == verdict


def test_a_class_that_returns_no_number():
    plugin = type("Plugin", (), {"verify": lambda self, *, prompt, completion, target: Result("high")})
    with pytest.raises(VerifierError, match="verifier 'plugin' returned 'high'; expected a number"):
        judge(wrap("plugin", plugin), "4")


class Ours:
    rerunnable = False

    async def verify(self, task, completion):
        return Verdict(float(completion.text == task.target), answer=completion.text)

    def check(self, task):
        if task.target is None:
            raise InputError("no target")
        task.target.strip()


def test_an_object_of_ones_own():
    for plugin in (Ours, Ours()):
        verifier = wrap("ours", plugin)
        assert not verifier.rerunnable
        assert judge(verifier, "4", "4") == Verdict(1.0, answer="4")
        with pytest.raises(InputError, match="no target"):
            verifier.check(task(None, "ours"))
        with pytest.raises(PluginError, match="verifier 'ours' failed on task 't1': AttributeError"):
            verifier.check(task(4, "ours"))


class Bare:
    async def verify(self, task, completion):
        return completion.text


def test_an_object_with_no_more_than_it_needs():
    verifier = wrap("bare", Bare)
    verifier.check(task())
    assert verifier.rerunnable
    with pytest.raises(VerifierError, match="verifier 'bare' returned 'four'; expected a Verdict"):
        judge(verifier, "four")


class Demanding(Bare):
    def __init__(self, server):
        pass


@pytest.mark.parametrize(
    ("thing", "said"),
    [
        (42, "verifier 'x' is 42; expected grade"),
        (Config, "verifier 'x' is <class .*Config'>; expected grade"),
        (Demanding, "verifier 'x' cannot be created without arguments: TypeError: .*'server'"),
    ],
)
def test_what_is_no_verifier(thing, said):
    with pytest.raises(PluginError, match=said):
        wrap("x", thing)


def by_target(task, completion):
    return task.target in completion


async def by_length(task, completion):
    await asyncio.sleep(0)
    return Verdict(len(completion.text) / 10, answer=completion.strip(), fields={"cut": completion.ending == "cut"})


@pytest.mark.parametrize(
    ("fn", "reward"),
    [
        (by_target, 1.0),
        (lambda task, completion: not completion.startswith("4"), 0.0),
        (lambda task, completion: 3, 3.0),
        (lambda task, completion, strict=False: completion == "4 apples", 1.0),
        (by_length, 0.8),
    ],
)
def test_a_plain_function_of_a_task_and_a_completion(fn, reward):
    verifier = wrap("mine", fn)
    verifier.check(task("4", "mine"))
    assert verifier.rerunnable
    assert judge(verifier, "4 apples", target="4").reward == reward


@pytest.mark.parametrize(
    ("returned", "wrong"),
    [
        (None, "returned None; expected a number, True or False, or a Verdict"),
        ("1", "returned '1'; expected a number, True or False, or a Verdict"),
        ([1], r"returned \[1\]; expected a number"),
        (math.nan, "reward is nan; expected a finite number"),
        (Verdict(math.inf), "reward is inf; expected a finite number"),
    ],
)
def test_what_is_no_reward_is_a_gap(returned, wrong):
    with pytest.raises(VerifierError, match=wrong) as caught:
        judge(wrap("mine", lambda task, completion: returned), "x")
    assert (caught.value.outcome, caught.value.blameless) == ("verifier_failed", True)


def test_what_a_plain_function_raises_is_its_own_doing_whatever_the_answer():
    with pytest.raises(VerifierError, match="verifier 'mine' failed: ValueError") as caught:
        judge(wrap("mine", lambda task, completion: float(completion)), "x")
    assert caught.value.blameless


def test_a_completion_says_what_it_has_not():
    with pytest.raises(VerifierError, match="AttributeError: a completion has no 'txt'; it has text, finish_reason"):
        judge(wrap("mine", lambda task, completion: completion.txt), "x")
