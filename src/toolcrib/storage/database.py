"""The connection pools, and the tenant for whom every statement runs."""

import asyncio
import select
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any, LiteralString, Self, TypeVar

import psycopg
from psycopg import AsyncConnection, AsyncCursor, errors
from psycopg.abc import PQGen
from psycopg.rows import dict_row
from psycopg_pool import AsyncConnectionPool, TooManyRequests
from pydantic import TypeAdapter

from toolcrib.core.callers import Caller, WorkspaceRole
from toolcrib.core.errors import (
    Conflict,
    DatabaseBusy,
    Forbidden,
    HomeMoved,
    Misconfigured,
    NotFound,
    Superseded,
    Unauthenticated,
)
from toolcrib.core.idempotency import EffectKind, current_claim
from toolcrib.core.ids import ProcessId, UserId, WorkspaceId
from toolcrib.runtime.traces import is_tracing, is_within_span, span
from toolcrib.storage.database_connections import ANSWER_SECONDS, unanswered, with_tcp_deadlines
from toolcrib.storage.migrate import newest_revision

T = TypeVar("T")
Parameters = Sequence[Any] | Mapping[str, Any]


class Connection(AsyncConnection[tuple[Any, ...]]):
    """A connection of the pools, with short forms for statements that return rows.

    It is closed if a statement has no answer for ``answer_seconds``.
    """

    answer_seconds: float = ANSWER_SECONDS

    async def wait(self, gen: PQGen[T], interval: float = 0.1, timeout: float | None = None) -> T:  # noqa: ASYNC109
        """Wait for the answer of the database.

        Raises:
            OperationalError: There was none in time. The connection is closed.
        """
        if timeout is not None:
            return await super().wait(gen, interval, timeout)
        try:
            return await super().wait(gen, interval, self.answer_seconds)
        except errors._WaitTimeout:
            self.pgconn.finish()
            raise unanswered(self.answer_seconds) from None

    async def fetch_row(
        self, statement: LiteralString, parameters: Parameters | None = None, *, prepare: bool | None = None
    ) -> tuple[Any, ...] | None:
        """Execute a statement and return its first row, if it has any."""
        return await (await self.execute(statement, parameters, prepare=prepare)).fetchone()

    async def returned_row(
        self, statement: LiteralString, parameters: Parameters | None = None, *, prepare: bool | None = None
    ) -> tuple[Any, ...]:
        """Execute a statement that always returns a row, and return it."""
        row = await self.fetch_row(statement, parameters, prepare=prepare)
        assert row is not None, statement
        return row

    async def fetch_all(self, kind: type[T], statement: LiteralString, parameters: Parameters | None = None) -> list[T]:
        """Execute a statement and return its rows as values of a type; see ``parse_row``."""
        cursor = self.cursor(row_factory=dict_row)
        await cursor.execute(statement, parameters)
        return [parse_row(kind, row) for row in await cursor.fetchall()]

    async def fetch_one(
        self, kind: type[T], statement: LiteralString, parameters: Parameters | None = None
    ) -> T | None:
        """Execute a statement and return its first row as a value of a type, if it has any; see ``parse_row``."""
        cursor = self.cursor(row_factory=dict_row)
        await cursor.execute(statement, parameters)
        row = await cursor.fetchone()
        return None if row is None else parse_row(kind, row)


_ADAPTERS: dict[type, TypeAdapter[Any]] = {}


def parse_row(kind: type[T], row: Mapping[str, Any]) -> T:
    """Create a value from a row: each column fills the field of its name, text becomes an enum, an array a tuple."""
    adapter = _ADAPTERS.get(kind) or _ADAPTERS.setdefault(kind, TypeAdapter(kind))
    value: T = adapter.validate_python(row)
    return value


Pool = AsyncConnectionPool[Connection]

NOT_A_MEMBER = "Access forbidden: User is not a member of this workspace"


@dataclass(frozen=True, slots=True)
class Tenant:
    """For whom a statement runs. Without a user it is the system, which is not a member but sees the workspace."""

    workspace_id: WorkspaceId
    user_id: UserId | None = None
    token_version: int | None = None
    agent_id: object = None

    @classmethod
    def of(cls, caller: Caller) -> Self:
        """Return the tenant of a caller."""
        return cls(caller.workspace_id, caller.user_id, caller.token_version, caller.agent.id if caller.agent else None)

    @property
    def parameters(self) -> tuple[Any, ...]:
        """The parameters of the database functions that set the tenant, in their order."""
        return (self.user_id, self.token_version, self.workspace_id, self.agent_id)


# All statements are short and look up rows by key. So plans are generic and made once; they use indexes, because a plan
# that scans a small table would be kept when the table has grown; and JIT compilation would cost more than it saves.
_OPTIONS = " ".join(
    f"-c {option}"
    for option in (
        "search_path=toolcrib",
        "plan_cache_mode=force_generic_plan",
        "enable_seqscan=off",
        "enable_hashjoin=off",
        "enable_mergejoin=off",
        "enable_bitmapscan=off",
        "jit=off",
        # A statement that waits for a lock holds a connection: one stuck lock must not use up the pool.
        "lock_timeout=20s",
        # A process that was suspended within a transaction would keep its locks as long as it is suspended.
        "idle_in_transaction_session_timeout=300s",
        # A session whose process cannot be reached keeps its locks until the database notices; by default after hours.
        "tcp_keepalives_idle=10",
        "tcp_keepalives_interval=5",
        "tcp_keepalives_count=3",
    )
)


class Database:
    """Two pools on one database: the server's, under row-level security, and the system's."""

    def __init__(self, app: Pool, system: Pool) -> None:
        self._app = app
        self._system = system

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        app_dsn: str,
        system_dsn: str,
        *,
        pool_size: int = 16,
        process_id: ProcessId | None = None,
        answer_seconds: float = ANSWER_SECONDS,
    ) -> AsyncIterator[Self]:
        """Open both pools.

        Args:
            answer_seconds: How long a statement may have no answer.
            process_id: The server process. If it dies, others find its sessions by this id and end them.
        """
        async with (
            _pool(app_dsn, session_name("toolcrib", process_id), pool_size, answer_seconds) as app,
            _pool(
                system_dsn, session_name("toolcrib-system", process_id), max(2, pool_size // 4), answer_seconds
            ) as system,
        ):
            database = cls(app, system)
            await database._reject_what_is_unsafe()
            yield database

    @asynccontextmanager
    async def connection(self, tenant: Tenant | None = None) -> AsyncIterator[Connection]:
        """Return a connection in autocommit, for single statements that set their tenant themselves."""
        pool = self._system if tenant and tenant.user_id is None else self._app
        async with _borrowed_connection(pool) as connection:
            with translate_error():
                yield connection

    @asynccontextmanager
    async def transaction(
        self, tenant: Tenant, needs: WorkspaceRole = WorkspaceRole.VIEWER
    ) -> AsyncIterator[Connection]:
        """Open a transaction in a workspace.

        Raises:
            Forbidden: The user is not a member, or not of the role that is needed.
        """
        async with self.connection(tenant) as connection, marked_transaction(connection):
            if tenant.user_id is not None:
                row = await connection.fetch_row("select toolcrib.enter_workspace(%s, %s, %s, %s)", tenant.parameters)
                require(row[0] if row else None, needs)
                if (claim := current_claim()) is not None:
                    claim.note_role(needs)
            yield connection

    @asynccontextmanager
    async def as_system(self) -> AsyncIterator[Connection]:
        """Return a connection that sees every workspace, for recovery, sealing and garbage collection only."""
        async with _borrowed_connection(self._system) as connection:
            yield connection

    @asynccontextmanager
    async def as_user(self, user_id: UserId) -> AsyncIterator[Connection]:
        """Open a transaction for a person's own rows, outside any workspace."""
        async with self.connection() as connection, marked_transaction(connection):
            await connection.execute("select toolcrib.set_current_user(%s)", (user_id,))
            yield connection

    @property
    def pools(self) -> dict[str, "PoolUse"]:
        """How much of each pool is in use."""
        return {"app": PoolUse.of(self._app), "system": PoolUse.of(self._system)}

    async def _reject_what_is_unsafe(self) -> None:
        async with self._app.connection() as connection:
            row = await connection.returned_row(
                """
                select r.rolname, r.rolsuper, r.rolbypassrls,
                       exists (select from pg_class c join pg_namespace n on n.oid = c.relnamespace
                               where n.nspname = 'toolcrib' and pg_has_role(c.relowner, 'member')),
                       to_regclass('toolcrib.alembic_version') is not null
                from pg_roles r where r.rolname = session_user
                """
            )
            name, is_super, bypasses, owns, has_schema = row
            if not has_schema:
                raise Misconfigured(
                    "The database has no Toolcrib schema. Run `toolcrib db upgrade` as its owner first."
                )
            if is_super or bypasses or owns:
                why = "is a superuser" if is_super else "bypasses row-level security" if bypasses else "owns the tables"
                raise Misconfigured(
                    f"The database role {name!r} {why}, so row-level security would not apply. "
                    "Use the role `toolcrib_app`, which `toolcrib db upgrade` creates."
                )
            cursor = await connection.execute("select version_num from toolcrib.alembic_version")
            found = await cursor.fetchone()
            if found is None or found[0] != newest_revision():
                raise Misconfigured(
                    f"The database is at revision {found and found[0]}, this program needs {newest_revision()}. "
                    "Run `toolcrib db upgrade`."
                )


@dataclass(frozen=True, slots=True)
class PoolUse:
    """The connections of a pool, and what its users had to wait since it was opened."""

    maximum: int
    open: int
    idle: int
    waiting: int
    requests: int
    waited_seconds: float
    errors: int

    @classmethod
    def of(cls, pool: Pool) -> Self:
        """Read the pool's own counts."""
        found = pool.get_stats()
        return cls(
            maximum=found["pool_max"],
            open=found["pool_size"],
            idle=found["pool_available"],
            waiting=found.get("requests_waiting", 0),
            requests=found.get("requests_num", 0),
            waited_seconds=found.get("requests_wait_ms", 0) / 1000,
            errors=found.get("requests_errors", 0),
        )


class Store:
    """Base of the classes with the queries of one aggregate."""

    def __init__(self, database: Database) -> None:
        self._database = database


@asynccontextmanager
async def marked_transaction(connection: Connection) -> AsyncIterator[None]:
    """Open a transaction. If it writes, it notes at the request's idempotency key that there is an effect.

    A lock of a row counts as a write: a transaction that locks must write too, or be rolled back.

    Raises:
        Superseded: Another attempt of the request has begun. Nothing is committed.
    """
    async with connection.transaction():
        yield
        claim = current_claim()
        # The row of a call is its own mark.
        if claim is not None and claim.kind is not EffectKind.CALL:
            await connection.execute(
                "select toolcrib.mark_idempotency_key(%s, %s, %s, %s, %s)",
                (claim.user_id, claim.caller_id, claim.key_hash, claim.effect_id, claim.attempt),
            )


def require(role: str | None, needs: WorkspaceRole) -> WorkspaceRole:
    """Raise Forbidden unless the role is sufficient: the application's check besides row-level security."""
    if role is None:
        raise Forbidden(NOT_A_MEMBER)
    held = WorkspaceRole(role)
    if not held.covers(needs):
        raise Forbidden(f"Your role here is {held}; this needs {needs}. Ask an owner of the workspace.")
    return held


@asynccontextmanager
async def _borrowed_connection(pool: Pool) -> AsyncIterator[Connection]:
    """Return a connection, unless the task was cancelled while it waited for one.

    The pool uses ``wait_for``, which in Python 3.11 loses a cancellation that arrives together with the connection: a
    server that is stopped would not stop, and a cancelled run would continue.
    """
    task = asyncio.current_task()
    before = task.cancelling() if task else 0
    # Not ``pool.connection()``, which commits at the end: connections are in autocommit.
    connection = await _open_connection(pool)
    try:
        if task is not None and task.cancelling() > before:
            raise asyncio.CancelledError
        yield connection
    except psycopg.Error as error:
        if connection.closed and not isinstance(error, psycopg.OperationalError):
            # The driver reports a lost connection in several ways, such as a transaction that cannot be ended.
            raise psycopg.OperationalError(f"The connection to the database was lost: {error}") from error
        raise
    finally:
        await pool.putconn(connection)


async def _open_connection(pool: Pool) -> Connection:
    """Return a connection whose session the server has not ended. To an idle session it sends nothing else."""
    connection = await pool.getconn()
    if not has_input(connection):
        return connection
    try:
        await pool.check_connection(connection)
    except psycopg.OperationalError:
        # It is replaced, and so are the others that were ended with it.
        await pool.putconn(connection)
        await pool.check()
        return await pool.getconn()
    except BaseException:
        await pool.putconn(connection)
        raise
    return connection


def has_input(connection: Connection) -> bool:
    """Return whether something arrived that nobody has read: between statements, that the session was ended.

    Does not wait.
    """
    if connection.closed:
        return True
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN)
    return bool(poll.poll(0))


def session_name(name: str, process_id: ProcessId | None) -> str:
    """Return the application name of a server process's database sessions."""
    return f"{name} {process_id}" if process_id else name


class LockNotAvailable(DatabaseBusy, errors.LockNotAvailable):
    """A lock was not free in time: an error of ours, and one of the database, so that loops which outlive it go on."""


@contextmanager
def translate_error() -> Iterator[None]:
    """Translate database errors into ours."""
    try:
        yield
    except psycopg.Error as error:
        match error.sqlstate:
            case "TC401":
                raise Unauthenticated("This token was revoked. Log in again.") from None
            case "TC409":
                raise Superseded("Another process has taken over this run.") from None
            case "TC421":
                raise HomeMoved("This workspace moved to another node. Call that node.") from None
            case "TC404":
                raise NotFound("There is no such session in this workspace.") from None
            case "TC410":
                raise Superseded("This call has already ended. Fetch its outcome by its id.") from None
            case "TC412":
                raise Conflict(
                    "Someone else has decided about one of these files just now. Nothing was done; look at the "
                    "review again."
                ) from None
            case "TC422":
                raise Superseded(
                    "Another attempt of this request has begun. Nothing was changed by this one."
                ) from None
            case "55P03":
                # Of rows of files, but also of a whole table, while an operator changes it.
                raise LockNotAvailable(
                    "The database is busy: a lock in it was not free in time. Nothing was stored. Try again."
                ) from None
        raise


class _TracedCursor(AsyncCursor[Any]):
    """Records a span for each statement of a request or a run, with its text, which has no values."""

    async def execute(self, query: Any, params: Any = None, **options: Any) -> Self:
        if not is_within_span():
            return await super().execute(query, params, **options)
        text = (" ".join(query.split()) if isinstance(query, str) else "") or "?"
        name = text.partition(" ")[0].upper()
        attributes = {"db.system.name": "postgresql", "db.operation.name": name, "db.query.text": text}
        with span(f"{name} postgresql", attributes):
            return await super().execute(query, params, **options)


# Statements that may wait for a connection of one pool.
_MOST_WAITING = 1_000
# For so long, while others use all of them or the database cannot be reached.
_MOST_SECONDS_WAITING = 30.0


def _pool(dsn: str, name: str, size: int, answer_seconds: float) -> Pool:
    async def configure(connection: Connection) -> None:
        connection.answer_seconds = answer_seconds

    conninfo = with_tcp_deadlines(dsn, application_name=name, options=_OPTIONS)
    return AsyncConnectionPool(
        conninfo,
        connection_class=Connection,
        min_size=min(2, size),
        max_size=size,
        # More would only time out. They get 503 at once.
        max_waiting=_MOST_WAITING,
        timeout=min(_MOST_SECONDS_WAITING, answer_seconds),
        open=False,
        configure=configure,
        kwargs={
            "autocommit": True,
            "prepare_threshold": 1,
            "cursor_factory": _TracedCursor if is_tracing() else AsyncCursor,
        },
        name=name,
    )


# What the driver and its pool raise if the database may be the cause, not the statement.
OperationalError = psycopg.OperationalError

# Connection lost, lock or deadlock, out of resources, shutting down: the same statement may succeed in a moment.
_PASSING = ("08", "40", "53", "55", "57")
_PATIENCE_SECONDS = 2


async def is_online(database: Database) -> bool:
    """Return whether the database answers."""
    try:
        async with asyncio.timeout(_PATIENCE_SECONDS), database.connection() as connection:
            await connection.execute("select 1")
    except TooManyRequests:
        # Other statements wait for it too: this server is busy, and the database may be well.
        return True
    except (psycopg.OperationalError, TimeoutError):
        return False
    return True


def is_unreachable(error: psycopg.OperationalError) -> bool:
    """Return whether the connection failed, was cut, or the server is starting or stopping."""
    return error.sqlstate is None or error.sqlstate.startswith(("08", "57P"))


def is_transient(error: psycopg.OperationalError) -> bool:
    """Return whether a retry may succeed. Without an SQLSTATE the statement never reached the database."""
    return error.sqlstate is None or error.sqlstate.startswith(_PASSING)
