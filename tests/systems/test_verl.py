"""verl's sessions: a session is one rollout of the task of its first output, and its last output counts."""

from __future__ import annotations

import json
import random
from collections import defaultdict
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import calipers
from calipers.errors import InputError
from calipers.formats.read import read
from calipers.names import FORMATS
from examples import examples

GOLDEN = Path(__file__).parents[1] / "golden" / "catchup" / "verl_sessions"


def row(prompt, session, output, score, text=None):
    """An output of a session; the prompt of an output after the first has the earlier ones in it."""
    asked = f"user\nQuestion {prompt}\nassistant\n" if output == 0 else f"user\nsummary {session}.{output}\nassistant\n"
    uid = f"{prompt:032x}_{session}_{output}"
    return {"input": text or asked, "output": "A", "gts": "4", "score": score, "step": 3, "uid": uid}


def written(path, rows):
    path.write_text("".join(f"{json.dumps(each)}\n" for each in rows))
    return path


@pytest.mark.parametrize("name", ["1.jsonl", "2.jsonl"])
def test_the_golden_sessions(name):
    expected = json.loads((GOLDEN / "expected.json").read_text())[name]
    result = calipers.score(GOLDEN / name)
    assert result["mean_reward"].value == pytest.approx(expected["mean_reward"], abs=1e-9)
    ledger = result.groups[0].ledger
    assert (ledger.tasks, ledger.planned) == (expected["tasks"], expected["sessions"])


def test_sixty_prompts_were_scored_as_more_tasks_where_sessions_went_on(tmp_path):
    rng = random.Random(5)
    rows = []
    for prompt in range(60):
        for session in range(4):
            outputs = 2 if rng.random() < 0.4 else 1
            rows += [row(prompt, session, output, float(rng.random() < 0.5)) for output in range(outputs)]
    rng.shuffle(rows)
    result = calipers.score(written(tmp_path / "3.jsonl", rows))
    assert (result.groups[0].ledger.tasks, result.groups[0].ledger.planned) == (60, 240)
    assert result["mean_reward"].tasks == 60


@examples(60)
@given(
    outputs=st.lists(st.lists(st.integers(1, 5), min_size=1, max_size=4), min_size=1, max_size=5), seed=st.integers()
)
def test_random_sessions_against_a_direct_count(tmp_path_factory, outputs, seed):
    rng = random.Random(seed)
    rows, last = [], defaultdict(list)
    for prompt, sessions in enumerate(outputs):
        for session, count in enumerate(sessions):
            rows += [row(prompt, session, output, rng.randint(0, 4) / 4) for output in range(count)]
            last[prompt].append(rows[-1]["score"])
    rng.shuffle(rows)
    path = written(tmp_path_factory.mktemp("verl") / "3.jsonl", rows)
    table, _ = read([str(path)])
    means = {}
    for task, name in enumerate(table.tasks):
        column = table.rewards["score"].values[table.task == task]
        means[name.partition(" #")[0]] = sorted(column.tolist())
    assert means == {f"Question {prompt}": sorted(scores) for prompt, scores in last.items()}


def test_a_session_without_its_first_output_names_the_uid(tmp_path):
    path = written(tmp_path / "3.jsonl", [row(1, 0, 0, 1.0), row(2, 0, 1, 1.0), row(2, 0, 2, 0.0)])
    with pytest.raises(InputError) as caught:
        read([str(path)])
    uid = f"{2:032x}_0_1"
    expected = (
        f"{path}:2: uid '{uid}': the session has no output 0, so its task is unknown; expected all of its outputs"
    )
    assert str(caught.value) == expected


def test_the_prompt_of_a_session_is_that_of_its_first_output(tmp_path):
    rows = [row(1, 0, 1, 0.0), row(1, 0, 0, 1.0), row(2, 0, 0, 1.0)]
    path = written(tmp_path / "3.jsonl", rows)
    table, _ = read([str(path)])
    texts = list(FORMATS.load("verl").texts(str(path), {}, frozenset(table.tasks)))
    assert [json.loads(bytes(text.prompt)) for text in texts] == [rows[1]["input"], rows[2]["input"]]
    assert sorted(text.task for text in texts) == sorted(table.tasks)
