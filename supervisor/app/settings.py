"""The config, checked once with the file and key in the message; after that it is trusted.

Every setting stands in ``config.example.toml`` with its unit and default; a test holds the two together.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from datetime import date, timedelta
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, Field, SerializeAsAny, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict, SettingsError

from supervisor.app.complaints import faults, named_in, nearest, numbers_only, said
from supervisor.app.config_path import (
    PREFIX,
    database_url,
    find,
    from_environment,
    read_toml,
    resolved,
    secret_from,
)
from supervisor.app.kinds import KINDS
from supervisor.app.limits import WHOLE, limits_in_force
from supervisor.app.sections import (
    ApprovalsSection,
    DaemonSection,
    LoggingSection,
    LogsSection,
    ProbeSection,
    ReportsSection,
    RetentionSection,
    Section,
    SignaturesSection,
)
from supervisor.app.trial_sections import TrialsSection, TrialStoreSection
from supervisor.buckets import BY_NAME
from supervisor.model.errors import UsageError
from supervisor.model.rulebook import Gating, Health, Limits, Rulebook


class ClusterSection(Section):
    """What every kind of cluster has. Its own settings stand beside these in the same table."""

    name: str
    """Unique; part of every job's name. Letters, digits, ``_``, ``.`` and ``-``, at most 63, a letter or digit first."""
    kind: str
    skip_until: date | None = None
    """Not polled before this day, UTC; named as skipped in each report (POLL-9)."""
    skip_reason: str = ""
    """Why, for the reports."""
    no_kill: bool = False
    """Nothing of this cluster is ever proposed for a kill (KILL-5)."""
    deadline_s: float = Field(default=120, gt=0, le=3600)
    """Longest that one poll of it may take, seconds (POLL-6)."""
    trial_stores: tuple[TrialStoreSection, ...] = ()
    """Where the trials of its jobs lie, each under its own [[cluster.trial_stores]] behind the keys of its cluster."""
    of_kind: SerializeAsAny[BaseModel]
    """Settings of its kind."""

    @field_validator("name")
    @classmethod
    def _usable(cls, value: str) -> str:
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}", value):
            raise ValueError("must be letters, digits, '_', '.' or '-', at most 63, and begin with a letter or a digit")
        return value


class BucketSection(Section):
    prefixes: tuple[str, ...] = ()
    """Job names that begin so belong to this bucket, instead of the built-in prefixes (BUCKET-1)."""
    exempt: tuple[str, ...] | None = None
    """Parts of job names whose findings are observations and no call to act, instead of the built-in ones (RL-3, EVAL-4)."""

    @field_validator("prefixes")
    @classmethod
    def _some(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if not value or not all(value):
            raise ValueError("must hold at least one prefix, and none that is empty")
        return value


class Settings(BaseSettings):
    """The whole config."""

    model_config = SettingsConfigDict(
        frozen=True,
        extra="forbid",
        allow_inf_nan=False,
        env_prefix="SUPERVISOR__",
        env_nested_delimiter="__",
        case_sensitive=False,
    )

    state_dir: Path = Path("state")
    """Database, cached logs, launch records, locks."""
    agent_logs: Path = Path("agent_logs")
    """Dated records (SAY-3)."""
    interval_s: float = Field(default=900, ge=5, le=86400)
    """Time between ticks, seconds."""
    database_url: str = ""
    """``sqlite:///PATH`` or ``postgresql+psycopg://…``; default: ``supervisor.db`` in the state folder."""
    database_url_file: Path | None = None
    """File whose first line is ``database_url``, where that is a secret."""
    cluster: tuple[ClusterSection, ...] = ()
    buckets: dict[str, BucketSection] = Field(default_factory=dict)
    limits: dict[str, Any] = Field(default_factory=dict)
    daemon: DaemonSection = DaemonSection()
    logging: LoggingSection = LoggingSection()
    logs: LogsSection = LogsSection()
    trials: TrialsSection = TrialsSection()
    retention: RetentionSection = RetentionSection()
    reports: ReportsSection = ReportsSection()
    signatures: SignaturesSection = SignaturesSection()
    probe: ProbeSection = ProbeSection()
    approvals: ApprovalsSection = ApprovalsSection()

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """The environment overrides the file, which comes in as the constructor's arguments."""
        return env_settings, init_settings

    @model_validator(mode="before")
    @classmethod
    def _numbers_are_numbers(cls, data: Any) -> Any:
        numbers_only(cls, data)
        return data

    @field_validator("cluster", mode="before")
    @classmethod
    def _split_by_kind(cls, value: Any) -> Any:
        """Each table holds the common keys and those of its kind."""
        if not isinstance(value, (list, tuple)) or not all(isinstance(each, (dict, ClusterSection)) for each in value):
            raise ValueError("must be tables, each under its own [[cluster]]")
        return [_split(number, each) if isinstance(each, dict) else each for number, each in enumerate(value, 1)]

    @model_validator(mode="after")
    def _consistent(self) -> Settings:
        names = [cluster.name for cluster in self.cluster]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"two clusters are named {name!r}; names must be unique")
        for bucket in self.buckets:
            if bucket not in BY_NAME:
                raise ValueError(f"buckets.{bucket}: no such bucket{nearest(bucket, BY_NAME)}")
        for rule in self.approvals.standing:
            if rule.cluster is not None and rule.cluster not in names:
                raise ValueError(
                    f"approvals.standing {rule.name!r}: there is no cluster {rule.cluster!r}{nearest(rule.cluster, names)}"
                )
        limits_in_force(self.limits)
        return self


def _split(number: int, table: dict[str, Any]) -> ClusterSection:
    name = table.get("name")
    where = f"[[cluster]] {name!r}" if isinstance(name, str) else f"[[cluster]] {number}"
    kind = table.get("kind")
    if kind is None:
        raise ValueError(f"{where}: kind is missing; allowed: {', '.join(KINDS)}")
    if not isinstance(kind, str) or kind not in KINDS:
        raise ValueError(f"{where}: kind: this version knows no {kind!r}{nearest(str(kind), KINDS)}")
    common = {key: field for key, field in ClusterSection.model_fields.items() if key != "of_kind"}
    mine = {key: value for key, value in table.items() if key in common}
    rest = {key: value for key, value in table.items() if key not in common}
    model = KINDS[kind].settings()
    if "kind" in model.model_fields:
        rest["kind"] = kind
    known = [*common, *model.model_fields]
    found: list[tuple[str, str]] = []
    of_kind: BaseModel = model.model_construct()
    try:
        numbers_only(model, rest)
        of_kind = model(**rest)
    except ValidationError as error:
        found += faults(error, model, known)
    except ValueError as error:
        found.append(("", str(error)))
    try:
        section = ClusterSection(**mine, of_kind=of_kind)
    except ValidationError as error:
        found += faults(error, ClusterSection, known)
    if found:
        raise ValueError(f"{where}: {'; '.join(said(*each) for each in found)}")
    return section


# -- the rulebook -----------------------------------------------------------------------------------------------------


def rulebook(settings: Settings) -> Rulebook:
    """What the pure rules are handed."""
    force = limits_in_force(settings.limits)
    prefixes = {name: section.prefixes for name, section in settings.buckets.items() if section.prefixes}
    own = {name: section.exempt for name, section in settings.buckets.items() if section.exempt is not None}
    per_bucket = {
        bucket: _limits(values, own.get(bucket, BY_NAME[bucket].exempt)) for bucket, values in force.items() if bucket
    }
    return Rulebook(limits=_limits(force[""]), per_bucket=per_bucket, prefixes=prefixes)


def _limits(values: Mapping[str, float], exempt: tuple[str, ...] = ()) -> Limits:
    numbers = {name: int(value) if name in WHOLE else value for name, value in values.items()}
    return Limits(
        exempt=exempt,
        health=Health(**{each.name: numbers[each.name] for each in dataclasses.fields(Health)}),  # type: ignore[arg-type]
        gating=Gating(**{each.name: numbers[each.name] for each in dataclasses.fields(Gating)}),  # type: ignore[arg-type]
        silence_floor=timedelta(seconds=values["silence_floor_s"]),
        silence_multiple=values["silence_multiple"],
        bring_up_limit=timedelta(seconds=values["bring_up_limit_s"]),
        pending_notice=timedelta(seconds=values["pending_notice_s"]),
        absences_to_call_gone=int(values["absences_to_call_gone"]),
        suspect_look=timedelta(seconds=values["suspect_look_s"]),
        cadence_points=int(values["cadence_points"]),
        timeout_slack=timedelta(seconds=values["timeout_slack_s"]),
    )


# -- loading -----------------------------------------------------------------------------------------------------------


def load(given: str | None) -> tuple[Settings, Path]:
    """The checked config and its file. Raises UsageError: file, key, what is wrong, what is allowed."""
    path = find(given)
    settings = parse(read_toml(path), path)
    if settings.signatures.packs or settings.signatures.off:
        _must_load(settings.signatures, path)
    return settings, path


def _must_load(chosen: SignaturesSection, path: Path) -> None:
    """A broken pack is found when the config is read, not when the first job dies."""
    from supervisor.app.packs import catalogue
    from supervisor.diagnosis.catalogue import PackError

    try:
        catalogue(own=chosen.packs, off=chosen.off)
    except (PackError, UsageError) as error:
        raise UsageError(f"{path}: signatures: {error}") from error


def parse(document: dict[str, Any], path: Path) -> Settings:
    """``document`` checked, with every path made absolute from the config file's folder."""
    environment = from_environment()
    for key in environment:
        first = key.partition("__")[0].lower()
        if first not in Settings.model_fields:
            raise UsageError(f"environment: {PREFIX}{key}: no such setting{nearest(first, Settings.model_fields)}")
    try:
        settings = Settings(**document)
    except ValidationError as error:
        raise UsageError(_complaint(faults(error, Settings), path, environment)) from None
    except SettingsError as error:
        field = re.search(r'field "(\w+)"', str(error))
        mine = [PREFIX + key for key in environment if field and key.startswith(field[1].upper())]
        raise UsageError(
            f'environment: {", ".join(mine)}: lists and tables are given as JSON, such as ["x", "y"]'
        ) from None
    base = path.parent
    settings = _absolute(settings, base)
    url = settings.database_url
    if not url and settings.database_url_file is not None:
        url = secret_from(settings.database_url_file, "database_url_file")
    daemon = settings.daemon
    if not daemon.ping_url and daemon.ping_url_file is not None:
        daemon = daemon.model_copy(update={"ping_url": secret_from(daemon.ping_url_file, "daemon.ping_url_file")})
    return settings.model_copy(update={"database_url": database_url(path, settings.state_dir, url), "daemon": daemon})


def _complaint(found: list[tuple[str, str]], path: Path, environment: Mapping[str, str]) -> str:
    """All faults in one line, each with where it stands."""
    places: dict[str, list[str]] = {}
    for key, text in found:
        name = named_in(key, text, environment)
        places.setdefault(f"environment: {name}" if name else str(path), []).append(said(key, text))
    return "; ".join(f"{place}: {'; '.join(texts)}" for place, texts in places.items())


M = TypeVar("M", bound=BaseModel)


def _absolute(model: M, base: Path) -> M:
    """``model`` with every path in it made absolute from ``base``; ``~`` is the user's home."""
    changes = {name: _placed(getattr(model, name), base, name) for name in type(model).model_fields}
    return model.model_copy(update=changes)


def _placed(value: Any, base: Path, key: str) -> Any:
    if isinstance(value, Path):
        return resolved(base, value, key)
    if isinstance(value, BaseModel):
        return _absolute(value, base)
    if isinstance(value, tuple):
        return tuple(_placed(item, base, key) for item in value)
    if isinstance(value, dict):
        return {key: _placed(item, base, key) for key, item in value.items()}
    return value
