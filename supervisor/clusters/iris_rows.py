"""Questions in SQL to a controller's database, and their rows: tasks, attempts and requests of many jobs at once. Pure."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any, TypeVar

import msgspec

from supervisor.clusters.iris_text import (
    LATEST_MS,
    Attempt,
    JobConfig,
    NotAnAnswer,
    QueryAnswer,
    Task,
    exit_code_of,
    friendly,
    from_ms,
)

T = TypeVar("T")

TASK_COLUMNS = (
    *("t.job_id", "t.task_id", "t.state", "t.current_attempt_id", "t.status_message", "a.attempt_id", "a.state"),
    *("a.exit_code", "substr(a.error, 1, 2000)", "a.attempt_uid", "a.worker_id", "a.started_at_ms", "a.finished_at_ms"),
    *("a.node_name", "a.terminal_reason"),
)
CONFIG_COLUMNS = (
    *("job_id", "max_task_failures", "max_retries_failure", "max_retries_preemption", "timeout_ms"),
    "entrypoint_json",
)


def tasks_query(jobs: list[str]) -> str:
    """All tasks of these jobs with all their attempts."""
    return (
        f"SELECT {', '.join(TASK_COLUMNS)} FROM tasks t LEFT JOIN task_attempts a ON a.task_id = t.task_id "
        f"WHERE t.job_id IN ({_quoted(jobs)}) ORDER BY t.job_id, t.task_index, a.attempt_id"
    )


def config_query(jobs: list[str]) -> str:
    """What was asked for of these jobs. The environment is not."""
    return f"SELECT {', '.join(CONFIG_COLUMNS)} FROM job_config WHERE job_id IN ({_quoted(jobs)})"


def _quoted(words: list[str]) -> str:
    """Literals of SQL. A quote is doubled, which is all that SQLite knows; a colon would be read as a parameter's name."""
    return ", ".join("'" + word.replace("'", "''").replace("\0", "").replace(":", "\\:") + "'" for word in words)


def _rows(answer: QueryAnswer, width: int) -> list[list[Any]]:
    if len(answer.columns) != width:
        raise NotAnAnswer(f"{len(answer.columns)} columns instead of {width}")
    rows: list[list[Any]] = []
    for text in answer.rows:
        try:
            row = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise NotAnAnswer(f"a row that is no JSON: {error}") from None
        if not isinstance(row, list) or len(row) != width:
            raise NotAnAnswer("a row of another width")
        rows.append(row)
    return rows


class _TaskRow(msgspec.Struct, frozen=True, array_like=True, gc=False):
    job_id: str
    task_id: str
    task_state: int
    current: int | None
    message: str | None
    attempt_id: int | None
    state: int | None
    exit_code: int | None
    error: str | None
    uid: str | None
    worker: str | None
    started_ms: int | None
    finished_ms: int | None
    node: str | None
    terminal_reason: str | None


class _ConfigRow(msgspec.Struct, frozen=True, array_like=True, gc=False):
    job_id: str
    max_task_failures: int | None
    max_retries_failure: int | None
    max_retries_preemption: int | None
    timeout_ms: int | None
    entrypoint: str | None


class _SnakeCommand(msgspec.Struct, frozen=True, gc=False):
    argv: tuple[str, ...] = ()


class _SnakeEntrypoint(msgspec.Struct, frozen=True, gc=False):
    run_command: _SnakeCommand = _SnakeCommand()


def tasks_of_rows(answer: QueryAnswer) -> dict[str, list[Task]]:
    """Tasks by job. Raises NotAnAnswer."""
    found: dict[str, tuple[_TaskRow, list[Attempt]]] = {}
    for cells in _rows(answer, len(TASK_COLUMNS)):
        row = _converted(cells, _TaskRow)
        _, attempts = found.setdefault(row.task_id, (row, []))
        if row.attempt_id is not None and row.state is not None:
            state = friendly(row.state, "")
            attempts.append(
                Attempt(
                    number=row.attempt_id,
                    uid=row.uid or "",
                    state=state,
                    exit_code=exit_code_of(state, row.exit_code),
                    error=row.error or "",
                    started_at=_ms(row.started_ms),
                    finished_at=_ms(row.finished_ms),
                    node=row.node or row.worker or "",
                    terminal_reason=row.terminal_reason or "",
                )
            )
    tasks: dict[str, list[Task]] = {}
    for task_id, (row, attempts) in found.items():
        current = -1 if row.current is None else row.current
        state, waits_for = friendly(row.task_state, ""), row.message or ""
        task = Task(task_id, row.job_id, state, current, tuple(attempts), waits_for, all_attempts=True)
        tasks.setdefault(row.job_id, []).append(task)
    return tasks


def configs_of_rows(answer: QueryAnswer) -> dict[str, JobConfig]:
    """What was asked for, by job. Raises NotAnAnswer."""
    found = {}
    for cells in _rows(answer, len(CONFIG_COLUMNS)):
        row = _converted(cells, _ConfigRow)
        argv: tuple[str, ...] = ()
        if row.entrypoint:
            try:
                argv = msgspec.json.decode(row.entrypoint, type=_SnakeEntrypoint).run_command.argv
            except msgspec.MsgspecError:
                argv = ()  # an entrypoint that is no command: nothing is said of it
        failures, retries, preemptions = (
            number or 0 for number in (row.max_task_failures, row.max_retries_failure, row.max_retries_preemption)
        )
        found[row.job_id] = JobConfig(failures, retries, preemptions, row.timeout_ms, argv)
    return found


def _converted(cells: list[Any], what: type[T]) -> T:
    try:
        return msgspec.convert(cells, what)
    except msgspec.MsgspecError as error:
        raise NotAnAnswer(f"a row that does not fit: {error}") from None


def _ms(value: int | None) -> datetime | None:
    if value is None:
        return None
    if not 0 <= value <= LATEST_MS:
        raise NotAnAnswer("a time beyond the calendar")
    return from_ms(value)
