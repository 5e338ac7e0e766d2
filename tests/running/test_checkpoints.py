"""Evaluations of checkpoints by a user's command: failures become notes, and end no watch."""

from __future__ import annotations

import pytest

from calipers.running.checkpoints import DONE, FAILED, TRIES, evaluate, evaluation_command, new_checkpoints


def evaluated(tmp_path, command):
    """The note of an evaluation of the checkpoint ``step_1``."""
    checkpoint = tmp_path / "checkpoints" / "step_1"
    checkpoint.mkdir(parents=True, exist_ok=True)
    return evaluate(evaluation_command(command), checkpoint, tmp_path / "evals", lambda: False)


def left(tmp_path):
    return [checkpoint.name for checkpoint in new_checkpoints(tmp_path / "checkpoints", tmp_path / "evals")]


def test_a_checkpoint_is_evaluated_once(tmp_path):
    assert evaluated(tmp_path, "test -d {path} -a -d {out}") == ""
    assert (left(tmp_path), (tmp_path / "evals" / "step_1" / DONE).exists()) == ([], True)


def test_a_failed_evaluation_is_tried_a_few_times(tmp_path):
    for number in range(1, TRIES + 1):
        note = evaluated(tmp_path, "false {path} {out}")
        assert (tmp_path / "evals" / "step_1" / FAILED).read_text() == str(number)
    assert (note, left(tmp_path)) == (
        f"--eval of step_1: exit code 1; it failed {TRIES} times and is left out",
        [],
    )


@pytest.mark.parametrize(
    ("said", "shown"),
    [("401 for sk-12345678", "401 for [secret]"), (r"\033[31mred", "\N{REPLACEMENT CHARACTER}[31mred")],
)
def test_the_last_line_of_a_failed_command_has_no_key_and_no_control_character(tmp_path, monkeypatch, said, shown):
    monkeypatch.setenv("MY_API_KEY", "sk-12345678")
    note = evaluated(tmp_path, f"sh -c \"printf '{said}'; exit 3\" {{path}} {{out}}")
    assert note == f"--eval of step_1: exit code 3: {shown}; it is tried again"


@pytest.mark.parametrize(
    ("command", "problem"),
    [
        ("rm -r {out} {path}", f"step_1/{DONE}: No such file or directory"),
        ("sh -c 'rm -r {out}; false' {path}", f"step_1/{FAILED}: No such file or directory"),
        ("no-such-program {path} {out}", "no-such-program: cannot be run (No such file or directory)"),
    ],
)
def test_files_that_cannot_be_written_are_a_note(tmp_path, command, problem):
    assert problem in evaluated(tmp_path, command)


def test_a_folder_that_cannot_be_made_is_a_note(tmp_path):
    (tmp_path / "evals").write_text("a file")
    assert "evals/step_1: Not a directory; it is tried again" in evaluated(tmp_path, "true {path} {out}")
