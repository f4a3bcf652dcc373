"""Rules for every routes module."""

from importlib import import_module
from inspect import iscoroutinefunction
from pkgutil import iter_modules

import pytest
from fastapi import APIRouter
from fastapi.routing import APIRoute

from scripts.reference import application
from toolcrib.api import http
from toolcrib.api.request_guard import StrictRoute

MODULES = [found.name for found in iter_modules(http.__path__)]


def router_of(module: str) -> APIRouter:
    router = import_module(f"{http.__name__}.{module}").router
    assert isinstance(router, APIRouter)
    return router


@pytest.mark.parametrize("module", MODULES)
def test_every_body_is_parsed_strictly(module: str) -> None:
    lax = [
        route.path
        for route in router_of(module).routes
        if isinstance(route, APIRoute) and route.body_field is not None and not isinstance(route, StrictRoute)
    ]

    assert lax == []


@pytest.mark.parametrize("module", MODULES)
def test_every_handler_is_a_coroutine(module: str) -> None:
    # FastAPI runs plain functions in a thread, which costs more than most of them do.
    plain = [
        route.path
        for route in router_of(module).routes
        if isinstance(route, APIRoute) and not iscoroutinefunction(route.endpoint)
    ]

    assert plain == []


@pytest.mark.parametrize("module", MODULES)
def test_every_route_is_built_once(module: str) -> None:
    # `include_router` would build it again, with the first request or at the start.
    served = application().routes

    assert [route for route in router_of(module).routes if route not in served] == []
