"""The client programs, by client."""

from collections.abc import Callable, Mapping

from tests.clients import packages_client, plain_client, studio_client, tools_client
from tests.clients.client_server import Stage
from tests.clients.criteria import Report

PROGRAMS: Mapping[str, Callable[[Stage], Report]] = {
    "studio": studio_client.play,
    "packages": packages_client.play,
    "plain": plain_client.play,
    "tools_api": tools_client.play,
}
