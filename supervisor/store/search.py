"""SQL that the full and the light path share: which jobs a JOB argument may mean, and what a job's attempts are."""

from __future__ import annotations

AT_MOST = 50
"""Candidates for one argument: beyond that a person has to say more anyway."""
NEWEST = (
    "ORDER BY CASE WHEN closed_at IS NULL THEN 0 ELSE 1 END, "
    f"COALESCE(submitted_at, first_seen_at, since) DESC, id DESC LIMIT {AT_MOST}"
)

_ENDS = "state, started_at, ended_at, exit_code, signal, body"
ATTEMPTS = (
    f"SELECT number, {_ENDS} FROM attempt WHERE job = ? AND number <> (SELECT attempt FROM job WHERE id = attempt.job) "
    f"UNION ALL SELECT attempt AS number, {_ENDS} FROM job WHERE id = ?"
)
"""All attempts of a job; both parameters are its row number. The one that it stands at is the job itself."""


def searches(text: str) -> list[tuple[str, tuple[str, ...]]]:
    """Conditions with their parameters, to be tried in order until one finds a job: ``cluster/id``, id, part of a name.

    Letters of a name match in either case. Nothing in ``text`` is a wildcard.
    """
    tries: list[tuple[str, tuple[str, ...]]] = []
    cluster, slash, number = text.partition("/")
    if slash:
        tries.append(("cluster = ? AND job_id = ?", (cluster, number)))
    literal = text.lower().replace("!", "!!").replace("%", "!%").replace("_", "!_")
    return [
        *tries,
        ("job_id = ?", (text,)),
        # inner questions, because an index alone answers them
        ("id IN (SELECT id FROM job WHERE name = ?)", (text,)),
        ("id IN (SELECT id FROM job WHERE LOWER(name) LIKE ? ESCAPE '!')", (f"%{literal}%",)),
    ]
