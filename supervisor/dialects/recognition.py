"""Which programs speak in a log, and what kind of work that says it is (BUCKET-1)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from supervisor.dialects.line import unwrap
from supervisor.dialects.malformed import Malformed
from supervisor.dialects.roster import readers_of

RL = ("skyrl", "verl", "openrlhf", "slime", "trl", "nemo_rl")
SFT = ("hf_trainer", "llamafactory", "trl-preference", "verl-sft", "torchtitan", "megatron", "levanter")


def recognise(lines: Iterable[str]) -> frozenset[str]:
    """Names of the dialects that understand some of these lines."""
    known: set[str] = set()
    for text in lines:
        line = unwrap(text)
        raw = text.encode("utf-8", "surrogatepass")
        for dialect in readers_of(raw):
            try:
                readings = dialect.read(line)
            except (Malformed, ValueError, OverflowError):
                known.add(dialect.NAME)
                break
            if readings:
                known.update(reading.dialect for reading in readings)
                break
        if line.aggregated:
            known.add("ray")
    return frozenset(known)


def speaks_for(dialects: Iterable[str] | Mapping[str, int]) -> tuple[str | None, str | None]:
    """(bucket, flavor) that the dialects speak for, (None, None) where they do not tell.

    A trainer's word goes before a harness's: agentic RL shows trials too. Trials alone may be datagen or an evaluation,
    which only the job's name or command can tell.
    """
    known = set(dialects)
    if any(name in known for name in RL):
        return "rl", "agentic" if "harbor" in known else "standard"
    if any(name in known for name in SFT):
        return "sft", "preference" if "trl-preference" in known else None
    if "evals" in known:
        return "eval", None
    return None, None
