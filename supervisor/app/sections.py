"""The config's tables, but for those of clusters and buckets: each frozen, without unknown keys, with its units beside it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from supervisor.app.complaints import numbers_only
from supervisor.app.config_path import ENDED_HOURS, MOST_HOURS

DAYS = MOST_HOURS / 24


class Section(BaseModel):
    """A table of the config: frozen, no unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _numbers_are_numbers(cls, data: Any) -> Any:
        numbers_only(cls, data)
        return data


class DaemonSection(Section):
    jitter_s: float = Field(default=5, ge=0, le=300)
    """Random delay of each tick, at most, seconds, so that many daemons do not ask at the same moment."""
    budget_s: float = Field(default=300, gt=0, le=86400)
    """Longest that a tick waits for its clusters, seconds; at most four fifths of the interval. A cluster that takes longer
    goes on being read under its own deadline, and delays no other."""
    drain_s: float = Field(default=30, gt=0, le=3600)
    """How long a tick may go on after SIGTERM, seconds."""
    lease_s: float = Field(default=120, ge=10, le=86400)
    """How long a cluster stays with a daemon that gives no sign, seconds (several daemons on one database)."""
    ping_url: str = ""
    """Asked by GET after each good tick: a dead-man's switch elsewhere (LIVE-8). Empty: none."""
    ping_url_file: Path | None = None
    """File whose first line is ``ping_url``, where that is a secret."""


class LoggingSection(Section):
    format: Literal["auto", "console", "json"] = "auto"
    """``auto``: console on a terminal, JSON elsewhere."""
    level: Literal["debug", "info", "warning", "error"] = "info"
    """Events below it are not written."""


class LogsSection(Section):
    bytes_per_job: int = Field(default=4 * 2**20, ge=4096)
    """Most that is read of one log in one tick, bytes (FIND-3)."""
    bytes_per_tick: int = Field(default=64 * 2**20, ge=2**16)
    """Most that is read of one cluster's logs in one tick, bytes."""
    kept_bytes_per_job: int = Field(default=32 * 2**20, ge=2**16)
    """Most that is kept of one log under the state folder, bytes; the oldest goes first."""
    keep_days: float = Field(default=14, gt=0, le=DAYS)
    """How long the kept text of an ended job stays, days."""


class RetentionSection(Section):
    """What may be thinned with age. Transitions, attempts, diagnoses and decisions are kept for ever."""

    measurements_days: float = Field(default=30, gt=2, le=DAYS)
    """Every value is kept for 2 days, one an hour up to this age, one a day after it; days."""
    polls_days: float = Field(default=30, gt=1, le=DAYS)
    """How long the proof that each poll was made is kept, days."""
    reports_days: float = Field(default=365, gt=2, le=DAYS)
    """How long the last report of each day is kept, days; every report is kept for 2 days."""


class SignaturesSection(Section):
    packs: tuple[Path, ...] = ()
    """Signature packs of your own, TOML files."""
    off: tuple[str, ...] = ()
    """Codes of signatures to leave out."""


class ReportsSection(Section):
    ended_hours: float = Field(default=ENDED_HOURS, gt=0, le=MOST_HOURS)
    """How long an ended job stays in ``status`` without ``--all``, hours."""
    remind_hours: float = Field(default=24, gt=0, le=MOST_HOURS)
    """After how long a standing alert is said again in the sweep's record, hours (SAY-5)."""


class StandingSection(Section):
    """A standing rule: kills that you approve beforehand. Narrow by design; there is none unless you write one."""

    name: str = Field(min_length=1, max_length=60)
    """What records call it."""
    bucket: Literal["rl", "sft", "datagen", "eval", "other"]
    """Jobs of this bucket only."""
    pattern: str = Field(min_length=1)
    """Job-name pattern such as `debug-*`; it may not fit every name."""
    cause: str = Field(min_length=1)
    """Only a verdict of this very cause, such as `silent-hang`."""
    cluster: str | None = None
    """Jobs of this cluster only."""
    min_confidence: Literal["high", "medium", "low"] = "high"
    """Only a verdict at least this sure."""
    per_day: int = Field(default=1, ge=1, le=100)
    """At most so many kills by this rule in 24 hours."""

    @field_validator("pattern")
    @classmethod
    def _narrow(cls, value: str) -> str:
        if not re.search(r"[^*?\[\]!-]", value):
            raise ValueError("must name something: a pattern that fits every name is no narrow rule")
        return value


class ApprovalsSection(Section):
    """Kills wait for a person (KILL-1). Nothing here can make one happen by itself but a standing rule that you write."""

    mode: Literal["record", "ask"] = "record"
    """`record`: everything but the cancel is done, so that you can see how the tool would have judged. `ask`: an approved
    cancel is sent."""
    expires_s: float = Field(default=3600, ge=10, le=7 * 86400)
    """An approval that is not carried out by then is void, seconds (KILL-1)."""
    proposal_hours: float = Field(default=24, gt=0, le=MOST_HOURS)
    """How long a proposal waits before it lapses, hours."""
    no_kill: tuple[str, ...] = ("hero-*",)
    """Job-name patterns for which nothing is ever proposed (KILL-5)."""
    per_tick: int = Field(default=1, ge=1, le=100)
    """Most cancels sent in one interval, over all clusters."""
    per_day: int = Field(default=5, ge=1, le=1000)
    """Most cancels sent in 24 hours, over all clusters."""
    confirm_s: float = Field(default=600, ge=10, le=86400)
    """How long a cancel may take to show its effect before it is called unconfirmed, seconds (KILL-3)."""
    standing: tuple[StandingSection, ...] = ()
    """Standing rules, each under its own [[approvals.standing]]; none by default, and never for hero runs."""

    @field_validator("no_kill")
    @classmethod
    def _some(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if not all(value):
            raise ValueError("must hold no empty pattern")
        return value

    @model_validator(mode="after")
    def _named_apart(self) -> ApprovalsSection:
        names = [each.name for each in self.standing]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"two standing rules are named {name!r}; names must be unique")
        return self


class ExternalSection(Section):
    """A judge of your own: a program that gets the evidence folder and a JSON request on its standard input, and prints one verdict
    as JSON. It can lower a verdict or add reasons; it can raise one to KILL only where the built-in gates have the evidence. It is
    not asked where evidence is missing: that is an ERROR whoever judges."""

    command: tuple[str, ...] = ()
    """Program and arguments. Empty: none."""
    timeout_s: float = Field(default=120, gt=0, le=3600)
    """Longest that it may take, seconds; then it and all it started are ended, and the verdict is ERROR."""
    network: bool = False
    """Whether it may reach the network. Where the system has no means to keep it off, that is said in the log."""

    @field_validator("command")
    @classmethod
    def _runnable(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if value and (not value[0] or any("\0" in word for word in value)):
            raise ValueError("must begin with a program")
        return value


class ProbeSection(Section):
    """Deep probes: what they may cost, how long their evidence is kept, and when one is made without being asked for."""

    timeout_s: float = Field(default=600, gt=0, le=86400)
    """Longest that all captures of one probe may take, seconds (PROBE-14)."""
    at_once: int = Field(default=2, ge=1, le=64)
    """Probes at the same time."""
    per_cluster: int = Field(default=1, ge=1, le=16)
    """Of these on one cluster, at most."""
    log_bytes: int = Field(default=8 * 2**20, ge=2**16, le=2**30)
    """Most that is captured of one log, its newest part, bytes."""
    nodes_most: int = Field(default=8, ge=1, le=1024)
    """Of a larger job this many nodes are looked at: the first, the last, and some between."""
    keep_days: float = Field(default=30, gt=0, le=DAYS)
    """How long an evidence folder stays, days; never less than a verdict in force needs it."""
    keep_bytes: int = Field(default=5 * 2**30, ge=2**20)
    """Most that all evidence folders may take, bytes; the oldest go first, never one that a verdict in force needs."""
    retry_s: float = Field(default=300, ge=1, le=86400)
    """After how long a probe that could ask nothing at all is tried again, seconds."""
    tries: int = Field(default=3, ge=1, le=100)
    """Tries before such a probe ends in the verdict ERROR."""
    rl_new_settings: bool = True
    """Probe RL jobs whose setting no probe has passed yet, at each tick until one does (RL-10)."""
    external: ExternalSection = ExternalSection()
