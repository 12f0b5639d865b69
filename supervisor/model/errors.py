"""What can go wrong, as sentences with fields. Each error says what, where, and, where it helps, what to do."""

from __future__ import annotations


class SupervisorError(Exception):
    """Any error that a user may see; its text is one clear line."""


class UsageError(SupervisorError):
    """The command or the configuration is wrong: exit status 2."""


class ClusterError(SupervisorError):
    """A cluster could not be read or acted on. It says nothing about any job (POLL-1)."""

    def __init__(self, cluster: str, text: str, hint: str | None = None) -> None:
        super().__init__(f"{cluster}: {text}")
        self.cluster, self.text, self.hint = cluster, text, hint


class LoginFailed(ClusterError):
    """No session could be opened: refused, unverifiable, or waiting for a person."""


class LoginNeedsPerson(LoginFailed):
    """The login asks for something that only a person can give (second factor, a new certificate)."""


class CommandFailed(ClusterError):
    """A remote command did not end with status 0, so its output, empty or not, proves nothing.

    ``exit_status`` is None when the connection dropped before the status came.
    """

    def __init__(self, cluster: str, command: str, exit_status: int | None, stderr: str) -> None:
        how = "gave no exit status (connection dropped)" if exit_status is None else f"exited {exit_status}"
        said = f": {stderr.strip()[:300]}" if stderr.strip() else ""
        super().__init__(cluster, f"{command} {how}{said}")
        self.command, self.exit_status, self.stderr = command, exit_status, stderr


class AnswerUnusable(ClusterError):
    """An answer came, but it is cut off, garbled or contradicts itself, so nothing in it is believed (POLL-1, POLL-2)."""


class TookTooLong(ClusterError):
    """The deadline of this cluster passed before the answer was whole."""

    def __init__(self, cluster: str, what: str, limit_s: float) -> None:
        super().__init__(cluster, f"{what} did not answer within {limit_s:g} s")
        self.limit_s = limit_s


class NotApproved(SupervisorError):
    """Something that needs a person's approval was asked for without one (KILL-1)."""


class StoreError(SupervisorError):
    """The database could not be read or written; nothing that was being written counts."""


class SchemaMismatch(StoreError):
    """The database has a schema that this version does not know or that must be upgraded first."""


class NotBegun(SchemaMismatch):
    """There is no store yet: no daemon has ever run on it."""


class Unproven(SupervisorError):
    """A judgement was built without the quote or the failed command that it needs (PROBE-2)."""
