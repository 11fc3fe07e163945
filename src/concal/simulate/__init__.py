"""Evolving programmes with known truth: what a user would bring, and separately what generated it."""

from concal.simulate.plan import Plan, demo_spec
from concal.simulate.programme import Programme, Truth, simulate_programme

__all__ = ["Plan", "Programme", "Truth", "demo_spec", "simulate_programme"]
