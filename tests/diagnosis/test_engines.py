"""Both engines report the same lines, and a broken engine is found out by the catalogue's own examples."""

import random

import pytest

from supervisor.app.diagnose import Source, read_source
from supervisor.app.packs import Prepared, prepare
from supervisor.diagnosis.catalogue import Catalogue
from supervisor.diagnosis.engines import EngineUnavailable, HyperscanEngine, self_test
from supervisor.diagnosis.scan import plan


@pytest.fixture(scope="module")
def mixed(shipped: Prepared) -> bytes:
    """Every example of the shipped catalogue and near misses of it, under prefixes, among quiet lines."""
    whole = prepare(cached=False).catalogue
    rng = random.Random(7)
    lines: list[bytes] = []
    prefixes = [
        b"",
        b"[rank3]: ",
        b"(Worker pid=12) ",
        b"\x1b[36m(A pid=1)\x1b[0m ",
        b"ERROR 02-25 12:11:33 [core.py:1] ",
    ]
    for entry in whole.signatures:
        for example in (*entry.matches, *entry.spares):
            lines += [rng.choice(prefixes) + line for line in example.encode().split(b"\n")]
            lines.append(b"step %d says nothing at all \xe2\x96\x88" % rng.randrange(99))
    rng.shuffle(lines)
    return b"\n".join(lines) + b"\n"


@pytest.mark.slow
def test_the_fallback_engine_gives_identical_readings(shipped: Prepared, mixed: bytes):
    first = read_source(Source("job.log", data=mixed), shipped)
    second = read_source(Source("job.log", data=mixed), prepare(engine="re2", cached=False))

    assert len(first.hits) > 500
    assert [(hit.line, hit.code, hit.text) for hit in second.hits] == [
        (hit.line, hit.code, hit.text) for hit in first.hits
    ]
    assert second.marks == first.marks
    assert sorted(second.counts) == sorted(first.counts)


def test_an_engine_that_misses_an_example_is_refused(small: Catalogue):
    planned = plan(small)
    engine = HyperscanEngine(planned.patterns, planned.once)
    engine.scan = lambda *_: None  # type: ignore[method-assign]

    with pytest.raises(EngineUnavailable, match="misses"):
        self_test(engine, planned.patterns, small, planned.once)


@pytest.mark.slow
def test_a_damaged_cache_is_made_anew(tmp_path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    prepare()
    folder = tmp_path / "fleet-supervisor" / "signatures"
    written = sorted(folder.iterdir())
    for path in written:
        path.write_bytes(path.read_bytes()[:-10] + b"0123456789")
    answer = read_source(
        Source("x", data=b"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB\n"), prepare()
    )

    assert len(written) == 4
    assert len(answer.hits) == 1


def test_a_cache_folder_that_others_can_write_is_not_used(tmp_path, monkeypatch: pytest.MonkeyPatch):
    """A compiled database is code for the scanner; only the user's own may be loaded."""
    from supervisor.app.packs import cache_folder

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folder = cache_folder()
    assert folder is not None
    folder.chmod(0o777)

    assert cache_folder() is None
