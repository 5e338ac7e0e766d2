"""Images are built without a mirror: some of the machine's own programs replace a base."""

import json
import os
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor

import pytest
from cli.running import calipers
from harbor_datasets import write_task
from rooms import needs_rooms

from calipers.systems.harbor.lent.dockerfile import read_environment
from calipers.systems.harbor.lent.image import ImageError, _base_key, build
from calipers.systems.harbor.task import read_task
from calipers.systems.harbor.trials.environment import BUILDER, declined

pytestmark = [needs_rooms, pytest.mark.skipif(os.geteuid() != 0, reason="only root can build an image")]
CHEAT = "#!/bin/sh\nrm /usr/bin/env; printf '#!/bin/sh\\n' > /usr/bin/env; chmod +x /usr/bin/env\n"


PROGRAMS = (
    *("sh", "bash", "env", "cat", "mkdir", "rm", "ln", "touch", "date", "stat", "id", "sleep", "tar", "mv", "chmod"),
    *("chown", "setpriv", "prlimit", "mount", "mknod", "head", "ls", "grep", "true", "test", "printf", "mktemp"),
)


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """A root directory with a shell, a few programs and their libraries."""
    root = tmp_path_factory.mktemp("root")
    root.chmod(0o755)
    for name in ("bin", "sbin", "lib", "lib64"):
        (root / "usr" / name).mkdir(parents=True)
        (root / name).symlink_to(f"usr/{name}")
    for name in ("etc", "tmp", "root"):
        (root / name).mkdir()
    (root / "etc/passwd").write_text("root:x:0:0::/:/bin/sh\nnobody:x:65534:65534::/:/bin/sh\n")
    (root / "etc/group").write_text("root:x:0:\nnobody:x:65534:\n")
    files = [os.path.realpath(shutil.which(name)) for name in PROGRAMS]
    listed = subprocess.run(["ldd", *files], capture_output=True, text=True).stdout.split()
    for file in {word for word in listed if word.startswith("/") and not word.endswith(":")}:
        (root / file[1:]).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, root / file[1:])
    for name, file in zip(PROGRAMS, files, strict=True):
        shutil.copy(file, root / "usr/bin" / name)
    return root


@pytest.fixture
def images(tmp_path, monkeypatch, root):
    """A folder of images that contains a base."""
    folder = tmp_path / "images"
    monkeypatch.setenv("CALIPERS_IMAGES", str(folder))
    (tmp_path / "Dockerfile").write_text("FROM debian\nRUN true\n")
    (folder / "bases").mkdir(parents=True)
    (folder / "bases" / _base_key(read_environment(tmp_path).image.base)).symlink_to(root)
    return folder


def ran(tmp_path, *options):
    done = calipers("run", "d", "--environment", "room", "--format", "json", *options, cwd=tmp_path, CALIPERS_HARBOR="")
    assert done.stdout, done.stderr
    (group,) = json.loads(done.stdout)["groups"]
    trials = [json.loads(path.read_text()) for path in sorted((tmp_path / "runs").glob("*/1/*__*/result.json"))]
    return group["ledger"]["outcomes"], {trial["task_name"]: trial for trial in trials}, done


STEPS = """FROM debian
ENV WHERE=/made
RUN mkdir $WHERE /gone && date +%N > $WHERE/stamp && touch /gone/x
COPY --chmod=600 answer $WHERE/
WORKDIR /there
RUN rm -r /gone && printf 42 > answer.txt && test "$(stat -c %a $WHERE/answer)" = 600
COPY --chmod=755 <<EOF /usr/bin/ours
#!/bin/sh
EOF
RUN ours
USER nobody
"""


def test_steps_are_executed_once_and_a_trial_finds_what_they_left(tmp_path, images):
    checks = (
        "[ ! -e /gone ] && [ $PWD = /there ] && [ $WHERE = /made ] && [ $(id -un) = nobody ] && [ ! -w /made/stamp ]"
    )
    tests = f"#!/bin/bash\n{checks}; echo $((1 - $?)) > /logs/verifier/reward.txt; cat /made/stamp\n"
    for name in ("a", "b"):
        task = write_task(tmp_path / "d", name, dockerfile=STEPS, tests=tests, solution="#!/bin/sh\ntrue\n")
        (task / "environment" / "answer").write_text("x")
    outcomes, trials, done = ran(tmp_path, "--samples", "2")
    assert (outcomes, done.returncode) == ({"scored": 4}, 0), done.stderr
    assert {trial["verifier_result"]["rewards"]["reward"] for trial in trials.values()} == {1}
    assert trials["a"]["calipers"]["image"].startswith("debian: built from packages (")
    stamps = {path.read_text() for path in (tmp_path / "runs").glob("*/1/*__*/verifier/test-stdout.txt")}
    assert len(stamps) == 1  # of both tasks, both times
    assert len(list((images / "layers").iterdir())) == 5
    assert not list(images.glob("new-*"))
    again = calipers("run", "d", "--environment", "room", "--samples", "2", cwd=tmp_path, CALIPERS_HARBOR="")
    assert "environment: room (as requested); debian: built from packages (" in again.stdout


def test_a_step_that_fails_is_not_run_and_says_why(tmp_path, images):
    write_task(tmp_path / "d", "right", dockerfile="FROM debian\nWORKDIR /app\nRUN true\n")
    write_task(tmp_path / "d", "wrong", dockerfile="FROM debian\n\nRUN echo first; echo the last word >&2; exit 7\n")
    step = "environment/Dockerfile:3: RUN echo first; echo the last word >&2; exit 7"
    why = f"{step} failed with exit code 7: first | the last word"
    outcomes, trials, done = ran(tmp_path)
    assert (outcomes, done.returncode, list(trials)) == ({"scored": 1, "not_run": 1}, 3, ["right"])
    assert f"wrong: not run: {why}; --environment docker runs it" in done.stderr
    checked = calipers("check", "d", cwd=tmp_path, CALIPERS_HARBOR="", PATH="/usr/sbin:/usr/bin:/sbin:/bin").stdout
    assert "runs here: 1 of 2" in checked
    assert "1 cannot run: has an image whose build failed here: RUN echo first" in checked
    assert len(list((images / "failed").iterdir())) == 1
    (tmp_path / "d" / "wrong" / "environment" / "Dockerfile").write_text("FROM debian\nRUN true\n")
    assert "runs here: 2 of 2" in calipers("check", "d", cwd=tmp_path, CALIPERS_HARBOR="").stdout


def test_a_step_has_a_time_limit(tmp_path, images):
    (tmp_path / "Dockerfile").write_text("FROM debian\nRUN sleep 600\n")
    with pytest.raises(ImageError, match=r"Dockerfile:2: RUN sleep 600 was (stopped|not started): the build timed out"):
        build(read_environment(tmp_path).image, BUILDER, 2.0)
    assert not list(images.glob("new-*"))


def test_two_who_want_one_image_make_it_once(tmp_path, images):
    (tmp_path / "Dockerfile").write_text("FROM debian\nRUN date +%N > /stamp; sleep 0.2\n")
    plan = read_environment(tmp_path).image
    (images / "new-1234567890-ab").mkdir()  # of a process that was killed
    with ThreadPoolExecutor(3) as pool:
        made = list(pool.map(lambda _: build(plan, BUILDER), range(3)))
    assert made[0] == made[1] == made[2]
    assert len(list((images / "layers").iterdir())) == 1
    assert not list(images.glob("new-*"))


def test_a_step_can_neither_mount_nor_make_devices_and_leads_nobody_out(tmp_path, images):
    """A link in an image is not followed during setup, because it would lead to the machine's own files."""
    outside = tmp_path / "outside"
    outside.mkdir(mode=0o755)
    text = f"""FROM debian
RUN ! mount -t tmpfs none /mnt && ! mknod /node c 1 3
RUN rm -rf /logs /app /etc/hosts && ln -s {outside} /logs && ln -s {outside} /app && ln -s {outside}/x /etc/hosts
RUN true
"""
    write_task(tmp_path / "d", "links", dockerfile=text, tests="#!/bin/sh\necho 1 > /logs/verifier/reward.txt\n")
    outcomes, trials, done = ran(tmp_path, "--agent", "nop")
    assert outcomes == {"scored": 1}, done.stderr
    assert trials["links"]["verifier_result"]["rewards"]["reward"] == 1
    assert not list(outside.iterdir())
    assert outside.stat().st_mode & 0o777 == 0o755


def test_who_changes_the_judges_tools_in_an_image_is_caught(tmp_path, images):
    write_task(tmp_path / "d", "cheat", dockerfile="FROM debian\nWORKDIR /app\nRUN true\n", solution=CHEAT)
    write_task(tmp_path / "d", "fair", dockerfile="FROM debian\nWORKDIR /app\nRUN true\n")
    _, trials, done = ran(tmp_path)
    assert trials["fair"]["verifier_result"]["rewards"]["reward"] == 1, done.stderr
    assert "/usr/bin/env, which is part of its verifier" in trials["cheat"]["exception_info"]["exception_message"]


def test_what_an_agent_compiled_in_an_image_is_not_run(tmp_path, images):
    text = "FROM debian\nWORKDIR /app\nRUN mkdir -p /lib/x/__pycache__ && touch /lib/x/__pycache__/old.pyc\n"
    there = "cd /lib/x/__pycache__ && [ -e old.pyc ] && [ ! -e new.pyc ] && [ -z $PYTHONPYCACHEPREFIX ]"
    tests = f"#!/bin/sh\n{there}\n"
    tests += "echo $((1 - $?)) > /logs/verifier/reward.txt\n"
    write_task(
        tmp_path / "d", "a", dockerfile=text, tests=tests, solution="#!/bin/sh\ntouch /lib/x/__pycache__/new.pyc\n"
    )
    _, trials, done = ran(tmp_path)
    assert trials["a"]["verifier_result"]["rewards"]["reward"] == 1, done.stderr


def test_a_quote_that_is_not_closed_is_one_line(tmp_path):
    write_task(tmp_path / "d", "quote", dockerfile="FROM debian\nENV A='1\n")
    why = "d/quote/environment/Dockerfile:2: ENV has a ' that is not closed; expected another '"
    checked = calipers("check", "d", cwd=tmp_path, CALIPERS_HARBOR="")
    assert (checked.returncode, checked.stdout.splitlines()[1]) == (1, why)
    done = calipers("run", "d", "--environment", "room", cwd=tmp_path, CALIPERS_HARBOR="")
    assert done.returncode == 2
    assert why in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("host", ["...", "a..b", "x" * 64])
def test_a_host_that_cannot_be_one_is_not_looked_for(tmp_path, images, host):
    tests = f"#!/bin/sh\necho 'usage: curl https://{host}/file'\n"
    task = write_task(tmp_path / "d", "task", dockerfile="FROM debian\nRUN true\n", tests=tests)
    assert declined(read_task(task)) is None
