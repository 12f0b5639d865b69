"""What ``supervisorctl check`` says of one iris cluster, line by line (POLL-12)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from supervisor.clusters.iris_calls import Controller
from supervisor.clusters.iris_token import Token
from supervisor.clusters.kubernetes_objects import plain
from supervisor.model.errors import ClusterError, LoginFailed
from supervisor.model.polling import Check


async def checks(controller: Controller, token: Token | None, users: Sequence[str], now: datetime) -> list[Check]:
    """Raises ClusterError where the controller is not reached at all."""
    health = await controller.health()
    reach = Check("reach", "ok", f"{controller.shown} answers, an iris controller")
    if health.status != "ok":
        reach = Check("reach", "warn", f"{controller.shown} says {plain(health.status, 60)} {plain(health.reason)}")
    lines = [reach, await _credentials(controller, token, now)]
    for user in users:
        lines.append(await _jobs(controller, user))
    lines.append(await _logs(controller))
    return lines


async def _credentials(controller: Controller, token: Token | None, now: datetime) -> Check:
    try:
        us = await controller.who_are_we()
    except LoginFailed as error:
        return Check("credentials", "fail", error.text, error.hint)
    except ClusterError as error:
        return Check("credentials", "warn", error.text, error.hint)
    by = "token" if token is not None else "our address"
    who = f"known by {by} as {plain(us.user_id, 80) or 'nobody'}, role {plain(us.role, 40) or 'none'}"
    if us.role != "admin":
        who += "; tasks are asked for job by job, since only an admin may query them all at once"
    note = token.note(now) if token is not None else None
    if note is not None:
        return Check("credentials", "warn", f"{who}; {note}", "write a new token into token_file; it is read each time")
    ends = token.expires_at if token is not None else None
    return Check("credentials", "ok", f"{who}{f'; the token ends {ends:%Y-%m-%d %H:%M} UTC' if ends else ''}")


async def _jobs(controller: Controller, user: str) -> Check:
    try:
        page = await controller.jobs(user, 0)
    except ClusterError as error:
        return Check(f"jobs of {user}", "fail", error.text, error.hint)
    if not page.total_count:
        return Check(f"jobs of {user}", "warn", "none, neither running nor ended", "check the spelling under users")
    return Check(f"jobs of {user}", "ok", f"{page.total_count} listed, children and ended ones included")


async def _logs(controller: Controller) -> Check:
    try:
        await controller.lines("/nobody/nothing/0:", 0, 0, 1)
    except ClusterError as error:
        return Check("logs", "fail", error.text, error.hint)
    return Check("logs", "ok", "the log service answers")
