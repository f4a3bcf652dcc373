"""Benchmarks of Toolcrib against a bare baseline, interleaved in one run, because machines are noisy."""

# A file of about two thousand bytes.
BODY = "\n".join(f"line {n:04} of a file of about two thousand bytes" for n in range(40)) + "\n"
