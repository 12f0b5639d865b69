"""Hundreds of labelled situations, played through the whole pipeline with a scripted cluster: real ticks, real captures' text
forms, real gates, real store. No false KILL, and ERROR whenever a gate's artifact is missing.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from random import Random

import pytest

from supervisor.app.evidence import open_folder
from supervisor.app.settings import Settings, rulebook
from supervisor.buckets import bucket_of
from supervisor.model.errors import ClusterError
from supervisor.model.job import JobState
from supervisor.model.probe import Captured, CaptureWanted, Ruling, Score
from tests.scripted import ScriptedCluster, World
from tests.some import MINUTE, NOON
from tests.stories import voices
from tests.stories.daemon import a_room
from tests.stories.scenarios import Scenario, scenarios
from tests.stories.scenarios.evidence import evidence, spoken_after

PRINTS = 12
"""Steps of each job, a minute apart, before it falls silent."""
BOOK = rulebook(Settings())


class Stage(ScriptedCluster):
    """A cluster whose jobs are the situations."""

    def __init__(self, world: World, played: Sequence[Scenario]) -> None:
        super().__init__(world)
        self.played = {each.id: each for each in played}

    async def capture(self, wanted: CaptureWanted, now: datetime) -> Sequence[Captured]:
        it = self.played[wanted.seen.key.id]
        if it.circumstance.get("failing") == "cluster":
            raise ClusterError(self.name, "ssh: connect to host login01 port 22: Connection refused")
        job = self.world.jobs[it.id]
        event = it.circumstance.get("event")
        if event == "ends":
            self.world.end(it.id, JobState.FAILED, 1)
        elif event == "requeued":
            self.world.requeue(it.id)
            self.world.start(it.id)
        return evidence(it, job, wanted, now)


def allowance(it: Scenario) -> timedelta:
    return BOOK.limits_of(bucket_of(it.name, {})).silence_floor


def said(it: Scenario, number: int, at: datetime) -> bytes:
    """What it prints as its step ``number``."""
    chance = Random(number)
    if it.work["says"] == "trainer":
        return f"{{'loss': {1.4 - 0.01 * number:.4f}, 'grad_norm': 0.8, 'learning_rate': 1e-05, 'epoch': 0.{number:02d}}}\n".encode()
    if it.work["says"] == "skyrl":
        step = voices.rl_step(number, voices.healthy(number, chance), at.replace(tzinfo=None))
        return f"{step.splitlines()[0]}\n".encode()  # without its bar, which tells of steps of seven minutes
    if it.work["says"] == "trials":
        return voices.trials([number], 300).encode()
    return f"step {number}/5000 loss={2 / number:.3f}\n".encode() if it.work["says"] == "steps" else b"served\n"


def timeline(played: Sequence[Scenario]) -> tuple[datetime, dict[datetime, list[tuple[Scenario, int]]]]:
    """When it is over, and who prints which step when."""
    longest = max(it.silence["times"] * allowance(it) for it in played)
    over = NOON + longest + timedelta(minutes=PRINTS + 5)
    prints: dict[datetime, list[tuple[Scenario, int]]] = defaultdict(list)
    for it in played:
        last = over - it.silence["times"] * allowance(it)
        for number in range(1, PRINTS + 1):
            prints[last - (PRINTS - number) * MINUTE].append((it, number))
    return over, dict(sorted(prints.items()))


async def play(folder: Path, played: Sequence[Scenario]):
    """One daemon over all of them; jobs by row, verdicts by job, whose kill is proposed, and what is still to be done."""
    over, prints = timeline(played)
    begin = next(iter(prints)) - MINUTE
    world = World(now=begin)
    room, clock = a_room(folder, [Stage(world, played)], begin)
    store = room.writer.store

    async def tick_at(moment: datetime) -> None:
        world.now = clock[0] = moment
        await room.tick(60)

    for moment, who in prints.items():
        world.now = moment
        for it, number in who:
            if number == 1:
                world.submit(it.id, it.name)
                world.start(it.id)
            world.print(it.id, said(it, number, moment))
            if number == 6 and it.circumstance.get("log") == "watchdog-before":
                world.print(it.id, WATCHDOG)
        await tick_at(moment)
    for it in played:
        if (more := spoken_after(it, over)) and it.silence["times"] > 0:
            world.print(it.id, more)
    await tick_at(over + timedelta(seconds=20))
    held = {each.key.id: each for each in store.held("cluster-a", ended_after=begin)}
    for it in played:
        store.ask("probe", "alice@box", clock[0], {"row": held[it.id].row})
    await room.run_probes(timedelta(hours=10))
    rows = {each.row: job for job, each in held.items()}
    verdicts = {each.job.id: each for each in reversed(store.verdicts())}
    proposed = {each.job.id for each in store.proposals()}
    errands = store.errands_open("probe")
    return room, rows, verdicts, proposed, errands


WATCHDOG = (
    b"[rank3]:[E803 11:30:00.123456789 ProcessGroupNCCL.cpp:683] [PG ID 0 PG GUID 0(default_pg) Rank 3] Watchdog caught collective "
    b"operation timeout: WorkNCCL(SeqNum=57, OpType=ALLREDUCE, NumelIn=191, NumelOut=1528, Timeout(ms)=600000) ran for 600059 "
    b"milliseconds before timing out.\n"
)


def of(chosen: str) -> list[Scenario]:
    return [it for it in scenarios() if it.work["name"] == chosen]


def test_there_are_enough_of_them_and_all_three_rulings_are_expected():
    every = scenarios()
    rulings = Counter(it.expected for it in every)

    assert len(every) >= 300
    assert min(rulings[word] for word in ("KILL", "NO-KILL", "ERROR")) >= 30
    assert len({it.id for it in every}) == len({str(it) for it in every}) == len(every)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("work", sorted({it.work["name"] for it in scenarios()}))
async def test_every_situation_is_judged_as_a_person_would(tmp_path, work):
    """PROBE-2 to PROBE-7, LIVE-5: zero false KILL; ERROR whenever a gate's artifact is missing; each quote stands."""
    played = of(work)
    room, held, verdicts, proposed, errands = await play(tmp_path, played)
    try:
        wrong = {}
        for it in played:
            entry = verdicts.get(it.id)
            ruling = entry.verdict.ruling.value if entry is not None else "none"
            if ruling != it.expected:
                why = entry.verdict.reasoning if entry is not None else ""
                wrong[str(it)] = f"{it.expected} expected, {ruling} given: {why}"
            if entry is not None:
                _stands(entry.verdict)
            assert (it.id in proposed) == (ruling == "KILL"), str(it)
        assert wrong == {}, f"{len(wrong)} of {len(played)}: " + "\n".join(
            f"{key}: {why}" for key, why in wrong.items()
        )
        away = {it.id for it in played if it.circumstance.get("failing") == "cluster"}
        assert {held[each.job_row] for each in errands} <= away, (
            "what could ask nothing at all is tried again, and only that"
        )
    finally:
        await room.close()


def _stands(verdict) -> None:
    """PROBE-3, PROBE-4: every quote is in the folder; an ERROR names its command and output."""
    if verdict.ruling is Ruling.ERROR:
        lost = [gate for gate in verdict.gates if gate.result is Score.ERROR]
        assert lost
        assert all(gate.missing is not None and gate.missing.command and gate.missing.output for gate in lost)
    folder = open_folder(Path(verdict.evidence))
    for gate in verdict.gates:
        for quote in gate.quotes:
            assert quote.text in folder.lines(quote.file)[quote.line - 1]
