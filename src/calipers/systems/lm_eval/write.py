"""What lm-evaluation-harness writes: its results object with commits, versions and machine, a line for each document
and pipeline, and its table.
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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal, InvalidOperation
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from calipers import __version__
from calipers.systems.lm_eval.aggregations import ITERATIONS
from calipers.systems.lm_eval.task_scores import TaskNumbers, TaskScores, aggregate_group
from calipers.systems.lm_eval.tasks.groups import TaskGroup, every_group
from calipers.systems.lm_eval.tasks.task_file import TaskFields

if TYPE_CHECKING:
    from calipers.running import Job

LAYOUT: Final = "0.4.13"  # the release whose layout this is
NOT_AVAILABLE: Final = "N/A"  # a standard error that does not exist, a library that is not installed
ORDER: Final = (
    "results",
    "groups",
    "group_subtasks",
    "configs",
    "versions",
    "n-shot",
    "higher_is_better",
    "n-samples",
    "config",
    "git_hash",
    "date",
    "pretty_env_info",
    "transformers_version",
    "lm_eval_version",
    "upper_git_hash",
    "tokenizer_pad_token",
    "tokenizer_eos_token",
    "tokenizer_bos_token",
    "eot_token_id",
    "max_length",
    "task_hashes",
    "model_source",
    "model_name",
    "model_name_sanitized",
    "system_instruction",
    "system_instruction_sha",
    "fewshot_as_multiturn",
    "chat_template",
    "chat_template_sha",
    "total_evaluation_time_seconds",
)
BY_NAME: Final = ("configs", "versions", "n-shot", "higher_is_better")
"""The blocks whose tasks stand sorted by name."""
HYPHENED: Final = {"n_shot": "n-shot", "n_samples": "n-samples"}
_ADDRESS: Final = re.compile(r" at 0x[0-9a-fA-F]+(?=>)")
_UNSAFE: Final = re.compile(r'[<>:"/|\\?*\[\]]+')


def hashes(doc: Any, prompt: str, target: Any) -> dict[str, str]:
    """The three hashes of a sample: of its document as indented JSON, of its prompt, of its target as text."""
    return {"doc_hash": digest(dumped(doc)), "prompt_hash": digest(prompt), "target_hash": digest(str(target))}


def task_hash(samples: Sequence[Mapping[str, Any]]) -> str:
    """The hash of all samples of a task: of their hashes one after another."""
    return digest("".join(f"{row['doc_hash']}{row['prompt_hash']}{row['target_hash']}" for row in samples))


def task_row(name: str, alias: str | None, sample_len: int, numbers: Mapping[str, Any]) -> dict[str, Any]:
    """A task's entry under ``results``: who it is, how many documents, then each number and its standard error."""
    return {"name": name, "alias": alias or name, "sample_len": sample_len, **available(numbers)}


def available(row: Mapping[str, Any]) -> dict[str, Any]:
    """The same numbers with ``"N/A"`` for those that do not exist."""
    return {key: NOT_AVAILABLE if value is None else value for key, value in row.items()}


def results_object(**blocks: Any) -> dict[str, Any]:
    """The blocks of a results file in its order; one that is not given is not there.

    Keywords spell ``n-shot`` and ``n-samples`` with an underscore.
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
    """A document's line under one pipeline; ``arguments`` are those of each request, the prompt first.

    A chat is a list of one text, its turns as JSON.
    """
    prompt = arguments[0][0] if arguments and arguments[0] else ""
    prompt = str(prompt[0] if isinstance(prompt, list) else prompt)
    named = {
        f"gen_args_{number}": {f"arg_{index}": value for index, value in enumerate(request)}
        for number, request in enumerate(arguments)
    }
    return {
        "doc_id": doc_id,
        "doc": doc,
        "target": str(target),
        "arguments": named,
        "resps": [_texts(request) for request in resps],
        "filtered_resps": [_texts(answer) for answer in answers],
        "filter": pipeline,
        "metrics": list(scores),
        **hashes(doc, prompt, target),
        **{name: _printed(value) if name == "brier_score" else value for name, value in scores.items()},
    }


def file_text(results: Mapping[str, Any]) -> str:
    """A results object as its file has it: indented, characters as they are."""
    return json.dumps(results, indent=2, ensure_ascii=False, default=_plain)


def line_text(row: Mapping[str, Any]) -> str:
    """A sample as a line of its file."""
    return json.dumps(row, ensure_ascii=False, default=_plain) + "\n"


def dumped(doc: Any) -> str:
    """A document as it is hashed."""
    return json.dumps(doc, indent=2, default=_plain, ensure_ascii=False)


def digest(text: str) -> str:
    """The SHA-256 of a text, in hexadecimal."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _texts(value: Any) -> Any:
    """Every leaf as text, whatever it was."""
    return [_texts(item) for item in value] if isinstance(value, (list, tuple)) else str(value)


def _printed(pair: Any) -> Any:
    """(gold, chances) with the chances as numpy prints them, which is what lm-eval's file holds."""
    import numpy as np

    return (pair[0], str(np.array(pair[1]))) if isinstance(pair, (list, tuple)) else pair


def _plain(value: Any) -> Any:
    """What JSON has no word for: a set as a list, an array's number as a number, anything else as its text."""
    if isinstance(value, (set, frozenset)):
        return list(value)
    item = getattr(value, "item", None)
    if callable(item) and getattr(value, "shape", None) == ():
        return item()
    return without_address(str(value))


def without_address(text: str) -> str:
    """What Python shows of an object, less where it lay in memory: two exports of one run are the same.

    >>> without_address("<function f at 0x7f2a9c0d5a80>")
    '<function f>'
    """
    return _ADDRESS.sub("", text)


@dataclass(frozen=True, slots=True)
class RanTask:
    """A task that was run: what it is, what it came to, and the hash of its samples."""

    config: TaskFields
    source: str  # the path of its file, or inline; "": not told
    scores: TaskScores
    documents: int  # there are
    asked: int  # were asked
    samples_hash: str = ""
    numbers: TaskNumbers | None = None  # where they are known already

    @property
    def name(self) -> str:
        """The task's name."""
        return str(self.config.task)


def run_results(
    ran: Sequence[RanTask], groups: Sequence[TaskGroup] = (), iterations: int = ITERATIONS, **about: Any
) -> dict[str, Any]:
    """The results object of some tasks and the groups over them; ``about`` are further blocks of it, by name."""
    rows = {}
    for task in ran:
        numbers = task.numbers or task.scores.numbers(iterations)
        rows[task.name] = task_row(task.name, task.config.task_alias, numbers.sample_len, numbers.metrics)
    every = list({group.name: group for group in every_group(groups)}.values())
    added = {}
    for group in _rising(groups):
        row = aggregate_group(group.name, [*_tasks(group)], rows, group.aggregate_metric_list, group.alias)
        added[group.name] = available(row)
    better: dict[str, Any] = {task.name: task.scores.higher_is_better() for task in ran}
    shots: dict[str, Any] = {task.name: task.config.num_fewshot or 0 for task in ran}
    for group in every:  # the outer before the inner, of which it thus knows nothing here: as there
        below = [member.name for member in group.members]
        if agreed := _agreed([better[name] for name in below if name in better]):
            better[group.name] = agreed
        counts = {shots[name] for name in below if name in shots}
        if len(counts) == 1:
            shots[group.name] = counts.pop()
    versions = {task.name: task.config.version for task in ran}
    versions |= {group.name: str(group.metadata.get("version", "N/A")) for group in every}
    return results_object(
        results={**rows, **added},
        groups={group.name: added[group.name] for group in _rising(groups) if group.aggregate_metric_list},
        group_subtasks={group.name: [member.name for member in group.members] for group in every},
        configs={task.name: _config(task) for task in ran},
        versions=versions,
        n_shot=shots,
        higher_is_better=better,
        n_samples={task.name: {"original": task.documents, "effective": task.asked} for task in ran},
        lm_eval_version=LAYOUT,
        task_hashes={task.name: task.samples_hash for task in ran},
        **about,
    )


def sanitized(model: str) -> str:
    """A model's name as the name of a folder."""
    return _UNSAFE.sub("__", model)


def file_path(folder: Path, model: str, time: str, task: str | None = None) -> Path:
    """Where a file of a run lies: the results, or the samples of a task.

    Where a ``.json`` file is named in place of a folder, it lies beside that, as there.

    >>> str(file_path(Path("out"), "org/m", "2026-01-02T03:04:05.6", "gsm8k"))
    'out/org__m/samples_gsm8k_2026-01-02T03-04-05.6.jsonl'
    """
    moment, beside = time.replace(":", "-"), folder.suffix == ".json"
    name = f"samples_{task}_{moment}.jsonl"
    if task is None:
        name = f"{folder.stem if beside else 'results'}_{moment}.json"
    return folder.parent / name if beside else folder / sanitized(model) / name


def _rising(groups: Sequence[Any]) -> Iterator[TaskGroup]:
    """Every group, the inner before the outer; one that was met may come again."""
    for group in groups:
        if isinstance(group, TaskGroup):
            yield from _rising(group.members)
            yield group


def _tasks(group: TaskGroup) -> Iterator[str]:
    for member in group.members:
        if isinstance(member, TaskGroup):
            yield from _tasks(member)
        else:
            yield member.name


def _agreed(members: Sequence[Mapping[str, bool | None]]) -> dict[str, bool | None]:
    """Which way each metric is better, where all that have it agree; null where they do not."""
    agreed: dict[str, bool | None] = {}
    for better in members:
        for metric, way in better.items():
            agreed[metric] = way if agreed.get(metric, way) == way else None
    return agreed


def _config(task: RanTask) -> dict[str, Any]:
    shown = replace(task.config, tag=None, num_fewshot=task.config.num_fewshot or 0)  # a tag only selects
    config = _dumped(shown.dumped())
    source = {"config_source": task.source} if task.source else {}
    return {**config, "metadata": {**(config.get("metadata") or {}), **source}}


def _dumped(value: Any, key: str = "") -> Any:
    """A configuration with its functions as their source; inside filters, as Python shows them, less the address."""
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
NARROWEST: Final = 3
_ARROWS: Final[Mapping[Any, str]] = {True: "↑", False: "↓"}


def table(results: Mapping[str, Any], column: str = "results") -> str:
    """The Markdown table of a results object, to the character; ``column`` is results, or groups for those alone.

    Numbers are written with four decimals and then read again by the library that draws its tables: a column of
    numbers is set with as many decimals as its longest needs, to the right. A cell that is no number makes the column
    one of text, in which whole numbers have no decimals. A cell below more text than anything else is not read at all.
    """
    return markdown([TITLES[column], *HEADERS], list(_rows(results, column)))


def tables(results: Mapping[str, Any]) -> str:
    """The table of a results object, and that of its groups where there are some."""
    return "\n".join([table(results), *([table(results, "groups")] if results.get("groups") else [])])


def markdown(titles: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """A Markdown table as the library sets it that draws lm-evaluation-harness' tables."""
    columns = [_column(title, [row[index] for row in rows]) for index, title in enumerate(titles)]
    lines = [[cells.head for cells in columns], [cells.rule for cells in columns]]
    lines += [[cells.cells[row] for cells in columns] for row in range(len(rows))]
    return "".join(f"|{'|'.join(line)}|\n" for line in lines)


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
            value, beside = row_values[key], f"{metric}_stderr,{pipeline}"
            row = [alias, version, pipeline, str(shots.get(name, " ")), metric, _ARROWS.get(better.get(metric), "")]
            row += [f"{value:.4f}" if isinstance(value, float) else value]
            yield [*row, "±", _error(row_values[beside])] if beside in row_values else [*row, "", ""]
            alias, version = "", ""


def _order(results: Mapping[str, Any], column: str) -> list[tuple[str, int]]:
    """Groups by name, each followed by its members, then what is in no group; and how deep each stands."""
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
_THOUSANDS: Final = re.compile(r"\d{1,3}(,\d{1,3})+")  # as the library takes them: 1,5 is 15


class _Column:
    """A column as it is set: its head, the rule below it, its cells."""

    def __init__(self, title: str, texts: Sequence[str], right: Sequence[bool], all_right: bool) -> None:
        width = max([NARROWEST, _width(title), *(_width(text) for text in texts)])
        left = (width - _width(title)) // 2
        self.head = " " * left + title + " " * (width - _width(title) - left)
        self.rule = "-" * (width - 1) + ":" if all_right else "-" * width
        self.cells = [_padded(text, width, to) for text, to in zip(texts, right, strict=True)]


def _column(title: str, cells: Sequence[Any]) -> _Column:
    read = _read(cells)
    kinds = {_kind(cell) for cell in read}
    numeric = not kinds & {"text", "flag"} and (len(kinds) > 1 or bool(kinds & {"whole", "real"}))
    places = max((_places(cell) for cell in read if isinstance(cell, Decimal)), default=0)
    texts = [_decimals(cell, places, numeric) if isinstance(cell, Decimal) else str(cell) for cell in read]
    right = [numeric or (isinstance(cell, Decimal) and cell.is_finite()) for cell in read]
    return _Column(title, texts, right, numeric)


def _read(cells: Sequence[Any]) -> list[Any]:
    """The cells with what looks like a number read as one, but not below more text than anything else."""
    met: Counter[str] = Counter()
    values: list[Any] = []
    for cell in cells:
        most = met.most_common(1)[0][0] if met else ""
        values.append(cell if most == "text" and isinstance(cell, str) else _value(cell))
        met[_kind(values[-1])] += 1
    return values


def _kind(cell: Any) -> str:
    if isinstance(cell, bool):
        return "flag"
    if not isinstance(cell, Decimal):
        return "text" if not isinstance(cell, str) or cell.strip() else "blank"
    if not cell.is_finite():
        return "nan" if cell.is_nan() else "infinity"
    return "real" if _places(cell) else "whole"


def _value(cell: Any) -> Any:
    """A cell as the number or the truth value that it looks like; any other as it is."""
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


def _places(number: Decimal) -> int:
    """The decimals of the number as a float, of which there are 17 digits at most."""
    exponent = Decimal(repr(float(number))).normalize().as_tuple().exponent if number.is_finite() else 0
    return max(0, -exponent) if isinstance(exponent, int) else 0


def _decimals(number: Decimal, places: int, numeric: bool) -> str:
    if number.is_nan():
        return "NaN"
    if number.is_infinite():
        return "Infinity" if number > 0 else "-Infinity"
    text = f"{number:.{places if numeric or _places(number) else 0}f}"
    return text.removeprefix("-") if not math.fabs(number) else text


def _padded(text: str, width: int, right: bool) -> str:
    blanks = " " * (width - _width(text))
    shown = text.replace("|", "\\|")
    return blanks + shown if right else shown + blanks


def _width(text: str) -> int:
    """How many places a text takes, where East Asian characters take two."""
    return sum(2 if unicodedata.east_asian_width(character) in "FW" else 1 for character in text)


LIBRARIES: Final = ("numpy", "torch", "transformers", "tokenizers", "accelerate", "peft", "datasets", "jinja2")
SECONDS: Final = 10.0  # for one call of git


def environment() -> dict[str, Any]:
    """The blocks on the commit of the working directory, the versions and the machine."""
    above = Path(os.getcwd()).parent
    return {
        "git_hash": _git(["describe", "--always"], Path(os.getcwd())),
        "pretty_env_info": machine(),
        "transformers_version": _version("transformers"),
        "upper_git_hash": _git(["rev-parse", "HEAD"], above) if (above / ".git").exists() else None,
    }


def machine() -> str:
    """The machine and the versions in lines, from Python's own information: no program is run."""
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
        *(f"{name}=={found}" for name, found in _installed(LIBRARIES)),
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


def _installed(names: Iterable[str]) -> list[tuple[str, str]]:
    return [(name, found) for name in names if (found := _version(name)) != NOT_AVAILABLE]


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return NOT_AVAILABLE


def _git(words: list[str], folder: Path) -> str | None:
    """The output of git in a folder; None without git, a repository or a commit."""
    try:
        done = subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, timeout=SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired, UnicodeDecodeError):
        return None
    return done.stdout.strip() or None if done.returncode == 0 else None


def model_blocks(job: Job) -> tuple[dict[str, Any], dict[str, Any]]:
    """The facts about a local model: for ``config``, and next to it; empty if it was not loaded or is on a server.

    A run that reads every answer from the log loads no model.
    """
    kind, _, name = job.model.partition("/")
    loaded: Any = sys.modules.get("calipers.clients.huggingface.client")
    if kind != "hf" or loaded is None:
        return {}, {}
    facts = loaded.facts(name, job.model_args)
    return ({}, {}) if facts is None else facts
