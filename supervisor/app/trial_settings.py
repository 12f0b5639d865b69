"""Which entry of ``trial_stores`` is a job's own, how its store is reached, and what ``check`` says of the entries."""

from __future__ import annotations

import os
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from supervisor.app.fleet import Station
from supervisor.clusters.object_store import NoCredentials, StoreAccess, ready
from supervisor.model.facts import Held
from supervisor.model.polling import Check

if TYPE_CHECKING:
    from supervisor.app.trial_sections import TrialStoreSection


def setting_of(station: Station, held: Held) -> TrialStoreSection | None:
    """The first entry of ``trial_stores`` that fits the job's name."""
    name = held.observation.name
    return next((each for each in station.section.trial_stores if fnmatchcase(name, each.jobs)), None)


def access_of(setting: TrialStoreSection | None) -> StoreAccess:
    if setting is None:
        return StoreAccess()
    return StoreAccess(
        endpoint_url=setting.endpoint_url or None,
        region=setting.region or None,
        profile=setting.profile or None,
        credentials_file=setting.credentials_file,
    )


def store_checks(station: Station) -> list[Check]:
    """One line for each configured object store: whether it could be asked at all (POLL-12). Nothing is asked."""
    lines = []
    for each in station.section.trial_stores:
        if not each.read or not (each.place.startswith("s3://") or each.endpoint_url or each.credentials_file):
            continue
        what = f"trials of {each.jobs}"
        try:
            lines.append(
                Check(what, "ok", f"{each.place or 'where the jobs say'}: {ready(access_of(each), os.environ)}")
            )
        except NoCredentials as error:
            lines.append(Check(what, "fail", str(error)))
    return lines
