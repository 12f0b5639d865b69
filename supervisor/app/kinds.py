"""Kinds of cluster: for each its settings and how one is built. A new kind is one entry here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pydantic import BaseModel

    from supervisor.model.ports import Cluster


@dataclass(frozen=True, slots=True)
class ClusterKind:
    """How to read and build one kind; both load their libraries at first use, so that no other kind pays for them."""

    settings: Callable[[], type[BaseModel]]
    build: Callable[[str, Any, Path], Cluster]
    """Name, settings, state folder."""
    logs_die: bool = False
    """Whether a job's log goes with what ran it, so that a new job's is looked at between ticks already (FIND-5)."""


def _slurm_settings() -> type[BaseModel]:
    from supervisor.clusters.slurm_settings import SlurmSettings

    return SlurmSettings


def _slurm(name: str, settings: Any, state: Path) -> Cluster:
    from supervisor.clusters.slurm import SlurmCluster

    return SlurmCluster(name, settings, settings.shells(name))


def _host_settings() -> type[BaseModel]:
    from supervisor.clusters.host_settings import HostSettings

    return HostSettings


def _host(name: str, settings: Any, state: Path) -> Cluster:
    from supervisor.app.clock import utc_now
    from supervisor.clusters.host import HostCluster

    return HostCluster(name, settings, settings.shell(name, utc_now), state / "host")


def _kubernetes_settings() -> type[BaseModel]:
    from supervisor.clusters.kubernetes_settings import KubernetesSettings

    return KubernetesSettings


def _kubernetes(name: str, settings: Any, state: Path) -> Cluster:
    from supervisor.clusters.kubernetes import KubernetesCluster

    return KubernetesCluster(name, settings)


def _iris_settings() -> type[BaseModel]:
    from supervisor.clusters.iris_settings import IrisSettings

    return IrisSettings


def _iris(name: str, settings: Any, state: Path) -> Cluster:
    from supervisor.clusters.iris import IrisCluster

    return IrisCluster(name, settings)


KINDS: Mapping[str, ClusterKind] = {
    "slurm": ClusterKind(_slurm_settings, _slurm),
    "host": ClusterKind(_host_settings, _host),
    "kubernetes": ClusterKind(_kubernetes_settings, _kubernetes, logs_die=True),
    "iris": ClusterKind(_iris_settings, _iris, logs_die=True),
}
