"""Ray's own lines. Its wrapping of other programs' lines is taken off in ``line``; its chatter is a heartbeat at most."""

from __future__ import annotations

from supervisor.dialects.line import Line
from supervisor.model.readings import Reading, ReadingKind

NAME = "ray"
MARKS = (b"(raylet", b"(autoscaler", b"Started a local Ray instance", b"across cluster]")


def read(line: Line) -> list[Reading]:
    if line.speaker.startswith(("raylet", "autoscaler")):
        return [line.reading(ReadingKind.HEARTBEAT, NAME, label=line.speaker.split(" ", maxsplit=1)[0])]
    if "Started a local Ray instance" in line.text:
        return [line.reading(ReadingKind.BANNER, NAME, label="ray_up")]
    return []
