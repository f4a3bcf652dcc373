"""Model providers: one module each, one stream from all. What others need is in `provider` and `registry`."""
