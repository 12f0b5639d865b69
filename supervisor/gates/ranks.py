"""Which device serves what: policy and engine ranks told apart, never averaged (PROBE-2, PROBE-9).

By the processes on each device where they are told; else by the names beside process numbers in the logs; else by a node whose
processes are all of one kind.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from supervisor.gates import devices, processes
from supervisor.gates.devices import Device, DeviceUser
from supervisor.gates.processes import NodeProcesses, Part
from supervisor.model.findings import Quote
from supervisor.model.probe import Case, Role

READ_LINES = 20_000
"""Newest lines of each log that are searched for names beside process numbers."""

POLICY = (Part.TRAINER, Part.REFERENCE, Part.DRIVER)
_ENGINE = re.compile(r"EngineCore\w*|VllmWorker\w*|APIServer\w*|Worker(?:_(?:TP|PP|DP|EP|CP)\d+)+")
"""What vLLM puts before its lines."""
_SPEAKER = re.compile(r"\((\w{1,80}) pid=(\d{1,10})[,)]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranks:
    """The job's devices by what they serve. One on which both run stands in both (a hybrid engine)."""

    devices: tuple[Device, ...]
    policy: tuple[Device, ...]
    engines: tuple[Device, ...]
    how: str
    """What told them apart; empty where nothing did."""
    quotes: tuple[Quote, ...]
    """One line for each kind that says so."""

    @property
    def apart(self) -> bool:
        return bool(self.policy and self.engines)

    @property
    def shared(self) -> bool:
        return bool(self.policy) and set(self.policy) == set(self.engines)


def of(case: Case) -> Ranks:
    """Only devices that the job's own processes use, where that is told: a node may be shared."""
    shown = tuple(device for view in devices.gpus(case) for device in view.devices)
    users = devices.users(case)
    views = processes.of(case)
    parts = _parts(case, users, views)
    mine = tuple(device for device in shown if (device.node, device.uuid) not in _others(users, views))
    by_device: dict[tuple[str | None, str], set[Part]] = {}
    quotes: dict[str, Quote] = {}
    for user in users:
        part = parts.get((user.node, user.pid))
        if part is not None:
            by_device.setdefault((user.node, user.uuid), set()).add(part)
            quotes.setdefault("engine" if part is Part.ENGINE else "policy", user.quote)
    policy = tuple(each for each in mine if by_device.get((each.node, each.uuid), set()) & set(POLICY))
    engines = tuple(each for each in mine if Part.ENGINE in by_device.get((each.node, each.uuid), ()))
    if policy or engines:
        how = "the processes on each device"
        return Ranks(devices=mine, policy=policy, engines=engines, how=how, quotes=tuple(quotes.values()))
    return _by_node(mine, views)


def _others(users: Sequence[DeviceUser], views: Sequence[NodeProcesses]) -> set[tuple[str | None, str]]:
    """Devices of a shared node that only processes of other jobs use. Where no number is known, another namespace counts them."""
    own = {(process.node, process.pid) for process in processes.everyone(views)}
    ours = {(user.node, user.uuid) for user in users if (user.node, user.pid) in own}
    nodes = {node for node, _ in ours}
    return {(user.node, user.uuid) for user in users if user.node in nodes} - ours


def _parts(
    case: Case, users: Sequence[DeviceUser], views: Sequence[NodeProcesses]
) -> Mapping[tuple[str | None, int], Part]:
    """What each process on a device is for. A number outside of the job's own list may be of another job: only its name counts."""
    known = {(process.node, process.pid): process.part for process in processes.everyone(views)}
    spoken = _speakers(case)
    found: dict[tuple[str | None, int], Part] = {}
    for user in users:
        part = known.get((user.node, user.pid), processes.part_of(user.name))
        if part not in (*POLICY, Part.ENGINE):
            part = spoken.get(user.pid, part)
        if part in (*POLICY, Part.ENGINE):
            found[(user.node, user.pid)] = part
    return found


def _speakers(case: Case) -> Mapping[int, Part]:
    """Process numbers that Ray's prefixes name; one that two kinds bear, on two nodes, is dropped."""
    found: dict[int, set[Part]] = {}
    for exhibit in (*case.read(Role.LOG), *case.read(Role.SESSION_LOG)):
        for line in case.lines(exhibit.file or "")[-READ_LINES:]:
            for name, pid in _SPEAKER.findall(line[:400]):
                found.setdefault(int(pid), set()).add(_named(name))
    return {pid: next(iter(parts)) for pid, parts in found.items() if len(parts) == 1}


def _named(name: str) -> Part:
    return Part.ENGINE if _ENGINE.fullmatch(name) else processes.part_of(f"ray::{name}")


def _by_node(mine: tuple[Device, ...], views: Sequence[NodeProcesses]) -> Ranks:
    """A node with engines and no rank of a trainer serves as an engine's, and the other way round."""
    policy: list[Device] = []
    engines: list[Device] = []
    quotes: dict[str, Quote] = {}
    for view in views:
        trains, serves = view.of(Part.TRAINER, Part.REFERENCE), view.of(Part.ENGINE)
        here = [device for device in mine if device.node == view.node]
        if trains and not serves:
            policy += here
            quotes.setdefault("policy", trains[0].quote)
        elif serves and not trains:
            engines += here
            quotes.setdefault("engine", serves[0].quote)
    how = "what runs on each node" if policy or engines else ""
    return Ranks(devices=mine, policy=tuple(policy), engines=tuple(engines), how=how, quotes=tuple(quotes.values()))


def words(name: str, group: Sequence[Device]) -> str:
    """``8 policy devices at 91 to 99 % (310 of 700 W)``; peaks over the samples."""
    peaks = sorted(peak for device in group if (peak := device.peak) is not None)
    if not peaks:
        return f"{len(group)} {name} devices of unknown use"
    span = f"{peaks[0]:g}" if peaks[0] == peaks[-1] else f"{peaks[0]:g} to {peaks[-1]:g}"
    drawn = [max(watts) for device in group if (watts := [each for each in device.watts if each is not None])]
    limit = next((device.watts_limit for device in group if device.watts_limit), None)
    power = f" ({median(drawn):.0f} of {limit:.0f} W)" if drawn and limit else ""
    return f"{len(group)} {name} device{'s' if len(group) != 1 else ''} at {span} %{power}"


def extremes(group: Iterable[Device]) -> tuple[Quote, ...]:
    """The lines of the least and the most used device."""
    known = sorted((device for device in group if device.peak is not None), key=lambda device: device.peak or 0.0)
    if not known:
        return ()
    return tuple(dict.fromkeys((known[0].quote, known[-1].quote)))
