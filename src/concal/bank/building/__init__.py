"""What a version is made of, and the one way to make it: periods, links, sums, consensus, files."""
