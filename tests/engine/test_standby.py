"""The standby of the tests' set-up: it follows its primary, refuses writes, and can be promoted."""

import psycopg
import pytest

from tests.support.server import PostgresServer
from tests.support.standby import StandbyServer, several_hosts


def test_a_standby_follows_refuses_writes_and_is_promoted() -> None:
    with PostgresServer(own=True) as primary, StandbyServer(primary) as standby:
        with psycopg.connect(primary.url(), autocommit=True) as connection:
            connection.execute("CREATE TABLE there AS SELECT 7 AS number")
        standby.catch_up()
        with psycopg.connect(standby.url(), autocommit=True) as connection:
            assert connection.execute("SELECT number FROM there").fetchone() == (7,)
            with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
                connection.execute("INSERT INTO there VALUES (8)")
        url = several_hosts(standby.url(), primary.url())
        with psycopg.connect(url, target_session_attrs="read-write") as connection:
            assert str(connection.info.port) in primary.url()
        primary.halt()
        standby.promote()
        with psycopg.connect(url, target_session_attrs="read-write") as connection:
            connection.execute("INSERT INTO there VALUES (8)")
            assert str(connection.info.port) in standby.url()
