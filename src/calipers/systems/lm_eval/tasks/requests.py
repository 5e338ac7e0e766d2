"""The requests of a task, document by document, exactly as lm-evaluation-harness makes them, and their cache on disk.

The cache is that of ``--cache_requests``. lm-evaluation-harness finds cached requests by a task's name and number of
examples, so that a changed task gets its old prompts. Here the key is a digest of everything that determines a prompt:
the task's fields, every document and example, the seeds, the chat format, and the code, ours and that of the templates.
Prompts that a task's own code makes, or that a template makes at random, are not cached, because no digest covers
everything that such code may read.
"""

from __future__ import annotations

import hashlib
import marshal
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
from calipers.systems.lm_eval.tasks.groups import cache_folder, read_cached, write_cached
from calipers.systems.lm_eval.tasks.loaded import Instance, LoadedTask, check_index, seeded
from calipers.systems.lm_eval.tasks.prompts import ChatTurn, Doc, called, field_of, prompt
from calipers.systems.lm_eval.tasks.task_file import TaskFields, shown, values_of
from calipers.tasks import Prompt
from calipers.typed import complete


class Sampler:
    """Draws the few-shot examples of a task."""

    def __init__(self, task: LoadedTask) -> None:
        self._task, self._pool, self._random = task, list(task.examples), Random(task.seeds[3])
        shots = task.config.fewshot_config
        self._same_split = shots.split == task.config.test_split  # the pool contains the evaluated document

    def draw(self, doc: Doc, count: int) -> Sequence[Mapping[str, Any]]:
        """The examples before a document: random ones, or the first ones."""
        sampler, location = self._task.config.fewshot_config.sampler, self._task.location("fewshot_config")
        needed = count + (self._same_split and sampler == "default")
        if needed > len(self._pool):
            problem = f"{needed} examples are needed, but there are only {len(self._pool)}"
            raise InputError.at(location, problem, "use fewer")
        if callable(sampler):
            own_sampler = called(sampler, self._pool, location)
            examples = list(called(own_sampler.sample, count, location))
        elif sampler == "first_n":
            others = (example for example in self._pool if not self._same_split or example != doc)
            examples = list(islice(others, count))
        else:
            examples = self._random_examples(doc, count, needed)
        if len(examples) != count:
            raise InputError.at(location, f"{len(examples)} examples differ from the document", f"expected {count}")
        return examples

    def _random_examples(self, doc: Doc, count: int, needed: int) -> list[Any]:
        """Random examples; if several of them equal the document, they are drawn again from those that do not."""
        sampled = self._random.sample(self._pool, needed)
        examples = [example for example in sampled if not self._same_split or example != doc][:count]
        others = [example for example in self._pool if example != doc] if len(examples) < count else []
        return examples if len(others) < count else self._random.sample(others, count)


def example_turns(task: LoadedTask, example: Doc) -> list[ChatTurn]:
    """The question and answer of a few-shot example."""
    shots = task.config.fewshot_config
    question, choices, answer = (
        task.text(example, shots=shots),
        task.choices(example, shots=shots),
        task.target(example, shots=shots),
    )
    prefix = field_of(shots.gen_prefix, example, task.location("gen_prefix"))
    if task.multiple_inputs:
        question, choices = _choice(task, choices, question), None
    answer_text = _answer(task, choices, answer)
    return turns(task, question, answer_text, prefix, shots.target_delimiter, shots.fewshot_delimiter)


def turns(
    task: LoadedTask, question: Any, answer: str, prefix: str | None, delimiter: str, ending: str = ""
) -> list[ChatTurn]:
    """The turns of a question and its answer; without an answer, of the question and the prefix of its answer."""
    if not isinstance(question, str):
        raise InputError.at(task.location("doc_to_text"), f"is {shown(question)}", "expected a text")
    if not (answer or prefix):
        return [ChatTurn("user", question)]
    if prefix and not _needs_space(question, prefix):
        delimiter = ""
    reply = (
        ChatTurn("assistant", joined(prefix, answer, " "), ending) if answer else ChatTurn("assistant", prefix or "")
    )
    return [ChatTurn("user", question, delimiter), reply]


def joined(left: str | None, right: str | None, delimiter: str) -> str:
    """Two texts with the delimiter between them, unless one is empty or whitespace separates them already.

    >>> joined("a", "b", " "), joined("a\\n", "b", " "), joined("", "b", " ")
    ('a b', 'a\\nb', 'b')
    """
    if not left or not right:
        return (left or "") + (right or "")
    return left + (delimiter if _needs_space(left, right) else "") + right


def _needs_space(left: str, right: str) -> bool:
    return bool(left) and not (left[-1].isspace() or right[0].isspace())


def _answer(task: LoadedTask, choices: Sequence[Any] | None, answer: Any) -> str:
    """An example's answer as text: the choice with this index, or the first of several answers."""
    if answer is None:
        return ""
    if choices and isinstance(answer, int):
        text = _choice(task, choices, answer)
    else:
        text = answer[0] if isinstance(answer, list) and answer else answer
    if not isinstance(text, str):
        expected = "expected a text, or an index with doc_to_choice"
        raise InputError.at(task.location("doc_to_target"), f"the answer of an example is {shown(text)}", expected)
    return text


def _choice(task: LoadedTask, choices: Sequence[Any] | None, index: Any) -> Any:
    if not choices or not isinstance(index, int) or not -len(choices) <= index < len(choices):
        problem = f"an example points at choice {shown(index)}, but there are {len(choices or ())} choices"
        raise InputError.at(task.location("doc_to_target"), problem, "expected the index of a choice")
    return choices[index]


def requests(task: LoadedTask) -> Sequence[Instance]:
    """Every request of a task, in order; the order matters, because examples are drawn document after document.

    The requests are made once and cached, so that a random prompt stays the same.
    """
    key = "requests", task.manner
    if key not in task.cache:
        with seeded(task.seeds):
            task.cache[key] = list(_requests(task))
    instances: Sequence[Instance] = task.cache[key]
    return instances


def _requests(task: LoadedTask) -> Iterator[Instance]:
    if task.own is not None:
        yield from task.own.requests(enumerate(task.docs), task.manner, task.seeds[3])
        return
    sampler = Sampler(task)
    for doc_id, doc in enumerate(task.docs):
        yield from _document_requests(task, doc_id, doc, contexts(task, sampler, doc_id, doc))


def contexts(task: LoadedTask, sampler: Sampler, number: int, doc: Doc) -> list[Prompt]:
    """The context of the answer: one prompt, or one per choice if the choices are contexts."""
    config, manner = task.config, task.manner
    description = field_of(config.description, doc, task.location("description", number))
    system = joined(manner.system, description, config.fewshot_delimiter)
    head = [ChatTurn("system", system)] if system else []
    count = config.num_fewshot or 0
    if count:
        head += [turn for example in sampler.draw(doc, count) for turn in example_turns(task, example)]
    prefix = task.prefix(doc, number)
    if task.multiple_inputs:
        choices = task.choices(doc, number) or []
        return [prompt([*head, *turns(task, choice, "", prefix, "")], manner) for choice in choices]
    return [prompt([*head, *turns(task, task.text(doc, number), "", prefix, config.target_delimiter)], manner)]


def _document_requests(task: LoadedTask, doc_id: int, doc: Doc, prompts: list[Prompt]) -> Iterator[Instance]:
    config = task.config
    if config.output_type == "multiple_choice":
        pairs = _choice_pairs(task, doc_id, doc, prompts)
        yield from (Instance("loglikelihood", doc_id, idx, pair) for idx, pair in enumerate(pairs))
        return
    if task.multiple_inputs and config.output_type != "loglikelihood_rolling":
        problem = f"choices can be contexts only in multiple_choice, but this task is {config.output_type}"
        raise InputError.at(task.location("doc_to_text", doc_id), problem, "expected a text")
    if config.output_type == "generate_until":
        args: tuple[Any, ...] = (prompts[0], deepcopy(dict(config.generation_kwargs or {})))
    else:
        target = task.target(doc, doc_id)
        args = (prompts[0], target) if config.output_type == "loglikelihood" else (target,)
    yield Instance(config.output_type, doc_id, 0, args)


def _choice_pairs(task: LoadedTask, doc_id: int, doc: Doc, prompts: list[Prompt]) -> list[tuple[Prompt, str]]:
    """The (context, continuation) pairs of a multiple-choice document, whose log-likelihoods are requested."""
    config, delimiter = task.config, task.config.target_delimiter
    if task.manner.chat and (not config.gen_prefix or config.gen_prefix[-1].isspace()):
        delimiter = ""
    choices = task.choices(doc, doc_id)
    if choices is None:
        problem = "a multiple_choice task without doc_to_choice"
        raise InputError.at(task.location("output_type"), problem, "expected doc_to_choice")
    if task.multiple_inputs:
        target = task.target(doc, doc_id)
        pairs = [(context, f"{delimiter}{target}") for context in prompts]
    else:
        pairs = [(prompts[0], f"{delimiter}{choice}") for choice in choices]
    if any(entry["metric"] == "acc_mutual_info" for entry in config.metric_list or ()):
        pairs += [("", f"{delimiter}{choice}") for choice in choices]
    return pairs


def gold(task: LoadedTask, doc_id: int, doc: Doc) -> Any:
    """The target of a generated answer: ``doc_to_target``, or the choice with this index."""
    target, choices = task.target(doc, doc_id), task.choices(doc, doc_id)
    if choices is None:
        return target
    if not isinstance(target, int):
        expected = "expected the index of a choice, because the task has doc_to_choice"
        raise InputError.at(task.location("doc_to_target", doc_id), f"the target is {shown(target)}", expected)
    check_index(task, choices, target, doc_id)
    return choices[target]


CacheUse = Literal["true", "refresh", "delete"]
USES: Final[tuple[str, ...]] = get_args(CacheUse)
FOLDER: Final = "LM_HARNESS_CACHE_PATH"  # lm-evaluation-harness' environment variable for the folder
PREFIX, SUFFIX = "requests-", ".calipers"
LARGEST: Final = 1 << 30  # bytes of a file that is read
NOT_WRITTEN_INTO_PROMPTS: Final = {  # fields that select documents, which are hashed themselves, or score answers
    *("custom_dataset", "dataset_path", "dataset_name", "dataset_kwargs", "process_docs", "unsafe_code"),
    *("process_results", "metric_list", "filter_list", "scorer", "should_decontaminate"),
    *("doc_to_decontamination_query", "metadata", "tag", "task_alias", "repeats", "formats"),
}
SELECTS_EXAMPLES: Final = {"process_docs", "samples", "fewshot_indices"}  # the same for fewshot_config

Row = tuple[str, int, int, int, list[Any]]  # kind, document, idx, index of the first argument in texts, other arguments


class _CachedRequests(msgspec.Struct):
    """The file of a task's requests; a first argument that several requests share is stored once, in ``texts``."""

    key: str
    texts: list[Any]
    rows: list[Row]


@dataclass(frozen=True, slots=True)
class RequestCache:
    """The folder of cached requests; with ``refresh`` they are made again."""

    folder: Path
    refresh: bool = False

    def fill(self, task: LoadedTask) -> list[str]:
        """Give a task its requests, from the cache or newly made; returns a note if they cannot be cached."""
        key = _key(task)
        if key is None:
            own_code = task.own is not None or _own_code(task)
            why = "its own code makes them" if own_code else "a document contains an object"
            return [f"{task.config.task}: its prompts are not cached: {why}"]
        path = self.folder / f"{PREFIX}{_plain_name(str(task.config.task))}-{key[:16]}{SUFFIX}"
        cached = None if self.refresh else _read(path, key)
        if cached is not None:
            task.cache["requests", task.manner] = cached
            return []
        instances = requests(task)
        content = _encoded(key, instances)
        if content is None or _decoded(content, key) != instances:
            return [f"{task.config.task}: its prompts are not cached: they contain more than text and numbers"]
        write_cached(path, content)
        return []


def request_cache(use: str) -> tuple[RequestCache | None, list[str]]:
    """The cache for a value of ``--cache_requests``, with notes; ``delete`` removes all cached requests."""
    if use not in USES:
        raise InputError.at("--cache_requests", f"is {use!r}", f"expected {', '.join(USES)}")
    base = os.environ.get(FOLDER)
    folder = Path(base) if base else cache_folder() / "requests"
    return (None, [_delete(folder)]) if use == "delete" else (RequestCache(folder, use == "refresh"), [])


def _delete(folder: Path) -> str:
    """Remove the files of cached requests in a folder, and no others; returns a note."""
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
    """A task's name for use in a file name: at most 40 letters, digits and underscores."""
    return "".join(letter if letter.isalnum() else "_" for letter in name)[:40]


def _prompt_fields(config: TaskFields) -> dict[str, Any]:
    """The fields of a task that determine its prompts."""
    values = {name: value for name, value in values_of(config).items() if name not in NOT_WRITTEN_INTO_PROMPTS}
    fewshot = values_of(values.pop("fewshot_config"))
    shots = {name: value for name, value in fewshot.items() if name not in SELECTS_EXAMPLES}
    names = [str(entry.get("metric")) for entry in config.metric_list or ()]  # acc_mutual_info adds requests
    return {**values, "shots": shots, "metrics": names, "own_scores": config.process_results is not None}


def _own_code(task: LoadedTask) -> bool:
    """Whether a prompt is made by a function, or at random by a template, whose random values scoring needs, too."""
    prompt_fields = _prompt_fields(task.config)
    values = [*prompt_fields.values(), *prompt_fields["shots"].values()]
    return any(callable(value) or (isinstance(value, str) and "random" in value) for value in values)


def _key(task: LoadedTask) -> str | None:
    """A digest of everything that determines a task's requests; None if no digest can cover it."""
    if task.own is not None or _own_code(task):
        return None
    manner, modes = task.manner, (task.multiple_inputs, task.multiple_targets)
    inputs = [
        *(_prompt_fields(task.config), list(task.columns), list(task.seeds), list(modes)),
        *(manner.chat, manner.multiturn, manner.system),
        *([dict(doc) for doc in task.docs], [dict(doc) for doc in task.examples]),
    ]
    try:  # marshal accepts only Python's basic types and keeps them apart; in version 0 equal values have equal bytes
        content = marshal.dumps(inputs, 0)
    except ValueError:
        return None
    return hashlib.sha256(_code_digest().encode() + content).hexdigest()


@cache
def _code_digest() -> str:
    """A digest of the code that makes prompts: ours, that of the templates, and Python, which draws examples."""
    code = hashlib.sha256(f"{__version__} {sys.version}".encode())
    for name in ("jinja2", "markupsafe"):
        code.update(metadata.version(name).encode())
    for path in sorted(Path(__file__).parent.glob("*.py")):
        code.update(path.read_bytes())
    return code.hexdigest()


def _encoded(key: str, instances: Sequence[Instance]) -> bytes | None:
    """Requests as the bytes of a file; None if a value cannot be stored."""
    texts: dict[int, tuple[int, Any]] = {}  # by identity, because the choices of a document share their context
    rows: list[Row] = []
    for instance in instances:
        first, *more = instance.args
        index, _ = texts.setdefault(id(first), (len(texts), first))
        rows.append((instance.request_type, instance.doc_id, instance.idx, index, more))
    try:
        return msgspec.msgpack.encode(_CachedRequests(key, [text for _, text in texts.values()], rows))
    except (TypeError, ValueError, OverflowError, RecursionError):
        return None


def _read(path: Path, key: str) -> list[Instance] | None:
    content = read_cached(path, LARGEST)
    return None if content is None else _decoded(content, key)


def _decoded(content: bytes, key: str) -> list[Instance] | None:
    """The requests in the bytes of a file; None for a file of another key, or one that cannot be read."""
    try:
        cached = msgspec.msgpack.decode(content, type=complete(_CachedRequests))
        texts = cached.texts
        instances = [Instance(kind, doc, idx, (texts[index], *more)) for kind, doc, idx, index, more in cached.rows]
    except (msgspec.MsgspecError, UnicodeError, RecursionError, IndexError):
        return None
    return instances if cached.key == key and instances else None
