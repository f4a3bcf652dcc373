"""Due times of periodic jobs, as entries of the durable queue. With the system role."""

from toolcrib.storage.database import Store


class PeriodicJobStore(Store):
    """Queries on periodic jobs."""

    async def enter(self, job: str, seconds: float, *, after_ms: int = 0) -> None:
        """Enter the next due time of a job, which is later than ``after_ms`` since 1970.

        Due times are multiples of the interval, and each has one entry, however many processes enter it.
        """
        async with self._database.as_system() as connection:
            await connection.execute(
                """
                select dbos.enqueue_workflow(
                    'periodic', 'installation', positional_args => array[to_json(%(job)s::text)],
                    workflow_id => 'periodic/' || %(job)s || '/' || due.ms, app_version => 'runs-1',
                    delay_until_epoch_ms => due.ms)
                from (select (greatest(
                          floor(extract(epoch from clock_timestamp()) / %(seconds)s) * %(seconds)s * 1000,
                          %(after)s) + %(seconds)s * 1000)::bigint as ms) due
                """,
                {"job": job, "seconds": seconds, "after": after_ms},
            )
