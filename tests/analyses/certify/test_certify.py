import json
import os
import random
import shutil
from contextvars import ContextVar
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import calipers
from calipers.analyses.audit import audit
from calipers.analyses.certify import CertifiedScoring, certify, scored
from calipers.analyses.certify import tree as trees
from calipers.analyses.certify.envelope import CERTIFICATE, Envelope, keyid_of, new_key, public_key, sign, state
from calipers.analyses.certify.leaves import TextChunk, grow, leaf_of, of_records
from calipers.analyses.certify.verify import GOOD, UNKNOWN, WRONG, show_rollouts, verify
from calipers.errors import InputError
from calipers.formats.convert import convert

SEED = bytes(range(32))
GOLDEN = Path(__file__).parents[2] / "golden" / "formats"


def write(path, rows):
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
    return str(path)


def rows(tasks=20, samples=3):
    draw = random.Random(5)
    for task in range(tasks):
        for sample in range(samples):
            yield {
                "task": f"täsk {task}",
                "sample": sample,
                "outcome": "scored",
                "reward": draw.random() < 0.5,
                "rewards": {"style": draw.random()},
                "prompt": [{"role": "user", "content": f'say "{task}"'}],
                "completion": f"it is {sample}\n",
                "answer": sample,
                "usage": {"output_tokens": draw.randrange(900), "latency_s": draw.random()},
                "metadata": {"level": task % 3, "note": None},
                "length": 4,
                "kind": "short",
                "model": "m",
                "dataset": "d",
                "started_at": "2026-01-01T00:00:00Z",
            }


@pytest.fixture(scope="module")
def made_once(tmp_path_factory):
    folder = tmp_path_factory.mktemp("certificate")
    run = write(folder / "run.jsonl", rows())
    new_key(str(folder / "key"))
    done = certify(run, salt_seed=SEED)
    (folder / "c.json").write_bytes(sign(done.envelope, str(folder / "key")).encoded())
    (folder / "result.tree").write_bytes(b"".join(done.tree.encoded()))
    return folder


@pytest.fixture
def made(made_once, tmp_path):
    """A certificate with its tree, its key and its rollouts, to be changed at will."""
    shutil.copytree(made_once, tmp_path, dirs_exist_ok=True)
    return tmp_path


def states(folder, *rollouts, **more):
    done = verify(folder / "c.json", [folder / each for each in rollouts], **{"key": str(folder / "key.pub"), **more})
    return done, {check.what: check for check in done.checks}


def root(path, **more):
    return scored([str(path)], CertifiedScoring(), **more, seed=SEED).tree.root


def test_a_certificate_is_verified(made):
    done, checks = states(made, "run.jsonl")
    assert (done.state, done.exit_code) == (GOOD, 0)
    assert set(checks) == {"form", "signature", "numbers", "tree"}


@pytest.mark.parametrize("out", ["a.jsonl", "a.jsonl.gz", "a.jsonl.zst", "a.parquet"])
def test_converted_rollouts_are_the_same(made, out):
    convert(made / "run.jsonl", made / out)
    assert states(made, out)[0].state == GOOD


def test_order_and_shards_do_not_matter(made):
    lines = (made / "run.jsonl").read_text().splitlines(keepends=True)
    random.Random(0).shuffle(lines)
    (made / "one.jsonl").write_text("".join(lines[:7]))
    (made / "two.jsonl").write_text("".join(lines[7:]))
    assert states(made, "two.jsonl", "one.jsonl")[0].state == GOOD


def test_times_are_not_certified(made):
    some = [json.loads(line) for line in (made / "run.jsonl").read_text().splitlines()]
    for row in some:
        row["usage"]["latency_s"] += 1
        row["finished_at"] = "later"
    write(made / "run.jsonl", some)
    assert states(made, "run.jsonl")[0].state == GOOD


@pytest.mark.parametrize(
    ("key", "value", "numbers"),
    [("reward", 0.25, WRONG), ("completion", "it is 1", GOOD), ("metadata", {"level": 9}, GOOD), ("length", 5, GOOD)],
)
def test_one_changed_value_is_named(made, key, value, numbers):
    some = [json.loads(line) for line in (made / "run.jsonl").read_text().splitlines()]
    some[31][key] = value
    write(made / "run.jsonl", some)
    done, checks = states(made, "run.jsonl")
    assert done.exit_code == 1
    assert checks["numbers"].state == numbers
    assert checks["tree"].state == WRONG
    assert "task 'täsk 10' sample 1 is not as certified" in checks["tree"].says
    assert "1 of 60 differ" in checks["tree"].says


def test_the_leaf_of_a_million_is_found_with_twenty_hashes():
    leaves = [b"%d" % index for index in range(1 << 10)]
    salts = trees.salts(SEED, len(leaves))
    grown = trees.Tree(SEED, trees.branch(salts, 0, TextChunk(leaves)))
    leaves[700] = b"other"
    found = trees.parting(trees.Tree(SEED, trees.branch(salts, 0, TextChunk(leaves))), grown)
    assert (found.index, found.compared) == (700, 11)  # one more for each doubling: 21 of a million
    assert trees.is_consistent(grown, 700)


@cache
def counted(count):
    """The leaves of so many rollouts, and their tree as one process grows it."""
    leaves = of_records({"task": f"t{task}", "reward": task % 3} for task in range(count))
    return leaves, [*map(bytes, grow(SEED, leaves).levels)]


DIES_AT_WORK = "import pickle, sys; [pickle.load(sys.stdin.buffer) for _ in range(2)]; raise SystemExit(9)"


@pytest.mark.parametrize("count", [8_192, 8_193, 12_289, 24_577])
@pytest.mark.parametrize("workers", [2, 3])
@pytest.mark.parametrize("child", [None, "raise SystemExit", DIES_AT_WORK])
@pytest.mark.usefixtures("kept")
def test_the_tree_is_the_same_in_several_processes(monkeypatch, count, workers, child):
    leaves, alone = counted(count)  # made before more processes are allowed
    for name, value in (("processes", lambda: workers), ("WORTH_DIVIDING", 1)):
        monkeypatch.setattr(f"calipers.analyses.certify.leaves.{name}", value)
    if child is not None:  # what a child took and did not do is done here
        monkeypatch.setattr("calipers.formats.lines._IDLE", ContextVar("none", default=None))
        monkeypatch.setattr("calipers.formats.lines._CHILD", child)
    assert [*map(bytes, grow(SEED, leaves).levels)] == alone


def test_a_lost_rollout_is_named(made):
    lines = (made / "run.jsonl").read_text().splitlines(keepends=True)
    (made / "run.jsonl").write_text("".join(lines[:20] + lines[21:]))
    done, checks = states(made, "run.jsonl")
    assert done.exit_code == 1
    assert "59 rollouts are given and 60 are certified" in checks["tree"].says


def test_without_the_tree_no_leaf_can_be_recomputed(made):
    os.rename(made / "result.tree", made / "elsewhere.tree")
    done, checks = states(made, "run.jsonl")
    assert (done.state, checks["tree"].state, checks["numbers"].state) == (UNKNOWN, UNKNOWN, GOOD)
    assert "salts" in checks["tree"].says
    assert states(made, "run.jsonl", tree=str(made / "elsewhere.tree"))[0].state == GOOD


def test_without_rollouts_the_numbers_are_not_known(made):
    done, checks = states(made)
    assert (done.exit_code, checks["signature"].state, checks["rollouts"].state) == (3, GOOD, UNKNOWN)


def test_another_key(made):
    new_key(str(made / "other"))
    done, checks = states(made, "run.jsonl", key=str(made / "other.pub"))
    assert (done.exit_code, checks["signature"].state) == (1, WRONG)


def test_signed_again_by_somebody_else(made):
    """The numbers are changed and the statement is signed with another key, under the name of the first."""
    new_key(str(made / "other"))
    envelope = json.loads((made / "c.json").read_text())
    done = certify(write(made / "better.jsonl", ({**row, "reward": 1} for row in rows())), salt_seed=SEED)
    forged = sign(done.envelope, str(made / "other"))
    text = json.loads(forged.encoded())
    text["signatures"][0]["keyid"] = envelope["signatures"][0]["keyid"]
    (made / "c.json").write_text(json.dumps(text))
    assert states(made, "better.jsonl")[1]["signature"].state == WRONG


def test_a_certificate_of_another_benchmark(made):
    other = write(made / "other.jsonl", ({**row, "dataset": "another", "task": row["task"] + "!"} for row in rows()))
    done, checks = states(made, "other.jsonl")
    assert done.exit_code == 1
    assert 'dataset is "another", certified "d"' in checks["numbers"].says
    assert verify(made / "c.json", [other]).exit_code == 1


def test_a_tree_of_another_certificate(made):
    again = certify(str(made / "run.jsonl"))
    (made / "result.tree").write_bytes(b"".join(again.tree.encoded()))
    done, checks = states(made, "run.jsonl")  # the file beside it is not part of what the certificate says
    assert (done.state, checks["tree"].state, checks["numbers"].state) == (UNKNOWN, UNKNOWN, GOOD)
    assert "of another certificate; --tree FILE" in checks["tree"].says
    named = states(made, "run.jsonl", tree=str(made / "result.tree"))[1]["tree"]
    assert (named.state, "of another certificate" in named.says) == (WRONG, True)


@pytest.mark.parametrize("cut", [0, 1, 100, 1000, -2])
def test_a_truncated_certificate(made, cut):
    text = (made / "c.json").read_bytes()
    (made / "c.json").write_bytes(text[:cut])
    assert states(made, "run.jsonl")[0].exit_code == 1


@pytest.mark.parametrize("cut", [0, 20, 100, -1])
def test_a_truncated_tree(made, cut):
    (made / "result.tree").write_bytes((made / "result.tree").read_bytes()[:cut])
    with pytest.raises(InputError, match=r"result\.tree: (is not a tree file|does not have the hashes)"):
        states(made, "run.jsonl")


def test_keys_are_private(made):
    assert os.stat(made / "key").st_mode & 0o777 == 0o600
    with pytest.raises(InputError, match="already exists"):
        new_key(str(made / "key"))
    with pytest.raises(InputError, match="is not a public key"):
        public_key(str(made / "key"))
    assert len(keyid_of(public_key(str(made / "key.pub")))) == 64


def test_a_result_alone_has_no_root(made):
    from calipers.pipeline import score

    (made / "result.json").write_text(score(str(made / "run.jsonl")).to_json())
    done = certify(str(made / "result.json"))
    assert done.tree is None
    assert "no root" in done.notes[0]
    (made / "c.json").write_bytes(sign(done.envelope, str(made / "key")).encoded())
    verified, checks = states(made, "run.jsonl")
    assert (verified.state, checks["numbers"].state, checks["tree"].state) == (UNKNOWN, GOOD, UNKNOWN)


def test_single_rollouts_can_be_shown(made):
    shown = show_rollouts([str(made / "run.jsonl")], str(made / "result.tree"), ["täsk 3#1", "täsk 4"])
    (made / "shown.json").write_text(shown)
    done, checks = states(made, "shown.json")
    assert (done.exit_code, checks["rollouts"].state) == (3, UNKNOWN)
    assert [check.state for check in done.checks if check.what == "shown"] == [GOOD] * 4
    assert json.loads(json.loads(shown)["shown"][0]["words"])["completion"] == "it is 1\n"
    (made / "shown.json").write_text(shown.replace("it is 1", "it is 2"))
    assert states(made, "shown.json")[0].exit_code == 1
    (made / "shown.json").write_text(shown.replace('\\"sample\\":1', '\\"sample\\":7'))
    assert states(made, "shown.json")[0].exit_code == 1


@pytest.mark.parametrize(
    ("key", "value"),
    [("leaf", "{}"), ("leaf", "5"), ("words", "5"), ("words", "null"), ("index", float("inf")), ("path", 5)],
)
def test_a_proof_that_is_none_is_told(made, key, value):
    shown = json.loads(show_rollouts([str(made / "run.jsonl")], str(made / "result.tree"), ["täsk 3#1"]))
    shown["shown"][0][key] = value
    (made / "shown.json").write_text(json.dumps(shown))
    (check,) = [check for check in states(made, "shown.json")[0].checks if check.what == "shown"]
    assert check.state == WRONG
    assert "is not a proof" in check.says


def test_lists_without_end_are_no_result_and_no_proof(made):
    deep = "[" * 100_000 + "]" * 100_000
    (made / "deep.json").write_text(
        '{"schema":"calipers.result/1","calipers.proof/1":"calipers.proof/1","a":' + deep + "}"
    )
    assert states(made, "deep.json")[0].exit_code == 1
    with pytest.raises(InputError, match="deep"):
        certify(made / "deep.json")


def test_pipes_and_standard_input_are_refused(made):
    os.mkfifo(made / "pipe")
    for path in (str(made / "pipe"), "-"):
        for look in (certify, audit, lambda path: verify(made / "c.json", [path])):
            with pytest.raises(InputError, match="passes only once"):
                look(path)


def test_what_is_shown_hides_the_rest(made):
    """A guess of another rollout cannot be tried against the hashes of a proof: its salt is not known."""
    shown = json.loads(show_rollouts([str(made / "run.jsonl")], str(made / "result.tree"), ["täsk 3#1"]))
    [entry] = shown["shown"]
    partner = json.loads((made / "run.jsonl").read_text().splitlines()[9 + 1 - 1])
    guess = leaf_of(partner)
    assert trees.leaf_hash(bytes(16), guess).hex() not in entry["path"]
    kept = trees.open_tree(str(made / "result.tree")).read()
    assert kept.salt(0) != kept.salt(1)


CELL = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(-1e9, 1e9) | st.text(max_size=3)
NUMBER = st.none() | st.booleans() | st.integers(-9, 9) | st.floats(-1e6, 1e6)
RECORD = st.fixed_dictionaries(
    {"task": st.sampled_from(["a", "b", "ü", "😀"])},
    optional={
        "attempt": st.integers(1, 3),
        "outcome": st.sampled_from(["scored", "refused", "client_failed"]) | st.none(),
        "reward": NUMBER,
        "rewards": st.none() | st.dictionaries(st.sampled_from(["x", "y"]), NUMBER, max_size=2),
        "usage": st.none() | st.dictionaries(st.sampled_from(["output_tokens", "latency_s", "q"]), NUMBER, max_size=3),
        "prompt": st.none() | st.text(max_size=5),
        "completion": st.none() | st.text(max_size=5) | st.just([{"role": "user", "content": "é", "n": 1.0}]),
        "answer": CELL | st.lists(CELL, max_size=2),
        "error": st.none() | st.text(max_size=3) | st.just({"kind": "x", "n": 2.50}),
        "metadata": st.none() | st.dictionaries(st.text(max_size=2), CELL, max_size=2),
        "mixed": CELL | st.lists(CELL, max_size=2),
        "model": st.none() | st.sampled_from(["m", "n"]),
        "started_at": st.text(max_size=2),
        "judge_latency_s": NUMBER,
    },
)


@given(st.lists(RECORD, min_size=1, max_size=6))
def test_records_have_the_leaves_of_their_file(tmp_path_factory, records):
    """What is hashed while a file is read is what each record is by itself."""
    records = [{**record, "sample": sample} for sample, record in enumerate(records)]
    for record in records:
        if record.get("outcome") == "scored" or record["sample"] == 0:
            record["reward"] = 0.5  # a scored rollout has one, and a file has one
    path = write(tmp_path_factory.mktemp("leaves") / "run.jsonl", records)
    done = scored([path], CertifiedScoring(metrics=("mean_reward",)))
    texts = [*done.leaves.texts()]
    alone = of_records(iter(records))
    assert texts == [*alone.texts()]
    assert [done.leaves.name(index) for index in range(len(texts))] == [
        alone.name(index) for index in range(len(texts))
    ]


def files():
    for folder in sorted(GOLDEN.iterdir()):
        if folder.is_dir():
            for path in sorted(folder.rglob("*")):
                if path.suffix in (".jsonl", ".json", ".parquet", ".eval"):
                    yield pytest.param(path, id=str(path.relative_to(GOLDEN)))


@pytest.mark.parametrize("path", list(files()))
def test_every_format_keeps_its_root_when_converted(path, tmp_path):
    try:
        first = root(path)
    except InputError:
        pytest.skip("no file of rollouts of its own: it goes with another file of its folder")
    for out in ("a.parquet", "a.jsonl"):
        try:
            convert(path, tmp_path / out)
        except InputError as error:
            assert out == "a.jsonl"
            assert "convert to .parquet" in str(error)  # noqa: PT017
            continue
        assert root(tmp_path / out) == first


def test_canonicalisation_attacks(made):
    """Each other way to write a record is the same leaf by the rule, or refused."""
    text = (made / "run.jsonl").read_text()
    equal = text.replace('"sample": 1,', '"sample":1 ,').replace('"length": 4', '"length": 4.0e0')
    equal = equal.replace("täsk", "t\\u00e4sk").replace('"level": 0', '"level": -0')
    (made / "equal.jsonl").write_text(equal)
    assert states(made, "equal.jsonl")[0].state == GOOD
    (made / "form.jsonl").write_text(text.replace("täsk 7", "ta\u0308sk 7"))
    assert states(made, "form.jsonl")[0].state == WRONG
    (made / "twice.jsonl").write_text(text.replace('"level": 0', '"level": 1, "level": 0', 1))
    with pytest.raises(InputError, match=r"twice\.jsonl:1: a key appears twice"):
        states(made, "twice.jsonl")
    (made / "top.jsonl").write_text(text.replace('"length": 4', '"length": 5, "length": 4', 1))
    with pytest.raises(InputError, match=r'top\.jsonl:1: key "length" appears twice'):
        states(made, "top.jsonl")


def test_a_doubled_key_in_the_statement_is_refused(made):
    envelope = json.loads((made / "c.json").read_text())
    import base64

    payload = base64.b64decode(envelope["payload"]).replace(b'{"_type"', b'{"predicate":{},"_type"', 1)
    signed = sign(Envelope(payload), str(made / "key"))
    (made / "c.json").write_bytes(signed.encoded())
    done, checks = states(made, "run.jsonl")
    assert (done.exit_code, checks["form"].says.rpartition(": ")[2]) == (
        1,
        "has a key twice in one object; expected each key once",
    )


@pytest.mark.parametrize("metric", ["evil.py:f", " ./evil.py:f (k=2)"])
def test_no_code_of_a_certificate_is_run(made, metric, monkeypatch):
    """Whoever checks a certificate runs nobody's code."""
    monkeypatch.chdir(made)
    (made / "evil.py").write_text("from pathlib import Path\nPath('ran').touch()\n\ndef f(rewards):\n    return 1.0\n")
    statement = json.loads(certify(str(made / "run.jsonl")).envelope.payload)
    statement["predicate"]["scoring"]["metrics"] = [metric]
    forged = state(CERTIFICATE, statement["subject"], statement["predicate"])
    (made / "c.json").write_bytes(sign(forged, str(made / "key")).encoded())
    assert states(made, "run.jsonl")[0].exit_code == 1
    assert not (made / "ran").exists()
    with pytest.raises(InputError):
        certify(str(made / "run.jsonl"), [metric])


def test_the_public_functions_certify_and_verify(tmp_path):
    run = write(tmp_path / "run.jsonl", rows())
    new_key(str(tmp_path / "key"))
    certified = calipers.certify(run, ["mean_reward"], key=tmp_path / "key", seed=3)
    certified.save(tmp_path / "c.json")
    assert certified.result.digest == calipers.score(run, ["mean_reward"], seed=3).digest
    assert (tmp_path / "result.tree").read_bytes() == b"".join(certified.tree.encoded())
    assert calipers.verify(tmp_path / "c.json", run, key=str(tmp_path / "key.pub")).state == GOOD
    assert calipers.verify(tmp_path / "c.json").state == UNKNOWN
    assert isinstance(calipers.audit(run), calipers.Audit)


def test_a_result_alone_is_saved_without_a_tree(tmp_path):
    run = write(tmp_path / "run.jsonl", rows())
    (tmp_path / "result.json").write_text(json.dumps(calipers.score(run).to_dict()))
    calipers.certify(tmp_path / "result.json").save(tmp_path / "c.json")
    assert calipers.verify(tmp_path / "c.json").certificate.root is None
    assert not (tmp_path / "result.tree").exists()


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"metrics": ["pass@2", "mean(column=f1)", "mean_reward"], "cluster": "task"},
        {"metrics": ["mean_reward"], "by": ["sample"], "missing": "zero"},
        {"dialect": "evsys"},
        {"dialect": "nemo_gym"},
    ],
)
def test_what_is_certified_is_the_score(tmp_path, settings):
    """A certificate reads only the columns that its metrics need, and the numbers are those of all columns."""
    rows = [
        {"task": f"t{task}", "sample": sample, "reward": (task + sample) % 2, "f1": task / 7, "output_tokens": task}
        for task in range(6)
        for sample in range(3)
    ]
    path = write(tmp_path / "run.jsonl", rows)
    metrics = settings.get("metrics")
    others = {name: value for name, value in settings.items() if name != "metrics"}
    certified = calipers.certify(path, metrics or (), **others)
    assert certified.result.digest == calipers.score(path, metrics, **others).digest


def test_one_metric_slice_or_exclusion_needs_no_list(tmp_path):
    """A text was taken for its letters: a certificate had the slices d, i, f, ... of ``by="difficulty"``."""
    run = write(tmp_path / "run.jsonl", rows())
    alone = certify(run, "pass@1", by="kind", exclude="task=täsk 0")
    listed = certify(run, ["pass@1"], by=["kind"], exclude=["task=täsk 0"])
    assert alone.result == listed.result
    assert list(alone.result.groups[0].breakdowns) == ["kind"]


def test_files_of_a_certificate_may_be_paths(tmp_path):
    path, run, key = tmp_path / "c.json", write(tmp_path / "run.jsonl", rows()), tmp_path / "key"
    new_key(str(key))
    certify(run, key=key).save(path)
    done = verify(path, run, key=Path(f"{key}.pub"), tree=tmp_path / "result.tree")
    assert done.state == GOOD, done


@pytest.mark.parametrize("name", ["evil.py:f", "evil.py:f()", "d(1)/evil.py:f", "evil.py:f(k=1)", " evil.py:f"])
def test_a_certificate_that_names_code_is_refused_however_it_is_written(name):
    with pytest.raises(InputError, match="is a file of code, which no certificate names"):
        CertifiedScoring.of({"metrics": [name]})
