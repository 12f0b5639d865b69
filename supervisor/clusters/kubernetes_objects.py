"""What all Kubernetes objects share, as far as it is read: metadata, owners, conditions, lists. Decoded straight from the bytes.

Pure. Fields that are not named here are skipped by the decoder without being built.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import TypeVar

import msgspec

T = TypeVar("T")


class Part(msgspec.Struct, gc=False, rename="camel", frozen=True):
    """A piece of an answer. It refers to nothing that refers back, so the collector need not look at it."""


class Labels(
    msgspec.Struct,
    gc=False,
    frozen=True,
    rename={
        "index": "batch.kubernetes.io/job-completion-index",
        "pod_group": "kueue.x-k8s.io/pod-group-name",
        "gang": "scheduling.x-k8s.io/pod-group",
        "queue": "kueue.x-k8s.io/queue-name",
        "replicated_job": "jobset.sigs.k8s.io/replicatedjob-name",
        "job_index": "jobset.sigs.k8s.io/job-index",
        "replica_type": "training.kubeflow.org/replica-type",
        "replica_index": "training.kubeflow.org/replica-index",
        "ray_node": "ray.io/node-type",
        "ray_group": "ray.io/group",
        "workload_owner": "kueue.x-k8s.io/job-uid",
        "user": "user",
        "owner": "owner",
        "created_by": "app.kubernetes.io/created-by",
    },
):
    """The labels that say what a pod is for, and whose. All others are skipped."""

    index: str = ""
    pod_group: str = ""
    gang: str = ""
    queue: str = ""
    replicated_job: str = ""
    job_index: str = ""
    replica_type: str = ""
    replica_index: str = ""
    ray_node: str = ""
    ray_group: str = ""
    workload_owner: str = ""
    user: str = ""
    owner: str = ""
    created_by: str = ""

    @property
    def person(self) -> str:
        """Whose it is, where a label says so: Kubernetes itself keeps no user."""
        return self.user or self.owner or self.created_by


class Annotations(
    msgspec.Struct,
    gc=False,
    frozen=True,
    rename={
        "index": "batch.kubernetes.io/job-completion-index",
        "default_container": "kubectl.kubernetes.io/default-container",
        "group_size": "kueue.x-k8s.io/pod-group-total-count",
    },
):
    index: str = ""
    default_container: str = ""
    group_size: str = ""


class OwnerRef(Part, frozen=True):
    kind: str
    name: str
    uid: str
    api_version: str = ""
    controller: bool = False


NO_LABELS, NO_ANNOTATIONS = Labels(), Annotations()


class Meta(Part, frozen=True):
    name: str
    uid: str
    creation_timestamp: datetime
    namespace: str = ""
    deletion_timestamp: datetime | None = None
    """When its grace period ends, not when it was deleted."""
    deletion_grace_period_seconds: int | None = None
    labels: Labels | None = NO_LABELS
    annotations: Annotations | None = NO_ANNOTATIONS
    owner_references: tuple[OwnerRef, ...] | None = ()
    finalizers: tuple[str, ...] | None = ()

    @property
    def owner(self) -> OwnerRef | None:
        """The controlling owner; else the only one."""
        owners = self.owner_references or ()
        for owner in owners:
            if owner.controller:
                return owner
        return owners[0] if len(owners) == 1 else None

    @property
    def tags(self) -> Labels:
        return self.labels or NO_LABELS

    @property
    def notes(self) -> Annotations:
        return self.annotations or NO_ANNOTATIONS


class Condition(Part, frozen=True):
    type: str
    status: str
    reason: str | None = None
    message: str | None = None
    last_transition_time: datetime | None = None

    @property
    def true(self) -> bool:
        return self.status == "True"

    @property
    def false(self) -> bool:
        return self.status == "False"


class ListMeta(msgspec.Struct, gc=False, frozen=True, rename={"resume": "continue"}):
    resume: str = ""


class Group(Part, frozen=True):
    name: str
    versions: tuple[GroupVersion, ...]
    preferred_version: GroupVersion | None = None


class GroupVersion(Part, frozen=True):
    version: str


class GroupList(Part, frozen=True):
    """Answer of ``/apis``."""

    kind: str
    groups: tuple[Group, ...]


class Resource(Part, frozen=True):
    name: str
    kind: str
    namespaced: bool
    verbs: tuple[str, ...] = ()


class ResourceList(Part, frozen=True):
    """Answer of ``/apis/GROUP/VERSION``."""

    kind: str
    resources: tuple[Resource, ...]


class Version(Part, frozen=True):
    git_version: str


def condition(conditions: Iterable[Condition] | None, kind: str) -> Condition | None:
    """The condition of this type, whatever its status."""
    for one in conditions or ():
        if one.type == kind:
            return one
    return None


def holds(conditions: Iterable[Condition] | None, kind: str) -> Condition | None:
    """The condition of this type, if it is true."""
    one = condition(conditions, kind)
    return one if one is not None and one.true else None


def plain(text: str, most: int = 400) -> str:
    """One line of printable text: what a server says can steer no terminal, and fills no screen."""
    line = "".join(letter if letter.isprintable() else " " for letter in text[: 4 * most])
    line = " ".join(line.split())
    return line if len(line) <= most else line[: most - 1] + "…"


def said(reason: str | None, message: str | None) -> str:
    """``Reason: message``, either part optional."""
    return plain(": ".join(part for part in (reason, message) if part))
