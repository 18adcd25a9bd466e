"""Questions about time: when ops ran, where bytes went, what was waited for.

An index answers questions about one trace, each a pure function of an op or a window;
an answer is frozen data that knows its own text.

``op_index`` knows who served each op, and what is in flight: asked at every key.
``timeline`` draws components over a window (``tracks``, ``window_summary``);
``tiles`` the stages of composites.
``routes``, ``loads`` and ``projections`` follow bytes over the links, and
``message_routes`` what belongs to no op.
``activity`` says what every component was busy with (``passages``).
``stalls`` says where the time of PEs went, by PE and by kernel line (``pieces``,
``kernel_calls``), and ``call_times`` how long one call took on each PE.
``critical`` finds what sets the end (``critical_graph``, ``critical_edges``).
``roofline`` sets what was attained against what the machine could do.

Long steps go through ``steps``, so that each of them can be watched and cancelled.
Tables of ``timeline`` are filled by lane "timeline", the others by lane "columns".
"""
