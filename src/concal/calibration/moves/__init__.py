"""The moves of the sampler, one file each; `concal.calibration.sweep` makes them in turn."""
