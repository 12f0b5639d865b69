"""What a configuration of an iris cluster may say, and the one page of calls that it can lead to."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from supervisor.clusters import iris_calls
from supervisor.clusters.iris_calls import Controller, Way
from supervisor.clusters.iris_settings import IrisSettings
from supervisor.clusters.iris_token import read_token
from supervisor.model.errors import LoginFailed, NotApproved
from supervisor.model.job import JobKey
from supervisor.model.ports import Approval

URL = "http://127.0.0.1:10000"


def test_the_least_that_is_needed() -> None:
    settings = IrisSettings(url=URL + "/", users=("alice",))

    assert settings.url == URL


def test_a_port_forward_has_iriss_own_names_by_default() -> None:
    settings = IrisSettings(port_forward={"context": "east"}, users=("alice",))  # type: ignore[arg-type]

    assert settings.port_forward is not None
    assert (settings.port_forward.namespace, settings.port_forward.service) == ("iris", "iris-controller-svc")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"users": ("alice",)}, "one of url and port_forward is needed"),
        ({"url": URL, "port_forward": {}, "users": ("alice",)}, "and not both"),
        ({"url": URL}, "users"),
        ({"url": URL, "users": ()}, "users"),
        ({"url": URL, "users": ("a/b",)}, "users"),
        ({"url": URL, "users": ("a%",)}, "users"),
        ({"url": URL, "users": ("a", "a")}, "each may be named once"),
        ({"url": "127.0.0.1:10000", "users": ("a",)}, "allowed is http://HOST"),
        ({"url": "http://x:99999", "users": ("a",)}, "allowed is 1 to 65535"),
        ({"url": "http://alice:secret@x", "users": ("a",)}, "use token_file"),
        ({"url": URL, "ca_file": "ca.pem", "users": ("a",)}, "https"),
        ({"url": URL, "users": ("a",), "token": "x"}, "Extra inputs"),
        ({"port_forward": {"service": "No Such"}, "users": ("a",)}, "service"),
    ],
)
def test_what_cannot_work_is_said_at_once(given: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=re.escape(words)):
        IrisSettings(**given)


@pytest.mark.parametrize("content", ["", "\n", "two words", "a\x1b[31mb", "ü", "x" * 100_000])
def test_a_token_file_without_a_token_is_named_and_not_quoted(tmp_path: Path, content: str) -> None:
    file = tmp_path / "token"
    file.write_text(content)

    with pytest.raises(LoginFailed, match="holds no token") as caught:
        read_token("marin", file)
    assert content.strip() == "" or content not in caught.value.text


def test_a_token_is_shown_by_nothing(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("abc.def.ghi\n")

    token = read_token("marin", file)

    assert token.text == "abc.def.ghi"
    assert "abc" not in repr(token)


def test_nothing_that_can_be_sent_changes_anything_but_terminate() -> None:
    """KILL-1: the page of calls, read."""
    calls = {
        value
        for name, value in vars(iris_calls).items()
        if name.isupper() and isinstance(value, str) and value.startswith("/") and not value.endswith("/")
    }
    reading = {"ListJobs", "GetJobState", "GetJobStatus", "ListTasks", "ExecuteRawQuery", "GetCurrentUser"}

    assert {call.rpartition("/")[2] for call in calls} == reading | {"FetchLogs", "health", "TerminateJob"}
    source = Path(iris_calls.__file__).read_text(encoding="utf-8")
    assert source.count("TERMINATE") == 2  # its name, and the one method that takes an approval
    others = [file for file in Path(iris_calls.__file__).parent.glob("iris*.py") if file.name != "iris_calls.py"]
    assert not [file.name for file in others if re.search(r"\bTERMINATE\b|ControllerService", file.read_text())]


async def test_the_one_call_that_ends_a_job_wants_an_approval_for_just_that_job() -> None:
    """KILL-1."""
    job, other = JobKey("marin", "alice/run", "1"), JobKey("marin", "alice/run", "2")
    expires = datetime.now(UTC) + timedelta(hours=1)
    approval = Approval(id=1, job=other, attempt=1, verdict_digest="", approved_by="alice", expires_at=expires)

    async with Controller("marin", Way(URL, {}, URL), 1, 1) as controller:
        with pytest.raises(NotApproved):
            await controller.terminate("/alice/run", job, approval)
        assert controller.requests == 0
