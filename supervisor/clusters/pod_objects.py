"""Pods as the API server lists them: the few fields used, decoded a page at a time. Pure."""

from __future__ import annotations

from datetime import datetime

import msgspec

from supervisor.clusters.kubernetes_objects import Condition, ListMeta, Meta, Part
from supervisor.model.errors import AnswerUnusable

_NO_CONDITIONS = msgspec.Raw(b"[]")
_CONDITIONS = msgspec.json.Decoder(tuple[Condition, ...] | None)


class Named(Part, frozen=True):
    name: str = ""


class Running(Part, frozen=True):
    started_at: datetime | None = None


class Waiting(Part, frozen=True):
    reason: str = ""
    message: str = ""


class Terminated(Part, frozen=True):
    exit_code: int = 0
    signal: int | None = None
    reason: str = ""
    message: str = ""
    started_at: datetime | None = None
    finished_at: datetime | None = None


class ContainerState(Part, frozen=True):
    running: Running | None = None
    waiting: Waiting | None = None
    terminated: Terminated | None = None


NO_STATE = ContainerState()


class ContainerStatus(Part, frozen=True):
    name: str
    restart_count: int = 0
    ready: bool = False
    state: ContainerState = NO_STATE
    last_state: ContainerState = NO_STATE


class PodSpec(Part, frozen=True):
    node_name: str = ""
    host_pid: bool = msgspec.field(name="hostPID", default=False)
    active_deadline_seconds: int | None = None
    containers: tuple[Named, ...] = ()
    scheduling_gates: tuple[Named, ...] = ()


class PodStatus(Part, frozen=True):
    phase: str = ""
    reason: str = ""
    message: str = ""
    start_time: datetime | None = None
    conditions_text: msgspec.Raw = msgspec.field(name="conditions", default=_NO_CONDITIONS)
    container_statuses: tuple[ContainerStatus, ...] | None = ()
    init_container_statuses: tuple[ContainerStatus, ...] | None = ()

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """Decoded when asked for: they are half of all that is read of a pod. None of one that runs and stays; see decode_pods."""
        try:
            return _CONDITIONS.decode(self.conditions_text) or ()
        except msgspec.ValidationError as error:
            raise AnswerUnusable("", f"a pod's conditions cannot be read: {error}") from error


class Pod(Part, frozen=True):
    metadata: Meta
    spec: PodSpec
    status: PodStatus


class PodList(Part, frozen=True):
    kind: str
    metadata: ListMeta
    items: tuple[Pod, ...] | None


_PODS = msgspec.json.Decoder(PodList)


def decode_pods(data: bytes | memoryview) -> PodList:
    """One page of pods, which keeps nothing of ``data``. Raises msgspec.DecodeError and the like.

    The conditions of a pod that runs and stays are let go: what it waited for is over, and what takes it off deletes it.
    """
    page = _PODS.decode(data)
    for pod in page.items or ():
        status = pod.status
        stays = status.phase == "Running" and pod.metadata.deletion_timestamp is None
        kept = _NO_CONDITIONS if stays else status.conditions_text.copy()
        msgspec.structs.force_setattr(status, "conditions_text", kept)
    return page
