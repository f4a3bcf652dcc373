"""Checks the server's responses against its OpenAPI description, from which clients are generated."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import httpx2
import jsonschema_rs

_JSON = "application/json"


@dataclass
class Described:
    """An OpenAPI document that checks responses. It ignores operations that the document does not describe."""

    document: Mapping[str, Any]
    seen: set[str] = field(default_factory=set)
    _validators: dict[str, jsonschema_rs.Validator] = field(default_factory=dict)

    def check(self, response: httpx2.Response) -> None:
        """Fails if a response does not match the description: its status, its schema, and the result of a tool."""
        request = response.request
        operation = self._operation(request.method, request.url.path)
        # A 204 has no body to check.
        if operation is None or not response.content or not response.headers.get("content-type", "").startswith(_JSON):
            return
        name, status = operation["operationId"], str(response.status_code)
        # The request guard rejects a malformed request on any route.
        described = operation["responses"].get(status)
        if described is None and response.is_error:
            described = {"content": {_JSON: {"schema": {"$ref": "#/components/schemas/ErrorOut"}}}}
        assert described is not None, f"{name} answers {status}, which is not described."
        body = response.json()
        self._fits(f"{name} {status}", described["content"][_JSON]["schema"], body)
        # A result that was truncated for a model may not match its schema.
        if name == "call_tool" and status == "200" and "truncated" not in body:
            self._check_result(json.loads(request.content)["tool"], body["result"])
        self.seen.add(name)

    def _check_result(self, tool: str, result: Any) -> None:
        shapes = self.document["components"]["schemas"]["ToolResults"]["properties"]
        if tool in shapes:
            self._fits(f"the result of {tool}", shapes[tool], result)

    def _fits(self, what: str, schema: Mapping[str, Any], value: Any) -> None:
        if what not in self._validators:
            self._validators[what] = jsonschema_rs.validator_for(
                {**schema, "components": self.document["components"]}, validate_formats=True
            )
        faults = [f"{error.instance_path}: {error.message}" for error in self._validators[what].iter_errors(value)]
        assert not faults, f"{what} is not as described: {faults[:5]}"

    def _operation(self, method: str, path: str) -> Mapping[str, Any] | None:
        for pattern, methods in self._paths:
            if method.lower() in methods and pattern.fullmatch(path):
                operation: Mapping[str, Any] = methods[method.lower()]
                return operation
        return None

    @cached_property
    def _paths(self) -> list[tuple[re.Pattern[str], Mapping[str, Any]]]:
        # Paths without parameters first: `/audit/verification` is no id.
        paths = sorted(self.document["paths"].items(), key=lambda item: item[0].count("{"))
        return [(re.compile(re.sub(r"\\{\w+\\}", "[^/]+", re.escape(path))), methods) for path, methods in paths]
