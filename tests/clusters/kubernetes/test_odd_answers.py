"""POLL-1, POLL-2: whatever an API server answers, half an answer is none, and no failure is an empty cluster."""

from __future__ import annotations

import gzip
import json
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from supervisor.clusters.kubernetes import KubernetesCluster
from supervisor.clusters.kubernetes_settings import KubernetesSettings
from supervisor.model.job import JobKey
from supervisor.model.polling import Polled, Unreached, Watch
from tests.clusters.kubernetes.odd_server import Asked, OddServer

pytestmark = pytest.mark.slow

PODS = "/api/v1/namespaces/train/pods"
NOW = datetime.now(UTC)


def running(name: str) -> dict[str, Any]:
    """A running pod, as the server lists it, cut to what a poller reads."""
    return {
        "metadata": {
            "name": name,
            "namespace": "train",
            "uid": f"uid-of-{name}",
            "creationTimestamp": "2026-07-01T12:00:00Z",
        },
        "spec": {"nodeName": "node-1", "containers": [{"name": "main"}]},
        "status": {
            "phase": "Running",
            "containerStatuses": [{"name": "main", "state": {"running": {"startedAt": "2026-07-01T12:00:05Z"}}}],
        },
    }


@pytest.fixture
async def odd(tmp_path: Path) -> AsyncIterator[OddServer]:
    server = OddServer(tmp_path)
    server.list_of("Pod", PODS, [running("a")])
    yield server
    server.end()


def cluster_of(odd: OddServer, **settings: Any) -> KubernetesCluster:
    given = {"kubeconfig": odd.kubeconfig(), "request_timeout_s": 2, "poll_timeout_s": 4, "log_looks": 0} | settings
    return KubernetesCluster("east", KubernetesSettings(**given))


async def poll(odd: OddServer, watch: Watch | None = None, **settings: Any) -> Polled | Unreached:
    cluster = cluster_of(odd, **settings)
    try:
        return await cluster.poll(watch or Watch(), datetime.now(UTC))
    finally:
        await cluster.close()


async def test_the_odd_server_can_also_answer_well(odd: OddServer) -> None:
    reading = await poll(odd)

    assert isinstance(reading, Polled), reading
    assert list(reading.lines) == ["train/pod/a"]
    assert reading.version == "v1.33.1"


def cut_body(asked: Asked) -> None:
    asked.send_response(200)
    asked.send_header("Content-Length", "100000")
    asked.end_headers()
    asked.wfile.write(b'{"kind":"PodList","metadata":{},"items":[')
    asked.close_connection = True


def cut_chunks(asked: Asked) -> None:
    asked.send_response(200)
    asked.send_header("Transfer-Encoding", "chunked")
    asked.end_headers()
    asked.wfile.write(b"3c\r\n" + b'{"kind":"PodList","metadata":{"resourceVersion":"1"},"items":' + b"\r\n")
    asked.close_connection = True


def no_answer(asked: Asked) -> None:
    asked.close_connection = True


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (lambda asked: asked.status(401, "Unauthorized", "Unauthorized"), "does not accept these credentials"),
        (lambda asked: asked.status(403, "Forbidden", 'pods is forbidden: User "alice" cannot list'), 'User "alice"'),
        (lambda asked: asked.status(429, "TooManyRequests", "wait", Retry_After="600"), "asks to wait 600 s"),
        (lambda asked: asked.status(429, "TooManyRequests", "wait", Retry_After="soon"), "too busy"),
        (lambda asked: asked.status(500, "InternalError", "etcdserver: request timed out"), "etcdserver"),
        (lambda asked: asked.status(503, "ServiceUnavailable", "apiserver is shutting down"), "503"),
        (lambda asked: asked.say(502, b"<html>Bad Gateway</html>", "text/html"), "502"),
        (lambda asked: asked.say(404, b"404 page not found", "text/plain"), "404"),
        (lambda asked: asked.say(302, b"", Location="https://login.example/"), "login page"),
        (lambda asked: asked.say(200, b"<html>Sign in</html>", "text/html"), "cannot be read"),
        (lambda asked: asked.json(200, {"kind": "Status", "metadata": {}, "items": []}), "cannot be read"),
        (lambda asked: asked.json(200, {"kind": "PodList", "metadata": {}}), "cannot be read"),
        (lambda asked: asked.json(200, {}), "cannot be read"),
        (lambda asked: asked.say(200, b""), "cannot be read"),
        (lambda asked: asked.say(200, gzip.compress(b"{}"), Content_Encoding="gzip"), "the answer is packed (gzip)"),
        (lambda asked: asked.say(200, b"[" * 100_000), "cannot be read"),
        (cut_body, "cut off"),
        (cut_chunks, "cut off"),
        (no_answer, "cut off"),
    ],
)
@pytest.mark.parametrize("page", ["first", "second"])
async def test_an_odd_answer_is_no_reading_and_says_why(
    odd: OddServer, answer: Callable[[Asked], None], words: str, page: str
) -> None:
    first = {"kind": "PodList", "metadata": {"continue": "more"}, "items": [running("a")]}

    def pods(asked: Asked) -> None:
        if page == "second" and "continue=" not in asked.path:
            asked.json(200, first)
        else:
            answer(asked)

    odd.answers[PODS] = pods

    reading = await poll(odd)

    assert isinstance(reading, Unreached), reading
    assert words in reading.reason
    assert reading.cluster == "east"


def chunked(*parts: bytes) -> Callable[[Asked], None]:
    """As an API server sends a long list: without its length."""

    def answer(asked: Asked) -> None:
        asked.send_response(200)
        asked.send_header("Transfer-Encoding", "chunked")
        asked.end_headers()
        for part in (*parts, b""):
            asked.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))

    return answer


async def test_pages_of_any_length_in_any_chunks_are_one_list(odd: OddServer) -> None:
    """Each is read into the memory of the one before it, and nothing of that one changes."""
    names = [[f"a{n}" for n in range(count)] for count in (3, 900, 2, 1500)]

    def pods(asked: Asked) -> None:
        number = int(asked.path.partition("continue=")[2] or 0)
        meta = {"continue": str(number + 1)} if number + 1 < len(names) else {}
        items = [running(f"{name}-{number}") for name in names[number]]
        text = json.dumps({"kind": "PodList", "metadata": meta, "items": items}).encode()
        cuts = [text[at : at + 70_001] for at in range(0, len(text), 70_001)]
        (chunked(*cuts) if number % 2 else lambda one: one.say(200, text))(asked)

    odd.answers[PODS] = pods

    reading = await poll(odd)

    assert isinstance(reading, Polled), reading
    wanted = {f"train/pod/{name}-{number}" for number, some in enumerate(names) for name in some}
    assert set(reading.lines) == wanted
    assert {one.key.incarnation for one in reading.changed} == {f"uid-of-{job.rpartition('/')[2]}" for job in wanted}


@pytest.mark.parametrize("phase", ["Pending", "Failed"])
async def test_conditions_of_another_type_are_no_reading(odd: OddServer, phase: str) -> None:
    """POLL-2: they are decoded only where they count, and an odd one is said then."""
    odd_one = running("b") | {"spec": {"containers": [{"name": "main"}]}}
    odd_one["status"] = {"phase": phase, "conditions": [{"type": 7}]}
    odd.list_of("Pod", PODS, [running("a"), odd_one])

    reading = await poll(odd)

    assert isinstance(reading, Unreached), reading
    assert "a pod's conditions cannot be read" in reading.reason


async def test_what_a_server_says_cannot_steer_the_terminal(odd: OddServer) -> None:
    odd.answers[PODS] = lambda asked: asked.status(500, "InternalError", "\x1b[31mred\x1b[0m\r\nnext\u202eline")

    reading = await poll(odd)

    assert isinstance(reading, Unreached)
    assert all(letter.isprintable() for letter in reading.reason)


async def test_a_short_wait_that_is_asked_for_is_waited_once(odd: OddServer) -> None:
    calls: list[int] = []

    def pods(asked: Asked) -> None:
        calls.append(1)
        if len(calls) == 1:
            asked.status(429, "TooManyRequests", "wait", Retry_After="1")
        else:
            asked.json(200, {"kind": "PodList", "metadata": {}, "items": [running("a")]})

    odd.answers[PODS] = pods

    reading = await poll(odd)

    assert isinstance(reading, Polled), reading
    assert len(calls) == 2


@pytest.mark.parametrize("what", ["silence", "headers", "body"])
async def test_a_server_that_hangs_or_trickles_cannot_hold_a_poll_beyond_its_deadline(
    odd: OddServer, what: str
) -> None:
    """POLL-6: a byte now and then is no progress; a read timeout alone would wait for ever."""

    def pods(asked: Asked) -> None:
        if what == "body":
            asked.send_response(200)
            asked.send_header("Content-Length", "100000")
            asked.end_headers()
        elif what == "headers":
            asked.wfile.write(b"HTTP/1.1 200 OK\r\nX-Slow: ")
        while not odd.over.wait(0.1):
            if what != "silence":
                asked.wfile.write(b" ")
                asked.wfile.flush()

    odd.answers[PODS] = pods
    cluster = cluster_of(odd, request_timeout_s=1)
    began = time.monotonic()

    reading = await cluster.poll(Watch(), datetime.now(UTC))

    assert time.monotonic() - began < 2
    assert isinstance(reading, Unreached), reading
    assert "did not answer within 1 s" in reading.reason
    odd.list_of("Pod", PODS, [running("a")])
    assert isinstance(await cluster.poll(Watch(), datetime.now(UTC)), Polled), "no thread may be left hanging"
    await cluster.close()


async def test_a_poll_of_many_slow_pages_ends_at_the_polls_own_deadline(odd: OddServer) -> None:
    def pods(asked: Asked) -> None:
        odd.over.wait(0.3)
        asked.json(200, {"kind": "PodList", "metadata": {"continue": str(len(odd.asked))}, "items": []})

    odd.answers[PODS] = pods
    began = time.monotonic()

    reading = await poll(odd, poll_timeout_s=1.5)

    assert time.monotonic() - began < 3
    assert isinstance(reading, Unreached), reading
    assert "1.5 s" in reading.reason


async def test_a_list_that_repeats_its_page_for_ever_is_not_believed(odd: OddServer) -> None:
    odd.list_of("Pod", PODS, [running("a")], resume="again")

    reading = await poll(odd)

    assert isinstance(reading, Unreached), reading
    assert "repeats" in reading.reason


async def test_a_list_that_grew_too_old_in_the_middle_begins_again(odd: OddServer) -> None:
    calls: list[str] = []

    def pods(asked: Asked) -> None:
        calls.append(asked.path)
        if "continue=" not in asked.path:
            asked.json(200, {"kind": "PodList", "metadata": {"continue": "b"}, "items": [running("a")]})
        elif len(calls) == 2:
            asked.status(410, "Expired", "The provided continue parameter is too old")
        else:
            asked.json(200, {"kind": "PodList", "metadata": {}, "items": [running("b")]})

    odd.answers[PODS] = pods

    reading = await poll(odd)

    assert isinstance(reading, Polled), reading
    assert sorted(reading.lines) == ["train/pod/a", "train/pod/b"]
    assert len(calls) == 4


LIVE = {"train/pod/gone": JobKey("east", "train/pod/gone", "uid-of-gone")}
REMEMBERED = Watch(live=LIVE, lines={"train/pod/gone": "as it was"}, ended_since=NOW - timedelta(minutes=15))


async def test_only_the_servers_own_notfound_says_that_a_job_is_gone(odd: OddServer) -> None:
    """POLL-5."""
    odd.answers[f"{PODS}/gone"] = lambda asked: asked.status(404, "NotFound", 'pods "gone" not found')

    reading = await poll(odd, REMEMBERED)

    assert isinstance(reading, Polled), reading
    assert list(reading.lines) == ["train/pod/a"]
    assert (list(reading.ended), reading.ends_read, reading.problems) == ([], True, ())


@pytest.mark.parametrize(
    "answer",
    [
        lambda asked: asked.say(404, b"404 page not found", "text/plain"),
        lambda asked: asked.status(403, "Forbidden", "pods is forbidden"),
        lambda asked: asked.status(500, "InternalError", "boom"),
        lambda asked: asked.say(200, b"<html>", "text/html"),
        cut_body,
    ],
)
async def test_a_doubtful_answer_about_a_missing_job_leaves_it_as_it_was(
    odd: OddServer, answer: Callable[[Asked], None]
) -> None:
    """POLL-5: 404 without the server's own word is not absence."""
    odd.answers[f"{PODS}/gone"] = answer

    reading = await poll(odd, REMEMBERED)

    assert isinstance(reading, Polled), reading
    assert reading.lines["train/pod/gone"] == "as it was"
    assert "train/pod/gone" not in [one.key.id for one in reading.changed]
    assert "left as it was" in " ".join(reading.problems)


async def test_another_object_under_the_name_means_that_the_job_is_gone(odd: OddServer) -> None:
    """POLL-11."""
    odd.answers[f"{PODS}/gone"] = lambda asked: asked.json(
        200, running("gone") | {"metadata": running("x")["metadata"]}
    )

    reading = await poll(odd, REMEMBERED)

    assert isinstance(reading, Polled), reading
    assert "train/pod/gone" not in reading.lines


async def test_an_unlisted_job_that_is_still_there_is_read_from_its_own_record(odd: OddServer) -> None:
    odd.answers[f"{PODS}/gone"] = lambda asked: asked.json(200, running("gone"))

    reading = await poll(odd, REMEMBERED, selector="team=a")

    assert isinstance(reading, Polled), reading
    assert "train/pod/gone" in reading.lines


async def test_a_hundred_missing_jobs_cost_a_hundred_questions_and_the_others_wait(odd: OddServer) -> None:
    """POLL-6: bounded, and what was not asked is not concluded."""
    live = {f"train/pod/p{n}": JobKey("east", f"train/pod/p{n}", f"u{n}") for n in range(150)}

    reading = await poll(odd, replace(REMEMBERED, live=live, lines=dict.fromkeys(live, "as it was")), poll_timeout_s=30)

    assert isinstance(reading, Polled), reading
    assert len(reading.lines) == 1 + 50


async def test_a_kind_that_may_not_be_listed_is_named_and_its_jobs_are_known_by_their_pods(odd: OddServer) -> None:
    owned = running("a-x7")
    owned["metadata"]["ownerReferences"] = [
        {"apiVersion": "batch/v1", "kind": "Job", "name": "a", "uid": "uid-of-job", "controller": True}
    ]
    odd.list_of("Pod", PODS, [owned])
    odd.answers["/apis/batch/v1/namespaces/train/jobs"] = lambda asked: asked.status(
        403, "Forbidden", "jobs is forbidden"
    )

    reading = await poll(odd)

    assert isinstance(reading, Polled), reading
    assert [(one.key.id, one.key.incarnation) for one in reading.changed] == [("train/job/a", "uid-of-job")]
    assert "jobs of train cannot be listed" in " ".join(reading.problems)


async def test_a_namespace_that_does_not_exist_is_named(odd: OddServer) -> None:
    """The API server lists it as an empty one."""
    odd.list_of("Pod", PODS, [])
    del odd.answers["/api/v1/namespaces/train"]

    reading = await poll(odd)

    assert isinstance(reading, Polled), reading
    assert reading.problems == ("namespace train does not exist",)


async def test_times_are_turned_into_ours_by_the_servers_own_clock(odd: OddServer) -> None:
    """POLL-10."""

    def version(asked: Asked) -> None:
        body = b'{"gitVersion": "v1.33.1"}'
        ahead = datetime.now(UTC) + timedelta(minutes=10)
        asked.send_response_only(200)
        asked.send_header("Date", f"{ahead:%a, %d %b %Y %H:%M:%S GMT}")
        asked.send_header("Content-Length", str(len(body)))
        asked.end_headers()
        asked.wfile.write(body)

    odd.answers["/version"] = version

    reading = await poll(odd)

    assert isinstance(reading, Polled), reading
    assert abs(reading.clock_offset - timedelta(minutes=10)) <= timedelta(seconds=2)
    (seen,) = reading.changed
    assert seen.started_at == datetime(2026, 7, 1, 12, 0, 5, tzinfo=UTC) - reading.clock_offset
