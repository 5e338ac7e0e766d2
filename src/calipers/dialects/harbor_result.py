"""A job's ``result.json``, of whatever age, in the form that Harbor writes today."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from calipers.errors import InputError

COUNTERS: Final = (
    "n_completed_trials",
    "n_errored_trials",
    "n_running_trials",
    "n_pending_trials",
    "n_cancelled_trials",
    "n_retries",
)
OLD: Final = {"n_trials": "n_completed_trials", "n_errors": "n_errored_trials"}  # what `stats` once called them
USED: Final = ("n_input_tokens", "n_cache_tokens", "n_output_tokens", "cost_usd")
Document = Mapping[str, Any]


def load_job_result(document: Any, place: str = "result.json") -> dict[str, Any]:
    """A job's result in today's form, its keys in Harbor's order; InputError for what is none.

    Counters go by their new names, whether they stood in ``stats`` under old ones or in a ``status`` of their
    own; what is pending is worked out where nobody said it. The values of rewards are written as floats.
    """
    try:
        return _current(document)
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        wrong = f"not a job's result ({type(error).__name__}: {error})"
        raise InputError.at(place, wrong, "expected what Harbor writes") from error


def _current(document: Document) -> dict[str, Any]:
    total = int(document.get("n_total_trials") or 0)
    stats = document["stats"]
    counts = _counters(stats, document.get("status") or {}, total)
    started, finished = _time(document.get("started_at")), _time(document.get("finished_at"))
    evals = stats.get("evals") or {}
    return {
        "id": str(document["id"]),
        "started_at": started,
        "updated_at": _time(document.get("updated_at")) or finished or started,
        "finished_at": finished,
        "n_total_trials": total,
        "stats": {
            **counts,
            "evals": {key: _eval(one) for key, one in evals.items()},
            **{name: stats.get(name) for name in USED},
        },
    }


def _counters(stats: Document, status: Document, total: int) -> dict[str, int]:
    found: dict[str, int] = {}
    for name, value in (*status.items(), *stats.items()):  # the newer place wins
        known = OLD.get(name) or next((new for new in COUNTERS if name in (new, _short(new))), None)
        if known is not None and value is not None:
            found[known] = int(value)
    counts = {name: found.get(name, 0) for name in COUNTERS}
    if "n_pending_trials" not in found:
        counts["n_pending_trials"] = max(total - counts["n_completed_trials"] - counts["n_running_trials"], 0)
    return counts


def _short(counter: str) -> str:
    """A counter without what says that it is one: ``n_running_trials`` is ``running``."""
    return counter.removeprefix("n_").removesuffix("_trials")


def _eval(one: Document) -> dict[str, Any]:
    rewards = one.get("reward_stats") or {}
    return {
        "n_trials": int(one.get("n_trials") or 0),
        "n_errors": int(one.get("n_errors") or 0),
        "metrics": [dict(metric) for metric in one.get("metrics") or ()],
        "pass_at_k": {str(int(k)): value for k, value in (one.get("pass_at_k") or {}).items()},
        "reward_stats": {name: _values(values) for name, values in rewards.items()},
        "exception_stats": {kind: list(trials) for kind, trials in (one.get("exception_stats") or {}).items()},
    }


def _values(values: Document) -> dict[str, list[str]]:
    """The trials by the value of a reward, "1" and "1.0" being the same."""
    found: dict[str, list[str]] = {}
    for value, trials in values.items():
        found.setdefault(str(float(value)), []).extend(trials)
    return found


def _time(text: str | None) -> str | None:
    """A time as Harbor writes it: UTC is Z, no time zone is none."""
    if text is None:
        return None
    return datetime.fromisoformat(text).isoformat().replace("+00:00", "Z")
