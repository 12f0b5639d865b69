"""Ten thousand spoilt answers, and not one job that they end or make absent (POLL-1, POLL-2, POLL-3)."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest

from supervisor.clusters.shell import Ran
from supervisor.clusters.slurm_text import TROUBLE
from supervisor.model.errors import AnswerUnusable, ClusterError, LoginFailed, TookTooLong
from supervisor.model.polling import Polled, Reading, Watch
from tests.clusters.slurm.login import (
    TAKEN,
    ScriptedLogin,
    Spoil,
    accounting_rows,
    cluster_of,
    cluster_with_one_nonce,
    detail_rows,
    queue_rows,
    sample,
    watch_after,
)

FAULTS = 10_000
OUTAGES = [sample(name) for name in ("slurmctld-down", "slurmctld-hangs", "munge-down", "munge-hangs")]
RAISED: list[Callable[[], ClusterError]] = [
    lambda: TookTooLong("alpha", "the command on login1", 30),
    lambda: LoginFailed("alpha", "login1 refused the key"),
    lambda: AnswerUnusable("alpha", "garbled"),
]


def truth(*, with_accounting: bool = True) -> ScriptedLogin:
    """The cluster as it really is: its queue, and accounting that also tells of what runs."""
    live = accounting_rows("follow-requeued", "found")[-1]
    running = [
        live._replace(shown_id=row.shown_id, raw_id=row.raw_id, state=row.state, submit=row.submit, name=row.name)
        for row in queue_rows().values()
        if row.state in ("RUNNING", "PENDING")
    ]
    told = [*accounting_rows("poll", "ended"), *running] if with_accounting else []
    return ScriptedLogin(list(queue_rows().values()), told, list(detail_rows().values()))


# -- ways to spoil an answer -------------------------------------------------------------------------------------------


def cut_off(rng: random.Random, whole: bytes) -> Ran:
    return Ran(0, whole[: rng.randrange(len(whole))], b"")


def dropped(rng: random.Random, whole: bytes) -> Ran:
    return Ran(None, whole[: rng.randrange(len(whole) + 1)], b"")


def refused(rng: random.Random, whole: bytes) -> Ran:
    return Ran(
        rng.choice([1, 2, 126, 127, 130, 137, 254, 255, -1]), whole[: rng.randrange(len(whole) + 1)], b"sh: fork"
    )


def beyond_the_limit(rng: random.Random, whole: bytes) -> Ran:
    return Ran(None, whole[: rng.randrange(len(whole))], b"", truncated=True)


def queue_failed(rng: random.Random, whole: bytes) -> Ran:
    """squeue exits non-zero, after having printed some of its records or none."""
    head, mark, rest = whole.partition(b"# begin queue\n")
    body, end, after = rest.partition(b"# end queue 0")
    kept = body if rng.random() < 0.3 else body[body.rindex(b"\nn") :] if rng.random() < 0.5 else b"\n" + body[-60:]
    return Ran(0, head + mark + kept + end[:-1] + str(rng.choice([1, 124, 127, 137, 139, 255])).encode() + after, b"")


def trouble_said(rng: random.Random, whole: bytes) -> Ran:
    """Words of trouble on standard error, with exit status 0, and all, some or none of the records."""
    head, mark, rest = whole.partition(b"# begin queue\n")
    body, said, after = rest.partition(b"# said queue\n")
    nonce = body[body.rindex(b"\n") :]
    kept = b"" if rng.random() < 0.5 else body[: body.rindex(b"\n")]
    word = rng.choice(TROUBLE).encode()
    return Ran(0, head + mark + kept + nonce + said + b"squeue: error: " + word + after, b"")


def trouble_printed(rng: random.Random, whole: bytes) -> Ran:
    """Words of trouble among the records on standard output."""
    head, mark, rest = whole.partition(b"# begin queue\n")
    body, said, after = rest.partition(b"# said queue\n")
    records = body.split(b";\n")
    records.insert(rng.randrange(len(records)), b"slurm_load_jobs error: " + rng.choice(TROUBLE).encode() + b"\n")
    at = next(n for n, one in enumerate(records) if one.startswith(b"slurm_load_jobs"))
    records[at : at + 2] = [b"".join(records[at : at + 2])]
    return Ran(0, head + mark + b";\n".join(records) + said + after, b"")


def emptied(rng: random.Random, whole: bytes) -> Ran:
    """A login node that lies: an empty queue, exit status 0, nothing on standard error."""
    head, mark, rest = whole.partition(b"# begin queue\n")
    body, said, after = rest.partition(b"# said queue\n")
    return Ran(0, head + mark + body[body.rindex(b"\n") :] + said + after, b"")


def emptied_and_accounting_failed(rng: random.Random, whole: bytes) -> Ran:
    return accounting_failed(rng, emptied(rng, whole).stdout)


def accounting_failed(rng: random.Random, whole: bytes) -> Ran:
    for part in (b"ended", b"found"):
        whole = whole.replace(b"# end " + part + b" 0", b"# end " + part + b" " + rng.choice([b"1", b"124", b"137"]))
    return Ran(0, whole, b"")


def part_cut_off(rng: random.Random, whole: bytes) -> Ran:
    """One part ends in the middle of a record though the frame around it is whole."""
    name = rng.choice([b"queue", b"ended"])
    head, mark, rest = whole.partition(b"# begin " + name + b"\n")
    body, said, after = rest.partition(b"# said " + name + b"\n")
    text, nonce = body[: body.rindex(b"\n")], body[body.rindex(b"\n") :]
    cut = rng.randrange(1, len(text) - 1) if len(text) > 2 else 0
    if text[:cut].endswith(b"\n"):
        cut -= 1
    return Ran(0, head + mark + text[:cut] + nonce + said + after, b"")


def a_byte_of_the_frame_lost(rng: random.Random, whole: bytes) -> Ran:
    marks = [n for n in range(len(whole)) if whole.startswith(b"# ", n)]
    at = rng.choice(marks) - rng.randrange(0, 20)
    return Ran(0, whole[:at] + whole[at + 1 :], b"")


def outage(rng: random.Random, whole: bytes) -> Ran:
    """The real words of a controller or munged that is down or hangs."""
    nonce = whole.partition(b"#")[0].strip()
    return Ran(0, rng.choice(OUTAGES).replace(b"n0123456789abcdef0123", nonce), b"")


WAYS = [
    cut_off,
    dropped,
    refused,
    beyond_the_limit,
    queue_failed,
    trouble_said,
    trouble_printed,
    emptied,
    emptied_and_accounting_failed,
    accounting_failed,
    part_cut_off,
    a_byte_of_the_frame_lost,
    outage,
]


def falsely_gone(reading: Reading, watch: Watch) -> list[str]:
    """Live jobs that this reading would end, or count as absent."""
    if not isinstance(reading, Polled):
        return []
    ended = {one.key.id for one in reading.ended if one.final} | {
        one.key.id for one in reading.changed if one.state.ended and one.final
    }
    absent = {job for job in watch.live if job not in reading.lines} if reading.ends_read else set()
    return sorted((ended & watch.live.keys()) | absent)


@pytest.mark.timeout(240)
async def test_no_job_is_falsely_ended_or_absent_in_ten_thousand_faults(capsys: pytest.CaptureFixture[str]) -> None:
    rng = random.Random(20260701)
    honest = truth()
    first = await cluster_of(honest).poll(Watch(), TAKEN)
    assert isinstance(first, Polled)
    watch = watch_after(first)
    assert len(watch.live) == 11
    injected: Counter[str] = Counter()
    readings: Counter[str] = Counter()
    wrong: list[tuple[str, int, list[str]]] = []

    for number in range(FAULTS):
        way = rng.choice(WAYS)
        spoilt = replace(honest, spoil=_spoil(way, rng, which=rng.choice(["first", "all"])), scripts=[])
        logins = [spoilt]
        if rng.random() < 0.1:
            spoilt.raises = rng.choice(RAISED)()
        if rng.random() < 0.4:  # a second login node, which is well, or spoilt as well but does not lie alike
            other = rng.choice([cut_off, outage, queue_failed, None])
            spoil = None if other is None else _spoil(other, rng, which="all")
            logins.append(replace(honest, name="login2", spoil=spoil, scripts=[]))
        # Sometimes every line is new, and sometimes the last reading is long ago.
        seen = replace(watch, lines=watch.lines if rng.random() < 0.8 else {})
        reading = await cluster_with_one_nonce(*logins).poll(seen, TAKEN)
        injected[way.__name__] += 1
        readings[type(reading).__name__] += 1
        if gone := falsely_gone(reading, watch):
            wrong.append((way.__name__, number, gone))

    with capsys.disabled():
        print(
            f"\n{sum(injected.values())} faults injected ({dict(sorted(injected.items()))}), readings {dict(readings)}: "
        )
        print(f"{len(wrong)} of them ended a job or made one absent")
    assert sum(injected.values()) >= 10_000
    assert wrong == []


def _spoil(way: Callable[[random.Random, bytes], Ran], rng: random.Random, which: str) -> Spoil:
    """``first``: only the poll's own script is spoilt; ``all``: what follows from it as well, where that makes sense."""

    def spoil(script: str, whole: bytes) -> Ran:
        asks_the_queue = b"# begin queue\n" in whole
        if not asks_the_queue and (which == "first" or way.__name__ not in _ANYWHERE):
            return Ran(0, whole, b"")
        return way(rng, whole)

    return spoil


_ANYWHERE = {"cut_off", "dropped", "refused", "beyond_the_limit", "accounting_failed", "emptied_and_accounting_failed"}


async def test_the_counting_test_would_notice_a_job_that_is_lost() -> None:
    """The measure itself: a queue that really lost a job, while accounting knows nothing of it."""
    honest = truth(with_accounting=False)
    first = await cluster_of(honest).poll(Watch(), TAKEN)
    assert isinstance(first, Polled)
    watch = watch_after(first)
    lost = replace(honest, queue=[row for row in honest.queue if row.id != "9"])

    assert falsely_gone(await cluster_of(lost).poll(watch, TAKEN), watch) == ["9"]
