"""Check a certificate of Calipers without Calipers: python verify_certificate.py CERT [ROLLOUTS.jsonl] [--key PUB]
[--tree FILE]. It needs only `cryptography`, reads records in JSON Lines, and follows docs/certificates.md.
It checks the form, the signature and the tree of rollouts, and computes no metrics.
Exit 0 good, 1 wrong, 2 a file cannot be read, 3 open.
"""

import argparse
import base64
import hashlib
import json
import sys
from pathlib import Path

TYPE, STATEMENT = "application/vnd.in-toto+json", "https://in-toto.io/Statement/v1"
KIND, SCHEMA = "urn:calipers:certificate:v1", "calipers.certificate/1"
ROOT, NUMBERS = "calipersRolloutsSha256", "calipersResultSha256"
WORDS = ("prompt", "completion", "answer", "error", "metadata")
ROLES = ("task", "sample", "attempt", "outcome", "reward", "rewards", "usage", "agent", "model", "dataset", "_calipers")


class Wrong(Exception):
    """A statement of the certificate is false."""


def _need(holds, says):
    if not holds:
        raise Wrong(says)


def _once(pairs):
    _need(len(dict(pairs)) == len(pairs), "a key appears twice in one object")
    return dict(pairs)


def _no_number(word):
    raise Wrong(f"{word} is not JSON")


def _loads(text):
    try:
        text = text.decode() if isinstance(text, bytes) else text
        return json.loads(text, object_pairs_hook=_once, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise Wrong(f"not JSON: {error}") from None


def _number(value):
    value = float(value)
    sign, text = ("-", repr(-value)) if value < 0 else ("", repr(value))
    if text in ("nan", "inf"):
        return '"NaN"' if text == "nan" else f'"{sign}Infinity"'
    if "e" not in text:  # Python and ECMAScript write the same digits
        return sign + text.removesuffix(".0") if value else "0"
    mantissa, _, exponent = text.partition("e")
    digits, point = mantissa.replace(".", ""), 1 + int(exponent)
    if len(digits) <= point <= 21:
        return sign + digits + "0" * (point - len(digits))
    if -6 < point <= 0:
        return f"{sign}0.{'0' * -point}{digits}"
    fraction = "." + digits[1:] if digits[1:] else ""
    return f"{sign}{digits[0]}{fraction}e{point - 1:+d}"


def _canonical(value):
    """The value as canonical JSON (RFC 8785)."""
    if isinstance(value, dict):
        pairs = sorted(value.items(), key=lambda pair: pair[0].encode("utf-16-be"))
        return "{" + ",".join(f"{_canonical(key)}:{_canonical(inner)}" for key, inner in pairs) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_canonical, value)) + "]"
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return _number(value)
    return json.dumps(value, ensure_ascii=False)


def _is_time(key):
    return key in ("started_at", "finished_at", "latency_s") or key.endswith("_latency_s")


def _leaf(record):
    record = {key: value for key, value in record.items() if value is not None and not _is_time(key)}
    rewards = {key: float(value) for key, value in record.get("rewards", {}).items() if value is not None}
    numbers = {k: float(v) for k, v in record.get("usage", {}).items() if v is not None and not _is_time(k)}
    rewards |= {"reward": float(record["reward"])} if "reward" in record else {}
    words = {}
    for key, value in record.items():
        if key in WORDS or (key not in ROLES and not isinstance(value, (bool, int, float))):
            words[key] = value
        elif key not in ROLES:
            numbers[key] = float(value)
    task, sample, attempt = str(record["task"]), record.get("sample", 0), record.get("attempt", 1)
    made = {key: record[key] for key in ("agent", "model", "dataset") if key in record}
    made |= {"outcome": record.get("outcome", "scored" if rewards else "missing"), "sample": sample, "task": task}
    made |= {"attempt": attempt} if attempt != 1 else {}
    made |= {key: inner for key, inner in (("numbers", numbers), ("rewards", rewards)) if inner}
    made |= {"words": hashlib.sha256(_canonical(words).encode()).hexdigest()} if words else {}
    group = [made.get(key, "").encode() for key in ("dataset", "model", "agent")]
    return (*group, task.encode(), sample, attempt), _canonical(made).encode()


def _root(seed, texts):
    salts = hashlib.shake_256(b"calipers.salts/1" + seed).digest(16 * len(texts))
    level = [hashlib.sha256(b"\0" + salts[16 * at : 16 * at + 16] + text).digest() for at, text in enumerate(texts)]
    while len(level) > 1:
        odd = level[len(level) & ~1 :]
        level = [hashlib.sha256(b"\1" + level[at] + level[at + 1]).digest() for at in range(0, len(level) - 1, 2)] + odd
    return level[0]


def check_form(envelope):
    """The payload, the signatures and the predicate of an envelope; raises Wrong if its form is invalid."""
    _need(envelope["payloadType"] == TYPE, "another payloadType")
    payload = base64.b64decode(envelope["payload"], validate=True)
    signatures = [base64.b64decode(each["sig"], validate=True) for each in envelope["signatures"]]
    statement = _loads(payload)
    _need(statement["_type"] == STATEMENT and statement["predicateType"] == KIND, "another kind of statement")
    made, result = statement["predicate"], statement["predicate"]["result"]
    keys = ("rollouts", "result", "scoring", "columns", "plan", "preregistration")
    _need(made["schema"] == SCHEMA and all(key in made for key in keys), "another schema")
    digest = hashlib.sha256(result["covered"].encode()).hexdigest()
    _need(result["digest"] == "sha256:" + digest, "its numbers do not have the digest that it states")
    subjects = [("result", {NUMBERS: digest})]
    if made["rollouts"] is not None:
        _need(made["rollouts"]["tree"] == "rfc6962-sha256-salted", "another tree")
        _need(type(made["rollouts"]["leaves"]) is int and 0 < made["rollouts"]["leaves"] < 1 << 40, "no leaves")
        _need(len(bytes.fromhex(made["rollouts"]["root"])) == 32, "no root")
        subjects.insert(0, ("rollouts", {ROOT: made["rollouts"]["root"]}))
    _need([(each["name"], each["digest"]) for each in statement["subject"]] == subjects, "another subject")
    _need(isinstance(_loads(result["covered"])["groups"], list), "no numbers")
    return payload, signatures, made


def _is_of(key, signature, signed):
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    try:
        load_pem_public_key(Path(key).read_bytes()).verify(signature, signed)
    except InvalidSignature:
        return False
    return True


def check(certificate, rollouts=None, key=None, tree=None):
    """Yield (check, good or open, details) for each check; raises Wrong at the first that fails."""
    try:
        payload, signatures, made = check_form(_loads(Path(certificate).read_bytes()))
    except (KeyError, TypeError, AttributeError, ValueError, RecursionError) as error:
        raise Wrong(f"is not a certificate: {type(error).__name__}: {error}") from None
    yield "form", "good", made["result"]["digest"]
    if key is not None:
        signed = b"DSSEv1 %d %b %d %b" % (len(TYPE), TYPE.encode(), len(payload), payload)
        _need(any(_is_of(key, signature, signed) for signature in signatures), "no signature is of this key")
    yield "signature", "good" if key else "open", key or "no key is given"
    if rollouts is None or tree is None or made["rollouts"] is None:
        yield "rollouts", "open", "the root needs the rollouts and the tree file"
        return
    leaves = sorted(_leaf(_loads(line)) for line in Path(rollouts).read_bytes().split(b"\n") if line.strip())
    seed = Path(tree).read_bytes()[24:56]
    _need(len(leaves) == made["rollouts"]["leaves"], f"{len(leaves)} rollouts are given")
    _need(_root(seed, [text for _, text in leaves]).hex() == made["rollouts"]["root"], "other rollouts")
    yield "rollouts", "good", f"all {len(leaves)} are the certified ones"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Check a certificate of Calipers.")
    for name, more in (("certificate", {}), ("rollouts", {"nargs": "?"}), ("--key", {}), ("--tree", {})):
        parser.add_argument(name, **more)
    states = []
    try:
        for what, state, says in check(**vars(parser.parse_args())):
            print(f"{what}: {state}: {says}")
            states.append(state)
    except Wrong as error:
        print(f"wrong: {error}")
        states.append("wrong")
    except (OSError, ValueError, KeyError) as error:  # a file that is not there, or is another kind of file
        sys.stderr.write(f"not checked: {type(error).__name__}: {error}\n")
        sys.exit(2)
    sys.exit(1 if "wrong" in states else 3 if "open" in states else 0)
