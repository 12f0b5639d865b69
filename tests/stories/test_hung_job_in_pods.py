"""The heart of it where jobs are pods: on a real API server and a real iris controller a hung job is proposed with its proof from
inside its container, ended once by a person's approval, and the one beside it lives on. The daemon is killed while it does so.
"""

from __future__ import annotations

import hashlib
import json
import random
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from supervisor.model.probe import Role
from tests.contract.drivers import iris, kubernetes
from tests.contract.driving import Driver
from tests.stories.processes import Daemon
from tests.stories.test_hung_job import LIMITS, TRAINS, proposals, restarted_now_and_then, until

pytestmark = pytest.mark.lab

DRIVERS = kubernetes.DRIVERS | iris.DRIVERS


@pytest.fixture(params=sorted(DRIVERS))
def driver(request: pytest.FixtureRequest) -> Iterator[Driver]:
    with DRIVERS[request.param](request) as made:
        yield made


def section(driver: Any) -> str:
    """The cluster as a user configures it."""
    if isinstance(driver, kubernetes.KubernetesDriver):
        spaces = json.dumps(driver.namespaces)
        return f'kind = "kubernetes"\nkubeconfig = "{driver.lab.kubeconfig}"\nnamespaces = {spaces}\n'
    pods = f'pods = {{ kubeconfig = "{driver.kube.kubeconfig}", namespace = "{driver.namespace}" }}'
    return f'kind = "iris"\nurl = "{driver.lab.url}"\nusers = {json.dumps(driver.users)}\n{pods}\n'


def started(driver: Driver, folder: Path, name: str, waits_for: str) -> str:
    """A job that prints steps, and after 25 of them waits for a file that may never come."""
    script = folder / "trains.py"
    script.write_text(TRAINS)
    return driver.start(name, f"exec {sys.executable} -u {script} {waits_for}")


@pytest.mark.timeout(400)
def test_a_hung_job_is_proposed_by_what_its_container_shows_and_ended_once_by_approval(
    tmp_path: Path, driver: Driver
) -> None:
    """KILL-1, KILL-3, PROBE-2, PROBE-5."""
    hangs = started(driver, tmp_path, "sft-hangs", str(tmp_path / "never"))
    healthy = started(driver, tmp_path, "sft-healthy", "never")
    config = tmp_path / "config.toml"
    head = 'state_dir = "state"\nagent_logs = "agent_logs"\ninterval_s = 5\n'
    config.write_text(f'{head}[[cluster]]\nname = "lab"\n{section(driver)}{LIMITS}')
    daemon = Daemon(config)
    daemon.start()
    try:
        until(daemon, lambda: daemon.ctl("proposals").returncode == 0, "the daemon has begun")

        def mine(state: str) -> Callable[[], dict[str, Any] | None]:
            return lambda: next(
                (each for each in proposals(daemon) if (each["job"], each["state"]) == (f"lab/{hangs}", state)), None
            )

        proposal = until(daemon, mine("open"), "the hung job is proposed", 180)
        _proof_stands(proposal)
        answer = daemon.ctl("approve", str(proposal["id"]), "--reason", "hung, see the stack", "--yes")
        assert answer.returncode == 0, answer.stderr
        restarted_now_and_then(daemon, random.Random(7), 3)

        def confirmed() -> dict[str, Any] | None:
            found = next(each for each in proposals(daemon) if each["job"] == f"lab/{hangs}")
            return found["approval"] if found["approval"]["stage"] == "confirmed" else None

        approval = until(daemon, confirmed, "the kill is confirmed", 120)
        assert "nothing of it remains" in approval["why"]

        def ended() -> bool:
            told = {each["id"]: each for each in daemon.status()["jobs"]}
            return told[hangs]["outcome"] == "cancelled" and told[healthy]["outcome"] is None

        until(daemon, ended, "its end is told, and the other lives on")
        assert [each["job"] for each in proposals(daemon)] == [f"lab/{hangs}"]
        card = json.loads(daemon.ctl("scorecard", "--json").stdout)["verdicts"]["KILL"]
        assert (card["carried_out"] >= 1, card["wrong"]) == (True, 0)
    finally:
        daemon.stop()


def _proof_stands(proposal: dict[str, Any]) -> None:
    """Each quote stands in the evidence byte for byte; what its container showed is there, with the exec that brought it."""
    folder = Path(proposal["evidence"])
    manifest = json.loads((folder / "manifest.json").read_text())
    exhibits = {each["file"]: each for each in manifest["exhibits"] if each["file"]}
    quoted = {exhibits[each["file"]]["role"] for each in proposal["quotes"]}
    assert {Role.RECORD.value, Role.LOG.value} <= quoted
    assert quoted & {Role.STACK.value, Role.PROCESSES.value}
    for quote in proposal["quotes"]:
        data = (folder / quote["file"]).read_bytes()
        assert hashlib.sha256(data).hexdigest() == exhibits[quote["file"]]["sha256"]
        assert quote["text"] in data.decode().splitlines()[quote["line"] - 1]
    seen = [each for each in exhibits.values() if each["role"] == Role.STACK.value]
    assert seen
    assert all(each["command"].startswith("kubectl exec -i -n ") and each["node"] for each in seen)
