"""The house, held by its source: who may import whom, whose the clock is, what can be sent to a cluster (docs/architecture.md)."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
CODE = ROOT / "supervisor"
FILES = sorted(path for path in CODE.rglob("*.py") if "/migrations/versions/" not in path.as_posix())
ROOMS = ("rules", "detectors", "dialects", "diagnosis", "buckets", "gates", "clusters", "store", "reports", "app")


def named(path: Path) -> str:
    return path.relative_to(CODE).as_posix()


@cache
def trees() -> tuple[tuple[str, ast.Module], ...]:
    return tuple((named(path), ast.parse(path.read_text(encoding="utf-8"))) for path in FILES)


def calls(tree: ast.AST) -> Iterator[tuple[str, ast.Call]]:
    """Each call with the last part of what is called: ``now`` of ``datetime.now(…)``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            called = node.func
            name = (
                called.attr if isinstance(called, ast.Attribute) else called.id if isinstance(called, ast.Name) else ""
            )
            yield name, node


def test_the_import_contracts_hold():
    """Rooms know the model, rooms do not know each other, only `app` knows the rooms; pure rooms reach nothing outside."""
    program = Path(sys.executable).with_name("lint-imports")

    done = subprocess.run([program, "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout[-3000:]
    assert re.search(r"Contracts: [3-9]\d* kept, 0 broken", done.stdout)


def test_every_room_is_under_a_contract():
    """A new folder must not slip past the contracts."""
    contracts = (ROOT / "pyproject.toml").read_text().partition("[tool.importlinter]")[2]
    rooms = {path.parent.name for path in CODE.glob("*/__init__.py")} - {"data"}

    assert {room for room in rooms if f"supervisor.{room}" not in contracts} == set()


def test_the_clock_is_read_in_one_place():
    found = [
        f"{name}:{call.lineno}"
        for name, tree in trees()
        for called, call in calls(tree)
        if called in ("now", "utcnow", "today")
        and isinstance(call.func, ast.Attribute)
        and ast.unparse(call.func.value) in ("datetime", "date", "datetime.datetime", "datetime.date")
    ]

    assert [each for each in found if not each.startswith("app/clock.py:")] == []


def test_times_of_day_by_the_system_are_read_nowhere():
    """`time.time()` would be a second clock; `time.monotonic()` measures spans and is none."""
    found = [
        f"{name}:{call.lineno}"
        for name, tree in trees()
        for _, call in calls(tree)
        if ast.unparse(call.func) == "time.time"
    ]
    # The waiter is a program of its own, left behind by `launch`: it must not import anything of ours.
    assert [each for each in found if not each.startswith("clusters/waiter.py:")] == []


def test_an_approval_is_constructed_in_one_place():
    """KILL-1: only the store builds one, from a row that a person or their standing rule caused, where it writes the intent."""
    built = [name for name, tree in trees() for called, _ in calls(tree) if called == "Approval"]

    assert built == ["store/cancels.py"]
    (tree,) = [tree for name, tree in trees() if name == "store/cancels.py"]
    (begins,) = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == "begin_cancel"]
    assert "Approval" in [called for called, _ in calls(begins)]


def test_every_way_to_cancel_asks_for_an_approval():
    """KILL-1: whoever defines `cancel` takes an Approval without a default; whoever calls one hands one on."""
    defined = 0
    for name, tree in trees():
        for node in ast.walk(tree):
            if isinstance(node, ast.AsyncFunctionDef) and node.name == "cancel":
                taken = {
                    each.arg: ast.unparse(each.annotation) for each in node.args.args if each.annotation is not None
                }
                assert taken.get("approval") == "Approval", f"{name}:{node.lineno}"
                assert not node.args.defaults, f"{name}:{node.lineno}"
                defined += 1
    assert defined >= 4


def test_a_cancel_is_sent_from_one_place():
    """KILL-3: one line of all that stands around the backends. Tasks of the event loop are cancelled without arguments."""
    sends = [
        name
        for name, tree in trees()
        if not name.startswith("clusters/")
        for called, call in calls(tree)
        if called == "cancel" and (call.args or call.keywords)
    ]

    assert sends == ["app/kill.py"]


def test_what_cannot_be_taken_back_is_asked_of_the_store_in_one_file():
    """KILL-1, KILL-3: intent, receipt and outcome are written by who sends, and by nobody else."""
    for step in ("begin_cancel", "record_only", "receipt", "outcome", "not_sent"):
        users = {
            name
            for name, tree in trees()
            for called, call in calls(tree)
            if called == step and isinstance(call.func, ast.Attribute) and ast.unparse(call.func.value) == "store"
        }
        assert users == {"app/kill.py"}, step


def test_no_page_of_commands_searches_measures_or_removes():
    """FIND-1, FIND-4, CLEAN-2: no file system of a cluster is walked, and nothing on it is removed."""
    pages = sorted((CODE / "clusters").glob("*_commands.py"))
    assert {path.name for path in pages} >= {
        *("slurm_commands.py", "slurm_capture_commands.py", "host_commands.py"),
        *("node_commands.py", "node_process_commands.py", "node_file_commands.py"),
    }
    for path in pages:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        said = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}  # docstrings
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in said:
                words = set(re.findall(r"(?<![\w./-])(find|du|rm|rmdir|locate|fd)(?![\w-])", node.value))
                assert words == set(), f"{path.name}:{node.lineno}: {sorted(words)}"


def test_shell_words_of_others_pass_one_quoting_function():
    """House, idea 8: no backend builds a command with an f-string out of a page."""
    for path in sorted((CODE / "clusters").glob("*_commands.py")):
        text = path.read_text(encoding="utf-8")
        assert "quoted(" in text, f"{path.name} quotes nothing"


@pytest.mark.parametrize("room", ROOMS)
def test_files_stay_readable(room):
    """A few hundred lines at most."""
    long = {
        named(path): count
        for path in (CODE / room).rglob("*.py")
        if (count := len(path.read_text().splitlines())) > 500
    }

    assert long == {}


def test_no_function_swallows_whatever_goes_wrong():
    """`except: pass` on everything hides what nobody expected; a bare `except Exception` says why it stands there."""
    bare = [
        f"{name}:{node.lineno}"
        for name, tree in trees()
        for node in ast.walk(tree)
        if isinstance(node, ast.ExceptHandler)
        and (node.type is None or ast.unparse(node.type) in ("Exception", "BaseException"))
        and all(isinstance(each, ast.Pass | ast.Continue) for each in node.body)
    ]

    assert bare == []
