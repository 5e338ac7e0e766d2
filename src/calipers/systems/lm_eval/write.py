"""The outputs of lm-evaluation-harness: the results object, the lines of samples files, and the table.

The results object is that of a run, or computed again from the samples files that lm-evaluation-harness wrote.
It includes commits, versions and the machine; a samples file has a line per document and pipeline.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import math
import os
import platform
import re
import subprocess
import sys
import unicodedata
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal, InvalidOperation
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from calipers import __version__
from calipers.errors import CalipersError, InputError
from calipers.formats.read import with_folders
from calipers.formats.source import Source
from calipers.systems.lm_eval.aggregations import ITERATIONS
from calipers.systems.lm_eval.entries import KNOWN
from calipers.systems.lm_eval.read import (
    NOT_METRICS,
    RESULTS_BLOCKS,
    holds_results,
    listed_aggregation,
    results_beside,
    results_in,
    rows_of,
    samples_beside,
    task_of,
)
from calipers.systems.lm_eval.task_scores import TaskNumbers, TaskScores, aggregate_group, aggregate_task
from calipers.systems.lm_eval.tasks import TaskFields
from calipers.systems.lm_eval.tasks.groups import TaskGroup, every_group, leaves
from calipers.typed import complete

if TYPE_CHECKING:
    from calipers.running import Job

LAYOUT: Final = "0.4.13"  # the release of lm-evaluation-harness whose layout these files have
NOT_AVAILABLE: Final = "N/A"  # for a standard error that does not exist and a library that is not installed
ORDER: Final = (  # of the blocks in a results file
    *("results", "groups", "group_subtasks", "configs", "versions", "n-shot", "higher_is_better", "n-samples"),
    *("config", "git_hash", "date", "pretty_env_info", "transformers_version", "lm_eval_version", "upper_git_hash"),
    *("tokenizer_pad_token", "tokenizer_eos_token", "tokenizer_bos_token", "eot_token_id", "max_length"),
    *("task_hashes", "model_source", "model_name", "model_name_sanitized"),
    *("system_instruction", "system_instruction_sha", "fewshot_as_multiturn", "chat_template", "chat_template_sha"),
    "total_evaluation_time_seconds",
)
BY_NAME: Final = ("configs", "versions", "n-shot", "higher_is_better")
"""The blocks whose tasks are sorted by name."""
HYPHENED: Final = {"n_shot": "n-shot", "n_samples": "n-samples"}
_ADDRESS: Final = re.compile(r" at 0x[0-9a-fA-F]+(?=>)")
_UNSAFE: Final = re.compile(r'[<>:"/|\\?*\[\]]+')


def hashes(doc: Any, prompt: str, target: Any) -> dict[str, str]:
    """The three hashes of a sample: of its document as indented JSON, its prompt, and its target as text."""
    return {"doc_hash": digest(dumped(doc)), "prompt_hash": digest(prompt), "target_hash": digest(str(target))}


def task_hash(samples: Sequence[Mapping[str, Any]]) -> str:
    """The hash of all samples of a task: the hash of their concatenated hashes."""
    return digest("".join(f"{row['doc_hash']}{row['prompt_hash']}{row['target_hash']}" for row in samples))


def task_row(name: str, alias: str | None, sample_len: int, numbers: Mapping[str, Any]) -> dict[str, Any]:
    """A task's entry under ``results``: its name, number of documents, and each number with its standard error."""
    return {"name": name, "alias": alias or name, "sample_len": sample_len, **available(numbers)}


def available(row: Mapping[str, Any]) -> dict[str, Any]:
    """The row with ``"N/A"`` in place of None."""
    return {key: NOT_AVAILABLE if value is None else value for key, value in row.items()}


def results_object(**blocks: Any) -> dict[str, Any]:
    """A results object with the given blocks, in the order of lm-evaluation-harness' results file.

    The keywords of ``n-shot`` and ``n-samples`` are written with an underscore.
    """
    named = {HYPHENED.get(key, key): value for key, value in blocks.items()}
    if "groups" in named and not named["groups"]:
        del named["groups"]
    for key in BY_NAME:
        if key in named:
            named[key] = dict(sorted(named[key].items()))
    return {key: named[key] for key in ORDER if key in named}


def sample_row(
    doc_id: int,
    doc: Mapping[str, Any],
    target: Any,
    arguments: Sequence[Sequence[Any]],
    resps: Sequence[Sequence[Any]],
    answers: Sequence[Any],
    pipeline: str,
    scores: Mapping[str, Any],
) -> dict[str, Any]:
    """A document's line for one pipeline; ``arguments`` are the arguments of each request, the prompt first.

    A prompt that is a chat is a list with one text, as `recorded_prompt` writes it.
    """
    prompt = arguments[0][0] if arguments and arguments[0] else ""
    prompt = str(prompt[0] if isinstance(prompt, list) else prompt)
    named_arguments = {
        f"gen_args_{number}": {f"arg_{index}": value for index, value in enumerate(request)}
        for number, request in enumerate(arguments)
    }
    return {
        "doc_id": doc_id,
        "doc": doc,
        "target": str(target),
        "arguments": named_arguments,
        "resps": [_texts(request) for request in resps],
        "filtered_resps": [_texts(answer) for answer in answers],
        "filter": pipeline,
        "metrics": list(scores),
        **hashes(doc, prompt, target),
        **{name: _with_printed_array(value) if name == "brier_score" else value for name, value in scores.items()},
    }


def file_text(results: Mapping[str, Any]) -> str:
    """The text of a results file: indented JSON that is not escaped to ASCII."""
    return json.dumps(results, indent=2, ensure_ascii=False, default=_plain)


def line_text(row: Mapping[str, Any]) -> str:
    """A sample as a line of a samples file."""
    return json.dumps(row, ensure_ascii=False, default=_plain) + "\n"


def dumped(doc: Any) -> str:
    """The text of a document that its hash is computed from."""
    return json.dumps(doc, indent=2, default=_plain, ensure_ascii=False)


def digest(text: str) -> str:
    """The SHA-256 of a text, in hexadecimal."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _texts(value: Any) -> Any:
    """A nested list with every leaf converted to text."""
    return [_texts(item) for item in value] if isinstance(value, (list, tuple)) else str(value)


def _with_printed_array(pair: Any) -> Any:
    """(gold, probabilities) with the probabilities as numpy prints them, as in lm-eval's file."""
    import numpy as np

    return (pair[0], str(np.array(pair[1]))) if isinstance(pair, (list, tuple)) else pair


def _plain(value: Any) -> Any:
    """A value that JSON cannot express: a set as a list, a numpy scalar as a number, anything else as its text."""
    if isinstance(value, (set, frozenset)):
        return list(value)
    item = getattr(value, "item", None)
    if callable(item) and getattr(value, "shape", None) == ():
        return item()
    return without_address(str(value))


def without_address(text: str) -> str:
    """The repr of an object without its memory address, so that two exports of one run are equal.

    >>> without_address("<function f at 0x7f2a9c0d5a80>")
    '<function f>'
    """
    return _ADDRESS.sub("", text)


@dataclass(frozen=True, slots=True)
class RanTask:
    """A task that was run: its configuration, its scores and its numbers."""

    config: TaskFields
    source: str  # config_source: the name of its file, or "inline"; "" if the metadata contains it already
    scores: TaskScores
    numbers: TaskNumbers
    documents: int  # in the evaluated split
    effective: int  # documents that were run

    @property
    def name(self) -> str:
        """The task's name."""
        return str(self.config.task)


def run_results(ran: Sequence[RanTask], groups: Sequence[TaskGroup] = (), **blocks: Any) -> dict[str, Any]:
    """The results object of tasks and their groups; ``blocks`` are further blocks of it, by name."""
    task_rows = {
        task.name: task_row(task.name, task.config.task_alias, task.numbers.sample_len, task.numbers.metrics)
        for task in ran
    }
    distinct_groups = list({group.name: group for group in every_group(groups)}.values())
    group_rows = {}
    for group in _inner_first(groups):
        members = [leaf.name for leaf in leaves(group.members)]
        row = aggregate_group(group.name, members, task_rows, group.aggregate_metric_list, group.alias)
        group_rows[group.name] = available(row)
    better: dict[str, Any] = {task.name: task.scores.higher_is_better() for task in ran}
    shots: dict[str, Any] = {task.name: task.config.num_fewshot or 0 for task in ran}
    # outer groups come first, so an inner group's direction and shots are unknown here, as in lm-evaluation-harness
    for group in distinct_groups:
        members = [member.name for member in group.members]
        if directions := _common_directions([better[name] for name in members if name in better]):
            better[group.name] = directions
        counts = {shots[name] for name in members if name in shots}
        if len(counts) == 1:
            shots[group.name] = counts.pop()
    versions = {task.name: task.config.version for task in ran}
    versions |= {group.name: str(group.metadata.get("version", "N/A")) for group in distinct_groups}
    return results_object(
        results={**task_rows, **group_rows},
        groups={group.name: group_rows[group.name] for group in _inner_first(groups) if group.aggregate_metric_list},
        group_subtasks={group.name: [member.name for member in group.members] for group in distinct_groups},
        configs={task.name: _config(task) for task in ran},
        versions=versions,
        n_shot=shots,
        higher_is_better=better,
        n_samples={task.name: {"original": task.documents, "effective": task.effective} for task in ran},
        lm_eval_version=LAYOUT,
        **{"task_hashes": {task.name: "" for task in ran}, **blocks},
    )


def sanitized(model: str) -> str:
    """A model's name with unsafe characters replaced, for use as a folder name."""
    return _UNSAFE.sub("__", model)


def file_path(folder: Path, model: str, time: str, task: str | None = None) -> Path:
    """The path of a run's results file, or of the samples file of a ``task``.

    If ``folder`` is a ``.json`` file, the path is beside this file, as in lm-evaluation-harness.

    >>> str(file_path(Path("out"), "org/m", "2026-01-02T03:04:05.6", "gsm8k"))
    'out/org__m/samples_gsm8k_2026-01-02T03-04-05.6.jsonl'
    """
    moment, beside = time.replace(":", "-"), folder.suffix == ".json"
    name = f"samples_{task}_{moment}.jsonl"
    if task is None:
        name = f"{folder.stem if beside else 'results'}_{moment}.json"
    return folder.parent / name if beside else folder / sanitized(model) / name


def _inner_first(groups: Sequence[Any]) -> Iterator[TaskGroup]:
    """Every group, inner groups before outer ones; a group that occurs twice is yielded twice."""
    for group in groups:
        if isinstance(group, TaskGroup):
            yield from _inner_first(group.members)
            yield group


def _common_directions(members: Sequence[Mapping[str, bool | None]]) -> dict[str, bool | None]:
    """Whether higher is better, for each metric; None if members that have the metric disagree."""
    common: dict[str, bool | None] = {}
    for better in members:
        for metric, higher in better.items():
            common[metric] = higher if common.get(metric, higher) == higher else None
    return common


def _config(task: RanTask) -> dict[str, Any]:
    written = replace(task.config, tag=None, num_fewshot=task.config.num_fewshot or 0)  # a tag only selects tasks
    config = _dumped(written.dumped())
    source = {"config_source": task.source} if task.source else {}
    return {**config, "metadata": {**(config.get("metadata") or {}), **source}}


def _dumped(value: Any, key: str = "") -> Any:
    """A configuration with each function replaced by its source; inside filters, by its repr without the address."""
    if isinstance(value, Mapping):
        return {str(name): _dumped(inner, key or str(name)) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_dumped(inner, key) for inner in value]
    if not callable(value):
        return value
    if key == "filter_list":
        return without_address(repr(value))
    try:
        return inspect.getsource(value)
    except (OSError, TypeError):
        return without_address(repr(value))


HEADERS: Final = ("Version", "Filter", "n-shot", "Metric", "", "Value", "", "Stderr")
TITLES: Final = {"results": "Tasks", "groups": "Groups"}
NARROWEST: Final = 3  # width of a column
_ARROWS: Final[Mapping[Any, str]] = {True: "↑", False: "↓"}


def table(results: Mapping[str, Any], column: str = "results") -> str:
    """The Markdown table of a results object, identical to lm-eval's; ``column`` is results, or groups for groups only.

    lm-eval writes numbers with four decimals, and the library that draws its tables parses them again. It aligns a
    column of numbers to the right, all with the number of decimals that the longest needs. A cell that is not a number
    makes the column a text column, in which integers have no decimals. A text cell is not parsed if most cells above
    it are text.
    """
    return markdown([TITLES[column], *HEADERS], list(_rows(results, column)))


def tables(results: Mapping[str, Any]) -> str:
    """The table of a results object and, if it has groups, the table of its groups."""
    return "\n".join([table(results), *([table(results, "groups")] if results.get("groups") else [])])


def markdown(titles: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """A Markdown table in the layout of the library that draws lm-evaluation-harness' tables."""
    columns = [_column(title, [row[index] for row in rows]) for index, title in enumerate(titles)]
    return "".join(f"|{'|'.join(line)}|\n" for line in zip(*columns, strict=True))


def _rows(results: Mapping[str, Any], column: str) -> Iterator[list[Any]]:
    shots, versions = results.get("n-shot", {}), results.get("versions", {})
    for name, depth in _order(results, column):
        row_values = results[column][name]
        alias = f"{' ' * depth}- {row_values.get('alias', name)}" if depth else str(row_values.get("alias", name))
        version = versions.get(name, "    N/A")
        better = results.get("higher_is_better", {}).get(name) or {}
        for key in sorted(key for key in row_values if "," in key):
            metric, _, pipeline = key.partition(",")
            if metric.endswith("_stderr"):
                continue
            value, stderr_key = row_values[key], f"{metric}_stderr,{pipeline}"
            row = [alias, version, pipeline, str(shots.get(name, " ")), metric, _ARROWS.get(better.get(metric), "")]
            row += [f"{value:.4f}" if isinstance(value, float) else value]
            yield [*row, "±", _error(row_values[stderr_key])] if stderr_key in row_values else [*row, "", ""]
            alias, version = "", ""


def _order(results: Mapping[str, Any], column: str) -> list[tuple[str, int]]:
    """The rows with their depth: groups by name, each followed by its members, then tasks that are in no group."""
    rows, below = results[column], results.get("group_subtasks") or {}
    depths: dict[str, int] = {}

    def visit(name: str, depth: int) -> None:
        if name not in depths:
            depths[name] = depth
            for member in sorted(below.get(name, ())):
                visit(member, depth + 1)

    members = {member for inner in below.values() for member in inner}
    for name in sorted(name for name in below if name not in members):
        visit(name, 0)
    for name in sorted(rows):
        visit(name, 0)
    return [(name, depth) for name, depth in depths.items() if name in rows]


def _error(value: Any) -> str:
    if value is None or value == NOT_AVAILABLE:
        return "   N/A"
    return f"{value:.4f}" if isinstance(value, (int, float)) else str(value)


_TRUTH: Final = {"true": True, "false": False}
_THOUSANDS: Final = re.compile(r"\d{1,3}(,\d{1,3})+")  # as the table library parses them: 1,5 is 15


def _column(title: str, cells: Sequence[Any]) -> list[str]:
    """The lines of a column: its head, the rule below it, and its cells."""
    values = _parsed(cells)
    kinds = {_kind(value) for value in values}
    numeric = not kinds & {"text", "flag"} and (len(kinds) > 1 or bool(kinds & {"integer", "real"}))
    decimals = max((_decimals(value) for value in values if isinstance(value, Decimal)), default=0)
    texts = [_number_text(value, decimals, numeric) if isinstance(value, Decimal) else str(value) for value in values]
    width = max([NARROWEST, _width(title), *map(_width, texts)])
    left = (width - _width(title)) // 2
    lines = [" " * left + title + " " * (width - _width(title) - left)]
    lines.append("-" * (width - 1) + ":" if numeric else "-" * width)
    for value, text in zip(values, texts, strict=True):
        right_aligned = numeric or (isinstance(value, Decimal) and value.is_finite())
        lines.append(_padded(text, width, right_aligned))
    return lines


def _parsed(cells: Sequence[Any]) -> list[Any]:
    """The cells, those that look like a number parsed; a text is not parsed if most cells above it are text."""
    counts: Counter[str] = Counter()
    values: list[Any] = []
    for cell in cells:
        most_common = counts.most_common(1)[0][0] if counts else ""
        values.append(cell if most_common == "text" and isinstance(cell, str) else _value(cell))
        counts[_kind(values[-1])] += 1
    return values


def _kind(cell: Any) -> str:
    if isinstance(cell, bool):
        return "flag"
    if not isinstance(cell, Decimal):
        return "text" if not isinstance(cell, str) or cell.strip() else "blank"
    if not cell.is_finite():
        return "nan" if cell.is_nan() else "infinity"
    return "real" if _decimals(cell) else "integer"


def _value(cell: Any) -> Any:
    """A cell as the number or the boolean that it looks like; any other cell unchanged."""
    if isinstance(cell, bool) or not isinstance(cell, (int, float, str)):
        return cell
    text = str(cell).strip()
    if isinstance(cell, str) and cell.casefold() in _TRUTH:
        return _TRUTH[cell.casefold()]
    separated = _THOUSANDS.search(text) is not None
    try:
        number = Decimal(text.replace(",", "") if separated else text)
    except InvalidOperation:
        return cell
    return Decimal(int(number)) if separated else number


def _decimals(number: Decimal) -> int:
    """The number of decimals of a number as a float, which has 17 digits at most."""
    exponent = Decimal(repr(float(number))).normalize().as_tuple().exponent if number.is_finite() else 0
    return max(0, -exponent) if isinstance(exponent, int) else 0


def _number_text(number: Decimal, decimals: int, numeric: bool) -> str:
    if number.is_nan():
        return "NaN"
    if number.is_infinite():
        return "Infinity" if number > 0 else "-Infinity"
    text = f"{number:.{decimals if numeric or _decimals(number) else 0}f}"
    return text.removeprefix("-") if not math.fabs(number) else text


def _padded(text: str, width: int, right: bool) -> str:
    blanks = " " * (width - _width(text))
    escaped = text.replace("|", "\\|")
    return blanks + escaped if right else escaped + blanks


def _width(text: str) -> int:
    """The width of a text in terminal columns; wide East Asian characters take two."""
    return sum(2 if unicodedata.east_asian_width(character) in "FW" else 1 for character in text)


LIBRARIES: Final = ("numpy", "torch", "transformers", "tokenizers", "accelerate", "peft", "datasets", "jinja2")
GIT_TIMEOUT: Final = 10.0  # seconds per call


def environment() -> dict[str, Any]:
    """The blocks that describe the commit of the working directory, the versions and the machine."""
    parent = Path.cwd().parent
    return {
        "git_hash": _git(["describe", "--always"], Path.cwd()),
        "pretty_env_info": _machine(),
        "transformers_version": _version("transformers"),
        "upper_git_hash": _git(["rev-parse", "HEAD"], parent) if (parent / ".git").exists() else None,
    }


def _machine() -> str:
    """Lines on the machine and the versions, from Python's own information: no program is run."""
    lines = [
        f"calipers version: {__version__}",
        f"PyTorch version: {_version('torch')}",
        *_accelerators(),
        "",
        f"OS: {_system()} ({platform.machine()})",
        f"Python version: {' '.join(sys.version.split())} ({sys.maxsize.bit_length() + 1}-bit runtime)",
        f"Python platform: {platform.platform()}",
        f"CPUs: {os.cpu_count()}",
        "",
        "Versions of relevant libraries:",
        *(f"{name}=={version}" for name in LIBRARIES if (version := _version(name)) != NOT_AVAILABLE),
    ]
    return "\n".join(lines)


def _accelerators() -> list[str]:
    """CUDA as torch reports it, if torch is loaded."""
    torch: Any = sys.modules.get("torch")
    if torch is None:
        return []
    available = bool(torch.cuda.is_available())
    names = [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())] if available else []
    return [
        f"Is CUDA available: {available}",
        f"CUDA used to build PyTorch: {torch.version.cuda or NOT_AVAILABLE}",
        *(f"GPU {number}: {name}" for number, name in enumerate(names)),
    ]


def _system() -> str:
    try:
        return platform.freedesktop_os_release()["PRETTY_NAME"]
    except (OSError, KeyError):
        return f"{platform.system()} {platform.release()}"


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return NOT_AVAILABLE


def _git(words: list[str], folder: Path) -> str | None:
    """The output of git in a folder; None without git, a repository or a commit."""
    try:
        git = subprocess.run(
            ["git", *words], cwd=folder, capture_output=True, text=True, timeout=GIT_TIMEOUT, check=False
        )
    except (OSError, subprocess.TimeoutExpired, UnicodeDecodeError):
        return None
    return git.stdout.strip() or None if git.returncode == 0 else None


def model_blocks(job: Job) -> tuple[dict[str, Any], dict[str, Any]]:
    """A local model's entries in the results file: inside ``config``, and beside it for its tokenizer.

    Both are empty for a model on a server, and for a model that this process did not load because all completions
    were in the log.
    """
    kind, _, name = job.model.partition("/")
    loaded: Any = sys.modules.get("calipers.clients.huggingface.client")
    if kind != "hf" or loaded is None:
        return {}, {}
    facts = loaded.facts(name, job.model_args)
    return ({}, {}) if facts is None else facts


SHAPES: Final[Mapping[str, Any]] = {  # the blocks of a results file that the table and the numbers depend on
    **dict.fromkeys(("results", "groups", "configs"), dict[str, dict[str, Any]]),
    "group_subtasks": dict[str, list[str]],
    **dict.fromkeys(("versions", "n-shot", "config"), dict[str, Any]),
    "higher_is_better": dict[str, dict[str, bool | None] | None],
}


def results_of(paths: Sequence[str]) -> dict[str, Any]:
    """A results object computed from samples files, and from the results file beside each, if there is one.

    The results file provides versions, few-shot counts, directions, and the number of bootstrap draws. The path of a
    results file means the samples files beside it. A metric that cannot be computed again keeps the number of the
    results file, or "N/A": its samples may be written with a loss (brier_score's probabilities are rounded to text),
    or the task's own function may aggregate it.
    """
    combined: dict[str, Any] = {block: {} for block in RESULTS_BLOCKS}
    samples: list[str] = []
    for path in _files(paths):
        if not holds_results(path):
            samples.append(path)
            continue
        samples += samples_beside(path)
        blocks = _blocks(path, results_in(path))
        for block in RESULTS_BLOCKS:  # groups, and tasks without samples files, keep these values
            combined[block] |= blocks[block]
    firsts: dict[str, str] = {}
    for path in samples:
        task, beside = task_of(path), _blocks(*results_beside(path))
        if firsts.setdefault(task, path) != path:
            raise InputError.at(path, f"task {task!r} was also run in {firsts[task]}", "expected one run of a task")
        config = beside["configs"].get(task, {})
        values = _values(path)
        numbers, size = _numbers(values, config, beside["results"].get(task, {}), _draws(beside["config"]))
        combined["results"][task] = task_row(task, config.get("task_alias"), size, numbers)
        for block in ("versions", "n-shot"):
            if task in beside[block]:
                combined[block][task] = beside[block][task]
        names = dict.fromkeys(key.rpartition(",")[0] for key in values)
        directions = beside["higher_is_better"].get(task) or {}
        better = {name: directions.get(name, KNOWN[name].higher_is_better if name in KNOWN else None) for name in names}
        combined["higher_is_better"][task] = better
    return combined


def table_of(paths: Sequence[str]) -> str:
    """The tables that lm-eval prints for tasks and groups, from its own files.

    Files of several models give several such texts, each below the model's name.
    """
    models: dict[str, list[str]] = {}
    for path in _files(paths):
        models.setdefault(_model(path), []).append(path)
    texts = {model: tables(results_of(files)) for model, files in models.items()}
    return "\n".join(f"{model}\n{text}" for model, text in texts.items()) if len(texts) > 1 else "".join(texts.values())


def _model(path: str) -> str:
    """The model of a results or samples file; the path of its folder if the results file does not name the model."""
    results = results_in(path) if holds_results(path) else results_beside(path)[1]
    model = results.get("model_name")
    return model if isinstance(model, str) else os.path.dirname(os.path.abspath(path))


def _files(paths: Sequence[str]) -> list[str]:
    return [path for path in with_folders(paths)[0] if isinstance(path, str)]


def _blocks(path: str, results: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The blocks of a results file, empty if absent; InputError for a block of the wrong type."""
    blocks = {}
    for name, shape in SHAPES.items():
        content = results.get(name)
        try:
            blocks[name] = msgspec.convert({} if content is None else content, complete(shape))
        except (msgspec.ValidationError, UnicodeEncodeError) as error:
            raise InputError.at(path, f"{name}: {error}", "expected a results file as lm_eval writes it") from None
    return blocks


def _draws(config: Mapping[str, Any]) -> int:
    """The number of bootstrap draws for a standard error: from the results file's config, at most the default."""
    iterations = config.get("bootstrap_iters")
    return iterations if isinstance(iterations, int) and iterations <= ITERATIONS else ITERATIONS


def _values(path: str) -> dict[str, list[Any]]:
    """The documents' values under ``metric,pipeline``, in the order of the file."""
    values: dict[str, list[Any]] = {}
    with Source(path) as source:
        for row in rows_of(source):
            for name, value in row.items():
                if name not in NOT_METRICS:
                    values.setdefault(f"{name},{row.get('filter', 'none')}", []).append(value)
    return values


def _numbers(
    values: Mapping[str, list[Any]], config: Mapping[str, Any], beside: Mapping[str, Any], iterations: int
) -> tuple[dict[str, Any], int]:
    hows = {name: known.aggregation for name, known in KNOWN.items()}
    for name in {key.rpartition(",")[0] for key in values}:
        how = listed_aggregation(config, name)
        hows |= {} if how is None else {name: how}
    numbers: dict[str, Any] = {}
    for key, items in values.items():
        metric, _, pipeline = key.rpartition(",")
        try:
            numbers |= aggregate_task({key: items}, hows, iterations).metrics
        except CalipersError:
            error = f"{metric}_stderr,{pipeline}"
            numbers |= {key: beside.get(key, NOT_AVAILABLE), error: beside.get(error, NOT_AVAILABLE)}
    return numbers, max(map(len, values.values()), default=0)
