"""Questions about time: when ops ran, where they went, and what they waited for.

``timeline`` draws components over a window and ``tiles`` the stages of composites;
``routes``, ``loads`` and ``projections`` follow bytes over links; ``stalls`` says where
the time of a PE went, ``critical`` what sets the end, ``roofline`` what the machine
could do at most.
"""
