"""Printed texts are plain English: no phrase that users did not understand, and no fragments as option texts."""

import re
from pathlib import Path

import click
import pytest
from cli.inside import Inside
from cli.pages import write_files
from cli.running import ARITH
from source import SOURCE, facts

from calipers.cli import COMMANDS, commands
from calipers.cli.options import GENERAL, GroupedCommand, GroupedOption
from calipers.names import load
from calipers.systems.lm_eval.command_line import read_command

COLUMNS = 80
GROUPED = ("run", "score", "compare", "gate")
NOT_UNDERSTOOD = (
    "numbers one can defend",
    "command goes on",
    "command again goes on",
    "planned (from plan",
    "gaps, left out",
    "whatever the gaps",
    "whatever the missing",
    "tasks undefined",
    "valid at every look",
    "no task has settled",
    "each from",
    "dialect native, missing gap, seed",
    "Codex estimator",
    "may divide by no pass",
    "may lie beyond all that was seen",
    "stays owed",
    "stay owed",
    "stands twice",
    "says no kind",
    "critical failed",
    "supporting failed",
    "advisory failed",
    "chance of being best",
    "chance of being the best",
)
"""Phrases that new users quoted as not understood, and near variants of them."""
IN_DOCUMENTS = (
    "no interval is computed for a ratio of totals that may divide by no pass",
    "too few tasks: the percentile may lie beyond all that was seen",
)
"""Reasons that the digest of a document covers: they stay in the source, but a page shows plainer words."""
FRAGMENTS = ("Of one completion.", "Of the intervals.", "Of resampling.", "Where.", "Which route of it.")
"""Option texts that were not understandable without the option's name."""
FIRST_WORDS = (
    *("at", "how", "in", "likewise", "of", "so", "that", "what", "when", "where", "whether", "which", "who", "whose"),
    *("with", "without"),
)
"""Words that begin a subordinate clause: a text that begins with one is not a sentence."""
UNCLEAR = ("anew", "asked", "goes on", "one's", "owed", "settled", "told", "whatever", "whoever", "whose")
"""Words that no option text needs."""
FEWEST_WORDS = 2


def command_named(name):
    return load(COMMANDS[name][0])


def help_of(name):
    with commands.make_context("calipers", [name], resilient_parsing=True, terminal_width=COLUMNS) as parent:
        command = command_named(name)
        return command.get_help(command.context_class(command, info_name=name, parent=parent))


def options_of(name):
    return [option for option in command_named(name).params if isinstance(option, click.Option)]


CLICKED = [name for name in COMMANDS if name != "lm-eval"]  # whose options are another parser's
EVERY_OPTION = [(name, option) for name in CLICKED for option in options_of(name)]
LM_EVAL = [["--help"], ["run", "--help"], ["ls", "--help"], ["validate", "--help"]]


def unclear(text):
    """Why an option text is not a plain sentence; None if it is."""
    sentence = re.split(r"\s*\[default", text)[0].strip()
    words = re.findall(r"[\w'@-]+", sentence)
    if sentence[:1] != sentence[:1].upper() or not sentence.endswith((".", "...")):
        return "expected a capital letter and a full stop"
    if len(words) < FEWEST_WORDS:
        return "too short to be understood"
    if words[0].lower() in FIRST_WORDS:
        return f"begins with {words[0]!r}"
    if used := [word for word in UNCLEAR if re.search(rf"\b{word}\b", sentence)]:
        return f"says {used[0]!r}"
    return None


@pytest.mark.parametrize(
    "text", [*FRAGMENTS, "Likewise.", "no capital letter.", "No full stop", "Whose names hold.", "3"]
)
def test_what_is_no_plain_sentence(text):
    assert unclear(text)


@pytest.mark.parametrize("text", ["Maximum tokens per completion.", "Also write a file.  [default: no]", "Run folder."])
def test_what_is_one(text):
    assert unclear(text) is None


@pytest.mark.parametrize(("name", "option"), EVERY_OPTION, ids=lambda value: getattr(value, "name", value))
def test_the_text_of_every_option(name, option):
    assert option.help, option.opts
    assert unclear(option.help) is None, f"{option.opts[0]}: {option.help}"


@pytest.mark.parametrize("arguments", LM_EVAL)
def test_the_texts_of_lm_eval(arguments):
    text = read_command(arguments).text
    assert max(map(len, text.splitlines())) <= COLUMNS
    assert phrases_in(text) == []
    for block in re.findall(r"^  -\S[^\n]*?(?:  +|\n {20,})(\S[^\n]*(?:\n {20,}[^\n]*)*)", text, re.MULTILINE):
        assert unclear(" ".join(block.split())) is None, block


SAME_NAME = {
    "--accept": "a step, or a night",
    "--alarm": "several of a run, or one over nights",
    "--false-alarms": "a chance, or a share of alarms",
    "--junit": "checks, or alarms",
    "--notify": "the end of a run, or an alarm",
    "--steps": "planned steps, or steps to rank",
    "--agent": "an agent of Harbor's, a server of NeMo Gym's, or the agent of a group",
    "--baseline": "a run among those that are compared, or a file",
    "--base-url": "the model of a run, or of the built-in agent",
    "--concurrency": "requests, rollouts or verifications",
    "--export": "the systems that a command writes the files of",
    "-o": "a folder, or the file itself",
    "--force": "files to replace, or runs to compare",
    "--labels": "the labels to read, or to write",
    "--key": "the private key that signs, or the public key that is checked",
    "--limit": "tasks, lines or rows",
    "--metric": "what plan compares by",
    "--model": "a model to run, or the model of a group",
    "--missing": "runs that are compared may also be declared to lack rollouts at random",
    "--out": "a folder, a file beside the page, or the file itself",
    "--dataset": "the dataset of a group, or one to create",
    "--dialect": "the word that is explained",
    "--range": "of all rewards, or of a benchmark by its name",
    "--reward": "the judge's, the old one, or any",
    "--samples": "samples to take, or samples there are",
    "--seed": "what is random",
    "--temperature": "the server's default, or the task's",
    "--threshold": "a pass, or a good label",
    "--timeout": "a request or a rollout",
    "--token-env": "the client's token, or the server's",
    "--verifier": "what is verified",
    "--num-repeats": "another name of --samples in run",
    "--no-texts": "a converted file keeps its answers, which votes count; a report shows texts only",
}
"""Options of one name that are not the same in every command, and what differs."""


def test_an_option_has_the_same_words_in_every_command():
    texts = {}
    for _, option in EVERY_OPTION:
        for opt in option.opts:
            texts.setdefault(opt, set()).add(
                re.split(r"\s*\[default", option.help)[0].replace("; fail exits with 3", "")
            )
    differing = {opt for opt, several in texts.items() if len(several) > 1}
    assert differing == SAME_NAME.keys()


@pytest.mark.parametrize("name", CLICKED)
def test_help_fits_a_terminal(name):
    text = help_of(name)
    assert max(map(len, text.splitlines())) <= COLUMNS
    assert phrases_in(text) == []
    assert text.isascii()
    assert re.findall(r"\S-$|\[default:$", text, re.MULTILINE) == []  # an option's name, and a short default, are whole


@pytest.mark.parametrize("name", CLICKED)
def test_the_first_sentence_of_a_command(name):
    described = " ".join((command_named(name).help or "").split("\n\n")[0].split())
    assert re.match(r"[A-Z][a-z]+ ", described)
    assert described.endswith(".")
    assert not described.startswith(("Say ", "Put "))


@pytest.mark.parametrize("name", GROUPED)
def test_every_option_is_in_a_group(name):
    command = command_named(name)
    assert isinstance(command, GroupedCommand)
    assert [option.opts for option in options_of(name) if not isinstance(option, GroupedOption)] == []
    groups = [*dict.fromkeys(option.group for option in options_of(name))]
    text = help_of(name)
    assert re.findall(r"^(\S.*):$", text, re.MULTILINE) == [group for group in groups if group != GENERAL] + [GENERAL]
    for option in options_of(name):
        assert text.count(f"  {', '.join(option.opts)}") >= 1


def test_the_groups_of_a_run():
    groups = {option.group for option in options_of("run")}
    assert {"Model", "Sampling", "Limits", "Output", "Statistics", "Other systems"} <= groups


def phrases_in(text):
    """The phrases in a text that users did not understand, regardless of line breaks."""
    return sorted(set(ANY_PHRASE.findall(" ".join(text.split()).lower())))


ANY_PHRASE = re.compile("|".join(re.escape(phrase.lower()) for phrase in NOT_UNDERSTOOD))


PAGES = (
    "score gaps.jsonl --metric mean_reward --metric pass@2 --metric pass@9 --by level",
    "score gaps.jsonl --missing zero --metric cost_per_solved --metric latency_p99 --metric bayes_pass@9",
    "score sets.jsonl",
    "score a.jsonl --dialect evsys --metric pass@3",
    "score a.jsonl --interval beta_mixture",
    "compare a.jsonl b.jsonl c.jsonl --by level --metric mean_reward --metric pass@2 --margin 0.2",
    "compare a.jsonl gaps.jsonl",
    "compare one.jsonl other.jsonl --test mcnemar",
    "compare a.jsonl b.jsonl --anytime",
    "gate b.jsonl --baseline a.jsonl --require lower(delta(mean_reward))>=-0.9 --require mean_reward>0.99",
    "gate gaps.jsonl --require lower(pass@1)>=0.5 --require pass@9>0",
    "gate --policy policy.yaml",
    "curve a.jsonl --to 8",
    "plan a.jsonl b.jsonl --detect 0.1 --budget 10",
    "plan --baseline-rate 0.6 --detect 0.05",
    "items run0.jsonl run1.jsonl run2.jsonl run3.jsonl run4.jsonl run5.jsonl",
    "items a.jsonl",
    "judge-check a.jsonl --labels labels.csv",
    "rescore a.jsonl --scores other.jsonl --out rescored.jsonl",
    f"check {ARITH.removesuffix('.jsonl')} --selftest",
    f"run {ARITH.removesuffix('.jsonl')} --model replay/{ARITH} --samples 4 --metric pass@1 --out runs/one",
    f"run {ARITH.removesuffix('.jsonl')} --model replay/{ARITH} --samples 2 --until width(pass@1)<0.9 --out runs/two",
    f"run {ARITH.removesuffix('.jsonl')} --model replay/{ARITH} --max-time 0.001 --out runs/three",
    "demo --out tour",
    "list metrics",
    "list intervals",
    "list methods",
    "list words",
    "list outcomes",
    "list formats",
    "list dialects",
    "list models",
    "explain lm_eval",
    "explain missing",
    "explain pass@3",
    "explain beta_mixture",
    "explain cost_per_solved",
    "explain bayes_pass@3",
)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    write_files(folder)
    return folder


@pytest.mark.parametrize("page", PAGES)
def test_what_a_command_prints(files, monkeypatch, capsys, page):
    done = Inside(monkeypatch, capsys)(*page.split(), cwd=files, COLUMNS="100")
    assert done.returncode in (0, 1, 3), done.stderr
    assert done.stdout
    assert phrases_in(done.stdout + " " + done.stderr) == []


def texts_in(path):
    """Every text of a file that may be printed or read: literals and docstrings of code, all lines of other files."""
    if path.suffix == ".py":
        return facts()[path.relative_to(SOURCE).as_posix()].texts
    return enumerate(path.read_text(encoding="utf-8").splitlines(), 1)


def test_no_text_of_the_source_has_them():
    """All of the source is parsed, which takes seconds: a phrase may be spread over several literals."""
    paths = [path for path in sorted(SOURCE.rglob("*")) if path.suffix in (".py", ".toml", ".md", ".yaml")]
    assert len(paths) > 100
    found = {
        f"{path.relative_to(SOURCE)}:{line}: {phrase}"
        for path in paths
        for line, text in texts_in(path)
        if text not in IN_DOCUMENTS
        for phrase in (*phrases_in(text), *(fragment for fragment in FRAGMENTS if text == fragment))
    }
    assert sorted(found) == []


def test_no_page_of_the_documentation_has_them():
    """Also what the program prints in it; a reason of a document is quoted as it is."""
    root = Path(__file__).parents[2]
    paths = [root / "README.md", root / "CONTRIBUTING.md", *sorted((root / "docs").rglob("*.md"))]
    assert len(paths) > 10
    found = []
    for path in paths:
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            quoted = next((text for text in IN_DOCUMENTS if text in line and '"' in line), "")
            found += [f"{path.name}:{number}: {phrase}" for phrase in phrases_in(line.replace(quoted, ""))]
    assert found == []
