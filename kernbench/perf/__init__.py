"""``kernbench perf``: the ratios that the goals name, one module a part."""
