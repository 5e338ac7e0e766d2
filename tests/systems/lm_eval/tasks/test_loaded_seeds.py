import json
import random
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from tasks import loading
from waiting import PATIENCE

from calipers.running import LOAD_SEEDS
from calipers.systems.lm_eval.benchmarks import LoadedTasks, TaskRequest, suite
from calipers.systems.lm_eval.tasks import Function, load_function, rewind
from calipers.systems.lm_eval.tasks.loaded import has_drawn, requests, reseed, seeded


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("drawing")
    loading.write_tasks(made)
    return made


@pytest.fixture(scope="module")
def here(folder):
    return loading.load_all(folder)


def test_the_same_documents_requests_and_targets_in_every_process(folder, here):
    script = [sys.executable, loading.__file__, str(folder)]
    done = [subprocess.run(script, capture_output=True, check=True, timeout=PATIENCE).stdout for _ in range(2)]
    assert [json.loads(one) for one in done] == [here, here]


@pytest.fixture(scope="module")
def again(folder, here):
    random.seed(99)  # whatever was drawn before
    np.random.seed(99)
    return loading.load_all(folder)


@pytest.mark.parametrize("kind", loading.KINDS)
def test_the_same_again_in_one_process(here, again, kind):
    assert again[kind] == here[kind]


def test_a_task_does_not_depend_on_those_loaded_before_it(here):
    assert here["held"] == here["held_too"]


@pytest.mark.parametrize("kind", [kind for kind in loading.KINDS if kind not in loading.OWN_GENERATORS])
def test_other_seeds_are_other_documents(folder, here, kind):
    task = LoadedTasks().task(str(folder / f"{kind}.yaml"), kind, TaskRequest(trust=True, seeds=(1, 2, 3, 4)))
    found = {
        "documents": task.docs,
        "prompts": [one.prompt for one in suite(task).tasks],
        "targets": [one.target for one in suite(task).tasks],
    }
    assert json.loads(json.dumps(found)) != {key: here[kind][key] for key in found}


@pytest.mark.parametrize(
    ("kind", "before"),
    [
        ("choices", 0),  # no split of its own for examples: they are the evaluated documents, and shuffled once
        ("own_shots", 0),
        ("shots", 1),  # the examples are prepared first, in their own split
        ("spare_shots", 1),  # also where none are used
    ],
)
def test_choices_are_shuffled_as_lm_eval_shuffles_them(here, kind, before):
    rng = random.Random(0)
    for _ in range(before + 1):
        expected = []
        for number in range(8):
            answers = [f"a{number}", "w1", "w2", "w3"]
            rng.shuffle(answers)
            expected.append(answers)
    assert [doc["c"] for doc in here[kind]["documents"]] == expected


def test_a_field_is_worked_out_once(folder):
    task = LoadedTasks().task(str(folder / "target.yaml"), "target", TaskRequest(trust=True))
    first = [task.target(doc, number) for number, doc in enumerate(task.docs)]
    assert [task.target(doc, number) for number, doc in enumerate(task.docs)] == first
    assert list(requests(task)) == list(requests(task))


GENERATORS = """\
import random, numpy
mine, other, old = random.Random(3), numpy.random.default_rng(4), numpy.random.RandomState(5)
old.random_sample()
system = random.SystemRandom()
def draw():
    return [mine.random(), other.random(), old.random_sample()]
"""


def test_every_kind_of_generator_of_a_module_is_rewound(tmp_path):
    (tmp_path / "generators.py").write_text(GENERATORS)
    draw = load_function(Function("generators", "draw", tmp_path), "here")
    first = [draw(), draw()]
    for _ in range(2):
        rewind()
        assert [draw(), draw()] == first
    assert first[0] != first[1]


def test_the_callers_generators_are_left_as_they_were():
    random.seed(5)
    np.random.seed(5)
    expected = random.random(), np.random.random()
    random.seed(5)
    np.random.seed(5)
    with seeded(LOAD_SEEDS):
        assert random.random() == random.Random(0).random()
        assert np.random.random() == np.random.RandomState(1234).random()
    assert (random.random(), np.random.random()) == expected


def test_whether_anything_was_drawn():
    with seeded(LOAD_SEEDS):
        assert not has_drawn(LOAD_SEEDS)
        random.random()
        assert has_drawn(LOAD_SEEDS)
        reseed(LOAD_SEEDS)
        assert not has_drawn(LOAD_SEEDS)
        np.random.random()
        assert has_drawn(LOAD_SEEDS)


def test_torch_is_seeded_where_it_is_loaded_and_never_imported(monkeypatch):
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    with seeded(LOAD_SEEDS):
        assert "torch" not in sys.modules
    seeds, state = [], np.zeros(4, np.uint8)
    fake = SimpleNamespace(manual_seed=seeds.append, get_rng_state=lambda: state, set_rng_state=seeds.append)
    monkeypatch.setitem(sys.modules, "torch", fake)
    with seeded((1, 2, 3, 4)):
        assert seeds == [3]
    assert seeds[1] is state
