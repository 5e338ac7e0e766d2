"""Commands on a full disk: their files are complete or absent, and do not prevent the next attempt."""

import os
import subprocess
from contextlib import suppress

import pytest
from cli.running import calipers
from harbor_datasets import write_dataset
from rooms import needs_rooms
from watch_steps import write_run

PAGE = 4096


def filled(disk, pages):
    """Fill a disk except for some pages."""
    with suppress(OSError), open(disk / "filler", "wb", buffering=0) as filler:
        while filler.write(bytes(PAGE)):
            pass
    os.truncate(disk / "filler", os.path.getsize(disk / "filler") - pages * PAGE)


@pytest.mark.parametrize("pages", [0, 1])
@pytest.mark.parametrize(
    ("command", "made"),
    [
        (("init", "bench", "--from", "../qa.csv", "--verifier", "exact_match"), "bench/metadata.yaml"),
        (("init", "--task", "acme/sum"), "sum/tests/test.sh"),
        (("certify", "--new-key", "key.pem"), "key.pem.pub"),
    ],
)
def test_what_could_not_be_made_is_not_in_the_way(tiny_disk, command, made, pages):
    (tiny_disk.parent / "qa.csv").write_text("id,question,answer\na,1,2\n")
    filled(tiny_disk, pages)
    full = calipers(*command, cwd=tiny_disk)
    assert (full.returncode, full.stdout) == (2, "")
    assert full.stderr.rstrip("\n").count("\n") <= 3, full.stderr  # notes, and one line that says it
    assert "cannot be written (No space left on device)" in full.stderr
    assert [path for path in tiny_disk.rglob("*") if path.is_file()] == [tiny_disk / "filler"]
    (tiny_disk / "filler").unlink()
    assert calipers(*command, cwd=tiny_disk).returncode == 0
    assert (tiny_disk / made).stat().st_size


def test_a_watch_says_which_file_could_not_be_written_and_goes_on_later(tiny_disk):
    write_run(tiny_disk.parent / "run", 6, drop=0.3, at=3, tasks=60)
    undisturbed = calipers("watch", "../run", "--state", "../state", "--once", cwd=tiny_disk)
    filled(tiny_disk, 2)
    command = "watch", "../run", "--state", "state", "--once"
    full = calipers(*command, cwd=tiny_disk)
    assert full.returncode == 3
    assert full.stderr.startswith("state/watch.log: cannot be written (No space left on device); what was finished")
    (tiny_disk / "filler").unlink()
    assert calipers(*command, cwd=tiny_disk).stdout.replace("state", "../state") == undisturbed.stdout


def test_a_store_that_may_only_be_read_is_told(tiny_disk):
    (tiny_disk / "qa.csv").write_text("id,question,answer\na,1,2\n")
    assert calipers("init", "bench", "--from", "qa.csv", "--verifier", "exact_match", cwd=tiny_disk).returncode == 0
    assert calipers("publish", "bench", cwd=tiny_disk).returncode == 0
    subprocess.run(["mount", "-o", "remount,ro", str(tiny_disk)], check=True)
    again = calipers("publish", "bench", cwd=tiny_disk)
    assert again.returncode == 2
    assert "cannot be written (Read-only file system); expected a writable place to publish to" in again.stderr


@needs_rooms
def test_the_result_of_a_run_of_agents_is_complete_or_absent(tiny_disk, tmp_path):
    write_dataset(tmp_path / "set", 1)
    metrics = ("--metric", "mean_reward", "--metric", "pass_rate", "--metric", "pass@1", "--metric", "any_of_first_1")
    command = ("run", str(tmp_path / "set"), "--agent", "nop", "--environment", "room", "--out", "out", *metrics)
    assert calipers(*command, cwd=tiny_disk, CALIPERS_HARBOR="").returncode == 0
    result = tiny_disk / "out" / "result.json"
    assert result.stat().st_size > PAGE
    result.unlink()
    filled(tiny_disk, 1)
    full = calipers(*command, cwd=tiny_disk, CALIPERS_HARBOR="")
    assert full.returncode == 3
    assert "out/result.json: cannot be written (No space left on device); what was finished" in full.stderr
    assert not result.exists()
