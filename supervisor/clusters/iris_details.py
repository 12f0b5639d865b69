"""Tasks, attempts and what was asked for: many jobs at once where our role may query, else job by job."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence

from supervisor.clusters.iris_calls import Controller, NotAllowed, NotThere, Refused
from supervisor.clusters.iris_jobs import Folded
from supervisor.clusters.iris_rows import configs_of_rows, tasks_of_rows
from supervisor.clusters.iris_text import JobConfig, JobStatus, NotAnAnswer, Task, config_of, tasks_of
from supervisor.model.errors import AnswerUnusable
from supervisor.model.job import JobKey

_TASKS_AT_ONCE, _JOBS_AT_ONCE = 5000, 2000


class DetailBook:
    """What was asked for at a job's submission never changes, and is asked for once."""

    def __init__(self, cluster: str, looks: int) -> None:
        self._cluster, self._looks = cluster, looks
        self._configs: dict[JobKey, JobConfig] = {}

    def forget_others(self, jobs: Mapping[str, Folded]) -> None:
        """Drop what is known of jobs that are not listed any more."""
        keys = {job.key(self._cluster) for job in jobs.values()}
        self._configs = {key: config for key, config in self._configs.items() if key in keys}

    async def give(self, controller: Controller, wanted: Mapping[str, Folded]) -> str | None:
        """Give each of these jobs its tasks and what was asked for. What stays without is said."""
        if not wanted:
            return None
        jobs = list(wanted.values())
        why = None
        try:
            await self._all(controller, jobs)
            return None
        except NotAllowed:
            pass  # an admin's right: the others ask for each job by itself
        except (Refused, NotThere, AnswerUnusable) as error:
            why = f"tasks are asked for job by job: {error.text}"
        await asyncio.gather(*(self._one(controller, job) for job in jobs[: self._looks]))
        left = len([job for job in jobs if job.tasks is None or job.config is None])
        if left and why is None:
            why = f"tasks of {left} jobs are still to be asked for; the next poll goes on"
        return why

    async def _all(self, controller: Controller, jobs: Sequence[Folded]) -> None:
        """All of them by a few queries, their live children's tasks too."""
        paths = [one for job in jobs for one in (job.root, *job.live_children)]
        found: dict[str, list[Task]] = {}
        unknown = [job.root.job_id for job in jobs if job.key(self._cluster) not in self._configs]
        configs: dict[str, JobConfig] = {}
        try:
            for some in _by_tasks(paths):
                found |= tasks_of_rows(await controller.all_tasks(some))
            for some in _chunks(unknown, _JOBS_AT_ONCE):
                configs |= configs_of_rows(await controller.all_configs(some))
        except NotAnAnswer as error:
            raise AnswerUnusable(self._cluster, f"ExecuteRawQuery: {error}") from error
        for job in jobs:
            self._give(job, found.get(job.root.job_id, []), configs.get(job.root.job_id))
            job.child_tasks = tuple(task for one in job.live_children for task in found.get(one.job_id, []))

    async def _one(self, controller: Controller, job: Folded) -> None:
        """One job by two requests; one that cannot be had now stays as it is, and is asked for again."""
        path = job.root.job_id
        config = None
        try:
            if job.key(self._cluster) not in self._configs:
                answer = await controller.job(path)
                if answer.job.incarnation != job.root.incarnation:
                    return  # another job bears its name by now
                config = config_of(answer)
            self._give(job, list(tasks_of(path, await controller.tasks(path))), config)
        except (NotThere, NotAllowed, Refused):
            return

    def _give(self, job: Folded, tasks: list[Task], config: JobConfig | None) -> None:
        key = job.key(self._cluster)
        if config is not None:
            self._configs[key] = config
        job.config = self._configs.get(key)
        # An answer without tasks proves nothing, and one whose tasks go on is another job's, or a later moment's.
        whole = len(tasks) >= max(job.root.task_count, 1)
        if whole and not (job.root.ended and any(task.state in ("running", "building", "assigned") for task in tasks)):
            job.tasks = tuple(sorted(tasks, key=lambda task: task.index))


def _chunks(names: Sequence[str], size: int) -> Iterator[list[str]]:
    for at in range(0, len(names), size):
        yield list(names[at : at + size])


def _by_tasks(jobs: Sequence[JobStatus]) -> Iterator[list[str]]:
    """Jobs in lots of a bounded number of tasks."""
    some: list[str] = []
    tasks = 0
    for one in jobs:
        if some and (tasks + one.task_count > _TASKS_AT_ONCE or len(some) >= _JOBS_AT_ONCE):
            yield some
            some, tasks = [], 0
        some.append(one.job_id)
        tasks += max(one.task_count, 1)
    if some:
        yield some
