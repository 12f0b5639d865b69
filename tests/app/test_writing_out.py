"""Where an answer cannot be written, that is said in one line."""

from __future__ import annotations

import stat
import subprocess
import sys
from pathlib import Path

import pytest

FULL = Path("/dev/full")


@pytest.mark.parametrize("command", [["status"], ["status", "--json"], ["rules"]])
def test_a_full_disk_is_one_clear_line_and_exit_1(tmp_path: Path, command: list[str]) -> None:
    """A script that keeps a truncated answer must be able to tell."""
    if not FULL.exists() or not stat.S_ISCHR(FULL.stat().st_mode):
        pytest.skip("this machine has no /dev/full")
    config = tmp_path / "config.toml"
    config.write_text('[[cluster]]\nname = "box"\nkind = "host"\n')
    words = [sys.executable, "-m", "supervisor.app.ctl", "--config", str(config), *command]
    with FULL.open("w") as full:
        done = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, text=True, check=False, timeout=60)

    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "No space left on device" in done.stderr
