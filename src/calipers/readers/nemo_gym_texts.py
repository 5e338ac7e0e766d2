"""What NeMo Gym's rollouts say: what was sent to the model, and what came back."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from calipers.readers.native_texts import NOTHING, rows
from calipers.readers.nemo_gym_rows import as_index
from calipers.readers.texts import BAD, Raw, Text

_MARKS = [b'"responses_create_params"', b'"response"']


class _Agent(msgspec.Struct, gc=False):
    name: str | None = None


class _Row(msgspec.Struct, gc=False):
    task: int | float | str = msgspec.field(name="_ng_task_index", default="")
    sample: int | float = msgspec.field(name="_ng_rollout_index", default=0)
    agent: _Agent | None = msgspec.field(name="agent_ref", default=None)
    asked: Raw = msgspec.field(name="responses_create_params", default=NOTHING)
    response: Raw = NOTHING


class _Params(msgspec.Struct, gc=False):
    input: Raw = NOTHING


def texts(path: str) -> Iterator[Text]:
    """The texts of every rollout in a file."""
    for row in rows(path, "nemo_gym", _Row, _MARKS):
        agent = row.agent.name if row.agent else None
        try:
            prompt = msgspec.json.decode(row.asked, type=_Params).input if row.asked else NOTHING
        except BAD:
            prompt = NOTHING
        task, sample = as_index(row.task), as_index(row.sample)
        if not isinstance(sample, float):
            yield Text(agent, None, None, str(task), sample, completion=row.response, prompt=prompt)
