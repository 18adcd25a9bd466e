"""What ``kernbench`` is as a program of a shell: help, options, completion, endings."""
