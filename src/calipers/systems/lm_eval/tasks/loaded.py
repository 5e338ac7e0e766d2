"""Loads a task with its documents, evaluates its fields or its class for each of them, and makes its requests.

A class (``class: !function module.Name`` in the file) makes its own documents, requests, scores and numbers; it needs
an installed lm-evaluation-harness. It is called as lm-evaluation-harness calls it, with two exceptions: its documents
are read once, and it never gets a model.

A task's code may use Python's and numpy's global random generators: GPQA shuffles its choices in ``process_docs``.
lm-evaluation-harness seeds the generators before it loads a task, so a task is loaded here under the same seeds.

The requests are those of lm-evaluation-harness, document by document. ``--cache_requests`` caches them on disk.
lm-evaluation-harness finds cached requests by a task's name and number of examples, so that a changed task gets its old
prompts. Here the key is a digest of everything that determines a prompt: the task's fields, every document and example,
the seeds, the chat format, and the code, ours and that of the templates. Prompts that a task's own code makes, or that
a template makes at random, are not cached, because no digest covers everything that such code may read.
"""

from __future__ import annotations

import hashlib
import inspect
import marshal
import os
import random
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from copy import deepcopy
from dataclasses import dataclass, field, fields, replace
from functools import cache, partial
from importlib import metadata
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any, Final, Literal, get_args

import msgspec

from calipers import __version__
from calipers.errors import CalipersError, InputError, PluginError, UnknownName, nearest
from calipers.reports.figures import counted
from calipers.running import LOAD_SEEDS, Seeds
from calipers.systems.lm_eval.tasks import (
    FewShot,
    Function,
    TaskFields,
    TaskFile,
    is_installed,
    load_function,
    refuse_untrusted,
    shown,
    values_of,
    with_functions,
)
from calipers.systems.lm_eval.tasks.documents import Rows, Splits, load_splits, processed, united
from calipers.systems.lm_eval.tasks.groups import cache_folder, read_cached, write_cached
from calipers.systems.lm_eval.tasks.prompts import (
    PLAIN,
    ChatTurn,
    Doc,
    Manner,
    called,
    choices_of,
    field_of,
    prompt,
    target_of,
    text_of,
)
from calipers.tasks import Prompt
from calipers.typed import complete

STRUCTURAL: Final = ("tag", "group", "task_list")  # keys of the file that lm-evaluation-harness does not give the class
REQUIRED: Final = ("eval_docs", "fewshot_context", "construct_requests", "process_results", "aggregation")
KINDS: Final = ("generate_until", "loglikelihood", "loglikelihood_rolling")


@dataclass(frozen=True, slots=True)
class Instance:
    """A request to the model."""

    request_type: str
    doc_id: int
    idx: int  # number of the request among those of its document
    args: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class ClassAggregation:
    """An aggregation by a task's class; ``undrawn`` is the reason why it is not called on bootstrap resamples."""

    function: Callable[[list[Any]], Any]
    undrawn: str = "the task's class computes it over all documents, at a cost that is unknown"

    @property
    def __name__(self) -> str:
        return str(getattr(self.function, "__name__", type(self.function).__name__))

    def __call__(self, values: list[Any]) -> Any:
        """The aggregated value of the documents' values."""
        return self.function(values)


@dataclass(frozen=True, slots=True)
class ClassTask:
    """An instance of a task's class, with its configuration and documents."""

    instance: Any
    location: str  # file and key that name the class
    config: TaskFields
    docs: Rows
    metrics: Sequence[Mapping[str, Any]] = field(default_factory=tuple)  # entries of a metric_list

    @property
    def name(self) -> str:
        """The name of the class."""
        return type(self.instance).__name__

    def target(self, doc: Doc) -> Any:
        """The target of a document."""
        return called(self.instance.doc_to_target, doc, self.location)

    def process(self, doc: Doc, results: list[Any]) -> Any:
        """The scores of a document, from one result per request."""
        return self.instance.process_results(doc, results)

    def requests(self, docs: Iterable[tuple[int, Doc]], manner: Manner, seed: int) -> Iterator[Instance]:
        """The requests of the given documents, for each document in the order of their ``idx``."""
        if callable(getattr(self.instance, "set_fewshot_seed", None)):
            self.instance.set_fewshot_seed(seed=seed)
        for number, doc in docs:
            constructed = called(self._constructed, number, doc, manner, f"{self.location}: document {number}")
            instances = constructed if isinstance(constructed, list) else [constructed]
            yield from sorted((self._request(each, number) for each in instances), key=lambda request: request.idx)

    def _constructed(self, number: int, doc: Doc, manner: Manner) -> Any:
        chat: dict[str, Any] = {"apply_chat_template": manner.chat, "chat_template": _turns if manner.chat else None}
        context = self.instance.fewshot_context(
            doc,
            num_fewshot=self.config.num_fewshot or 0,
            system_instruction=manner.system,
            fewshot_as_multiturn=manner.multiturn,
            gen_prefix=self.instance.doc_to_prefix(doc) if hasattr(self.instance, "doc_to_prefix") else None,
            **chat,
        )
        return self.instance.construct_requests(
            doc=doc, ctx=context, metadata=(self.config.task, number, self.config.repeats), **chat
        )

    def _request(self, instance: Any, number: int) -> Instance:
        location = f"{self.location}: document {number}"
        try:
            kind, idx, args = str(instance.request_type), int(instance.idx), tuple(instance.args)
        except (AttributeError, TypeError, ValueError):
            problem = f"construct_requests returned {type(instance).__name__}"
            raise PluginError(f"{location}: {problem}; expected lm_eval's Instance, or a list of them") from None
        if kind not in KINDS:
            raise InputError.at(location, f"asks for {kind!r}", f"expected {', '.join(KINDS)}")
        if kind == "generate_until" and len(args) > 2:
            raise InputError.at(location, "needs more than text", "expected a task of plain text")
        return Instance(kind, number, idx, deepcopy(args))


def load_class(
    function: Any, file: TaskFile, seeds: Seeds, shots: Callable[[int | None], int], repeats: int | None, *, trust: bool
) -> ClassTask:
    """Create a task's class and read its documents; InputError if it is not trusted, or lm_eval is not installed.

    ``shots`` maps the class's number of few-shot examples to the number to use.
    """
    location = file.location("class")
    if not isinstance(function, Function):
        raise InputError.at(location, f"is {function!r}", "expected !function module.Name")
    if not trust:
        refuse_untrusted(function, location)
    if not is_installed("lm_eval"):
        problem = f"{function} is a class of lm-evaluation-harness, which is not installed"
        raise InputError.at(location, problem, "install lm_eval to run it")
    task_class = load_function(function, location)
    if getattr(task_class, "MULTIMODAL", False):
        raise InputError.at(location, f"{function} needs images", "expected a task of plain text")
    instance = _instance(task_class, function, file)
    for method in REQUIRED:
        if not hasattr(type(instance), method):
            raise PluginError(f"{location}: {function} has no {method}; expected a subclass of lm_eval's Task")
    config_of_class: Any = getattr(instance, "config", None)
    name = str(file.values["task"])
    if hasattr(config_of_class, "task"):
        config_of_class.task = name
    count = shots(getattr(config_of_class, "num_fewshot", None))
    if callable(getattr(instance, "set_config", None)):
        instance.set_config(key="num_fewshot", value=count)
    if callable(getattr(instance, "set_fewshot_seed", None)):
        instance.set_fewshot_seed(seed=seeds[3])
    docs = _rows(called(lambda: list(instance.eval_docs), location), location)
    config = _config(instance, name, count, repeats)
    return ClassTask(instance, location, config, docs, _metrics(instance, location))


def _instance(task_class: Any, function: Function, file: TaskFile) -> Any:
    """An instance of the class; it gets the keys of the file if its constructor has a parameter ``config``."""
    location = file.location("class")
    values = {key: value for key, value in file.values.items() if key not in STRUCTURAL}
    config = dict(with_functions(values, location))
    metadata = config.get("metadata")
    described = dict(metadata) if isinstance(metadata, Mapping) else {} if metadata is None else {"_metadata": metadata}
    config["metadata"] = {**described, "config_source": str(file.path) if file.path else "inline"}
    try:
        takes_config = "config" in inspect.signature(task_class.__init__).parameters
        return task_class(config=config) if takes_config else task_class()
    except Exception as error:  # anything, as for a dataset or a library that is missing
        first_line = str(error).strip().partition("\n")[0]
        raise PluginError(f"{location}: {function} cannot be created: {type(error).__name__}: {first_line}") from error


def _rows(docs: Sequence[Any], location: str) -> Rows:
    for number, doc in enumerate(docs):
        if not isinstance(doc, Mapping):
            expected = "expected a mapping from column to cell"
            raise InputError.at(location, f"document {number} is a {type(doc).__name__}", expected)
    if not docs:
        raise InputError.at(location, "the class has no documents", "expected some")
    return [dict(doc) for doc in docs]


_FEWSHOT_FIELDS: Final = tuple(each.name for each in fields(FewShot))


def _config(instance: Any, name: str, shots: int, repeats: int | None) -> TaskFields:
    """The configuration that lm-evaluation-harness would dump for the class, limited to the fields known here."""
    dump = getattr(instance, "dump_config", None)
    dumped = dump() if callable(dump) else {}
    known = {each.name for each in fields(TaskFields)} - {"fewshot_config"}
    values = {key: value for key, value in dict(dumped).items() if key in known and value is not None}
    fewshot = {k: value for k, value in dict(dumped.get("fewshot_config") or {}).items() if k in _FEWSHOT_FIELDS}
    values |= {"task": name, "num_fewshot": shots, "repeats": repeats or values.get("repeats") or 1}
    version = (values.get("metadata") or {}).get("version", getattr(instance, "VERSION", None))
    if version is not None:
        values["metadata"] = {**(values.get("metadata") or {}), "version": version}
    return TaskFields(**values, fewshot_config=FewShot(**fewshot))


def _metrics(instance: Any, location: str) -> list[dict[str, Any]]:
    """The metrics of the class, each with its aggregation and its direction.

    lm-evaluation-harness identifies its own aggregations by the function; only these have a standard error.
    """
    registry = getattr(sys.modules.get("lm_eval.api.registry"), "AGGREGATION_REGISTRY", {})
    functions = called(instance.aggregation, location)
    better = called(instance.higher_is_better, location) if hasattr(instance, "higher_is_better") else {}
    if not isinstance(functions, Mapping):
        problem = f"aggregation() returned {functions!r}"
        raise PluginError(f"{location}: {problem}; expected a mapping from metric to function")
    entries = []
    for name, function in functions.items():
        known = next((key for key, registered in registry.items() if registered is function), None)
        how = known if known is not None else ClassAggregation(function)
        entries.append({"metric": str(name), "aggregation": how, "higher_is_better": (better or {}).get(name)})
    return entries


def _turns(messages: Any, **_: Any) -> list[Any]:
    """A chat template that returns the messages unchanged, because the model's client applies the real one."""
    return [dict(message) if isinstance(message, Mapping) else message for message in messages]


SCORING: Final = ("metric_list", "filter_list", "process_results", "scorer")  # fields that only scoring needs


@dataclass(frozen=True, slots=True)
class LoadedTask:
    """A task with its documents; as in lm-evaluation-harness, the first document decides the two ``multiple`` modes."""

    config: TaskFields
    file: TaskFile
    docs: Rows  # the evaluated split
    examples: Rows  # the documents that few-shot examples are drawn from
    columns: Sequence[str]
    multiple_inputs: bool = False  # whether the choices are contexts, and the target is their shared continuation
    multiple_targets: bool = False  # whether a document has several targets, any of which is correct
    manner: Manner = PLAIN  # how its prompts are written
    seeds: Seeds = LOAD_SEEDS  # under which it was loaded
    own: ClassTask | None = None  # the class that makes its requests and scores; None if the task is defined by fields
    cache: dict[Any, Any] = field(default_factory=dict, compare=False, repr=False)  # values computed only once

    def location(self, field: str, number: int | None = None) -> str:
        """The location of a field, and of the document that it is evaluated for, for error messages."""
        where = self.file.location(field)
        return where if number is None else f"{where}: document {number}"

    def text(self, doc: Doc, number: int | None = None, shots: FewShot | None = None) -> Any:
        """``doc_to_text`` of a document."""
        value, location = (shots or self.config).doc_to_text, self.location("doc_to_text", number)
        choices = self.config.doc_to_choice is not None
        evaluate = partial(text_of, value, doc, self.columns, location, choices=choices)
        return self._cached("text", number, shots, value, evaluate)

    def target(self, doc: Doc, number: int | None = None, shots: FewShot | None = None) -> Any:
        """``doc_to_target`` of a document."""
        if self.own is not None:
            return self._cached("target", number, shots, self.own.target, partial(self.own.target, doc))
        value, location = (shots or self.config).doc_to_target, self.location("doc_to_target", number)
        if value is None and self.config.process_results is not None:
            return None  # the task's own scoring function gets the document and needs no target
        choices = self.config.doc_to_choice is not None
        evaluate = partial(target_of, value, doc, self.columns, location, choices=choices)
        return self._cached("target", number, shots, value, evaluate)

    def choices(self, doc: Doc, number: int | None = None, shots: FewShot | None = None) -> list[Any] | None:
        """``doc_to_choice`` of a document; None if the task has no choices."""
        value, location = (shots or self.config).doc_to_choice, self.location("doc_to_choice", number)
        if value is None or self.own is not None:
            return None
        evaluate = partial(choices_of, value, doc, self.columns, location)
        choices: list[Any] = self._cached("choices", number, shots, value, evaluate)
        return choices

    def prefix(self, doc: Doc, number: int | None = None) -> str | None:
        """``gen_prefix`` of a document: the beginning of the answer, which is part of the prompt."""
        return field_of(self.config.gen_prefix, doc, self.location("gen_prefix", number))

    def _cached(
        self, name: str, number: int | None, shots: FewShot | None, value: Any, evaluate: Callable[[], Any]
    ) -> Any:
        """A document's field, evaluated once if its ``value`` may be random, so that scoring knows the prompt as sent.

        A cached list is copied, because the caller may change it.
        """
        may_be_random = callable(value) or (isinstance(value, str) and "random" in value)
        if number is None or shots is not None or not may_be_random:
            return evaluate()
        if (name, number) not in self.cache:
            self.cache[name, number] = evaluate()
        cached = self.cache[name, number]
        return list(cached) if isinstance(cached, list) else cached


def trusted(config: TaskFields, file: TaskFile, *, trust: bool, scored: bool = True) -> TaskFields:
    """The configuration with its functions loaded; InputError if it has functions and ``trust`` is not given.

    Without ``scored``, the fields that only scoring needs are removed.
    """
    if not scored:
        unscored: dict[str, Any] = dict.fromkeys(SCORING)
        config = replace(config, **unscored)
    if config.unsafe_code and not trust:
        problem = "the task runs code that a model wrote"
        raise InputError.at(file.location("unsafe_code"), problem, "run it with --trust if you want that")
    loaded: dict[str, Any] = {}
    for name, value in values_of(config).items():
        location, is_fewshot = file.location(name), name == "fewshot_config"
        field_value = values_of(value) if is_fewshot else value
        if trust:
            field_value = with_functions(field_value, location)
        else:
            refuse_untrusted(field_value, location)
        loaded[name] = FewShot(**field_value) if is_fewshot else field_value
    return TaskFields(**loaded)


def load_task(
    config: TaskFields, file: TaskFile, splits: Splits | None = None, seeds: Seeds = LOAD_SEEDS, *, trust: bool = False
) -> LoadedTask:
    """Read a task's documents and check the first one before any model is called.

    The global generators are seeded, so that the same files, code and seeds give the same documents.
    """
    split = config.evaluated_split
    if split is None:
        raise InputError.at(
            file.location("task"), "no test_split or validation_split", "expected the split to evaluate"
        )
    with seeded(seeds):
        processed_splits = _ProcessedSplits(load_splits(config, file, trust=trust) if splits is None else splits)
        location = file.location("process_docs")
        examples = _examples(config, file, processed_splits) if config.num_fewshot else ()
        docs = processed_splits(split, config.process_docs, location)
        if not config.num_fewshot and has_drawn(seeds):
            # lm-evaluation-harness prepares the examples first, using random numbers, even if none are used
            reseed(seeds)
            processed_splits = _ProcessedSplits(processed_splits.splits)
            with suppress(CalipersError):
                _examples(config, file, processed_splits)
            docs = processed_splits(split, config.process_docs, location)
        if not docs:
            raise InputError.at(file.location("dataset_path"), f"split {split!r} has no documents", "expected some")
        return _with_modes(LoadedTask(config, file, docs, examples, tuple(docs[0]), seeds=seeds))


class _ProcessedSplits:
    """Splits after ``process_docs``, which runs once per split because the library ``datasets`` caches its result."""

    def __init__(self, splits: Splits) -> None:
        self.splits = splits
        self._rows: dict[tuple[str, int], Rows] = {}

    def __call__(self, split: str, function: Any, location: str) -> Rows:
        key = split, id(function)
        if key not in self._rows:
            self._rows[key] = processed(self.splits[split], function, location)
        return self._rows[key]


def _examples(config: TaskFields, file: TaskFile, processed_splits: _ProcessedSplits) -> Rows:
    """The documents to draw few-shot examples from.

    They are the split or the list of the fewshot_config, else the training, validation or test split.
    """
    shots, location = config.fewshot_config, file.location("fewshot_config")
    if shots.split is not None:
        return processed_splits(shots.split, shots.process_docs, location)
    if shots.samples is not None:
        listed = called(shots.samples, location) if callable(shots.samples) else shots.samples
        if not isinstance(listed, Sequence) or not all(isinstance(example, Mapping) for example in listed):
            raise InputError.at(f"{location}.samples", "is not a list of documents", "expected one mapping per example")
        return united(listed)
    split = config.training_split or config.validation_split or config.test_split or ""
    return processed_splits(split, config.process_docs, location)


def _with_modes(task: LoadedTask) -> LoadedTask:
    """The task in the modes that its first document decides; InputError if this document is not valid."""
    doc = task.docs[0]
    _check_columns(task)
    text, choices, target = task.text(doc, 0), task.choices(doc, 0), task.target(doc, 0)
    for choice in choices or ():
        if not isinstance(choice, str) or not choice:
            raise InputError.at(task.location("doc_to_choice", 0), f"a choice is {choice!r}", "expected texts")
    if choices is not None:
        check_index(task, choices, target, 0)
    multiple_inputs = choices is not None and isinstance(text, int)
    multiple_targets = isinstance(target, list) and bool(target)  # an empty list is a single target there, the text []
    return replace(task, multiple_inputs=multiple_inputs, multiple_targets=multiple_targets)


def _check_columns(task: LoadedTask) -> None:
    """Refuse a word that is probably a misspelt column; lm-evaluation-harness would use the word for every document.

    A target may be such a word, the same for every document, unless it is similar to a column's name.
    """
    for name, may_be_word in (("doc_to_text", False), ("doc_to_target", True)):
        word = getattr(task.config, name)
        if not isinstance(word, str) or not word.isidentifier() or word in task.columns:
            continue
        if not may_be_word or nearest(word, map(str, task.columns)):
            unknown = UnknownName.of("column of the documents", word, list(map(str, task.columns)))
            raise UnknownName(f"{task.location(name)}: {unknown}")


def check_index(task: LoadedTask, choices: Sequence[Any], target: Any, number: int) -> None:
    """Refuse a target that is an index beyond the choices."""
    if isinstance(target, int) and not -len(choices) <= target < len(choices):
        problem = f"the target is choice {target}, but there are {len(choices)} choices"
        raise InputError.at(task.location("doc_to_target", number), problem, f"expected 0 to {len(choices) - 1}")


@contextmanager
def seeded(seeds: Seeds) -> Iterator[None]:
    """Seed the global generators for a block, and restore the caller's state afterwards."""
    before = _states()
    reseed(seeds)
    try:
        yield
    finally:
        _restore(before)


def reseed(seeds: Seeds) -> None:
    """Seed the global generators; torch's only if torch has been imported."""
    import numpy as np

    random.seed(seeds[0])
    np.random.seed(seeds[1])  # the global generator, because a task's code uses it
    if (torch := _torch()) is not None:
        torch.manual_seed(seeds[2])


def has_drawn(seeds: Seeds) -> bool:
    """Whether the global generators have been used since they were seeded."""
    current = _fingerprint(_states())
    with seeded(seeds):
        return current != _fingerprint(_states())


def _states() -> tuple[Any, Any, Any]:
    import numpy as np

    torch = _torch()
    states = random.getstate(), np.random.get_state()
    return *states, None if torch is None else torch.get_rng_state()


def _restore(states: tuple[Any, Any, Any]) -> None:
    import numpy as np

    random.setstate(states[0])
    np.random.set_state(states[1])
    if states[2] is not None and (torch := _torch()) is not None:
        torch.set_rng_state(states[2])


def _fingerprint(states: tuple[Any, Any, Any]) -> tuple[Any, ...]:
    """The states in a form that can be compared with ``==``: arrays as bytes."""
    name, keys, *counters = states[1]
    return states[0], name, keys.tobytes(), *counters, None if states[2] is None else bytes(states[2].tolist())


def _torch() -> Any:
    """The module torch if it is imported completely, else None; it is never imported only to be seeded."""
    torch = sys.modules.get("torch")
    return torch if hasattr(torch, "manual_seed") else None


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
    task: LoadedTask, question: Any, answer: str | None, prefix: str | None, delimiter: str, ending: str = ""
) -> list[ChatTurn]:
    """The turns of a question and its answer; without an answer, of the question and the prefix of its answer."""
    if not isinstance(question, str):
        raise InputError.at(task.location("doc_to_text"), f"is {shown(question)}", "expected a text")
    if answer is None and not prefix:
        return [ChatTurn("user", question)]
    if prefix and not _needs_space(question, prefix):
        delimiter = ""
    reply = ChatTurn("assistant", joined(prefix, answer, " "), "" if answer is None else ending)
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


def _answer(task: LoadedTask, choices: Sequence[Any] | None, answer: Any) -> str | None:
    """An example's answer as text: the choice with this index, or the first of several answers, which may be empty.

    None for an example without an answer, which is also one whose answer is an empty text.
    """
    if answer is None or answer == "":
        return None
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
        return [prompt([*head, *turns(task, choice, None, prefix, "")], manner) for choice in choices]
    return [prompt([*head, *turns(task, task.text(doc, number), None, prefix, config.target_delimiter)], manner)]


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
