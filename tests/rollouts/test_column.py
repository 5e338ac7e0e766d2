import numpy as np
from making import GAP, rewards


def test_counts_and_sums_leave_gaps_out_and_keep_empty_tasks():
    column, by = rewards([1, GAP, 0.5], [], [GAP])
    assert by.count(column.given).tolist() == [2, 0, 0]
    assert by.sum(column).tolist() == [1.5, 0.0, 0.0]


def test_rank_counts_only_given_samples():
    column, by = rewards([GAP, 1, GAP, 0], [0, 1])
    assert by.rank(column.given).tolist() == [-1, 0, -1, 1, 0, 1]


def test_blocks_hold_every_task_with_values_once():
    column, by = rewards([1, 2], [], [3], [4, GAP, 5], [6])
    found = {int(task): row.tolist() for tasks, matrix in by.blocks(column) for task, row in zip(tasks, matrix)}
    assert found == {0: [1, 2], 2: [3], 3: [4, 5], 4: [6]}


def test_blocks_of_equal_tasks_are_one_matrix():
    column, by = rewards([1, 2], [3, 4])
    ((tasks, matrix),) = by.blocks(column)
    assert np.array_equal(tasks, [0, 1])
    assert matrix.tolist() == [[1, 2], [3, 4]]
