import asyncio
import json

import pytest
from clients.asking import answer, ask, request

from calipers.clients import Completion, Connection, connect
from calipers.errors import InputError


def stored(folder, *records):
    path = folder / "rollouts.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return f"replay/{path}"


def test_by_task_and_sample(tmp_path):
    spec = stored(
        tmp_path,
        {"task": "b", "sample": 1, "completion": "b1", "prompt": "2 + 3"},
        {"task": "a", "completion": "a0"},  # sample 0 by default
        {"task": 7, "completion": "seven"},  # a number is used as text
        {"task": "ü", "completion": "ü0"},
    )
    asked = [request(task="a"), request(task="b", sample=1), request(task="7"), request(task="ü")]
    assert [end.text for end in ask(spec, *asked)] == ["a0", "b1", "seven", "ü0"]


CHAT = [{"role": "user", "content": "2 + 3"}]


@pytest.mark.parametrize(
    ("prompt", "asked"),
    [
        ("2 + 3", request("2 + 3", task="x")),
        (CHAT, request([{"content": "2 + 3", "role": "user"}], task="x")),  # the order of keys does not matter
        (
            [{"role": "system", "content": "Add."}, *CHAT],  # the form of a prompt in a log
            request("2 + 3", system="Add.", task="x"),
        ),
    ],
)
def test_else_by_prompt(tmp_path, prompt, asked):
    first = {"task": "a", "prompt": prompt, "completion": "5"}
    spec = stored(tmp_path, first, {"task": "b", "prompt": prompt, "completion": "6"})
    assert [end.text for end in ask(spec, asked)] == ["5"]  # of the first task with this prompt


def test_the_task_goes_before_the_prompt(tmp_path):
    spec = stored(tmp_path, {"task": "a", "prompt": "p", "completion": "1"}, {"task": "b", "completion": "2"})
    assert ask(spec, request("p", task="b"))[0].text == "2"


def test_another_sample_is_another_answer(tmp_path):
    """If one answer were returned twice, it would look like two answers that agree."""
    spec = stored(tmp_path, {"task": "a", "prompt": "p", "completion": "1"})
    (end,) = ask(spec, request("p", task="a", sample=1))
    assert (end.kind, end.retry, end.hopeless) == ("absent", False, False)
    assert str(end).endswith("rollouts.jsonl: no rollout with task 'a', sample 1, and none with the same prompt")


def test_the_highest_attempt_counts(tmp_path):
    spec = stored(
        tmp_path,
        {"task": "a", "attempt": 2, "completion": "second", "prompt": "p"},
        {"task": "a", "attempt": 1, "completion": "first", "prompt": "p"},
        {"task": "b", "attempt": 1, "completion": "first"},
        {"task": "b", "attempt": 2, "outcome": "client_failed"},
    )
    ends = ask(spec, request(task="a"), request("p", task="x"), request(task="b"))
    assert [end.text for end in ends[:2]] == ["second", "second"]
    assert str(ends[2]).endswith("task 'b', sample 0 has no completion (outcome client_failed)")


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        ({"completion": "5", "outcome": "scored"}, Completion("5")),
        ({"completion": "5"}, Completion("5")),
        ({"completion": "", "outcome": "empty"}, Completion("")),
        ({"completion": None, "outcome": "empty"}, Completion("")),
        ({"completion": "No.", "outcome": "refused"}, Completion("No.", ending="refused")),
        (
            {"completion": "5", "outcome": "truncated", "finish_reason": "length"},
            Completion("5", "length", "truncated"),
        ),
        ({"completion": "5", "outcome": "verifier_failed", "finish_reason": "stop"}, Completion("5", "stop")),
        ({"completion": [{"role": "user", "content": "?"}, {"role": "assistant", "content": "5"}]}, Completion("5")),
        ({"completion": {"role": "assistant", "content": "5"}}, Completion("5")),
        (
            {"completion": "5", "usage": {"input_tokens": 3, "cost_usd": None, "latency_s": 0.5, "other": 1}},
            Completion("5", usage={"input_tokens": 3, "latency_s": 0.5}),
        ),
        ({"completion": None, "outcome": "timed_out"}, None),
        ({"completion": "half", "outcome": "cancelled"}, None),
        ({"completion": "x", "outcome": "client_failed"}, None),
        ({"completion": []}, None),
        ({"completion": ["5"]}, None),
        ({"reward": 1}, None),
    ],
)
def test_what_a_record_is_worth(tmp_path, record, expected):
    (end,) = ask(stored(tmp_path, {"task": "t", **record}), request())
    assert end == expected if expected else end.kind == "absent"


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        (
            '{"task": "a"}\n\n{"task": "a"}\n',
            (":3: task 'a', sample 0, attempt 1 also appears in line 1; expected each rollout"),
        ),
        ('{"task": "a"}\n{"task": "b", "comp', ":2: the line is not JSON; expected one rollout per line"),
        ('{"task": "a"}\n[1]\n', ":2: a rollout is a list; expected a JSON object"),
        ('{"id": "a"}\n', ":1: no key 'task'; expected one rollout per line, as in a run's rollouts.jsonl"),
        ('{"task": "a", "sample": "1"}\n', ':1: sample is "1"; expected an integer >= 0'),
        ('{"task": "a", "sample": -1}\n', ":1: sample is -1; expected an integer >= 0"),
        ('{"task": "a", "completion": 5}\n', ":1: completion is 5; expected text, a list of messages, or null"),
        ('{"task": "a", "usage": {"cost_usd": "x"}}\n', ':1: usage.cost_usd is "x"; expected a number or null'),
        ('{"task": "a", "outcome": "great"}\n', ':1: outcome is "great"; expected one of scored, refused'),
        ("\xff\n", ":1: the line is not JSON"),
        ("[" * 100_000, ":1: the line is not JSON"),
    ],
)
def test_a_file_that_cannot_be_replayed(tmp_path, text, wrong):
    (tmp_path / "r.jsonl").write_bytes(text.encode("latin-1"))
    with pytest.raises(InputError) as raised:
        connect(f"replay/{tmp_path / 'r.jsonl'}", Connection())
    assert str(raised.value).startswith(f"{tmp_path / 'r.jsonl'}{wrong}")


def test_no_file(tmp_path):
    with pytest.raises(InputError, match=r"nowhere\.jsonl: No such file or directory; expected a file of rollouts"):
        connect("replay/nowhere.jsonl", Connection())
    with pytest.raises(InputError, match=r"is a directory; expected a file, such as .*rollouts\.jsonl"):
        connect(f"replay/{tmp_path}", Connection())


@pytest.mark.parametrize("prompt", ["half a character: \ud800", [{"role": "user", "content": object()}]])
def test_a_prompt_that_no_file_holds(tmp_path, prompt):
    (end,) = ask(stored(tmp_path, {"task": "a", "prompt": "p", "completion": "1"}), request(prompt))
    assert end.kind == "absent"


@pytest.mark.parametrize("text", ["", "shorter\n", None])
def test_a_file_that_changes_meanwhile(tmp_path, text):
    client = connect(stored(tmp_path, {"task": "a", "completion": "1"}, {"task": "t", "completion": "2"}), Connection())
    (tmp_path / "rollouts.jsonl").unlink() if text is None else (tmp_path / "rollouts.jsonl").write_text(text)

    async def main():
        end = await answer(client, request())
        await client.close()
        return end

    end = asyncio.run(main())
    assert str(end).endswith("rollouts.jsonl: the file changed during the replay")
    assert (end.kind, end.hopeless) == ("absent", True)


def test_the_texts_stay_on_disk(tmp_path):
    """Only a position per record is in memory, whatever the length of the text."""
    import tracemalloc

    long = "x" * 100_000
    spec = stored(tmp_path, *({"task": str(n), "prompt": f"{n} {long}", "completion": long} for n in range(100)))
    tracemalloc.start()
    try:
        (end,) = ask(spec, request(task="99"))
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert end.text == long
    assert most < 4_000_000  # bytes, of a file of 20 MB
