"""How the tool's own verdicts turned out, as text and as JSON. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from supervisor.reports.status import iso
from supervisor.reports.table import Column, box
from supervisor.reports.text import moment, plain, span

WORDS = ("right", "wrong", "carried_out", "open", "unknown")
MEANING = {
    "KILL": "right: it never moved again; wrong: it progressed or completed, so a kill would have been false",
    "NO-KILL": "right: it progressed or completed; wrong: it died without moving again",
    "ERROR": "claims nothing: evidence was missing",
}
COLUMNS = (
    Column("Verdict", least=7, most=10),
    Column("Count", right=True, least=5, most=8),
    *(Column(word.replace("_", " "), right=True, least=5, most=12) for word in WORDS),
)


def shown(card: Any, alarms: Any, since: Any, wide: int | None) -> str:
    """``card``: a Scorecard; ``alarms``: counts of suspicions by what followed."""
    rows = [(each.ruling, str(each.count), *(str(each.turned.get(word, 0)) for word in WORDS)) for each in card.tallies]
    lines = [f"verdicts since {moment(since)}", box(COLUMNS, rows, wide).rstrip("\n")]
    lines += [f"{ruling}: {words}" for ruling, words in MEANING.items()]
    lines += ["", *_listed("would-be kills of jobs that recovered", card.would_be_false_kills)]
    lines += _listed("kept jobs that died without moving again", card.kept_and_died)
    if card.detect_s:
        lines.append(
            f"from last progress to KILL: median {span(card.detect_median_s)}, longest {span(card.detect_s[-1])},"
            f" {len(card.detect_s)} attempts"
        )
    else:
        lines.append("from last progress to KILL: none yet")
    lines.append(
        f"suspicions: {alarms['raised']} raised, {alarms['recovered']} recovered by themselves, {alarms['ended']} ended,"
        f" {alarms['standing']} standing"
    )
    return "\n".join(lines) + "\n"


def _listed(title: str, rows: Sequence[Any]) -> list[str]:
    if not rows:
        return [f"{title}: none"]
    return [
        f"{title}: {len(rows)}",
        *(
            f"  verdict {each.verdict} of {moment(each.taken_at)}: {each.job.ref} {plain(each.name)},"
            f" attempt {each.attempt}{f' ({plain(each.cause)})' if each.cause else ''}"
            for each in rows
        ),
    ]


def document(card: Any, alarms: Any, since: Any) -> dict[str, Any]:
    """Its machine-readable twin."""

    def named(each: Any) -> dict[str, Any]:
        return {
            "verdict": each.verdict,
            "job": str(each.job.ref),
            "name": each.name,
            "attempt": each.attempt,
            "taken_at": iso(each.taken_at),
            "cause": each.cause or None,
            "outcome": each.outcome,
        }

    return {
        "since": iso(since),
        "verdicts": {
            each.ruling: {"count": each.count, **{word: each.turned.get(word, 0) for word in WORDS}}
            for each in card.tallies
        },
        "would_be_false_kills": [named(each) for each in card.would_be_false_kills],
        "kept_and_died": [named(each) for each in card.kept_and_died],
        "time_to_detect_s": {
            "median": card.detect_median_s,
            "longest": card.detect_s[-1] if card.detect_s else None,
            "attempts": len(card.detect_s),
        },
        "alarms": dict(alarms),
    }
