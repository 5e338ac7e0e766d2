"""NeMo Gym: its rollouts, and the files that lie beside them."""

from __future__ import annotations

from calipers.readers import nemo_gym, nemo_gym_texts
from calipers.readers.format import Beginning, Format
from calipers.readers.nemo_gym_beside import has_companions


def _is_rollout(start: Beginning) -> bool:
    """Whether a line carries an index of NeMo Gym's collector; an empty file, whether its companions do."""
    if not start.line:
        return has_companions(start.path)
    if start.row is None:  # it is no strict JSON, perhaps for a NaN
        return nemo_gym.is_row(start.line)
    return "task" not in start.columns and not nemo_gym.INDICES.isdisjoint(start.row)


ROLLOUTS = Format(
    "nemo_gym",
    nemo_gym.read,
    _is_rollout,
    texts=lambda path, columns, wanted: nemo_gym_texts.texts(path),
    without_companions=nemo_gym.without_companions,
)
