"""A task of lm-evaluation-harness from responses to numbers, and numbers computed again from its own files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from calipers.errors import InputError
from calipers.request import resolve
from calipers.systems.lm_eval.entries import scorings
from calipers.systems.lm_eval.read import LM_EVAL
from calipers.systems.lm_eval.task_scores import AnsweredDocument, ScoringSettings, score_documents
from calipers.systems.lm_eval.write import results_of, table_of

RUNS = Path(__file__).parents[2] / "golden" / "lm_eval" / "e2e"
FATAL = "a" * 60 + "!"


def scored(resps, targets, way=None, **asked):
    documents = [AnsweredDocument({}, target, [held]) for held, target in zip(resps, targets, strict=True)]
    return score_documents(documents, scorings("generate_until", **asked), way or ScoringSettings())


def listed(*steps, **more):
    return [{"name": "p", "filter": [{"function": step} if isinstance(step, str) else step for step in steps], **more}]


REPEATS = [["a", "x", "a", "x"], ["x", "x", "x", "b"]]


@pytest.mark.parametrize(
    ("metric", "steps", "scorer", "expected"),
    [
        ({}, None, None, {"exact_match,none": 0.5}),  # without filters, the first repeat
        ({}, ["noop"], None, {"exact_match,p": 0.375}),  # no filter picks, no reduction is named: lm-eval's mean
        ({}, ["noop"], "gen", {"exact_match,p": 0.5}),  # the guide's scorers take the first
        ({"reduction": "take_first"}, ["noop"], None, {"exact_match,p": 0.5}),
        ({"reduction": "mean"}, ["noop"], None, {"exact_match,p": 0.375}),
        ({"reduction": "pass_at_k", "k": 2}, ["noop"], None, {"pass@2(exact_match),p": (5 / 6 + 0.5) / 2}),
        ({"reduction": "majority"}, ["noop"], None, {"exact_match,p": 0.5}),
    ],
)
def test_repeats(metric, steps, scorer, expected):
    asked = {"metric_list": [{"metric": "exact_match", **metric}], "scorer": scorer}
    found = scored(REPEATS, ["a", "b"], filter_list=listed(*steps) if steps else None, **asked)
    numbers = found.numbers(0).metrics
    assert {key: value for key, value in numbers.items() if "stderr" not in key} == pytest.approx(expected)


def test_all_at_once_is_as_one_by_one():
    resps = [[f"#### {n % 7}."] for n in range(200)] + [["none"]]
    targets = [str(n % 5) for n in range(201)]
    asked = {"filter_list": listed("regex", "take_first")}
    fast = scored(resps, targets, metric_list=[{"metric": "exact_match", "ignore_punctuation": True}], **asked)
    slow = scored(  # a second metric: documents one by one
        resps,
        targets,
        metric_list=[{"metric": "exact_match", "ignore_punctuation": True}, {"metric": "bypass"}],
        **asked,
    )
    (one,), (other,) = fast.pipelines, slow.pipelines
    assert [row["exact_match"] for row in one.scores] == [row["exact_match"] for row in other.scores]
    assert (one.outcomes, one.answers) == (other.outcomes, other.answers)
    assert one.outcomes.count("unparsed") == 1


@pytest.mark.usefixtures("impatient")
def test_a_pattern_without_end_is_a_gap_and_no_zero():
    steps = [{"function": "regex", "regex_pattern": "(a+)+$"}, "take_first"]
    found = scored([["aa"], [FATAL], ["b"]], ["aa", "a", "b"], filter_list=listed(*steps))
    assert found.pipelines[0].outcomes == ["scored", "filter_timeout", "unparsed"]
    assert found.values() == {"exact_match,p": [1.0, 0.0]}
    assert found.numbers(0).sample_len == 2


@pytest.mark.usefixtures("impatient")
def test_so_is_one_among_what_exact_match_ignores():
    found = scored(
        [["aa"], [FATAL]], ["aa", "b"], metric_list=[{"metric": "exact_match", "regexes_to_ignore": ["(a+)+$"]}]
    )
    assert found.pipelines[0].outcomes == ["scored", "filter_timeout"]
    assert found.values() == {"exact_match,none": [1.0]}


@pytest.mark.usefixtures("impatient")
def test_a_repeat_without_an_answer_in_time_is_left_out_of_the_mean():
    steps = [{"function": "regex", "regex_pattern": "(a+)+$"}]
    assert scored([["aa", FATAL]], ["aa"], filter_list=listed(*steps)).values() == {"exact_match,p": [1.0]}


def test_what_a_functions_keys_inherit():
    def both(references, predictions):
        return {"one": 1.0, "two": 2.0}

    entry = {"metric": both, "aggregation": "median", "higher_is_better": False}
    found = scored([["x"], ["y"]], ["x", "y"], metric_list=[entry])
    assert found.higher_is_better() == {"both": False, "one": False, "two": False}
    assert found.numbers(0).metrics["two,none"] == 2.0


def test_the_keys_of_each_of_several_functions_inherit_its_own():
    def both(references, predictions):
        return {"one": 1.0, "two": 2.0}

    def length(references, predictions):
        return len(predictions[0])

    def half(values):
        return sum(values) / 2

    metrics = [
        {"metric": length, "aggregation": "mean", "higher_is_better": False},
        {"metric": both, "aggregation": half, "higher_is_better": True},
    ]
    found = scored([["x"], ["y"], ["z"]], ["x", "y", "z"], metric_list=metrics)
    assert found.higher_is_better() == {"length": False, "both": True, "one": True, "two": True}
    numbers = found.numbers(0).metrics
    assert [numbers[f"{name},none"] for name in ("length", "one", "two")] == [1.0, 1.5, 3.0]


def test_a_metric_that_process_results_adds_has_no_better_way():
    way = ScoringSettings(process_results=lambda doc, results: {"exact_match": 1.0, "length": 3})
    found = scored([["x"]], ["x"], way, metric_list=[{"metric": "exact_match"}])
    assert found.higher_is_better() == {"exact_match": True}
    assert found.values() == {"exact_match,none": [1.0], "length,none": [3]}


def test_an_error_says_pipeline_and_document():
    table = {"function": "map", "mapping_dict": {"5": "5", "x": 1.5}}
    metrics = [{"metric": "exact_match", "ignore_case": True}]
    with pytest.raises(InputError, match=r"pipeline 'p', document 1"):  # 1.5 has no case to ignore
        scored([["5"], ["x"]], ["5", 5], filter_list=listed(table, "take_first"), metric_list=metrics)


def test_a_k_that_no_document_has_is_refused():
    asked = {"metric_list": [{"metric": "exact_match", "reduction": "pass_at_k", "k": 9}]}
    with pytest.raises(InputError, match="expected repeats: 9"):
        scored(REPEATS, ["a", "b"], filter_list=listed("noop"), **asked)


@pytest.mark.parametrize("name", ["acc", "exact_match", "mean"])
def test_the_dialects_names_are_means_over_documents(name):
    assert resolve(name, LM_EVAL).metric.name == "mean_reward"


def test_samples_add_up_to_the_table_that_was_printed():
    path = RUNS / "gen_repeats" / "samples_e2e_gen_repeats.jsonl"
    assert table_of([str(path)]) == (RUNS / "gen_repeats" / "table.txt").read_text()


def test_a_results_file_stands_for_the_samples_beside_it_and_its_groups():
    found = results_of([str(RUNS / "mc_group" / "results.json")])
    theirs = json.loads((RUNS / "mc_group" / "results.json").read_text())
    assert found["results"]["e2e_mc_beta"] == pytest.approx(theirs["results"]["e2e_mc_beta"])
    assert table_of([str(RUNS / "mc_group" / "results.json")]) == (RUNS / "mc_group" / "table.txt").read_text()


def two_models(folder, names=("small", "large")):
    """An output folder of lm-eval in which two models ran the same task."""
    for number, name in enumerate(names):
        place = folder / f"place{number}"
        place.mkdir()
        row = {"doc_id": 0, "doc": {}, "resps": [["x"]], "filtered_resps": ["x"], "filter": "none", "acc": number}
        (place / "samples_t_2026-01-01T00-00-00.jsonl").write_text(json.dumps(row) + "\n")
        results = {"results": {"t": {}}, "configs": {"t": {}}, "model_name": name}
        (place / "results_2026-01-01T00-00-00.json").write_text(json.dumps(results))
    return folder


def test_two_models_have_a_table_each(tmp_path):
    small, large = table_of([str(two_models(tmp_path))]).split("large\n")
    assert small.startswith("small\n")
    assert ("|0|" in small.replace(" ", ""), "|1|" in large.replace(" ", "")) == (True, True)


def test_one_model_that_ran_a_task_twice_is_not_shown_once(tmp_path):
    with pytest.raises(InputError, match="task 't' was also run in "):
        table_of([str(one) for one in two_models(tmp_path, ["same", "same"]).glob("*/samples*")])


def test_samples_alone_are_known_by_the_registry(tmp_path):
    row = {"doc_id": 0, "doc": {}, "resps": [["x"]], "filtered_resps": ["x"], "filter": "none", "ter": ["a b", "a c"]}
    path = tmp_path / "samples_t.jsonl"
    path.write_text(json.dumps({**row, "brier_score": [0, "[0.5 0.5]"]}) + "\n")
    pytest.importorskip("sacrebleu", reason="sacrebleu comes with calipers[text]")
    found = results_of([str(path)])
    assert found["results"]["t"]["ter,none"] == 50.0
    assert found["results"]["t"]["brier_score,none"] == "N/A"  # rounded to text by lm-eval: not to be had again
    assert found["higher_is_better"] == {"t": {"ter": False, "brier_score": False}}


def written(folder, **results):
    """A file of samples with two documents, and the results file beside it."""
    rows = [
        {"doc_id": n, "doc": {}, "resps": [["x"]], "filtered_resps": ["x"], "filter": "none", "odd": n} for n in (0, 1)
    ]
    (folder / "samples_t_2026-01-01T00-00-00.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    path = folder / "results_2026-01-01T00-00-00.json"
    path.write_text(json.dumps({"results": {"t": {"name": "t", "odd,none": 7.0}}, **results}))
    return path


def test_a_metric_of_the_tasks_own_function_keeps_its_number(tmp_path):
    entry = {"metric": "odd", "aggregation": "def seven(items):\n    return 7.0\n"}
    found = results_of([str(written(tmp_path, configs={"t": {"metric_list": [entry]}}))])
    assert found["results"]["t"]["odd,none"] == 7.0  # and not the mean of 0 and 1


ODD = {"metric": "def odd(references, predictions):\n    return 1.0\n", "aggregation": "median"}
KEYS = {"metric": "def keys(references, predictions):\n    return {'odd': 1.0}\n", "aggregation": "median"}
OTHER = {"metric": "<class 'utils.Other'>", "aggregation": "mean"}


@pytest.mark.parametrize(
    ("config", "number"),
    [
        ({"metric_list": [ODD]}, 1.0),  # the larger of 0 and 1
        ({"metric_list": [OTHER, ODD]}, 1.0),
        ({"metric_list": [KEYS]}, 1.0),  # a key of the function's result
        ({"metric_list": [KEYS, OTHER]}, 7.0),  # a key of either: the number of the results file
        ({"metric_list": [KEYS], "process_results": "def own(doc, results): ..."}, 0.5),
        ({"metric_list": [{"metric": [1]}, 5]}, 0.5),
    ],
)
def test_a_metric_that_is_a_function_is_aggregated_as_its_entry_says(tmp_path, config, number):
    found = results_of([str(written(tmp_path, configs={"t": config}))])
    assert found["results"]["t"]["odd,none"] == number


@pytest.mark.parametrize(
    ("block", "content", "wrong"),
    [
        ("results", {"t": 5}, "results: Expected `object`, got `int` - at `$[...]`"),
        ("groups", "x", "groups: Expected `object`, got `str`"),
        ("group_subtasks", {"g": [["t"]]}, "group_subtasks: Expected `str`, got `array`"),
        ("configs", [[1]], "configs: Expected `object`, got `array`"),
        ("config", 5, "config: Expected `object`, got `int`"),
        ("versions", 1.5, "versions: Expected `object`, got `float`"),
        ("higher_is_better", {"t": {"odd": []}}, "higher_is_better: Expected `bool | null`, got `array`"),
    ],
)
def test_a_block_of_another_shape_is_refused_with_the_file(tmp_path, block, content, wrong):
    path = written(tmp_path, **{block: content})
    with pytest.raises(InputError) as refused:
        table_of([str(path)])
    assert str(refused.value).startswith(f"{path}: {wrong}")
    with pytest.raises(InputError, match=block):
        table_of([str(path.with_name("samples_t_2026-01-01T00-00-00.jsonl"))])


@pytest.mark.parametrize("block", ["configs", "versions", "higher_is_better", "groups"])
def test_a_block_that_is_null_is_empty(tmp_path, block):
    assert "|odd" in table_of([str(written(tmp_path, **{block: None}))])


def test_an_error_that_is_no_number_is_shown_as_it_is(tmp_path):
    path = written(tmp_path, groups={"g": {"odd,none": 0.5, "odd_stderr,none": "unknown"}})
    assert "unknown" in table_of([str(path)])


@pytest.mark.parametrize(
    ("metric", "value"),
    [
        ("f1", "[{}, 1]"),
        ("word_perplexity", '["x", 3]'),
        ("word_perplexity", f"[{-(10**400)}, 3]"),
        ("brier_score", f"[0, [{10**400}, 0.5]]"),
    ],
)
def test_values_that_are_no_numbers_have_no_number(tmp_path, metric, value):
    path = written(tmp_path)
    samples = path.with_name("samples_t_2026-01-01T00-00-00.jsonl")
    text = samples.read_text()
    for number in (0, 1):
        text = text.replace(f'"odd": {number}', f'"{metric}": {value}')
    samples.write_text(text)
    assert results_of([str(samples)])["results"]["t"][f"{metric},none"] == "N/A"
