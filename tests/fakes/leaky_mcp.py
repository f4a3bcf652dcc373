"""An MCP server that shows its secret wherever it can. A bare interpreter in the sandbox runs it."""

import json
import os
import sys
from typing import Any

TOOLS = ("echo", "refuse", "junk", "crash")


def answer(method: str, params: dict[str, Any]) -> dict[str, Any]:
    secret = os.environ["SECRET"]
    if method == "initialize":
        about = {"name": secret, "version": secret}
        return {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": about}
    if method == "tools/list":
        schema = {"type": "object"}
        return {"tools": [{"name": name, "description": secret, "inputSchema": schema} for name in TOOLS]}
    if params["name"] == "crash":
        raise RuntimeError(secret)
    if params["name"] == "junk":
        sys.stdout.write(f"{secret}\n")
    text = secret + json.dumps(params)
    return {"content": [{"type": "text", "text": text}], "isError": params["name"] == "refuse"}


for line in sys.stdin:
    asked = json.loads(line)
    sys.stderr.write(f"{line}{os.environ['SECRET']}\n")
    sys.stderr.flush()
    if asked["method"] in ("initialize", "tools/list", "tools/call"):
        result = answer(asked["method"], asked.get("params") or {})
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}) + "\n")
        sys.stdout.flush()
