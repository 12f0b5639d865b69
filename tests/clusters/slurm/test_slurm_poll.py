"""What one poll of a Slurm cluster says, and when it says nothing: login nodes, empty queues, accounting, logs."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from supervisor.clusters.shell import Ran
from supervisor.clusters.slurm_text import QueueRow
from supervisor.model.errors import LoginNeedsPerson, TookTooLong
from supervisor.model.job import JobKey, JobState
from supervisor.model.logs import LogState
from supervisor.model.polling import Polled, Unreached, Watch
from tests.clusters.slurm.login import (
    TAKEN,
    ScriptedLogin,
    accounting_rows,
    cluster_of,
    key,
    later,
    queue_rows,
    sample,
    watch_after,
)

ARRAY = "12"


async def polled(*logins: ScriptedLogin, watch: Watch | None = None, at_s: float = 0) -> Polled:
    reading = await cluster_of(*logins).poll(watch or Watch(), later(at_s))
    assert isinstance(reading, Polled), reading
    return reading


async def unreached(*logins: ScriptedLogin, watch: Watch | None = None) -> Unreached:
    reading = await cluster_of(*logins).poll(watch or Watch(), TAKEN)
    assert isinstance(reading, Unreached), reading
    return reading


async def seen_before(login: ScriptedLogin) -> Watch:
    """What is remembered after a first good reading of this login node."""
    return watch_after(await polled(login))


def job(name: str) -> QueueRow:
    return next(row for row in queue_rows().values() if row.name == name)


# -- a good reading ----------------------------------------------------------------------------------------------------


async def test_a_first_reading_lists_everything_and_knows_where_it_writes(login: ScriptedLogin) -> None:
    reading = await polled(login)

    assert reading.lines.keys() == queue_rows().keys() == {one.key.id for one in reading.changed}
    assert reading.ends_read and reading.version == "22.05.8" and reading.source == "login1"
    paths = {one.key.id: one.details.log_path for one in reading.changed if one.details}
    assert paths[f"{ARRAY}_1"] == f"/home/alice/logs-{ARRAY}_1.out"
    assert ARRAY not in paths, "what waits has no log yet"


async def test_a_second_reading_of_the_same_queue_sends_one_command_and_says_nothing_new(login: ScriptedLogin) -> None:
    """POLL-6"""
    watch = await seen_before(login)
    login.scripts.clear()

    reading = await polled(login, watch=watch)

    assert reading.changed == []
    assert reading.lines == watch.lines
    assert len(login.scripts) == 1


async def test_the_number_of_commands_does_not_grow_with_the_number_of_jobs(login: ScriptedLogin) -> None:
    """POLL-6"""
    row = job("rl__chain_2")
    many = [row._replace(shown_id=str(n), raw_id=str(n)) for n in range(1000, 6000)]
    login.queue += many
    details = next(one for one in login.details if one.raw_id == row.raw_id)
    login.details += [details._replace(shown_id=one.raw_id, raw_id=one.raw_id) for one in many]

    watch = await seen_before(login)

    assert len(login.scripts) <= 3
    assert len(watch.lines) == len(queue_rows()) + 5000


async def test_ends_since_the_last_good_look_are_asked_for_however_long_ago_it_was(login: ScriptedLogin) -> None:
    """POLL-7: a laptop slept for two days."""
    await polled(login, watch=Watch(ended_since=TAKEN - timedelta(days=2)))

    asked_s = int(login.scripts[0].partition("\nsince_s=")[2].partition("\n")[0])
    assert 0 <= asked_s - (2 * 86400 + 600) <= 5


async def test_a_clock_two_hours_ahead_changes_no_time(login: ScriptedLogin) -> None:
    """POLL-10"""
    on_time = await polled(login)
    login.at = TAKEN + timedelta(hours=2)
    login.queue = [
        row._replace(start=_plus(row.start, 7200), stop=_plus(row.stop, 7200), submit=_plus(row.submit, 7200))
        for row in login.queue
    ]

    ahead = await polled(login)

    assert ahead.clock_offset == timedelta(hours=2)
    times = {one.key.id: (one.submitted_at, one.started_at, one.ended_at) for one in on_time.changed}
    assert {one.key.id: (one.submitted_at, one.started_at, one.ended_at) for one in ahead.changed} == times


def _plus(epoch: str, seconds: int) -> str:
    return str(int(epoch) + seconds) if epoch.isdecimal() else epoch


# -- no reading --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["slurmctld-down", "slurmctld-hangs", "munge-down", "munge-hangs"])
async def test_a_controller_that_does_not_answer_gives_no_reading(login: ScriptedLogin, name: str) -> None:
    """POLL-1, POLL-2: the real words of each outage."""
    watch = await seen_before(login)
    login.spoil = lambda script, _: Ran(0, _under_nonce(script, sample(name)), b"")

    reading = await unreached(login, watch=watch)

    assert "squeue on login1" in reading.reason


def _under_nonce(script: str, data: bytes) -> bytes:
    nonce = script.partition("mark=")[2].partition("#")[0].strip("'").encode()
    return data.replace(b"n0123456789abcdef0123", nonce)


@pytest.mark.parametrize("name", ["slurmdbd-down", "mariadb-down", "slurmdbd-hangs"])
async def test_a_queue_without_accounting_is_a_reading_in_which_nothing_is_absent(name: str) -> None:
    """The queue is good; what left it stays where it was."""
    login = ScriptedLogin(spoil=lambda script, _: Ran(0, _under_nonce(script, sample(name)), b""))
    live = {"777": key("777", "1795980000")}

    reading = await polled(login, watch=Watch(live=live))

    assert not reading.ends_read
    assert reading.ended == []
    assert any("accounting could not be read" in problem for problem in reading.problems)


async def test_words_of_trouble_on_a_queue_that_exits_0_give_no_reading(login: ScriptedLogin) -> None:
    """POLL-2"""
    login.said = {"queue": "slurm_load_jobs error: Socket timed out on send/recv operation"}

    assert "Socket timed out" in (await unreached(login)).reason


async def test_a_dropped_connection_gives_no_reading(login: ScriptedLogin) -> None:
    login.spoil = lambda _, whole: Ran(None, whole[:4000], b"")

    assert "connection dropped" in (await unreached(login)).reason


async def test_a_login_that_needs_a_person_says_so(login: ScriptedLogin) -> None:
    login.raises = LoginNeedsPerson("alpha", "login1 asks for a second factor", hint="log in once by hand")

    reading = await unreached(login)

    assert reading.needs_person and reading.hint == "log in once by hand"


@pytest.mark.parametrize("part", ["queue", "ended"])
async def test_a_program_that_prints_nothing_and_exits_0_did_not_say_that_there_is_nothing(part: str) -> None:
    """POLL-2: the shim of a login node that is out of processes. Neither the queue nor accounting is believed so."""
    watch = Watch(live={"777": key("777", "1795980000")})
    silent = ScriptedLogin(spoil=lambda _, whole: Ran(0, _without_text(whole, part), b""))

    reading = await unreached(silent, watch=watch)

    words = {"queue": "squeue printed nothing, not even its titles", "ended": "accounting can't be read"}
    assert words[part] in reading.reason


def _without_text(whole: bytes, part: str) -> bytes:
    for name in {part, "found" if part == "ended" else part}:
        head, begin, rest = whole.partition(b"# begin " + name.encode() + b"\n")
        body, said, after = rest.partition(b"# said ")
        whole = head + begin + body[body.rindex(b"\n") :] + said + after if begin else head
    return whole


# -- several login nodes (POLL-3) --------------------------------------------------------------------------------------


async def test_the_next_login_node_is_asked_when_one_fails_and_asked_first_from_then_on(login: ScriptedLogin) -> None:
    dead = ScriptedLogin(name="login0", raises=TookTooLong("alpha", "login0", 10))
    cluster = cluster_of(dead, login)

    first = await cluster.poll(Watch(), TAKEN)
    second = await cluster.poll(Watch(), TAKEN)

    assert isinstance(first, Polled) and isinstance(second, Polled)
    assert (first.source, second.source, len(dead.scripts)) == ("login1", "login1", 1)
    assert any("login0" in problem for problem in first.problems)
    assert second.problems == ()


async def test_an_empty_queue_on_one_login_node_is_a_lie_if_the_other_has_jobs(login: ScriptedLogin) -> None:
    """POLL-3: a login node whose processes are used up printed nothing, with exit status 0."""
    watch = await seen_before(login)
    liar = ScriptedLogin(name="login0")

    reading = await polled(liar, login, watch=watch)

    assert reading.lines == watch.lines
    assert (reading.source, reading.ended) == ("login1", reading.ended)
    assert any("login0 lists no job" in problem for problem in reading.problems)
    assert all(one.key.id not in watch.live or not one.final for one in reading.ended)


async def test_a_lie_is_found_out_on_the_very_first_reading(login: ScriptedLogin) -> None:
    """POLL-3: with nothing remembered, an empty queue would else be believed for ever."""
    reading = await polled(ScriptedLogin(name="login0"), login)

    assert reading.lines.keys() == queue_rows().keys()


async def test_an_empty_queue_where_no_job_can_be_lost_needs_no_second_login_node() -> None:
    dead = ScriptedLogin(name="login0", raises=TookTooLong("alpha", "login0", 10))

    assert dict((await polled(dead, ScriptedLogin(name="login1"))).lines) == {}


async def test_two_login_nodes_that_agree_are_believed(login: ScriptedLogin) -> None:
    watch = await seen_before(login)

    reading = await polled(ScriptedLogin(name="login0"), ScriptedLogin(name="login1"), watch=watch)

    assert dict(reading.lines) == {}


async def test_one_of_two_login_nodes_alone_is_not_believed_while_the_other_is_away(login: ScriptedLogin) -> None:
    watch = await seen_before(login)
    dead = ScriptedLogin(name="login0", raises=TookTooLong("alpha", "login0", 10))

    reading = await unreached(dead, ScriptedLogin(name="login1"), watch=watch)

    assert "no other login node confirms it" in reading.reason


async def test_an_empty_queue_is_believed_where_accounting_shows_each_job_ended(login: ScriptedLogin) -> None:
    ended = accounting_rows("poll", "ended")
    live = {row.id: JobKey("alpha", row.id, row.submit) for row in ended if row.state != "REQUEUED"}
    dead = ScriptedLogin(name="login0", raises=TookTooLong("alpha", "login0", 10))

    reading = await polled(dead, ScriptedLogin(name="login1", accounting=ended), watch=Watch(live=live))

    assert dict(reading.lines) == {}
    assert {one.key for one in reading.ended if one.final} >= set(live.values())


async def test_the_only_login_node_is_believed_unless_accounting_speaks_against_it(login: ScriptedLogin) -> None:
    running = accounting_rows("follow-requeued", "found")[1]
    live = {running.id: JobKey("alpha", running.id, running.submit)}

    gone = await polled(ScriptedLogin(), watch=Watch(live=live))
    contradicted = await unreached(ScriptedLogin(accounting=[running]), watch=Watch(live=live))
    silent = await unreached(ScriptedLogin(status={"ended": 1, "found": 1}), watch=Watch(live=live))

    assert gone.ends_read and dict(gone.lines) == {}
    assert f"{running.id} RUNNING" in contradicted.reason
    assert "accounting can't be read" in silent.reason


async def test_accounting_that_forgot_every_job_is_no_witness_that_they_are_gone() -> None:
    """POLL-3: an empty queue beside an empty database; a job just submitted need not be known yet."""
    now = int(TAKEN.timestamp())
    live = {str(n): key(str(n), str(now - 600)) for n in (7, 8)}

    doubt = await unreached(ScriptedLogin(), watch=Watch(live=live))
    young = await polled(ScriptedLogin(), watch=Watch(live={"9": key("9", str(now - 20))}))

    assert "accounting knows none of the 2 that were live (7 is one)" in doubt.reason
    assert dict(young.lines) == {}


async def test_a_job_that_accounting_lost_is_absent_where_it_tells_of_another() -> None:
    """POLL-4: for the rules to count; the same node was asked twice."""
    ended = next(row for row in accounting_rows("poll", "ended") if row.state == "COMPLETED")
    live = {ended.id: JobKey("alpha", ended.id, ended.submit), "777": key("777", "1795980000")}
    login = ScriptedLogin(accounting=[ended])

    reading = await polled(login, watch=Watch(live=live))

    assert reading.ends_read and dict(reading.lines) == {}
    assert [one.key.id for one in reading.ended if one.final] == [ended.id]
    assert sum("\npart queue " in script for script in login.scripts) == 2


async def test_an_empty_queue_that_is_not_empty_when_asked_again_was_none(login: ScriptedLogin) -> None:
    """POLL-3: the only login node lies once."""
    ended = next(row for row in accounting_rows("poll", "ended") if row.state == "COMPLETED")
    live = {ended.id: JobKey("alpha", ended.id, ended.submit), "777": key("777", "1795980000")}
    login.accounting = [ended]
    empty = ScriptedLogin(accounting=[ended])

    async def first_empty(script: str, *, limit_s: float, limit_bytes: int = 0) -> Ran:
        return await (login if "part still" in script else empty).run(script, limit_s=limit_s)

    turning = ScriptedLogin()
    turning.run = first_empty  # type: ignore[method-assign]
    reading = await unreached(turning, watch=Watch(live=live))

    assert "asked again it lists 19" in reading.reason


async def test_the_first_look_at_an_empty_queue_is_doubted_where_accounting_shows_running_jobs() -> None:
    """POLL-3: "0 live jobs" over a whole fleet, because a daemon was started on a bad day."""
    running = accounting_rows("follow-requeued", "found")[1]
    old = running._replace(start=str(int(TAKEN.timestamp()) - 3 * 86400), limit_min="10")

    doubt = await unreached(ScriptedLogin(accounting=[running]))
    never_closed = await polled(ScriptedLogin(accounting=[old]))

    assert f"accounting says of 1 that they go on ({running.id} RUNNING)" in doubt.reason
    assert dict(never_closed.lines) == {}


async def test_an_empty_queue_where_nothing_was_live_is_just_empty() -> None:
    reading = await polled(ScriptedLogin())

    assert (dict(reading.lines), reading.problems) == ({}, ())


async def test_where_accounting_is_switched_off_the_queue_is_all_there_is() -> None:
    off = ScriptedLogin(status={"ended": 1}, said={"ended": "Slurm accounting storage is disabled"})

    reading = await polled(off, watch=Watch(live={"5": key("5", "1795988664")}))

    assert reading.ends_read


# -- jobs that left the queue (POLL-4) ---------------------------------------------------------------------------------


async def test_a_job_in_neither_list_is_asked_for_by_its_id(login: ScriptedLogin) -> None:
    watch = await seen_before(login)
    live = {**watch.live, "777": key("777", "1795980000")}
    login.scripts.clear()

    reading = await polled(login, watch=replace(watch, live=live))

    assert "777" not in reading.lines and reading.ends_read
    assert "ids=777\n" in login.scripts[1]


async def test_a_job_held_before_it_was_ever_eligible_is_found_by_its_id_alone(login: ScriptedLogin) -> None:
    """sacct without -j leaves such a job out, whatever the window."""
    row = next(row for row in accounting_rows("follow", "found") if row.state.startswith("CANCELLED"))
    login.queue = [one for one in login.queue if one.id != row.id]
    login.accounting = [row]
    watch = replace(await seen_before(login), live={row.id: JobKey("alpha", row.id, row.submit)})

    reading = await polled(login, watch=watch)

    assert [(one.key.id, one.state, one.final) for one in reading.ended] == [(row.id, JobState.CANCELLED, True)]


async def test_a_job_that_accounting_calls_running_and_the_queue_does_not_list_stays(login: ScriptedLogin) -> None:
    """Doubt moves nothing: it is neither absent nor ended, and a person is told."""
    running = accounting_rows("follow-requeued", "found")[1]._replace(shown_id="777", raw_id="777")
    login.accounting.append(running)
    watch = await seen_before(login)
    live = {**watch.live, "777": key("777", running.submit)}

    reading = await polled(login, watch=replace(watch, live=live, lines={**watch.lines, "777": "as it was"}))

    assert reading.lines["777"] == "as it was"
    assert any("777 RUNNING" in problem for problem in reading.problems)


async def test_accounting_that_fails_when_asked_by_id_leaves_nothing_absent(login: ScriptedLogin) -> None:
    watch = await seen_before(login)
    login.status = {"found": 124}

    reading = await polled(login, watch=replace(watch, live={**watch.live, "777": key("777", "1795980000")}))

    assert not reading.ends_read


async def test_a_name_that_accounting_does_not_know_yet_is_not_made_up(login: ScriptedLogin) -> None:
    """For some seconds accounting calls a short job "allocation"; a bucket would be chosen by that for ever."""
    watch = await seen_before(login)
    row = next(one for one in login.accounting if one.name == "rl__gsm8k_a")
    now = int(TAKEN.timestamp())
    fresh = row._replace(shown_id="777", raw_id="777", name="allocation", stop=str(now - 5))
    login.queue = [one for one in login.queue if one.id != row.id]
    login.accounting = [row._replace(name="allocation"), fresh]

    early = await polled(login, watch=watch)
    login.at = later(120)
    late = await polled(login, watch=watch, at_s=120)

    assert {one.key.id: one.name for one in early.ended} == {row.id: "rl__gsm8k_a"}
    assert {one.key.id: one.name for one in late.ended} == {row.id: "rl__gsm8k_a", "777": "allocation"}


async def test_a_requeued_job_keeps_its_id_and_begins_a_new_attempt(login: ScriptedLogin) -> None:
    reading = await polled(login)

    row = job("requeued")
    now = next(one for one in reading.changed if one.key.id == row.id)
    before = next(one for one in reading.ended if one.key.id == row.id)
    assert (now.state, now.attempt) == (JobState.PENDING, 2)
    assert (before.state, before.attempt, before.final) == (JobState.REQUEUED, 1, False)
    assert int(before.key.incarnation) < int(now.key.incarnation)


async def test_an_array_whose_last_task_started_has_no_waiting_rest_and_did_not_vanish(login: ScriptedLogin) -> None:
    watch = await seen_before(login)
    rest = next(row for row in login.queue if row.id == ARRAY)
    task = next(row for row in login.queue if row.id == f"{ARRAY}_1")
    login.queue.remove(rest)
    login.queue.append(task._replace(shown_id=f"{ARRAY}_5", raw_id=ARRAY))

    reading = await polled(login, watch=watch)

    assert ARRAY not in reading.lines and f"{ARRAY}_5" in reading.lines
    told = next(one for one in reading.ended if one.key.id == ARRAY)
    assert (told.key, told.state, told.final) == (watch.live[ARRAY], JobState.COMPLETED, True)


# -- logs --------------------------------------------------------------------------------------------------------------


async def test_logs_are_there_absent_or_unread_and_never_a_mix(login: ScriptedLogin) -> None:
    """FIND-2, FIND-4"""
    watch = await seen_before(login)
    login.files = {"/a.out": (17, int(TAKEN.timestamp()) - 60)}

    reading = await polled(login, watch=replace(watch, logs={"9": "/a.out", "18": "/b.out"}))
    login.status = {"logs": 124}
    failed = await polled(login, watch=replace(watch, logs={"9": "/a.out"}))

    there, absent, unread = reading.logs["9"], reading.logs["18"], failed.logs["9"]
    assert (there.state, there.size, there.modified_at) == (LogState.READ, 17, TAKEN - timedelta(seconds=60))
    assert absent.state is LogState.ABSENT
    assert (unread.state, unread.reason) == (LogState.UNREAD, "logs: no answer in time")


async def test_a_log_that_is_not_where_the_scheduler_says_is_looked_for_in_the_work_directory(
    login: ScriptedLogin,
) -> None:
    """FIND-2: a path mismatch is no death."""
    row = job("rl__chain_2")
    found = f"/home/alice/rl_{row.id}.out"
    login.files = {found: (99, int(row.start) + 5), "/home/alice/old.out": (1, int(row.start) - 5000)}
    login.places = {row.id: [found, "/home/alice/old.out"]}
    watch = replace(await seen_before(ScriptedLogin(login.queue, details=login.details)), logs={row.id: "/gone.out"})

    reading = await polled(login, watch=watch)

    (changed,) = reading.changed
    assert changed.key.id == row.id and changed.state is JobState.RUNNING
    assert changed.details is not None and changed.details.log_path == found
    assert reading.logs[row.id].state is LogState.READ


@pytest.mark.parametrize("out", ["/dev/null", "//dev/./null"])
async def test_a_job_that_throws_its_output_away_has_no_log_and_none_is_found_for_it(
    login: ScriptedLogin, out: str
) -> None:
    """FIND-1: a file that happens to bear its id is not its log."""
    row = job("rl__chain_2")
    other = f"/home/alice/arr{row.id}.out"
    login.files, login.places = {other: (99, int(row.start) + 5)}, {row.id: [other]}
    login.details = [one._replace(out=out, err=out) if one.raw_id == row.raw_id else one for one in login.details]

    reading = await polled(login)

    told = next(one.details for one in reading.changed if one.key.id == row.id)
    assert told is not None and told.log_path is None and told.err_path is None
    assert row.id not in reading.logs


async def test_quota_is_read_where_it_is_asked_for(login: ScriptedLogin) -> None:
    """CLEAN-4"""
    pattern = r"^\s*/scratch\s+(?P<bytes_used>\S+)\s+(?P<bytes_soft>\S+)\s+(?P<inodes_used>\S+)\s+(?P<inodes_soft>\S+)"
    cluster = cluster_of(login, quota_command="lfs quota -u alice /scratch", quota_pattern=pattern)
    said = "\n    /scratch  1048576  2T  190000*  200000\n"
    login.spoil = lambda _, whole: Ran(0, _with_quota(whole, said), b"")

    reading = await cluster.poll(Watch(), TAKEN)

    assert isinstance(reading, Polled) and reading.headroom is not None
    room = reading.headroom
    assert (room.bytes_used, room.bytes_soft) == (2**30, 2**41)
    assert (room.inodes_used, room.inodes_soft) == (190000, 200000)


def _with_quota(whole: bytes, said: str) -> bytes:
    head, begin, rest = whole.partition(b"# begin quota\n")
    return head + begin + said.encode() + rest
