"""Settings of ``kind = "kubernetes"``."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, Field, model_validator

from supervisor.clusters.login_settings import ConfigPath

EVERY_NAMESPACE = "*"
_NAMESPACE = re.compile(r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?")


def _namespace(text: str) -> str:
    if text != EVERY_NAMESPACE and not _NAMESPACE.fullmatch(text):
        raise ValueError(
            f"{text!r} is no namespace: allowed are lower-case letters, digits and dashes, or {EVERY_NAMESPACE!r} for all"
        )
    return text


class KubernetesSettings(BaseModel, frozen=True, extra="forbid"):
    """How one cluster is reached, and which of its jobs are watched."""

    kind: Literal["kubernetes"] = "kubernetes"
    kubeconfig: ConfigPath | None = Field(
        default=None, description="kubeconfig file; default: $KUBECONFIG, else ~/.kube/config"
    )
    context: str | None = Field(
        default=None, min_length=1, description="context of the kubeconfig; default: its current-context"
    )
    in_cluster: bool = Field(
        default=False, description="use the service account of the pod that the daemon runs in; no kubeconfig"
    )
    namespaces: tuple[Annotated[str, AfterValidator(_namespace)], ...] = Field(
        default=(),
        description='namespaces to watch, or ["*"] for all; default: the context\'s own, else "default" (POLL-8)',
    )
    selector: str = Field(
        default="", description='label selector: watched is what bears it, itself or in one of its pods; "" for all'
    )
    page_size: int = Field(default=500, ge=1, le=5000, description="objects per page of a list")
    request_timeout_s: float = Field(
        default=30, gt=0, le=600, description="seconds that one request may take, whatever it waits for"
    )
    poll_timeout_s: float = Field(
        default=100, gt=0, le=3600, description="seconds that one poll may take in all (POLL-6)"
    )
    login_timeout_s: float = Field(
        default=20, gt=0, le=600, description="seconds that a credential plugin (exec) may take"
    )
    connections: int = Field(default=8, ge=1, le=64, description="requests at the same time")
    log_looks: int = Field(
        default=64,
        ge=0,
        le=2000,
        description="running jobs whose newest log line is asked for in one poll, in turn (LIVE-1)",
    )
    log_looks_timeout_s: float = Field(
        default=15, gt=0, le=600, description="seconds that all of these may take together"
    )
    first_look_back_s: float = Field(
        default=86400,
        ge=0,
        le=30 * 86400,
        description="seconds: how long ago a job may have ended that is taken up at the first poll",
    )
    terminating_limit_s: float = Field(
        default=300,
        gt=0,
        le=86400,
        description="seconds past its grace period after which a deleted object counts as stuck",
    )

    @model_validator(mode="after")
    def _one_way_in(self) -> KubernetesSettings:
        if self.in_cluster and (self.kubeconfig is not None or self.context is not None):
            raise ValueError(
                "in_cluster uses the pod's service account: kubeconfig and context have no meaning beside it"
            )
        if EVERY_NAMESPACE in self.namespaces and len(self.namespaces) > 1:
            raise ValueError(f'namespaces: "{EVERY_NAMESPACE}" means all; name none beside it')
        if len(set(self.namespaces)) < len(self.namespaces):
            raise ValueError("namespaces: each may be named once")
        if any(ord(letter) < 32 for letter in self.selector):
            raise ValueError("selector: control characters are not allowed")
        return self
