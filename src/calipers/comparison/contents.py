"""What the records say beside their numbers: the prompt of each task, and the answers of some.

The table of rollouts keeps no texts, so that the files are read once more, and only what is wanted kept.
Where a source says nothing, is a pipe, or is of a kind that keeps texts elsewhere, there is nothing here.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from calipers.readers import evsys, inspect_texts, lm_eval
from calipers.readers.files import BOM, Source, line_blocks
from calipers.readers.read import Input
from calipers.readers.run_folder import RunLog
from calipers.rollouts.record import meant

Raw = msgspec.Raw
NOTHING = Raw(b"")
Key = tuple[str | None, ...]  # agent, model, dataset
_GREEDY = ("True", "False")  # whether a choice is what the model would have said itself, written as text by some
LONGEST = 4_000  # characters of an answer that are kept
GIVEN_AWAY = "calipers: no key of a record: "
_BAD = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


@dataclass(slots=True)
class Said:
    """What one group of rollouts says."""

    prompts: dict[str, bytes] = field(default_factory=dict)  # task -> hash of its prompt
    documents: dict[str, bytes] = field(default_factory=dict)  # task -> hash of the document it is made of
    answers: dict[str, tuple[int, str]] = field(default_factory=dict)  # task -> (sample, text) of its first sample


@dataclass(frozen=True, slots=True)
class _Record:
    who: Key  # as far as the record says
    task: str
    sample: int
    prompt: Raw | str
    document: str
    said: Sequence[Raw]  # the first that says something is the answer


def contents(
    inputs: Sequence[Input], keys: Sequence[Key], columns: Mapping[str, str], wanted: Mapping[Key, Collection[str]]
) -> dict[Key, Said]:
    """What the files of one side say: prompts of all tasks, answers of the wanted ones, by group."""
    found = {key: Said() for key in keys}
    owner: dict[Key, Key | None] = {}
    every = frozenset(task for tasks in wanted.values() for task in tasks)
    for one in inputs:
        for record in _records(one, columns, every):
            who = record.who
            if who not in owner:
                owner[who] = _owner(who, keys)
            key = owner[who]
            if key is None:
                continue
            said, task = found[key], record.task
            if task not in said.prompts and record.prompt:
                said.prompts[task] = _hash(_prompt(record.prompt))
            if record.document and task not in said.documents:
                said.documents[task] = record.document.encode()
            if task in wanted.get(key, ()) and record.sample < said.answers.get(task, (1 << 62, ""))[0]:
                texts = (spoken(_decoded(raw)) for raw in record.said if raw)
                if text := next((text for text in texts if text is not None), None):
                    said.answers[task] = record.sample, text[:LONGEST]
    return found


def spoken(value: Any) -> str | None:
    """What a JSON value says: a text, the last text of messages or parts, a number as it is written.

    >>> spoken([{"role": "user", "content": "6 x 7?"}, {"role": "assistant", "content": [{"text": "42"}]}])
    '42'
    """
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return next((text for one in reversed(value) if (text := spoken(one)) is not None), None)
    if isinstance(value, dict):
        return next(
            (text for key in ("content", "text", "output") if (text := spoken(value.get(key))) is not None), None
        )
    return None if value is None else json.dumps(value)


def _records(one: Input, columns: Mapping[str, str], wanted: frozenset[str]) -> Iterator[_Record]:
    if not os.path.isfile(one.path):
        return
    if one.format in ("native", "jsonl", "run", "evsys_predictions"):
        roles = {**evsys.NAMES, **columns} if one.format == "evsys_predictions" else columns
        yield from _native(one, {role: key for key, role in meant(roles).items()}, wanted)
    elif one.format == "nemo_gym":
        yield from _gym(one)
    elif one.format in ("lm_eval_samples", "lm_eval_results"):
        paths = lm_eval.samples_beside(one.path) if one.format == "lm_eval_results" else [one.path]
        for path in paths:
            yield from _lm_eval(path)
    elif one.format == "inspect":
        for said in inspect_texts.texts(one.path):
            prompt, answer = (Raw(msgspec.json.encode(value)) for value in (said.prompt, said.answer))
            yield _Record(said[:3], said.task, said.sample, prompt, "", (answer,))


def _native(one: Input, key_of: Mapping[str, str], wanted: frozenset[str]) -> Iterator[_Record]:
    """The first record of each task, whose prompt is its prompt, and all of the wanted tasks."""
    texts = ("prompt", "answer", "completion")
    fields: list[Any] = [
        ("task", int | str),
        *((name, Raw, NOTHING) for name in (*texts, "sample")),
        *((name, str | None, None) for name in ("agent", "model", "dataset")),
    ]
    # the key of a role may be given away by --columns: then it is to be found nowhere
    keys = {spec[0]: key_of.get(spec[0], f"{GIVEN_AWAY}{spec[0]}") for spec in fields}
    row = msgspec.defstruct("Row", fields, rename=keys, gc=False)
    marks = [f'"{key_of[name]}"'.encode() for name in texts if name in key_of]
    seen = set[tuple[Any, ...]]()
    for record in _rows(one, row, marks):
        key = (record.task, record.agent, record.model, record.dataset)
        task = str(record.task)
        if key in seen and task not in wanted:
            continue
        seen.add(key)
        sample = int(bytes(record.sample) or b"0")
        yield _Record(key[1:], task, sample, record.prompt, "", (record.answer, record.completion))


class _Agent(msgspec.Struct, gc=False):
    name: str | None = None


class _Gym(msgspec.Struct, gc=False):
    task: int | str = msgspec.field(name="_ng_task_index", default="")
    sample: int = msgspec.field(name="_ng_rollout_index", default=0)
    agent: _Agent | None = msgspec.field(name="agent_ref", default=None)
    asked: Raw = msgspec.field(name="responses_create_params", default=NOTHING)
    response: Raw = NOTHING


class _Params(msgspec.Struct, gc=False):
    input: Raw = NOTHING


def _gym(one: Input) -> Iterator[_Record]:
    for row in _rows(one, _Gym, [b'"responses_create_params"', b'"response"']):
        agent = row.agent.name if row.agent else None
        try:
            prompt = msgspec.json.decode(row.asked, type=_Params).input if row.asked else NOTHING
        except _BAD:
            prompt = NOTHING
        yield _Record((agent, None, None), str(row.task), row.sample, prompt, "", (row.response,))


def _lm_eval(path: str) -> Iterator[_Record]:
    task = lm_eval.task_of(path)
    with Source(path) as source:
        for row in lm_eval.rows_of(source):
            pipeline = row.get("filter", lm_eval.UNNAMED)
            arguments = row.get("arguments")
            first = next(iter(arguments.values()), None) if isinstance(arguments, dict) else None
            prompt = first.get("arg_0") if isinstance(first, dict) else None
            yield _Record(
                (None if pipeline == lm_eval.UNNAMED else str(pipeline), None, task),
                str(row["doc_id"]),
                0,
                prompt if isinstance(prompt, str) else str(row.get("prompt_hash") or ""),
                str(row.get("doc_hash") or ""),
                [Raw(msgspec.json.encode(_chosen(row[name]))) for name in ("filtered_resps", "resps")],
            )


def _chosen(answers: Any) -> Any:
    """The likeliest of several choices by its number; any other answer as it is."""
    pairs = answers if isinstance(answers, list) else []
    if len(pairs) < 2 or not all(isinstance(one, list) and len(one) == 2 and str(one[1]) in _GREEDY for one in pairs):
        return answers
    return f"choice {max(range(len(pairs)), key=lambda place: float(pairs[place][0]))}"


def _rows(one: Input, row: Any, marks: Sequence[bytes]) -> Iterator[Any]:
    """The lines of a file as records; blocks without any of the marks are passed over."""
    decoder = msgspec.json.Decoder(row)
    with RunLog(os.path.dirname(one.path)) if one.format == "run" else Source(one.path) as source:
        source.head = source.head.removeprefix(BOM)
        for block in line_blocks(source.readinto):
            data = bytes(block)
            if not any(mark in data for mark in marks):
                continue
            try:
                yield from decoder.decode_lines(data)
            except _BAD:
                yield from _one_by_one(data, decoder)


def _one_by_one(data: bytes, decoder: Any) -> Iterator[Any]:
    for line in data.split(b"\n"):
        try:
            if line.strip():
                yield decoder.decode(line)
        except _BAD:  # a row that the reader of rollouts knows what to do with
            continue


def _owner(who: Key, keys: Sequence[Key]) -> Key | None:
    """The group that a record belongs to, by what it says of itself; None where several may be meant."""
    found = [key for key in keys if all(said is None or said == own for said, own in zip(who, key, strict=True))]
    exact = [key for key in found if key == who]
    return (exact or found)[0] if len(exact or found) == 1 else None


def _prompt(raw: Raw | str) -> str:
    """The text of a prompt: what the only message says, or all of them as they are."""
    value = raw if isinstance(raw, str) else _decoded(raw)
    alone = value[0] if isinstance(value, list) and len(value) == 1 else value
    text = spoken(alone) if isinstance(alone, (str, dict)) else None
    return json.dumps(value, sort_keys=True) if text is None else text


def _decoded(raw: Raw) -> Any:
    try:
        return msgspec.json.decode(raw)
    except _BAD:
        return None


def _hash(text: str) -> bytes:
    return hashlib.blake2b(text.strip().encode("utf-8", "replace"), digest_size=16).digest()
