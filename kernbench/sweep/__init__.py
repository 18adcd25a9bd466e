"""Sweeps: one bench at many points of parameters, machines and seeds.

``space`` reads what is to be tried, ``draw`` picks points of it, ``point`` runs one of
them in a worker, ``executors`` has the workers, ``store`` keeps what came of them, and
``sweeping`` is the loop between these. ``table``, ``show`` and ``svg`` show a folder of
results. Nothing here schedules: that is up to ``concurrent.futures`` or Dask.
"""
