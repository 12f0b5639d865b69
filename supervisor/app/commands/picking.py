"""Which job a person means, on the light path."""

from __future__ import annotations

from supervisor.model.errors import UsageError
from supervisor.reports.text import plain

TYPE_CHECKING = False
if TYPE_CHECKING:
    from supervisor.model.probe import Verdict
    from supervisor.store.light import HoldRow, JobRow, Light


def the_row(light: Light, text: str) -> JobRow:
    """The one job that ``text`` means; of several with one id, the newest. Raises UsageError listing the candidates (exit 2)."""
    found = light.find(text) if text.strip() and sayable(text) else []
    if not found:
        shown = plain(text if len(text) <= 80 else text[:79] + "…")
        raise UsageError(
            f"no job '{shown}' is known; `supervisorctl status --all` lists those that are,"
            " and `supervisorctl tick` looks for new ones"
        )
    if len({(job.cluster, job.id) for job in found}) > 1:
        listed = ", ".join(f"{job.cluster}/{plain(job.id)} ({plain(job.name[:80])})" for job in found[:8])
        more = f" and {len(found) - 8} more" if len(found) > 8 else ""
        raise UsageError(f"'{plain(text)}' may mean several jobs: {listed}{more}")
    return found[0]


def holds_on(light: Light, job: JobRow) -> list[HoldRow]:
    """Holds that stand on this very job, on its cluster, or on everything."""
    return [each for each in light.holds() if each.target in ("", job.cluster, f"{job.cluster}/{job.id}")]


def verdicts_of(light: Light, job: JobRow) -> list[tuple[int, Verdict]]:
    """Every verdict on a job with its number, newest first."""
    bodies = light.verdict_bodies(job.row)
    if not bodies:
        return []
    from supervisor.store.verdict_bodies import verdict_of

    return [(number, verdict_of(number, body)) for number, body in bodies]


def sayable(text: str) -> bool:
    """Whether ``text`` can stand in any database: UTF-8, no NUL."""
    try:
        return b"\0" not in text.encode("utf-8")
    except UnicodeEncodeError:
        return False
