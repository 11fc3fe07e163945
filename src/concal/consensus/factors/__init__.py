"""What the responses of a period said about its items, whatever it is linked to."""
