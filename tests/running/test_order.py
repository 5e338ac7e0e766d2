"""The order of tasks and the seeds of samples: random, the same everywhere, and dependent only on the seed."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from calipers.running.perform import sample_seed, shuffled
from calipers.tasks import Task

TASKS = [Task(f"t{i}", "?") for i in range(50)]


def ids(tasks):
    return [task.id for task in tasks]


def test_the_order_is_the_same_on_every_machine():
    assert ids(shuffled(TASKS, 0))[:6] == ids(shuffled(list(reversed(TASKS)), 0))[:6]
    assert ids(shuffled(TASKS, 0)) != ids(TASKS)
    assert ids(shuffled(TASKS, 0)) != ids(shuffled(TASKS, 1))


@given(st.sets(st.integers(0, 49), min_size=1), st.integers(0, 5))
def test_a_task_that_is_added_changes_the_order_of_no_others(kept, seed):
    few = [TASKS[i] for i in sorted(kept)]
    chosen = {task.id for task in few}
    assert ids(shuffled(few, seed)) == [name for name in ids(shuffled(TASKS, seed)) if name in chosen]


def test_every_sample_has_a_seed_of_its_own():
    seeds = {sample_seed(0, task.id, sample) for task in TASKS for sample in range(20)}
    assert len(seeds) == 1_000
    assert all(0 <= seed < 2**31 for seed in seeds)
    assert sample_seed(0, "t0", 0) != sample_seed(1, "t0", 0)


def test_an_id_that_is_no_text_elsewhere_has_a_place_too():
    assert shuffled([Task("\ud800", "?")], 0)[0].id == "\ud800"
