"""A task with its documents, and what its fields mean for each of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from typing import Any

from calipers.errors import CalipersError, InputError, UnknownName, nearest
from calipers.systems.lm_eval.tasks.class_tasks import ClassTask
from calipers.systems.lm_eval.tasks.config import FewShot, TaskFields
from calipers.systems.lm_eval.tasks.documents import Rows, Splits, load_splits, processed, united
from calipers.systems.lm_eval.tasks.functions import refuse_untrusted, with_functions
from calipers.systems.lm_eval.tasks.template import Doc, called, choices_of, field_of, target_of, text_of
from calipers.systems.lm_eval.tasks.turns import PLAIN, Manner
from calipers.systems.lm_eval.tasks.yaml import TaskFile
from calipers.tasks.load_seeds import LOAD_SEEDS, Seeds, drawn, reseed, seeded

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
        location, choices = self.place("doc_to_text", number), self.config.doc_to_choice is not None
        return self._once(
            "text", number, value, lambda: text_of(value, doc, self.columns, location, choices=choices), shots
        )

    def target(self, doc: Doc, number: int | None = None, shots: FewShot | None = None) -> Any:
        """``doc_to_target`` of a document."""
        class_task = self.own
        if class_task is not None:
            return self._once("target", number, class_task.target, lambda: class_task.target(doc), shots)
        value = self.config.doc_to_target if shots is None else shots.doc_to_target
        if value is None and self.config.process_results is not None:
            return None  # a task that scores by a function of its own may look into the document itself
        location, choices = self.place("doc_to_target", number), self.config.doc_to_choice is not None
        return self._once(
            "target", number, value, lambda: target_of(value, doc, self.columns, location, choices=choices), shots
        )

    def choices(self, doc: Doc, number: int | None = None, shots: FewShot | None = None) -> list[Any] | None:
        """``doc_to_choice`` of a document; None where the task has no choices."""
        value = self.config.doc_to_choice if shots is None else shots.doc_to_choice
        if value is None or self.own is not None:
            return None
        location = self.place("doc_to_choice", number)
        choices: list[Any] = self._once(
            "choices", number, value, lambda: choices_of(value, doc, self.columns, location), shots
        )
        return choices

    def prefix(self, doc: Doc, number: int | None = None) -> str | None:
        """``gen_prefix`` of a document: how its answer begins."""
        return field_of(self.config.gen_prefix, doc, self.place("gen_prefix", number))

    def _once(self, what: str, number: int | None, value: Any, work: Callable[[], Any], shots: FewShot | None) -> Any:
        """A field of a document, worked out once where it may be drawn at random: what was asked is what is scored."""
        draws = callable(value) or (isinstance(value, str) and "random" in value)
        if number is None or shots is not None or not draws:
            return work()
        if (what, number) not in self.kept:
            self.kept[what, number] = work()
        value_of_document = self.kept[what, number]
        return list(value_of_document) if isinstance(value_of_document, list) else value_of_document


def trusted(config: TaskFields, file: TaskFile, *, trust: bool, scored: bool = True) -> TaskFields:
    """The configuration with its functions loaded; InputError where it has some and is not trusted.

    What only scores is left out where nothing is scored.
    """
    if not scored:
        unscored: dict[str, Any] = dict.fromkeys(SCORING)
        config = replace(config, **unscored)
    if config.unsafe_code and not trust:
        wrong = "the task runs code that a model wrote"
        raise InputError.at(file.place("unsafe_code"), wrong, "run it with --trust if that is what you want")
    loaded: dict[str, Any] = {}
    for spec in fields(config):
        value, location = getattr(config, spec.name), file.place(spec.name)
        if spec.name == "fewshot_config":
            shots = {inner.name: getattr(value, inner.name) for inner in fields(FewShot)}
            loaded[spec.name] = FewShot(**_loaded(shots, location, trust))
        else:
            loaded[spec.name] = _loaded(value, location, trust)
    return TaskFields(**loaded)


def _loaded(value: Any, location: str, trust: bool) -> Any:
    if not trust:
        refuse_untrusted(value, location)
        return value
    return with_functions(value, location)


def load_task(
    config: TaskFields,
    file: TaskFile,
    splits: Splits | None = None,
    seeds: Seeds = LOAD_SEEDS,
    *,
    trust: bool = False,
) -> LoadedTask:
    """A task with its documents read, and its first document tried out before any model is asked.

    The global generators are seeded for it, so that the same files, code and seeds give the same documents.
    """
    split = config.evaluated_split
    if split is None:
        raise InputError.at(file.place("task"), "no test_split or validation_split", "expected the split to ask")
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
            raise InputError.at(f"{location}.samples", "is no list of documents", "expected one mapping an example")
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
        wrong = f"the target is choice {target}, and there are {len(choices)}"
        raise InputError.at(task.place("doc_to_target", number), wrong, f"expected 0 to {len(choices) - 1}")
