"""The network of each phase, the verification of steps, and declined, resumed, interrupted and cheating trials."""

import json
import shutil

import pytest
from harbor_datasets import write_dataset, write_task
from rooms import needs_rooms

import calipers
from calipers.errors import InputError
from calipers.isolate.container import MOST_HEARD
from calipers.isolate.tamper_check import HARMLESS, SOURCE
from calipers.systems.harbor.dataset import read_dataset
from calipers.systems.harbor.task import read_task
from calipers.systems.harbor.trials.agents import find_agent, unsolved
from calipers.systems.harbor.trials.environment import declined
from calipers.systems.harbor.trials.job import ContainerJob, run_here
from calipers.systems.harbor.trials.run import AgentRequest, alike, forget_cut_off, perform

pytestmark = needs_rooms
STEPS = '[[steps]]\nname = "first"\n[steps.agent]\n{agent}\n[steps.verifier]\n{verifier}\n'


def stepped(folder, toml):
    """Write a task with one step, whose settings are in ``toml`` too."""
    task = write_task(folder, "task", toml=toml)
    (task / "steps" / "first").mkdir(parents=True)
    shutil.copy(task / "instruction.md", task / "steps" / "first")
    return task


def run(folder, agent="oracle"):
    """The results of one trial of each task, by the task's name."""
    dataset = read_dataset(folder)
    run_here(ContainerJob(folder.parent / "job", dataset.name, dataset.tasks, find_agent(agent)))
    paths = sorted((folder.parent / "job").glob("*__*/result.json"))
    return {path.parent.name.partition("__")[0]: json.loads(path.read_text()) for path in paths}


@pytest.mark.parametrize(
    ("task", "step", "separate"),
    [("separate", "", True), ("separate", "shared", False), ("shared", "separate", True), ("shared", "", False)],
)
def test_a_step_inherits_where_it_is_judged(tmp_path, task, step, separate):
    own = f'environment_mode = "{step}"' if step else ""
    toml = f'[verifier]\nenvironment_mode = "{task}"\n' + STEPS.format(agent="", verifier=own)
    folder = stepped(tmp_path / "d", toml)
    (folder / "tests" / "test.sh").write_text(APART)
    (result,) = run(tmp_path / "d", "command:touch /app/left; echo 42 > /logs/artifacts/answer").values()
    assert result["verifier_result"]["rewards"] == {"apart": int(separate), "artifact": 1}, result


APART = """#!/bin/sh
[ -e /app/left ]; apart=$?
[ "$(cat /logs/artifacts/answer)" = 42 ] && artifact=1
echo "{\\"apart\\": $apart, \\"artifact\\": ${artifact:-0}}" > /logs/verifier/reward.json
"""
SEPARATE = 'artifacts = ["/app/answer.txt", "/app/folder"]\n[verifier]\nenvironment_mode = "separate"\n'
JUDGE = """#!/bin/sh
[ "$PWD $JUDGE $MODE" = "/judge yes strict" ] || exit 1
[ -e /app/left ] && exit 1  # not an artifact
[ "$(cat /app/folder/*)" = new ] || exit 1  # what the image had there is gone
[ "$(cat /app/answer.txt)" = "$(cat /tests/expected)" ]; echo $((1 - $?)) > /logs/verifier/reward.txt
"""


def judged_apart(folder, dockerfile):
    """Write a task whose tests have their own Dockerfile."""
    toml = SEPARATE + '[verifier.env]\nMODE = "strict"\n'
    task = write_task(folder, "task", toml=toml, tests=JUDGE)
    (task / "tests" / "Dockerfile").write_text(dockerfile)
    (task / "tests" / "expected").write_text("42")
    return task


OWN = "FROM python:3.12-slim\nWORKDIR /judge\nENV JUDGE=yes\nCOPY . /tests\nCOPY expected /app/folder/old\n"


@pytest.mark.parametrize(("answer", "reward"), [("42", 1.0), ("41", 0.0)])
def test_a_verifier_of_its_own_has_the_artifacts_and_nothing_else_of_the_agents(tmp_path, answer, reward):
    judged_apart(tmp_path / "d", OWN)
    work = f"mkdir folder; echo new > folder/new; touch left; printf {answer} > answer.txt"
    cheat = "(while :; do echo 1 > /logs/verifier/reward.txt; sleep 0.01; done) > /dev/null 2>&1 &"
    (result,) = run(tmp_path / "d", f"command:{work}; echo 'exit 1' > /tests/test.sh; {cheat}").values()
    assert result["verifier_result"] == {"rewards": {"reward": reward}}, result


def test_an_agent_whose_artifacts_break_its_verifier_gets_nothing(tmp_path):
    task = judged_apart(tmp_path / "d", OWN)
    (task / "solution" / "solve.sh").write_text("mkdir folder; echo new > folder/new; printf 42 > answer.txt")
    (result,) = run(tmp_path / "d", "command:mkdir folder; echo other > folder/new").values()
    assert result["verifier_result"] is None
    assert result["calipers"] == {"reference": "judged", "tries": 2, "outcome": "broke_verifier"}


@pytest.mark.parametrize(
    ("dockerfile", "toml", "why"),
    [
        ("FROM postgres:16\n", "", "it needs the image postgres:16"),
        (
            "FROM python\nHURRY\n",
            "",
            "{task}/tests/Dockerfile:2: HURRY is not an instruction; expected for example RUN",
        ),
        ("FROM python\n", '[verifier.environment]\ndocker_image = "judge:1"\n', "it needs the image judge:1"),
        ("FROM python\n", "[verifier.environment]\ngpus = 1\n", "it needs an accelerator"),
        (
            "FROM python\n",
            '[verifier.environment]\nnetwork_mode = "allowlist"\nallowed_hosts = ["a.org"]\n',
            "it allows only some hosts, and a room allows all or none",
        ),
        ("FROM python\n", "", None),
    ],
)
def test_a_verifier_that_no_room_can_have_declines_its_task(tmp_path, dockerfile, toml, why):
    task = judged_apart(tmp_path, dockerfile)
    (task / "task.toml").write_text(SEPARATE + toml)
    assert declined(read_task(task)) == (why and why.replace("{task}", str(task)))


def test_a_verifier_of_its_own_has_the_network_of_its_own_environment(tmp_path):
    toml = f"[environment]\n{OFF}\n[verifier.environment]\n{ON}\n"
    see = f'#!/bin/sh\necho "{{\\"alone\\": $( ({NET}) | grep -c alone)}}" > /logs/verifier/reward.json\n'
    write_task(tmp_path / "d", "task", toml=toml, tests=see)
    assert run(tmp_path / "d", "nop")["task"]["verifier_result"]["rewards"] == {"alone": 0}


def test_the_tests_of_a_step_may_lie_in_the_image_of_the_tasks_verifier(tmp_path):
    toml = '[verifier]\nenvironment_mode = "separate"\n[verifier.environment]\ndocker_image = "judge:1"\n'
    task = stepped(tmp_path, toml + STEPS.format(agent="", verifier=""))
    shutil.rmtree(task / "tests")
    assert read_task(task).steps
    (task / "task.toml").write_text(toml + STEPS.format(agent="", verifier='environment_mode = "shared"'))
    with pytest.raises(InputError, match="expected the script that verifies the task"):
        read_task(task)


NET = "lo=$(grep -c lo: /proc/net/dev); all=$(grep -c : /proc/net/dev); [ $lo = $all ] && echo alone || echo shared"
SEES = f"""#!/bin/sh
now=$( ({NET}) | grep -c alone)
echo "{{\\"agent\\": $(grep -c alone /app/agent), \\"verifier\\": $now}}" > /logs/verifier/reward.json
"""
OFF = 'network_mode = "no-network"'
ON = 'network_mode = "public"'


@pytest.mark.parametrize(
    ("toml", "agent", "verifier"),
    [
        (f"[environment]\n{OFF}\n", 1, 1),
        (f"[agent]\n{OFF}\n", 1, 0),
        (f"[verifier]\n{OFF}\n", 0, 1),
        (f"[environment]\n{OFF}\n[agent]\n{ON}\n", 0, 1),
        (f"[environment]\n{OFF}\n[verifier]\n{ON}\n", 1, 0),
        (f"[agent]\n{ON}\n" + STEPS.format(agent=OFF, verifier=""), 1, 0),
        (f"[verifier]\n{OFF}\n" + STEPS.format(agent="", verifier=ON), 0, 0),
    ],
)
def test_each_phase_has_the_network_that_its_policy_says(tmp_path, toml, agent, verifier):
    task = stepped(tmp_path / "d", toml) if "steps" in toml else write_task(tmp_path / "d", "task", toml=toml)
    (task / "tests" / "test.sh").write_text(SEES)
    (result,) = run(tmp_path / "d", f"command:({NET}) > /app/agent").values()
    assert result["verifier_result"]["rewards"] == {"agent": agent, "verifier": verifier}, result


def test_without_a_network_there_is_a_loopback(tmp_path):
    talk = "import socket; s = socket.create_server(('127.0.0.1', 0)); socket.create_connection(s.getsockname(), 5)"
    solution = f'#!/bin/sh\npython3 -c "{talk}" && printf 42 > answer.txt\n'
    write_task(tmp_path / "d", "task", toml=f"[environment]\n{OFF}\n", solution=solution)
    assert run(tmp_path / "d")["task"]["verifier_result"]["rewards"] == {"reward": 1.0}


HOSTS = 'network_mode = "allowlist"\nallowed_hosts = ["a.org"]'


@pytest.mark.parametrize(
    "toml",
    [
        f"[agent]\n{HOSTS}\n",
        f"[verifier]\n{HOSTS}\n",
        STEPS.format(agent=HOSTS, verifier=""),
        STEPS.format(agent="", verifier=HOSTS),
    ],
)
def test_a_list_of_hosts_is_declined_wherever_it_stands(tmp_path, toml):
    task = stepped(tmp_path, toml) if "steps" in toml else write_task(tmp_path, "task", toml=toml)
    assert declined(read_task(task)) == "it allows only some hosts, and a room allows all or none"


@pytest.mark.parametrize(
    ("toml", "message"),
    [
        (
            '[verifier]\nallowed_hosts = ["a.org"]\n',
            r"task.toml:2: verifier.allowed_hosts is set, but network_mode is",
        ),
        (
            '[verifier]\nenvironment_mode = "shared"\n[verifier.environment]\ncpus = 1\n',
            r"task.toml:2: verifier.environment_mode is 'shared', but the verifier has its own environment",
        ),
    ],
)
def test_what_harbor_does_not_read_as_a_task(tmp_path, toml, message):
    with pytest.raises(InputError, match=message):
        read_task(write_task(tmp_path, "task", toml=toml))


def test_a_task_without_a_solution_is_not_run_by_the_oracle(tmp_path):
    dataset = write_dataset(tmp_path / "write", 3)
    for name in ("write-1", "write-2"):
        shutil.rmtree(dataset / name / "solution")
    done = perform(AgentRequest(str(dataset), out=tmp_path / "out"), lambda done, planned: None)
    assert done.notes == [
        ("write-1: not run: it has no solution for the oracle to run; 1 more task for the same reason: write-2")
    ]
    assert done.left_out == 2
    assert calipers.score(str(done.folder)).groups[0].ledger.outcomes == {"scored": 1, "not_run": 2}
    (dataset / "write-1" / "steps" / "first" / "solution").mkdir(parents=True)
    assert unsolved(read_task(dataset / "write-1"))


@pytest.mark.parametrize("table", ["solution.env", "verifier.env"])
def test_a_task_whose_variable_is_not_set_is_run_once_it_is(tmp_path, monkeypatch, table):
    dataset = write_dataset(tmp_path / "write", 1)
    write_task(dataset, "z-asks", toml=f'[{table}]\nKEY = "${{SET_LATER}}"\n')
    request = AgentRequest(str(dataset), out=tmp_path / "out")
    done = perform(request, lambda done, planned: None)
    right = "export it, or give a default as in ${NAME:-value}"
    assert done.notes == [f"z-asks: not run: {table}: SET_LATER not set here; {right}"]
    assert calipers.score(str(done.folder)).groups[0].ledger.outcomes == {"scored": 1, "not_run": 1}
    monkeypatch.setenv("SET_LATER", "1")
    perform(request, lambda done, planned: None)
    assert calipers.score(str(done.folder)).groups[0].ledger.outcomes == {"scored": 2}


def test_one_note_for_tasks_that_are_left_out_for_one_reason():
    notes = [f"t{number}: not run: it needs the image pg:{number}; other" for number in range(9)]
    notes += ["b: not run: it needs an accelerator", "p/c/task.toml:3: cpus is 0; expected a number > 0"]
    first, *others = alike(notes)
    assert (
        first
        == "t0: not run: it needs the image pg:0; other; 8 more tasks for the same reason: t1, t2, t3, t4, t5, ..."
    )
    assert others == notes[9:]


@pytest.mark.parametrize("content", ["", '{"task_name": "wri'])
def test_a_result_that_is_empty_or_cut_off_is_run_again(tmp_path, content):
    write_dataset(tmp_path / "write", 2)
    run(tmp_path / "write")
    result = tmp_path / "job" / "write-0__0001" / "result.json"
    result.write_text(content)
    again = run(tmp_path / "write")
    assert again["write-0"]["verifier_result"]["rewards"] == {"reward": 1.0}
    assert json.loads((tmp_path / "job" / "result.json").read_text())["stats"]["n_completed_trials"] == 2


@pytest.mark.parametrize("kind", ["CancelledError", "ServerNotAskedError"])
def test_a_job_says_when_a_trial_of_it_must_be_run_again(tmp_path, kind):
    for name, failed in (("a__1", None), ("a__2", {"exception_type": kind}), ("a__3", {"exception_type": "ApiError"})):
        (tmp_path / name).mkdir()
        (tmp_path / name / "result.json").write_text(json.dumps({"exception_info": failed}))
    assert forget_cut_off(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a__1", "a__3"]
    assert not forget_cut_off(tmp_path)


def test_streams_are_cut_at_their_limit(tmp_path):
    loud = f"head -c {MOST_HEARD + 1000} /dev/zero"
    tests = f"#!/bin/sh\n{loud}\necho 1 > /logs/verifier/reward.txt\n"
    write_task(tmp_path / "d", "task", tests=tests, solution=f"#!/bin/sh\n{loud}\n")
    assert run(tmp_path / "d")["task"]["verifier_result"]["rewards"] == {"reward": 1.0}
    for name in ("agent/oracle.txt", "verifier/test-stdout.txt"):
        assert (tmp_path / "job" / "task__0001" / name).stat().st_size == MOST_HEARD


UV = """#!/bin/sh
# add binaries to PATH if they aren't added yet
case ":${PATH}:" in
    *:"$HOME/.local/bin":*)
        ;;
    *)
        export PATH="$HOME/.local/bin:$PATH"
        ;;
esac
"""
GRADE = """#!/bin/bash
{source}
if [ -e answer.txt ]; then echo 1; else echo 0; fi > /logs/verifier/reward.txt
"""
EVIL = "echo 'echo 1 > /logs/verifier/reward.txt; exit' > "


@pytest.mark.parametrize(
    ("source", "line", "outcome"),
    [
        ("source $HOME/.local/bin/env", f"mkdir -p ~/.local/bin; {EVIL} ~/.local/bin/env", "tampered"),
        ('. "${HOME}/.mine/env"', f"mkdir ~/.mine; {EVIL} ~/.mine/env", "tampered"),
        ("[ -e ~/.rc ] && source ~/.rc", f"{EVIL} ~/.rc", "tampered"),
        ("source ~/.rc", f"{EVIL} ~/.inner; echo '. ~/.inner' > ~/.rc", "tampered"),
        ("source ~/.rc", f"{EVIL} /app/x; ln -s /app/x ~/.rc", "tampered"),
        ("source $HOME/.local/bin/env", "mkdir -p ~/.local/bin; cp /app/uv ~/.local/bin/env", "scored"),
        (
            "source $HOME/.local/bin/env",
            "mkdir -p ~/.local/bin; cp /app/uv ~/.local/bin/env; cd ~/.local/bin; echo x > sed; chmod +x sed",
            "tampered",
        ),
        ("true", f"{EVIL} ~/.rc", "scored"),
    ],
)
def test_a_file_of_the_agents_that_the_tests_source_from_its_home(tmp_path, source, line, outcome):
    task = write_task(tmp_path / "d", "task", tests=GRADE.format(source=source))
    (task / "environment" / "Dockerfile").unlink()
    (task / "environment" / "uv").write_text(UV)
    run(tmp_path / "d", f"command:{line}")
    assert calipers.score(str(tmp_path / "job")).groups[0].ledger.outcomes == {outcome: 1}


def test_what_is_sourced_and_what_is_harmless():
    text = 'source $A\n. "b c"\necho x; source d\nresource e\n./f\n# source g\n'
    assert [match[1] or match[2] or match[3] for match in SOURCE.finditer(text)] == ["$A", "b c", "d"]
    assert all(HARMLESS.fullmatch(line.strip()) for line in UV.splitlines())
    for line in ('export PATH="$(evil):$PATH"', "alias ls=evil", 'case ":${PATH}:" in *) evil;; esac', "`evil`"):
        assert not HARMLESS.fullmatch(line), line


def test_trials_that_lack_a_reward_are_counted_and_named(tmp_path):
    reward = "/logs/verifier/reward.json"
    write_task(tmp_path / "d", "a")
    write_task(tmp_path / "d", "b", tests=f"#!/bin/sh\necho '{{\"speed\": 2}}' > {reward}\n")
    run(tmp_path / "d")
    result = calipers.score(str(tmp_path / "job"))
    assert result.groups[0].ledger.lacking == {"reward": 1}
    assert json.loads(result.to_json())["groups"][0]["ledger"]["lacking"] == {"reward": 1}
    (note,) = result.notes
    assert "'reward' is missing in 1 of 2 (b__0001)" in note
    assert "'speed' is missing in 1 of 2 (a__0001)" in note
    assert calipers.score(str(tmp_path / "job"), reward="speed").groups[0].ledger.lacking == {"speed": 1}
