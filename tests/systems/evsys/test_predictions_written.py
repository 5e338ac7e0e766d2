"""Prediction rows, and their upload to stores."""

import pytest
from harbor_jobs import job
from tasks.given import row

from calipers import Benchmark
from calipers.formats.rewards import Trajectory, TrajectoryGroup
from calipers.systems.evsys import benchmark as evsys
from calipers.systems.evsys.predictions import eval_predictions, upload_eval_rollouts

ROW = {"kind": "eval", "task_id": "a", "reward": 1.0, "completion_token_ids": [2, 3], "metadata": {"k": 1}}


class AtOnce:
    def __init__(self):
        self.calls = []

    def log_predictions(self, run_id, rows):
        self.calls.append((run_id, rows))


class OneByOne:
    def __init__(self):
        self.rows = []

    def add_prediction(self, **row):
        self.rows.append(row)


def test_a_store_takes_rows_at_once_or_one_by_one():
    at_once, one_by_one = AtOnce(), OneByOne()
    for store in (at_once, one_by_one):
        upload_eval_rollouts(store, "r1", [ROW])
    assert at_once.calls == [("r1", [ROW])]
    assert one_by_one.rows == [
        {
            **{"run_id": "r1", "kind": "eval", "eval_id": None, "task_id": "a", "instruction": None, "expected": None},
            **{"reward": 1.0, "step": None, "sample_idx": 0, "metadata": {"k": 1, "completion_token_ids": [2, 3]}},
        }
    ]


def test_nothing_is_done_without_store_run_or_rows():
    store = AtOnce()
    for arguments in [(None, "r", [ROW]), (store, "", [ROW]), (store, None, [ROW]), (store, "r", [])]:
        upload_eval_rollouts(*arguments)
    assert store.calls == []


def test_a_store_that_takes_no_rows_is_refused_before_the_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    message = (
        r"^the store is a object that does not accept predictions; "
        r"expected an object with log_predictions\(run_id, rows"
    )
    with pytest.raises(TypeError, match=message):
        upload_eval_rollouts(object(), "r", [ROW])
    with pytest.raises(TypeError, match=message):
        evsys.run_benchmark(Benchmark.from_iterable("b", [row()]), model="m", store=object(), run_id="r")
    assert list(tmp_path.iterdir()) == []


def test_a_rollout_without_tokens_or_usage():
    (task,) = Benchmark.from_iterable("b", [row(7, metadata={"k": 1})]).tasks
    (line,) = eval_predictions([task], [TrajectoryGroup([Trajectory([], 0.5)])])
    assert (line["task_id"], line["reward"], line["completion_token_ids"]) == (7, 0.5, [])
    assert line["metadata"] == {"k": 1, "latency_s": None, "prompt_tokens": None, "completion_tokens": None}


class Recorded(Benchmark):
    """A user's benchmark whose rollouts are on disk."""

    async def score_via_harbor(self, **settings):
        return await super().score_via_harbor(**settings, _job_factory=lambda config: "job")


@pytest.mark.parametrize("workspace", [None, "here", "file/below"])
def test_run_benchmark_hands_its_rows_to_the_store(tmp_path, monkeypatch, workspace):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    job(tmp_path / "job", {"task": "a", "rewards": {"reward": 1.0}})
    (tmp_path / "file").write_text("no folder can be made below it")
    store, bench = AtOnce(), Recorded.from_iterable("b", [row("a"), row("b")])
    settings = {"workspace_dir": workspace, "store": store, "run_id": "r1", "eval_id": "e1", "limit": 1}
    assert evsys.run_benchmark(bench, model="x/m", **settings)["pass_rate"] == 1.0
    ((run_id, rows),) = store.calls
    assert (run_id, [(line["eval_id"], line["task_id"], line["reward"]) for line in rows]) == ("r1", [("e1", "a", 1.0)])
    evsys.run_benchmark(bench, model="x/m", store=store)  # no run id, so nothing is uploaded
    assert len(store.calls) == 1
