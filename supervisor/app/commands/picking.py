"""Which job a person means, on the light path."""

from __future__ import annotations

from supervisor.model.errors import UsageError
from supervisor.reports.text import plain

TYPE_CHECKING = False
if TYPE_CHECKING:
    from supervisor.store.light import JobRow, Light


def the_row(light: Light, text: str) -> JobRow:
    """The one job that ``text`` means; of several with one id, the newest. Raises UsageError listing the candidates (exit 2)."""
    found = light.find(text) if text.strip() and sayable(text) else []
    if not found:
        shown = plain(text if len(text) <= 80 else text[:79] + "…")
        raise UsageError(f"no job '{shown}' is known; `supervisorctl status --all` lists those that are")
    if len({(job.cluster, job.id) for job in found}) > 1:
        listed = ", ".join(f"{job.cluster}/{plain(job.id)} ({plain(job.name[:80])})" for job in found[:8])
        more = f" and {len(found) - 8} more" if len(found) > 8 else ""
        raise UsageError(f"'{plain(text)}' may mean several jobs: {listed}{more}")
    return found[0]


def sayable(text: str) -> bool:
    """Whether ``text`` can stand in any database: UTF-8, no NUL."""
    try:
        return b"\0" not in text.encode("utf-8")
    except UnicodeEncodeError:
        return False
