"""``status``, as text and as its machine-readable twin. Pure; light enough for a cold start.

``jobs`` are rows as the store's light path reads them: anything with the same attributes will do.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime

from supervisor.reports.monitor import monitor_state
from supervisor.reports.table import COLOURS, RESET, Column, box, pipe, stacked, too_narrow
from supervisor.reports.text import plain, span

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

DASH = "—"
TITLES = {"rl": "RL", "sft": "SFT", "datagen": "Datagen", "eval": "Eval", "other": "Other"}
SEVERITY = {"fault": 0, "watch": 1, "note": 2, None: 3}
PHASES = {"wedged": 0, "suspect": 1, "running": 2, "bring_up": 3, "terminal": 4, "cleanup": 5, "done": 6}

COLUMNS = (
    Column("Job", least=12, most=48),
    Column("Where", least=8, most=28),
    Column("Phase", least=8, most=18),
    Column("Scheduler", least=8, most=34, drop=2),
    Column("Elapsed", right=True, least=7, most=20, drop=3),
    Column("Nodes", least=4, most=22, drop=5),
    Column("Try", right=True, least=3, most=4, drop=6),
    Column("Last output", right=True, least=6, most=14),
    Column("Flags", least=14, most=90),
)
"""In a narrow terminal Try goes first, then Nodes, Elapsed, Scheduler; the others are cut, and never dropped."""


def iso(when: datetime | None) -> str | None:
    """The contract's form: UTC, ISO 8601 with Z."""
    return None if when is None else when.strftime("%Y-%m-%dT%H:%M:%SZ")


# -- text --------------------------------------------------------------------------------------------------------------


def head(summary: Any, now: datetime, *, gone: bool = False, colour: bool = False) -> list[str]:
    """The monitor's own state first, then one line for each cluster (LIVE-8, SAY-4)."""
    state, reason = monitor_state(summary, now, gone)
    last, beat = summary.last_tick, summary.heartbeats[0] if summary.heartbeats else None
    words = [f"monitor {state}"]
    if last is not None:
        words.append(
            f"tick {last.number} finished {span((now - last.finished_at).total_seconds())} ago (took {last.took_s:.1f} s)"
        )
    if beat is not None and beat.next_tick_at is not None and state != "dead":
        until = (beat.next_tick_at - now).total_seconds()
        words.append(f"next in {span(until)}" if until > 0 else "next one is due")
    line = " · ".join(words) + (f" · {plain(reason)}" if reason else "")
    lines = [_toned(line, {"ok": None, "late": "watch"}.get(state, "fault"), colour)]
    for each in summary.clusters:
        lines.append(_cluster_line(each, now, colour))
    return lines


def _cluster_line(each: Any, now: datetime, colour: bool) -> str:
    age = f"read {span((now - each.last_good_at).total_seconds())} ago" if each.last_good_at else "never read"
    jobs = f"{each.jobs_live} live job{'' if each.jobs_live == 1 else 's'}"
    if each.state == "ok":
        text = f"  {each.name}: {age}, {jobs}" + (f" · {plain(each.reason)}" if each.reason else "")
        return _toned(text, "watch" if each.reason else None, colour)
    if each.state == "skipped":
        return f"  {each.name}: {plain(each.reason or 'skipped')}"
    text = f"  {each.name}: UNKNOWN ({age}; its jobs are shown as they were then): {plain(each.reason or '')}"
    if each.hint:
        text += f" · {plain(each.hint)}"
    return _toned(text, "fault", colour)


def tables(
    jobs: Sequence[Any],
    now: datetime,
    *,
    unknown: Mapping[str, datetime | None],
    wide: int | None,
    colour: bool,
    pipes: bool,
    kinds: Sequence[Any] = (),
    holds: Iterable[Any] = (),
) -> list[str]:
    """One table for each bucket that has jobs, clusters unified (BUCKET-2). ``unknown``: unread clusters, when last read.

    ``kinds``: what each kind of work shows; a bucket whose kind has no columns of its own gets one plain line a job.
    ``holds``: those in force; a job under one says so beside its phase.
    """
    held = frozenset(each.target or "" for each in holds)
    shapes = {kind.name: kind for kind in kinds if kind.columns}
    by_bucket: dict[str, list[Any]] = {}
    for job in jobs:
        by_bucket.setdefault(job.bucket, []).append(job)
    parts = []
    for bucket, title in TITLES.items():
        mine = by_bucket.get(bucket)
        if not mine:
            continue
        mine.sort(
            key=lambda job: (SEVERITY.get(job.worst, 3), PHASES.get(job.phase, 9), job.cluster, job.name, job.row)
        )
        if bucket in shapes:
            from supervisor.reports.tables import by_kind

            parts += by_kind(
                shapes[bucket], mine, now, unknown=unknown, held=held, wide=wide, colour=colour, pipes=pipes
            )
            continue
        rows = [_cells(job, now, unknown, held) for job in mine]
        tones = [tone(job) for job in mine] if colour else ()
        parts.append(f"{title} ({count(mine)})")
        if wide is not None and not pipes and too_narrow(COLUMNS, rows, wide):
            parts.append(stacked(COLUMNS, rows, wide, tones))
        else:
            parts.append(pipe(COLUMNS, rows) if pipes else box(COLUMNS, rows, wide, tones))
    return parts


def count(jobs: Sequence[Any]) -> str:
    counts: dict[str, int] = {}
    for job in jobs:
        counts[job.phase] = counts.get(job.phase, 0) + 1
    return ", ".join(
        f"{number} {phase.replace('_', '-')}"
        for phase, number in sorted(counts.items(), key=lambda c: PHASES.get(c[0], 9))
    )


def _cells(
    job: Any, now: datetime, unknown: Mapping[str, datetime | None], held: Collection[str] = ()
) -> tuple[str, ...]:
    return (
        named(job),
        f"{job.cluster}/{job.id}",
        phase_of(job, unknown, held),
        scheduler(job),
        elapsed(job, now),
        nodes(job),
        str(job.attempt) if job.attempt > 1 else DASH,
        last_output(job, now),
        remarks(job),
    )


def named(job: Any) -> str:
    return str(job.name) + (f" ×{job.group_size}" if job.group_size > 1 else "")


def phase_of(job: Any, unknown: Mapping[str, datetime | None], held: Collection[str] = ()) -> str:
    """With a question mark where its cluster was not read: then it is the phase of that time (POLL-1).

    ``held``: targets of the holds in force: ``""`` for everything, a cluster, or ``cluster/id``.
    """
    phase = str(job.phase).replace("_", "-")
    if job.closed_at is not None:
        return phase
    under = not {"", job.cluster, f"{job.cluster}/{job.id}"}.isdisjoint(held)
    return phase + ("?" if job.cluster in unknown else "") + (", held" if under else "")


def scheduler(job: Any) -> str:
    """The scheduler's word and reason; of an ended job, how it ended."""
    if job.outcome:
        return str(job.outcome).replace("_", " ") + (f" ({how})" if (how := _how(job)) else "")
    if job.scheduler_reason and job.scheduler_reason != "None":
        return f"{job.scheduler_state} ({job.scheduler_reason})"
    return str(job.scheduler_state)


def _how(job: Any) -> str:
    if job.signal:
        return f"signal {job.signal}"
    return f"exit {job.exit_code}" if job.exit_code else ""


def elapsed(job: Any, now: datetime) -> str:
    if job.started_at is None:
        return DASH
    took = span(elapsed_s(job, now))
    return f"{took} / {span(job.time_limit_s)}" if job.time_limit_s and job.closed_at is None else took


def elapsed_s(job: Any, now: datetime) -> float | None:
    """Seconds it has run, or ran; None where its start, or the end of an ended one, is not known."""
    if job.started_at is None:
        return None
    until = job.ended_at if job.ended_at is not None else None if job.closed_at is not None else now
    return None if until is None else max(0.0, (until - job.started_at).total_seconds())


def nodes(job: Any) -> str:
    names = json.loads(job.nodes) if job.nodes else []
    if not names:
        return str(job.node_count) if job.node_count else DASH
    return names[0] if len(names) == 1 else f"{names[0]} +{len(names) - 1}"


def last_output(job: Any, now: datetime) -> str:
    if job.log_state == "unread":
        return "unread"
    if job.log_state == "absent":
        return "no log"
    if job.last_output_at is None:
        return DASH
    return f"{span((now - job.last_output_at).total_seconds())} ago"


def remarks(job: Any) -> str:
    """Its flags, and the cause where a diagnosis names one."""
    words = [f"{flag['rule']} {flag['text']}" for flag in json.loads(job.flags)] if job.flags else []
    found = json.loads(job.diagnosis) if job.diagnosis else None
    if found and isinstance(found.get("cause"), dict):
        from supervisor.model.secrets import scrubbed

        words.insert(min(1, len(words)), f"{found['category']}: {scrubbed(found['cause'].get('text', ''))[:120]}")
    return "; ".join(words) or DASH


def tone(job: Any) -> str | None:
    if job.worst in ("fault", "watch"):
        return str(job.worst)
    return "dim" if job.closed_at is not None else None


def _toned(line: str, tone: str | None, colour: bool) -> str:
    return f"{COLOURS[tone]}{line}{RESET}" if colour and tone else line


def foot(holds: Iterable[Any], hidden: int, waiting: Sequence[Any] = ()) -> list[str]:
    """What waits for a person, what is under a hold, and what is not shown."""
    lines = [waits(each) for each in waiting]
    if any(each.state == "open" for each in waiting):
        lines.append("`supervisorctl proposals` shows the quotes; `supervisorctl approve ID` or `deny ID` answers")
    lines += [
        f"hold {each.id} on {each.target or 'everything'}: {plain(each.reason)} ({plain(each.by)})" for each in holds
    ]
    if hidden:
        lines.append(
            f"about {hidden} more jobs, none of them flagged, are not shown; `supervisorctl status --all` shows all"
        )
    return lines


WAITING = {
    "open": "waits for you",
    "approved": "is approved and being carried out",
    "unconfirmed": "was approved and its cancel shows no effect, look at the job by hand",
}


def waits(each: Any) -> str:
    """One proposal in one line."""
    state = WAITING[each.state]
    why = f"{plain(each.cause)}, {each.confidence} confidence, verdict {each.verdict}"
    return f"proposal {each.id} {state}: {each.kind} {plain(each.job)} {plain(each.name)} ({why})"


# -- JSON --------------------------------------------------------------------------------------------------------------


def document(
    summary: Any,
    jobs: Iterable[Any],
    now: datetime,
    *,
    gone: bool = False,
    waiting: Iterable[Any] = (),
    verdicts: Iterable[Any] = (),
) -> dict[str, Any]:
    """``status --json`` as the contract has it. ``waiting``: proposals; those that are answered wait for nobody, those whose cancel
    showed no effect for a look. ``verdicts``: the newest of each living job."""
    ruled = {each.job: each for each in verdicts}
    state, reason = monitor_state(summary, now, gone)
    last, beat = summary.last_tick, summary.heartbeats[0] if summary.heartbeats else None
    return {
        "schema_version": 1,
        "generated_at": iso(now),
        "monitor": {
            "state": state,
            "last_tick": None
            if last is None
            else {
                "number": last.number,
                "started_at": iso(last.started_at),
                "finished_at": iso(last.finished_at),
                "took_s": last.took_s,
            },
            "next_tick_at": iso(beat.next_tick_at) if beat is not None and state != "dead" else None,
            "reason": reason,
        },
        "clusters": [_cluster(each, now) for each in summary.clusters],
        "jobs": [job_document(job, now) | {"verdict": _ruled(ruled.get(job.row))} for job in jobs],
        "waiting": [
            {
                "id": each.id,
                "kind": each.kind if each.state == "open" else f"unconfirmed_{each.kind}",
                "job": each.job,
                "name": each.name,
                "verdict": each.verdict,
                "cause": each.cause,
                "confidence": each.confidence,
                "expires_at": iso(each.expires_at) if each.state == "open" else None,
            }
            for each in waiting
            if each.state != "approved"
        ],
    }


def _ruled(each: Any) -> dict[str, Any] | None:
    """A job's newest verdict in short; `verdict ID --json` has it whole."""
    if each is None:
        return None
    return {
        "id": each.id,
        "attempt": each.attempt,
        "ruling": each.ruling,
        "confidence": each.confidence,
        "cause": each.cause or None,
        "taken_at": iso(each.taken_at),
    }


def _cluster(each: Any, now: datetime) -> dict[str, Any]:
    return {
        "name": each.name,
        "kind": each.kind,
        "state": each.state,
        "last_good_at": iso(each.last_good_at),
        "age_s": None if each.last_good_at is None else round((now - each.last_good_at).total_seconds(), 1),
        "reason": each.reason,
        "hint": each.hint,
        "jobs_live": each.jobs_live,
        "headroom": {
            "inodes_used": each.inodes_used,
            "inodes_soft": each.inodes_soft,
            "bytes_used": each.bytes_used,
            "bytes_soft": each.bytes_soft,
        },
        "clock_offset_s": each.clock_offset_s,
        "version": each.version,
    }


def job_document(job: Any, now: datetime) -> dict[str, Any]:
    """One job of ``status --json``."""
    log_age = None if job.last_output_at is None else round(max(0.0, (now - job.last_output_at).total_seconds()), 1)
    took_s = elapsed_s(job, now)
    run = json.loads(job.metrics) if job.metrics else {}
    return {
        "cluster": job.cluster,
        "id": job.id,
        "name": job.name,
        "bucket": job.bucket,
        "flavor": run.get("flavor"),
        "regime": run.get("regime"),
        "user": job.user,
        "attempt": job.attempt,
        "phase": job.phase,
        "since": iso(job.since),
        "scheduler_state": job.scheduler_state,
        "scheduler_reason": None if job.scheduler_reason in (None, "", "None") else job.scheduler_reason,
        "outcome": job.outcome,
        "exit_code": job.exit_code,
        "signal": job.signal,
        "submitted_at": iso(job.submitted_at),
        "started_at": iso(job.started_at),
        "ended_at": iso(job.ended_at),
        "elapsed_s": None if took_s is None else round(took_s, 1),
        "time_limit_s": job.time_limit_s,
        "nodes": json.loads(job.nodes) if job.nodes else [],
        "node_count": job.node_count,
        "group": job.group,
        "group_size": job.group_size,
        "partition": job.partition,
        "account": job.account,
        "log": {
            "state": job.log_state,
            "path": job.log_path,
            "last_output_at": iso(job.last_output_at),
            "age_s": log_age,
            "reason": job.log_reason,
            "not_understood": run.get("not_understood"),
        },
        "cadence_s": job.cadence_s,
        "progress": {
            "step": job.step,
            "total": job.total,
            "rate_per_s": run.get("rate_per_s"),
            "eta_s": run.get("eta_s"),
            "checkpoint_step": run.get("checkpoint_step"),
        },
        "metrics": run.get("metrics", {}),
        "trials": {"at": run["trials_at"], "unread": run.get("trials_unread")} if run.get("trials_at") else None,
        "flags": json.loads(job.flags) if job.flags else [],
        "predecessor": job.predecessor,
        "successor": job.successor,
        "diagnosis": json.loads(job.diagnosis) if job.diagnosis else None,
    }


def exit_code(summary: Any, jobs: Iterable[Any], now: datetime, *, waiting: int = 0, gone: bool = False) -> int:
    """0 fresh and nothing waits; 3 something is flagged or waits for a person; 4 the monitor is stale or dead."""
    if monitor_state(summary, now, gone)[0] != "ok":
        return 4
    return 3 if waiting or any(job.worst in ("fault", "watch") for job in jobs) else 0


def one_row_each(jobs: Sequence[Any], clusters: Iterable[Any]) -> list[Any]:
    """Without the rows of an iris controller that handed a job on to another cluster which reports it too: one job, one row.

    Where the other does not report it, the first controller's row is all that is known of it, and stays.
    """
    controllers = {each.name for each in clusters if each.kind == "iris"}
    if not controllers:
        return list(jobs)
    told = {(job.cluster, job.id) for job in jobs}

    def elsewhere(job: Any) -> bool:
        peer = job.partition
        return job.cluster in controllers and peer is not None and peer != job.cluster and (peer, job.id) in told

    return [job for job in jobs if not elsewhere(job)]
