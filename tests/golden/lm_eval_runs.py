"""lm-evaluation-harness' complete runs: its task files and recorded responses to its results, samples and table."""

from __future__ import annotations

import json
from pathlib import Path
from shutil import copytree

from golden.lm_eval_close import settled

from calipers.running import Job, selected
from calipers.systems.lm_eval.benchmarks import TaskRequest, load, scoring
from calipers.systems.lm_eval.task_scores import ScoringSettings, answered_documents, score_documents
from calipers.systems.lm_eval.tasks.groups import Tasks, every_group, leaves
from calipers.systems.lm_eval.tasks.loaded import requests
from calipers.systems.lm_eval.tasks.prompts import Manner
from calipers.systems.lm_eval.write import RanTask, file_text, line_text, run_results, sample_row, table, task_hash


def run(vector):
    """Its requests, its results file, each sample, and the printed table; what tells of the machine is taken over."""
    folder = Path(vector["folder"])
    copytree(folder / "inputs", "inputs")
    asked = json.loads((folder / "run.json").read_text())
    said, sent = {}, {}
    for one in _lines(folder / "fixtures.jsonl"):
        said.setdefault((one["task"], one["doc_id"], one["idx"]), []).append(one["response"])
        sent[one["task"], one["doc_id"], one["idx"]] = one["args"]
    expected = json.loads((folder / "results.json").read_text())
    tasks = Tasks([Path("inputs")])
    nodes = [node for name in asked["tasks"] for node in tasks.find(name)]
    ran, rows, made = [], {}, {}
    for leaf in leaves(nodes):
        one, lines, args = _task(leaf, said, asked)
        ran.append(one)
        rows[leaf.name] = lines
        made |= args
    samples = {name: [json.loads(line_text(line)) for line in lines] for name, lines in rows.items()}
    about = {key: expected[key] for key in ABOUT if key in expected}
    task_hashes = {name: task_hash(lines) for name, lines in rows.items()}
    results = run_results(ran, every_group(nodes), task_hashes=task_hashes, **about)
    found = {
        "requests": made,
        "results.json": json.loads(file_text(results)),
        "table": "\n".join(table(results, column) for column in ("results", "groups") if column in results),
        "samples": samples,
    }
    wanted = {
        "requests": {key: sent[key] for key in (*made, *sent) if key in sent},  # in our order
        "results.json": expected,
        "table": (folder / "table.txt").read_text(),
        "samples": {name: _lines(folder / f"samples_{name}.jsonl") for name in samples},
    }
    return settled(found, wanted), wanted


ABOUT = (
    *("config", "git_hash", "date", "pretty_env_info", "transformers_version", "upper_git_hash", "model_source"),
    *("model_name", "model_name_sanitized", "system_instruction", "system_instruction_sha", "fewshot_as_multiturn"),
    *("chat_template", "chat_template_sha", "total_evaluation_time_seconds"),
)


def _lines(path):
    return [json.loads(line) for line in path.read_text().split("\n") if line]


def _task(leaf, said, asked):
    manner = Manner(system=asked.get("system_instruction"))
    task = load(leaf, TaskRequest(num_fewshot=asked.get("num_fewshot"), trust=True, manner=manner))
    samples = (asked.get("samples") or {}).get(leaf.name)
    rows = selected(
        range(len(task.docs)), Job("made", "m", limit=asked.get("limit"), documents=samples and tuple(samples))
    )
    made = {row: [] for row in rows}
    for one in requests(task):
        if one.doc_id in made:
            made[one.doc_id].append(one)
    resps = {number: [said[leaf.name, number, one.idx] for one in held] for number, held in made.items()}
    config = task.config
    way = ScoringSettings(config.output_type, task.multiple_targets, config.process_results)
    scores = score_documents(answered_documents(task, resps), scoring(task), way)
    lines = []
    for one in scores.pipelines:
        for at, (number, held) in enumerate(made.items()):
            doc = task.docs[number]
            arguments = [request.args for request in held]
            target = task.target(doc, number)
            name, values = one.scoring.pipeline.name, one.scores[at]
            lines.append(sample_row(number, doc, target, arguments, resps[number], one.answers[at], name, values))
    numbers = scores.numbers(asked["bootstrap_iters"])
    ran = RanTask(config, leaf.file.path.name, scores, numbers, len(task.docs), len(made))
    args = {(leaf.name, number, one.idx): list(one.args) for number, held in made.items() for one in held}
    return ran, lines, args


ADAPTERS = {"e2e": run}
