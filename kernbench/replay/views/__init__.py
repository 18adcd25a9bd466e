"""What panes ask beside the commands: answers cut to what a screen can show.

Each function is ``(index, at, args, progress) -> answer``, as in ``questions.py``.
"""
