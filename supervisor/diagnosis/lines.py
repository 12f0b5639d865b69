"""One line of a log: who printed it, and what it says once launchers' and loggers' prefixes are taken off.

Everything is bytes, because logs mix encodings; nothing here is slow enough to matter on hit lines, and nothing here
runs on other lines.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from supervisor.model.diagnosis import NOBODY, Stream

ANSI = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]{0,400}(?:\x07|\x1b\\)|[@-Z\\^_])")
_HOST = (
    rb"(?!(?:python|step|epoch|iter|layer|line|stage|phase|round|turn|seed|attempt|try|level|sm|cuda|http)[-_.\d]*:)"
    rb"(?:[a-z][a-z0-9]*(?:-[a-z0-9]+)*?-?\d+|[a-z0-9][a-z0-9-]*-(?:launcher|master|head|worker|driver))"
    rb"(?:(?:\.[a-z][a-z0-9-]*){2,})?"
)
"""Names of hosts as launchers put them before a line: they end in a number, or in the part that the host plays."""
_MONTH_DAY = rb"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) [ \d]\d \d\d:\d\d:\d\d(?:\.\d+)?"
_ISO = rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)"
_WHO = re.compile(
    rb"(?:\[\d\d:\d\d:\d\d\] )?(?:worker=\S+ )?task=(?P<task>\S+)(?: attempt=\d+)? \| ?"  # iris
    rb"|\[pod/(?P<pod>[^/\]]+)/(?P<container>[^\]]+)\] "  # kubectl logs --prefix
    rb"|\((?P<actor>[A-Za-z_][^()]{0,78}?) ?(?:rank=(?P<arank>\d+) )?pid=(?P<pid>\d+)(?:, ip=(?P<ip>[\d.a-f:]+))?\) ?"
    rb"|\((?P<daemon>raylet|autoscaler|gcs_server)(?: \+[\dhms]+)?(?:, ip=(?P<dip>[\d.]+))?\) ?"
    rb"|\[rank ?(?P<rank>\d+)\]:? ?"
    rb"|\[(?:default|trainer|worker|actor)(?P<local>\d+)\]: ?"
    rb"|(?: {0,2}(?P<label>\d{1,5}): |(?P<host>"
    + _HOST
    + rb"): )(?=\s*\S)"  # srun --label; pdsh, DeepSpeed, MPI operator
    rb"|\[(?:[\w.-]+@)?\d+,(?P<mpi>\d+)\](?:<std(?:out|err|diag)>)?: ?"  # mpirun --tag-output
    rb"|(?P<service>[A-Za-z][\w.-]*[-_]\d{1,4}) +\|(?: |$)"  # docker compose
    rb"|(?!(?:step|epoch|iter|batch|loss|train|eval|val)/)(?P<role>[a-z][\w.-]*/\d{1,4}) (?=\s*\S)"  # torchx
    rb"|(?:"
    + _MONTH_DAY
    + rb"|"
    + _ISO
    + rb") (?P<jhost>[\w.-]+) [\w./@:-]+?(?:\[(?P<jpid>\d+)\])?: "  # journald, syslog
    rb"|(?P<nhost>[A-Za-z][\w.-]*):(?P<hpid>\d+):\d+ \[(?P<device>\d+)\] (?=(?:misc|transport|[\w/]+\.cc|NCCL))",
)
_STAMP = (
    rb"(?:\d{4}-\d\d-\d\d[T _-]\d\d:\d\d:\d\d|\d\d/\d\d/\d{2,4} \d\d:\d\d:\d\d|\d\d-\d\d \d\d:\d\d:\d\d|\d\d:\d\d:\d\d)"
    rb"(?:[.,]\d{1,9})?(?: ?(?:Z|UTC|[+-]\d\d:?\d\d))?"
)
_LEVEL = rb"(?:TRACE|DEBUG|INFO|NOTICE|WARN|WARNING|ERROR|CRITICAL|FATAL|SEVERE|[eE]rror|fatal|[wW]arning)"
_NAME = rb"(?!(?:srun|sbatch|slurmstepd|error|fatal|bash|python|pyxis|kernel)\b)[a-z_][\w.-]*"
"""Of a logger. What follows it begins with a capital or a bracket; else it is rather the message's own first word."""
_LOGGER = re.compile(
    rb"\[?" + _STAMP + rb"(?:  ?[A-Z]{2}\d+)*(?: [EWIF] \d+ \d+)?\]?(?: \([\w-]+\))?"
    rb"(?:(?: - | )[\w.-]+ - "
    + _LEVEL
    + rb" - | (?:- )? *"
    + _LEVEL
    + rb"(?: +"
    + _NAME
    + rb": (?=[A-Z\[(]| {2,}\S)| +(?![|:\[ ]|[\w./-]+\.py:\d))"
    rb"| \| |[ \t]?[:,\-]+[ \t]*|[ \t](?:[ \t]*(?=\[|" + _LEVEL + rb"\b))?|$)"
    rb"|\[\w{3} \w{3} +\d+ \d\d:\d\d:\d\d \d{4}\] "  # dmesg -T
    rb"|(?:kernel: )?\[ *\d{1,9}\.\d{3,6}\] "  # dmesg
    rb"|\[\d+(?:\.[\w+]+)+\] "  # slurmstepd's step id
    rb"|\[?[EWIFD]\d{3,8} \d\d:\d\d:\d\d\.\d+ *(?:\d+ +)?[\w./+-]+:\d+\] ?"  # glog
    rb"|\[?[EWIFD] [\w./]+:\d+\] ?"
    rb"|\[PG (?:ID )?\d+[^\]]{0,80}\] ?"
    rb"|\[Rank \d+\] ?"
    rb"|\[" + _LEVEL + rb"(?:\|[^\]]{0,80})?\] *(?:>> )?"
    rb"|" + _LEVEL + rb" *\| *(?:[\w.<>]+:[\w<>]+:\d+ - )?"
    rb"|" + _LEVEL + rb"(?:[ :]+" + _STAMP + rb")? +(?:\[[\w./-]+:\d+\]|[\w./-]+\.py:\d+\]) "  # vLLM
    rb"|" + _LEVEL + rb":(?:[\w.]+:)? *(?=\S)"
    rb"|\[[\w./-]+:\d+\] |\[[\w.]+\] (?=\[)|[\w./]+\.(?:py|cc|cpp):\d+(?:\]|:| -) "
    rb"|\[(?:PID|RANK):\d+\] ",
)
_SPACE = b" \t\r"


@dataclass(frozen=True, slots=True)
class Line:
    """A line taken apart. `text` is the whole line without colours; `start` is where in it the message begins."""

    text: bytes
    start: int
    stream: Stream

    @property
    def message(self) -> bytes:
        """What the program said, without prefixes, its own indentation kept."""
        return self.text[self.start :]


def take_apart(raw: bytes) -> Line:
    """Strip colours and read the prefixes. Progress frames (`\\r`) are not divided here."""
    text = ANSI.sub(b"", raw) if b"\x1b" in raw else raw
    start, stream = 0, NOBODY
    for _ in range(4):
        found = _WHO.match(text, start)
        if found is None or found.end() == start:
            break
        start = found.end()
        stream = _merge(stream, found)
    for _ in range(6):
        logged = _LOGGER.match(text, start)
        if logged is None or logged.end() == start:
            break
        start = logged.end()
        again = _WHO.match(text, start)
        if again is not None and again.lastgroup != "label" and again.end() > start:
            start = again.end()
            stream = _merge(stream, again)
    return Line(text, start, stream)


def _merge(stream: Stream, found: re.Match[bytes]) -> Stream:
    got = {name: value.decode("latin-1") for name, value in found.groupdict().items() if value is not None}
    rank = got.get("rank") or got.get("arank") or got.get("local") or got.get("label") or got.get("mpi")
    actor = got.get("actor") or got.get("daemon") or got.get("container") or got.get("service")
    pid = got.get("pid") or got.get("hpid") or got.get("jpid")
    return Stream(
        task=got.get("task") or got.get("pod") or got.get("role") or stream.task,
        actor=actor if stream.actor is None else stream.actor if actor is None else f"{stream.actor}/{actor}",
        pid=int(pid) if pid else stream.pid,
        rank=int(rank) if rank else stream.rank,
        node=got.get("ip") or got.get("dip") or got.get("host") or got.get("nhost") or got.get("jhost") or stream.node,
    )
