"""Model providers, one module each, with a common event stream.

The interface is in `provider` and `provider_registry`.
"""
