"""A poll of one iris controller with thousands of jobs: requests, time and memory, when all are new and when none has changed.

    python -m bench.iris.poll [--jobs N] [--rounds N]

The controller is played by a server on loopback in a process of its own, so that what is measured is ours. The goal: requests
grow with pages of the listing (one for each 499 jobs) and with nothing else.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import resource
import statistics
import sys
import time
from datetime import UTC, datetime
from multiprocessing.connection import Connection
from typing import Any

from aiohttp import web

from supervisor.clusters.iris import IrisCluster
from supervisor.clusters.iris_settings import IrisSettings
from supervisor.model.polling import Polled, Watch

LOOKS = 256


def status(number: int) -> dict[str, Any]:
    """One job as the controller lists it."""
    return {
        "jobId": f"/alice/grpo-{number:05}",
        "state": "JOB_STATE_RUNNING",
        "exitCode": 0,
        "error": "",
        "startedAt": {"epochMs": "1795979162723"},
        "failureCount": 0,
        "preemptionCount": number % 3,
        "name": f"/alice/grpo-{number:05}",
        "submittedAt": {"epochMs": str(1795979162708 + number)},
        "taskStateCounts": {"running": 2},
        "taskCount": 2,
        "completedCount": 0,
        "pendingReason": "",
        "hasChildren": False,
        "parentJobId": "",
        "backendId": "default",
        "cluster": "local",
        "peerStatus": "PEER_STATUS_NONE",
    }


class Controller:
    """Lists jobs, answers queries for their tasks, and has a newest line of each; counts what it is asked."""

    def __init__(self, jobs: int) -> None:
        self.jobs = [status(number) for number in range(jobs)]
        self.asked = 0

    async def handle(self, request: web.Request) -> web.Response:
        method = request.path.rpartition("/")[2]
        if method == "asked":
            count, self.asked = self.asked, 0
            return web.json_response(count)
        self.asked += 1
        body = await request.json()
        return web.json_response(getattr(self, method)(body))

    def ListJobs(self, body: Any) -> Any:
        at, total = body["query"]["offset"], len(self.jobs)
        return {"jobs": self.jobs[at : at + 500], "totalCount": total, "hasMore": at + 500 < total}

    def ExecuteRawQuery(self, body: Any) -> Any:
        sql, rows = body["sql"], []
        width = 15 if "FROM tasks" in sql else 6
        for path in (part.strip("' ") for part in sql.partition("IN (")[2].partition(")")[0].split(",")):
            if width == 6:
                rows.append(json.dumps([path, 3, 3, 100, None, '{"run_command": {"argv": ["python", "train.py"]}}']))
                continue
            for task in range(2):
                uid, began = f"{task:016}", 1795979162743
                attempt = [0, 3, None, None, uid, f"worker-{task}", began, None, f"node-{task}", ""]
                rows.append(json.dumps([path, f"{path}/{task}", 3, 0, "", *attempt]))
        return {"columns": [{"name": str(number), "type": "unknown"} for number in range(width)], "rows": rows}

    def FetchLogs(self, body: Any) -> Any:
        moment = {"epochMs": str(int(body["sinceMs"]) + 1000)}
        return {
            "entries": [{"timestamp": moment, "data": "step 1", "key": body["source"] + "0", "seq": "7"}],
            "cursor": "7",
        }


def serve(jobs: int, to: Connection) -> None:
    async def run() -> None:
        app = web.Application()
        app.router.add_post("/{path:.*}", Controller(jobs).handle)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        to.send(runner.addresses[0][1])
        await asyncio.Event().wait()

    asyncio.run(run())


async def measure(url: str, rounds: int) -> dict[str, list[float]]:
    import aiohttp

    found: dict[str, list[float]] = {
        name: [] for name in ("first_s", "first_cpu_s", "next_s", "next_cpu_s", "requests")
    }
    settings = IrisSettings(url=url, users=("alice",), log_looks=LOOKS, poll_timeout_s=300)
    async with aiohttp.ClientSession() as session:
        for _ in range(rounds):
            cluster, watch = IrisCluster("marin", settings), Watch()
            for name in ("first", "next"):
                began, cpu = time.monotonic(), time.process_time()
                reading = await cluster.poll(watch, datetime.now(UTC))
                found[f"{name}_s"].append(time.monotonic() - began)
                found[f"{name}_cpu_s"].append(time.process_time() - cpu)
                assert isinstance(reading, Polled), reading
                watch = Watch(lines=reading.lines, ended_since=reading.at)
                async with session.post(f"{url}/asked") as answer:
                    found["requests"].append(await answer.json())
            assert not reading.changed
            await cluster.close()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--jobs", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    ours, theirs = multiprocessing.Pipe()
    server = multiprocessing.get_context("spawn").Process(target=serve, args=(given.jobs, theirs), daemon=True)
    server.start()
    try:
        found = asyncio.run(measure(f"http://127.0.0.1:{ours.recv()}", given.rounds))
    finally:
        server.terminate()
    middle = {name: statistics.median(values) for name, values in found.items() if name != "requests"}
    first, later = max(found["requests"][::2]), max(found["requests"][1::2])
    pages = -(-max(given.jobs - 1, 1) // 499)
    print(f"{given.jobs} jobs, {given.rounds} rounds, at most {LOOKS} logs looked at")
    print(f"first poll: {first} requests, {middle['first_s']:.2f} s, {middle['first_cpu_s']:.2f} s of CPU")
    print(f"next poll:  {later} requests, {middle['next_s']:.2f} s, {middle['next_cpu_s']:.2f} s of CPU")
    print(f"peak memory: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB")
    if later > pages + 1 + min(LOOKS, given.jobs):
        sys.exit(f"goal missed: {later} requests for an unchanged poll")


if __name__ == "__main__":
    main()
