"""Makes the engine that a database URL names."""

from holdfast.core.clock import Clock, SystemClock
from holdfast.engine.engine import Engine
from holdfast.errors import InvalidURL


def open_engine(
    url: str,
    *,
    schema: str = "holdfast",
    pooler: bool | None = None,
    auto_migrate: bool | None = None,
    clock: Clock | None = None,
    timeout: float = 30.0,
) -> Engine:
    """Return the engine for a URL. Its first call opens the database."""
    clock = clock or SystemClock()
    scheme = url.partition(":")[0].lower() if ":" in url else ""
    if scheme == "sqlite":
        from holdfast.engine.sqlite.engine import SqliteEngine

        return SqliteEngine.from_url(
            url, clock=clock, auto_migrate=auto_migrate is not False, timeout=timeout
        )
    if scheme in ("postgresql", "postgres"):
        try:
            from holdfast.engine.postgres.engine import PostgresEngine
        except ModuleNotFoundError as problem:
            raise InvalidURL(
                f"PostgreSQL needs the driver that is not installed ({problem}): "
                "pip install 'holdfast[postgres]'"
            ) from problem

        return PostgresEngine(
            url,
            schema=schema,
            pooler=pooler,
            clock=clock,
            auto_migrate=bool(auto_migrate),
            timeout=timeout,
        )
    raise InvalidURL(
        f"the database URL begins with {scheme or 'nothing'!r}: use 'sqlite:///jobs.db' (a file "
        "beside you), 'sqlite:////var/lib/jobs.db' (an absolute path) or 'postgresql://user@host/db'"
    )
