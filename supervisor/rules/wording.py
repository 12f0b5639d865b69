"""The sentences of a verdict: templates that name facts, nothing that was not measured."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from supervisor.model.diagnosis import USUAL
from supervisor.model.probe import GateScore, Mark, Restarts, Ruling, Score, Subject

MEND = (
    (
        r"no space left|disk is full|quota exceeded",
        "make room where this was to be written",
    ),
    (
        r"could not be written: .*(denied|read-only)",
        "let the supervisor write there",
    ),
    (
        r'node_access = "none"',
        'let probes onto its nodes: node_access = "srun" or "ssh" in its cluster\'s settings',
    ),
    (
        r"^it shows no reward",
        "let its log tell rewards, or give it a name of another bucket's if it is no RL job",
    ),
    (
        r"ptrace|operation not permitted|yama",
        "let the user that runs the job trace its own processes (ptrace), or name another dumper",
    ),
    (
        r"forbidden|cannot (get|create|list) resource|pods/exec",
        "give the supervisor's account the verbs that this call needs on the cluster",
    ),
    (
        r"permission denied|access denied|not authori[sz]ed|unauthorized",
        "give the supervisor's user the right to read this",
    ),
    (
        r"command not found|: not found|executable file not found|no such file or directory.*(bin|py-spy|nvidia-smi|gdb)",
        "install the program on the job's nodes, or in its image",
    ),
    (
        r"no such file|does not exist|cannot access",
        "correct the path, or the job's own settings that name it",
    ),
    (
        r"job step creation|requested nodes are busy|unable to create step|invalid job id|already completing",
        'use node_access = "ssh" where steps cannot be added to a running job',
    ),
    (
        r"timed? ?out|took longer|deadline|within \d",
        "look whether the node or the cluster answers at all, or give the probe more time",
    ),
    (
        r"connection refused|unreachable|no route|could not resolve|closed by remote|connection reset",
        "make the node or the cluster reachable from here",
    ),
    (r"expired|certificate", "renew the credential"),
    (
        r"^no .* was captured",
        "look whether the settings let a probe onto the job's nodes",
    ),
    (
        r"quote is empty|evidence folder|the file has \d+ lines",
        "take the probe again: its folder does not hold what was quoted",
    ),
)
"""What in a failed command's output calls for which repair, in order; the first that matches speaks."""


# -- reasoning ---------------------------------------------------------------------------------------------------------


def reasoning(row: str, subject: Subject, scores: Sequence[GateScore], restarts: Restarts, mark: Mark) -> str:
    """Two to four sentences: where it stands and what is new about it, what decides, what else was found."""
    fresh = f"; new about it: {subject.fresh_setting.strip().rstrip('.')}" if subject.fresh_setting else ""
    sentences = [f"Attempt {subject.attempt} is {subject.seen.scheduler_state}{_at(mark)}{fresh}."]
    sentences.append(_deciding(row, scores, restarts))
    if rest := _rest(row, scores):
        sentences.append(rest)
    if subject.exempt:
        sentences.append(
            "It is tagged as an ablation or a calibration: this is an observation, and nothing is proposed."
        )
    return " ".join(sentences)


def _at(mark: Mark) -> str:
    if mark.step is None:
        return ""
    return f" at step {mark.step}" + (f" of {mark.total}" if mark.total is not None else "")


def _deciding(row: str, scores: Sequence[GateScore], restarts: Restarts) -> str:
    errors = [score for score in scores if score.result is Score.ERROR]
    fails = [score for score in scores if score.result is Score.FAIL]
    if row == "no gate was judged":
        return "No gate was judged, so nothing is known of it."
    if row == "evidence is missing":
        return f"{_gates(errors)} could not be judged: {beginning(errors[0].reason)}"
    if row == "a wedge without a stack dump":
        return f"{_gates([s for s in fails if s.hard])} would fail hard, but no stack dump was taken while it lives."
    if row == "doomed":
        return f"It repeats one failure: {restarts.words}, and it runs again."
    if row == "a hard failure":
        hard = [score for score in fails if score.hard and score.gate != "D"]
        return f"{_gates(hard)} fails hard ({', '.join(dict.fromkeys(s.cause for s in hard))}): {beginning(hard[0].reason, 2)}"
    if row == "a failure in doubt":
        return f"{_gates(fails)} {'fail' if len(fails) > 1 else 'fails'}, but not beyond doubt: {beginning(fails[0].reason, 2)}"
    passed = [score for score in scores if score.result is Score.PASS]
    return f"{_gates(passed)} {'pass' if len(passed) > 1 else 'passes'}: {beginning(passed[0].reason)}"


def _rest(row: str, scores: Sequence[GateScore]) -> str:
    """What else was established (PROBE-3)."""
    told: list[str] = []
    passed = [score for score in scores if score.result is Score.PASS]
    if passed and row != "all well":
        told.append(f"{_gates(passed)} {'pass' if len(passed) > 1 else 'passes'}")
    failed = [score for score in scores if score.result is Score.FAIL]
    if failed and row == "evidence is missing":
        told.append(f"{_gates(failed)} {'fail' if len(failed) > 1 else 'fails'}")
    absent = [score for score in scores if score.result is Score.NOT_APPLICABLE]
    if absent:
        verb = "do" if len(absent) > 1 else "does"
        told.append(f"{_gates(absent)} {verb} not apply")
    told[1:] = [f"{each[:1].lower()}{each[1:]}" for each in told[1:]]
    return f"{'; '.join(told)}." if told else ""


def _gates(scores: Sequence[GateScore]) -> str:
    letters = [score.gate for score in scores]
    if len(letters) < 2:
        return f"Gate {letters[0]} ({scores[0].name})" if letters else "No gate"
    return f"Gates {', '.join(letters[:-1])} and {letters[-1]}"


def beginning(text: str, sentences: int = 1) -> str:
    """The first sentences. A full stop ends one only before a capital: ``1.5`` and ``out.log`` end none."""
    parts = re.split(r"(?<=[.!?])\s+(?=[A-Z])", text.strip())
    whole = " ".join(parts[:sentences])
    return whole if whole.endswith((".", "!", "?")) else f"{whole}."


# -- what to do --------------------------------------------------------------------------------------------------------


def usual_fix(category: str) -> str:
    return USUAL[category][1] if category in USUAL else "Fix what the quoted line names before another attempt."


def next_steps(
    row: str, scores: Sequence[GateScore], restarts: Restarts, mark: Mark, cause: str, fix: str
) -> tuple[str, ...]:
    if row in ("no gate was judged", "evidence is missing", "a wedge without a stack dump"):
        return tuple(_mending(scores)) or ("Probe it again.",)
    if row == "doomed":
        return (
            f"Root cause: {cause}, in {restarts.times} attempts in a row.",
            f"Fix: {fix}",
            "Hold: do not relaunch before that fix has landed.",
        )
    if row == "a hard failure":
        return (f"Root cause: {cause}.", f"Fix: {fix}", _relaunch(cause, mark))
    watching = [score for score in scores if score.watch and (score.result is Score.FAIL or row == "all well")]
    steps = [f"Watch gate {score.gate} ({score.name}): {score.watch}." for score in watching]
    steps += [f"Meanwhile: {score.fix}" for score in scores if score.result is Score.FAIL and score.fix]
    return tuple(dict.fromkeys(steps)) or ("Watch its next steps as usual.",)


def _relaunch(cause: str, mark: Mark) -> str:
    again = " from its last durable checkpoint" if mark.step else ""
    if cause in USUAL and USUAL[cause][0] == "deterministic":
        return f"Hold until the fix has landed, then relaunch with it{again}."
    return f"Relaunch with the fix{again}."


def _mending(scores: Sequence[GateScore]) -> Iterable[str]:
    told = set[str]()
    for score in scores:
        if score.result is not Score.ERROR or score.missing is None:
            continue
        output = " ".join(score.missing.output.split())[:200]
        step = f"Gate {score.gate} ({score.name}) needs `{score.missing.command}`, which said: {output}"
        if step not in told:
            told.add(step)
            yield f"{step}. {score.fix or f'To mend it, {mend(score.missing.output)}.'}"
    if told:
        yield "Then probe it again. Until then nothing is said of its health."


def mend(output: str) -> str:
    for pattern, repair in MEND:
        if re.search(pattern, output, re.IGNORECASE | re.DOTALL):
            return repair
    return "run that command by hand and see what it lacks"


def flip_signal(ruling: Ruling, scores: Sequence[GateScore], mark: Mark) -> str:
    """What would change this ruling (PROBE-7)."""
    if ruling is Ruling.ERROR:
        lacking = [score.gate for score in scores if score.result is Score.ERROR]
        of = f" of gate{'s' if len(lacking) > 1 else ''} {', '.join(lacking)}" if lacking else ""
        return f"a probe that gets the evidence{of}"
    if ruling is Ruling.KILL:
        beyond = f"a step beyond {mark.step}" if mark.step is not None else "any progress"
        return f"{beyond} before it is carried out"
    wanted = [score for score in scores if score.watch and score.result is Score.FAIL]
    wanted = wanted or [score for score in scores if score.watch and score.result is Score.PASS]
    return "; ".join(dict.fromkeys(score.watch for score in wanted[:2])) or "a gate that fails at the next probe"


# -- an external judge -------------------------------------------------------------------------------------------------


def _who(judge: str) -> str:
    return f"The external judge{f' {judge}' if judge else ''}"


def _quoted(said: str) -> str:
    return f": “{said}”" if said else ""


def agreeing(ours: Ruling, theirs: Ruling, judge: str, said: str) -> str:
    if ours is theirs:
        return f"{_who(judge)} says {theirs.value} too{_quoted(said)}."
    return f"{_who(judge)} says {theirs.value}{_quoted(said)}; evidence that is missing stays missing."


def lowered(ours: Ruling, theirs: Ruling, judge: str, said: str) -> str:
    return f"{_who(judge)} lowered {ours.value} to {theirs.value}{_quoted(said)}."


def not_raised(judge: str, said: str, against: str) -> str:
    """``against``: what a gate saw that speaks against it; empty where none did."""
    why = f"against that, {against}" if against else "no gate here fails with the evidence for it"
    return f"{_who(judge)} says KILL{_quoted(said)}; {why}, so it stays NO-KILL."


def raised(judge: str, gate: str, said: str) -> str:
    return f"{_who(judge)} raised NO-KILL to KILL on gate {gate}, which fails here too{_quoted(said)}."


def after_lowering(
    ruling: Ruling, judge: str, theirs: Sequence[GateScore], ours: Sequence[GateScore]
) -> tuple[str, ...]:
    if ruling is Ruling.ERROR:
        false = next(
            (score.missing for score in theirs if score.missing and score.missing.command.startswith("quote ")), None
        )
        if false is not None:
            said = " ".join(false.output.split())[:200]
            return (
                f"{_who(judge)} gave a {false.command} that does not hold: {said}. Correct the judge: a quote is a file of the"
                " evidence folder, a line counted from 1, and a piece of that line as it stands. Then probe it again.",
            )
        return tuple(_mending(theirs)) or (
            f"Find out what {_who(judge).lower()} could not establish, then probe it again.",
        )
    fails = [score for score in ours if score.result is Score.FAIL]
    watch = next((score.watch for score in fails if score.watch), "its next steps")
    return (f"Watch: {watch}. A person should read both opinions.",)
