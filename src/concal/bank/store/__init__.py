"""Files: immutable data under snapshot manifests, one atomic step per commit."""
