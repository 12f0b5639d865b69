"""Answers that no controller should give: none of them is an empty cluster, and none loses a job (POLL-1, POLL-2)."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from supervisor.clusters.iris import IrisCluster
from supervisor.clusters.iris_settings import IrisSettings
from supervisor.model.job import JobKey, JobState
from supervisor.model.polling import Polled, Reading, Unreached, Watch

NOW = datetime(2026, 11, 29, 12, 0, tzinfo=UTC)
HELD = JobKey("marin", "alice/run", "1795979162708")
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def job(path: str = "/alice/run", state: str = "RUNNING", **more: Any) -> dict[str, Any]:
    counts = {"running": 1} if state == "RUNNING" else {state.lower(): 1}
    return {
        "jobId": path,
        "state": f"JOB_STATE_{state}",
        "submittedAt": {"epochMs": "1795979162708"},
        "taskCount": 1,
        "taskStateCounts": counts,
        **more,
    }


class Odd:
    """Answers as it is told to, method by method; of methods it was told nothing of, it says that it does not know them."""

    def __init__(self) -> None:
        self.answers: dict[str, Any] = {}
        self.asked: list[tuple[str, Any]] = []
        self.headers: list[str | None] = []
        self.url = ""

    async def handle(self, request: web.Request) -> web.StreamResponse:
        method = request.path.rpartition("/")[2]
        body = await request.json() if request.can_read_body else None
        self.asked.append((method, body))
        self.headers.append(request.headers.get("Authorization"))
        answer = self.answers.get(method)
        if callable(answer):
            answer = answer(body)
        if answer is None:
            return web.Response(status=404)
        if isinstance(answer, web.StreamResponse):
            return answer
        if isinstance(answer, bytes):
            # Announces more than it sends, and hangs up.
            cut = web.StreamResponse(headers={"Content-Length": str(len(answer) * 2)})
            await cut.prepare(request)
            await cut.write(answer)
            assert request.transport is not None
            request.transport.close()
            return cut
        return web.json_response(answer)

    def count(self, method: str) -> int:
        return sum(name == method for name, _ in self.asked)


@pytest.fixture
async def odd() -> AsyncIterator[Odd]:
    made = Odd()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", made.handle)
    server = TestServer(app, host="127.0.0.1")
    await server.start_server()
    made.url = str(server.make_url("/")).rstrip("/")
    made.answers = {
        "ListJobs": {"jobs": [job()], "totalCount": 1, "hasMore": False},
        "GetJobState": {"states": {"/alice/run": "JOB_STATE_RUNNING"}},
        "FetchLogs": {"cursor": "0"},
    }
    yield made
    await server.close()


async def poll(odd: Odd, watch: Watch | None = None, **settings: Any) -> Reading:
    given = {"url": odd.url, "users": ("alice",), "request_timeout_s": 2, "poll_timeout_s": 4} | settings
    cluster = IrisCluster("marin", IrisSettings(**given))
    try:
        return await cluster.poll(watch or Watch(live={HELD.id: HELD}), datetime.now(UTC))
    finally:
        await cluster.close()


ERRORS: list[tuple[Any, str]] = [
    (web.Response(status=401, text='{"error":"authentication required"}'), "401: authentication required"),
    (web.Response(status=403, text='{"code":"permission_denied","message":"no"}'), "403 permission_denied: no"),
    (web.Response(status=404), "no iris controller, or one of another version"),
    (web.Response(status=404, text="<h1>nothing here</h1>"), "no iris controller, or one of another version"),
    (web.Response(status=500, text='{"code":"internal","message":"boom"}'), "500 internal: boom"),
    (web.Response(status=502, text='{"error":"upstream transport error"}'), "502: upstream transport error"),
    (web.Response(status=503, text='{"code":"unavailable"}'), "503 unavailable"),
    (web.Response(status=302, headers={"Location": "https://login.example/"}), "a login page stands before"),
    (web.Response(status=200, text="<html>log in</html>"), "no answer of an iris controller"),
    (web.Response(status=200, text="{}"), "no answer of an iris controller"),
    (web.Response(status=200, text=""), "no answer of an iris controller"),
    (b'{"jobs": [], "totalCount": 0, "hasMore": false}', "cut off"),
    ({"jobs": [], "totalCount": 3, "hasMore": False}, "contradicts itself"),
    ({"jobs": [], "totalCount": 3, "hasMore": True}, "contradicts itself"),
    ({"jobs": [{"jobId": "/alice/run", "state": 3}], "totalCount": 1, "hasMore": False}, "submittedAt"),
]


@pytest.mark.parametrize(("answer", "words"), ERRORS)
async def test_a_listing_that_failed_is_no_reading(odd: Odd, answer: Any, words: str) -> None:
    """POLL-1, POLL-2."""
    odd.answers["ListJobs"] = answer

    reading = await poll(odd)

    assert isinstance(reading, Unreached), reading
    assert words in reading.reason
    assert "\n" not in reading.reason


async def test_a_controller_that_hangs_in_mid_answer_costs_the_deadline(odd: Odd) -> None:
    """POLL-6."""
    release = asyncio.Event()

    async def hang(request: web.Request) -> web.StreamResponse:
        started = web.StreamResponse()
        await started.prepare(request)
        await started.write(b'{"jobs": [')
        await release.wait()
        return started

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", hang)
    server = TestServer(app, host="127.0.0.1")
    await server.start_server()
    odd.url = str(server.make_url("/"))

    reading = await poll(odd, request_timeout_s=0.3)

    release.set()
    await server.close()
    assert isinstance(reading, Unreached), reading
    assert "did not answer within 0.3 s" in reading.reason


# -- absence -----------------------------------------------------------------------------------------------------------


async def test_a_job_that_is_left_out_by_name_too_is_absent(odd: Odd) -> None:
    """POLL-5."""
    odd.answers["ListJobs"] = {"jobs": [job("/alice/other")], "totalCount": 1, "hasMore": False}
    odd.answers["GetJobState"] = {"states": {"/alice/other": "JOB_STATE_RUNNING"}}

    reading = await poll(odd)

    assert isinstance(reading, Polled), reading
    assert set(reading.lines) == {"alice/other"}
    assert reading.ends_read


async def test_an_answer_that_leaves_out_what_is_there_proves_no_absence(odd: Odd) -> None:
    odd.answers["ListJobs"] = {"jobs": [job("/alice/other")], "totalCount": 1, "hasMore": False}
    odd.answers["GetJobState"] = {}

    reading = await poll(odd)

    assert isinstance(reading, Unreached), reading
    assert "leaves out alice/other" in reading.reason


async def test_a_job_that_is_there_though_not_listed_stays_as_it_was(odd: Odd) -> None:
    odd.answers["ListJobs"] = {"jobs": [job("/alice/other")], "totalCount": 1, "hasMore": False}
    odd.answers["GetJobState"] = {"states": {"/alice/other": "JOB_STATE_RUNNING", "/alice/run": "JOB_STATE_RUNNING"}}

    reading = await poll(odd, Watch(live={HELD.id: HELD}, lines={HELD.id: "before"}))

    assert isinstance(reading, Polled), reading
    assert reading.lines[HELD.id] == "before"
    assert any("alice/run is not listed, though still there" in line for line in reading.problems)


@pytest.mark.parametrize(
    ("answer", "gone"),
    [
        (web.Response(status=404, text='{"code":"not_found","message":"Job /alice/run not found"}'), True),
        (web.Response(status=404), False),
        (web.Response(status=404, text='{"error":"no such route"}'), False),
        (web.Response(status=503, text='{"code":"unavailable"}'), False),
    ],
)
async def test_where_nothing_is_listed_only_not_found_says_that_a_job_is_gone(
    odd: Odd, answer: Any, gone: bool
) -> None:
    """POLL-5: an unknown method is a 404 as well."""
    odd.answers |= {"ListJobs": {"totalCount": 0, "hasMore": False}, "GetJobState": {}, "GetJobStatus": answer}

    reading = await poll(odd)

    assert isinstance(reading, Polled) == gone, reading
    if isinstance(reading, Polled):
        assert reading.lines == {}


async def test_tasks_that_are_not_listed_prove_nothing(odd: Odd) -> None:
    """ListTasks of an unknown job is 200 ``{}``."""
    odd.answers |= {
        "ListJobs": {"jobs": [job(state="FAILED")], "totalCount": 1, "hasMore": False},
        "ListTasks": {},
        "GetJobStatus": {"job": job(state="FAILED"), "request": {}},
    }

    reading = await poll(odd)

    assert isinstance(reading, Polled), reading
    (end,) = reading.ended
    assert (end.state, end.exit_code, end.attempt) == (JobState.FAILED, None, None)
    assert any("job by job" in line for line in reading.problems)


# -- whose jobs, how many requests -------------------------------------------------------------------------------------


async def test_other_users_jobs_are_left_out_whatever_is_answered(odd: Odd) -> None:
    """POLL-8."""
    odd.answers["ListJobs"] = {"jobs": [job(), job("/mallory/run")], "totalCount": 2, "hasMore": False}

    reading = await poll(odd)

    assert isinstance(reading, Polled), reading
    assert set(reading.lines) == {"alice/run"}


async def test_two_thousand_jobs_cost_a_handful_of_requests(odd: Odd) -> None:
    """POLL-6: pages of 500, two queries for all tasks, and newest lines in turn."""
    jobs = [job(f"/alice/run{number}") for number in range(2000)]

    def page(body: Any) -> Any:
        at = body["query"]["offset"]
        return {"jobs": jobs[at : at + 500], "totalCount": 2000, "hasMore": at + 500 < 2000}

    def query(body: Any) -> Any:
        width = 15 if "FROM tasks" in body["sql"] else 6
        columns = [{"name": str(number), "type": "unknown"} for number in range(width)]
        rows = []
        for path in (one["jobId"] for one in jobs if f"'{one['jobId']}'" in body["sql"]):
            row: list[Any] = [path, f"{path}/0", 3, 0, "", 0, 3, None, None, "uid", "w", 1795979162723, None, "n", ""]
            rows.append(json.dumps(row if width == 15 else [path, 0, 0, 100, None, "{}"]))
        return {"columns": columns, "rows": rows}

    odd.answers |= {"ListJobs": page, "ExecuteRawQuery": query}
    settings: dict[str, Any] = {"poll_timeout_s": 60, "request_timeout_s": 30, "log_looks": 10}

    reading = await poll(odd, Watch(), **settings)

    assert isinstance(reading, Polled), reading
    assert (len(reading.lines), len(reading.changed), len(reading.logs)) == (2000, 2000, 10)
    assert all(one.attempt == 1 and one.burn is not None for one in reading.changed)
    assert (odd.count("ListJobs"), odd.count("ExecuteRawQuery"), odd.count("FetchLogs")) == (5, 2, 10)
    odd.asked.clear()

    again = await poll(odd, Watch(lines=reading.lines, ended_since=reading.at), **settings)

    assert isinstance(again, Polled), again
    assert (again.lines, again.changed) == (reading.lines, [])
    assert len(odd.asked) == 5 + 10


async def test_records_that_are_pruned_while_they_are_listed_hide_no_job(odd: Odd) -> None:
    """Pages are counted by offset: what is pruned before a job moves it to a page that was read already."""
    jobs = [job(f"/alice/run{number}") for number in range(502)]
    first = list(jobs)

    def page(body: Any) -> Any:
        at = body["query"]["offset"]
        listed = {"jobs": jobs[at : at + 500], "totalCount": len(jobs), "hasMore": at + 500 < len(jobs)}
        if jobs == first:
            del jobs[0]
            jobs.append(job("/alice/new"))
        return listed

    odd.answers["ListJobs"] = page

    reading = await poll(odd, Watch(), log_looks=0)

    assert isinstance(reading, Polled), reading
    assert {f"alice/run{number}" for number in range(1, 502)} | {"alice/new"} == reading.lines.keys()


# -- credentials and clocks --------------------------------------------------------------------------------------------


def web_token(ends: datetime) -> str:
    parts = [{"alg": "none"}, {"sub": "alice", "exp": ends.timestamp()}]
    return ".".join(base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts) + ".x"


@pytest.mark.parametrize(
    ("left", "words"),
    [
        (timedelta(hours=30), None),
        (timedelta(hours=20), "its token ends at"),
        (timedelta(hours=1), "in less than 2 hours"),
    ],
)
async def test_a_token_that_ends_soon_is_announced(
    odd: Odd, tmp_path: Path, left: timedelta, words: str | None
) -> None:
    """POLL-12."""
    file = tmp_path / "token"
    file.write_text(web_token(datetime.now(UTC) + left))

    reading = await poll(odd, token_file=file)

    assert isinstance(reading, Polled), reading
    said = [line for line in reading.problems if "token" in line]
    assert (said == []) if words is None else (len(said) == 1 and words in said[0])
    assert odd.headers[0] == f"Bearer {file.read_text()}"


async def test_a_refused_token_that_has_ended_is_known_to_have_ended(odd: Odd, tmp_path: Path) -> None:
    """POLL-12."""
    file = tmp_path / "token"
    file.write_text(web_token(datetime.now(UTC) - timedelta(hours=1)))
    odd.answers["ListJobs"] = web.Response(status=401, text='{"error":"authentication failed"}')

    reading = await poll(odd, token_file=file)

    assert isinstance(reading, Unreached), reading
    assert "its token ended at" in reading.reason
    assert reading.needs_person
    assert file.read_text() not in f"{reading}"


async def test_times_are_ours_though_the_controllers_clock_is_off(odd: Odd) -> None:
    """POLL-10."""
    ahead = datetime.now(UTC) + timedelta(hours=2)
    body = json.dumps({"jobs": [job(startedAt={"epochMs": "1795979163000"})], "totalCount": 1, "hasMore": False})
    odd.answers["ListJobs"] = web.Response(
        text=body, content_type="application/json", headers={"Date": f"{ahead:%a, %d %b %Y %H:%M:%S GMT}"}
    )

    reading = await poll(odd, Watch())

    assert isinstance(reading, Polled), reading
    assert abs(reading.clock_offset - timedelta(hours=2)) < timedelta(seconds=3)
    (seen,) = reading.changed
    assert seen.submitted_at is not None
    shifted = seen.submitted_at + reading.clock_offset
    assert shifted == datetime.fromtimestamp(1795979162.708, UTC)
    assert seen.key.incarnation == "1795979162708"


async def test_what_a_controller_says_steers_no_terminal(odd: Odd) -> None:
    odd.answers["ListJobs"] = {
        "jobs": [job("/alice/\x1b[31mred", "PENDING", pendingReason="a\x1b]0;title\x07\nb")],
        "totalCount": 1,
        "hasMore": False,
    }

    reading = await poll(odd, Watch())

    assert isinstance(reading, Polled), reading
    (seen,) = reading.changed
    assert seen.name.isprintable()
    assert seen.reason is not None
    assert seen.reason.isprintable()
