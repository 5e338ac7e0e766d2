"""lm-evaluation-harness' complete runs: its task files and recorded responses to its results, samples and table."""

from __future__ import annotations

import json
from pathlib import Path
from shutil import copytree

from golden.lm_eval_close import settled

from calipers.dialects.lm_eval_results import Ran, run_results
from calipers.dialects.lm_eval_scoring import Way, answered, score_documents
from calipers.reports.lm_eval import file_text, line_text, sample_row, task_hash
from calipers.reports.lm_eval_table import table
from calipers.scores.scorers import scorings
from calipers.tasks.lm_eval.config import task_config
from calipers.tasks.lm_eval.groups import Group, Leaf
from calipers.tasks.lm_eval.loaded import load_task
from calipers.tasks.lm_eval.requests import requests
from calipers.tasks.lm_eval.yaml import read_task_file


def run(vector):
    """Its results file, each sample, and the printed table; what tells of the machine is taken over."""
    folder = Path(vector["folder"])
    copytree(folder / "inputs", "inputs")
    said = {}
    for one in _lines(folder / "fixtures.jsonl"):
        said.setdefault((one["task"], one["doc_id"], one["idx"]), []).append(one["response"])
    expected = json.loads((folder / "results.json").read_text())
    files = {file.values["task"]: file for file in _files("task") if "group" not in file.values}
    ran, samples = [], {}
    for name in [name for name in expected["results"] if name in files]:
        one, lines = _task(files[name], said)
        ran.append(one)
        samples[name] = [json.loads(line_text(line)) for line in lines]
    names = {one.name: Leaf(one.name, files[one.name], one.config) for one in ran}
    groups = [_group(file.values, names) for file in _files("group")]
    iterations = json.loads((folder / "run.json").read_text())["bootstrap_iters"]
    results = run_results(ran, groups, iterations, **{key: expected[key] for key in ABOUT if key in expected})
    made = {
        "results.json": json.loads(file_text(results)),
        "table": "\n".join(table(results, column) for column in ("results", "groups") if column in results),
        "samples": samples,
    }
    paths = {name: folder / f"samples_{name}.jsonl" for name in samples}
    wanted = {
        "results.json": expected,
        "table": (folder / "table.txt").read_text(),
        "samples": {name: _lines(path) for name, path in paths.items()},
    }
    return settled(made, wanted), wanted


ABOUT = (
    *("config", "git_hash", "date", "pretty_env_info", "transformers_version", "upper_git_hash", "model_source"),
    *("model_name", "model_name_sanitized", "system_instruction", "system_instruction_sha", "fewshot_as_multiturn"),
    *("chat_template", "chat_template_sha", "total_evaluation_time_seconds"),
)


def _lines(path):
    return [json.loads(line) for line in path.read_text().split("\n") if line]


def _files(key):
    found = [read_task_file(path) for path in sorted(Path("inputs").glob("*.yaml"))]
    return [file for file in found if key in file.values]


def _task(file, said):
    config = task_config(file)
    task = load_task(config, file)
    made = {}
    for one in requests(task):
        made.setdefault(one.doc_id, []).append(one)
    resps = {number: [said[config.task, number, one.idx] for one in held] for number, held in made.items()}
    plan = scorings(config.output_type, filter_list=config.filter_list, metric_list=config.metric_list)
    scores = score_documents(answered(task, resps), plan, Way(config.output_type, task.multiple_targets))
    lines = []
    for one in scores.pipelines:
        for at, (number, held) in enumerate(made.items()):
            doc = task.docs[number]
            arguments = [request.args for request in held]
            target = task.target(doc, number)
            name, values = one.scoring.pipeline.name, one.scores[at]
            lines.append(sample_row(number, doc, target, arguments, resps[number], one.answers[at], name, values))
    ran = Ran(config, file.path.name, scores, len(task.docs), len(made), task_hash(lines))
    return ran, lines


def _group(values, tasks):
    members = [tasks[name] for name in values["task"]]
    alias, metadata = values.get("group_alias", values["group"]), values.get("metadata", {})
    return Group(values["group"], alias, members, values["aggregate_metric_list"], metadata)


ADAPTERS = {"e2e": run}
