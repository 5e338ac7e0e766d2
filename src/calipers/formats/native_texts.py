"""What records of ours, of EvSys' and of any JSON Lines say: their prompts and answers."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from calipers.formats.run_folder import RunLog
from calipers.formats.source import BOM, Source, line_blocks
from calipers.formats.texts import BAD, Raw, Text
from calipers.rollouts.record import GROUP, TEXTS, meant

NOTHING = Raw(b"")
GIVEN_AWAY = "calipers: no key of a record: "


def texts(kind: str, path: str, names: Mapping[str, str], wanted: Collection[str]) -> Iterator[Text]:
    """The first record of each task, whose prompt is its prompt, and all of the wanted tasks."""
    key_of = {role: key for key, role in meant(names).items()}
    text_roles = (*TEXTS, "answer")
    fields: list[Any] = [
        ("task", int | str),
        *((name, Raw, NOTHING) for name in (*text_roles, "sample")),
        *((name, str | None, None) for name in GROUP),
    ]
    # the key of a role may be given away by --columns: then it is to be found nowhere
    keys = {spec[0]: key_of.get(spec[0], f"{GIVEN_AWAY}{spec[0]}") for spec in fields}
    row = msgspec.defstruct("Row", fields, rename=keys, gc=False)
    marks = [f'"{key_of[name]}"'.encode() for name in text_roles if name in key_of]
    seen = set[tuple[Any, ...]]()
    for record in rows(path, kind, row, marks):
        who = (record.task, record.agent, record.model, record.dataset)
        task = str(record.task)
        if who in seen and task not in wanted:
            continue
        seen.add(who)
        sample = int(bytes(record.sample) or b"0")
        yield Text(*who[1:], task, sample, completion=record.completion, prompt=record.prompt, answer=record.answer)


def rows(path: str, kind: str, row: Any, marks: Sequence[bytes]) -> Iterator[Any]:
    """The lines of a file as structs of one type; blocks without any of the marks are passed over."""
    decoder = msgspec.json.Decoder(row)
    with RunLog(os.path.dirname(path)) if kind == "run" else Source(path) as source:
        source.head = source.head.removeprefix(BOM)
        for block in line_blocks(source.readinto):
            data = bytes(block)
            if not any(mark in data for mark in marks):
                continue
            try:
                yield from decoder.decode_lines(data)
            except BAD:
                yield from _one_by_one(data, decoder)


def _one_by_one(data: bytes, decoder: Any) -> Iterator[Any]:
    for line in data.split(b"\n"):
        try:
            if line.strip():
                yield decoder.decode(line)
        except BAD:  # a row that the reader of rollouts knows what to do with
            continue
