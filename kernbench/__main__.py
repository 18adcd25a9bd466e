"""``python -m kernbench`` is ``kernbench``, where the script is not on the path."""

from kernbench.cli import main

if __name__ == "__main__":
    main()
