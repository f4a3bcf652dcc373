"""Generate load with wrk: a POST with a unique body for every request."""

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

_SCRIPT = """
local count = {start}
request = function()
  count = count + 1
  return wrk.format("POST", "{path}", {{["Content-Type"]="application/json", ["Authorization"]="{auth}"}},
                    ({body}):gsub("@N@", tostring(count)))
end
response = function(status)
  if status ~= 200 then bad = (bad or 0) + 1 end
end
done = function(summary, latency)
  io.write(string.format("RESULT %d %d %d %d %d\\n", summary.requests, summary.duration,
           latency:percentile(50), latency:percentile(99), summary.errors.status))
end
"""


@dataclass(frozen=True)
class Load:
    """The result of one round of load."""

    requests: int
    per_second: float
    p50_ms: float
    p99_ms: float
    errors: int


class Wrk:
    """Runs wrk with a fixed number of connections; ``@N@`` in each request becomes a unique number."""

    def __init__(self, scratch: Path, *, connections: int, seconds: float) -> None:
        self._scratch = scratch
        self._connections = connections
        self._seconds = seconds
        self._start = 0

    def run(self, port: int, path: str, body: str, token: str = "") -> Load:
        self._start += 1_000_000
        script = self._scratch / "load.lua"
        script.write_text(_SCRIPT.format(start=self._start, path=path, auth=f"Bearer {token}", body=f"[==[{body}]==]"))
        command = ["wrk", "-t1", f"-c{self._connections}", f"-d{self._seconds}s", "-s", str(script)]
        done = subprocess.run([*command, f"http://127.0.0.1:{port}"], capture_output=True, text=True, check=True)
        found = re.search(r"RESULT (\d+) (\d+) (\d+) (\d+) (\d+)", done.stdout)
        assert found, done.stdout + done.stderr
        requests, microseconds, p50, p99, errors = map(int, found.groups())
        return Load(requests, requests / (microseconds / 1e6), p50 / 1000, p99 / 1000, errors)
