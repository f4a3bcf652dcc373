"""What a worker process answers: a value of the type that its function declares, sent as plain values.

Not pickle: the worker has read untrusted input, so its answer may name no classes. The server rebuilds named tuples and
the like from the return annotation of the function that it has asked for.
"""

import marshal
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from functools import lru_cache, partial
from types import NoneType, UnionType
from typing import Any, Final, Literal, Union, get_args, get_origin, get_type_hints

_PLAIN: Final = (bool, int, float, str, bytes)
_Rebuild = Callable[[Any], Any]


class AnswerNotEncodable(Exception):
    """A value that is not of a kind that a worker can answer."""


class AnswerNotAsDeclared(Exception):
    """An answer that is no value of the declared type."""


def encoded(answer: tuple[Any, ...]) -> bytes:
    """Encode an answer. Raises ``AnswerNotEncodable`` with the type of what cannot be."""
    try:
        # Usually there is nothing but plain values.
        return marshal.dumps(answer)
    except ValueError:
        pass
    try:
        return marshal.dumps(_plain(answer))
    except (ValueError, RecursionError):
        raise AnswerNotEncodable("a value nested too deeply") from None


def _plain(value: Any) -> Any:
    """Return a value without named tuples, enums and the like."""
    kind = type(value)
    if value is None or kind in _PLAIN:
        return value
    if isinstance(value, Enum):
        return _plain(value.value)
    if isinstance(value, tuple):
        return tuple(map(_plain, value))
    if isinstance(value, Mapping):
        return {_plain(key): _plain(one) for key, one in value.items()}
    if isinstance(value, list):
        return list(map(_plain, value))
    for plain in _PLAIN:
        if isinstance(value, plain):
            make: Callable[[Any], Any] = plain
            return make(value)
    raise AnswerNotEncodable(f"{kind.__module__}.{kind.__qualname__}")


@lru_cache(maxsize=256)
def rebuild_for(function: Callable[..., Any]) -> _Rebuild:
    """Return what makes a value of the function's return type from plain values.

    Raises:
        TypeError: The function declares no type that a worker can answer.
    """
    # Functions in C declare nothing, and answer with plain values.
    declared = get_type_hints(function).get("return", Any) if hasattr(function, "__annotations__") else Any
    return _rebuild(declared)


def unwrapped(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function that a partial call calls."""
    while isinstance(function, partial):
        function = function.func
    return function


def _rebuild(declared: Any) -> _Rebuild:
    origin, inner = get_origin(declared), get_args(declared)
    if declared is Any:
        return lambda value: value
    if declared is None or declared is NoneType:
        return partial(_instance, NoneType)
    if declared in _PLAIN:
        return partial(_instance, (int, float) if declared is float else declared)
    if origin is Literal:
        return partial(_one_of, inner)
    if origin in (Union, UnionType):
        return partial(_of_union, [_rebuild(one) for one in inner])
    if origin in (list, Sequence):
        return partial(_list, _rebuild(inner[0]))
    if origin is tuple and len(inner) == 2 and inner[1] is Ellipsis:
        return partial(_tuple, _rebuild(inner[0]))
    if origin is tuple:
        return partial(_fields, tuple, [_rebuild(one) for one in inner])
    if origin in (dict, Mapping):
        return partial(_dict, _rebuild(inner[0]), _rebuild(inner[1]))
    if isinstance(declared, type) and issubclass(declared, Enum):
        return partial(_enum, declared)
    if isinstance(declared, type) and issubclass(declared, tuple) and hasattr(declared, "_fields"):
        hints = get_type_hints(declared)
        fields = [_rebuild(hints[name]) for name in declared._fields]
        return partial(_fields, declared._make, fields)  # type: ignore[attr-defined]
    raise TypeError(f"A worker cannot answer with a {declared}.")


def _instance(kind: type | tuple[type, ...], value: Any) -> Any:
    if not isinstance(value, kind):
        raise AnswerNotAsDeclared(f"{type(value).__name__} instead of {kind}")
    return value


def _one_of(values: tuple[Any, ...], value: Any) -> Any:
    if value not in values:
        raise AnswerNotAsDeclared(f"none of {values}")
    return value


def _of_union(kinds: Sequence[_Rebuild], value: Any) -> Any:
    for rebuild in kinds:
        try:
            return rebuild(value)
        except AnswerNotAsDeclared:
            continue
    raise AnswerNotAsDeclared(f"{type(value).__name__} is none of the declared types")


def _list(rebuild: _Rebuild, value: Any) -> list[Any]:
    return [rebuild(one) for one in _instance(list, value)]


def _tuple(rebuild: _Rebuild, value: Any) -> tuple[Any, ...]:
    return tuple(rebuild(one) for one in _instance(tuple, value))


def _fields(make: Callable[[list[Any]], Any], kinds: Sequence[_Rebuild], value: Any) -> Any:
    if len(_instance(tuple, value)) != len(kinds):
        raise AnswerNotAsDeclared(f"{len(value)} instead of {len(kinds)} values")
    return make([rebuild(one) for rebuild, one in zip(kinds, value, strict=True)])


def _dict(key: _Rebuild, rebuild: _Rebuild, value: Any) -> dict[Any, Any]:
    return {key(name): rebuild(one) for name, one in _instance(dict, value).items()}


def _enum(kind: type[Enum], value: Any) -> Enum:
    try:
        return kind(value)
    except ValueError:
        raise AnswerNotAsDeclared(f"no {kind.__name__}") from None
