"""A private PostgreSQL server for tests: its own folder, a unix socket only, run by an unprivileged user, gone afterwards.

``server`` is for the whole session, ``postgres_url`` is a new and empty database on it for each test.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

USER = "supervisor"
STARTS_WITHIN_S = 60.0


class NoPostgres(Exception):
    """Why no server can be run here."""


def programs() -> Path:
    """Folder of PostgreSQL's server programs, the newest version's."""
    on_path = shutil.which("initdb")
    if on_path:
        return Path(on_path).resolve().parent
    places = [*Path("/usr/lib/postgresql").glob("*/bin"), *Path("/usr/local/opt").glob("postgresql@*/bin")]
    places = [place for place in places if (place / "initdb").exists()]
    if not places:
        raise NoPostgres("no PostgreSQL server programs (initdb) are installed; on Debian: apt-get install postgresql")
    return max(
        places, key=lambda place: [int(part) for part in place.parent.name.split("@")[-1].split(".") if part.isdigit()]
    )


class PrivatePostgres:
    """One server. PostgreSQL refuses to run as root, so root lends it another user."""

    def __init__(self) -> None:
        self.bin = programs()
        self.folder = Path(tempfile.mkdtemp(prefix="fleet-pg-"))
        self.data = self.folder / "data"
        self._as: dict[str, object] = {}
        if os.geteuid() == 0:
            user = next((one for one in pwd.getpwall() if one.pw_name in ("postgres", "nobody")), None)
            if user is None:
                raise NoPostgres("PostgreSQL does not run as root, and there is no user postgres or nobody to run it")
            os.chown(self.folder, user.pw_uid, user.pw_gid)
            self._as = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
        self._databases = count(1)
        self._process: subprocess.Popen[bytes] | None = None
        made = self._run("initdb", "-D", str(self.data), "-U", USER, "-A", "trust", "-E", "UTF8", "--locale=C", "-N")
        if made.returncode:
            shutil.rmtree(self.folder)
            raise NoPostgres(f"initdb failed: {made.stderr.decode()[-300:]}")
        self.start()

    def _run(self, program: str, *arguments: str) -> subprocess.CompletedProcess[bytes]:
        command = [str(self.bin / program), *arguments]
        return subprocess.run(command, capture_output=True, check=False, cwd=self.folder, **self._as)  # type: ignore[call-overload,no-any-return]

    def start(self) -> None:
        settings = ("listen_addresses=", "fsync=off", f"unix_socket_directories={self.folder}", "max_connections=60")
        command = [str(self.bin / "postgres"), "-D", str(self.data)]
        for setting in settings:
            command += ["-c", setting]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, cwd=self.folder, **self._as)  # type: ignore[call-overload]
        deadline = time.monotonic() + STARTS_WITHIN_S
        while self._run("pg_isready", "-h", str(self.folder), "-U", USER).returncode:
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise NoPostgres(f"the server did not start: {(self.folder / 'log').read_text()[-300:]}")
            time.sleep(0.05)

    def stop(self, *, at_once: bool = False) -> None:
        """``at_once``: as after a crash, sessions are cut off in the middle."""
        assert self._process is not None
        self._process.send_signal(signal.SIGQUIT if at_once else signal.SIGINT)
        self._process.wait(timeout=60)

    def restart(self) -> None:
        self.stop(at_once=True)
        self.start()

    def url(self, database: str) -> str:
        return f"postgresql+psycopg://{USER}@/{database}?host={self.folder}"

    def new_database(self, *, like: str = "template0") -> str:
        """URL of a new database: empty, or a copy of the one at the URL ``like``, to which nobody may be connected."""
        name = f"t{next(self._databases)}"
        template = like.partition("@/")[2].partition("?")[0] or like
        made = self._run("createdb", "-h", str(self.folder), "-U", USER, "-T", template, name)
        assert made.returncode == 0, made.stderr.decode()
        return self.url(name)

    def drop(self, url: str) -> None:
        """Take a database away again, with every session on it."""
        done = self._run(
            "dropdb", "-h", str(self.folder), "-U", USER, "--force", url.partition("@/")[2].partition("?")[0]
        )
        assert done.returncode == 0, done.stderr.decode()

    def dump(self, url: str) -> str:
        """The schema of a database as SQL."""
        database = url.partition("@/")[2].partition("?")[0]
        done = self._run("pg_dump", "-h", str(self.folder), "-U", USER, "--schema-only", "--no-owner", database)
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout.decode()

    def remove(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self.stop(at_once=True)
        shutil.rmtree(self.folder, ignore_errors=True)


@pytest.fixture(scope="session")
def postgres() -> Iterator[PrivatePostgres]:
    """The session's server; tests that need it are skipped, with the reason, where there can be none."""
    try:
        server = PrivatePostgres()
    except NoPostgres as error:
        pytest.skip(str(error))
    yield server
    server.remove()


@pytest.fixture
def postgres_url(postgres: PrivatePostgres) -> Iterator[str]:
    """A new and empty database."""
    url = postgres.new_database()
    yield url
    postgres.drop(url)
