"""lm-evaluation-harness' complete runs: its task files and recorded responses to its results, samples and table."""

from __future__ import annotations

import json
from pathlib import Path
from shutil import copytree

from golden.lm_eval_close import settled

from calipers.dialects.lm_eval_scoring import Way, answered, score_documents
from calipers.metrics.lm_eval_task import aggregate_group
from calipers.reports.lm_eval import available, line_text, sample_row, task_hash, task_row
from calipers.reports.lm_eval_table import table
from calipers.scores.scorers import scorings
from calipers.tasks.lm_eval.config import task_config
from calipers.tasks.lm_eval.loaded import load_task
from calipers.tasks.lm_eval.requests import requests
from calipers.tasks.lm_eval.yaml import read_task_file

BLOCKS = ("results", "groups", "higher_is_better", "task_hashes")


def run(vector):
    """The blocks of its results that scoring makes, each sample, and the printed table."""
    folder = Path(vector["folder"])
    copytree(folder / "inputs", "inputs")
    said = {}
    for one in _lines(folder / "fixtures.jsonl"):
        said.setdefault((one["task"], one["doc_id"], one["idx"]), []).append(one["response"])
    expected = json.loads((folder / "results.json").read_text())
    iterations = json.loads((folder / "run.json").read_text())["bootstrap_iters"]
    files = {file.values["task"]: file for file in _files("task") if "group" not in file.values}
    found = {"results": {}, "higher_is_better": {}, "task_hashes": {}}
    samples = {}
    for name in sorted(files, key=list(expected["results"]).index):
        row, better, lines = _task(files[name], said, iterations)
        found["results"][name], found["higher_is_better"][name] = row, better
        found["task_hashes"][name] = task_hash(lines)
        samples[name] = [json.loads(line_text(line)) for line in lines]
    for file in _files("group"):
        row = _group(file.values, found["results"])
        found["results"][row["name"]] = row
        found.setdefault("groups", {})[row["name"]] = row
        members = [found["higher_is_better"][name] for name in file.values["task"]]
        found["higher_is_better"][row["name"]] = {key: one for better in members for key, one in better.items()}
    found["table"] = table({**expected, **found})
    if "groups" in found:
        found["table"] += "\n" + table({**expected, **found}, "groups")
    found["samples"] = samples
    wanted = {key: expected[key] for key in BLOCKS if key in expected}
    wanted["table"] = (folder / "table.txt").read_text()
    paths = {name: folder / f"samples_{name}.jsonl" for name in samples}
    wanted["samples"] = {name: _lines(path) for name, path in paths.items()}
    ordered = {key: _in_order(found[key], wanted[key]) for key in wanted}
    return settled(ordered, wanted), wanted


def _lines(path):
    return [json.loads(line) for line in path.read_text().split("\n") if line]


def _files(key):
    found = [read_task_file(path) for path in sorted(Path("inputs").glob("*.yaml"))]
    return [file for file in found if key in file.values]


def _task(file, said, iterations):
    config = task_config(file)
    task = load_task(config, file)
    made = {}
    for one in requests(task):
        made.setdefault(one.doc_id, []).append(one)
    resps = {number: [said[config.task, number, one.idx] for one in held] for number, held in made.items()}
    plan = scorings(config.output_type, filter_list=config.filter_list, metric_list=config.metric_list)
    scores = score_documents(answered(task, resps), plan, Way(config.output_type, task.multiple_targets))
    numbers = scores.numbers(iterations)
    lines = []
    for one in scores.pipelines:
        for at, (number, held) in enumerate(made.items()):
            doc = task.docs[number]
            arguments = [request.args for request in held]
            target = task.target(doc, number)
            name, values = one.scoring.pipeline.name, one.scores[at]
            lines.append(sample_row(number, doc, target, arguments, resps[number], one.answers[at], name, values))
    row = task_row(config.task, config.task_alias, numbers.sample_len, numbers.metrics)
    return row, scores.higher_is_better(), lines


def _group(group, rows):
    asked = group["aggregate_metric_list"]
    return available(aggregate_group(group["group"], group["task"], rows, asked, group.get("group_alias")))


def _in_order(found, wanted):
    """Blocks by task: the order of tasks says nothing."""
    if not isinstance(found, dict) or set(found) != set(wanted):
        return found
    return {key: found[key] for key in wanted}


ADAPTERS = {"e2e": run}
