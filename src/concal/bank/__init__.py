"""The bank: files, versions, provenance, atomic updates."""
