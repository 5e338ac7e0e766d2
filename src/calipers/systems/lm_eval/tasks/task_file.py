"""A task file: YAML by a safe loader, its includes merged, and what it says, field by field.

Nothing in it is run until somebody trusts it: ``!function module.name`` becomes a `Function`, which is a name and a
folder. Where the user trusts the file, the code is loaded: from beside the file, else by an import.

Every field is checked, every default filled in. The fields stand in the order in which lm-evaluation-harness 0.4.13
dumps them; the last two are of its guide "Scoring & Metrics".
"""

from __future__ import annotations

import importlib
import importlib.util
import math
import os
import random
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field, fields, replace
from hashlib import sha256
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import yaml

from calipers.errors import InputError, PluginError, UnknownName
from calipers.formats.source import opened, read_up_to

LARGEST: Final = 8 << 20  # bytes of a file
DEEPEST: Final = 64  # lists and mappings in one another
MOST: Final = 1 << 25  # values and characters, each alias counted as what it stands for
NEVER_INHERITED: Final = "task_list"
_FUNCTION: Final = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)+")


@dataclass(frozen=True, slots=True)
class Function:
    """``!function module.name`` of a task file: code that lies in data, named and not yet loaded."""

    module: str
    name: str
    folder: Path  # of the file that holds the tag

    def __str__(self) -> str:
        return f"!function {self.module}.{self.name}"


@dataclass(frozen=True, slots=True)
class TaskFile:
    """The mapping that a task file is, and the line on which each of its keys stands."""

    path: Path | None  # None: given inline
    values: Mapping[str, Any]
    lines: Mapping[str, str] = field(default_factory=dict)  # key -> path:line, of the file that it comes from

    def place(self, key: str = "") -> str:
        """Where a key stands, for an error: ``task.yaml:3: metric_list``."""
        where = self.lines.get(key) or str(self.path or "inline task")
        return f"{where}: {key}" if key else where


def read_task_file(path: Path) -> TaskFile:
    """A file with its includes merged: those left to right, then its own keys; nothing is merged within a value.

    InputError for a file that is reached twice, as it is an error in lm-evaluation-harness.
    """
    return with_includes(load_file(path), {path.resolve(): path})


def with_includes(file: TaskFile, reached: dict[Path, Path]) -> TaskFile:
    """A mapping with what it includes; ``reached``: every file read so far, and the one that included it."""
    values: dict[str, Any] = {}
    lines: dict[str, str] = {}
    path = file.path or Path()
    for name in included(file):
        other = path.parent / name
        if not os.path.isfile(other):
            raise InputError.at(file.place("include"), f"no file {other}", "expected a path from this file's folder")
        if (real := other.resolve()) in reached:
            wrong = f"{name} is included twice, also by {reached[real]}"
            raise InputError.at(file.place("include"), wrong, "expected each file once, and none that includes itself")
        reached[real] = path
        inner = with_includes(load_file(other), reached)
        values |= {key: value for key, value in inner.values.items() if key != NEVER_INHERITED}
        lines |= inner.lines
    values |= {key: value for key, value in file.values.items() if key != "include"}
    return TaskFile(file.path, values, {**lines, **file.lines})


def included(file: TaskFile) -> list[str]:
    """The files that a file includes, as it names them."""
    names = file.values.get("include")
    several = [] if names is None else names if isinstance(names, list) else [names]
    if not all(isinstance(name, str) and name for name in several):
        raise InputError.at(file.place("include"), f"is {names!r}", "expected a path or a list of paths")
    return several


def load_file(path: Path) -> TaskFile:
    """One file as it stands, its includes unread."""
    with opened(path) as stream:
        content = read_up_to(stream, LARGEST + 1)
    if len(content) > LARGEST:
        raise InputError.at(str(path), f"larger than {LARGEST >> 20} MiB", "expected a task file")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError.at(str(path), f"byte {error.start + 1} is not UTF-8", "expected UTF-8 text") from None
    return _load(text, path)


def _load(text: str, path: Path) -> TaskFile:
    try:
        _measure(text, path)
        loader = _Loader(text)
        loader.folder = path.parent
        node = loader.get_single_node()
        values = {} if node is None else loader.construct_document(node)
    except yaml.YAMLError as error:
        raise _syntax(path, error) from None
    except InputError:
        raise
    except (ValueError, OverflowError) as error:  # a date with a thirteenth month
        raise InputError.at(str(path), f"is not valid YAML ({error})") from None
    if not isinstance(values, dict):
        raise InputError.at(
            str(path), f"is a {type(values).__name__}", "expected a mapping: task: ..., dataset_path: ..."
        )
    keys = (key for key, _ in node.value) if isinstance(node, yaml.MappingNode) else ()
    lines = {str(key.value): f"{path}:{key.start_mark.line + 1}" for key in keys}
    return TaskFile(path, {str(key): value for key, value in values.items()}, lines)


def _measure(text: str, path: Path) -> None:
    """Refuse what would grow beyond all measure once its aliases are followed; nothing is built to find out."""
    sizes: dict[str, int | None] = {}  # anchor -> size; None while it is open
    stack: list[tuple[str | None, int]] = []  # (anchor, size so far) of each open list or mapping
    for event in yaml.parse(text, Loader=_LOADER):
        size, anchor = 0, getattr(event, "anchor", None)
        location = f"{path}:{event.start_mark.line + 1}"
        if isinstance(event, yaml.AliasEvent):
            known = sizes.get(event.anchor or "", 1)
            if known is None:
                raise InputError.at(location, f"*{event.anchor} contains itself", "expected values without a cycle")
            size = known
        elif isinstance(event, yaml.ScalarEvent):
            size = 1 + len(event.value)
            if anchor:
                sizes[anchor] = size
        elif isinstance(event, yaml.CollectionStartEvent):
            if anchor:
                sizes[anchor] = None
            stack.append((anchor, 1))
            if len(stack) > DEEPEST:
                raise InputError.at(location, f"more than {DEEPEST} levels deep", "expected a task file")
        elif isinstance(event, yaml.CollectionEndEvent):
            name, size = stack.pop()
            if name:
                sizes[name] = size
        if stack and size:
            outer, sofar = stack[-1]
            stack[-1] = outer, sofar + size
            if sofar + size > MOST:
                raise InputError.at(location, "its aliases expand to more than the limit", "expected a task file")


_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the same loader in C, where it was built


class _Loader(_LOADER):  # type: ignore[misc]  # which of the two it is, only the machine knows
    folder: Path


def _function(loader: _Loader, node: yaml.Node) -> Function:
    text = node.value if isinstance(node, yaml.ScalarNode) else None
    if text is None or not _FUNCTION.fullmatch(text.strip()):
        wrong = f"!function {text!r}" if text is not None else "!function of a list or mapping"
        raise yaml.constructor.ConstructorError(None, None, f"{wrong}; expected module.name", node.start_mark)
    module, _, name = text.strip().rpartition(".")
    return Function(module, name, loader.folder)


_Loader.add_constructor("!function", _function)


def _syntax(path: Path, error: yaml.YAMLError) -> InputError:
    mark = getattr(error, "problem_mark", None)
    wrong = getattr(error, "problem", None) or str(error).partition("\n")[0]
    return InputError.at(f"{path}:{mark.line + 1}" if mark else str(path), f"is not valid YAML ({wrong})")


_loaded: dict[Path, ModuleType] = {}
_generators: dict[Path, list[tuple[Any, Any]]] = {}  # of each module, with the state that its import left


class Trusted(dict[str, Any]):
    """A mapping of a task file whose code the user lets run; what it names may be loaded."""


def functions_in(value: Any) -> Iterator[Function]:
    """Every function that a value names, however deep."""
    if isinstance(value, Function):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from functions_in(item)
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from functions_in(item)


def refuse_untrusted(value: Any, location: str) -> None:
    """InputError where a value names a function: it is code that came with the data."""
    for function in functions_in(value):
        raise InputError.at(location, f"is {function}, code from the task", "read it first, then run it with --trust")


def with_functions(value: Any, location: str) -> Any:
    """The value with every function in it loaded. To be called for trusted files only."""
    if isinstance(value, Function):
        return load_function(value, location)
    if isinstance(value, list):
        return [with_functions(item, location) for item in value]
    if isinstance(value, Mapping):
        return Trusted({key: with_functions(item, location) for key, item in value.items()})
    return value


def load_function(function: Function, location: str) -> Callable[..., Any]:
    """The object behind a trusted function; PluginError says why there is none."""
    try:
        module = _module(function)
    except (Exception, SystemExit) as error:  # a module may also be a script that ends itself
        raise PluginError(f"{location}: {function} cannot be loaded: {_why(error)}") from error
    target: Callable[..., Any] | None = getattr(module, function.name, None)
    if target is None or not callable(target):
        raise PluginError(f"{location}: {function}: {module.__name__} has no function of that name")
    return target


def _why(error: BaseException) -> str:
    name = getattr(error, "name", None) or ""
    for package, remedy in (
        ("lm_eval", "it works only where lm-evaluation-harness is installed"),
        ("datasets", "install calipers[hf]"),
    ):
        absent = isinstance(error, ImportError) and name.partition(".")[0] == package and not is_installed(package)
        if absent:
            return f"it imports {package}, which is not installed; {remedy}"
    return f"{type(error).__name__}: {error}"


def rewind() -> None:
    """Put the generators that tasks' modules hold back to where their import left them.

    Several tasks may share a module: the documents of one must not depend on those loaded before it.
    """
    for states in _generators.values():
        for generator, state in states:
            set_state(generator, state)


def is_installed(package: str) -> bool:
    """Whether a package can be found, without importing it."""
    return sys.modules.get(package) is not None or importlib.util.find_spec(package) is not None


def _module(function: Function) -> ModuleType:
    file = function.folder.joinpath(*function.module.split(".")).with_suffix(".py")
    if not file.is_file():
        with _importable_from(None):
            return importlib.import_module(function.module)
    real = file.resolve()
    if not real.is_relative_to(function.folder.resolve()):
        raise ImportError(f"{file} is outside the task's folder")
    if real not in _loaded:
        name = f"calipers_task_{sha256(str(real).encode()).hexdigest()[:12]}_{real.stem}"
        spec = importlib.util.spec_from_file_location(name, real)
        if spec is None or spec.loader is None:
            raise ImportError(f"{file} is not a Python file")
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module  # dataclasses and pickle look a class up by its module's name
        try:
            with _importable_from(real.parent):  # a utils.py may import the file next to it
                spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[name]
            raise
        _loaded[real] = module
        _generators[real] = [
            (generator, state) for generator in vars(module).values() if (state := state_of(generator)) is not None
        ]
    return _loaded[real]


@contextmanager
def _importable_from(folder: Path | None) -> Iterator[None]:
    """The import path with a task's folder last, so that it hides no library, and without the working directory."""
    before = sys.path.copy()
    sys.path[:] = [entry for entry in before if entry not in ("", ".")] + ([str(folder)] if folder else [])
    try:
        yield
    finally:
        sys.path[:] = before


def state_of(value: Any) -> Any:
    """The state of a generator of Python's or numpy's; None for whatever else."""
    if isinstance(value, random.Random):
        return None if isinstance(value, random.SystemRandom) else value.getstate()
    numpy = sys.modules.get("numpy.random")
    if numpy is not None and isinstance(value, numpy.Generator):
        return value.bit_generator.state
    return value.get_state() if numpy is not None and isinstance(value, numpy.RandomState) else None


def set_state(generator: Any, state: Any) -> None:
    """Put a generator into a state that `state_of` told."""
    if isinstance(generator, random.Random):
        generator.setstate(state)
    elif hasattr(generator, "bit_generator"):
        generator.bit_generator.state = state
    else:
        generator.set_state(state)


LETTERS: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


@dataclass(frozen=True, slots=True)
class PromptFormat:
    """How a question is put. Texts may hold ``{{ }}``, also of ``_num_choices`` and the lists of labels."""

    output_type: str = "multiple_choice"
    instruction: str | None = None
    question_prefix: str | None = "Question: "
    choice_labels: str | list[str] | None = "letters"  # letters, numbers, a list; None: choices are not shown
    choice_delimiter: str = "\n"
    section_separator: str = "\n"
    answer_instruction: str | None = None
    answer_prompt: str = "Answer:"
    gen_prefix: str | None = None
    target_delimiter: str = " "
    fewshot_delimiter: str = "\n\n"
    scorer: str | None = None


MCQA: Final = PromptFormat()
GENERATE: Final = PromptFormat(
    output_type="generate_until",
    instruction="Given the following question and {{ _num_choices }} candidate answers ({{ _choice_list_and }}), "
    "choose the best answer.\n",
    answer_prompt='Your response should end with "The best answer is [answer_letter]" '
    "where the [answer_letter] is one of {{ _choice_list_or }}.",
    gen_prefix="The best answer is",
    target_delimiter="\n",
    scorer="first_token",
)
FORMATS: Final[Mapping[str, PromptFormat]] = {
    "mcqa": MCQA,
    "cloze": replace(MCQA, choice_labels=None),
    "generate": GENERATE,
    "cot": replace(
        GENERATE,
        instruction="Given the following problem, reason step by step to find the final answer.\n",
        question_prefix="Problem: ",
        choice_labels=None,
        answer_prompt='Your response should end with "The final answer is [answer]" '
        "where [answer] is the response to the problem.",
        gen_prefix=None,
    ),
}


def with_format(given: Mapping[str, Any], location: str, chosen: str | None) -> dict[str, Any]:
    """A task's fields with its format written out; as they are where it has none."""
    formats = given.get("formats")
    if formats is None:
        if chosen:
            raise InputError.at(
                location, f"the task has no formats, so none called {chosen!r}", "remove the part after @"
            )
        return dict(given)
    format = _chosen(formats, location, chosen)
    chooses = format.output_type == "multiple_choice" or format.choice_labels is not None
    usual = {"doc_to_text": "question", "doc_to_choice": "choices" if chooses else None, "doc_to_target": "answer"}
    question, choices, answer = (_expression(given.get(name, usual[name]), f"{location}: {name}") for name in usual)
    if choices is None and format.output_type == "multiple_choice":
        raise InputError.at(location, "a format with choices needs doc_to_choice", "expected a column with the choices")
    fields_of_format = {
        **given,
        "doc_to_text": _text(format, question or "question", choices),
        "doc_to_target": _target(format, answer or "answer", choices),
        "doc_to_choice": _choices(format, choices),
        "output_type": format.output_type,
        "target_delimiter": format.target_delimiter,
        "fewshot_delimiter": format.fewshot_delimiter,
    }
    added = {"gen_prefix": format.gen_prefix, "scorer": format.scorer}
    return {
        **fields_of_format,
        **{key: value for key, value in added.items() if value is not None and given.get(key) is None},
    }


def _chosen(formats: Any, location: str, chosen: str | None) -> PromptFormat:
    """One format out of ``mcqa``, ``{type: mcqa, ...}`` or ``{mcqa: {...}, generate: {...}}``; there the first."""
    if isinstance(formats, str):
        formats = {formats: None}
    if "type" in formats:
        formats = {str(formats["type"]): {key: value for key, value in formats.items() if key != "type"}}
    name = chosen or next(iter(formats), "")
    if name not in formats:
        raise UnknownName(f"{location}: {UnknownName.of('format of this task', name, list(map(str, formats)))}")
    if name not in FORMATS:
        raise UnknownName(f"{location}: {UnknownName.of('format', str(name), FORMATS)}")
    changed = formats[name] or {}
    if not isinstance(changed, Mapping):
        raise InputError.at(f"{location}.{name}", f"is {shown(changed)}", "expected a mapping")
    known = [field.name for field in fields(PromptFormat)]
    for key in changed:
        if key not in known:
            raise UnknownName(f"{location}.{name}: {UnknownName.of('field of a format', str(key), known)}")
    return replace(FORMATS[name], **changed)


def _expression(value: Any, location: str) -> str | None:
    """A column, template, list or integer as an expression of a template; None for nothing."""
    if value is None:
        return None
    if isinstance(value, Function) or callable(value):
        raise InputError.at(location, "a format cannot be combined with a function", "expected a column or a template")
    if isinstance(value, str) and "{{" in value:
        inner = value.replace("{{", "").replace("}}", "").strip()
        return inner if inner.isidentifier() else f"({inner})"
    return value if isinstance(value, str) else f"({value!r})"


def _label(format: PromptFormat, index: str) -> str:
    if format.choice_labels == "letters":
        return f"'{LETTERS}'[{index}]"
    return f"({index} + 1)" if format.choice_labels == "numbers" else f"{format.choice_labels!r}[{index}]"


def _labels(format: PromptFormat, choices: str) -> str:
    if format.choice_labels == "letters":
        return f"'{LETTERS}'[:{choices}|length]|list"
    if format.choice_labels == "numbers":
        return f"range(1, {choices}|length + 1)|map('string')|list"
    return f"{format.choice_labels!r}[:{choices}|length]"


def _text(format: PromptFormat, question: str, choices: str | None) -> str:
    head = f"{format.instruction or ''}{format.question_prefix or ''}{{{{{question}}}}}"
    shown = ""
    if format.choice_labels and choices:
        shown = (
            f"{format.section_separator}{{% for choice in {choices} %}}{{{{ {_label(format, 'loop.index0')} }}}}. "
            f"{{{{ choice }}}}{{% if not loop.last %}}{format.choice_delimiter}{{% endif %}}{{% endfor %}}"
        )
    tail = f"{format.section_separator}{format.answer_instruction or ''}{format.answer_prompt}"
    body = head + shown + tail
    names = ("_num_choices", "_choice_labels", "_choice_list_and", "_choice_list_or")
    if not (format.choice_labels and choices and any(name in body for name in names)):
        return body
    last = "_choice_labels[:-1]|join(', ') ~ ' {} ' ~ _choice_labels[-1]|string"
    values = (f"{choices}|length", _labels(format, choices), last.format("and"), last.format("or"))
    return "".join(f"{{% set {name} = {value} %}}" for name, value in zip(names, values, strict=True)) + body


def _target(format: PromptFormat, answer: str, choices: str | None) -> str:
    """The template of the answer: an index among the choices, its label, or its text."""
    as_it_is = f"{{{{ {answer} }}}}"
    if format.output_type == "multiple_choice":
        number, other = as_it_is, f"{{{{ {choices}.index({answer}) }}}}"
    elif format.choice_labels:
        number, other = f"{{{{ {_label(format, answer)} }}}}", as_it_is
    elif choices:
        number, other = f"{{{{ {choices}[{answer}] }}}}", as_it_is
    else:
        return as_it_is
    return f"{{% if {answer} is number %}}{number}{{% else %}}{other}{{% endif %}}"


def _choices(format: PromptFormat, choices: str | None) -> str | None:
    """The template of the choices that are scored: their labels where they have some; none where text is generated."""
    if choices is None or format.output_type == "generate_until":
        return None
    return f"{{{{ {_labels(format, choices) if format.choice_labels else choices} }}}}"


OUTPUT_TYPES: Final = ("generate_until", "multiple_choice", "loglikelihood", "loglikelihood_rolling")
SAMPLERS: Final = ("default", "first_n")
GREEDY: Final = {"temperature": 0.0, "do_sample": False, "max_gen_toks": 256}  # when a task says nothing

Code = Any
"""A `Function`, and once it is trusted what it names."""


def values_of(record: FewShot | TaskFields) -> dict[str, Any]:
    """The fields of a record by name; nothing is copied."""
    return {spec.name: getattr(record, spec.name) for spec in fields(record)}


@dataclass(frozen=True, slots=True)
class FewShot:
    """How the examples before a question are chosen and written; what it leaves open is the task's own."""

    sampler: str | Code = "default"
    split: str | None = None
    process_docs: Code | None = None
    fewshot_indices: Sequence[int] | None = None  # read, and used by nobody: 0.4.13 does not look at it
    samples: Sequence[Mapping[str, Any]] | Code | None = None
    doc_to_text: Any = None
    doc_to_choice: Any = None
    doc_to_target: Any = None
    gen_prefix: str | None = None
    fewshot_delimiter: str = "\n\n"
    target_delimiter: str = " "


@dataclass(frozen=True, slots=True)
class TaskFields:
    """One task of lm-evaluation-harness. None: not given."""

    task: str | None = None
    task_alias: str | None = None
    tag: str | Sequence[str] | None = None
    custom_dataset: Code | None = None
    dataset_path: str | None = None
    dataset_name: str | None = None
    dataset_kwargs: Mapping[str, Any] | None = None
    training_split: str | None = None
    validation_split: str | None = None
    test_split: str | None = None
    fewshot_split: str | None = None
    process_docs: Code | None = None
    doc_to_text: Any = None  # a column, a template, an integer, a function
    doc_to_target: Any = None
    doc_to_image: Any = None
    doc_to_audio: Any = None
    unsafe_code: bool = False
    doc_to_choice: Any = None
    process_results: Code | None = None
    use_prompt: str | None = None
    description: str = ""
    target_delimiter: str = " "
    fewshot_delimiter: str = "\n\n"
    fewshot_config: FewShot = field(default_factory=FewShot)
    num_fewshot: int | None = None
    metric_list: Sequence[Mapping[str, Any]] | None = None
    output_type: str = "generate_until"
    generation_kwargs: Mapping[str, Any] | None = None
    repeats: int = 1
    filter_list: Sequence[Mapping[str, Any]] | None = None
    should_decontaminate: bool = False
    doc_to_decontamination_query: Any = None
    gen_prefix: str | None = None
    metadata: Mapping[str, Any] | None = None
    scorer: str | Mapping[str, Any] | None = None
    formats: str | Mapping[str, Any] | None = None

    @property
    def evaluated_split(self) -> str | None:
        """The split whose documents are asked: test, else validation."""
        return self.test_split or self.validation_split

    @property
    def version(self) -> Any:
        """What the task calls its version; lm-evaluation-harness says Yaml where it does not."""
        return (self.metadata or {}).get("version", "Yaml")

    def dumped(self) -> dict[str, Any]:
        """Every field that is given, as lm-evaluation-harness dumps it; ``fewshot_config`` with its gaps."""
        values = {**values_of(self), "fewshot_config": values_of(self.fewshot_config)}
        return {name: value for name, value in values.items() if value is not None}


NAMES: Final = tuple(one.name for one in fields(TaskFields))
INHERITED: Final = ("process_docs", "doc_to_text", "doc_to_choice", "doc_to_target", "gen_prefix")

_TEXT: Final = "text"
_WORDS: Final = {
    str: _TEXT,
    int: "an integer",
    bool: "true or false",
    list: "a list",
    dict: "a mapping",
    Function: "!function module.name",
}
_TYPES: Final[Mapping[str, tuple[type, ...]]] = {
    **dict.fromkeys(("task", "task_alias", "dataset_path", "dataset_name"), (str,)),
    **dict.fromkeys(("training_split", "validation_split", "test_split", "fewshot_split"), (str,)),
    **dict.fromkeys(("description", "target_delimiter", "fewshot_delimiter", "gen_prefix", "use_prompt"), (str,)),
    **dict.fromkeys(("custom_dataset", "process_docs"), (Function,)),
    **dict.fromkeys(("dataset_kwargs", "generation_kwargs", "metadata", "fewshot_config"), (dict,)),
    **dict.fromkeys(("metric_list", "filter_list"), (list,)),
    **dict.fromkeys(("num_fewshot", "repeats"), (int,)),
    **dict.fromkeys(("unsafe_code", "should_decontaminate"), (bool,)),
    **dict.fromkeys(("scorer", "formats"), (str, dict)),
    "tag": (str, list),
    "process_results": (Function,),
    "doc_to_text": (str, int, Function),
    "doc_to_target": (str, int, list, Function),
    "doc_to_choice": (str, list, dict, Function),
    "output_type": (str,),
    "sampler": (str, Function),
    "split": (str,),
    "fewshot_indices": (list,),
    "samples": (list, Function),
}
_LEAST: Final[Mapping[str, int]] = {"num_fewshot": 0, "repeats": 1}
_NEVER_NULL: Final = (
    "output_type",
    "repeats",
    "description",
    "target_delimiter",
    "unsafe_code",
    "should_decontaminate",
)


def task_config(file: TaskFile, chosen_format: str | None = None) -> TaskFields:
    """The configuration that a file's mapping is; InputError with file, line and key for what cannot be one.

    ``chosen_format`` picks one of the task's ``formats``: the part after ``@`` in ``task@format``.
    """
    for key in file.values:
        if key not in NAMES:
            raise UnknownName(f"{file.place(key)}: {UnknownName.of('field of a task', key, NAMES)}")
    given = {key: deepcopy(value) for key, value in file.values.items() if value is not None or key not in _NEVER_NULL}
    for key, value in given.items():
        if key == "dataset_name" and value is not None and not isinstance(value, (str, Mapping, list)):
            given[key] = value = str(value)  # YAML reads 2024-01-01 as a date
        _check(file.place(key), key, value)
    given = with_format(given, file.place("formats"), chosen_format)
    if given.get("output_type", OUTPUT_TYPES[0]) not in OUTPUT_TYPES:
        known = UnknownName.of("output_type", str(given["output_type"]), OUTPUT_TYPES)
        raise UnknownName(f"{file.place('output_type')}: {known}")
    _check_metrics(file.place("metric_list"), given.get("metric_list"))
    _check_pipelines(file.place("filter_list"), given.get("filter_list"))
    given["generation_kwargs"] = _generation(file.place("generation_kwargs"), given)
    given["fewshot_config"] = _few_shot(file.place("fewshot_config"), given)
    return TaskFields(**given)


def _check(location: str, key: str, value: Any) -> None:
    kinds = _TYPES.get(key)
    if value is None or kinds is None or callable(value):
        return
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
        raise InputError.at(location, f"is {shown(value)}", f"expected {' or '.join(_WORDS[kind] for kind in kinds)}")
    if key in _LEAST and isinstance(value, int) and value < _LEAST[key]:
        raise InputError.at(location, f"is {value}", f"expected an integer >= {_LEAST[key]}")


def _check_metrics(location: str, metrics: Any) -> None:
    for number, entry in enumerate(metrics or ()):
        if not isinstance(entry, Mapping) or not _is_name(entry.get("metric")):
            right = "expected a mapping with metric: NAME"
            raise InputError.at(f"{location}[{number}]", f"is {shown(entry)}", right)


def _check_pipelines(location: str, pipelines: Any) -> None:
    for number, pipeline in enumerate(pipelines or ()):
        here = f"{location}[{number}]"
        if not isinstance(pipeline, Mapping) or not isinstance(pipeline.get("name"), str):
            raise InputError.at(here, f"is {shown(pipeline)}", "expected a mapping with name: and filter:")
        steps = pipeline.get("filter")
        if not isinstance(steps, list):
            raise InputError.at(f"{here}.filter", f"is {shown(steps)}", "expected a list of steps")
        for step, setting in enumerate(steps):
            if not isinstance(setting, Mapping) or not _is_name(setting.get("function")):
                right = "expected a mapping with function: NAME"
                raise InputError.at(f"{here}.filter[{step}]", f"is {shown(setting)}", right)
        if not isinstance(pipeline.get("metric_list", []), list):
            raise InputError.at(f"{here}.metric_list", f"is {shown(pipeline['metric_list'])}", "expected a list")
        _check_metrics(f"{here}.metric_list", pipeline.get("metric_list"))


def _is_name(value: Any) -> bool:
    return (isinstance(value, str) and bool(value)) or isinstance(value, Function) or callable(value)


def _generation(location: str, given: Mapping[str, Any]) -> dict[str, Any] | None:
    """The generation settings as lm-evaluation-harness completes them; greedy where the task says nothing."""
    delimiter = given.get("fewshot_delimiter", "\n\n")
    until = [] if delimiter is None else [delimiter]
    kwargs = given.get("generation_kwargs")
    if kwargs is None:
        generates = given.get("output_type", OUTPUT_TYPES[0]) == "generate_until"
        return {**GREEDY, "until": until} if generates else None
    completed = dict(kwargs)
    if "temperature" in completed:
        try:
            completed["temperature"] = float(completed["temperature"])
        except (TypeError, ValueError):
            completed["temperature"] = -1.0
        if not 0 <= completed["temperature"] < math.inf:
            raise InputError.at(
                f"{location}.temperature", f"is {shown(kwargs['temperature'])}", "expected a number >= 0"
            )
    completed.setdefault("until", until)
    return completed


def _few_shot(location: str, given: Mapping[str, Any]) -> FewShot:
    shots: Mapping[str, Any] = given.get("fewshot_config") or {}
    known = tuple(spec.name for spec in fields(FewShot))
    for key, value in shots.items():
        if key not in known:
            raise UnknownName(f"{location}: {UnknownName.of('field of fewshot_config', str(key), known)}")
        _check(f"{location}.{key}", key, value)
    inherited = {name: given.get(name) for name in INHERITED}
    inherited |= {
        name: given[name] for name in ("fewshot_delimiter", "target_delimiter") if given.get(name) is not None
    }
    values = {"split": given.get("fewshot_split"), **inherited, **shots}
    sampler = values.get("sampler", "default")
    if isinstance(sampler, str) and sampler not in SAMPLERS:
        raise UnknownName(f"{location}.sampler: {UnknownName.of('sampler', sampler, SAMPLERS)}")
    return FewShot(**values)


def shown(value: Any) -> str:
    """A value as an error shows it, cut short."""
    text = repr(value) if not isinstance(value, Function) else str(value)
    return text if len(text) <= 60 else text[:57] + "..."
