"""Calibrating and linking as jobs: on this machine, in shards, on a cluster."""
