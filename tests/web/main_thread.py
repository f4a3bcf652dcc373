"""How long the tasks of a page's main thread take, by the browser's own tracing."""

import json
from collections.abc import Awaitable

from playwright.async_api import Browser, Page

CATEGORIES = ["toplevel", "disabled-by-default-devtools.timeline"]


async def longest_task(browser: Browser, page: Page, work: Awaitable[object]) -> tuple[float, float]:
    """Return the longest task while something is done: its time on the clock and its processor time, in milliseconds.

    A task that waits for a busy machine takes longer on the clock, but no more processor time.
    """
    await browser.start_tracing(page=page, categories=CATEGORIES)
    await work
    events = json.loads(await browser.stop_tracing())["traceEvents"]
    mains = {
        (event["pid"], event["tid"])
        for event in events
        if event["name"] == "thread_name" and event["args"]["name"] == "CrRendererMain"
    }
    tasks = [
        (event["dur"] / 1000, min(event["dur"], event["tdur"]) / 1000)
        for event in events
        if event["name"].endswith("RunTask") and (event["pid"], event["tid"]) in mains and "tdur" in event
    ]
    return max(wall for wall, _ in tasks), max(processor for _, processor in tasks)
