"""A kind of work: what tells it from others and what its table shows. Light: ``status`` loads it on its way to the tables."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Shown:
    """One column of a kind's own, between the job's name and the trend."""

    title: str
    cell: str
    """How a cell is made: ``metric``, ``percent`` (of a share), ``word``, ``steps`` (step/total), ``pair`` (two metrics), or
    ``infra`` (what the work stands on)."""
    key: str = ""
    """Metric key of the contract."""
    of: str = ""
    """For ``pair``: the key of the whole."""
    drop: int = 0
    """0: stays in the narrowest terminal; else the higher goes first."""


@dataclass(frozen=True, kw_only=True)
class Kind:
    """One kind of work: all that is particular to it, in one value (``buckets/<name>.py``)."""

    name: str
    title: str
    prefixes: tuple[str, ...] = ()
    """Job names that begin so belong to it (BUCKET-1)."""
    words: tuple[str, ...] = ()
    """Run tags: a name that holds one as a whole word, and no prefix of any kind, belongs to it."""
    commands: tuple[str, ...] = ()
    """Parts of a command line, or of a batch script's name, that give the kind away where the name says nothing; lower case."""
    needs_step: bool = False
    """Whether its dialects count steps, so that bare output is not yet progress (LIVE-3, LIVE-6)."""
    columns: tuple[Shown, ...] = ()
    trend: str = ""
    """Metric that the trend is drawn from."""
    good: str = ""
    """Where that metric should go: ``up``, ``down``, or empty for neither."""
    steady: float = 0.02
    """Change of the trend's metric over its window, as a share of its level, below which it is called steady."""
    exempt: tuple[str, ...] = ()
    """Parts of job names whose findings are observations, not calls to act (RL-3, EVAL-4)."""
    grid: bool = False
    """Whether many jobs of one stem are rolled up (SFT-3)."""
    regimes: bool = False
    """Whether rewards of different regimes stand in tables of their own (RL-7)."""
    cadence: str = ""
    """How often it speaks when all is well, for people."""
    ladder: str = ""
    """The clean-up that follows its end (CLEAN-1)."""
