"""What people ask of a bank: add, backfill, retract, combine again, act on an item; each contributes to a version."""
