from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clusters.host.box import Box


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Box]:
    """Nothing that was launched in it lives on."""
    box = Box(tmp_path / "state")
    yield box
    box.end_all()
