"""All names in one file: metrics, formats, dialects, verifiers and more. An object is loaded when its name is used."""

from __future__ import annotations

import importlib
import os
import re
import sys
from collections.abc import Collection, Mapping
from contextlib import nullcontext
from types import CodeType, ModuleType
from typing import TYPE_CHECKING, Any, Final

from calipers.errors import InputError, PluginError, UnknownName

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

OF_RANGE: Final = "of-range"
"""The mean over benchmarks in which each value is a share of the range of its benchmark."""


class Index:
    """Names of one kind: built in, added at run time, or added by installed packages.

    ``entries`` map a name, or a family such as ``pass@{k}``, to ``module:object``. ``groups`` are the
    entry-point groups that are searched after them. A group may have a context manager, named as
    ``module:object``: its entry points are loaded inside it, and the decorators in them add the names.
    """

    def __init__(self, kind: str, entries: Mapping[str, str], groups: Mapping[str, str] | None = None) -> None:
        self.kind = kind
        self.entries = entries
        self.added: dict[str, Any] = {}
        self._groups = groups or {}
        self._broken: dict[str, PluginError] = {}  # entry point -> why it could not be loaded

    def match(self, name: str) -> tuple[str, int | None] | None:
        """The built-in entry that a name belongs to, and its k; an exact name takes precedence over a family."""
        return match(name, self.entries)

    def load(self, entry: str) -> Any:
        """The object behind a built-in entry."""
        return load(self.entries[entry])

    def add(self, name: str, thing: Any) -> None:
        """Add a name at run time. A name of another object is an error; adding the same object again is not."""
        present = self.added.get(name)
        if present is not None and present is not thing:
            raise PluginError(f"{self.kind} {name!r} is already taken; rename one of the two")
        self.added[name] = thing

    def define(self, name: str, thing: Any) -> None:
        """Like `add`, but replaces an object that the same code defined before, as when a notebook cell runs again."""
        present = self.added.get(name)
        if present is not None and _defined_at(present) == _defined_at(thing):
            self.discard(name)
        self.add(name, thing)

    def discard(self, name: str) -> None:
        """Remove a name that was added at run time; a name that was not added is ignored."""
        self.added.pop(name, None)

    def plugin(self, name: str) -> Any | None:
        """The object of a name that was added at run time or by an installed package; None if there is none.

        Entry points with this name are loaded first. If decorators add the names of a group, the whole group
        is loaded before the search ends. An entry point that cannot be loaded does not fail the search;
        `unknown` mentions it.
        """
        if match(name, self.added) is None:
            self._ask_packages(name)
        entry = match(name, self.added)
        return self.added[entry[0]] if entry else None

    def load_packages(self) -> list[PluginError]:
        """Load every package that adds names with decorators, and return the errors."""
        return [error for point in self._points() if self._groups[point.group] and (error := self._try(point))]

    def plugins(self) -> list[str]:
        """The names that are not built in, sorted; packages give theirs by entry-point name."""
        return sorted({*self.added, *(point.name for point in self._points())})

    def names(self) -> list[str]:
        """All names, sorted; families as ``pass@{k}``."""
        return sorted({*self.entries, *self.plugins()})

    def unknown(self, name: str, known: Collection[str] = (), hint: str = "", of: str = "") -> UnknownName:
        """The error for an unknown name, with the nearest of the known names, by default of all names.

        ``of`` is the system that the names belong to, as in ``no evsys metric named 'pass@5'``.
        """
        if not hint and name in self.entries:
            hint = f"give it a number, as in {name.replace('{k}', '3')!r}"
        error = UnknownName.of(f"{of} {self.kind}".strip(), name, known or self.names(), hint)
        broken = "; ".join(map(str, self._broken.values()))
        return UnknownName(f"{error} ({broken})") if broken else error

    def _ask_packages(self, name: str) -> None:
        points = self._points()
        entry = match(name, [point.name for point in points])
        point = self._only([point for point in points if entry and point.name == entry[0]])
        thing = self._load(point) if point else None
        if point is None or self._groups[point.group]:
            for candidate in points:
                if match(name, self.added):
                    return
                if self._groups[candidate.group] and candidate is not point:
                    self._try(candidate)
        if point and match(name, self.added) is None:
            self.add(point.name, thing)

    def _points(self) -> list[EntryPoint]:
        installed = _installed()
        by_group = (sorted(installed.select(group=group), key=_package) for group in self._groups)
        return [point for points in by_group for point in points]

    def _only(self, points: list[EntryPoint]) -> EntryPoint | None:
        """The entry point of a name: the first of its package; two packages may not share a name."""
        first: dict[str, EntryPoint] = {}
        for point in points:
            first.setdefault(_package(point), point)
        if len({point.value for point in first.values()}) > 1:
            sources = " and ".join(f"{package} ({point.value})" for package, point in sorted(first.items()))
            raise PluginError(f"{self.kind} {points[0].name!r} is added by {sources}; uninstall all but one")
        return next(iter(first.values()), None)

    def _load(self, point: EntryPoint) -> Any:
        context = self._groups[point.group]
        try:
            with load(context)() if context else nullcontext():
                return point.load()
        except (Exception, SystemExit) as error:  # a module may also be a script that ends itself
            source = f"{self.kind} {point.name!r} of package {_package(point)} ({point.value})"
            raise PluginError(f"{source} cannot be loaded: {type(error).__name__}: {error}") from error

    def _try(self, point: EntryPoint) -> PluginError | None:
        key = f"{point.group}:{point.name}"
        self._broken.pop(key, None)
        try:
            self._load(point)
        except PluginError as error:
            self._broken[key] = error
            return error
        return None


def match(name: str, entries: Collection[str]) -> tuple[str, int | None] | None:
    """The entry that a name belongs to, and its k; an exact name takes precedence over a family.

    >>> match("pass@3", ["pass@{k}", "pass_rate"])
    ('pass@{k}', 3)
    """
    if name in entries and "{k}" not in name:
        return name, None
    for entry in entries:
        head, family, tail = entry.partition("{k}")
        if family and (digits := re.fullmatch(f"{re.escape(head)}([0-9]{{1,9}}){re.escape(tail)}", name)):
            return entry, int(digits[1])
    return None


def load(target: str) -> Any:
    """The object that ``module:object`` names."""
    module, _, attribute = target.partition(":")
    return getattr(importlib.import_module(module), attribute)


def _defined_at(thing: Any) -> tuple[str, str]:
    return getattr(thing, "__module__", ""), getattr(thing, "__qualname__", repr(thing))


_ADDRESS = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*://")
_CODE = re.compile(r"(?P<file>.+\.py):(?P<object>[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)", re.DOTALL)


def is_code(name: str) -> bool:
    """Whether a name is ``FILE.py:OBJECT``, an object in a Python file of the user, such as ``my.py:grade``."""
    return _CODE.fullmatch(name) is not None


def is_remote(path: object) -> bool:
    """Whether a path is the address of an object in a store.

    >>> is_remote("s3://bucket/run.jsonl"), is_remote("run.jsonl"), is_remote("s3")
    (True, False, False)
    """
    return isinstance(path, str) and _ADDRESS.match(path) is not None and not os.path.exists(path)


def load_code(name: str) -> Any:
    """The object that ``FILE.py:OBJECT`` names; the file is run once, and again if its content changed.

    Call it only for names that the user wrote, never for names in data: the file is trusted code. InputError if the
    file or the object does not exist, PluginError with the line if the file fails.
    """
    parts = _CODE.fullmatch(name)
    if parts is None:
        raise InputError.at(repr(name), "is not an object in a file", "expected FILE.py:OBJECT")
    target: Any = _module(parts["file"])
    known = [key for key in vars(target) if not key.startswith("_")]
    for part in parts["object"].split("."):
        if not hasattr(target, part):
            raise UnknownName(f"{parts['file']}: {UnknownName.of('object', parts['object'], known)}")
        target = getattr(target, part)
    return target


def code_file(name: str) -> str:
    """The file of ``FILE.py:OBJECT``."""
    return name.rpartition(":")[0]


def compiled_file(file: str, expected: str) -> tuple[bytes, CodeType]:
    """The bytes and the code of a Python file; InputError, with ``expected``, if it is not one."""
    try:
        with open(file, "rb") as stream:
            source = stream.read()
        return source, compile(source, file, "exec", dont_inherit=True)  # not our own __future__ imports
    except OSError as error:
        raise InputError.at(file, error.strerror or "cannot be read", expected) from None
    except SyntaxError as error:
        raise InputError.at(f"{file}:{error.lineno or 1}", f"it is not valid Python: {error.msg}", expected) from None
    except ValueError as error:  # null bytes
        raise InputError.at(file, f"it is not valid Python: {error}", expected) from None


def _module(file: str) -> ModuleType:
    """Run a file as a module that cannot be imported by name; the same content is run only once."""
    from hashlib import sha256  # not needed until a file is named

    source, code = compiled_file(file, "expected a Python file, as FILE.py:OBJECT")
    name = f"calipers_code_{sha256(os.path.abspath(file).encode(errors='surrogateescape') + source).hexdigest()[:16]}"
    if name in sys.modules:
        return sys.modules[name]
    module = ModuleType(name)
    module.__file__ = file
    sys.modules[name] = module  # dataclasses and pickle look their module up there
    try:
        exec(code, vars(module))
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise PluginError(": ".join(failure_of(file, error))) from error
    return module


def failure_of(file: str, error: BaseException) -> tuple[str, str]:
    """The place of an error in a user's file, as ``FILE:LINE`` of the innermost frame, and its type and message."""
    import traceback  # not needed until code fails

    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    message = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return f"{file}:{frames[-1].lineno}" if frames else file, message


def _installed() -> Any:
    """The entry points of all installed packages; read again when a folder of packages has changed."""
    from importlib.metadata import entry_points

    folders = tuple((folder, _changed(folder)) for folder in sys.path)
    if folders not in _POINTS:
        _POINTS.clear()
        _POINTS[folders] = entry_points()
    return _POINTS[folders]


# (folder, modification time) of all of sys.path -> entry points; at most one entry. The type differs among Pythons.
_POINTS: dict[tuple[tuple[str, int], ...], Any] = {}


def _changed(folder: str) -> int:
    """The modification time of a folder in nanoseconds; 0 if there is no such folder."""
    try:
        return os.stat(folder or ".").st_mtime_ns
    except OSError:
        return 0


def _package(point: EntryPoint) -> str:
    return point.dist.name if point.dist else "an unnamed package"


METRICS = Index(
    "metric",
    {
        "mean_reward": "calipers.metrics.rewards:MEAN_REWARD",
        "pass_rate": "calipers.metrics.rewards:PASS_RATE",
        "solved_rate": "calipers.metrics.rewards:SOLVED_RATE",
        "pass@{k}": "calipers.metrics.rewards:PASS_AT_K",
        "pass^{k}": "calipers.metrics.rewards:PASS_HAT_K",
        "any_of_first_{k}": "calipers.metrics.rewards:ANY_OF_FIRST_K",
        "all_of_first_{k}": "calipers.metrics.rewards:ALL_OF_FIRST_K",
        "max@{k}": "calipers.metrics.rewards:MAX_AT_K",
        "maj@{k}": "calipers.metrics.votes:MAJ_AT_K",
        "gpass@{k}": "calipers.metrics.rewards:GPASS_AT_K",
        "mgpass@{k}": "calipers.metrics.rewards:MGPASS_AT_K",
        "bootstrap_best@{k}": "calipers.systems.verl:BOOTSTRAP_BEST_AT_K",
        "bayes_mean": "calipers.metrics.rewards:BAYES_MEAN",
        "bayes_pass@{k}": "calipers.metrics.rewards:BAYES_PASS_AT_K",
        "pooled_mean": "calipers.systems.harbor.metrics:POOLED_MEAN",
        "pooled_sum": "calipers.systems.harbor.metrics:POOLED_SUM",
        "pooled_min": "calipers.systems.harbor.metrics:POOLED_MIN",
        "pooled_max": "calipers.systems.harbor.metrics:POOLED_MAX",
        "mean": "calipers.metrics.columns:MEAN",
        "median": "calipers.metrics.columns:MEDIAN",
        "min": "calipers.metrics.columns:MIN",
        "max": "calipers.metrics.columns:MAX",
        "sum": "calipers.metrics.columns:SUM",
        "std": "calipers.metrics.columns:STD",
        "percentile": "calipers.metrics.columns:PERCENTILE",
        "time_per_task": "calipers.metrics.columns:TIME_PER_TASK",
        "tokens_per_task": "calipers.metrics.columns:TOKENS_PER_TASK",
        "cost_per_task": "calipers.metrics.columns:COST_PER_TASK",
        "total_cost_per_task": "calipers.metrics.columns:TOTAL_COST_PER_TASK",
        "cost_per_solved": "calipers.metrics.columns:COST_PER_SOLVED",
        "time_per_solved": "calipers.metrics.columns:TIME_PER_SOLVED",
        "latency_p50": "calipers.metrics.columns:LATENCY_P50",
        "latency_p90": "calipers.metrics.columns:LATENCY_P90",
        "latency_p99": "calipers.metrics.columns:LATENCY_P99",
    },
    groups={"calipers.metrics": "", "evsys_sdk.metrics": "calipers.compat:borrowing"},
)

FORMATS = Index(
    "format",
    {
        "native": "calipers.formats.jsonl:NATIVE",
        "jsonl": "calipers.formats.jsonl:JSONL",
        "evsys_predictions": "calipers.systems.evsys.predictions:PREDICTIONS",
        "json_array": "calipers.formats.jsonl:RECORDS",
        "evsys_rewards": "calipers.formats.rewards:REWARDS",
        "csv": "calipers.formats.tables:CSV",
        "parquet": "calipers.formats.tables:PARQUET",
        "nemo_gym": "calipers.systems.nemo_gym.read:ROLLOUTS",
        "lm_eval_samples": "calipers.systems.lm_eval.read:SAMPLES",
        "lm_eval_results": "calipers.systems.lm_eval.read:RESULTS",
        "run": "calipers.formats.run_folder:RUN",
        "harbor": "calipers.systems.harbor.read:JOB",
        "inspect": "calipers.systems.inspect:LOG",
        "partial": "calipers.formats.partial:PARTIAL",
        "verl": "calipers.systems.verl:ROLLOUTS",
        "trl": "calipers.systems.trl:COMPLETIONS",
        "verifiers": "calipers.systems.verifiers_rl:TRACES",
        "verifiers_v0": "calipers.systems.verifiers_rl:RESULTS",
        "skyrl": "calipers.systems.skyrl:ROLLOUTS",
        "nemo_rl": "calipers.systems.nemo_rl:ROLLOUTS",
        "open_instruct": "calipers.systems.open_instruct:ROLLOUTS",
        "tinker_eval": "calipers.systems.tinker:EVALUATED",
        "tinker_rl": "calipers.systems.tinker:SUMMARISED",
        "promptfoo": "calipers.systems.promptfoo:RESULTS",
        "openai_evals": "calipers.systems.openai_evals:LOG",
        "every_eval_ever": "calipers.systems.every_eval_ever:SAMPLES",
    },
)

DOCUMENTS = {
    "calipers.result/1": "calipers.reports.result:Result",
    "calipers.comparison/1": "calipers.analyses.compare:Comparison",
    "calipers.curves/1": "calipers.analyses.curve:Curves",
    "calipers.gate/1": "calipers.analyses.gate:Gate",
    "calipers.items/1": "calipers.analyses.items:ItemReport",
    "calipers.judge_check/1": "calipers.analyses.judge_check:JudgeCheck",
    "calipers.leaderboard/1": "calipers.analyses.leaderboard:Leaderboard",
    "calipers.matrix/1": "calipers.analyses.matrix.document:Matrix",
    "calipers.plan/1": "calipers.analyses.plan_study:Study",
    "calipers.rescored/1": "calipers.analyses.rescore:Rescored",
    "calipers.watch/1": "calipers.analyses.watch.document:Watched",
    "calipers.best_step/1": "calipers.analyses.watch.best:BestSteps",
}
"""The schema of a document -> the class of the report in it."""

FILE_SIGNS = {
    "trl": rb"\APAR1",
    "parquet": rb"\APAR1",
    "partial": rb"\APK(?s:.{28})calipers-partial",
    "inspect": rb'\APK|\A(?:\xef\xbb\xbf)?\s*\{\s*"version"',
    "lm_eval_results": rb'\A(?:\xef\xbb\xbf)?\s*\{\s*"results"',
    "promptfoo": rb'\A(?:\xef\xbb\xbf)?\s*\{\s*"evalId"|\A[^\n]*,Status,Score,Named Scores,',
    "every_eval_ever": rb'\A(?:\xef\xbb\xbf)?\s*\{\s*"schema_version"',
}
"""Formats that are recognised by a file's first bytes, in this order; other formats are not loaded."""

ROW_SIGNS = {
    "openai_evals": rb'"completion_fns"|"event_id"',
    "every_eval_ever": rb'"evaluation_id"',
    "verifiers": rb'"traces"',
    "promptfoo": rb'"testIdx"',
    "tinker_rl": rb'"traj_idx"',
    "tinker_eval": rb'"benchmark"',
    "skyrl": rb'"input_prompt"',
    "open_instruct": rb'"prompt_tokens"',
    "nemo_rl": rb'"rewards"',
    "verifiers_v0": rb'"example_id"',
    "verl": rb'"input"',
}
"""Systems whose rows are recognised by the first line; a file that two of them recognise is refused."""

LINE_SIGNS = {
    "json_array": rb"\A\[",
    "evsys_rewards": rb"\A\[",
    "nemo_gym": rb'"_ng_(?:task|rollout)_index"',
    "evsys_predictions": rb'"task_id"',
    "lm_eval_samples": rb'"doc_id"',
    "jsonl": rb"",
    "native": rb"",
}
"""Formats of JSON that are recognised by the first line, in this order."""

FOLDER_FORMATS = ("harbor", "lm_eval_results")
"""Formats that a directory may have, in the order in which they are tried."""

TASK_LIBRARY = "calipers.systems.lm_eval.report:LIBRARY"
"""The library of tasks of another system, see `running.library`."""

TASK_LIBRARY_NAME = "lm_eval"
"""The package of the task library, and its key in a suite's metadata and a run's plan."""

DOCUMENT_TABLES = "calipers.systems.lm_eval.comparison:TABLES"
"""Comparison of numbers that are computed from all documents of a task, see `analyses.compare.source`."""

METRIC_SCRIPTS = "calipers.systems.harbor.metric_script:requested_scripts"
"""The function that finds the metric scripts to run after the metrics."""

RUN_SECTION = "calipers.systems.evsys.config:runs"
"""The reader of another system's section in a run's configuration, see `running.settings`."""

BENCHMARK_ENGINE = "calipers.systems.harbor.trials.via_harbor:harvest"
"""The function that runs a benchmark's tasks as agents' trials."""

BENCHMARK_CACHES = ("calipers.systems.evsys.cache:cached",)
"""Caches of other systems that are searched for a benchmark after our own store."""

LENT = {
    "evsys_sdk": {
        "evsys_sdk": "calipers.systems.evsys",
        "evsys_sdk.benchmark": "calipers.systems.evsys.benchmark",
        "evsys_sdk.benchmark_run": "calipers.systems.evsys.benchmark:run_benchmark",
        "evsys_sdk.data_types": (
            "calipers.systems.evsys.lent:ChatMessagesRow E2BVerifier HarborTask InProcessVerifier LLMJudgeVerifier "
            "PromptExample TargetFormat VerifierPayload block_to_image_src chat_messages_row_from_dict detect_format "
            "from_dict harbor_task_from_dict has_images image_base64_block image_url_block iter_jsonl parse_rows "
            "prompt_example_from_dict text_block to_dict"
        ),
        "evsys_sdk.inference": (
            "calipers.systems.evsys.lent:ChatTemplatedInference MockInference MockInferenceConfig get_inference "
            "list_inference list_inferences register_inference"
        ),
        "evsys_sdk.inference.chat_templated": "calipers.systems.evsys.lent:ChatTemplatedInference",
        "evsys_sdk.inference.mock": "calipers.systems.evsys.lent:MockInference MockInferenceConfig",
        "evsys_sdk.metrics": "",
        "evsys_sdk.metrics.basic": "calipers.systems.evsys.metrics",
        "evsys_sdk.protocols": "calipers.systems.evsys.lent:InferenceClient Metric VerificationResult Verifier",
        "evsys_sdk.registry": (
            "calipers.systems.evsys.lent:Registry get_metric get_verifier list_metrics list_verifiers register_metric "
            "register_verifier schema_for get_inference list_inference list_inferences register_inference"
        ),
        "evsys_sdk.training": "calipers.systems.evsys.benchmark:Trajectory TrajectoryGroup Turn",
        "evsys_sdk.training.evaluators": "calipers.systems.evsys.evaluators",
        "evsys_sdk.training.harbor_engine": "calipers.systems.evsys.benchmark:run_harbor_rollouts",
        "evsys_sdk.training.harbor_eval": (
            "calipers.systems.evsys.benchmark:eval_metrics eval_predictions score_via_harbor upload_eval_rollouts"
        ),
        "evsys_sdk.training.trajectory": "calipers.systems.evsys.benchmark:Trajectory TrajectoryGroup Turn",
        "evsys_sdk.verifiers": (
            "calipers.systems.evsys.lent:FormatOnly FormatOnlyConfig FormatOnlyVerifier VerificationResult "
            "Verifier get_verifier list_verifiers register_verifier"
        ),
        "evsys_sdk.verifiers.fns": "calipers.verifiers.user_code",
        "evsys_sdk.verifiers.format_only": "calipers.systems.evsys.lent:FormatOnlyConfig FormatOnlyVerifier",
    },
    "nemo_gym": {
        "nemo_gym": "calipers.systems.nemo_gym.lent",
        "nemo_gym.base_resources_server": "calipers.systems.nemo_gym.lent.base_resources_server",
        "nemo_gym.config_types": "calipers.systems.nemo_gym.lent.models",
        "nemo_gym.global_config": (
            "calipers.systems.nemo_gym.lent.models:"
            "AGENT_REF_KEY_NAME NEMO_GYM_CONFIG_DICT_ENV_VAR_NAME NEMO_GYM_CONFIG_PATH_ENV_VAR_NAME "
            "RESPONSES_CREATE_PARAMS_KEY_NAME RESPONSE_KEY_NAME ROLLOUT_INDEX_KEY_NAME TASK_INDEX_KEY_NAME "
            "ServerSettings get_first_server_config_dict get_global_config_dict maybe_get_global_config_dict"
        ),
        "nemo_gym.judge": (
            "calipers.systems.nemo_gym.lent.base_resources_server:"
            "JudgeError call_judge judge_failsafe reraise_judge_errors"
        ),
        "nemo_gym.openai_utils": (
            "calipers.systems.nemo_gym.lent.models:"
            "NeMoGymAsyncOpenAI NeMoGymChatCompletion NeMoGymChatCompletionCreateParamsNonStreaming "
            "NeMoGymChatCompletionMessage NeMoGymChatCompletionMessageToolCall NeMoGymChoice NeMoGymContent "
            "NeMoGymEasyInputMessage NeMoGymFunction NeMoGymFunctionCallOutput NeMoGymMessage "
            "NeMoGymResponse NeMoGymResponseCreateParamsNonStreaming NeMoGymResponseFunctionToolCall "
            "NeMoGymResponseInput NeMoGymResponseInputItem NeMoGymResponseInputTokensDetails "
            "NeMoGymResponseOutputItem NeMoGymResponseOutputMessage NeMoGymResponseOutputRefusal "
            "NeMoGymResponseOutputText NeMoGymResponseOutputTokensDetails NeMoGymResponseReasoningItem "
            "NeMoGymResponseUsage NeMoGymSummary RATE_LIMIT_ERROR_CODES RETRY_ERROR_CODES"
        ),
        "nemo_gym.prompt": (
            "calipers.systems.nemo_gym.lent.models:PromptConfig apply_prompt_to_row fill_prompt load_prompt_config"
        ),
        "nemo_gym.reward_profile": "calipers.systems.nemo_gym.lent.reward_profile",
        "nemo_gym.rollout_correlation": (
            "calipers.systems.nemo_gym.lent.base_resources_server:"
            "RolloutContextMiddleware current_rollout_id rollout_context"
        ),
        "nemo_gym.server_utils": "calipers.systems.nemo_gym.lent.server_utils",
    },
}
"""Packages of other systems that Calipers replaces if they are not installed: each module, and the source of its names.

The names of a module follow a colon; without a colon it has all names of its source's ``__all__``.
"""

LENT_REGISTRIES = {
    "metric": "calipers.systems.evsys.lent:METRIC_REGISTRY",
    "verifier": "calipers.systems.evsys.lent:VERIFIER_REGISTRY",
}
"""The lent registry in which user code registers its objects, by the kind of index."""

COMPANION_SIGNS = {"nemo_gym": r"_(?:failures|materialized_inputs)\.jsonl\Z"}
"""Patterns of companion files, which are read with their main file, for when a companion is given as the input."""

DIALECTS = Index(
    "dialect",
    {
        "native": "calipers.request:NATIVE",
        "evsys": "calipers.systems.evsys.metrics:EVSYS",
        "nemo_gym": "calipers.systems.nemo_gym.read:NEMO_GYM",
        "lm_eval": "calipers.systems.lm_eval.read:LM_EVAL",
        "harbor": "calipers.systems.harbor.job_result:HARBOR",
    },
)

SYSTEMS = Index(
    "system",
    {
        "evsys": "calipers.systems.evsys:SYSTEM",
        "nemo_gym": "calipers.systems.nemo_gym:SYSTEM",
        "lm_eval": "calipers.systems.lm_eval:SYSTEM",
        "harbor": "calipers.systems.harbor:SYSTEM",
    },
)
"""The other systems, by the name of their dialect."""

EXPORTS = Index(
    "system to export to",
    {
        "every_eval_ever": "calipers.systems.every_eval_ever:EveryEvalEver",
        "hf": "calipers.systems.hugging_face:ModelCard",
        "inspect": "calipers.systems.inspect.write:InspectLogs",
        "mlflow": "calipers.systems.trackers:MLFLOW",
        "wandb": "calipers.systems.trackers:WANDB",
        "trackio": "calipers.systems.trackers:TRACKIO",
    },
)
"""Systems that a result can be written for, whatever its dialect, see `systems.ExportRequest`."""

ALARM_TRACKERS = Index(
    "tracker",
    {
        "wandb": "calipers.systems.trackers:WANDB_ALARMS",
        "mlflow": "calipers.systems.trackers:MLFLOW_ALARMS",
        "tensorboard": "calipers.systems.trackers:TENSORBOARD_ALARMS",
    },
)
"""Trackers of experiments that get the alarms of a watch, see `analyses.watch.document`."""


ENGINES = {"ray": "calipers.engines.rollouts:remote"}
"""Engines that can make the requests and verdicts of a run outside this process, see `running.perform`."""


def engine_of(origin: str, given: str | None) -> tuple[str, str] | None:
    """The engine of a run: its name in ENGINES and its address; None for this process.

    >>> engine_of("--engine", "ray=10.0.0.1:6379"), engine_of("--engine", "local")
    (('ray', '10.0.0.1:6379'), None)
    """
    name, _, address = (given or "local").partition("=")
    if name == "local":
        if address:
            raise InputError.at(origin, "local has no address", "expected local, or ray=ADDRESS")
        return None
    if name not in ENGINES:
        raise InputError.at(origin, str(UnknownName.of("engine", name, ["local", *ENGINES])))
    return name, address


PART_ENGINES = {"ray": "calipers.engines.parts:score_parts"}
"""Engines that can read the files of a score, see `cli.score`."""

BENCHES = {"ray": "calipers.engines.rollouts:remote_bench"}
"""Engines that can verify stored completions, see `analyses.rescore`."""

AGENT_RUNS = "calipers.systems.harbor.trials.run:AGENT_RUNS"
"""The object that runs agents on tasks, see `cli.run`."""

CLIENTS = Index(
    "kind of model",
    {
        "openai": "calipers.clients.openai:connect",
        "hf": "calipers.clients.huggingface.client:connect",
        "litellm": "calipers.clients.litellm:connect",
        "replay": "calipers.clients.replay:connect",
        "python": "calipers.clients.python:connect",
    },
    groups={"calipers.clients": ""},
)

VERIFIERS = Index(
    "verifier",
    {
        "exact_match": "calipers.verifiers.text:EXACT_MATCH",
        "contains": "calipers.verifiers.text:CONTAINS",
        "regex_match": "calipers.verifiers.text:REGEX_MATCH",
        "tool_calls_match": "calipers.verifiers.text:TOOL_CALLS_MATCH",
        "format_only": "calipers.verifiers.text:FORMAT_ONLY",
        "numeric_match": "calipers.verifiers.numeric:NUMERIC_MATCH",
        "choice": "calipers.verifiers.text:CHOICE",
        "python_tests": "calipers.verifiers.python_tests:PYTHON_TESTS",
        "test_sh": "calipers.verifiers.test_sh:TEST_SH",
        "math": "calipers.verifiers.maths:MATH",
        "llm_judge": "calipers.verifiers.judge:LLM_JUDGE",
        "json_schema": "calipers.verifiers.schema:JSON_SCHEMA",
    },
    groups={"calipers.verifiers": "", "evsys_sdk.verifiers": "calipers.compat:borrowing"},
)

FILTERS = Index(
    "filter",
    {
        "after_marker": "calipers.text.filters:after_marker",
        "boxed": "calipers.text.filters:boxed",
        "first_line": "calipers.text.filters:first_line",
        "json_key": "calipers.text.filters:json_key",
        "last_line": "calipers.text.filters:last_line",
        "last_number": "calipers.text.filters:last_number",
        "lower": "calipers.text.filters:lower",
        "regex": "calipers.text.filters:regex",
        "regex_last": "calipers.text.filters:regex_last",
        "strip": "calipers.text.filters:strip",
        "tag": "calipers.text.filters:tag",
    },
    groups={"calipers.filters": ""},
)
