"""The page of a watch: its pictures, hostile names, and its inputs."""

import re

import numpy as np
import pytest
from watch_steps import watch, write_run, write_step

import calipers
from calipers.analyses.watch import alarms_of
from calipers.analyses.watch.watch import is_watched
from calipers.errors import InputError
from calipers.web.draw import CurveStep, StepMark, step_curve
from calipers.web.watch_page import counted_th, watch_data

DROP = alarms_of(["drop(reward) > 0.02"])


def test_a_watched_folder_is_shown_by_step(tmp_path):
    write_run(tmp_path, 16, drop=0.2, at=10)
    found = watch(tmp_path, DROP, steps=50)
    log = (tmp_path / ".calipers-watch" / "watch.log").read_bytes()
    page = calipers.report(tmp_path)
    assert page.title == "1 alarm in 16 steps."
    assert f"alarm, since step {found.raised[0].since}" in page.html
    assert "holds at all 50 planned steps together" in page.html
    assert 'class="band look"' in page.html
    assert "Best step" in page.html
    assert found.raised[0].command in page.html
    assert "calipers-watch" not in page.html
    assert (tmp_path / ".calipers-watch" / "watch.log").read_bytes() == log  # nothing is changed
    document = tmp_path / "watch.json"
    document.write_text(found.to_json())
    assert calipers.report(document).title == page.title


def test_a_folder_of_steps_is_shown_by_step_on_request(tmp_path):
    write_run(tmp_path, 6)
    page = calipers.report(tmp_path, steps=True)
    assert page.title == "No alarm in 6 steps."
    assert not is_watched(str(tmp_path))  # nothing is left behind


def test_what_cannot_be_shown_by_step(tmp_path):
    file = write_step(tmp_path / "run", 0, np.ones((3, 2)))
    with pytest.raises(InputError, match="is no folder; expected one folder with a file for each step"):
        calipers.report(file, steps=True)
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="no step could be read"):
        calipers.report(tmp_path / "empty", steps=True)
    watch(tmp_path / "run", DROP)
    with pytest.raises(InputError, match="is watched, and --reward cannot change what the watch said"):
        calipers.report(tmp_path / "run", reward="reward")


@pytest.mark.parametrize(
    ("option", "setting"),
    [
        ("--metric", {"metrics": "pass@1"}),
        ("--by", {"by": "split"}),
        ("--flag", {"flag": "tasks.txt"}),
        ("--missing", {"missing": "zero"}),
        ("--dialect", {"dialect": "evsys"}),
        ("--seed", {"seed": 1}),
    ],
)
def test_a_setting_that_a_page_by_step_does_not_follow_is_refused(tmp_path, option, setting):
    write_step(tmp_path / "run", 0, np.ones((3, 2)))
    with pytest.raises(InputError, match=f"{option}: does not apply to a training run by step; remove it"):
        calipers.report(tmp_path / "run", steps=True, **setting)
    found = watch(tmp_path / "run", DROP)
    (tmp_path / "watch.json").write_text(found.to_json())
    with pytest.raises(InputError, match=f"is watched, and {option} cannot change what the watch said"):
        calipers.report(tmp_path / "run", **setting)
    with pytest.raises(InputError, match=f"is the document of a watch, and {option} cannot change"):
        calipers.report(tmp_path / "watch.json", **setting)


def test_steps_are_read_with_the_columns_and_the_confidence_that_are_given(tmp_path):
    write_run(tmp_path / "run", 6)
    assert (
        "the 90\N{NO-BREAK SPACE}% interval of one look"
        in calipers.report(tmp_path / "run", steps=True, confidence=0.9).html
    )
    watch(tmp_path / "run", DROP)
    with pytest.raises(InputError, match="is watched, and --columns cannot change what the watch said"):
        calipers.report(tmp_path / "run", columns={"task": "id"})


def test_names_are_text_and_nothing_else(tmp_path):
    hostile = "<img src=x onerror=alert(1)>\u202e"
    for step in range(12):
        rewards = (np.random.default_rng(step).random((40, 4)) < (0.1 if step > 7 else 0.9)).astype(float)
        tasks = [f"{hostile}{task}" for task in range(40)]
        write_step(tmp_path / hostile, step, rewards, tasks=tasks, **{f"{hostile}tokens": rewards})
    watch(tmp_path, DROP)
    page = calipers.report(tmp_path).html
    assert "<img" not in page
    assert "\u202e" not in page
    assert "&lt;img src=x onerror=alert(1)&gt;" in page
    assert page.count("<script") == 3  # its own scripts, which the policy names by their hashes
    assert re.search(r"script-src 'sha256-[^']+' 'sha256-[^']+' 'sha256-[^']+'", page.replace("&#39;", "'"))


def test_a_curve_has_its_axis_bands_marks_and_ring():
    points = [CurveStep(step, 0.5 + step / 100, (0.45, 0.6), (0.4, 0.7)) for step in range(5)]
    drawn = step_curve(points, label="reward by step", marks=[StepMark(3, "▼ since 3", "orange")], best=4)
    assert drawn.count("<polygon") == 2
    assert drawn.count('class="dot blue hollow"') == 1
    assert 'class="step-mark orange"' in drawn
    assert re.findall(r'class="tick"[^>]*>([^<]+)', drawn) == ["0.4", "0.5", "0.6", "0.7"]
    assert "&lt;" not in drawn  # no mark of the picture became text
    assert 'aria-label="reward by step"' in drawn


def test_one_step_is_a_point():
    assert "<polyline" not in step_curve([CurveStep(7, 0.5, None, None)], label="one")


def test_long_runs_are_thinned_and_say_so(tmp_path, monkeypatch):
    from calipers.web import watch_page as module

    monkeypatch.setattr(module, "MOST_POINTS", 5)  # a run of a thousand steps takes long
    write_run(tmp_path, 12, tasks=10)
    data = watch_data(tmp_path)
    page = module.watch_page(data)
    assert any("Every 3rd step is drawn." in str(section.body) for section in page.sections)
    assert [counted_th(number) for number in (2, 3, 11, 21)] == ["2nd", "3rd", "11th", "21st"]
