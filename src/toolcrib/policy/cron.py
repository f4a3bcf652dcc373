"""Cron expressions: when a schedule fires next, in its time zone."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from heapq import merge
from itertools import groupby
from typing import Final
from zoneinfo import ZoneInfo

from toolcrib.core.errors import BadArguments

LONGEST_EXPRESSION: Final = 200
# 29 February of a leap year comes after eight years at most, around 2100.
_YEARS_AHEAD: Final = 9
_FIELDS: Final = ("minute", "hour", "day of the month", "month", "day of the week")
# What every cron reads alike. The library also has hashed and random values, which differ at every reading.
_FIELD: Final = re.compile(r"[0-9a-z*,/-]+", re.ASCII)
_NAMES: Final = frozenset(
    (
        *("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"),
        *("sun", "mon", "tue", "wed", "thu", "fri", "sat"),
    )
)


def next_firing(cron: str, time_zone: str, after: datetime) -> datetime:
    """Return the first time after ``after`` at which the expression fires, in UTC.

    When clocks go forward, a time that is skipped fires as much later. When they go back, a time that comes twice fires
    the first time only, unless the minutes or hours start with ``*``: those fire in both hours.

    Raises:
        BadArguments: The expression is not valid or never fires, or there is no such time zone.
    """
    zone = _zone(time_zone)
    given = _checked(cron)
    local = after.astimezone(zone).replace(tzinfo=None, fold=0)
    firing = _first(given, local, zone, after)
    if given.startswith("*") or given.split()[1].startswith("*"):
        # By the clock as it is at that time: what the hour that comes twice has between now and then.
        offset = _offset(firing, zone)
        for candidate in _candidates(given, after.astimezone(UTC).replace(tzinfo=None) + offset):
            instant = (candidate - offset).replace(tzinfo=UTC)
            if instant >= firing or _offset(instant, zone) == offset:
                return min(instant, firing)
    return firing


def _first(cron: str, local: datetime, zone: ZoneInfo, after: datetime) -> datetime:
    for candidate in _candidates(cron, local):
        instant = candidate.replace(tzinfo=zone).astimezone(UTC)
        if instant > after:
            return instant
    raise AssertionError("unreachable: candidates do not end")


def _offset(instant: datetime, zone: ZoneInfo) -> timedelta:
    offset = instant.astimezone(zone).utcoffset()
    assert offset is not None
    return offset


def _candidates(cron: str, local: datetime) -> Iterator[datetime]:
    """Iterate over the local times after one, whether or not the zone has them."""
    minute, hour, day, month, weekday = cron.split()
    if day.startswith("*") or weekday.startswith("*"):
        return _times(cron, local)
    # Either of the two days is enough. The library fails if one of them never comes, such as 31 February.
    either = (f"{minute} {hour} {day} {month} *", f"{minute} {hour} * {month} {weekday}")
    return (time for time, _ in groupby(merge(*(_times(one, local) for one in either))))


def _times(cron: str, local: datetime) -> Iterator[datetime]:
    # Imported here, because it takes a tenth of a second, and few servers need it before the queue has loaded it.
    from croniter import croniter  # type: ignore[import-untyped]

    times: Iterator[datetime] = croniter(
        cron, local, ret_type=datetime, max_years_between_matches=_YEARS_AHEAD
    ).all_next()
    return times


def _checked(cron: str) -> str:
    fields = cron.lower().split()
    if len(cron) > LONGEST_EXPRESSION or len(fields) != len(_FIELDS):
        raise _wrong(cron, f"expected five fields ({', '.join(_FIELDS)}), found {len(fields)}")
    for name, field in zip(_FIELDS, fields, strict=True):
        if not _FIELD.fullmatch(field) or not _NAMES.issuperset(re.findall("[a-z]+", field)):
            raise _wrong(cron, f"{field[:20]!r} is no {name}")
    expression = " ".join(fields)
    try:
        first = next(_candidates(expression, datetime(2000, 1, 1)), None)  # noqa: DTZ001 - a local time
    except ValueError as error:
        raise _wrong(cron, str(error)) from None
    if first is None:
        raise _wrong(cron, "it never fires, because no date matches it")
    return expression


def _wrong(cron: str, why: str) -> BadArguments:
    return BadArguments(
        {"cron": f"{cron[:LONGEST_EXPRESSION]!r} is not a cron expression: {why}. Example: '0 9 * * mon-fri'."}
    )


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ValueError, OSError, LookupError):
        raise BadArguments(
            {"time_zone": f"There is no time zone {name[:100]!r}. Use a name such as 'Europe/Berlin' or 'UTC'."}
        ) from None
