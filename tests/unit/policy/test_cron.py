"""Cron expressions fire at the times of their zone, also when clocks change."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib.core.errors import BadArguments
from toolcrib.policy.cron import next_firing


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def firings(cron: str, zone: str, after: str, count: int) -> list[str]:
    """The next times, as the zone's clocks show them."""
    found, moment = [], at(after)
    for _ in range(count):
        moment = next_firing(cron, zone, moment)
        found.append(moment.astimezone(ZoneInfo(zone)).strftime("%d %H:%M %Z"))
    return found


@pytest.mark.parametrize(
    ("cron", "zone", "after", "expected"),
    [
        ("* * * * *", "UTC", "2026-11-17T18:00:00", "2026-11-17T18:01:00"),
        ("* * * * *", "UTC", "2026-11-17T18:00:59.999", "2026-11-17T18:01:00"),
        ("0 9 * * mon-fri", "UTC", "2026-11-20T09:00", "2026-11-23T09:00"),
        ("0 9 * * *", "Europe/Berlin", "2026-11-17T07:59", "2026-11-17T08:00"),
        ("0 9 * * *", "Europe/Berlin", "2026-07-17T06:59", "2026-07-17T07:00"),
        ("30 5 1 jan *", "Asia/Kolkata", "2026-11-17T00:00", "2027-01-01T00:00"),
        ("0 0 29 2 *", "UTC", "2096-03-01T00:00", "2104-02-29T00:00"),
        ("0 12 13 * 5", "UTC", "2026-11-17T00:00", "2026-11-20T12:00"),
        ("0 0 * * 7", "UTC", "2026-11-17T00:00", "2026-11-22T00:00"),
        ("0  0\t1 * * ", "UTC", "2026-11-17T00:00", "2026-12-01T00:00"),
    ],
)
def test_next_firing_is_the_first_match_in_the_zone(cron: str, zone: str, after: str, expected: str) -> None:
    assert next_firing(cron, zone, at(after)) == at(expected)


def test_time_that_is_skipped_fires_as_much_later_and_once() -> None:
    assert firings("30 2 * * *", "America/New_York", "2026-03-07T12:00", 3) == [
        "08 03:30 EDT", "09 02:30 EDT", "10 02:30 EDT",
    ]  # fmt: skip


def test_time_that_comes_twice_fires_the_first_time_only() -> None:
    assert firings("30 1 * * *", "America/New_York", "2026-10-31T12:00", 2) == ["01 01:30 EDT", "02 01:30 EST"]


def test_every_half_hour_fires_in_both_hours_that_clocks_show_twice() -> None:
    assert firings("*/30 * * * *", "America/New_York", "2026-11-01T04:45", 6) == [
        "01 01:00 EDT", "01 01:30 EDT", "01 01:00 EST", "01 01:30 EST", "01 02:00 EST", "01 02:30 EST",
    ]  # fmt: skip


def test_every_half_hour_skips_the_hour_that_clocks_skip() -> None:
    assert firings("*/30 * * * *", "America/New_York", "2026-03-08T06:15", 3) == [
        "08 01:30 EST", "08 03:00 EDT", "08 03:30 EDT",
    ]  # fmt: skip


@given(
    st.sampled_from(["* * * * *", "*/7 * * * *", "15 * * * *", "0 */2 * * *"]),
    st.sampled_from(["America/New_York", "Australia/Lord_Howe", "Europe/Dublin", "UTC"]),
    st.sampled_from([at("2026-03-08T00:00"), at("2026-11-01T00:00"), at("2026-03-29T00:00"), at("2026-04-04T10:00")]),
    st.integers(0, 900),
)
def test_hours_with_a_star_fire_whenever_the_clock_matches(cron: str, zone: str, day: datetime, minutes: int) -> None:
    """Compared with a look at every minute, except at the minutes that clocks skip."""
    after = day + timedelta(minutes=minutes)
    found = next_firing(cron, zone, after)

    assert found > after
    between = (after + timedelta(minutes=step) for step in range(1, int((found - after).total_seconds()) // 60))
    assert not [moment for moment in between if _matches(cron, moment.astimezone(ZoneInfo(zone)))]


def _matches(cron: str, local: datetime) -> bool:
    minute, hour, day, month, _ = cron.split()
    values = ((minute, local.minute), (hour, local.hour), (day, local.day), (month, local.month))
    return all(
        field == "*" or (field.startswith("*/") and value % int(field[2:]) == 0) or field == str(value)
        for field, value in values
    )


def test_either_of_two_days_is_enough_even_if_one_never_comes() -> None:
    assert firings("0 9 13 * fri", "UTC", "2026-02-01T00:00", 5) == [
        "06 09:00 UTC", "13 09:00 UTC", "20 09:00 UTC", "27 09:00 UTC", "06 09:00 UTC",
    ]  # fmt: skip
    assert firings("0 0 31 2 1", "UTC", "2026-02-10T00:00", 3) == ["16 00:00 UTC", "23 00:00 UTC", "01 00:00 UTC"]


@pytest.mark.parametrize(
    ("cron", "why"),
    [
        ("* * * *", "expected five fields"),
        ("0 * * * * *", "expected five fields"),
        ("@daily", "expected five fields"),
        ("", "expected five fields"),
        ("60 * * * *", "out of range"),
        ("0 24 * * *", "out of range"),
        ("0 0 0 * *", "out of range"),
        ("0 0 32 * 1", "out of range"),
        ("*/0 * * * *", "step"),
        ("r * * * *", "'r' is no minute"),
        ("h h * * *", "'h' is no minute"),
        ("0 0 l * *", "'l' is no day of the month"),
        ("0 0 * * mon#1", "is no day of the week"),
        ("٣ * * * *", "is no minute"),
        ("0 0 30 2 *", "it never fires"),
        ("0 0 31 4,6,9,11 *", "it never fires"),
        ("0," * 150 + "0 * * * *", "is not a cron expression"),
    ],
)
def test_wrong_expressions_are_rejected_with_the_reason(cron: str, why: str) -> None:
    with pytest.raises(BadArguments) as refused:
        next_firing(cron, "UTC", at("2026-11-17T00:00"))
    assert why in refused.value.fields["cron"]


@pytest.mark.parametrize("zone", ["Mars/Olympus", "America", "../../etc/passwd", "/etc/localtime", "", "CEST2"])
def test_unknown_time_zones_are_rejected(zone: str) -> None:
    with pytest.raises(BadArguments) as refused:
        next_firing("0 0 * * *", zone, at("2026-11-17T00:00"))
    assert "There is no time zone" in refused.value.fields["time_zone"]
