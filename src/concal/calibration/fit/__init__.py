"""Do the items fit? What was observed of each, against what its model and the examinees' other responses predict."""
