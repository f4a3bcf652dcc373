"""Loads beforehand what the first answer will need: a vendor's SDK takes as long as the whole server does."""

import threading
from importlib import import_module

from toolcrib.library.providers import named_by_environment


def warm_provider() -> None:
    """Begins to load the provider that the environment prefers; if another is used, nothing is lost but the effort."""
    named = next(named_by_environment(), None)
    if named is not None:
        module = f"toolcrib.providers.{named.provider.replace('-', '_')}"
        threading.Thread(target=import_module, args=(module,), name="toolcrib-warming", daemon=True).start()
