"""Reads a task file: YAML by a safe loader, with its includes merged, every field checked and every default filled in.

No code of a task file is run unless the user trusts it: ``!function module.name`` becomes a `Function`, which is only
a name and a folder. For a trusted file the code is loaded from the file's folder, else by an import.

The fields are in the order in which lm-evaluation-harness 0.4.13 dumps them; the last two are from its guide "Scoring &
Metrics".
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
from functools import partial
from hashlib import sha256
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import yaml

from calipers.errors import InputError, PluginError, UnknownName
from calipers.formats.source import opened, read_up_to

LARGEST: Final = 8 << 20  # bytes of a file
MAX_DEPTH: Final = 64  # of nested lists and mappings
MAX_SIZE: Final = 1 << 25  # values and characters, with every alias expanded
NEVER_INHERITED: Final = "task_list"
_FUNCTION: Final = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)+")


@dataclass(frozen=True, slots=True)
class Function:
    """``!function module.name`` in a task file: a reference to code that is not loaded yet."""

    module: str
    name: str
    folder: Path  # of the file that holds the tag

    def __str__(self) -> str:
        return f"!function {self.module}.{self.name}"


@dataclass(frozen=True, slots=True)
class TaskFile:
    """The content of a task file, with the location of each of its keys."""

    path: Path | None  # None for a task given inline
    values: Mapping[str, Any]
    lines: Mapping[str, str] = field(default_factory=dict)  # key -> path:line, in the file that contains the key

    def location(self, key: str = "") -> str:
        """The location of a key for an error message: ``task.yaml:3: metric_list``."""
        where = self.lines.get(key) or str(self.path or "inline task")
        return f"{where}: {key}" if key else where


def read_task_file(path: Path) -> TaskFile:
    """Read a file and merge its includes: first they, from left to right, then its own keys. Values are not merged.

    InputError for a file that is included twice, which lm-evaluation-harness refuses, too.
    """
    return with_includes(load_file(path), {path.resolve(): path})


def with_includes(file: TaskFile, reached: dict[Path, Path]) -> TaskFile:
    """A task file with its includes merged; ``reached`` maps every file read so far to the file that included it."""
    values: dict[str, Any] = {}
    lines: dict[str, str] = {}
    path = file.path or Path()
    for name in included(file):
        other = path.parent / name
        if not os.path.isfile(other):
            raise InputError.at(file.location("include"), f"no file {other}", "expected a path from this file's folder")
        if (real := other.resolve()) in reached:
            problem = f"{name} is included twice, also by {reached[real]}"
            expected = "expected each file once, and none that includes itself"
            raise InputError.at(file.location("include"), problem, expected)
        reached[real] = path
        inner = with_includes(load_file(other), reached)
        values |= {key: value for key, value in inner.values.items() if key != NEVER_INHERITED}
        lines |= inner.lines
    values |= {key: value for key, value in file.values.items() if key != "include"}
    return TaskFile(file.path, values, {**lines, **file.lines})


def included(file: TaskFile) -> list[str]:
    """The paths under ``include``, as they are written in the file."""
    include = file.values.get("include")
    names = [] if include is None else include if isinstance(include, list) else [include]
    if not all(isinstance(name, str) and name for name in names):
        raise InputError.at(file.location("include"), f"is {include!r}", "expected a path or a list of paths")
    return names


def load_file(path: Path) -> TaskFile:
    """Read one file without its includes."""
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
        expected = "expected a mapping: task: ..., dataset_path: ..."
        raise InputError.at(str(path), f"is a {type(values).__name__}", expected)
    keys = (key for key, _ in node.value) if isinstance(node, yaml.MappingNode) else ()
    lines = {str(key.value): f"{path}:{key.start_mark.line + 1}" for key in keys}
    return TaskFile(path, {str(key): value for key, value in values.items()}, lines)


def _measure(text: str, path: Path) -> None:
    """Refuse YAML that is too large once its aliases are expanded, without expanding them."""
    sizes: dict[str, int | None] = {}  # anchor -> size; None until its end is reached
    stack: list[tuple[str | None, int]] = []  # (anchor, size so far) of each open list or mapping
    for event in yaml.parse(text, Loader=SAFE_LOADER):
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
            if len(stack) > MAX_DEPTH:
                raise InputError.at(location, f"more than {MAX_DEPTH} levels deep", "expected a task file")
        elif isinstance(event, yaml.CollectionEndEvent):
            name, size = stack.pop()
            if name:
                sizes[name] = size
        if stack and size:
            outer, total = stack[-1][0], stack[-1][1] + size
            stack[-1] = outer, total
            if total > MAX_SIZE:
                raise InputError.at(location, "its aliases expand to more than the limit", "expected a task file")


SAFE_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the C version of the loader, if it is installed


class _Loader(SAFE_LOADER):  # type: ignore[misc]  # one of two classes, known only at run time
    folder: Path


def _function(loader: _Loader, node: yaml.Node) -> Function:
    text = node.value if isinstance(node, yaml.ScalarNode) else None
    if text is None or not _FUNCTION.fullmatch(text.strip()):
        problem = f"!function {text!r}" if text is not None else "!function of a list or mapping"
        raise yaml.constructor.ConstructorError(None, None, f"{problem}; expected module.name", node.start_mark)
    module, _, name = text.strip().rpartition(".")
    return Function(module, name, loader.folder)


_Loader.add_constructor("!function", _function)


def _syntax(path: Path, error: yaml.YAMLError) -> InputError:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or str(error).partition("\n")[0]
    return InputError.at(f"{path}:{mark.line + 1}" if mark else str(path), f"is not valid YAML ({problem})")


_loaded: dict[Path, ModuleType] = {}
_restorers: list[Callable[[], None]] = []  # each resets a generator of a module to its state after the import


class Trusted(dict[str, Any]):
    """A mapping from a trusted task file: code that it names may be loaded and run."""


def functions_in(value: Any) -> Iterator[Function]:
    """Every function in a nested value."""
    if isinstance(value, Function):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from functions_in(item)
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from functions_in(item)


def refuse_untrusted(value: Any, location: str) -> None:
    """InputError for a value that names a function, because the function is code that came with the data."""
    for function in functions_in(value):
        raise InputError.at(location, f"is {function}, code from the task", "read it first, then run it with --trust")


def with_functions(value: Any, location: str) -> Any:
    """The value with every function in it loaded; only for values from trusted files."""
    if isinstance(value, Function):
        return load_function(value, location)
    if isinstance(value, list):
        return [with_functions(item, location) for item in value]
    if isinstance(value, Mapping):
        return Trusted({key: with_functions(item, location) for key, item in value.items()})
    return value


def load_function(function: Function, location: str) -> Callable[..., Any]:
    """Load a trusted function; PluginError if it cannot be loaded."""
    try:
        module = _module(function)
    except (Exception, SystemExit) as error:  # the module may be a script that calls sys.exit
        raise PluginError(f"{location}: {function} cannot be loaded: {_reason(error)}") from error
    target: Callable[..., Any] | None = getattr(module, function.name, None)
    if target is None or not callable(target):
        raise PluginError(f"{location}: {function}: {module.__name__} has no function of that name")
    return target


def _reason(error: BaseException) -> str:
    name = getattr(error, "name", None) or ""
    for package, remedy in (
        ("lm_eval", "it works only where lm-evaluation-harness is installed"),
        ("datasets", "install calipers[hf]"),
    ):
        if isinstance(error, ImportError) and name.partition(".")[0] == package and not is_installed(package):
            return f"it imports {package}, which is not installed; {remedy}"
    return f"{type(error).__name__}: {error}"


def rewind() -> None:
    """Reset the random generators of tasks' modules to their states after the import.

    Several tasks may share a module, and the documents of a task must not depend on the tasks loaded before it.
    """
    for restore in _restorers:
        restore()


def is_installed(package: str) -> bool:
    """Whether a package is installed; it is not imported."""
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
        sys.modules[name] = module  # dataclasses and pickle look up a class by the name of its module
        try:
            with _importable_from(real.parent):  # a utils.py may import another file of its folder
                spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[name]
            raise
        _loaded[real] = module
        _restorers.extend(filter(None, map(_restorer, vars(module).values())))
    return _loaded[real]


@contextmanager
def _importable_from(folder: Path | None) -> Iterator[None]:
    """Import from a task's folder, too, but last, so that it hides no library; and not from the working directory."""
    before = sys.path.copy()
    sys.path[:] = [entry for entry in before if entry not in ("", ".")] + ([str(folder)] if folder else [])
    try:
        yield
    finally:
        sys.path[:] = before


def _restorer(value: Any) -> Callable[[], None] | None:
    """The function that resets one of Python's or numpy's random generators to its state now; None for other values."""
    if isinstance(value, random.Random):
        return None if isinstance(value, random.SystemRandom) else partial(value.setstate, value.getstate())
    numpy = sys.modules.get("numpy.random")
    if numpy is not None and isinstance(value, numpy.Generator):
        return partial(setattr, value.bit_generator, "state", value.bit_generator.state)
    if numpy is not None and isinstance(value, numpy.RandomState):
        return partial(value.set_state, value.get_state())
    return None


LETTERS: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


@dataclass(frozen=True, slots=True)
class PromptFormat:
    """The layout of a prompt. Texts may contain ``{{ }}`` with ``_num_choices`` and the lists of labels."""

    output_type: str = "multiple_choice"
    instruction: str | None = None
    question_prefix: str | None = "Question: "
    choice_labels: str | list[str] | None = "letters"  # letters, numbers, or a list; None if choices are not shown
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
    """A task's fields with its format expanded into templates; unchanged if it has no format."""
    formats = given.get("formats")
    if formats is None:
        if chosen:
            problem = f"the task has no formats, so none called {chosen!r}"
            raise InputError.at(location, problem, "remove the part after @")
        return dict(given)
    format = _selected_format(formats, location, chosen)
    choices_column = "choices" if format.output_type == "multiple_choice" or format.choice_labels is not None else None
    columns = {"doc_to_text": "question", "doc_to_choice": choices_column, "doc_to_target": "answer"}
    question, choices, answer = (
        _expression(given.get(name, column), f"{location}: {name}") for name, column in columns.items()
    )
    if choices is None and format.output_type == "multiple_choice":
        raise InputError.at(location, "a format with choices needs doc_to_choice", "expected a column with the choices")
    added = {"gen_prefix": format.gen_prefix, "scorer": format.scorer}
    return {
        **given,
        "doc_to_text": _text(format, question or "question", choices),
        "doc_to_target": _target(format, answer or "answer", choices),
        "doc_to_choice": _choices(format, choices),
        "output_type": format.output_type,
        "target_delimiter": format.target_delimiter,
        "fewshot_delimiter": format.fewshot_delimiter,
        **{key: value for key, value in added.items() if value is not None and given.get(key) is None},
    }


def _selected_format(formats: Any, location: str, chosen: str | None) -> PromptFormat:
    """The format given as ``mcqa``, ``{type: mcqa, ...}``, or by name in ``{mcqa: {...}, generate: {...}}``.

    Without a name (``chosen``) it is the first one.
    """
    if isinstance(formats, str):
        formats = {formats: None}
    if "type" in formats:
        formats = {str(formats["type"]): {key: value for key, value in formats.items() if key != "type"}}
    name = chosen or next(iter(formats), "")
    if name not in formats:
        raise UnknownName(f"{location}: {UnknownName.of('format of this task', name, list(map(str, formats)))}")
    if name not in FORMATS:
        raise UnknownName(f"{location}: {UnknownName.of('format', str(name), FORMATS)}")
    changes = formats[name] or {}
    if not isinstance(changes, Mapping):
        raise InputError.at(f"{location}.{name}", f"is {shown(changes)}", "expected a mapping")
    known = [field.name for field in fields(PromptFormat)]
    for key in changes:
        if key not in known:
            raise UnknownName(f"{location}.{name}: {UnknownName.of('field of a format', str(key), known)}")
    return replace(FORMATS[name], **changes)


def _expression(value: Any, location: str) -> str | None:
    """A column, template, list or integer as a template expression; None for None."""
    if value is None:
        return None
    if isinstance(value, Function) or callable(value):
        raise InputError.at(location, "a format cannot be combined with a function", "expected a column or a template")
    if isinstance(value, str) and "{{" in value:
        expression = value.replace("{{", "").replace("}}", "").strip()
        return expression if expression.isidentifier() else f"({expression})"
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
    body = f"{format.instruction or ''}{format.question_prefix or ''}{{{{{question}}}}}"
    if format.choice_labels and choices:
        body += (
            f"{format.section_separator}{{% for choice in {choices} %}}{{{{ {_label(format, 'loop.index0')} }}}}. "
            f"{{{{ choice }}}}{{% if not loop.last %}}{format.choice_delimiter}{{% endif %}}{{% endfor %}}"
        )
    body += f"{format.section_separator}{format.answer_instruction or ''}{format.answer_prompt}"
    names = ("_num_choices", "_choice_labels", "_choice_list_and", "_choice_list_or")
    if not (format.choice_labels and choices and any(name in body for name in names)):
        return body
    last = "_choice_labels[:-1]|join(', ') ~ ' {} ' ~ _choice_labels[-1]|string"
    values = (f"{choices}|length", _labels(format, choices), last.format("and"), last.format("or"))
    return "".join(f"{{% set {name} = {value} %}}" for name, value in zip(names, values, strict=True)) + body


def _target(format: PromptFormat, answer: str, choices: str | None) -> str:
    """The template of the target: the index of the correct choice, its label, or its text."""
    unchanged = f"{{{{ {answer} }}}}"
    if format.output_type == "multiple_choice":
        if_number, if_text = unchanged, f"{{{{ {choices}.index({answer}) }}}}"
    elif format.choice_labels:
        if_number, if_text = f"{{{{ {_label(format, answer)} }}}}", unchanged
    elif choices:
        if_number, if_text = f"{{{{ {choices}[{answer}] }}}}", unchanged
    else:
        return unchanged
    return f"{{% if {answer} is number %}}{if_number}{{% else %}}{if_text}{{% endif %}}"


def _choices(format: PromptFormat, choices: str | None) -> str | None:
    """The template of the choices to score: their labels, or their texts without labels; None for generated text."""
    if choices is None or format.output_type == "generate_until":
        return None
    return f"{{{{ {_labels(format, choices) if format.choice_labels else choices} }}}}"


OUTPUT_TYPES: Final = ("generate_until", "multiple_choice", "loglikelihood", "loglikelihood_rolling")
SAMPLERS: Final = ("default", "first_n")
GREEDY: Final = {"temperature": 0.0, "do_sample": False, "max_gen_toks": 256}  # the default generation_kwargs

Code = Any
"""A `Function`, or the loaded function if the task is trusted."""


def values_of(record: FewShot | TaskFields) -> dict[str, Any]:
    """The fields of a record by name, not copied."""
    return {each.name: getattr(record, each.name) for each in fields(record)}


@dataclass(frozen=True, slots=True)
class FewShot:
    """The selection and the layout of few-shot examples; fields that are not given are the task's."""

    sampler: str | Code = "default"
    split: str | None = None
    process_docs: Code | None = None
    fewshot_indices: Sequence[int] | None = None  # accepted and ignored, as in 0.4.13
    samples: Sequence[Mapping[str, Any]] | Code | None = None
    doc_to_text: Any = None
    doc_to_choice: Any = None
    doc_to_target: Any = None
    gen_prefix: str | None = None
    fewshot_delimiter: str = "\n\n"
    target_delimiter: str = " "


@dataclass(frozen=True, slots=True)
class TaskFields:
    """The fields of a task of lm-evaluation-harness; None for a field that is not given."""

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
        """The split to evaluate: test, else validation."""
        return self.test_split or self.validation_split

    @property
    def version(self) -> Any:
        """The task's version; "Yaml", as in lm-evaluation-harness, if it has none."""
        return (self.metadata or {}).get("version", "Yaml")

    def dumped(self) -> dict[str, Any]:
        """Every field that is given, as lm-evaluation-harness dumps it; ``fewshot_config`` with all of its fields."""
        values = {**values_of(self), "fewshot_config": values_of(self.fewshot_config)}
        return {name: value for name, value in values.items() if value is not None}


NAMES: Final = tuple(each.name for each in fields(TaskFields))
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
_LIMITS: Final = {"num_fewshot": (0, 1_000_000), "repeats": (1, 1_000_000)}  # more examples or repeats fill the memory
_NEVER_NULL: Final = (
    "output_type",
    "repeats",
    "description",
    "target_delimiter",
    "unsafe_code",
    "should_decontaminate",
)


def task_config(file: TaskFile, chosen_format: str | None = None) -> TaskFields:
    """The configuration in a task file; InputError, with file, line and key, for a field that is not valid.

    ``chosen_format`` selects one of the task's ``formats``: it is the part after ``@`` in ``task@format``.
    """
    for key in file.values:
        if key not in NAMES:
            raise UnknownName(f"{file.location(key)}: {UnknownName.of('field of a task', key, NAMES)}")
    given = {key: deepcopy(value) for key, value in file.values.items() if value is not None or key not in _NEVER_NULL}
    for key, value in given.items():
        if key == "dataset_name" and value is not None and not isinstance(value, (str, Mapping, list)):
            given[key] = value = str(value)  # YAML reads 2024-01-01 as a date
        _check(file.location(key), key, value)
    given = with_format(given, file.location("formats"), chosen_format)
    if given.get("output_type", OUTPUT_TYPES[0]) not in OUTPUT_TYPES:
        known = UnknownName.of("output_type", str(given["output_type"]), OUTPUT_TYPES)
        raise UnknownName(f"{file.location('output_type')}: {known}")
    _check_metrics(file.location("metric_list"), given.get("metric_list"))
    _check_pipelines(file.location("filter_list"), given.get("filter_list"))
    given["generation_kwargs"] = _generation(file.location("generation_kwargs"), given)
    given["fewshot_config"] = _few_shot(file.location("fewshot_config"), given)
    return TaskFields(**given)


def _check(location: str, key: str, value: Any) -> None:
    kinds = _TYPES.get(key)
    if value is None or kinds is None or callable(value):
        return
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
        raise InputError.at(location, f"is {shown(value)}", f"expected {' or '.join(_WORDS[kind] for kind in kinds)}")
    if key in _LIMITS and isinstance(value, int):
        least, most = _LIMITS[key]
        if not least <= value <= most:
            expected = f"an integer >= {least}" if value < least else f"at most {most:,}"
            raise InputError.at(location, f"is {shown(value)}", f"expected {expected}")


def _check_metrics(location: str, metrics: Any) -> None:
    for number, entry in enumerate(metrics or ()):
        if not isinstance(entry, Mapping) or not _is_name(entry.get("metric")):
            expected = "expected a mapping with metric: NAME"
            raise InputError.at(f"{location}[{number}]", f"is {shown(entry)}", expected)


def _check_pipelines(location: str, pipelines: Any) -> None:
    for number, pipeline in enumerate(pipelines or ()):
        where = f"{location}[{number}]"
        if not isinstance(pipeline, Mapping) or not isinstance(pipeline.get("name"), str):
            raise InputError.at(where, f"is {shown(pipeline)}", "expected a mapping with name: and filter:")
        steps = pipeline.get("filter")
        if not isinstance(steps, list):
            raise InputError.at(f"{where}.filter", f"is {shown(steps)}", "expected a list of steps")
        for index, step in enumerate(steps):
            if not isinstance(step, Mapping) or not _is_name(step.get("function")):
                expected = "expected a mapping with function: NAME"
                raise InputError.at(f"{where}.filter[{index}]", f"is {shown(step)}", expected)
        if not isinstance(pipeline.get("metric_list", []), list):
            raise InputError.at(f"{where}.metric_list", f"is {shown(pipeline['metric_list'])}", "expected a list")
        _check_metrics(f"{where}.metric_list", pipeline.get("metric_list"))


def _is_name(value: Any) -> bool:
    return (isinstance(value, str) and bool(value)) or isinstance(value, Function) or callable(value)


def _generation(location: str, given: Mapping[str, Any]) -> dict[str, Any] | None:
    """The generation settings with lm-evaluation-harness' defaults; greedy if the task gives none."""
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
            problem = f"is {shown(kwargs['temperature'])}"
            raise InputError.at(f"{location}.temperature", problem, "expected a number >= 0")
    completed.setdefault("until", until)
    return completed


def _few_shot(location: str, given: Mapping[str, Any]) -> FewShot:
    shots: Mapping[str, Any] = given.get("fewshot_config") or {}
    known = tuple(each.name for each in fields(FewShot))
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
    """The repr of a value for an error message, shortened."""
    text = repr(value) if not isinstance(value, Function) else str(value)
    return text if len(text) <= 60 else text[:57] + "..."
