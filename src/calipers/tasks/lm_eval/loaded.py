"""A task with its documents, and what its fields mean for each of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from calipers.errors import InputError, UnknownName, nearest
from calipers.tasks.lm_eval.config import FewShot, TaskConfig
from calipers.tasks.lm_eval.documents import Rows, Splits, load_splits, processed, united
from calipers.tasks.lm_eval.functions import refuse_untrusted, with_functions
from calipers.tasks.lm_eval.template import Doc, called, choices_of, field_of, target_of, text_of
from calipers.tasks.lm_eval.turns import PLAIN, Manner
from calipers.tasks.lm_eval.yaml import TaskFile

SCORING = ("metric_list", "filter_list", "process_results", "scorer")  # not needed where nothing is scored


@dataclass(frozen=True, slots=True)
class LoadedTask:
    """A task, its documents, and the two modes that its first document decides, as in lm-evaluation-harness."""

    config: TaskConfig
    file: TaskFile
    docs: Rows  # the whole evaluated split
    examples: Rows  # few-shot examples are drawn from these
    columns: Sequence[str]
    multiple_inputs: bool = False  # the choices are contexts, the target is their shared continuation
    multiple_targets: bool = False  # any of several targets is right
    manner: Manner = PLAIN  # how its prompts are written

    def place(self, field: str, number: int | None = None) -> str:
        """Where a field stands, and for which document it is worked out."""
        where = self.file.place(field)
        return where if number is None else f"{where}: document {number}"

    def text(self, doc: Doc, number: int | None = None, shots: FewShot | None = None) -> Any:
        """``doc_to_text`` of a document."""
        value = self.config.doc_to_text if shots is None else shots.doc_to_text
        place, choices = self.place("doc_to_text", number), self.config.doc_to_choice is not None
        return text_of(value, doc, self.columns, place, choices=choices)

    def target(self, doc: Doc, number: int | None = None, shots: FewShot | None = None) -> Any:
        """``doc_to_target`` of a document."""
        value = self.config.doc_to_target if shots is None else shots.doc_to_target
        if value is None and self.config.process_results is not None:
            return None  # a task that scores by a function of its own may look into the document itself
        place, choices = self.place("doc_to_target", number), self.config.doc_to_choice is not None
        return target_of(value, doc, self.columns, place, choices=choices)

    def choices(self, doc: Doc, number: int | None = None, shots: FewShot | None = None) -> list[Any] | None:
        """``doc_to_choice`` of a document; None where the task has no choices."""
        value = self.config.doc_to_choice if shots is None else shots.doc_to_choice
        return None if value is None else choices_of(value, doc, self.columns, self.place("doc_to_choice", number))

    def prefix(self, doc: Doc, number: int | None = None) -> str | None:
        """``gen_prefix`` of a document: how its answer begins."""
        return field_of(self.config.gen_prefix, doc, self.place("gen_prefix", number))


def trusted(config: TaskConfig, file: TaskFile, *, trust: bool, scored: bool = True) -> TaskConfig:
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
    for one in fields(config):
        value, place = getattr(config, one.name), file.place(one.name)
        if one.name == "fewshot_config":
            shots = {inner.name: getattr(value, inner.name) for inner in fields(FewShot)}
            loaded[one.name] = FewShot(**_loaded(shots, place, trust))
        else:
            loaded[one.name] = _loaded(value, place, trust)
    return TaskConfig(**loaded)


def _loaded(value: Any, place: str, trust: bool) -> Any:
    if not trust:
        refuse_untrusted(value, place)
        return value
    return with_functions(value, place)


def load_task(config: TaskConfig, file: TaskFile, splits: Splits | None = None, *, trust: bool = False) -> LoadedTask:
    """A task with its documents read, and its first document tried out before any model is asked."""
    split = config.evaluated_split
    if split is None:
        raise InputError.at(file.place("task"), "no test_split or validation_split", "expected the split to ask")
    splits = load_splits(config, file, trust=trust) if splits is None else splits
    docs = processed(splits[split], config.process_docs, file.place("process_docs"))
    if not docs:
        raise InputError.at(file.place("dataset_path"), f"split {split!r} has no documents", "expected some")
    examples = _examples(config, file, splits) if config.num_fewshot else ()
    return _tried(LoadedTask(config, file, docs, examples, tuple(docs[0])))


def _examples(config: TaskConfig, file: TaskFile, splits: Splits) -> Rows:
    """What few-shot examples are drawn from: their split, their list, else training, validation, test."""
    shots, place = config.fewshot_config, file.place("fewshot_config")
    if shots.split is not None:
        found = processed(splits[shots.split], shots.process_docs, place)
    elif shots.samples is not None:
        listed = called(shots.samples, place) if callable(shots.samples) else shots.samples
        if not isinstance(listed, Sequence) or not all(isinstance(one, Mapping) for one in listed):
            raise InputError.at(f"{place}.samples", "is no list of documents", "expected one mapping an example")
        found = united(listed)
    else:
        split = config.training_split or config.validation_split or config.test_split or ""
        found = processed(splits[split], config.process_docs, place)
    return found


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
    return replace(task, multiple_inputs=inputs, multiple_targets=isinstance(target, list))


def _check_columns(task: LoadedTask) -> None:
    """Refuse a bare word that is meant for a column: lm-evaluation-harness would ask every document that very word.

    As a target it may be meant, where it is like no column: the same answer to every document.
    """
    for field, meant in (("doc_to_text", False), ("doc_to_target", True)):
        word = getattr(task.config, field)
        if not isinstance(word, str) or not word.isidentifier() or word in task.columns:
            continue
        if not meant or nearest(word, map(str, task.columns)):
            unknown = UnknownName.of("column of the documents", word, list(map(str, task.columns)))
            raise UnknownName(f"{task.place(field)}: {unknown}")


def check_index(task: LoadedTask, choices: Sequence[Any], target: Any, number: int) -> None:
    """Refuse an index of a choice that there is not."""
    if isinstance(target, int) and not -len(choices) <= target < len(choices):
        wrong = f"the target is choice {target}, and there are {len(choices)}"
        raise InputError.at(task.place("doc_to_target", number), wrong, f"expected 0 to {len(choices) - 1}")
