"""lm-evaluation-harness: its files of samples and of results."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from calipers.formats.format import Beginning, Columns, Format, Settings, Text, flat
from calipers.systems.lm_eval import read
from calipers.systems.lm_eval.read import newest


def _is_sample(start: Beginning) -> bool:
    if start.row is None:  # no strict JSON: there may be a NaN in it
        return read.is_line(start.line)
    return not start.is_record and read.is_row(start.row)


def _texts_beside(path: str, columns: Columns, wanted: frozenset[str]) -> Iterator[Text]:
    for samples in read.samples_beside(path):
        yield from read.texts(samples)


def _settings(path: str, dataset: str | None) -> Settings:
    with open(path, "rb") as file:
        yield from of_results(read.decoded(file.read()) or {}, dataset)


def of_results(results: Mapping[str, Any], task: str | None) -> Settings:
    """What a results file says of a task: its version, its shots, how answers were drawn."""
    for key, name in (("versions", "task version"), ("n-shot", "number of shots")):
        by_task = results.get(key)
        if isinstance(by_task, dict) and task in by_task:
            yield name, by_task[task]
    configs = results.get("configs")
    config = configs.get(task) if isinstance(configs, dict) else None
    for name in ("generation_kwargs", "dataset_path", "dataset_name", "output_type"):
        if isinstance(config, dict) and name in config:
            yield from flat(config[name], name)
    whole = results.get("config")
    if isinstance(whole, dict) and whole.get("gen_kwargs") is not None:
        yield from flat(whole["gen_kwargs"], "gen_kwargs")
    for name in ("chat_template_sha", "system_instruction_sha"):
        if name in results:
            yield name, results[name]


SAMPLES = Format(
    "lm_eval_samples",
    read.read_samples,
    _is_sample,
    texts=lambda path, columns, wanted: read.texts(path),
    provenance=lambda path, dataset: of_results(read.results_beside(path), dataset or read.task_of(path)),
    extras=read.extras,
    has_documents=True,
)
RESULTS = Format(
    "lm_eval_results",
    read.read_results,
    recognise=lambda start: read.is_results(start.head),
    texts=_texts_beside,
    provenance=_settings,
    folder=newest,
    stands_for_others=True,
    extras=read.extras,
    has_documents=True,
)
