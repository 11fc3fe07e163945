"""Calibration of one period: draws on the period's own metric. The verb is `concal.calibrate`."""
