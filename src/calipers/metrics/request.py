"""A metric as a user asks for it: ``name[@k|^k][(key=value, ...)]``, or a mapping from YAML."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from calipers.errors import InputError, UnknownName
from calipers.metrics.metric import SHORT, Metric

_SHAPE = re.compile(r"\s*(?P<name>[^\s()=,]+)\s*(?:\((?P<params>(?:[^()]|\([^()]*\))*)\))?\s*")


@dataclass(frozen=True, slots=True)
class MetricSpec:
    """What was asked for: the text that names the result, the metric's name, its parameters."""

    text: str
    name: str
    params: Mapping[str, str | float] = field(default_factory=dict)

    @classmethod
    def of(cls, written: str | Mapping[str, Any]) -> MetricSpec:
        """Read a metric string or a mapping ``{metric: pass@3, threshold: 0.5}``.

        >>> Request.of("pass@3(threshold=0.5)").params
        {'threshold': 0.5}
        """
        if isinstance(written, Mapping):
            params = {str(key): value for key, value in written.items() if key != "metric"}
            if not isinstance(written.get("metric"), str):
                raise InputError(
                    f"a metric is asked for without its name; expected {{metric: NAME, ...}}, not {written}"
                )
            inner = ", ".join(f"{key}={value}" for key, value in params.items())
            return cls(f"{written['metric']}({inner})" if inner else written["metric"], written["metric"], params)
        match = _SHAPE.fullmatch(written)
        if match is None:
            raise InputError(f"metric {written!r} cannot be read; expected a name such as pass@3 or mean(column=f1)")
        return cls(written, match["name"], _params(written, match["params"] or ""))


def _params(written: str, text: str) -> dict[str, str | float]:
    params: dict[str, str | float] = {}
    for pair in filter(None, (piece.strip() for piece in text.split(","))):
        key, equals, value = (side.strip() for side in pair.partition("="))
        if not (key and equals and value):
            raise InputError(f"metric {written!r}: {pair!r} cannot be read; expected key=value")
        if key in params:
            raise InputError(f"metric {written!r}: {key} is given twice; expected it once")
        params[key] = _value(value)
    return params


def _value(text: str) -> str | float:
    """A number that reads back as it was written, else the text: 007 and 12345678 may be names of columns."""
    number = _number(text)
    return text if number is None or f"{number:g}" != text else number


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def settle(request: MetricSpec, metric: Metric, k: int | None) -> dict[str, Any]:
    """The parameters a metric is called with: those asked for, checked, over its defaults.

    ``reward`` may be asked of any metric that reads rewards; it picks the reward key.
    """
    given = dict(request.params)
    known = dict(metric.params)
    if "reward" in metric.reads:
        known["reward"] = ""
    settled: dict[str, Any] = {}
    for key in given:
        if key not in known or key == "k":
            raise UnknownName.of(f"parameter of {request.name}", key, [name for name in known if name != "k"])
    for key, default in known.items():
        if key == "k":
            settled[key] = _positive(request, k)
        elif key in given:
            settled[key] = _typed(request, key, given[key], default if isinstance(default, type) else type(default))
        elif isinstance(default, type):
            needed = ", ".join(f"{name}=..." for name, kind in known.items() if isinstance(kind, type) and name != "k")
            raise InputError(f"metric {request.text!r} lacks {key}; expected {request.name}({needed})")
        else:
            settled[key] = default
    return settled


def _positive(request: MetricSpec, k: int | None) -> int:
    if not k:
        raise InputError(f"metric {request.text!r}: k is {k}; expected a positive integer")
    return k


def _typed(request: MetricSpec, key: str, value: str | float, kind: type) -> str | float:
    if key == "short" and value not in SHORT:
        raise InputError(f"metric {request.text!r}: short is {value!r}; expected {' or '.join(SHORT)}")
    if kind is str:  # a column may be called 1
        return f"{value:g}" if isinstance(value, float) else str(value)
    if isinstance(value, str):
        value = value if (number := _number(value)) is None else number
    if not isinstance(value, (int, float)) or value != value or abs(value) == float("inf"):
        raise InputError(f"metric {request.text!r}: {key} is {value!r}; expected a number")
    if key == "tau" and not 0 < value <= 1:
        raise InputError(f"metric {request.text!r}: tau is {value:g}; expected a share above 0, at most 1")
    if key == "q" and not 0 <= value <= 100:
        raise InputError(f"metric {request.text!r}: q is {value:g}; expected 0 to 100")
    return float(value)
