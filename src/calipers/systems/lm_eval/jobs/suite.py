"""The documents that a run of a task was asked about, by their hashes: a run reports on these and on no others."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final

import msgspec

from calipers.clients.likelihood import as_prompt
from calipers.errors import InputError
from calipers.formats.run_plan import PLAN
from calipers.systems.lm_eval.jobs.class_task import parts, tried
from calipers.systems.lm_eval.jobs.judge import VERIFIER, scoring
from calipers.systems.lm_eval.jobs.likelihood import doubts, texts
from calipers.systems.lm_eval.jobs.mixed import as_prompt as parts_as_prompt
from calipers.systems.lm_eval.scores.entries import GENERATION
from calipers.systems.lm_eval.task_scores import target_of
from calipers.systems.lm_eval.tasks.config import TaskFields
from calipers.systems.lm_eval.tasks.loaded import LoadedTask
from calipers.systems.lm_eval.tasks.requests import Asking, gold, requests
from calipers.systems.lm_eval.tasks.task_file import Function, functions_in
from calipers.systems.lm_eval.write import digest, dumped
from calipers.tasks.load_seeds import seeded
from calipers.tasks.task import Prompt, Suite, Task

DIGITS: Final = 16  # of a document's hash, the doc_hash of lm-evaluation-harness' samples files


class _Described(msgspec.Struct):
    document_hashes: list[str] | None = None


class _Plan(msgspec.Struct):
    dataset: str | None = None
    lm_eval: _Described | None = None


def document_hashes(task: LoadedTask) -> list[str]:
    """The hash of each document of the evaluated split, in its order."""
    if "hashes" not in task.kept:
        task.kept["hashes"] = [digest(dumped(dict(doc)))[:DIGITS] for doc in task.docs]
    found: list[str] = task.kept["hashes"]
    return found


def check_documents(folder: Path, task: str, hashes: Sequence[str]) -> None:
    """Refuse a folder whose run of a task was asked about other documents; one that recorded none is not refused."""
    recorded = _recorded(folder, task)
    if recorded is None or recorded == list(hashes):
        return
    pairs = zip_longest(recorded, hashes)
    different = [number for number, (before, now) in enumerate(pairs) if before != now]
    some = ", ".join(map(str, different[:3])) + (", ..." if len(different) > 3 else "")
    wrong = f"{len(different)} of its {len(recorded)} documents are not those that were asked ({some})"
    right = "expected the same data files, task code and --load-seeds, or another --out"
    raise InputError.at(str(folder), wrong, right)


def _recorded(folder: Path, task: str) -> list[str] | None:
    try:
        plan = msgspec.json.decode((folder / PLAN).read_bytes(), type=_Plan)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return None  # whoever reads the plan itself says what is wrong with it
    return plan.lm_eval.document_hashes if plan.lm_eval is not None and plan.dataset == task else None


def suite(task: LoadedTask, *, scored: bool = True) -> Suite:
    """The questions of a task, and what counts as right for each where they are to be ``scored``."""
    with seeded(task.seeds):
        return _suite(task, scored)


def _suite(task: LoadedTask, scored: bool) -> Suite:
    digest = scoring_digest(task)
    plan = scoring(task) if scored else []
    tasks = [
        Task(
            str(number),
            prompt,
            VERIFIER if scored else None,
            plain(_gold(task, number)) if scored else None,
            {"doc": plain(task.docs[number]), "scoring": digest},
            {"doc_id": number},
        )
        for number, prompt in _prompts(task)
    ]
    path = task.file.path
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest() if path else ""
    return Suite(
        str(task.config.task),
        tasks,
        {"lm_eval": described(task)},
        path,
        sha256,
        [*_unused(task), *doubts(task, plan), *tried(task, plan)],
    )


def _prompts(task: LoadedTask) -> Iterator[tuple[int, Prompt]]:
    """Each document's number, and what the model is given: a text, or the texts whose likelihoods are asked for."""
    if task.own is not None:
        yield from ((number, parts_as_prompt(held)) for number, held in parts(task))
    elif task.config.output_type == GENERATION:
        yield from ((one.doc_id, one.args[0]) for one in requests(task, Asking()))
    else:
        yield from ((number, as_prompt(held)) for number, held in texts(task))


def _gold(task: LoadedTask, number: int) -> Any:
    doc = task.docs[number]
    if task.own is not None:
        return task.target(doc, number)
    if task.config.output_type != GENERATION:
        return target_of(task, number)
    return gold(task, number, doc) if task.config.process_results is None else task.target(doc, number)


def _unused(task: LoadedTask) -> Iterator[str]:
    if task.own is not None:
        return
    if task.config.fewshot_config.fewshot_indices:
        place = task.file.place("fewshot_config")
        yield f"{place}.fewshot_indices: not used, as lm-evaluation-harness 0.4.13 does not use it"
    if (split := _leaking(task.config)) is not None:
        told = f"the examples are drawn from the evaluated split {split!r}"
        more = "a document may be an example in its own prompt, answer included, as in lm-evaluation-harness"
        yield f"{task.file.place('num_fewshot')}: {told}, and {more}; set fewshot_split to another split to prevent it"
    inside = task.file.place("filter_list")
    for number, one in enumerate(task.config.filter_list or ()):
        if any(step["function"] == "decontaminate" for step in one["filter"]):
            why = "lm-evaluation-harness 0.4.13 has no code for it"
            yield f"{inside}[{number}]: decontaminate keeps every response: {why}"
    pipelines = [(one.get("metric_list"), f"{inside}[{n}]") for n, one in enumerate(task.config.filter_list or ())]
    for listed, place in [(task.config.metric_list, task.file.place("metric_list")), *pipelines]:
        names = [one.get("metric") for one in listed or ()]
        for name in dict.fromkeys(name for name in names if isinstance(name, str) and names.count(name) > 1):
            yield f"{place}: {name} stands there {names.count(name)} times; the last counts, as there"


def _leaking(config: TaskFields) -> str | None:
    """The evaluated split where its documents are examples, and the document itself is not left out.

    lm-evaluation-harness leaves it out only where the split of the examples has the name of ``test_split``.
    """
    shots = config.fewshot_config
    first = config.training_split or config.validation_split or config.test_split
    source = shots.split or (first if shots.samples is None else None)
    leaks = source == config.evaluated_split and shots.split != config.test_split
    return source if config.num_fewshot and leaks else None


def described(task: LoadedTask) -> dict[str, Any]:
    """What lm-evaluation-harness would dump of the task, as JSON; functions by their names."""
    config: dict[str, Any] = plain(task.config.dumped())
    return {
        "config": config,
        **({} if task.own is None else {"class": task.own.name}),
        "multiple_targets": task.multiple_targets,
        "documents": len(task.docs),
        "document_hashes": document_hashes(task),
    }


def scoring_digest(task: LoadedTask) -> str:
    """A few digits for how answers are scored: another filter, metric or function is another run."""
    config, whole = task.config, hashlib.sha256()
    scoring = (config.metric_list, config.filter_list, config.scorer, config.process_results)
    whole.update(msgspec.json.encode(plain(list(scoring)), order="sorted"))
    for function in functions_in(list(task.file.values.values())):
        file = function.folder.joinpath(*function.module.split(".")).with_suffix(".py")
        whole.update(file.read_bytes() if file.is_file() else function.module.encode())
    return whole.hexdigest()[:16]


def plain(value: Any) -> Any:
    """A value as JSON has it; what has no place there, such as a date, as its text."""
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    if isinstance(value, Mapping):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(one) for one in value]
    if callable(value) and not isinstance(value, Function):
        return f"!function {getattr(value, '__name__', type(value).__name__)}"
    return str(value)
