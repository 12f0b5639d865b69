"""What all tests share: no log lines between their dots, and no settings of the developer's own environment."""

from __future__ import annotations

import os

import pytest
import structlog


@pytest.fixture(autouse=True, scope="session")
def _quiet() -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    for name in [name for name in os.environ if name.upper().startswith("SUPERVISOR_") and name != "SUPERVISOR_LABS"]:
        del os.environ[name]
