"""The numbers that readers compute to compare them with a system's own, and documents that have none."""

from __future__ import annotations

import math

import numpy as np
import pytest

from calipers.formats.own_numbers import (
    document_at,
    inside,
    labels_of,
    mean_of_task_means,
    numbers_in,
    parsed,
    pooled_mean,
)
from calipers.rollouts.column import Column
from calipers.rollouts.table import Labels, Part, Places


def part(tasks, rewards, models):
    """Rollouts of these tasks; a reward that is None is missing, and so is a model."""
    names, rows = sorted(set(tasks)), len(tasks)
    known = [model for model in dict.fromkeys(models) if model is not None]
    codes = [-1 if model is None else known.index(model) for model in models]
    values = [0.0 if reward is None else reward for reward in rewards]
    return Part(
        Places("file"),
        names,
        np.array([names.index(task) for task in tasks]),
        np.zeros(rows, dtype=np.int64),
        np.ones(rows, dtype=np.int64),
        np.zeros(rows, dtype=np.uint8),
        rewards={"score": Column.of(values, [reward is not None for reward in rewards])},
        labels={"model": Labels(np.array(codes), known)},
    )


PARTS = [part("aab", [1.0, 0.0, None], ["m", "m", None]), part("bcb", [0.5, 0.25, 1.0], ["n", "m", "n"])]


def test_the_mean_over_rollouts_counts_a_missing_value_only_on_request():
    assert pooled_mean(PARTS, "score") == 2.75 / 5
    assert pooled_mean(PARTS, "score", missing_is_zero=True) == 2.75 / 6
    assert pooled_mean(PARTS, "other") is None
    assert pooled_mean(PARTS, "other", missing_is_zero=True) == 0.0


def test_the_mean_over_tasks_joins_a_task_that_is_in_two_parts():
    assert mean_of_task_means(PARTS, "score") == pytest.approx((0.5 + 0.75 + 0.25) / 3, abs=1e-15)
    assert mean_of_task_means(PARTS, "other") is None


def test_rollouts_are_chosen_by_their_labels():
    assert pooled_mean(PARTS, "score", {"model": "m"}) == 1.25 / 3
    assert pooled_mean(PARTS, "score", {"model": None}) is None
    assert pooled_mean(PARTS, "score", {"model": None}, missing_is_zero=True) == 0.0
    assert pooled_mean(PARTS, "score", {"model": "unknown"}) is None
    assert pooled_mean(PARTS, "score", {"absent": None}) == 2.75 / 5
    assert labels_of(PARTS, "model") == ["m", "n"]
    assert labels_of(PARTS, "absent") == []


@pytest.mark.parametrize(
    "content", [b"", b"{", b"\xff\xfe", b'{"a": ' + b"9" * 5000 + b"}", b"[" * 100_000, b"\0"], ids=range(6)
)
def test_a_document_that_is_not_json_has_no_numbers(tmp_path, content):
    path = tmp_path / "own.json"
    path.write_bytes(content)
    assert document_at(str(path)) is None


def test_a_document_that_is_absent_or_no_file_has_no_numbers(tmp_path):
    (tmp_path / "loop").symlink_to("loop")
    for path in (str(tmp_path), str(tmp_path / "absent"), str(tmp_path / "loop"), "a\0b"):
        assert document_at(path) is None


def test_python_writes_nan_into_documents():
    document = parsed('{"a": NaN, "b": 0.1, "c": 3, "d": "0.5"}')
    assert math.isnan(inside(document, "a"))
    assert numbers_in(document)[1:] == [0.1]
    assert numbers_in([0.5]) == []
    assert inside(document, "a", "b") is None
