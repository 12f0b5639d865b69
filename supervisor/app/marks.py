"""What the config says of kills, in the words of the rules: never-kill marks, caps, standing rules (KILL-1, KILL-5)."""

from __future__ import annotations

import getpass
from datetime import timedelta

from supervisor.app.settings import ClusterSection, Settings
from supervisor.clusters.login_settings import LoginSettings
from supervisor.model.proposals import Caps, Marks, StandingRule


def marks_of(settings: Settings) -> Marks:
    """No-kill marks, and whose jobs are ours."""
    own = {each.name: users for each in settings.cluster if (users := _own(each)) is not None}
    return Marks(
        no_kill=settings.approvals.no_kill,
        no_kill_clusters=frozenset(each.name for each in settings.cluster if each.no_kill),
        own=own,
    )


def caps_of(settings: Settings) -> Caps:
    chosen = settings.approvals
    return Caps(per_tick=chosen.per_tick, tick=timedelta(seconds=settings.interval_s), per_day=chosen.per_day)


def standing_rules(settings: Settings) -> tuple[StandingRule, ...]:
    return tuple(StandingRule(**each.model_dump()) for each in settings.approvals.standing)


def _own(section: ClusterSection) -> frozenset[str] | None:
    """Users whose jobs are ours on a cluster; None where it tells no users apart, and lists ours alone.

    Others may be watched (``users``), but what is theirs is never ours to end. Where the login's user stands in ssh's own
    files alone and several users are watched, it is taken to be the daemon's own: a guess that can only spare jobs.
    """
    chosen = section.of_kind
    watched = frozenset(getattr(chosen, "users", ()))
    if not isinstance(chosen, LoginSettings):
        return watched or None
    nodes = getattr(chosen, "login_nodes", None) or tuple(filter(None, [getattr(chosen, "host", None)]))
    login = frozenset(user for user in (chosen.node(each).user for each in nodes) if user)
    if login:
        return login
    return watched & {getpass.getuser()} if len(watched) > 1 else watched or None
