"""A signed statement: in-toto's Statement v1 in a DSSE envelope, signed with Ed25519."""

from __future__ import annotations

import base64
import binascii
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final

from calipers.errors import InputError
from calipers.formats.canonical import canonical
from calipers.formats.repeated_keys import Doubled

PAYLOAD_TYPE: Final = "application/vnd.in-toto+json"
STATEMENT: Final = "https://in-toto.io/Statement/v1"
CERTIFICATE: Final = "urn:calipers:certificate:v1"
PREREGISTRATION: Final = "urn:calipers:preregistration:v1"
LARGEST: Final = 64 << 20  # bytes of an envelope; a ledger and its numbers take thousands
PRIVATE: Final = 0o600


@dataclass(frozen=True, slots=True)
class DsseSignature:
    """A signature, and the id of the key that it says it is of."""

    keyid: str
    sig: bytes


@dataclass(frozen=True, slots=True)
class Envelope:
    """A statement as bytes, and its signatures."""

    payload: bytes
    signatures: tuple[DsseSignature, ...] = ()

    @property
    def digest(self) -> str:
        """The hash of the signed bytes, by which another statement names this one."""
        return sha256(self.signed).hexdigest()

    @property
    def signed(self) -> bytes:
        """What is signed: DSSE's pre-authentication encoding of the payload and its type."""
        kind = PAYLOAD_TYPE.encode()
        return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(self.payload), self.payload)

    def encoded(self) -> bytes:
        """The envelope as JSON with a final newline."""
        signatures = [{"keyid": each.keyid, "sig": base64.b64encode(each.sig).decode()} for each in self.signatures]
        envelope = {
            "payload": base64.b64encode(self.payload).decode(),
            "payloadType": PAYLOAD_TYPE,
            "signatures": signatures,
        }
        return json.dumps(envelope, indent=1).encode() + b"\n"

    def statement(self, path: str, kind: str) -> dict[str, Any]:
        """The statement; InputError where it is none of this kind."""
        statement = _object(self.payload, f"{path}: payload")
        if statement.get("_type") != STATEMENT:
            raise InputError.at(path, f"_type is {_shown(statement.get('_type'))}", f"expected {STATEMENT!r}")
        if statement.get("predicateType") != kind:
            wrong = f"predicateType is {_shown(statement.get('predicateType'))}"
            raise InputError.at(path, wrong, f"expected {kind!r}")
        if not isinstance(statement.get("predicate"), dict) or not isinstance(statement.get("subject"), list):
            raise InputError.at(path, "has no predicate or no subject", "expected the file as calipers wrote it")
        return statement


def state(kind: str, subject: list[dict[str, Any]], predicate: Mapping[str, Any]) -> Envelope:
    """A statement that is not signed yet."""
    statement = {"_type": STATEMENT, "subject": subject, "predicateType": kind, "predicate": dict(predicate)}
    return Envelope(canonical(statement))


def sign(envelope: Envelope, key: str) -> Envelope:
    """The envelope with a signature of the private key in a file."""
    private = private_key(key)
    public = private.public_key().public_bytes_raw()
    signature = DsseSignature(keyid_of(public), private.sign(envelope.signed))
    return Envelope(envelope.payload, (*envelope.signatures, signature))


def is_signed_by(envelope: Envelope, public: bytes) -> bool:
    """Whether a signature of the envelope is of this key; what the envelope says of its keys is not asked."""
    _, ed25519 = _cryptography()
    key = ed25519.Ed25519PublicKey.from_public_bytes(public)
    from cryptography.exceptions import InvalidSignature

    for signature in envelope.signatures:
        with suppress(InvalidSignature):
            key.verify(signature.sig, envelope.signed)
            return True
    return False


def keyid_of(public: bytes) -> str:
    """The id of a public key: the SHA-256 of its 32 bytes."""
    return sha256(public).hexdigest()


def read_envelope(path: str) -> Envelope:
    """The envelope in a file; InputError where there is none."""
    try:
        with open(path, "rb") as file:
            data = file.read(LARGEST + 1)
    except OSError as error:
        raise InputError.at(path, f"cannot be read ({error.strerror})") from None
    if len(data) > LARGEST:
        raise InputError.at(path, f"is larger than {LARGEST >> 20} MiB", "expected a certificate")
    envelope = _object(data, path)
    if envelope.get("payloadType") != PAYLOAD_TYPE:
        raise InputError.at(path, f"payloadType is {_shown(envelope.get('payloadType'))}", f"expected {PAYLOAD_TYPE!r}")
    listed = envelope.get("signatures")
    if not isinstance(listed, list) or not all(isinstance(each, dict) for each in listed):
        raise InputError.at(path, "signatures is not a list of objects", "expected a DSSE envelope")
    signatures = [DsseSignature(str(each.get("keyid", "")), _decoded(path, "sig", each.get("sig"))) for each in listed]
    return Envelope(_decoded(path, "payload", envelope.get("payload")), tuple(signatures))


def public_key(path: str) -> bytes:
    """The 32 bytes of the public key in a PEM file; InputError where there is none."""
    serialization, ed25519 = _cryptography()
    data = _key_bytes(path)
    try:
        key = serialization.load_pem_public_key(data)
    except (ValueError, TypeError):
        right = "expected an Ed25519 public key in PEM, as calipers certify --new-key wrote it"
        raise InputError.at(path, "is not a public key", right) from None
    if not isinstance(key, ed25519.Ed25519PublicKey):
        raise InputError.at(path, f"is a key of another kind ({type(key).__name__})", "expected an Ed25519 public key")
    raw: bytes = key.public_bytes_raw()
    return raw


def new_key(path: str) -> str:
    """Write a new private key, readable by its owner only, and the public key beside it; the path of the latter."""
    serialization, ed25519 = _cryptography()
    private = ed25519.Ed25519PrivateKey.generate()
    pem, plain = serialization.Encoding.PEM, serialization.NoEncryption()
    files = [
        (path, private.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain), PRIVATE),
        (f"{path}.pub", private.public_key().public_bytes(pem, serialization.PublicFormat.SubjectPublicKeyInfo), 0o644),
    ]
    for name, _, _ in files:
        if os.path.lexists(name):
            raise InputError.at(name, "already exists", "expected a new file; a key is never replaced")
    for name, content, mode in files:
        try:
            with open(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
                file.write(content)
                os.fsync(file.fileno())
        except OSError as error:
            raise InputError.at(name, f"cannot be written ({error.strerror})") from None
    return f"{path}.pub"


def private_key(path: str) -> Any:
    """The private key in a PEM file; InputError where there is none, or cryptography is not installed."""
    serialization, ed25519 = _cryptography()
    data = _key_bytes(path)
    right = "expected an Ed25519 private key in PEM without a password, as calipers certify --new-key writes it"
    try:
        key = serialization.load_pem_private_key(data, password=None)
    except (ValueError, TypeError):
        raise InputError.at(path, "is not a private key", right) from None
    if not isinstance(key, ed25519.Ed25519PrivateKey):
        raise InputError.at(path, f"is a key of another kind ({type(key).__name__})", right)
    return key


def _key_bytes(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(1 << 20)
    except OSError as error:
        raise InputError.at(path, f"cannot be read ({error.strerror})") from None


def _cryptography() -> tuple[Any, Any]:
    try:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError:
        raise InputError(
            "a signature needs cryptography, which is not installed; pip install 'calipers[certify]'"
        ) from None
    return serialization, ed25519


def _decoded(path: str, name: str, text: Any) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (TypeError, ValueError, binascii.Error):
        raise InputError.at(path, f"{name} is not base64", "expected a DSSE envelope") from None


def _object(data: bytes, place: str) -> dict[str, Any]:
    """A JSON object in which no key appears twice at any depth."""
    doubled = Doubled()
    try:
        value = json.loads(data.decode(), object_pairs_hook=doubled, parse_constant=_refused)
    except (ValueError, RecursionError) as error:
        raise InputError.at(place, f"is not JSON ({error})", "expected the file as calipers wrote it") from None
    if doubled.found:
        raise InputError.at(place, "has a key twice in one object", "expected each key once")
    if not isinstance(value, dict):
        raise InputError.at(place, "is not a JSON object", "expected the file as calipers wrote it")
    return value


def _refused(word: str) -> Any:
    raise ValueError(f"{word} is not JSON")


def _shown(value: Any) -> str:
    return repr(value)[:60]
