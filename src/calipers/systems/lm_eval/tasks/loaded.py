"""A task with its documents, and what its fields, or its class, mean for each of them.

A class, ``class: !function module.Name`` in the file, makes its own documents, requests, scores and numbers, where
lm-evaluation-harness is installed. It is called as lm-evaluation-harness calls it, with two exceptions: its documents
are read once, and it is never handed a model.

A task's own code may draw from Python's and numpy's global generators: GPQA shuffles its choices in
``process_docs``. lm-evaluation-harness seeds them before it loads, so a task is loaded here under the same seeds.
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

STRUCTURAL: Final = ("tag", "group", "task_list")  # keys of the file that lm-evaluation-harness keeps from the class
NEEDED: Final = ("eval_docs", "fewshot_context", "construct_requests", "process_results", "aggregation")
KINDS: Final = ("generate_until", "loglikelihood", "loglikelihood_rolling")


@dataclass(frozen=True, slots=True)
class Instance:
    """One request: its kind, its document, its number among that document's, and what the model is given."""

    request_type: str
    doc_id: int
    idx: int
    args: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class ClassAggregation:
    """An aggregation of the class's own; ``undrawn`` says why it is not repeated on documents drawn again."""

    function: Callable[[list[Any]], Any]
    undrawn: str = "the task's class computes it over all documents, at a cost that is unknown"

    @property
    def __name__(self) -> str:
        return str(getattr(self.function, "__name__", type(self.function).__name__))

    def __call__(self, values: list[Any]) -> Any:
        """The number of all documents."""
        return self.function(values)


@dataclass(frozen=True, slots=True)
class ClassTask:
    """An instance of a task's class, and where its file names it."""

    made: Any
    place: str
    config: TaskFields
    docs: Rows
    metrics: Sequence[Mapping[str, Any]] = field(default_factory=tuple)  # entries of a metric_list

    @property
    def name(self) -> str:
        """The name of the class."""
        return type(self.made).__name__

    def target(self, doc: Doc) -> Any:
        """What the class says is right for a document."""
        return called(self.made.doc_to_target, doc, self.place)

    def process(self, doc: Doc, results: list[Any]) -> Any:
        """The scores of a document, from one result per request."""
        return self.made.process_results(doc, results)

    def requests(self, docs: Iterable[tuple[int, Doc]], manner: Manner, seed: int) -> Iterator[Instance]:
        """The requests of some documents, those of each in the order of their ``idx``."""
        if callable(getattr(self.made, "set_fewshot_seed", None)):
            self.made.set_fewshot_seed(seed=seed)
        for number, doc in docs:
            made = called(self._constructed, number, doc, manner, f"{self.place}: document {number}")
            several = made if isinstance(made, list) else [made]
            yield from sorted((self._request(request, number) for request in several), key=lambda made: made.idx)

    def _constructed(self, number: int, doc: Doc, manner: Manner) -> Any:
        chat: dict[str, Any] = {"apply_chat_template": manner.chat, "chat_template": _turns if manner.chat else None}
        context = self.made.fewshot_context(
            doc,
            num_fewshot=self.config.num_fewshot or 0,
            system_instruction=manner.system,
            fewshot_as_multiturn=manner.multiturn,
            gen_prefix=self.made.doc_to_prefix(doc) if hasattr(self.made, "doc_to_prefix") else None,
            **chat,
        )
        return self.made.construct_requests(
            doc=doc, ctx=context, metadata=(self.config.task, number, self.config.repeats), **chat
        )

    def _request(self, instance: Any, number: int) -> Instance:
        location = f"{self.place}: document {number}"
        try:
            kind, idx, args = str(instance.request_type), int(instance.idx), tuple(instance.args)
        except (AttributeError, TypeError, ValueError):
            wrong = f"construct_requests returned {type(instance).__name__}"
            raise PluginError(f"{location}: {wrong}; expected lm_eval's Instance, or a list of them") from None
        if kind not in KINDS:
            raise InputError.at(location, f"asks for {kind!r}", f"expected {', '.join(KINDS)}")
        if kind == "generate_until" and len(args) > 2:
            raise InputError.at(location, "needs more than text", "expected a task of plain text")
        return Instance(kind, number, idx, deepcopy(args))


def load_class(
    function: Any, file: TaskFile, seeds: Seeds, shots: Callable[[int | None], int], repeats: int | None, *, trust: bool
) -> ClassTask:
    """A task's class with its documents read; InputError where it is not trusted, or needs what is not installed.

    ``shots`` decides the number of examples from the class's own.
    """
    location = file.place("class")
    if not isinstance(function, Function):
        raise InputError.at(location, f"is {function!r}", "expected !function module.Name")
    if not trust:
        refuse_untrusted(function, location)
    if not is_installed("lm_eval"):
        wrong = f"{function} is a class of lm-evaluation-harness, which is not installed"
        raise InputError.at(location, wrong, "install lm_eval to run it")
    kind = load_function(function, location)
    if getattr(kind, "MULTIMODAL", False):
        raise InputError.at(location, f"{function} needs images", "expected a task of plain text")
    made = _made(kind, function, file)
    for needed in NEEDED:
        if not hasattr(type(made), needed):
            raise PluginError(f"{location}: {function} has no {needed}; expected a subclass of lm_eval's Task")
    config_of_class: Any = getattr(made, "config", None)
    named = str(file.values["task"])
    if hasattr(config_of_class, "task"):
        config_of_class.task = named
    count = shots(getattr(config_of_class, "num_fewshot", None))
    if callable(getattr(made, "set_config", None)):
        made.set_config(key="num_fewshot", value=count)
    if callable(getattr(made, "set_fewshot_seed", None)):
        made.set_fewshot_seed(seed=seeds[3])
    docs = _rows(called(lambda: list(made.eval_docs), location), location)
    config = _config(made, named, count, repeats)
    return ClassTask(made, location, config, docs, _metrics(made, location))


def _made(kind: Any, function: Function, file: TaskFile) -> Any:
    """An instance, made of the file's keys where the class takes them."""
    location = file.place("class")
    given = {key: value for key, value in file.values.items() if key not in STRUCTURAL}
    config = dict(with_functions(given, location))
    metadata = config.get("metadata")
    described = dict(metadata) if isinstance(metadata, Mapping) else {} if metadata is None else {"_metadata": metadata}
    config["metadata"] = {**described, "config_source": str(file.path) if file.path else "inline"}
    try:
        takes = "config" in inspect.signature(kind.__init__).parameters
        return kind(config=config) if takes else kind()
    except Exception as error:  # of every class: a dataset that is not at hand, a library that is not installed
        first = str(error).strip().partition("\n")[0]
        raise PluginError(f"{location}: {function} cannot be created: {type(error).__name__}: {first}") from error


def _rows(docs: Sequence[Any], location: str) -> Rows:
    for number, doc in enumerate(docs):
        if not isinstance(doc, Mapping):
            right = "expected a mapping from column to cell"
            raise InputError.at(location, f"document {number} is a {type(doc).__name__}", right)
    if not docs:
        raise InputError.at(location, "the class has no documents", "expected some")
    return [dict(doc) for doc in docs]


def _config(made: Any, name: str, shots: int, repeats: int | None) -> TaskFields:
    """The configuration that lm-evaluation-harness would dump of it, as far as it has fields that are known here."""
    dump = getattr(made, "dump_config", None)
    dumped = dump() if callable(dump) else {}
    known = {spec.name for spec in fields(TaskFields)} - {"fewshot_config"}
    values = {key: value for key, value in dict(dumped).items() if key in known and value is not None}
    shot = {key: value for key, value in dict(dumped.get("fewshot_config") or {}).items() if key in _SHOTS}
    values |= {"task": name, "num_fewshot": shots, "repeats": repeats or values.get("repeats") or 1}
    version = (values.get("metadata") or {}).get("version", getattr(made, "VERSION", None))
    if version is not None:
        values["metadata"] = {**(values.get("metadata") or {}), "version": version}
    return TaskFields(**values, fewshot_config=FewShot(**shot))


_SHOTS: Final = tuple(one.name for one in fields(FewShot))


def _metrics(made: Any, location: str) -> list[dict[str, Any]]:
    """The metrics that the class adds up, each with its aggregation and its direction.

    lm-evaluation-harness knows its own aggregations by the function: only those have a standard error.
    """
    registry = getattr(sys.modules.get("lm_eval.api.registry"), "AGGREGATION_REGISTRY", {})
    sums = called(made.aggregation, location)
    better = called(made.higher_is_better, location) if hasattr(made, "higher_is_better") else {}
    if not isinstance(sums, Mapping):
        raise PluginError(f"{location}: aggregation() returned {sums!r}; expected a mapping from metric to function")
    entries = []
    for name, function in sums.items():
        known = next((key for key, registered in registry.items() if registered is function), None)
        how = known if known is not None else ClassAggregation(function)
        entries.append({"metric": str(name), "aggregation": how, "higher_is_better": (better or {}).get(name)})
    return entries


def _turns(messages: Any, **_: Any) -> list[Any]:
    """A chat template that leaves the turns as they are: whoever is asked puts its own around them."""
    return [dict(message) if isinstance(message, Mapping) else message for message in messages]


SCORING = ("metric_list", "filter_list", "process_results", "scorer")  # not needed where nothing is scored


@dataclass(frozen=True, slots=True)
class LoadedTask:
    """A task, its documents, and the two modes that its first document decides, as in lm-evaluation-harness."""

    config: TaskFields
    file: TaskFile
    docs: Rows  # the whole evaluated split
    examples: Rows  # few-shot examples are drawn from these
    columns: Sequence[str]
    multiple_inputs: bool = False  # the choices are contexts, the target is their shared continuation
    multiple_targets: bool = False  # any of several targets is right
    manner: Manner = PLAIN  # how its prompts are written
    seeds: Seeds = LOAD_SEEDS  # under which it was loaded
    own: ClassTask | None = None  # the class that makes its requests and scores itself; None: the fields do
    kept: dict[Any, Any] = field(default_factory=dict, compare=False, repr=False)  # what is worked out only once

    def place(self, field: str, number: int | None = None) -> str:
        """Where a field stands, and for which document it is worked out."""
        where = self.file.place(field)
        return where if number is None else f"{where}: document {number}"

    def text(self, doc: Doc, number: int | None = None, shots: FewShot | None = None) -> Any:
        """``doc_to_text`` of a document."""
        value = self.config.doc_to_text if shots is None else shots.doc_to_text
        key = self._key("text", number, value, shots)
        if key in self.kept:
            return self._keep(key, self.kept[key])
        location, choices = self.place("doc_to_text", number), self.config.doc_to_choice is not None
        return self._keep(key, text_of(value, doc, self.columns, location, choices=choices))

    def target(self, doc: Doc, number: int | None = None, shots: FewShot | None = None) -> Any:
        """``doc_to_target`` of a document."""
        value = self.config.doc_to_target if shots is None else shots.doc_to_target
        if self.own is None and value is None and self.config.process_results is not None:
            return None  # a task that scores by a function of its own may look into the document itself
        key = self._key("target", number, value if self.own is None else self.own.target, shots)
        if key in self.kept:
            return self._keep(key, self.kept[key])
        if self.own is not None:
            return self._keep(key, self.own.target(doc))
        location, choices = self.place("doc_to_target", number), self.config.doc_to_choice is not None
        return self._keep(key, target_of(value, doc, self.columns, location, choices=choices))

    def choices(self, doc: Doc, number: int | None = None, shots: FewShot | None = None) -> list[Any] | None:
        """``doc_to_choice`` of a document; None where the task has no choices."""
        value = self.config.doc_to_choice if shots is None else shots.doc_to_choice
        if value is None or self.own is not None:
            return None
        key = self._key("choices", number, value, shots)
        if key in self.kept:
            return list(self.kept[key])
        choices: list[Any] = self._keep(key, choices_of(value, doc, self.columns, self.place("doc_to_choice", number)))
        return choices

    def prefix(self, doc: Doc, number: int | None = None) -> str | None:
        """``gen_prefix`` of a document: how its answer begins."""
        return field_of(self.config.gen_prefix, doc, self.place("gen_prefix", number))

    def _key(self, what: str, number: int | None, value: Any, shots: FewShot | None) -> tuple[str, int] | None:
        """Where a field of a document is kept that may be drawn at random: what was asked is what is scored.

        None for all others: they are worked out anew each time.
        """
        draws = callable(value) or (isinstance(value, str) and "random" in value)
        return None if number is None or shots is not None or not draws else (what, number)

    def _keep(self, key: tuple[str, int] | None, value: Any) -> Any:
        """The value, kept if it has a key; of a list a copy, as its user may change it."""
        if key is None:
            return value
        self.kept[key] = value
        return list(value) if isinstance(value, list) else value


def trusted(config: TaskFields, file: TaskFile, *, trust: bool, scored: bool = True) -> TaskFields:
    """The configuration with its functions loaded; InputError where it has some and is not trusted.

    What only scores is left out where nothing is scored.
    """
    if not scored:
        unscored: dict[str, Any] = dict.fromkeys(SCORING)
        config = replace(config, **unscored)
    if config.unsafe_code and not trust:
        wrong = "the task runs code that a model wrote"
        raise InputError.at(file.place("unsafe_code"), wrong, "run it with --trust if you want that")
    loaded: dict[str, Any] = {}
    for name, value in values_of(config).items():
        shots = name == "fewshot_config"
        made = _loaded(values_of(value) if shots else value, file.place(name), trust)
        loaded[name] = FewShot(**made) if shots else made
    return TaskFields(**loaded)


def _loaded(value: Any, location: str, trust: bool) -> Any:
    if not trust:
        refuse_untrusted(value, location)
        return value
    return with_functions(value, location)


def load_task(
    config: TaskFields, file: TaskFile, splits: Splits | None = None, seeds: Seeds = LOAD_SEEDS, *, trust: bool = False
) -> LoadedTask:
    """A task with its documents read, and its first document tried out before any model is asked.

    The global generators are seeded for it, so that the same files, code and seeds give the same documents.
    """
    split = config.evaluated_split
    if split is None:
        raise InputError.at(file.place("task"), "no test_split or validation_split", "expected the split to evaluate")
    with seeded(seeds):
        read = _ProcessedSplits(load_splits(config, file, trust=trust) if splits is None else splits)
        location = file.place("process_docs")
        examples = _examples(config, file, read) if config.num_fewshot else ()
        docs = read(split, config.process_docs, location)
        if not config.num_fewshot and drawn(seeds):
            # lm-evaluation-harness prepares the examples first even where none are used, and draws for them
            reseed(seeds)
            read = _ProcessedSplits(read.splits)
            with suppress(CalipersError):
                _examples(config, file, read)
            docs = read(split, config.process_docs, location)
        if not docs:
            raise InputError.at(file.place("dataset_path"), f"split {split!r} has no documents", "expected some")
        return _tried(LoadedTask(config, file, docs, examples, tuple(docs[0]), seeds=seeds))


class _ProcessedSplits:
    """Splits as ``process_docs`` leaves them, each worked out once: the library ``datasets`` remembers them, too."""

    def __init__(self, splits: Splits) -> None:
        self.splits = splits
        self._held: dict[tuple[str, int], Rows] = {}

    def __call__(self, split: str, function: Any, location: str) -> Rows:
        key = split, id(function)
        if key not in self._held:
            self._held[key] = processed(self.splits[split], function, location)
        return self._held[key]


def _examples(config: TaskFields, file: TaskFile, read: _ProcessedSplits) -> Rows:
    """What few-shot examples are drawn from: their split, their list, else training, validation, test."""
    shots, location = config.fewshot_config, file.place("fewshot_config")
    if shots.split is not None:
        examples = read(shots.split, shots.process_docs, location)
    elif shots.samples is not None:
        listed = called(shots.samples, location) if callable(shots.samples) else shots.samples
        if not isinstance(listed, Sequence) or not all(isinstance(example, Mapping) for example in listed):
            raise InputError.at(f"{location}.samples", "is not a list of documents", "expected one mapping per example")
        examples = united(listed)
    else:
        split = config.training_split or config.validation_split or config.test_split or ""
        examples = read(split, config.process_docs, location)
    return examples


def _tried(task: LoadedTask) -> LoadedTask:
    """The task in the modes that its first document shows; InputError where that one cannot be asked."""
    doc = task.docs[0]
    _check_columns(task)
    text, choices, target = task.text(doc, 0), task.choices(doc, 0), task.target(doc, 0)
    for choice in choices or ():
        if not isinstance(choice, str) or not choice:
            raise InputError.at(task.place("doc_to_choice", 0), f"a choice is {choice!r}", "expected texts")
    if choices is not None:
        check_index(task, choices, target, 0)
    inputs = choices is not None and isinstance(text, int)
    several = isinstance(target, list) and bool(target)  # none at all is one target there, the text []
    return replace(task, multiple_inputs=inputs, multiple_targets=several)


def _check_columns(task: LoadedTask) -> None:
    """Refuse a bare word that is meant for a column: lm-evaluation-harness would ask every document that very word.

    As a target it may be meant, where it is like no column: the same answer to every document.
    """
    for name, meant in (("doc_to_text", False), ("doc_to_target", True)):
        word = getattr(task.config, name)
        if not isinstance(word, str) or not word.isidentifier() or word in task.columns:
            continue
        if not meant or nearest(word, map(str, task.columns)):
            unknown = UnknownName.of("column of the documents", word, list(map(str, task.columns)))
            raise UnknownName(f"{task.place(name)}: {unknown}")


def check_index(task: LoadedTask, choices: Sequence[Any], target: Any, number: int) -> None:
    """Refuse an index of a choice that there is not."""
    if isinstance(target, int) and not -len(choices) <= target < len(choices):
        wrong = f"the target is choice {target}, but there are {len(choices)} choices"
        raise InputError.at(task.place("doc_to_target", number), wrong, f"expected 0 to {len(choices) - 1}")


@contextmanager
def seeded(seeds: Seeds) -> Iterator[None]:
    """Seed the global generators, and put them back as they were afterwards: they belong to the caller."""
    before = _states()
    reseed(seeds)
    try:
        yield
    finally:
        _restore(before)


def reseed(seeds: Seeds) -> None:
    """Seed the global generators. torch is seeded only where something has imported it."""
    import numpy as np

    random.seed(seeds[0])
    np.random.seed(seeds[1])  # the global one: it is what a task's code draws from
    if (torch := _torch()) is not None:
        torch.manual_seed(seeds[2])


def drawn(seeds: Seeds) -> bool:
    """Whether anything has been drawn from the global generators since they were seeded."""
    now = _fingerprint(_states())
    with seeded(seeds):
        return now != _fingerprint(_states())


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
    """States that compare with ``==``: arrays as their bytes."""
    name, keys, *rest = states[1]
    return states[0], name, keys.tobytes(), *rest, None if states[2] is None else bytes(states[2].tolist())


def _torch() -> Any:
    """The library, where something has imported it whole; it is never imported for its seed alone."""
    torch = sys.modules.get("torch")
    return torch if hasattr(torch, "manual_seed") else None
