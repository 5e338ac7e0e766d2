"""The default metrics of a task without a metric_list: those of the release, or of the guide."""

import math

import pytest
from cli.running import refused
from systems.lm_eval.tasks.given import TASK, task, task_folder

from calipers.errors import InputError
from calipers.systems.lm_eval.benchmarks import LoadedTasks, TaskRequest, scoring, suite
from calipers.systems.lm_eval.task_scores import ScoringSettings, answered_documents, score_documents

GUIDE = TaskRequest(default_metrics="guide")
BARE = TASK.partition("metric_list")[0]
ROLLING = BARE + "output_type: loglikelihood_rolling\n"
PIPELINE = "filter_list: [{name: p, filter: [{function: take_first}]}]\n"


def names(home, text, wanted):
    return [
        entry.name for entry in scoring(LoadedTasks().task(str(task_folder(home, text)), "made", wanted))[0].metrics
    ]


@pytest.mark.parametrize(
    ("text", "release", "guide"),
    [
        (TASK, ["exact_match"], ["exact_match"]),  # it names one
        (BARE + "scorer: gen\n", ["exact_match"], ["exact_match"]),  # or its scorer does
        (BARE + PIPELINE.replace("}]}]", "}], metric_list: [{metric: bleu}]}]"), ["bleu"], ["bleu"]),
        (
            ROLLING,
            ["word_perplexity", "byte_perplexity", "bits_per_byte"],
            ["perplexity", "word_perplexity", "byte_perplexity", "bits_per_byte"],
        ),
        (
            BARE.replace("target: a", "target: n") + "output_type: multiple_choice\ndoc_to_choice: c\n",
            ["acc", "acc_norm"],
            ["acc", "acc_norm"],
        ),
    ],
)
def test_default_metrics(tmp_path, text, release, guide):
    assert names(tmp_path, text, TaskRequest()) == release
    assert names(tmp_path, text, GUIDE) == guide


@pytest.mark.parametrize("text", [BARE, BARE + PIPELINE])
def test_the_guide_has_none_for_generated_text(tmp_path, text):
    assert names(tmp_path, text, TaskRequest()) == ["exact_match"]
    with pytest.raises(
        InputError,
        match=(
            "metric_list: there is no metric_list, and the guide of lm-evaluation-harness defines no default metrics"
        ),
    ):
        names(tmp_path, text, GUIDE)
    assert (
        len(suite(LoadedTasks().task(str(tmp_path / "task.yaml"), "made", TaskRequest(predict_only=True))).tasks) == 6
    )


def test_the_switch_of_the_command(tmp_path):
    task_folder(tmp_path, BARE)
    said = (
        "task.yaml: metric_list: there is no metric_list, and the guide of lm-evaluation-harness "
        "defines no default metrics for generated text; expected "
    )
    for command in (["check", "task.yaml"], ["run", "task.yaml", "--model", "python/x.py:y"]):
        assert refused(*command, "--default-metrics", "guide", cwd=tmp_path).startswith(said)


def test_rolling_perplexity_is_of_the_mean_log_likelihood():
    made = task(output_type="loglikelihood_rolling", metric_list=[{"metric": "perplexity"}])
    lls = [-3.0, -1.0, -2.0, -6.0, -4.0, -2.0]
    scores = score_documents(
        answered_documents(made, {number: [[ll]] for number, ll in enumerate(lls)}),
        scoring(made),
        ScoringSettings("loglikelihood_rolling"),
    )
    assert scores.numbers(0).metrics["perplexity,none"] == pytest.approx(math.exp(3.0))
    assert suite(made).notes == []


def test_decontaminate_keeps_every_response_and_says_so():
    steps = [{"function": "decontaminate", "path": "nowhere"}, {"function": "take_first"}]
    made = task(filter_list=[{"name": "clean", "filter": steps}], metric_list=[{"metric": "exact_match"}])
    said = {number: [[doc["a"] if number else "no"]] for number, doc in enumerate(made.docs)}
    scores = score_documents(answered_documents(made, said), scoring(made), ScoringSettings())
    assert scores.numbers(0).metrics["exact_match,clean"] == pytest.approx(5 / 6)
    (note,) = suite(made).notes
    assert note.endswith("[0]: decontaminate keeps every response: lm-evaluation-harness 0.4.13 has no code for it")
