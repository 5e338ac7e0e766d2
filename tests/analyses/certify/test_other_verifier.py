"""Our verifier and the one of examples/, which shares no code with it, say the same of 1,000 changed certificates."""

import base64
import importlib.util
import json
import random
import warnings
from pathlib import Path

import pytest
from analyses.certify.test_certify import SEED, rows, write

from calipers.analyses.certify import certify
from calipers.analyses.certify.envelope import Envelope, new_key, sign
from calipers.analyses.certify.verify import verify
from calipers.errors import InputError

SCRIPT = Path(__file__).parents[3] / "examples" / "verify_certificate.py"


@pytest.fixture(scope="module")
def other():
    spec = importlib.util.spec_from_file_location("verify_certificate", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)

    def check(*arguments, **settings):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)  # a script of 150 lines leaves its files to the end
            try:
                states = [state for _, state, _ in module.check(*map(str, arguments), **settings)]
            except module.Wrong:
                return 1
        return 3 if "open" in states else 0

    return check


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("certificates")
    run = write(folder / "run.jsonl", rows(4, 2))
    for name in ("key", "stranger"):
        new_key(str(folder / name))
    done = certify(run, salt_seed=SEED)
    (folder / "c.json").write_bytes(sign(done.envelope, str(folder / "key")).encoded())
    (folder / "result.tree").write_bytes(b"".join(done.tree.encoded()))
    return folder


def ours(path, *rollouts, **settings):
    try:
        return verify(path, rollouts, **settings).exit_code
    except InputError:
        return 1


def test_it_is_short():
    lines = SCRIPT.read_text().splitlines()
    assert sum(bool(line.strip()) for line in lines) <= 150


def test_both_say_good(made, other):
    more = {"key": str(made / "key.pub"), "tree": str(made / "result.tree")}
    assert other(made / "c.json", made / "run.jsonl", **more) == ours(made / "c.json", made / "run.jsonl", **more) == 0
    assert other(made / "c.json", made / "run.jsonl", tree=more["tree"]) == 3


def values(document, path=()):
    """Every place in a document."""
    yield path
    if isinstance(document, dict):
        for key, value in document.items():
            yield from values(value, (*path, key))
    elif isinstance(document, list):
        for index, value in enumerate(document):
            yield from values(value, (*path, index))


ODD = (None, True, 0, -1, 1.5, "", "sha256:00", [], {}, [[]], "urn:other", 10**30)


def changed(draw, statement):
    """A statement with one value changed, dropped or doubled, as bytes."""
    document = json.loads(json.dumps(statement))
    *path, last = draw.choice([path for path in values(document) if path])
    inside = document
    for step in path:
        inside = inside[step]
    way = draw.randrange(4)
    if way == 0:
        del inside[last]
    elif way == 1:
        inside[last] = draw.choice(ODD)
    elif way == 2 and isinstance(inside[last], str) and inside[last]:
        text = list(inside[last])
        text[draw.randrange(len(text))] = draw.choice("0af{}\u00e9")
        inside[last] = "".join(text)
    elif isinstance(inside, dict):
        inside[draw.choice("xyz")] = inside[last]
    return json.dumps(document).encode()


def test_a_thousand_changed_certificates(made, other):
    """Bytes of the file, of the payload, and values of the statement, signed again by its signer or by a stranger."""
    draw = random.Random(30)
    text = (made / "c.json").read_bytes()
    envelope = json.loads(text)
    payload = base64.b64decode(envelope["payload"])
    key, run, tree = str(made / "key.pub"), made / "run.jsonl", str(made / "result.tree")
    counts = {0: 0, 1: 0, 3: 0}
    for number in range(1000):
        kind = number % 5
        if kind == 0:  # the file itself: a byte, a cut, a piece twice
            at = draw.randrange(len(text))
            data = draw.choice([text[:at], text[:at] + b"A" + text[at + 1 :], text[:at] + text[at - 9 :]])
        elif kind == 1:  # the payload, not signed again
            at = draw.randrange(len(payload))
            other_payload = payload[:at] + bytes([payload[at] ^ (1 << draw.randrange(7))]) + payload[at + 1 :]
            data = json.dumps({**envelope, "payload": base64.b64encode(other_payload).decode()}).encode()
        elif kind == 2:  # the envelope
            data = changed(draw, envelope)
        else:  # the statement, signed again
            signed = Envelope(changed(draw, json.loads(payload)))
            data = sign(signed, str(made / ("key" if kind == 3 else "stranger"))).encoded()
        (made / "changed.json").write_bytes(data)
        mine = ours(made / "changed.json", run, key=key, tree=tree)
        theirs = other(made / "changed.json", run, key=key, tree=tree)
        counts[mine] += 1
        if mine == theirs:
            continue
        # the short one computes no metrics: what only the scoring of a changed statement shows, it cannot see
        assert kind == 3, (number, mine, theirs, data[:200])
        assert (mine, theirs) in ((1, 0), (1, 3)), (number, data[:200])
        states = {check.what: check.state for check in verify(made / "changed.json", [run], key=key, tree=tree).checks}
        assert [what for what, state in states.items() if state == "wrong"] in (["numbers"], ["form"], ["plan"]), states
    assert counts[1] > 700, counts
