"""What all tests share: no log lines between their dots, and no settings of the developer's own environment."""

from __future__ import annotations

import os

import hypothesis
import pytest
import structlog

hypothesis.settings.register_profile("house", deadline=None)  # a busy machine is no fault of a property
hypothesis.settings.load_profile("house")


@pytest.fixture(autouse=True)
def _quiet() -> None:
    """Also after a test that set up the log lines of a program."""
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(50),
        logger_factory=structlog.PrintLoggerFactory(),
        cache_logger_on_first_use=False,
    )


@pytest.fixture(autouse=True)
def _no_width(monkeypatch: pytest.MonkeyPatch) -> None:
    """What distributes tests over processes tells each of them a terminal's width; nothing here has one."""
    monkeypatch.delenv("COLUMNS", raising=False)


@pytest.fixture(autouse=True, scope="session")
def _nobodys_settings() -> None:
    for name in [name for name in os.environ if name.upper().startswith("SUPERVISOR_") and name != "SUPERVISOR_LABS"]:
        del os.environ[name]
