"""A policy: requirements for several results in three tiers, as a YAML file.

::

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

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from calipers.analyses.gate.document import TIERS
from calipers.analyses.gate.requirement import Requirement, parse
from calipers.errors import InputError, UnknownName

LARGEST: Final = 1 << 20
KEYS: Final = ("results", "max_gaps", "max_missing", "allowed_failures", *TIERS)
_OF_RESULT: Final = ("path", "baseline")
_OF_REQUIREMENT: Final = ("require", "of", "agent", "model", "dataset")


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
    whole = isinstance(text, bool) or (not share and most != int(most)) if most == most and most < 1e18 else True
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
    fields = {"path": given} if isinstance(given, str) else given
    if not isinstance(fields, dict) or not isinstance(fields.get("path"), str):
        raise InputError.at(where, f"is {given!r:.60}", "expected a path, or {path: ..., baseline: ...}")
    for key, value in fields.items():
        if key not in _OF_RESULT:
            raise InputError.at(where, str(UnknownName.of("key of a result", str(key), _OF_RESULT)))
        if not isinstance(value, str):
            raise InputError.at(where, f"{key} is {value!r:.60}", "expected a path")
    folder = os.path.dirname(path)
    baseline = fields.get("baseline")
    return NamedResult(str(name), os.path.join(folder, fields["path"]), baseline and os.path.join(folder, baseline))


def _tier(content: Mapping[str, Any], tier: str, results: Sequence[str], path: str) -> list[Requirement]:
    entries = content.get(tier) or []
    if not isinstance(entries, list):
        raise InputError.at(path, f"{tier} is {entries!r:.60}", "expected a list of requirements")
    return [_requirement(entry, tier, f"{path}: {tier}[{index}]", results) for index, entry in enumerate(entries)]


def _requirement(given: Any, tier: str, where: str, results: Sequence[str]) -> Requirement:
    fields = {"require": given} if isinstance(given, str) else given
    if not isinstance(fields, dict) or not isinstance(fields.get("require"), str):
        raise InputError.at(where, f"{given!r:.60} cannot be read", "expected 'EXPR OP NUMBER' or {require: ...}")
    for key, value in fields.items():
        if key not in _OF_REQUIREMENT:
            raise InputError.at(where, str(UnknownName.of("key of a requirement", str(key), _OF_REQUIREMENT)))
        if not isinstance(value, str):
            raise InputError.at(where, f"{key} is {value!r:.60}", "expected text")
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
