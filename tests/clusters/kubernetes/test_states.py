"""What a poll says of jobs in every state that the real control plane can bring them to."""

from __future__ import annotations

from typing import Any

import pytest

from supervisor.model.job import Burn, JobState, TaskCounts
from tests.clusters.kubernetes.conftest import Eyes, MakeEyes
from tests.kube_lab import KubeLab, job, pod

pytestmark = pytest.mark.lab


async def settled(lab: KubeLab, eyes: Eyes, thing: dict[str, Any], holds: Any) -> None:
    lab.create(eyes.namespace, thing)
    name = thing["metadata"]["name"]
    lab.until(f"{name} has settled", lambda: holds(lab.pod_status(eyes.namespace, name)))


# -- waiting -----------------------------------------------------------------------------------------------------------


async def test_a_gated_pod_waits_and_names_its_gate(kube_lab: KubeLab, eyes: Eyes) -> None:
    """LIVE-6."""
    gated = pod("gated", schedulingGates=[{"name": "kueue.x-k8s.io/admission"}])
    await settled(kube_lab, eyes, gated, lambda status: status.get("conditions"))

    seen = await eyes.see("pod", "gated")

    assert (seen.state, seen.scheduler_state) == (JobState.PENDING, "SchedulingGated")
    assert seen.reason == "held by kueue.x-k8s.io/admission"
    assert (seen.started_at, seen.nodes) == (None, ())


async def test_a_gang_of_which_every_pod_is_gated_is_not_running_whatever_its_record_counts(
    kube_lab: KubeLab, eyes: Eyes
) -> None:
    """POLL-5, LIVE-6: the Job's status says that two pods are active."""
    gated = pod("x", schedulingGates=[{"name": "kueue.x-k8s.io/admission"}])
    kube_lab.create(eyes.namespace, job("gang", gated, parallelism=2, completions=2))
    path = f"/apis/batch/v1/namespaces/{eyes.namespace}/jobs/gang"
    kube_lab.until("both are active", lambda: kube_lab.call("GET", path)[1].get("status", {}).get("active") == 2)

    seen = await eyes.see("job", "gang")

    assert (seen.state, seen.scheduler_state) == (JobState.PENDING, "SchedulingGated")
    assert seen.tasks == TaskCounts(2, pending=2)


async def test_a_pod_that_fits_nowhere_says_why_in_the_schedulers_words(kube_lab: KubeLab, eyes: Eyes) -> None:
    """LIVE-7."""
    await settled(kube_lab, eyes, pod("big", gpus=99), lambda status: status.get("conditions"))

    seen = await eyes.see("pod", "big")

    assert (seen.state, seen.scheduler_state) == (JobState.PENDING, "Unschedulable")
    assert seen.reason is not None
    assert "2 Insufficient nvidia.com/gpu" in seen.reason


async def test_a_suspended_job_is_suspended(kube_lab: KubeLab, eyes: Eyes) -> None:
    kube_lab.create(eyes.namespace, job("parked", pod("x", "running"), suspend=True))

    seen = await eyes.see("job", "parked")

    assert (seen.state, seen.scheduler_state) == (JobState.SUSPENDED, "Suspended")


@pytest.mark.parametrize(
    ("stage", "word"),
    [
        ("creating", "ContainerCreating"),
        ("errimagepull", "ErrImagePull"),
        ("imagepullbackoff", "ImagePullBackOff"),
        ("configerror", "CreateContainerConfigError"),
    ],
)
async def test_a_placed_pod_that_does_not_run_yet_is_starting_and_says_what_it_waits_for(
    kube_lab: KubeLab, eyes: Eyes, stage: str, word: str
) -> None:
    """LIVE-6."""
    await settled(kube_lab, eyes, pod("starts", stage), lambda status: status.get("containerStatuses"))

    seen = await eyes.see("pod", "starts")

    assert (seen.state, seen.scheduler_state) == (JobState.STARTING, word)
    assert seen.reason
    assert len(seen.nodes) == 1


# -- running -----------------------------------------------------------------------------------------------------------


async def test_a_running_gang_is_one_job_with_its_pods_counted_and_its_nodes_named(
    kube_lab: KubeLab, eyes: Eyes
) -> None:
    kube_lab.create(eyes.namespace, job("gang", pod("x", "running", gpus=4), parallelism=3, completions=3))
    await settled_gang(kube_lab, eyes, "gang", 3)

    seen = await eyes.see("job", "gang")

    assert seen.state is JobState.RUNNING
    assert seen.tasks == TaskCounts(3, running=3)
    assert seen.nodes == ("lab-node-1", "lab-node-2")
    assert (seen.attempt, seen.burn) == (1, Burn(0, 6))
    assert seen.details is not None
    assert seen.details.log_path is not None
    assert seen.details.log_path.startswith(f"pod/{eyes.namespace}/gang-")


async def settled_gang(lab: KubeLab, eyes: Eyes, name: str, running: int) -> None:
    path = f"/api/v1/namespaces/{eyes.namespace}/pods?labelSelector=job-name={name}"

    def count() -> bool:
        pods = lab.call("GET", path)[1]["items"]
        return sum(one["status"].get("phase") == "Running" for one in pods) >= running

    lab.until(f"{running} pods of {name} run", count)


async def test_a_gang_that_is_partly_placed_says_how_many_run_and_why_the_others_wait(
    kube_lab: KubeLab, eyes: Eyes
) -> None:
    """LIVE-7."""
    kube_lab.create(eyes.namespace, job("gang", pod("x", "running", gpus=8), parallelism=3, completions=3))
    await settled_gang(kube_lab, eyes, "gang", 2)

    seen = await eyes.see("job", "gang")

    assert (seen.state, seen.tasks) == (JobState.RUNNING, TaskCounts(3, running=2, pending=1))
    assert seen.reason is not None
    assert "2 of 3 pods run" in seen.reason
    assert "Unschedulable" in seen.reason


# -- attempts ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stage", "state", "exit_code"), [("crashloop", JobState.FAILED, 1), ("oomcrashloop", JobState.OUT_OF_MEMORY, 137)]
)
async def test_a_crash_loop_is_a_new_attempt_and_tells_how_the_one_before_ended(
    kube_lab: KubeLab, eyes: Eyes, stage: str, state: JobState, exit_code: int
) -> None:
    thing = pod("loops", "running", stage, restartPolicy="Always")
    await settled(kube_lab, eyes, thing, lambda status: "waiting" in str(status.get("containerStatuses")))

    reading = await eyes.poll()

    (seen,) = [one for one in reading.changed if one.name == "loops"]
    assert (seen.state, seen.scheduler_state) == (JobState.STARTING, "CrashLoopBackOff")
    assert (seen.attempt, seen.burn) == (2, Burn(1))
    (before,) = [one for one in reading.ended if one.name == "loops"]
    assert (before.state, before.exit_code, before.attempt, before.final) == (state, exit_code, 1, False)


async def test_a_job_that_tries_again_counts_what_it_burned(kube_lab: KubeLab, eyes: Eyes) -> None:
    kube_lab.create(eyes.namespace, job("retries", pod("x", "running", {"failed": 7}), backoffLimit=3))
    path = f"/apis/batch/v1/namespaces/{eyes.namespace}/jobs/retries"
    kube_lab.until("one has failed", lambda: kube_lab.call("GET", path)[1].get("status", {}).get("failed", 0) >= 1)

    reading = await eyes.poll()

    (seen,) = [one for one in reading.changed if one.name == "retries"]
    assert seen.state.live
    assert seen.attempt is not None
    assert seen.attempt >= 2
    assert seen.burn is not None
    assert (seen.burn.burned, seen.burn.allowed) == (seen.attempt - 1, 3)
    assert {(one.state, one.exit_code, one.final) for one in reading.ended} == {(JobState.FAILED, 7, False)}


async def test_a_job_whose_pod_was_preempted_is_in_its_second_attempt(kube_lab: KubeLab, eyes: Eyes) -> None:
    """The first pod is gone with its record: events tell what became of it."""
    high = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}, "value": 1000}
    kube_lab.call("POST", "/apis/scheduling.k8s.io/v1/priorityclasses", high)
    # Both nodes are full: one by the victim, one by another that may not be taken.
    kube_lab.create(eyes.namespace, pod("rock", "running", gpus=8, priorityClassName="high"))
    kube_lab.until_phase(eyes.namespace, "rock", "Running")
    kube_lab.create(eyes.namespace, job("victim", pod("x", "running", gpus=8)))
    await settled_gang(kube_lab, eyes, "victim", 1)
    first = await eyes.see("job", "victim")
    await _seconds(4)
    kube_lab.create(eyes.namespace, pod("winner", "running", gpus=8, priorityClassName="high"))
    kube_lab.until_phase(eyes.namespace, "winner", "Running")
    path = f"/api/v1/namespaces/{eyes.namespace}/pods?labelSelector=job-name=victim"
    kube_lab.until("its second pod waits alone", lambda: _phases(kube_lab, path) == ["Pending"])

    reading = await eyes.poll()

    (seen,) = [one for one in reading.changed if one.name == "victim"]
    assert (first.attempt, seen.attempt, seen.key) == (1, 2, first.key)
    assert (seen.burn, seen.preemptions) == (Burn(0, 6), Burn(1))
    assert (seen.state, seen.scheduler_state) == (JobState.PENDING, "Unschedulable")
    (before,) = [one for one in reading.ended if one.name == "victim"]
    assert (before.state, before.attempt, before.final) == (JobState.PREEMPTED, 1, False)
    assert (before.started_at, before.nodes) == (first.started_at, first.nodes), (
        "its own, not those of the next attempt"
    )
    assert (before.burn, before.preemptions) == (None, None)


def _phases(lab: KubeLab, path: str) -> list[str]:
    return [one["status"].get("phase") for one in lab.call("GET", path)[1]["items"]]


async def _seconds(count: float) -> None:
    """Kubernetes counts in whole seconds; what lies closer together cannot be told apart by its own times."""
    import asyncio

    await asyncio.sleep(count)


# -- ends --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stages", "state", "word", "exit_code", "signal"),
    [
        (["succeeded"], JobState.COMPLETED, "Completed", 0, None),
        ([{"failed": 3}], JobState.FAILED, "Error", 3, None),
        (["oomkilled"], JobState.OUT_OF_MEMORY, "OOMKilled", 137, 9),
        (["evicted"], JobState.PREEMPTED, "Evicted", 137, 9),
        (["shutdown"], JobState.NODE_FAILED, "Terminated", 143, 15),
        (["deadline"], JobState.TIMED_OUT, "DeadlineExceeded", 137, 9),
        ([{"failed": 137}], JobState.FAILED, "Error", 137, 9),
    ],
)
async def test_each_end_of_a_pod_is_told_from_the_others(
    kube_lab: KubeLab, eyes: Eyes, stages: list[Any], state: JobState, word: str, exit_code: int, signal: int | None
) -> None:
    """FAIL-1; 137 alone is neither an out-of-memory kill nor a preemption."""
    kube_lab.create(eyes.namespace, pod("ends", "running", *stages))
    kube_lab.until_phase(eyes.namespace, "ends", "Succeeded", "Failed")

    seen = await eyes.see("pod", "ends", ended=True)

    assert (seen.state, seen.scheduler_state, seen.exit_code, seen.signal) == (state, word, exit_code, signal)
    assert seen.ended_at is not None
    assert state is JobState.COMPLETED or seen.reason


async def test_a_job_that_has_failed_for_good_names_its_record_and_its_cause(kube_lab: KubeLab, eyes: Eyes) -> None:
    kube_lab.create(eyes.namespace, job("fails", pod("x", "running", "oomkilled"), backoffLimit=0))
    path = f"/apis/batch/v1/namespaces/{eyes.namespace}/jobs/fails"
    kube_lab.until("it has failed", lambda: "BackoffLimitExceeded" in str(kube_lab.call("GET", path)[1].get("status")))

    seen = await eyes.see("job", "fails", ended=True)

    assert (seen.state, seen.exit_code, seen.attempt) == (JobState.OUT_OF_MEMORY, 137, 1)
    assert seen.scheduler_state == "BackoffLimitExceeded"
    assert seen.reason is not None
    assert "OOMKilled" in seen.reason


async def test_a_job_that_ran_out_of_its_own_time_has_timed_out(kube_lab: KubeLab, eyes: Eyes) -> None:
    kube_lab.create(eyes.namespace, job("slow", pod("x", "running"), activeDeadlineSeconds=1))
    path = f"/apis/batch/v1/namespaces/{eyes.namespace}/jobs/slow"
    kube_lab.until("it has failed", lambda: "DeadlineExceeded" in str(kube_lab.call("GET", path)[1].get("status")))

    seen = await eyes.see("job", "slow", ended=True)

    assert (seen.state, seen.scheduler_state) == (JobState.TIMED_OUT, "DeadlineExceeded")
    assert seen.time_limit is not None
    assert seen.time_limit.total_seconds() == 1


async def test_an_ended_job_is_told_once_and_not_again(kube_lab: KubeLab, eyes: Eyes) -> None:
    """POLL-7."""
    kube_lab.create(eyes.namespace, pod("ends", "running", "succeeded"))
    kube_lab.until_phase(eyes.namespace, "ends", "Succeeded")
    assert [one.name for one in (await eyes.poll()).ended] == ["ends"]
    since = eyes.watch.ended_since
    assert since is not None
    from dataclasses import replace
    from datetime import timedelta

    eyes.watch = replace(eyes.watch, ended_since=since + timedelta(minutes=10))

    assert list((await eyes.poll()).ended) == []


# -- deletion ----------------------------------------------------------------------------------------------------------


async def test_a_pod_that_will_not_go_is_stuck_terminating_and_not_ended(kube_lab: KubeLab, eyes_of: MakeEyes) -> None:
    eyes = eyes_of(terminating_limit_s=0.5)
    stuck = pod("stuck", "running", terminationGracePeriodSeconds=1)
    stuck["metadata"]["annotations"]["kube-lab/stop"] = "never"
    kube_lab.create(eyes.namespace, stuck)
    kube_lab.until_phase(eyes.namespace, "stuck", "Running")
    kube_lab.must("DELETE", f"/api/v1/namespaces/{eyes.namespace}/pods/stuck")
    await _seconds(2)

    seen = await eyes.see("pod", "stuck")

    assert (seen.state, seen.scheduler_state) == (JobState.COMPLETING, "Terminating")
    assert seen.reason is not None
    assert "stuck Terminating since" in seen.reason


async def test_a_pod_whose_deletion_was_seen_and_that_is_gone_was_cancelled(kube_lab: KubeLab, eyes: Eyes) -> None:
    slow = pod("leaves", "running", terminationGracePeriodSeconds=30)
    slow["metadata"]["annotations"]["kube-lab/stop"] = "2"
    kube_lab.create(eyes.namespace, slow)
    kube_lab.until_phase(eyes.namespace, "leaves", "Running")
    kube_lab.must("DELETE", f"/api/v1/namespaces/{eyes.namespace}/pods/leaves")
    seen = await eyes.see("pod", "leaves")
    assert (seen.state, seen.scheduler_state) == (JobState.COMPLETING, "Terminating")
    kube_lab.until("it is gone", lambda: kube_lab.pod_status(eyes.namespace, "leaves") in ({}, "Failure"))

    reading = await eyes.poll()

    assert [(one.key, one.state, one.final) for one in reading.ended] == [(seen.key, JobState.CANCELLED, True)]


async def test_a_pod_that_is_gone_without_a_trace_is_absent_and_nothing_is_said_of_its_end(
    kube_lab: KubeLab, eyes: Eyes
) -> None:
    """POLL-5: it is the rule for absence that decides."""
    kube_lab.create(eyes.namespace, pod("goes", schedulingGates=[{"name": "example.com/gate"}]))
    seen = await eyes.see("pod", "goes")
    kube_lab.must("DELETE", f"/api/v1/namespaces/{eyes.namespace}/pods/goes", {"gracePeriodSeconds": 0})

    reading = await eyes.poll()

    assert seen.key.id not in reading.lines
    assert (list(reading.ended), reading.ends_read, reading.problems) == ([], True, ())


async def test_a_job_made_again_under_its_name_is_another_job_and_the_first_one_has_ended(
    kube_lab: KubeLab, eyes: Eyes
) -> None:
    """POLL-11."""
    kube_lab.create(eyes.namespace, pod("twin", "running"))
    kube_lab.until_phase(eyes.namespace, "twin", "Running")
    await eyes.poll()
    (first,) = eyes.live.values()
    path = f"/api/v1/namespaces/{eyes.namespace}/pods/twin"
    kube_lab.must("DELETE", path)
    kube_lab.until("it is gone", lambda: kube_lab.call("GET", path)[0] == 404, timeout=60)
    kube_lab.create(eyes.namespace, pod("twin", "running"))

    reading = await eyes.poll()

    (second,) = reading.changed
    assert first.id == second.key.id
    assert first.incarnation != second.key.incarnation
    assert [(one.key, one.state) for one in reading.ended] == [(first, JobState.CANCELLED)]


async def test_services_are_no_jobs(kube_lab: KubeLab, eyes: Eyes) -> None:
    template = pod("x", "running", labels={"app": "web"})
    template["spec"]["restartPolicy"] = "Always"
    inner = {
        "metadata": {key: template["metadata"][key] for key in ("labels", "annotations")},
        "spec": template["spec"],
    }
    spec = {"replicas": 1, "selector": {"matchLabels": {"app": "web"}}, "template": inner}
    kube_lab.create(
        eyes.namespace, {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": spec}
    )
    path = f"/api/v1/namespaces/{eyes.namespace}/pods"
    kube_lab.until("its pod runs", lambda: _phases(kube_lab, path) == ["Running"])

    reading = await eyes.poll()

    assert reading.lines == {}


@pytest.mark.parametrize("started_anew", [False, True])
async def test_a_job_that_is_gone_with_its_pods_stopped_was_deleted(
    kube_lab: KubeLab, eyes: Eyes, eyes_of: MakeEyes, started_anew: bool
) -> None:
    """POLL-5: its own events say nothing; those of its pod do, to a supervisor that was started anew too."""
    kube_lab.create(eyes.namespace, job("leaves", pod("x", "running")))
    await settled_gang(kube_lab, eyes, "leaves", 1)
    seen = await eyes.see("job", "leaves")
    path = f"/apis/batch/v1/namespaces/{eyes.namespace}/jobs/leaves"
    kube_lab.must("DELETE", path, {"propagationPolicy": "Foreground"})
    kube_lab.until("it is gone", lambda: kube_lab.call("GET", path)[0] == 404, timeout=60)
    last = eyes_of() if started_anew else eyes
    last.watch = eyes.watch

    (ended,) = (await last.poll()).ended

    assert (ended.key, ended.state, ended.scheduler_state) == (seen.key, JobState.CANCELLED, "Deleted")
    assert ended.reason is not None
    assert "event Killing: Stopping container main" in ended.reason
    assert (ended.started_at, ended.nodes) == (seen.started_at, seen.nodes)


async def test_a_job_that_is_gone_before_any_pod_of_it_ran_is_absent_and_nothing_is_said_of_its_end(
    kube_lab: KubeLab, eyes: Eyes
) -> None:
    """POLL-5: no pod was stopped, so nothing shows how it ended."""
    kube_lab.create(eyes.namespace, job("parked", pod("x", schedulingGates=[{"name": "example.com/gate"}])))
    path = f"/api/v1/namespaces/{eyes.namespace}/pods?labelSelector=job-name=parked"
    kube_lab.until("its pod waits", lambda: _phases(kube_lab, path) == ["Pending"])
    seen = await eyes.see("job", "parked")
    record = f"/apis/batch/v1/namespaces/{eyes.namespace}/jobs/parked"
    kube_lab.must("DELETE", record, {"propagationPolicy": "Foreground"})
    kube_lab.until("it is gone", lambda: kube_lab.call("GET", record)[0] == 404, timeout=60)

    reading = await eyes.poll()

    assert (list(reading.ended), reading.gone) == ([], {seen.key.id})
