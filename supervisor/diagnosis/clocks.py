"""Time stamps as programs print them, brought to one scale so that lines of different programs can be put in order.

Many loggers leave out the year, some the date; so a time is the seconds since the start of its year. Zones are not
compared: a job's programs run in one zone far more often than not, and the order of lines in a file goes before clocks.
"""

from __future__ import annotations

import re

_MONTHS = {name: number for number, name in enumerate(b"Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split(), 1)}
_DAYS_BEFORE = (0, 0, 31, 60, 91, 121, 152, 182, 213, 244, 274, 305, 335)
_STAMP = re.compile(
    rb"(?<!\d)(?:\d{4})-(?P<m1>\d\d)-(?P<d1>\d\d)[T _-](?P<t1>\d\d:\d\d:\d\d(?:[.,]\d{1,9})?)"
    rb"|(?<![\d-])(?P<m2>\d\d)-(?P<d2>\d\d) (?P<t2>\d\d:\d\d:\d\d(?:[.,]\d{1,9})?)"
    rb"|(?<![\w])[EWIFD](?:\d{4})?(?P<m3>\d\d?)(?P<d3>\d\d) (?P<t3>\d\d:\d\d:\d\d(?:[.,]\d{1,9})?)"
    rb"|\b(?P<m4>Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) +(?P<d4>\d\d?) (?P<t4>\d\d:\d\d:\d\d(?:[.,]\d{1,9})?)"
)
_REACH = 400
"""Stamps stand near the start of a line; further on they are somebody's data."""


def clock(text: bytes) -> float | None:
    """Seconds since the start of the year, from the first stamp near the start of a line."""
    found = _STAMP.search(text, 0, _REACH)
    if found is None:
        return None
    kind = str(found.lastgroup)[-1]
    month = _MONTHS.get(found["m4"], 0) if kind == "4" else int(found[f"m{kind}"])
    if not 1 <= month <= 12:
        return None
    hours, minutes, seconds = (float(part) for part in found[f"t{kind}"].replace(b",", b".").split(b":"))
    day = _DAYS_BEFORE[month] + int(found[f"d{kind}"]) - 1
    return day * 86400 + hours * 3600 + minutes * 60 + seconds


_TIME_OF_DAY = re.compile(rb"\[?(\d\d):(\d\d):(\d\d(?:[.,]\d{1,9})?)\]? ")


def time_of_day(text: bytes) -> float | None:
    """Seconds since midnight, of a line that begins with a time without a date."""
    found = _TIME_OF_DAY.match(text)
    if found is None:
        return None
    return int(found[1]) * 3600 + int(found[2]) * 60 + float(found[3].replace(b",", b"."))


def on_day_of(day: float, seconds: float) -> float:
    """A time of day put on the day of an earlier clock, or on the next one if it would lie long before it."""
    put = day // 86400 * 86400 + seconds
    return put + 86400 if put < day - 43200 else put
