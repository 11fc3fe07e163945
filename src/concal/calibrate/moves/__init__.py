"""The moves of the sampler, one file each; `concal.calibrate.sweep` makes them in turn."""
