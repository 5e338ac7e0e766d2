"""Signed statements: in-toto's Statement v1 in a DSSE envelope, signed with Ed25519, with a time stamp by RFC 3161.

For a time stamp, a request is made for an authority, and its reply is checked against a trusted certificate.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any, Final

from calipers.errors import InputError
from calipers.formats.canonical import canonical
from calipers.formats.repeated_keys import KeyCheck

PAYLOAD_TYPE: Final = "application/vnd.in-toto+json"
STATEMENT: Final = "https://in-toto.io/Statement/v1"
CERTIFICATE: Final = "urn:calipers:certificate:v1"
PREREGISTRATION: Final = "urn:calipers:preregistration:v1"
LARGEST: Final = 64 << 20  # bytes of an envelope, which usually has a few thousand
SMALL: Final = 1 << 20  # bytes of a key, a reply or a certificate of an authority
PRIVATE: Final = 0o600


@dataclass(frozen=True, slots=True)
class DsseSignature:
    """A signature, and the id of the key that is stated with it."""

    keyid: str
    sig: bytes


@dataclass(frozen=True, slots=True)
class Envelope:
    """A statement as bytes, and its signatures."""

    payload: bytes
    signatures: tuple[DsseSignature, ...] = ()

    @property
    def digest(self) -> str:
        """The hash of the signed bytes, by which another statement refers to this one."""
        return sha256(self.signed).hexdigest()

    @property
    def signed(self) -> bytes:
        """The bytes to sign: DSSE's pre-authentication encoding of the payload and its type."""
        kind = PAYLOAD_TYPE.encode()
        return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(self.payload), self.payload)

    def encoded(self) -> bytes:
        """The envelope as JSON with a final newline."""
        envelope = {
            "payload": base64.b64encode(self.payload).decode(),
            "payloadType": PAYLOAD_TYPE,
            "signatures": [
                {"keyid": signature.keyid, "sig": base64.b64encode(signature.sig).decode()}
                for signature in self.signatures
            ],
        }
        return json.dumps(envelope, indent=1).encode() + b"\n"

    def statement(self, path: str, kind: str) -> dict[str, Any]:
        """The statement in the payload; InputError if it is not a statement of this kind."""
        statement = _object(self.payload, f"{path}: payload")
        if statement.get("_type") != STATEMENT:
            raise InputError.at(path, f"_type is {_shown(statement.get('_type'))}", f"expected {STATEMENT!r}")
        if statement.get("predicateType") != kind:
            problem = f"predicateType is {_shown(statement.get('predicateType'))}"
            raise InputError.at(path, problem, f"expected {kind!r}")
        if not isinstance(statement.get("predicate"), dict) or not isinstance(statement.get("subject"), list):
            raise InputError.at(path, "has no predicate or no subject", "expected the file as calipers wrote it")
        return statement


def state(kind: str, subject: list[dict[str, Any]], predicate: Mapping[str, Any]) -> Envelope:
    """The envelope of a new statement, without a signature."""
    statement = {"_type": STATEMENT, "subject": subject, "predicateType": kind, "predicate": dict(predicate)}
    return Envelope(canonical(statement))


def sign(envelope: Envelope, key: str) -> Envelope:
    """The envelope with an additional signature by the private key in a file."""
    private = private_key(key)
    public = private.public_key().public_bytes_raw()
    signature = DsseSignature(keyid_of(public), private.sign(envelope.signed))
    return Envelope(envelope.payload, (*envelope.signatures, signature))


def is_signed_by(envelope: Envelope, public: bytes) -> bool:
    """Whether the envelope has a valid signature by a public key; the key ids in the envelope are ignored."""
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
    """The envelope in a file; InputError if the file is not an envelope."""
    data = _bytes_of(path, LARGEST + 1)
    if len(data) > LARGEST:
        raise InputError.at(path, f"is larger than {LARGEST >> 20} MiB", "expected a certificate")
    envelope = _object(data, path)
    if envelope.get("payloadType") != PAYLOAD_TYPE:
        raise InputError.at(path, f"payloadType is {_shown(envelope.get('payloadType'))}", f"expected {PAYLOAD_TYPE!r}")
    listed = envelope.get("signatures")
    if not isinstance(listed, list) or not all(isinstance(entry, dict) for entry in listed):
        raise InputError.at(path, "signatures is not a list of objects", "expected a DSSE envelope")
    signatures = tuple(
        DsseSignature(str(entry.get("keyid", "")), _decoded(path, "sig", entry.get("sig"))) for entry in listed
    )
    return Envelope(_decoded(path, "payload", envelope.get("payload")), signatures)


def public_key(path: str) -> bytes:
    """The 32 bytes of the public key in a PEM file; InputError if the file is not an Ed25519 public key."""
    serialization, ed25519 = _cryptography()
    data = _bytes_of(path, SMALL)
    try:
        key = serialization.load_pem_public_key(data)
    except (ValueError, TypeError):
        expected = "expected an Ed25519 public key in PEM, as calipers certify --new-key wrote it"
        raise InputError.at(path, "is not a public key", expected) from None
    if not isinstance(key, ed25519.Ed25519PublicKey):
        raise InputError.at(path, f"is a key of another kind ({type(key).__name__})", "expected an Ed25519 public key")
    raw: bytes = key.public_bytes_raw()
    return raw


def new_key(path: str) -> str:
    """Write a new private key, readable by its owner only, and the public key beside it; return the latter's path."""
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
    created: list[str] = []
    for name, content, mode in files:
        try:
            with open(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
                created.append(name)
                file.write(content)
                os.fsync(file.fileno())
        except OSError as error:
            for incomplete in created:  # a private key without its public key would prevent the next try
                with suppress(OSError):
                    os.unlink(incomplete)
            raise InputError.at(name, f"cannot be written ({error.strerror})") from None
    return f"{path}.pub"


def private_key(path: str) -> Any:
    """The private key in a PEM file; InputError if it is not an Ed25519 private key, or without cryptography."""
    serialization, ed25519 = _cryptography()
    data = _bytes_of(path, SMALL)
    expected = "expected an Ed25519 private key in PEM without a password, as calipers certify --new-key writes it"
    try:
        key = serialization.load_pem_private_key(data, password=None)
    except (ValueError, TypeError):
        raise InputError.at(path, "is not a private key", expected) from None
    if not isinstance(key, ed25519.Ed25519PrivateKey):
        raise InputError.at(path, f"is a key of another kind ({type(key).__name__})", expected)
    return key


def _bytes_of(path: str, most: int) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(most)
    except OSError as error:
        raise InputError.at(path, f"cannot be read ({error.strerror})") from None


def _cryptography() -> tuple[Any, Any]:
    try:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError:
        why = "a signature needs cryptography, which is not installed; pip install 'calipers[certify]'"
        raise InputError(why) from None
    return serialization, ed25519


def _decoded(path: str, name: str, text: Any) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (TypeError, ValueError, binascii.Error):
        raise InputError.at(path, f"{name} is not base64", "expected a DSSE envelope") from None


def _object(data: bytes, where: str) -> dict[str, Any]:
    """Decode a JSON object; InputError if a key appears twice in an object at any depth."""
    doubled = KeyCheck()
    try:
        value = json.loads(data.decode(), object_pairs_hook=doubled, parse_constant=_refused)
    except (ValueError, RecursionError) as error:
        raise InputError.at(where, f"is not JSON ({error})", "expected the file as calipers wrote it") from None
    if doubled.repeats:
        raise InputError.at(where, "has a key twice in one object", "expected each key once")
    if not isinstance(value, dict):
        raise InputError.at(where, "is not a JSON object", "expected the file as calipers wrote it")
    return value


def _refused(word: str) -> Any:
    raise ValueError(f"{word} is not JSON")


def _shown(value: Any) -> str:
    return repr(value)[:60]


_INTEGER, _OCTETS, _OID, _SEQUENCE, _SET, _TIME = 0x02, 0x04, 0x06, 0x30, 0x31, 0x18  # tags of DER values
_SHA256: Final = bytes.fromhex("608648016503040201")
_HASHES: Final = {  # object identifier -> name of the hash
    "608648016503040201": "SHA256",
    "608648016503040202": "SHA384",
    "608648016503040203": "SHA512",
}
_SIGNED_DATA: Final = bytes.fromhex("2a864886f70d010702")
_TST_INFO: Final = bytes.fromhex("2a864886f70d0109100104")
_CONTENT_TYPE: Final = bytes.fromhex("2a864886f70d010903")
_MESSAGE_DIGEST: Final = bytes.fromhex("2a864886f70d010904")
_GRANTED: Final = (0, 1)


class NotStamped(ValueError):
    """A reply does not stamp a certificate; the text is the reason."""


def request_for(envelope: Envelope) -> bytes:
    """A request for a time stamp of the signed bytes, in DER, for ``application/timestamp-query``."""
    algorithm = _der(_SEQUENCE, _der(_OID, _SHA256) + b"\x05\x00")
    imprint = _der(_SEQUENCE, algorithm + _der(_OCTETS, sha256(envelope.signed).digest()))
    nonce = b"\x00" + os.urandom(8)
    if nonce[1] < 0x80:
        nonce = nonce[1:] if nonce[1] else b"\x01" + nonce[2:]
    return _der(_SEQUENCE, _der(_INTEGER, b"\x01") + imprint + _der(_INTEGER, nonce) + b"\x01\x01\xff")


def stamped_at(envelope: Envelope, reply: str, authority: str) -> datetime:
    """The time at which the certificate existed according to the authority; NotStamped if the reply is invalid.

    The reply must be for the signed bytes of this certificate. It must be signed with a certificate for time stamps
    that was valid at that time, and that is the trusted certificate or was issued by it.
    """
    _cryptography()
    from cryptography import x509
    from cryptography.exceptions import UnsupportedAlgorithm

    malformed = (
        *(IndexError, ValueError, TypeError, KeyError, StopIteration),
        *(UnsupportedAlgorithm, x509.DuplicateExtension),
    )
    pem = _bytes_of(authority, SMALL)
    try:
        trusted = x509.load_pem_x509_certificate(pem)
    except ValueError:
        raise InputError.at(authority, "is not a certificate", "expected the authority's certificate in PEM") from None
    data = _bytes_of(reply, SMALL)
    try:
        return _Reply.of(data).checked(sha256(envelope.signed).digest(), trusted)
    except NotStamped:
        raise
    except malformed as error:
        raise NotStamped(f"is not a reply of an authority ({type(error).__name__})") from None


@dataclass(frozen=True, slots=True)
class _Reply:
    """The parts of a reply that are checked."""

    info: bytes  # TSTInfo
    certificates: list[bytes]
    attributes: bytes  # in their signed form
    signature: bytes
    digest: str  # the name of the signature's hash

    @classmethod
    def of(cls, data: bytes) -> _Reply:
        """Parse a DER reply; ValueError and the like if it is malformed."""
        [message] = _items(data)
        if message.tag != _SEQUENCE:
            raise ValueError("another kind of value")
        status, *token = _items(message.body)
        if int.from_bytes(_items(status.body)[0].body, "big") not in _GRANTED:
            raise NotStamped("the authority has refused the request")
        kind, content = _items(token[0].body)
        if kind.body != _SIGNED_DATA:
            raise ValueError("no signed data")
        signed = _items(_items(content.body)[0].body)
        kind, wrapped = _items(signed[2].body)
        if kind.body != _TST_INFO:
            raise ValueError("no time stamp")
        info = _items(wrapped.body)[0].body
        certificates = [item.whole for part in signed[3:-1] if part.tag == 0xA0 for item in _items(part.body)]
        [signer] = _items(signed[-1].body)
        fields = _items(signer.body)
        attributes = next(item for item in fields if item.tag == 0xA0)
        signature = next(item for item in reversed(fields) if item.tag == _OCTETS)
        digest = _HASHES[_items(fields[2].body)[0].body.hex()]
        return cls(info, certificates, _der(_SET, attributes.body), signature.body, digest)

    def checked(self, imprint: bytes, trusted: Any) -> datetime:
        """The time of the stamp; NotStamped if any check fails."""
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes

        fields = _items(self.info)[0]
        parts = _items(fields.body)
        stated = _items(parts[2].body)
        if _items(stated[0].body)[0].body != _SHA256 or stated[1].body != imprint:
            raise NotStamped("it stamps something else than this certificate")
        known = {
            _items(item.body)[0].body: _items(item.body)[1].body for item in _items(_items(self.attributes)[0].body)
        }
        algorithm = getattr(hashes, self.digest)()
        hasher = hashes.Hash(algorithm)
        hasher.update(self.info)
        if (
            _items(known[_CONTENT_TYPE])[0].body != _TST_INFO
            or _items(known[_MESSAGE_DIGEST])[0].body != hasher.finalize()
        ):
            raise NotStamped("its attributes are of another time stamp")
        moment = _moment(next(item.body for item in parts[3:] if item.tag == _TIME))
        signers = [trusted, *map(x509.load_der_x509_certificate, self.certificates)]
        for signer in signers:
            if self._is_signed_by(signer, algorithm):
                _check_signer(signer, trusted, moment)
                return moment
        raise NotStamped("its signature is of no certificate that it has")

    def _is_signed_by(self, signer: Any, algorithm: Any) -> bool:
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa

        key = signer.public_key()
        try:
            if isinstance(key, rsa.RSAPublicKey):
                key.verify(self.signature, self.attributes, padding.PKCS1v15(), algorithm)
            elif isinstance(key, ec.EllipticCurvePublicKey):
                key.verify(self.signature, self.attributes, ec.ECDSA(algorithm))
            else:
                return False
        except InvalidSignature:
            return False
        return True


def _check_signer(signer: Any, trusted: Any, moment: datetime) -> None:
    """Raise NotStamped unless the signer's certificate is for time stamps, trusted, and valid at a time."""
    from cryptography import x509
    from cryptography.exceptions import InvalidSignature

    try:
        uses = signer.extensions.get_extension_for_class(x509.ExtendedKeyUsage)
    except x509.ExtensionNotFound:
        raise NotStamped("its signer's certificate is not for time stamps") from None
    if list(uses.value) != [x509.oid.ExtendedKeyUsageOID.TIME_STAMPING]:
        raise NotStamped("its signer's certificate is not for time stamps")
    if signer != trusted:
        try:
            signer.verify_directly_issued_by(trusted)
            is_issuer = trusted.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
        except (InvalidSignature, ValueError, TypeError, x509.ExtensionNotFound):
            is_issuer = False
        if not is_issuer:
            raise NotStamped("its signer is not of the authority that you trust")
    for certificate in {signer, trusted}:
        if not certificate.not_valid_before_utc <= moment <= certificate.not_valid_after_utc:
            raise NotStamped(f"its time {moment:%Y-%m-%d %H:%M:%S} is outside the life of the authority's certificate")


def _moment(text: bytes) -> datetime:
    """The time of a GeneralizedTime, without fractions of a second."""
    seconds = text.decode("ascii").removesuffix("Z").partition(".")[0]
    return datetime.strptime(seconds, "%Y%m%d%H%M%S").replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class _Item:
    """A DER value: its tag, its content, and all of its bytes."""

    tag: int
    body: bytes
    whole: bytes


def _items(data: bytes) -> list[_Item]:
    """Consecutive DER values; ValueError if a value is cut off."""
    items, offset = list[_Item](), 0
    while offset < len(data):
        start, tag, size = offset, data[offset], data[offset + 1]
        offset += 2
        if size & 0x80:
            digits = size & 0x7F
            if not 0 < digits <= 4:
                raise ValueError("no DER")
            size = int.from_bytes(data[offset : offset + digits], "big")
            offset += digits
        if offset + size > len(data):
            raise ValueError("cut off")
        items.append(_Item(tag, data[offset : offset + size], data[start : offset + size]))
        offset += size
    return items


def _der(tag: int, body: bytes) -> bytes:
    """A DER value."""
    size = len(body)
    if size < 0x80:
        return bytes([tag, size]) + body
    digits = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes([tag, 0x80 | len(digits)]) + digits + body
