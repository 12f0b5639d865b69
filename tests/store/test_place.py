"""Where a store may lie, and how its URL is read."""

from __future__ import annotations

from pathlib import Path

import pytest

from supervisor.model.errors import StoreError
from supervisor.store.address import Address
from supervisor.store.faults import Misplaced
from supervisor.store.place import filesystem_of, mounts, must_be_local

MOUNTED = [
    ("/", "ext4"),
    ("/proc", "proc"),
    ("/home", "nfs4"),
    ("/home/alice/local", "xfs"),
    ("/scratch", "lustre"),
    ("/scratchy", "tmpfs"),
]


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/var/lib/fleet/store.db", "ext4"),
        ("/home/alice/state/store.db", "nfs4"),
        ("/home/alice/local/store.db", "xfs"),
        ("/scratch/store.db", "lustre"),
        ("/scratchy/store.db", "tmpfs"),
    ],
)
def test_the_file_system_of_a_file_is_that_of_the_nearest_mount(path: str, kind: str) -> None:
    assert filesystem_of(Path(path), MOUNTED) == kind


def test_a_file_on_a_network_file_system_is_refused_with_what_to_do() -> None:
    """A write-ahead log on NFS loses data; most home folders on clusters are NFS."""
    with pytest.raises(Misplaced, match=r"network file system \(nfs4\).*local disk, or use PostgreSQL"):
        must_be_local(Path("/home/alice/state/store.db"), MOUNTED)

    must_be_local(Path("/home/alice/local/store.db"), MOUNTED)


def test_the_file_system_of_this_machine_can_be_told(tmp_path: Path) -> None:
    assert filesystem_of(tmp_path / "store.db", mounts()) != ""


@pytest.mark.parametrize(
    "url", ["mysql://x/y", "sqlite://", "sqlite:///:memory:", "sqlite:///", "/var/lib/store.db", "", "postgresql:/x"]
)
def test_a_url_of_another_kind_is_refused_with_what_is_allowed(url: str) -> None:
    with pytest.raises(StoreError, match=r"allowed: sqlite:///PATH"):
        Address(url)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        (
            "postgresql+psycopg://alice:s3cret@db.example:5433/fleet?sslmode=require",
            "postgresql://db.example:5433/fleet",
        ),
        ("postgres://alice:p@ss@db.example/fleet", "postgresql://db.example/fleet"),
        ("postgresql://db.example/fleet?password=s3cret", "postgresql://db.example/fleet"),
        ("sqlite:////var/lib/fleet/store.db", "/var/lib/fleet/store.db"),
    ],
)
def test_the_name_for_people_holds_no_password(url: str, shown: str) -> None:
    assert Address(url).shown == shown


def test_any_file_name_can_be_opened(tmp_path: Path) -> None:
    """Question marks, percent and number signs have a meaning in SQLite's own URIs."""
    from supervisor.store.light import Light
    from supervisor.store.store import Store

    url = f"sqlite:///{tmp_path / 'a#b %41c' / 'store.db'}"
    with Store.open(url) as store:
        store.upgrade()
    with Light.open(url) as light:
        assert light.jobs() == []
    assert (tmp_path / "a#b %41c" / "store.db").stat().st_size > 0
