"""Whatever stands in an evidence folder, a gate scores it: it never raises, and what it quotes stands there (PROBE-2, PROBE-4)."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from supervisor import gates
from supervisor.gates import proof, restarts
from supervisor.model.findings import Quote
from supervisor.model.probe import Cause, Mark, PastAttempt, Ruling, Score
from supervisor.rules.verdict import rule
from tests.gates.cases import Failed, assert_quotes_stand, some_case
from tests.gates.test_liveness import ENGINE, GENERATING, LOADING, STEPS, rl_log

SAMPLES = Path(__file__).parent / "samples"
REAL = sorted(
    {
        line
        for path in SAMPLES.rglob("*.*")
        for line in path.read_text().splitlines()[:40]
        if path.suffix in (".txt", ".json", ".csv")
    }
)
SAID = [
    *STEPS.splitlines(),
    *rl_log().splitlines(),
    LOADING,
    GENERATING.format(at="11:00:00.000"),
    "\r10/10\r",
    "\x1b[2J",
    "a\x00b",
]
SAID += [
    ENGINE.format(at="11:59:00", tps="nan", running="9" * 30),
    "{'loss': nan, 'epoch': 1e999}",
    "# sample 2 at 9e99",
]

line = st.sampled_from(REAL) | st.sampled_from(SAID) | st.text(max_size=30)
line = line | st.binary(max_size=30).map(lambda data: data.decode("utf-8", "surrogateescape"))
text = st.lists(line, max_size=12).map("\n".join)
piece = text | text.map(Failed)
names = st.sampled_from(
    ["record.txt", "log.txt", "session-n1-worker.out", "processes-n1.txt", "processes-n2.txt", "stack-n1.txt", "gpu-n1.csv",
     "gpu-processes-n1.csv", "devices-n1.txt", "memory-n1.txt", "checkpoints.txt", "script.sh"]
)  # fmt: skip
folders = st.dictionaries(names, piece, max_size=9)
ages = st.sampled_from(
    [None, timedelta(0), timedelta(minutes=20), timedelta(hours=9), timedelta(days=900), -timedelta(hours=1)]
)
buckets = st.sampled_from(["rl", "sft", "datagen", "eval", "other"])
quotes = st.builds(Quote, st.sampled_from(["log.txt", "absent"]), st.none() | st.integers(-1, 9), st.text(max_size=5))
causes = st.builds(
    Cause,
    category=st.sampled_from(["nccl-timeout", "gpu-oom", "engine-dead", "odd"]),
    confidence=st.sampled_from(["high", "low"]),
    fingerprint=st.just("f"),
    quotes=st.lists(quotes, max_size=2).map(tuple),
    action=st.just(""),
    transience=st.just("unknown"),
)
ends = st.builds(
    PastAttempt,
    name=st.just("attempt 1"),
    state=st.none(),
    category=st.none() | st.just("gpu-oom"),
    fingerprint=st.none() | st.just("f"),
    quote=st.none() | quotes,
    step=st.none() | st.integers(0, 9),
)


@given(
    folders,
    ages,
    buckets,
    st.dictionaries(st.just("log.txt"), causes),
    st.lists(ends, max_size=4),
    st.none() | st.integers(0, 99),
)
def test_no_folder_makes_a_gate_raise_or_quote_what_is_not_there(folder, age, bucket, found, past, step):
    case = some_case(folder, bucket=bucket, silent_for=age, causes=found, past=past, step=step)

    scores = gates.judge(case)
    checked = proof.check(case.lines, scores)
    burn = proof.check_restarts(case.lines, restarts.judge(case))
    verdict = rule(case, checked, burn, evidence="probes/1", mark=Mark(at=case.at, step=step))

    if not found:
        for score in scores:
            assert_quotes_stand(case, score.quotes)
        assert checked == scores
    if verdict.ruling is Ruling.KILL:
        assert verdict.cause
        assert all(score.result is not Score.ERROR for score in verdict.gates)
