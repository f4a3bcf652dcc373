"""Rules for every router of the API."""

from collections.abc import Iterator
from importlib import import_module
from inspect import iscoroutinefunction
from pkgutil import walk_packages

import pytest
from fastapi import APIRouter
from fastapi.routing import APIRoute

from scripts.reference import application
from toolcrib import api
from toolcrib.api.request_guard import StrictRoute


def found_routers() -> Iterator[tuple[str, APIRouter]]:
    """Every router that a module of the API defines, also where a module defines several, with a name for the test."""
    for module in walk_packages(api.__path__, f"{api.__name__}."):
        for name, value in vars(import_module(module.name)).items():
            if isinstance(value, APIRouter):
                yield f"{module.name.removeprefix(f'{api.__name__}.')}.{name}", value


ROUTERS = dict(found_routers())


@pytest.mark.parametrize("name", ROUTERS)
def test_every_body_is_parsed_strictly(name: str) -> None:
    lax = [
        route.path
        for route in ROUTERS[name].routes
        if isinstance(route, APIRoute) and route.body_field is not None and not isinstance(route, StrictRoute)
    ]

    assert lax == []


@pytest.mark.parametrize("name", ROUTERS)
def test_every_handler_is_a_coroutine(name: str) -> None:
    # FastAPI runs plain functions in a thread, which costs more than most of them do.
    plain = [
        route.path
        for route in ROUTERS[name].routes
        if isinstance(route, APIRoute) and not iscoroutinefunction(route.endpoint)
    ]

    assert plain == []


@pytest.mark.parametrize("name", ROUTERS)
def test_every_route_is_built_once(name: str) -> None:
    # `include_router` would build it again, with the first request or at the start.
    served, routes = application().routes, ROUTERS[name].routes

    assert routes
    assert [route for route in routes if served.count(route) != 1] == []


def test_every_served_route_is_of_a_router_that_these_tests_see() -> None:
    seen = [route for router in ROUTERS.values() for route in router.routes]

    # FastAPI's own are its documentation.
    assert [route for route in application().routes if isinstance(route, APIRoute) and route not in seen] == []
