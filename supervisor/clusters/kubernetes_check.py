"""What ``supervisorctl check`` says of one Kubernetes cluster, line by line (POLL-12)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from supervisor.clusters import kubernetes_calls as calls
from supervisor.clusters.kubernetes_calls import ApiServer, NotAllowed, NotThere, path_of
from supervisor.clusters.kubernetes_lists import Served, discover, pods_path, record_paths
from supervisor.clusters.kubernetes_login import Login
from supervisor.clusters.kubernetes_session import Clock, Session
from supervisor.model.errors import ClusterError
from supervisor.model.polling import Check

ANNOUNCED = timedelta(hours=24)
"""How long before their end credentials are announced; said louder in the last two hours."""
_LOUD = timedelta(hours=2)
_SKEW_S = 60


async def checks(session: Session, server: ApiServer, cluster: str, now: datetime) -> Sequence[Check]:
    clock = Clock(now)
    await server.get(calls.VERSION, read=clock.heard)
    served = await discover(server, cluster)
    kinds = ", ".join(sorted(kind for _, kind in served.versions))
    return [
        Check("reach", "ok", f"{server.host} answers, Kubernetes {served.release}, by {server.login.source}"),
        credentials(server.login, now),
        Check("kinds", "warn", served.problem) if served.problem else Check("kinds", "ok", f"pods, {kinds}"),
        _skew(clock.offset),
        *[await _namespace(server, served, namespace) for namespace in session.namespaces(server.login)],
    ]


def credentials(login: Login, now: datetime) -> Check:
    """POLL-12: when the credentials end."""
    if login.expires_at is None:
        return Check("credentials", "ok", f"{login.expires_what} accepted; nothing says when it ends")
    left = login.expires_at - now
    text = f"{login.expires_what} ends at {login.expires_at:%Y-%m-%dT%H:%M:%SZ}"
    if login.renews_itself:
        return Check("credentials", "ok", f"{text}, and is renewed by itself")
    if left <= timedelta(0):
        return Check("credentials", "fail", f"{text}: it has ended", "log in again")
    if left <= ANNOUNCED:
        return Check("credentials", "warn", text, "log in again now" if left <= _LOUD else "log in again before then")
    return Check("credentials", "ok", text)


def _skew(offset: timedelta) -> Check:
    seconds = offset.total_seconds()
    if abs(seconds) > _SKEW_S:
        text = f"the API server's clock differs from ours by {seconds:+.0f} s; its times are corrected"
        return Check("clock", "warn", text, "check this machine's clock")
    return Check("clock", "ok", f"the API server's clock differs from ours by {seconds:+.0f} s")


async def _namespace(server: ApiServer, served: Served, namespace: str | None) -> Check:
    what = f"namespace {namespace}" if namespace is not None else "all namespaces"
    missing = []
    try:
        for plural, path in [("pods", pods_path(namespace)), *record_paths(served, namespace)]:
            try:
                await server.get(path, {"limit": "1"}, read=lambda answer: answer)
            except NotAllowed as error:
                if plural == "pods":
                    return Check(what, "fail", f"pods cannot be listed: {error.text}", error.hint)
                missing.append(plural)
        if namespace is not None:
            await server.get(path_of(calls.NAMESPACE, name=namespace), read=lambda answer: answer)
    except NotAllowed:
        # To read the namespace itself is a right that few have; that its pods can be listed is enough.
        pass
    except NotThere as error:
        return Check(
            what, "fail", "it does not exist" if error.positive else error.text, "check namespaces of this cluster"
        )
    except ClusterError as error:
        return Check(what, "fail", error.text, error.hint)
    if missing:
        return Check(what, "warn", f"not allowed to list {', '.join(missing)}: such jobs are known by their pods only")
    return Check(what, "ok", "pods and records can be listed")
