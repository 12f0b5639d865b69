"""Trials in an S3-compatible object store: bounded listings that go on where the last one stopped, and the results not counted
before. Every failure is a value with its reason: a listing that broke off in its middle counts nothing.
"""

from __future__ import annotations

import asyncio
import configparser
import os
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

from supervisor.model.secrets import scrubbed
from supervisor.model.trials import NOT_THERE, RESULT, TrialFile, TrialRead, TrialsSeen, TrialsUnread, TrialsWanted

NO_LIBRARY = "object stores need a library: install fleet-supervisor[stores]"
PAGE = 1000
"""Keys in one answer: the most that S3 gives."""
AT_ONCE = 8
"""Results fetched at once from one place."""
JOB_TIMES = 8
"""A job's own result file may be so many times larger than a trial's."""
SAID = 500
"""Characters of an answer that are kept."""
VARIABLES = (
    ("AWS_ACCESS_KEY_ID", "access_key_id"),
    ("AWS_SECRET_ACCESS_KEY", "secret_access_key"),
    ("AWS_SESSION_TOKEN", "session_token"),
)
_CODE = re.compile(r"<Code>([^<]{1,100})</Code>(?:\s*<Message>([^<]{1,300})</Message>)?")
_STATUS = re.compile(r"status code: (\d{3} [A-Za-z ]{1,40})")


@dataclass(frozen=True, slots=True)
class StoreAccess:
    """How a store is reached. None: what the AWS environment variables and files say."""

    endpoint_url: str | None = None
    region: str | None = None
    profile: str | None = None
    credentials_file: Path | None = None


class NoCredentials(Exception):
    """The named file or profile holds none; the text is the reason."""


class _Broken(Exception):
    """A request that failed; ``args``: the reason, and the words that came back."""


@dataclass(slots=True)
class _Listed:
    """What a listing found, in the order of its keys."""

    begun: int = 0
    results: list[tuple[str, str, int, int]] = field(default_factory=list)
    """(trial, key, changed_s, size)."""
    keys: int = 0
    bytes: int = 0
    last: str = ""
    """The last key that was taken in."""
    finished: bool = True


class ObjectStores:
    """Reads trials wherever a URL points. Clients are kept between looks, by bucket and access."""

    def __init__(self, *, request_s: float = 15.0, environment: Mapping[str, str] | None = None) -> None:
        self._request_s = request_s
        self._environment = os.environ if environment is None else environment
        self._clients: dict[tuple[object, ...], Any] = {}

    async def read(self, wanted: TrialsWanted, access: StoreAccess, *, limit_s: float) -> TrialRead:
        """One look, within ``limit_s`` seconds."""
        asked = _asked(wanted, access, self._environment)
        scheme, _, rest = wanted.place.where.partition("://")
        bucket, _, prefix = rest.partition("/")
        prefix = prefix.strip("/")
        if scheme != "s3" or not bucket:
            return TrialsUnread(f"{scheme}:// is no store that can be read; only s3:// is", asked)
        if wanted.place.of_jobs:
            return TrialsUnread("which job's folder below it is this one's is not told; name it in trial_stores", asked)
        try:
            client = self._client(bucket, access)
        except NoCredentials as error:
            return TrialsUnread(str(error), asked)
        try:
            async with asyncio.timeout(limit_s):
                return await _look(client, wanted, prefix + "/" if prefix else "", asked)
        except TimeoutError:
            return TrialsUnread(f"no whole answer within {limit_s:g} s", asked)
        except _Broken as error:
            return TrialsUnread(str(error.args[0]), asked, str(error.args[1]))

    def _client(self, bucket: str, access: StoreAccess) -> Any:
        """Raises NoCredentials, also where the library is not installed."""
        try:
            from obstore.store import S3Store
        except ImportError:
            raise NoCredentials(NO_LIBRARY) from None
        settings: dict[str, Any] = dict(credentials(access, self._environment))
        key = (bucket, *sorted(settings.items()))
        if key not in self._clients:
            plain = settings.get("endpoint", "").startswith("http://")
            self._clients[key] = S3Store(
                bucket,
                config=cast("Any", settings),
                client_options={
                    "allow_http": plain,
                    "connect_timeout": f"{min(5.0, self._request_s):g}s",
                    "timeout": f"{self._request_s:g}s",
                },
                retry_config={"max_retries": 2, "retry_timeout": timedelta(seconds=self._request_s)},
            )
        return self._clients[key]


def ready(access: StoreAccess, environment: Mapping[str, str]) -> str:
    """Where the credentials are from, for people. Raises NoCredentials with what stands in the way; nothing is asked."""
    if find_spec("obstore") is None:
        raise NoCredentials(NO_LIBRARY)
    found = credentials(access, environment)
    if "access_key_id" not in found:
        return "no credentials in the environment or its usual file; the machine's own role is tried"
    where = access.credentials_file or ("its profile" if access.profile else "the environment or the usual file")
    return f"credentials from {where}"


def credentials(access: StoreAccess, environment: Mapping[str, str]) -> dict[str, str]:
    """Settings of the client. A named file or profile goes before the environment's variables, those before the usual files.

    Raises NoCredentials where a named file or profile cannot be used. Nothing found is no error: the machine's own role may do.
    """
    found: dict[str, str] = {}
    profile = access.profile or environment.get("AWS_PROFILE") or "default"
    if access.credentials_file is not None:
        found = _from_file(access.credentials_file, profile, named=True)
    elif access.profile is not None or not environment.get("AWS_ACCESS_KEY_ID"):
        usual = environment.get("AWS_SHARED_CREDENTIALS_FILE") or "~/.aws/credentials"
        found = _from_file(Path(usual).expanduser(), profile, named=access.profile is not None)
    else:
        found = {key: environment[name] for name, key in VARIABLES if environment.get(name)}
    region = access.region or environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION") or "us-east-1"
    endpoint = _endpoint(access, environment)
    return {**found, "region": region, **({"endpoint": endpoint} if endpoint else {})}


def _from_file(path: Path, profile: str, *, named: bool) -> dict[str, str]:
    file = configparser.RawConfigParser()
    try:
        file.read_string(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        if named:
            raise NoCredentials(f"credentials file {path}: not there") from None
        return {}
    except (OSError, UnicodeDecodeError, configparser.Error) as error:
        why = error.strerror if isinstance(error, OSError) else "no file of profiles"
        raise NoCredentials(f"credentials file {path}: {why}") from None
    if not file.has_section(profile):
        if named:
            raise NoCredentials(f"credentials file {path}: holds no profile [{profile}]")
        return {}
    wanted = {"aws_access_key_id": "access_key_id", "aws_secret_access_key": "secret_access_key"}
    found = {ours: file.get(profile, theirs, fallback="") for theirs, ours in wanted.items()}
    if not all(found.values()):
        raise NoCredentials(
            f"credentials file {path}: [{profile}] lacks aws_access_key_id or aws_secret_access_key"
        ) from None
    token = file.get(profile, "aws_session_token", fallback="")
    return {**found, **({"session_token": token} if token else {})}


def _endpoint(access: StoreAccess, environment: Mapping[str, str]) -> str | None:
    return access.endpoint_url or environment.get("AWS_ENDPOINT_URL_S3") or environment.get("AWS_ENDPOINT_URL") or None


def _asked(wanted: TrialsWanted, access: StoreAccess, environment: Mapping[str, str]) -> str:
    """The question in the words of the usual tool, so that a person can ask it too."""
    endpoint = _endpoint(access, environment)
    parts = [f"aws s3 ls {wanted.place.where}/", f"--endpoint-url {endpoint}" if endpoint else ""]
    parts.append(f"--profile {access.profile}" if access.profile else "")
    return scrubbed(" ".join(filter(None, parts)))


async def _look(client: Any, wanted: TrialsWanted, prefix: str, asked: str) -> TrialRead:
    listed = await _list(client, wanted, prefix)
    where = wanted.place.where
    chosen = listed.results
    if wanted.newest:
        chosen = sorted(chosen, key=lambda each: -each[2])[: wanted.results]
    job = await _job(client, wanted, prefix, where)
    if not listed.keys and not wanted.after:
        await _must_be_a_store(client, prefix)
        why = "its listing is empty, though it holds a result of the job" if job else f"{NOT_THERE}: no object below it"
        return TrialsUnread(why, asked)
    gate = asyncio.Semaphore(AT_ONCE)
    got = await asyncio.gather(*(_result(client, gate, each, wanted, where) for each in chosen))
    return TrialsSeen(
        where=where,
        begun=listed.begun,
        results=tuple(file for file in got if file is not None),
        left=0 if listed.finished else 1,
        job=job,
        after="" if listed.finished else listed.last,
    )


async def _list(client: Any, wanted: TrialsWanted, prefix: str) -> _Listed:
    """Keys from where the last look stopped, up to the bounds. Results counted before are passed over."""
    found = _Listed(last=wanted.after)
    begun_at = _trial_in(wanted.after, prefix)[0]
    try:
        async for chunk in client.list(prefix or None, offset=wanted.after or None, chunk_size=PAGE):
            for entry in chunk:
                full = found.keys >= wanted.entries or (
                    not wanted.newest and (len(found.results) >= wanted.results or found.bytes >= wanted.total_bytes)
                )
                if full:
                    found.finished = False
                    return found
                found.keys, found.last = found.keys + 1, entry["path"]
                trial, name = _trial_in(entry["path"], prefix)
                if name not in (RESULT, "config.json"):
                    continue
                if trial != begun_at:
                    found.begun, begun_at = found.begun + 1, trial
                changed = int(entry["last_modified"].timestamp())
                if name == RESULT and changed >= wanted.since_s and trial not in wanted.known:
                    found.results.append((trial, entry["path"], changed, entry["size"]))
                    found.bytes += min(entry["size"], wanted.result_bytes)
    except Exception as error:
        raise _broken(error) from error
    return found


def _trial_in(key: str, prefix: str) -> tuple[str, str]:
    """(trial, name) of a key that lies in a trial's folder; name is empty for any other."""
    parts = key.removeprefix(prefix).split("/")
    return (parts[0], parts[1]) if len(parts) == 2 else (parts[0] if len(parts) > 2 else "", "")


async def _result(
    client: Any, gate: asyncio.Semaphore, entry: tuple[str, str, int, int], wanted: TrialsWanted, where: str
) -> TrialFile | None:
    """None for one that was taken away meanwhile."""
    trial, key, changed, size = entry
    path = f"{where}/{trial}/{RESULT}"
    if size > wanted.result_bytes:
        return TrialFile(trial, path, changed, size, None, f"larger than may be read ({size} bytes)")
    async with gate:
        data = await _get(client, key)
    return None if data is None else TrialFile(trial, path, changed, len(data), data)


async def _job(client: Any, wanted: TrialsWanted, prefix: str, where: str) -> TrialFile | None:
    """The job's own result; None where there is none, or one too large."""
    limit = wanted.result_bytes * JOB_TIMES
    try:
        answer = await client.get_async(prefix + RESULT)
        if answer.meta["size"] > limit:
            return None
        data = bytes(await answer.bytes_async())
    except FileNotFoundError:
        return None
    except Exception as error:
        raise _broken(error) from error
    changed = int(answer.meta["last_modified"].timestamp())
    return TrialFile(".", f"{where}/{RESULT}", changed, len(data), data)


async def _must_be_a_store(client: Any, prefix: str) -> None:
    """An empty listing counts only from what also says of a name that cannot be there that it is not (POLL-2): a page for
    logging in, with status 200, looks like an empty listing to the library."""
    if await _get(client, f"{prefix}not-there-{secrets.token_hex(8)}") is not None:
        raise _Broken("it answers to names that cannot be there: no object store, or a page before it", "")


async def _get(client: Any, key: str) -> bytes | None:
    try:
        return bytes(await (await client.get_async(key)).bytes_async())
    except FileNotFoundError:
        return None
    except Exception as error:
        raise _broken(error) from error


def _broken(error: Exception) -> _Broken:
    """The reason in the store's own words, and those words. Secrets stand in no such error, and are looked for all the same."""
    text = scrubbed(str(error).partition("\nDebug source")[0].strip())
    code, status = _CODE.search(text), _STATUS.search(text)
    if code is not None:
        reason = f"{code[1]}: {code[2]}" if code[2] else code[1]
    elif status is not None:
        reason = f"it answered {status[1].strip()}"
    else:
        last = text.splitlines()[0] if text else type(error).__name__
        reason = last.rpartition(" - ")[2] if " - " in last else last
        reason = f"it could not be reached: {reason}" if "error sending request" in reason else reason
    return _Broken(reason[:SAID], text[:SAID])
