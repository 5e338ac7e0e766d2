"""Helpers that write small Harbor datasets."""

TASK = "[agent]\ntimeout_sec = 60.0\n\n[verifier]\ntimeout_sec = 30.0\n"
TESTS = """#!/bin/sh
if [ "$(cat answer.txt 2>/dev/null)" = "{answer}" ]; then echo 1; else echo 0; fi > /logs/verifier/reward.txt
"""


def write_task(
    folder,
    name,
    *,
    answer="42",
    tests=None,
    solution=None,
    toml=TASK,
    dockerfile="FROM python:3.12-slim\nWORKDIR /app\n",
):
    place = folder / name
    for inner in ("environment", "tests", "solution"):
        (place / inner).mkdir(parents=True)
    (place / "task.toml").write_text(toml)
    (place / "instruction.md").write_text(f"Write {answer} to answer.txt.")
    if dockerfile is not None:
        (place / "environment" / "Dockerfile").write_text(dockerfile)
    for path, text in (
        ("tests/test.sh", tests or TESTS.format(answer=answer)),
        ("solution/solve.sh", solution or f"#!/bin/sh\nprintf {answer} > answer.txt\n"),
    ):
        (place / path).write_text(text)
        (place / path).chmod(0o755)
    return place


def write_dataset(folder, count=3):
    for number in range(count):
        write_task(folder, f"write-{number}", answer=str(number))
    return folder
