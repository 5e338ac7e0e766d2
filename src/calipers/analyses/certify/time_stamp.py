"""Time stamps by RFC 3161: a request for an authority, and its reply checked against a certificate that one trusts."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any, Final

from calipers.analyses.certify.envelope import Envelope, _cryptography
from calipers.errors import InputError

_INTEGER, _OCTETS, _OID, _SEQUENCE, _SET, _TIME = 0x02, 0x04, 0x06, 0x30, 0x31, 0x18
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
LARGEST: Final = 1 << 20


class NotStamped(ValueError):
    """A reply that does not stamp a certificate; its text says why."""


def request_for(envelope: Envelope) -> bytes:
    """A request to stamp what is signed, in DER, for ``application/timestamp-query``."""
    algorithm = _der(_SEQUENCE, _der(_OID, _SHA256) + b"\x05\x00")
    imprint = _der(_SEQUENCE, algorithm + _der(_OCTETS, sha256(envelope.signed).digest()))
    nonce = b"\x00" + os.urandom(8)
    if nonce[1] < 0x80:
        nonce = nonce[1:] if nonce[1] else b"\x01" + nonce[2:]
    return _der(_SEQUENCE, _der(_INTEGER, b"\x01") + imprint + _der(_INTEGER, nonce) + b"\x01\x01\xff")


def stamped_at(envelope: Envelope, reply: str, authority: str) -> datetime:
    """When the certificate existed, as the authority says; NotStamped where the reply does not hold.

    The reply must be for the signed bytes of this certificate, and its signature by a certificate for time stamps that
    is the trusted one or was issued by it, valid at that time.
    """
    _cryptography()
    from cryptography import x509
    from cryptography.exceptions import UnsupportedAlgorithm

    odd = (IndexError, ValueError, TypeError, KeyError, StopIteration, UnsupportedAlgorithm, x509.DuplicateExtension)
    try:
        trusted = x509.load_pem_x509_certificate(_read(authority))
    except ValueError:
        raise InputError.at(authority, "is not a certificate", "expected the authority's certificate in PEM") from None
    data = _read(reply)
    try:
        return _Reply.of(data).checked(sha256(envelope.signed).digest(), trusted)
    except odd as error:
        if isinstance(error, NotStamped):
            raise
        raise NotStamped(f"is not a reply of an authority ({type(error).__name__})") from None


@dataclass(frozen=True, slots=True)
class _Reply:
    """The parts of a reply that matter."""

    info: bytes  # TSTInfo
    certificates: list[bytes]
    attributes: bytes  # as they are signed
    signature: bytes
    digest: str  # the hash that is signed

    @classmethod
    def of(cls, data: bytes) -> _Reply:
        """The parts of a DER reply; ValueError and the like where it is none."""
        status, *token = _items(_one(data, _SEQUENCE))
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
        certificates = [each.whole for part in signed[3:-1] if part.tag == 0xA0 for each in _items(part.body)]
        [signer] = _items(signed[-1].body)
        fields = _items(signer.body)
        attributes = next(each for each in fields if each.tag == 0xA0)
        signature = next(each for each in reversed(fields) if each.tag == _OCTETS)
        digest = _HASHES[_items(fields[2].body)[0].body.hex()]
        return cls(info, certificates, _der(_SET, attributes.body), signature.body, digest)

    def checked(self, imprint: bytes, trusted: Any) -> datetime:
        """When it was stamped; NotStamped where anything does not hold."""
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes

        fields = _items(self.info)[0]
        parts = _items(fields.body)
        stated = _items(parts[2].body)
        if _items(stated[0].body)[0].body != _SHA256 or stated[1].body != imprint:
            raise NotStamped("it stamps something else than this certificate")
        known = {
            _items(each.body)[0].body: _items(each.body)[1].body for each in _items(_items(self.attributes)[0].body)
        }
        algorithm = getattr(hashes, self.digest)()
        hasher = hashes.Hash(algorithm)
        hasher.update(self.info)
        if (
            _items(known[_CONTENT_TYPE])[0].body != _TST_INFO
            or _items(known[_MESSAGE_DIGEST])[0].body != hasher.finalize()
        ):
            raise NotStamped("its attributes are of another time stamp")
        moment = _moment(next(each.body for each in parts[3:] if each.tag == _TIME))
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
    for each in {signer, trusted}:
        if not each.not_valid_before_utc <= moment <= each.not_valid_after_utc:
            raise NotStamped(f"its time {moment:%Y-%m-%d %H:%M:%S} is outside the life of the authority's certificate")


def _moment(text: bytes) -> datetime:
    whole = text.decode("ascii").removesuffix("Z").partition(".")[0]
    return datetime.strptime(whole, "%Y%m%d%H%M%S").replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class _Item:
    tag: int
    body: bytes
    whole: bytes


def _items(data: bytes) -> list[_Item]:
    return list(_each(data))


def _each(data: bytes) -> Iterator[_Item]:
    """The values of DER one after the other; ValueError where one is cut off."""
    at = 0
    while at < len(data):
        start, tag, size = at, data[at], data[at + 1]
        at += 2
        if size & 0x80:
            digits = size & 0x7F
            if not 0 < digits <= 4:
                raise ValueError("no DER")
            size = int.from_bytes(data[at : at + digits], "big")
            at += digits
        if at + size > len(data):
            raise ValueError("cut off")
        yield _Item(tag, data[at : at + size], data[start : at + size])
        at += size


def _one(data: bytes, tag: int) -> bytes:
    [item] = _items(data)
    if item.tag != tag:
        raise ValueError("another kind of value")
    return item.body


def _der(tag: int, body: bytes) -> bytes:
    size = len(body)
    if size < 0x80:
        return bytes([tag, size]) + body
    digits = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes([tag, 0x80 | len(digits)]) + digits + body


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(LARGEST)
    except OSError as error:
        raise InputError.at(path, f"cannot be read ({error.strerror})") from None
