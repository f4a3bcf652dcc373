"""Heartbeats: what a process does that others took for dead."""

import psycopg

from tests.databases import DatabaseUrls
from tests.wait_until import PATIENCE
from toolcrib.core.ids import ProcessId, new_id
from toolcrib.storage.server_processes import HeartbeatConnection


def test_process_whose_sessions_were_ended_is_alive_with_its_next_heartbeat(database_urls: DatabaseUrls) -> None:
    process_id = ProcessId(new_id())
    heartbeat = HeartbeatConnection(database_urls.system, process_id, f"node-{process_id}")
    heartbeat.beat()
    before = _last(database_urls, process_id)

    _end_sessions(database_urls, process_id)
    heartbeat.beat()

    try:
        assert _last(database_urls, process_id) > before
    finally:
        heartbeat.remove()
        heartbeat.close()
    assert _last(database_urls, process_id) == ""


def _last(urls: DatabaseUrls, process_id: ProcessId) -> str:
    with psycopg.connect(urls.owner) as connection:
        found = connection.execute(
            "select heartbeat_at::text from toolcrib.server_processes where id = %s", (process_id,)
        ).fetchone()
    return found[0] if found else ""


def _end_sessions(urls: DatabaseUrls, process_id: ProcessId) -> None:
    with psycopg.connect(urls.owner) as connection:
        ended = connection.execute(
            "select pg_terminate_backend(pid, %s) from pg_stat_activity where application_name like %s",
            (int(PATIENCE * 1000), f"%{process_id}"),
        ).fetchall()
    assert ended == [(True,)]
