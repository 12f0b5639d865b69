"""From a suspect to a stored verdict: the real loop, the real gates and the real store over a scripted world."""

from __future__ import annotations

import asyncio
import errno
import os
import sys
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from supervisor.app import evidence, probes
from supervisor.app.evidence import open_folder
from supervisor.app.probes import LEASE
from supervisor.app.sections import ExternalSection
from supervisor.gates import judge
from supervisor.model.job import JobState
from supervisor.model.lifecycle import Phase
from supervisor.model.probe import Role, Ruling, Score
from supervisor.model.proposals import ProposalState
from supervisor.model.records import Heartbeat
from tests.scripted import ScriptedCluster, World
from tests.scripted_captures import captures
from tests.some import HOUR, MINUTE, NOON
from tests.stories.daemon import a_room

pytestmark = pytest.mark.slow

STEP = "{{'loss': 0.{n}, 'grad_norm': 0.2, 'learning_rate': 1e-05, 'epoch': 0.{n}}}\n"
JOB = "4711"


class Probed:
    """One daemon over one world, with one job that printed some steps."""

    def __init__(self, folder, name="sft__a", cluster=ScriptedCluster):
        self.world, self.folder = World(), folder
        self.job = self.world.submit(JOB, name)
        self.world.start(JOB)
        self.cluster = cluster(self.world)
        self.room, self.clock = a_room(folder, [self.cluster], NOON)

    async def tick(self, span=MINUTE):
        self.world.pass_time(span)
        self.clock[0] = self.world.now
        return await self.room.tick(30)

    async def until_running(self):
        await self.tick()
        for number in range(1, 6):
            self.world.print(JOB, STEP.format(n=number).encode())
            await self.tick()
        assert self.held().life.phase is Phase.RUNNING

    async def until_suspect(self):
        await self.until_running()
        await self.tick(2 * HOUR)
        assert self.held().life.phase is Phase.SUSPECT

    async def probe(self, span=timedelta(0)):
        self.clock[0] += span
        await self.room.run_probes(timedelta(hours=1))

    @property
    def store(self):
        return self.room.writer.store

    def held(self):
        return next(iter(self.store.held("cluster-a", ended_after=NOON - HOUR)))

    def verdicts(self):
        return [each.verdict for each in self.store.verdicts(row=self.held().row)]

    def gate(self, letter="A"):
        return next(each for each in self.verdicts()[0].gates if each.gate == letter)

    def open_probes(self):
        return self.store.errands_open("probe")

    def record(self):
        (path,) = (self.folder / "agent_logs").glob("*_cluster-a-4711-verdict.md")
        return path.read_text()


@pytest.fixture
async def probed(tmp_path):
    made = Probed(tmp_path)
    yield made
    await made.room.close()


# -- the whole way -----------------------------------------------------------------------------------------------------


async def test_a_hung_job_is_judged_by_evidence_that_stands_proposed_once_and_held_as_wedged(probed):
    """LIVE-5, PROBE-1, PROBE-4, PROBE-5, SAY-3"""
    probed.job.busy = False
    await probed.until_suspect()
    await probed.probe()

    (verdict,) = probed.verdicts()
    assert (verdict.ruling, verdict.cause) == (Ruling.KILL, "silent-hang"), verdict.reasoning
    folder = open_folder(Path(verdict.evidence))
    quotes = [quote for gate in verdict.gates for quote in gate.quotes]
    assert len(quotes) > 2
    for quote in quotes:
        assert quote.text in folder.lines(quote.file)[quote.line - 1]
    (proposal,) = probed.store.proposals()
    assert (proposal.job.id, proposal.digest) == (JOB, verdict.digest)
    assert "KILL" in probed.record()

    await probed.tick()
    held = probed.held()
    assert held.life.phase is Phase.WEDGED
    steps = probed.store.transitions(held.row)
    assert steps[-1].transition.read.evidence[0].quotes, "no claim without its quote"
    assert probed.cluster.cancelled == [], "PROBE-14: it is only recommended"


async def test_a_healthy_job_that_was_silent_for_a_while_is_kept_and_looked_at_again_ever_more_rarely(probed):
    """PROBE-7: in doubt, with evidence in hand, it is kept; a silence alone kills nothing."""
    await probed.until_suspect()
    await probed.probe()
    assert probed.verdicts()[0].ruling is Ruling.NO_KILL
    assert probed.store.proposals() == []

    for _ in range(30):
        await probed.tick(3 * MINUTE)
        await probed.probe()
    assert probed.held().life.phase is Phase.SUSPECT
    assert 3 <= len(probed.verdicts()) <= 8, "thirty looks in ninety minutes"


async def test_progress_after_the_verdict_lifts_it_out_and_no_probe_follows(probed):
    """LIVE-4, KILL-2"""
    probed.job.busy = False
    await probed.until_suspect()
    await probed.probe()
    await probed.tick()
    probed.world.print(JOB, STEP.format(n=6).encode())
    await probed.tick()
    await probed.room.run_kills(MINUTE)

    assert probed.held().life.phase is Phase.RUNNING
    (proposal,) = probed.store.proposals(*ProposalState)
    assert proposal.state is ProposalState.WITHDRAWN
    await probed.probe()
    assert len(probed.verdicts()) == 1


async def test_no_further_probe_while_its_kill_waits_for_a_person(probed):
    probed.job.busy = False
    await probed.until_suspect()
    await probed.probe()
    for _ in range(5):
        await probed.tick(HOUR)
        await probed.probe()

    assert len(probed.verdicts()) == 1


async def test_a_tick_is_over_before_its_probe_and_wants_it_once(probed):
    """One in flight per job; a probe delays no tick."""
    await probed.until_suspect()
    assert len(probed.open_probes()) == 1
    for _ in range(3):
        await probed.tick(MINUTE / 2)

    assert len(probed.open_probes()) == 1
    assert probed.cluster.captured == []


# -- when it is asked for ----------------------------------------------------------------------------------------------


async def test_a_request_is_answered_with_its_verdict_ahead_of_all_others(probed):
    await probed.until_running()
    number = probed.store.ask("probe", "alice@box", probed.clock[0], {"row": probed.held().row})
    await probed.probe()

    assert probed.store.request(number).result == "verdict 1"
    assert probed.verdicts()[0].ruling is Ruling.NO_KILL
    assert all(each.result in (Score.PASS, Score.NOT_APPLICABLE) for each in probed.verdicts()[0].gates)


@pytest.mark.parametrize("payload", [{}, {"row": 99}, {"row": "x"}, {"row": True}])
async def test_a_request_that_names_no_job_is_answered_too(probed, payload):
    await probed.until_running()
    number = probed.store.ask("probe", "alice@box", probed.clock[0], payload)
    await probed.probe()

    answer = probed.store.request(number)
    assert answer.result.startswith("failed: ")


async def test_a_request_for_a_job_that_has_ended_says_so(probed):
    await probed.until_running()
    probed.world.end(JOB, JobState.FAILED, 1)
    await probed.tick()
    number = probed.store.ask("probe", "alice@box", probed.clock[0], {"row": probed.held().row})
    await probed.probe()

    assert "has ended" in probed.store.request(number).result
    assert probed.verdicts() == []


async def test_an_rl_job_in_a_new_setting_is_probed_each_tick_until_one_passes(tmp_path):
    """RL-10: here its evidence is never whole, so it never passes."""
    probed = Probed(tmp_path, "rl__a")
    await probed.until_running()
    await probed.probe()
    assert len(probed.verdicts()) == 1
    for _ in range(3):
        probed.world.print(JOB, STEP.format(n=7).encode())
        await probed.tick(15 * MINUTE)
        await probed.probe()
    await probed.room.close()

    assert [each.ruling for each in probed.verdicts()] == [Ruling.ERROR] * 4


# -- what goes wrong ---------------------------------------------------------------------------------------------------


async def test_a_cluster_that_cannot_be_asked_is_tried_again_and_then_an_error_that_says_why(probed):
    """PROBE-3: a dead login node, three tries."""
    await probed.until_suspect()
    probed.world.unreachable = "ssh: connect to host login01 port 22: No route to host"
    await probed.probe()
    assert probed.verdicts() == []
    await probed.probe(timedelta(seconds=301))
    assert probed.verdicts() == []
    await probed.probe(timedelta(seconds=301))

    (verdict,) = probed.verdicts()
    assert verdict.ruling is Ruling.ERROR
    assert "No route to host" in probed.gate().missing.output
    assert probed.open_probes() == []


async def test_a_request_does_not_wait_for_further_tries(probed):
    await probed.until_running()
    number = probed.store.ask("probe", "alice@box", probed.clock[0], {"row": probed.held().row})
    probed.world.unreachable = "ssh: connect to host login01 port 22: No route to host"
    await probed.probe()

    assert probed.store.request(number).result == "verdict 1"
    assert probed.verdicts()[0].ruling is Ruling.ERROR


@pytest.mark.parametrize("role", [Role.RECORD, Role.LOG, Role.PROCESSES, Role.STACK])
async def test_any_piece_that_a_hang_rests_on_and_that_is_denied_makes_it_an_error_never_a_kill(probed, role):
    """PROBE-2, PROBE-3, PROBE-5: with the exact command and its exact output."""
    probed.job.busy = False
    await probed.until_suspect()
    denied = "srun: error: Unable to create step for job 4711: Access/permission denied"

    def without(wanted):
        pieces = captures(probed.job, wanted, probed.clock[0])
        return [replace(each, data=None, failure=denied) if each.role is role else each for each in pieces]

    real = probed.cluster.capture

    async def capture(wanted, now):
        await real(wanted, now)
        return without(wanted)

    probed.cluster.capture = capture
    await probed.probe()

    (verdict,) = probed.verdicts()
    assert verdict.ruling is Ruling.ERROR
    assert any(gate.missing is not None and denied in gate.missing.output for gate in verdict.gates)
    assert probed.store.proposals() == []


class EndsMeanwhile(ScriptedCluster):
    """The job ends while its evidence is captured, and a tick sees it."""

    after = None

    async def capture(self, wanted, now):
        pieces = await super().capture(wanted, now)
        await self.after()
        return pieces


@pytest.mark.parametrize("how", ["ends", "is requeued"])
async def test_a_job_that_ends_in_the_midst_of_its_probe_is_an_error_and_nothing_is_proposed(tmp_path, how):
    """PROBE-2"""
    probed = Probed(tmp_path, cluster=EndsMeanwhile)
    probed.job.busy = False

    async def meanwhile():
        if how == "ends":
            probed.world.end(JOB, JobState.FAILED, 1)
        else:
            probed.world.requeue(JOB)
            probed.world.start(JOB)
        await probed.room.sweeper.tick(probed.room.stations, 30)

    probed.cluster.after = meanwhile
    await probed.until_suspect()
    await probed.probe()
    proposals = probed.store.proposals(*ProposalState)
    await probed.room.close()

    (verdict,) = probed.verdicts()
    assert verdict.ruling is Ruling.ERROR
    assert verdict.attempt == 1
    assert proposals == []


async def test_a_capture_that_never_answers_is_ended_by_its_own_deadline(probed):
    """PROBE-14"""
    await probed.until_suspect()
    number = probed.store.ask("probe", "alice@box", probed.clock[0], {"row": probed.held().row})
    section = probed.room.settings.probe.model_copy(update={"timeout_s": 0.2})
    settings = probed.room.settings.model_copy(update={"probe": section})
    probed.room.probes.configure(settings, probed.room.rooms, probed.room.stations)

    async def never(wanted, now):
        await asyncio.Event().wait()

    probed.cluster.capture = never
    await probed.probe()

    assert probed.store.request(number).result == "verdict 1"
    assert "not whole within 0.2 s" in probed.gate().missing.output


async def test_a_fault_of_ours_in_a_backend_is_said_and_ends_no_other_probe(probed):
    await probed.until_suspect()
    probed.store.ask("probe", "alice@box", probed.clock[0], {"row": probed.held().row})

    async def broken(wanted, now):
        raise ZeroDivisionError("of all things")

    probed.cluster.capture = broken
    await probed.probe()

    assert "fault in the supervisor itself" in probed.gate().missing.output


async def test_evidence_that_was_tampered_with_is_an_error(probed, monkeypatch):
    """PROBE-4: between its writing and its judging."""
    probed.job.busy = False
    await probed.until_suspect()
    real = probed.room.probes.evidence.write

    def write(*given):
        folder = real(*given)
        log = next(each.file for each in folder.exhibits if each.role is Role.LOG)
        (folder.path / log).write_text("all is well\n")
        return folder

    monkeypatch.setattr(probed.room.probes.evidence, "write", write)
    await probed.probe()

    (verdict,) = probed.verdicts()
    assert verdict.ruling is Ruling.ERROR
    assert "not what was captured" in probed.gate().missing.output
    assert probed.store.proposals() == []


async def test_secrets_in_a_log_reach_neither_evidence_nor_record(probed):
    await probed.until_running()
    probed.world.print(JOB, b"export HF_TOKEN=hf_abcdefghijklmnopqrstuvwxyz0123\n")
    probed.world.print(JOB, STEP.format(n=6).encode())
    await probed.tick()
    probed.store.ask("probe", "alice@box", probed.clock[0], {"row": probed.held().row})
    await probed.probe()

    written = [path for path in probed.folder.rglob("*") if path.is_file() and "/logs/" not in str(path)]
    texts = [path.read_bytes() for path in written if path.suffix not in (".db", ".db-wal", ".db-shm")]
    assert len(texts) > 8
    assert not any(b"hf_abcdefghij" in text for text in texts)


async def test_a_second_probe_of_the_same_job_waits_for_the_first(probed):
    """One in flight per job, though asked for twice."""
    await probed.until_suspect()
    for by in ("alice@box", "bob@box"):
        probed.store.ask("probe", by, probed.clock[0], {"row": probed.held().row, "by": by})
    running, most = set(), [0]
    real = probed.cluster.capture

    async def capture(wanted, now):
        running.add(id(wanted))
        most[0] = max(most[0], len(running))
        await asyncio.sleep(0)
        running.discard(id(wanted))
        return await real(wanted, now)

    probed.cluster.capture = capture
    for _ in range(4):
        await probed.probe(timedelta(seconds=20))

    assert most == [1]
    assert len(probed.verdicts()) == 3


class TellsLogsAtOnce(ScriptedCluster):
    """As plain hosts do: the first reading that lists a job tells of its log too."""

    async def poll(self, watch, now):
        reading = await super().poll(watch, now)
        paths = {job: f"/home/alice/{job}.out" for job in self.world.jobs}
        return replace(reading, logs={job: self.world._stat(path, job) for job, path in paths.items()})


async def test_a_job_that_stood_still_before_it_was_first_seen_is_heard_probed_and_judged(tmp_path):
    """LIVE-1: its log never grows again, and says how far it had come."""
    probed = Probed(tmp_path, cluster=TellsLogsAtOnce)
    probed.job.busy = False
    probed.world.print(JOB, "".join(f"step {n}/80 loss=0.{n}\n" for n in range(1, 26)).encode())
    probed.world.pass_time(2 * HOUR)
    for _ in range(4):
        await probed.tick()
        await probed.probe()
    held = probed.held()
    await probed.room.close()

    assert held.log.step == 25
    assert held.life.phase is Phase.WEDGED
    assert [each.ruling for each in probed.verdicts()] == [Ruling.KILL]


# -- restarts ----------------------------------------------------------------------------------------------------------

DIES = b"""Traceback (most recent call last):
  File "/home/alice/train.py", line 88, in <module>
    main()
  File "/home/alice/train.py", line 41, in main
    batch = next(loader)
ValueError: expected 4096 columns, found 4097
"""


def steps(upto: int) -> bytes:
    return "".join(f"step {n}/80 loss=0.{n}\n" for n in range(1, upto + 1)).encode()


@pytest.mark.parametrize("own_log", [True, False], ids=["each attempt begins its log anew", "all print into one"])
async def test_restarts_that_repeat_one_failure_are_doomed_with_the_traceback_quoted(tmp_path, own_log):
    """PROBE-6, CHAIN-5: no attempt's words are lost when the next one begins."""
    probed = Probed(tmp_path)
    await probed.tick()
    for _ in range(3):
        probed.world.print(JOB, steps(3) + DIES)
        await probed.tick()
        probed.world.requeue(JOB, JobState.FAILED)
        await probed.tick()
        probed.world.start(JOB)
        if own_log:
            probed.job.text = b""
        probed.world.print(JOB, b"loading the model\n")
        await probed.tick()
    probed.world.print(JOB, steps(2))
    await probed.tick()
    number = probed.store.ask("probe", "alice@box", probed.clock[0], {"row": probed.held().row})
    await probed.probe()
    told = [(each.attempt, each.category) for each in probed.store.diagnoses(probed.held().row)]
    await probed.room.close()

    assert [attempt for attempt, _ in told][:3] == [1, 2, 3]
    assert len({category for _, category in told[:3]}) == 1
    (verdict,) = probed.verdicts()
    assert verdict.ruling is Ruling.KILL, verdict.reasoning
    assert verdict.restarts.same_failure
    folder = open_folder(Path(verdict.evidence))
    assert {quote.text for quote in verdict.restarts.quotes} == {"ValueError: expected 4096 columns, found 4097"}
    for quote in verdict.restarts.quotes:
        assert quote.text in folder.lines(quote.file)[quote.line - 1]
    assert probed.store.request(number).result == "verdict 1"


# -- a judge of one's own ----------------------------------------------------------------------------------------------


def judged_by(probed, tmp_path, source: str) -> None:
    program = tmp_path / "judge.py"
    program.write_text(source)
    external = ExternalSection(command=(sys.executable, str(program)), timeout_s=20)
    section = probed.room.settings.probe.model_copy(update={"external": external})
    settings = probed.room.settings.model_copy(update={"probe": section})
    probed.room.probes.configure(settings, probed.room.rooms, probed.room.stations)


AGREES = """import json, sys
request = json.load(sys.stdin)
ours = request["verdict"]
gates = [gate for gate in ours["gates"] if gate["result"] != "not_applicable"]
print(json.dumps({"schema_version": 1, "ruling": %s, "confidence": "high", "gates": gates, "reasoning": "seen it before"}))
"""


@pytest.mark.parametrize(
    ("ruling", "proposals"),
    [('ours["ruling"]', 1), ('"NO-KILL"', 0), ('"ERROR"', 0)],
    ids=["agrees", "keeps", "doubts"],
)
async def test_a_judge_of_ones_own_may_lower_a_kill_and_then_nothing_is_proposed(probed, tmp_path, ruling, proposals):
    """PROBE-4: its quotes are ours, so they hold; its word alone lowers."""
    judged_by(probed, tmp_path, AGREES % ruling)
    probed.job.busy = False
    await probed.until_suspect()
    await probed.probe()

    (verdict,) = probed.verdicts()
    assert (verdict.ruling is Ruling.KILL) == bool(proposals)
    assert "seen it before" in verdict.reasoning
    assert verdict.judge != "built-in"
    assert len(probed.store.proposals()) == proposals


async def test_a_judge_that_breaks_turns_a_kill_into_an_error_that_says_so(probed, tmp_path):
    """PROBE-3"""
    judged_by(probed, tmp_path, "raise SystemExit('no key for the model')")
    probed.job.busy = False
    await probed.until_suspect()
    await probed.probe()

    (verdict,) = probed.verdicts()
    assert verdict.ruling is Ruling.ERROR
    assert "no key for the model" in verdict.reasoning
    assert probed.store.proposals() == []


# -- faults of ours ----------------------------------------------------------------------------------------------------


async def test_a_disk_that_is_full_is_tried_again_and_then_an_error_in_its_own_words(probed, monkeypatch):
    """PROBE-3: nothing half-written is left, and nothing is lost that stood there before."""
    await probed.until_suspect()
    await probed.probe()
    (before,) = probed.verdicts()
    await probed.tick(30 * MINUTE)

    def durable(path, data):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    monkeypatch.setattr(evidence, "_durable", durable)
    for _ in range(3):
        await probed.probe(timedelta(seconds=301))

    verdict, older = probed.verdicts()
    assert (verdict.ruling, older) == (Ruling.ERROR, before)
    assert "No space left on device" in probed.gate().missing.output
    assert [str(path) for path in (probed.folder / "state" / "evidence").iterdir()] == [before.evidence]
    open_folder(Path(before.evidence))


async def test_a_gate_that_breaks_is_an_error_and_never_passes_for_all_well(probed, monkeypatch):
    await probed.until_suspect()

    def broken(case):
        if case.read(Role.LOG):
            raise ZeroDivisionError("of all things")
        return judge(case)

    monkeypatch.setattr(probes, "judge_gates", broken)
    await probed.probe()

    assert probed.verdicts()[0].ruling is Ruling.ERROR
    assert "of all things" in probed.gate().missing.output


async def test_a_probe_that_breaks_again_and_again_is_given_up_and_whoever_asked_is_told(probed, monkeypatch):
    await probed.until_running()
    number = probed.store.ask("probe", "alice@box", probed.clock[0], {"row": probed.held().row})

    async def broken(wanted):
        raise ZeroDivisionError("of all things")

    monkeypatch.setattr(probed.room.probes.taking, "folder", broken)
    for _ in range(5):
        await probed.probe(LEASE + MINUTE)

    assert "of all things" in probed.store.request(number).result
    assert probed.open_probes() == []


async def test_a_daemon_that_ends_in_the_midst_of_a_probe_gives_it_back_at_once(probed, tmp_path):
    await probed.until_suspect()
    begun = asyncio.Event()

    async def never(wanted, now):
        begun.set()
        await asyncio.Event().wait()

    real, probed.cluster.capture = probed.cluster.capture, never
    assert await probed.room.probes.round(probed.room.stations) == 1
    await begun.wait()
    await probed.room.probes.stop()
    probed.cluster.capture = real
    await probed.probe(timedelta(seconds=1))

    assert len(probed.verdicts()) == 1


async def test_a_request_for_a_cluster_of_another_daemon_is_left_to_that_one(probed):
    """House, idea 5: several daemons share a store."""
    await probed.until_running()
    number = probed.store.ask("probe", "alice@box", probed.clock[0], {"row": probed.held().row})
    beat = Heartbeat(
        daemon="other:1:1", host="other", pid=1, version="1", started_at=NOON, beat_at=probed.clock[0], interval_s=900, next_tick_at=None
    )  # fmt: skip
    probed.store.beat(beat)
    stations, probed.room.stations = probed.room.stations, []
    await probed.probe()
    assert probed.store.request(number).answered_at is None

    await probed.probe(2 * MINUTE)
    assert "not in the daemon's config" in probed.store.request(number).result
    probed.room.stations = stations
