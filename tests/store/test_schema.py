"""The schema: migrations make it, older ones are brought up, newer ones are refused."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory

from supervisor.model.errors import NotBegun, SchemaMismatch, StoreError
from supervisor.model.facts import Held
from supervisor.model.probe import Ruling
from supervisor.model.proposals import ProposalState, Stage
from supervisor.store.light import Light
from supervisor.store.revisions import HEAD, REVISIONS
from supervisor.store.schema import metadata
from supervisor.store.store import Store
from tests.postgres import PrivatePostgres
from tests.some import HOUR, MINUTE, NOON
from tests.store.some import full_job, poll
from tests.store.verdicts import some_verdict

DATA = Path(__file__).parent / "data"


def chain() -> Config:
    config = Config()
    config.set_main_option("script_location", "supervisor.store:migrations")
    return config


def bring_to(store: Store, revision: str) -> None:
    """As a program of that time did."""
    store._make_file()
    with store._db.write("test") as connection:
        config = chain()
        config.attributes["connection"] = connection
        command.upgrade(config, revision)


def tables(store: Store) -> set[str]:
    with store._db.read("test") as connection:
        return set(sa.inspect(connection).get_table_names())


# ---------------------------------------------------------------- one chain, one schema


def test_the_program_knows_exactly_the_chain_of_its_migrations() -> None:
    revisions = list(ScriptDirectory.from_config(chain()).walk_revisions())

    assert [one.revision for one in reversed(revisions)] == list(REVISIONS)
    assert all(not one.is_branch_point and not one.is_merge_point for one in revisions)


def test_the_folder_at_the_top_is_the_one_that_is_shipped() -> None:
    """House: ``migrations/`` lies at the top; an installed daemon finds the same files inside the package."""
    top = Path(__file__).parents[2] / "migrations"
    if not top.exists():
        pytest.skip("not run in a checkout")

    assert (top / "env.py").samefile(
        Path(chain().attributes.get("dir") or ScriptDirectory.from_config(chain()).dir) / "env.py"
    )


def sqlite_shape(path: Path) -> dict[str, str]:
    with closing(sqlite3.connect(path)) as connection:
        found = connection.execute(
            "SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL AND name NOT LIKE 'alembic%'"
        )
        return {name: " ".join(text.replace(" ,", ",").split()) for name, text in found}


def test_migrations_and_schema_make_the_same_sqlite_database(tmp_path: Path) -> None:
    with Store.open(f"sqlite:///{tmp_path / 'chain.db'}") as store:
        store.upgrade()
    engine = sa.create_engine(f"sqlite:///{tmp_path / 'schema.db'}")
    metadata.create_all(engine)
    engine.dispose()

    assert sqlite_shape(tmp_path / "chain.db") == sqlite_shape(tmp_path / "schema.db")


@pytest.mark.lab
def test_migrations_and_schema_make_the_same_postgresql_database(postgres: PrivatePostgres) -> None:
    by_chain, by_schema = postgres.new_database(), postgres.new_database()
    with Store.open(by_chain) as store:
        store.upgrade()
        with store._db.write("test") as connection:
            connection.exec_driver_sql("DROP TABLE alembic_version")
    engine = sa.create_engine(by_schema)
    metadata.create_all(engine)
    engine.dispose()

    def shape(url: str) -> str:
        return re.sub(r"\\(un)?restrict \S+", "", postgres.dump(url))

    assert shape(by_chain) == shape(by_schema)


# ---------------------------------------------------------------- upgrade


def test_an_upgrade_makes_the_file_and_its_folder_and_is_done_once(tmp_path: Path) -> None:
    with Store.open(f"sqlite:///{tmp_path / 'new' / 'folder' / 'store.db'}") as store:
        assert store.upgrade() == list(REVISIONS)
        assert store.upgrade() == []
        store.check_schema()
    assert (tmp_path / "new" / "folder" / "store.db").stat().st_mode & 0o007 == 0


def test_an_upgrade_of_an_empty_database(empty_url: str) -> None:
    with Store.open(empty_url) as store:
        assert store.upgrade() == list(REVISIONS)
        assert store.revision() == HEAD
        assert tables(store) == {*metadata.tables, "alembic_version"}


@pytest.mark.parametrize("revision", REVISIONS)
def test_every_earlier_database_is_brought_up_with_all_it_holds(empty_url: str, revision: str) -> None:
    """A stored sample of each revision, as it was written then."""
    with Store.open(empty_url) as store:
        bring_to(store, revision)
        with store._db.write("test") as connection:
            for line in (DATA / f"{revision}.sql").read_text().splitlines():
                if not line.startswith("--"):
                    connection.exec_driver_sql(line.replace("%", "%%") if not store._db.is_sqlite else line)

        store.upgrade()

        store.check_schema()
        jobs = {job.key.id: job for job in store.held("cluster-a", ended_after=NOON - HOUR)}
        assert jobs["4711"].having(row=None, version=0) == full_job()
        failed = jobs["43"].row or 0
        assert [step.transition.after.phase.value for step in store.transitions(failed)] == ["terminal"]
        assert [look.scheduler_state for look in store.changes(failed)] == ["RUNNING", "FAILED"]
        assert [one.value for one in store.measurements(jobs["4711"].row or 0, "reward", NOON)] == [0.619]
        assert [one.category for one in store.diagnoses(failed)] == ["nccl-timeout"]
        assert len(store.attempts(jobs["4711"].row or 0)) == len(store.log_cursors(jobs["4711"].row or 0)) == 1
        counts = (store.errands_open(), store.open_requests(), store.holds(), store.alerts(), store.heartbeats())
        assert [len(one) for one in counts] == [1] * 5
        if revision >= "0003":
            decided(store, jobs["4711"])


def decided(store: Store, job: Held) -> None:
    """A probe passed job 4711, the next one proposed its end, alice approved, and a hold voided that."""
    newest, first = store.verdicts(row=job.row)
    assert (first.verdict, newest.verdict) == (
        some_verdict(job, Ruling.NO_KILL),
        some_verdict(job, at=NOON + MINUTE),
    )
    assert store.standing("cluster-a")[job.key].id == newest.id
    assert store.passed_settings() == {"9c0f"}
    (proposal,) = store.proposals_of(job.row or 0)
    (decision,) = store.decisions(row=job.row)
    assert (proposal.verdict, proposal.state) == (newest.id, ProposalState.DONE)
    assert (decision.digest, decision.stage) == (newest.verdict.digest, Stage.VOID)


def test_of_two_daemons_that_upgrade_at_once_one_does(empty_url: str) -> None:
    Store.open(empty_url)._make_file()

    def upgrade(_: int) -> list[str]:
        with Store.open(empty_url) as store:
            return store.upgrade()

    with ThreadPoolExecutor(1) as one, ThreadPoolExecutor(1) as two:
        done = [one.submit(upgrade, 1), two.submit(upgrade, 2)]

    assert sorted(len(future.result()) for future in done) == [0, len(REVISIONS)]


def test_an_upgrade_that_fails_midway_leaves_nothing_behind(empty_url: str) -> None:
    with Store.open(empty_url) as store:
        store._make_file()
        with store._db.write("test") as connection:
            connection.exec_driver_sql(
                "CREATE VIEW measurement AS SELECT 1 AS one"
            )  # in the way of the tenth table or so

        with pytest.raises(StoreError, match="upgrading the schema"):
            store.upgrade()

        assert tables(store) == set()
        assert store.revision() is None


def test_tables_of_another_program_are_left_alone(empty_url: str) -> None:
    with Store.open(empty_url) as store:
        store._make_file()
        with store._db.write("test") as connection:
            connection.exec_driver_sql("CREATE TABLE job (x INTEGER)")

        with pytest.raises(SchemaMismatch, match=r"another program \(job\)"):
            store.upgrade()


# ---------------------------------------------------------------- refused


def set_revision(store: Store, revision: str) -> None:
    with store._db.write("test") as connection:
        connection.exec_driver_sql(f"UPDATE alembic_version SET version_num = '{revision}'")


def test_an_older_program_refuses_a_newer_schema(store: Store, url: str) -> None:
    """With a clear line that says what to do, by whichever way it looks."""
    store.record(poll(full_job()))
    set_revision(store, "9999")
    looks: list[Callable[[], object]] = [store.check_schema, store.upgrade, store.check, lambda: Light.open(url)]

    for look in looks:
        with pytest.raises(SchemaMismatch, match=r"9999, which is newer than this program .* upgrade fleet-supervisor"):
            look()

    set_revision(store, HEAD)
    assert len(store.held("cluster-a", ended_after=NOON)) == 1


def test_a_database_without_a_schema_is_told_from_a_newer_one(empty_url: str) -> None:
    with Store.open(empty_url) as store:
        with pytest.raises(NotBegun, match=r"no schema yet: .*supervisorctl db upgrade"):
            store.check_schema()
        store._make_file()
        with pytest.raises(NotBegun, match="no schema yet"):
            store.check_schema()
        with pytest.raises(NotBegun, match="no schema yet"):
            Light.open(empty_url)


def test_migrations_are_run_by_the_store_alone() -> None:
    from supervisor.model.errors import UsageError

    with pytest.raises(UsageError, match="supervisorctl db upgrade"):
        command.upgrade(chain(), "head")
