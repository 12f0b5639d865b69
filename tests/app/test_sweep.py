"""The loop over several clusters: each under its own deadline, each stored whole or not at all, none waiting for another."""

from __future__ import annotations

import asyncio
import os
import socket
import sqlite3
import time
from datetime import timedelta

import pytest

from supervisor.app.alive import gone
from supervisor.model.errors import LoginNeedsPerson
from supervisor.model.job import JobState, Outcome
from supervisor.model.lifecycle import Phase
from supervisor.model.records import ClusterState
from supervisor.store.store import Store
from tests.scripted import ScriptedCluster, World
from tests.some import NOON
from tests.stories.daemon import LONG_AGO, a_room


class Hanging(ScriptedCluster):
    """Never answers, until it is told that nobody waits any more."""

    async def poll(self, watch, now):
        self.polls += 1
        await asyncio.Event().wait()


class Breaking(ScriptedCluster):
    """A fault of our own in a backend."""

    async def poll(self, watch, now):
        raise ZeroDivisionError("of all things")


class WantsPerson(ScriptedCluster):
    async def poll(self, watch, now):
        raise LoginNeedsPerson(self.name, "asks for a second factor", hint="open a master connection by ssh -M")


def a_world(name: str, *running: str) -> World:
    world = World(name)
    for job in running:
        world.submit(job)
        world.start(job)
    return world


async def test_a_hanging_cluster_adds_nothing_to_the_others_and_is_unknown(tmp_path):
    """POLL-6, POLL-1"""
    good, bad = a_world("cluster-a", "1"), a_world("cluster-b", "2")
    room, _ = a_room(tmp_path, [ScriptedCluster(good), Hanging(bad)], NOON, deadline_s=0.2)
    done = await room.tick(30)
    states = {each.name: each.state for each in done.clusters}
    status = await room.writer.call(lambda store: store.cluster_status("cluster-b"))
    await room.close()

    assert states == {"cluster-a": "ok", "cluster-b": "unknown"}
    assert "no answer within its deadline of 0.2 s" in status.reason
    assert not done.all_read


@pytest.mark.parametrize(
    ("broken", "words"), [(Breaking, "fault in the supervisor itself"), (WantsPerson, "second factor")]
)
async def test_what_a_backend_raises_is_a_reason_and_never_an_empty_cluster(tmp_path, broken, words):
    """POLL-1"""
    world = a_world("cluster-a", "1")
    room, clock = a_room(tmp_path, [ScriptedCluster(world)], NOON)
    await room.tick(30)
    room.stations[0].cluster = broken(world)
    clock[0] += timedelta(minutes=1)
    await room.tick(30)
    held = await room.writer.call(lambda store: store.held("cluster-a", ended_after=LONG_AGO))
    status = await room.writer.call(lambda store: store.cluster_status("cluster-a"))
    await room.close()

    assert [job.life.phase for job in held] == [Phase.BRING_UP]
    assert status.state is ClusterState.UNKNOWN
    assert words in status.reason
    assert status.last_good_at == NOON


async def test_a_tick_over_its_budget_ends_and_says_who_was_late(tmp_path):
    """POLL-6: the tick's own budget."""
    room, _ = a_room(tmp_path, [Hanging(a_world("cluster-a"))], NOON, deadline_s=60)
    done = await room.sweeper.tick(room.stations, 0.2)
    await room.close()

    assert done.clusters[0].state == "unknown"
    assert "budget of 0.2 s" in done.clusters[0].reason


async def test_a_locked_store_stores_nothing_acts_on_nothing_and_heals(tmp_path):
    """House, ideas 4 and 5."""
    world = a_world("cluster-a", "1")
    room, clock = a_room(tmp_path, [ScriptedCluster(world)], NOON)
    await room.tick(30)
    world.pass_time()
    world.end("1", JobState.FAILED, 1)
    clock[0] = world.now
    room.writer.store._db.busy_s = 0.1
    station = room.stations[0]
    other = sqlite3.connect(tmp_path / "supervisor.db", isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    try:
        done = await room.sweeper.guarded(station, 1, {"cluster-a"})
    finally:
        other.execute("ROLLBACK")
        other.close()
    assert done.state == "unstored"
    assert "locked" in done.reason

    clock[0] += timedelta(seconds=1)
    await room.tick(30)
    held = await room.writer.call(lambda store: store.held("cluster-a", ended_after=LONG_AGO))
    steps = await room.writer.call(lambda store: store.transitions(held[0].row))
    await room.close()
    assert held[0].life.outcome is Outcome.FAILED
    assert [step.transition.after.phase for step in steps].count(Phase.TERMINAL) == 1


async def test_two_daemons_on_one_store_never_poll_a_cluster_at_the_same_time(tmp_path):
    """House, idea 5: leases. When one dies the other takes over after the lease."""
    world = a_world("cluster-a", "1")
    first, clock_a = a_room(tmp_path, [ScriptedCluster(world)], NOON, owner="daemon-a")
    second, clock_b = a_room(tmp_path, [ScriptedCluster(world)], NOON, owner="daemon-b")
    await first.tick(30)
    done = await second.tick(30)
    assert [each.state for each in done.clusters] == ["elsewhere"]

    clock_a[0] = clock_b[0] = world.now = NOON + timedelta(minutes=10)
    world.end("1", JobState.COMPLETED, 0)
    done = await second.tick(30)
    assert [each.state for each in done.clusters] == ["ok"], "the first gave no sign for longer than its lease"
    done = await first.tick(30)
    assert [each.state for each in done.clusters] == ["elsewhere"]
    await first.close()
    await second.close()


async def test_a_laptop_asleep_for_two_days_finds_every_end_when_it_wakes(tmp_path):
    """POLL-7: the look-back grows to cover the gap."""
    world = a_world("cluster-a", "1", "2")
    room, clock = a_room(tmp_path, [ScriptedCluster(world)], NOON)
    await room.tick(30)
    world.pass_time(timedelta(hours=1))
    world.end("1", JobState.COMPLETED, 0)
    world.submit("3")
    world.start("3")
    world.end("3", JobState.FAILED, 9)
    world.pass_time(timedelta(days=2))
    clock[0] = world.now
    await room.tick(30)
    held = await room.writer.call(lambda store: store.held("cluster-a", ended_after=LONG_AGO))
    await room.close()

    assert {job.key.id: job.life.outcome for job in held} == {"1": Outcome.COMPLETED, "2": None, "3": Outcome.FAILED}


async def test_a_skipped_cluster_is_named_not_polled_and_polled_again_by_itself(tmp_path):
    """POLL-9, SAY-4"""
    from datetime import date

    world = a_world("cluster-a", "1")
    cluster = ScriptedCluster(world)
    room, clock = a_room(tmp_path, [cluster], NOON)
    station = room.stations[0]
    station.section = station.section.model_copy(update={"skip_until": date(2026, 7, 3), "skip_reason": "maintenance"})
    done = await room.tick(30)
    assert cluster.polls == 0
    assert done.all_read
    report = await room.writer.call(lambda store: store.last_tick(finished=True))
    assert "cluster-a: skipped until 2026-07-03: maintenance" in report.report

    clock[0] = world.now = NOON + timedelta(days=2)
    await room.tick(30)
    await room.close()
    assert cluster.polls == 1


async def test_a_suspect_is_looked_at_between_ticks_and_healthy_clusters_are_not(tmp_path):
    """LIVE-2: a narrower look."""
    quiet, good = a_world("cluster-a", "1"), a_world("cluster-b", "2")
    clusters = [ScriptedCluster(quiet), ScriptedCluster(good)]
    room, clock = a_room(tmp_path, clusters, NOON)

    def pass_time(span):
        quiet.pass_time(span)
        good.pass_time(span)
        clock[0] = quiet.now

    await room.tick(30)
    pass_time(timedelta(minutes=1))
    quiet.print("1")
    good.print("2")
    await room.tick(30)
    pass_time(timedelta(minutes=20))
    good.print("2")
    await room.tick(30)
    assert room.stations[0].memory["1"].life.phase is Phase.SUSPECT
    polls = [each.polls for each in clusters]

    pass_time(timedelta(minutes=2))
    quiet.print("1")
    await room.look_at_suspects()
    await room.close()
    assert [each.polls for each in clusters] == [polls[0] + 1, polls[1]]
    assert room.stations[0].memory["1"].life.phase is Phase.RUNNING


async def test_a_full_disk_for_the_records_is_said_and_the_tick_is_stored_all_the_same(tmp_path):
    """LIVE-8"""
    world = a_world("cluster-a", "1")
    room, _ = a_room(tmp_path, [ScriptedCluster(world)], NOON)
    (tmp_path / "agent_logs").write_text("in the way")
    done = await room.tick(30)
    last = await room.writer.call(lambda store: store.last_tick(finished=True))
    await room.close()

    assert "dated log could not be written" in done.trouble
    assert last.number == done.number


async def test_the_same_alert_is_said_once_and_closed_when_it_clears(tmp_path):
    """SAY-5"""
    world = a_world("cluster-a", "1")
    room, clock = a_room(tmp_path, [ScriptedCluster(world)], NOON)
    texts = []
    for unreachable in (None, "Unable to contact slurm controller", "Unable to contact slurm controller", None):
        world.unreachable = unreachable
        world.pass_time(timedelta(minutes=15))
        clock[0] = world.now
        await room.tick(30)
        last = await room.writer.call(lambda store: store.last_tick(finished=True))
        texts.append(last.report.partition("**Flagged**")[2])
    await room.close()

    assert "nothing new" in texts[0]
    assert "new: cluster-a: POLL-1 unread: Unable to contact slurm controller" in texts[1]
    assert "nothing new" in texts[2]
    assert "cleared: cluster-a: POLL-1" in texts[3]


async def test_the_log_of_a_job_is_kept_piece_by_piece_and_nothing_twice(tmp_path):
    """FIND-3, FIND-5"""
    world = a_world("cluster-a", "1")
    room, clock = a_room(tmp_path, [ScriptedCluster(world)], NOON)
    await room.tick(30)
    for number in range(5):
        world.pass_time()
        clock[0] = world.now
        world.print("1", f"step {number}\n".encode())
        await room.tick(30)
    row = room.stations[0].memory["1"].row
    (cursor,) = await room.writer.call(lambda store: store.log_cursors(row))
    kept = room.errands.kept.text(cursor)
    await room.close()

    assert kept == b"".join(f"step {number}\n".encode() for number in range(5))
    assert cursor.lines == 5


async def test_a_failed_job_has_its_diagnosis_and_its_record_in_the_tick_that_sees_it_end(tmp_path):
    """FAIL-1, SAY-3"""
    world = a_world("cluster-a", "1")
    room, clock = a_room(tmp_path, [ScriptedCluster(world)], NOON)
    await room.tick(30)
    world.pass_time()
    clock[0] = world.now
    world.print(
        "1",
        b'step 1\nTraceback (most recent call last):\n  File "train.py", line 3, in <module>\nValueError: bad\x1b[31m batch\n',
    )
    world.end("1", JobState.FAILED, 1)
    await room.tick(30)
    (record,) = (tmp_path / "agent_logs").glob("*cluster-a-1-failed.md")
    text = record.read_text()
    with Store.open(f"sqlite:///{tmp_path / 'supervisor.db'}") as store:
        row = store.find_jobs("cluster-a/1")[0].row
        (found,) = store.diagnoses(row)
    await room.close()

    assert found.category == "rank-crash"
    assert found.document["cause"]["line"] == 4
    assert "ValueError: bad" in text
    assert "\x1b" not in text


async def test_what_a_killed_daemon_of_this_machine_held_is_taken_over_at_once(tmp_path):
    """House, idea 4: after a crash nobody waits for a lease of the dead."""
    import subprocess

    done = subprocess.Popen(["true"])
    done.wait()
    dead = f"{socket.gethostname()}:{done.pid}:{int(NOON.timestamp())}"
    world = a_world("cluster-a", "1")
    first, _ = a_room(tmp_path, [ScriptedCluster(world)], NOON, owner=dead)
    await first.tick(30)
    second, clock = a_room(tmp_path, [ScriptedCluster(world)], NOON + timedelta(seconds=5), owner="daemon-b")
    world.now = clock[0]
    swept = await second.tick(30)
    await second.close()

    assert [each.state for each in swept.clusters] == ["ok"]


def test_nothing_is_claimed_of_daemons_on_other_machines_and_reused_pids_are_told():
    """Not seen is never the same as not there."""
    mine = os.getpid()
    now = int(time.time())
    assert not gone("another-host:1:1000")
    assert not gone(f"{socket.gethostname()}:{mine}:{now}")
    assert gone(f"{socket.gethostname()}:{mine}:{now - 10**6}"), "that daemon began long before this process did"
    assert not gone("daemon-a")


async def test_a_slow_cluster_is_read_across_ticks_and_delays_no_other(tmp_path):
    """POLL-6: its visit goes on under its own deadline, and it is not asked twice at the same time."""
    answer = asyncio.Event()

    class Slow(ScriptedCluster):
        async def poll(self, watch, now):
            self.polls += 1
            await answer.wait()
            return self.world.read(watch)

    slow, quick = a_world("cluster-a", "1"), a_world("cluster-b", "2")
    clusters = [Slow(slow), ScriptedCluster(quick)]
    room, clock = a_room(tmp_path, clusters, NOON)
    first = await room.sweeper.tick(room.stations, 0.3)
    clock[0] += timedelta(seconds=5)
    second = await room.sweeper.tick(room.stations, 0.3)
    assert [[each.state for each in done.clusters] for done in (first, second)] == [["unknown", "ok"]] * 2
    assert [each.polls for each in clusters] == [1, 2]

    answer.set()
    clock[0] += timedelta(seconds=5)
    third = await room.sweeper.tick(room.stations, 30)
    assert [each.state for each in third.clusters] == ["ok", "ok"], third
    held = await room.writer.call(lambda store: store.held("cluster-a", ended_after=LONG_AGO))
    await room.close()
    assert [job.key.id for job in held] == ["1"]


async def test_an_old_end_that_accounting_tells_again_is_history_and_stored_once(tmp_path):
    """POLL-7: jobs that ended longer ago than memory reaches are known to the store alone."""
    world = a_world("cluster-a", "1")
    room, clock = a_room(tmp_path, [ScriptedCluster(world)], NOON)
    await room.tick(30)
    world.pass_time()
    clock[0] = world.now
    world.end("1", JobState.FAILED, 1)
    await room.tick(30)
    world.pass_time(timedelta(days=10))
    clock[0] = world.now
    for _ in range(2):
        done = await room.tick(30)
        assert [each.state for each in done.clusters] == ["ok"]
    room.stations[0].forget()
    world.pass_time()
    clock[0] = world.now
    done = await room.tick(30)
    held = await room.writer.call(lambda store: store.held("cluster-a", ended_after=LONG_AGO))
    await room.close()

    assert [each.state for each in done.clusters] == ["ok"]
    assert [job.life.outcome for job in held] == [Outcome.FAILED]


async def test_why_shows_the_evidence_of_each_step(tmp_path, capsys):
    """No claim without its quote."""
    from supervisor.app import ctl

    world = a_world("cluster-a", "1")
    room, clock = a_room(tmp_path, [ScriptedCluster(world)], NOON)
    await room.tick(30)
    world.pass_time()
    clock[0] = world.now
    world.end("1", JobState.FAILED, 3)
    await room.tick(30)
    await room.close()
    config = tmp_path / "config.toml"
    config.write_text(f'database_url = "sqlite:///{tmp_path / "supervisor.db"}"\n')

    assert ctl.main(["--config", str(config), "why", "cluster-a/1"]) == 0
    said = capsys.readouterr().out
    assert "accounting: FAILED exit 3" in said
    assert "what would flip it:" in said


DEATH = b'step 1\nTraceback (most recent call last):\n  File "train.py", line 3, in <module>\nValueError: bad batch\n'


async def test_the_same_failure_of_two_jobs_is_one_incident_with_both_named(tmp_path):
    """CHAIN-5"""
    world = a_world("cluster-a", "1", "2")
    room, clock = a_room(tmp_path, [ScriptedCluster(world)], NOON)
    await room.tick(30)
    for job in "12":
        world.pass_time()
        world.print(job, DEATH)
        world.end(job, JobState.FAILED, 1)
    clock[0] = world.now
    await room.tick(30)
    last = await room.writer.call(lambda store: store.last_tick(finished=True))
    await room.close()

    (line,) = [line for line in last.report.splitlines() if line.startswith("- rank-crash, 2 times")]
    assert "cluster-a/1" in line
    assert "cluster-a/2" in line


async def test_the_same_failure_of_the_next_attempt_is_deterministic(tmp_path):
    """CHAIN-5: identical failures that repeat are escalated, never relaunched blindly."""
    world = a_world("cluster-a", "1")
    room, clock = a_room(tmp_path, [ScriptedCluster(world)], NOON)
    await room.tick(30)
    world.pass_time()
    world.print("1", DEATH)
    world.end("1", JobState.FAILED, 1)
    clock[0] = world.now
    await room.tick(30)
    world.jobs["1"].listed = True
    world.requeue("1")
    world.pass_time()
    world.start("1")
    clock[0] = world.now
    await room.tick(30)
    world.pass_time()
    world.print("1", DEATH)
    world.end("1", JobState.FAILED, 1)
    clock[0] = world.now
    await room.tick(30)
    row = room.stations[0].memory["1"].row
    first, second = await room.writer.call(lambda store: store.diagnoses(row))
    await room.close()

    assert (first.attempt, second.attempt) == (1, 2)
    assert second.document["repeats"] == ["attempt 1"]
    assert second.document["transience"] == "deterministic"


async def test_lines_that_arrive_late_are_diagnosed_too(tmp_path):
    """FIND-6: the file system of a login node lags."""
    from supervisor.app.autopsy import LATE_WORDS

    world = a_world("cluster-a", "1")
    room, clock = a_room(tmp_path, [ScriptedCluster(world)], NOON)
    await room.tick(30)
    world.pass_time()
    world.print("1", b"step 1\n")
    world.end("1", JobState.FAILED, 1)
    clock[0] = world.now
    await room.tick(30)
    row = room.stations[0].memory["1"].row
    (before,) = await room.writer.call(lambda store: store.diagnoses(row))
    world.print("1", DEATH)
    world.pass_time(LATE_WORDS + timedelta(minutes=1))
    clock[0] = world.now
    await room.tick(30)
    (after,) = await room.writer.call(lambda store: store.diagnoses(row))
    await room.close()

    assert before.document["cause"] is None
    assert after.document["cause"]["text"] == "ValueError: bad batch"


class Closed(ScriptedCluster):
    """Tells size and time of its logs, and gives no text of them."""

    reason = "permission denied"

    async def read_logs(self, wanted, now):
        from supervisor.model.logs import LogUnread

        return {(each.job_id, each.path): LogUnread(each.path, self.reason) for each in wanted}


async def test_a_log_whose_text_cannot_be_fetched_is_unread_never_silent_and_is_asked_for_again(tmp_path):
    """FIND-4, LIVE-2"""
    world = a_world("cluster-a", "1")
    room, clock = a_room(tmp_path, [ScriptedCluster(world)], NOON)

    async def tick(span=timedelta(minutes=1)):
        world.pass_time(span)
        clock[0] = world.now
        await room.tick(30)
        return room.stations[0].memory["1"]

    await room.tick(30)
    world.print("1", b"step 1\n")
    await tick()
    room.stations[0].cluster = Closed(world)
    world.print("1", b"step 2\nRuntimeError: CUDA error\n")
    held = await tick()
    assert (held.log.stat.state, held.log.stat.reason) == ("unread", "permission denied")
    held = await tick(timedelta(hours=1))
    assert held.life.phase is Phase.RUNNING, "an unread log is not a silent one"
    assert [flag.finding.rule for flag in held.flags] == ["FIND-4"]

    room.stations[0].cluster = ScriptedCluster(world)
    held = await tick()
    (cursor,) = await room.writer.call(lambda store: store.log_cursors(held.row))
    await room.close()
    assert held.log.stat.state == "read"
    assert b"CUDA error" in room.errands.kept.text(cursor), "it was asked for again though it did not grow"


async def test_a_new_attempt_is_not_progressing_on_what_the_one_before_printed(tmp_path):
    """LIVE-6, LIVE-2: the same file, appended to or not."""
    world = a_world("cluster-a", "1")
    room, clock = a_room(tmp_path, [ScriptedCluster(world)], NOON)
    await room.tick(30)
    for number in range(3):
        world.pass_time()
        world.print(
            "1",
            b"{'loss': 1.0, 'grad_norm': 0.5, 'learning_rate': 1e-05, 'epoch': 0.1}\n" + f"step {number}/50\n".encode(),
        )
        clock[0] = world.now
        await room.tick(30)
    world.requeue("1")
    world.pass_time()
    world.start("1")
    world.jobs["1"].output_at = NOON + timedelta(minutes=3)
    for _ in range(3):
        clock[0] = world.now
        await room.tick(30)
        world.pass_time()
    held = room.stations[0].memory["1"]
    await room.close()

    assert held.life.attempt == 2
    assert held.life.phase is Phase.BRING_UP


async def test_a_database_that_was_taken_away_is_begun_anew(tmp_path):
    """LIVE-8: the history is gone, the watch goes on."""
    world = a_world("cluster-a", "1")
    room, clock = a_room(tmp_path, [ScriptedCluster(world)], NOON)
    await room.tick(30)
    for name in ("supervisor.db", "supervisor.db-wal", "supervisor.db-shm"):
        (tmp_path / name).unlink(missing_ok=True)
    room.writer.store.close()
    await room.begin_anew()
    world.pass_time()
    clock[0] = world.now
    done = await room.tick(30)
    held = await room.writer.call(lambda store: store.held("cluster-a", ended_after=LONG_AGO))
    await room.close()

    assert [each.state for each in done.clusters] == ["ok"]
    assert [job.key.id for job in held] == ["1"]


@pytest.mark.parametrize(("kind", "asked"), [("kubernetes", {"1"}), ("host", set())])
async def test_a_new_jobs_log_that_dies_with_its_pod_is_looked_at_before_the_next_tick(tmp_path, kind, asked):
    """FIND-5: once; where logs stay, a new job's can wait."""
    world = a_world("cluster-a", "1")
    room, clock = a_room(tmp_path, [ScriptedCluster(world)], NOON)
    station = room.stations[0]
    station.section = station.section.model_copy(update={"kind": kind})
    await room.tick(30)
    soon = set(station.look_soon)
    clock[0] += timedelta(minutes=1)
    await room.look_at_suspects()
    again = set(station.look_soon)
    await room.close()

    assert (soon, again) == (asked, set())
