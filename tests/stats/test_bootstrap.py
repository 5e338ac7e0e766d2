from calipers.stats.bootstrap import bootstrap

TASKS = [[1.0, 0.0], [1.0], [0.0, 0.0], [1.0, 1.0], [0.5], [0.0]]


def worst(tasks):
    return min(sum(task) / len(task) for task in tasks)


def mean(tasks):
    return sum(sum(task) / len(task) for task in tasks) / len(tasks)


def test_the_same_seed_gives_the_same_interval_and_another_seed_another():
    first, again, other = (bootstrap(mean, TASKS, 0.95, seed) for seed in (0, 0, 1))
    assert first == again
    assert first != other
    assert first.method == "bootstrap"
    assert first.ends[0] < mean(TASKS) < first.ends[1]


def test_the_standard_error_is_the_spread_of_the_draws():
    values = [[float(n % 3 == 0)] for n in range(60)]
    found = bootstrap(mean, values, 0.95, 0)
    assert 0.055 < found.stderr < 0.067  # sqrt(p (1 - p) / 60) is 0.0609; not divided by sqrt(draws)


def test_no_interval_says_why():
    def picky(tasks):
        if sum(map(sum, tasks)) < 3:
            raise ZeroDivisionError("nothing passed")
        return 1.0

    assert bootstrap(mean, [[1.0]], 0.95, 0).why == "one task says nothing about others"
    assert "nothing passed" in bootstrap(picky, TASKS, 0.95, 0).why
    assert bootstrap(lambda tasks: 1.0, TASKS, 0.95, 0).ends is None
    assert "too many rewards" in bootstrap(mean, [[0.0] * 100_000] * 2, 0.95, 0).why
