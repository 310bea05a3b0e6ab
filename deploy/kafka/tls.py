"""A throw-away certificate authority and one certificate of it, for a broker on loopback."""

import datetime as dt
import ipaddress
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from runtime.clock import NANOSECONDS, Instant
from runtime.files import write_atomically

VALID = dt.timedelta(days=30)


class Certificates(NamedTuple):
    """Where they lie: the authority's certificate, and the broker's key with its certificate."""

    ca_file: Path
    keystore: Path


def make(folder: Path, now: Instant) -> Certificates:
    """Make both; the authority's key is not kept, so nothing else will ever be signed by it."""
    begin = dt.datetime.fromtimestamp(int(now) // NANOSECONDS, dt.UTC)
    begin -= dt.timedelta(hours=1)  # clocks that differ a little
    ca_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    ca_name, name = _name("farside throw-away authority"), _name("farside broker")
    usage = x509.KeyUsage(
        digital_signature=True, key_cert_sign=True, crl_sign=True, content_commitment=False,
        key_encipherment=False, data_encipherment=False, key_agreement=False,
        encipher_only=False, decipher_only=False,
    )  # fmt: skip
    authority = (
        _certificate(ca_name, ca_name, ca_key.public_key(), begin)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(_subject(ca_key), critical=False)
        .sign(ca_key, hashes.SHA256())
    )
    names = [x509.IPAddress(ipaddress.ip_address("127.0.0.1")), x509.DNSName("localhost")]
    broker = (
        _certificate(name, ca_name, key.public_key(), begin)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(_subject(key), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()), critical=False
        )
        .sign(ca_key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    secret = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    found = Certificates(folder / "ca.pem", folder / "broker.pem")
    write_atomically(found.ca_file, authority.public_bytes(pem), mode=0o644)
    write_atomically(
        found.keystore, secret + broker.public_bytes(pem) + authority.public_bytes(pem)
    )
    return found


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _subject(key: ec.EllipticCurvePrivateKey) -> x509.SubjectKeyIdentifier:
    return x509.SubjectKeyIdentifier.from_public_key(key.public_key())


def _certificate(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    begin: dt.datetime,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(begin + VALID)
    )
