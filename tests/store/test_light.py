"""The light way to read says the same as the full store, beside a writer, after a kill, and in one line where it can't."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from supervisor.model.errors import NotBegun, StoreError
from supervisor.model.facts import Held, RunFacts
from supervisor.model.job import Outcome
from supervisor.model.lifecycle import Phase, Sign
from supervisor.model.records import Heartbeat
from supervisor.store.faults import StoreAway, StoreBroken, StoreLocked
from supervisor.store.light import Light
from supervisor.store.light_rows import JobRow
from supervisor.store.store import Store
from tests.some import HOUR, MINUTE, NOON
from tests.store.some import attempts, ended, full_job, move, new_job, poll, status

ROOT = Path(__file__).parents[2]


def seconds(span: timedelta | None) -> float | None:
    return None if span is None else span.total_seconds()


def as_shown(job: Held, **learnt: object) -> JobRow:
    """What ``status`` must show of a job, by the full path's own values."""
    seen, log = job.observation, job.log
    flags = [
        {
            "rule": flag.finding.rule,
            "severity": flag.finding.severity.value,
            "text": flag.finding.text,
            "since": flag.since.isoformat().replace("+00:00", "Z"),
            "quotes": [{"file": quote.file, "line": quote.line, "text": quote.text} for quote in flag.finding.quotes],
        }
        for flag in job.flags
    ]
    compact = {"separators": (",", ":"), "ensure_ascii": False}
    values: dict[str, object] = {
        "row": job.row,
        "cluster": job.key.cluster,
        "id": job.key.id,
        "name": seen.name,
        "bucket": job.bucket,
        "user": seen.user,
        "attempt": job.life.attempt,
        "phase": job.life.phase.value,
        "since": job.life.since,
        "state": seen.state.value,
        "scheduler_state": seen.scheduler_state,
        "scheduler_reason": seen.reason,
        "outcome": job.life.outcome,
        "exit_code": seen.exit_code,
        "signal": seen.signal,
        "submitted_at": seen.submitted_at,
        "started_at": seen.started_at,
        "ended_at": seen.ended_at,
        "time_limit_s": seconds(seen.time_limit),
        "account": seen.account,
        "partition": seen.partition,
        "group": seen.group,
        "group_size": seen.group_size,
        "nodes": json.dumps(seen.nodes, separators=(",", ":")) if seen.nodes else None,
        "node_count": seen.node_count,
        "log_state": log.stat.state.value if log.stat else "none",
        "log_path": log.stat.path if log.stat else job.details.log_path,
        "log_reason": log.stat.reason if log.stat else None,
        "last_output_at": log.last_output_at,
        "cadence_s": seconds(log.cadence),
        "step": log.step,
        "total": log.total,
        "progress_at": log.progress_at,
        "metrics": None,
        "flags": json.dumps(flags, **compact) if flags else None,  # type: ignore[arg-type]
        "worst": flags[0]["severity"] if flags else None,
        "predecessor": job.predecessor,
        "successor": job.successor,
        "diagnosis": None,
        "first_seen_at": job.first_seen_at,
        "closed_at": None,
    }
    return JobRow(**(values | learnt))  # type: ignore[arg-type]


# ---------------------------------------------------------------- the same as the full path


def test_jobs_read_the_light_way_are_those_of_the_full_way(store: Store, url: str) -> None:
    """House, idea 5: one light read path, tested to say the same as the full one."""
    run = RunFacts(metrics={"reward": 0.619, "loss": "NaN"}, rate_per_s=0.5, series={"reward": (0.5, None)})
    full, plain, over = store.record(
        poll(full_job().having(run=run), new_job("43"), ended(new_job("44"), Outcome.FAILED))
    )
    store.put_diagnosis(over.row or 0, 1, {"category": "oom", "summary": "…", "echoes": [1, 2]}, NOON)

    with Light.open(url) as light:
        shown = {job.id: job for job in light.jobs(every=True)}

    metrics, diagnosis = shown["4711"].metrics, shown["44"].diagnosis
    assert metrics is not None
    told = json.loads(metrics)
    assert (told["metrics"], told["rate_per_s"]) == ({"reward": 0.619, "loss": "NaN"}, 0.5)
    assert told["series"] == {"reward": [0.5, None]}
    assert diagnosis is not None
    assert json.loads(diagnosis)["category"] == "oom"
    assert "echoes" not in json.loads(diagnosis)
    assert shown["4711"] == as_shown(full, metrics=metrics)
    assert shown["43"] == as_shown(plain)
    assert shown["44"] == as_shown(over, closed_at=NOON, diagnosis=diagnosis)


def test_the_monitor_read_the_light_way_is_that_of_the_full_way(store: Store, url: str) -> None:
    beat = Heartbeat(
        daemon="box:7:1",
        host="box",
        pid=7,
        version="0.1.0",
        started_at=NOON,
        beat_at=NOON,
        interval_s=900,
        next_tick_at=NOON + HOUR,
    )
    store.beat(replace(beat, daemon="box:6:1", pid=6, beat_at=NOON - HOUR, trouble="disk 97 % full"))
    store.beat(beat)
    first = store.begin_tick(NOON, "box:7:1")
    store.finish_tick(first, NOON + MINUTE, "report", "{}")
    second = store.begin_tick(NOON + HOUR, "box:7:1")
    store.put_status(status("cluster-b"))
    store.put_status(status("cluster-a", headroom=None, last_good_at=None, reason="login refused", hint="renew it"))
    hold = store.add_hold("all", "", "weekend", "alice", NOON)
    alert = store.open_alert("cluster-a", "unread", "fault", "unread for 2 ticks", NOON)

    with Light.open(url) as light:
        summary, holds, alerts = light.summary(), light.holds(), light.alerts()

    for row, beats in zip(summary.heartbeats, store.heartbeats(), strict=True):
        assert Heartbeat(**row._asdict()) == beats
    last = store.last_tick(finished=True)
    assert last is not None
    assert summary.last_tick == (first, "box:7:1", last.started_at, last.finished_at, last.took_s)
    assert summary.running_tick == (second, "box:7:1", NOON + HOUR, None, None)
    assert [row.name for row in summary.clusters] == ["cluster-a", "cluster-b"]
    for row, full in zip(summary.clusters, store.cluster_statuses(), strict=True):
        room = full.headroom
        assert (row.inodes_used, row.inodes_soft) == ((room.inodes_used, room.inodes_soft) if room else (None, None))
        same = [name for name in row._fields if not name.startswith(("inodes", "bytes"))]
        assert [getattr(row, name) for name in same] == [getattr(full, name) for name in same]
    assert [tuple(row) for row in holds] == [(hold.id, "all", "", "weekend", "alice", NOON)]
    assert [(row.id, row.text, row.times_said) for row in alerts] == [(alert.id, "unread for 2 ticks", 0)]


def test_a_life_read_the_light_way_is_that_of_the_full_way(store: Store, url: str) -> None:
    job = new_job()
    moved, step = move(job, Phase.SUSPECT)
    (held,) = store.record(poll(moved, transitions=[step], attempts=attempts([job])))
    row = held.row or 0

    with Light.open(url) as light:
        (shown,) = light.transitions(row)
        (attempt,) = light.attempts(row)
        body = json.loads(light.body(row))
        with pytest.raises(StoreError, match="row number 99"):
            light.body(99)

    (full,) = store.transitions(row)
    assert (shown.number, shown.at, shown.tick) == (full.number, full.transition.at, full.tick)
    assert (shown.before, shown.after, shown.sign) == ("running", "suspect", Sign.SILENT.value)
    assert json.loads(shown.body)["read"]["evidence"][0]["quotes"] == [{"file": "rl.out", "line": 3, "text": "x"}]
    assert (attempt.number, attempt.state) == (1, "running")
    assert json.loads(attempt.body)["observation"]["name"] == job.observation.name
    assert body["life"]["phase"] == "suspect"


def test_a_job_is_found_alike_both_ways(store: Store, url: str) -> None:
    store.record(poll(*[new_job(str(number), name=f"rl__gsm8k_{number % 7}%") for number in range(60)]))

    with Light.open(url) as light:
        for text in ("cluster-a/7", "7", "gsm8k", "RL__GSM8K_3%", "_", "%", "nothing", "cluster-b/7", "a/b/c", ""):
            assert [row.row for row in light.find(text)] == [one.row for one in store.find_jobs(text)]


# ---------------------------------------------------------------- which jobs


@pytest.fixture
def fleet(store: Store) -> Store:
    """Two living jobs and an ended one in each of two buckets, on two clusters."""
    for cluster in ("cluster-b", "cluster-a"):
        jobs = [
            new_job(f"{bucket}{number}", cluster=cluster, bucket=bucket, name=f"{number}", phase=phase)
            for bucket in ("sft", "rl")
            for number, phase in ((1, Phase.RUNNING), (2, Phase.SUSPECT), (3, Phase.DONE))
        ]
        store.record(poll(*jobs, cluster=cluster, at=HOUR if cluster == "cluster-b" else timedelta(0)))
    return store


def names(light: Light, **wanted: object) -> list[str]:
    return [f"{job.cluster[-1]} {job.id}" for job in light.jobs(**wanted)]  # type: ignore[arg-type]


def test_living_jobs_come_in_order_and_ended_ones_when_asked_for(fleet: Store, url: str) -> None:
    """BUCKET-2: every active job, and every job that ended since the last report."""
    living = ["a rl1", "a rl2", "b rl1", "b rl2", "a sft1", "a sft2", "b sft1", "b sft2"]
    with Light.open(url) as light:
        assert names(light) == living
        assert names(light, ended_after=NOON) == [*living, "b rl3", "b sft3"]
        assert names(light, every=True) == [*living, "b rl3", "b sft3", "a rl3", "a sft3"]
        assert names(light, every=True, limit=9) == [*living, "b rl3"]
        assert names(light, every=True, limit=3) == living[:3]


def test_filters_narrow_living_and_ended_jobs_alike(fleet: Store, url: str) -> None:
    with Light.open(url) as light:
        assert names(light, buckets=["rl"], clusters=["cluster-b"], every=True) == ["b rl1", "b rl2", "b rl3"]
        assert names(light, phases=["suspect", "done"], every=True, buckets=["sft"]) == [
            "a sft2",
            "b sft2",
            "b sft3",
            "a sft3",
        ]
        rows = [job.row for job in light.jobs(every=True) if job.id == "rl3"]
        assert names(light, rows=rows) == ["b rl3", "a rl3"]
        assert names(light, buckets=["x'; DROP TABLE job; --"], every=True) == []
        counts = {(one.bucket, one.phase, one.worst): one.jobs for one in light.counts()}
    assert counts == {(bucket, phase, None): 2 for bucket in ("rl", "sft") for phase in ("running", "suspect", "done")}


def plan(store: Store, text: str, row: tuple[object, ...] = ()) -> str:
    with store._db.read("test") as connection:
        return "; ".join(str(one[3]) for one in store._db.run(connection, f"EXPLAIN QUERY PLAN {text}", row))


def test_twenty_thousand_jobs_are_counted_and_listed_from_indexes(sqlite_store: Store) -> None:
    """So that ``status`` costs milliseconds however many jobs there ever were."""
    counted = plan(sqlite_store, "SELECT bucket, phase, worst, COUNT(*) FROM job GROUP BY bucket, phase, worst")
    living = plan(
        sqlite_store, "SELECT body FROM job WHERE closed_at IS NULL ORDER BY bucket, cluster, name, id LIMIT 50"
    )
    ended_since = plan(sqlite_store, "SELECT body FROM job WHERE closed_at > 5 ORDER BY closed_at DESC LIMIT 50")
    part_of_name = plan(sqlite_store, "SELECT id FROM job WHERE LOWER(name) LIKE '%x%'")

    assert counted == "SCAN job USING COVERING INDEX job_counted"
    assert living == "SEARCH job USING INDEX job_shown (closed_at=?)"
    assert ended_since == "SEARCH job USING INDEX job_shown (closed_at>?)"
    assert part_of_name == "SCAN job USING COVERING INDEX job_shown"


# ---------------------------------------------------------------- beside a writer, after a kill


def test_one_picture_is_read_while_the_daemon_writes(store: Store, url: str) -> None:
    store.record(poll(new_job()))

    with Light.open(url) as light:
        before = light.jobs()
        store.record(poll(new_job("43"), at=MINUTE))
        assert light.jobs() == before
        assert light.counts()[0].jobs == 1

    with Light.open(url) as light:
        assert len(light.jobs()) == 2


def test_a_reader_waits_for_no_open_transaction(sqlite_store: Store, tmp_path: Path) -> None:
    sqlite_store.record(poll(new_job()))

    with sqlite_store._db.write("test") as connection:
        connection.exec_driver_sql("UPDATE job SET name = 'half done'")
        with Light.open(f"sqlite:///{tmp_path / 'supervisor.db'}") as light:
            assert [job.name for job in light.jobs()] == ["rl__gsm8k_42"]


KILLED = """
import os, signal, sys
from supervisor.store.store import Store
from tests.store.some import new_job, poll, MINUTE
store = Store.open(sys.argv[1])
store.record(poll(new_job()))
with store._db.write("a write that is never finished") as connection:
    connection.exec_driver_sql("UPDATE job SET name = 'never'")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def killed_daemon(url: str) -> None:
    """A daemon that stored one job and was killed in the middle of the next write."""
    done = subprocess.run([sys.executable, "-c", KILLED, url], cwd=ROOT, check=False)
    assert done.returncode == -signal.SIGKILL


def test_what_a_killed_daemon_left_is_read(tmp_path: Path, sqlite_template: Path) -> None:
    """LIVE-8: ``status`` answers even when the daemon is dead."""
    path = tmp_path / "supervisor.db"
    shutil.copy(sqlite_template, path)
    killed_daemon(f"sqlite:///{path}")
    assert (tmp_path / "supervisor.db-wal").stat().st_size > 0

    with Light.open(f"sqlite:///{path}") as light:
        assert [job.name for job in light.jobs()] == ["rl__gsm8k_42"]


AS_NOBODY = """
import os, sys
from supervisor.store.light import Light
os.setgroups([]); os.setgid(65534); os.setuid(65534)
with Light.open(sys.argv[1]) as light:
    print([job.name for job in light.jobs()])
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
@pytest.mark.parametrize("left", ["a clean end", "a killed daemon", "a running daemon"])
def test_another_user_who_may_only_read_reads(sqlite_template: Path, left: str) -> None:
    """A colleague's ``status`` on a folder that is closed to their writing."""
    import tempfile

    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        folder = Path(name)
        folder.chmod(0o755)
        path = folder / "supervisor.db"
        shutil.copy(sqlite_template, path)
        url = f"sqlite:///{path}"
        store = Store.open(url)
        if left == "a killed daemon":
            killed_daemon(url)
        else:
            store.record(poll(new_job()))
            if left == "a clean end":
                store.close()
        for file in folder.iterdir():
            file.chmod(0o644)

        done = subprocess.run(
            [sys.executable, "-c", AS_NOBODY, url], cwd=ROOT, capture_output=True, text=True, check=False
        )
        store.close()

    assert done.stdout == "['rl__gsm8k_42']\n", done.stderr


# ---------------------------------------------------------------- one clear line


def test_a_missing_file_is_told_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(NotBegun, match=r"store.db isn't there: start supervisord"):
        Light.open(f"sqlite:///{tmp_path / 'store.db'}")
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_no_database_is_told(tmp_path: Path) -> None:
    (tmp_path / "store.db").write_text("hello " * 1000)

    with pytest.raises(StoreBroken, match="not an SQLite database"):
        Light.open(f"sqlite:///{tmp_path / 'store.db'}")


def test_an_empty_file_has_no_schema_yet(tmp_path: Path) -> None:
    (tmp_path / "store.db").touch()

    with pytest.raises(NotBegun, match="no schema yet"):
        Light.open(f"sqlite:///{tmp_path / 'store.db'}")


def test_a_locked_database_is_told(sqlite_store: Store, tmp_path: Path) -> None:
    path = tmp_path / "supervisor.db"
    sqlite_store.close()
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("PRAGMA locking_mode = EXCLUSIVE")
        other.execute("BEGIN EXCLUSIVE")
        other.execute("CREATE TABLE x (y)")

        with pytest.raises(StoreLocked, match="locked by another process"):
            Light.open(f"sqlite:///{path}", busy_s=0.05)


@pytest.mark.lab
def test_a_server_that_is_away_is_told_without_the_password() -> None:
    url = "postgresql+psycopg://alice:secret@127.0.0.1:1/fleet"

    with pytest.raises(StoreAway) as caught:
        Light.open(url)

    assert "database postgresql://127.0.0.1:1/fleet" in str(caught.value)
    assert "secret" not in str(caught.value)
    assert "\n" not in str(caught.value)


# ---------------------------------------------------------------- light

LOADED = """
import sys
sys.path.insert(0, sys.argv[2])
from supervisor.store.light import Light
with Light.open(sys.argv[1]) as light:
    light.summary(), light.counts(), light.jobs(every=True), light.find("x")
print(*sorted(sys.modules))
"""
HEAVY = (
    "sqlalchemy",
    "psycopg",
    "pydantic",
    "msgspec",
    "alembic",
    "asyncio",
    "json",
    "typing",
    "dataclasses",
    "inspect",
)


def test_the_light_path_loads_nothing_heavy(sqlite_store: Store, tmp_path: Path) -> None:
    """Issue: the way of ``status`` loads no kubernetes, asyncssh, alembic, apscheduler, pydantic, rich."""
    sqlite_store.record(poll(full_job()))
    url = f"sqlite:///{tmp_path / 'supervisor.db'}"

    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", LOADED, url, str(ROOT)], capture_output=True, text=True, check=True
    )

    loaded = {name.partition(".")[0] for name in done.stdout.split()}
    assert "sqlite3" in loaded
    assert loaded.isdisjoint(HEAVY)


def test_a_time_is_aware_and_utc_both_ways(store: Store, url: str) -> None:
    store.record(poll(new_job()))

    with Light.open(url) as light:
        (job,) = light.jobs()

    assert isinstance(job.since, datetime)
    assert job.since.utcoffset() == timedelta(0)
