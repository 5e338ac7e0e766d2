"""The readers of tinker-cookbook's evaluations (``trajectories.jsonl``) and of its rollout summaries of RL training."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

import msgspec

from calipers.formats import Beginning, Columns, Format, Progress, Raw, Text
from calipers.formats.lines import ABSENT, NOTHING
from calipers.formats.own_numbers import labels_of, numbers_in
from calipers.formats.source import Source
from calipers.formats.system_rows import (
    SPLIT,
    STEP,
    Layout,
    Number,
    RowBlock,
    SystemPart,
    Whole,
    beside,
    conversation,
    decoded,
    number,
    raw_hash,
    read_noted,
    read_rows,
    row_texts,
    with_notes,
)
from calipers.rollouts.checks import Check, compared
from calipers.rollouts.table import Part
from calipers.typed import complete


class TrajectoryTurn(msgspec.Struct, gc=False):
    """A turn of a trajectory. If there is a grader, its turn is the last."""

    role: str | None = None
    content: Any = None


class Logs(msgspec.Struct, gc=False):
    """What a benchmark logged about a trajectory."""

    expected: Raw = NOTHING


class TextTrajectory(msgspec.Struct, gc=False):
    """The texts of a trajectory, and what identifies it."""

    example_id: str | int | None = None
    idx: int | None = None
    benchmark: str | None = None
    turns: Raw = NOTHING
    logs: Raw = NOTHING
    error: str | None = None


EVALUATION: Final[list[tuple[str, Any, Any]]] = [
    ("example_id", str | int | None, None),
    ("idx", int | None, None),
    ("benchmark", str | None, None),
    ("reward", Number, ABSENT),
    ("metrics", dict[str, Any] | None, None),
    ("error", str | None, None),
    ("time_seconds", Number, ABSENT),
]

SUMMARY: Final[list[tuple[str, Any, Any]]] = [
    ("split", str | None, None),
    ("iteration", int | None, None),
    ("group_idx", int, msgspec.NODEFAULT),
    ("traj_idx", Whole, msgspec.NODEFAULT),
    ("tags", list[Any] | None, None),
    ("total_reward", Number, ABSENT),
    ("final_reward", Number, ABSENT),
    ("trajectory_metrics", dict[str, Any] | None, None),
]


EVALUATIONS: Final = "tinker_eval"
SUMMARIES: Final = "tinker_rl"
SCORE_FILE: Final = "result.json"
TRUNCATIONS: Final = ("max_tokens_reached", "context_overflow")
TOKEN_COLUMNS: Final = {"_eval_ob_tokens": "input_tokens", "_eval_ac_tokens": "output_tokens"}  # tinker's name -> ours
MODEL: Final = "assistant"  # the role of the model's turns
_TURNS: Final = msgspec.json.Decoder(complete(list[list[TrajectoryTurn] | None]))
_LOGS: Final = msgspec.json.Decoder(complete(list[Logs | None]))
BATCH: Final = "tinker's rollout summaries have no prompts: a task is a place in the batch of one iteration"


def take_evaluation(rows: RowBlock) -> None:
    """Add a block of trajectories; each is a rollout."""
    builder = rows.builder
    builder.tasks(list(map(_task, rows["example_id"], rows["idx"])))
    builder.numbers("reward", "reward", rows["reward"])
    builder.numbers("column", "latency_s", rows["time_seconds"])
    builder.labels("dataset", rows["benchmark"])
    if any(rows["error"]):
        rows.outcomes([_outcome(error) for error in rows["error"]])
        rows.error_kinds(
            [error.partition("(")[0].partition(":")[0].strip() if error else None for error in rows["error"]]
        )
    metrics: list[dict[str, Any]] = [row_metrics or {} for row_metrics in rows["metrics"]]
    rows.table("column", metrics, names=TOKEN_COLUMNS)
    if "truncated" in rows.labels:
        rows.labelled.add("truncated")
        truncated = [any(number(row_metrics.get(name)) for name in TRUNCATIONS) for row_metrics in metrics]
        builder.labels("truncated", truncated)


def _task(example: str | int | None, idx: int | None) -> str | int:
    """The id of an example; without one, its index."""
    if example is None or example == "":
        return "" if idx is None else idx
    return example


def _outcome(error: str | None) -> str | None:
    if not error:
        return None
    return "timed_out" if error.startswith("timeout") else "client_failed"


def take_summary(rows: RowBlock) -> None:
    """Add a block of summaries; each is a rollout, and ``traj_idx`` is its sample number."""
    builder = rows.builder
    groups = zip(rows["split"], rows["iteration"], rows["group_idx"], strict=True)
    builder.tasks([f"{split or ''} iteration {step} group {group}".strip() for split, step, group in groups])
    builder.whole("sample", rows["traj_idx"])
    builder.numbers("reward", "total_reward", rows["total_reward"])
    builder.numbers("reward", "final_reward", rows["final_reward"])
    builder.labels(STEP, rows["iteration"])
    builder.labels(SPLIT, rows["split"])
    rows.labelled.update((STEP, SPLIT))
    rows.named_numbers("column", rows["trajectory_metrics"])
    if "tags" in rows.labels:
        rows.labelled.add("tags")
        builder.labels("tags", [", ".join(map(str, tags)) if tags else None for tags in rows["tags"]])


EVALUATION_LAYOUT: Final = Layout(EVALUATIONS, EVALUATION, take_evaluation)
SUMMARY_LAYOUT: Final = Layout(SUMMARIES, SUMMARY, take_summary, unnumbered=False, headline="total_reward")


def read_evaluation(source: Source, names: Columns, labels: Collection[str], progress: Progress) -> list[Part]:
    """Read the trajectories of an evaluation, and compare its own score with ours."""
    parts = read_rows("calipers.systems.tinker:EVALUATION_LAYOUT", source, names, labels, progress)
    if any(map(len, parts)):
        parts = [replace(parts[0], checks=own_checks(parts, source.path)), *parts[1:]]
    return with_notes(parts, source.path)


def own_checks(parts: Sequence[SystemPart], path: str) -> list[Check]:
    """The score in ``result.json`` beside the trajectories, and ours: the share of all with a reward above 0."""
    own = beside(path, SCORE_FILE)
    if labels_of(parts, "dataset") != [own.get("name")]:
        return []  # of another benchmark
    positive = 0
    for part in parts:
        if "reward" in part.rewards:
            positive += int((part.rewards["reward"].kept() > 0).sum())
    share = positive / sum(map(len, parts))
    pairs = [("score", own.get("score"), share), ("num_correct", own.get("num_correct"), positive)]
    return compared(EVALUATIONS, pairs, numbers_in(own))


def line_extras(row: Mapping[str, Raw]) -> list[dict[str, Any]]:
    """The prompt and the completion of a trajectory."""
    turns = msgspec.json.decode(row.get("turns", b"null"))
    return [conversation(turns) if isinstance(turns, list) else {}]


def texts(path: str, columns: Columns, wanted: Collection[str]) -> Iterator[Text]:
    """The texts of a file's trajectories.

    The prompt is the turns before the model's first turn; the completion is the text of all of the model's turns.
    """

    def text_of(row: TextTrajectory) -> Text:
        turns = decoded(_TURNS, [row.turns])[0] or []
        roles = [turn.role for turn in turns]
        first = roles.index(MODEL) if MODEL in roles else len(turns)
        logs = decoded(_LOGS, [row.logs])[0]
        return Text(
            *(None, None, row.benchmark, str(_task(row.example_id, row.idx)), 0, ""),
            target=raw_hash(logs.expected) if logs else "",
            completion="\n\n".join(
                turn.content for turn in turns if turn.role == MODEL and isinstance(turn.content, str)
            ),
            prompt=[{"role": turn.role, "content": turn.content} for turn in turns[:first]],
            error=row.error,
        )

    return row_texts(path, TextTrajectory, text_of, wanted)


def is_evaluation(start: Beginning) -> bool:
    """Whether the first row has the keys of an evaluation's trajectory: ``benchmark example_id turns reward``."""
    return start.row is not None and {"benchmark", "example_id", "turns", "reward"} <= start.row.keys()


def is_summary(start: Beginning) -> bool:
    """Whether the first row has the keys of a rollout summary: ``schema_version group_idx traj_idx total_reward``."""
    return start.row is not None and {"schema_version", "group_idx", "traj_idx", "total_reward"} <= start.row.keys()


EVALUATED: Final = Format(
    EVALUATIONS,
    read_evaluation,
    is_evaluation,
    texts,
    in_folders=True,
    line_extras=line_extras,
)
SUMMARISED: Final = Format(
    SUMMARIES, partial(read_noted, "calipers.systems.tinker:SUMMARY_LAYOUT", [BATCH]), is_summary, in_folders=True
)
