"""Which job a person means, on the light path."""

from __future__ import annotations

from supervisor.model.errors import UsageError
from supervisor.reports.text import plain

TYPE_CHECKING = False
if TYPE_CHECKING:
    from supervisor.store.light import JobRow, Light


def the_row(light: Light, text: str) -> JobRow:
    """The one job that ``text`` means; of several with one id, the newest. Raises UsageError listing the candidates (exit 2)."""
    found = light.find(text)
    if not found:
        raise UsageError(f"no job {text!r} is known; `supervisorctl status --all` lists those that are")
    if len({(job.cluster, job.id) for job in found}) > 1:
        listed = ", ".join(f"{job.cluster}/{job.id} ({plain(job.name)})" for job in found[:8])
        more = f" and {len(found) - 8} more" if len(found) > 8 else ""
        raise UsageError(f"{text!r} may mean several jobs: {listed}{more}")
    return found[0]
