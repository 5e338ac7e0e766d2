"""Tasks written as Python classes, ``class: !function module.Name`` in their file, where lm-evaluation-harness is.

Such a class makes its own documents, requests, scores and numbers. It is called as lm-evaluation-harness calls
it, with two exceptions: its documents are read once, and it is never handed a model.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, fields
from typing import Any, Final

from calipers.errors import InputError, PluginError
from calipers.systems.lm_eval.tasks.config import FewShot, TaskFields
from calipers.systems.lm_eval.tasks.documents import Rows
from calipers.systems.lm_eval.tasks.functions import is_installed, load_function, refuse_untrusted, with_functions
from calipers.systems.lm_eval.tasks.template import Doc, called
from calipers.systems.lm_eval.tasks.turns import Manner
from calipers.systems.lm_eval.tasks.yaml import Function, TaskFile
from calipers.tasks.load_seeds import Seeds

STRUCTURAL: Final = ("tag", "group", "task_list")  # keys of the file that lm-evaluation-harness keeps from the class
NEEDED: Final = ("eval_docs", "fewshot_context", "construct_requests", "process_results", "aggregation")
KINDS: Final = ("generate_until", "loglikelihood", "loglikelihood_rolling")


@dataclass(frozen=True, slots=True)
class ClassRequest:
    """One request of a document, as the class constructs it."""

    request_type: str
    idx: int
    args: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Summing:
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

    def requests(
        self, docs: Iterable[tuple[int, Doc]], manner: Manner, seed: int
    ) -> Iterator[tuple[int, ClassRequest]]:
        """The requests of some documents, each with the document's number, in the order of their ``idx``."""
        if callable(getattr(self.made, "set_fewshot_seed", None)):
            self.made.set_fewshot_seed(seed=seed)
        for number, doc in docs:
            made = called(self._constructed, number, doc, manner, f"{self.place}: document {number}")
            several = made if isinstance(made, list) else [made]
            requests = [self._request(request, number) for request in several]
            yield from ((number, request) for request in sorted(requests, key=lambda request: request.idx))

    def _constructed(self, number: int, doc: Doc, manner: Manner) -> Any:
        chat: dict[str, Any] = {
            "apply_chat_template": manner.chat,
            "chat_template": _turns if manner.chat else None,
        }
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

    def _request(self, instance: Any, number: int) -> ClassRequest:
        location = f"{self.place}: document {number}"
        try:
            kind, idx, args = str(instance.request_type), int(instance.idx), tuple(instance.args)
        except (AttributeError, TypeError, ValueError):
            wrong = f"construct_requests returned {type(instance).__name__}"
            raise PluginError(f"{location}: {wrong}; expected lm_eval's Instance, or a list of them") from None
        if kind not in KINDS:
            raise InputError.at(location, f"asks for {kind!r}", f"expected {', '.join(KINDS)}")
        if kind == "generate_until" and len(args) > 2:
            raise InputError.at(location, "asks about more than text", "expected a task of plain text")
        return ClassRequest(kind, idx, deepcopy(args))


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
        raise InputError.at(location, f"{function} asks about images", "expected a task of plain text")
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
    except (
        Exception
    ) as error:  # of every class there is: a dataset that is not at hand, a library that is not installed
        first = str(error).strip().partition("\n")[0]
        raise PluginError(f"{location}: {function} cannot be made: {type(error).__name__}: {first}") from error


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
        how = known if known is not None else Summing(function)
        entries.append({"metric": str(name), "aggregation": how, "higher_is_better": (better or {}).get(name)})
    return entries


def _turns(messages: Any, **_: Any) -> list[Any]:
    """A chat template that leaves the turns as they are: whoever is asked puts its own around them."""
    return [dict(message) if isinstance(message, Mapping) else message for message in messages]
