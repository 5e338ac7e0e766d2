"""What differs between two runs beside who answered: prompts, sampling, datasets, versions. Where unknown, nothing."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from calipers.readers import lm_eval
from calipers.readers.harbor_part import HarborPart
from calipers.readers.read import Input
from calipers.readers.run_plan import read_plan
from calipers.reports.safe import clean
from calipers.rollouts.part import Part

LONGEST = 60
MOST = 12  # differences that are told one by one
ABSENT = object()
CALLED: Final = {
    "tasks": "the content of the tasks, with targets and verifiers,",
    "judged": "whether a verifier judged",
}
"""Names that a plan has for what its reader would call otherwise."""

WHO: Final = ("model", "endpoint")
"""What of a run's identity says who answered."""


@dataclass(frozen=True, slots=True)
class Papers:
    """What a source says of how it was made: settings by name, and the digest of each task's content."""

    settings: Mapping[str, Any] = field(default_factory=dict)
    digests: Mapping[tuple[str, str], str] = field(default_factory=dict)  # (dataset, task) -> digest


def papers(inputs: Sequence[Input], parts: Sequence[Part], dataset: str | None) -> Papers:
    """What the files of a source say of a dataset's run; of several files only what they agree on."""
    found: dict[str, Any] = {}
    for one in inputs:
        for name, value in _settings(one, dataset):
            if name in found and found[name] != value:
                value = ABSENT
            found[name] = value
    digests = {key: said for part in parts if isinstance(part, HarborPart) for key, said in part.checksums.items()}
    return Papers({name: value for name, value in found.items() if value is not ABSENT}, digests)


def differences(first: Papers, second: Papers, names: tuple[str, str], tasks: Sequence[str]) -> list[str]:
    """What both runs say and say differently, a sentence each."""
    found = []
    for name in first.settings:
        if name in second.settings and _json(first.settings[name]) != _json(second.settings[name]):
            one, two = (_shown(side.settings[name]) for side in (first, second))
            found.append(f"{CALLED.get(name, name)} differs: {one} in {names[0]}, {two} in {names[1]}")
    if len(found) > MOST:
        found = [*found[:MOST], f"and {len(found) - MOST} more settings"]
    common = set(tasks)
    changed = [
        task
        for (dataset, task), digest in first.digests.items()
        if task in common and second.digests.get((dataset, task), digest) != digest
    ]
    if changed:
        found.append(f"{_many(len(changed), 'task')} changed in between ({_some(changed)}): another digest")
    return found


def prompts_differ(one: Mapping[str, bytes], two: Mapping[str, bytes], tasks: Sequence[str]) -> list[str]:
    """Whether tasks of one id were asked with different prompts, a sentence or none."""
    asked = [task for task in tasks if task in one and task in two]
    changed = [task for task in asked if one[task] != two[task]]
    if not changed:
        return []
    said = [f"the prompt differs in {len(changed):,} of {_many(len(asked), 'common task')} ({_some(changed)})"]
    there = set(two.values())
    moved = sum(one[task] in there for task in changed)
    if moved:
        said.append(f"{moved:,} of these prompts stand under another id in the other run: tasks were paired by id")
    return said


def _settings(one: Input, dataset: str | None) -> Iterator[tuple[str, Any]]:
    if one.format == "run":
        identity = read_plan(os.path.dirname(one.path)).identity
        yield from _flat({key: value for key, value in identity.items() if key not in WHO}, "")
    elif one.format == "lm_eval_results":
        with open(one.path, "rb") as file:
            yield from _of_results(lm_eval.decoded(file.read()) or {}, dataset)
    elif one.format == "lm_eval_samples":
        yield from _of_results(lm_eval.results_beside(one.path), dataset or lm_eval.task_of(one.path))


def _of_results(results: Mapping[str, Any], task: str | None) -> Iterator[tuple[str, Any]]:
    """What a results file says of a task: its version, its shots, how answers were drawn."""
    for key, name in (("versions", "task version"), ("n-shot", "number of shots")):
        held = results.get(key)
        if isinstance(held, dict) and task in held:
            yield name, held[task]
    configs = results.get("configs")
    config = configs.get(task) if isinstance(configs, dict) else None
    for name in ("generation_kwargs", "dataset_path", "dataset_name", "output_type"):
        if isinstance(config, dict) and name in config:
            yield from _flat(config[name], name)
    whole = results.get("config")
    if isinstance(whole, dict) and whole.get("gen_kwargs") is not None:
        yield from _flat(whole["gen_kwargs"], "gen_kwargs")
    for name in ("chat_template_sha", "system_instruction_sha"):
        if name in results:
            yield name, results[name]


def _flat(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping) and value:
        for key, inner in value.items():
            yield from _flat(inner, f"{path}.{key}" if path else str(key))
    else:
        yield path, value


def _json(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def _shown(value: Any) -> str:
    return clean(value if isinstance(value, str) and value else json.dumps(value, ensure_ascii=False), LONGEST)


def _some(tasks: Sequence[str]) -> str:
    return ", ".join(clean(task) for task in tasks[:3]) + (", …" if len(tasks) > 3 else "")


def _many(number: int, word: str) -> str:
    return f"{number:,} {word}{'' if number == 1 else 's'}"
