"""The requests that a task makes of a model, document by document, exactly as lm-evaluation-harness makes them; and
their cache on disk, ``--cache_requests``.

lm-evaluation-harness finds cached requests by a task's name and number of examples, so that a changed task gets its old
prompts. Here the key is a digest of everything that a prompt is made from: the task's fields, every document and
example, the seeds, the chat format, and the code, ours and that of the templates. Prompts that a task's own code makes,
or that a template draws at random, are not cached: no digest covers everything that code may read.
"""

from __future__ import annotations

import hashlib
import marshal
import math
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any, Final, Literal, get_args

import msgspec

from calipers import __version__
from calipers.errors import InputError
from calipers.reports.figures import counted
from calipers.systems.lm_eval.tasks.groups import cache_folder, keep_file, read_kept
from calipers.systems.lm_eval.tasks.loaded import Instance, LoadedTask, check_index, seeded
from calipers.systems.lm_eval.tasks.prompts import ChatTurn, Doc, Manner, called, field_of, prompt
from calipers.systems.lm_eval.tasks.task_file import TaskFields, shown, values_of
from calipers.tasks import Prompt


def selected(total: int, limit: float | None = None, samples: Sequence[int] | None = None) -> list[int]:
    """Which documents are asked: the first ``limit``, a share of them below 1, or the ``samples``, each once.

    >>> selected(7, 0.3), selected(4, 1.0), selected(9, samples=[5, 2, 5])
    ([0, 1, 2], [0], [2, 5])
    """
    if samples:
        if limit is not None:
            raise InputError.at("--limit", "given together with samples", "expected one of the two")
        odd = [row for row in samples if not 0 <= row < total]
        if odd:
            raise InputError.at("samples", f"no document {odd[0]}", f"expected numbers from 0 to {total - 1}")
        return sorted(set(samples))
    most = effective_limit(total, limit)
    return list(range(total if most is None else min(most, total)))


def effective_limit(total: int, limit: float | None) -> int | None:
    """How many documents a limit means; 1.0 is one document, not all of them."""
    if limit is None:
        return None
    if not 0 < limit < math.inf:
        raise InputError.at("--limit", f"is {limit:g}", "expected a number of documents, or a fraction below 1")
    return math.ceil(total * limit) if limit < 1 else int(limit)


class Sampler:
    """Draws the examples of one task."""

    def __init__(self, task: LoadedTask, seed: int | None = None) -> None:
        self._task, self._pool = task, list(task.examples)
        self._random = Random(task.seeds[3] if seed is None else seed)
        shots = task.config.fewshot_config
        self._same = shots.split == task.config.test_split  # the document itself may be drawn

    def draw(self, doc: Doc, count: int) -> Sequence[Mapping[str, Any]]:
        """The examples before a document: at random, or the first ones."""
        sampler, location = self._task.config.fewshot_config.sampler, self._task.place("fewshot_config")
        needed = count + (self._same and sampler == "default")
        if needed > len(self._pool):
            raise InputError.at(
                location, (f"{needed} examples are needed, but there are only {len(self._pool)}"), "use fewer"
            )
        if callable(sampler):
            made = called(sampler, self._pool, location)
            examples = list(called(made.sample, count, location))
        elif sampler == "first_n":
            others = (example for example in self._pool if not self._same or example != doc)
            examples = list(islice(others, count))
        else:
            examples = self._drawn(doc, count, needed)
        if len(examples) != count:
            raise InputError.at(location, f"{len(examples)} examples differ from the document", f"expected {count}")
        return examples

    def _drawn(self, doc: Doc, count: int, needed: int) -> list[Any]:
        """Examples at random. Where several equal the document, they are drawn again from those that do not."""
        sampled = self._random.sample(self._pool, needed)
        examples = [example for example in sampled if not self._same or example != doc][:count]
        others = [example for example in self._pool if example != doc] if len(examples) < count else []
        return examples if len(others) < count else self._random.sample(others, count)


def written(task: LoadedTask, examples: Sequence[Doc]) -> list[ChatTurn]:
    """The examples as they stand before a question."""
    return [turn for example in examples for turn in _example(task, example)]


def _example(task: LoadedTask, example: Doc) -> list[ChatTurn]:
    shots = task.config.fewshot_config
    question, choices, answer = (
        task.text(example, shots=shots),
        task.choices(example, shots=shots),
        task.target(example, shots=shots),
    )
    prefix = field_of(shots.gen_prefix, example, task.place("gen_prefix"))
    if task.multiple_inputs:
        question, choices = _chosen(task, choices, question), None
    return turns(
        task, question, _answer(task, choices, answer), prefix, shots.target_delimiter, shots.fewshot_delimiter
    )


def turns(
    task: LoadedTask, question: Any, answer: str, prefix: str | None, delimiter: str, ending: str = ""
) -> list[ChatTurn]:
    """A question and its answer; without an answer, the question and how its answer begins."""
    if not isinstance(question, str):
        raise InputError.at(task.place("doc_to_text"), f"is {shown(question)}", "expected a text")
    if not (answer or prefix):
        return [ChatTurn("user", question)]
    parted = _needs_space(question, prefix) if prefix else True
    reply = (
        ChatTurn("assistant", joined(prefix, answer, " "), ending) if answer else ChatTurn("assistant", prefix or "")
    )
    return [ChatTurn("user", question, delimiter if parted else ""), reply]


def joined(left: str | None, right: str | None, delimiter: str) -> str:
    """Two texts with the delimiter between them, unless one is empty or a blank parts them already.

    >>> joined("a", "b", " "), joined("a\\n", "b", " "), joined("", "b", " ")
    ('a b', 'a\\nb', 'b')
    """
    if not left or not right:
        return (left or "") + (right or "")
    return left + (delimiter if _needs_space(left, right) else "") + right


def _needs_space(left: str, right: str) -> bool:
    return bool(left) and not (left[-1].isspace() or right[0].isspace())


def _answer(task: LoadedTask, choices: Sequence[Any] | None, answer: Any) -> str:
    """An example's answer as text: a choice by its index, the first of several."""
    if answer is None:
        return ""
    if choices and isinstance(answer, int):
        text = _chosen(task, choices, answer)
    else:
        text = answer[0] if isinstance(answer, list) and answer else answer
    if not isinstance(text, str):
        right = "expected a text, or an index with doc_to_choice"
        raise InputError.at(task.place("doc_to_target"), f"the answer of an example is {shown(text)}", right)
    return text


def _chosen(task: LoadedTask, choices: Sequence[Any] | None, index: Any) -> Any:
    if not choices or not isinstance(index, int) or not -len(choices) <= index < len(choices):
        wrong = f"an example points at choice {shown(index)}, but there are {len(choices or ())} choices"
        raise InputError.at(task.place("doc_to_target"), wrong, "expected the index of a choice")
    return choices[index]


@dataclass(frozen=True, slots=True)
class Asking:
    """How a task's requests are made, where the command says so."""

    limit: float | None = None
    samples: Sequence[int] | None = None
    rank: int = 0  # of `world` processes that share the documents
    world: int = 1
    seed: int | None = None  # of the examples; None: the one that the task was loaded with
    manner: Manner | None = None  # None: the task's own


def requests(task: LoadedTask, asking: Asking = Asking()) -> Iterator[Instance]:  # noqa: B008
    """Every request, in order. Examples are drawn document after document, so order is part of the matter.

    They are made once: a prompt that is drawn at random is the same whenever somebody looks at it.
    """
    manner = asking.manner or task.manner
    kept: list[tuple[Asking, Manner, list[Instance]]] = task.cache.setdefault("requests", [])
    made = next((made for before, how, made in kept if (before, how) == (asking, manner)), None)
    if made is None:
        with seeded(task.seeds):
            made = list(_requests(task, asking, manner))
        kept.append((asking, manner, made))
    yield from made


def _requests(task: LoadedTask, asking: Asking, manner: Manner) -> Iterator[Instance]:
    if task.own is not None:
        seed = task.seeds[3] if asking.seed is None else asking.seed
        yield from task.own.requests(chosen(task, asking), manner, seed)
        return
    sampler = Sampler(task, asking.seed)
    for doc_id, doc in chosen(task, asking):
        yield from _of(task, doc_id, doc, contexts(task, sampler, doc_id, doc, manner), manner.chat)


def chosen(task: LoadedTask, asking: Asking) -> Iterator[tuple[int, Doc]]:
    """The documents that are asked, and the row of each in its split."""
    rows = selected(len(task.docs), asking.limit, asking.samples)[asking.rank :: asking.world]
    if not rows:
        raise InputError.at(task.place("dataset_path"), "no documents are left to evaluate", "expected at least one")
    yield from ((row, task.docs[row]) for row in rows)


def contexts(task: LoadedTask, sampler: Sampler, number: int, doc: Doc, manner: Manner) -> list[Prompt]:
    """What the model sees before the answer: one prompt, or one per choice where the choices are contexts."""
    config = task.config
    description = field_of(config.description, doc, task.place("description", number))
    system = joined(manner.system, description, config.fewshot_delimiter)
    head = [ChatTurn("system", system)] if system else []
    count = config.num_fewshot or 0
    if count:
        head += written(task, sampler.draw(doc, count))
    prefix = task.prefix(doc, number)
    if task.multiple_inputs:
        choices = task.choices(doc, number) or []
        return [prompt([*head, *turns(task, choice, "", prefix, "")], manner) for choice in choices]
    return [prompt([*head, *turns(task, task.text(doc, number), "", prefix, config.target_delimiter)], manner)]


def _of(task: LoadedTask, doc_id: int, doc: Doc, before: list[Prompt], chat: bool) -> Iterator[Instance]:
    config = task.config
    if config.output_type == "multiple_choice":
        pairs = _pairs(task, doc_id, doc, before, chat)
        yield from (Instance("loglikelihood", doc_id, idx, pair) for idx, pair in enumerate(pairs))
        return
    if task.multiple_inputs and config.output_type != "loglikelihood_rolling":
        wrong = f"choices can be contexts only in multiple_choice, but this task is {config.output_type}"
        raise InputError.at(task.place("doc_to_text", doc_id), wrong, "expected a text")
    if config.output_type == "generate_until":
        args: tuple[Any, ...] = (before[0], deepcopy(dict(config.generation_kwargs or {})))
    else:
        target = task.target(doc, doc_id)
        args = (before[0], target) if config.output_type == "loglikelihood" else (target,)
    yield Instance(config.output_type, doc_id, 0, args)


def _pairs(task: LoadedTask, doc_id: int, doc: Doc, before: list[Prompt], chat: bool) -> list[tuple[Prompt, str]]:
    config, delimiter = task.config, task.config.target_delimiter
    if chat and (not config.gen_prefix or config.gen_prefix[-1].isspace()):
        delimiter = ""
    choices = task.choices(doc, doc_id)
    if choices is None:
        wrong = "a multiple_choice task without doc_to_choice"
        raise InputError.at(task.place("output_type"), wrong, "expected doc_to_choice")
    if task.multiple_inputs:
        target = task.target(doc, doc_id)
        pairs = [(context, f"{delimiter}{target}") for context in before]
    else:
        pairs = [(before[0], f"{delimiter}{choice}") for choice in choices]
    if any(entry["metric"] == "acc_mutual_info" for entry in config.metric_list or ()):
        pairs += [("", f"{delimiter}{choice}") for choice in choices]
    return pairs


def gold(task: LoadedTask, doc_id: int, doc: Doc) -> Any:
    """What a generated answer is compared with: the target, or the choice it points at."""
    target, choices = task.target(doc, doc_id), task.choices(doc, doc_id)
    if choices is None:
        return target
    if not isinstance(target, int):
        right = "expected the index of a choice, because the task has doc_to_choice"
        raise InputError.at(task.place("doc_to_target", doc_id), f"the target is {shown(target)}", right)
    check_index(task, choices, target, doc_id)
    return choices[target]


CacheUse = Literal["true", "refresh", "delete"]
USES: Final[tuple[str, ...]] = get_args(CacheUse)
FOLDER: Final = "LM_HARNESS_CACHE_PATH"  # lm-evaluation-harness' own variable for the folder
PREFIX, SUFFIX = "requests-", ".calipers"
LARGEST: Final = 1 << 30  # bytes of a file that is read
NOT_WRITTEN_INTO_PROMPTS: Final = {  # fields of a task that choose its documents, which are hashed, or score answers
    *("custom_dataset", "dataset_path", "dataset_name", "dataset_kwargs", "process_docs", "unsafe_code"),
    *("process_results", "metric_list", "filter_list", "scorer", "should_decontaminate"),
    *("doc_to_decontamination_query", "metadata", "tag", "task_alias", "repeats", "formats"),
}
CHOOSES_EXAMPLES: Final = {"process_docs", "samples", "fewshot_indices"}  # of fewshot_config, likewise

Row = tuple[str, int, int, int, list[Any]]  # kind, document, number, first argument among the texts, further arguments


class _KeptRequests(msgspec.Struct):
    """The file of a task's requests; a text that several requests begin with is stored once."""

    key: str
    texts: list[Any]
    rows: list[Row]


@dataclass(frozen=True, slots=True)
class RequestCache:
    """The folder of cached requests, and whether to make them again."""

    folder: Path
    refresh: bool = False

    def fill(self, task: LoadedTask) -> list[str]:
        """Give a task its requests, from the cache or new; returns a note if they cannot be cached."""
        key = _key(task)
        if key is None:
            own = task.own is not None or _own_code(task)
            why = "its own code makes them" if own else "a document contains an object"
            return [f"{task.config.task}: its prompts are not cached: {why}"]
        path = self.folder / f"{PREFIX}{_plain_name(str(task.config.task))}-{key[:16]}{SUFFIX}"
        asking, kept = Asking(), None if self.refresh else _read(path, key)
        if kept is not None:
            task.cache.setdefault("requests", []).append((asking, task.manner, kept))
            return []
        made = list(requests(task, asking))
        content = _written(key, made)
        if content is None or _decoded(content, key) != made:
            return [f"{task.config.task}: its prompts are not cached: they contain more than text and numbers"]
        keep_file(path, content)
        return []


def request_cache(use: str) -> tuple[RequestCache | None, list[str]]:
    """The cache for a value of ``--cache_requests``, and notes; ``delete`` removes all cached requests."""
    if use not in USES:
        raise InputError.at("--cache_requests", f"is {use!r}", f"expected {', '.join(USES)}")
    base = os.environ.get(FOLDER)
    folder = Path(base) if base else cache_folder() / "requests"
    return (None, [_deleted(folder)]) if use == "delete" else (RequestCache(folder, use == "refresh"), [])


def _deleted(folder: Path) -> str:
    """Remove the files of requests in a folder and no others; returns a note."""
    removed = 0
    try:
        for path in sorted(folder.iterdir()):
            if path.name.startswith(PREFIX) and path.name.endswith(SUFFIX):
                path.unlink(missing_ok=True)
                removed += 1
    except FileNotFoundError:
        pass  # nothing was cached
    except OSError as error:
        raise InputError.at(str(folder), f"cached prompts cannot be removed ({error.strerror})") from None
    return f"{counted(removed, 'file')} of cached prompts removed from {folder}"


def _plain_name(name: str) -> str:
    """A task's name for a file's name: short, without separators."""
    return "".join(letter if letter.isalnum() else "_" for letter in name)[:40]


def _writing_fields(config: TaskFields) -> dict[str, Any]:
    """The fields of a task that its prompts are made from."""
    rest = {name: value for name, value in values_of(config).items() if name not in NOT_WRITTEN_INTO_PROMPTS}
    shots = values_of(rest.pop("fewshot_config"))
    inner = {name: value for name, value in shots.items() if name not in CHOOSES_EXAMPLES}
    names = [str(entry.get("metric")) for entry in config.metric_list or ()]  # acc_mutual_info asks for more
    return {**rest, "shots": inner, "metrics": names, "own_scores": config.process_results is not None}


def _own_code(task: LoadedTask) -> bool:
    """Whether a prompt is made by a function or drawn by a template, whose draws scoring needs, too."""
    written = _writing_fields(task.config)
    values = [*written.values(), *written["shots"].values()]
    return any(callable(value) or (isinstance(value, str) and "random" in value) for value in values)


def _key(task: LoadedTask) -> str | None:
    """A digest of everything that a task's requests are made from; None if there cannot be one."""
    if task.own is not None or _own_code(task):
        return None
    manner, modes = task.manner, (task.multiple_inputs, task.multiple_targets)
    about = [
        *(_writing_fields(task.config), list(task.columns), list(task.seeds), list(modes)),
        *(manner.chat, manner.multiturn, manner.system),
        *([dict(doc) for doc in task.docs], [dict(doc) for doc in task.examples]),
    ]
    try:  # of Python's plain values alone, each in its own type; version 0 writes equal values in one way
        content = marshal.dumps(about, 0)
    except ValueError:
        return None
    return hashlib.sha256(_code().encode() + content).hexdigest()


@cache
def _code() -> str:
    """A digest of the code that writes prompts: ours, that of the templates, and Python's, which draws examples."""
    whole = hashlib.sha256(f"{__version__} {sys.version}".encode())
    for name in ("jinja2", "markupsafe"):
        whole.update(metadata.version(name).encode())
    for path in sorted(Path(__file__).parent.glob("*.py")):
        whole.update(path.read_bytes())
    return whole.hexdigest()


def _written(key: str, made: list[Instance]) -> bytes | None:
    """Requests as the bytes of a file; None if a value cannot be stored."""
    texts: dict[int, tuple[int, Any]] = {}  # by identity: the choices of a document share their context
    rows: list[Row] = []
    for request in made:
        first, *more = request.args
        number, _ = texts.setdefault(id(first), (len(texts), first))
        rows.append((request.request_type, request.doc_id, request.idx, number, more))
    try:
        return msgspec.msgpack.encode(_KeptRequests(key, [text for _, text in texts.values()], rows))
    except (TypeError, ValueError, OverflowError, RecursionError):
        return None


def _read(path: Path, key: str) -> list[Instance] | None:
    content = read_kept(path, LARGEST)
    return None if content is None else _decoded(content, key)


def _decoded(content: bytes, key: str) -> list[Instance] | None:
    """The requests in the bytes of a file; None for a file of another key, or one that cannot be read."""
    try:
        kept = msgspec.msgpack.decode(content, type=_KeptRequests)
        texts = kept.texts
        made = [Instance(kind, doc, idx, (texts[number], *more)) for kind, doc, idx, number, more in kept.rows]
    except (msgspec.MsgspecError, UnicodeError, RecursionError, IndexError):
        return None
    return made if kept.key == key and made else None
