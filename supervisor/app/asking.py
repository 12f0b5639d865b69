"""What the commands share: the store as a reader may open it, and who is asking."""

from __future__ import annotations

import getpass
import json
import os
import socket
import sys
from typing import TYPE_CHECKING, Any

from supervisor.app.config_path import Places, places

if TYPE_CHECKING:
    import argparse

    from supervisor.store.store import Store


def opened(args: argparse.Namespace) -> tuple[Store, Places]:
    """The store of the config in force, its schema checked. Raises StoreError with one clear line."""
    from supervisor.store.store import Store

    where = places(args.config)
    store = Store.open(where.database_url)
    store.check_schema()
    return store, where


def asker() -> str:
    """Who asks: OS user and host, for the record."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = f"uid {os.getuid()}"
    return f"{user}@{socket.gethostname()}"


def print_json(document: dict[str, Any]) -> None:
    """One document on standard output, NaN-free by contract."""
    json.dump({"schema_version": 1, **document}, sys.stdout, allow_nan=False, default=str)
    sys.stdout.write("\n")
