"""Which jobs a person's JOB argument may mean: the SQL that the full and the light path share."""

from __future__ import annotations

AT_MOST = 50
"""Candidates for one argument: beyond that a person has to say more anyway."""
NEWEST = (
    "ORDER BY CASE WHEN closed_at IS NULL THEN 0 ELSE 1 END, "
    f"COALESCE(submitted_at, first_seen_at, since) DESC, id DESC LIMIT {AT_MOST}"
)


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
        ("name = ?", (text,)),
        ("id IN (SELECT id FROM job WHERE LOWER(name) LIKE ? ESCAPE '!')", (f"%{literal}%",)),  # reads an index only
    ]
