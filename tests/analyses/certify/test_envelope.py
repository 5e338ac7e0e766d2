"""Time stamps of an authority that openssl makes here."""

import shutil
import subprocess
from pathlib import Path

import pytest

from calipers.analyses.certify.envelope import Envelope, NotStamped, request_for, stamped_at, state
from calipers.errors import InputError

if shutil.which("openssl") is None:
    pytest.skip("openssl, which plays the authority, is not installed", allow_module_level=True)

CONFIG = """
[req]
distinguished_name = name
prompt = no
[name]
CN = {name}
[ca]
basicConstraints = critical, CA:true
[stamps]
extendedKeyUsage = critical, timeStamping
[tsa]
default_tsa = here
[here]
serial = serial
crypto_device = builtin
default_policy = 1.2.3.4
digests = sha256
signer_digest = sha256
ess_cert_id_alg = sha256
ess_cert_id_chain = no
"""


def openssl(folder, *arguments):
    subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True, timeout=120)


def authority(folder, name, kind=("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1")):
    """A root, and a certificate for time stamps that it issued."""
    folder.mkdir()
    (folder / "config").write_text(CONFIG.format(name=name))
    (folder / "serial").write_text("01\n")
    new = ("req", "-config", "config", "-nodes", *kind)
    openssl(folder, *new, "-x509", "-days", "2", "-extensions", "ca", "-keyout", "ca.key", "-out", "ca.pem")
    (folder / "config").write_text(CONFIG.format(name=f"{name} stamps"))
    openssl(folder, *new, "-keyout", "tsa.key", "-out", "tsa.csr")
    signed = ("x509", "-req", "-in", "tsa.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2")
    openssl(folder, *signed, "-extfile", "config", "-extensions", "stamps", "-out", "tsa.pem")
    return folder


def stamped(folder, envelope, name="reply.tsr"):
    (folder / "query.tsq").write_bytes(request_for(envelope))
    reply = ("ts", "-reply", "-config", "config", "-queryfile", "query.tsq", "-signer", "tsa.pem", "-inkey", "tsa.key")
    openssl(folder, *reply, "-section", "here", "-out", name)
    return str(folder / name)


@pytest.fixture(scope="module")
def envelope():
    return state("urn:example", [], {"a": 1})


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    return authority(tmp_path_factory.mktemp("ts") / "here", "here")


@pytest.mark.parametrize("trusted", ["ca.pem", "tsa.pem"])
def test_a_stamp_says_when(here, envelope, trusted):
    moment = stamped_at(envelope, stamped(here, envelope), str(here / trusted))
    shown = subprocess.run(
        ["openssl", "ts", "-reply", "-in", "reply.tsr", "-text"], cwd=here, check=True, capture_output=True, text=True
    ).stdout
    assert f"{moment:%b %e %H:%M:%S}" in shown
    # openssl itself takes the reply for the request
    openssl(here, "ts", "-verify", "-queryfile", "query.tsq", "-in", "reply.tsr", "-CAfile", "ca.pem")


def test_a_stamp_of_an_rsa_key(tmp_path, envelope):
    folder = authority(tmp_path / "rsa", "rsa", ("-newkey", "rsa:2048"))
    assert stamped_at(envelope, stamped(folder, envelope), str(folder / "ca.pem"))


def test_a_stamp_of_another_certificate(here, envelope):
    other = state("urn:example", [], {"a": 2})
    with pytest.raises(NotStamped, match="something else"):
        stamped_at(other, stamped(here, envelope), str(here / "ca.pem"))


def test_an_authority_that_nobody_trusts(here, envelope, tmp_path):
    other = authority(tmp_path / "other", "here")  # of the same name
    with pytest.raises(NotStamped, match="not of the authority"):
        stamped_at(envelope, stamped(here, envelope), str(other / "ca.pem"))


def test_every_changed_byte_is_refused(here, envelope):
    """Whatever byte of a reply is changed: it is refused, or what it says is the same."""
    data = Path(stamped(here, envelope)).read_bytes()
    moment = stamped_at(envelope, str(here / "reply.tsr"), str(here / "ca.pem"))
    for at in range(0, len(data), 3):
        changed = bytes([*data[:at], data[at] ^ 0x41, *data[at + 1 :]])
        (here / "changed.tsr").write_bytes(changed)
        try:
            assert stamped_at(envelope, str(here / "changed.tsr"), str(here / "ca.pem")) == moment
        except NotStamped:
            continue


def test_what_is_no_reply(tmp_path, here):
    (tmp_path / "odd").write_bytes(b"no reply")
    with pytest.raises(NotStamped, match="is not a reply"):
        stamped_at(Envelope(b"{}"), str(tmp_path / "odd"), str(here / "ca.pem"))
    with pytest.raises(InputError, match="is not a certificate"):
        stamped_at(Envelope(b"{}"), str(tmp_path / "odd"), str(tmp_path / "odd"))
