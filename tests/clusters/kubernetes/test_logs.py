"""Pods' logs: no gap, no repeat, through restarts; what is no log text is never taken for one."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.clusters.kubernetes import KubernetesCluster
from supervisor.clusters.kubernetes_log_lines import Bookmark, parse_path
from supervisor.clusters.kubernetes_settings import KubernetesSettings
from supervisor.model.logs import LogRead, LogState, LogText, LogUnread, LogWanted
from supervisor.model.polling import Watch
from tests.clusters.kubernetes.conftest import Eyes, MakeEyes
from tests.clusters.kubernetes.odd_server import Asked, OddServer
from tests.kube_lab import KubeLab, pod

NOW = datetime(2026, 7, 1, 12, 0, tzinfo=UTC)


async def read(
    cluster: KubernetesCluster,
    path: str,
    offset: int = 0,
    limit: int = 10**6,
    *,
    tail: bool = True,
    bookmark: str | None = None,
) -> LogRead:
    wanted = LogWanted("job", path, offset, limit, tail=tail, bookmark=bookmark)
    return (await cluster.read_logs([wanted], datetime.now(UTC)))["job", path]


async def text_of(cluster: KubernetesCluster, path: str, *args: Any, **kwargs: Any) -> LogText:
    piece = await read(cluster, path, *args, **kwargs)
    assert isinstance(piece, LogText), piece
    return piece


def ran(lab: KubeLab, eyes: Eyes, name: str = "talks", *stages: Any) -> str:
    lab.create(eyes.namespace, pod(name, "running", *stages))
    lab.until_phase(eyes.namespace, name, "Running")
    return f"pod/{eyes.namespace}/{name}/main"


# -- on the real server ------------------------------------------------------------------------------------------------


@pytest.mark.lab
async def test_a_log_is_resumed_by_its_bookmark_after_a_restart_of_the_daemon(
    kube_lab: KubeLab, eyes_of: MakeEyes
) -> None:
    """FIND-3: many lines of one second, some of one and the same moment."""
    path = ran(kube_lab, eyes_of())
    moment = datetime.now(UTC).replace(microsecond=0)
    whole = b""
    offset, bookmark = 0, None
    for turn in range(4):
        lines = [f"turn {turn} line {n}" for n in range(50)]
        kube_lab.say(eyes_of().namespace, "talks", *lines, at=moment + timedelta(microseconds=turn))
        whole += "".join(f"{line}\n" for line in lines).encode()

        piece = await text_of(eyes_of().cluster, path, offset, bookmark=bookmark)

        assert (piece.offset, piece.lines_skipped) == (offset, 0)
        assert piece.data == whole[offset:]
        offset, bookmark = offset + len(piece.data), piece.bookmark

    piece = await text_of(eyes_of().cluster, path, offset, bookmark=bookmark)
    assert (piece.data, piece.size, piece.bookmark) == (b"", offset, bookmark)


@pytest.mark.lab
async def test_a_daemon_that_hands_no_bookmark_back_is_served_all_the_same(
    kube_lab: KubeLab, eyes: Eyes, eyes_of: MakeEyes
) -> None:
    path = ran(kube_lab, eyes)
    kube_lab.say(eyes.namespace, "talks", "one", "two")
    first = await text_of(eyes.cluster, path)
    kube_lab.say(eyes.namespace, "talks", "three")

    assert first.data == b"one\ntwo\n"
    assert (await text_of(eyes.cluster, path, 8)).data == b"three\n"
    assert (await text_of(eyes_of().cluster, path, 8)).data == b"three\n", "another process counts from the beginning"


@pytest.mark.lab
async def test_the_newest_part_is_fetched_and_what_is_left_out_is_counted(kube_lab: KubeLab, eyes: Eyes) -> None:
    path = ran(kube_lab, eyes)
    kube_lab.say(eyes.namespace, "talks", *(f"line {n}" for n in range(1000)))
    whole = "".join(f"line {n}\n" for n in range(1000)).encode()

    piece = await text_of(eyes.cluster, path, 0, 100)

    assert piece.data == whole[-100:]
    assert (piece.offset, piece.size) == (len(whole) - 100, len(whole))
    assert piece.lines_skipped == whole[:-100].count(b"\n")


@pytest.mark.lab
async def test_a_line_that_is_not_ended_yet_is_taken_and_its_rest_follows(kube_lab: KubeLab, eyes: Eyes) -> None:
    path = ran(kube_lab, eyes)
    file = kube_lab.pod_logs / eyes.namespace / "talks" / "main.log"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(b"2026-07-01T12:00:00.000000001Z loading\xff 50")
    first = await text_of(eyes.cluster, path)
    with file.open("ab") as log:
        log.write(b" %\n2026-07-01T12:00:01.5Z done\n")

    rest = await text_of(eyes.cluster, path, len(first.data), bookmark=first.bookmark)

    assert (first.data, rest.data) == (b"loading\xff 50", b" %\ndone\n")


@pytest.mark.lab
async def test_what_the_container_before_had_to_say_comes_first(kube_lab: KubeLab, eyes: Eyes) -> None:
    path = ran(kube_lab, eyes)
    kube_lab.say(eyes.namespace, "talks", "one", "two")
    first = await text_of(eyes.cluster, path)
    kube_lab.say(eyes.namespace, "talks", "Traceback", "KeyError")
    folder = kube_lab.pod_logs / eyes.namespace / "talks"
    (folder / "main.log").rename(folder / "main.previous.log")
    _restarted(kube_lab, eyes.namespace, "talks", 1)
    kube_lab.say(eyes.namespace, "talks", "again")

    resumed = await text_of(eyes.cluster, path, len(first.data), bookmark=first.bookmark)
    fresh = await text_of(eyes.cluster, path)
    previous = await text_of(eyes.cluster, f"{path}/previous")

    assert (resumed.data, resumed.lines_skipped) == (b"Traceback\nKeyError\nagain\n", 0)
    assert fresh.data == b"one\ntwo\nTraceback\nKeyError\nagain\n"
    assert previous.data == b"one\ntwo\nTraceback\nKeyError\n"


@pytest.mark.lab
async def test_a_run_that_nobody_read_leaves_a_gap_and_says_so(kube_lab: KubeLab, eyes: Eyes) -> None:
    path = ran(kube_lab, eyes)
    kube_lab.say(eyes.namespace, "talks", "one")
    first = await text_of(eyes.cluster, path)
    _restarted(kube_lab, eyes.namespace, "talks", 3)
    kube_lab.say(eyes.namespace, "talks", "again")
    folder = kube_lab.pod_logs / eyes.namespace / "talks"
    (folder / "main.previous.log").write_text("2026-07-01T12:00:00.000000001Z of the third\n")

    resumed = await text_of(eyes.cluster, path, len(first.data), bookmark=first.bookmark)

    assert resumed.data.startswith(b"of the third\n")
    assert resumed.lines_skipped is None


def _restarted(lab: KubeLab, namespace: str, name: str, times: int) -> None:
    path = f"/api/v1/namespaces/{namespace}/pods/{name}"
    (status,) = lab.must("GET", path)["status"]["containerStatuses"]
    end = {"exitCode": 1, "reason": "Error", "finishedAt": "2026-07-01T12:00:00Z"}
    status |= {"restartCount": times, "lastState": {"terminated": end}}
    lab.merge(f"{path}/status", {"status": {"containerStatuses": [status]}})


@pytest.mark.lab
async def test_a_container_that_waits_to_start_has_no_log_text(kube_lab: KubeLab, eyes: Eyes) -> None:
    """FIND-4."""
    kube_lab.create(eyes.namespace, pod("stuck", "imagepullbackoff"))
    kube_lab.until("it waits", lambda: kube_lab.pod_status(eyes.namespace, "stuck").get("containerStatuses"))

    piece = await read(eyes.cluster, f"pod/{eyes.namespace}/stuck/main")

    assert isinstance(piece, LogUnread)
    assert "is waiting to start: ImagePullBackOff" in piece.reason


@pytest.mark.lab
async def test_a_pod_that_is_gone_took_its_log_with_it(eyes: Eyes) -> None:
    piece = await read(eyes.cluster, f"pod/{eyes.namespace}/nobody/main")

    assert isinstance(piece, LogUnread)
    assert piece.reason == "the pod is gone, and its log with it"


@pytest.mark.lab
async def test_a_pod_made_again_under_its_name_is_another_log(kube_lab: KubeLab, eyes: Eyes) -> None:
    path = ran(kube_lab, eyes)
    kube_lab.say(eyes.namespace, "talks", "one")
    first = await text_of(eyes.cluster, path)
    kube_lab.must("DELETE", f"/api/v1/namespaces/{eyes.namespace}/pods/talks", {"gracePeriodSeconds": 0})
    ran(kube_lab, eyes)
    kube_lab.say(eyes.namespace, "talks", "of another")

    resumed = await read(eyes.cluster, path, len(first.data), bookmark=first.bookmark)
    fresh = await text_of(eyes.cluster, path)

    assert isinstance(resumed, LogUnread)
    assert "begins anew" in resumed.reason
    assert fresh.data.endswith(b"of another\n")


@pytest.mark.lab
async def test_a_poll_tells_when_each_running_job_last_spoke(kube_lab: KubeLab, eyes: Eyes) -> None:
    """LIVE-1: the time is the line's own, not that of our reading it."""
    ran(kube_lab, eyes)
    spoke = datetime.now(UTC) - timedelta(minutes=12)
    kube_lab.say(eyes.namespace, "talks", "early", at=spoke - timedelta(minutes=1))
    kube_lab.say(eyes.namespace, "talks", "step 15 of 80", at=spoke)

    log = (await eyes.poll()).logs[eyes.id("pod", "talks")]

    assert (log.state, log.path) == (LogState.READ, f"pod/{eyes.namespace}/talks/main")
    assert log.modified_at is not None
    assert abs(log.modified_at - spoke) < timedelta(milliseconds=1)


@pytest.mark.lab
async def test_a_log_that_was_read_to_its_end_has_that_size_until_there_is_more(kube_lab: KubeLab, eyes: Eyes) -> None:
    path, job_id = ran(kube_lab, eyes), eyes.id("pod", "talks")
    kube_lab.say(eyes.namespace, "talks", *(f"line {n}" for n in range(100)))
    piece = await text_of(eyes.cluster, path)

    assert (await eyes.poll()).logs[job_id].size == piece.size
    kube_lab.say(eyes.namespace, "talks", "more")
    assert (await eyes.poll()).logs[job_id].size > piece.size


@pytest.mark.lab
async def test_a_log_followed_before_a_restart_of_the_daemon_does_not_look_like_another_one(
    kube_lab: KubeLab, eyes: Eyes, eyes_of: MakeEyes
) -> None:
    """FIND-3: a size below what was read already would mean that the log was truncated."""
    path, job_id = ran(kube_lab, eyes), eyes.id("pod", "talks")
    kube_lab.say(eyes.namespace, "talks", *(f"line {n}" for n in range(100)))
    piece = await text_of(eyes.cluster, path)
    again = eyes_of()
    again.watch = Watch(logs={job_id: path})

    assert (await again.poll()).logs[job_id].size == piece.size
    again.watch = Watch(logs={job_id: path})
    kube_lab.say(eyes.namespace, "talks", "more")
    assert (await again.poll()).logs[job_id].size == piece.size + len("more\n")


@pytest.mark.lab
async def test_at_most_so_many_logs_are_looked_at_in_one_poll(kube_lab: KubeLab, eyes_of: MakeEyes) -> None:
    """POLL-6."""
    eyes = eyes_of(log_looks=2)
    for name in ("a", "b", "c"):
        ran(kube_lab, eyes, name)

    assert len((await eyes.poll()).logs) == 2


# -- what the real server cannot be brought to say ---------------------------------------------------------------------


@pytest.fixture
def odd(tmp_path: Path) -> Iterator[OddServer]:
    server = OddServer(tmp_path)
    running = {"name": "main", "state": {"running": {"startedAt": "2026-07-01T12:00:00Z"}}}
    thing = {
        "metadata": {"name": "talks", "namespace": "train", "uid": "u-1", "creationTimestamp": "2026-07-01T12:00:00Z"},
        "spec": {"nodeName": "node-1", "containers": [{"name": "main"}]},
        "status": {"phase": "Running", "containerStatuses": [running]},
    }
    server.answers[POD] = lambda asked: asked.json(200, thing)
    server.list_of("Pod", "/api/v1/namespaces/train/pods", [thing])
    yield server
    server.end()


POD = "/api/v1/namespaces/train/pods/talks"
LOG = f"{POD}/log"
PATH = "pod/train/talks/main"


def cluster_of(odd: OddServer) -> KubernetesCluster:
    return KubernetesCluster("east", KubernetesSettings(kubeconfig=odd.kubeconfig(), request_timeout_s=3))


@pytest.mark.parametrize(
    "text",
    [
        b'failed to try resolving symlinks in path "/var/log/pods/x/main/0.log": lstat /var/log/pods/x: no such file or directory',
        b"unable to retrieve container logs for containerd://0123456789abcdef",
        b"rpc error: code = NotFound desc = an error occurred when try to find container",
        b"<html>502 Bad Gateway</html>\n",
    ],
)
async def test_an_error_in_the_stream_is_no_log_text_and_is_asked_for_once_more(odd: OddServer, text: bytes) -> None:
    """FIND-4."""
    odd.answers[LOG] = lambda asked: asked.say(200, text, "text/plain")
    cluster = cluster_of(odd)

    piece = await read(cluster, PATH)
    reading = await cluster.poll(Watch(), NOW)

    assert isinstance(piece, LogUnread)
    assert text.decode().strip()[:40] in piece.reason
    assert sum(path.startswith(LOG) for path in odd.asked) == 3
    assert reading.logs["train/pod/talks"].state is LogState.UNREAD  # type: ignore[union-attr]
    await cluster.close()


async def test_an_error_after_the_text_ends_the_text(odd: OddServer) -> None:
    lines = b"2026-07-01T12:00:00.000000001Z step 1\n2026-07-01T12:00:01.000000001Z step 2\nunexpected stream type\n"
    odd.answers[LOG] = lambda asked: asked.say(200, lines, "text/plain")
    cluster = cluster_of(odd)

    assert (await text_of(cluster, PATH)).data == b"step 1\nstep 2\n"
    await cluster.close()


@pytest.mark.parametrize("status", [400, 401, 403, 404, 429, 500, 503])
async def test_a_refused_log_is_unread_with_the_reason(odd: OddServer, status: int) -> None:
    """FIND-4."""
    odd.answers[LOG] = lambda asked: asked.status(status, "Odd", "the kubelet said so", Retry_After="600")
    cluster = cluster_of(odd)

    piece = await read(cluster, PATH)

    assert isinstance(piece, LogUnread)
    assert "the kubelet said so" in piece.reason or "its log with it" in piece.reason
    await cluster.close()


async def test_a_log_that_was_rotated_away_is_a_gap_that_is_told(odd: OddServer) -> None:
    """FIND-3."""
    cluster = cluster_of(odd)
    odd.answers[LOG] = lambda asked: asked.say(200, b"2026-07-01T12:00:00.000000001Z step 1\n", "text/plain")
    first = await text_of(cluster, PATH)
    odd.answers[LOG] = lambda asked: asked.say(200, b"2026-07-01T13:00:00.000000001Z step 900\n", "text/plain")

    resumed = await text_of(cluster, PATH, len(first.data), bookmark=first.bookmark)

    assert (resumed.data, resumed.lines_skipped) == (b"step 900\n", None)
    await cluster.close()


async def test_a_log_longer_than_one_answer_is_read_on_until_it_is_whole(odd: OddServer) -> None:
    """The server stops in the middle of a line where the bound that it was given is reached."""
    stamped = [
        f"2026-07-01T12:{n // 60:02}:{n % 60:02}.{k:09}Z {'x' * 10_000} {n} {k}\n".encode()
        for n in range(600)
        for k in range(4)
    ]
    whole = b"".join(line.partition(b" ")[2] for line in stamped)

    def log(asked: Asked) -> None:
        query = {key: values[0] for key, values in parse_qs(urlsplit(asked.path).query).items()}
        since = query.get("sinceTime", "").encode()[:19]
        asked.say(
            200, b"".join(line for line in stamped if line[:19] >= since)[: int(query["limitBytes"])], "text/plain"
        )

    odd.answers[LOG] = log
    cluster = cluster_of(odd)

    piece = await text_of(cluster, PATH, 0, 10**8)

    assert len(whole) > 2 * 10**7
    assert piece.data == whole
    await cluster.close()


# -- paths and bookmarks -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path", ["", "pod", "pod/a/b", "pod/a/../c", "pod/a/b/c/d", "/var/log/messages", "pod//b/c", "pod/a/b/c/"]
)
async def test_what_is_no_path_of_a_pods_log_is_unread(odd: OddServer, path: str) -> None:
    cluster = cluster_of(odd)

    assert isinstance(await read(cluster, path), LogUnread)
    assert odd.asked == []
    await cluster.close()


@given(st.text(max_size=40))
def test_any_text_may_come_as_a_path_or_a_bookmark(text: str) -> None:
    assert parse_path(text) is None or text.startswith("pod/")
    assert Bookmark.parse(text) is None


@given(st.builds(Bookmark, st.integers(0), st.uuids().map(str), *[st.integers(0)] * 5))
def test_a_bookmark_survives_being_written_down(mark: Bookmark) -> None:
    assert Bookmark.parse(str(mark)) == mark
