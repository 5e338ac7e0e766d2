"""lm-evaluation-harness' task files: templates, defaults, includes, documents and requests."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from calipers.errors import InputError
from calipers.running import LOAD_SEEDS, Job, count_within, limit_of, selected
from calipers.systems.lm_eval.tasks import TaskFile, read_task_file, task_config, with_functions
from calipers.systems.lm_eval.tasks.documents import Splits
from calipers.systems.lm_eval.tasks.loaded import load_task, requests
from calipers.systems.lm_eval.tasks.prompts import Manner, choices_of, target_of, text_of


def template(vector):
    doc, params = vector["input"]["doc"], vector["params"]
    value, place = params["value"], params["field"]
    if params["field"] == "doc_to_choice":
        return choices_of(value, doc, list(doc), place), vector["expected"]
    resolve = {"doc_to_text": text_of, "doc_to_target": target_of}[params["field"]]
    found = resolve(value, doc, list(doc), place, choices=params.get("doc_to_choice") is not None)
    return found, vector["expected"]


def config_defaults(vector):
    found = task_config(TaskFile(None, vector["input"])).dumped()
    del found["fewshot_config"]
    return found, vector["expected"]


def yaml_include(vector):
    for name, text in vector["input"]["files"].items():
        path = Path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return dict(read_task_file(Path(vector["params"]["entry"])).values), vector["expected"]


def doc_selection(vector):
    """The logged id is the row's own; theirs follows the caller's order, a quirk."""
    total, params = vector["input"]["n_docs"], vector["params"]
    limit = limit_of("--limit", params["limit"])
    rows = chosen(range(total), limit, params["samples"])
    found = [{"internal_id": at, "logged_doc_id": row, "dataset_row": row} for at, row in enumerate(rows)]
    return {"effective_limit": None if limit is None else count_within(total, limit), "rows": found}, vector["expected"]


def chosen(docs, limit, samples):
    """The documents of a run with a limit, or with the numbers of documents; the command refuses both at once."""
    if samples and limit is not None:
        raise InputError.at("--samples", "is given together with --limit", "expected one of the two")
    return selected(docs, Job("made", "m", limit=limit, documents=tuple(samples) if samples else None))


def made_requests(vector):
    """The examples are drawn for the chosen documents only, as lm-evaluation-harness does."""
    params, data = vector["params"], vector["input"]
    given = {"task": "made", "test_split": "test", **params["config"], "num_fewshot": params["num_fewshot"]}
    functions = {}
    exec(params.get("functions") or "", functions)
    file = TaskFile(None, {key: _function(value, functions) for key, value in given.items()})
    splits = {"test": data["docs"], "train": data["train"]}
    readers = {name: lambda rows=rows: rows for name, rows in splits.items() if rows is not None}
    build = params.get("build") or {}
    manner = Manner(system=build.get("system_instruction"))
    seeds = (*LOAD_SEEDS[:3], params["fewshot_seed"])
    task = load_task(task_config(with_functions_of(file)), file, Splits("made", readers), seeds)
    numbers = chosen(range(len(task.docs)), limit_of("--limit", build.get("limit")), build.get("samples"))
    numbers = numbers[build.get("rank", 0) :: build.get("world_size", 1)]
    made = requests(replace(task, docs=[task.docs[number] for number in numbers], manner=manner, cache={}))
    found = [
        {"request_type": one.request_type, "doc_id": numbers[one.doc_id], "idx": one.idx, "args": list(one.args)}
        for one in made
    ]
    return found, vector["expected"]


def _function(value, functions):
    """A field that names one of the vector's own functions, as that function."""
    if isinstance(value, str) and value.startswith("!function "):
        return functions[value.removeprefix("!function ").rpartition(".")[2]]
    return value


def with_functions_of(file):
    return TaskFile(file.path, with_functions(file.values, "made"), file.lines)


ADAPTERS = {
    "template": template,
    "config_defaults": config_defaults,
    "yaml_include": yaml_include,
    "doc_selection": doc_selection,
    "requests": made_requests,
}
