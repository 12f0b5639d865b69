"""The trials of a case as one sample: files that were opened, and what the log tells of the whole run (PROBE-10)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta

from supervisor.gates import said
from supervisor.model.findings import Quote
from supervisor.model.probe import Case
from supervisor.model.readings import RunSummary, Trial, TrialFigures, TrialJob

FAULTS = ("environment", "api", "verifier", "request", "auth")
"""What keeps a trial from measuring anything. An agent that ran out of time or context was measured (RL-6, EVAL-3)."""

_REWARD = re.compile(r'"rewards"\s*:\s*\{|"reward"\s*:')
_ENDED = re.compile(r'"n_(?:completed_)?trials"\s*:')
_EXCEPTION = re.compile(r'"exception_type"\s*:')


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """Trials that were opened, newest first, one a name; and the log's own figures, where a log tells any."""

    trials: tuple[tuple[str, Trial], ...]
    log: str | None
    run: RunSummary | None
    whole: bool
    """The log was captured from its first byte on: what it does not tell was not told before either."""
    job: TrialJob | None
    """What the harness keeps of all trials."""
    job_file: str | None

    @property
    def count(self) -> int:
        return len(self.trials)

    @property
    def told(self) -> TrialFigures | None:
        return self.run.trials if self.run is not None else None

    @property
    def finished(self) -> int:
        """As many as are known to have ended: opened, told by the log, or by the harness's own count."""
        told = (self.told.done or 0) if self.told is not None else 0
        return max(self.count, told, (self.job.completed or 0) if self.job is not None else 0)

    @property
    def rewards(self) -> list[float]:
        """Of trials whose reward counts."""
        return [trial.reward for _, trial in self.trials if trial.valid and trial.reward is not None]

    @property
    def ever_passed(self) -> bool:
        """Any reward above 0 that is known of, in the files, in the log, or in the harness's mean."""
        told, job = self.told, self.job
        return (
            any(reward > 0 for reward in self.rewards)
            or (told is not None and (told.passed > 0 or (told.mean or 0) > 0))
            or (job is not None and (job.mean or 0) > 0)
        )

    @property
    def ever_scored(self) -> bool:
        told, job = self.told, self.job
        return (
            bool(self.rewards)
            or (told is not None and (told.scored > 0 or told.mean is not None))
            or (job is not None and (job.mean is not None or bool(job.scored)))
        )

    @property
    def turns(self) -> list[int]:
        return [trial.turns for _, trial in self.trials if trial.turns is not None]

    @property
    def span(self) -> timedelta | None:
        """Between the first and the last end of the opened trials."""
        ends = [trial.finished_at for _, trial in self.trials if trial.finished_at is not None]
        return max(ends) - min(ends) if len(ends) > 1 else None

    def failed_by(self, *groups: str) -> list[tuple[str, Trial]]:
        """Opened trials whose own exception is of these groups and that have no reward that counts."""
        return [
            (file, trial)
            for file, trial in self.trials
            if trial.groups and trial.groups[0] in groups and not (trial.valid and (trial.reward or 0) > 0)
        ]

    def worst(self, trials: Iterable[tuple[str, Trial]]) -> str:
        """Their most frequent exception."""
        counted = Counter(trial.exceptions[0] for _, trial in trials if trial.exceptions)
        return counted.most_common(1)[0][0] if counted else ""


def of(case: Case) -> Sample:
    named: dict[str, tuple[str, Trial]] = {}
    for file, trial in case.trials:
        named.setdefault(trial.name or file, (file, trial))
    job_file, job = case.trial_jobs[0] if case.trial_jobs else (None, None)
    log = max(case.runs, key=lambda file: _weight(case.runs[file]), default=None)
    return Sample(
        trials=tuple(named.values()),
        log=log,
        run=case.runs[log] if log is not None else None,
        whole=whole(case, log),
        job=job,
        job_file=job_file,
    )


def whole(case: Case, log: str | None) -> bool:
    """Whether a file of the folder holds its source from the first byte on."""
    return any(each.file == log and each.cut == 0 for each in case.exhibits) if log is not None else False


def _weight(run: RunSummary) -> tuple[int, int, int]:
    return (run.trials.done or 0, run.trials.running, len(run.trials.exceptions))


def reward_quote(case: Case, file: str) -> tuple[Quote, ...]:
    """Where a trial's file shows its reward."""
    return _line(case, file, _REWARD)


def job_quote(case: Case, found: Sample) -> tuple[Quote, ...]:
    """Where the harness tells how many trials have ended."""
    return _line(case, found.job_file, _ENDED) if found.job_file is not None else ()


def exception_quote(case: Case, file: str) -> tuple[Quote, ...]:
    """Where a trial's file names its exception."""
    return _line(case, file, _EXCEPTION)


def result_quote(case: Case, file: str, trial: Trial) -> tuple[Quote, ...]:
    return (exception_quote(case, file) if trial.exceptions else reward_quote(case, file)) or said.last_line(case, file)


def _line(case: Case, file: str, wanted: re.Pattern[str]) -> tuple[Quote, ...]:
    """The first line that shows it; a file on one line is cut to the part that does. Printed over lines, a reward's own line."""
    lines = case.lines(file)
    for number, line in enumerate(lines, 1):
        found = wanted.search(line)
        if found is None:
            continue
        if line.rstrip().endswith("{") and number < len(lines) and '"' in lines[number]:
            return (said.quoted(case, file, number + 1),)
        return (Quote(file, number, line[found.start() : found.start() + said.MOST]),)
    return ()


def counted(names: Sequence[str]) -> str:
    """``AgentTimeoutError 14, AddTestsDirError 2``."""
    return ", ".join(f"{name} {count}" for name, count in Counter(names).most_common(4))
