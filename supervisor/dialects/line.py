"""One line as it was meant: colour codes off first, then the wrappings of iris, launchers, Ray and loggers, in that order.

The raw text stays beside it for quotes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date

from supervisor.model.readings import Reading, ReadingKind, Spoken

QUOTED = 65536
"""Characters of raw text kept with a reading; the run's state keeps far less (see ``quotes``)."""

ESCAPES = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_KUBE = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)) (?:std(?:out|err) [FP] )?")
_IRIS = re.compile(r"\[(\d\d):(\d\d):(\d\d)\] (?:worker=\S+ )?task=(\S+)(?: \(?attempt=(\d+)\)?)? \| ?")
_RANK = re.compile(r"\[(?:rank|Rank |default|default_)?(\d{1,5})\]:? ?")
_SRUN = re.compile(r" {0,4}(\d{1,4}): (?=\S)")
_RAY = re.compile(
    r"\((?:(raylet|autoscaler[^)]*|gcs_server)|([A-Za-z_][^()]{0,120}?),? ?\bpid=(\d+)"
    r"(?:, ip=([0-9a-fA-F.:]+))?(?:, [^()]{0,60})?)\) ?"
)
_REPEATED = re.compile(r" ?\[repeated (\d+)x across cluster\](?: \(Ray deduplicates logs[^)]*\))?\s*$")
_VLLM_PROCESS = re.compile(r"(?:APIServer|EngineCore|VllmWorker|Worker_?(?:TP|PP|DP|EP)?\d|WorkerProc|ApiServer)")
_FULL = re.compile(r"(\d{4})-(\d\d)-(\d\d)[ T_](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))?(Z|[+-]\d\d:\d\d)?")
_SHORT = re.compile(r"(?<![\d-])(\d\d)-(\d\d) (\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))?")
_GLOG = re.compile(r"[IWEFD](\d\d)(\d\d) (\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))?")
_LOGGER = re.compile(
    "|".join(
        (
            r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:[.,]\d+)?\s*\|\s*[A-Z]+\s*\|\s*(?:[^|]{0,160}? - )?",  # loguru
            r"\[[A-Z]+\|[^\]]{1,80}\] ?(?:\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d+ )?>> ",  # transformers
            r"(?:\[titan\] )?\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d+ - [\w.]+ - [A-Z]+ - ",  # logging.basicConfig
            r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d+\] ?\[[A-Z]+\] ?(?:\[[^\]]{1,120}\] ?)*",  # deepspeed
            r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d+\s+[A-Z]+ [\w.]+:\d+ -- ",  # ray
            r"[A-Z]{4,8} \d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)? (?:\[[^\]]{1,80}\]|[\w./]+:\d+\]) ?",  # vllm
            r"[IWEF]\d{4,8} \d\d:\d\d:\d\d(?:\.\d+)? +(?:\d+ )?(?:[\w./]+:\d+\] ?)?",  # glog
            r"\[?\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:[.,]\d+)?Z?\]?(?: ?\[[^\]]{1,80}\])?(?: -)?(?: \[?[A-Z]{4,8}\]?)?(?::| -)? ?",
        )
    )
)
_DIGITS = frozenset(" 0123456789")
_LOGGER_STARTS = frozenset("[0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ")
_EPOCH = date(1970, 1, 1).toordinal()
DAY = 86400.0


@dataclass(frozen=True, slots=True)
class Stamp:
    """A clock time as printed; what was not printed is None."""

    year: int | None
    month: int | None
    day: int | None
    second: float
    """Of the day; may lie outside it by a printed zone's offset."""


@dataclass(frozen=True, slots=True)
class Line:
    """A frame of the log, unwrapped. ``body`` has lost the wrappings and a logger's prefix, ``text`` only the wrappings."""

    offset: int
    number: int | None
    raw: str
    text: str
    body: str
    speaker: str
    rank: int | None
    aggregated: bool
    repeated: int
    clock_s: float | None
    """Seconds since 1970 on the log's own clock, where the line bears a time."""

    def reading(
        self,
        kind: ReadingKind,
        dialect: str,
        *,
        label: str = "",
        detail: str = "",
        step: int | None = None,
        total: int | None = None,
        metrics: dict[str, float] | None = None,
        elapsed_s: float | None = None,
        ahead: bool = False,
    ) -> Reading:
        """A reading that quotes this line."""
        return Reading(
            kind=kind,
            dialect=dialect,
            said=(self.spoken(),),
            label=label,
            detail=detail,
            step=step,
            total=total,
            metrics=metrics or {},
            elapsed_s=elapsed_s,
            clock_s=self.clock_s,
            speaker=self.speaker,
            rank=self.rank,
            aggregated=self.aggregated,
            repeated=self.repeated,
            ahead=ahead,
        )

    def spoken(self) -> Spoken:
        return Spoken(self.offset, self.number, self.raw[:QUOTED])


def plain(text: str) -> str:
    """The text without terminal escape codes."""
    return ESCAPES.sub("", text) if "\x1b" in text else text


def unwrap(raw: str, offset: int = 0, number: int | None = None, last_clock: float | None = None) -> Line:
    """Takes the wrappings off one frame. Any text at all is a line; nothing here can fail.

    ``last_clock``: the clock of the log before this line, which lends a year or a day to one that prints none.
    """
    text = plain(raw).rstrip().removeprefix("\ufeff")
    speaker, rank, aggregated, repeated = "", None, False, 0
    outer: Stamp | None = None
    if text[:1] == "2" and (found := _KUBE.match(text)) is not None:
        outer = _full(found[1])
        text = text[found.end() :]
    if text[:1] == "[" and (found := _IRIS.match(text)) is not None:
        outer = outer or Stamp(None, None, None, _of_day(found[1], found[2], found[3], None))
        text = text[found.end() :]
    head = text[:1]
    if (head == "[" and (found := _RANK.match(text)) is not None) or (
        head in _DIGITS and (found := _SRUN.match(text)) is not None
    ):
        rank = int(found[1])
        text = text[found.end() :]
    while text[:1] == "(" and (found := _RAY.match(text)) is not None:
        name = (found[1] or found[2] or "").strip()
        if _VLLM_PROCESS.match(name) is None:
            aggregated = True
        speaker = f"{speaker}/{name}" if speaker else name
        text = text[found.end() :]
    if rank is None and (found := _RANK.match(text)) is not None and text.startswith(("[rank", "[Rank")):
        rank = int(found[1])
        text = text[found.end() :]
    if text.endswith(("cluster]", ")")) and (found := _REPEATED.search(text)) is not None:
        repeated = int(found[1])
        aggregated = True
        text = text[: found.start()]
    body = text
    if text[:1] in _LOGGER_STARTS and (found := _LOGGER.match(text)) is not None:
        body = text[found.end() :]
    stamp = stamp_of(text) or outer
    clock_s = None if stamp is None else seconds(stamp, last_clock)
    return Line(offset, number, raw, text, body, speaker, rank, aggregated, repeated, clock_s)


def stamp_of(text: str) -> Stamp | None:
    """The clock time that stands near the beginning of a line, if any."""
    if text[:1] == "{":
        return None
    head = text[:160]
    if (found := _GLOG.match(head)) is not None and 1 <= int(found[1]) <= 12:
        return Stamp(None, int(found[1]), int(found[2]), _of_day(found[3], found[4], found[5], found[6]))
    if (found := _FULL.search(head)) is not None:
        return _full(found[0])
    if (found := _SHORT.search(head)) is not None:
        return Stamp(None, int(found[1]), int(found[2]), _of_day(found[3], found[4], found[5], found[6]))
    return None


def seconds(stamp: Stamp, last: float | None) -> float | None:
    """Seconds since 1970 on the log's own clock. ``last``: the clock before it, which lends the year or the day.

    A time without its year that falls half a year behind is taken as the next year's; one without its day that falls
    half a day behind, as the next day's. None for a date that does not exist.
    """
    try:
        if stamp.month is None or stamp.day is None:
            day = _EPOCH if last is None else _EPOCH + int(last // DAY)
            value = (day - _EPOCH) * DAY + stamp.second
            if last is None:
                return value
            return value + DAY if last - value > DAY / 2 else value - DAY if value - last > DAY / 2 else value
        year = stamp.year
        if year is None:
            year = 1970 if last is None else date.fromordinal(_EPOCH + int(last // DAY)).year
        value = (date(year, stamp.month, stamp.day).toordinal() - _EPOCH) * DAY + stamp.second
        if stamp.year is None and last is not None and last - value > 183 * DAY:
            value = (date(year + 1, stamp.month, stamp.day).toordinal() - _EPOCH) * DAY + stamp.second
        return value
    except (ValueError, OverflowError):
        return None


def _full(text: str) -> Stamp | None:
    found = _FULL.match(text)
    if found is None:
        return None
    second = _of_day(found[4], found[5], found[6], found[7])
    zone = found[8]
    if zone and zone != "Z":
        sign = -1 if zone[0] == "+" else 1
        second += sign * (int(zone[1:3]) * 3600 + int(zone[4:6]) * 60)
    return Stamp(int(found[1]), int(found[2]), int(found[3]), second)


def _of_day(hours: str, minutes: str, second: str, fraction: str | None) -> float:
    whole = int(hours) * 3600 + int(minutes) * 60 + int(second)
    return whole + (int(fraction) / 10 ** len(fraction) if fraction else 0.0)
