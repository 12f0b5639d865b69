"""Each entry that comes with the program against its own examples and all others'; none may slow the scan."""

from __future__ import annotations

import time

import pytest

from supervisor.app import packs
from supervisor.diagnosis.catalogue import Catalogue
from supervisor.diagnosis.examples import check
from supervisor.diagnosis.patterns import Pattern
from supervisor.diagnosis.scan import Plan, plan
from supervisor.model.diagnosis import CATEGORIES

hyperscan = pytest.importorskip("hyperscan")
DEAREST_SHARE = 0.03


@pytest.fixture(scope="module")
def whole() -> Catalogue:
    return packs.catalogue(strict=True)


def test_every_entry_matches_its_examples_spares_its_near_misses_and_minds_its_own(whole: Catalogue):
    assert [f"{problem.pack}: {problem.code}: {problem.text}" for problem in check(whole)] == []


def test_every_fault_of_the_taxonomy_has_an_entry_that_names_it(whole: Catalogue):
    named = {entry.category for entry in whole.signatures}

    assert CATEGORIES - named - {"none", "unread", "silent-hang", "rank-crash"} == set()


def test_there_are_several_hundred_entries_with_reasons(whole: Catalogue):
    assert len(whole.signatures) >= 400
    assert [entry.code for entry in whole.signatures if len(entry.why) < 10] == []


def quiet_log() -> bytes:
    """Three megabytes of what long runs print, with the common words that careless patterns begin with."""
    lines = [
        "(EngineCore_DP0 pid=77) INFO 07-04 03:00:%02d [loggers.py:259] Engine 000: Avg prompt throughput: 410.5 tokens/s, "
        "Avg generation throughput: 812.4 tokens/s, Running: 12 reqs, Waiting: 0 reqs, GPU KV cache usage: 12.4%%",
        "[rank%d] step 812 loss 2.2310 grad_norm 0.41 lr 1.2e-05 tok/s 41233 memory 61.20 GiB",
        "node-11:912:13%02d [2] NCCL INFO Channel 00/0 : 1[1] -> 2[2] [send] via NET/IB/3/GDRDMA",
        "2026-07-04 03:00:%02d.113 | INFO     | trainer.core:log:90 - worker finished batch, waiting for rollout, exit code 0",
        'INFO:     10.0.0.4:501%02d - "POST /v1/chat/completions HTTP/1.1" 200 OK',
        "WARNING 07-04 03:00:%02d [scheduler.py:812] request is preempted, timeout 30 s, error count 0, failed 0",
    ]
    block = "\n".join(line % (n % 60) for n in range(60) for line in lines) + "\n"
    return (block * (3 * 1024 * 1024 // len(block) + 1)).encode()


def build(patterns: list[Pattern], once: set[int]):
    database = hyperscan.Database(mode=hyperscan.HS_MODE_BLOCK)
    database.compile(
        expressions=[pattern.engine.encode("latin-1") for pattern in patterns],
        ids=list(range(len(patterns))),
        flags=[
            (hyperscan.HS_FLAG_CASELESS if pattern.caseless else 0)
            | (hyperscan.HS_FLAG_SINGLEMATCH if number in once else 0)
            for number, pattern in enumerate(patterns)
        ],
    )
    return database, hyperscan.Scratch(database)


def seconds(built, log: bytes, rounds: int = 5) -> float:
    database, scratch = built
    took = []
    for _ in range(rounds):
        before = time.process_time()
        database.scan(log, match_event_handler=lambda *_: None, scratch=scratch)
        took.append(time.process_time() - before)
    return min(took)


def suspicious(planned: Plan, log: bytes) -> list[int]:
    """The patterns whose plain text is commonest in quiet logs; only these can be dear."""
    lower = log.lower()

    def often(number: int) -> int:
        pattern = planned.patterns[number]
        text = lower if pattern.caseless else log
        return sum(text.count(anchor.lower() if pattern.caseless else anchor) for anchor in pattern.anchors)

    return sorted(range(2, len(planned.patterns)), key=often, reverse=True)[:32]


@pytest.mark.slow
def test_no_entry_alone_costs_more_than_a_few_per_cent_of_the_scan(whole: Catalogue):
    """What an entry adds to a scan of a quiet log, as a share of the whole catalogue's scan."""
    planned = plan(whole)
    log = quiet_log()
    suspects = suspicious(planned, log)
    whole_s = seconds(build(planned.patterns, set(planned.once)), log)
    rest = [n for n in range(2, len(planned.patterns)) if n not in suspects and n not in planned.once][::8]
    base = [planned.patterns[number] for number in rest]
    base_built = build(base, set())
    dear = []
    for number in suspects:
        built = build([*base, planned.patterns[number]], {len(base)} if number in planned.once else set())
        added = sorted(seconds(built, log) - seconds(base_built, log) for _ in range(3))[1]
        if added / whole_s > DEAREST_SHARE:
            dear.append(f"{planned.entries[number - 2].code} costs {added / whole_s:.1%} of the scan")

    assert dear == []
