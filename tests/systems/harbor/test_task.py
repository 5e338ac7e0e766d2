import dataclasses
import os

import pytest
from systems.harbor.given import ARITH, task, write

from calipers.errors import InputError
from calipers.systems.harbor.task import (
    AgentSettings,
    Artifact,
    EnvironmentSettings,
    Healthcheck,
    StepSettings,
    TaskSettings,
    VerifierSettings,
    agent_timeout,
    network_policies,
    read_task,
    resolve_env,
    solution_script,
    uploaded,
    verifier_script,
    verifier_timeout,
    without_canary,
)


def test_what_stands_where_nothing_is_said(tmp_path):
    found = read_task(task(tmp_path / "a"))
    assert (found.name, found.instruction, found.steps, found.unknown) == ("a", "Do it.\n", {}, ())
    assert found.config == TaskSettings()
    assert dataclasses.astuple(found.config)[:4] == ("1.4", None, None, ())
    assert (found.config.agent, found.config.verifier.timeout_sec) == (AgentSettings(), 600.0)
    assert found.config.environment == EnvironmentSettings(build_timeout_sec=600.0, os="linux")
    assert not found.config.verifier.separate


WHOLE = """
schema_version = "1.3"
source = "mine"
multi_step_reward_strategy = "final"
artifacts = ["/app/out", {source = "/logs/x", destination = "x", exclude = ["*.o"], service = "db"}]
[task]
name = "acme/whole"
version = "anything at all"
description = "d"
authors = [{name = "A", email = "a@example.org"}, {name = "B"}]
keywords = ["k"]
[metadata]
difficulty = "hard"
tags = ["x"]
[agent]
timeout_sec = 12
user = "agent"
network_mode = "allowlist"
allowed_hosts = ["example.org"]
[verifier]
timeout_sec = 0.5
env = {KEY = "${KEY}"}
user = 1000
[verifier.environment]
docker_image = "judge:1"
[[verifier.collect]]
command = "dump"
[environment]
docker_image = "image:2"
build_timeout_sec = 1
os = "windows"
cpus = 0.5
memory_mb = 100
storage_mb = 200
gpus = 0
gpu_types = ["h100"]
tpu = {type = "v5", topology = "2x2"}
env = {A = "a"}
workdir = "/w"
skills_dir = "/s"
mcp_servers = [{name = "m", url = "u"}]
network_mode = "no-network"
allowed_hosts = []
[environment.healthcheck]
command = "up"
[solution]
env = {S = "s"}
"""


def test_every_key(tmp_path):
    place = task(tmp_path / "a", WHOLE, without=("environment/Dockerfile", "tests/test.sh"))
    found = read_task(place)
    made = found.config
    assert (found.name, found.unknown, made.task.version, made.task.authors[1].email) == (
        "acme/whole",
        (),
        "anything at all",
        None,
    )
    assert made.artifacts == ("/app/out", Artifact("/logs/x", "x", ("*.o",), "db"))
    assert made.agent == AgentSettings(12.0, "agent", "allowlist", ("example.org",))
    assert (made.verifier.timeout_sec, made.verifier.user, made.verifier.env) == (0.5, 1000, {"KEY": "${KEY}"})
    assert made.verifier.separate  # it has an environment of its own
    assert [(one.service, one.timeout_sec) for one in made.verifier.collect] == [("main", 60.0)]
    assert made.environment.healthcheck == Healthcheck("up", 5.0, 30.0, 0.0, 5.0, 3)
    assert (made.environment.tpu.type, made.environment.mcp_servers[0]["url"], made.environment.gpus) == ("v5", "u", 0)
    assert found.needs_image == "environment.docker_image is 'image:2'"
    assert verifier_script(found).name == "test.bat"  # for its system, though an image brings it here


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('version = "1.0"', {"schema_version": "1.0"}),
        ('[environment]\nmemory = "2G"', {"memory_mb": 2048}),
        ('[environment]\nmemory = "512Mi"', {"memory_mb": 512}),
        ('[environment]\nmemory = "1.5 GB"\nstorage = "1T"', {"memory_mb": 1536, "storage_mb": 1048576}),
        ('[environment]\nmemory = "2G"\nmemory_mb = 7', {"memory_mb": 7}),  # the present name wins
        ("[environment]\nallow_internet = false", {"network_mode": "no-network"}),
        ("[environment]\nallow_internet = true", {"network_mode": "public"}),
        ('[environment]\nos = "Linux"', {"os": "linux"}),
    ],
)
def test_older_keys(tmp_path, old, new):
    found = read_task(task(tmp_path / "a", old))
    made = found.config if "schema_version" in new else found.config.environment
    assert {name: getattr(made, name) for name in new} == new
    assert found.unknown == ()


def test_older_keys_of_a_steps_own_verifier(tmp_path):
    toml = "[[steps]]\nname = 's'\n[steps.verifier.environment]\nmemory = '2G'\nallow_internet = false\n"
    found = read_task(task(tmp_path / "a", toml, **{"steps/s/instruction.md": "x"}))
    judging = found.config.steps[0].verifier.environment
    assert (judging.memory_mb, judging.network_mode, found.unknown) == (2048, "no-network", ())
    assert network_policies(found.config, found.config.steps[0]).verifier == "no-network"


def test_unknown_keys_are_told_and_change_nothing(tmp_path):
    toml = '[agent]\ntimeout_secs = 3\n[metadata]\nanything = 1\n[[steps]]\nname = "s"\nagent.usr = 1\n[extra]\n'
    place = task(tmp_path / "a", toml, **{"steps/s/instruction.md": "x"})
    assert [note.removeprefix(str(place)) for note in read_task(place).unknown] == [
        "/task.toml:2: the key 'agent.timeout_secs' is unknown and ignored; did you mean 'timeout_sec'?",
        "/task.toml:7: the key 'steps[0].agent.usr' is unknown and ignored; did you mean 'user'?",
        "/task.toml:8: the key 'extra' is unknown and ignored",
    ]


@pytest.mark.parametrize(
    ("toml", "line", "said"),
    [
        ("[agent]\ntimeout_sec = '3'", 2, "agent.timeout_sec: expected a number, got text"),
        ("[agent]\ntimeout_sec = true", 2, "agent.timeout_sec: expected a number, got true or false"),
        ("\nagent = 3", 2, "agent: expected a table, got an integer"),
        ("[verifier]\ntimeout_sec = nan", 2, "verifier.timeout_sec is nan; expected a number > 0"),
        ("[agent]\ntimeout_sec = 0", 2, "agent.timeout_sec is 0.0; expected a number > 0"),
        ("[environment]\ngpus = -1", 2, "environment.gpus is -1; expected a number >= 0"),
        ("[environment]\n\nos = 'beos'", 3, "environment.os: is 'beos'; expected 'linux' or 'windows'"),
        ("[environment]\nmemory_mb = " + "9" * 400, 2, "environment.memory_mb is 999"),
        ("[environment]\nmemory = '" + "9" * 400 + "G'", 2, "environment.memory is '999"),
        ("[environment]\nmemory = 'much'", 2, "environment.memory is 'much'; expected a size such as '2G' or '512M'"),
        ("[environment]\nallow_internet = 'false'", 2, "environment.allow_internet: expected true or false, got text"),
        ("[environment]\nenv = {A = 1}", 2, "environment.env: expected text, got an integer"),
        (
            "[[steps]]\nname = 'a'\nagent.network_mode = 'x'",
            3,
            "steps[0].agent.network_mode: is 'x'; expected 'public' or",
        ),
        ("[task]\nversion = '1'", 1, "task: it has no name"),
        ("[task]\nname = 'plain'", 2, "the name is 'plain'; expected org/name"),
        ("[task]\nname = '../x'", 2, "the name is '../x'; expected org/name"),
        ("[task]\nname = 'a/b'\nversion = ''", 3, "the version is empty"),
        ("multi_step_reward_strategy = 'max'", 1, "multi_step_reward_strategy: is 'max'; expected 'mean' or 'final'"),
        ("artifacts = ['../x']", 1, "the artifact '../x' points outside"),
        ("artifacts = [{source = 'a', destination = '/b'}]", 1, "the artifact's destination is '/b'"),
        ("artifacts = [{source = 'a', destination = 'manifest.json'}]", 1, "the artifact's destination is"),
        ("[[steps]]\nname = 'a'\n[[steps]]\nname = 'A'", 4, "the step 'A' and the step 'a' are the same name"),
        ("[[steps]]\nname = 'e\u0301'\n[[steps]]\nname = '\u00e9'", 4, "the step '\u00e9' and the step"),
        ("[[steps]]\nname = 'a/b'", 2, "the step's name is 'a/b'"),
        ("[[steps]]\nname = '..'", 2, "the step's name is '..'"),
        ("[[steps]]\nname = 'nul.txt'", 2, "the step's name is 'nul.txt'"),
        ("[[steps]]\nname = '" + "\u00e9" * 128 + "'", 2, "the step's name is"),  # 256 bytes
        ("[[steps]]\nname = 'a'\nmin_reward = {reward = 'x'}", 3, "steps[0].min_reward: expected a number, got text"),
    ],
)
def test_a_task_toml_that_is_wrong(tmp_path, toml, line, said):
    place = task(tmp_path / "a", toml)
    with pytest.raises(InputError) as error:
        read_task(place)
    assert str(error.value).startswith(f"{place}/task.toml:{line}: {said}")


@pytest.mark.parametrize(
    ("toml", "without", "said"),
    [
        ("", "task.toml", "is not a task: it has no task.toml"),
        ("", "instruction.md", "has no instruction.md"),
        ("", "environment/Dockerfile", "environment: is not there"),
        ("", "tests/test.sh", "tests/test.sh: is not there"),
        ("[environment]\nos = 'windows'", "", "tests/test.bat: is not there"),
        ("[verifier]\nenvironment_mode = 'separate'", "tests/test.sh", "tests/test.sh: is not there"),
        ("[[steps]]\nname = 'one'", "", "steps/one: has no instruction.md"),
    ],
)
def test_a_directory_that_is_no_valid_task(tmp_path, toml, without, said):
    with pytest.raises(InputError, match=said.replace(".", r"\.")):
        read_task(task(tmp_path / "a", toml, without=(without,)))


def test_a_folder_whose_name_is_not_utf_8_is_no_valid_task(tmp_path):
    """No file of a job could contain the name: a run of such a task was an internal error."""
    with pytest.raises(InputError, match="its name is not UTF-8; expected text in UTF-8"):
        read_task(task(tmp_path / os.fsdecode(b"t\xff"), ""))


def test_what_a_valid_task_may_do_without(tmp_path):
    bare = ("environment/Dockerfile",)
    assert read_task(task(tmp_path / "a", "[environment]\ndocker_image = 'x'", without=bare))
    none = ("tests/test.sh",)
    bundled = "[verifier.environment]\ndocker_image = 'judge'"
    assert read_task(task(tmp_path / "c", bundled, without=none))
    own = "[verifier]\nenvironment_mode = 'separate'"
    assert read_task(task(tmp_path / "d", own, without=none, **{"tests/Dockerfile": "FROM judge\n"}))


def test_steps(tmp_path):
    toml = '[[steps]]\nname = "one"\nmin_reward = 0.5\n[[steps]]\nname = "two"\n[steps.verifier]\ntimeout_sec = 5\n'
    more = {"steps/one/instruction.md": "First.\n", "steps/two/instruction.md": "# canary\n\nThen.\n"}
    more |= {"steps/two/tests/test.sh": "", "steps/two/solution/solve.sh": ""}
    found = read_task(task(tmp_path / "a", toml, without=("instruction.md",), **more))
    assert found.steps == {"one": "First.\n", "two": "Then.\n"}
    assert found.instruction == ""
    one, two = found.config.steps
    assert one == StepSettings("one", min_reward=0.5)
    assert two.verifier == VerifierSettings(timeout_sec=5.0)
    assert verifier_script(found, one) == found.path / "tests" / "test.sh"  # a step without its own has the task's
    assert verifier_script(found, two) == found.path / "steps" / "two" / "tests" / "test.sh"
    assert solution_script(found, one) is None
    assert solution_script(found, two) == found.path / "steps" / "two" / "solution" / "solve.sh"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<!-- harbor-canary GUID 1 -->\n# BENCHMARK CANARY\n\n\n# Title\n", "# Title\n"),
        ("# Title\n# canary\n", "# Title\n# canary\n"),  # only leading lines
        ("\nText\n", "\nText\n"),  # blank lines stay where no canary was
        ("<!-- canary -->", ""),
        ("Mind the canary.\n", "Mind the canary.\n"),  # no comment
        ("<!-- a canary\n-->\nx", "<!-- a canary\n-->\nx"),
    ],
)
def test_canaries_are_not_part_of_the_instruction(text, expected):
    assert without_canary(text) == expected


def test_links_in_a_task(tmp_path):
    place = task(tmp_path / "a", without=("instruction.md",))
    (place / "instruction.md").symlink_to("/etc/passwd")
    with pytest.raises(InputError, match="is a link out of"):
        read_task(place)


def test_harbors_own_dataset():
    found = [read_task(place) for place in sorted(ARITH.iterdir()) if place.is_dir()]
    assert [one.name for one in found][:3] == ["add-two", "csv-sum", "acme/fizz-buzz"]
    assert {one.unknown for one in found} == {()}


def test_limits_of_a_step(tmp_path):
    toml = "agent.timeout_sec = 7\nverifier.timeout_sec = 8\n[[steps]]\nname = 'a'\n[[steps]]\nname = 'b'\n"
    toml += "agent.timeout_sec = 1\nverifier.timeout_sec = 2\n"
    steps = {f"steps/{name}/instruction.md": "x" for name in "ab"}
    found = read_task(task(tmp_path / "t", toml, **steps))
    a, b = found.config.steps
    assert [agent_timeout(found, step) for step in (None, a, b)] == [7.0, 7.0, 1.0]
    assert [verifier_timeout(found, step) for step in (None, a, b)] == [8.0, 600.0, 2.0]  # Harbor's: not inherited
    assert agent_timeout(read_task(task(tmp_path / "u"))) is None


@pytest.mark.parametrize(
    ("value", "host", "expected"),
    [
        ("plain", {}, "plain"),
        ("${X}", {"X": "x"}, "x"),
        ("${X:-d}", {}, "d"),
        ("${X:-d}", {"X": ""}, ""),  # set, and empty
        ("${X:-}", {}, ""),
        ("${X:-a}b}", {}, "a}b"),
        ("https://${X}/", {"X": "x"}, "https://${X}/"),  # only a whole value is a reference
        ("$X", {"X": "x"}, "$X"),
        ("${X}", {"X": "${Y}", "Y": "y"}, "${Y}"),  # once
    ],
)
def test_variables(value, host, expected):
    assert resolve_env({"A": value}, host) == {"A": expected}


def test_variables_that_nobody_set():
    env = {"A": "${KEY}", "B": "${OTHER}", "C": "${KEY}", "D": "${GIVEN}", "E": "secret"}
    with pytest.raises(InputError) as error:
        resolve_env(env, {"GIVEN": "hush"}, "a/task.toml: verifier.env")
    assert str(error.value) == (
        "a/task.toml: verifier.env: KEY, OTHER not set here; export it, or give a default as in ${NAME:-value}"
    )


def test_what_goes_into_the_environment(tmp_path):
    place = task(tmp_path / "a", **{".harborignore": "*.log\nsecret/\n", "tests/.harborignore": "!keep.log\n/only\n"})
    for name in ("a.log", "keep.log", "only", "deep/only", "secret/x", "data.csv"):
        write(place / "tests" / name, "")
    assert [path.relative_to(place / "tests").as_posix() for path in uploaded(place, place / "tests")] == [
        ".harborignore",
        "data.csv",
        "deep/only",  # "/only" speaks of its own directory
        "keep.log",  # the nearest rule wins
        "test.sh",
    ]
    assert uploaded(place, place / "solution") == []


def test_the_script_that_judges_cannot_be_left_out(tmp_path):
    place = task(tmp_path / "a", **{"tests/.harborignore": "*.sh\n"})
    with pytest.raises(InputError, match=r"tests/\.harborignore: excludes test\.sh, which verifies the task"):
        read_task(place)
    write(place / "tests" / ".harborignore", "*.sh\n!test.sh\n")
    assert read_task(place)


def test_links_do_not_leave_the_task(tmp_path):
    place = task(tmp_path / "a")
    (place / "tests" / "leak").symlink_to("/etc/passwd")
    with pytest.raises(InputError, match="is a link out of"):
        uploaded(place, place / "tests")
