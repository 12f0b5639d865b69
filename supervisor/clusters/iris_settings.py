"""Settings of ``kind = "iris"``: how its controller is reached, and whose jobs are watched. Durations are seconds."""

from __future__ import annotations

from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, Field, StringConstraints, field_validator, model_validator

from supervisor.clusters.login_settings import ConfigPath

IrisUser = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.@+][A-Za-z0-9_.@+-]*$", max_length=128)]
"""The first part of a job's path, ``/USER/JOB``."""
KubeName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$")]


class PortForward(BaseModel, frozen=True, extra="forbid"):
    """The controller's Service inside a Kubernetes cluster, reached through the API server."""

    kubeconfig: ConfigPath | None = None
    """kubeconfig file. Default: ``$KUBECONFIG``, else ``~/.kube/config``."""
    context: str | None = Field(default=None, min_length=1)
    """Context of the kubeconfig. Default: its current-context."""
    namespace: KubeName = "iris"
    """Namespace of the controller. Default: ``iris``."""
    service: KubeName = "iris-controller-svc"
    """Service of the controller. Default: ``iris-controller-svc``."""
    port: int = Field(default=10000, ge=1, le=65535)
    """Port of that Service. Default: 10000."""


class PodSource(BaseModel, frozen=True, extra="forbid"):
    """The Kubernetes cluster that a controller's tasks run on as pods."""

    kubeconfig: ConfigPath | None = None
    """kubeconfig file. Default: ``$KUBECONFIG``, else ``~/.kube/config``."""
    context: str | None = Field(default=None, min_length=1)
    """Context of the kubeconfig. Default: its current-context."""
    in_cluster: bool = False
    """Whether to use the service account of the pod that the daemon runs in. Default: no."""
    namespace: KubeName = "iris"
    """Namespace of the pods. Default: ``iris``."""


class IrisSettings(BaseModel, frozen=True, extra="forbid"):
    """One controller, by ``url`` or by ``port_forward``."""

    kind: Literal["iris"] = "iris"
    url: str | None = None
    """Address of the controller, such as ``http://127.0.0.1:10000``."""
    port_forward: PortForward | None = None
    """Where the controller is not reachable by itself: a port-forward that the daemon opens, and opens again when it breaks."""
    token_file: ConfigPath | None = None
    """File with a bearer token, read again at each poll. Default: none, and the controller knows us by our address."""
    token_header: Literal["Authorization", "Proxy-Authorization"] = "Authorization"  # noqa: S105  # a header's name
    """Header that the token goes into; an identity-aware proxy wants ``Proxy-Authorization``. Default: ``Authorization``."""
    ca_file: ConfigPath | None = None
    """Certificates to trust for an ``https`` url. Default: the system's."""
    pods: PodSource | None = None
    """Where the pods of its tasks can be asked too: why they wait, whether memory or a preemption ended them, and, in a deep probe,
    what runs in them. Default: not."""
    users: tuple[IrisUser, ...] = Field(min_length=1)
    """Whose jobs are watched (POLL-8): jobs whose path begins with ``/USER/``."""
    request_timeout_s: float = Field(default=30, gt=0, le=600)
    """Longest that one request may take, whatever it waits for, seconds. Default: 30."""
    poll_timeout_s: float = Field(default=100, gt=0, le=3600)
    """Longest that one poll may take in all, seconds (POLL-6). Default: 100."""
    connections: int = Field(default=8, ge=1, le=64)
    """Requests at the same time. Default: 8."""
    log_looks: int = Field(default=256, ge=0, le=2000)
    """Running jobs whose newest log line is asked for in one poll, in turn where there are more (LIVE-1). Default: 256."""
    log_looks_timeout_s: float = Field(default=20, gt=0, le=600)
    """Longest that all of these may take together, seconds. Default: 20."""
    detail_looks: int = Field(default=200, ge=1, le=2000)
    """Jobs whose tasks are asked for one by one in one poll, where our role may not query them all at once. Default: 200.

    What is left is asked for at the next poll."""
    first_look_back_s: float = Field(default=24 * 3600, ge=0, le=30 * 24 * 3600)
    """How long ago a job may have ended that is taken up at the first poll, seconds (POLL-7). Default: one day."""

    @field_validator("url")
    @classmethod
    def _address(cls, value: str | None) -> str | None:
        if value is None:
            return None
        where = urlsplit(value)
        if where.scheme not in ("http", "https") or not where.hostname or where.query or where.fragment:
            raise ValueError(f"{value!r} is no address: allowed is http://HOST[:PORT] or https://HOST[:PORT][/PATH]")
        if where.username or where.password:
            raise ValueError("a url with a password in it is not allowed: use token_file")
        try:
            _ = where.port
        except ValueError:
            raise ValueError(f"{value!r} has a port that is none: allowed is 1 to 65535") from None
        return value.rstrip("/")

    @model_validator(mode="after")
    def _one_way_in(self) -> IrisSettings:
        if (self.url is None) == (self.port_forward is None):
            raise ValueError("one of url and port_forward is needed, and not both")
        if self.ca_file is not None and not (self.url or "").startswith("https:"):
            raise ValueError("ca_file is used for an https url only")
        if len(set(self.users)) < len(self.users):
            raise ValueError("users: each may be named once")
        return self
