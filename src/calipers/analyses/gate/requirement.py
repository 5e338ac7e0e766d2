"""A requirement as a user writes it, ``EXPR OP NUMBER``; and a policy: requirements in three tiers, as a YAML file.

::

    EXPR    METRIC | lower(METRIC) | upper(METRIC) | delta(METRIC) | lower(delta(METRIC)) | upper(delta(METRIC))
            worst(any of these)    with every missing rollout at the worst end of the range
            worst(METRIC[task])    of the worst task: fails if a task is shown to be below, by Holm over tasks
            missing                the share of planned rollouts that are missing
    METRIC  a metric as in the result, also mean(column=f1); METRIC[KEY=VALUE] for one slice, METRIC[KEY=*]
            for every slice, each of which must meet the requirement: [task=*]
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
from calipers.analyses.gate.document import CRITICAL, TIERS
from calipers.errors import InputError, UnknownName, nearest

OPS: Final[Mapping[str, Callable[[float, float], bool]]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
}
ENDS: Final = ("lower", "upper")
WORST: Final = "worst"
WRAPS: Final = (*ENDS, "delta", WORST)
MISSING: Final = "missing"
EVERY: Final = "*"
TASK: Final = "task"
RATES: Final = ("pass_rate", "pass@1")
"""Metrics that are a share of passes among samples, which have an exact test."""
SHAPE: Final = "expected EXPR OP NUMBER, such as 'lower(pass@1) >= 0.6'"
_WHOLE: Final = re.compile(r"\s*(?P<expr>.*?)\s*(?P<op>[<>=!]+)\s*(?P<number>[^<>=!\s\])]+)\s*", re.DOTALL)
_CALL: Final = re.compile(r"\s*(?P<name>[A-Za-z]+)\s*\((?P<inner>.*)\)\s*", re.DOTALL)
_BY_TASK: Final = re.compile(r"(?P<metric>.*?)\s*\[\s*(?P<key>[^\[\]=]+?)\s*\]\s*", re.DOTALL)
LARGEST: Final = 1 << 20
KEYS: Final = ("results", "max_gaps", "max_missing", "allowed_failures", *TIERS)
_OF_RESULT: Final = ("path", "baseline")
_OF_REQUIREMENT: Final = ("require", "of", "agent", "model", "dataset")


@dataclass(frozen=True, slots=True)
class Requirement:
    """A requirement, the groups it applies to, and its tier."""

    text: str
    metric: str  # as it was written
    op: str
    number: float
    end: str | None = None  # of the interval: lower, upper; None for the value
    delta: bool = False  # minus the value of the baseline
    by: str | None = None
    slice: str | None = None
    tier: str = CRITICAL
    of: str | None = None  # the result it applies to; None: each
    agent: str | None = None
    model: str | None = None
    dataset: str | None = None
    worst: bool = False  # with every missing rollout at the worst end of the range
    weakest: bool = False  # of the worst task, tested by Holm over tasks

    @property
    def missing(self) -> bool:
        """Whether it is about the share of missing rollouts, and not about a metric."""
        return self.metric == MISSING

    @property
    def every(self) -> bool:
        """Whether every slice of a key must meet it."""
        return self.slice == EVERY

    @property
    def key(self) -> tuple[str, tuple[tuple[str, str], ...]]:
        """What tells the metric from others, however it is spaced."""
        return metric_key(self.metric)

    def met(self, value: float) -> bool:
        """Whether it holds of a value."""
        return OPS[self.op](value, self.number)


def parse(text: str, where: str = "--require") -> Requirement:
    """Read a requirement; InputError that says what is wrong with it.

    >>> wanted = parse("lower(mean(column=f1)[level=hard]) >= 0.5")
    >>> wanted.end, wanted.metric, wanted.by, wanted.slice, wanted.op, wanted.number
    ('lower', 'mean(column=f1)', 'level', 'hard', '>=', 0.5)
    """
    parts = _WHOLE.fullmatch(text)
    if parts is None or not parts["expr"]:
        raise InputError.at(where, f"{text!r} cannot be read", SHAPE)
    if parts["op"] not in OPS:
        close = {"=": "==", "=>": ">=", "=<": "<=", "!=": "=="}.get(parts["op"])
        right = f"did you mean {close!r}?" if close else f"expected one of {', '.join(OPS)}"
        raise InputError.at(where, f"{text!r}: no operator {parts['op']!r}", right)
    number = _number(parts["number"], text, where)
    names, inner = _unwrapped(parts["expr"], text, where)
    by_task = _BY_TASK.fullmatch(inner) if names == [WORST] else None
    sliced = by_task or SLICED.fullmatch(inner)
    metric = (sliced["metric"] if sliced else inner).strip()
    if not metric or "[" in metric:
        right = "expected a metric, or METRIC[KEY=VALUE] for one slice"
        raise InputError.at(where, f"{text!r}: {inner!r} is not a metric", right)
    wanted = Requirement(
        text=text.strip(),
        metric=metric,
        op=parts["op"],
        number=number,
        end=next((name for name in names if name in ENDS), None),
        delta="delta" in names,
        by=sliced["key"].strip() if sliced else None,
        slice=sliced["value"].strip() if sliced and not by_task else None,
        worst=WORST in names and not by_task,
        weakest=by_task is not None,
    )
    _check(wanted, names, where)
    return wanted


def _check(wanted: Requirement, names: list[str], where: str) -> None:
    """InputError for what can be written and means nothing."""
    wrong = right = ""
    if wanted.missing and names:
        wrong, right = f"{names[0]}(missing) has no meaning", "expected missing, the share of planned rollouts"
    elif wanted.weakest and wanted.by != TASK:
        wrong, right = f"[{wanted.by}] is not a slice", "expected worst(METRIC[task]), or METRIC[KEY=VALUE]"
    elif wanted.weakest and wanted.key[0] not in RATES:
        wrong, right = f"{wanted.metric} does not count passes", f"expected worst({RATES[0]}[task]), or {RATES[1]}"
    elif wanted.weakest and wanted.op not in (">", ">="):
        wrong, right = f"the worst task has the lowest rate, but {wanted.op} asks for less", "expected >= or >"
    elif wanted.every and wanted.delta:
        wrong, right = "a difference needs one slice", "expected delta(METRIC[KEY=VALUE])"
    if wrong:
        raise InputError.at(where, f"{wanted.text!r}: {wrong}", right)


def _number(text: str, whole: str, where: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        right = "expected a number such as 0.6, shares from 0 to 1"
        raise InputError.at(where, f"{whole!r}: {text!r} is not a finite number", right)
    return number


def _unwrapped(expr: str, whole: str, where: str) -> tuple[list[str], str]:
    """The functions around a metric, the outer one first, and the metric.

    A metric's own brackets hold KEY=VALUE alone; anything else in brackets makes the word before them a function.
    """
    names: list[str] = []
    while (call := _CALL.fullmatch(expr)) and _is_call(call["name"], call["inner"]):
        if call["name"] not in WRAPS:
            close = nearest(call["name"], WRAPS)
            raise InputError.at(where, f"{whole!r}: {UnknownName.of('function', call['name'], close or WRAPS)}")
        names.append(call["name"])
        expr = call["inner"]
    inner = names[1:] if names[:1] == [WORST] else names
    if inner not in ([], ["lower"], ["upper"], ["delta"], ["lower", "delta"], ["upper", "delta"]):
        nested = "(".join(names)
        right = "expected worst(lower(delta(METRIC)))" if WORST in names else "expected lower(delta(METRIC))"
        raise InputError.at(where, f"{whole!r}: {nested}(...) has no meaning", right)
    return names, expr.strip()


def _is_call(name: str, inner: str) -> bool:
    if name in WRAPS:
        return True
    return "=" not in inner.partition("[")[0] and bool(inner.strip())


@dataclass(frozen=True, slots=True)
class Gaps:
    """How many rollouts of a group may be missing: a number, or a share of the planned rollouts."""

    most: float
    share: bool = False

    def __str__(self) -> str:
        return f"{100 * self.most:g} %" if self.share else f"{self.most:,.0f}"

    def allow(self, gaps: int, planned: int) -> bool:
        """Whether this many missing rollouts are few enough."""
        if not self.share:
            return gaps <= self.most
        return 100 * gaps <= round(100 * self.most, 9) * planned  # 29 of 100 are 29 %, and 0.29 * 100 is less than 29


@dataclass(frozen=True, slots=True)
class NamedResult:
    """A result with its name and its baseline: paths, rollouts in memory, or results in memory."""

    name: str
    source: Any
    baseline: Any = None


@dataclass(frozen=True, slots=True)
class Policy:
    """The requirements and the results they apply to."""

    requirements: Sequence[Requirement]
    results: Sequence[NamedResult] = ()
    max_gaps: Gaps | None = None
    allowed_failures: int = 0


def gaps_allowed(text: str | float, where: str) -> Gaps:
    """``5`` rollouts, or ``5%`` of them.

    >>> gaps_allowed("2%", "--max-gaps"), gaps_allowed(3, "--max-gaps")
    (Gaps(most=0.02, share=True), Gaps(most=3.0, share=False))
    """
    stripped = str(text).strip()
    share = stripped.endswith("%")
    try:
        most = float(stripped.rstrip("% "))
    except ValueError:
        most = -1.0
    whole = isinstance(text, bool) or (not share and most != int(most)) if most == most and abs(most) < 1e18 else True
    if whole or most < 0 or (share and most > 100):
        raise InputError.at(
            where, f"{text!r} cannot be read", "expected a number of rollouts such as 5, or a share such as 2%"
        )
    return Gaps(most / 100 if share else most, share)


def read_policy(path: str) -> Policy:
    """Read a policy; InputError where something in it is wrong."""
    return policy_of(_loaded(path), path)


def policy_of(content: Mapping[str, Any], path: str, keys: Sequence[str] = KEYS) -> Policy:
    """The policy of a mapping with these keys; ``path`` is its place in errors."""
    for key in content:
        if key not in keys:
            raise InputError.at(path, str(UnknownName.of("key of a policy", str(key), keys)))
    results = [_result(name, given, path) for name, given in _mapping(content, "results", path).items()]
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
    given = [key for key in ("max_gaps", "max_missing") if content.get(key) is not None]
    if len(given) > 1:
        raise InputError.at(path, "max_gaps and max_missing mean the same", "expected one of them")
    gaps = gaps_allowed(content[given[0]], f"{path}: {given[0]}") if given else None
    return Policy(requirements, results, gaps, allowed)


def required_of(
    named: NamedResult | None,
    requirements: Sequence[str],
    policy: str | None,
    max_gaps: str | float | None,
    who: Mapping[str, str | None],
    baseline: Any = None,
) -> Policy:
    """The requirements and the results they apply to, from a policy or from those of one result."""
    most = None if max_gaps is None else gaps_allowed(max_gaps, "--max-gaps")
    if policy is not None:
        picked = [f"--{name}" for name, value in who.items() if value is not None]
        if clash := [*(["--require"] if requirements else []), *picked]:
            raise InputError.at(clash[0], "cannot be combined with --policy", "put it in the policy's file")
        required = read_policy(policy)
        if required.results:
            if given := [name for name, there in (("RESULT", named), ("--baseline", baseline)) if there is not None]:
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
        replace(parse(text), agent=who["agent"], model=who["model"], dataset=who["dataset"]) for text in requirements
    ]
    return Policy(parsed, [named], most)


def _loaded(path: str) -> dict[str, Any]:
    import yaml

    try:
        with open(path, "rb") as file:
            text = file.read(LARGEST + 1)
    except OSError as error:
        raise InputError.at(path, f"cannot be read ({error.strerror})", "expected a policy in YAML") from None
    if len(text) > LARGEST:
        raise InputError.at(path, f"larger than {LARGEST >> 20} MiB", "expected a policy in YAML")
    try:
        again = _again(yaml.compose(text, yaml.SafeLoader))
        content = yaml.safe_load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{path}:{mark.line + 1}" if mark else path
        raise InputError.at(where, f"is not YAML ({getattr(error, 'problem', None) or 'bad characters'})") from None
    except (RecursionError, ValueError) as error:  # a date that is none, a nest of lists
        raise InputError.at(path, f"is not YAML ({type(error).__name__})") from None
    if again is not None:
        wrong = f"{again.value!r} appears twice, and the last would replace the first"
        raise InputError.at(f"{path}:{again.start_mark.line + 1}", wrong, "expected it once")
    if not isinstance(content, dict):
        raise InputError.at(path, "is not a mapping", f"expected {', '.join(KEYS)}")
    return content


def _again(root: Any) -> Any:
    """The first key of a mapping that has it already, in a tree of YAML's nodes; None where each appears once."""
    seen, left = set[int](), [root]
    while left:
        node = left.pop()
        if id(node) in seen or not isinstance(getattr(node, "value", None), list):
            continue
        seen.add(id(node))
        keys = [pair[0] for pair in node.value if isinstance(pair, tuple)]
        for index, key in enumerate(keys):
            if any(key.value == other.value for other in keys[:index]):
                return key
        left += [part for pair in node.value for part in (pair if isinstance(pair, tuple) else (pair,))]
    return None


def _mapping(content: Mapping[str, Any], key: str, path: str) -> dict[str, Any]:
    mapping = content.get(key)
    if mapping is None:
        return {}
    if not isinstance(mapping, dict):
        raise InputError.at(path, f"{key} is {mapping!r:.60}", "expected NAME: PATH for each")
    return mapping


def _result(name: Any, given: Any, path: str) -> NamedResult:
    where = f"{path}: results.{name}"
    fields = _fields(given, _OF_RESULT, where, "result", "a path")
    if fields is None:
        raise InputError.at(where, f"is {given!r:.60}", "expected a path, or {path: ..., baseline: ...}")
    folder = os.path.dirname(path)
    baseline = fields.get("baseline")
    return NamedResult(str(name), os.path.join(folder, fields["path"]), baseline and os.path.join(folder, baseline))


def _fields(given: Any, keys: Sequence[str], where: str, kind: str, values: str) -> dict[str, str] | None:
    """The fields of an entry, of which the first key is the main one and may stand alone; None for what has none."""
    fields = {keys[0]: given} if isinstance(given, str) else given
    if not isinstance(fields, dict) or not isinstance(fields.get(keys[0]), str):
        return None
    for key, value in fields.items():
        if key not in keys:
            raise InputError.at(where, str(UnknownName.of(f"key of a {kind}", str(key), keys)))
        if not isinstance(value, str):
            raise InputError.at(where, f"{key} is {value!r:.60}", f"expected {values}")
    return fields


def _tier(content: Mapping[str, Any], tier: str, results: Sequence[str], path: str) -> list[Requirement]:
    entries = content.get(tier) or []
    if not isinstance(entries, list):
        raise InputError.at(path, f"{tier} is {entries!r:.60}", "expected a list of requirements")
    return [_requirement(entry, tier, f"{path}: {tier}[{index}]", results) for index, entry in enumerate(entries)]


def _requirement(given: Any, tier: str, where: str, results: Sequence[str]) -> Requirement:
    fields = _fields(given, _OF_REQUIREMENT, where, "requirement", "text")
    if fields is None:
        raise InputError.at(where, f"{given!r:.60} cannot be read", "expected 'EXPR OP NUMBER' or {require: ...}")
    of = fields.get("of")
    if of is not None and of not in results:
        raise InputError.at(where, str(UnknownName.of("result in this policy", of, results)))
    return replace(
        parse(fields["require"], where),
        tier=tier,
        of=of,
        agent=fields.get("agent"),
        model=fields.get("model"),
        dataset=fields.get("dataset"),
    )
