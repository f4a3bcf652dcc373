"""The health check of the image: exits with 0 if the server is ready for requests."""

import os
import sys
from http.client import HTTPConnection, HTTPException


def main() -> int:
    connection = HTTPConnection("127.0.0.1", int(os.environ.get("TOOLCRIB_PORT", "3000")), timeout=4)
    # The server answers only to names that it knows.
    host = os.environ.get("TOOLCRIB_ALLOWED_HOSTS", "").split(",")[0].strip() or "127.0.0.1"
    try:
        connection.request("GET", "/readyz", headers={"Host": host})
        answer = connection.getresponse()
        print(answer.status, answer.read(500).decode(errors="replace"))
    except (OSError, HTTPException) as error:
        print(error)
        return 1
    return 0 if answer.status == 200 else 1


if __name__ == "__main__":
    sys.exit(main())
