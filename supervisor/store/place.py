"""Where an SQLite file may lie: not on a network file system, since its log needs shared memory (sqlite.org/wal.html)."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import psutil

from supervisor.store.faults import Misplaced

NETWORK = frozenset(
    {
        *("nfs", "nfs3", "nfs4", "cifs", "smb2", "smb3", "smbfs", "afpfs", "webdav", "afs", "ceph", "fuse.ceph"),
        *("lustre", "gpfs", "mmfs", "beegfs", "fhgfs", "panfs", "pvfs2", "orangefs", "wekafs", "vast", "dvs", "gfs2"),
        *("ocfs2", "glusterfs", "fuse.glusterfs", "fuse.sshfs", "fuse.s3fs", "fuse.gcsfuse", "fuse.juicefs", "davfs"),
    }
)
"""File system types, as the kernel spells them, on which several machines can see one file."""


def mounts() -> list[tuple[str, str]]:
    """Mount points of this machine with their file system types."""
    return [(part.mountpoint, part.fstype.lower()) for part in psutil.disk_partitions(all=True)]


def filesystem_of(path: Path, mounted: Iterable[tuple[str, str]]) -> str:
    """Type of the file system that holds ``path``; empty where it can't be told."""
    place = path.resolve()
    best, found = -1, ""
    for point, kind in mounted:
        if len(point) >= best and (place == Path(point) or Path(point) in place.parents):
            best, found = len(point), kind
    return found


def must_be_local(path: Path, mounted: Iterable[tuple[str, str]]) -> None:
    """Raises Misplaced on a network file system."""
    kind = filesystem_of(path, mounted)
    if kind in NETWORK:
        raise Misplaced(
            f"database {path} lies on a network file system ({kind}), where SQLite loses data: "
            "set state_dir or database_url to a local disk, or use PostgreSQL"
        )
