"""A judge of the user's own: what it can do to a verdict, and everything that it can do wrong."""

from __future__ import annotations

import os
import sys
import textwrap
from pathlib import Path

import psutil
import pytest

from supervisor.app.casework import case_of, mark_of, subject_of
from supervisor.app.evidence import Evidence
from supervisor.app.judge import opinion_of
from supervisor.app.packs import prepare
from supervisor.app.sections import ExternalSection
from supervisor.gates import judge as judge_gates
from supervisor.model.job import JobState
from supervisor.model.probe import Captured, Restarts, Role, Ruling, Score
from supervisor.rules.verdict import merged, rule
from tests.some import BOOK, MINUTE, NOON, some_held, some_log, some_observation

LOG = "".join(f"{{'loss': 0.{n}, 'grad_norm': 0.2, 'learning_rate': 1e-05, 'epoch': 0.{n}}}\n" for n in range(1, 6))
RECORD = "JobId=42 JobName=sft__a UserId=alice(1000) JobState=RUNNING Reason=None Restarts=0\n"
LAST = LOG.splitlines()[-1]
GOOD = {
    "schema_version": 1, "ruling": "NO-KILL", "confidence": "high", "reasoning": "it trains", "next_steps": ["wait"],
    "flip_signal": "silence",
    "gates": [{"gate": "A", "result": "pass", "reason": "a step", "quotes": [{"file": "log.log", "line": 5, "text": LAST}]}],
}  # fmt: skip


@pytest.fixture(scope="module")
def prepared():
    return prepare()


@pytest.fixture
def asked(tmp_path, prepared):
    """Lets a judge, given as Python source, answer on one folder; silent for an hour, so that gate A fails softly."""
    seen = some_observation("42", state=JobState.RUNNING)
    held = some_held(bucket="sft", observation=seen, log=some_log(20 * MINUTE, step=None))
    evidence = Evidence(tmp_path / "evidence")
    captured = [
        Captured(role=Role.RECORD, command="scontrol show job -o 42", data=RECORD.encode()),
        Captured(role=Role.LOG, command="tail", source=held.log.stat.path, data=LOG.encode()),
        Captured(role=Role.DEVICES, command="ls /dev/nvidia*", node="n1", data=b"# 0 accelerator devices\n"),
        Captured(role=Role.STACK, command="py-spy dump", node="n1", failure="not permitted"),
    ]
    folder = evidence.write(evidence.name(held.key, "1-p1"), held.key, 1, NOON, captured)
    limits = BOOK.limits_of("sft")
    case = case_of(folder, subject_of(held, limits, None), limits, prepared)
    verdict = rule(case, judge_gates(case), Restarts(), evidence=str(folder.path), mark=mark_of(held, case))
    assert verdict.ruling is Ruling.NO_KILL

    async def answer(source: str, **settings):
        program = tmp_path / "judge.py"
        program.write_text(textwrap.dedent(source))
        section = ExternalSection(command=(sys.executable, str(program)), **({"timeout_s": 20} | settings))
        return await opinion_of(section, folder, case, verdict)

    answer.folder, answer.case, answer.verdict = folder, case, verdict
    return answer


def says(answer: object) -> str:
    return f"import json, sys\nsys.stdin.read()\nprint(json.dumps({answer!r}))\n"


# -- what it can do ----------------------------------------------------------------------------------------------------


async def test_it_is_shown_the_job_our_gates_and_where_the_files_lie(asked):
    source = f"""
        import json, os, sys
        request = json.load(sys.stdin)
        assert request["schema_version"] == 1 and request["job"]["id"] == "42", request
        assert [gate["gate"] for gate in request["verdict"]["gates"]][0] == "A"
        mine = {{each["role"]: each for each in request["files"]}}
        assert mine["stack"]["file"] is None and mine["stack"]["failure"] == "not permitted"
        text = open(os.path.join(request["evidence"], mine["log"]["file"])).read()
        assert len(text.splitlines()) == mine["log"]["lines"] == 5
        answer = {GOOD!r}
        answer["reasoning"] = text.splitlines()[-1]
        print(json.dumps(answer))
    """
    opinion = await asked(source)

    assert (opinion.ruling, opinion.reasoning) == (Ruling.NO_KILL, LAST)
    assert opinion.gates[0].result is Score.PASS


@pytest.mark.parametrize("ruling", ["ERROR", "NO-KILL"])
async def test_it_may_lower_a_verdict_and_add_its_reasons(asked, ruling):
    opinion = await asked(says(GOOD | {"ruling": ruling, "reasoning": "the node is drained for repair"}))
    after = merged(asked.verdict, opinion, asked.case)

    assert after.ruling is Ruling(ruling)
    assert "the node is drained for repair" in after.reasoning
    assert "judge" in after.judge or "python" in after.judge


async def test_it_cannot_raise_to_kill_what_our_own_gates_do_not_carry(asked):
    """Gate A fails softly here, and no stack dump was read (PROBE-5)."""
    gate = GOOD["gates"][0] | {"result": "fail", "cause": "silent-hang", "fix": "restart"}
    opinion = await asked(says(GOOD | {"ruling": "KILL", "gates": [gate]}))

    assert merged(asked.verdict, opinion, asked.case).ruling is not Ruling.KILL


@pytest.mark.parametrize(
    "quote",
    [
        {"file": "log.log", "line": 4, "text": LAST},
        {"file": "log.log", "line": 500, "text": LAST},
        {"file": "log.log", "line": 5, "text": "CUDA error"},
        {"file": "other.log", "line": 1, "text": "x"},
        {"file": "../secret", "line": 1, "text": "x"},
        {"file": "/etc/passwd", "line": 1, "text": "root"},
        {"file": "manifest.json", "line": 1, "text": "{"},
    ],
)
async def test_a_quote_that_does_not_stand_in_the_evidence_makes_it_an_error(asked, quote):
    """PROBE-4: for external judges as for ours."""
    opinion = await asked(says(GOOD | {"gates": [GOOD["gates"][0] | {"quotes": [quote]}]}))

    assert opinion.gates[0].result is Score.ERROR
    assert merged(asked.verdict, opinion, asked.case).ruling is Ruling.ERROR


async def test_a_secret_that_it_repeats_stands_nowhere(asked):
    """It may read what its user may read; what it says of that is not passed on."""
    opinion = await asked(
        says(GOOD | {"reasoning": "the token is hf_" + "a1B2" * 8, "next_steps": ["api_key=abcdef123456"]})
    )

    assert opinion.ruling is Ruling.NO_KILL
    assert "a1B2" not in opinion.reasoning
    assert "abcdef123456" not in " ".join(opinion.next_steps)


# -- what it can do wrong ----------------------------------------------------------------------------------------------

GATE = GOOD["gates"][0]
FAULTS = {
    "no JSON": ("print('I think it is fine')", "shape"),
    "two answers": (says(GOOD) + "print('{}')", "shape"),
    "nothing": ("", "put out nothing"),
    "a list": (says([GOOD]), "shape"),
    "another version": (says(GOOD | {"schema_version": 2}), "schema_version"),
    "no ruling": (says({key: value for key, value in GOOD.items() if key != "ruling"}), "ruling"),
    "a word of its own": (says(GOOD | {"ruling": "MAYBE"}), "ruling"),
    "a number for a word": (says(GOOD | {"reasoning": 7}), "reasoning"),
    "a line as text": (says(GOOD | {"gates": [GATE | {"quotes": [{"file": "log.log", "line": "5", "text": LAST}]}]}), "line"),
    "line nought": (says(GOOD | {"gates": [GATE | {"quotes": [{"file": "log.log", "line": 0, "text": LAST}]}]}), "line"),
    "a pass without a quote": (says(GOOD | {"gates": [GATE | {"quotes": []}]}), "quoted exhibit"),
    "an error without what is missing": (says(GOOD | {"gates": [GATE | {"result": "error"}]}), "which command failed"),
    "a gate twice": (says(GOOD | {"gates": [GATE, GATE]}), "scored twice"),
    "a gate of its own": (says(GOOD | {"gates": [GATE | {"gate": "Z"}]}), "gate"),
    "endless words": (says(GOOD | {"reasoning": "x" * 9000}), "reasoning"),
    "deep nesting": ("print('[' * 100000)", "shape"),
    "bytes": ("import sys\nsys.stdout.buffer.write(bytes(range(256)))", "shape"),
    "a flood": ("while True: print('x' * 65536)", "more than 1048576 bytes"),
    "a flood of complaints": ("import sys\nfor _ in range(200): print('x' * 65536, file=sys.stderr)", "put out nothing"),
    "a crash": ("raise SystemExit('no key given')", "status 1: no key given"),
    "a signal": ("import os\nos.kill(os.getpid(), 11)", ""),
    "a file too large": ("open('big', 'wb').write(bytes(80 << 20))", ""),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
async def test_whatever_it_does_wrong_is_an_error_that_says_so_and_no_verdict(asked, fault):
    source, words = FAULTS[fault]
    opinion = await asked(source)
    after = merged(asked.verdict, opinion, asked.case)

    assert opinion.ruling is Ruling.ERROR
    assert opinion.reasoning.startswith("It gave no usable answer: ")
    assert words in opinion.reasoning
    assert after.ruling is Ruling.ERROR
    assert after.gates == asked.verdict.gates, "what our gates found stands"


async def test_a_program_that_is_not_there_is_an_error(asked, tmp_path):
    section = ExternalSection(command=(str(tmp_path / "nowhere"),))
    opinion = await opinion_of(section, asked.folder, asked.case, asked.verdict)

    assert opinion.ruling is Ruling.ERROR
    assert "nowhere" in opinion.reasoning


async def test_one_that_takes_too_long_is_ended_with_all_that_it_started(asked, tmp_path):
    told = tmp_path / "pids"
    source = f"""
        import os, subprocess, sys, time
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)", "judge-child-{os.getpid()}"])
        stray = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)", "judge-child-{os.getpid()}"], start_new_session=True)
        open({str(told)!r}, "w").write("x")
        time.sleep(300)
    """
    opinion = await asked(source, timeout_s=2)

    assert "longer than 2 s" in opinion.reasoning
    assert told.exists()
    mine = [
        each
        for each in psutil.process_iter(["cmdline"])
        if f"judge-child-{os.getpid()}" in (each.info["cmdline"] or [])
    ]
    assert [each for each in mine if each.status() != psutil.STATUS_ZOMBIE] == []


# -- what it cannot reach ----------------------------------------------------------------------------------------------


async def test_its_environment_holds_no_credentials(asked, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_abcdefghijklmnopqrstuvwxyz")
    monkeypatch.setenv("SUPERVISOR__DATABASE_URL", "postgresql://alice:secret@db/x")
    source = f"import json, os\nanswer = {GOOD!r}\nanswer['reasoning'] = ' '.join(sorted(os.environ))\nprint(json.dumps(answer))"
    opinion = await asked(source)

    assert set(opinion.reasoning.split()) <= {
        "HOME",
        "LANG",
        "PATH",
        "TMPDIR",
        "PWD",
        "SHLVL",
        "_",
        "LC_CTYPE",
        "OLDPWD",
    }


async def test_it_cannot_change_the_evidence_that_it_judges(asked):
    """It sees a copy; what it does to that changes nothing."""
    source = f"""
        import json, os, sys
        request = json.load(sys.stdin)
        path = os.path.join(request["evidence"], "log.log")
        try:
            os.chmod(os.path.dirname(path), 0o700)
            os.chmod(path, 0o600)
            open(path, "w").write("all ranks dead\\n")
        except OSError:
            pass
        print(json.dumps({GOOD!r}))
    """
    opinion = await asked(source)

    assert opinion.gates[0].result is Score.PASS
    assert asked.folder.lines("log.log")[4] == LAST
    assert not Path(str(asked.folder.path)).samefile("/")


async def test_evidence_that_changed_while_it_judged_is_an_error(asked):
    target = asked.folder.path / "log.log"
    source = f"""
        import json, os
        open({str(target)!r}, "w").write("all ranks dead\\n")
        print(json.dumps({GOOD!r}))
    """
    opinion = await asked(source)

    assert "the evidence was changed while it judged" in opinion.reasoning


async def test_it_has_no_network_where_the_system_can_keep_it_off(asked):
    from supervisor.app.judge import _confined

    _confined.cache_clear()
    if not any("net" in word for word in _confined(False)):
        pytest.skip("neither bwrap nor unshare works here")
    source = f"""
        import json, os
        answer = {GOOD!r}
        answer["reasoning"] = " ".join(sorted(os.listdir("/sys/class/net"))) if os.path.exists("/proc/net/dev") else ""
        answer["flip_signal"] = " ".join(line.split(":")[0].strip() for line in open("/proc/self/net/dev") if ":" in line)
        print(json.dumps(answer))
    """
    opinion = await asked(source)
    open_one = await asked(source, network=True)

    assert opinion.flip_signal == "lo"
    assert set(open_one.flip_signal.split()) >= {"lo"}


async def test_its_words_reach_no_shell_and_no_path(asked, tmp_path):
    words = f"$(touch {tmp_path}/pwned) `touch {tmp_path}/pwned` ; touch {tmp_path}/pwned \x1b[2J"
    opinion = await asked(says(GOOD | {"reasoning": words, "flip_signal": words, "next_steps": [words]}))
    merged(asked.verdict, opinion, asked.case)

    assert not (tmp_path / "pwned").exists()


async def test_nothing_of_it_is_left_behind(asked, tmp_path, monkeypatch):
    import tempfile

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "scratch"))
    (tmp_path / "scratch").mkdir()
    await asked(says(GOOD))

    assert list((tmp_path / "scratch").iterdir()) == []
