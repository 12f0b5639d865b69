"""``show JOB --plot METRIC…``: a job's metrics over its steps, in the terminal or as a PNG file. Libraries do the drawing."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from supervisor.model.errors import SupervisorError, UsageError
from supervisor.model.readings import Point
from supervisor.reports.text import plain

Series = Mapping[str, Sequence[Point]]


def drawn(
    url: str, job: Any, log_path: str | None, metrics: list[str], png: str | None, wide: int, colour: bool
) -> str:
    """The charts as text, or the line that says where the file is. Raises UsageError naming what could be drawn."""
    series, stored = _series(url, job, log_path), _stored(url, job, metrics)
    chosen = {name: _whole(stored[name], _points(series, name, job, told=bool(stored[name]))) for name in metrics}
    title = f"{plain(job.name)} {job.cluster}/{plain(job.id)}"
    if png is not None:
        _file(Path(png), title, chosen)
        return f"written: {png}\n"
    return "\n".join(_chart(f"{title}: {name}", points, wide, colour) for name, points in chosen.items())


def _series(url: str, job: Any, log_path: str | None) -> Series:
    """What its log told so far, step by step: newest 128 points of each metric."""
    from supervisor.dialects import summarise
    from supervisor.store.store import Store

    with Store.open(url, read_only=True) as store:
        cursors = store.log_cursors(job.row)
    state = next((each.state for each in cursors if each.path == log_path and each.state), None)
    return summarise(state, job.bucket).series if state is not None else {}


def _stored(url: str, job: Any, metrics: list[str]) -> dict[str, list[Point]]:
    """What each look at it kept of these metrics: further back than its log is remembered for, and thinner."""
    from supervisor.store.store import Store
    from supervisor.store.times import EPOCH

    with Store.open(url, read_only=True) as store:
        return {
            name: [Point(one.step, one.value, None, (), 0, None) for one in store.measurements(job.row, name, EPOCH)]
            for name in metrics
        }


def _whole(stored: Sequence[Point], told: Sequence[Point]) -> list[Point]:
    """Both, where they name steps: of those that the log is remembered for, the log's own."""
    first = min((point.step for point in told if point.step is not None), default=None)
    kept = {each.step: each for each in stored if each.step is not None and (first is None or each.step < first)}
    return [*sorted(kept.values(), key=lambda each: each.step or 0), *told]


def _points(series: Series, name: str, job: Any, *, told: bool) -> list[Point]:
    """``told``: the store knows something of it, so that a log which tells nothing of it is no mistake of the name."""
    from supervisor.dialects.vocabulary import canonical

    found = canonical(name)
    points = series.get(name) or (series.get(found[0]) if found is not None else None)
    if points or told:
        return list(points or ())
    known = ", ".join(sorted(series)) or "none yet"
    raise UsageError(
        f"show: --plot {plain(name)!r}: not told by the log of {job.cluster}/{plain(job.id)}; there are {known}"
    )


def _values(points: Sequence[Point]) -> tuple[list[float], list[float], int]:
    """Steps (or counts, where no step was named) and values; how many were no finite numbers and are left out."""
    kept = [(at if point.step is None else point.step, point.value) for at, point in enumerate(points)]
    finite = [(float(step), value) for step, value in kept if math.isfinite(value)]
    return [step for step, _ in finite], [value for _, value in finite], len(kept) - len(finite)


def _chart(title: str, points: Sequence[Point], wide: int, colour: bool) -> str:
    import plotext

    steps, values, lost = _values(points)
    words = f"{title} ({lost} values that are no finite numbers left out)" if lost else title
    if not values:
        return f"{words}: nothing to draw\n"
    plotext.clear_figure()
    plotext.theme("clear")
    plotext.plot_size(max(30, min(wide, 200)), 18)
    plotext.plot(steps, values, marker="braille")
    plotext.xlabel("step")
    text = str(plotext.build())
    return f"{words}\n{(text if colour else str(plotext.uncolorize(text))).rstrip()}\n"


def _file(path: Path, title: str, chosen: Mapping[str, Sequence[Point]]) -> None:
    from importlib.util import find_spec

    if find_spec("matplotlib") is None:
        raise SupervisorError(
            "show: --png needs matplotlib: install fleet-supervisor[plots]; without --png it draws here"
        )
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3 * len(chosen)), layout="constrained")
    for spot, (name, points) in enumerate(chosen.items(), 1):
        steps, values, lost = _values(points)
        axes = figure.add_subplot(len(chosen), 1, spot)
        axes.plot(steps, values, marker=".")
        axes.set_title(f"{title}: {name}" + (f" ({lost} not finite)" if lost else ""), fontsize=9, parse_math=False)
        axes.set_xlabel("step")
    try:
        FigureCanvasAgg(figure).print_figure(path, format="png", dpi=120)
    except OSError as error:
        raise SupervisorError(f"show: --png {path}: {error.strerror or error}") from error
