"""An approved kill, carried out on every kind of cluster: a real job ends, once, and the one beside it lives on (KILL-3)."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from supervisor.app.sections import ApprovalsSection
from supervisor.app.watchroom import Watchroom
from supervisor.model.facts import Held
from supervisor.model.job import JobKey
from supervisor.model.ports import Approval, CancelReceipt
from supervisor.model.probe import Verdict
from supervisor.model.proposals import Decision, Stage
from supervisor.rules.leave import silence_key
from tests.contract.driving import Watcher
from tests.contract.test_backends import running
from tests.some import HOUR
from tests.stories.daemon import a_room
from tests.stories.killing import ASK, verdict_on

pytestmark = pytest.mark.lab

HANGS = "echo step 1/9; sleep 600 & wait"


def now() -> datetime:
    return datetime.now(UTC)


class Counted:
    """Stands before a backend and counts what it is asked to end."""

    def __init__(self, watcher: Watcher) -> None:
        self.sent: list[JobKey] = []
        cluster = watcher.driver.cluster
        self._cancel = cluster.cancel
        cluster.cancel = self.cancel  # type: ignore[method-assign]

    async def cancel(self, job: JobKey, approval: Approval) -> CancelReceipt:
        self.sent.append(job)
        return await self._cancel(job, approval)


def a_room_of(watcher: Watcher, folder: Path) -> Watchroom:
    """The daemon's work over the real cluster, by the real clock."""
    room, _ = a_room(folder, [watcher.driver.cluster], now(), deadline_s=60)
    room.settings = room.settings.model_copy(update={"approvals": ApprovalsSection(**ASK, confirm_s=60)})
    room.kills.settings, room.kills.clock = room.settings, now
    room.sweeper.clock = room.clock = now

    async def as_it_is(held: Held) -> Verdict | str:
        return verdict_on(held, now())

    room.kills.refresh = as_it_is
    return room


async def held_still(room: Watchroom, watcher: Watcher, *jobs: str) -> list[Held]:
    """The jobs as they are held, once their logs were read and say nothing new any more."""
    end, before = time.monotonic() + 2 * watcher.driver.patience_s, None
    while True:
        await room.sweeper.tick(room.stations, 60)
        found = {
            each.key.id: each
            for each in room.writer.store.held(watcher.driver.cluster.name, ended_after=now() - HOUR)
            if each.key.id in jobs
        }
        marks = {job: held.log for job, held in found.items()}
        if set(found) == set(jobs) and all(log.stat is not None for log in marks.values()) and marks == before:
            return [found[job] for job in jobs]
        before = marks
        assert time.monotonic() < end, found
        await asyncio.sleep(0.3)


def approved(room: Watchroom, held: Held) -> Decision:
    verdict, store = verdict_on(held, now()), room.writer.store
    assert held.row is not None
    _, number = store.put_verdict(
        held.row, verdict, now(), silence_key=silence_key(verdict), expires_at=now() + timedelta(hours=1)
    )
    assert number is not None
    return store.approve(
        number,
        digest=verdict.digest,
        by="alice@box",
        reason="it hangs",
        mode="ask",
        expires_at=now() + timedelta(minutes=10),
        now=now(),
    )


async def test_a_real_job_is_ended_once_by_its_approval_and_no_other(watcher: Watcher, tmp_path: Path) -> None:
    job = await running(watcher, "rl-condemned", HANGS)
    bystander = await running(watcher, "rl-bystander", HANGS)
    counted, room = Counted(watcher), a_room_of(watcher, tmp_path)
    held, _ = await held_still(room, watcher, job, bystander)
    decision = approved(room, held)

    await room.kills.run(room.stations, timedelta(minutes=2), wait=True)
    await room.kills.run(room.stations, timedelta(minutes=2), wait=True)

    after = room.writer.store.decision(decision.id)
    assert (after.stage, counted.sent) == (Stage.CONFIRMED, [held.key]), after
    assert "nothing of it remains" in (after.why or "")
    await watcher.until_ended(job)
    await watcher.good()
    assert bystander in watcher.live
    room.writer.close()


async def test_a_real_job_that_moved_on_since_its_verdict_is_left_alone(watcher: Watcher, tmp_path: Path) -> None:
    """KILL-2."""
    job = await running(watcher, "rl-wakes", "echo step 1/9; sleep 8; echo step 2/9; sleep 600")
    counted, room = Counted(watcher), a_room_of(watcher, tmp_path)
    (held,) = await held_still(room, watcher, job)
    if held.log.step == 2:
        pytest.skip("this machine was too slow to see its first step alone")
    decision = approved(room, held)
    end = time.monotonic() + 30 + watcher.driver.patience_s
    while (room.writer.store.job(held.row or 0).log.step or 0) < 2:
        await room.sweeper.tick(room.stations, 60)
        assert time.monotonic() < end
        await asyncio.sleep(0.3)

    await room.kills.run(room.stations, timedelta(minutes=2), wait=True)

    after = room.writer.store.decision(decision.id)
    assert (after.stage, counted.sent) == (Stage.VOID, [])
    assert (after.why or "").startswith("it progressed since the verdict (step 2")
    await watcher.good()
    assert job in watcher.live
    room.writer.close()
