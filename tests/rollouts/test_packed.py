"""Packed rollouts give the same results as unpacked ones, for any order and split."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from calipers.names import METRICS
from calipers.pipeline import score_rollouts
from calipers.request import make_plan
from calipers.rollouts import packed as packing
from calipers.rollouts.column import Column
from calipers.rollouts.ids import Ids, id_order, union
from calipers.rollouts.ledger import lost_before_answer
from calipers.rollouts.packed import Repeated, merge, pack, table_of
from calipers.rollouts.record import OUTCOMES, UNSTATED
from calipers.rollouts.table import Labels, Part, Places, assemble

IDS = ["a", "b", "10", "9", "007", "7", "0", "00", "-3", "task-1", "task-10", "ü", "a\0", "一"]
NUMBERS = st.sampled_from([0.0, 1.0, 0.5, 0.1, 1.0, 0.0, -0.0, 3.0, float("nan"), float("inf")])
ROWS = st.lists(
    st.tuples(
        st.sampled_from(IDS),
        st.integers(0, 5),
        st.integers(1, 2),
        st.sampled_from([None, *OUTCOMES]),
        st.none() | NUMBERS,
        st.none() | NUMBERS,
        st.sampled_from([None, "m", "n"]),
        st.sampled_from([None, "easy", "hard", 3]),
        st.booleans(),
    ),
    max_size=40,
)


def part_of(rows):
    """The rows of one file."""
    ids = list(dict.fromkeys(row[0] for row in rows))
    column = lambda at: Column.of([row[at] or 0.0 for row in rows], [row[at] is not None for row in rows])  # noqa: E731

    def other(row):  # a reward that one dataset alone has
        return (row[5] or 0.0, row[5] is not None) if row[6] == "m" else (0.0, False)

    def labels(at):
        values = [value for value in dict.fromkeys(row[at] for row in rows) if value is not None]
        return Labels(np.array([values.index(row[at]) if row[at] is not None else -1 for row in rows], int), values)

    return Part(
        Places("rows", "", [(0, 1)]),
        ids,
        np.array([ids.index(row[0]) for row in rows], dtype=np.int64),
        np.array([row[1] for row in rows], dtype=np.int64),
        np.array([row[2] for row in rows], dtype=np.int64),
        np.array([UNSTATED if row[3] is None else OUTCOMES.index(row[3]) for row in rows], dtype=np.uint8),
        {
            "reward": column(4),
            "other": Column.of(*zip(*[other(row) for row in rows], strict=True)) if rows else column(4),
        },
        {"latency_s": column(5)},
        {"model": labels(6), "dataset": labels(6), "metadata.level": labels(7)},
        before_answer=np.array([row[8] for row in rows]) if any(row[8] for row in rows) else None,
    )


def sound(rows):
    """The rows without invalid ones: repeated rollouts, and `scored` without a reward."""
    once = {(row[0], row[1], row[2], row[6]): row for row in rows}
    return [row for row in once.values() if not (row[3] == "scored" and row[4] is None)]


def shown(result):
    """A result as text; NaN is equal to itself there."""
    return result.to_json()


ALL = [
    "mean_reward",
    "pass_rate",
    "pass@2",
    "pass^2",
    "any_of_first_2",
    "all_of_first_2",
    "max@2",
    "median(column=reward)",
    "percentile(column=latency_s, q=90)",
    "sum(column=latency_s)",
    "std(column=reward)",
    "solved_rate",
]
ALL = [name for name in ALL if METRICS.match(name.partition("(")[0])]


def spread(rewards):
    """A metric of the user's, which sees every reward in order."""
    return float(sum(sum(task[::2]) - sum(task[1::2]) for task in rewards))


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch):
    monkeypatch.setattr(packing, "AT_A_TIME", 7)  # several blocks even of a few rows


@settings(phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(ROWS, st.lists(st.integers(0, 40), max_size=3), st.randoms(use_true_random=False), st.booleans())
def test_any_split_in_any_order_is_the_same_table_and_gives_the_same_result(rows, cuts, random, zero):
    rows = sound(rows)
    whole = assemble([part_of(rows)])
    plan = make_plan([*ALL, spread], by=["level", "sample"], missing="zero" if zero else "gap", threshold=1)
    expected = shown(score_rollouts(whole, plan))
    random.shuffle(rows)
    ends = sorted({0, len(rows), *(cut for cut in cuts if cut < len(rows))})
    pieces = [part_of(rows[start:end]) for start, end in pairwise(ends)] or [part_of(rows)]
    loose = [pack(piece) for piece in pieces]
    table = table_of(merge([merge(loose[:1]), *loose[1:]]))
    assert shown(score_rollouts(table, plan)) == expected
    again = table.whole()
    assert again.elsewhere == whole.elsewhere
    assert list(again.tasks) == list(whole.tasks)
    assert again.task.tolist() == whole.task.tolist()
    assert again.sample.tolist() == whole.sample.tolist()
    assert again.outcome.tolist() == whole.outcome.tolist()
    assert lost_before_answer(again).tolist() == lost_before_answer(whole).tolist()


def test_the_levels_of_a_rubric_are_those_of_all_tasks():
    """A posterior over the levels that rewards take: 0.5 occurs in the later tasks only, and in other blocks."""
    rows = [
        (
            f"t{task:02}",
            sample,
            1,
            "scored",
            0.5 if task >= 20 and not sample else float(sample % 2),
            None,
            None,
            None,
            False,
        )
        for task in range(40)
        for sample in range(3)
    ]
    plan = make_plan(["bayes_mean"])
    expected = shown(score_rollouts(assemble([part_of(rows)]), plan))
    assert shown(score_rollouts(table_of(merge([pack(part_of(rows))])), plan)) == expected


@given(ROWS.filter(lambda rows: len(sound(rows)) > 0), st.data())
def test_a_rollout_that_two_parts_have_is_named(rows, data):
    rows = [row for row in sound(rows) if row[3] != "stopped_early"]
    if not rows:
        return
    twice = data.draw(st.sampled_from(rows))
    with pytest.raises(Repeated) as error:
        merge([pack(part_of(rows)), pack(part_of([twice]))])
    assert error.value.args[:3] == twice[:3]


@given(st.lists(st.lists(st.sampled_from(IDS) | st.text(max_size=12) | st.integers(0, 10**19).map(str)), min_size=1))
def test_ids_are_in_the_order_of_the_table(lists):
    lists = [list(dict.fromkeys(ids)) for ids in lists]
    ids, places = union([Ids.of(each) for each in lists])
    assert list(ids) == sorted({task for each in lists for task in each}, key=id_order)
    for each, place in zip(lists, places, strict=True):
        assert [ids[at] for at in place.tolist()] == each


@given(st.lists(st.lists(st.integers(-5, 30)), min_size=1))
def test_numbers_are_the_ids_that_their_text_is(lists):
    lists = [list(dict.fromkeys(ids)) for ids in lists]
    ids, places = union([Ids.of_numbers(np.array(each, dtype=np.int64)) for each in lists])
    assert list(ids) == sorted({str(task) for each in lists for task in each}, key=id_order)
    for each, place in zip(lists, places, strict=True):
        assert [ids[at] for at in place.tolist()] == list(map(str, each))
