"""A daemon's ticks over jobs that leave trials: real folders, a real object store, restarts, and places that fail."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from supervisor.app.fleet import Station
from supervisor.app.settings import ClusterSection
from supervisor.app.trial_sections import TrialStoreSection
from supervisor.app.trial_settings import store_checks
from supervisor.app.trials import chosen_place, read_folders, sample
from supervisor.app.watchroom import Watchroom
from supervisor.clusters import trial_trees
from supervisor.clusters.host_settings import HostSettings
from supervisor.clusters.local import LocalShell
from supervisor.model.facts import Held
from supervisor.model.job import Details
from supervisor.model.trials import CURSOR, TrialPlace, TrialRead, TrialsUnread, TrialsWanted
from supervisor.store.store import Store
from tests.s3_server import S3Server, _s3_process, s3  # noqa: F401  fixtures
from tests.scripted import ScriptedCluster, World
from tests.some import MINUTE, NOON, some_held, some_observation
from tests.stories.daemon import a_room
from tests.trial_files import job_result, result, write


class WithFolders(ScriptedCluster):
    """A scripted scheduler whose jobs' folders lie on this machine."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.looks = 0
        self.failing: str | None = None

    async def read_trials(self, wanted: Sequence[TrialsWanted], now: datetime) -> Mapping[str, TrialRead]:
        self.looks += 1
        if self.failing:
            return {each.job_id: TrialsUnread(self.failing, f"ls {each.place.where}", "as it said") for each in wanted}
        return await trial_trees.read(LocalShell(self.name), wanted, one_s=20, all_s=60)


def room_over(
    folder: Path, cluster: ScriptedCluster, *, stores: Sequence[TrialStoreSection] = ()
) -> tuple[Watchroom, list[datetime]]:
    room, clock = a_room(folder, [cluster], cluster.world.now)
    room.stations[0].section = ClusterSection(
        name=cluster.name, kind="host", trial_stores=tuple(stores), of_kind=HostSettings()
    )
    return room, clock


async def tick(room: Watchroom, clock: list[datetime], world: World, span: timedelta = 15 * MINUTE) -> Held:
    """One tick later; the one job as it is held then."""
    world.pass_time(span)
    clock[0] = world.now
    done = await room.tick(30)
    assert done.all_read
    return room.stations[0].memory["1"]


def ended(folder: Path, world: World, name: str, **outcome: object) -> None:
    at = world.now.timestamp()
    os.utime(write(folder, name, result(name, **outcome)), (at, at))  # type: ignore[arg-type]


def an_evaluation(folder: Path, name: str = "eval-bench") -> tuple[World, WithFolders]:
    world = World()
    world.submit("1", name)
    world.start("1")
    world.print("1", f"trials_dir: {folder}\nloading\n".encode())
    return world, WithFolders(world)


async def test_an_evaluations_trials_are_found_by_its_log_and_counted_tick_by_tick(tmp_path: Path) -> None:
    """EVAL-1, EVAL-4"""
    jobs = tmp_path / "jobs" / "j1"
    world, cluster = an_evaluation(jobs)
    room, clock = room_over(tmp_path, cluster)
    await tick(room, clock, world)
    ended(jobs, world, "a__1")
    ended(jobs, world, "b__2", reward=0.0)
    first = await tick(room, clock, world)
    ended(jobs, world, "c__3", exception="AgentTimeoutError", reward=0.0)
    second = await tick(room, clock, world)
    await room.close()

    assert first.run.metrics == {"trials": 2.0, "mean": 0.5, "pass_rate": 0.5}
    assert second.run.metrics["trials"] == 3.0
    assert second.run.metrics["top_exception"] == "AgentTimeoutError"
    assert (second.log.step, second.run.trials_at, second.run.trials_unread) == (3, str(jobs), None)
    assert second.flags == ()


async def test_one_look_a_tick_whatever_the_number_of_jobs(tmp_path: Path) -> None:
    """POLL-6"""
    world = World()
    for number in range(1, 8):
        world.submit(str(number), f"eval-{number}")
        world.start(str(number))
        world.print(str(number), f"trials_dir: {tmp_path / 'jobs' / str(number)}\n".encode())
        ended(tmp_path / "jobs" / str(number), world, f"t{number}__x")
    cluster = WithFolders(world)
    room, clock = room_over(tmp_path, cluster)
    await tick(room, clock, world)
    before = cluster.looks
    await tick(room, clock, world)
    held = [room.stations[0].memory[str(number)] for number in range(1, 8)]
    await room.close()

    assert cluster.looks - before == 1
    assert all(each.run.metrics["trials"] == 1.0 for each in held)


async def test_counts_survive_the_daemon_and_no_result_is_counted_twice(tmp_path: Path) -> None:
    """EVAL-4: another process goes on where the last one stopped."""
    jobs = tmp_path / "jobs"
    world, cluster = an_evaluation(jobs)
    told = []
    for number in range(5):
        ended(jobs, world, f"t{number}__x", turns=4)
        room, clock = room_over(tmp_path, cluster)
        told.append((await tick(room, clock, world, MINUTE)).run.metrics.get("trials"))
        await room.close()
    (jobs / "t0__x" / "result.json").unlink()  # cleaned up meanwhile
    os.utime(jobs / "t0__x", (NOON.timestamp(), NOON.timestamp()))
    room, clock = room_over(tmp_path, cluster)
    last = await tick(room, clock, world)
    await room.close()

    assert told == [None, 2.0, 3.0, 4.0, 5.0]
    assert last.run.metrics["trials"] == 5.0
    with Store.open(f"sqlite:///{tmp_path / 'supervisor.db'}") as store:
        assert [each.path for each in store.log_cursors(last.row or 0) if each.path.startswith(CURSOR)] == [
            f"{CURSOR}{jobs}"
        ]


async def test_a_look_without_news_stores_nothing_and_examines_nothing(tmp_path: Path) -> None:
    """House, idea 6: unchanged observations are not stored again."""
    jobs = tmp_path / "jobs"
    world, cluster = an_evaluation(jobs)
    ended(jobs, world, "a__1")
    room, clock = room_over(tmp_path, cluster)
    versions = [(await tick(room, clock, world, MINUTE)).version for _ in range(5)]
    station, trials = room.stations[0], room.sweeper.trials
    assert trials is not None
    facts = trials.facts(station)["1"]
    await room.close()

    assert versions[2:] == [versions[2]] * 3
    assert facts.read_at is not None and facts.read_at >= world.now - MINUTE


async def test_the_run_is_still_followed_beside_its_trials_after_a_restart(tmp_path: Path) -> None:
    """CHAIN-2: the counts' own row is not taken for the log's."""
    jobs = tmp_path / "jobs"
    world, cluster = an_evaluation(jobs)
    ended(jobs, world, "a__1")
    for _ in range(2):
        room, clock = room_over(tmp_path, cluster)
        await tick(room, clock, world)
        await room.close()
    world.print("1", "7/300 Mean: 0.500 ━━━ 0:10:00 0:20:00\n".encode())
    room, clock = room_over(tmp_path, cluster)
    held = await tick(room, clock, world)
    runs = room.sweeper.follower.runs(room.stations[0])
    await room.close()

    assert runs["1"].summary.places == {"trials": str(jobs)}
    assert runs["1"].summary.progress.step == 7
    assert (held.log.step, held.run.metrics["trials"]) == (1, 1.0), "the store was read whole: it wins"


async def test_a_look_that_fails_changes_no_count_and_is_said(tmp_path: Path) -> None:
    """EVAL-4: never 0 trials."""
    jobs = tmp_path / "jobs"
    world, cluster = an_evaluation(jobs)
    ended(jobs, world, "a__1")
    room, clock = room_over(tmp_path, cluster)
    await tick(room, clock, world, MINUTE)
    good = await tick(room, clock, world, MINUTE)
    cluster.failing = "permission denied"
    bad = await tick(room, clock, world, MINUTE)
    cluster.failing = None
    again = await tick(room, clock, world, MINUTE)
    await room.close()

    assert bad.run.metrics == good.run.metrics == again.run.metrics
    assert bad.run.trials_unread == "permission denied"
    assert [(flag.finding.rule, flag.finding.severity.value) for flag in bad.flags] == [("FIND-4", "note")]
    assert again.flags == ()


async def test_a_store_that_was_never_read_shows_no_number(tmp_path: Path) -> None:
    """BUCKET-3, EVAL-4"""
    world, cluster = an_evaluation(tmp_path / "jobs")
    cluster.failing = "permission denied"
    room, clock = room_over(tmp_path, cluster)
    for _ in range(3):
        held = await tick(room, clock, world)
    await room.close()

    assert "trials" not in held.run.metrics
    assert (held.log.step, held.run.trials_unread) == (None, "permission denied")


async def test_trials_that_end_keep_a_silent_log_from_making_a_suspect(tmp_path: Path) -> None:
    """LIVE-2: a display that is redrawn nowhere prints nothing for hours."""
    jobs = tmp_path / "jobs"
    world, cluster = an_evaluation(jobs)
    room, clock = room_over(tmp_path, cluster)
    phases = set()
    for number in range(14):
        ended(jobs, world, f"t{number}__x")
        phases.add((await tick(room, clock, world)).life.phase.value)
    for _ in range(6):
        phases_after = (await tick(room, clock, world)).life.phase.value
    await room.close()

    assert "suspect" not in phases
    assert phases_after == "suspect", "no result for an hour and a half (EVAL-2)"


async def test_a_job_that_ended_is_looked_at_once_more(tmp_path: Path) -> None:
    """DATAGEN-3: its last trials count, and traces that were left are told."""
    from supervisor.model.job import JobState

    jobs = tmp_path / "jobs"
    world, cluster = an_evaluation(jobs, "datagen-hard")
    ended(jobs, world, "a__1")
    room, clock = room_over(tmp_path, cluster)
    await tick(room, clock, world)
    await tick(room, clock, world)
    ended(jobs, world, "b__2")
    world.end("1", JobState.TIMED_OUT)
    await tick(room, clock, world)
    held = await tick(room, clock, world)
    looks = cluster.looks
    await tick(room, clock, world)
    await room.close()

    assert held.life.outcome is not None and held.life.outcome.value == "timed_out"
    assert held.run.metrics["trials"] == 2.0
    assert "DATAGEN-3/stranded" in {flag.finding.identity for flag in held.flags}
    assert cluster.looks == looks


async def test_trials_that_two_running_jobs_may_have_written_are_counted_for_neither(tmp_path: Path) -> None:
    """Doubt moves nothing: tasks of an array that share one folder."""
    world, cluster = an_evaluation(tmp_path / "jobs")
    world.submit("2", "eval-other")
    world.start("2")
    world.print("2", f"trials_dir: {tmp_path / 'jobs'}\n".encode())
    ended(tmp_path / "jobs", world, "a__1")
    room, clock = room_over(tmp_path, cluster)
    for _ in range(3):
        held = await tick(room, clock, world, MINUTE)
    await room.close()

    assert "trials" not in held.run.metrics
    assert held.run.trials_unread == "jobs 1, 2 write into it, and whose is whose is not told"


async def test_a_link_of_a_chain_hands_its_folder_on(tmp_path: Path) -> None:
    """CHAIN-2: the successor counts the whole folder, and the link before keeps what it had."""
    from supervisor.model.job import JobState

    jobs = tmp_path / "jobs"
    world, cluster = an_evaluation(jobs, "datagen-a")
    world.submit("2", "datagen-a", after="1")
    world.print("2", f"trials_dir: {jobs}\n".encode())
    ended(jobs, world, "a__1")
    room, clock = room_over(tmp_path, cluster)
    for _ in range(2):
        await tick(room, clock, world, MINUTE)
    world.end("1", JobState.TIMED_OUT)
    ended(jobs, world, "b__2")
    for _ in range(3):
        first = await tick(room, clock, world, MINUTE)
    second = room.stations[0].memory["2"]
    await room.close()

    assert first.run.trials_unread is None and first.run.metrics["trials"] == 2.0
    assert second.run.trials_unread is None and second.run.metrics["trials"] == 2.0


async def test_files_that_cannot_be_read_from_here_are_said_to_be_so(tmp_path: Path) -> None:
    """Kubernetes and iris: a folder in a pod is not read; an object store is their way."""
    world, _ = an_evaluation(tmp_path / "jobs")
    room, clock = room_over(tmp_path, ScriptedCluster(world))
    await tick(room, clock, world)
    held = await tick(room, clock, world)
    told = await sample(room.stations[0], held, 5, 10_000, world.now)
    await room.close()

    assert held.run.trials_unread is not None and "object store" in held.run.trials_unread
    assert told.files == () and told.missing is not None and "object store" in told.missing.reason


async def test_a_sample_gives_the_newest_results_and_the_jobs_own(tmp_path: Path) -> None:
    """PROBE-10, PROBE-14"""
    jobs = tmp_path / "jobs"
    world, cluster = an_evaluation(jobs)
    for number in range(6):
        world.pass_time(MINUTE)
        ended(jobs, world, f"t{number}__x")
    (jobs / "result.json").write_bytes(job_result(planned=9, completed=6, passed=6))
    room, clock = room_over(tmp_path, cluster)
    await tick(room, clock, world)
    held = await tick(room, clock, world)
    got = await sample(room.stations[0], held, 3, 10**6, world.now)
    tight = await sample(room.stations[0], held, 3, len(result("t5__x")) + 10, world.now)
    cluster.failing = "no answer within 20 s"
    failed = await sample(room.stations[0], held, 3, 10**6, world.now)
    await room.close()

    assert [name for name, _ in got.files] == [
        "t5__x/result.json",
        "t4__x/result.json",
        "t3__x/result.json",
        "result.json",
    ]
    assert json.loads(got.files[0][1])["trial_name"] == "t5__x"
    assert (got.begun, got.where, got.missing) == (6, str(jobs), None)
    assert [name for name, _ in tight.files] == ["t5__x/result.json"]
    assert failed.files == () and failed.missing == TrialsUnread("no answer within 20 s", f"ls {jobs}", "as it said")


async def test_a_sample_of_a_job_of_which_nothing_tells_where_its_trials_lie(tmp_path: Path) -> None:
    _, cluster = an_evaluation(tmp_path)
    room, _ = room_over(tmp_path, cluster)
    told = await sample(room.stations[0], some_held(bucket="eval"), 3, 1000, NOON)
    await room.close()

    assert told.place is None
    assert told.missing is not None and told.missing.reason == "nothing tells where its trials lie"


async def test_a_folder_of_the_compute_nodes_own_is_told_as_such() -> None:
    """FIND-2: its absence on the login node is no absence."""

    class Login:
        async def read_trials(self, wanted: Sequence[TrialsWanted], now: datetime) -> Mapping[str, TrialRead]:
            return {each.job_id: TrialsUnread("not there: no such folder", "ls") for each in wanted}

    station = Station("alpha", ClusterSection(name="a", kind="slurm", of_kind=HostSettings()), Login())  # type: ignore[arg-type]
    asked = [
        TrialsWanted(job_id=where, place=TrialPlace(where, "x"))
        for where in ("/dev/shm/trials/j1", "/scratch/trials/j1")
    ]
    told = await read_folders(station, asked, NOON, 5)

    reasons = {job: answer.reason for job, answer in told.items() if isinstance(answer, TrialsUnread)}
    assert "compute node's own" in reasons["/dev/shm/trials/j1"]
    assert reasons["/scratch/trials/j1"] == "not there: no such folder"


def placed(section: TrialStoreSection | None, bucket: str = "eval", **details: object) -> str | None:
    station = type("Station", (), {"section": type("Section", (), {"trial_stores": (section,) if section else ()})})
    held = some_held(
        bucket=bucket,
        observation=some_observation(name="eval-bench"),
        details=Details(**details),  # type: ignore[arg-type]
    )
    place = chosen_place(station, held, None)  # type: ignore[arg-type]
    return place.where if place is not None else None


def test_a_setting_names_the_place_and_fills_in_what_is_known_of_the_job() -> None:
    assert placed(TrialStoreSection(place="s3://traces/{user}/{name}/{id}")) == "s3://traces/alice/eval-bench/42"
    assert placed(TrialStoreSection(place="{workdir}/jobs/{name}"), workdir="/w") == "/w/jobs/eval-bench"
    assert placed(TrialStoreSection(place="{workdir}/jobs"), workdir=None) is None
    assert placed(TrialStoreSection(jobs="other-*", place="/x")) is None
    assert placed(TrialStoreSection(read=False), command="harbor run --jobs-dir /j --job-name a") is None
    assert placed(TrialStoreSection(endpoint_url="https://o.example"), command="x trials_dir=s3://b/p") == "s3://b/p"


def test_jobs_of_other_buckets_are_looked_at_only_where_the_config_names_a_place() -> None:
    command = "python x.py trials_dir=/t"

    assert placed(None, "sft", command=command) is None
    assert placed(None, "rl", command=command) == "/t"
    assert placed(TrialStoreSection(place="/p"), "sft") == "/p"


def test_a_name_that_would_lead_elsewhere_fills_in_nothing() -> None:
    """House: names are others' words."""
    station = type("Station", (), {"section": type("S", (), {"trial_stores": (TrialStoreSection(place="/a/{name}"),)})})
    for name in ("../../etc", "a/../b", "x\ny"):
        held = some_held(bucket="eval", observation=some_observation(name=name))
        assert chosen_place(station, held, None) is None  # type: ignore[arg-type]


def test_check_says_whether_a_configured_store_could_be_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """POLL-12"""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    stores = (
        TrialStoreSection(jobs="eval-*", place="s3://traces/{name}", credentials_file=tmp_path / "gone"),
        TrialStoreSection(jobs="rl-*", place="s3://traces/{name}"),
        TrialStoreSection(jobs="sft-*", place="/scratch/{name}"),
        TrialStoreSection(jobs="x-*", place="s3://traces/x", read=False),
    )
    station = Station("alpha", ClusterSection(name="a", kind="host", trial_stores=stores, of_kind=HostSettings()), None)

    lines = store_checks(station)

    assert [(line.what, line.result) for line in lines] == [("trials of eval-*", "fail"), ("trials of rl-*", "ok")]
    assert lines[0].text == f"credentials file {tmp_path / 'gone'}: not there"
    assert "the machine's own role is tried" in lines[1].text


@pytest.mark.lab
async def test_trials_in_an_object_store_are_counted_over_ticks_and_restarts(
    tmp_path: Path,
    s3: S3Server,  # noqa: F811  a fixture
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """EVAL-4: against a real server, through the daemon's own tick."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "alice")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "not-a-real-secret")
    s3.bucket("traces")
    world, cluster = an_evaluation(tmp_path / "nowhere")
    stores = [TrialStoreSection(jobs="eval-*", place="s3://traces/{name}", endpoint_url=s3.url)]
    told = []
    for number in range(3):
        s3.put("traces", f"eval-bench/t{2 - number}__x/result.json", result(f"t{2 - number}__x", turns=6))
        room, clock = room_over(tmp_path, cluster, stores=stores)
        await tick(room, clock, world, MINUTE)
        told.append((await tick(room, clock, world, MINUTE)).run.metrics["trials"])
        got = await sample(room.stations[0], room.stations[0].memory["1"], 2, 10**6, world.now)
        await room.close()

    assert told == [1.0, 2.0, 3.0]
    assert len(got.files) == 2 and got.where == "s3://traces/eval-bench"
