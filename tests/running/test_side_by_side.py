"""Jobs of several models run concurrently, and those of one model one after the other."""

from __future__ import annotations

import threading

import pytest
from waiting import PATIENCE

from calipers.errors import InputError
from calipers.running import Job
from calipers.running.loop import lanes, side_by_side


def jobs(*pairs, **more):
    return [Job(benchmark, model, **more) for benchmark, model in pairs]


def test_a_lane_for_each_model_and_one_for_all_models_in_this_process():
    some = jobs(("a", "m/x"), ("a", "m/y"), ("a", "hf/p"), ("a", "hf/q"), ("b", "m/x"))
    assert [[(job.benchmark, job.model) for job in lane] for lane in lanes(some)] == [
        [("a", "m/x"), ("b", "m/x")],
        [("a", "m/y")],
        [("a", "hf/p"), ("a", "hf/q")],
    ]


def test_tasks_of_a_library_are_one_lane():
    some = [*jobs(("a", "m/x")), *jobs(("a", "m/y"), lm_eval="gsm8k")]
    assert lanes(some) == [some]


def test_models_wait_for_nobody_and_benchmarks_of_a_model_keep_their_order():
    met = threading.Barrier(2)  # two threads must be there at the same time
    order = []

    def work(job):
        if job.benchmark == "a":
            met.wait(PATIENCE)
        order.append((job.benchmark, job.model))
        return job.model

    some = jobs(("a", "m/x"), ("a", "m/y"), ("b", "m/x"), ("b", "m/y"))
    ended = list(side_by_side(some, work))
    assert sorted(order) == sorted((job.benchmark, job.model) for job in some)
    for model in ("m/x", "m/y"):
        assert [benchmark for benchmark, who in order if who == model] == ["a", "b"]
    assert all(outcome == job.model for job, outcome in ended)


def test_what_one_job_raises_is_its_outcome_and_the_others_go_on():
    def work(job):
        if (job.benchmark, job.model) == ("a", "m/x"):
            raise InputError("wrong")
        return "done"

    ended = {
        (job.benchmark, job.model): outcome
        for job, outcome in side_by_side(jobs(("a", "m/x"), ("b", "m/x"), ("a", "m/y")), work)
    }
    assert isinstance(ended.pop(("a", "m/x")), InputError)
    assert ended == {("b", "m/x"): "done", ("a", "m/y"): "done"}


@pytest.mark.parametrize("count", [1, 3])
def test_in_another_thread_it_works_too(count):
    """As in a notebook, where other code handles signals."""
    ended = []
    some = jobs(*(("a", f"m/{number}") for number in range(count)))
    thread = threading.Thread(target=lambda: ended.extend(side_by_side(some, lambda job: job.model)))
    thread.start()
    thread.join(PATIENCE)
    assert sorted(outcome for _, outcome in ended) == sorted(job.model for job in some)
