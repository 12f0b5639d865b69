"""What ``check`` looks at. Nothing here changes anything, on any cluster or in the store."""

from __future__ import annotations

import asyncio
import importlib.metadata
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from supervisor.app.clock import utc_now
from supervisor.app.fleet import Station
from supervisor.app.settings import Settings
from supervisor.app.trial_settings import store_checks
from supervisor.app.watchroom import station_for
from supervisor.model.errors import SupervisorError
from supervisor.model.polling import Check
from supervisor.store.store import Store


async def all_checks(settings: Settings, path: Path) -> list[Check]:
    """Every line, in the order of importance; clusters at the same time, each within its own deadline."""
    lines = [Check("config", "ok", f"{path}, {len(settings.cluster)} clusters")]
    if not settings.cluster:
        lines.append(
            Check("config", "warn", "no cluster is configured", "add a [[cluster]] table, or run `supervisorctl init`")
        )
    lines += [_signatures(settings), _database(settings), *_disk(settings), *_names()]
    stations = [station_for(section, settings) for section in settings.cluster]
    found = await asyncio.gather(*(_cluster(station) for station in stations))
    stores = [line for station in stations for line in store_checks(station)]
    return lines + [line for each in found for line in each] + stores


def _signatures(settings: Settings) -> Check:
    """The packs in force; the config's own have been loaded with it."""
    from supervisor.app.packs import catalogue

    chosen = settings.signatures
    count = len(catalogue(own=chosen.packs, off=chosen.off).signatures)
    own = f", {len(chosen.packs)} packs of your own" if chosen.packs else ""
    return Check("signatures", "ok", f"{count} entries{own}")


def _database(settings: Settings) -> Check:
    try:
        with Store.open(settings.database_url) as store:
            return Check("database", "ok", f"{store.url}: {store.check()}")
    except SupervisorError as error:
        fresh = "db upgrade" in str(error) or "no database" in str(error)
        return Check(
            "database",
            "warn" if fresh else "fail",
            str(error),
            "the daemon makes it at its first start" if fresh else None,
        )


def _disk(settings: Settings) -> list[Check]:
    lines = []
    for what, folder in (("state folder", settings.state_dir), ("agent logs", settings.agent_logs)):
        place = next(each for each in (folder, *folder.parents) if each.exists())
        if not place.is_dir():
            lines.append(
                Check(what, "fail", f"{place} is no folder", "move it away, or name another folder in the config")
            )
            continue
        try:
            free = shutil.disk_usage(place).free
        except OSError as error:
            lines.append(Check(what, "fail", f"{folder}: {error}"))
            continue
        result = "ok" if free > 2**30 else "warn" if free > 256 * 2**20 else "fail"
        lines.append(
            Check(what, result, f"{folder}: {free / 2**30:.1f} GiB free", None if result == "ok" else "make room there")
        )
    return lines


def _names() -> list[Check]:
    """The known process manager has a ``supervisorctl`` of its own: both in one environment hide each other."""
    try:
        version = importlib.metadata.version("supervisor")
    except importlib.metadata.PackageNotFoundError:
        return []
    hint = "install fleet-supervisor in an environment of its own"
    return [Check("environment", "warn", f"the process manager supervisor {version} is installed beside us", hint)]


async def _cluster(station: Station) -> Sequence[Check]:
    """What its backend says of itself; a backend that hangs or breaks is one failed line."""
    name = f"cluster {station.name}"
    now = utc_now()
    if station.skipped(now):
        until, why = station.section.skip_until, station.section.skip_reason
        return [Check(name, "ok", f"skipped until {until}{f': {why}' if why else ''}")]
    if station.cluster is None:
        return [Check(name, "fail", station.broken or "it could not be set up")]
    try:
        lines = await asyncio.wait_for(station.cluster.check(now), timeout=station.section.deadline_s)
        return [replace(line, what=f"{station.name}: {line.what}") for line in lines]
    except TimeoutError:
        return [Check(name, "fail", f"no answer within {station.section.deadline_s:g} s")]
    except SupervisorError as error:
        return [Check(name, "fail", str(error), getattr(error, "hint", None))]
    finally:
        await station.cluster.close()
