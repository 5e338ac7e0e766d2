"""EvSys' Benchmark: the golden cases of its page and its source, and what Calipers says instead."""

import asyncio
import dataclasses
import json
import math
import threading
import warnings

import pytest

from calipers import compat
from calipers.errors import CalipersError, InputError, UnknownName
from calipers.names import METRICS
from calipers.systems.evsys.benchmark import Benchmark, BenchmarkScore, RepeatedAnswer
from calipers.tasks.jsonl import E2BVerifier, HarborTask, InProcessVerifier, LLMJudgeVerifier
from calipers.verifiers import user_code

WARM = {"temperature": 1.0}


class Scripted:
    """A client whose answers are written down; it has no name, as none is needed."""

    def __init__(self, *answers):
        self.answers, self.calls = list(answers), []

    def generate(self, *, prompt, max_tokens=256, temperature=0.0, stop=None):
        self.calls.append((prompt, max_tokens, temperature, stop))
        answer = self.answers[(len(self.calls) - 1) % len(self.answers)]
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.fixture
def reward(monkeypatch):
    """A verifier whose reward is the number that the completion is."""
    monkeypatch.setattr(user_code, "_registered", {"number": lambda text, expected, params: text})


def of(count, fn_name="exact_match", expected="A", **more):
    """A benchmark of some tasks that are all alike."""
    tasks = [HarborTask(f"t{n}", f"q{n}", InProcessVerifier(fn_name, expected), **more) for n in range(count)]
    return Benchmark("alike", tasks)


def g40():
    judged = [("t1", "exact_match", "A", {"toolkit": "X"}), ("t2", "exact_match", "B", {"toolkit": "X"})]
    tasks = [
        HarborTask(name, f"q{name[1]}", InProcessVerifier(fn, expected), metadata)
        for name, fn, expected, metadata in [*judged, ("t3", "contains", "n", {})]
    ]
    return Benchmark("g40", tasks), Scripted("A", "z", "B", "B", "no", "yes")


def scored_g40(**more):
    bench, client = g40()
    return bench.score(client, num_samples=2, breakdown_keys=["toolkit"], **{**WARM, **more})


def test_metrics():
    found = scored_g40(metrics=["mean_reward", "pass_rate", "pass@1", "pass@3", "pass^3"]).metrics
    assert list(found) == ["n_tasks", "mean_reward", "pass_rate", "pass@1", "pass@3", "pass^3"]
    assert list(found.values()) == pytest.approx([3.0, 2 / 3, 2 / 3, 1.0, 1.0, 1 / 3], rel=0, abs=1e-12)


def test_tasks():
    assert [(one.reward, one.model_output) for one in scored_g40().per_task] == [
        (0.5, "z"),
        (1.0, "B"),
        (0.5, "yes"),
    ]


def test_breakdown():
    assert scored_g40().breakdowns == {
        "toolkit": {
            "X": {"n": 2.0, "mean_reward": 0.75, "pass_rate": 0.5},
            "__missing__": {"n": 1.0, "mean_reward": 0.5, "pass_rate": 0.0},
        }
    }


def test_the_serialised_form():
    assert json.dumps(dataclasses.asdict(scored_g40())) == json.dumps(
        {
            "metrics": {"n_tasks": 3.0, "mean_reward": 0.6666666666666666, "pass_rate": 0.6666666666666666},
            "per_task": [
                dict(
                    zip(
                        ("task_id", "instruction", "model_output", "expected", "reward", "metadata"),
                        one,
                        strict=True,
                    )
                )
                for one in (
                    ("t1", "q1", "z", "A", 0.5, {"toolkit": "X"}),
                    ("t2", "q2", "B", "B", 1.0, {"toolkit": "X"}),
                    ("t3", "q3", "yes", "n", 0.5, {}),
                )
            ],
            "breakdowns": {
                "toolkit": {
                    "X": {"n": 2.0, "mean_reward": 0.75, "pass_rate": 0.5},
                    "__missing__": {"n": 1.0, "mean_reward": 0.5, "pass_rate": 0.0},
                }
            },
            "rollouts": [],
        }
    )


@pytest.mark.parametrize(("limit", "tasks"), [(0, 0), (-1, 0), (2, 2), (999, 5), (None, 5)])
def test_limit(limit, tasks):
    client = Scripted("A")
    assert of(5).score(client, limit=limit).metrics["n_tasks"] == tasks
    assert [call[0] for call in client.calls] == [f"q{n}" for n in range(tasks)]


@pytest.mark.parametrize("samples", [0, -3, 1])
def test_at_least_one_sample(samples):
    client = Scripted("A")
    of(2).score(client, num_samples=samples)
    assert len(client.calls) == 2


@pytest.mark.usefixtures("reward")
def test_a_bucket_passes_by_the_tasks_mean():
    bench = of(1, "number", metadata={"k": 1})
    found = bench.score(Scripted(2.0, 0.0), num_samples=2, breakdown_keys=["k"], **WARM)
    assert found.metrics["pass_rate"] == 0.5
    assert found.breakdowns["k"] == {"1": {"n": 1.0, "mean_reward": 1.0, "pass_rate": 1.0}}


@pytest.mark.parametrize(
    ("key", "metadata", "bucket"),
    [
        ("a.b", {"a": {"b": 1}}, "1"),
        ("a.b", {"a.b": 1}, "__missing__"),  # a literal key with a dot is out of reach
        ("a.b", {"a": None}, "__missing__"),
        ("a.0", {"a": [1]}, "__missing__"),  # no index into a list
        ("a", {"a": None}, "None"),
        ("a", {"a": [1, "x"]}, "[1, 'x']"),
        ("a", {"a": 1.0}, "1.0"),
    ],
)
def test_a_dotted_key(key, metadata, bucket):
    found = of(1, metadata=metadata).score(Scripted("A"), breakdown_keys=[key])
    assert list(found.breakdowns[key]) == [bucket]
    assert list(found.result.groups[0].breakdowns[key]) == [bucket]


def test_one_bucket_for_values_of_one_text_in_the_order_first_seen():
    tasks = [
        HarborTask(n, "q", InProcessVerifier("exact_match", "A"), {"k": k}) for n, k in enumerate(["b", 1, "1", "a"])
    ]
    found = Benchmark("b", tasks).score(Scripted("A"), breakdown_keys=["k"])
    assert {label: one["n"] for label, one in found.breakdowns["k"].items()} == {"b": 1.0, "1": 2.0, "a": 1.0}
    assert list(found.breakdowns["k"]) == ["b", "1", "a"]


def test_a_breakdown_of_no_tasks():
    found = of(5).score(Scripted("A"), limit=0, breakdown_keys=["k"])
    assert found.breakdowns == {"k": {}}
    assert found.metrics == {"n_tasks": 0.0, "mean_reward": 0.0, "pass_rate": 0.0}
    assert found.per_task == []


@pytest.mark.usefixtures("reward")
@pytest.mark.parametrize(
    ("metrics", "expected"),
    [
        (None, {"mean_reward": 0.5, "pass_rate": 0.5}),
        ([], {"mean_reward": 0.5, "pass_rate": 0.5}),
        (["avg"], {"avg": 0.5}),
        ("avg", {"avg": 0.5}),  # EvSys looks up 'a', 'v' and 'g'
    ],
)
def test_which_metrics(metrics, expected):
    assert of(2, "number").score(Scripted(1, 0), metrics=metrics).metrics == {"n_tasks": 2.0, **expected}


@pytest.mark.usefixtures("reward")
@pytest.mark.parametrize(
    ("answers", "mean", "rate"),
    [
        ((math.nan, 1), math.nan, 0.5),
        ((math.inf, 0), math.inf, 0.5),
        ((-1, 1), 0.0, 0.5),
        (("0.5", True), 0.75, 0.5),
    ],
)
def test_any_float_is_a_reward(answers, mean, rate):
    found = of(1, "number").score(Scripted(*answers), num_samples=2, breakdown_keys=["k"], **WARM)
    assert found.metrics["mean_reward"] == pytest.approx(mean, nan_ok=True)
    assert found.metrics["pass_rate"] == rate
    assert found.per_task[0].reward == pytest.approx(mean, nan_ok=True)
    assert found.breakdowns["k"]["__missing__"]["mean_reward"] == pytest.approx(mean, nan_ok=True)


# EvSys finds out about these after it has paid for a completion; here nothing is asked of the client.


@pytest.mark.parametrize(
    ("verifier", "python_error", "said"),
    [
        (E2BVerifier(), NotImplementedError, "task 't': E2BVerifier cannot verify in this process"),
        (LLMJudgeVerifier(), NotImplementedError, "task 't': LLMJudgeVerifier cannot verify in this process"),
        (object(), TypeError, "task 't': unknown verifier type: object"),
        (None, TypeError, "task 't': unknown verifier type: NoneType"),
        (
            InProcessVerifier("exact_mach"),
            ValueError,
            "Unknown verifier fn 'exact_mach'; registered: ['contains', ",
        ),
        (InProcessVerifier("exact_mach"), KeyError, "Unknown verifier fn 'exact_mach'; registered: ["),
        (InProcessVerifier([]), TypeError, "task 't': fn_name is []; expected the name of a verifier"),
    ],
)
def test_a_verifier_that_cannot_be_called(verifier, python_error, said):
    client = Scripted("A")
    bench = Benchmark("b", [*of(2).tasks, HarborTask("t", "q", verifier)])
    with pytest.raises(python_error) as caught:
        bench.score(client)
    assert isinstance(caught.value, CalipersError)
    assert str(caught.value).startswith(said)
    assert client.calls == []
    assert bench.score(client, limit=2).metrics["n_tasks"] == 2.0  # it is not in the way of the others


def test_a_metric_nobody_knows():
    client = Scripted("A")
    with pytest.raises(UnknownName, match=r"^no evsys metric named 'pass@5'; it is a native name"):
        of(2).score(client, metrics=["pass@5", "avg"])
    assert client.calls == []


@pytest.mark.usefixtures("reward")
def test_a_metric_nobody_knows_where_that_is_left_out():  # as in EvSys
    compat.skip_unknown_metrics()
    try:
        with pytest.warns(UserWarning, match=r"^metric 'pass@5' is skipped: ") as caught:
            found = of(2, "number").score(Scripted(1, 0), metrics=["pass@5", "avg"])
    finally:
        compat.skip_unknown_metrics(False)
    assert found.metrics == {"n_tasks": 2.0, "avg": 0.5}
    assert len(caught) == 1


@pytest.mark.parametrize("client", [None, object(), "gpt-4o"])
def test_a_client_that_is_none(client):
    with pytest.raises(AttributeError, match=r"^the client is a \w+ without generate\(\)") as caught:
        of(1).score(client)
    assert isinstance(caught.value, InputError)
    assert of(1).score(client, limit=0).metrics["n_tasks"] == 0.0  # it is never called


def test_an_async_client_is_refused_before_it_is_called():
    class Later:
        async def generate(self, *, prompt, max_tokens=256, temperature=0.0, stop=None):
            raise AssertionError("it was called")

    with pytest.raises(TypeError, match=r"^generate\(\) of Later is async; expected EvSys' own") as caught:
        of(1).score(Later())
    assert isinstance(caught.value, InputError)


def test_their_order_and_what_they_are_given():
    client = Scripted("A")
    built = []
    found = of(2).score(
        client,
        max_tokens=7,
        temperature=0.5,
        stop=["."],
        num_samples=2,
        prompt_builder=lambda task: built.append(task.task_id) or f"<{task.instruction}>",
    )
    assert client.calls == [(f"<q{n}>", 7, 0.5, ["."]) for n in (0, 0, 1, 1)]
    assert built == ["t0", "t1"]  # once for each task
    assert found.per_task[0].instruction == "q0"  # not what was built of it


def test_the_defaults():
    client = Scripted("A")
    of(1).score(client)
    assert client.calls == [("q0", 512, 0.0, None)]


@pytest.mark.parametrize("error", [RuntimeError("down"), KeyError("choices"), ValueError("bad")])
def test_an_exception_of_the_client_comes_out_as_it_is(error):
    with pytest.raises(type(error)) as caught:
        of(3).score(Scripted("A", error))
    assert caught.value is error


def test_an_exception_of_a_verifier_comes_out_as_it_is(monkeypatch):
    monkeypatch.setattr(user_code, "_registered", {"broken": lambda *_: 1 / 0})
    with pytest.raises(ZeroDivisionError):
        of(1, "broken").score(Scripted("A"))


def test_the_client_is_called_from_one_thread_within_a_running_loop():
    threads = set()

    class Client:
        def generate(self, **asked):
            threads.add(threading.get_ident())
            asyncio.get_running_loop()  # the caller's own
            return "A"

    async def main():
        return of(3).score(Client())

    assert asyncio.run(main()).metrics["pass_rate"] == 1.0
    assert threads == {threading.get_ident()}


def test_a_verifier_is_given_what_the_row_says(monkeypatch):
    seen = []
    monkeypatch.setattr(user_code, "_registered", {"see": lambda *given: seen.append(given) or True})
    task = HarborTask("t", "q", InProcessVerifier("see", {"a": 1}, {"p": 2}))
    assert Benchmark("b", [task]).score(Scripted("text")).metrics["pass_rate"] == 1.0
    assert seen == [("text", {"a": 1}, {"p": 2})]


def test_repeating_one_answer_is_warned_about_once():
    with pytest.warns(
        RepeatedAnswer, match=(r"^3 samples at temperature 0 are " r"usually the same answer 3 times")
    ) as caught:
        of(2).score(Scripted("A"), num_samples=3)
    assert len(caught) == 1
    assert caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        of(2).score(Scripted("A"), num_samples=3, temperature=0.1)
        of(2).score(Scripted("A"))
        of(2).score(Scripted("A"), num_samples=3, limit=0)


def test_the_same_numbers_with_their_uncertainty():
    found = scored_g40(metrics=["mean_reward", "pass^3"])
    result = found.result
    assert {name: result[name].value for name in ("mean_reward", "pass^3")} == {
        name: value for name, value in found.metrics.items() if name != "n_tasks"
    }
    low, high = result["mean_reward"].interval
    assert 0 < low < 2 / 3 < high < 1
    (group,) = result.groups
    assert (result.dialect, group.dataset, group.ledger.planned, group.ledger.tasks) == ("evsys", "g40", 6, 3)
    assert group.breakdowns["toolkit"]["X"]["mean_reward"].value == 0.75


def test_it_is_no_part_of_the_score_as_a_value():
    found = scored_g40()
    assert [one.name for one in dataclasses.fields(found)] == ["metrics", "per_task", "breakdowns", "rollouts"]
    assert found == dataclasses.replace(found, result=None)
    assert "result=" not in repr(found)
    assert dataclasses.replace(found, rollouts=[1]).result is found.result
    assert BenchmarkScore({}, []).result is None


def test_tasks_of_one_id_stay_apart_and_in_order(monkeypatch):
    """EvSys looks at no id; a metric of one's own may look at the order."""

    class FirstTask:
        def compute(self, task_rewards):
            return task_rewards[0][0]

    monkeypatch.setattr(METRICS, "added", {"first_task": FirstTask})
    tasks = [HarborTask("same", "q", InProcessVerifier("exact_match", expected)) for expected in ["z"] * 11 + ["A"]]
    found = Benchmark("b", tasks[::-1]).score(Scripted("A"), metrics=["first_task", "mean_reward"])
    assert found.metrics == {"n_tasks": 12.0, "first_task": 1.0, "mean_reward": pytest.approx(1 / 12)}
