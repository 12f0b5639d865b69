"""When an OpenSSH user certificate ends (POLL-12). Read from the file alone; nothing is logged in to."""

from __future__ import annotations

import base64
import binascii
import struct
from datetime import UTC, datetime
from pathlib import Path

_SUFFIX = "-cert-v01@openssh.com"
_KEY_FIELDS = {
    "ssh-rsa": 2,
    "ssh-dss": 4,
    "ssh-ed25519": 1,
    "ecdsa-sha2-nistp256": 2,
    "ecdsa-sha2-nistp384": 2,
    "ecdsa-sha2-nistp521": 2,
    "sk-ssh-ed25519": 2,
    "sk-ecdsa-sha2-nistp256": 3,
}
"""Fields of the public key between nonce and serial number, each with its own length before it (OpenSSH, PROTOCOL.certkeys)."""
_LATEST = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)


def certificate_path(identity_file: Path) -> Path | None:
    """The certificate that ssh uses with this key: ``FILE-cert.pub`` beside it, or the file itself if it is one."""
    beside = identity_file.with_name(identity_file.name + "-cert.pub")
    if beside.is_file():
        return beside
    return identity_file if identity_file.name.endswith("-cert.pub") and identity_file.is_file() else None


def certificate_expiry(path: Path) -> datetime | None:
    """End of validity, UTC, of the certificate at ``path`` or beside the key at ``path``.

    None where there is no certificate, or one that never ends. Raises ValueError for a file that should hold a
    certificate and doesn't, OSError where it cannot be read.
    """
    found = certificate_path(path)
    if found is None:
        return None
    ends = [_valid_before(line, found) for line in found.read_bytes().splitlines() if line.strip()]
    if not ends:
        raise ValueError(f"{found}: no certificate in it")
    last = min(ends)
    return None if last > _LATEST.timestamp() else datetime.fromtimestamp(last, UTC)


def _valid_before(line: bytes, path: Path) -> int:
    words = line.split()
    algorithm = words[0].decode("ascii", "replace").removesuffix(_SUFFIX)
    if len(words) < 2 or algorithm not in _KEY_FIELDS or not words[0].endswith(_SUFFIX.encode()):
        raise ValueError(f"{path}: not an OpenSSH certificate of a known kind")
    try:
        blob = base64.b64decode(words[1], validate=True)
        at = 0
        for _ in range(2 + _KEY_FIELDS[algorithm]):
            at = _after_string(blob, at)
        at = _after_string(blob, at + 8 + 4)  # serial number, kind; then the key id
        at = _after_string(blob, at)  # principals
        _, before = struct.unpack_from(">QQ", blob, at)
    except (binascii.Error, struct.error) as error:
        raise ValueError(f"{path}: the certificate is cut off or garbled") from error
    return int(before)


def _after_string(blob: bytes, at: int) -> int:
    (length,) = struct.unpack_from(">I", blob, at)
    return int(at + 4 + length)
