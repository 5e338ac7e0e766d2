"""Loads a task with its documents, and evaluates its fields, or its class, for each of them.

A class (``class: !function module.Name`` in the file) makes its own documents, requests, scores and numbers; it needs
an installed lm-evaluation-harness. It is called as lm-evaluation-harness calls it, with two exceptions: its documents
are read once, and it never gets a model.

A task's code may use Python's and numpy's global random generators: GPQA shuffles its choices in ``process_docs``.
lm-evaluation-harness seeds the generators before it loads a task, so a task is loaded here under the same seeds.
"""

from __future__ import annotations

import inspect
import random
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from copy import deepcopy
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final

from calipers.errors import CalipersError, InputError, PluginError, UnknownName, nearest
from calipers.running import LOAD_SEEDS, Seeds
from calipers.systems.lm_eval.tasks.documents import Rows, Splits, load_splits, processed, united
from calipers.systems.lm_eval.tasks.prompts import PLAIN, Doc, Manner, called, choices_of, field_of, target_of, text_of
from calipers.systems.lm_eval.tasks.task_file import (
    FewShot,
    Function,
    TaskFields,
    TaskFile,
    is_installed,
    load_function,
    refuse_untrusted,
    values_of,
    with_functions,
)

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
        value = self.config.doc_to_text if shots is None else shots.doc_to_text
        key = self._key("text", number, value, shots)
        if key in self.cache:
            return self._keep(key, self.cache[key])
        location, choices = self.location("doc_to_text", number), self.config.doc_to_choice is not None
        return self._keep(key, text_of(value, doc, self.columns, location, choices=choices))

    def target(self, doc: Doc, number: int | None = None, shots: FewShot | None = None) -> Any:
        """``doc_to_target`` of a document."""
        value = self.config.doc_to_target if shots is None else shots.doc_to_target
        if self.own is None and value is None and self.config.process_results is not None:
            return None  # the task's own scoring function gets the document and needs no target
        key = self._key("target", number, value if self.own is None else self.own.target, shots)
        if key in self.cache:
            return self._keep(key, self.cache[key])
        if self.own is not None:
            return self._keep(key, self.own.target(doc))
        location, choices = self.location("doc_to_target", number), self.config.doc_to_choice is not None
        return self._keep(key, target_of(value, doc, self.columns, location, choices=choices))

    def choices(self, doc: Doc, number: int | None = None, shots: FewShot | None = None) -> list[Any] | None:
        """``doc_to_choice`` of a document; None if the task has no choices."""
        value = self.config.doc_to_choice if shots is None else shots.doc_to_choice
        if value is None or self.own is not None:
            return None
        key = self._key("choices", number, value, shots)
        if key in self.cache:
            return list(self.cache[key])
        choices: list[Any] = self._keep(
            key, choices_of(value, doc, self.columns, self.location("doc_to_choice", number))
        )
        return choices

    def prefix(self, doc: Doc, number: int | None = None) -> str | None:
        """``gen_prefix`` of a document: the beginning of the answer, which is part of the prompt."""
        return field_of(self.config.gen_prefix, doc, self.location("gen_prefix", number))

    def _key(self, name: str, number: int | None, value: Any, shots: FewShot | None) -> tuple[str, int] | None:
        """The cache key of a document's field; None for a field whose value never changes and need not be cached.

        A field that may be random must be cached, so that answers are scored against the prompt that was sent.
        """
        may_be_random = callable(value) or (isinstance(value, str) and "random" in value)
        return None if number is None or shots is not None or not may_be_random else (name, number)

    def _keep(self, key: tuple[str, int] | None, value: Any) -> Any:
        """Cache the value if it has a key, and return it; a list is copied, because the caller may change it."""
        if key is None:
            return value
        self.cache[key] = value
        return list(value) if isinstance(value, list) else value


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
