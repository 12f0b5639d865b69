"""Kinds of records that own pods: where each is found, how it is decoded, what it says. A new kind is one entry here.

Which of them a cluster has is discovered, never assumed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from supervisor.clusters.kubernetes_objects import ListMeta
from supervisor.clusters.operators import (
    RayCluster,
    RayJob,
    TrainingJob,
    TrainJob,
    read_raycluster,
    read_rayjob,
    read_train_job,
    read_training_job,
)
from supervisor.clusters.owners import Job, JobSet, RecordRead, read_job_record, read_jobset

Record = Job | JobSet | TrainingJob | TrainJob | RayJob | RayCluster


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One kind of record: where it is found, how it is decoded, what it says."""

    kind: str
    group: str
    plural: str
    item: type[Record]
    read: Callable[[Any], RecordRead]

    @property
    def word(self) -> str:
        """Its part of a job's id."""
        return self.kind.lower()


def _kubeflow(kind: str) -> Kind:
    return Kind(kind=kind, group="kubeflow.org", plural=f"{kind.lower()}s", item=TrainingJob, read=read_training_job)


KINDS: tuple[Kind, ...] = (
    Kind(kind="Job", group="batch", plural="jobs", item=Job, read=read_job_record),
    Kind(kind="RayCluster", group="ray.io", plural="rayclusters", item=RayCluster, read=read_raycluster),
    Kind(kind="JobSet", group="jobset.x-k8s.io", plural="jobsets", item=JobSet, read=read_jobset),
    Kind(kind="RayJob", group="ray.io", plural="rayjobs", item=RayJob, read=read_rayjob),
    *map(_kubeflow, ("PyTorchJob", "TFJob", "MPIJob", "XGBoostJob", "PaddleJob", "JAXJob")),
    Kind(kind="TrainJob", group="trainer.kubeflow.org", plural="trainjobs", item=TrainJob, read=read_train_job),
)
"""Lower in a chain of owners first: listed in this order, after the pods, so that the owner of what is listed is listed too."""

BY_NAME: Mapping[tuple[str, str], Kind] = {(kind.group, kind.kind): kind for kind in KINDS}
BY_WORD: Mapping[str, Kind] = {kind.word: kind for kind in KINDS}


class RecordList(msgspec.Struct, gc=False, frozen=True):
    """Envelope of any list; its items are decoded by their kind's own decoder."""

    kind: str
    metadata: ListMeta
    items: tuple[msgspec.Raw, ...] | None


ENVELOPE = msgspec.json.Decoder(RecordList)
ITEMS: Mapping[str, msgspec.json.Decoder[Any]] = {kind.word: msgspec.json.Decoder(kind.item) for kind in KINDS}
