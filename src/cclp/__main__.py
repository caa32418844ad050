"""``python -m cclp``, as torchrun calls it."""

from cclp.cli import main

if __name__ == "__main__":
    main()
