"""The results of the comparison as text for a terminal and as a table for the page."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from importlib.metadata import version

from bench.parity.compare import CLOSE, COUNTED
from bench.parity.one import DIFFERENT, LATE, QUIRK, REFUSED, UNMADE, Outcome
from bench.parity.sides import DRAWS

HEADINGS = {
    "sample": "## The same numbers: a sample of its tasks",
    "all": "## The same numbers: all tasks that fit in the time limit",
    "names": "## The same numbers: some tasks",
}
END = "<!-- /parity -->"
SHOWN = 5  # maximum differences shown for one task
_REASONS = (  # reasons why lm-evaluation-harness itself could not run with made-up documents
    (r"ModuleNotFound|ImportError|install", "a library that the task needs is not installed here"),
    (r"module script|offline|Hub|_KEY", "it needs something from the network"),
    (r"multimodal", "it uses images or sound"),
    (r"a group of \d+ tasks", "a large group; its tasks are run separately"),
)


def told(found: Sequence[Outcome], asked: int, seconds: float) -> str:
    """Families and counts, then each difference and each task that could not be compared."""
    ran = [one for one in found if one.counts]
    lines = [f"{len(ran)} tasks and groups of {len(families(ran))} families compared, in {seconds:.0f} s"]
    lines += [f"  {name}: {count:,}" for name, count in _total(ran).items()]
    lines += ["  " + ", ".join(families(ran))] if ran else []
    for one in found:
        if one.status in (DIFFERENT, REFUSED):
            lines.append(f"{one.status}: {one.name} ({one.family}): {one.said or len(one.differences)}")
            lines += [f"    {difference}" for difference in one.differences[:SHOWN]]
            lines += [f"    ... and {len(one.differences) - SHOWN} more"] if len(one.differences) > SHOWN else []
    lines += [f"{QUIRK}: {one.name} ({one.family}): {one.said}" for one in found if one.status == QUIRK]
    lines += [f"not compared: {one.name} ({one.family}): {_why(one)}" for one in _left(found)]
    lines += [f"not started in time: {asked - len(found)} of {asked}"] if len(found) < asked else []
    wrong = sum(one.status in (DIFFERENT, REFUSED) for one in found)
    lines.append(f"{_several(wrong, 'task')} with a difference, {_several(_quirks(found), 'documented difference')}")
    return "\n".join(lines)


def block(found: Sequence[Outcome], scope: str, asked: int, seconds: float) -> str:
    """The table for the page, from its heading to its end marker."""
    ran = [one for one in found if one.counts]
    command = "make parity-lm-eval" + (" ARGS=all" if scope == "all" else "")
    rows = [_row(kind, several) for kind, several in _by_kind(ran)]
    shots = sum(one.shots is not None for one in ran)
    why = Counter(_reason(one) for one in _left(found))
    lines = [
        HEADINGS[scope],
        "",
        f"Written by `{command}`: lm_eval {version('lm_eval')}'s own tasks in lm-eval and in `calipers run`, with "
        "made-up documents and a mock model that derives its answers from a hash of the request. Every request must be "
        f"identical, and every number must agree within {CLOSE:g}; a bootstrap has {DRAWS} resamples on both sides.",
        "A request counts once for each filter. The sample metrics include the target, the filtered answers and two "
        "hashes of each sample. The values include each task's number of examples and the direction in which its "
        "metrics are better.",
        "",
        "| tasks and groups | compared | " + " | ".join(COUNTED) + " | differ | documented differences |",
        "|---|" + "---|" * (len(COUNTED) + 3),
        *rows,
        _row("**all**", ran, sum(one.status == REFUSED for one in found), _quirks(found)),
        "",
        *(f"- `{one.name}` ({one.family}): {_told(one)}" for one in found if one.status in (DIFFERENT, REFUSED, QUIRK)),
        *([""] if any(one.status in (DIFFERENT, REFUSED, QUIRK) for one in found) else []),
        f"{shots} of them ran with `--num-fewshot 2`. Of {asked:,} tasks and groups, {len(found):,} were started in "
        f"{seconds:.0f} s, and {len(ran):,}, from {len(families(ran))} families, were compared"
        + ("." if not why else ". The others were not:"),
        *([""] if why else []),
        *(f"- {count}: {reason}" for reason, count in why.most_common()),
        "",
        f"Families: {', '.join(families(ran))}.",
        END,
    ]
    return "\n".join(lines)


def families(found: Sequence[Outcome]) -> list[str]:
    """The folders of tasks in lm-evaluation-harness."""
    return sorted({one.family for one in found})


def _by_kind(ran: Sequence[Outcome]) -> Iterator[tuple[str, list[Outcome]]]:
    """Tasks by their output type; groups by themselves."""
    groups = [one for one in ran if one.counts.get("group values")]
    for kind in ("multiple_choice", "generate_until", "loglikelihood", "loglikelihood_rolling"):
        yield f"`{kind}`", [one for one in ran if one not in groups and one.kinds[:1] == [kind]]
    yield "groups", groups


def _row(title: str, several: Sequence[Outcome], refused: int = 0, quirks: int = 0) -> str:
    total = _total(several)
    cells = [
        len(several),
        *(total[name] for name in COUNTED),
        refused + sum(one.status == DIFFERENT for one in several),
        quirks,
    ]
    return f"| {title} | " + " | ".join(f"{cell:,}" for cell in cells) + " |"


def _total(several: Sequence[Outcome]) -> dict[str, int]:
    return {name: sum(one.counts.get(name, 0) for one in several) for name in COUNTED}


def _left(found: Sequence[Outcome]) -> list[Outcome]:
    return [one for one in found if one.status in (UNMADE, LATE)]


def _quirks(found: Sequence[Outcome]) -> int:
    return sum(one.status == QUIRK for one in found)


def _reason(one: Outcome) -> str:
    if one.status == LATE:
        return "it exceeded the time limit of a task"
    return next(
        (reason for pattern, reason in _REASONS if re.search(pattern, one.said)), "no made-up documents that it accepts"
    )


def _told(one: Outcome) -> str:
    """The difference of a task, without the installation folder of lm-evaluation-harness."""
    said = re.sub(r"\S*/lm_eval/tasks/", "", one.said)
    return said if one.status == QUIRK else f"{one.status}: {said}" if said else one.differences[0]


def _why(one: Outcome) -> str:
    return f"{_reason(one)} ({one.said[:160]})"


def _several(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"
