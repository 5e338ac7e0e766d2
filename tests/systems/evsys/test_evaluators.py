"""Benchmarks that are scored while a model trains."""

import asyncio
import sys
from types import ModuleType, SimpleNamespace

import pytest
from tasks.given import benchmark, row

from calipers import Benchmark
from calipers.errors import CalipersError, HarborError
from calipers.systems.evsys.evaluators import BenchmarkEvaluator, build_in_loop_evaluators


class Letters:
    """A tokenizer whose tokens are characters, with a chat template."""

    def encode(self, text, *, add_special_tokens):
        assert not add_special_tokens
        return [ord(letter) for letter in text]

    def decode(self, tokens):
        return "".join(map(chr, tokens))

    def apply_chat_template(self, turns, *, tokenize, add_generation_prompt):
        return "|".join(turn["content"] for turn in turns)


class Sampler:
    """A sampler that answers with the last letter of the prompt, and records its requests."""

    def __init__(self):
        self.requests = []

    async def sample_async(self, *, prompt, params):
        self.requests.append(("".join(map(chr, prompt)), params.max_tokens, params.temperature))
        return SimpleNamespace(sequences=[SimpleNamespace(tokens=prompt[-1:])])


@pytest.fixture
def _tinker(monkeypatch):
    """A stand-in for the package tinker: the two types that an evaluator needs."""
    tinker = ModuleType("tinker")
    tinker.SamplingParams = SimpleNamespace
    tinker.ModelInput = SimpleNamespace(from_ints=list)
    monkeypatch.setitem(sys.modules, "tinker", tinker)


def bench():
    return Benchmark.from_iterable("b", [row("A", "A"), row("B", "C")])


@pytest.mark.usefixtures("_tinker")
def test_the_live_sampler_is_asked():
    sampler = Sampler()
    evaluator = BenchmarkEvaluator("b", bench(), Letters(), run_every=5, metrics=["pass@1"], max_tokens=9)
    assert asyncio.run(evaluator.evaluate(sampler, step=5)) == {"n_tasks": 2.0, "pass@1": 0.5}
    assert sampler.requests == [("q A", 9, 0.0), ("q B", 9, 0.0)]
    evaluator.chat_template = {"system_prompt": "s"}
    asyncio.run(evaluator.evaluate(sampler))
    assert sampler.requests[-1][0] == "s|q B"


def test_without_tinker_it_says_so(monkeypatch):
    monkeypatch.setitem(sys.modules, "tinker", None)
    with pytest.raises(
        CalipersError, match=("the live sampler needs tinker, which is not installed; install tinker, or give engine=")
    ):
        asyncio.run(BenchmarkEvaluator("b", bench(), Letters()).evaluate(Sampler()))


def test_rollouts_of_a_checkpoint_need_harbor(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CALIPERS_HARBOR", raising=False)
    evaluator = BenchmarkEvaluator("b", bench(), None, engine="Harbor", model_name="m", workspace_dir=tmp_path)
    with pytest.raises(HarborError, match="there is no program 'harbor'"):
        asyncio.run(evaluator.evaluate(None, model_path="tinker://checkpoint", step=1))


class Store:
    def __init__(self, record):
        self.record, self.evals, self.rows = record, [], []

    def create_eval(self, **about):
        self.evals.append(about)
        return self.record

    def log_predictions(self, run_id, rows):
        self.rows += rows


class Recorded(Benchmark):
    """A user's benchmark whose rollouts are given."""

    async def score_via_harbor(self, **settings):
        assert settings["workspace_dir"].name == "step_3"
        trials = [{"task_name": "A", "verifier_result": {"rewards": {"reward": 1.0}}}]
        return await super().score_via_harbor(**settings, _job_factory=lambda config: {"trial_results": trials})


def recorded(tmp_path, store):
    return BenchmarkEvaluator(
        **{"name": "b", "benchmark": Recorded("b", bench().tasks), "tokenizer": None, "engine": "harbor"},
        **{"model_name": "m", "workspace_dir": tmp_path, "store": store, "run_id": "r", "benchmark_id": "b1"},
    )


@pytest.mark.parametrize("record", [{"id": "e1"}, {"eval_id": "e1"}, SimpleNamespace(id="e1")])
def test_an_evaluation_is_given_to_the_store(tmp_path, record):
    store = Store(record)
    metrics = asyncio.run(recorded(tmp_path, store).evaluate(None, model_path="tinker://checkpoint", step=3))
    assert metrics == {"n_tasks": 1.0, "mean_reward": 1.0, "pass_rate": 1.0}  # B has no trial
    assert store.evals == [{"run_id": "r", "benchmark_id": "b1", "step": 3, "metrics": metrics}]
    assert [(line["eval_id"], line["step"], line["task_id"]) for line in store.rows] == [("e1", 3, "A")]


def test_a_store_that_fails_ends_no_training(tmp_path):
    with pytest.warns(UserWarning, match="the store rejected the evaluation of step 3: AttributeError"):
        asyncio.run(recorded(tmp_path, object()).evaluate(None, model_path="tinker://checkpoint", step=3))


def test_sections_with_run_every_become_evaluators(tmp_path):
    path = str(benchmark(tmp_path))
    section = {"path": path, "run_every": "5", "name": "n", "id": 7, "metrics": ["avg"], "limit": 2, "split": "test"}
    sections = [{"path": path}, section, {"path": path, "run_every": 1}]
    named, plain = build_in_loop_evaluators(
        {"benchmark": sections}, tokenizer="t", model_name="m", workspace_dir="w", run_id="r"
    )
    assert (named.name, named.run_every, named.metrics, named.limit, named.split) == ("n", 5, ["avg"], 2, "test")
    assert (named.benchmark.name, named.benchmark_id, named.model_name, named.run_id) == ("arith", "7", "m", "r")
    assert (plain.name, plain.max_tokens, plain.limit, plain.benchmark_id) == ("benchmark_2", 256, None, None)
    assert build_in_loop_evaluators({"benchmark": section}, tokenizer=None)[0].name == "n"
    assert build_in_loop_evaluators(None, tokenizer=None) == []
    alone = {"path": path, "run_every": 1, "metrics": "avg", "breakdown_keys": "level"}  # a string is a list of one
    (evaluator,) = build_in_loop_evaluators({"benchmark": alone}, tokenizer=None)
    assert (evaluator.metrics, evaluator.breakdown_keys) == (["avg"], ["level"])


@pytest.mark.parametrize(
    ("section", "message"),
    [
        (3, "benchmark[0]: is 3; expected a mapping with path, id or name"),
        ({"run_every": 1}, "benchmark[0]: does not name a benchmark; expected path, id or name"),
        ({"run_every": "often"}, "benchmark[0].run_every: is 'often'; expected int"),
        ({"run_every": 1, "path": "arith", "limit": [1]}, "benchmark[0].limit: is [1]; expected int"),
    ],
)
def test_a_section_that_is_wrong_is_named(tmp_path, monkeypatch, section, message):
    benchmark(tmp_path)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - its text is compared
        build_in_loop_evaluators({"benchmark": [section]}, tokenizer=None)
    assert str(caught.value) == message
