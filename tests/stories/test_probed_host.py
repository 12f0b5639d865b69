"""Real processes, a real daemon that is killed again and again: a hung one is proposed once, with its proof; a healthy one never."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

import pytest

from supervisor.app.evidence import open_folder
from supervisor.store.store import Store
from tests.app.test_daemon import ctl, daemon, until

pytestmark = [pytest.mark.lab, pytest.mark.timeout(240)]

CONFIG = """
interval_s = 5
[daemon]
jitter_s = 0
[logging]
format = "json"
[[cluster]]
name = "box"
kind = "host"
records = "{records}"
[limits]
silence_floor_s = 4
suspect_look_s = 3
hang_multiple = 2
[probe]
timeout_s = 60
retry_s = 2
"""
TRAINS = """
import os, sys, threading, time
if sys.argv[2] == "large":
    os.ftruncate(1, 10 << 30)
    os.lseek(1, 0, 2)
    print(flush=True)
for step in range(1, 100000):
    print(f"step {step}/100000 loss={2.0 / step:.4f}", flush=True)
    if step == 25 and sys.argv[1] == "hangs":
        threading.Event().wait()
    time.sleep(0.1)
"""


@pytest.fixture
def launched(tmp_path):
    config, program = tmp_path / "config.toml", tmp_path / "trains.py"
    config.write_text(CONFIG.format(records=tmp_path / "records"))
    program.write_text(TRAINS)
    pids = []

    def launch(name: str, how: str, size: str = "small") -> str:
        told = ctl(config, "launch", "--name", name, "--", sys.executable, str(program), how, size)
        assert told.returncode == 0, told.stderr
        job = told.stdout.split()[0].partition("/")[2]
        record = json.loads((tmp_path / "records" / "live" / f"{job}.json").read_text())
        pids.append(record["pid"])
        return job

    yield config, launch
    for pid in pids:
        if pid is not None:
            os.killpg(pid, signal.SIGKILL)


def told(config: Path) -> tuple[list, list]:
    """(verdicts, proposals) as the store has them."""
    with Store.open(f"sqlite:///{config.parent / 'state' / 'supervisor.db'}", read_only=True) as store:
        return store.verdicts(), store.proposals()


def phases(config: Path) -> dict[str, str]:
    return {each["id"]: each["phase"] for each in json.loads(ctl(config, "status", "--json").stdout)["jobs"]}


def test_a_hung_process_is_proposed_once_with_its_proof_and_a_healthy_one_never(launched):
    """PROBE-1, PROBE-4, PROBE-5, PROBE-14, LIVE-5: the log of one is ten gigabytes; the daemon is killed in the midst."""
    config, launch = launched
    hangs, large, healthy = (
        launch("sft__hangs", "hangs"),
        launch("sft__large", "hangs", "large"),
        launch("sft__ok", "runs"),
    )
    for number, seconds in enumerate((4, 9, 12)):
        with daemon(config, f"first-{number}.log") as running:
            running.saw("tick.finished")
            time.sleep(seconds)
            running.tell(signal.SIGKILL)
            running.ended()
    with daemon(config) as running:
        until(lambda: {each.job.id for each in told(config)[1]} == {hangs, large}, "both hung ones are proposed", 120)
        wanted = {hangs: "wedged", large: "wedged", healthy: "running"}
        until(lambda: phases(config) == wanted, "the two are held as wedged, and the third runs", 60)
        verdicts, proposals = told(config)
        status = ctl(config, "status", "--json")
        assert status.returncode in (3, 4), "something waits for a person; on a busy machine the tick may be late, too"
        assert [each["kind"] for each in json.loads(status.stdout)["waiting"]] == ["kill", "kill"]
        running.tell(signal.SIGTERM)
        assert running.ended() == 0
    assert len(proposals) == 2
    assert {each.job.id for each in verdicts if each.verdict.ruling.value == "KILL"} == {hangs, large}
    assert len({each.verdict.evidence for each in verdicts}) == len(verdicts), "no folder is judged twice"
    for entry in verdicts:
        folder = open_folder(Path(entry.verdict.evidence))
        assert sum(each.bytes for each in folder.exhibits) < 32 * 2**20
        for gate in entry.verdict.gates:
            for quote in gate.quotes:
                assert quote.text in folder.lines(quote.file)[quote.line - 1]
