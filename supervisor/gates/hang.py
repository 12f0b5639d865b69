"""Does it hang? Asked only of a job that has stood still for long: its processes, its stacks and its log's own words (LIVE-5)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta

from supervisor.gates import devices, progress, said, stacks, stillness
from supervisor.gates.stillness import Doing, Look, Worker
from supervisor.model.diagnosis import USUAL
from supervisor.model.findings import Quote
from supervisor.model.probe import Case, Cause, Missing, Role

HANGS = frozenset({"nccl-timeout", "store-timeout", "silent-hang", "engine-dead", "startup-timeout"})
"""Causes that are hangs by themselves, where the log shows them after the newest progress."""
SPARED = frozenset({"none", "unread", "cancelled", "walltime", "context-overflow", "eval-assertion", "sandbox-fail"})
"""Causes that say nothing of why a job that runs stands still."""
_ABORT = re.compile(
    r"taking the entire process down|terminate called|SIGABRT|Terminating the process|core dumped|"
    r"watchdog thread terminated with exception",
    re.IGNORECASE,
)
"""What a collective's watchdog says when it means it; its time-out line alone may be a passing one (LIVE-5)."""
_QUOTED_TIMEOUT = re.compile(
    r"Timeout\(ms\)=(?P<a>\d{1,12})|timeout after (?P<b>\d{1,12}) ?ms|timed out after (?P<c>\d{1,9}) ?ms|"
    r"(?:timed out after|timeout of|within) (?P<d>\d{1,9}(?:\.\d{1,6})?) ?s(?:ec|\b)",
    re.IGNORECASE,
)
_CLOCKS_DIFFER = timedelta(seconds=90)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hang:
    """What was found. ``proven`` needs processes that positively stand still and stacks that were read."""

    words: str
    quotes: tuple[Quote, ...] = ()
    proven: bool = False
    missing: Missing | None = None
    """Of what would have decided it."""
    cause: str = ""
    fix: str = ""
    confidence: str = "medium"
    watch: str = ""
    against: str = ""
    """What was positively seen that speaks against a hang, in words: nobody's opinion outweighs it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """A fault that the diagnosis found in a log, seen beside the run's own clock."""

    cause: Cause
    proof: bool
    """By itself it shows a hang: after the newest progress, its time-out no longer than the silence, and carried through."""


def judge(case: Case, stand: progress.Stand) -> Hang:
    look = stillness.look(case)
    fault = signature(case, stand)
    explained = _benign(case, stand, look)
    if explained is not None:
        words, quotes = explained
        watch = f"an end of this: {words}; or the same silence at the next probe"
        return Hang(words=f"It has an explanation: {words}.", quotes=quotes, watch=watch, against=words)
    told = fault is not None and fault.proof and look.unclear
    computing = None if told else _computing(case, look)
    if computing is not None:
        words, quotes = computing
        return Hang(
            words=f"{_unproven(look)}: {words}.",
            quotes=said.distinct((*quotes, *look.quotes)),
            watch=_watch(case, look),
        )
    if told or (look.still and not (look.resting and _rests_by_nature(case, stand))):
        return _proven(case, stand, look, fault)
    if look.resting:
        words = "Its processes rest, as those of such work do while others work for them; that does not prove a hang."
        return Hang(words=words, quotes=look.quotes, watch=_watch(case, look))
    if not look.seen:
        missing = said.missing(case, Role.PROCESSES, Role.STACK)
        for each in case.read(Role.PROCESSES)[:1]:
            missing = said.unusable(each, "it shows no process of the job")
        return Hang(words="What its processes do could not be seen.", missing=missing)
    quotes = look.quotes
    if fault is not None:
        quotes = said.distinct((*fault.cause.quotes[:2], *quotes))
    return Hang(words=f"{_unproven(look)}.", quotes=quotes, watch=_watch(case, look), against=_against(look))


def _watch(case: Case, look: Look) -> str:
    """What would decide it: only what can. More silence decides nothing of work that a stack shows busy, of a process that somebody
    stopped, or of rest that is its nature."""
    stopped = next((worker for worker in look.workers if worker.doing is Doing.STOPPED), None)
    if stopped is not None:
        return (
            f"progress, or the same silence, once {_lower(_named(stopped))} goes on: `kill -CONT {stopped.process.pid}`"
        )
    if look.resting:
        counts = (
            "engines that nobody asks"
            if case.subject.bucket in progress.OF_TRIALS
            else "a step in its log and silence after it"
        )
        return f"any progress; a stack that names a wait for other ranks; or {counts}"
    busy = [worker for worker in look.workers if worker.doing not in stillness.STILL]
    if busy and all(worker.stack is not None and worker.stack.named for worker in busy):
        late = busy[0]
        where = f"{_named(late)}, now {late.doing.value}{_in(late)}"
        if late.doing is Doing.OUTSIDE:
            return f"{where}, there still after another {said.span(case.subject.silence_allowed.total_seconds())} of silence"
        return f"{where}, in a wait for others or idle at the next probe"
    return "a stack dump by py-spy or gdb that names a wait for other ranks, or idle processes at the next probe"


def _against(look: Look) -> str:
    """A process that somebody stopped, or one that works and whose stack names no wait."""
    for worker in look.workers:
        named = worker.stack is not None and worker.stack.named
        if worker.doing is Doing.STOPPED or (worker.doing is Doing.WORKING and named):
            return f"{_lower(_named(worker))} is {worker.doing.value}"
    return ""


def _unproven(look: Look) -> str:
    if not look.workers:
        return "None of its processes could be told to be the trainer's, so nothing shows that it hangs"
    return f"{look.words}; that does not prove a hang"


# -- what explains it --------------------------------------------------------------------------------------------------

_STAGES = (
    ("a checkpoint is being written", re.compile(r"check_?point|\bsav(e|ing)\b|\bckpt", re.I)),
    ("an evaluation is under way", re.compile(r"\beval|\bvalidat|\btesting\b", re.I)),
    ("kernels are being compiled", re.compile(r"compil|cuda ?graph|\bwarm(ing)?[ _-]?up|autotun|\bjit\b", re.I)),
    ("files are being loaded or transferred", re.compile(r"download|upload|\bfetch|\bload(ing)?\b|\bshards?\b", re.I)),
    ("data are being prepared", re.compile(r"tokeni[sz]|preprocess|\bpacking\b|\bmap(ping)? \(|generating .* split", re.I)),
)  # fmt: skip
_ROLLOUT = re.compile(r"generat|rollout|sampl|trajector|episode", re.I)
LAST_LINES = 30
NEAR_END = 400
"""Lines from a log's end within which a fault counts as the newest thing said, where no line of progress tells."""


def _benign(case: Case, stand: progress.Stand, look: Look) -> tuple[str, tuple[Quote, ...]] | None:
    """What takes long without progress, and positively goes on."""
    run, log = stand.log.run, stand.log
    if look.stage:
        return look.stage, look.stage_quotes
    if look.active and (found := _stage_of_log(case, stand)) is not None:
        words, quote = found
        return words, (quote, look.active[0].quote)
    if run is not None and run.finished is not None and progress.at_or_after(run.finished, log):
        return "its program says that its work is done", said.mark(case, log.file, run.finished)
    if (moving := _trials(case, stand) or _written(case)) is not None:
        return moving
    return _generating(case, stand, look)


def _stage_of_log(case: Case, stand: progress.Stand) -> tuple[str, Quote] | None:
    """The newest stage that the log names after its newest progress; a save counts as progress when it is announced."""
    run, log = stand.log.run, stand.log
    if run is not None:
        for timer in run.timers:
            if timer.open_since is not None:
                for words, pattern in _STAGES:
                    if pattern.search(timer.name) and (quotes := said.mark(case, log.file, timer.open_since)):
                        return words, quotes[0]
        saved = run.last_checkpoint
        if saved is not None and progress.at_or_after(saved, log) and (quotes := said.mark(case, log.file, saved)):
            return _STAGES[0][0], quotes[0]
    lines = log.lines
    for number in range(len(lines), max(log.line, len(lines) - LAST_LINES), -1):
        text = lines[number - 1][: said.MOST]
        for words, pattern in _STAGES:
            if pattern.search(text):
                return words, Quote(log.file, number, text)
    return None


def _trials(case: Case, stand: progress.Stand) -> tuple[str, tuple[Quote, ...]] | None:
    """Trials that began or ended within what silence may last: rollouts go on, and the trainer waits for them."""
    since = case.at - case.subject.silence_allowed
    for file, trial in case.trials:
        times = [at for at in (trial.started_at, trial.finished_at) if at is not None]
        if times and since <= max(times) <= case.at + _CLOCKS_DIFFER:
            return "trials still begin and end", said.last_line(case, file)
    run = stand.log.run
    if (
        run is not None
        and progress.after(run.last_trial, stand.log)
        and progress.recent(run.last_trial, stand.log, case)
    ):
        return "trials still begin and end", said.mark(case, stand.log.file, run.last_trial)
    return None


_ENTRY = re.compile(r"(?P<at>\d{9,11}) \d{1,18} (directory|file) ")


def _written(case: Case) -> tuple[str, tuple[Quote, ...]] | None:
    """A checkpoint within what silence may last: the work goes on, and its log does not show it."""
    newest: tuple[float, str, int] | None = None
    for exhibit in case.read(Role.CHECKPOINTS):
        for number, line in enumerate(case.lines(exhibit.file or ""), 1):
            found = _ENTRY.match(line)
            if found is not None and (newest is None or float(found["at"]) > newest[0]):
                newest = (float(found["at"]), exhibit.file or "", number)
    if newest is None:
        return None
    age = case.at.timestamp() - newest[0]
    if not -_CLOCKS_DIFFER.total_seconds() <= age <= case.subject.silence_allowed.total_seconds():
        return None
    return f"a checkpoint was written {said.span(age)} ago", (said.quoted(case, newest[1], newest[2]),)


def _generating(case: Case, stand: progress.Stand, look: Look) -> tuple[str, tuple[Quote, ...]] | None:
    """Engines that work on requests while the trainer waits for rollouts. No excuse for ranks that wait for each other (LIVE-4)."""
    run, log = stand.log.run, stand.log
    if run is None or any(worker.doing is Doing.WAITING for worker in look.workers):
        return None
    at_work = run.engine.latest.get("running", 0.0) > 0 and run.engine.latest.get("generation_tps", 0.0) > 0
    if not at_work or not progress.after(run.engine.mark, log) or not progress.recent(run.engine.mark, log, case):
        return None
    open_ = [timer.name for timer in run.timers if timer.open_since is not None]
    if open_ and not any(_ROLLOUT.search(name) for name in open_):
        return None
    return "engines are generating for it", said.mark(case, log.file, run.engine.mark)


def _computing(case: Case, look: Look) -> tuple[str, tuple[Quote, ...]] | None:
    """A device at work while processes only sleep: something computes, or spins in a collective that no stack names."""
    if any(worker.doing is not Doing.IDLE for worker in look.workers):
        return None
    limit = case.limits.gating.gpu_busy_percent
    busy = next((each for view in devices.gpus(case) for each in view.devices if each.busy(limit)), None)
    return ("a device is at work", (busy.quote,)) if busy is not None else None


def _rests_by_nature(case: Case, stand: progress.Stand) -> bool:
    """Whether rest tells nothing: of what hands out trials and waits for them, unless its engine says that nobody asks it; and of
    programs whose log tells of no work that goes on, neither steps nor metrics, which may be servers or notebooks."""
    run, log = stand.log.run, stand.log
    if case.subject.bucket in progress.OF_TRIALS:
        unasked = run is not None and run.engine.latest.get("running") == 0.0 and progress.after(run.engine.mark, log)
        return not unasked
    if case.subject.bucket == "other":
        return log.newest is None and stand.step is None and case.subject.log.step is None
    return False


# -- the log's own words -----------------------------------------------------------------------------------------------


def signature(case: Case, stand: progress.Stand) -> Signature | None:
    """The fault that the logs show, that of the trainer's own log first (FIND-6)."""
    files = sorted(case.causes, key=lambda file: (file != stand.log.file, file))
    found = [made for file in files if (made := _weighed(file, case.causes[file], stand)) is not None]
    return next((each for each in found if each.proof), found[0] if found else None)


def _weighed(file: str, cause: Cause, stand: progress.Stand) -> Signature | None:
    quotes = tuple(quote for quote in cause.quotes if quote.line is not None and quote.text.strip())
    if cause.category in SPARED or cause.confidence == "low" or not quotes:
        return None
    here = file == stand.log.file
    line = quotes[0].line or 0
    if here and line <= (stand.log.line or len(stand.log.lines) - NEAR_END):
        return None  # the work went on after it, or may have: a log of several attempts holds the ends of earlier ones
    if not _consistent(quotes[0].text, stand):
        return None
    carried = cause.category != "nccl-timeout" or any(_ABORT.search(quote.text) for quote in quotes)
    return Signature(cause=cause, proof=here and stand.log.line > 0 and cause.category in HANGS and carried)


def _consistent(text: str, stand: progress.Stand) -> bool:
    """A time-out that is longer than the silence cannot be of this silence (LIVE-5)."""
    found = _QUOTED_TIMEOUT.search(text)
    if found is None or stand.age is None:
        return True
    told = found.groupdict()
    seconds = float(told["d"]) if told["d"] else float(told["a"] or told["b"] or told["c"]) / 1000
    return seconds <= (stand.age + _CLOCKS_DIFFER).total_seconds()


# -- a hang ------------------------------------------------------------------------------------------------------------


def _proven(case: Case, stand: progress.Stand, look: Look, fault: Signature | None) -> Hang:
    words = f"{look.words}." if look.workers else "Its log says that it hangs."
    words = words if not look.over_s else f"{words[:-1]} (over {look.over_s:.0f} s)."
    stack = _stack_quotes(look.workers) if look.workers else _any_stack(case)
    if not stack:
        missing = said.missing(case, Role.STACK)
        for each in case.read(Role.STACK)[:1]:
            missing = said.unusable(each, "it holds no stack of a process that should work")
        return Hang(
            words=f"{words} No stack dump of them was taken, so no hang is called.", quotes=look.quotes, missing=missing
        )
    if look.missing is not None:
        return Hang(words=f"{words} Other nodes could not be looked at.", quotes=look.quotes, missing=look.missing)
    category = fault.cause.category if fault is not None else "silent-hang"
    shown = fault.cause.quotes[:2] if fault is not None else ()
    quotes = said.distinct((*shown, *stack, *look.quotes), most=8)
    told = f" Its log shows {category}." if fault is not None else ""
    sure = look.still and (look.sure or (fault is not None and fault.proof))
    return Hang(
        words=f"{words}{told} Nothing explains it.",
        quotes=quotes,
        proven=True,
        cause=category,
        fix=_fix(look, fault),
        confidence="high" if sure else "medium",
    )


def _stack_quotes(workers: Iterable[Worker]) -> tuple[Quote, ...]:
    return said.distinct(
        (worker.stack.quote for worker in workers if worker.stack is not None and worker.stack.threads), most=3
    )


def _any_stack(case: Case) -> tuple[Quote, ...]:
    found = stacks.everyone(stacks.of(case))
    return said.distinct((each.quote for each in found if each.threads), most=2)


def _fix(look: Look, fault: Signature | None) -> str:
    """Where to begin: the process that differs from the others, then the cause's usual remedy."""
    parts = []
    waiting = [worker for worker in look.workers if worker.doing is Doing.WAITING]
    others = _deepest([worker for worker in look.workers if worker.doing is not Doing.WAITING])
    if waiting and others:
        late = others[0]
        parts.append(f"{_named(late)} is {late.doing.value}{_in(late)} while {len(waiting)} wait for it: begin there.")
    elif waiting:
        parts.append(_all_wait(waiting))
    elif others:
        parts.append(f"{_named(others[0])} is {others[0].doing.value}{_in(others[0])}: begin there.")
    if fault is not None:
        parts.append(fault.cause.action or USUAL.get(fault.cause.category, ("", ""))[1])
    else:
        parts.append(
            "Give what it waits for a time-out, so that it fails by itself; restart it from its last checkpoint."
        )
    return " ".join(part for part in parts if part)


def _deepest(workers: Sequence[Worker]) -> list[Worker]:
    """Those that wait for no other of them first: a parent that waits for its child hangs because of it."""
    parents = {(worker.process.node, worker.process.ppid) for worker in workers}
    return sorted(workers, key=lambda worker: (worker.process.node, worker.process.pid) in parents)


def _all_wait(waiting: Sequence[Worker]) -> str:
    """All in one collective: someone unseen, or the link. In several: they came out of step."""
    places = tuple(dict.fromkeys(worker.where for worker in waiting if worker.where))
    if len(places) > 1:
        shown = f"{', '.join(places[:-1])} and {places[-1]}" if len(places) < 4 else f"{len(places)} different places"
        return f"They wait in different collectives, {shown}: make all ranks call the same ones in the same order."
    who = "All wait" if len(waiting) > 1 else f"{_named(waiting[0])} waits"
    return f"{who}{_in(waiting[0])}: look for the rank that never came, or the link between them."


def _named(worker: Worker) -> str:
    node = f" on {worker.process.node}" if worker.process.node else ""
    return f"Process {worker.process.pid}{node}"


def _lower(words: str) -> str:
    return words[:1].lower() + words[1:]


def _in(worker: Worker) -> str:
    return f" in {worker.where}" if worker.where else ""
