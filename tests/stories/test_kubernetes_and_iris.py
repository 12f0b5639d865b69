"""The clusters without a login node, end to end: a real API server and a real iris controller, jobs of all fates in both.

Each tick is a ``supervisord --once`` of its own, which knows nothing but its database; what ``supervisorctl status --json`` and
``show --json`` say after it is held against what was played. Nothing waits for a clock, only for the servers' own conditions.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.iris_lab import IrisLab, start_iris_lab
from tests.kube_lab import KubeLab, job, pod, start_kube_lab

pytestmark = pytest.mark.lab

Json = dict[str, Any]
FOREVER = "while :; do echo step; sleep 0.5; done"
SILENT = "while :; do sleep 1; done"
GATE = [{"name": "kueue.x-k8s.io/admission"}]
BUSY = "couldn't assign flavors to pod set main: insufficient unused quota for nvidia.com/gpu in flavor h100, 8 more needed"
CEILING = (
    "couldn't assign flavors to pod set main: insufficient quota for nvidia.com/gpu in flavor h100, "
    "request > maximum capacity (128 > 64)"
)
LOW = "The node was low on resource: memory. Threshold quantity: 100Mi, available: 80480Ki."
EAST, MARIN = "east", "marin"


class Fleet:
    """One configuration over both labs, and the two programs that a user runs on it."""

    def __init__(self, folder: Path, kube: KubeLab, iris: IrisLab) -> None:
        self.kube, self.iris = kube, iris
        self.namespace, self.user = kube.namespace(), iris.user()
        self.config = folder / "config.toml"
        self.config.write_text(f"""
state_dir = "state"
agent_logs = "agent_logs"
[[cluster]]
name = "{EAST}"
kind = "kubernetes"
kubeconfig = "{kube.kubeconfig}"
context = "viewer"
namespaces = ["{self.namespace}"]
request_timeout_s = 5
poll_timeout_s = 10
[[cluster]]
name = "{MARIN}"
kind = "iris"
url = "{iris.url}"
users = ["{self.user}"]
request_timeout_s = 5
poll_timeout_s = 10
""")

    def run(self, program: str, *words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", f"supervisor.app.{program}", "--config", str(self.config), *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)

    def tick(self, exit_code: int = 0) -> None:
        """One look at both clusters. 0: both were read; 4: one was not."""
        done = self.run("daemon", "--once")
        assert done.returncode == exit_code, done.stderr

    def status(self) -> Json:
        done = self.run("ctl", "status", "--all", "--json")
        assert done.returncode in (0, 3), done.stderr
        return dict(json.loads(done.stdout))

    def jobs(self, cluster: str) -> dict[str, Json]:
        """Jobs of one cluster by name; of two of the same name, the living one."""
        rows = [one for one in self.status()["jobs"] if one["cluster"] == cluster]
        return {one["name"]: one for one in sorted(rows, key=lambda row: row["outcome"] is None)}

    def all_of(self, cluster: str, name: str) -> list[Json]:
        """Every job of a name, the living one last."""
        rows = [one for one in self.status()["jobs"] if (one["cluster"], one["name"]) == (cluster, name)]
        return sorted(rows, key=lambda row: row["outcome"] is None)

    def show(self, one: Json) -> Json:
        done = self.run("ctl", "show", "--json", f"{one['cluster']}/{one['id']}")
        assert done.returncode == 0, done.stderr
        return dict(json.loads(done.stdout))

    def record_of(self, name: str) -> str:
        """The dated record of a job's end."""
        (file,) = (self.config.parent / "agent_logs").glob(f"*_{name}-*.md")
        return file.read_text(encoding="utf-8")

    # -- what is played ------------------------------------------------------------------------------------------------

    def make(self, thing: Json) -> Json:
        return self.kube.create(self.namespace, thing)

    def queue(self, owner: Json, reason: str, message: str) -> None:
        """A Workload as Kueue would write it; no Kueue runs in the lab."""
        name = f"job-{owner['metadata']['name']}"
        reference = {key: owner[key] for key in ("apiVersion", "kind")}
        reference |= {key: owner["metadata"][key] for key in ("name", "uid")}
        meta = {"name": name, "ownerReferences": [reference]}
        kind = {"apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "Workload", "metadata": meta}
        self.make(kind | {"spec": {"queueName": "gpus"}})
        quota = {"type": "QuotaReserved", "status": "False", "reason": reason, "message": message}
        quota["lastTransitionTime"] = "2026-07-01T12:00:00Z"
        path = f"/apis/kueue.x-k8s.io/v1beta1/namespaces/{self.namespace}/workloads/{name}/status"
        self.kube.merge(path, {"status": {"conditions": [quota]}})

    def pods(self, owner: str) -> list[Json]:
        path = f"/api/v1/namespaces/{self.namespace}/pods?labelSelector=job-name={owner}"
        return list(self.kube.call("GET", path)[1].get("items") or ())

    def pod_of(self, owner: str) -> str:
        (one,) = self.pods(owner)
        return str(one["metadata"]["name"])

    def say(self, owner: str, line: str) -> None:
        self.kube.say(self.namespace, self.pod_of(owner), line)

    def phases(self, owner: str) -> list[str]:
        return [one["status"].get("phase") for one in self.pods(owner)]

    def until_phases(self, owner: str, *phases: str) -> None:
        self.kube.until(f"pods of {owner} are {phases}", lambda: self.phases(owner) == list(phases))

    def until_condition(self, owner: str, kind: str) -> None:
        path = f"/apis/batch/v1/namespaces/{self.namespace}/jobs/{owner}"

        def holds() -> bool:
            conditions = self.kube.call("GET", path)[1].get("status", {}).get("conditions") or ()
            return any(one["type"] == kind and one["status"] == "True" for one in conditions)

        self.kube.until(f"{owner} is {kind}", holds)

    def drop(self, plural: str, name: str, **options: Any) -> None:
        """Delete something, and wait until it is gone with all it owns."""
        root = "/apis/batch/v1" if plural == "jobs" else "/api/v1"
        path = f"{root}/namespaces/{self.namespace}/{plural}/{name}"
        self.kube.must("DELETE", path, {"propagationPolicy": "Foreground", **options})
        self.kube.until(f"{name} is gone", lambda: self.kube.call("GET", path)[0] == 404, timeout=60)

    def path(self, name: str) -> str:
        return f"/{self.user}/{name}"

    def submit(self, name: str, script: str, *options: str) -> None:
        self.iris.submit(self.path(name), script, *options)


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    made = Fleet(tmp_path, start_kube_lab(), start_iris_lab())
    try:
        yield made
    finally:
        made.iris.end_all(made.user)
        made.kube.clear(made.namespace)


@pytest.mark.timeout(400)
def test_jobs_of_all_fates_on_kubernetes_and_iris_seen_by_one_tick_after_another(fleet: Fleet) -> None:
    """POLL-1, POLL-5, POLL-7, POLL-11, LIVE-6, FIND-5, FAIL-1."""
    _begin_on_kubernetes(fleet)
    _begin_on_iris(fleet)
    fleet.tick()
    _what_waits_and_runs_on_kubernetes(fleet)
    _what_ended_and_runs_on_iris(fleet)
    fleet.say("leaves", "step 2 of leaves")
    fleet.iris.until("the gang is heard", lambda: "step" in fleet.iris.lab("logs", fleet.path("gang")))
    fleet.tick()
    assert fleet.jobs(MARIN)["gang"]["phase"] == "running"
    before = fleet.jobs(EAST)

    _fates_on_kubernetes(fleet)
    _fates_on_iris(fleet)
    fleet.tick()
    _each_fate_on_kubernetes(fleet, before)
    _what_a_pod_said_is_kept(fleet)
    _each_fate_on_iris(fleet)
    _a_name_used_again(fleet)

    with fleet.iris.stopped("worker-0", "kill"):
        fleet.iris.until_counts(fleet.path("gang"), pending=2)
        fleet.tick()
        _a_gang_of_which_all_tasks_wait(fleet)
        _servers_that_are_away_change_no_job(fleet)
    fleet.iris.until_counts(fleet.path("gang"), running=2)
    fleet.drop("pods", "winner")
    fleet.until_phases("victim", "Running")
    fleet.tick()
    _second_lives(fleet)


# -- the first tick ----------------------------------------------------------------------------------------------------


def _begin_on_kubernetes(fleet: Fleet) -> None:
    high = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}, "value": 1000}
    fleet.kube.call("POST", "/apis/scheduling.k8s.io/v1/priorityclasses", high)
    gated = pod("x", schedulingGates=GATE)
    fleet.queue(fleet.make(job("gated", gated, parallelism=2, completions=2)), "Pending", BUSY)
    fleet.queue(fleet.make(job("hopeless", gated, parallelism=2, completions=2)), "Pending", CEILING)
    fleet.make(pod("forgotten", schedulingGates=GATE))
    # Both nodes are full of GPUs: one by the victim, the other by what may not be taken for anything.
    fleet.make(pod("rock", "running", gpus=8, priorityClassName="high"))
    fleet.kube.until_phase(fleet.namespace, "rock", "Running")
    fleet.make(job("victim", pod("x", "running", gpus=8)))
    fleet.make(pod("evicted", "running"))
    fleet.kube.until_phase(fleet.namespace, "evicted", "Running")
    for name in ("runs", "done", "leaves"):
        fleet.make(job(name, pod("x", "running"), {"user": "alice"}))
    for name in ("oom", "killed"):
        fleet.make(job(name, pod("x", "running"), backoffLimit=0))
    for name in ("victim", "runs", "done", "leaves", "oom", "killed"):
        fleet.until_phases(name, "Running")
    for name in ("runs", "leaves"):
        fleet.say(name, f"step 1 of {name}")


def _begin_on_iris(fleet: Fleet) -> None:
    fleet.submit("good", "echo well; exit 0")
    fleet.submit("three", "echo oh; exit 3")
    fleet.submit("again", "echo first")
    fleet.submit("cancelled", FOREVER)
    fleet.submit("gang", FOREVER, "--replicas", "2", "--gpus", "8", "--gang")
    fleet.submit("flaky", "case $IRIS_TASK_ID in *:1) exit 0;; esac; exit 7", "--max-retries", "2")
    fleet.iris.until_state(fleet.path("again"), "succeeded")
    fleet.iris.until_counts(fleet.path("gang"), running=2)
    fleet.iris.until_counts(fleet.path("cancelled"), running=1)


def _what_waits_and_runs_on_kubernetes(fleet: Fleet) -> None:
    jobs = fleet.jobs(EAST)
    for name in ("gated", "hopeless"):
        waits = jobs[name]
        assert (waits["phase"], waits["scheduler_state"], waits["attempt"]) == ("bring_up", "SchedulingGated", 1)
        assert "2 of 2 pods" in waits["scheduler_reason"], "a gang that its record counts as active does not run"
        assert "queue gpus, place" in waits["scheduler_reason"]
        assert waits["started_at"] is None
    assert BUSY in jobs["gated"]["scheduler_reason"]
    assert "heal" not in jobs["gated"]["scheduler_reason"]
    assert f"{CEILING}; this cannot heal by itself" in jobs["hopeless"]["scheduler_reason"]
    for name in ("victim", "runs", "done", "leaves", "oom", "killed", "evicted"):
        assert (jobs[name]["scheduler_state"], jobs[name]["attempt"], jobs[name]["outcome"]) == ("Running", 1, None)
    assert (jobs["runs"]["phase"], jobs["runs"]["user"], jobs["runs"]["log"]["state"]) == ("running", "alice", "read")


def _what_ended_and_runs_on_iris(fleet: Fleet) -> None:
    jobs = fleet.jobs(MARIN)
    assert (jobs["again"]["outcome"], jobs["again"]["exit_code"]) == ("completed", 0)
    assert (jobs["gang"]["scheduler_state"], jobs["gang"]["attempt"], len(jobs["gang"]["nodes"])) == ("running", 1, 2)
    assert jobs["cancelled"]["scheduler_state"] == "running"


# -- the fates ---------------------------------------------------------------------------------------------------------


def _fates_on_kubernetes(fleet: Fleet) -> None:
    for name, code, reason in (("done", 0, "Completed"), ("oom", 137, "OOMKilled"), ("killed", 137, "Error")):
        fleet.kube.end(fleet.namespace, fleet.pod_of(name), code, reason)
    taken = {"type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet", "message": LOW}
    taken["lastTransitionTime"] = "2026-07-01T12:00:00Z"
    words = {"reason": "Evicted", "message": LOW, "conditions": [taken]}
    fleet.kube.end(fleet.namespace, "evicted", 137, "Error", words)
    fleet.drop("jobs", "leaves")
    fleet.drop("pods", "forgotten", gracePeriodSeconds=0)
    fleet.make(pod("winner", "running", gpus=8, priorityClassName="high"))
    fleet.kube.until_phase(fleet.namespace, "winner", "Running")
    fleet.until_phases("victim", "Pending")
    fleet.until_condition("done", "Complete")
    for name in ("oom", "killed"):
        fleet.until_condition(name, "Failed")


def _fates_on_iris(fleet: Fleet) -> None:
    fleet.iris.lab("cancel", fleet.path("cancelled"))
    fleet.iris.lab("preempt", f"{fleet.path('gang')}/0")
    fleet.submit("again", SILENT)
    for name, state in (("good", "succeeded"), ("three", "failed"), ("flaky", "succeeded"), ("cancelled", "killed")):
        fleet.iris.until_state(fleet.path(name), state)
    fleet.iris.until(
        "the gang has bounced",
        lambda: fleet.iris.rpc("GetJobStatus", jobId=fleet.path("gang"))["job"].get("preemptionCount") == 1,
    )
    fleet.iris.until_counts(fleet.path("gang"), running=2)
    fleet.iris.until_counts(fleet.path("again"), running=1)


def _each_fate_on_kubernetes(fleet: Fleet, before: dict[str, Json]) -> None:
    jobs = fleet.jobs(EAST)
    assert {name: fate(jobs[name]) for name in jobs} == {
        "gated": ("bring_up", None, None, 1),
        "hopeless": ("bring_up", None, None, 1),
        "rock": ("bring_up", None, None, 1),
        "winner": ("bring_up", None, None, 1),
        "runs": ("running", None, None, 1),
        "victim": ("bring_up", None, None, 2),
        "done": ("terminal", "completed", 0, 1),
        "oom": ("terminal", "out_of_memory", 137, 1),
        "killed": ("terminal", "failed", 137, 1),
        "evicted": ("terminal", "preempted", 137, 1),
        "leaves": ("terminal", "cancelled", None, 1),
        "forgotten": ("terminal", "vanished", None, 1),
    }
    reasons = {name: jobs[name]["scheduler_reason"] or "" for name in jobs}
    assert "OOMKilled (exit code 137)" in reasons["oom"]
    assert "with no OOMKilled and no disruption on record" in reasons["killed"]
    assert LOW in reasons["evicted"]
    assert "event Killing" in reasons["leaves"], "nothing but its deletion tells how it ended"
    assert (jobs["victim"]["scheduler_state"], jobs["victim"]["started_at"]) == ("Unschedulable", None)
    assert "2 Insufficient nvidia.com/gpu" in reasons["victim"]
    for known in ("started_at", "nodes"):
        assert jobs["leaves"][known] == before["leaves"][known], "its end takes away nothing that was known"
    shown = fleet.show(jobs["victim"])
    assert attempts(shown) == [(1, "preempted", None), (2, "pending", None)]
    assert (shown["restarts"], shown["preemptions"]) == (budget(0, 6), budget(1, None))


def _what_a_pod_said_is_kept(fleet: Fleet) -> None:
    """FIND-5: its last lines are quoted, though the pod is gone and its log with it."""
    record = fleet.record_of("leaves")
    assert "step 2 of leaves" in record


def _each_fate_on_iris(fleet: Fleet) -> None:
    jobs = fleet.jobs(MARIN)
    assert {name: fate(jobs[name]) for name in jobs} == {
        "good": ("terminal", "completed", 0, 1),
        "three": ("terminal", "failed", 3, 1),
        "flaky": ("terminal", "completed", 0, 2),
        "cancelled": ("terminal", "cancelled", None, 1),
        "gang": ("bring_up", None, None, 2),
        "again": ("bring_up", None, None, 1),
    }
    assert jobs["three"]["scheduler_reason"].startswith("Exit code: 3 (")
    assert jobs["cancelled"]["scheduler_reason"] == "Terminated by user"
    assert (jobs["gang"]["scheduler_state"], len(jobs["gang"]["nodes"])) == ("running", 2)
    flaky, gang, cancelled = (fleet.show(jobs[name]) for name in ("flaky", "gang", "cancelled"))
    assert attempts(flaky) == [(1, "failed", 7), (2, "completed", 0)]
    assert (flaky["restarts"], flaky["preemptions"]) == (budget(1, 2), budget(0, 100))
    assert attempts(gang) == [(1, "preempted", None), (2, "running", None)]
    assert (gang["restarts"], gang["preemptions"]) == (budget(0, 0), budget(1, 100))
    assert cancelled["preemptions"] == budget(0, 100), "a cancel is no preemption, whatever the controller counts"


def _a_name_used_again(fleet: Fleet) -> None:
    """POLL-11: two jobs of one name, each with its own end, attempt and log."""
    first, second = fleet.all_of(MARIN, "again")
    assert fate(first) == ("terminal", "completed", 0, 1)
    assert fate(second) == ("bring_up", None, None, 1)
    assert first["id"] == second["id"]
    assert first["submitted_at"] <= second["submitted_at"]
    assert first["log"]["path"] != second["log"]["path"]


# -- waiting again, and no answer --------------------------------------------------------------------------------------


def _a_gang_of_which_all_tasks_wait(fleet: Fleet) -> None:
    """POLL-5: its controller calls it running; it is neither that nor dead."""
    gang = fleet.jobs(MARIN)["gang"]
    assert fate(gang) == ("bring_up", None, None, 2)
    assert gang["scheduler_state"] == "running"
    assert "2 of 2 tasks wait to run again" in gang["scheduler_reason"]
    assert "worker_failed" in gang["scheduler_reason"]


def _servers_that_are_away_change_no_job(fleet: Fleet) -> None:
    """POLL-1: UNKNOWN with its reason and its age; both heal by themselves."""
    before = fleet.status()
    with fleet.kube.stopped(), fleet.iris.stopped():
        fleet.tick(exit_code=4)
        away = fleet.status()
        screen = fleet.run("ctl", "status").stdout
    assert lives(away) == lives(before)
    for old, new in zip(before["clusters"], away["clusters"], strict=True):
        assert (old["state"], new["state"]) == ("ok", "unknown")
        assert "connection refused" in new["reason"]
        assert new["last_good_at"] == old["last_good_at"]
        assert new["age_s"] > old["age_s"]
        assert new["jobs_live"] == old["jobs_live"]
        assert f"{new['name']}: UNKNOWN (read " in screen
    fleet.tick()
    back = fleet.status()
    assert [each["state"] for each in back["clusters"]] == ["ok", "ok"]
    assert lives(back) == lives(before)


def _second_lives(fleet: Fleet) -> None:
    """The same jobs under the same identity, in the attempts that followed."""
    victim, gang = fleet.jobs(EAST)["victim"], fleet.jobs(MARIN)["gang"]
    assert (victim["attempt"], victim["scheduler_state"], victim["outcome"]) == (2, "Running", None)
    shown = fleet.show(victim)
    assert attempts(shown) == [(1, "preempted", None), (2, "running", None)]
    first, second = shown["attempts"]
    assert first["started_at"] <= first["ended_at"] <= second["started_at"]
    assert (gang["attempt"], gang["scheduler_state"], gang["outcome"]) == (3, "running", None)
    shown = fleet.show(gang)
    assert attempts(shown) == [(1, "preempted", None), (2, "node_failed", None), (3, "running", None)]
    assert shown["preemptions"] == budget(2, 100)


# -- what is compared --------------------------------------------------------------------------------------------------


def fate(one: Json) -> tuple[str, str | None, int | None, int]:
    return one["phase"], one["outcome"], one["exit_code"], one["attempt"]


def attempts(shown: Json) -> list[tuple[int, str, int | None]]:
    return [(one["number"], one["state"], one["exit_code"]) for one in shown["attempts"]]


def budget(burned: int, allowed: int | None) -> Json:
    return {"burned": burned, "allowed": allowed}


def lives(status: Json) -> list[tuple[Any, ...]]:
    """All that a reading could have changed of each job."""
    told = ("cluster", "id", "submitted_at", "phase", "since", "attempt", "outcome", "scheduler_state")
    return sorted((*(str(one[key]) for key in told), one["scheduler_reason"]) for one in status["jobs"])
