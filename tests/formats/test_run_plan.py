import json

import msgspec
import pytest
from msgspec import structs

from calipers.errors import InputError
from calipers.formats.run_plan import RunStop, read_stop, stop_said
from calipers.rollouts.stop import Stop

STOP = RunStop(
    rule="lower(pass@1) > 0.6",
    metric="pass@1",
    side="lower",
    tasks=30,
    planned_tasks=100,
    rollouts=60,
    planned_rollouts=200,
)
READ = Stop("lower(pass@1) > 0.6", "pass@1", "lower", 30, 100)


@pytest.mark.parametrize(
    ("more", "planned", "owed", "expected"),
    [
        ({}, 200, 140, READ),
        ({}, 200, 0, None),  # continued to the end of the very plan that it was stopped in
        ({}, 400, 0, READ),  # to the end of another one: that it was made larger may be for what was seen
        ({}, 400, 200, READ),
        ({"completed": True}, 400, 200, None),  # the plan grew after it had been completed
        ({"planned_rollouts": None}, 200, 0, None),  # an earlier version, which did not say
        ({"continued": True}, 200, 10, Stop("lower(pass@1) > 0.6", "pass@1", "lower", 30, 100, continued=True)),
    ],
)
def test_when_a_stopped_run_is_a_fixed_sample_again(more, planned, owed, expected):
    assert structs.replace(STOP, **more).of_plan(planned, owed) == expected


@pytest.mark.parametrize(
    ("sentence", "expected"),
    [
        (
            "--until 'lower(pass@1) > 0.6' stopped the run after 1,030 of 2,000 tasks; its intervals hold",
            ("lower(pass@1) > 0.6", "pass@1", "lower", 1030, 2000),
        ),
        (
            "--until \"upper( mean_reward(reward='f') )<=.4\" stopped the run after 3 of 9 tasks; its intervals",
            ("upper( mean_reward(reward='f') )<=.4", "mean_reward(reward='f')", "upper", 3, 9),
        ),
        ("somebody ended it", ("", "", "", 0, 0)),
    ],
)
def test_the_sentence_of_an_earlier_version_is_read(sentence, expected):
    found = stop_said(sentence)
    assert (found.rule, found.metric, found.side, found.tasks, found.planned_tasks) == expected


def test_a_folder_without_a_stop_has_none(tmp_path):
    assert read_stop(str(tmp_path)) is None
    for content in (b"{", b"[]", b'{"stopped": 3}', b'{"schema": "calipers.result/1", "groups": []}'):
        (tmp_path / "result.json").write_bytes(content)
        assert read_stop(str(tmp_path)) is None


def test_the_file_of_a_stop_comes_before_the_result(tmp_path):
    said = {"stopped": "--until 'width(pass@1) < 0.1' stopped the run after 3 of 9 tasks"}
    (tmp_path / "result.json").write_text(json.dumps(said))
    assert read_stop(str(tmp_path)).rule == "width(pass@1) < 0.1"
    (tmp_path / "stopped.json").write_bytes(msgspec.json.encode(STOP))
    assert read_stop(str(tmp_path)) == STOP


@pytest.mark.parametrize(
    ("content", "wrong"),
    [
        ("{", "is not the stop file of a run"),
        ('{"rule": "lower(pass@1) > 0.6"}', "is not the stop file of a run"),
        (
            '{"schema": "calipers.stopped/9", "rule": "", "metric": "", "side": "", "tasks": 1, "planned_tasks": 2}',
            "schema is 'calipers.stopped/9'",
        ),
    ],
)
def test_a_broken_file_of_a_stop_is_refused(tmp_path, content, wrong):
    (tmp_path / "stopped.json").write_text(content)
    with pytest.raises(InputError, match=wrong):
        read_stop(str(tmp_path))
