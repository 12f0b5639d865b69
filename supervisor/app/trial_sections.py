"""Settings of the trial stores: what is read of them, and where they lie (docs/trials.md)."""

from __future__ import annotations

import re
from pathlib import Path

from pydantic import Field, field_validator

from supervisor.app.sections import Section


class TrialStoreSection(Section):
    """Where trials lie that the command and the log of their job do not tell, and how an object store is reached. The first
    entry whose `jobs` fits counts."""

    jobs: str = Field(default="*", min_length=1)
    """Job-name pattern."""
    read: bool = True
    """`false`: the trials of these jobs are not read."""
    place: str = Field(default="", max_length=2000)
    """Folder on the cluster (absolute, or `~/…`) or `s3://bucket/prefix` that holds one folder a trial; `{name}`, `{id}`,
    `{user}` and `{workdir}` are filled in. Default: what the job's command or log says."""
    endpoint_url: str = Field(default="", pattern=r"^(https?://[^\s@?#]+)?$")
    """Address of a store that is not AWS's own. Default: `AWS_ENDPOINT_URL_S3`, `AWS_ENDPOINT_URL`."""
    region: str = Field(default="", pattern=r"^[a-z0-9-]*$")
    """Default: `AWS_REGION`, `AWS_DEFAULT_REGION`, else `us-east-1`."""
    profile: str = ""
    """Profile of the credentials file. Default: `AWS_PROFILE`, else `default`."""
    credentials_file: Path | None = None
    """File of profiles in AWS's form. Default: the variables `AWS_ACCESS_KEY_ID` and so on, else `~/.aws/credentials`."""

    @field_validator("place")
    @classmethod
    def _usable(cls, value: str) -> str:
        if value and not re.match(r"s3://[^/\s]+|/|~/|\{workdir\}", value):
            raise ValueError("must be an absolute folder, ~/…, {workdir}/… or s3://bucket/prefix")
        unknown = set(re.findall(r"\{([^}]*)\}", value)) - {"name", "id", "user", "workdir"}
        if unknown:
            raise ValueError(f"{{{sorted(unknown)[0]}}} is not known; allowed: {{id}}, {{name}}, {{user}}, {{workdir}}")
        return value


class TrialsSection(Section):
    """Results of trials (evaluations, trace generation, agentic RL), read from the folders and object stores that jobs write
    them to."""

    read: bool = True
    """`false`: none is read, and figures of trials are those of the logs."""
    results_per_job: int = Field(default=1000, ge=1, le=100_000)
    """Most results that are counted of one job in one tick; the rest waits for the next."""
    bytes_per_result: int = Field(default=2**20, ge=2**10, le=2**26)
    """A larger result is counted as ended and not read, bytes."""
    bytes_per_tick: int = Field(default=32 * 2**20, ge=2**16, le=2**30)
    """Most that is read of one cluster's trials in one tick, bytes."""
    entries: int = Field(default=20_000, ge=100, le=1_000_000)
    """Most entries of one folder, or keys of one listing, that are looked at in one tick."""
    deadline_s: float = Field(default=120, gt=0, le=3600)
    """Longest that a tick waits for one cluster's trials, seconds."""
