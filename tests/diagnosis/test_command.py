"""The command: light to start, text for people, JSON for scripts, and the catalogue's own commands."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from supervisor.app import diagnose, signatures
from tests.diagnosis.test_bad_input import OOM, PACK

CHECK = """
import sys
from supervisor.app import diagnose
status = diagnose.main([sys.argv[1], "--json"])
print(" ".join(sorted({name.partition(".")[0] for name in sys.modules})), file=sys.stderr)
sys.exit(status)
"""


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "job.log"
    path.write_bytes(b"step 3/80 loss 1.2\n[rank3]: " + OOM + b"[rank3]: frame #0: none\n")
    return path


def test_it_starts_without_the_heavy_libraries(log: Path):
    done = subprocess.run([sys.executable, "-c", CHECK, str(log)], capture_output=True, text=True, check=True)
    heavy = {
        "sqlalchemy",
        "pydantic",
        "asyncio",
        "asyncssh",
        "kubernetes",
        "rich",
        "structlog",
        "apscheduler",
        "aiohttp",
    }

    assert heavy & set(done.stderr.split()) == set()


def test_the_document_has_the_contracts_keys(log: Path, capsys: pytest.CaptureFixture[str]):
    assert diagnose.main([str(log), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)

    wanted = "schema_version category confidence transience cause summary action fingerprint echoes noise progress read"
    assert set(wanted.split()) <= set(document)
    assert set(document["cause"]) == {"file", "line", "offset", "text", "signature", "rank", "node"}
    assert (document["cause"]["line"], document["cause"]["rank"]) == (2, 3)
    assert document["progress"] == {"step": 3, "total": 80, "line": 1}
    assert document["read"]["files"] == [
        {"path": str(log), "bytes": log.stat().st_size, "lines": 3, "state": "read", "reason": None}
    ]


def test_text_shows_the_line_in_its_context(log: Path, capsys: pytest.CaptureFixture[str]):
    assert diagnose.main([str(log)]) == 0
    text = capsys.readouterr().out

    assert text.startswith("gpu-oom  high confidence, deterministic\n")
    assert "           1  step 3/80 loss 1.2\n" in text
    assert "  >        2  [rank3]: torch.OutOfMemoryError" in text
    assert "           3  [rank3]: frame #0: none\n" in text
    assert "\x1b" not in text


def test_colour_can_be_asked_for(log: Path, capsys: pytest.CaptureFixture[str]):
    diagnose.main([str(log), "--color", "always"])

    assert "\x1b[31;1mgpu-oom\x1b[0m" in capsys.readouterr().out


def test_files_of_a_folder_are_named_below_it(log: Path, capsys: pytest.CaptureFixture[str]):
    below = log.parent / "ray" / "worker-1.err"
    below.parent.mkdir()
    log.rename(below)
    diagnose.main([str(log.parent), "--json"])

    assert json.loads(capsys.readouterr().out)["cause"]["file"] == "ray/worker-1.err"


def test_signatures_list_can_be_narrowed(capsys: pytest.CaptureFixture[str]):
    assert signatures.main(["list", "--category", "disk-full", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["signatures"]

    assert {row["category"] for row in rows} == {"disk-full"}


def test_signatures_explain_tells_an_entry_whole(capsys: pytest.CaptureFixture[str]):
    assert signatures.main(["explain", "resource_tracker_leak"]) == 0
    assert "leaked" in capsys.readouterr().out


def test_an_unknown_code_names_its_neighbours(capsys: pytest.CaptureFixture[str]):
    assert signatures.main(["explain", "resource_tracker"]) == 2
    assert "near: resource_tracker_leak" in capsys.readouterr().err


def test_signatures_test_shows_what_matches_where(log: Path, capsys: pytest.CaptureFixture[str]):
    assert signatures.main(["test", str(log), "--json"]) == 0
    hits = json.loads(capsys.readouterr().out)["hits"]

    assert [hit["line"] for hit in hits if "OutOfMemory" in hit["text"]] == [2]


def test_signatures_check_reports_a_users_pack(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    pack = tmp_path / "mine.toml"
    pack.write_text(PACK.replace('matches = ["tape is full"]', 'matches = ["tape is empty"]'))

    assert signatures.main(["check", str(pack)]) == 1
    assert capsys.readouterr().out.startswith(f"{pack}: ours: wrong: does not match its own example")
