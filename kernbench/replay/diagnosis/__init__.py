"""What is wrong or slow in a trace, ranked: with its lines, and how to check it."""
