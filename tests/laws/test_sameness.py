"""The same rollouts give the same digest, however they are ordered and split."""

import itertools
import json

from hypothesis import given, settings
from hypothesis import strategies as st

import calipers

METRICS = [
    "mean_reward",
    "pass_rate",
    "pass@2",
    "pass^2",
    "any_of_first_2",
    "max@2",
    "mean(column=f1)",
    "std(column=f1)",
]

ROW = st.fixed_dictionaries(
    {"reward": st.one_of(st.none(), st.floats(-1, 2), st.booleans(), st.integers(-1, 2))},
    optional={
        "f1": st.one_of(st.none(), st.floats(-1e9, 1e9), st.text(max_size=3)),
        "outcome": st.sampled_from(["refused", "client_failed", "unparsed", "missing"]),
        "metadata": st.fixed_dictionaries({}, optional={"level": st.sampled_from(["a", "b", 1, None])}),
        "model": st.sampled_from(["m1", "m2", None]),
        "late": st.floats(0, 1),
    },
)


@settings(max_examples=40)
@given(
    rows=st.lists(
        st.tuples(st.integers(0, 4), st.integers(0, 3), ROW), min_size=1, max_size=25, unique_by=lambda r: r[:2]
    ),
    order=st.randoms(),
    cuts=st.lists(st.integers(0, 25), max_size=3),
)
def test_any_order_and_any_split_give_one_digest(tmp_path_factory, rows, order, cuts):
    folder = tmp_path_factory.mktemp("split")
    lines = [json.dumps({"task": f"t{task}", "sample": sample, "f1": 0.5, **row}) for task, sample, row in rows]
    lines.append(json.dumps({"task": "last", "reward": 0.1, "f1": 0.1}))  # f1 is a column in every example
    shuffled = order.sample(lines, len(lines))
    ends = [0, *sorted(min(cut, len(lines)) for cut in cuts), len(lines)]
    pieces = [shuffled[start:end] for start, end in itertools.pairwise(ends) if end > start]
    whole = folder / "whole.jsonl"
    whole.write_text("\n".join(lines) + "\n")
    parts = [folder / f"{number}.jsonl" for number in range(len(pieces))]
    for part, piece in zip(parts, pieces):
        part.write_text("\n".join(piece) + "\n")
    first = calipers.score(whole, METRICS, by="level", threshold=1)
    second = calipers.score(parts, METRICS, by="level", threshold=1)
    assert first.digest == second.digest
    assert json.loads(first.to_json())["groups"] == json.loads(second.to_json())["groups"]


def test_the_digest_can_be_recomputed_from_the_document(tmp_path):
    import hashlib

    result = calipers.score([[1, 0.5, 0], [1, 1]], ["mean_reward", "pass@2"], by="level")
    document = json.loads(result.to_json())
    parts = {key: document[key] for key in ("dialect", "missing", "confidence", "seed")}
    later = ("passed", "rewarded", "samples_per_task", "tasks_passed")  # in a ledger, and not in the digest
    out = ("economics", "remarks", "ends_seen")
    parts["groups"] = [{k: v for k, v in group.items() if k not in out} for group in document["groups"]]
    for group in parts["groups"]:
        for part in (group, *(part for cut in group["breakdowns"].values() for part in cut.values())):
            part["ledger"] = {k: v for k, v in part["ledger"].items() if k not in later}
    text = json.dumps(parts, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert document["digest"] == "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def test_the_version_and_the_files_are_not_in_the_digest(tmp_path):
    names = []
    for name in ("a.jsonl", "b.jsonl"):
        (tmp_path / name).write_text('{"task": "a", "reward": 1}\n')
        names.append(calipers.score(tmp_path / name))
    assert names[0].digest == names[1].digest
    assert calipers.__version__ not in names[0]["mean_reward"].signature


def test_threads_change_nothing(monkeypatch):
    tasks = [[(task * sample) % 7 / 7 for sample in range(1, 5)] for task in range(60)]
    metrics = [*METRICS[:6], "median(column=reward)", "std(column=reward)"]
    alone = calipers.score(tasks, metrics)
    monkeypatch.setattr("calipers.tally.WORTH_THREADS", 1)
    assert calipers.score(tasks, metrics).digest == alone.digest
