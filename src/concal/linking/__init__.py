"""Linking: (A, B) per draw and dimension, from a period's metric to the reference metric. The verb is `concal.link`."""
