"""Compiled passes of scoring."""
