"""The web server around the application: how it listens, and what it lets a client do before it knows who that is."""

import uvicorn

from toolcrib.domain.memory import spare_what_is_loaded
from toolcrib.server.app import create_app
from toolcrib.server.services import Services

Listener = uvicorn.Server


def listener(services: Services) -> Listener:
    """A server for these services, on the address of their settings unless it is given a socket."""
    settings = services.settings
    config = uvicorn.Config(
        create_app(services),
        host=settings.host,
        port=settings.port,
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=settings.trusted_proxies is not None,
        forwarded_allow_ips=settings.trusted_proxies,
        date_header=False,
        ws="websockets-sansio",
        # What a client may make us hold before we know who it is. Large files are written over HTTP.
        ws_max_size=1_000_000,
        # Many small messages: it would cost more time than it saves in size.
        ws_per_message_deflate=False,
        timeout_graceful_shutdown=10,
    )
    spare_what_is_loaded()
    return Listener(config)
