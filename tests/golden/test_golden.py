"""Every vector through the adapter of its kind; a kind without one fails."""

from __future__ import annotations

import pytest
from golden import (
    harbor_tasks,
    harbor_trials,
    harbor_vectors,
    lm_eval_numbers,
    lm_eval_runs,
    lm_eval_scores,
    lm_eval_tasks,
    lm_eval_vectors,
    nemo_gym_aggregate,
    nemo_gym_helpers,
    nemo_gym_materialize,
    nemo_gym_profile,
    vectors,
)

from calipers.errors import CalipersError

ADAPTERS = {  # (system, kind) -> vector -> (what we answer, what is expected)
    ("nemo_gym", "collector"): nemo_gym_aggregate.collector,
    ("nemo_gym", "direct"): nemo_gym_aggregate.direct,
    ("nemo_gym", "endpoint"): nemo_gym_aggregate.endpoint,
    ("nemo_gym", "helper"): nemo_gym_helpers.helper,
    ("nemo_gym", "materialize"): nemo_gym_materialize.materialized,
    ("nemo_gym", "profile"): nemo_gym_profile.profile,
    **{
        ("lm_eval", kind): adapter
        for some in (lm_eval_numbers, lm_eval_runs, lm_eval_scores, lm_eval_tasks)
        for kind, adapter in some.ADAPTERS.items()
    },
    **{
        ("harbor", op): harbor_vectors.compared(adapter)
        for some in (harbor_tasks, harbor_trials)
        for op, adapter in some.ADAPTERS.items()
    },
}
READERS = {  # a system that is not in here is not supported yet
    "harbor": harbor_vectors.harbor,
    "lm_eval": lm_eval_vectors.lm_eval,
    "nemo_gym": vectors.nemo_gym,
}


def pytest_generate_tests(metafunc):
    if "vector" not in metafunc.fixturenames:
        return
    folder = metafunc.config.getoption("--golden", default=None) or vectors.HERE
    found = []
    for system in vectors.SYSTEMS:
        if not (folder / system).is_dir():
            reason = f"no folder {system} among the vectors"
        elif system not in READERS:
            reason = f"{system} is not supported yet: it has no adapters"
        else:
            some = list(READERS[system](folder / system))
            found += [pytest.param(one, id=f"{system}/{one.name}") for one in some]
            continue
        found.append(pytest.param(None, id=system, marks=pytest.mark.skip(reason=reason)))
    metafunc.parametrize("vector", found)


def test_vector(vector, golden, tmp_path, monkeypatch):
    golden(f"{vector.system} {vector.kind}", vector.quirk)
    monkeypatch.chdir(tmp_path)
    adapter = ADAPTERS.get((vector.system, vector.kind))
    assert adapter is not None, f"no adapter for {vector.system} {vector.kind}"
    wrong = parted(adapter, vector.content)
    if wrong and vector.quirk:
        pytest.xfail(f"a quirk: {wrong[0]}")
    assert wrong == []


def parted(adapter, content):
    """Where our answer parts from the vector's; an expected error is met by any of ours."""
    fails = bool(content.get("expected_error"))
    try:
        found, expected = adapter(content)
    except CalipersError as error:
        return [] if fails else [f"{type(error).__name__}: {error}"]
    return [f"an answer, expected {content['expected_error']}"] if fails else vectors.differences(found, expected)


@pytest.mark.parametrize(
    ("found", "expected", "same"),
    [
        (1, 1.0, True),
        (1.0 + 1e-13, 1.0, True),
        (1.0 + 1e-11, 1.0, False),
        (float("nan"), float("nan"), True),
        (None, 0, False),
        ("1", 1, False),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, False),  # the order of keys is theirs
        ([1, 2], [1], False),
    ],
)
def test_what_counts_as_equal(found, expected, same):
    assert (vectors.differences(found, expected) == []) is same


def test_an_error_that_does_not_come_is_a_failure():
    assert parted(lambda content: (1, 1), {"expected_error": {"http_status": 500}}) != []
    assert parted(lambda content: (1, 2), {}) == [": 1, expected 2"]
