"""Pods read by themselves: records as real servers give them, and whatever else may come."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.clusters.kubernetes_jobs import Listing, Owned, fold
from supervisor.clusters.kubernetes_kinds import BY_WORD
from supervisor.clusters.kubernetes_objects import plain
from supervisor.clusters.kubernetes_states import read_job
from supervisor.clusters.owners import Job
from supervisor.clusters.pod_objects import Pod, decode_pods
from supervisor.clusters.pods import PodRead, read_pod
from supervisor.model.job import JobState, Observation, TaskCounts

NOW = datetime(2026, 7, 1, 12, 0, tzinfo=UTC)
LIMIT = timedelta(minutes=5)
Json = dict[str, Any]


def some_pod(status: Json, spec: Json | None = None, **meta: Any) -> Pod:
    thing = {
        "metadata": {
            "name": "a",
            "namespace": "train",
            "uid": "u-1",
            "creationTimestamp": "2026-07-01T11:00:00Z",
            **meta,
        },
        "spec": {"containers": [{"name": "main"}], "nodeName": "node-1", **(spec or {})},
        "status": status,
    }
    return msgspec.json.decode(json.dumps(thing), type=Pod)


def test_a_page_of_pods_keeps_nothing_of_the_memory_that_it_was_read_from() -> None:
    """The next page is read into the same memory; what was decoded, now or later, must not change with it."""
    waits = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/2 nodes are available"}
    meta = {"namespace": "train", "creationTimestamp": "2026-07-01T11:00:00Z"}
    items = [
        {"metadata": meta | {"name": name, "uid": f"u-{name}", **more}, "spec": {}, "status": status}
        for name, status, more in (
            ("waits", {"phase": "Pending", "conditions": [waits]}, {}),
            ("stays", {"phase": "Running", "conditions": [waits]}, {}),
            ("leaves", {"phase": "Running", "conditions": [waits]}, {"deletionTimestamp": "2026-07-01T11:00:00Z"}),
            ("silent", {"phase": "Failed", "conditions": None}, {}),
        )
    ]
    memory = bytearray(json.dumps({"kind": "PodList", "metadata": {"continue": "more"}, "items": items}).encode())

    page = decode_pods(memoryview(memory))
    memory[:] = b"#" * len(memory)

    assert page.metadata.resume == "more"
    reasons = {pod.metadata.name: [one.reason for one in pod.status.conditions] for pod in page.items or ()}
    # Of a pod that runs and stays no condition is used, and none is kept.
    assert reasons == {"waits": ["Unschedulable"], "stays": [], "leaves": ["Unschedulable"], "silent": []}


def read(status: Json, spec: Json | None = None, **meta: Any) -> PodRead:
    return read_pod(some_pod(status, spec, **meta), NOW, LIMIT)


def ended(code: int, reason: str = "Error", **more: Any) -> Json:
    end = {"exitCode": code, "reason": reason, "finishedAt": "2026-07-01T11:30:00Z"}
    return {"phase": "Failed", "containerStatuses": [{"name": "main", "state": {"terminated": end}}], **more}


def disrupted(reason: str, kind: str = "DisruptionTarget") -> Json:
    return {"conditions": [{"type": kind, "status": "True", "reason": reason, "message": "said so"}]}


@pytest.mark.parametrize(
    ("status", "state", "word"),
    [
        (ended(137), JobState.FAILED, "Error"),
        (ended(137, "OOMKilled"), JobState.OUT_OF_MEMORY, "OOMKilled"),
        (ended(137, **disrupted("PreemptionByScheduler")), JobState.PREEMPTED, "Preempted"),
        (ended(137, **disrupted("EvictionByEvictionAPI")), JobState.PREEMPTED, "Preempted"),
        (
            ended(137, **disrupted("WorkloadEvictedDueToPreempted", "TerminationTarget")),
            JobState.PREEMPTED,
            "Preempted",
        ),
        (ended(137, **disrupted("DeletionByTaintManager")), JobState.NODE_FAILED, "DeletionByTaintManager"),
        (ended(137, **disrupted("DeletionByPodGC")), JobState.NODE_FAILED, "DeletionByPodGC"),
        (
            {"phase": "Failed", "reason": "NodeLost", "message": "Node n1 which was running pod a is unresponsive"},
            JobState.NODE_FAILED,
            "NodeLost",
        ),
        (
            {"phase": "Failed", "reason": "UnexpectedAdmissionError", "message": "no healthy devices present"},
            JobState.NODE_FAILED,
            "UnexpectedAdmissionError",
        ),
        (
            {"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: memory."},
            JobState.PREEMPTED,
            "Evicted",
        ),
        (
            {
                "phase": "Failed",
                "reason": "Evicted",
                "message": "Pod ephemeral local storage usage exceeds the total limit",
            },
            JobState.FAILED,
            "Evicted",
        ),
        (
            {"phase": "Failed", "reason": "Preempting", "message": "Preempted in order to admit critical pod"},
            JobState.PREEMPTED,
            "Preempted",
        ),
        ({"phase": "Unknown", "reason": "NodeLost"}, JobState.UNKNOWN, "Unknown"),
        ({"phase": "Paused"}, JobState.UNKNOWN, "Paused"),
    ],
)
def test_what_the_cluster_did_is_told_from_what_the_program_did(status: Json, state: JobState, word: str) -> None:
    seen = read(status)

    assert (seen.state, seen.word) == (state, word)
    assert seen.reason


def test_an_out_of_memory_kill_during_a_disruption_is_an_out_of_memory_kill() -> None:
    assert read(ended(137, "OOMKilled", **disrupted("TerminationByKubelet"))).state is JobState.OUT_OF_MEMORY


def test_a_plain_137_says_that_nothing_on_record_explains_it() -> None:
    """FAIL-2: nothing is guessed."""
    assert read(ended(137)).reason == (
        "Error (exit code 137); killed by SIGKILL, with no OOMKilled and no disruption on record"
    )


def test_a_pod_on_a_lost_node_is_going_and_has_not_ended() -> None:
    """Its kubelet cannot say how it ended: doubt moves nothing."""
    running = {"name": "main", "state": {"running": {"startedAt": "2026-07-01T11:00:00Z"}}}
    status = {"phase": "Running", "containerStatuses": [running], **disrupted("DeletionByTaintManager")}

    seen = read(status, deletionTimestamp="2026-07-01T11:50:00Z")

    assert (seen.state, seen.word) == (JobState.COMPLETING, "Terminating")
    assert seen.reason is not None
    assert seen.reason.startswith("its node does not answer")
    assert "stuck Terminating since 2026-07-01T11:50:00Z" in seen.reason


def test_a_deletion_within_its_grace_period_is_not_stuck() -> None:
    seen = read({"phase": "Running"}, deletionTimestamp="2026-07-01T12:00:30Z")

    assert (seen.word, seen.reason) == ("Terminating", "it was deleted")


@pytest.mark.parametrize(
    ("inits", "word"),
    [
        ([{"name": "fetch", "state": {"running": {}}}], "Init:0/1"),
        ([{"name": "fetch", "state": {"waiting": {"reason": "CrashLoopBackOff"}}}], "Init:CrashLoopBackOff"),
        ([{"name": "fetch", "state": {"terminated": {"exitCode": 22, "reason": "Error"}}}], "Init:Error"),
        (
            [{"name": "a", "state": {"terminated": {"exitCode": 0}}}, {"name": "b", "state": {"running": {}}}],
            "Init:1/2",
        ),
    ],
)
def test_what_an_init_container_does_is_said_as_kubectl_says_it(inits: list[Json], word: str) -> None:
    waits = {"name": "main", "state": {"waiting": {"reason": "PodInitializing"}}}
    seen = read({"phase": "Pending", "initContainerStatuses": inits, "containerStatuses": [waits]})

    assert (seen.state, seen.word) == (JobState.STARTING, word)
    assert seen.reason is not None
    assert "init container" in seen.reason


def test_the_main_container_is_read_by_its_name_and_never_by_its_place() -> None:
    spec = {"containers": [{"name": "log-shipper"}, {"name": "task"}]}
    statuses = [
        {"name": "log-shipper", "state": {"running": {}}},
        {"name": "task", "state": {"terminated": {"exitCode": 1, "reason": "Error"}}},
    ]

    seen = read({"phase": "Running", "containerStatuses": statuses}, spec)

    assert (seen.container, seen.state, seen.exit_code) == ("task", JobState.COMPLETING, 1)
    assert seen.reason is not None
    assert "still running beside it: log-shipper" in seen.reason


def test_the_annotated_container_is_the_main_one() -> None:
    note = {"kubectl.kubernetes.io/default-container": "second"}
    spec = {"containers": [{"name": "main"}, {"name": "second"}]}

    assert read({"phase": "Running"}, spec, annotations=note).container == "second"


def test_nothing_that_a_record_says_can_steer_a_terminal() -> None:
    message = "\x1b]0;owned\x07\x1b[2J" + "x" * 10_000 + "\r\n\u202e"
    waits = {"name": "main", "state": {"waiting": {"reason": "\x1b[31mOdd", "message": message}}}

    seen = read({"phase": "Pending", "containerStatuses": [waits]})

    assert seen.reason is not None
    assert all(letter.isprintable() for letter in seen.reason + seen.word)
    assert len(seen.reason) < 1000


@given(st.text(), st.integers(2, 100))
def test_plain_text_is_one_short_printable_line(text: str, most: int) -> None:
    line = plain(text, most)

    assert len(line) <= most
    assert all(letter.isprintable() for letter in line)


# -- records without pods ----------------------------------------------------------------------------------------------


def some_job(status: Json, made: str = "2026-07-01T11:00:00Z") -> Listing:
    thing = {
        "metadata": {"name": "gang", "namespace": "train", "uid": "u-2", "creationTimestamp": made},
        "spec": {"parallelism": 4, "completions": 4, "backoffLimit": 2},
        "status": {"startTime": made, **status},
    }
    return Listing(owned=[Owned(BY_WORD["job"], msgspec.json.decode(json.dumps(thing), type=Job))])


def only(listing: Listing) -> Observation:
    (job,) = fold("east", listing, {}).values()
    return read_job(job, NOW, LIMIT).observation


def test_a_record_that_counts_pods_which_are_not_there_claims_to_run_with_none() -> None:
    """POLL-5: the silent wedge; its tasks neither run nor wait."""
    seen = only(some_job({"active": 4}))

    assert (seen.state, seen.tasks) == (JobState.RUNNING, TaskCounts(4))
    assert seen.reason == "its record counts 4 active pods, and none is there"


def test_a_record_made_a_moment_ago_may_be_ahead_of_its_pods() -> None:
    assert only(some_job({"active": 4}, "2026-07-01T11:59:30Z")).state is JobState.STARTING


def test_a_record_without_pods_waits() -> None:
    seen = only(some_job({}))

    assert (seen.state, seen.reason, seen.tasks) == (JobState.PENDING, "it has no pods yet", TaskCounts(4, pending=4))


def test_a_record_that_was_deleted_and_does_not_go_names_what_holds_it() -> None:
    listing = some_job({"active": 4})
    meta = listing.owned[0].record.metadata
    gone = msgspec.structs.replace(
        meta, deletion_timestamp=NOW - timedelta(hours=1), finalizers=("foregroundDeletion",)
    )
    record = msgspec.structs.replace(listing.owned[0].record, metadata=gone)

    seen = only(Listing(owned=[Owned(BY_WORD["job"], record)]))

    assert (seen.state, seen.scheduler_state) == (JobState.COMPLETING, "Terminating")
    assert seen.reason == "it was deleted; stuck Terminating since 2026-07-01T11:00:00Z, held by foregroundDeletion"


# -- whatever comes ----------------------------------------------------------------------------------------------------

_words = st.sampled_from(
    ["", "Error", "OOMKilled", "Completed", "Evicted", "NodeLost", "DeadlineExceeded", "CrashLoopBackOff", "\x1b[0m"]
)
_times = st.sampled_from(["2026-07-01T11:00:00Z", "2026-07-01T11:59:59.123456789Z", "2026-07-01T13:00:00+02:00"])
_terminated = st.fixed_dictionaries(
    {"exitCode": st.integers(-1, 300)},
    optional={
        "reason": _words,
        "message": st.text(max_size=20),
        "signal": st.integers(0, 64),
        "finishedAt": _times,
        "startedAt": _times,
    },
)
_state = st.one_of(
    st.just({}),
    st.fixed_dictionaries({"running": st.fixed_dictionaries({}, optional={"startedAt": _times})}),
    st.fixed_dictionaries(
        {"waiting": st.fixed_dictionaries({}, optional={"reason": _words, "message": st.text(max_size=20)})}
    ),
    st.fixed_dictionaries({"terminated": _terminated}),
)
_container = st.fixed_dictionaries(
    {"name": st.sampled_from(["main", "sidecar"]), "state": _state},
    optional={"lastState": _state, "restartCount": st.integers(0, 5), "ready": st.booleans()},
)
_condition = st.fixed_dictionaries(
    {
        "type": st.sampled_from(["PodScheduled", "Ready", "DisruptionTarget", "TerminationTarget", "Odd"]),
        "status": st.sampled_from(["True", "False", "Unknown", "odd"]),
    },
    optional={
        "reason": st.one_of(st.none(), _words),
        "message": st.one_of(st.none(), st.text(max_size=20)),
        "lastTransitionTime": st.one_of(st.none(), _times),
    },
)
_status = st.fixed_dictionaries(
    {},
    optional={
        "phase": st.sampled_from(["Pending", "Running", "Succeeded", "Failed", "Unknown", "Odd"]),
        "reason": _words,
        "message": st.text(max_size=20),
        "startTime": _times,
        "conditions": st.one_of(st.none(), st.lists(_condition, max_size=3)),
        "containerStatuses": st.one_of(st.none(), st.lists(_container, max_size=2)),
        "initContainerStatuses": st.one_of(st.none(), st.lists(_container, max_size=2)),
    },
)
_spec = st.fixed_dictionaries(
    {"containers": st.lists(st.fixed_dictionaries({"name": st.sampled_from(["main", "sidecar"])}), max_size=2)},
    optional={
        "nodeName": st.sampled_from(["", "node-1"]),
        "schedulingGates": st.lists(st.just({"name": "g"}), max_size=1),
    },
)
_meta = st.fixed_dictionaries(
    {"uid": st.uuids().map(str), "name": st.sampled_from(["a", "b"]), "creationTimestamp": _times},
    optional={
        "deletionTimestamp": _times,
        "labels": st.one_of(
            st.none(), st.dictionaries(st.sampled_from(["kueue.x-k8s.io/pod-group-name", "user"]), st.text(max_size=5))
        ),
        "ownerReferences": st.lists(
            st.fixed_dictionaries(
                {
                    "kind": st.sampled_from(["Job", "Odd", "ReplicaSet"]),
                    "name": st.just("o"),
                    "uid": st.just("u"),
                    "apiVersion": st.sampled_from(["batch/v1", "v1"]),
                }
            ),
            max_size=2,
        ),
    },
)


@given(st.lists(st.tuples(_meta, _spec, _status), max_size=4))
def test_any_pods_make_jobs_that_claim_nothing_without_a_record(things: list[tuple[Json, Json, Json]]) -> None:
    """No claim without its quote: only a phase that is an end ends a job."""
    pods = [some_pod(status, spec, **meta) for meta, spec, status in things]

    for job_id, job in fold("east", Listing(pods=pods), {}).items():
        seen = read_job(job, NOW, LIMIT).observation

        assert seen.key.id == job_id
        assert all(letter.isprintable() for letter in f"{seen.scheduler_state}{seen.reason or ''}")
        if seen.state.ended:
            assert seen.tasks is None or seen.tasks.running == 0
            assert any(pod.status.phase in ("Succeeded", "Failed") for pod in job.pods)
        if seen.state is JobState.COMPLETED:
            assert all(pod.status.phase == "Succeeded" for pod in job.pods)
        if seen.state is JobState.RUNNING:
            assert any(pod.status.phase == "Running" for pod in job.pods)
        assert seen.attempt is not None
        assert seen.attempt >= 1


def test_ids_that_could_mean_another_path_are_refused_before_any_question() -> None:
    from supervisor.clusters.kubernetes_jobs import parts_of

    assert parts_of("train/job/a") == ("train", "job", "a")
    assert [parts_of(text) for text in ("", "a", "a/b", "a/b/c/d", "//", "a//c")] == [None] * 6
