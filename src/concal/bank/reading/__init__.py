"""What can be read from one version of a bank, by what it is: contents, tables, people."""
