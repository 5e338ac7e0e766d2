"""Requirements, ``EXPR OP NUMBER``, and policies: YAML files with requirements in three tiers.

::

    EXPR    METRIC | lower(METRIC) | upper(METRIC) | delta(METRIC) | lower(delta(METRIC)) | upper(delta(METRIC))
            worst(any of these)    with every missing rollout at the worst end of the range
            worst(METRIC[task])    for the worst task: fails if a task is significantly below, by Holm over tasks
            missing                the share of planned rollouts that are missing
    METRIC  a metric as in the result, also mean(column=f1); METRIC[KEY=VALUE] for one slice; METRIC[KEY=*],
            such as METRIC[task=*], if every slice must meet the requirement
    OP      <  <=  >  >=  ==

A policy has requirements for several results::

    results:                        # a name for each; paths are relative to this file
      math: runs/math
      code: {path: runs/code, baseline: runs/code-before}
    max_gaps: 2%                    # missing rollouts of each group: a share or a number; max_missing is the same
    allowed_failures: 1             # how many supporting requirements may fail
    critical:                       # each must be met
      - lower(pass@1) >= 0.6
      - {require: lower(delta(mean_reward)) >= -0.02, of: code, model: m1}
    supporting:                     # allowed_failures of these may fail
      - mean_reward[level=hard] >= 0.4
    advisory:                       # these only warn
      - cost_per_task <= 0.05
"""

from __future__ import annotations

import math
import operator
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from calipers.analyses.compare import SLICED, metric_key
from calipers.analyses.gate import CRITICAL, TIERS
from calipers.errors import InputError, UnknownName, nearest

OPS: Final[Mapping[str, Callable[[float, float], bool]]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
}
INTERVAL_ENDS: Final = ("lower", "upper")
WORST: Final = "worst"
FUNCTIONS: Final = (*INTERVAL_ENDS, "delta", WORST)
MISSING: Final = "missing"
EVERY: Final = "*"
TASK: Final = "task"
RATES: Final = ("pass_rate", "pass@1")
"""Metrics that are the share of passes among samples, for which an exact test exists."""
SHAPE: Final = "expected EXPR OP NUMBER, such as 'lower(pass@1) >= 0.6'"
_REQUIREMENT: Final = re.compile(r"\s*(?P<expr>.*?)\s*(?P<op>[<>=!]+)\s*(?P<number>[^<>=!\s\])]+)\s*", re.DOTALL)
_CALL: Final = re.compile(r"\s*(?P<name>[A-Za-z]+)\s*\((?P<inner>.*)\)\s*", re.DOTALL)
_BY_TASK: Final = re.compile(r"(?P<metric>.*?)\s*\[\s*(?P<key>[^\[\]=]+?)\s*\]\s*", re.DOTALL)
MAX_BYTES: Final = 1 << 20
KEYS: Final = ("results", "max_gaps", "max_missing", "allowed_failures", *TIERS)
_RESULT_KEYS: Final = ("path", "baseline")
_REQUIREMENT_KEYS: Final = ("require", "of", "agent", "model", "dataset")


@dataclass(frozen=True, slots=True)
class Requirement:
    """A requirement, the groups it applies to, and its tier."""

    text: str
    metric: str  # as the user wrote it
    op: str
    number: float
    end: str | None = None  # the end of the interval, lower or upper; None for the value
    delta: bool = False  # the difference from the baseline
    by: str | None = None
    slice: str | None = None
    tier: str = CRITICAL
    of: str | None = None  # the name of the result it applies to; None: every result
    agent: str | None = None
    model: str | None = None
    dataset: str | None = None
    worst: bool = False  # with every missing rollout at the worst end of the range
    worst_task: bool = False  # for the worst task, tested by Holm over tasks

    @property
    def missing(self) -> bool:
        """Whether it limits the share of missing rollouts instead of a metric."""
        return self.metric == MISSING

    @property
    def every(self) -> bool:
        """Whether every slice of a key must meet it."""
        return self.slice == EVERY

    @property
    def key(self) -> tuple[str, tuple[tuple[str, str], ...]]:
        """The metric's name and parameters, independent of spacing."""
        return metric_key(self.metric)

    @property
    def is_claim(self) -> bool:
        """Whether it claims that a difference lies beyond a bound: ``lower(delta(X)) > a``, ``upper(delta(X)) < b``."""
        if not self.delta or self.end is None:
            return False
        return self.op.startswith(">" if self.end == "lower" else "<")

    def met(self, value: float) -> bool:
        """Whether a value meets it."""
        return OPS[self.op](value, self.number)


def parse(text: str, location: str = "--require") -> Requirement:
    """Parse a requirement; InputError if it is invalid.

    >>> requirement = parse("lower(mean(column=f1)[level=hard]) >= 0.5")
    >>> requirement.end, requirement.metric, requirement.by, requirement.slice, requirement.op, requirement.number
    ('lower', 'mean(column=f1)', 'level', 'hard', '>=', 0.5)
    """
    parts = _REQUIREMENT.fullmatch(text)
    if parts is None or not parts["expr"]:
        raise InputError.at(location, f"{text!r} cannot be read", SHAPE)
    if parts["op"] not in OPS:
        close = {"=": "==", "=>": ">=", "=<": "<=", "!=": "=="}.get(parts["op"])
        expected = f"did you mean {close!r}?" if close else f"expected one of {', '.join(OPS)}"
        raise InputError.at(location, f"{text!r}: no operator {parts['op']!r}", expected)
    number = _number(parts["number"], text, location)
    functions, inner = _split_functions(parts["expr"], text, location)
    by_task = _BY_TASK.fullmatch(inner) if functions == [WORST] else None
    sliced = by_task or SLICED.fullmatch(inner)
    metric = (sliced["metric"] if sliced else inner).strip()
    if not metric or "[" in metric:
        expected = "expected a metric, or METRIC[KEY=VALUE] for one slice"
        raise InputError.at(location, f"{text!r}: {inner!r} is not a metric", expected)
    requirement = Requirement(
        text=text.strip(),
        metric=metric,
        op=parts["op"],
        number=number,
        end=next((name for name in functions if name in INTERVAL_ENDS), None),
        delta="delta" in functions,
        by=sliced["key"].strip() if sliced else None,
        slice=sliced["value"].strip() if sliced and not by_task else None,
        worst=WORST in functions and not by_task,
        worst_task=by_task is not None,
    )
    _check(requirement, functions, location)
    return requirement


def _check(requirement: Requirement, functions: list[str], location: str) -> None:
    """Raise InputError for a combination that has no meaning."""
    problem = expected = ""
    if requirement.missing and functions:
        problem, expected = f"{functions[0]}(missing) has no meaning", "expected missing, the share of planned rollouts"
    elif requirement.worst_task and requirement.by != TASK:
        problem, expected = f"[{requirement.by}] is not a slice", "expected worst(METRIC[task]), or METRIC[KEY=VALUE]"
    elif requirement.worst_task and requirement.key[0] not in RATES:
        problem = f"{requirement.metric} does not count passes"
        expected = f"expected worst({RATES[0]}[task]), or {RATES[1]}"
    elif requirement.worst_task and requirement.op not in (">", ">="):
        problem = f"the worst task has the lowest rate, but {requirement.op} asks for less"
        expected = "expected >= or >"
    elif requirement.every and requirement.delta:
        problem, expected = "a difference needs one slice", "expected delta(METRIC[KEY=VALUE])"
    if problem:
        raise InputError.at(location, f"{requirement.text!r}: {problem}", expected)


def _number(text: str, requirement: str, location: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        expected = "expected a number such as 0.6, shares from 0 to 1"
        raise InputError.at(location, f"{requirement!r}: {text!r} is not a finite number", expected)
    return number


def _split_functions(expr: str, requirement: str, location: str) -> tuple[list[str], str]:
    """The functions around a metric, the outermost first, and the metric.

    The parentheses of a metric's own parameters contain KEY=VALUE; anything else makes the word before them a function.
    """
    names: list[str] = []
    while (call := _CALL.fullmatch(expr)) and _is_call(call["name"], call["inner"]):
        if call["name"] not in FUNCTIONS:
            unknown = UnknownName.of("function", call["name"], nearest(call["name"], FUNCTIONS) or FUNCTIONS)
            raise InputError.at(location, f"{requirement!r}: {unknown}")
        names.append(call["name"])
        expr = call["inner"]
    inner = names[1:] if names[:1] == [WORST] else names
    if inner not in ([], ["lower"], ["upper"], ["delta"], ["lower", "delta"], ["upper", "delta"]):
        nested = "(".join(names)
        expected = "expected worst(lower(delta(METRIC)))" if WORST in names else "expected lower(delta(METRIC))"
        raise InputError.at(location, f"{requirement!r}: {nested}(...) has no meaning", expected)
    return names, expr.strip()


def _is_call(name: str, inner: str) -> bool:
    """Whether NAME(INNER) is a function call, not a metric with parameters."""
    if name in FUNCTIONS:
        return True
    return "=" not in inner.partition("[")[0] and bool(inner.strip())


@dataclass(frozen=True, slots=True)
class Gaps:
    """The limit on a group's missing rollouts: a number, or a share of the planned rollouts."""

    most: float
    share: bool = False

    def __str__(self) -> str:
        return f"{100 * self.most:g} %" if self.share else f"{self.most:,.0f}"

    def allow(self, gaps: int, planned: int) -> bool:
        """Whether the limit allows this many missing rollouts."""
        if not self.share:
            return gaps <= self.most
        return 100 * gaps <= round(100 * self.most, 9) * planned  # rounded, because 100 * 0.29 is less than 29


@dataclass(frozen=True, slots=True)
class NamedResult:
    """A result with its name and its baseline. Both are paths, rollouts in memory or results in memory."""

    name: str
    source: Any
    baseline: Any = None


@dataclass(frozen=True, slots=True)
class Policy:
    """Requirements and the results they apply to."""

    requirements: Sequence[Requirement]
    results: Sequence[NamedResult] = ()
    max_gaps: Gaps | None = None
    allowed_failures: int = 0


def gaps_allowed(text: str | float, location: str) -> Gaps:
    """Parse a limit on missing rollouts: ``5`` rollouts, or ``5%`` of them.

    >>> gaps_allowed("2%", "--max-gaps"), gaps_allowed(3, "--max-gaps")
    (Gaps(most=0.02, share=True), Gaps(most=3.0, share=False))
    """
    stripped = str(text).strip()
    share = stripped.endswith("%")
    try:
        most = float(stripped.rstrip("% "))
    except ValueError:
        most = -1.0
    unusable = isinstance(text, bool) or not abs(most) < 1e18 or (not share and most != int(most))  # NaN is unusable
    if unusable or most < 0 or (share and most > 100):
        raise InputError.at(
            location, f"{text!r} cannot be read", "expected a number of rollouts such as 5, or a share such as 2%"
        )
    return Gaps(most / 100 if share else most, share)


def read_policy(path: str) -> Policy:
    """Read a policy from a YAML file; InputError if it is invalid."""
    return policy_of(_load(path), path)


def policy_of(content: Mapping[str, Any], path: str, keys: Sequence[str] = KEYS) -> Policy:
    """Convert a mapping with these keys into a policy; errors name ``path``."""
    for key in content:
        if key not in keys:
            raise InputError.at(path, str(UnknownName.of("key of a policy", str(key), keys)))
    results = [_result(name, entry, path) for name, entry in _mapping(content, "results", path).items()]
    allowed = content.get("allowed_failures", 0)
    if not isinstance(allowed, int) or isinstance(allowed, bool) or allowed < 0:
        raise InputError.at(path, f"allowed_failures is {allowed!r}", "expected an integer >= 0")
    requirements = [each for tier in TIERS for each in _tier(content, tier, [each.name for each in results], path)]
    if not requirements:
        raise InputError.at(path, "has no requirements", f"expected a list under {', '.join(TIERS)}")
    if allowed and not content.get("supporting"):
        raise InputError.at(
            path,
            f"allowed_failures is {allowed}, but there are no supporting requirements",
            "expected a list supporting:",
        )
    limits = [key for key in ("max_gaps", "max_missing") if content.get(key) is not None]
    if len(limits) > 1:
        raise InputError.at(path, "max_gaps and max_missing mean the same", "expected one of them")
    gaps = gaps_allowed(content[limits[0]], f"{path}: {limits[0]}") if limits else None
    return Policy(requirements, results, gaps, allowed)


def required_of(
    named: NamedResult | None,
    requirements: Sequence[str],
    policy: str | None,
    max_gaps: str | float | None,
    group: Mapping[str, str | None],
    baseline: Any = None,
) -> Policy:
    """The requirements and their results, from a policy's file or from the options for one result.

    ``group`` has the options agent, model and dataset.
    """
    most = None if max_gaps is None else gaps_allowed(max_gaps, "--max-gaps")
    if policy is not None:
        group_options = [f"--{name}" for name, value in group.items() if value is not None]
        if clash := [*(["--require"] if requirements else []), *group_options]:
            raise InputError.at(clash[0], "cannot be combined with --policy", "put it in the policy's file")
        required = read_policy(policy)
        if required.results:
            if given := [name for name, value in (("RESULT", named), ("--baseline", baseline)) if value is not None]:
                raise InputError.at(policy, f"names its results, and {given[0]} is given too", "expected one of them")
        elif named is None:
            raise InputError.at(policy, "names no results", "add results: to it, or give RESULT")
        else:
            required = replace(required, results=[named])
        return replace(required, max_gaps=most or required.max_gaps)
    if named is None or not requirements:
        missing = "RESULT" if named is None else "--require 'EXPR OP NUMBER'"
        raise InputError(f"{missing} is missing; expected RESULT with --require, or --policy FILE")
    parsed = [
        replace(parse(text), agent=group["agent"], model=group["model"], dataset=group["dataset"])
        for text in requirements
    ]
    return Policy(parsed, [named], most)


def _load(path: str) -> dict[str, Any]:
    """The content of a YAML file; InputError if it is too large, no mapping, or has a key twice."""
    import yaml

    try:
        with open(path, "rb") as file:
            text = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise InputError.at(path, f"cannot be read ({error.strerror})", "expected a policy in YAML") from None
    if len(text) > MAX_BYTES:
        raise InputError.at(path, f"larger than {MAX_BYTES >> 20} MiB", "expected a policy in YAML")
    try:
        duplicate = _duplicate_key(yaml.compose(text, yaml.SafeLoader))
        content = yaml.safe_load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        location = f"{path}:{mark.line + 1}" if mark else path
        raise InputError.at(location, f"is not YAML ({getattr(error, 'problem', None) or 'bad characters'})") from None
    except (RecursionError, ValueError) as error:  # deeply nested lists, an invalid date
        raise InputError.at(path, f"is not YAML ({type(error).__name__})") from None
    if duplicate is not None:
        problem = f"{duplicate.value!r} appears twice, and the last would replace the first"
        raise InputError.at(f"{path}:{duplicate.start_mark.line + 1}", problem, "expected it once")
    if not isinstance(content, dict):
        raise InputError.at(path, "is not a mapping", f"expected {', '.join(KEYS)}")
    return content


def _duplicate_key(root: Any) -> Any:
    """The first key, in a tree of YAML nodes, that appears twice in its mapping; None if there is none."""
    seen, stack = set[int](), [root]
    while stack:
        node = stack.pop()
        if id(node) in seen or not isinstance(getattr(node, "value", None), list):
            continue
        seen.add(id(node))
        values = set[str]()
        for key in (pair[0] for pair in node.value if isinstance(pair, tuple)):
            if isinstance(key.value, str) and key.value in values:
                return key
            if isinstance(key.value, str):  # any other key is refused when the values are made
                values.add(key.value)
        stack += [part for pair in node.value for part in (pair if isinstance(pair, tuple) else (pair,))]
    return None


def _mapping(content: Mapping[str, Any], key: str, path: str) -> dict[str, Any]:
    mapping = content.get(key)
    if mapping is None:
        return {}
    if not isinstance(mapping, dict):
        raise InputError.at(path, f"{key} is {mapping!r:.60}", "expected NAME: PATH for each")
    return mapping


def _result(name: Any, entry: Any, path: str) -> NamedResult:
    location = f"{path}: results.{name}"
    fields = _fields(entry, _RESULT_KEYS, location, "result", "a path")
    if fields is None:
        raise InputError.at(location, f"is {entry!r:.60}", "expected a path, or {path: ..., baseline: ...}")
    folder = os.path.dirname(path)
    baseline = fields.get("baseline")
    return NamedResult(str(name), os.path.join(folder, fields["path"]), baseline and os.path.join(folder, baseline))


def _fields(entry: Any, keys: Sequence[str], location: str, kind: str, values: str) -> dict[str, str] | None:
    """The fields of an entry; None if the first key, which is required, is missing. A text alone is its value."""
    fields = {keys[0]: entry} if isinstance(entry, str) else entry
    if not isinstance(fields, dict) or not isinstance(fields.get(keys[0]), str):
        return None
    for key, value in fields.items():
        if key not in keys:
            raise InputError.at(location, str(UnknownName.of(f"key of a {kind}", str(key), keys)))
        if not isinstance(value, str):
            raise InputError.at(location, f"{key} is {value!r:.60}", f"expected {values}")
    return fields


def _tier(content: Mapping[str, Any], tier: str, results: Sequence[str], path: str) -> list[Requirement]:
    entries = content.get(tier) or []
    if not isinstance(entries, list):
        raise InputError.at(path, f"{tier} is {entries!r:.60}", "expected a list of requirements")
    return [_requirement(entry, tier, f"{path}: {tier}[{index}]", results) for index, entry in enumerate(entries)]


def _requirement(entry: Any, tier: str, location: str, results: Sequence[str]) -> Requirement:
    fields = _fields(entry, _REQUIREMENT_KEYS, location, "requirement", "text")
    if fields is None:
        raise InputError.at(location, f"{entry!r:.60} cannot be read", "expected 'EXPR OP NUMBER' or {require: ...}")
    result = fields.get("of")
    if result is not None and result not in results:
        raise InputError.at(location, str(UnknownName.of("result in this policy", result, results)))
    names: dict[str, Any] = {
        key: value for key, value in fields.items() if key != "require"
    }  # of the result and the group
    return replace(parse(fields["require"], location), tier=tier, **names)
