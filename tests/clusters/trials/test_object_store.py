"""Trials in an object store: a real S3 server, and servers that fail in the ways that real ones do."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from supervisor.clusters.object_store import NoCredentials, ObjectStores, StoreAccess, credentials
from supervisor.dialects.trial_counts import Count, count, counts_of
from supervisor.model.trials import TrialPlace, TrialRead, TrialsSeen, TrialsUnread, TrialsWanted
from tests.s3_server import S3Server
from tests.trial_files import job_result, result

KEYS = {"AWS_ACCESS_KEY_ID": "alice", "AWS_SECRET_ACCESS_KEY": "not-a-real-secret"}


def wanted(where: str, **changes: object) -> TrialsWanted:
    place = TrialPlace(where, "trial_stores", of_jobs=bool(changes.pop("of_jobs", False)))
    return TrialsWanted(job_id="42", place=place, **changes)  # type: ignore[arg-type]


async def look(url: str, asked: TrialsWanted, *, limit_s: float = 20, request_s: float = 5) -> TrialRead:
    stores = ObjectStores(request_s=request_s, environment=KEYS)
    return await stores.read(asked, StoreAccess(endpoint_url=url), limit_s=limit_s)


async def seen(url: str, asked: TrialsWanted) -> TrialsSeen:
    answer = await look(url, asked)
    assert isinstance(answer, TrialsSeen), answer
    return answer


async def unread(url: str, asked: TrialsWanted, **limits: float) -> TrialsUnread:
    answer = await look(url, asked, **limits)
    assert isinstance(answer, TrialsUnread), answer
    return answer


Answer = Callable[[str], Awaitable[bytes | None]]


@asynccontextmanager
async def server(answer: Answer) -> AsyncIterator[str]:
    """An HTTP server that gives raw answers by the request's first line; None: never an answer."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        said = await answer(head.split(b"\r\n")[0].decode())
        if said is None:
            await asyncio.sleep(3600)
        else:
            writer.write(said)
            await writer.drain()
        writer.close()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    tasks_before = asyncio.all_tasks()
    try:
        yield f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    finally:
        listening.close()
        for task in asyncio.all_tasks() - tasks_before:
            task.cancel()


def http(status: str, body: str) -> bytes:
    data = body.encode()
    head = f"HTTP/1.1 {status}\r\nContent-Type: application/xml\r\nContent-Length: {len(data)}\r\nConnection: close\r\n\r\n"
    return head.encode() + data


def page(*keys: str, token: str = "") -> str:
    entries = "".join(
        f"<Contents><Key>{key}</Key><LastModified>2026-07-01T09:00:00.000Z</LastModified><ETag>&quot;1&quot;</ETag>"
        f"<Size>2</Size><StorageClass>STANDARD</StorageClass></Contents>"
        for key in keys
    )
    more = f"<IsTruncated>true</IsTruncated><NextContinuationToken>{token}</NextContinuationToken>" if token else ""
    return f'<?xml version="1.0"?><ListBucketResult><Name>traces</Name>{more}{entries}</ListBucketResult>'


pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")
real = pytest.mark.lab


# -- against the real server -----------------------------------------------------------------------------------------


@real
async def test_trials_begun_and_ended_and_the_jobs_own_result_are_read(s3: S3Server) -> None:
    """EVAL-4"""
    s3.bucket("traces")
    for name in ("a__1", "b__2"):
        s3.put("traces", f"j1/{name}/config.json", b"{}")
        s3.put("traces", f"j1/{name}/result.json", result(name))
        s3.put("traces", f"j1/{name}/agent/trajectory.json", b"{}")
    s3.put("traces", "j1/c__3/config.json", b"{}")
    s3.put("traces", "j1/a__1/steps/s1/result.json", b"{}")
    s3.put("traces", "j1/result.json", job_result(planned=3, completed=2, passed=2, running=1))
    s3.put("traces", "j10/z__9/result.json", result("z__9"))

    got = await seen(s3.url, wanted("s3://traces/j1"))

    assert (got.begun, got.left, got.after) == (3, 0, "")
    assert [(file.name, file.data) for file in got.results] == [(name, result(name)) for name in ("a__1", "b__2")]
    assert got.results[0].path == "s3://traces/j1/a__1/result.json"
    assert got.job is not None and got.job.path == "s3://traces/j1/result.json"


@real
async def test_a_bounded_listing_goes_on_where_it_stopped_and_counts_each_trial_once(s3: S3Server) -> None:
    """EVAL-4: nothing is listed twice within one pass, and results are fetched once for ever."""
    s3.bucket("traces")
    for number in range(23):
        s3.put("traces", f"j1/t{number:02d}__x/config.json", b"{}")
        s3.put("traces", f"j1/t{number:02d}__x/result.json", result(f"t{number:02d}__x", turns=4))
    now, state, fetched = time.time(), None, []
    for _ in range(9):
        run = Count.load(state)
        asked = wanted("s3://traces/j1", since_s=run.since_s, known=run.known, after=run.after, results=5, entries=17)
        got = await seen(s3.url, asked)
        fetched += [file.name for file in got.results]
        state = count(state, got, now)
    counts = counts_of(state)

    assert sorted(fetched) == [f"t{number:02d}__x" for number in range(23)]
    assert counts is not None
    assert (counts.figures.done, counts.begun, counts.avg_turns) == (23, 23, 4.0)


@real
async def test_a_result_that_came_behind_the_listing_is_found_by_the_next_one(s3: S3Server) -> None:
    """EVAL-4"""
    s3.bucket("traces")
    for name in ("m__1", "n__2", "o__3"):
        s3.put("traces", f"j1/{name}/result.json", result(name))
    first = await seen(s3.url, wanted("s3://traces/j1", entries=2))
    state = count(None, first, time.time())
    s3.put("traces", "j1/a__0/result.json", result("a__0"))
    for _ in range(3):
        run = Count.load(state)
        asked = wanted("s3://traces/j1", since_s=run.since_s, known=run.known, after=run.after)
        state = count(state, await seen(s3.url, asked), time.time())

    assert counts_of(state).figures.done == 4  # type: ignore[union-attr]


@real
async def test_a_sample_takes_the_newest_of_what_is_listed(s3: S3Server) -> None:
    s3.bucket("traces")
    s3.put("traces", "j1/z__old/result.json", result("z__old"))
    await asyncio.sleep(1.1)  # the server's times are whole seconds
    s3.put("traces", "j1/a__new/result.json", result("a__new"))

    got = await seen(s3.url, wanted("s3://traces/j1", newest=True, results=1))

    assert [file.name for file in got.results] == ["a__new"]


@real
async def test_a_large_result_is_told_and_not_fetched(s3: S3Server) -> None:
    s3.bucket("traces")
    s3.put("traces", "j1/a__1/result.json", b"x" * 5000)

    got = await seen(s3.url, wanted("s3://traces/j1", result_bytes=4000))

    assert [(file.data, file.reason) for file in got.results] == [(None, "larger than may be read (5000 bytes)")]


@real
async def test_denied_missing_and_empty_are_reasons_and_never_no_trials(s3: S3Server) -> None:
    """POLL-1, EVAL-4"""
    s3.bucket("traces")
    s3.put("traces", "j1/a__1/result.json", result("a__1"))

    missing = await unread(s3.url, wanted("s3://tracesx/j1"))
    empty = await unread(s3.url, wanted("s3://traces/j2"))
    s3.check_signatures(on=True)
    denied = await unread(s3.url, wanted("s3://traces/j1"))

    assert missing.reason == "NoSuchBucket: The specified bucket does not exist"
    assert empty.reason == "not there: no object below it"
    assert denied.reason.startswith("InvalidAccessKeyId")
    assert [told.not_there for told in (missing, empty, denied)] == [False, True, False]
    assert denied.asked == f"aws s3 ls s3://traces/j1/ --endpoint-url {s3.url}"
    assert "403 Forbidden" in denied.output
    assert "not-a-real-secret" not in denied.output


@real
async def test_a_named_file_of_credentials_is_used(s3: S3Server, tmp_path: Path) -> None:
    s3.bucket("traces")
    s3.put("traces", "j1/a__1/result.json", result("a__1"))
    file = tmp_path / "credentials"
    file.write_text("[traces]\naws_access_key_id = bob\naws_secret_access_key = not-a-real-secret\n")
    access = StoreAccess(endpoint_url=s3.url, profile="traces", credentials_file=file)

    got = await ObjectStores(environment={}).read(wanted("s3://traces/j1"), access, limit_s=20)

    assert isinstance(got, TrialsSeen)


# -- servers that fail -----------------------------------------------------------------------------------------------


async def test_a_refused_connection_is_a_reason() -> None:
    """POLL-1"""
    told = await unread("http://127.0.0.1:9", wanted("s3://traces/j1"))

    assert told.reason.startswith("it could not be reached")
    assert told.output


async def test_a_store_that_hangs_costs_its_limit_and_no_more() -> None:
    """POLL-6"""

    async def hang(_: str) -> None:
        return None

    async with server(hang) as url:
        began = time.monotonic()
        told = await unread(url, wanted("s3://traces/j1"), limit_s=1.5, request_s=30)

        assert told.reason == "no whole answer within 1.5 s"
        assert time.monotonic() - began < 10


async def test_half_a_listing_counts_nothing() -> None:
    """POLL-1: what its first page held may be half of the truth."""

    async def half(line: str) -> bytes:
        if "continuation-token" in line:
            return http(
                "403 Forbidden", "<Error><Code>ExpiredToken</Code><Message>The token has expired</Message></Error>"
            )
        return http("200 OK", page("j1/a__1/result.json", "j1/b__2/result.json", token="more"))

    async with server(half) as url:
        told = await unread(url, wanted("s3://traces/j1"))

    assert told.reason == "ExpiredToken: The token has expired"


async def test_a_listing_that_is_cut_off_in_its_middle_counts_nothing() -> None:
    """POLL-1, POLL-2"""
    whole = http("200 OK", page("j1/a__1/result.json"))

    async def cut(_: str) -> bytes:
        return whole[:-40]

    async with server(cut) as url:
        told = await unread(url, wanted("s3://traces/j1"), request_s=2)

    assert not told.not_there


async def test_an_answer_that_is_no_listing_counts_nothing() -> None:
    """POLL-2: a proxy's page with status 200 is no empty folder."""

    async def proxy(_: str) -> bytes:
        return http("200 OK", "<html><body>Please log in</body></html>")

    async with server(proxy) as url:
        answer = await look(url, wanted("s3://traces/j1"))

    assert isinstance(answer, TrialsUnread)


async def test_a_result_that_cannot_be_fetched_leaves_the_whole_look_uncounted() -> None:
    """EVAL-4: it is counted by the next look instead."""

    async def refuse(line: str) -> bytes:
        if "list-type" in line:
            return http("200 OK", page("j1/a__1/result.json"))
        if "j1/result.json" in line:
            return http("404 Not Found", "<Error><Code>NoSuchKey</Code></Error>")
        return http("403 Forbidden", "<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>")

    async with server(refuse) as url:
        told = await unread(url, wanted("s3://traces/j1"))

    assert told.reason == "AccessDenied: Access Denied"


async def test_a_result_that_was_taken_away_meanwhile_is_none() -> None:
    async def gone(line: str) -> bytes:
        if "list-type" in line:
            return http("200 OK", page("j1/a__1/result.json"))
        return http("404 Not Found", "<Error><Code>NoSuchKey</Code></Error>")

    async with server(gone) as url:
        got = await seen(url, wanted("s3://traces/j1"))

    assert got.results == ()


# -- settings --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["gs://traces/j1", "s3://", "https://traces/j1"])
async def test_what_is_no_s3_address_says_so(where: str) -> None:
    told = await unread("http://127.0.0.1:9", wanted(where))

    assert "only s3:// is" in told.reason


async def test_a_store_of_many_jobs_needs_to_be_told_which_is_this_ones() -> None:
    told = await unread("http://127.0.0.1:9", wanted("s3://traces/all", of_jobs=True))

    assert "name it in trial_stores" in told.reason


def test_credentials_come_from_what_is_named_then_the_environment_then_the_usual_file(tmp_path: Path) -> None:
    usual, named = tmp_path / "usual", tmp_path / "named"
    usual.write_text(
        "[default]\naws_access_key_id=u\naws_secret_access_key=x\n[team]\naws_access_key_id=t\naws_secret_access_key=x\n"
    )
    named.write_text("[default]\naws_access_key_id=n\naws_secret_access_key=x\naws_session_token=s\n")
    files = {"AWS_SHARED_CREDENTIALS_FILE": str(usual)}

    def key(access: StoreAccess, **environment: str) -> str | None:
        return credentials(access, environment).get("access_key_id")

    assert key(StoreAccess(), **KEYS, **files) == "alice"
    assert key(StoreAccess(), **files) == "u"
    assert key(StoreAccess(), AWS_PROFILE="team", **files) == "t"
    assert key(StoreAccess(profile="team"), **KEYS, **files) == "t"
    assert key(StoreAccess(credentials_file=named), **KEYS, **files) == "n"
    assert credentials(StoreAccess(credentials_file=named), {})["session_token"] == "s"
    assert key(StoreAccess(), AWS_SHARED_CREDENTIALS_FILE=str(tmp_path / "none")) is None
    assert (
        credentials(StoreAccess(), {**KEYS, "AWS_ENDPOINT_URL": "https://o.example"})["endpoint"] == "https://o.example"
    )


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (None, "not there"),
        ("no profiles", "no file of profiles"),
        ("[other]\n", r"holds no profile \[default\]"),
        ("[default]\naws_access_key_id = a\n", "lacks aws_access_key_id or aws_secret_access_key"),
    ],
)
def test_a_named_file_that_cannot_be_used_is_a_reason(tmp_path: Path, text: str | None, reason: str) -> None:
    file = tmp_path / "credentials"
    if text is not None:
        file.write_text(text)

    with pytest.raises(NoCredentials, match=reason):
        credentials(StoreAccess(credentials_file=file), {})
