"""How code, arguments and results travel: digests, pickles, headers, refusals."""
