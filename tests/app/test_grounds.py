"""What a verdict rests on, looked at again after it: its folder whole, its quotes where they stood (PROBE-4)."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import pytest

from supervisor.app.evidence import Evidence
from supervisor.app.grounds import shaken
from supervisor.model.findings import Quote
from supervisor.model.probe import Captured, Role, Verdict
from supervisor.model.proposals import Stage
from tests.some import NOON
from tests.stories.killing import Scene, a_hung_world, a_scene, verdict_on

STEPS = b"step 14/80\nstep 15/80\n"
QUOTE = Quote("log.log", 2, "step 15/80")


def judged(folder: Path) -> tuple[Scene, Verdict]:
    """A hung job and a KILL that quotes a real folder; nothing of it is stored yet."""
    scene = a_scene(folder / "room", a_hung_world())
    asyncio.run(scene.settle())
    held = scene.held()
    made = Evidence(folder / "evidence")
    piece = Captured(role=Role.LOG, command="tail 1.out", took_s=0.1, data=STEPS)
    written = made.write(made.name(held.key, "p1"), held.key, held.life.attempt, NOON, [piece])
    plain = verdict_on(held, scene.now)
    gates = (replace(plain.gates[0], quotes=(QUOTE,)),)
    return scene, replace(plain, gates=gates, evidence=str(written.path))


def a_file_touched(folder: Path) -> None:
    (folder / "log.log").write_bytes(STEPS.replace(b"15", b"16"))


def a_file_gone(folder: Path) -> None:
    (folder / "log.log").unlink()


def the_manifest_of_another_attempt(folder: Path) -> None:
    path = folder / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"attempt": 2}))


def the_manifest_gone(folder: Path) -> None:
    (folder / "manifest.json").unlink()


def file_and_manifest_forged(folder: Path) -> None:
    """Both agree with each other; the quote stands in neither."""
    import hashlib

    forged = STEPS.replace(b"15", b"16")
    (folder / "log.log").write_bytes(forged)
    path = folder / "manifest.json"
    told = json.loads(path.read_text())
    told["exhibits"][0]["sha256"] = hashlib.sha256(forged).hexdigest()
    path.write_text(json.dumps(told))


TOUCHES = {
    a_file_touched: "its content is not what was captured",
    a_file_gone: "this part of the evidence",
    the_manifest_of_another_attempt: "it is of cluster-a/1, attempt 2",
    the_manifest_gone: "no evidence there",
    file_and_manifest_forged: "quote log.log:2 does not hold: step 16/80",
}


@pytest.mark.parametrize("touch", TOUCHES, ids=lambda touch: touch.__name__)
def test_an_approval_on_touched_evidence_is_void_and_says_what_was_touched(tmp_path, touch):
    """PROBE-4, KILL-2: the second look alone is not what the person approved."""
    scene, verdict = judged(tmp_path)
    scene.approve(scene.judge(gates=verdict.gates, evidence=verdict.evidence))
    touch(Path(verdict.evidence))

    asyncio.run(scene.carry_out())

    assert (scene.sent, scene.refreshed) == ([], [])
    assert scene.decision().stage is Stage.VOID
    assert TOUCHES[touch] in (scene.decision().why or "")


def test_untouched_evidence_bears_its_verdict_and_the_kill_goes_on(tmp_path):
    scene, verdict = judged(tmp_path)
    scene.approve(scene.judge(gates=verdict.gates, evidence=verdict.evidence))

    asyncio.run(scene.carry_out())

    assert shaken(verdict) is None
    assert len(scene.sent) == 1


def test_a_folder_on_another_machine_is_left_to_the_second_look(tmp_path):
    """Several daemons share one database; each has its own evidence."""
    _, verdict = judged(tmp_path)

    assert shaken(replace(verdict, evidence=str(tmp_path / "elsewhere"))) is None
