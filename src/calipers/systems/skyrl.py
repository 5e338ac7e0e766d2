"""The reader of SkyRL's dumped evaluations, ``dumped_evals/global_step_20_evals/openai_gsm8k.jsonl``."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from typing import Any, Final

import msgspec

from calipers.errors import InputError
from calipers.formats import BAD, Beginning, Columns, Format, Progress, Raw, Text, insisted
from calipers.formats.jsonl import marked_rows
from calipers.formats.lines import ABSENT, NOTHING, kind_of
from calipers.formats.own_numbers import labels_of, numbers_in, pooled_mean
from calipers.formats.source import Source, blocks_of
from calipers.formats.system_rows import (
    STEP,
    Layout,
    Number,
    PromptTasks,
    Remembered,
    RowBlock,
    SystemPart,
    beside,
    given,
    raw_hash,
    read_rows,
    row_texts,
    step_in,
    type_fault,
    with_notes,
)
from calipers.rollouts.checks import Check, compared, decimals_apart
from calipers.rollouts.table import BadRow, Part
from calipers.typed import complete

SYSTEM: Final = "skyrl"
AGGREGATE: Final = "aggregated_results.jsonl"  # SkyRL's own numbers of all files in the folder, on one line
ROW_EACH: Final = "expected a row for each trajectory of the evaluation, such as its last step"
UNNAMED: Final = "unknown"  # SkyRL's own name for a data source that is null
LAST: Final = "last_token_score"  # a reward of its own, because SkyRL's pass_at_n reads it instead of the score
_STEP: Final = re.compile(r"global_step_([0-9]+)_evals\Z")
_TAGS: Final = re.compile(r"<\|[^|>]*\|>")


class SkyRLText(msgspec.Struct, gc=False):
    """The texts of a row, and what identifies its task."""

    input_prompt: Raw = NOTHING
    output_response: Raw = NOTHING
    env_extras: Raw = NOTHING
    data_source: str | None = None


class ScoreField(msgspec.Struct, gc=False):
    """The score of a row: one number for the response, or a list with one number per token."""

    score: Number | list[float | None] = None


FIELDS: Final[list[tuple[str, Any, Any]]] = [
    ("input_prompt", Raw, msgspec.NODEFAULT),
    ("score", Raw, NOTHING),  # decoded as `ScoreField`
    ("stop_reason", str | None, ABSENT),
    ("env_class", str | None, ABSENT),
    ("env_extras", Raw, NOTHING),
    ("data_source", str | None, None),
]


class _Spec(msgspec.Struct, gc=False):
    ground_truth: Raw = Raw(b"")


class _Extras(msgspec.Struct, gc=False):
    reward_spec: _Spec | None = None


_EXTRAS: Final = msgspec.json.Decoder(complete(_Extras | None))
_SCORED: Final = msgspec.json.Decoder(complete(ScoreField))
_PLAIN: Final = msgspec.json.Decoder(list[Number])


def users_turn(prompt: str) -> str:
    """The last 1,000 characters of a prompt, without special tokens."""
    return _TAGS.sub(" ", prompt[-1000:]).strip()


def take(rows: RowBlock) -> None:
    """Add a block of rows; each row is a rollout."""
    builder = rows.builder
    tasks = rows.memory.setdefault("tasks", PromptTasks(users_turn))
    golds = rows.memory.setdefault("golds", Remembered(_gold))  # cached, because rows repeat their extras
    builder.tasks(tasks.of(rows["input_prompt"], golds.of(map(bytes, rows["env_extras"]))))
    raws = list(map(bytes, rows["score"]))
    if any(raw[:1] == b"[" for raw in raws):
        sums, last = zip(*[_sum_and_last(row, raw) for row, raw in enumerate(raws)], strict=True)
        builder.numbers("reward", LAST, last)
        builder.numbers("reward", "score", sums)
    else:
        builder.numbers("reward", "score", _response_scores(raws))
    builder.labels("dataset", [UNNAMED if name is None else name for name in rows["data_source"]])
    step = rows.memory.setdefault("step", step_in(rows.path, _STEP))
    if step is not None:
        rows.labelled.add(STEP)
        rows.constant(STEP, step)
    rows.metadata(rows["env_extras"])


def _gold(raw: bytes) -> bytes:
    """The gold answer in a row's extras, as raw JSON."""
    try:
        extras = _EXTRAS.decode(raw) if raw else None
    except BAD:
        return b""
    return bytes(extras.reward_spec.ground_truth) if extras and extras.reward_spec else b""


def _response_scores(raws: Sequence[bytes]) -> Sequence[Number]:
    """Decode a block of scores, each of which is one number for its response."""
    try:
        return _PLAIN.decode(b"[%b]" % b",".join([raw or b"null" for raw in raws]))
    except BAD:  # at least one is not a number: decode each, so that the error names its row
        return [_sum_and_last(row, raw)[0] for row, raw in enumerate(raws)]


def _sum_and_last(row: int, raw: bytes) -> tuple[Number, Number]:
    """The sum of the scores of a response's tokens, and the score of the last token; BadRow if there is no score.

    A response with one score for all its tokens has that score as both.
    """
    before, _, end = raw[1:-1].rpartition(b",")
    if raw[:1] == b"[" and not before.translate(None, b"0., "):  # fast path: usually all but the last score are 0
        with suppress(ValueError):
            last = float(end)
            if math.isfinite(last):
                return last + 0.0, last
    try:
        score = _SCORED.decode(b'{"score":%b}' % (raw or b"null")).score
    except BAD as error:
        raise BadRow(row, *type_fault(str(error), f"expected a row as {SYSTEM} writes it")) from None
    return (_summed(score), score[-1] if score else None) if isinstance(score, list) else (score, score)


def _summed(scores: Sequence[Any]) -> float | None:
    """The sum of the tokens' scores; None if a token has no score, because a missing score is not 0."""
    try:
        return sum(scores) if scores else None
    except TypeError:
        return None


LAYOUT: Final = Layout(SYSTEM, FIELDS, take, headline="score")


def read(source: Source, names: Columns, labels: Collection[str], progress: Progress) -> list[Part]:
    """Read the rollouts of a file; InputError if its rows are the steps of trajectories.

    With ``step_wise_trajectories`` SkyRL writes a row for each step, and nothing says which steps are of one
    trajectory. Its own numbers beside the file count trajectories, so they differ from those of the rows.
    """
    parts = read_rows("calipers.systems.skyrl:LAYOUT", source, names, labels, progress)
    if not any(map(len, parts)):
        return with_notes(parts, source.path)
    checks = own_checks(parts, source.path)
    for check in checks:
        if not check.agrees:
            places = decimals_apart(check.theirs, check.ours)
            own = f"SkyRL's avg_score is {check.theirs:.{places}f}, the rows' mean {check.ours:.{places}f}"
            raise InputError.at(source.path, f"rows are steps, not trajectories: {own}", ROW_EACH)
    notes = []
    if not checks and continues(source.path):
        problem = "rows are steps, not trajectories: some prompts continue the prompts of other rows"
        if insisted(names) != SYSTEM:
            raise InputError.at(
                source.path, problem, f"{ROW_EACH}, or --input-format {SYSTEM} if they are trajectories"
            )
        notes.append(f"{source.path}: some prompts continue the prompts of other rows: its rows may be steps")
    with_checks = [replace(parts[0], checks=checks), *parts[1:]]
    return with_notes(with_checks, source.path, notes)


def own_checks(parts: Sequence[SystemPart], path: str) -> list[Check]:
    """SkyRL's own mean score of each data source in a file, from ``aggregated_results.jsonl`` beside it, and ours."""
    own = beside(path, AGGREGATE)
    pairs = []
    for dataset in labels_of(parts, "dataset"):
        key = f"eval/{dataset.replace('/', '_')}/avg_score"  # as in the names of SkyRL's files
        pairs.append((key, own.get(key), pooled_mean(parts, "score", {"dataset": dataset})))
    return compared(SYSTEM, pairs, numbers_in(own))


def continues(path: str) -> bool:
    """Whether the prompt of a row begins with the whole prompt of another row, as steps of a trajectory do.

    False for a pipe, which cannot be read again.
    """
    if not os.path.isfile(path):
        return False
    rows = marked_rows(blocks_of(Source(path)), SkyRLText, [b""])
    raws = {bytes(row.input_prompt) for row in rows}
    prompts = sorted(raw[:-1] for raw in raws if raw.startswith(b'"'))
    # a prompt that another one continues comes directly before one of those that continue it
    return any(later.startswith(prompt) for prompt, later in pairwise(prompts))


def texts(path: str, columns: Columns, wanted: Collection[str]) -> Iterator[Text]:
    """The texts of a file's rows."""
    tasks = PromptTasks(users_turn)

    def text_of(row: SkyRLText) -> Text:
        gold = Raw(_gold(bytes(row.env_extras)))
        task, dataset = tasks.of([row.input_prompt], [gold])[0], row.data_source or UNNAMED
        return Text(None, None, dataset, task, 0, "", raw_hash(gold), row.output_response, row.input_prompt)

    return row_texts(path, SkyRLText, text_of, wanted)


def line_extras(row: Mapping[str, Raw]) -> list[dict[str, Any]]:
    """The texts of a row, its labels, and its ``env_extras`` as metadata."""
    metadata = given(row, metadata="env_extras") if kind_of(row.get("env_extras", NOTHING)) == "object" else {}
    labels = given(row, stop_reason="stop_reason", env_class="env_class")
    return [{**labels, **metadata, **given(row, prompt="input_prompt", completion="output_response")}]


def recognise(start: Beginning) -> bool:
    """Whether the first row has SkyRL's keys: ``input_prompt output_response score``."""
    return start.row is not None and {"input_prompt", "output_response", "score"} <= start.row.keys()


ROLLOUTS: Final = Format(
    SYSTEM,
    read,
    recognise,
    texts,
    in_folders=True,
    line_extras=line_extras,
)
