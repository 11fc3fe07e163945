"""Evidence: the pooled benchmark and how well the consensus agrees with it."""
