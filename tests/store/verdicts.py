"""Verdicts and proposals to store; a test writes out only what matters to it."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from supervisor.model.facts import Held
from supervisor.model.findings import Quote
from supervisor.model.probe import GateScore, Mark, Restarts, Ruling, Score, Verdict
from supervisor.model.proposals import Decision, Proposal
from supervisor.rules.leave import silence_key
from supervisor.store.store import Store
from tests.some import HOUR, MINUTE, NOON
from tests.store.some import new_job, poll

QUOTE = Quote("cluster-a-42.out", 812, "step 15/80 loss 2.31")


def hung_gate(**changes: Any) -> GateScore:
    values: dict[str, Any] = {
        "gate": "A",
        "name": "liveness",
        "result": Score.FAIL,
        "reason": "no step for 95 min, all 8 ranks wait in a collective",
        "quotes": (QUOTE,),
        "hard": True,
        "wedge": True,
        "cause": "silent-hang",
        "fix": "set the collective timeout to 600 s",
        "facts": {"silent_s": 5700.5, "ranks": 8, "worst": "node01", "kv": None},
    }
    return GateScore(**(values | changes))


def fine_gate() -> GateScore:
    return GateScore(gate="A", name="liveness", result=Score.PASS, reason="step 16 came 2 min ago", quotes=(QUOTE,))


def some_verdict(job: Held, ruling: Ruling = Ruling.KILL, at: datetime = NOON, **changes: Any) -> Verdict:
    """A verdict on the attempt at which a job stands."""
    values: dict[str, Any] = {
        "job": job.key,
        "name": job.observation.name,
        "attempt": job.life.attempt,
        "taken_at": at,
        "ruling": ruling,
        "confidence": "high",
        "gates": (hung_gate() if ruling is Ruling.KILL else fine_gate(),),
        "restarts": Restarts(burned=0, allowed=3),
        "cause": "silent-hang" if ruling is Ruling.KILL else "",
        "reasoning": "it has stood at step 15 for 95 min",
        "next_steps": ("stop it", "set the collective timeout to 600 s"),
        "flip_signal": "a new step line",
        "evidence": f"/state/evidence/{job.key.cluster}-{job.key.id}-{at:%H%M%S}",
        "mark": Mark(at=at, step=15, total=80, progress_at=at - HOUR, last_output_at=at - HOUR, log_size=4096),
        "setting": "9c0f",
    }
    return Verdict(**(values | changes))


def stored_job(store: Store, job: str = "42", **changes: Any) -> Held:
    (held,) = store.record(poll(new_job(job, **changes), at=MINUTE * (1 + int(job) % 50)))
    return held


def put(store: Store, job: Held, verdict: Verdict, *, leave: str | None = None, at: datetime = NOON) -> Any:
    assert job.row is not None
    key = silence_key(verdict)
    return store.put_verdict(job.row, verdict, at, silence_key=key, leave=leave, expires_at=at + 24 * HOUR)


def proposed(store: Store, job: Held, **changes: Any) -> Proposal:
    """The proposal that a KILL verdict on the job makes."""
    _, number = put(store, job, some_verdict(job, **changes))
    assert number is not None
    return store.proposal(number)


def approved(store: Store, proposal: Proposal, at: datetime = NOON, **changes: Any) -> Decision:
    values: dict[str, Any] = {
        "digest": proposal.digest,
        "by": "alice@box",
        "reason": "it hangs",
        "mode": "ask",
        "expires_at": at + HOUR,
        "now": at,
    }
    return store.approve(proposal.id, **(values | changes))
