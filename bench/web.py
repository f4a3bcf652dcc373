"""``python -m bench web``: a long conversation in Chromium, and a long diff.

Uses the browser's own tracing: the longest task of the page's main thread while a conversation of 2,000 messages and
500 calls is scrolled, and while an answer streams in at its end; and the time until a diff of 10,000 lines is visible.
CPU time is printed beside wall time, because a busy machine does not stretch it.
"""

import asyncio
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx2
import psycopg
from playwright.async_api import Page, async_playwright

from bench.servers import fresh_database, member, our_server, url_of
from tests.acceptance.workspace import Workspace
from tests.fakes.model_server import ModelServer, model_server_beside
from tests.integration.runs.conftest import says
from tests.web.builders import begin, hire
from tests.web.conftest import CHROMIUM, FLAGS, WIDE
from tests.web.main_thread import longest_task
from toolcrib.core.ids import new_id
from toolcrib.runs import durable
from toolcrib.storage import migrate

MESSAGES, CALLS, LINES = 2_000, 500, 10_000
LONGEST_TASK_MS, DIFF_SECONDS = 100, 1.0
PARAGRAPH = "The parser reads `one` token at a time and **never** looks back, which keeps it simple. "
SCROLLS = 60


def main(_: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder, fresh_database() as name:
        durable.upgrade(url_of(name))
        with our_server(Path(folder), url_of(name, migrate.APP_ROLE)) as ours, model_server_beside() as model:
            token, workspace_id, _user = member(ours.port)
            origin = f"http://127.0.0.1:{ours.port}"
            with httpx2.Client(base_url=f"{origin}/api/v1", trust_env=False, timeout=60) as http:
                project = Path(folder) / "data" / "workspaces" / workspace_id / "project"
                project.mkdir(parents=True)
                workspace = Workspace(http, workspace_id, token, project)
                agent = hire(workspace, model)
                session = begin(workspace, agent)
                _fill(url_of(name), workspace_id, session)
                _ask(workspace, model, agent)
                asyncio.run(_measure(origin, workspace, model, session))


def _fill(url: str, workspace_id: str, session_id: str) -> None:
    """Insert the events of a long conversation: a question, an answer, and a call with every fourth message."""
    with psycopg.connect(url) as connection:
        for number in range(MESSAGES // 2):
            run, message = str(new_id()), str(new_id())
            events: list[tuple[str, dict[str, Any]]] = [
                ("message", {"messageId": run, "role": "user", "runId": run, "content": f"Question {number}?"}),
                ("stream-start", {"messageId": message, "runId": run, "model": "gpt-fake", "attempt": 1}),
            ]
            calls = [str(new_id())] if number % (MESSAGES // 2 // CALLS) == 0 else []
            end = {
                "messageId": message,
                "runId": run,
                "content": PARAGRAPH * (1 + number % 7) + "\n\n```py\nprint(1)\n```\n",
                "thinking": None,
                "toolCalls": [{"toolId": one, "toolName": "read"} for one in calls],
                "finishReason": "stop",
                "usage": {"inputTokens": 1, "outputTokens": 1, "contextTokens": 1_000, "contextWindow": 100_000},
            }
            events.append(("stream-end", end))
            for one in calls:
                events.append(("tool-start", {"toolId": one, "toolName": "read", "input": {"path": f"/{number}.txt"}}))
                result = {"toolId": one, "toolName": "read", "status": "success", "result": PARAGRAPH * 20}
                events.append(("tool-result", result | {"metadata": {}, "durationMs": 3, "isolation": None}))
            for kind, payload in events:
                connection.execute(
                    "select toolcrib.append_event(%s, %s, %s, %s)",
                    (workspace_id, session_id, kind, json.dumps(payload)),
                )


def _ask(workspace: Workspace, model: ModelServer, agent: str) -> None:
    """Create an approval whose diff has the given number of lines. The server creates no diff for larger changes."""
    gone = 300
    workspace.write("/long.txt", "".join(f"line {n}\n" for n in range(gone)))
    rows = "".join(f"row {n}\n" for n in range(LINES - gone))
    write = ("write", {"path": "/long.txt", "content": rows, "overwrite": True})
    model.say(says("", write))
    session = begin(workspace, agent, title="A long diff")
    workspace.post(f"/sessions/{session}/messages", {"text": "Write."})
    deadline = time.monotonic() + 60
    while not workspace.get("/paused-calls").json()["items"]:
        if time.monotonic() > deadline:
            raise SystemExit("The long diff created no approval.")


async def _measure(origin: str, workspace: Workspace, model: ModelServer, session: str) -> None:
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        context = await browser.new_context(base_url=origin, viewport=WIDE)
        await context.add_cookies([{"name": "access_token", "value": workspace.token or "", "url": origin}])
        page = await context.new_page()
        page.set_default_timeout(60_000)
        await page.goto(f"/w/{workspace.id}/chat/{session}")
        await page.get_by_text(f"Question {MESSAGES // 2 - 1}?").wait_for()
        scrolled = await longest_task(browser, page, _scroll(page))
        # At its end the page follows new messages again.
        await page.get_by_role("log").evaluate("log => { log.scrollTop = log.scrollHeight }")
        streamed = await longest_task(browser, page, _stream(page, model))
        print("\n| what | longest task, ms | CPU time | target |\n|---|---|---|---|")
        for what, (wall, processor) in (("scrolling", scrolled), ("streaming", streamed)):
            print(f"| {what} {MESSAGES} messages, {CALLS} calls | {wall:.0f} | {processor:.0f} | ≤ {LONGEST_TASK_MS} |")
        diff = await _open_diff(page, workspace)
        await browser.close()
    print(f"\nA diff of {LINES} lines is visible after {diff:.2f} s (target: < {DIFF_SECONDS:.0f} s).")


async def _scroll(page: Page) -> None:
    await page.get_by_role("log").hover()
    for step in range(SCROLLS):
        await page.mouse.wheel(0, -4_000 if step < SCROLLS // 2 else 4_000)
        await page.evaluate("() => new Promise(requestAnimationFrame)")


async def _stream(page: Page, model: ModelServer) -> None:
    model.say(says(PARAGRAPH * 200 + "The end of it."))
    await page.get_by_role("textbox", name="Message").fill("Go on.")
    await page.keyboard.press("Enter")
    await page.get_by_text("The end of it.").wait_for()


async def _open_diff(page: Page, workspace: Workspace) -> float:
    await page.goto(f"/w/{workspace.id}/files")
    await page.get_by_role("link", name="Approvals").first.wait_for()
    began = time.monotonic()
    await page.get_by_role("link", name="Approvals").first.click()
    await page.get_by_role("region", name="Diff of /long.txt").get_by_text("line 0", exact=True).wait_for()
    return time.monotonic() - began
