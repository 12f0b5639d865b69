"""Gate B: do the devices work? Policy and engine ranks apart, the engines' subscription, memory (PROBE-2, PROBE-8, PROBE-9).

Hard only together with gate A: devices at rest are a state, and what turns it into a death is that nothing moves and no benign
explanation is left.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from supervisor.gates import devices, engines, liveness, processes, ranks, said, shortage, starvation
from supervisor.gates.devices import Device, DeviceFiles, GpuView
from supervisor.gates.engines import Subscription
from supervisor.gates.processes import Part
from supervisor.gates.ranks import Ranks
from supervisor.model.findings import Quote
from supervisor.model.probe import Case, GateScore, Missing, Role, Score
from supervisor.model.readings import RunSummary

GATE, NAME = "B", "resources"
SERVES = ("rl", "datagen", "eval")
TRAINING = (
    "policy_train",
    "train_critic",
    "critic_train",
    "run_training",
    "ppo_train",
    "update_actor",
    "fwd_logprobs",
    "optimizer",
)
ROLLOUT = ("generat", "rollout", "wait_for_generation", "buffer")
LOW_POWER = 0.4
"""Share of its power limit up to which a device hardly works: one small request keeps its use near 100 %."""
PINNED = 0.97
"""Share of a device's memory in use from which it is at its ceiling."""


def judge(case: Case) -> GateScore:
    shown = _shown(case)
    if isinstance(shown, GateScore):
        return shown
    group = ranks.of(case)
    if not any(device.known for device in group.devices):
        exhibit = case.read(Role.GPU)[0]
        return _error("The use of its devices is not told.", said.unusable(exhibit, group.devices[0].quote.text), shown)
    bucket = case.subject.bucket
    if bucket in SERVES and (bucket == "rl" or _serves(case, group)):
        score = _rl(case, group) if bucket == "rl" else _serving(case, group)
    else:
        score = _working(case, group)
    return shortage.added(case, score)


# -- what there is -----------------------------------------------------------------------------------------------------


def _shown(case: Case) -> tuple[Quote, ...] | GateScore:
    """Lines of devices that were seen; or the score of a job without any, or whose devices could not be seen."""
    listed, views = devices.files(case), devices.gpus(case)
    asked = case.of(Role.DEVICES)
    counted = {each.node: each for each in listed}
    none = len(listed) == len(asked) > 0 and all(each.count == 0 for each in listed)
    if none and not any(view.devices for view in views):
        nodes = f"{len(listed)} nodes" if len(listed) != 1 else "its node"
        reason = f"No accelerator device is on {nodes}: there is nothing to use."
        quotes = tuple(each.quote for each in listed[:4])
        return GateScore(gate=GATE, name=NAME, result=Score.NOT_APPLICABLE, reason=reason, quotes=quotes)
    blind = _blind(case, counted, views)
    if blind is not None:
        return blind
    if not any(view.devices for view in views):
        return _error(
            "Which devices it has, and how they are used, could not be seen.",
            said.missing(case, Role.GPU, Role.DEVICES),
        )
    return tuple(device.quote for view in views for device in view.devices[:1])


def _blind(case: Case, counted: dict[str | None, DeviceFiles], views: Sequence[GpuView]) -> GateScore | None:
    """A node with devices, or of unknown devices, whose use was asked and not told: then nothing is said of all ranks."""
    seen = {view.node: view for view in views}
    for exhibit in case.of(Role.GPU):
        has = counted.get(exhibit.node)
        if has is not None and has.count == 0:
            continue
        where = f"node {exhibit.node}" if exhibit.node else "its node"
        if not exhibit.read:
            missing = Missing(command=exhibit.command, output=exhibit.failure or "it put out nothing")
            return _error(
                f"How the devices of {where} are used could not be seen.", missing, (has.quote,) if has else ()
            )
        view = seen.get(exhibit.node)
        if view is None or view.devices:
            continue
        told = view.none_found or view.complaint
        words = told.text if told is not None else "no table of devices"
        quotes = tuple(quote for quote in (told, has.quote if has else None) if quote is not None)
        reason = (
            f"What tells of the devices of {where} disagrees."
            if view.none_found and has
            else f"The devices of {where} could not be asked."
        )
        return _error(reason, said.unusable(exhibit, words), quotes)
    for node, has in counted.items():
        if has.count and node not in seen and not any(each.node == node for each in case.of(Role.GPU)):
            return _error(
                f"How the devices of node {node} are used was not captured.", said.missing(case, Role.GPU), (has.quote,)
            )
    return None


def _serves(case: Case, group: Ranks) -> bool:
    """Whether an engine of its own serves it: else it computes like a trainer, or asks an engine elsewhere."""
    return bool(group.engines) or any(run.last_engine is not None or run.engine.answered for run in case.runs.values())


# -- training, and whatever only computes --------------------------------------------------------------------------------


def _working(case: Case, group: Ranks) -> GateScore:
    words = ranks.words("", group.devices).replace("  ", " ")
    quotes = ranks.extremes(group.devices)
    idle = _idle(case, group.devices)
    resting = [device for device in group.devices if device.idle(case.limits.gating.gpu_idle_percent)]
    if idle and _silent(case):
        return _at_rest(case, f"All its devices rest, and its log stands still: {words}.", quotes, group)
    some = f" {len(resting)} of them rest." if resting and not idle else ""
    note = " They rest at this moment, while its log goes on." if idle else some
    return GateScore(
        gate=GATE,
        name=NAME,
        result=Score.PASS,
        reason=f"{words[:1].upper()}{words[1:]}.{note}",
        quotes=quotes,
        confidence="medium" if idle else "high",
        watch="all devices at rest while its log stands still",
        facts=_facts(policy=group.devices),
    )


def _at_rest(case: Case, reason: str, quotes: tuple[Quote, ...], group: Ranks) -> GateScore:
    """PROBE-9: rest without progress. A wedge where gate A finds one too, with its stacks and without any other explanation."""
    hang = liveness.judge(case)
    pinned = [device for device in group.devices if (device.memory_share or 0.0) >= PINNED]
    more = f" The memory of {len(pinned)} devices is at its ceiling." if pinned else ""
    score = GateScore(
        gate=GATE,
        name=NAME,
        result=Score.FAIL,
        reason=f"{reason}{more}",
        quotes=quotes,
        confidence="medium",
        cause="devices-idle",
        fix="find out by stacks of the trainer's processes what they wait for",
        watch="a device at work, or a step",
        facts=_facts(policy=group.policy or group.devices, engine=group.engines),
    )
    if not hang.hard or case.subject.exempt:
        return score
    return replace(
        score, hard=True, wedge=True, cause=hang.cause, fix=hang.fix, confidence=hang.confidence,
        quotes=said.distinct((*quotes, *hang.quotes), most=12),
    )  # fmt: skip


# -- reinforcement learning ------------------------------------------------------------------------------------------------


def _by_itself(case: Case, group: Ranks) -> bool:
    """Whether the policy generates by itself: nothing of the job serves, or ever spoke as an engine, on any node.

    A trainer on Ray always has engines beside it: where they are not seen, they are missing.
    """
    views = processes.of(case)
    everyone = processes.everyone(views)
    beside = any(each.part in (Part.ENGINE, Part.COORDINATOR) or each.command.startswith("ray::") for each in everyone)
    spoke = any(run.last_engine is not None or run.engine.answered for run in case.runs.values())
    seen = bool(everyone) and all(each.read for each in case.of(Role.PROCESSES))
    return seen and not beside and not spoke and bool(group.policy) and set(group.policy) == set(group.devices)


def _rl(case: Case, group: Ranks) -> GateScore:
    if not group.apart and _by_itself(case, group):
        score = _working(case, group)
        note = "No engine is beside the policy, which generates by itself."
        return replace(score, reason=f"{note} {score.reason}", quotes=said.distinct((*group.quotes, *score.quotes)))
    if not group.apart:
        found = "policy" if group.policy else "engine" if group.engines else "no"
        missing = said.missing(case, Role.GPU_PROCESSES, Role.PROCESSES)
        if case.read(Role.GPU_PROCESSES) and case.read(Role.PROCESSES):
            missing = said.unusable(
                case.read(Role.GPU_PROCESSES)[0], f"only {found} ranks are named by the processes on devices"
            )
        return _error(
            "Policy and engine ranks cannot be told apart, and are not averaged.",
            missing,
            ranks.extremes(group.devices),
        )
    subscription = engines.of(case)
    quotes = (*group.quotes, *ranks.extremes(group.policy), *ranks.extremes(group.engines))
    if subscription is None:
        return _error(
            "No line of an engine tells how many requests it runs and holds waiting.",
            _no_engine_line(case),
            said.distinct(quotes),
        )
    quotes = said.distinct((subscription.newest.quote, *quotes), most=10)
    stage = _stage(case)
    split = f"{ranks.words('policy', group.policy)}; {ranks.words('engine', group.engines)}"
    if group.shared:
        split = f"{ranks.words('', group.devices).replace('  ', ' ')}, shared by policy and engine"
    words = f"{split[:1].upper()}{split[1:]} (told apart by {group.how}). Engines: {subscription.words}."
    facts = _facts(group.policy, group.engines) | dict(subscription.facts) | {"stage": stage or None}
    limits = case.limits.gating
    policy_idle, engines_idle = _idle(case, group.policy), _idle(case, group.engines)
    if policy_idle and stage == "training" and _silent(case):
        return _at_rest(case, f"It trains, and all policy ranks rest without progress. {words}", quotes, group)
    base = GateScore(
        gate=GATE,
        name=NAME,
        result=Score.PASS,
        reason=words,
        quotes=quotes,
        watch="engines at rest while nothing trains; policy ranks at rest during a step",
        facts=facts,
    )
    starved = subscription.starved(limits.kv_idle_percent, case.limits.health.engine_idle_s)
    policy_rests = policy_idle or (group.shared and _hardly(group.policy))
    if starved and (engines_idle or _hardly(group.engines)) and policy_rests and stage != "training":
        return _starved(case, subscription, base, group)
    if policy_idle and engines_idle and _silent(case):
        return _at_rest(case, f"All its devices rest, and its log stands still. {words}", quotes, group)
    return _subscribed(case, subscription, base, resting=bool(engines_idle))


def _subscribed(case: Case, subscription: Subscription, base: GateScore, resting: bool) -> GateScore:
    if subscription.oversubscribed(case.limits.gating.oversubscribed_times):
        flat = subscription.flat
        if flat:
            return replace(
                base,
                result=Score.FAIL,
                reason=f"More requests wait than run, and throughput does not grow: over-subscribed. {base.reason}",
                cause="over-subscribed",
                fix="lower the trials at once, or raise what an engine serves at once (max_num_seqs), or add engines",
                confidence="medium",
                watch="waiting requests against running ones, and the throughput",
            )
        told = "whether throughput is flat is not told" if flat is None else "but throughput still grows"
        return replace(base, reason=f"{base.reason} More requests wait than run; {told}.", confidence="medium")
    note = " The engines rest at this moment." if resting else ""
    return replace(base, reason=f"{base.reason}{note}", confidence="medium" if resting else "high")


def _starved(case: Case, subscription: Subscription, base: GateScore, group: Ranks) -> GateScore:
    """PROBE-8: a failure with a measured cause, soft, for its fix is a setting; unmeasured it is no verdict at all."""
    why = starvation.measure(case, subscription)
    reason = f"The engines are starved. {base.reason} {why.words}"
    if why.lacks is not None:
        return _error(f"{reason} Why is not measured.", why.lacks, said.distinct((*base.quotes, *why.quotes), most=12))
    cause = why.cause
    score = replace(
        base,
        result=Score.FAIL,
        reason=reason if cause is not None else f"{reason} None of the three explains it.",
        quotes=said.distinct((*base.quotes, *why.quotes), most=12),
        cause=cause.cause if cause is not None else "engines-starved",
        fix=cause.fix
        if cause is not None
        else "take stacks of the coordinators while it lives, and see what they wait for",
        confidence="medium",
        watch="running and waiting requests of the engines; a first waiting request says that they are fed",
    )
    if not _silent(case) or case.subject.exempt:
        return score
    hang = liveness.judge(case)
    if not hang.hard:
        return score
    return replace(
        score, reason=f"{score.reason} Nothing of it moves.", hard=True, wedge=True, confidence=hang.confidence,
        quotes=said.distinct((*score.quotes, *hang.quotes), most=14),
    )  # fmt: skip


# -- engines that serve trials or questions --------------------------------------------------------------------------------


def _serving(case: Case, group: Ranks) -> GateScore:
    serving = group.engines or group.devices
    subscription = engines.of(case)
    quotes = ranks.extremes(serving)
    words = ranks.words("engine", serving)
    words = f"{words[:1].upper()}{words[1:]}"
    idle = _idle(case, serving)
    if subscription is None:
        answered = [
            quote for file, run in case.runs.items() for quote in said.spoken(case, file, run.engine.last_answered)
        ]
        if not answered:
            return _error(
                "No line of an engine tells how many requests it runs and holds waiting.", _no_engine_line(case), quotes
            )
        rests = " They rest at this moment." if idle else ""
        return GateScore(
            gate=GATE,
            name=NAME,
            result=Score.PASS,
            reason=f"{words}. The engine answers requests; how many it runs it does not tell.{rests}",
            quotes=said.distinct((*answered[:1], *quotes)),
            confidence="medium",
            watch="an engine that answers no more",
            facts=_facts(engine=serving),
        )
    base = GateScore(
        gate=GATE,
        name=NAME,
        result=Score.PASS,
        reason=f"{words}. Engines: {subscription.words}.",
        quotes=said.distinct((subscription.newest.quote, *quotes)),
        watch="an engine at rest while trials are left",
        facts=_facts(engine=serving) | dict(subscription.facts),
    )
    limits = case.limits
    left = any(_left(run) for run in case.runs.values())
    starved = subscription.starved(limits.gating.kv_idle_percent, limits.health.engine_idle_s)
    if (idle or _hardly(serving)) and left and starved:
        return _starved(case, subscription, base, group)
    if idle and _silent(case):
        return _at_rest(case, f"Its devices rest, and its log stands still. {base.reason}", base.quotes, group)
    return _subscribed(case, subscription, base, resting=bool(idle))


def _left(run: RunSummary) -> bool:
    """Whether trials or questions are left to serve, as far as it is told."""
    done, total = run.progress.step, run.progress.total
    return total is None or (done or 0) < total


# -- pieces ----------------------------------------------------------------------------------------------------------------


def _idle(case: Case, group: Sequence[Device]) -> bool | None:
    """Every device of the group rests in every sample; None where one does not tell."""
    told = [device.idle(case.limits.gating.gpu_idle_percent) for device in group]
    if not told or any(each is False for each in told):
        return False
    return None if any(each is None for each in told) else True


def _hardly(group: Sequence[Device]) -> bool:
    """Every device draws little of its power, in every sample."""
    shares = [device.watts_share for device in group]
    return bool(shares) and all(share is not None and share <= LOW_POWER for share in shares)


def _silent(case: Case) -> bool:
    """Gate A finds its log beyond its allowance; a log that could not be judged is not silent."""
    return liveness.judge(case).result is Score.FAIL


def _stage(case: Case) -> str:
    """``training`` or ``rollout`` by the trainer's open timers; empty where none says."""
    names = [timer.name.lower() for run in case.runs.values() for timer in run.timers if timer.open_since is not None]
    trains = any(part in name for name in names for part in TRAINING)
    rolls = any(part in name for name in names for part in ROLLOUT)
    return "training" if trains and not rolls else "rollout" if rolls and not trains else ""


def _facts(policy: Sequence[Device] = (), engine: Sequence[Device] = ()) -> dict[str, float | int | str | None]:
    facts: dict[str, float | int | str | None] = {}
    for name, group in (("policy", policy), ("engine", engine)):
        peaks = [peak for device in group if (peak := device.peak) is not None]
        if peaks:
            facts |= {
                f"{name}_devices": len(group),
                f"{name}_least_percent": min(peaks),
                f"{name}_most_percent": max(peaks),
            }
    return facts


def _no_engine_line(case: Case) -> Missing:
    if any(not each.read for each in case.of(Role.SESSION_LOG)) or not case.read(Role.LOG):
        return said.missing(case, Role.SESSION_LOG, Role.LOG)
    return said.unusable(case.read(Role.LOG)[0], "no line with running and waiting requests")


def _error(reason: str, missing: Missing, quotes: tuple[Quote, ...] = ()) -> GateScore:
    return GateScore(gate=GATE, name=NAME, result=Score.ERROR, reason=reason, quotes=quotes, missing=missing)
