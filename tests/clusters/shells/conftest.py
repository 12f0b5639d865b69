from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clusters.shells.private_sshd import SSHD, PrivateSshd


@pytest.fixture
def sshd(tmp_path: Path) -> Iterator[PrivateSshd]:
    """A running sshd; its sessions and itself are gone afterwards."""
    if SSHD is None:
        pytest.skip("no sshd on this machine")
    folder = tmp_path / "sshd"
    folder.mkdir()
    server = PrivateSshd(folder)
    yield server
    server.stop()
