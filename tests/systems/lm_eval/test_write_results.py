"""The results object of a run; the golden runs compare complete ones."""

from __future__ import annotations

import json
from dataclasses import replace

from calipers.systems.lm_eval.entries import scorings
from calipers.systems.lm_eval.task_scores import AnsweredDocument, ScoringSettings, score_documents
from calipers.systems.lm_eval.tasks import TaskFile, task_config
from calipers.systems.lm_eval.tasks.groups import Leaf, TaskGroup
from calipers.systems.lm_eval.write import RanTask, run_results


def processed(docs):
    return docs


def ran(name, answers, **fields):
    values = {"task": name, "test_split": "test", "num_fewshot": 2, "tag": "t", **fields}
    file = TaskFile(None, values)
    config = task_config(file)
    documents = [AnsweredDocument({}, "a", [[answer]]) for answer in answers]
    scores = score_documents(documents, scorings("generate_until", metric_list=config.metric_list), ScoringSettings())
    return RanTask(config, "inline", scores, scores.numbers(0), 9, len(answers)), Leaf(name, file, config)


def metrics(better):
    return [{"metric": "exact_match", "higher_is_better": better}]


def test_groups_in_groups_are_rows_over_all_their_tasks():
    one, first = ran("one", "ab", metric_list=metrics(True), process_docs=processed)
    two, second = ran("two", "aaax", metric_list=metrics(False), metadata={"version": 3})
    inner = TaskGroup("inner", "Inner", [second])
    outer = TaskGroup("outer", "Outer", [first, inner], [{"metric": "exact_match"}], {"version": 1.0})
    found = run_results([one, two], [outer], config={"model": "m"})
    assert found["results"]["outer"] == {
        **{"alias": "Outer", "name": "outer", "sample_len": 6, "exact_match,none": (0.5 * 2 + 0.75 * 4) / 6},
        **{"exact_match_stderr,none": "N/A", "sample_count": {"exact_match,none": 6}},
    }
    assert found["results"]["inner"] == {"alias": "Inner", "name": "inner"}
    assert list(found["groups"]) == ["outer"]  # only what adds something up
    assert found["group_subtasks"] == {"outer": ["one", "inner"], "inner": ["two"]}
    assert found["versions"] == {"inner": "N/A", "one": "Yaml", "outer": "1.0", "two": 3}
    assert found["n-shot"] == {"inner": 2, "one": 2, "outer": 2, "two": 2}
    assert list(found["results"]) == ["one", "two", "inner", "outer"]  # the inner group first
    assert found["higher_is_better"]["outer"] == {"exact_match": True}  # by its own tasks: the inner group comes later
    assert found["n-samples"]["two"] == {"original": 9, "effective": 4}
    assert found["configs"]["one"]["process_docs"] == "def processed(docs):\n    return docs\n"
    assert found["configs"]["two"]["metadata"] == {"version": 3, "config_source": "inline"}
    assert "tag" not in found["configs"]["one"]


class Answers:
    def __call__(self, resps, docs):
        return resps


def test_functions_have_no_address():
    """Two exports of one run must be equal, although memory addresses differ between processes."""
    steps = [{"function": processed}, {"function": Answers}, {"function": Answers(), "kwargs": {"key": processed}}]
    one, leaf = ran("one", "a")
    config = replace(one.config, filter_list=[{"name": "own", "filter": steps}], doc_to_text=Answers())
    found = run_results([replace(one, config=config)], [leaf])["configs"]["one"]
    (pipeline,) = found["filter_list"]
    name = f"{__name__}.Answers"
    assert [step["function"] for step in pipeline["filter"]] == [
        "<function processed>",
        f"<class '{name}'>",
        f"<{name} object>",
    ]
    assert pipeline["filter"][2]["kwargs"] == {"key": "<function processed>"}
    assert found["doc_to_text"] == f"<{name} object>"
    assert " at 0x" not in json.dumps(found)


def test_directions_that_differ_are_not_the_groups():
    one, first = ran("one", "ab", metric_list=metrics(True))
    two, second = ran("two", "ab", metric_list=metrics(False))
    found = run_results([one, two], [TaskGroup("g", "g", [first, second])])
    assert found["higher_is_better"]["g"] == {"exact_match": None}


def test_shots_that_differ_are_not_the_groups():
    one, first = ran("one", "a")
    two, second = ran("two", "a", num_fewshot=0)
    found = run_results([one, two], [TaskGroup("g", "g", [first, second])])
    assert found["n-shot"] == {"one": 2, "two": 0}
    assert "groups" not in found
