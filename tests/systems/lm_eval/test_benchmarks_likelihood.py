import json
from dataclasses import replace
from pathlib import Path

import pytest
from systems.lm_eval.tasks.given import task, task_folder

from calipers.clients import Completion, Continuation, Rolling, Scored, texts_of, written
from calipers.errors import InputError, VerifierError
from calipers.running import Job
from calipers.systems.lm_eval.benchmarks import LoadedTasks, TaskRequest, judge_of, scoring, settings, suite
from calipers.systems.lm_eval.client import prompts, task_client
from calipers.systems.lm_eval.report import sample_rows, score_run
from calipers.systems.lm_eval.write import line_text
from calipers.tasks import Suite

E2E = Path(__file__).parents[2] / "golden" / "lm_eval" / "e2e"
CHOICE = {"output_type": "multiple_choice", "doc_to_choice": "c", "doc_to_target": "n"}
LIKELIHOOD = {"output_type": "loglikelihood", "doc_to_target": "a"}
ROLLING = {"output_type": "loglikelihood_rolling", "doc_to_target": "a"}
MUTUAL = [{"metric": "acc_mutual_info"}]


@pytest.mark.parametrize(
    ("fields", "wanted"),
    [
        (CHOICE, [Continuation("q0", " x"), Continuation("q0", " y")]),
        (CHOICE | {"target_delimiter": ""}, [Continuation("q0", "x"), Continuation("q0", "y")]),
        (
            CHOICE | {"metric_list": MUTUAL},  # each choice by itself, too
            [Continuation("q0", " x"), Continuation("q0", " y"), Continuation("", " x"), Continuation("", " y")],
        ),
        (
            CHOICE | {"doc_to_text": "{{n}}", "doc_to_target": "a"},  # the choices are contexts
            [Continuation("x", " a0"), Continuation("y", " a0")],
        ),
        (LIKELIHOOD, [Continuation("q0", "a0")]),  # no delimiter
        (ROLLING, [Rolling("a0")]),
    ],
)
def test_what_is_asked_of_a_document(fields, wanted):
    made = task(**fields)
    asked = suite(made).tasks[0]
    assert texts_of(asked.prompt) == wanted
    assert (asked.id, asked.verifier) == ("0", "lm_eval")


def test_a_likelihood_is_asked_once_of_completions(tmp_path):
    text = "task: made\ndataset_path: json\ndataset_kwargs: {data_files: data.jsonl}\ntest_split: train\n"
    path = task_folder(tmp_path, text + "output_type: loglikelihood\ndoc_to_text: q\ndoc_to_target: a\nrepeats: 3\n")
    [found] = settings(str(path), TaskRequest())
    assert (found["samples"], found["api"]) == (1, "completions")
    assert "temperature" not in found  # nothing is generated


@pytest.mark.parametrize(
    ("fields", "docs", "said"),
    [
        (LIKELIHOOD, [{"q": "c", "a": 3}], "document 0: is 3; expected the text to compute the likelihood of"),
        (ROLLING, [{"q": "", "a": "x"}, {"q": "", "a": None}], "document 1: is None; expected the text"),
        (CHOICE, [{"q": "c", "c": ["x"], "n": 0}, {"q": "c", "c": ["x", 3], "n": 0}], "document 1: a choice is 3"),
        (CHOICE, [{"q": "c", "c": ["x"], "n": 0}, {"q": "c", "c": ["x"], "n": 0.5}], "the target is 0.5"),
    ],
)
def test_a_document_that_cannot_be_asked_is_refused_before_the_first_call(fields, docs, said):
    with pytest.raises(InputError) as caught:
        suite(task(docs, **fields))
    assert said in str(caught.value)


def test_what_lm_eval_passes_over_in_silence_is_noted():
    docs = [{"q": "c", "c": ["x", "y"], "n": 0}, *({"q": "c", "c": ["x", "y"], "n": -100} for _ in range(4))]
    made = suite(task(docs, **CHOICE, metric_list=[{"metric": "acc"}, {"metric": "bleu"}]))
    first, second = made.notes
    assert first.endswith(
        "metric_list: bleu has no value for multiple_choice; it is skipped, as in lm-evaluation-harness"
    )
    assert second.endswith("4 documents (1, 2, 3, ...) have a target that is not one of the choices, and count as 0")


SAID = written([Continuation("c", " x"), Continuation("c", " y")], [Scored(-1.0, True, 1), Scored(-2.0, False, 1)])


@pytest.mark.parametrize(("good", "bad"), [(0, 7), (0, -1), ([0], [7, 8])])
def test_one_bad_index_is_a_gap_and_counts_0_as_there(good, bad, tmp_path):
    made = task([{"q": "c", "c": ["x", "y"], "n": one} for one in (good, bad, good)], **CHOICE)
    [told] = suite(made).notes
    assert "doc_to_target: 1 documents (1) have a target index beyond their choices: they have no reward" in told
    judge, asked = judge_of(made).judge, suite(made).tasks
    assert judge.verify(asked[0], Completion(SAID)).reward == 1.0
    with pytest.raises(VerifierError, match=r"the target is choice (7|-1) of 2, counted from 0; lm-evaluation-harness"):
        judge.verify(asked[1], Completion(SAID))
    log = tmp_path / "rollouts.jsonl"
    log.write_text("".join(json.dumps({"task": str(n), "completion": SAID}) + "\n" for n in range(3)))
    assert score_run(made, log, 1).scores.values()["acc,none"] == [1.0, 0.0, 1.0]


def test_of_several_targets_one_may_be_no_choice():
    made = task([{"q": "c", "c": ["x", "y"], "n": one} for one in ([0], [0, 7])], **CHOICE)
    assert judge_of(made).judge.verify(suite(made).tasks[1], Completion(SAID)).reward == 1.0


class Writer:
    async def complete(self, request): ...

    async def close(self): ...


class Scorer(Writer):
    async def score(self, requests): ...


def suite_of(kind):
    return Suite("made", [], {"lm_eval": {"config": {"output_type": kind}}})


@pytest.mark.parametrize(
    ("job", "client", "said"),
    [
        (
            Job("b", "litellm/m"),
            Writer(),
            "model 'litellm/m' does not return log-likelihoods; expected hf/PATH, or openai/NAME",
        ),
        (Job("b", "hf/m", samples=2), Scorer(), "--samples: is 2; expected 1"),
        (
            Job("b", "hf/m", system_prompt="Be brief."),
            Scorer(),
            "--system-prompt: a log-likelihood request is plain text without a system message",
        ),
    ],
)
def test_who_cannot_be_asked_for_likelihoods(job, client, said):
    assert task_client(client, job, suite_of("generate_until")) is client  # for answers anybody can
    with pytest.raises(InputError) as caught:
        task_client(client, job, suite_of("multiple_choice"))
    assert said in str(caught.value)


def test_stored_likelihoods_need_no_model():
    client = Writer()
    assert task_client(client, Job("b", "replay/x.jsonl"), suite_of("multiple_choice")) is client


def verdict(made, *likelihoods, number=0):
    asked = texts_of(dict(prompts(made))[number])
    scored = [Scored(logprob, greedy, 1) for logprob, greedy in likelihoods]
    judge = judge_of(made).judge
    return judge.verify(suite(made).tasks[number], Completion(written(asked, scored)))


def test_a_choice_is_judged_by_every_metric():
    names = ["f1", "acc", "acc_norm", "exact_match", "brier_score"]
    made = task([{"q": "c", "c": ["x", "long one"], "n": 1}], **CHOICE, metric_list=[{"metric": one} for one in names])
    found = verdict(made, (-2.0, False), (-3.0, True))
    assert (found.reward, found.answer) == (0.0, "x")  # acc: f1 is none of one document
    assert {key: value for key, value in found.fields.items() if key != "brier_score,none"} == {
        "acc,none": 0.0,
        "acc_norm,none": 1.0,
        "exact_match,none": 1.0,
    }
    assert found.fields["brier_score,none"] == pytest.approx(2 * 0.7310585786**2)


def test_the_reward_of_a_text_is_its_log_likelihood_where_nothing_is_averaged():
    found = verdict(task([{"q": "", "a": "caf\u00e9 au lait"}], **ROLLING), (-26.0, False))
    assert found.reward == -26.0 / 13
    assert {"logprob": -26.0, "bytes": 13, "words": 3, "scored_tokens": 1}.items() <= found.fields.items()
    assert found.fields["bits_per_byte,none"] == pytest.approx(2 / 0.6931471805599453)
    alone = verdict(task(**LIKELIHOOD, metric_list=[{"metric": "perplexity"}]), (-2.0, True))
    assert (alone.reward, alone.fields["perplexity,none"]) == (-2.0, pytest.approx(7.38905609893065))
    assert verdict(task(**LIKELIHOOD), (-2.0, True)).reward == 1.0  # acc: it is what the model would have said


def test_a_perplexity_beyond_all_numbers_is_no_column_and_no_failure():
    found = verdict(task([{"q": "", "a": "x"}], **ROLLING), (-1e6, False))
    assert "byte_perplexity,none" not in found.fields
    assert found.reward == -1e6


def test_a_function_of_the_task_judges_likelihoods():
    def own(doc, results):
        return {"gap": results[0][0] - results[1][0]}

    made = task(**CHOICE, process_results=own, metric_list=[{"metric": "gap", "aggregation": "mean"}])
    assert verdict(made, (-1.0, True), (-4.0, False)).reward == 3.0


def test_a_named_scorer_knows_more_metrics_and_counts_the_delimiter():
    names = ["acc", "acc_norm", "bpb", "choice_logprob", "brier_score"]
    docs = [{"q": "c", "c": ["ab", "abcde"], "n": 1}] * 2
    asked = {**CHOICE, "metric_list": [{"metric": one} for one in names]}
    made = task(docs, **asked, scorer="ll")
    found = verdict(made, (-3.2, False), (-6.3, True))
    assert found.fields["bpb,none"] == pytest.approx(6.3 / 6 / 0.6931471805599453)  # " abcde" has six bytes
    assert found.fields["acc_norm,none"] == 1.0  # -3.2 / 3 < -6.3 / 6
    assert (
        verdict(task(docs, **{**CHOICE, "metric_list": [{"metric": "acc_norm"}]}), (-2.4, False), (-6.3, True)).reward
        == 0.0
    )
    assert {one.name: one.aggregation for one in scoring(made)[0].metrics} == dict.fromkeys(names, "mean")
    with pytest.raises(InputError, match="no lm_eval metric named 'bpb'"):
        suite(task(docs, **asked))


@pytest.mark.parametrize("text", ["B", '[{"logprob":-1,"greedy":true,"tokens":1,"chars":1,"bytes":1}]'])
def test_stored_answers_of_another_task_are_no_likelihoods(text):
    with pytest.raises(VerifierError, match="expected"):
        judge_of(task(**CHOICE)).judge.verify(suite(task(**CHOICE)).tasks[0], Completion(text))


@pytest.mark.parametrize(
    ("folder", "file", "name"),
    [("mc_group", "alpha", "e2e_mc_alpha"), ("mc_group", "beta", "e2e_mc_beta"), ("rolling", "task", "e2e_rolling")],
)
def test_a_log_gives_the_numbers_and_samples_of_lm_eval(folder, file, name, tmp_path):
    """The responses of lm-evaluation-harness, written as a log of Calipers."""
    made = LoadedTasks().task(str(E2E / folder / "inputs" / f"{file}.yaml"), name, TaskRequest())
    said = {}
    for one in map(json.loads, (E2E / folder / "fixtures.jsonl").read_text().splitlines()):
        if one["task"] == name:
            said.setdefault(one["doc_id"], []).append(one["response"])
    log = tmp_path / "rollouts.jsonl"
    with log.open("w") as file:
        for number, prompt in prompts(made):
            pairs = [one if isinstance(one, list) else [one, False] for one in said[number]]
            completion = written(texts_of(prompt), [Scored(logprob, greedy, 1) for logprob, greedy in pairs])
            file.write(json.dumps({"task": str(number), "sample": 0, "completion": completion}) + "\n")
    scored = score_run(made, log, 1)
    wanted = json.loads((E2E / folder / "results.json").read_text())["results"][name]
    run = json.loads((E2E / folder / "run.json").read_text())
    numbers = {
        key: "N/A" if one is None else one for key, one in scored.scores.numbers(run["bootstrap_iters"]).metrics.items()
    }
    for key, number in numbers.items():
        assert number == pytest.approx(wanted[key], rel=1e-9) if isinstance(number, float) else number == wanted[key]
    assert set(numbers) == {key for key in wanted if "," in key}
    samples = (E2E / folder / f"samples_{name}.jsonl").read_text().splitlines()
    assert [json.loads(line_text(row)) for row in sample_rows(scored)] == [json.loads(line) for line in samples]


def test_other_metrics_are_another_run():
    one = task(**CHOICE)
    other = replace(one, config=replace(one.config, metric_list=[{"metric": "acc_bytes"}]))
    assert suite(one).tasks[0].params["scoring"] != suite(other).tasks[0].params["scoring"]
