"""NeMo Gym: its rollouts, and the files that lie beside them."""

from __future__ import annotations

from calipers.formats.format import Beginning, Format
from calipers.systems.nemo_gym import read
from calipers.systems.nemo_gym.read import has_companions


def _is_rollout(start: Beginning) -> bool:
    """Whether a line carries an index of NeMo Gym's collector; an empty file, whether its companions do."""
    if not start.line:
        return has_companions(start.path)
    if start.row is None:  # it is no strict JSON, perhaps for a NaN
        return read.is_row(start.line)
    return "task" not in start.columns and not read.INDICES.isdisjoint(start.row)


ROLLOUTS = Format(
    "nemo_gym",
    read.read,
    _is_rollout,
    texts=lambda path, columns, wanted: read.texts(path),
    without_companions=read.without_companions,
)
