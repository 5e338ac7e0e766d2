import re

import pytest
from making import rollouts

import calipers
from calipers.errors import InputError
from calipers.rollouts.labels import clusters, slices, without
from calipers.rollouts.record import label


def cut(table, key):
    """The slices of a key, and the tasks in each."""
    code, names = slices(table, key, label)
    tasks = [table.tasks[task] for task in table.task]
    return {name: [task for task, of in zip(tasks, code) if of == number] for number, name in enumerate(names)}


def test_slices_that_are_numbers_stand_by_size_before_text():
    steps = [100, "x", 20, 3, -1, None, 0.5, "1e3", "0x5", "inf"]
    table = rollouts(*({"task": f"t{n}", "reward": 0, "step": step} for n, step in enumerate(steps)), labels=["step"])
    assert list(cut(table, "step")) == ["-1", "0.5", "3", "20", "100", "1e3", "0x5", "__missing__", "inf", "x"]


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("task", {"9": ["9"], "10": ["10", "10"]}),
        ("sample", {"0": ["9", "10"], "7": ["10"]}),
        ("outcome", {"refused": ["10"], "scored": ["9", "10"]}),
        ("model", {"m": ["9", "10", "10"]}),
        ("nothing", {"__missing__": ["9", "10", "10"]}),
    ],
)
def test_what_every_rollout_has_can_be_sliced_by(key, expected):
    table = rollouts(
        {"task": 10, "reward": 1, "model": "m"},
        {"task": 10, "sample": 7, "outcome": "refused", "model": "m"},
        {"task": 9, "reward": 0, "model": "m"},
    )
    assert cut(table, key) == expected


def test_a_key_of_the_file_comes_before_what_every_rollout_has():
    table = rollouts({"task": "a", "reward": 1, "metadata": {"task": "arithmetic"}}, labels=["task"])
    assert cut(table, "task") == {"arithmetic": ["a"]}


def test_a_task_is_its_own_cluster():
    table = rollouts({"task": "b", "reward": 1}, {"task": "a", "reward": 1}, {"task": "a", "sample": 1, "reward": 1})
    assert clusters(table, "task").tolist() == [0, 1]
    plain, clustered = (calipers.score(table, "mean_reward", cluster=key)["mean_reward"] for key in (None, "task"))
    assert (plain.interval, plain.stderr) == (clustered.interval, clustered.stderr)


def test_a_pair_of_keys_is_a_cluster_and_both_must_be_there():
    """A mistyped key left the clusters of the other one, and the signature named both."""
    rows = [{"task": n, "reward": n % 2, "book": n // 4, "page": n // 2} for n in range(8)]
    table = rollouts(*rows, labels=["book", "page", "pgae"])
    assert clusters(table, "book+page").tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    with pytest.raises(InputError, match="--cluster pgae: task '0' has no 'pgae'; expected one cluster for each task"):
        clusters(table, "book+pgae")


def test_the_full_path_of_a_metadata_key_leads_there(tmp_path):
    path = tmp_path / "run.jsonl"
    path.write_text(
        '{"task":"a","reward":1,"metadata":{"kind":{"deep":"x"}}}\n'
        '{"task":"b","reward":0,"metadata":{"metadata":{"own":"y"}}}\n'  # one that is called so itself
    )
    keys = ["metadata.kind.deep", "kind.deep", "metadata.own"]
    result = calipers.score(path, by=keys)
    assert {key: list(cut) for key, cut in result.groups[0].breakdowns.items()} == {
        "metadata.kind.deep": ["__missing__", "x"],
        "kind.deep": ["__missing__", "x"],
        "metadata.own": ["__missing__", "y"],
    }
    assert result.notes == []


def test_each_slice_holds_its_own_rollouts_in_their_order():
    rows = [
        {"task": f"t{n % 40}", "sample": n // 40, "reward": n % 7 / 7, "metadata": {"k": n % 3}} for n in range(400)
    ]
    result = calipers.score(rollouts(*rows, labels=["k"]), ["any_of_first_2(threshold=0.5)", "mean_reward"], by="k")
    for name, found in result.groups[0].breakdowns["k"].items():
        alone = rollouts(*(row for row in rows if row["metadata"]["k"] == int(name)))
        expected = calipers.score(alone, list(found.metrics)).groups[0]
        assert (found.ledger, found.metrics) == (expected.ledger, expected.metrics)


def levels(*runs):
    """Rollouts of (model, task, level, reward)."""
    return rollouts(
        *({"model": model, "task": task, "level": level, "reward": reward} for model, task, level, reward in runs),
        labels=["level"],
    )


def test_a_slice_can_be_excluded_and_its_empty_groups_go_with_it():
    table = levels(("a", "x", 1, 1), ("a", "y", 2, 0), ("b", "x", 2, 1))
    (kept,) = without([table], [("level", "2")], label)
    assert (kept.tasks, [key[1] for key in kept.keys], kept.owner.tolist()) == (["x"], ["a"], [0])
    assert kept.notes == ["--exclude level=2: 2 rollouts of 2 tasks excluded"]


def test_a_slice_that_one_of_two_tables_has_is_excluded_from_that_one():
    first, second = without(
        [levels(("a", "x", 1, 1), ("a", "y", 2, 0)), levels(("b", "x", 1, 1))], [("level", "2")], label
    )
    assert (first.tasks, second.tasks) == (["x"], ["x"])


@pytest.mark.parametrize(
    ("exclude", "message"),
    [
        (("level", "12"), "no rollout has the value '12' of 'level'; expected one of its values, such as '1'"),
        (
            ("lvel", "1"),
            "no rollout has 'lvel'; expected task, sample, outcome, or a key of the rows or of their metadata",
        ),
        (("model", "a"), "no rollout is left; exclude less"),
    ],
)
def test_what_cannot_be_excluded_says_why(exclude, message):
    with pytest.raises(InputError, match=re.escape(message)):
        without([levels(("a", "x", 1, 1))], [exclude], label)


def test_a_score_without_a_slice_is_the_score_of_the_rest_and_its_signature_says_so():
    rows = [{"task": n, "reward": n % 3 == 0, "level": n % 2} for n in range(12)]
    part = calipers.score(rows, "mean_reward", exclude="level=1")["mean_reward"]
    rest = calipers.score([row for row in rows if row["level"] == 0], "mean_reward")["mean_reward"]
    assert (part.value, part.interval, part.tasks) == (rest.value, rest.interval, 6)
    assert "|exclude:level=1|" in part.signature


def test_a_comparison_without_a_slice_is_that_of_the_rest():
    old = [{"task": n, "reward": n % 3 == 0, "level": n % 2} for n in range(12)]
    new = [{"task": n, "reward": n % 2 == 0, "level": n % 2} for n in range(12)]
    part = calipers.compare(old, new, metrics="mean_reward", exclude=["level=1"])["mean_reward"]
    rest = calipers.compare(old[::2], new[::2], metrics="mean_reward")["mean_reward"]
    assert (part.delta, part.interval, part.p) == (rest.delta, rest.interval, rest.p)
    assert "|exclude:level=1|" in part.signature


def test_an_exclusion_without_a_value_is_an_error():
    with pytest.raises(InputError, match="--exclude: 'level' cannot be read; expected KEY=VALUE"):
        calipers.score([[1, 0]], exclude="level")
