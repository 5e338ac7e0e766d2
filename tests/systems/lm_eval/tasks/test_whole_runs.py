"""The requests and configurations of lm-evaluation-harness' own runs, of every output type."""

import json
from pathlib import Path

import pytest

from calipers.systems.lm_eval.tasks.groups import Tasks, leaves
from calipers.systems.lm_eval.tasks.loaded import load_task, requests, trusted

RUNS = Path(__file__).parents[3] / "golden" / "lm_eval" / "e2e"


def recorded(name):
    """(task, document, number of the request) -> its arguments."""
    lines = map(json.loads, (RUNS / name / "fixtures.jsonl").read_text().splitlines())
    return {(line["task"], line["doc_id"], line["idx"]): line["args"] for line in lines}


@pytest.mark.parametrize(
    ("name", "asked"),
    [
        ("gen_repeats", "e2e_gen_repeats"),
        ("mc_group", "e2e_mc"),
        ("mc_group", "e2e_mc_tag"),
        ("rolling", "e2e_rolling"),
    ],
)
def test_the_same_requests(name, asked):
    found = {}
    for leaf in leaves(Tasks([RUNS / name / "inputs"]).find(asked)):
        task = load_task(trusted(leaf.config, leaf.file, trust=False), leaf.file)
        found |= {(leaf.name, one.doc_id, one.idx): list(one.args) for one in requests(task)}
    assert found == recorded(name)


@pytest.mark.parametrize("name", ["gen_repeats", "mc_group", "rolling"])
def test_the_same_configuration(name):
    dumped = json.loads((RUNS / name / "results.json").read_text())["configs"]
    for task, expected in dumped.items():
        [leaf] = Tasks([RUNS / name / "inputs"]).find(task)
        found = leaf.config.dumped()
        found.pop("tag", None)  # left out there, once the index has it
        expected["metadata"].pop("config_source")
        found.setdefault("num_fewshot", 0)  # where the task says nothing, the run says so
        assert found == expected
        assert [key for key in found if key != "num_fewshot"] == [key for key in expected if key != "num_fewshot"]
