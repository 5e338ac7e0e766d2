"""The joint report of several runs of lm-evaluation-harness' tasks."""

import json
from datetime import datetime

import pytest

from calipers.errors import InputError
from calipers.running.perform import perform
from calipers.running.settings import jobs_of
from calipers.systems.lm_eval.report import joined, part, stored_reports
from calipers.systems.lm_eval.write import tables

MODEL = """
from calipers.clients import Scored

class Model:
    async def complete(self, request):
        raise AssertionError("nothing is to be written")

    def score(self, texts):
        return [Scored(-1.0 - len(str(one)) % 7, False, 1) for one in texts]
"""
HEAD = "dataset_path: json\ndataset_kwargs: {data_files: {test: data.jsonl}}\ntest_split: test\n"
CHOICE = f"{HEAD}output_type: multiple_choice\ndoc_to_text: q\ndoc_to_choice: c\ndoc_to_target: n\n"
TASKS = {
    "one": f"task: one\n{CHOICE}metric_list: [{{metric: acc}}, {{metric: f1}}]\n",
    "two": f"task: two\n{CHOICE}metric_list: [{{metric: acc}}]\n",
    "roll": f"task: roll\n{HEAD}output_type: loglikelihood_rolling\ndoc_to_text: ''\ndoc_to_target: q\n",
    "both": "group: both\ntask: [one, two]\naggregate_metric_list: [{metric: acc}]\n",
}

FIRST = "[{function: take_first}]"


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = [{"q": "word " * (i % 4 + 1), "c": ["sat", "ran" * (i % 3 + 1)], "n": i % 2} for i in range(12)]
    (tmp_path / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "model.py").write_text(MODEL)
    for name, text in TASKS.items():
        (tmp_path / f"{name}.yaml").write_text(text)
    return tmp_path


def run(*benchmarks, **given):
    jobs, _ = jobs_of(benchmarks, {"model": ("python/model.py:Model",), "include_path": (".",), **given})
    reports = [perform(job) for job in jobs]
    return list(joined([part(report.job, report.folder) for report in reports]))


def test_tasks_asked_for_together_are_one_table_with_their_groups(home):
    (found,) = run("both", "roll.yaml")
    rows = [line.split("|") for line in tables(found.results).splitlines() if line]
    names = [row[1].strip() for row in rows if row[1].strip(" -:")]
    assert names == ["Tasks", "both", "- one", "- two", "roll", "Groups", "both"]
    assert list(found.results["results"]) == ["one", "two", "roll", "both"]
    assert found.notes == []


def test_the_document_has_every_number_of_the_table(home):
    (found,) = run("both", "roll.yaml")
    told = found.document()
    rows = {**told["tasks"], **told["groups"]}
    for name, row in found.results["results"].items():
        numbers = {key: value for key, value in row.items() if "," in key and "_stderr," not in key}
        assert {key: one["value"] for key, one in rows[name].items()} == numbers
        for key, one in rows[name].items():
            metric, pipeline = key.split(",")
            error = row[f"{metric}_stderr,{pipeline}"]
            assert one["stderr"] == (None if error == "N/A" else error)
            assert (one["interval"] is None) == (one["why"] is not None)
    assert told["tasks"]["roll"]["bits_per_byte,none"]["method"] == "bootstrap"
    assert told["tasks"]["roll"]["bits_per_byte,none"]["higher_is_better"] is False
    assert told["groups"]["both"]["acc,none"]["tasks"] == 2
    json.dumps(told, allow_nan=False)


def test_a_group_has_no_row_from_some_of_its_tasks(home):
    jobs, _ = jobs_of(["both"], {"model": ("python/model.py:Model",), "include_path": (".",)})
    report = perform(jobs[0])
    (found,) = joined([part(report.job, report.folder)])
    assert found.sentences[-1] == "both: no row, because two has no numbers here"


def test_two_tasks_of_one_name_are_two_reports(home):
    (home / "more").mkdir()
    (home / "more" / "two.yaml").write_text(TASKS["two"].replace("doc_to_text: q", "doc_to_text: '{{q}}?'"))
    first, second = run("two.yaml", "more/two.yaml")
    assert list(first.results["results"]) == list(second.results["results"]) == ["two"]


def test_predictions_alone_are_samples_without_a_score(home):
    (found,) = run("roll.yaml", predict_only=True)
    paths = found.write(home / "out", datetime(2026, 1, 2))
    (samples,) = [path for path in paths if path.name.startswith("samples_roll_")]
    first = json.loads(samples.read_text().splitlines()[0])
    assert (first["doc_id"], first["metrics"], len(first["resps"])) == (0, [], 1)
    assert found.document()["tasks"] == {}


@pytest.mark.parametrize(
    ("entries", "said"),
    [
        ("[{metric: acc}]", []),
        (
            "[{metric: accc}]",
            ["both: no accc, because none of its tasks has it in the pipelines of its filter_list"],
        ),
        ("[{metric: f1}]", ["both f1,none: over 1 of 2 tasks; none in two"]),
        (
            "[{metric: acc, filter_list: strict}]",
            ["both: no acc, because none of its tasks has it in the pipelines of its filter_list"],
        ),
    ],
)
def test_what_a_group_asks_for_in_vain_is_said(home, entries, said):
    (home / "both.yaml").write_text(f"group: both\ntask: [one, two]\naggregate_metric_list: {entries}\n")
    (found,) = run("both")
    assert found.notes == said


def test_two_entries_of_a_metric_are_weighed_each_in_its_way(home):
    """Weighted by documents in one pipeline, equally in the other: the interval contains the number that is shown."""
    for name, size, gold in (("one", 60, 0), ("two", 12, 1)):
        rows = [{"q": "word", "c": ["sat", "ran" * 3], "n": gold if i % 6 else 1 - gold} for i in range(size)]
        (home / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        pipelines = f"filter_list: [{{name: p, filter: {FIRST}}}, {{name: q, filter: {FIRST}}}]\n"
        (home / f"{name}.yaml").write_text(TASKS[name].replace("data.jsonl", f"{name}.jsonl") + pipelines)
    entries = "[{metric: acc, filter_list: p}, {metric: acc, filter_list: [q], weight_by_size: false}]"
    (home / "both.yaml").write_text(f"group: both\ntask: [one, two]\naggregate_metric_list: {entries}\n")
    (found,) = run("both")
    held = {one.key: one for one in found.numbers if one.name == "both"}
    assert sorted(held) == ["acc,p", "acc,q"]
    assert abs(held["acc,p"].value - held["acc,q"].value) > 0.2
    for one in held.values():
        assert sum(one.spread.ends) / 2 == pytest.approx(one.value, abs=0.05)


@pytest.mark.parametrize(
    ("name", "value", "wrong"),
    [
        ("samples", [1], "is [1]; expected an integer"),
        ("model_args", ["x"], "is ['x']; expected a mapping"),
        ("task_metadata", "true", "is 'true'; expected a mapping"),
        ("include_path", 5, "is 5; expected text or a list of texts"),
        ("interval", {}, "is {}; expected text or null"),
        ("default_metrics", {"a": 1}, "is {'a': 1}; expected release or guide"),
    ],
)
def test_a_setting_of_a_plan_that_has_another_type_is_refused_by_name(home, name, value, wrong):
    (job,), _ = jobs_of(["roll.yaml"], {"model": ("python/model.py:Model",)})
    folder = perform(job).folder
    path = folder / "plan.json"
    plan = json.loads(path.read_text())
    plan["settings"][name] = {"value": value, "from": "command line"}
    path.write_text(json.dumps(plan))
    with pytest.raises(InputError) as refused:
        stored_reports([str(folder)])
    assert str(refused.value) == f"{path}: {name}: {wrong}"
